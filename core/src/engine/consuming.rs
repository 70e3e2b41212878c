//! Opening and closing consumers and sessions, and what becomes of what they hold.
//!
//! Three words for the messages of a session that ends. *Unsent*: dispatched, still in an outbox here; they go back as if
//! nothing had happened. *Seen*: the application had them; they count as delivered. *Unseen*: sent, but the application
//! never had them: they count only when the client vanished (EMS-DEST-A23: a crash counts everything that was sent).

use super::consumer::Consumer;
use super::engine::Engine;
use super::errors::{Refused, of_state, over_limit, refuse};
use super::intake::{Handled, Outcome};
use super::seen::Seen;
use super::session::{CONSUMERS_MAX, holder};
use super::subscribing::Taken;
use super::tickets::name_excerpt;
use crate::log::Position;
use crate::proto::reply::Result as Answered;
use crate::proto::{self, AcknowledgeMode, ErrorCode, OpenConsumer, SeenSet, server_frame};
use crate::selector::Selector;
use crate::state::{Cursor, Kind, Released, SourceId, View};
use rustc_hash::FxHashSet;
use std::sync::Arc;

impl Engine {
    pub(super) fn open_consumer(&mut self, key: u64, open: &OpenConsumer) -> Handled {
        let Some(session) = self.sessions.get(&key) else {
            return Ok(Outcome::Done);
        };
        let (connection_key, mode) = (session.connection, session.mode);
        if session.consumer_serial >= CONSUMERS_MAX {
            let what = "A session may not open more consumers in its life: open another session";
            return Err(over_limit("consumers", u64::from(CONSUMERS_MAX), what));
        }
        let Some(connection) = self.connections.get(&connection_key) else {
            return Ok(Outcome::Done);
        };
        if open.consumer == 0 || connection.consumers.contains_key(&open.consumer) {
            let code = if open.consumer == 0 {
                ErrorCode::InvalidArgument
            } else {
                ErrorCode::AlreadyExists
            };
            return Err(refuse(
                code,
                "consumer",
                "A consumer needs a number of its own, other than 0.",
            ));
        }
        let limit = self.settings.limits.consumers;
        if connection.consumers.len() >= limit as usize {
            return Err(over_limit(
                "consumers",
                u64::from(limit),
                "A connection may not open more consumers",
            ));
        }
        let destination = open.destination.clone().ok_or_else(|| {
            refuse(
                ErrorCode::InvalidArgument,
                "destination",
                "A consumer needs a destination.",
            )
        })?;
        let kind = super::state_kind(destination.kind)?;
        let selector = self.selector(kind, &destination.name, &open.selector)?;
        let taken = match kind {
            Kind::Queue => self.take_queue(key, connection_key, open, &destination.name)?,
            Kind::Topic => self.take_topic(key, connection_key, mode, open, &destination.name, selector.clone())?,
        };
        let Some(taken) = taken else { return Ok(Outcome::Parked) };
        self.attach(key, connection_key, mode, open, taken, selector)
    }

