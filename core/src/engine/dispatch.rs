//! Who gets what: messages that are ready are handed to consumers with credit, round-robin (EMS-DEST-A13).
//!
//! A source with something new, or a consumer with new credit, makes the source *dirty*; `poll` works the dirty sources
//! off. In each round every receiver that is ready gets one message; rounds go on until no receiver is ready or nothing
//! is left. The next pass begins behind the receiver that was served last. An exclusive queue serves its first consumer
//! alone (EMS-DEST-A12). Handing over is cheap (a reference goes into the consumer's outbox); payloads are looked up when
//! output is put together.
//!
//! A consumer that has no room sleeps: nobody asks it until [`Engine::wake_consumer`] is called for it. So whatever may
//! give a consumer room has to wake it: credit, its outbox going out or being taken back, its session or connection being
//! started or getting below its limit, the commit of its opening, a stream that adopts its session.

use super::consumer::Outgoing;
use super::engine::Engine;
use crate::state::{BrowseNext, Next, SourceId};
use std::collections::VecDeque;

/// What one attempt to hand a message over came to.
enum Handed {
    /// It got one.
    One,
    /// It can take no more now.
    NoRoom,
    /// Its credit is used up, and it wants to hear of that.
    Spent,
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

    /// Notes that a consumer may have room again, or wants to hear when nothing is left.
    pub(super) fn wake_consumer(&mut self, key: u64) {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return;
        };
        let source = consumer.source;
        if consumer.browsing.is_none()
            && consumer.selector.is_none()
            && let Some(receivers) = self.receivers.get_mut(&source)
        {
            if !consumer.awake {
                consumer.awake = true;
                receivers.ring.push_back(key);
            }
            if consumer.drain {
                receivers.draining.insert(key);
            }
        }
        self.mark_dirty(source);
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
        if receivers.exclusive {
            if let Some(first) = receivers.consumers.first().copied() {
                while self.serve(source, first) {}
            }
        } else {
            self.serve_in_turn(source);
        }
        let Some(receivers) = self.receivers.get(&source) else {
            return;
        };
        if !receivers.browsers.is_empty() {
            for browser in receivers.browsers.clone() {
                while self.serve(source, browser) {}
            }
        }
    }

    /// Rounds of all who take, until nobody can or nothing is left.
    fn serve_in_turn(&mut self, source: SourceId) {
        let Some(receivers) = self.receivers.get_mut(&source) else {
            return;
        };
        let mut ring = std::mem::take(&mut receivers.ring);
        let mut choosy = std::mem::take(&mut self.round);
        choosy.clear();
        choosy.extend(&receivers.choosy);
        let mut last_served = None;
        let mut going = true;
        while going || !choosy.is_empty() {
            choosy.retain(|&key| {
                let again = self.serve(source, key);
                last_served = if again { Some(key) } else { last_served };
                again
            });
            going = going && self.serve_ring(source, &mut ring);
        }
        self.round = choosy;
        if let Some(receivers) = self.receivers.get_mut(&source) {
            // Who was woken meanwhile stands behind the others.
            ring.append(&mut receivers.ring);
            receivers.ring = ring;
            if let Some(served) = last_served {
                receivers.pass_turn(served);
            }
        }
    }

    /// One round of those without a selector. Whether there may be another.
    fn serve_ring(&mut self, source: SourceId, ring: &mut VecDeque<u64>) -> bool {
        for _ in 0..ring.len() {
            let Some(key) = ring.pop_front() else { break };
            match self.hand_one(source, key) {
                Handed::One => ring.push_back(key),
                Handed::NoRoom => self.put_to_sleep(key),
                Handed::Spent => {
                    self.put_to_sleep(key);
                    self.nothing_left(key, true);
                }
                // What there is not for one without a selector is not there for any.
                Handed::Nothing { exhausted } => {
                    ring.push_front(key);
                    if exhausted {
                        self.end_drains(source);
                    }
                    return false;
                }
                Handed::Reading => {
                    ring.push_front(key);
                    return false;
                }
            }
        }
        !ring.is_empty()
    }

    fn put_to_sleep(&mut self, key: u64) {
        if let Some(consumer) = self.consumers.get_mut(&key) {
            consumer.awake = false;
        }
    }

    /// Tells those who wait for that that nothing is left. Whoever cannot take just now is told when it can.
    fn end_drains(&mut self, source: SourceId) {
        let Some(receivers) = self.receivers.get_mut(&source) else {
            return;
        };
        if receivers.draining.is_empty() {
            return;
        }
        let mut draining = std::mem::take(&mut receivers.draining);
        draining.retain(|&key| match self.hand_one(source, key) {
            Handed::Spent | Handed::Nothing { exhausted: true } => {
                self.nothing_left(key, true);
                false
            }
            _ => self.consumers.get(&key).is_some_and(|consumer| consumer.drain),
        });
        if let Some(receivers) = self.receivers.get_mut(&source) {
            receivers.draining.append(&mut draining);
        }
    }

    /// Hands one message to one who is asked by itself. Whether it may get another.
    fn serve(&mut self, source: SourceId, key: u64) -> bool {
        match self.hand_one(source, key) {
            Handed::One => return true,
            Handed::NoRoom => {}
            Handed::Spent => self.nothing_left(key, true),
            Handed::Reading => {
                if !self.selecting.contains(&source) {
                    self.selecting.push(source);
                }
            }
            Handed::Nothing { exhausted } => self.nothing_left(key, exhausted),
        }
        false
    }

    fn hand_one(&mut self, source: SourceId, key: u64) -> Handed {
        #[cfg(test)]
        {
            self.attempts += 1;
        }
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
                Handed::Spent
            } else {
                Handed::NoRoom
            };
        }
        let limit = u64::from(self.settings.limits.unacknowledged_messages);
        let stream = session.stream;
        if session.stopped || session.transactions.has_undone() || session.unacknowledged >= limit {
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
            match self.state.browse_next(cursor, consumer.selector.as_deref()) {
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
                Next::Reserving | Next::Expiring => return Handed::Nothing { exhausted: false },
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
        if let Some(stream) = self.sessions.get(&consumer.session).map(|session| session.stream) {
            self.queue_consumer(stream, key);
        }
    }

    /// Gives a consumer more once its outbox has gone out, so that a batch is not cut short by the outbox's bound.
    pub(super) fn refill(&mut self, key: u64) {
        if let Some(consumer) = self.consumers.get(&key)
            && consumer.outbox.is_empty()
            && !consumer.is_exhausted()
        {
            self.wake_consumer(key);
            self.dispatch();
        }
    }

    /// All consumers of a session, because they may take again.
    pub(super) fn wake_session(&mut self, key: u64) {
        let Some(session) = self.sessions.get(&key) else { return };
        for consumer in session.consumers.clone() {
            self.wake_consumer(consumer);
        }
    }
}
