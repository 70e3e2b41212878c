//! A simulated client: connects, opens what it is made of, answers to what it hears, and connects again when it is cut off.

use super::answers::{consumer_answered, prepare_answered, producer_opened, producer_refused};
use super::consumer::Consumer;
use super::env::{Env, Prepared};
use super::judging::{check_code, look};
use super::link::{Down, Link, words};
use super::places::Places;
use super::producer::Producer;
use super::scene::{ClientPlan, ConsumerPlan};
use super::session::{Asked, Sending, Session};
use crate::proto::reply::Result as Answered;
use crate::proto::{self, ErrorCode, client_frame, server_frame};
use crate::sim::facts::{Place, PlaceId, Predicate, Sort};
use crate::sim::history::{DeliveryId, Event, Handed};
use prost::Message as _;
use std::collections::{BTreeMap, VecDeque};

/// The place of a consumer that takes from none.
const NOWHERE: PlaceId = PlaceId(u32::MAX);

/// See the module's documentation.
pub struct Client {
    /// Its number for the checker.
    pub id: u32,
    /// What it is made of.
    pub plan: ClientPlan,
    /// The wire, while there is one.
    pub link: Option<Link>,
    /// Welcome was heard.
    pub up: bool,
    /// Its sessions.
    pub sessions: Vec<Session>,
    asked: BTreeMap<u32, (usize, Asked)>,
    last_request: u32,
    last_session: u32,
    last_consumer: u32,
    outbox: Vec<proto::ClientFrame>,
    /// Where its own durable subscriptions were when they were last opened.
    durables: BTreeMap<String, PlaceId>,
    /// How often it changed what it wants of them, and the event at which it last did.
    selections: i64,
    selected_at: usize,
    /// Opens nothing and sends nothing of its own any more.
    pub quiet: bool,
}

impl Client {
    /// A client that has never been connected.
    pub fn new(id: u32, plan: ClientPlan, producers: &mut u32) -> Self {
        let mut number = 0;
        let sessions = plan
            .sessions
            .iter()
            .map(|session| {
                let made = session.producers.iter().map(|plan| {
                    number += 1;
                    *producers += 1;
                    Producer::new(*producers, number, plan.clone())
                });
                let made = made.collect();
                Session::new(session.clone(), id, 0, made)
            })
            .collect();
        Self {
            id,
            plan,
            link: None,
            up: false,
            sessions,
            asked: BTreeMap::new(),
            last_request: 0,
            last_session: 0,
            last_consumer: 0,
            outbox: Vec::new(),
            durables: BTreeMap::new(),
            selections: 0,
            selected_at: 0,
            quiet: false,
        }
    }

    /// Greets on a new stream.
    pub fn connect(&mut self, stream: u64) {
        self.link = Some(Link::new(stream));
        let hello = proto::Hello {
            protocol_version: 1,
            client_id: self.plan.client_id.clone(),
            ..proto::Hello::default()
        };
        self.push(0, 0, client_frame::Frame::Hello(hello));
        for index in 0..self.sessions.len() {
            self.last_session += 1;
            self.sessions[index].number = self.last_session;
            let frames = self.sessions[index].open_frames();
            self.send(index, frames);
        }
    }

    /// The stream is gone. What was on its way to the client never arrives.
    pub fn disconnected(&mut self, env: &mut Env) {
        // What had been given back, as far as the broker can tell, before it arrived here counts as not seen.
        for down in self.link.take().into_iter().flat_map(|link| link.down) {
            let numbers = down.batch.frames.iter().filter_map(|frame| match &frame.frame {
                Some(server_frame::Frame::Deliver(deliver)) => Some((deliver.consumer, deliver.deliveries.len())),
                _ => None,
            });
            let mut deliveries = down.deliveries.into_iter();
            for (number, count) in numbers {
                for delivery in deliveries.by_ref().take(count).flatten() {
                    if !self.holds(number) {
                        env.note(Event::Returned(delivery));
                    }
                }
            }
        }
        self.up = false;
        for (_, asked) in std::mem::take(&mut self.asked).into_values() {
            if let Asked::Prepare(tx) = asked {
                // Whether it is prepared cannot be known here.
                env.prepared.push(Prepared {
                    tx,
                    heard: false,
                    decision: None,
                });
            }
        }
        self.outbox.clear();
        for session in &mut self.sessions {
            session.disconnected(env);
        }
    }

