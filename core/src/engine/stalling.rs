//! Back-pressure: a producer waits while room is being made, instead of being refused (the log's next segments are being
//! prepared, or messages spill from memory). Where the disk has no room for that, it is refused at once: nobody can say
//! how long it would wait.
//!
//! Only what has to keep its place behind the waiting messages waits with them: further messages of the session, the ends of
//! its producers, openings behind such an end (of the same number or name, or within the same limit) and what is uploaded
//! for those, its transactions (a rollback is done at once, and drops what waits of its own). Acknowledgements and
//! everything else go on, or a full disk could not be drained: other openings too, since a client that connects again opens
//! its consumers behind its producers. What waits is bounded by the producers' credit, and by what a session may park.

use super::engine::Engine;
use super::errors::{Refused, refuse};
use super::frames::{self, Frame, PublishFrame};
use super::publishing::no_such_producer;
use crate::message::MessageView;
use crate::proto::transact::Verb;
use crate::proto::{CloseProducer, DeliveryMode, DestinationKind, ErrorCode, OpenProducer, Transact, Upload};
use crate::state::{DestinationId, Origin, PublishError, Tx};
use prost::Message as _;
use std::collections::BTreeSet;

/// What a record takes beside its message, at a fair estimate: one that is off leads to a refusal that says "again".
const RECORD_BYTES: u64 = 160;

/// How soon it is tried again when nothing else wakes the engine.
const RETRY_MS: u64 = 1_000;

/// The ends and openings of producers among what a session holds back, until all of it is handled.
#[derive(Debug, Default)]
pub struct HeldProducers {
    /// One of them ends.
    end: bool,
    /// Numbers that are opened behind an end.
    opened: BTreeSet<u32>,
}

impl HeldProducers {
    /// Whether a frame has its place behind messages that wait.
    fn keep_in_place(&self, frame: &Frame<'_>) -> bool {
        match frame.kind {
            frames::PUBLISH | frames::CLOSE_PRODUCER | frames::TRANSACT => true,
            frames::OPEN_PRODUCER => self.end,
            // Nothing has to be read where nothing waits to be opened.
            frames::UPLOAD if !self.opened.is_empty() => {
                let upload: Result<Upload, _> = prost::Message::decode(frame.body);
                upload.is_ok_and(|upload| self.opened.contains(&upload.producer))
            }
            _ => false,
        }
    }

    /// A frame is held back.
    fn note(&mut self, frame: &Frame<'_>) {
        match frame.kind {
            frames::CLOSE_PRODUCER => self.end = true,
            frames::OPEN_PRODUCER => {
                let open: Result<OpenProducer, _> = prost::Message::decode(frame.body);
                self.opened.extend(open.map(|open| open.producer));
            }
            _ => {}
        }
    }
}

/// What a frame that decides about a transaction wants, and of which one.
fn transacts(frame: &Frame<'_>) -> Option<(u64, Verb)> {
    if frame.kind != frames::TRANSACT {
        return None;
    }
    let transact: Transact = prost::Message::decode(frame.body).ok()?;
    Some((transact.transaction, Verb::try_from(transact.verb).ok()?))
}

/// Whether a frame that waits decides about this transaction.
fn is_decision(held: &[u8], number: u64) -> bool {
    Frame::parse(held).is_ok_and(|frame| transacts(&frame).is_some_and(|(other, _)| other == number))
}

/// Whether a frame that waits ends the producer of this number.
fn is_end_of(held: &[u8], producer: u32) -> bool {
    let frame = Frame::parse(held)
        .ok()
        .filter(|frame| frame.kind == frames::CLOSE_PRODUCER);
    let close = frame.and_then(|frame| CloseProducer::decode(frame.body).ok());
    close.is_some_and(|close| close.producer == producer)
}

/// The messages in a frame that waits.
fn publish_of(held: &[u8]) -> Option<PublishFrame<'_>> {
    let frame = Frame::parse(held).ok()?;
    (frame.kind == frames::PUBLISH).then(|| PublishFrame::parse(frame.body).ok())?
}

impl Engine {
    /// Whether a frame's messages wait, and for which destination's flow control if it is that.
    pub(super) fn waits(&mut self, id: u64, key: u64, frame: &PublishFrame<'_>) -> Option<Option<DestinationId>> {
        let number = frame.transaction;
        if number != 0 && self.is_undone(Tx { owner: key, number }) {
            return None; // nothing is taken in it any more
        }
        let waits_for = self.held_up_by(id, key, frame);
        (waits_for.is_some() || self.has_to_wait(id, key, frame)).then_some(waits_for)
    }

