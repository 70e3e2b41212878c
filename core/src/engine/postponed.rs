//! What a producer was refused for now, and is to send again before anything later is taken: so its order holds.
//!
//! A destination that is being emptied takes nothing for a while, and then may take again: emptying was taken back. What a
//! producer had under way at that moment was refused in part, and would be taken in part: what was refused would come
//! behind. So later numbers are refused as well until the refused ones have come, in their order. Whoever gives a refused
//! message up goes on all the same: what has not come again for a while is not waited for.

use super::errors::{Refused, refuse};
use crate::proto::ErrorCode;
use std::collections::VecDeque;

/// A number that has not come again for so long after it was refused last counts as given up. The SDK sends again within 0.5 s.
const GIVEN_UP_MS: u64 = 2_000;
/// Beyond so many ranges what lies between them counts as refused, too.
const RANGES_MAX: usize = 1_024;

/// Numbers that were refused last at the same time.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    last: u64,
    refused_ms: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Postponed {
    ranges: VecDeque<Range>,
}

impl Postponed {
    /// These numbers were refused for now: because of their destination, or of those before them.
    pub fn add(&mut self, ranges: &[(u64, u64)], now_ms: u64) {
        for &(first, last) in ranges {
            self.refused(Range {
                first,
                last,
                refused_ms: now_ms,
            });
        }
    }

    /// What was refused before and is again counts from now on: each number by itself, or one that does not come again would be
    /// waited for as long as those behind it do, and these would be given up with it.
    fn refused(&mut self, range: Range) {
        let at = self.ranges.partition_point(|known| known.last < range.first);
        let mut behind = self.ranges.split_off(at);
        let mut rest = None;
        while let Some(&known) = behind.front()
            && known.first <= range.last
        {
            behind.pop_front();
            if known.first < range.first {
                self.push(Range {
                    last: range.first - 1,
                    ..known
                });
            }
            if known.last > range.last {
                rest = Some(Range {
                    first: range.last + 1,
                    ..known
                });
            }
        }
        self.push(range);
        for known in rest.into_iter().chain(behind) {
            self.push(known);
        }
    }

    fn push(&mut self, range: Range) {
        let full = self.ranges.len() >= RANGES_MAX;
        match self.ranges.back_mut() {
            Some(before)
                if full || (before.last.saturating_add(1) == range.first && before.refused_ms == range.refused_ms) =>
            {
                before.last = range.last;
                before.refused_ms = before.refused_ms.max(range.refused_ms);
            }
            _ => self.ranges.push_back(range),
        }
    }

    /// Whether a frame that begins with this number would overtake what is to come first.
    pub fn is_overtaken_by(&mut self, first: u64, now_ms: u64) -> bool {
        while let Some(front) = self.ranges.front()
            && front.first < first
        {
            if now_ms.saturating_sub(front.refused_ms) <= GIVEN_UP_MS {
                return true;
            }
            self.ranges.pop_front();
        }
        false
    }

    /// These numbers have come, and were not refused for now.
    pub fn taken(&mut self, first: u64, last: u64) {
        while let Some(front) = self.ranges.front_mut() {
            if front.first > last || front.first < first {
                return;
            }
            if front.last > last {
                front.first = last + 1;
                return;
            }
            self.ranges.pop_front();
        }
    }
}

/// What a producer is told of a number that came too early.
#[must_use]
pub fn refusal(producer: u32) -> Refused {
    let message = "Messages before it were refused for now: they have to come first, or their order would not hold.";
    refuse(ErrorCode::Unavailable, format!("producer {producer}"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a destination refused from the first number to the last, each in a frame of its own, at 1,000 ms.
    fn refused(first: u64, last: u64) -> Postponed {
        let mut postponed = Postponed::default();
        for number in first..=last {
            postponed.add(&[(number, number)], 1_000);
        }
        postponed
    }

    /// One attempt to send these again: which of them are taken.
    fn attempt(postponed: &mut Postponed, numbers: &[(u64, u64)]) -> Vec<u64> {
        let mut taken = Vec::new();
        for &(number, now_ms) in numbers {
            if postponed.is_overtaken_by(number, now_ms) {
                postponed.add(&[(number, number)], now_ms);
            } else {
                postponed.taken(number, number);
                taken.push(number);
            }
        }
        taken
    }

    fn told(postponed: &Postponed) -> Vec<(u64, u64, u64)> {
        let ranges = postponed.ranges.iter();
        ranges.map(|one| (one.first, one.last, one.refused_ms)).collect()
    }

    #[test]
    fn what_was_refused_comes_first_and_in_its_order() {
        let mut postponed = refused(7, 9);
        assert!(attempt(&mut postponed, &[(8, 1_100), (9, 1_100)]).is_empty());
        let again = [(7, 1_600), (8, 1_600), (9, 1_600), (10, 1_600)];
        assert_eq!(attempt(&mut postponed, &again), [7, 8, 9, 10]);
        assert!(postponed.ranges.is_empty());
    }

    #[test]
    fn one_that_does_not_come_again_is_given_up_after_a_while() {
        let mut postponed = refused(7, 9);
        assert!(attempt(&mut postponed, &[(8, 2_500), (9, 3_000)]).is_empty());
        assert_eq!(
            attempt(&mut postponed, &[(8, 3_001), (9, 3_001), (10, 3_001)]),
            [8, 9, 10]
        );
    }

    #[test]
    fn when_one_is_given_up_between_the_frames_of_an_attempt_the_later_do_not_overtake_the_earlier() {
        let mut postponed = refused(7, 9);
        assert!(attempt(&mut postponed, &[(8, 2_999), (9, 3_001)]).is_empty());
        assert_eq!(
            attempt(&mut postponed, &[(8, 3_500), (9, 3_500), (10, 3_500)]),
            [8, 9, 10]
        );
    }

    #[test]
    fn each_that_has_come_again_and_then_does_not_any_more_is_given_up_as_well() {
        let mut postponed = refused(7, 9);
        assert!(attempt(&mut postponed, &[(8, 1_500), (9, 1_500)]).is_empty());
        assert!(attempt(&mut postponed, &[(9, 3_001)]).is_empty());
        assert!(attempt(&mut postponed, &[(9, 3_500)]).is_empty());
        assert_eq!(attempt(&mut postponed, &[(9, 3_501), (10, 3_501)]), [9, 10]);
    }

    #[test]
    fn ranges_are_known_by_when_each_of_their_numbers_was_refused_last() {
        let mut postponed = refused(1, 9);
        assert_eq!(told(&postponed), [(1, 9, 1_000)]);
        postponed.add(&[(4, 5), (8, 12)], 1_500);
        assert_eq!(
            told(&postponed),
            [(1, 3, 1_000), (4, 5, 1_500), (6, 7, 1_000), (8, 12, 1_500)]
        );
        postponed.add(&[(3, 8)], 1_600);
        assert_eq!(told(&postponed), [(1, 2, 1_000), (3, 8, 1_600), (9, 12, 1_500)]);
        postponed.add(&[(20, 20), (1, 30)], 1_700);
        assert_eq!(told(&postponed), [(1, 30, 1_700)]);
    }

    #[test]
    fn there_are_so_many_ranges_and_no_more() {
        let mut postponed = Postponed::default();
        for number in 0..2 * RANGES_MAX as u64 {
            postponed.add(&[(3 * number, 3 * number)], number);
        }
        assert_eq!(postponed.ranges.len(), RANGES_MAX);
        let last = 3 * (2 * RANGES_MAX as u64 - 1);
        assert_eq!(postponed.ranges.back().map(|one| one.last), Some(last));
    }
}
