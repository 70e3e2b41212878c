//! When something has to happen to a waiting message: it expires, or its delay is over.
//!
//! Deadlines are on the monotonic clock. An acknowledged message leaves its timer behind; when such leftovers may be more
//! than half of all, the owner is asked which are still wanted and the rest is dropped, so the cost stays proportional
//! to what waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::ids::{DestinationId, SourceId};

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerKind {
    /// The message's life is over.
    Expiry,
    /// The message may be delivered from now on.
    Delay,
}

/// One message's deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Timer {
    /// Milliseconds of the monotonic clock.
    pub deadline_ms: u64,
    /// Where the message waits.
    pub source: SourceId,
    // Sequence, priority and kind in one number: timers are many.
    packed: u64,
}

impl Timer {
    /// A deadline for the message with this priority and sequence.
    #[must_use]
    pub fn new(deadline_ms: u64, source: SourceId, priority: u8, sequence: u64, kind: TimerKind) -> Self {
        let kind = u64::from(kind == TimerKind::Delay);
        Self {
            deadline_ms,
            source,
            packed: sequence << 5 | u64::from(priority) << 1 | kind,
        }
    }

    /// The message's sequence in its source.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.packed >> 5
    }

    /// The message's priority.
    #[must_use]
    pub const fn priority(&self) -> u8 {
        (self.packed >> 1 & 15) as u8
    }

    /// What is due.
    #[must_use]
    pub const fn kind(&self) -> TimerKind {
        if self.packed & 1 == 1 {
            TimerKind::Delay
        } else {
            TimerKind::Expiry
        }
    }
}

/// All deadlines.
#[derive(Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    // Due, and not to be acted upon before the properties of the destination are known.
    parked: FxHashMap<DestinationId, Vec<Timer>>,
    // Due, and tried: the log had no room for what it takes. With the time at which they are tried again at the latest.
    postponed: Vec<Timer>,
    postponed_ms: u64,
    // Timers of messages that have gone, at most.
    stale: usize,
}

/// Fewer leftovers than this are not worth a sweep.
const STALE_MIN: usize = 4096;

impl Timers {
    /// Adds one.
    pub fn add(&mut self, timer: Timer) {
        self.heap.push(Reverse(timer));
    }

    /// Keeps one that is due until the destination's properties are known.
    pub fn park(&mut self, destination: DestinationId, timer: Timer) {
        self.parked.entry(destination).or_default().push(timer);
    }

    /// What was kept for a destination is due at this time.
    pub fn release(&mut self, destination: DestinationId, deadline_ms: u64) {
        let parked = self.parked.remove(&destination).unwrap_or_default();
        self.heap
            .extend(parked.into_iter().map(|timer| Reverse(Timer { deadline_ms, ..timer })));
    }

    /// Keeps one that is due until the log has room, or until its own deadline.
    pub fn postpone(&mut self, timer: Timer) {
        if self.postponed.is_empty() || timer.deadline_ms < self.postponed_ms {
            self.postponed_ms = timer.deadline_ms;
        }
        self.postponed.push(timer);
    }

    /// The log may have room: what was postponed is due at this time.
    pub fn retry_postponed(&mut self, deadline_ms: u64) {
        let postponed = std::mem::take(&mut self.postponed);
        self.heap.extend(
            postponed
                .into_iter()
                .map(|timer| Reverse(Timer { deadline_ms, ..timer })),
        );
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        let postponed_ms = (!self.postponed.is_empty()).then_some(self.postponed_ms);
        let next_ms = self.heap.peek().map(|Reverse(timer)| timer.deadline_ms);
        next_ms.into_iter().chain(postponed_ms).min()
    }

    /// Whether the earliest one is due.
    #[must_use]
    pub fn is_due(&self, monotonic_ms: u64) -> bool {
        self.next_deadline_ms()
            .is_some_and(|deadline_ms| deadline_ms <= monotonic_ms)
    }

    /// Takes the earliest one if it is due.
    pub fn pop_due(&mut self, monotonic_ms: u64) -> Option<Timer> {
        if self.next_deadline_ms()? > monotonic_ms {
            return None;
        }
        if self.postponed_ms <= monotonic_ms {
            self.retry_postponed(monotonic_ms);
        }
        self.heap.pop().map(|Reverse(timer)| timer)
    }

    /// A message with a timer is gone before its time.
    pub fn note_stale(&mut self) {
        self.stale += 1;
    }

    /// Drops leftovers if they may be many.
    pub fn sweep(&mut self, wanted: impl FnMut(&Timer) -> bool) {
        if self.stale > STALE_MIN && self.stale * 2 > self.heap.len() {
            self.keep(wanted);
        }
    }

    /// Drops all that are not wanted.
    pub fn keep(&mut self, mut wanted: impl FnMut(&Timer) -> bool) {
        self.heap.retain(|Reverse(timer)| wanted(timer));
        self.heap.shrink_to(self.heap.len() * 2);
        self.stale = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_in_order_of_their_deadlines_and_not_before() {
        let mut timers = Timers::default();
        timers.add(Timer::new(30, SourceId(1), 9, 5, TimerKind::Delay));
        timers.add(Timer::new(10, SourceId(2), 0, u64::from(u32::MAX), TimerKind::Expiry));
        assert_eq!(timers.pop_due(9), None);
        let first = timers.pop_due(10).unwrap();
        assert_eq!(
            (first.sequence(), first.priority(), first.kind()),
            (u64::from(u32::MAX), 0, TimerKind::Expiry)
        );
        let second = timers.pop_due(1_000).unwrap();
        assert_eq!(
            (second.sequence(), second.priority(), second.kind()),
            (5, 9, TimerKind::Delay)
        );
        assert_eq!(timers.next_deadline_ms(), None);
    }

    #[test]
    fn what_was_postponed_comes_again_when_there_is_room_and_at_its_time_at_the_latest() {
        let mut timers = Timers::default();
        let timer = |deadline_ms, sequence| Timer::new(deadline_ms, SourceId(1), 4, sequence, TimerKind::Expiry);
        timers.add(timer(2_000, 9));
        timers.postpone(timer(1_010, 1));
        timers.postpone(timer(1_020, 2));
        assert_eq!(timers.next_deadline_ms(), Some(1_010));
        assert_eq!(timers.pop_due(1_009), None);
        timers.retry_postponed(100);
        let due: Vec<u64> = std::iter::from_fn(|| timers.pop_due(100))
            .map(|timer| timer.sequence())
            .collect();
        assert_eq!(due, [1, 2]);

        timers.postpone(timer(1_100, 3));
        assert_eq!(timers.pop_due(1_100).map(|timer| timer.sequence()), Some(3));
        assert_eq!((timers.pop_due(1_100), timers.next_deadline_ms()), (None, Some(2_000)));
    }

    #[test]
    fn leftovers_do_not_pile_up() {
        let mut timers = Timers::default();
        for sequence in 0..100_000 {
            timers.add(Timer::new(1_000_000, SourceId(1), 4, sequence, TimerKind::Expiry));
            timers.note_stale();
            timers.sweep(|timer| timer.sequence() % 1000 == 0);
        }
        assert!(
            timers.heap.len() < 3 * STALE_MIN,
            "{} timers are kept",
            timers.heap.len()
        );
    }
}
