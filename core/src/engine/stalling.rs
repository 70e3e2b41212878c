//! Back-pressure: a producer waits while there is no room, instead of being refused (the log's next segments are being
//! prepared, the disk is full, or messages in memory cannot spill).
//!
//! Only what has to keep its place behind the waiting messages waits with them: further messages of the session, the end
//! of its producers, its transactions. Acknowledgements and everything else go on, or a full disk could not be drained.
//! What waits is bounded by the producers' credit.

use super::engine::Engine;
use super::frames::{self, Frame, PublishFrame};
use crate::message::MessageView;
use crate::proto::{DeliveryMode, DestinationKind};
use crate::state::Origin;

/// What a record takes beside its message, at a fair estimate: one that is off leads to a refusal that says "again".
const RECORD_BYTES: u64 = 160;

/// How soon it is tried again when nothing else wakes the engine.
const RETRY_MS: u64 = 1_000;

/// Whether a frame has its place behind messages that wait.
fn keeps_place(kind: u32) -> bool {
    matches!(kind, frames::PUBLISH | frames::CLOSE_PRODUCER | frames::TRANSACT)
}

impl Engine {
    /// Whether a frame's messages have to wait for room. RELIABLE ones never do.
    pub(super) fn has_to_wait(&self, id: u64, key: u64, frame: &PublishFrame<'_>) -> bool {
        let connection = self.connection_of(key).and_then(|key| self.connections.get(&key));
        let uploaded = connection.map_or(0, |connection| connection.upload_bytes);
        let bytes = frame.bytes() + frame.count * RECORD_BYTES + uploaded;
        let (disk, memory) = (self.state.lacks_room(bytes), self.state.is_memory_full());
        if !disk && !memory {
            return false;
        }
        // Whoever makes a single call would rather be told than wait for somebody to make room. A transaction keeps what it
        // has acknowledged and sent until it ends: one that waited could be waiting for itself.
        let internal = self.streams.get(&id).is_some_and(|stream| stream.internal);
        if (internal || frame.transaction != 0) && !self.state.is_preparing(bytes) {
            return false;
        }
        let persistent = disk || !self.is_for_logged_queue(key, frame);
        frame.messages().any(
            |message| match MessageView::parse(message).map(|view| view.delivery_mode()) {
                Ok(DeliveryMode::Reliable) | Err(_) => false,
                Ok(DeliveryMode::NonPersistent) => memory,
                Ok(_) => persistent,
            },
        )
    }

    /// Whether persistent messages of a frame certainly go to the log. For others it depends on who wants them.
    fn is_for_logged_queue(&self, key: u64, frame: &PublishFrame<'_>) -> bool {
        let producer = self
            .producer_key(key, frame.producer)
            .and_then(|key| self.producers.get(&key));
        let target = producer.and_then(|producer| producer.target.as_ref());
        target
            .filter(|target| target.kind == i32::from(DestinationKind::Queue))
            .and_then(|target| self.state.destination_by_id(target.destination))
            .is_some_and(|found| found.origin != Origin::Temporary)
    }

    /// Lets a session's messages wait for room.
    pub(super) fn stall(&mut self, key: u64) {
        if let Some(session) = self.sessions.get_mut(&key)
            && !session.stalled
        {
            session.stalled = true;
            self.stalled.push(key);
        }
    }

    /// Puts a frame behind those that wait for room, if it has its place there; the number of bytes that wait.
    pub(super) fn hold_back(&mut self, key: u64, frame: &Frame<'_>, bytes: &[u8]) -> Option<u64> {
        let session = self.sessions.get_mut(&key)?;
        (session.stalled && keeps_place(frame.kind)).then(|| session.held.push(bytes))
    }

    /// Lets the sessions go on that waited, as far as there is room.
    pub(super) fn resume_stalled(&mut self) {
        for key in std::mem::take(&mut self.stalled) {
            if self.resume(key) {
                self.stalled.push(key);
            }
        }
    }

    /// Handles what a session holds back; whether some of it still has to wait.
    fn resume(&mut self, key: u64) -> bool {
        while let Some(session) = self.sessions.get_mut(&key) {
            if session.ticket.is_some() {
                return true;
            }
            let (Some(stream), Some(bytes)) = (session.stream, session.held.pop()) else {
                session.stalled = false;
                return false;
            };
            // It was read once before it was held back.
            let Ok(frame) = Frame::parse(&bytes) else { continue };
            if self.session_frame(stream, key, &frame) {
                if let Some(session) = self.sessions.get_mut(&key) {
                    session.held.push_front(bytes);
                }
                return true;
            }
        }
        false
    }

    /// When what waits is tried again at the latest.
    pub(super) fn stalled_deadline(&self) -> u64 {
        if self.stalled.is_empty() && self.undoing.is_empty() {
            u64::MAX
        } else {
            self.now.monotonic_ms + RETRY_MS
        }
    }
}
