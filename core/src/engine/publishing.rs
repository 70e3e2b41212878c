//! Publishing: a producer's messages go to the state one by one; what became of them is gathered into ranges.
//!
//! Numbers follow on without a gap. Those that were sent before are handed to the state like others, which knows them
//! and confirms them again without keeping a second copy. A refused message uses its number up and changes nothing for
//! later ones. RELIABLE messages are neither confirmed nor refused, whatever happens to them (EMS-MSG-A19).

use super::engine::Engine;
use super::errors::{Refused, over_limit, refuse};
use super::frames::{self, PublishFrame};
use super::intake::{Handled, Outcome};
use super::postponed;
use super::producer::Confirmed;
use super::tickets::Purpose;
use super::transactions::Sent;
use crate::log::Position;
use crate::message::MessageView;
use crate::proto::reply::Result as Answered;
use crate::proto::{self, AcknowledgeMode, DeliveryMode, ErrorCode, server_frame};
use crate::state::{DestinationId, Incoming, Origin, Tx};
use std::sync::Arc;

/// Accepted messages that are confirmed together.
struct Run {
    range: Confirmed,
    wait_for: Option<Position>,
    bytes: u64,
}

/// What one frame came to, while it is worked off.
struct Batch {
    producer: u64,
    run: Option<Run>,
    rejected: Vec<(u64, u64, Refused)>,
    /// Where and of whom refused numbers are remembered, should they come again, and below which they may have come before;
    /// none within a transaction.
    noted: Option<(DestinationId, u64, u64)>,
    /// Why the first of them was not taken in, RELIABLE ones included.
    failed: Option<Refused>,
    /// What waits for its transaction now.
    sent: Sent,
}

/// Who publishes, as the state wants to know it.
struct Sender {
    connection: u64,
    client_id: String,
    user: Arc<str>,
    incarnation: u64,
    transaction: Option<Tx>,
    /// Numbers below may have been sent before.
    again_below: u64,
}

impl Engine {
    pub(super) fn publish(&mut self, id: u64, key: u64, frame: &PublishFrame<'_>) -> Handled {
        if frame.count == 0 {
            return Ok(Outcome::Done);
        }
        if let Some(waits_for) = self.waits(id, key, frame) {
            // Producers feel it by their credit, and nothing is refused for it.
            self.stall(key, waits_for);
            return Ok(Outcome::Parked);
        }
        let Some(producer_key) = self.producer_key(key, frame.producer) else {
            return self.reject_all(id, key, frame, no_such_producer(frame.producer));
        };
        let Some(producer) = self.producers.get_mut(&producer_key) else {
            return Ok(Outcome::Done);
        };
        if let Some(cause) = producer.turn_away(|| told_of(frame)) {
            // The end that is about to be told says of all that has no answer that it was not stored; nothing of a
            // transaction arrives without it.
            self.doom(key, frame, &cause);
            return Ok(Outcome::Done);
        }
        producer.pass_over();
        let next = producer.next_sequence;
        let last = frame.first_sequence.checked_add(frame.count - 1);
        let Some(last) = last.filter(|_| frame.first_sequence != 0 && frame.first_sequence <= next) else {
            let message = format!("Number {} was sent where {next} had to come.", frame.first_sequence);
            let refused = refuse(
                ErrorCode::ProtocolViolation,
                format!("producer {}", frame.producer),
                message,
            );
            self.expel_for(producer_key, refused, frame);
            return Ok(Outcome::Done);
        };
        let destination = match self.destination_of(key, producer_key, frame) {
            Ok(Some(destination)) => match self.takes_now(id, producer_key, destination, frame) {
                Ok(()) => destination,
                Err(refused) => return self.reject_known(id, key, producer_key, Some(destination), frame, refused),
            },
            Ok(None) => return Ok(Outcome::Parked),
            Err(refused) => return self.reject_known(id, key, producer_key, None, frame, refused),
        };
        let sender = match self.sender(key, producer_key, frame) {
            Ok(sender) => sender,
            Err(refused) => return self.reject_known(id, key, producer_key, Some(destination), frame, refused),
        };
        let mut batch = Batch {
            producer: producer_key,
            run: None,
            rejected: Vec::new(),
            noted: sender
                .transaction
                .is_none()
                .then_some((destination, sender.incarnation, sender.again_below)),
            failed: None,
            sent: Sent::default(),
        };
        for (sequence, bytes) in (frame.first_sequence..=last).zip(frame.messages()) {
            self.publish_one(&mut batch, &sender, destination, sequence, bytes);
        }
        if let Some(connection) = self.connections.get_mut(&sender.connection) {
            connection.published_total += frame.count;
        }
        self.conclude(id, key, frame, last, batch);
        Ok(Outcome::AnswerCommitted(Answered::Done(proto::Done {})))
    }

