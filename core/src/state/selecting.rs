//! Puts a message and what the broker knows about it before a selector. Texts are made up only for selectors that ask.

use crate::message::{MessageView, Selectable};
use crate::selector::{HeaderField, Selector};

use super::ids::Kind;

/// Writes a message id, `ID:<broker>.<incarnation in hexadecimal>:<sequence>` (EMS-MSG-A26).
#[must_use]
pub fn message_id(broker: &str, (incarnation, sequence): (u64, u64)) -> String {
    format!("ID:{broker}.{incarnation:X}:{sequence}")
}

/// What the broker knows about a message that a selector is to judge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances<'a> {
    pub broker: &'a str,
    pub arrived_ms: u64,
    pub id: (u64, u64),
    /// Where it was sent; only `$sys.undelivered` may ask.
    pub origin: Option<(Kind, &'a str)>,
    pub delivery_count: u32,
}

/// Whether a selector wants a message.
pub(super) fn wants(selector: &Selector, view: &MessageView<'_>, known: &Circumstances<'_>) -> bool {
    let mut fields = Selectable::new(view, known.arrived_ms);
    fields.delivery_count = known.delivery_count;
    let id;
    if selector.uses(HeaderField::MessageId) {
        id = message_id(known.broker, known.id);
        fields.message_id = &id;
    }
    let destination;
    if let Some((kind, name)) = known.origin
        && selector.uses(HeaderField::Destination)
    {
        destination = match kind {
            Kind::Queue => format!("Queue[{name}]"),
            Kind::Topic => format!("Topic[{name}]"),
        };
        fields.destination = &destination;
    }
    selector.matches(&fields)
}
