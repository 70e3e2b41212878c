//! Ranges of sequence numbers as clients name them: both ends included, in any order, overlapping, a hundred thousand at a
//! time. Put in order once they cost no more than what they are looked up in.

use std::borrow::Cow;

/// First and last number, both included.
pub type Range = (u64, u64);

/// The same numbers as ranges in order, none of which touches the next.
#[must_use]
pub fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut merged: Vec<Range> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

/// The same numbers as ranges in order that do not overlap; copied only if they are not so already.
pub(super) fn in_order(ranges: &[Range]) -> Cow<'_, [Range]> {
    if ranges.windows(2).all(|pair| pair[0].1 < pair[1].0) {
        Cow::Borrowed(ranges)
    } else {
        Cow::Owned(merged(ranges.to_vec()))
    }
}

/// Whether one of some ranges in order has this number.
#[must_use]
pub fn contains(ranges: &[Range], sequence: u64) -> bool {
    let after = ranges.partition_point(|&(first, _)| first <= sequence);
    after > 0 && ranges.get(after - 1).is_some_and(|&(_, last)| sequence <= last)
}

/// How many numbers some ranges in order have.
pub(super) fn span(ranges: &[Range]) -> u64 {
    ranges.iter().fold(0, |sum: u64, (first, last)| {
        sum.saturating_add((last - first).saturating_add(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_or_touches_is_one_range() {
        assert_eq!(
            merged(vec![(5, 9), (1, 2), (3, 3), (8, 12), (20, 20)]),
            [(1, 3), (5, 12), (20, 20)]
        );
        assert_eq!(merged(vec![(1, u64::MAX), (2, 3)]), [(1, u64::MAX)]);
    }

    #[test]
    fn what_is_in_order_is_not_copied() {
        assert!(matches!(in_order(&[(1, 2), (3, 9)]), Cow::Borrowed(_)));
        assert_eq!(in_order(&[(3, 9), (1, 2)])[..], [(1, 9)]);
        assert_eq!(span(&[(1, 2), (4, 4)]), 3);
        assert_eq!(span(&[(0, 1), (2, u64::MAX)]), u64::MAX);
    }
}
