//! What a client says its application was handed, merged once, so that each message in flight is looked up in it quickly:
//! a frame may name a hundred thousand ranges.

use super::frames::checked_range;
use crate::proto::SeenSet;
use crate::state::SourceId;
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
            *ranges = merged(std::mem::take(ranges));
        }
        Self(by_source)
    }

    /// Whether the application was handed this message.
    pub(super) fn contains(&self, source: SourceId, sequence: u64) -> bool {
        self.0.get(&source.0).is_some_and(|ranges| {
            let after = ranges.partition_point(|&(first, _)| first <= sequence);
            after > 0 && ranges.get(after - 1).is_some_and(|&(_, last)| sequence <= last)
        })
    }
}

/// The same numbers as ranges in order, none of which touches the next.
pub(super) fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::SequenceRange;

    #[test]
    fn what_overlaps_or_touches_is_one_range() {
        assert_eq!(
            merged(vec![(5, 9), (1, 2), (3, 3), (8, 12), (20, 20)]),
            [(1, 3), (5, 12), (20, 20)]
        );
        assert_eq!(merged(vec![(1, u64::MAX), (2, 3)]), [(1, u64::MAX)]);
    }

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
