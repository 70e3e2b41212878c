//! What messages ask of the broker by their properties, under the names these are known by, and what destinations make of
//! it.

use crate::message::MessageView;

use super::properties::Properties;

/// Keeps a message from being dropped (EMS-MSG-A08).
const PRESERVE: [&str; 2] = ["JMS_STERNA_PRESERVE_UNDELIVERED", "JMS_TIBCO_PRESERVE_UNDELIVERED"];

/// Refuses a request (it has a `reply_to`) where nobody could answer it now.
const NEEDS_RESPONDER: [&str; 1] = ["JMS_STERNA_NEEDS_RESPONDER"];

/// Leaves the sender's name out (EMS-MSG-A11).
const DISABLE_SENDER: [&str; 2] = ["JMS_STERNA_DISABLE_SENDER", "JMS_TIBCO_DISABLE_SENDER"];

/// Whether any of the boolean properties is true.
fn asks(view: &MessageView<'_>, properties: &[&str]) -> bool {
    view.property_count() > 0 && properties.iter().any(|property| view.has_flag(property))
}

pub(super) fn preserves(view: &MessageView<'_>) -> bool {
    asks(view, &PRESERVE)
}

pub(super) fn needs_responder(view: &MessageView<'_>) -> bool {
    view.reply_to().is_some() && asks(view, &NEEDS_RESPONDER)
}

/// Whether a copy that goes to a destination of these properties carries the name of the user who sent it; anonymous ones
/// have none. It is decided once, when the message arrives, and for a copy that a bridge makes by its target.
pub(super) fn names_sender(properties: &Properties, user: &str, view: &MessageView<'_>) -> bool {
    if user.is_empty() {
        return false;
    }
    properties.sender_name_enforced || properties.sender_name && !asks(view, &DISABLE_SENDER)
}