    /// Whether a delivery to this consumer would be held, if it arrived now.
    fn holds(&self, number: u32) -> bool {
        self.sessions.iter().any(|session| {
            let consumer = session.consumers.iter().find(|consumer| consumer.number == number);
            session.open && !session.discards() && consumer.is_some_and(|consumer| !consumer.closing)
        })
    }

    fn push(&mut self, session: u32, request: u32, frame: client_frame::Frame) {
        self.outbox.push(proto::ClientFrame {
            session,
            request,
            frame: Some(frame),
        });
    }

    /// Puts frames of a session into the outbox.
    pub fn send(&mut self, index: usize, frames: Vec<Sending>) {
        let number = self.sessions[index].number;
        for (frame, asked) in frames {
            let request = if asked.is_some() { self.last_request + 1 } else { 0 };
            if let Some(asked) = asked {
                self.last_request = request;
                self.asked.insert(request, (index, asked));
            }
            self.push(number, request, frame);
        }
    }

    /// Puts what is in the outbox on the wire, in batches.
    pub fn flush(&mut self, env: &mut Env) {
        let Some(link) = &mut self.link else { return };
        while !self.outbox.is_empty() {
            let count = (env.between(1, 8) as usize).min(self.outbox.len());
            let frames = self.outbox.drain(..count).collect();
            let batch = proto::ClientBatch { frames };
            env.tell(|| format!("client {} says on stream {}: {}", self.id, link.stream, words(&batch)));
            link.up.push_back(batch.encode_to_vec());
        }
    }

    /// Does something by itself.
    pub fn act(&mut self, env: &mut Env) {
        if self.link.is_none() || !self.up || self.quiet {
            return;
        }
        let index = env.random.below(self.sessions.len() as u64) as usize;
        let frames = self.sessions[index].act(env);
        self.send(index, frames);
        if env.random.one_in(6) {
            self.open_consumers(env, index);
        }
        if env.random.one_in(6) {
            self.reopen_producers();
        }
        if !self.durables.is_empty() && env.random.one_in(30) {
            self.unsubscribe(env, index);
        }
        if env.random.one_in(25) {
            self.select_anew(env);
        }
        if env.random.one_in(40) {
            self.push(0, 0, client_frame::Frame::Heartbeat(proto::Heartbeat {}));
        }
        self.flush(env);
    }

    /// Ends a durable subscription of its own, if it can.
    fn unsubscribe(&mut self, env: &mut Env, index: usize) {
        let names: Vec<String> = self.durables.keys().cloned().collect();
        let (Some(name), true) = (env.pick(&names), self.sessions[index].open) else {
            return;
        };
        if let Some(place) = self.durables.remove(&name) {
            env.note(Event::PlaceDown(place));
        }
        let frame = client_frame::Frame::Unsubscribe(proto::Unsubscribe { name });
        self.send(index, vec![(frame, Some(Asked::Unsubscribe))]);
    }

    /// Wants something of its own durable subscription that it never wanted before: the next opening makes a new one.
    fn select_anew(&mut self, env: &mut Env) {
        let own = |plan: &ConsumerPlan| matches!(plan.subscription, Some((_, true, false)));
        let is_open = |session: &Session| session.consumers.iter().any(|open| own(&open.plan));
        if self.sessions.iter().any(is_open) {
            return;
        }
        self.selections += 1;
        self.selected_at = env.history.events.len();
        let plans = self.plan.sessions.iter_mut();
        let plans = plans.chain(self.sessions.iter_mut().map(|session| &mut session.plan));
        let consumers = plans.flat_map(|session| session.consumers.iter_mut());
        for plan in consumers.filter(|plan| own(plan)) {
            plan.predicate = Predicate::Heavier(5 * self.selections);
        }
        for place in std::mem::take(&mut self.durables).into_values() {
            env.note(Event::PlaceDown(place));
        }
    }