    /// Says what became of a frame whose messages were all tried; `last` is the number of the last one.
    fn conclude(&mut self, id: u64, key: u64, frame: &PublishFrame<'_>, last: u64, mut batch: Batch) {
        self.flush(&mut batch);
        if let Some(producer) = self.producers.get_mut(&batch.producer) {
            producer.next_sequence = producer.next_sequence.max(last.saturating_add(1));
            producer.postponed.taken(frame.first_sequence, last);
        }
        if batch.sent.messages > 0
            && let Some(session) = self.sessions.get_mut(&key)
        {
            session.transactions.note_sent(frame.transaction, batch.sent);
        }
        if let Some(cause) = &batch.failed {
            self.doom(key, frame, cause);
        }
        if !batch.rejected.is_empty() {
            self.reject(id, key, frame, batch.rejected);
        }
    }

    /// Whether a destination takes a frame at present: it does not while it is closed, nor before what it refused then.
    fn takes_now(
        &mut self,
        id: u64,
        producer_key: u64,
        destination: DestinationId,
        frame: &PublishFrame<'_>,
    ) -> Result<(), Refused> {
        let closed = self.closed_to_producers(destination);
        if closed.is_ok() {
            self.check_single(id, destination)?;
        }
        let now_ms = self.now.monotonic_ms;
        let Some(producer) = self.producers.get_mut(&producer_key) else {
            return closed;
        };
        // In a transaction all of it is over; an anonymous producer's numbers go to several destinations.
        if frame.transaction != 0 || producer.target.is_none() {
            return closed;
        }
        let postpones = match &closed {
            // What is refused for good does not come again.
            Err(refused) => refused.code() == ErrorCode::Unavailable && refused.retryable,
            Ok(()) => producer.postponed.is_overtaken_by(frame.first_sequence, now_ms),
        };
        if !postpones {
            return closed;
        }
        producer.postponed.add(&told_of(frame), now_ms);
        let number = producer.number;
        closed.and_then(|()| Err(postponed::refusal(number)))
    }

    fn destination_of(
        &mut self,
        key: u64,
        producer_key: u64,
        frame: &PublishFrame<'_>,
    ) -> Result<Option<DestinationId>, Refused> {
        let Some(producer) = self.producers.get(&producer_key) else {
            return Ok(None);
        };
        match (&producer.target, frame.destination) {
            (Some(target), None) => Ok(Some(target.destination)),
            (Some(_), Some(_)) => {
                let message = "The producer is bound to its destination; only anonymous producers name one.";
                Err(refuse(ErrorCode::InvalidArgument, "destination", message))
            }
            (None, None) => {
                let message = "The producer is anonymous: the frame has to name a destination.";
                Err(refuse(ErrorCode::InvalidArgument, "destination", message))
            }
            (None, Some(encoded)) => {
                let destination = frames::destination(encoded).map_err(|error| {
                    refuse(
                        ErrorCode::MalformedFrame,
                        "destination",
                        format!("The bytes cannot be read: {error}."),
                    )
                })?;
                if let Some(recent) = &producer.recent
                    && recent.kind == destination.kind
                    && recent.name == destination.name
                    && self.is_settled(recent.destination)
                {
                    return Ok(Some(recent.destination));
                }
                let Some(target) = self.target(key, &destination, Purpose::Produce)? else {
                    return Ok(None);
                };
                let id = target.destination;
                if let Some(producer) = self.producers.get_mut(&producer_key) {
                    producer.recent = Some(target);
                }
                Ok(Some(id))
            }
        }
    }

