//! A consumer: takes from one source within its credit, or looks at one.
//!
//! Credit is absolute: `sent_messages` and `sent_bytes` count from the opening, the limits are the client's. What was
//! dispatched to a consumer and has not gone out yet stands in its outbox; the outbox is bounded by the credit and by
//! figures of its own, so that a client that grants a great deal and reads nothing holds little.

use crate::log::Position;
use crate::selector::Selector;
use crate::state::{BrowseCursor, Cursor, Delivered, DestinationId, SourceId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Deliveries that may wait in one outbox.
pub const OUTBOX_MESSAGES: usize = 1024;
/// Bytes that may wait in one outbox, beyond the first message.
pub const OUTBOX_BYTES: u64 = 2 << 20;

/// A message on its way to a consumer.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing {
    /// Its number in the source.
    pub sequence: u64,
    /// What the state said of it.
    pub delivered: Delivered,
}

/// One consumer.
#[derive(Debug)]
pub struct Consumer {
    /// The client's number for it.
    pub number: u32,
    /// The key of its session.
    pub session: u64,
    /// What it takes from.
    pub source: SourceId,
    /// The concrete destination it was opened on; deliveries of another one name theirs.
    pub destination: Option<DestinationId>,
    /// What it wants; none: all.
    pub selector: Option<Arc<Selector>>,
    /// How far a selector has looked.
    pub cursor: Cursor,
    /// A browser's place; none: it takes.
    pub browsing: Option<BrowseCursor>,
    /// The subscription ends with it.
    pub owns_source: bool,
    /// The broker forgets what it has sent to it.
    pub forget: bool,
    /// How many messages it may have been sent.
    pub message_limit: u64,
    /// How many bytes it may have been sent; 0: no bound.
    pub bytes_limit: u64,
    /// What was dispatched to it.
    pub sent_messages: u64,
    /// See `sent_messages`.
    pub sent_bytes: u64,
    /// It wants to hear Drained when there is nothing more.
    pub drain: bool,
    /// Drained goes out once the outbox is empty.
    pub drained_due: bool,
    /// Dispatched, not gone out yet.
    pub outbox: VecDeque<Outgoing>,
    /// The bytes in `outbox`.
    pub outbox_bytes: u64,
    /// How much of the first delivery's uploaded body has gone out.
    pub uploaded_sent: usize,
    /// The first delivery's payload is being read.
    pub reading: bool,
    /// Nothing is handed to it before this is committed, so that the answer to its opening comes first.
    pub opens_at: Position,
    /// Whether it stands in its source's ring.
    pub awake: bool,
    /// Whether it stands in its stream's list of those with something to send.
    pub queued: bool,
}

impl Consumer {
    /// How many more messages it may be handed now, by its own credit and outbox.
    #[must_use]
    pub fn room(&self) -> u64 {
        if self.bytes_limit != 0 && self.sent_bytes >= self.bytes_limit {
            return 0;
        }
        if self.outbox.len() >= OUTBOX_MESSAGES || self.outbox_bytes >= OUTBOX_BYTES {
            return 0;
        }
        self.message_limit
            .saturating_sub(self.sent_messages)
            .min((OUTBOX_MESSAGES - self.outbox.len()) as u64)
    }

    /// Whether the credit is used up, so that only the client can let it go on.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.sent_messages >= self.message_limit || (self.bytes_limit != 0 && self.sent_bytes >= self.bytes_limit)
    }

    /// Raises the limits; lower ones than before change nothing.
    pub fn grant(&mut self, message_limit: u64, bytes_limit: u64, drain: bool) {
        self.message_limit = self.message_limit.max(message_limit);
        self.bytes_limit = if bytes_limit == 0 {
            0
        } else {
            self.bytes_limit.max(bytes_limit)
        };
        self.drain = drain;
    }

    /// Puts a delivery into the outbox and counts it.
    pub fn hand(&mut self, outgoing: Outgoing) {
        let bytes = u64::from(outgoing.delivered.bytes);
        self.sent_messages += 1;
        self.sent_bytes += bytes;
        self.outbox_bytes += bytes;
        self.outbox.push_back(outgoing);
    }

    /// Takes one delivery back that has not begun to go out: it does not count as sent.
    pub fn withdraw(&mut self, sequence: u64) {
        let begun = usize::from(self.uploaded_sent > 0);
        let Some(index) = (begun..self.outbox.len()).find(|index| self.outbox[*index].sequence == sequence) else {
            return;
        };
        if let Some(outgoing) = self.outbox.remove(index) {
            let bytes = u64::from(outgoing.delivered.bytes);
            self.sent_messages -= 1;
            self.sent_bytes = self.sent_bytes.saturating_sub(bytes);
            self.outbox_bytes = self.outbox_bytes.saturating_sub(bytes);
        }
    }

    /// Takes back what has not gone out: it does not count as sent. A delivery whose first chunk has gone out stays
    /// counted, and is not among those returned.
    pub fn take_back(&mut self) -> VecDeque<Outgoing> {
        let mut outbox = std::mem::take(&mut self.outbox);
        if self.uploaded_sent > 0 {
            outbox.pop_front();
            self.uploaded_sent = 0;
        }
        self.sent_messages -= outbox.len() as u64;
        self.sent_bytes -= outbox
            .iter()
            .map(|out| u64::from(out.delivered.bytes))
            .sum::<u64>()
            .min(self.sent_bytes);
        self.outbox_bytes = 0;
        self.drained_due = false;
        outbox
    }

    /// Ends a drain: the rest of the credit counts as used. The credit that counts from here on.
    pub fn drained(&mut self) -> u64 {
        self.drain = false;
        self.drained_due = false;
        self.sent_messages = self.sent_messages.max(self.message_limit);
        if self.bytes_limit != 0 {
            self.sent_bytes = self.sent_bytes.max(self.bytes_limit);
        }
        self.message_limit
    }
}