    /// Opens the consumers of a session that are not open.
    pub fn open_consumers(&mut self, env: &mut Env, index: usize) {
        let plans = self.sessions[index].plan.consumers.clone();
        for (at, plan) in plans.iter().enumerate() {
            let same = plans[..at].iter().filter(|other| same_plan(other, plan)).count();
            let open = self.sessions[index]
                .consumers
                .iter()
                .filter(|open| same_plan(&open.plan, plan))
                .count();
            if self.sessions[index].open && open <= same {
                self.open_consumer(env, index, plan);
            }
        }
    }

    fn open_consumer(&mut self, env: &mut Env, index: usize, plan: &ConsumerPlan) {
        self.last_consumer += 1;
        // A queue is known by its name. It may take from there although the answer is never heard.
        let is_queue = plan.at.sort == Sort::Queue && !plan.browse;
        let known = |place: &Place| is_queue && place.sort == Sort::Queue && place.name == plan.at.name;
        let place = env.history.facts.places.iter().position(known).unwrap_or(0);
        let id = env.consumer(PlaceId(place as u32), plan.predicate);
        env.note(Event::ConsumerAsked(id));
        let consumer = Consumer {
            number: self.last_consumer,
            id,
            plan: plan.clone(),
            open: false,
            source: 0,
            place: None,
            looks_at: None,
            limit: env.between(0, 20),
            received: 0,
            closing: false,
        };
        let frame = consumer.open_frame();
        let number = consumer.number;
        self.sessions[index].consumers.push(consumer);
        self.send(index, vec![(frame, Some(Asked::Consumer(number)))]);
    }

    /// Sees a batch as the engine puts it out: opens places, notes deliveries. Returns them in order.
    pub fn observe(
        &mut self,
        env: &mut Env,
        places: &mut Places,
        batch: &proto::ServerBatch,
    ) -> VecDeque<Option<DeliveryId>> {
        let mut deliveries = VecDeque::new();
        for frame in &batch.frames {
            match &frame.frame {
                Some(server_frame::Frame::Reply(reply)) => {
                    if let Some(Answered::ConsumerOpened(opened)) = &reply.result {
                        self.observe_opened(env, places, opened);
                    }
                }
                Some(server_frame::Frame::Deliver(deliver)) => {
                    for delivery in &deliver.deliveries {
                        deliveries.push_back(self.observe_delivery(env, deliver.consumer, delivery));
                    }
                }
                _ => {}
            }
        }
        deliveries
    }

    fn consumer_mut(&mut self, number: u32) -> Option<&mut Consumer> {
        self.sessions
            .iter_mut()
            .flat_map(|session| session.consumers.iter_mut())
            .find(|consumer| consumer.number == number)
    }

    fn observe_opened(&mut self, env: &mut Env, places: &mut Places, opened: &proto::ConsumerOpened) {
        let (client, client_id, since) = (self.id, self.plan.client_id.clone(), self.selected_at);
        let Some(consumer) = self.consumer_mut(opened.consumer) else {
            return;
        };
        let place = places.resolve(env, client, &client_id, &consumer.plan, opened.source);
        consumer.source = opened.source;
        let facts = &mut env.history.facts.consumers[consumer.id.0 as usize];
        if consumer.plan.browse {
            // It takes nothing from anybody.
            (facts.place, consumer.looks_at) = (NOWHERE, Some(place));
            return;
        }
        facts.place = place;
        consumer.place = Some(place);
        if let Some((name, true, false)) = consumer.plan.subscription.clone() {
            env.history.facts.places[place.0 as usize].since.get_or_insert(since);
            self.durables.insert(name, place);
        }
    }

    fn observe_delivery(&mut self, env: &mut Env, number: u32, delivery: &proto::Delivery) -> Option<DeliveryId> {
        let recognised = env.recognise(&delivery.message);
        if let Some(place) = self.consumer_mut(number).and_then(|consumer| consumer.looks_at) {
            look(env, place, recognised);
            return None;
        }
        let found = self.consumer_mut(number).map(|consumer| (consumer.id, consumer.place));
        let (Some((key, intact)), Some((consumer, Some(place)))) = (recognised, found) else {
            // A consumer that the client has closed and the broker not yet is known; any other is not.
            env.complaints
                .push(format!("a delivery to consumer {number} makes no sense"));
            return None;
        };
        let handed = Handed {
            place,
            key,
            sequence: delivery.sequence,
            consumer,
            redelivered: delivery.redelivered,
            count: delivery.delivery_count.max(1),
            timestamp_ms: delivery.timestamp_ms,
            intact,
        };
        env.tell(|| format!("{handed:?}"));
        let now = env.now();
        Some(env.history.push_handed(now.monotonic_ms, now.wall_ms, handed))
    }