    fn is_settled(&self, id: DestinationId) -> bool {
        self.state
            .destination_by_id(id)
            .is_some_and(|found| found.settled || found.origin != Origin::Dynamic)
    }

    fn sender(&mut self, key: u64, producer_key: u64, frame: &PublishFrame<'_>) -> Result<Sender, Refused> {
        let missing = || refuse(ErrorCode::Closed, "session", "The session was closed.");
        let session = self.sessions.get_mut(&key).ok_or_else(missing)?;
        let connection = session.connection;
        let transacted = session.mode == AcknowledgeMode::Transacted;
        if transacted != (frame.transaction != 0) {
            let message = if transacted {
                "In a transacted session each Publish names its transaction."
            } else {
                "Only a transacted session has transactions."
            };
            return Err(refuse(ErrorCode::NotAllowed, "transaction", message));
        }
        let transaction = transacted.then_some(Tx {
            owner: key,
            number: frame.transaction,
        });
        if transacted {
            let limit = u64::from(self.settings.limits.transaction_messages);
            let limit_of_all = self.settings.limits.transactions;
            let entry = session
                .transactions
                .enter(frame.transaction, limit_of_all, self.now.monotonic_ms)?;
            if entry.is_undone
                && let Some(cause) = &entry.failed
            {
                return Err(super::transact::rolled_back(cause));
            }
            if entry.messages + frame.count > limit {
                return Err(over_limit(
                    "transaction_messages",
                    limit,
                    "A transaction may not hold more messages",
                ));
            }
            entry.messages += frame.count;
        }
        if transacted {
            self.watch_transactions();
        }
        let identity = &self.connections.get(&connection).ok_or_else(missing)?.identity;
        let client_id = if identity.client_id_chosen {
            identity.client_id.clone()
        } else {
            String::new()
        };
        let user = Arc::clone(&identity.user);
        let producer = self.producers.get(&producer_key).ok_or_else(missing)?;
        let incarnation = producer.incarnation;
        let again_below = producer.may_be_again_below();
        Ok(Sender {
            connection,
            client_id,
            user,
            incarnation,
            transaction,
            again_below,
        })
    }

    fn publish_one(
        &mut self,
        batch: &mut Batch,
        sender: &Sender,
        destination: DestinationId,
        sequence: u64,
        bytes: &[u8],
    ) {
        let size = bytes.len() as u64;
        let credited = self.take_credit(batch.producer, sequence, size);
        let view = match MessageView::parse(bytes) {
            Ok(view) => view,
            Err(error) => {
                self.drop_upload(batch.producer, sender.connection, bytes);
                let refused = refuse(ErrorCode::InvalidMessage, error.subject(), format!("{error}."));
                return self.refuse_one(batch, sequence, size, false, refused);
            }
        };
        let reliable = view.delivery_mode() == DeliveryMode::Reliable;
        // Whatever becomes of the message, its upload is used up.
        let uploaded = self.take_upload(batch.producer, sender.connection, &view);
        let uploaded = match credited.and_then(|()| readable(&view)).and(uploaded) {
            Ok(uploaded) => uploaded,
            Err(refused) => return self.refuse_one(batch, sequence, size, reliable, refused),
        };
        let incoming = Incoming {
            view: &view,
            uploaded: &uploaded,
            incarnation: sender.incarnation,
            sequence,
            connection: sender.connection,
            client_id: &sender.client_id,
            user: &sender.user,
            transaction: sender.transaction,
            may_be_again: sequence < sender.again_below,
        };
        match self.state.publish(destination, &incoming) {
            Ok(_) if sender.transaction.is_some() => {
                batch.sent.messages += 1;
                batch.sent.bytes += size + uploaded.len() as u64;
                self.settle(batch.producer, 1, size);
            }
            Ok(_) if reliable => self.settle(batch.producer, 1, size),
            Ok(accepted) => {
                let range = Confirmed {
                    first: sequence,
                    last: sequence,
                    durability: super::confirms::durability(accepted.durability),
                    arrived_ms: self.state.arrived_ms(),
                };
                self.extend(
                    batch,
                    Run {
                        range,
                        wait_for: accepted.wait_for,
                        bytes: size,
                    },
                );
            }
            Err(error) => self.refuse_one(batch, sequence, size, reliable, super::errors::of_publish(&error)),
        }
    }

