//! Which numbers of which producers have arrived, per destination, so that a message sent again is not stored again.
//!
//! A producer is known by its incarnation, which the broker gives out and never gives twice. The table is bounded: it has
//! a young and an old half, every number that arrives makes its producer young, and when the young half is full the old
//! one is forgotten. What is forgotten is known by the highest forgotten incarnation, so that an old producer gets an
//! honest "unknown" instead of a silent duplicate. The table follows from the log's records alone; numbers of messages
//! that are not logged are kept apart, in memory.

use rustc_hash::FxHashMap;

use crate::log::Position;

use super::ids::DestinationId;
use super::refusals::{Refusal, Refusals};

/// What is known about an incarnation at a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerKnowledge {
    /// The highest number that arrived.
    Known(u64),
    /// Nothing of it ever arrived here.
    New,
    /// Something may have arrived; it is too long ago to know.
    Forgotten,
}

/// What the table keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastArrival {
    /// The highest number.
    pub sequence: u64,
    /// The record of that message; [`Position::ZERO`] when it is older than the last start.
    pub position: Position,
}

type Key = (u64, DestinationId);

/// The table.
#[derive(Debug)]
pub struct Producers {
    young: FxHashMap<Key, LastArrival>,
    old: FxHashMap<Key, LastArrival>,
    forgotten_up_to: u64,
    /// As `forgotten_up_to`, of what was only ever in memory: it ends with the process, like those messages.
    forgotten_unlogged: u64,
    /// Numbers below the highest that never arrived.
    pub(super) refusals: Refusals,
    unlogged: Box<[FxHashMap<Key, u64>; 2]>,
    half_max: usize,
}

