//! Who gets what: messages that are ready are handed to consumers with credit, round-robin (EMS-DEST-A13).
//!
//! A source with something new, or a consumer with new credit, makes the source *dirty*; `poll` works the dirty sources
//! off. In each round every receiver that is ready gets one message; rounds go on until no receiver is ready or nothing
//! is left. The next pass begins behind the receiver that was served last. An exclusive queue serves its first consumer
//! alone (EMS-DEST-A12). Handing over is cheap (a reference goes into the consumer's outbox); payloads are looked up when
//! output is put together.

use super::consumer::Outgoing;
use super::engine::Engine;
use crate::state::{BrowseNext, Next, SourceId};

/// The consumers of one source, in the order in which they came.
#[derive(Debug, Default)]
pub struct Receivers {
    /// Their keys.
    pub consumers: Vec<u64>,
    /// Keys of those who only look.
    pub browsers: Vec<u64>,
    /// Where the next round begins.
    next: usize,
    /// Only the first one is served.
    pub exclusive: bool,
    /// Stands in the engine's list of dirty sources.
    dirty: bool,
}

impl Receivers {
    /// Takes a consumer out, keeping whose turn it is.
    pub fn remove(&mut self, key: u64) {
        self.browsers.retain(|&other| other != key);
        if let Some(index) = self.consumers.iter().position(|&other| other == key) {
            self.consumers.remove(index);
            if self.next > index {
                self.next -= 1;
            }
        }
    }
}

/// What one attempt to hand a message over came to.
enum Handed {
    /// It got one.
    One,
    /// It can take no more now.
    NoRoom,
    /// Its selector has to look at a message that is being read.
    Reading,
    /// There is nothing for it; `exhausted`: nor will there be before something new arrives.
    Nothing { exhausted: bool },
}

impl Engine {
    /// Notes that a source has something to hand out, or somebody to hand it to.
    pub(super) fn mark_dirty(&mut self, source: SourceId) {
        if let Some(receivers) = self.receivers.get_mut(&source)
            && !receivers.dirty
        {
            receivers.dirty = true;
            self.dirty.push(source);
        }
    }

    /// Works off all dirty sources.
    pub(super) fn dispatch(&mut self) {
        for source in self.state.take_dirty() {
            self.mark_dirty(source);
        }
        while let Some(source) = self.dirty.pop() {
            self.dispatch_source(source);
        }
    }

    fn dispatch_source(&mut self, source: SourceId) {
        let Some(receivers) = self.receivers.get_mut(&source) else {
            return;
        };
        receivers.dirty = false;
        let mut keys = std::mem::take(&mut self.round);
        keys.clear();
        if receivers.exclusive {
            keys.extend(receivers.consumers.first());
        } else {
            let start = receivers.next.min(receivers.consumers.len());
            keys.extend_from_slice(&receivers.consumers[start..]);
            keys.extend_from_slice(&receivers.consumers[..start]);
        }
        keys.extend_from_slice(&receivers.browsers);
        let mut last_served = None;
        while !keys.is_empty() {
            keys.retain(|&key| match self.hand_one(source, key) {
                Handed::One => {
                    last_served = Some(key);
                    true
                }
                Handed::NoRoom => false,
                Handed::Reading => {
                    if !self.selecting.contains(&source) {
                        self.selecting.push(source);
                    }
                    false
                }
                Handed::Nothing { exhausted } => {
                    self.nothing_left(key, exhausted);
                    false
                }
            });
        }
        self.round = keys;
        if let Some(key) = last_served
            && let Some(receivers) = self.receivers.get_mut(&source)
            && let Some(index) = receivers.consumers.iter().position(|&other| other == key)
        {
            receivers.next = (index + 1) % receivers.consumers.len();
        }
    }

    fn hand_one(&mut self, source: SourceId, key: u64) -> Handed {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return Handed::NoRoom;
        };
        let Some(session) = self.sessions.get_mut(&consumer.session) else {
            return Handed::NoRoom;
        };
        if consumer.opens_at > self.state.committed() {
            return Handed::NoRoom;
        }
        if consumer.room() == 0 {
            // A drain ends with the credit, too.
            return if consumer.drain && consumer.is_exhausted() {
                Handed::Nothing { exhausted: true }
            } else {
                Handed::NoRoom
            };
        }
        let limit = u64::from(self.settings.limits.unacknowledged_messages);
        let Some(stream) = session.stream else {
            return Handed::NoRoom;
        };
        if session.stopped || session.unacknowledged >= limit {
            return Handed::NoRoom;
        }
        if self
            .connections
            .get(&session.connection)
            .is_none_or(|connection| connection.stopped)
        {
            return Handed::NoRoom;
        }
        let outgoing = if let Some(cursor) = &mut consumer.browsing {
            match self.state.browse_next(source, cursor, consumer.selector.as_deref()) {
                BrowseNext::Found(sequence, delivered) => Outgoing { sequence, delivered },
                BrowseNext::NeedsRead => return Handed::Reading,
                BrowseNext::End => {
                    consumer.drain = true;
                    return Handed::Nothing { exhausted: true };
                }
            }
        } else {
            match self
                .state
                .next_ready(source, &mut consumer.cursor, consumer.selector.as_deref())
            {
                Next::Ready { sequence, priority, .. } => match self.state.deliver(source, priority, sequence, key) {
                    Some(delivered) => {
                        session.unacknowledged += 1;
                        Outgoing { sequence, delivered }
                    }
                    None => return Handed::Nothing { exhausted: false },
                },
                Next::NeedsRead(_) => return Handed::Reading,
                Next::Reserving => return Handed::Nothing { exhausted: false },
                Next::Empty => return Handed::Nothing { exhausted: true },
            }
        };
        consumer.hand(outgoing);
        if !consumer.queued && !consumer.reading {
            self.queue_consumer(stream, key);
        }
        Handed::One
    }

    /// A consumer that drains, or browses, has been given all there is: say so behind it.
    fn nothing_left(&mut self, key: u64, exhausted: bool) {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return;
        };
        if !exhausted || !consumer.drain || consumer.drained_due {
            return;
        }
        consumer.drained_due = true;
        if let Some(stream) = self.sessions.get(&consumer.session).and_then(|session| session.stream) {
            self.queue_consumer(stream, key);
        }
    }

    /// Gives a consumer more once its outbox has gone out, so that a batch is not cut short by the outbox's bound.
    pub(super) fn refill(&mut self, key: u64) {
        if let Some(consumer) = self.consumers.get(&key)
            && consumer.outbox.is_empty()
            && !consumer.is_exhausted()
        {
            let source = consumer.source;
            self.mark_dirty(source);
            self.dispatch();
        }
    }

    /// All sources of a session, because its consumers may take again.
    pub(super) fn wake_session(&mut self, key: u64) {
        let Some(session) = self.sessions.get(&key) else { return };
        let consumers = session.consumers.clone();
        for consumer in consumers {
            if let Some(source) = self.consumers.get(&consumer).map(|consumer| consumer.source) {
                self.mark_dirty(source);
            }
        }
    }
}
