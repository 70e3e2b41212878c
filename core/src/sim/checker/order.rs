//! Order: first deliveries, within producer, destination, priority and delivery mode, for one consumer without selector.
//!
//! Delay, redelivery and moves take a message out of that order, and so does a second consumer on the place, whose unseen
//! messages may come back late.

use super::index::{Index, Span};
use super::{Found, Rule};
use crate::sim::facts::{ConsumerId, Key, Message, Mode, Place, Predicate};
use std::collections::{BTreeMap, BTreeSet};

pub fn check(index: &Index<'_>, found: &mut Found) {
    let alone: Vec<bool> = (0..index.consumers.len() as u32)
        .map(|id| is_alone(index, ConsumerId(id)))
        .collect();
    let mut first: BTreeSet<_> = BTreeSet::new();
    let mut last: BTreeMap<_, _> = BTreeMap::new();
    for delivery in &index.deliveries {
        let handed = delivery.handed;
        let is_first = first.insert((handed.place, handed.key, handed.sequence));
        let message = index.facts.message(handed.key);
        let place = index.facts.place(handed.place);
        let in_order = is_first
            && !handed.redelivered
            && alone[handed.consumer.0 as usize]
            && index.facts.consumer(handed.consumer).predicate == Predicate::All
            && message.delay_ms == 0
            // Refused for a while, and sent again behind others that found room meanwhile.
            && !(may_be_refused(place, message) && index.life(handed.key).sent.len() > 1)
            && !met_a_full_log(index, handed.key, delivery.at)
            && !place.undelivered
            && message
                .transaction
                .is_none_or(|tx| !index.facts.transactions[tx.0 as usize].prepared);
        if !in_order {
            continue;
        }
        let persistent = message.mode == Mode::Persistent;
        let line = (
            handed.consumer,
            message.producer,
            message.destination.as_str(),
            message.priority,
            persistent,
        );
        // Two copies of one message may stand together, so equal is in order.
        let before = last.insert(line, handed.key);
        if before.is_some_and(|before| before > handed.key) {
            let name = index.name(handed.place, handed.key);
            let before = before.map_or(0, |key| key.0);
            found.add(
                Rule::OutOfOrder,
                format!("{name} came after {before} to consumer {}", handed.consumer.0),
            );
        }
    }
}

/// Whether a message may be refused for a while: its place refuses, or there is no room in memory just then, where what
/// only a non-durable subscription wants is kept, too.
fn may_be_refused(place: &Place, message: &Message) -> bool {
    place.refuses_late || !place.durable || message.mode != Mode::Persistent
}

/// Whether the log had no room between two of its sendings: it may have been refused, while a shorter one behind it was not.
/// Or before its transaction took effect: that may have been refused, while a later one needed no record.
fn met_a_full_log(index: &Index<'_>, key: Key, handed: usize) -> bool {
    let sent = &index.life(key).sent;
    let (Some(&first), Some(&last)) = (sent.first(), sent.last()) else {
        return false;
    };
    let transacted = index.facts.message(key).transaction.is_some();
    let until = if transacted { handed } else { last };
    index.full.iter().any(|at| (first..until).contains(at))
}

/// Whether no other consumer of the place may have been open while this one was.
fn is_alone(index: &Index<'_>, id: ConsumerId) -> bool {
    let own = index.consumer(id);
    let place = index.facts.consumer(id).place;
    let Some(asked) = own.asked else { return false };
    let end = |span: Span, from: usize| {
        let stop = index.stops.iter().copied().find(|stop| *stop > from);
        span.gone.into_iter().chain(stop).min()
    };
    let others = (0..index.consumers.len() as u32)
        .map(ConsumerId)
        .filter(|other| *other != id);
    others
        .filter(|other| index.facts.consumer(*other).place == place)
        .all(|other| {
            let other = index.consumer(other);
            let Some(other_asked) = other.asked else { return false };
            let gone_before = end(other, other_asked).is_some_and(|gone| gone < asked);
            let came_after = end(own, asked).is_some_and(|gone| gone < other_asked);
            gone_before || came_after
        })
}
