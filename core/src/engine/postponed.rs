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
    refused_ms: u64,
}

impl Postponed {
    /// These numbers were refused for now. `closed`: because of their destination, and not because of one another.
    pub fn add(&mut self, ranges: &[(u64, u64)], closed: bool, now_ms: u64) {
        if closed {
            self.refused_ms = now_ms;
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
        let Some((waiting, _)) = self.ranges.front() else {
            return false;
        };
        if first <= *waiting {
            return false;
        }
        if now_ms.saturating_sub(self.refused_ms) > GIVEN_UP_MS {
            self.ranges.clear();
        }
        !self.ranges.is_empty()
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
