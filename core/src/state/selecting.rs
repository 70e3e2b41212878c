//! Puts a message and what the broker knows about it before a selector. Texts are made up only for selectors that ask.

use crate::message::{MessageView, Selectable};
use crate::selector::{HeaderField, Selector};

use super::ids::Kind;
use super::starts::Starts;

/// What the message ids of a producer begin with (EMS-MSG-A26): `ID:<broker>.<incarnation>.<start id>:`, in hexadecimal; the
/// number follows. Without the start id, which is random, a store that was lost would give the same ids again. Incarnations
/// that were given out before starts had ids have none.
#[must_use]
pub fn message_id_prefix(broker: &str, incarnation: u64, start: Option<u64>) -> String {
    match start {
        Some(start) => format!("ID:{broker}.{incarnation:X}.{start:016X}:"),
        None => format!("ID:{broker}.{incarnation:X}:"),
    }
}

/// What the broker knows about a message that a selector is to judge.
#[derive(Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub broker: &'a str,
    pub starts: &'a Starts,
    pub arrived_ms: u64,
    pub id: (u64, u64),
    /// Where it was sent; only `$sys.undelivered` may ask.
    pub origin: Option<(Kind, &'a str)>,
    /// Who sent it, if its destination asks for that; else empty.
    pub sender: &'a str,
    pub delivery_count: u32,
}

/// Whether a selector wants a message.
pub(super) fn wants(selector: &Selector, view: &MessageView<'_>, known: &Circumstances<'_>) -> bool {
    let mut fields = Selectable::new(view, known.arrived_ms);
    fields.delivery_count = known.delivery_count;
    fields.sender = known.sender;
    let id;
    if selector.uses(HeaderField::MessageId) {
        let (incarnation, sequence) = known.id;
        let start = known.starts.of_incarnation(incarnation);
        id = format!("{}{sequence}", message_id_prefix(known.broker, incarnation, start));
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
