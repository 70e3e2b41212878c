//! Whether a queue or subscription has room for one more message, and what its limits lead to where it has none.

use super::ids::Kind;
use super::properties::{OverflowPolicy, Properties};
use super::source::Source;

/// Why a source cannot take a message.
pub(super) enum Room {
    Enough,
    Full(&'static str),
    AfterDiscarding,
}

/// Whether a full source refuses the message for everybody, as opposed to going without it (EMS-DEST-A24).
pub(super) fn refuses(properties: &Properties, kind: Kind, delayed: bool) -> bool {
    match (kind, properties.overflow) {
        (Kind::Queue, _) | (Kind::Topic, OverflowPolicy::RejectIncoming) => true,
        // Nothing that waits is discarded for what comes after it: what found no room would be confirmed, and gone (EMS-DEST-A64).
        (Kind::Topic, OverflowPolicy::Default | OverflowPolicy::DiscardOld) => delayed,
    }
}

/// Whether a source has room for one more message of this size, beside so many copies of it. Delayed messages have the same room once more
/// (EMS-DEST-A63).
pub(super) fn room(source: &Source, properties: &Properties, (bytes, others): (u64, u64), delayed: bool) -> Room {
    let Properties {
        messages_max,
        bytes_max,
        overflow,
        ..
    } = properties;
    if *messages_max == 0 && *bytes_max == 0 {
        return Room::Enough;
    }
    let totals = &source.statistics;
    let (messages, total) = if delayed {
        (totals.delayed_messages, totals.delayed_bytes)
    } else {
        totals.counted()
    };
    let over_messages = *messages_max > 0 && messages + totals.pending_messages + others + 1 > *messages_max;
    let over_bytes = *bytes_max > 0 && total + totals.pending_bytes + bytes * (others + 1) > *bytes_max;
    if !over_messages && !over_bytes {
        return Room::Enough;
    }
    let limit = if over_messages { "maxMessages" } else { "maxBytes" };
    if *overflow != OverflowPolicy::DiscardOld || delayed {
        return Room::Full(limit);
    }
    // What is handed out is never dropped, so it must leave room enough.
    let fits = (*messages_max == 0 || totals.in_flight_messages < *messages_max)
        && (*bytes_max == 0 || totals.in_flight_bytes + bytes <= *bytes_max);
    if fits { Room::AfterDiscarding } else { Room::Full(limit) }
}