    fn attach(
        &mut self,
        key: u64,
        connection_key: u64,
        mode: AcknowledgeMode,
        open: &OpenConsumer,
        taken: Taken,
        selector: Option<Arc<Selector>>,
    ) -> Handled {
        let Some(session) = self.sessions.get_mut(&key) else {
            return Ok(Outcome::Done);
        };
        session.consumer_serial += 1;
        let consumer_key = holder(key, session.consumer_serial);
        session.consumers.push(consumer_key);
        if !session.sources.contains(&taken.source) {
            session.sources.push(taken.source);
        }
        if let Some(connection) = self.connections.get_mut(&connection_key) {
            connection.consumers.insert(open.consumer, consumer_key);
        }
        let selector = if taken.selected { None } else { selector };
        let mut consumer = Consumer {
            number: open.consumer,
            session: key,
            source: taken.source,
            destination: taken.destination,
            cursor: Cursor::default(),
            browsing: open.browse.then(|| match taken.view {
                View::Due => self.state.browse_cursor(taken.source),
                view => self.state.browse_view(view),
            }),
            owns_source: taken.owns_source,
            forget: super::output::forgets(mode),
            message_limit: 0,
            bytes_limit: 0,
            sent_messages: 0,
            sent_bytes: 0,
            drain: false,
            drained_due: false,
            outbox: std::collections::VecDeque::new(),
            outbox_bytes: 0,
            uploaded_sent: 0,
            reading: false,
            opens_at: Position::ZERO,
            awake: false,
            queued: false,
            selector,
        };
        if let Some(credit) = &open.credit {
            consumer.grant(credit.message_limit, credit.bytes_limit, credit.drain);
        }
        if !open.browse {
            self.state.attach(taken.source, consumer.selector.is_some());
        }
        consumer.opens_at = self.state.end();
        self.opening.push_back((consumer.opens_at, consumer_key));
        let has_selector = consumer.selector.is_some();
        self.consumers.insert(consumer_key, consumer);
        let destination = taken.destination.and_then(|id| self.state.destination_by_id(id));
        let opened = proto::ConsumerOpened {
            consumer: open.consumer,
            source: taken.source.0,
            destination_id: destination.map_or(0, |destination| destination.id.0),
            generation: destination.map_or(0, |destination| destination.generation),
            prefetch: destination.map_or(64, |destination| destination.properties.prefetch),
            epoch: self.state.epoch(),
            replaced: taken.replaced,
        };
        let exclusive = destination.is_some_and(|d| d.kind == Kind::Queue && d.properties.exclusive);
        let receivers = self.receivers.entry(taken.source).or_default();
        if open.browse {
            receivers.browsers.push(consumer_key);
        } else {
            receivers.exclusive = exclusive;
            receivers.add(consumer_key, has_selector);
        }
        self.wake_consumer(consumer_key);
        Ok(Outcome::AnswerCommitted(Answered::ConsumerOpened(opened)))
    }

