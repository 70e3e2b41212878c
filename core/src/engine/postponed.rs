//! What a producer was refused for now, and is to send again before anything later is taken: so its order holds.
//!
//! A destination that is being emptied takes nothing for a while, and then may take again: emptying was taken back. What a
//! producer had under way at that moment was refused in part, and would be taken in part: what was refused would come
//! behind. So later numbers are refused as well until the refused ones have come, in their order. Whoever gives a refused
//! message up goes on all the same, after a moment in which nobody has sent it again.

use super::errors::{Refused, refuse};
use crate::proto::ErrorCode;
use std::collections::VecDeque;

/// So long after the last refusal a number that has not come again counts as given up. The SDK sends again within 0.5 s.
const GIVEN_UP_MS: u64 = 2_000;
/// Beyond so many ranges what lies between them counts as refused, too.
const RANGES_MAX: usize = 1_024;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Postponed {
    ranges: VecDeque<(u64, u64)>,
    /// When the destination last refused one, or others were given up.
    refused_ms: u64,
    /// The lowest that has come again since, and was refused for those before it: it is not given up with them.
    again: Option<u64>,
}

impl Postponed {
    /// These numbers were refused for now. `closed`: because of their destination, and not because of one another.
    pub fn add(&mut self, ranges: &[(u64, u64)], closed: bool, now_ms: u64) {
        if closed {
            (self.refused_ms, self.again) = (now_ms, None);
        } else if let Some(&(first, _)) = ranges.first() {
            self.again = Some(self.again.map_or(first, |lowest| lowest.min(first)));
        }
        for &(first, last) in ranges {
            let full = self.ranges.len() >= RANGES_MAX;
            match self.ranges.back_mut() {
                // It is sent again, and refused again.
                Some((_, known)) if last <= *known => {}
                Some((_, known)) if full || first <= known.saturating_add(1) => *known = last,
                _ => self.ranges.push_back((first, last)),
            }
        }
    }

    /// Whether a frame that begins with this number would overtake what is to come first.
    pub fn is_overtaken_by(&mut self, first: u64, now_ms: u64) -> bool {
        if !self.waits_before(first) {
            return false;
        }
        if now_ms.saturating_sub(self.refused_ms) > GIVEN_UP_MS {
            // The frames of one attempt come one after the other: those before this one count as sent again, too.
            let again = self.again.take().map_or(first, |lowest| lowest.min(first));
            self.give_up_below(again);
            self.refused_ms = now_ms;
        }
        self.waits_before(first)
    }

    fn waits_before(&self, first: u64) -> bool {
        self.ranges.front().is_some_and(|&(waiting, _)| waiting < first)
    }

    fn give_up_below(&mut self, number: u64) {
        while let Some(front) = self.ranges.front_mut() {
            if front.1 >= number {
                front.0 = front.0.max(number);
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// These numbers have come, and were not refused for now.
    pub fn taken(&mut self, first: u64, last: u64) {
        while let Some(front) = self.ranges.front_mut() {
            if front.0 > last || front.0 < first {
                return;
            }
            if front.1 > last {
                front.0 = last + 1;
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
            postponed.add(&[(number, number)], true, 1_000);
        }
        postponed
    }

    /// One attempt to send these again: which of them are taken.
    fn attempt(postponed: &mut Postponed, numbers: &[(u64, u64)]) -> Vec<u64> {
        let mut taken = Vec::new();
        for &(number, now_ms) in numbers {
            if postponed.is_overtaken_by(number, now_ms) {
                postponed.add(&[(number, number)], false, now_ms);
            } else {
                postponed.taken(number, number);
                taken.push(number);
            }
        }
        taken
    }

    #[test]
    fn what_was_refused_comes_first_and_in_its_order() {
        let mut postponed = refused(7, 9);
        assert!(attempt(&mut postponed, &[(8, 1_100), (9, 1_100)]).is_empty());
        assert_eq!(
            attempt(&mut postponed, &[(7, 1_600), (8, 1_600), (9, 1_600), (10, 1_600)]),
            [7, 8, 9, 10]
        );
    }

    #[test]
    fn one_that_does_not_come_again_is_given_up_after_a_while() {
        let mut postponed = refused(7, 9);
        assert!(attempt(&mut postponed, &[(8, 2_500), (9, 2_500)]).is_empty());
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
    fn one_that_has_come_again_and_then_does_not_any_more_is_given_up_as_well() {
        let mut postponed = refused(7, 9);
        assert!(attempt(&mut postponed, &[(8, 1_500), (9, 1_500)]).is_empty());
        assert!(attempt(&mut postponed, &[(9, 3_001)]).is_empty());
        assert!(attempt(&mut postponed, &[(9, 5_000)]).is_empty());
        assert_eq!(attempt(&mut postponed, &[(9, 5_002), (10, 5_002)]), [9, 10]);
    }

    #[test]
    fn while_the_destination_refuses_nothing_is_given_up() {
        let mut postponed = refused(7, 8);
        postponed.add(&[(8, 8)], false, 1_500);
        postponed.add(&[(8, 8)], true, 2_900);
        assert!(attempt(&mut postponed, &[(8, 4_900)]).is_empty());
        assert_eq!(attempt(&mut postponed, &[(8, 4_901)]), [8]);
    }
}
