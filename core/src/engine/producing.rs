//! Opening and closing producers: numbers that go on after a lost connection, and the credit they begin with.

use super::confirms::Waiting;
use super::engine::Engine;
use super::errors::{Refused, of_state, over_limit, refuse};
use super::intake::{Handled, Outcome};
use super::producer::{Producer, Target, WINDOW_BYTES_MAX, WINDOW_BYTES_MIN, WINDOW_MESSAGES};
use super::publishing::no_such_producer;
use super::tickets::{Purpose, Resolved};
use crate::log::Position;
use crate::proto::reply::Result as Answered;
use crate::proto::{self, ErrorCode, server_frame};
use crate::state::{Named, ProducerKnowledge, Told, message_id_prefix};
use std::collections::VecDeque;

impl Engine {
    pub(super) fn open_producer(&mut self, key: u64, open: &proto::OpenProducer) -> Handled {
        let Some(connection_key) = self.connection_of(key) else {
            return Ok(Outcome::Done);
        };
        let window = self.check_producer(connection_key, open)?;
        self.check_name(key, open)?;
        let target = match &open.destination {
            None => None,
            Some(destination) => match self.target(key, destination, Purpose::Produce)? {
                None => return Ok(Outcome::Parked),
                Some(target) => Some(target),
            },
        };
        let user = match self.connections.get(&connection_key) {
            Some(connection) => connection.identity.user.clone(),
            None => return Ok(Outcome::Done),
        };
        // Before a name is opened for it: what is refused changes nothing.
        let left_out = left_out(open)?;
        let named = match &target {
            Some(target) if !open.name.is_empty() => Some(self.open_by_name(open, target.destination, &user)?),
            _ => None,
        };
        let (incarnation, last) = match named {
            Some(named) => (named.incarnation, named.last),
            None => self.incarnation(open, target.as_ref(), &user)?,
        };
        let next = first_number(open, last);
        let producer_key = self.next_key();
        let mut producer = Producer::new(open.producer, key, target, incarnation, next, window);
        producer.resumed = open.incarnation != 0 || named.is_some();
        producer.again_below = match (producer.resumed, &producer.target) {
            (false, _) => 0,
            // What is above had not arrived; from now on it is known what comes.
            (_, Some(_)) => last.saturating_add(1),
            // Wherever it sent to, it was not further ahead than its credit.
            (_, None) => next.saturating_add(WINDOW_MESSAGES),
        };
        producer.left_out = left_out;
        if let (Some(_), Some(target)) = (named, &producer.target) {
            producer.name = Some(Box::new((user.to_string(), open.name.clone(), target.destination)));
            self.note_passed_over(&producer, open, last);
        }
        if named.is_none() && open.incarnation == 0 {
            self.note_opened(connection_key, incarnation);
        }
        let mut opened = self.opened(&producer, named, last, &user);
        self.install(connection_key, producer_key, producer);
        opened.uploads = self.claim_uploads(producer_key, open);
        let answer = Answered::ProducerOpened(opened);
        Ok(match named {
            // Whoever goes on from a number relies on it.
            Some(_) => Outcome::AnswerCommitted(answer),
            None => Outcome::Answer(answer),
        })
    }

    /// Puts a producer that is open where everybody finds it.
    fn install(&mut self, connection_key: u64, key: u64, producer: Producer) {
        if let Some(target) = &producer.target {
            self.state.attach_producer(target.destination);
        }
        if let Some(name) = &producer.name {
            self.named.insert((**name).clone(), key);
        }
        if let Some(session) = self.sessions.get_mut(&producer.session) {
            session.producers.push(key);
        }
        if let Some(connection) = self.connections.get_mut(&connection_key) {
            connection.window_bytes += producer.window_bytes;
            connection.producers.insert(producer.number, key);
        }
        self.producers.insert(key, producer);
    }