    /// Reads the next batch.
    pub fn receive(&mut self, env: &mut Env) {
        let Some(Down { batch, mut deliveries }) = self.link.as_mut().and_then(|link| link.down.pop_front()) else {
            return;
        };
        for frame in batch.frames {
            if let Some(body) = frame.frame {
                self.receive_frame(env, frame.session, body, &mut deliveries);
            }
        }
        self.flush(env);
    }

    fn receive_frame(
        &mut self,
        env: &mut Env,
        session: u32,
        frame: server_frame::Frame,
        deliveries: &mut VecDeque<Option<DeliveryId>>,
    ) {
        use server_frame::Frame;
        match frame {
            Frame::Welcome(welcome) => {
                self.up = true;
                self.sessions
                    .iter_mut()
                    .for_each(|session| session.learn_epoch(welcome.epoch));
            }
            Frame::Reply(reply) => self.reply(env, reply),
            Frame::Confirm(confirm) => {
                for range in &confirm.confirmed {
                    if let Some(producer) = self.producer_mut(range.producer) {
                        producer.confirmed(env, range.first, range.last, range.durability >= 1);
                    }
                }
            }
            Frame::Rejected(rejected) => {
                check_code(env, rejected.error.as_ref());
                let code = rejected.error.as_ref().map(proto::Error::code);
                if let Some(producer) = self.producer_mut(rejected.producer) {
                    if code == Some(ErrorCode::UnknownProducer) {
                        producer.doubted(env, rejected.first, rejected.last);
                    } else {
                        producer.rejected(env, rejected.first, rejected.last);
                    }
                }
            }
            Frame::ProducerCredit(credit) => {
                if let Some(producer) = self.producer_mut(credit.producer) {
                    producer.credit(&credit);
                }
            }
            Frame::Deliver(deliver) => {
                for delivery in &deliver.deliveries {
                    if let Some(id) = deliveries.pop_front().flatten() {
                        self.delivered(env, deliver.consumer, delivery.sequence, id);
                    }
                }
            }
            Frame::ProducerClosed(closed) => {
                check_code(env, closed.reason.as_ref());
                if let Some(producer) = self.producer_mut(closed.producer) {
                    producer.closed();
                }
            }
            Frame::Error(error) => check_code(env, Some(&error)),
            Frame::SessionClosed(closed) => check_code(env, closed.reason.as_ref()),
            Frame::ConsumerClosed(closed) => check_code(env, closed.reason.as_ref()),
            // Of this one its client takes no notice: what it goes on with is refused.
            Frame::TransactionEnded(ended) => check_code(env, ended.reason.as_ref()),
            Frame::GoAway(_) | Frame::Heartbeat(_) | Frame::Drained(_) => {}
        }
        let _ = session;
    }

    fn producer_mut(&mut self, number: u32) -> Option<&mut Producer> {
        let mut producers = self
            .sessions
            .iter_mut()
            .flat_map(|session| session.producers.iter_mut());
        producers.find(|producer| producer.number == number)
    }

    fn delivered(&mut self, env: &mut Env, number: u32, sequence: u64, id: DeliveryId) {
        env.note(Event::Received(id));
        let holds = self.holds(number);
        for session in &mut self.sessions {
            let forgets = session.plan.mode == proto::AcknowledgeMode::None;
            let Some(consumer) = session.consumers.iter_mut().find(|consumer| consumer.number == number) else {
                continue;
            };
            consumer.received += 1;
            let source = consumer.source;
            if forgets {
                // The broker forgot it when it was sent.
                env.note(Event::Acked(id, None));
            } else if !holds {
                env.note(Event::Returned(id));
            } else {
                session.held.add(source, sequence, id, number);
            }
            return;
        }
        env.note(Event::Returned(id));
    }