    /// Whether a frame's messages have to wait for room. RELIABLE ones never do.
    fn has_to_wait(&self, id: u64, key: u64, frame: &PublishFrame<'_>) -> bool {
        let connection = self.connection_of(key).and_then(|key| self.connections.get(&key));
        let uploaded = connection.map_or(0, |connection| connection.upload_bytes);
        let bytes = frame.bytes() + frame.count * RECORD_BYTES + uploaded;
        let (disk, memory) = (self.state.lacks_room(bytes), self.state.is_memory_full());
        if !disk && !memory {
            return false;
        }
        // What is under way is waited for. On a full disk nothing is, until somebody makes room: whoever sends is told so.
        if disk && !self.state.is_preparing(bytes) {
            return false;
        }
        // Whoever makes a single call would rather be told than wait for memory. A transaction keeps what it has acknowledged
        // and sent until it ends: one that waited could be waiting for itself. What cannot spill makes no room; that is
        // nothing to those that go to the log.
        let internal = self.streams.get(&id).is_some_and(|stream| stream.internal);
        let memory = memory && !internal && frame.transaction == 0 && !self.state.cannot_spill();
        let persistent = disk || (memory && !self.is_for_logged_queue(key, frame));
        frame.messages().any(
            |message| match MessageView::parse(message).map(|view| view.delivery_mode()) {
                Ok(DeliveryMode::Reliable) | Err(_) => false,
                Ok(DeliveryMode::NonPersistent) => memory,
                Ok(_) => persistent,
            },
        )
    }

    /// The destination whose flow control has a frame's messages wait, whatever their mode is. A transaction that has begun
    /// goes on: it keeps what it has acknowledged until it ends, and could be waiting for itself.
    fn held_up_by(&mut self, id: u64, key: u64, frame: &PublishFrame<'_>) -> Option<DestinationId> {
        if !self.settings.flow_control || self.streams.get(&id).is_some_and(|stream| stream.internal) {
            return None;
        }
        let session = self.sessions.get(&key)?;
        if frame.transaction != 0 && session.transactions.has_begun(frame.transaction) {
            return None;
        }
        let producer = self.producers.get(&self.producer_key(key, frame.producer)?)?;
        let destination = match (&producer.target, frame.destination) {
            (Some(target), None) => target.destination,
            (None, Some(encoded)) => {
                let named = frames::destination(encoded).ok()?;
                let kind = super::state_kind(named.kind).ok()?;
                self.state.destination(kind, &named.name)?.id
            }
            // It is refused.
            _ => return None,
        };
        let is_new = !session.stalled;
        let waits = self.is_held_up(destination) || (is_new && self.is_waited_for(destination));
        waits.then_some(destination)
    }

    /// Whether sessions wait for a destination's flow control. Those go first that were there before: who makes room and
    /// sends in one breath, again and again, would pass over them for ever. They are looked at by the next poll.
    fn is_waited_for(&self, destination: DestinationId) -> bool {
        let mut waiting = self.stalled.iter().filter_map(|key| self.sessions.get(key));
        self.state.is_flow_controlled(destination) && waiting.any(|session| session.waits_for == Some(destination))
    }

    /// Whether flow control has producers wait at a destination. Where it takes nothing, or is gone, they are told so.
    fn is_held_up(&mut self, destination: DestinationId) -> bool {
        self.settings.flow_control
            && self.closed_to_producers(destination).is_ok()
            && self.state.has_flow_enough(destination)
    }

    /// Whoever makes a single call is told of flow control: all of these share a stream, and would wait for one another.
    pub(super) fn check_single(&mut self, id: u64, destination: DestinationId) -> Result<(), Refused> {
        if !self.streams.get(&id).is_some_and(|stream| stream.internal) || !self.is_held_up(destination) {
            return Ok(());
        }
        let name = self
            .state
            .destination_name(destination)
            .map(|(_, name)| name.to_owned());
        Err(super::errors::of_publish(&PublishError::DestinationFull {
            name: name.unwrap_or_default(),
            limit: "flowControlBytes",
        }))
    }

    /// How many sessions wait for a destination's flow control.
    pub(super) fn waiting_for(&self, destination: DestinationId) -> u32 {
        let waiting = self.stalled.iter().filter(|key| {
            let session = self.sessions.get(key);
            session.is_some_and(|session| session.waits_for == Some(destination))
        });
        u32::try_from(waiting.count()).unwrap_or(u32::MAX)
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

    /// Lets a session's messages wait for room, or for a destination's flow control.
    pub(super) fn stall(&mut self, key: u64, waits_for: Option<DestinationId>) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        session.waits_for = waits_for;
        if !session.stalled {
            session.stalled = true;
            self.stalled.push(key);
        }
    }