    /// A program with a name begins where it likes, and may send later what it has left out: of that nothing has arrived, if it
    /// is above the last that has, although higher numbers will.
    fn note_passed_over(&mut self, producer: &Producer, open: &proto::OpenProducer, last: u64) {
        let Some(target) = &producer.target else { return };
        // What was settled elsewhere, before it begins here, counts as stored.
        let from = last.saturating_add(1).max(open.settled_below);
        let begins = (from, producer.next_sequence.saturating_sub(1));
        let comes_back = open.incarnation != 0;
        let left_out = producer.left_out.iter().filter(|_| comes_back).copied();
        for (first, last) in std::iter::once(begins).chain(left_out) {
            self.state
                .note_skipped(target.destination, producer.incarnation, first, last);
        }
    }

    /// What the client is told of a producer that is open.
    fn opened(&self, producer: &Producer, named: Option<Named>, last: u64, user: &str) -> proto::ProducerOpened {
        let target = producer.target.as_ref();
        let destination = target.and_then(|target| self.state.destination_by_id(target.destination));
        let incarnation = producer.incarnation;
        proto::ProducerOpened {
            incarnation,
            token: self.token_of(incarnation, named, user),
            message_id_prefix: message_id_prefix(
                &self.settings.broker,
                incarnation,
                self.state.start_id_of(incarnation),
            ),
            last_sequence: last,
            uploads: Vec::new(),
            destination_id: destination.map_or(0, |destination| destination.id.0),
            generation: destination.map_or(0, |destination| destination.generation),
            credit: Some(proto::ProducerCredit {
                producer: producer.number,
                sequence_limit: producer.granted_sequence,
                bytes_limit: producer.granted_bytes,
            }),
        }
    }

    /// With what a producer comes back. Empty: with nothing.
    fn token_of(&self, incarnation: u64, named: Option<Named>, user: &str) -> Vec<u8> {
        let token = match named {
            Some(named) => self.state.opening_token(incarnation, named.opening, user),
            None => self.state.producer_token(incarnation, user).map(|token| token.to_vec()),
        };
        token.unwrap_or_default()
    }