    /// Counts a message against what its producer was granted.
    fn take_credit(&mut self, producer: u64, sequence: u64, size: u64) -> Result<(), Refused> {
        let Some(producer) = self.producers.get_mut(&producer) else {
            return Ok(());
        };
        let before = producer.published_bytes;
        producer.published_bytes += size;
        if sequence > producer.granted_sequence || before >= producer.granted_bytes {
            let what = "The producer published beyond its credit";
            return Err(over_limit("inflight_bytes", self.settings.limits.inflight_bytes, what));
        }
        Ok(())
    }

    fn extend(&mut self, batch: &mut Batch, next: Run) {
        if let Some(run) = &mut batch.run
            && run.range.last + 1 == next.range.first
            && run.range.durability == next.range.durability
            && run.wait_for.is_some() == next.wait_for.is_some()
        {
            run.range.last = next.range.last;
            run.wait_for = run.wait_for.max(next.wait_for);
            run.bytes += next.bytes;
        } else {
            self.flush(batch);
            batch.run = Some(next);
        }
    }

    fn flush(&mut self, batch: &mut Batch) {
        if let Some(run) = batch.run.take() {
            self.confirm(batch.producer, run.wait_for, run.range, run.bytes);
        }
    }

    fn refuse_one(&mut self, batch: &mut Batch, sequence: u64, size: u64, reliable: bool, refused: Refused) {
        self.settle(batch.producer, 1, size);
        if batch.failed.is_none() {
            batch.failed = Some(refused.clone());
        }
        // Nobody hears of a RELIABLE one (EMS-MSG-A19), unless by what becomes of its transaction.
        if reliable {
            return;
        }
        if let Some((destination, incarnation, again_below)) = batch.noted {
            let may_be_again = sequence < again_below;
            self.state
                .note_refused(destination, incarnation, sequence, may_be_again);
        }
        match batch.rejected.last_mut() {
            Some((_, last, before))
                if *last + 1 == sequence && before.code == refused.code && before.subject == refused.subject =>
            {
                *last = sequence;
            }
            _ => batch.rejected.push((sequence, sequence, refused)),
        }
    }

    /// Notes that a whole frame is refused: should its numbers come again, they are new. Without a destination it is not
    /// known where they go.
    fn note_all_refused(&mut self, producer_key: u64, to: Option<DestinationId>, frame: &PublishFrame<'_>) {
        let Some(producer) = self.producers.get(&producer_key).filter(|_| frame.transaction == 0) else {
            return;
        };
        let to = to.or(producer.target.as_ref().map(|target| target.destination));
        let (incarnation, again_below) = (producer.incarnation, producer.may_be_again_below());
        for sequence in frame.first_sequence..frame.first_sequence.saturating_add(frame.count) {
            match to {
                Some(to) => self
                    .state
                    .note_refused(to, incarnation, sequence, sequence < again_below),
                // It may have arrived before, where it cannot be sent now.
                None if producer.resumed || sequence < producer.next_sequence => {
                    self.state.note_doubtful(incarnation, sequence);
                }
                None => self
                    .state
                    .note_refused(DestinationId::ANYWHERE, incarnation, sequence, false),
            }
        }
    }

    /// Refuses a whole frame of a producer that exists: its numbers are used up.
    fn reject_known(
        &mut self,
        id: u64,
        key: u64,
        producer_key: u64,
        to: Option<DestinationId>,
        frame: &PublishFrame<'_>,
        refused: Refused,
    ) -> Handled {
        self.note_all_refused(producer_key, to, frame);
        self.use_up(producer_key, frame);
        self.reject_all(id, key, frame, refused)
    }