    /// Puts a frame behind those that wait for room, if it has its place there; the number of bytes that wait.
    pub(super) fn hold_back(&mut self, key: u64, frame: &Frame<'_>, bytes: &[u8]) -> Option<u64> {
        let session = self.sessions.get(&key)?;
        if !session.stalled || !session.held_producers.keep_in_place(frame) {
            return None;
        }
        if let Some((number, Verb::Rollback)) = transacts(frame)
            && !session.held.iter().any(|held| is_decision(held, number))
        {
            self.drop_held(key, number);
            return None;
        }
        let session = self.sessions.get_mut(&key)?;
        session.held_producers.note(frame);
        Some(session.held.push(bytes))
    }

    /// Drops what waits for room in a transaction that is rolled back: it would be taken in only to be undone.
    pub(super) fn drop_held(&mut self, key: u64, number: u64) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        // Perhaps it was the first of these that waited for flow control.
        session.waits_for = None;
        let mut dropped = Vec::new();
        session.held.retain(|held| {
            let drops = publish_of(held).is_some_and(|publish| publish.transaction == number);
            if drops {
                dropped.push(held.to_vec());
            }
            !drops
        });
        for held in &dropped {
            if let Some(publish) = publish_of(held)
                && let Some(producer) = self.producer_key(key, publish.producer)
            {
                self.use_up(producer, &publish);
            }
        }
    }

    /// A session is closed by its client: of what still waits, for room or for a ticket, nothing will be done. Each message is
    /// refused, and each request answered.
    pub(super) fn refuse_waiting(&mut self, key: u64) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let (parked, held) = (std::mem::take(&mut session.parked), std::mem::take(&mut session.held));
        // Behind its end nothing is told: producers and consumers go with it.
        let stream = session.stream;
        // What comes while a frame waits for its ticket stands behind what waited for room before.
        for bytes in held.iter().chain(parked.iter()) {
            let Ok(frame) = Frame::parse(bytes) else { continue };
            let message = "The session was closed while this waited.";
            let refused = refuse(ErrorCode::Closed, format!("session {}", frame.session), message);
            match PublishFrame::parse(frame.body) {
                Ok(publish) if frame.kind == frames::PUBLISH => {
                    let handled = self.reject_all(stream, key, &publish, refused);
                    self.answer_frame(stream, &frame, handled);
                }
                _ if frame.request == 0 => {}
                _ => self.answer_frame(stream, &frame, Err(refused)),
            }
        }
    }

    /// A producer was closed without its client's doing. What it had sent, and still waits for room, is refused: handled
    /// later, it would be taken for what another producer of the same number sends.
    pub(super) fn refuse_waiting_of(&mut self, key: u64, producer: u32) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        session.waits_for = None;
        let mut refused = Vec::new();
        let mut is_over = false;
        session.held.retain(|held| {
            is_over |= is_end_of(held, producer);
            let is_its = !is_over && publish_of(held).is_some_and(|publish| publish.producer == producer);
            if is_its {
                refused.push(held.to_vec());
            }
            !is_its
        });
        let stream = session.stream;
        for bytes in refused {
            // Its producer is unknown by now, and that is what is told.
            if let Ok(frame) = Frame::parse(&bytes)
                && let Ok(publish) = PublishFrame::parse(frame.body)
            {
                let handled = self.reject_all(stream, key, &publish, no_such_producer(producer));
                self.answer_frame(stream, &frame, handled);
            }
        }
    }

    /// Lets the sessions go on that waited, as far as there is room. Who could do something stands behind those that could not.
    pub(super) fn resume_stalled(&mut self) {
        let mut served = Vec::new();
        for key in std::mem::take(&mut self.stalled) {
            let held = |engine: &Self| engine.sessions.get(&key).map_or(0, |session| session.held.bytes());
            let before = held(self);
            if self.resume(key) {
                let rest = if held(self) == before {
                    &mut self.stalled
                } else {
                    &mut served
                };
                rest.push(key);
            }
        }
        self.stalled.append(&mut served);
    }

    /// Handles what a session holds back; whether some of it still has to wait.
    pub(super) fn resume(&mut self, key: u64) -> bool {
        while let Some(session) = self.sessions.get_mut(&key) {
            if session.ticket.is_some() {
                return true;
            }
            if let Some(destination) = session.waits_for {
                // Mostly nothing has changed, and the frame need not be read for that.
                if self.is_held_up(destination) {
                    return true;
                }
            }
            let Some(session) = self.sessions.get_mut(&key) else {
                return false;
            };
            session.waits_for = None;
            let stream = session.stream;
            let Some(bytes) = session.held.pop() else {
                session.stalled = false;
                session.held_producers = HeldProducers::default();
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
        if self.stalled.is_empty() && self.undoing.is_empty() && self.owed.is_empty() {
            u64::MAX
        } else {
            self.now.monotonic_ms + RETRY_MS
        }
    }
}