    pub(super) fn credit(&mut self, key: u64, credit: &proto::Credit) -> Handled {
        // A consumer that the broker has closed meanwhile: the client will hear, or has heard, of that.
        let Some(consumer_key) = self.consumer_key(key, credit.consumer) else {
            return Ok(Outcome::Done);
        };
        if let Some(consumer) = self.consumers.get_mut(&consumer_key) {
            consumer.grant(credit.message_limit, credit.bytes_limit, credit.drain);
            self.wake_consumer(consumer_key);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn consumer_key(&self, session: u64, number: u32) -> Option<u64> {
        let connection = self.connections.get(&self.sessions.get(&session)?.connection)?;
        let key = *connection.consumers.get(&number)?;
        (self.consumers.get(&key)?.session == session).then_some(key)
    }

    pub(super) fn close_consumer(&mut self, key: u64, close: &proto::CloseConsumer) -> Handled {
        let Some(consumer_key) = self.consumer_key(key, close.consumer) else {
            let subject = format!("consumer {}", close.consumer);
            return Err(refuse(ErrorCode::Closed, subject, "The session has no such consumer."));
        };
        let (unsent, seen) = (self.take_back(consumer_key), Seen::of(&close.seen));
        let Some(consumer) = self.consumers.get(&consumer_key) else {
            return Ok(Outcome::Done);
        };
        let (source, browses) = (consumer.source, consumer.browsing.is_some());
        if !browses {
            for sequence in self.state.in_flight(source, |holder| holder == consumer_key) {
                // What the application saw stays with the session until it is acknowledged or the session ends.
                if unsent.contains(&sequence) || !seen.contains(source, sequence) {
                    self.give_back(key, source, sequence, false);
                }
            }
        }
        self.end_consumer(consumer_key);
        Ok(Outcome::Done)
    }

    /// Takes a consumer's unsent deliveries out of its outbox. They stay in flight until they are given back.
    fn take_back(&mut self, consumer_key: u64) -> FxHashSet<u64> {
        let Some(consumer) = self.consumers.get_mut(&consumer_key) else {
            return FxHashSet::default();
        };
        let unsent = consumer.take_back();
        // What does not count as sent is credit again.
        self.wake_consumer(consumer_key);
        unsent.into_iter().map(|outgoing| outgoing.sequence).collect()
    }

    pub(super) fn give_back(&mut self, session: u64, source: SourceId, sequence: u64, seen: bool) {
        self.give_back_for(session, source, sequence, seen, 0);
    }

    /// As [`Engine::give_back`]; what was seen waits so long.
    pub(super) fn give_back_for(&mut self, session: u64, source: SourceId, sequence: u64, seen: bool, delay_ms: u64) {
        if !self.owed.contains(session, source, sequence)
            && self.state.release_for(source, sequence, seen, delay_ms) != Released::NotInFlight
        {
            self.acknowledged(session, 1);
        }
    }

    /// Removes a consumer; what it holds has been dealt with.
    fn end_consumer(&mut self, consumer_key: u64) {
        let Some(consumer) = self.consumers.remove(&consumer_key) else {
            return;
        };
        if let Some(session) = self.sessions.get_mut(&consumer.session) {
            session.consumers.retain(|&other| other != consumer_key);
            if let Some(connection) = self.connections.get_mut(&session.connection) {
                connection.consumers.remove(&consumer.number);
            }
        }
        let mut last = false;
        if let Some(receivers) = self.receivers.get_mut(&consumer.source) {
            receivers.remove(consumer_key);
            last = receivers.consumers.is_empty();
            if last && receivers.browsers.is_empty() {
                self.receivers.remove(&consumer.source);
            }
        }
        if consumer.browsing.is_some() {
            return;
        }
        self.state.detach(consumer.source, consumer.selector.is_some());
        let ends = consumer.owns_source
            || (last
                && self
                    .state
                    .catalogue()
                    .subscription(consumer.source)
                    .is_some_and(|found| !found.durable));
        if ends {
            // What such a subscription holds is nobody's; its end is no error of anybody's.
            let _ = self.state.unsubscribe(consumer.source, "consumer");
        } else {
            self.mark_dirty(consumer.source);
        }
    }

    pub(super) fn close_session(&mut self, key: u64, seen: &[SeenSet]) -> Handled {
        self.end_session(key, Some(&Seen::of(seen)));
        Ok(Outcome::AnswerCommitted(Answered::Done(proto::Done {})))
    }

    /// Ends a session. `seen`: what the application saw, after a clean end; `None`: the client vanished.
    pub(super) fn end_session(&mut self, key: u64, seen: Option<&Seen>) {
        if seen.is_some() {
            self.refuse_waiting(key);
        }
        self.roll_back_all(key);
        self.give_all_back(key, seen);
        let Some(session) = self.sessions.get(&key) else { return };
        let (consumers, producers) = (session.consumers.clone(), session.producers.clone());
        if let Some(ticket) = session.ticket {
            self.tickets.remove(&ticket);
        }
        for consumer in consumers {
            self.end_consumer(consumer);
        }
        for producer in producers {
            self.end_producer(producer);
        }
        if let Some(session) = self.sessions.remove(&key)
            && let Some(connection) = self.connections.get_mut(&session.connection)
        {
            connection.sessions.remove(&session.number);
        }
    }

    /// Gives everything back that a session holds; its consumers stay open.
    pub(super) fn give_all_back(&mut self, key: u64, seen: Option<&Seen>) {
        let Some(session) = self.sessions.get(&key) else { return };
        let (consumers, sources) = (session.consumers.clone(), session.sources.clone());
        let mut unsent: FxHashSet<(SourceId, u64)> = FxHashSet::default();
        for consumer_key in consumers {
            let Some(consumer) = self.consumers.get(&consumer_key) else {
                continue;
            };
            if consumer.browsing.is_some() {
                // It only looks, and goes on: what waits for it is nobody's, and it would not come to that again.
                continue;
            }
            let source = consumer.source;
            let waiting = self.take_back(consumer_key);
            unsent.extend(waiting.into_iter().map(|sequence| (source, sequence)));
        }
        for source in sources {
            for sequence in self
                .state
                .in_flight(source, |holder| super::session::session_of(holder) == key)
            {
                let counts = match seen {
                    _ if unsent.contains(&(source, sequence)) => false,
                    None => true,
                    Some(seen) => seen.contains(source, sequence),
                };
                self.give_back(key, source, sequence, counts);
            }
            self.mark_dirty(source);
        }
    }

    pub(super) fn recover(&mut self, key: u64, seen: &[SeenSet]) -> Handled {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.transactions.forget_received(|_, _| true);
        }
        self.give_all_back(key, Some(&Seen::of(seen)));
        Ok(Outcome::Done)
    }

    pub(super) fn unsubscribe(&mut self, key: u64, frame: &proto::Unsubscribe) -> Handled {
        let Some(stream) = self.sessions.get(&key).map(|session| session.stream) else {
            return Ok(Outcome::Done);
        };
        self.unsubscribe_for(stream, &frame.name)
    }

    pub(super) fn unsubscribe_for(&mut self, stream: u64, name: &str) -> Handled {
        let connection = self.streams.get(&stream).and_then(|stream| stream.connection);
        let Some(connection) = connection.and_then(|key| self.connections.get(&key)) else {
            return Ok(Outcome::Done);
        };
        let identity = &connection.identity;
        let client_id = if identity.client_id_chosen {
            identity.client_id.as_str()
        } else {
            ""
        };
        let Some(found) = self.state.subscription(client_id, name).filter(|found| found.durable) else {
            let message = format!("There is no durable subscription {name} of this client id.");
            return Err(refuse(ErrorCode::NoSuchSubscription, name_excerpt(name), message));
        };
        let (source, is_static) = (found.id, found.is_static);
        if is_static {
            let message = "The subscription was made by an administrator; it can only be deleted by one.";
            return Err(refuse(ErrorCode::NotAllowed, name_excerpt(name), message));
        }
        if self
            .receivers
            .get(&source)
            .is_some_and(|receivers| !receivers.consumers.is_empty())
        {
            let message = format!("The subscription {name} has an active consumer.");
            return Err(refuse(ErrorCode::InUse, name_excerpt(name), message));
        }
        self.close_consumers_of(
            source,
            &refuse(
                ErrorCode::NoSuchSubscription,
                name_excerpt(name),
                "The subscription ended.",
            ),
            false,
        );
        self.state
            .unsubscribe(source, "client")
            .map_err(|error| of_state(&error))?;
        Ok(Outcome::AnswerCommitted(Answered::Done(proto::Done {})))
    }

    /// Closes the consumers of every subscription to exactly this topic or pattern, and tells their clients `reason`: that
    /// the topic lives somewhere else now, for example. A subscription that still holds messages keeps its consumers.
    pub fn close_subscribers(&mut self, topic: &str, reason: &Refused) {
        let subscriptions = self.state.catalogue().subscriptions();
        let empty: Vec<SourceId> = subscriptions
            .filter(|found| found.pattern.as_str() == topic)
            .map(|found| found.id)
            .filter(|id| {
                let held = self.state.source(*id).map(|found| &found.statistics);
                held.is_none_or(|held| held.messages + held.pending_messages == 0)
            })
            .collect();
        for source in empty {
            self.close_consumers_of(source, reason, false);
        }
    }

    /// Closes every consumer and browser of a source, which is about to go or is not served here any more, and tells
    /// their clients. `seen`: what they were sent counts as seen.
    pub fn close_consumers_of(&mut self, source: SourceId, reason: &Refused, seen: bool) {
        let Some(receivers) = self.receivers.get(&source) else {
            return;
        };
        let keys: Vec<u64> = receivers.consumers.iter().chain(&receivers.browsers).copied().collect();
        for key in keys {
            let Some(consumer) = self.consumers.get(&key) else {
                continue;
            };
            let (number, session_key, browses) = (consumer.number, consumer.session, consumer.browsing.is_some());
            self.take_back(key);
            if !browses {
                let held = self.state.in_flight(source, |holder| holder == key);
                for sequence in &held {
                    self.give_back(session_key, source, *sequence, seen);
                }
                if let Some(session) = self.sessions.get_mut(&session_key)
                    && session.mode == AcknowledgeMode::Transacted
                {
                    session.withdrawn.add(source, held);
                }
            }
            self.end_consumer(key);
            let closed = proto::ConsumerClosed {
                consumer: number,
                reason: Some((**reason).clone()),
            };
            if let Some(session) = self.sessions.get(&session_key) {
                let (stream, number) = (session.stream, session.number);
                self.send(stream, number, server_frame::Frame::ConsumerClosed(closed));
            }
        }
    }
}