    fn reply(&mut self, env: &mut Env, reply: proto::Reply) {
        let Some((index, asked)) = self.asked.remove(&reply.request) else {
            env.complaints
                .push(format!("an answer to request {} that nobody waits for", reply.request));
            return;
        };
        env.tell(|| format!("client {} is answered, {asked:?}: {:?}", self.id, reply.result));
        let error = match &reply.result {
            Some(Answered::Error(error)) => Some(error.clone()),
            _ => None,
        };
        check_code(env, error.as_ref());
        let session = &mut self.sessions[index];
        match (asked, reply.result) {
            (Asked::Session, _) => {
                session.open = error.is_none();
                self.open_consumers(env, index);
            }
            (Asked::Producer(at), Some(Answered::ProducerOpened(opened))) => {
                let frames = producer_opened(env, session, at, &opened);
                self.send(index, frames);
            }
            (Asked::Producer(at), _) => {
                let frames = producer_refused(session, at, error.map(|error| error.code()));
                self.send(index, frames);
            }
            (Asked::CloseProducer(at), _) => {
                let open = (session.producers[at].open_frame(), Some(Asked::Producer(at)));
                self.send(index, vec![open]);
            }
            (Asked::Consumer(number), _) => consumer_answered(env, session, number, error.is_some()),
            (Asked::Ack(deliveries), Some(Answered::Done(_))) => {
                deliveries
                    .into_iter()
                    .for_each(|delivery| env.note(Event::AckConfirmed(delivery)));
            }
            (Asked::Commit(tx, _), Some(Answered::Transacted(done))) => {
                env.note(if done.rolled_back {
                    Event::RolledBack(tx)
                } else {
                    Event::Committed(tx)
                });
            }
            (Asked::Commit(tx, number), _) => match error.map(|error| error.code()) {
                Some(ErrorCode::TransactionRolledBack) => env.note(Event::RolledBack(tx)),
                Some(ErrorCode::StoreFull) => {
                    let frames = session.commit_refused(env, tx, number);
                    self.send(index, frames);
                }
                _ => {}
            },
            (Asked::Prepare(tx), result) => prepare_answered(env, tx, result.as_ref()),
            (Asked::Unsubscribe, _) => {}
            (Asked::Barrier, _) => session.barrier_answered(),
            (Asked::CloseConsumer(number), _) => {
                let closed = session.consumers.iter().position(|consumer| consumer.number == number);
                if let Some(closed) = closed.map(|at| session.consumers.remove(at)) {
                    env.note(Event::ConsumerGone(closed.id));
                }
            }
            (Asked::CloseSession, _) => {
                let gone = session.consumers.drain(..);
                gone.for_each(|consumer| env.note(Event::ConsumerGone(consumer.id)));
            }
            (Asked::Ack(_), _) => {}
        }
    }

    /// Opens producers again that are not open: their queue had to be made first, and there was no room for that. Not at once
    /// when that is heard, since room comes with time, which does not pass while anybody has something to say.
    pub fn reopen_producers(&mut self) {
        for index in 0..self.sessions.len() {
            let session = &self.sessions[index];
            let asks = |asked: usize| {
                let about = |(of, what): &(usize, Asked)| {
                    *of == index && matches!(what, Asked::Producer(at) | Asked::CloseProducer(at) if *at == asked)
                };
                self.asked.values().any(about)
            };
            let closed = |(at, producer): &(usize, &Producer)| session.open && !producer.is_open() && !asks(*at);
            let producers = session.producers.iter().enumerate().filter(closed);
            let frames = producers.map(|(at, producer)| (producer.open_frame(), Some(Asked::Producer(at))));
            let frames = frames.collect();
            self.send(index, frames);
        }
    }

    /// What it still waits for.
    #[must_use]
    pub fn waits_for(&self) -> Vec<String> {
        let mut waits: Vec<String> = self.asked.values().map(|(_, asked)| format!("{asked:?}")).collect();
        let producers = self.sessions.iter().flat_map(|session| &session.producers);
        waits.extend(
            producers
                .filter(|producer| producer.waits())
                .map(|producer| format!("producer {}", producer.logical)),
        );
        waits
    }
}

fn same_plan(one: &ConsumerPlan, other: &ConsumerPlan) -> bool {
    one.at == other.at
        && one.subscription == other.subscription
        && one.predicate == other.predicate
        && one.browse == other.browse
}
