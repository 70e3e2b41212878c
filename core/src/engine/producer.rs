//! A producer: numbers its messages, publishes within its credit, and gathers confirmations until they go out.
//!
//! Credit is absolute. A producer may have published up to `granted_sequence` and `granted_bytes`; both move on by what
//! is settled, which is: confirmed, rejected, or taken into a transaction. A grant is told again when a quarter of the
//! window has been settled since the last one, so a producer that keeps up hears of it seldom and never waits for it.

use super::arriving::Uploads;
use super::errors::Refused;
use super::naming::Name;
use super::postponed::Postponed;
use crate::proto::Durability;
use crate::state::DestinationId;
use std::collections::VecDeque;

/// Where a producer sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `DestinationKind` as on the wire.
    pub kind: i32,
    /// The destination's name.
    pub name: String,
    /// What it was resolved to.
    pub destination: DestinationId,
}

/// A range that is confirmed and not yet told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
    /// How safe they are.
    pub durability: Durability,
    /// When they arrived.
    pub arrived_ms: u64,
}

/// The messages a producer may have in flight at most; bytes bound it earlier unless messages are small.
pub const WINDOW_MESSAGES: u64 = 65_536;
/// The largest window in bytes.
pub const WINDOW_BYTES_MAX: u64 = 16 << 20;
/// The smallest: one batch of the default size fits, so that any frame can be published in the end.
pub const WINDOW_BYTES_MIN: u64 = 1 << 20;
/// Beyond so many ranges that were turned away what lies between them counts among them.
const TURNED_AWAY_MAX: usize = 1_024;

/// One producer.
#[derive(Debug)]
pub struct Producer {
    /// The client's number for it.
    pub number: u32,
    /// The key of its session.
    pub session: u64,
    /// Where it sends; none: anonymous.
    pub target: Option<Target>,
    /// The last destination of an anonymous producer, since it seldom changes.
    pub recent: Option<Target>,
    /// Identifies it beyond its connection.
    pub incarnation: u64,
    /// It had this incarnation before: its numbers may have been sent before, too.
    pub resumed: bool,
    /// Numbers below may have been sent before it came back.
    pub again_below: u64,
    /// The number that the next new message has to have.
    pub next_sequence: u64,
    /// Numbers from there on that will not come, ascending: first and last.
    pub left_out: VecDeque<(u64, u64)>,
    /// What is to come again before anything later.
    pub postponed: Postponed,
    /// The name of the application's own that it was opened by.
    pub name: Option<Box<Name>>,
    /// Why it takes nothing any more; its client is told when what it had taken has its answer.
    pub expelled: Option<Refused>,
    /// What came of it since, and was not taken, ascending: first and last.
    pub turned_away: Vec<(u64, u64)>,
    /// Bytes published since it was opened.
    pub published_bytes: u64,
    /// The window in bytes.
    pub window_bytes: u64,
    /// Messages settled since it was opened, on top of the number it began with.
    settled_sequence: u64,
    pub settled_bytes: u64,
    /// How far it may publish.
    pub granted_sequence: u64,
    /// See `granted_sequence`.
    pub granted_bytes: u64,
    /// A new grant has to be told.
    pub credit_due: bool,
    /// Confirmations that have to be told.
    pub confirmed: Vec<Confirmed>,
    /// Whether it stands in its stream's list of those with something to tell.
    pub queued: bool,
    /// Bodies on their way in chunks.
    pub uploads: Uploads,
}

impl Producer {
    /// A producer whose first new message will be `next_sequence`.
    #[must_use]
    pub fn new(
        number: u32,
        session: u64,
        target: Option<Target>,
        incarnation: u64,
        next_sequence: u64,
        window_bytes: u64,
    ) -> Self {
        let before = next_sequence - 1;
        Self {
            number,
            session,
            target,
            recent: None,
            incarnation,
            resumed: false,
            again_below: 0,
            next_sequence,
            left_out: VecDeque::new(),
            postponed: Postponed::default(),
            name: None,
            expelled: None,
            turned_away: Vec::new(),
            published_bytes: 0,
            window_bytes,
            settled_sequence: before,
            settled_bytes: 0,
            granted_sequence: before.saturating_add(WINDOW_MESSAGES),
            granted_bytes: window_bytes,
            credit_due: false,
            confirmed: Vec::new(),
            queued: false,
            uploads: Uploads::default(),
        }
    }

