//! A source: a queue or a subscription, where messages wait and consumers take from.
//!
//! Owned by the tables, changed by `apply` and by deliveries. It adds to the bare [`Queue`] what the outside must know:
//! limits, totals, the redelivery watermark, why moved messages are here, and the returns that selector consumers must
//! look at again.
//!
//! The watermark: a sequence below `watermark.inherited` may have been delivered before this process started, so it comes
//! flagged. Nothing at or above `watermark.durable` is delivered, so that this is also true after the next start.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::log::Position;

use super::ids::{DestinationId, SourceId};
use super::properties::{FAILSAFE, StoreIndex};
use super::queue::{DELAYED, EXPIRED, Entry, GATED, IN_FLIGHT, Queue, RETURNED};
use super::terminal_record::Reason;
use super::volatile::is_volatile;

/// Returns that are remembered one by one; a cursor that missed more begins anew.
const RETURNS_KEPT: usize = 256;

/// What a source holds and did since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceStatistics {
    /// Waiting, delayed, or in flight.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, in flight.
    pub in_flight_messages: u64,
    /// Their bytes.
    pub in_flight_bytes: u64,
    /// Of all, not due yet because their senders want it so.
    pub delayed_messages: u64,
    /// Their bytes.
    pub delayed_bytes: u64,
    /// Of all, waiting for the queue's redelivery delay.
    pub returned_messages: u64,
    /// Their bytes.
    pub returned_bytes: u64,
    /// Sent in transactions that are still open; not among the others.
    pub pending_messages: u64,
    /// Their bytes.
    pub pending_bytes: u64,
    /// Came in.
    pub published_total: u64,
    /// Bytes that came in.
    pub published_bytes_total: u64,
    /// Handed to consumers.
    pub delivered_total: u64,
    /// Acknowledged.
    pub acknowledged_total: u64,
    /// Handed to consumers flagged as redelivered.
    pub redelivered_total: u64,
    /// Expired.
    pub expired_total: u64,
    /// Discarded on overflow.
    pub discarded_total: u64,
    /// Moved to `$sys.undelivered`.
    pub undelivered_total: u64,
}

impl SourceStatistics {
    /// Messages that count towards the limits, with their bytes: neither delayed nor held back after a delivery
    /// (EMS-DEST-A33, A63).
    #[must_use]
    pub const fn counted(&self) -> (u64, u64) {
        (
            self.messages - self.delayed_messages - self.returned_messages,
            self.bytes - self.delayed_bytes - self.returned_bytes,
        )
    }

    /// Begins to count anew; what it holds stays.
    pub(super) fn begin(&mut self) {
        *self = Self {
            published_total: 0,
            published_bytes_total: 0,
            delivered_total: 0,
            acknowledged_total: 0,
            redelivered_total: 0,
            expired_total: 0,
            discarded_total: 0,
            undelivered_total: 0,
            ..*self
        };
    }
}

/// The three bounds of redelivery (module documentation).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Watermark {
    /// Below: may have been delivered before this process started.
    pub inherited: u64,
    /// Below: may be delivered.
    pub durable: u64,
    /// Below: may be delivered once what is being written is durable.
    pub logged: u64,
}

/// Why a message is in a source that it was not sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    /// Why.
    pub reason: Reason,
    /// Where it was sent.
    pub origin: DestinationId,
    /// The move's record; [`Position::ZERO`] for a volatile message.
    pub record: Position,
}

/// Until when a message that came back is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Returned {
    /// By the wall clock, as its record says.
    pub until_ms: u64,
    /// By the monotonic clock, which decides while the process runs.
    pub ready_ms: u64,
}

/// Where a consumer with a selector stands: what lies before has been looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    at: [u64; 10],
    returns: u64,
}

/// A queue or subscription.
#[derive(Debug)]
pub struct Source {
    /// Its number.
    pub id: SourceId,
    /// The queue it is; none for a subscription.
    pub destination: Option<DestinationId>,
    /// Whether records name it: queues and durable subscriptions, unless temporary.
    pub logged: bool,
    /// Named by a destination or subscription record; recovery meets sources before their names.
    pub named: bool,
    /// Where it is accounted.
    pub store: StoreIndex,
    /// The messages.
    pub queue: Queue,
    /// The next message's number.
    pub next_sequence: u64,
    /// Bounds of redelivery.
    pub watermark: Watermark,
    /// Nothing at or above this was ever delivered.
    pub delivered_below: u64,
    /// Consumers attached.
    pub consumers: u32,
    /// Of these, with a selector.
    pub selecting: u32,
    /// Totals.
    pub statistics: SourceStatistics,
    /// The last logged message's position, for waking at its commit.
    pub last_position: Position,
    /// Where the log ended when it was purged last.
    pub purged: Position,
    pub(super) awaiting: bool,
    pub(super) dirty: bool,
    pub(super) moved: FxHashMap<u64, Moved>,
    /// Topics of what senders delayed, by sequence; of a queue nothing. The limits that hold when it falls due are its topic's.
    pub(super) delayed_to: FxHashMap<u64, DestinationId>,
    /// What waits for the redelivery delay, by sequence.
    pub(super) returning: FxHashMap<u64, Returned>,
    /// Header parts of messages for selectors (EMS-CLI-A20), by sequence.
    pub(super) headers: FxHashMap<u64, Box<[u8]>>,
    returned: VecDeque<(u8, u64)>,
    returns: u64,
}

/// What looking for the next message found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Candidate {
    Entry {
        level: usize,
        index: usize,
    },
    /// Ready but for the watermark.
    Reserving(u64),
    None,
}

