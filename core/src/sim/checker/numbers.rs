//! Rules about numbers and answers: a sequence names one message; a message gets one kind of answer.

use super::index::Index;
use super::{Found, Rule};
use crate::sim::facts::{Key, Mode, PlaceId};
use std::collections::BTreeMap;

pub fn check(index: &Index<'_>, found: &mut Found) {
    let mut named: BTreeMap<(PlaceId, u64), Key> = BTreeMap::new();
    for delivery in &index.deliveries {
        let handed = delivery.handed;
        let durable = index.facts.place(handed.place).durable;
        if index.facts.message(handed.key).mode != Mode::Persistent || !durable {
            // Numbers of what was only in memory may be given again after a restart; epochs tell them apart.
            continue;
        }
        let other = *named.entry((handed.place, handed.sequence)).or_insert(handed.key);
        if other != handed.key {
            let name = index.name(handed.place, handed.key);
            found.add(
                Rule::NumberReused,
                format!("{name} has the number {} of message {}", handed.sequence, other.0),
            );
        }
    }
    for key in index.keys() {
        let life = index.life(key);
        let message = index.facts.message(key);
        let answered = life.confirmed.map(|(at, _)| at).or(life.rejected);
        let Some(answered) = answered else { continue };
        let unasked = life.sent.first().is_none_or(|sent| *sent > answered);
        let reliable = message.mode == Mode::Reliable;
        let both = life.confirmed.is_some() && life.rejected.is_some();
        let too_safe = message.mode != Mode::Persistent && life.confirmed.is_some_and(|(_, durable)| durable);
        if unasked || reliable || both || too_safe {
            let mode = message.mode;
            let what = format!(
                "message {} ({mode:?}): unasked {unasked}, both {both}, too safe {too_safe}",
                key.0
            );
            found.add(Rule::WrongAnswer, what);
        }
    }
}