    /// Passes over the numbers that come next and will not come; they take nothing of the window.
    pub fn pass_over(&mut self) {
        while let Some(&(first, last)) = self.left_out.front()
            && first <= self.next_sequence
        {
            self.left_out.pop_front();
            if last >= self.next_sequence {
                self.settle(last - self.next_sequence + 1, 0);
                self.next_sequence = last.saturating_add(1);
            }
        }
    }

    /// Numbers below this one may have been sent before.
    pub fn may_be_again_below(&self) -> u64 {
        self.again_below.max(self.next_sequence)
    }

    /// Why numbers that have come are not taken, when it is expelled; they are noted then.
    pub fn turn_away(&mut self, ranges: impl FnOnce() -> Vec<(u64, u64)>) -> Option<Refused> {
        let cause = self.expelled.clone()?;
        self.note_turned_away(&ranges());
        Some(cause)
    }

    /// Notes numbers that are not taken. What may have been sent before it came back may be kept since then.
    pub fn note_turned_away(&mut self, ranges: &[(u64, u64)]) {
        let full = self.turned_away.len() >= TURNED_AWAY_MAX;
        for &(first, last) in ranges.iter().filter(|(_, last)| *last >= self.again_below) {
            let first = first.max(self.again_below);
            match self.turned_away.last_mut() {
                Some((_, known)) if last <= *known => {}
                Some((_, known)) if full || first <= known.saturating_add(1) => *known = last,
                _ => self.turned_away.push((first, last)),
            }
        }
    }

    /// Takes messages out of flight. Whether a new grant is worth telling.
    pub fn settle(&mut self, messages: u64, bytes: u64) -> bool {
        self.settled_sequence = self.settled_sequence.saturating_add(messages);
        self.settled_bytes = self.settled_bytes.saturating_add(bytes);
        let sequence = self.settled_sequence.saturating_add(WINDOW_MESSAGES);
        let limit = self.settled_bytes.saturating_add(self.window_bytes);
        let due = sequence.saturating_sub(self.granted_sequence) >= WINDOW_MESSAGES / 4
            || limit.saturating_sub(self.granted_bytes) >= self.window_bytes / 4;
        if due {
            self.granted_sequence = sequence.max(self.granted_sequence);
            self.granted_bytes = limit.max(self.granted_bytes);
            self.credit_due = true;
        }
        due
    }

    /// Notes a confirmed range, merged with the one before where nothing tells them apart.
    pub fn confirm(&mut self, range: Confirmed) {
        if let Some(before) = self.confirmed.last_mut()
            && before.last.checked_add(1) == Some(range.first)
            && before.durability == range.durability
            && before.arrived_ms == range.arrived_ms
        {
            before.last = range.last;
        } else {
            self.confirmed.push(range);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer() -> Producer {
        Producer::new(1, 1, None, 1, 1, WINDOW_BYTES_MIN)
    }

    #[test]
    fn credit_is_granted_anew_once_a_quarter_of_the_window_is_settled() {
        let mut producer = producer();
        assert!(!producer.settle(10, WINDOW_BYTES_MIN / 4 - 1));
        assert_eq!(producer.granted_bytes, WINDOW_BYTES_MIN);
        assert!(producer.settle(1, 1));
        assert_eq!(producer.granted_bytes, WINDOW_BYTES_MIN + WINDOW_BYTES_MIN / 4);
        assert_eq!(producer.granted_sequence, WINDOW_MESSAGES + 11);
    }

    #[test]
    fn what_is_left_out_is_passed_over_when_its_turn_comes_and_takes_no_credit() {
        let mut producer = producer();
        producer.left_out = [(3, 3), (5, 7)].into();
        producer.pass_over();
        assert_eq!(producer.next_sequence, 1);
        for (next, passed) in [(3, 4), (5, 8)] {
            producer.next_sequence = next;
            producer.pass_over();
            assert_eq!(producer.next_sequence, passed);
        }
        assert_eq!((producer.settled_sequence, producer.left_out.len()), (4, 0));
    }

    #[test]
    fn confirmations_merge_only_when_nothing_tells_them_apart() {
        let mut producer = producer();
        let range = |first, last, arrived_ms| Confirmed {
            first,
            last,
            durability: Durability::Durable,
            arrived_ms,
        };
        producer.confirm(range(1, 4, 7));
        producer.confirm(range(5, 9, 7));
        producer.confirm(range(10, 10, 8));
        producer.confirm(range(12, 12, 8));
        assert_eq!(producer.confirmed, [range(1, 9, 7), range(10, 10, 8), range(12, 12, 8)]);
    }
}