    /// Moves a producer past the numbers of a frame that never counted as in flight, and its credit with them. What was
    /// uploaded for its messages goes.
    pub(super) fn use_up(&mut self, producer_key: u64, frame: &PublishFrame<'_>) {
        let size: u64 = frame.messages().map(|message| message.len() as u64).sum();
        let Some(producer) = self.producers.get_mut(&producer_key) else {
            return;
        };
        let session = producer.session;
        let next = frame.first_sequence.saturating_add(frame.count);
        producer.next_sequence = producer.next_sequence.max(next);
        producer.published_bytes += size;
        if producer.settle(frame.count, size) {
            self.queue_producer(producer_key);
        }
        if let Some(connection) = self.connection_of(session) {
            for message in frame.messages() {
                self.drop_upload(producer_key, connection, message);
            }
        }
    }

    /// Refuses all messages of a frame but the RELIABLE ones, of which nobody hears.
    pub(super) fn reject_all(&mut self, id: u64, key: u64, frame: &PublishFrame<'_>, refused: Refused) -> Handled {
        let told = told_of(frame).into_iter();
        let rejected = told.map(|(first, last)| (first, last, refused.clone())).collect();
        self.doom(key, frame, &refused);
        self.reject(id, key, frame, rejected);
        Ok(Outcome::Done)
    }

    /// Expels a producer because of what it has sent, which is not taken either.
    fn expel_for(&mut self, producer_key: u64, refused: Refused, frame: &PublishFrame<'_>) {
        if let Some(producer) = self.producers.get_mut(&producer_key) {
            producer.note_turned_away(&told_of(frame));
        }
        self.expel_producer(producer_key, refused);
    }

    /// Nothing of a transaction arrives when a part of it cannot (EMS-TX-A02), be it the first that names it.
    fn doom(&mut self, key: u64, frame: &PublishFrame<'_>, cause: &Refused) {
        if let Some(session) = self.sessions.get_mut(&key)
            && session.mode == AcknowledgeMode::Transacted
            && frame.transaction != 0
        {
            let limit = self.settings.limits.transactions;
            let now_ms = self.now.monotonic_ms;
            session.transactions.doom(frame.transaction, limit, now_ms, cause);
            self.watch_transactions();
        }
    }

    fn reject(&mut self, id: u64, key: u64, frame: &PublishFrame<'_>, rejected: Vec<(u64, u64, Refused)>) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let number = session.number;
        for (first, last, refused) in rejected {
            let rejected = proto::Rejected {
                producer: frame.producer,
                first,
                last,
                error: Some(*refused),
            };
            self.send(id, number, server_frame::Frame::Rejected(rejected));
        }
    }
}

/// A producer that was never opened, or has ended.
pub(super) fn no_such_producer(number: u32) -> Refused {
    let message = "The session has no such producer.";
    refuse(ErrorCode::Closed, format!("producer {number}"), message)
}

/// The numbers of a frame but those of RELIABLE messages, of which nobody hears.
fn told_of(frame: &PublishFrame<'_>) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (offset, message) in (0u64..).zip(frame.messages()) {
        let reliable = MessageView::parse(message).is_ok_and(|view| view.delivery_mode() == DeliveryMode::Reliable);
        let sequence = frame.first_sequence.saturating_add(offset);
        match ranges.last_mut() {
            _ if reliable => {}
            Some((_, last)) if last.saturating_add(1) == sequence => *last = sequence,
            _ => ranges.push((sequence, sequence)),
        }
    }
    ranges
}

/// Whether receivers could decode a message: what they could not is refused here, and harms nobody behind it.
fn readable(view: &MessageView<'_>) -> Result<(), Refused> {
    view.check()
        .map_err(|error| refuse(ErrorCode::InvalidMessage, error.subject(), format!("{error}.")))
}
