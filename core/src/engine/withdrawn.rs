//! What a transacted session was sent, and the engine gave back by itself: its consumer was closed because the destination
//! went, or lives elsewhere now.
//!
//! The client may not have heard of it yet, and have worked on those messages: it goes on to acknowledge them in a
//! transaction, with what it sends because of them. Somebody else is given the messages, so that this transaction must
//! not take effect (EMS-TX-A02). Where the session does hold what it names, it was sent it again since, and all is well.

use super::errors::{Refused, refuse};
use crate::proto::ErrorCode;
use crate::state::SourceId;
use std::collections::BTreeMap;

/// So many stretches of deliveries, and sources with any, are remembered by a session. Of the source with the most the lower
/// half is then forgotten: what is named of it counts as withdrawn unless the session holds it.
const REMEMBERED_MAX: usize = 65_536;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Withdrawn {
    sources: BTreeMap<SourceId, Taken>,
    /// Stretches of all sources, and these themselves.
    count: usize,
    /// Of sources up to this one that are not among the others it is not known what was withdrawn; 0: none.
    unknown_up_to: u64,
}

/// What was withdrawn of one source.
#[derive(Debug, Default)]
struct Taken {
    /// Stretches by their first; the last belongs to it.
    stretches: BTreeMap<u64, u64>,
    /// Up to here it is not known.
    unknown_up_to: u64,
}

impl Taken {
    /// Notes one; whether there is a stretch more, or one less, than before.
    fn add(&mut self, sequence: u64) -> isize {
        let before = self.stretches.range_mut(..=sequence).next_back();
        let joins = match before {
            _ if sequence <= self.unknown_up_to => return 0,
            Some((_, last)) if sequence <= *last => return 0,
            Some((first, last)) if *last + 1 == sequence => {
                *last = sequence;
                Some(*first)
            }
            _ => None,
        };
        let behind = sequence.checked_add(1).and_then(|next| self.stretches.remove(&next));
        match (joins, behind) {
            (Some(first), Some(last)) => {
                self.stretches.insert(first, last);
                -1
            }
            (Some(_), None) => 0,
            (None, behind) => {
                self.stretches.insert(sequence, behind.unwrap_or(sequence));
                isize::from(behind.is_none())
            }
        }
    }

    /// Takes one out; how many stretches more there are then.
    fn forget(&mut self, sequence: u64) -> isize {
        let Some((&first, &last)) = self.stretches.range(..=sequence).next_back() else {
            return 0;
        };
        if last < sequence {
            return 0;
        }
        self.stretches.remove(&first);
        let mut count = -1;
        for (from, to) in [(first, sequence - 1), (sequence + 1, last)] {
            if from <= to {
                self.stretches.insert(from, to);
                count += 1;
            }
        }
        count
    }

    /// Forgets the lower half of its stretches.
    fn forget_half(&mut self) {
        let half = self.stretches.len().div_ceil(2);
        for _ in 0..half {
            if let Some((_, last)) = self.stretches.pop_first() {
                self.unknown_up_to = last;
            }
        }
    }

    /// What of a stretch was withdrawn, or may have been.
    fn within(&self, first: u64, last: u64, found: &mut Vec<(u64, u64)>) {
        let mut from = first;
        if self.unknown_up_to > 0 && from <= self.unknown_up_to {
            found.push((from, last.min(self.unknown_up_to)));
            from = self.unknown_up_to.saturating_add(1);
        }
        if from > last {
            return;
        }
        let begins = self
            .stretches
            .range(..=from)
            .next_back()
            .map_or(from, |(first, _)| *first);
        let stretches = self.stretches.range(begins..=last);
        found.extend(
            stretches
                .map(|(begin, end)| ((*begin).max(from), (*end).min(last)))
                .filter(|(begin, end)| begin <= end),
        );
    }
}

