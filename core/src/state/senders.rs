//! Who sent a message: the user's name, for whoever gets it from a destination that asks for it (EMS-MSG-A11).
//!
//! It is decided once, when the message arrives, for each copy by the properties of the destination that the copy goes to:
//! a copy that a bridge makes names its sender if the bridge's target asks for that, whatever its source does. From then
//! on it is part of the record.

use super::properties::Properties;
use super::publishing::Incoming;

/// The boolean property by which a message asks not to name its sender, under the names it is known by.
const DISABLE_PROPERTIES: [&str; 2] = ["JMS_STERNA_DISABLE_SENDER", "JMS_TIBCO_DISABLE_SENDER"];

/// Whether a copy names its sender at a destination of these properties.
pub(super) fn names_sender(properties: &Properties, incoming: &Incoming<'_>) -> bool {
    if incoming.user.is_empty() {
        return false;
    }
    properties.sender_name_enforced || properties.sender_name && !declines(incoming)
}

fn declines(incoming: &Incoming<'_>) -> bool {
    let view = incoming.view;
    view.property_count() > 0 && DISABLE_PROPERTIES.iter().any(|property| view.has_flag(property))
}