    /// Whether the connection may open this producer; the window it gets. The sum of all windows stays at the
    /// connection's limit, but for the least that each needs.
    fn check_producer(&self, connection: u64, open: &proto::OpenProducer) -> Result<u64, Refused> {
        let limits = &self.settings.limits;
        let Some(connection) = self.connections.get(&connection) else {
            return Err(refuse(ErrorCode::Closed, "connection", "The connection was closed."));
        };
        if open.producer == 0 || connection.producers.contains_key(&open.producer) {
            let code = if open.producer == 0 {
                ErrorCode::InvalidArgument
            } else {
                ErrorCode::AlreadyExists
            };
            let message = "A producer needs a number of its own, other than 0.";
            return Err(refuse(code, "producer", message));
        }
        if connection.producers.len() >= limits.producers as usize {
            let what = "A connection may not open more producers";
            return Err(over_limit("producers", u64::from(limits.producers), what));
        }
        let left = limits.inflight_bytes.saturating_sub(connection.window_bytes);
        Ok((left / 4).clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX))
    }

    /// For audits: whose messages these will be. Names of producers have records of their own.
    fn note_opened(&mut self, connection_key: u64, incarnation: u64) {
        let Some(connection) = self.connections.get(&connection_key) else {
            return;
        };
        let identity = &connection.identity;
        // One that was made up says nothing.
        let chosen = Some(&identity.client_id).filter(|_| identity.client_id_chosen);
        self.state.note(Told::Opened {
            incarnation,
            user: identity.user.to_string(),
            client_id: chosen.cloned().unwrap_or_default(),
        });
    }

    /// The incarnation that a producer goes on under, and the last number that is known of it.
    fn incarnation(
        &mut self,
        open: &proto::OpenProducer,
        target: Option<&Target>,
        user: &str,
    ) -> Result<(u64, u64), Refused> {
        if open.incarnation == 0 {
            let incarnation = self.state.next_incarnation().map_err(|error| of_state(&error))?;
            return Ok((incarnation, 0));
        }
        if !self.state.is_producer_token(&open.token, open.incarnation, user) {
            let message = "The broker did not give this producer its incarnation: its store is another one or an older \
                           copy, or the producer is somebody else's. It cannot tell which of its messages arrived.";
            return Err(refuse(ErrorCode::UnknownProducer, "incarnation", message));
        }
        let forgotten = || {
            let message = "The broker has forgotten this producer: it cannot tell which of its messages arrived.";
            refuse(ErrorCode::UnknownProducer, "incarnation", message)
        };
        let Some(target) = target else {
            // Wherever it sent to: what comes again would be new where it is forgotten.
            return match self.state.may_have_forgotten(open.incarnation) {
                true => Err(forgotten()),
                false => Ok((open.incarnation, 0)),
            };
        };
        match self.state.producer_knowledge(open.incarnation, target.destination) {
            ProducerKnowledge::Known(last) => Ok((open.incarnation, last)),
            ProducerKnowledge::New => Ok((open.incarnation, 0)),
            ProducerKnowledge::Forgotten => Err(forgotten()),
        }
    }

    /// Resolves a destination that is to be sent to; `None`: the frame has to wait.
    pub(super) fn target(
        &mut self,
        key: u64,
        destination: &proto::Destination,
        purpose: Purpose,
    ) -> Result<Option<Target>, Refused> {
        let kind = super::state_kind(destination.kind)?;
        let name = &destination.name;
        if name.starts_with(crate::name::SYSTEM_PREFIX) {
            let message = "Nothing can be sent to the broker's own destinations.";
            return Err(refuse(
                ErrorCode::NotAllowed,
                super::tickets::name_excerpt(name),
                message,
            ));
        }
        Ok(match self.resolve(key, kind, name, purpose)? {
            Resolved::Asked => None,
            Resolved::Known(id) => Some(Target {
                kind: destination.kind,
                name: name.clone(),
                destination: id,
            }),
        })
    }

    pub(super) fn close_producer(&mut self, key: u64, number: u32) -> Handled {
        let Some(producer) = self.producer_key(key, number) else {
            return Err(no_such_producer(number));
        };
        self.end_producer(producer);
        // Of what waits for the disk nobody is told by its number any more: this answer stands for it.
        Ok(Outcome::AnswerCommitted(Answered::Done(proto::Done {})))
    }

    pub(super) fn producer_key(&self, session: u64, number: u32) -> Option<u64> {
        let connection = self.connections.get(&self.sessions.get(&session)?.connection)?;
        let key = *connection.producers.get(&number)?;
        (self.producers.get(&key)?.session == session).then_some(key)
    }

    pub(super) fn end_producer(&mut self, key: u64) {
        let Some(producer) = self.producers.remove(&key) else {
            return;
        };
        if let Some(name) = &producer.name
            && self.named.get(&**name) == Some(&key)
        {
            self.named.remove(&**name);
        }
        if let Some(target) = &producer.target {
            self.state.detach_producer(target.destination);
        }
        if self.uploading.get(&producer.incarnation) == Some(&key) {
            self.uploading.remove(&producer.incarnation);
        }
        let (uploaded, refused) = (producer.uploads.bytes(), producer.uploads.refused_count());
        let Some(session) = self.sessions.get_mut(&producer.session) else {
            return;
        };
        session.producers.retain(|&other| other != key);
        let (stream, number) = (session.stream, session.number);
        if let Some(connection) = self.connections.get_mut(&session.connection) {
            connection.producers.remove(&producer.number);
            connection.window_bytes = connection.window_bytes.saturating_sub(producer.window_bytes);
            connection.upload_bytes = connection.upload_bytes.saturating_sub(uploaded);
            connection.uploads_refused = connection.uploads_refused.saturating_sub(refused);
        }
        if !producer.confirmed.is_empty() {
            let confirmed = producer.confirmed.iter().map(|range| proto::Confirmed {
                producer: producer.number,
                first: range.first,
                last: range.last,
                durability: range.durability.into(),
                arrived_ms: range.arrived_ms,
            });
            let confirm = proto::Confirm {
                confirmed: confirmed.collect(),
            };
            self.send(stream, number, server_frame::Frame::Confirm(confirm));
        }
        // Its client ends it, and has not heard that it was expelled: the answer confirms what is not refused before.
        if let Some(reason) = &producer.expelled {
            for (first, last) in producer.turned_away {
                let rejected = proto::Rejected {
                    producer: producer.number,
                    first,
                    last,
                    error: Some((**reason).clone()),
                };
                self.send(stream, number, server_frame::Frame::Rejected(rejected));
            }
        }
    }

    /// Closes a producer that broke the rules, or whose place is not here any more. It takes nothing from now on.
    ///
    /// Its client is told when all that it had taken is committed and confirmed. So what has no answer when the end comes
    /// was not stored: it has failed, or may be sent to where the destination lives now, and nothing is stored twice.
    pub(super) fn expel_producer(&mut self, producer_key: u64, refused: Refused) {
        let Some(producer) = self.producers.get_mut(&producer_key) else {
            return;
        };
        // The first reason counts.
        if producer.expelled.is_some() {
            return;
        }
        producer.expelled = Some(refused);
        self.tell_end(producer_key);
    }

    /// Has an expelled producer's client told once all that was appended so far is committed.
    pub(super) fn tell_end(&mut self, producer_key: u64) {
        let end = self.state.end();
        if self.state.committed() >= end {
            self.end_expelled(producer_key);
        } else {
            let waiting = Waiting::End { producer: producer_key };
            self.pending.push(Position(end.0 - 1), waiting, self.written);
        }
    }

    /// Ends an expelled producer and tells its client.
    pub(super) fn end_expelled(&mut self, producer_key: u64) {
        let Some(producer) = self.producers.get_mut(&producer_key) else {
            return;
        };
        let (number, session_key) = (producer.number, producer.session);
        let Some(session) = self.sessions.get(&session_key) else {
            return;
        };
        let (stream, session) = (session.stream, session.number);
        let closed = proto::ProducerClosed {
            producer: number,
            reason: producer.expelled.as_deref().cloned(),
        };
        // That says it of all of these.
        producer.turned_away.clear();
        self.end_producer(producer_key);
        self.send(stream, session, server_frame::Frame::ProducerClosed(closed));
        self.refuse_waiting_of(session_key, number);
    }

    pub(super) fn connection_of(&self, session: u64) -> Option<u64> {
        self.sessions.get(&session).map(|session| session.connection)
    }
}

/// The number that the first message of a producer has.
fn first_number(open: &proto::OpenProducer, last: u64) -> u64 {
    match (open.incarnation, open.first_unconfirmed) {
        (0, _) if open.name.is_empty() => 1,
        (0, 0) => last.saturating_add(1),
        (_, first) => first.max(1),
    }
}

/// What a producer that comes back leaves out.
fn left_out(open: &proto::OpenProducer) -> Result<VecDeque<(u64, u64)>, Refused> {
    let mut ranges = VecDeque::with_capacity(open.left_out.len());
    let mut from = open.first_unconfirmed.max(1);
    for range in &open.left_out {
        let last = if range.last == 0 { range.first } else { range.last };
        let is_new = open.incarnation == 0 && (open.name.is_empty() || open.first_unconfirmed == 0);
        if is_new || range.first < from || last < range.first || last == u64::MAX {
            let message = "Numbers that are left out stand in order, behind the first that is unconfirmed, of a producer \
                           that comes back.";
            return Err(refuse(ErrorCode::InvalidArgument, "left_out", message));
        }
        ranges.push_back((range.first, last));
        from = last + 1;
    }
    Ok(ranges)
}