impl Producers {
    /// A table that keeps at least half of `producers_max` and at most all.
    #[must_use]
    pub fn new(producers_max: usize) -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            forgotten_up_to: 0,
            forgotten_unlogged: 0,
            refusals: Refusals::default(),
            unlogged: Box::default(),
            half_max: (producers_max / 2).max(1),
        }
    }

    /// The highest number of a producer that arrived at a destination, logged or not.
    #[must_use]
    pub fn last(&self, incarnation: u64, destination: DestinationId) -> Option<LastArrival> {
        let key = (incarnation, destination);
        let logged = self.young.get(&key).or_else(|| self.old.get(&key)).copied();
        let unlogged = self.unlogged.iter().find_map(|half| half.get(&key)).copied();
        match (logged, unlogged) {
            (logged, None) => logged,
            (Some(last), Some(sequence)) if last.sequence >= sequence => Some(last),
            (logged, Some(sequence)) => Some(LastArrival {
                sequence,
                position: logged.map_or(Position::ZERO, |last| last.position),
            }),
        }
    }

    /// As [`Producers::last`], and whether there may have been something that is forgotten.
    #[must_use]
    pub fn knowledge(&self, incarnation: u64, destination: DestinationId) -> ProducerKnowledge {
        match self.last(incarnation, destination) {
            Some(last) if self.refusals.of(incarnation, destination, last.sequence) == Refusal::Unknown => {
                ProducerKnowledge::Forgotten
            }
            Some(last) => ProducerKnowledge::Known(last.sequence),
            None if incarnation <= self.forgotten_up_to.max(self.forgotten_unlogged) => ProducerKnowledge::Forgotten,
            None => ProducerKnowledge::New,
        }
    }

    /// Notes a logged arrival.
    pub fn note(&mut self, incarnation: u64, destination: DestinationId, sequence: u64, position: Position) {
        let key = (incarnation, destination);
        if let Some(last) = self.young.get_mut(&key) {
            if sequence >= last.sequence {
                *last = LastArrival { sequence, position };
            } else {
                // Refused before, and sent again behind later ones: it is confirmed no sooner than it is safe.
                last.position = last.position.max(position);
            }
            return;
        }
        let before = self.old.remove(&key).filter(|last| last.sequence > sequence);
        self.young
            .insert(key, before.unwrap_or(LastArrival { sequence, position }));
        if self.young.len() >= self.half_max {
            self.rotate();
        }
    }

    /// Notes an arrival that no record tells of.
    pub fn note_unlogged(&mut self, incarnation: u64, destination: DestinationId, sequence: u64) {
        let key = (incarnation, destination);
        let [young, old] = self.unlogged.as_mut();
        if let Some(last) = young.get_mut(&key) {
            *last = sequence.max(*last);
            return;
        }
        let before = old.remove(&key).unwrap_or(0);
        young.insert(key, sequence.max(before));
        if young.len() >= self.half_max {
            let evicted = std::mem::replace(old, std::mem::take(young));
            for (key, sequence) in evicted {
                if self.young.contains_key(&key) || self.old.contains_key(&key) {
                    // Logged messages keep it known, and then only with all of its numbers.
                    old.insert(key, sequence);
                } else {
                    self.forgotten_unlogged = self.forgotten_unlogged.max(key.0);
                }
            }
        }
    }

    fn rotate(&mut self) {
        let evicted = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let highest = evicted.keys().map(|(incarnation, _)| *incarnation).max().unwrap_or(0);
        self.forgotten_up_to = self.forgotten_up_to.max(highest);
    }

    /// The highest incarnation of which something is forgotten.
    #[must_use]
    pub const fn forgotten_up_to(&self) -> u64 {
        self.forgotten_up_to
    }

    /// All that is logged, old half first, each half sorted: with [`Producers::restore`] this makes the same table.
    #[must_use]
    pub fn snapshot(&self) -> [Vec<(u64, DestinationId, u64)>; 2] {
        [&self.old, &self.young].map(|half| {
            let mut rows: Vec<_> = half
                .iter()
                .map(|((who, to), last)| (*who, *to, last.sequence))
                .collect();
            rows.sort_unstable();
            rows
        })
    }

    /// Takes a row of a checkpoint, unless the table knows better.
    pub fn restore(&mut self, young: bool, incarnation: u64, destination: DestinationId, sequence: u64) {
        let key = (incarnation, destination);
        if self
            .young
            .get(&key)
            .or_else(|| self.old.get(&key))
            .is_some_and(|last| last.sequence >= sequence)
        {
            return;
        }
        // It stands in one half: an earlier message's number in the other would hide this one.
        let (half, other) = if young {
            (&mut self.young, &mut self.old)
        } else {
            (&mut self.old, &mut self.young)
        };
        other.remove(&key);
        half.insert(
            key,
            LastArrival {
                sequence,
                position: Position::ZERO,
            },
        );
    }

    /// Takes a checkpoint's bound.
    pub fn restore_forgotten(&mut self, incarnation: u64) {
        self.forgotten_up_to = self.forgotten_up_to.max(incarnation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: DestinationId = DestinationId(20);

    #[test]
    fn numbers_are_known_per_destination() {
        let mut producers = Producers::new(100);
        producers.note(7, QUEUE, 3, Position(64));
        producers.note(7, QUEUE, 4, Position(128));
        producers.note(7, QUEUE, 2, Position(256));
        assert_eq!(
            producers.last(7, QUEUE),
            Some(LastArrival {
                sequence: 4,
                position: Position(256)
            })
        );
        assert_eq!(producers.knowledge(7, DestinationId(21)), ProducerKnowledge::New);
        producers.note_unlogged(7, QUEUE, 6);
        assert_eq!(producers.knowledge(7, QUEUE), ProducerKnowledge::Known(6));
    }

    #[test]
    fn the_table_is_bounded_and_says_what_it_forgot() {
        let mut producers = Producers::new(10);
        for incarnation in 1..=1000 {
            producers.note(incarnation, QUEUE, 1, Position(8));
            producers.note(1, QUEUE, incarnation, Position(8));
        }
        assert!(producers.young.len() + producers.old.len() <= 10);
        assert_eq!(producers.knowledge(500, QUEUE), ProducerKnowledge::Forgotten);
        assert_eq!(
            producers.knowledge(1, QUEUE),
            ProducerKnowledge::Known(1000),
            "who sends is remembered"
        );
        assert_eq!(producers.knowledge(1001, QUEUE), ProducerKnowledge::New);
    }

    #[test]
    fn what_was_only_in_memory_is_bounded_and_not_taken_for_new_when_it_is_forgotten() {
        let mut producers = Producers::new(10);
        producers.note(3, QUEUE, 1, Position(8));
        producers.note_unlogged(3, QUEUE, 2);
        for incarnation in 4..=1000 {
            producers.note_unlogged(incarnation, QUEUE, 1);
        }
        let kept: usize = producers.unlogged.iter().map(FxHashMap::len).sum();
        assert!(kept <= 15, "{kept}");
        assert_eq!(producers.knowledge(500, QUEUE), ProducerKnowledge::Forgotten);
        assert_eq!(
            producers.knowledge(3, QUEUE),
            ProducerKnowledge::Known(2),
            "known by what is logged, with all of its numbers"
        );
        assert_eq!(producers.knowledge(1001, QUEUE), ProducerKnowledge::New);
    }

    #[test]
    fn a_checkpoint_knows_better_than_the_messages_that_are_left_from_before_it() {
        let mut producers = Producers::new(10);
        producers.note(7, QUEUE, 3, Position(64));
        producers.restore(false, 7, QUEUE, 10);
        assert_eq!(producers.last(7, QUEUE).map(|last| last.sequence), Some(10));
    }

    #[test]
    fn a_snapshot_makes_the_same_table() {
        let mut producers = Producers::new(10);
        (1..=23).for_each(|incarnation| producers.note(incarnation, QUEUE, incarnation, Position(8)));
        let mut copy = Producers::new(10);
        for (young, rows) in [false, true].into_iter().zip(producers.snapshot()) {
            rows.into_iter()
                .for_each(|(who, to, sequence)| copy.restore(young, who, to, sequence));
        }
        copy.restore_forgotten(producers.forgotten_up_to());
        assert_eq!(copy.snapshot(), producers.snapshot());
        assert_eq!(copy.knowledge(1, QUEUE), ProducerKnowledge::Forgotten);
    }
}
