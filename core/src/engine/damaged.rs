//! A message that was to go out and cannot be read.

use super::consumer::Outgoing;
use super::engine::Engine;
use super::errors::refuse;
use super::session::Session;
use crate::proto::{ErrorCode, server_frame};

/// What the record of a message that is put aside takes, at most.
const MOVE_BYTES: u64 = 4 << 10;

impl Engine {
    /// A stored message that fails its checksum, or cannot be read, is never delivered: it is put aside with its reason, and
    /// the session is told.
    pub(super) fn drop_damaged(&mut self, key: u64, outgoing: Outgoing, why: &str) {
        let Some(consumer) = self.consumers.get_mut(&key) else {
            return;
        };
        let (source, session, browses) = (consumer.source, consumer.session, consumer.browsing.is_some());
        if consumer.uploaded_sent == 0 {
            // What never went out takes no credit.
            consumer.withdraw(outgoing.sequence);
        } else {
            consumer.outbox.pop_front();
            let bytes = u64::from(outgoing.delivered.bytes);
            consumer.outbox_bytes = consumer.outbox_bytes.saturating_sub(bytes);
            consumer.uploaded_sent = 0;
        }
        let still_there = self
            .state
            .source(source)
            .is_some_and(|found| found.queue.find(outgoing.sequence).is_some());
        if browses && !still_there {
            // Somebody took it while a browser was about to see it.
            return;
        }
        // Without room for the record it stays in flight with this consumer: nobody else tries it meanwhile.
        if !browses && self.state.failed().is_none() && !self.state.lacks_room(MOVE_BYTES) {
            self.give_back(session, source, outgoing.sequence, false);
            let moved = self.state.put_damaged_aside(source, outgoing.sequence);
            debug_assert!(moved.is_ok(), "there was room: {moved:?}");
        }
        let Some(consumer) = self.consumers.get(&key) else {
            return;
        };
        let Some(Session { stream, number, .. }) = self.sessions.get(&consumer.session) else {
            return;
        };
        let subject = format!("source {} sequence {}", source.0, outgoing.sequence);
        let error = refuse(
            ErrorCode::MessageDamaged,
            subject,
            format!("A stored message cannot be read: {why}."),
        );
        self.send(*stream, *number, server_frame::Frame::Error(*error));
    }
}
