//! What a client says its application was handed, merged once, so that each message in flight is looked up in it quickly:
//! a frame may name a hundred thousand ranges.

use super::frames::checked_range;
use crate::proto::SeenSet;
use crate::state::{SourceId, ranges};
use rustc_hash::FxHashMap;

/// Sequence numbers by source: ranges in order that do not touch.
#[derive(Default)]
pub(super) struct Seen(FxHashMap<u64, Vec<(u64, u64)>>);

impl Seen {
    /// Ranges that make no sense say nothing.
    pub(super) fn of(sets: &[SeenSet]) -> Self {
        let mut by_source: FxHashMap<u64, Vec<(u64, u64)>> = FxHashMap::default();
        for set in sets {
            let ranges = set
                .ranges
                .iter()
                .filter_map(|range| checked_range(range.first, range.last));
            by_source.entry(set.source).or_default().extend(ranges);
        }
        for ranges in by_source.values_mut() {
            *ranges = ranges::merged(std::mem::take(ranges));
        }
        Self(by_source)
    }

    /// All of it, in the order of the sources' numbers.
    pub(super) fn by_source(&self) -> impl Iterator<Item = (SourceId, &[(u64, u64)])> {
        let mut sources: Vec<_> = self.0.iter().collect();
        sources.sort_unstable_by_key(|(source, _)| **source);
        sources
            .into_iter()
            .map(|(source, ranges)| (SourceId(*source), ranges.as_slice()))
    }

    /// Whether the application was handed this message.
    pub(super) fn contains(&self, source: SourceId, sequence: u64) -> bool {
        self.0
            .get(&source.0)
            .is_some_and(|ranges| ranges::contains(ranges, sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::SequenceRange;

    #[test]
    fn a_message_is_seen_where_a_range_of_its_source_has_it() {
        let range = |first, last| SequenceRange { first, last };
        let sets = [
            SeenSet {
                source: 1,
                ranges: vec![range(7, 0), range(2, 4)],
            },
            SeenSet {
                source: 1,
                ranges: vec![range(9, 8)],
            },
            SeenSet {
                source: 2,
                ranges: vec![range(1, 1)],
            },
        ];
        let seen = Seen::of(&sets);
        let found: Vec<u64> = (0..12)
            .filter(|&sequence| seen.contains(SourceId(1), sequence))
            .collect();
        assert_eq!(found, [2, 3, 4, 7]);
        assert!(seen.contains(SourceId(2), 1) && !seen.contains(SourceId(3), 1));
    }
}
