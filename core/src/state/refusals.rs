//! Which numbers of producers were refused, so that one that is sent again is not taken for one that arrived.
//!
//! A refused message uses its number up, and later ones go on. When the connection is lost before its producer has heard
//! of the refusal, it sends the number again, which is then below the highest that arrived. What is here says that it
//! never did. Most producers never meet a refusal, and cost nothing here.
//!
//! A message record carries what was refused before it, so that this survives a crash as long as it matters: without a
//! later message on record the number is not below anything. Only the last [`WINDOW`] numbers count: a producer has no
//! more on the way. Where even those are too ragged to keep, the producer counts as forgotten, which it is told.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::ids::DestinationId;

/// How far back a producer may have to send again.
pub const WINDOW: u64 = 65_536;

/// Ranges that are kept for one producer at one destination.
const RANGES_MAX: usize = 64;

/// Producers for which something is kept.
const PRODUCERS_MAX: usize = 65_536;

/// First and last number of each range, in order.
pub type Ranges = SmallVec<[(u64, u64); 2]>;

/// What stands for "too much to keep".
const UNKNOWN: (u64, u64) = (0, u64::MAX);

type Key = (u64, DestinationId);

/// What is known of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It was not refused.
    None,
    /// It was refused and has not arrived since.
    Refused,
    /// It cannot be told any more.
    Unknown,
}

/// All refused numbers that count.
#[derive(Debug, Default)]
pub struct Refusals {
    producers: FxHashMap<Key, Ranges>,
}

impl Refusals {
    /// Notes that a number was refused.
    pub fn note(&mut self, incarnation: u64, destination: DestinationId, sequence: u64) {
        if self.producers.len() >= PRODUCERS_MAX {
            // So many producers with refusals at once: each is told that it is forgotten, should it ask.
            self.producers
                .values_mut()
                .for_each(|ranges| *ranges = smallvec::smallvec![UNKNOWN]);
            return;
        }
        let ranges = self.producers.entry((incarnation, destination)).or_default();
        if ranges.first() == Some(&UNKNOWN) {
            return;
        }
        ranges.retain(|(_, last)| last.saturating_add(WINDOW) >= sequence);
        let index = ranges.partition_point(|(first, _)| *first <= sequence);
        if let Some((_, last)) = index.checked_sub(1).and_then(|before| ranges.get_mut(before))
            && last.saturating_add(1) >= sequence
        {
            *last = sequence.max(*last);
        } else {
            ranges.insert(index, (sequence, sequence));
        }
        if ranges.len() > RANGES_MAX {
            *ranges = smallvec::smallvec![UNKNOWN];
        }
    }

    /// What is known of a number.
    #[must_use]
    pub fn of(&self, incarnation: u64, destination: DestinationId, sequence: u64) -> Refusal {
        if self.producers.is_empty() {
            return Refusal::None;
        }
        match self.producers.get(&(incarnation, destination)) {
            None => Refusal::None,
            Some(ranges) if ranges.first() == Some(&UNKNOWN) => Refusal::Unknown,
            Some(ranges) if ranges.iter().any(|(first, last)| (*first..=*last).contains(&sequence)) => Refusal::Refused,
            Some(_) => Refusal::None,
        }
    }

    /// Takes out a number that has arrived after all.
    pub fn arrived(&mut self, incarnation: u64, destination: DestinationId, sequence: u64) {
        if self.producers.is_empty() {
            return;
        }
        let key = (incarnation, destination);
        let Some(ranges) = self.producers.get_mut(&key) else {
            return;
        };
        let Some(index) = ranges
            .iter()
            .position(|range| *range != UNKNOWN && (range.0..=range.1).contains(&sequence))
        else {
            return;
        };
        let (first, last) = ranges.remove(index);
        if sequence < last {
            ranges.insert(index, (sequence + 1, last));
        }
        if first < sequence {
            ranges.insert(index, (first, sequence - 1));
        }
        if ranges.is_empty() {
            self.producers.remove(&key);
        }
    }

    /// What a record of this number has to carry.
    #[must_use]
    pub fn before(&self, incarnation: u64, destination: DestinationId, sequence: u64) -> Ranges {
        if self.producers.is_empty() {
            return Ranges::new();
        }
        let ranges = self.producers.get(&(incarnation, destination));
        let counts = |(_, last): &&(u64, u64)| last.saturating_add(WINDOW) >= sequence;
        ranges
            .map(|ranges| ranges.iter().filter(counts).copied().collect())
            .unwrap_or_default()
    }

    /// Takes what a record or a checkpoint says: all that counts at that point.
    pub fn set(&mut self, incarnation: u64, destination: DestinationId, ranges: &[(u64, u64)]) {
        if ranges.is_empty() {
            if !self.producers.is_empty() {
                self.producers.remove(&(incarnation, destination));
            }
            return;
        }
        self.producers
            .insert((incarnation, destination), Ranges::from_slice(ranges));
    }

    /// Everything, sorted, for a checkpoint.
    #[must_use]
    pub fn snapshot(&self) -> Vec<(u64, DestinationId, Ranges)> {
        let mut rows: Vec<_> = self
            .producers
            .iter()
            .map(|((who, to), ranges)| (*who, *to, ranges.clone()))
            .collect();
        rows.sort_unstable();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: DestinationId = DestinationId(20);

    #[test]
    fn refused_numbers_merge_and_leave_when_they_arrive() {
        let mut refusals = Refusals::default();
        [4, 5, 9, 6]
            .into_iter()
            .for_each(|sequence| refusals.note(7, QUEUE, sequence));
        assert_eq!(refusals.before(7, QUEUE, 10).as_slice(), [(4, 6), (9, 9)]);
        assert_eq!(refusals.of(7, QUEUE, 5), Refusal::Refused);
        assert_eq!(refusals.of(7, QUEUE, 7), Refusal::None);
        assert_eq!(refusals.of(8, QUEUE, 5), Refusal::None);
        refusals.arrived(7, QUEUE, 5);
        assert_eq!(refusals.before(7, QUEUE, 10).as_slice(), [(4, 4), (6, 6), (9, 9)]);
        [4, 6, 9]
            .into_iter()
            .for_each(|sequence| refusals.arrived(7, QUEUE, sequence));
        assert!(refusals.snapshot().is_empty());
    }

    #[test]
    fn what_is_too_ragged_to_keep_cannot_be_told_any_more_and_old_numbers_do_not_count() {
        let mut refusals = Refusals::default();
        (0..200).for_each(|step| refusals.note(7, QUEUE, 1 + 2 * step));
        assert_eq!(refusals.of(7, QUEUE, 2), Refusal::Unknown);
        refusals.note(8, QUEUE, 1);
        refusals.note(8, QUEUE, 2 + WINDOW);
        assert_eq!(
            refusals.before(8, QUEUE, 3 + WINDOW).as_slice(),
            [(2 + WINDOW, 2 + WINDOW)]
        );
    }
}