impl Source {
    /// An empty one.
    #[must_use]
    pub fn new(id: SourceId, destination: Option<DestinationId>, logged: bool) -> Self {
        Self {
            id,
            destination,
            logged,
            named: false,
            store: FAILSAFE,
            queue: Queue::default(),
            next_sequence: 1,
            watermark: Watermark::default(),
            delivered_below: 0,
            consumers: 0,
            selecting: 0,
            statistics: SourceStatistics::default(),
            last_position: Position::ZERO,
            purged: Position::ZERO,
            awaiting: false,
            dirty: false,
            moved: FxHashMap::default(),
            delayed_to: FxHashMap::default(),
            returning: FxHashMap::default(),
            headers: FxHashMap::default(),
            returned: VecDeque::new(),
            returns: 0,
        }
    }

    /// Where a message was sent that its sender delayed and that is not due yet.
    pub(super) fn delayed_to(&self, sequence: u64) -> Option<DestinationId> {
        self.destination.or_else(|| self.delayed_to.get(&sequence).copied())
    }

    /// Whether an entry, handed out now, may have been delivered before.
    #[must_use]
    pub fn is_redelivered(&self, entry: &Entry) -> bool {
        entry.count > 0 || (self.logged && !is_volatile(entry.position) && entry.sequence < self.watermark.inherited)
    }

    /// Whether deliveries of this entry must wait for the watermark.
    fn needs_watermark(&self, entry: &Entry) -> bool {
        self.logged && !is_volatile(entry.position) && entry.sequence >= self.watermark.durable
    }

    /// Notes that an entry became ready behind where consumers may already stand.
    pub(super) fn note_return(&mut self, priority: u8, sequence: u64) {
        self.queue.rewind(priority, sequence);
        if self.selecting == 0 {
            return;
        }
        if self.returned.len() >= RETURNS_KEPT {
            self.returned.pop_front();
        }
        self.returned.push_back((priority, sequence));
        self.returns += 1;
    }

    /// Brings a cursor up to date with what was returned since it last looked.
    pub(super) fn refresh(&self, cursor: &mut Cursor) {
        let missed = self.returns.saturating_sub(cursor.returns);
        cursor.returns = self.returns;
        if missed > self.returned.len() as u64 {
            cursor.at = [0; 10];
            return;
        }
        for (priority, sequence) in self.returned.iter().rev().take(missed as usize) {
            let at = &mut cursor.at[usize::from(*priority).min(9)];
            *at = (*at).min(*sequence);
        }
    }

    /// Finds the next entry that may be delivered, highest priority first, first come first served within each.
    /// Without a cursor the level's own bound is used and advanced.
    pub(super) fn candidate(&mut self, cursor: Option<&Cursor>, committed: Position) -> Candidate {
        let mut found = Candidate::None;
        for level_index in 0..self.queue.levels().len() {
            let level = &self.queue.levels()[level_index];
            let start = cursor.map_or(level.scan, |cursor| cursor.at[usize::from(level.priority).min(9)]);
            let mut index = level.index_from(start);
            let mut ready = None;
            while let Some(entry) = level.at(index) {
                // Order within a priority: nothing overtakes a message that is not committed yet.
                if entry.is(GATED) || (entry.position >= committed && !is_volatile(entry.position)) {
                    break;
                }
                if !entry.is(super::queue::DEAD | IN_FLIGHT | DELAYED | EXPIRED) {
                    ready = Some(*entry);
                    break;
                }
                index += 1;
            }
            let bound = level.at(index).map_or(self.next_sequence, |entry| entry.sequence);
            if cursor.is_none()
                && let Some(level) = self.queue.level_mut(level_index)
            {
                level.scan = bound;
            }
            if let Some(entry) = ready {
                found = if self.needs_watermark(&entry) {
                    Candidate::Reserving(entry.sequence)
                } else {
                    Candidate::Entry {
                        level: level_index,
                        index,
                    }
                };
                break;
            }
        }
        found
    }

    /// Moves a cursor past an entry that was looked at.
    pub(super) fn pass(&self, cursor: &mut Cursor, priority: u8, sequence: u64) {
        cursor.at[usize::from(priority).min(9)] = sequence + 1;
    }

    pub(super) fn account_in(&mut self, entry: &Entry) {
        let bytes = u64::from(entry.bytes);
        self.statistics.messages += 1;
        self.statistics.bytes += bytes;
        self.account_delayed(entry, true);
    }

    pub(super) fn account_out(&mut self, entry: &Entry) {
        let bytes = u64::from(entry.bytes);
        self.statistics.messages -= 1;
        self.statistics.bytes -= bytes;
        self.account_delayed(entry, false);
        if entry.is(RETURNED) {
            self.returning.remove(&entry.sequence);
        }
        if entry.is(DELAYED) {
            self.delayed_to.remove(&entry.sequence);
        }
        if entry.is(IN_FLIGHT) {
            self.statistics.in_flight_messages -= 1;
            self.statistics.in_flight_bytes -= bytes;
        }
    }

    /// An entry that is not due begins or ends to be one of those.
    pub(super) fn account_delayed(&mut self, entry: &Entry, begins: bool) {
        if !entry.is(DELAYED) {
            return;
        }
        let statistics = &mut self.statistics;
        let (messages, bytes) = if entry.is(RETURNED) {
            (&mut statistics.returned_messages, &mut statistics.returned_bytes)
        } else {
            (&mut statistics.delayed_messages, &mut statistics.delayed_bytes)
        };
        if begins {
            *messages += 1;
            *bytes += u64::from(entry.bytes);
        } else {
            *messages -= 1;
            *bytes -= u64::from(entry.bytes);
        }
    }
}