impl Withdrawn {
    /// Notes deliveries.
    pub fn add(&mut self, source: SourceId, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            if source.0 <= self.unknown_up_to {
                return;
            }
            let taken = self.sources.entry(source).or_insert_with(|| {
                self.count += 1;
                Taken::default()
            });
            self.count = self.count.saturating_add_signed(taken.add(sequence));
            if self.count > REMEMBERED_MAX {
                self.forget_some();
            }
        }
    }

    /// Makes room: of the source with the most stretches the lower half goes, or all sources with the lowest numbers.
    fn forget_some(&mut self) {
        let most = self.sources.iter_mut().max_by_key(|(_, taken)| taken.stretches.len());
        if let Some((_, taken)) = most.filter(|(_, taken)| taken.stretches.len() > 1) {
            let before = taken.stretches.len();
            taken.forget_half();
            self.count -= before - taken.stretches.len();
            return;
        }
        while self.count > REMEMBERED_MAX / 2
            && let Some((source, taken)) = self.sources.pop_first()
        {
            self.unknown_up_to = self.unknown_up_to.max(source.0);
            self.count -= 1 + taken.stretches.len();
        }
    }

    /// Whether nothing is withdrawn, as is nearly always so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.unknown_up_to == 0
    }

    /// What of some stretches (both ends included, none twice) was withdrawn, or may have been for all that is known. Costs no
    /// more than the stretches and what is found.
    #[must_use]
    pub fn within(&self, source: SourceId, ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for &(first, last) in ranges.iter().filter(|(first, last)| first <= last) {
            if source.0 <= self.unknown_up_to {
                found.push((first, last));
            } else if let Some(taken) = self.sources.get(&source) {
                taken.within(first, last, &mut found);
            }
        }
        found
    }

    /// The session was sent these again.
    pub fn forget(&mut self, source: SourceId, sequences: &[u64]) {
        let Some(taken) = self.sources.get_mut(&source) else {
            return;
        };
        for sequence in sequences {
            self.count = self.count.saturating_add_signed(taken.forget(*sequence));
        }
        if taken.stretches.is_empty() && taken.unknown_up_to == 0 {
            self.sources.remove(&source);
            self.count -= 1;
        }
    }
}

/// Why a transaction in which such a message is acknowledged is rolled back.
#[must_use]
pub fn refusal() -> Refused {
    let message = "A message that is acknowledged in it was given back before, when its consumer was closed.";
    refuse(ErrorCode::Closed, "acknowledge", message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::sim::Random;
    use std::collections::BTreeSet;

    const ORDERS: SourceId = SourceId(20);

    #[test]
    fn what_is_noted_and_sent_again_is_told_as_of_single_numbers() {
        let mut random = Random::new(7);
        for _ in 0..200 {
            let (mut withdrawn, mut model) = (Withdrawn::default(), BTreeSet::new());
            for _ in 0..100 {
                let sequence = 1 + random.below(40);
                if random.one_in(3) {
                    withdrawn.forget(ORDERS, &[sequence]);
                    model.remove(&sequence);
                } else {
                    withdrawn.add(ORDERS, [sequence]);
                    model.insert(sequence);
                }
                let stretches = model
                    .iter()
                    .filter(|sequence| !model.contains(&(**sequence - 1)))
                    .count();
                let sources = usize::from(!model.is_empty());
                assert_eq!(withdrawn.count, stretches + sources);
                assert_eq!(withdrawn.is_empty(), model.is_empty());
            }
            let first = random.below(41);
            let last = first + random.below(20);
            let found = withdrawn.within(ORDERS, &[(first, last)]);
            let found: Vec<u64> = found.iter().flat_map(|(first, last)| *first..=*last).collect();
            let expected: Vec<u64> = model.range(first..=last).copied().collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn beyond_what_is_remembered_only_what_is_oldest_is_unknown() {
        let mut withdrawn = Withdrawn::default();
        // Everything that a session may hold at a time, as one of many that share a queue would.
        withdrawn.add(ORDERS, (1..=262_144).map(|number| number * 2));
        withdrawn.add(SourceId(21), 1..=262_144);
        assert!(withdrawn.count <= REMEMBERED_MAX);
        let unknown = withdrawn.within(ORDERS, &[(1, 1)]);
        assert_eq!(unknown, [(1, 1)], "whether it was cannot be told");
        assert_eq!(withdrawn.within(ORDERS, &[(524_287, 524_288)]), [(524_288, 524_288)]);
        assert_eq!(withdrawn.within(ORDERS, &[(524_289, u64::MAX)]), []);
        assert_eq!(
            withdrawn.within(SourceId(21), &[(1, 5), (262_144, 300_000)]),
            [(1, 5), (262_144, 262_144)]
        );
        assert_eq!(withdrawn.within(SourceId(22), &[(1, u64::MAX)]), []);
        // A source more than there is room for: the oldest are.
        let mut withdrawn = Withdrawn::default();
        (1..=40_000).for_each(|source| withdrawn.add(SourceId(source), [7]));
        assert!(withdrawn.count <= REMEMBERED_MAX);
        assert_eq!(withdrawn.within(SourceId(3), &[(9, 9)]), [(9, 9)]);
        assert_eq!(withdrawn.within(SourceId(40_000), &[(1, 9)]), [(7, 7)]);
        assert_eq!(withdrawn.within(SourceId(40_001), &[(1, 9)]), []);
    }
}
