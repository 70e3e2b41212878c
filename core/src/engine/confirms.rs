//! What waits for the log: confirmations and replies that may only go out once a position is committed.
//!
//! One queue for the whole engine, in the order of positions, because positions only grow: a commit settles a prefix of
//! it. An entry that names an earlier position than the one before it (a message that was sent again) waits a little
//! longer than it had to, never shorter.

use super::engine::Engine;
use super::producer::Confirmed;
use crate::log::Position;
use crate::proto::Durability;
use std::collections::VecDeque;

/// What happens once a position is committed.
#[derive(Debug)]
pub enum Waiting {
    /// A producer's messages are safe.
    Confirm {
        /// The producer's key.
        producer: u64,
        /// What is confirmed.
        range: Confirmed,
        /// The bytes that are no longer in flight.
        bytes: u64,
        /// When they arrived, by the monotonic clock.
        since_ms: u64,
    },
    /// What an expelled producer had taken has its answer: its client is told of its end.
    End {
        /// The producer's key.
        producer: u64,
    },
    /// A request is done: the encoded frame goes out on the stream.
    Frame {
        /// The stream that asked.
        stream: u64,
        /// The encoded `ServerFrame`.
        frame: Vec<u8>,
    },
}

/// Everything that waits, in the order of positions.
#[derive(Debug, Default)]
pub struct Pending {
    queue: VecDeque<(Position, Waiting)>,
}

impl Pending {
    /// Adds something that waits for the record at `position`. Ranges of one producer that belong together become one
    /// entry as long as no commit can come between them: `floor` is the end of what the log has handed to a write.
    pub fn push(&mut self, position: Position, waiting: Waiting, floor: Position) {
        if let Some((
            last,
            Waiting::Confirm {
                producer,
                range,
                bytes,
                since_ms,
            },
        )) = self.queue.back_mut()
            && let Waiting::Confirm {
                producer: next_producer,
                range: next,
                bytes: more,
                since_ms: next_since_ms,
            } = &waiting
            && *last >= floor
            && producer == next_producer
            && range.last.checked_add(1) == Some(next.first)
            && range.durability == next.durability
            && range.arrived_ms == next.arrived_ms
            && since_ms == next_since_ms
        {
            range.last = next.last;
            *bytes += more;
            *last = position.max(*last);
            return;
        }
        self.queue.push_back((position, waiting));
    }

    /// Forgets everything: nothing will be committed any more.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// The next thing whose position is below `committed`.
    pub fn pop(&mut self, committed: Position) -> Option<Waiting> {
        if self.queue.front()?.0 < committed {
            self.queue.pop_front().map(|(_, waiting)| waiting)
        } else {
            None
        }
    }
}

impl Engine {
    /// Sends a frame once everything that was appended so far is committed: at once if it is.
    pub(super) fn send_after_commit(&mut self, stream: u64, frame: Vec<u8>) {
        self.state.log_returns();
        let end = self.state.end();
        if self.state.committed() >= end {
            self.send_encoded(stream, frame);
        } else {
            // The last record appended lies somewhere below the end: committed beyond it means committed up to the end.
            self.pending
                .push(Position(end.0 - 1), Waiting::Frame { stream, frame }, self.written);
        }
    }

    /// Confirms a range: at once, or when the log has it.
    pub(super) fn confirm(&mut self, producer: u64, wait_for: Option<Position>, range: Confirmed, bytes: u64) {
        let since_ms = self.now.monotonic_ms;
        match wait_for {
            Some(position) if position >= self.state.committed() => {
                let waiting = Waiting::Confirm {
                    producer,
                    range,
                    bytes,
                    since_ms,
                };
                self.pending.push(position, waiting, self.written);
            }
            _ => self.confirmed(producer, range, bytes, since_ms),
        }
    }

    /// Sends what the last commit has made true.
    pub(super) fn settle_commits(&mut self) {
        let committed = self.state.committed();
        while let Some(waiting) = self.pending.pop(committed) {
            match waiting {
                Waiting::Confirm {
                    producer,
                    range,
                    bytes,
                    since_ms,
                } => self.confirmed(producer, range, bytes, since_ms),
                Waiting::End { producer } => self.end_expelled(producer),
                Waiting::Frame { stream, frame } => self.send_encoded(stream, frame),
            }
        }
        while let Some(&(position, consumer)) = self.opening.front() {
            if position > committed {
                break;
            }
            self.opening.pop_front();
            self.wake_consumer(consumer);
        }
    }

    fn confirmed(&mut self, key: u64, range: Confirmed, bytes: u64, since_ms: u64) {
        let messages = range.last - range.first + 1;
        self.figures.note_confirmed(since_ms, self.now.monotonic_ms, messages);
        self.settle(key, messages, bytes);
        if let Some(producer) = self.producers.get_mut(&key) {
            producer.confirm(range);
            self.queue_producer(key);
        }
    }

    /// Takes messages of a producer out of flight, which may be worth a new grant.
    pub(super) fn settle(&mut self, key: u64, messages: u64, bytes: u64) {
        let Some(producer) = self.producers.get_mut(&key) else {
            return;
        };
        if producer.settle(messages, bytes) {
            self.queue_producer(key);
        }
    }

    /// Puts a producer into its stream's list of those that have something to be told.
    pub(super) fn queue_producer(&mut self, key: u64) {
        let Some(producer) = self.producers.get_mut(&key) else {
            return;
        };
        let Some(id) = self.sessions.get(&producer.session).map(|session| session.stream) else {
            return;
        };
        if !producer.queued
            && let Some(stream) = self.streams.get_mut(&id)
        {
            producer.queued = true;
            stream.outbox.confirming.push_back(key);
            self.announce(id);
        }
    }
}

/// The state's word for how safe a message is, as frames carry it.
#[must_use]
pub fn durability(durability: crate::state::Durability) -> Durability {
    match durability {
        crate::state::Durability::Accepted => Durability::Accepted,
        crate::state::Durability::Durable => Durability::Durable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirm(first: u64, last: u64) -> Waiting {
        let range = Confirmed {
            first,
            last,
            durability: Durability::Durable,
            arrived_ms: 1,
        };
        Waiting::Confirm {
            producer: 1,
            range,
            bytes: 10,
            since_ms: 1,
        }
    }

    #[test]
    fn nothing_is_confirmed_before_its_position_is_committed() {
        let mut pending = Pending::default();
        pending.push(Position(8), confirm(1, 4), Position::ZERO);
        assert!(pending.pop(Position(8)).is_none());
        assert!(matches!(pending.pop(Position(9)), Some(Waiting::Confirm { .. })));
    }

    #[test]
    fn ranges_merge_until_the_log_hands_them_to_a_write() {
        let mut pending = Pending::default();
        pending.push(Position(8), confirm(1, 4), Position(0));
        pending.push(Position(16), confirm(5, 6), Position(0));
        pending.push(Position(24), confirm(7, 7), Position(20));
        let first = pending.pop(Position(17));
        assert!(matches!(
            first,
            Some(Waiting::Confirm {
                range: Confirmed { first: 1, last: 6, .. },
                bytes: 20,
                ..
            })
        ));
        assert!(pending.pop(Position(24)).is_none());
        assert!(pending.pop(Position(25)).is_some());
    }
}
