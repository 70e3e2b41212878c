//! What was confirmed is there: delivered and acknowledged by the end, unless there is a reason that the rules allow.

use super::index::{Index, Verdict};
use super::times::may_have_expired;
use super::{Found, Rule};
use crate::sim::facts::{Key, Mode, PlaceId};
use std::collections::BTreeSet;

pub fn check(index: &Index<'_>, found: &mut Found) {
    for key in index.keys() {
        let Some((since, durable)) = kept_since(index, key) else {
            continue;
        };
        for place in index.place_ids() {
            let copies = index.facts.copies(key, place) as usize;
            if !is_owed(index, key, place, since, durable) {
                continue;
            }
            let done = done_with(index, place, key);
            let name = || index.name(place, key);
            if done >= copies {
                continue;
            }
            if !may_be_gone(index, place, key) {
                found.add(
                    Rule::Lost,
                    format!("{} of {copies} copies of {} are missing", copies - done, name()),
                );
            } else if let Some(aside) = owed_aside(index, place, key) {
                // Put aside rather than dropped: then it has to be there.
                let handed = index.deliveries_of(place, key).len();
                if done_with(index, aside, key) == 0 && handed == 0 {
                    found.add(Rule::Lost, format!("{} was neither delivered nor put aside", name()));
                }
            }
        }
    }
}

/// Since which event a message has to be kept, and whether it has to survive a restart.
fn kept_since(index: &Index<'_>, key: Key) -> Option<(usize, bool)> {
    match index.facts.message(key).transaction {
        None => index.life(key).confirmed,
        Some(tx) => match index.transactions[tx.0 as usize].verdict() {
            Verdict::Committed(at) => Some((at, true)),
            Verdict::Aborted | Verdict::Unknown => None,
        },
    }
}

/// Whether a message, kept since an event, has to be in a place until it is acknowledged there.
pub fn is_owed(index: &Index<'_>, key: Key, place: PlaceId, since: usize, durable: bool) -> bool {
    let into = index.facts.place(place);
    if into.undelivered || into.at_most_once || into.may_discard || index.facts.copies(key, place) == 0 {
        return false;
    }
    let span = index.places[place.0 as usize];
    let sent = index.life(key).sent.first().copied();
    let there = span.up.zip(sent).is_some_and(|(up, sent)| up < sent) && span.down.is_none();
    let logged = durable && into.durable && index.facts.message(key).mode == Mode::Persistent;
    // What is in memory, or not on disk yet, is owed until the broker stops.
    there
        && (logged
            || !index
                .stops
                .iter()
                .any(|stop| sent.is_some_and(|sent| *stop > sent.min(since))))
}

/// How many copies of a message in a place are done with, as far as the clients can tell.
pub fn done_with(index: &Index<'_>, place: PlaceId, key: Key) -> usize {
    let sequences: BTreeSet<u64> = index
        .deliveries_of(place, key)
        .iter()
        .map(|id| index.delivery(*id))
        .filter(|delivery| {
            delivery
                .acked
                .iter()
                .any(|(_, tx)| tx.is_none_or(|tx| index.transactions[tx.0 as usize].verdict() != Verdict::Aborted))
        })
        .map(|delivery| delivery.handed.sequence)
        .collect();
    sequences.len()
}

/// Whether a message may have left a place without an acknowledgement.
pub fn may_be_gone(index: &Index<'_>, place: PlaceId, key: Key) -> bool {
    let purged = index
        .purges
        .get(&place)
        .into_iter()
        .flatten()
        .any(|purge| index.life(key).sent.first().is_some_and(|sent| *sent < purge.asked));
    let refused = index.facts.place(place).refuses_late && index.facts.message(key).delay_ms > 0;
    purged || refused || may_have_expired(index, place, key) || was_exhausted(index, place, key)
}

/// Whether it was handed out as often as the place allows.
fn was_exhausted(index: &Index<'_>, place: PlaceId, key: Key) -> bool {
    let maximum = index.facts.place(place).redelivery_max;
    maximum > 0
        && index
            .deliveries_of(place, key)
            .iter()
            .any(|id| index.delivery(*id).handed.count >= maximum)
}

/// Where a message that left its place by expiry or too many deliveries has to be, if it asked for that.
fn owed_aside(index: &Index<'_>, place: PlaceId, key: Key) -> Option<PlaceId> {
    let purged = |place| index.purges.contains_key(&place);
    let message = index.facts.message(key);
    let aside = index.place_ids().find(|id| index.facts.place(*id).undelivered)?;
    (message.preserve && message.mode == Mode::Persistent && !purged(place) && !purged(aside)).then_some(aside)
}
