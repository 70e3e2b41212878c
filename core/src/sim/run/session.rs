//! A simulated session: producers, consumers, what it holds, and the transaction it is in.
//!
//! It behaves as an SDK has to: between a Recover or a rollback and its answer, deliveries that arrive are thrown away,
//! because they were on their way when everything was given back.

use super::consumer::{Consumer, Held, ack_sets, seen_sets};
use super::env::Env;
use super::producer::Producer;
use super::scene::SessionPlan;
use crate::proto::transact::Verb;
use crate::proto::{self, AcknowledgeMode, client_frame};
use crate::sim::facts::TxId;
use crate::sim::history::{DeliveryId, Event};

/// What a frame's answer will be about.
#[derive(Clone, Debug)]
pub enum Asked {
    /// The session was opened.
    Session,
    /// A producer was opened, by its index.
    Producer(usize),
    /// A producer was closed, by its index.
    CloseProducer(usize),
    /// A consumer was opened, by its number.
    Consumer(u32),
    /// These were acknowledged, outside of transactions.
    Ack(Vec<DeliveryId>),
    /// A commit, with the transaction's number in the session.
    Commit(TxId, u64),
    /// Everything was given back: by Recover, or by a rollback.
    Barrier,
    /// A transaction was prepared.
    Prepare(TxId),
    /// A durable subscription was ended.
    Unsubscribe,
    /// A consumer was closed, by its number.
    CloseConsumer(u32),
    /// The session was closed.
    CloseSession,
}

/// A frame to be sent, and what its answer will be about.
pub type Sending = (client_frame::Frame, Option<Asked>);

/// A transaction that is open.
#[derive(Clone, Copy)]
struct OpenTransaction {
    id: TxId,
    number: u64,
}

/// See the module's documentation.
pub struct Session {
    /// What it is made of.
    pub plan: SessionPlan,
    /// Its number in the connection.
    pub number: u32,
    /// Its client, for the checker.
    client: u32,
    /// The broker has answered.
    pub open: bool,
    /// Those who send.
    pub producers: Vec<Producer>,
    /// Those who take, as long as they are open.
    pub consumers: Vec<Consumer>,
    /// What it holds.
    pub held: Held,
    /// Barriers that are not answered.
    barriers: u32,
    transaction: Option<OpenTransaction>,
    /// Deliveries acknowledged in the transaction, with where they were.
    in_transaction: Vec<(u64, u64, DeliveryId)>,
    last_transaction: u64,
    epoch: u64,
}

impl Session {
    /// A session that is not open.
    #[must_use]
    pub fn new(plan: SessionPlan, client: u32, number: u32, producers: Vec<Producer>) -> Self {
        Self {
            plan,
            number,
            client,
            open: false,
            producers,
            consumers: Vec::new(),
            held: Held::default(),
            barriers: 0,
            transaction: None,
            in_transaction: Vec::new(),
            last_transaction: 0,
            epoch: 0,
        }
    }

    /// The connection is gone, and with it all that the session held. A transaction whose commit was not sent is over.
    pub fn disconnected(&mut self, env: &mut Env) {
        for consumer in self.consumers.drain(..) {
            env.consumer_down(consumer.id, consumer.place);
        }
        for producer in &mut self.producers {
            producer.disconnected(env);
        }
        self.held = Held::default();
        self.open = false;
        self.barriers = 0;
        self.transaction = None;
        self.in_transaction.clear();
    }

    /// The frames that open it, with its producers; consumers follow.
    #[must_use]
    pub fn open_frames(&self) -> Vec<Sending> {
        let open = proto::OpenSession {
            acknowledge_mode: self.plan.mode.into(),
            stopped: false,
        };
        let mut frames = vec![(client_frame::Frame::OpenSession(open), Some(Asked::Session))];
        for (index, producer) in self.producers.iter().enumerate() {
            frames.push((producer.open_frame(), Some(Asked::Producer(index))));
        }
        frames
    }

    /// Whether deliveries that arrive now are of no use.
    #[must_use]
    pub fn discards(&self) -> bool {
        self.barriers > 0
    }

    /// A barrier was answered.
    pub fn barrier_answered(&mut self) {
        self.barriers = self.barriers.saturating_sub(1);
    }

    /// Learns the epoch of its deliveries.
    pub fn learn_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    fn is_transacted(&self) -> bool {
        self.plan.mode == AcknowledgeMode::Transacted
    }

    fn transaction(&mut self, env: &mut Env) -> OpenTransaction {
        if let Some(open) = self.transaction {
            return open;
        }
        self.last_transaction += 1;
        let open = OpenTransaction {
            id: env.transaction(),
            number: self.last_transaction,
        };
        self.transaction = Some(open);
        open
    }

    /// Does one of the things a session does by itself.
    pub fn act(&mut self, env: &mut Env) -> Vec<Sending> {
        if !self.open {
            return Vec::new();
        }
        if self.plan.relays && !env.random.one_in(8) {
            return self.relay(env);
        }
        match env.random.below(24) {
            0..=8 => self.send(env),
            9..=13 => self.acknowledge(env, 2),
            14..=16 => self.grant(env),
            17 => self.give_back(env),
            18 => self.recover(env),
            19 | 21 if self.is_transacted() => self.commit(env),
            20 if self.is_transacted() => self.prepare(env),
            22 if self.is_transacted() => self.roll_back(env),
            23 => self.close_consumer(env),
            _ => Vec::new(),
        }
    }

    /// Asks for more, takes all that came, sends something on, and commits both at once.
    fn relay(&mut self, env: &mut Env) -> Vec<Sending> {
        let mut frames = self.grant(env);
        let taken = self.acknowledge(env, 1);
        // With nothing sent in it, nobody could tell whether the commit took effect.
        let sends = !taken.is_empty() || env.random.one_in(2);
        frames.extend(taken);
        if sends {
            frames.extend(self.send(env));
        }
        if env.random.one_in(2) {
            frames.extend(self.commit(env));
        }
        frames
    }

    /// Sends some messages.
    pub fn send(&mut self, env: &mut Env) -> Vec<Sending> {
        let open: Vec<usize> = (0..self.producers.len())
            .filter(|index| self.producers[*index].is_open())
            .collect();
        let Some(index) = env.pick(&open) else {
            return Vec::new();
        };
        let tx = if self.is_transacted() {
            Some(self.transaction(env))
        } else {
            None
        };
        let client = self.client;
        let frame = self.producers[index].send(env, client, tx.map(|open| (open.id, open.number)));
        frame.into_iter().map(|frame| (frame, None)).collect()
    }

    /// Acknowledges one in `share` of what it holds, or everything.
    pub fn acknowledge(&mut self, env: &mut Env, share: u64) -> Vec<Sending> {
        let all = env.random.one_in(2);
        let random = &mut env.random;
        let taken = self.held.take(|_| all || random.one_in(share));
        if taken.is_empty() {
            return Vec::new();
        }
        let tx = if self.is_transacted() {
            Some(self.transaction(env))
        } else {
            None
        };
        for (_, _, delivery) in &taken {
            env.note(Event::Acked(*delivery, tx.map(|open| open.id)));
        }
        let epoch = if env.random.one_in(2) { self.epoch } else { 0 };
        let frame = client_frame::Frame::Acknowledge(proto::Ack {
            sets: ack_sets(&taken, epoch),
            transaction: tx.map_or(0, |open| open.number),
        });
        if tx.is_some() {
            self.in_transaction.extend(taken);
            return vec![(frame, None)];
        }
        let deliveries = taken.into_iter().map(|(_, _, delivery)| delivery).collect();
        vec![(frame, Some(Asked::Ack(deliveries)))]
    }

    /// Grants a consumer more credit.
    fn grant(&mut self, env: &mut Env) -> Vec<Sending> {
        if self.consumers.is_empty() {
            return Vec::new();
        }
        let index = env.random.below(self.consumers.len() as u64) as usize;
        vec![(self.consumers[index].grant(env), None)]
    }

    /// Takes and acknowledges without a bound.
    pub fn sweep(&mut self, env: &mut Env) -> Vec<Sending> {
        if !self.open {
            return Vec::new();
        }
        let mut frames = Vec::new();
        for consumer in self.consumers.iter_mut().filter(|consumer| consumer.open) {
            if consumer.limit < consumer.received + 50 {
                consumer.limit = consumer.received + 200;
                frames.push((client_frame::Frame::Credit(consumer.credit()), None));
            }
        }
        frames.extend(self.acknowledge(env, 1));
        frames
    }

    /// Gives some of what it holds back: seen, or not.
    fn give_back(&mut self, env: &mut Env) -> Vec<Sending> {
        let random = &mut env.random;
        let taken = self.held.take(|_| random.one_in(3));
        if taken.is_empty() {
            return Vec::new();
        }
        let seen = env.random.one_in(2);
        if !seen {
            note_returned(env, &taken);
        }
        vec![(
            client_frame::Frame::Release(proto::Release {
                sets: ack_sets(&taken, 0),
                seen,
                delay_ms: 0,
            }),
            None,
        )]
    }

    /// Divides what it holds into seen and unseen; the unseen counts as returned.
    fn part(&mut self, env: &mut Env, mut wanted: impl FnMut(u32) -> bool) -> Vec<(u64, u64, DeliveryId)> {
        let random = &mut env.random;
        let seen = self.held.take(|consumer| wanted(consumer) && random.one_in(2));
        let unseen = self.held.take(&mut wanted);
        note_returned(env, &unseen);
        seen
    }

    /// Everything comes again.
    fn recover(&mut self, env: &mut Env) -> Vec<Sending> {
        if self.is_transacted() {
            return Vec::new();
        }
        let seen = self.part(env, |_| true);
        self.barriers += 1;
        vec![(
            client_frame::Frame::Recover(proto::Recover { seen: seen_sets(&seen) }),
            Some(Asked::Barrier),
        )]
    }

    /// Commits what was begun.
    pub fn commit(&mut self, env: &mut Env) -> Vec<Sending> {
        let Some(open) = self.transaction.take() else {
            return Vec::new();
        };
        self.in_transaction.clear();
        env.commit_sent(open.id);
        vec![(
            transact(open.number, Verb::Commit, &[]),
            Some(Asked::Commit(open.id, open.number)),
        )]
    }

    /// Prepares what was begun: from then on it is the coordinator's.
    fn prepare(&mut self, env: &mut Env) -> Vec<Sending> {
        let Some(open) = self.transaction.take() else {
            return Vec::new();
        };
        self.in_transaction.clear();
        env.history.facts.transactions[open.id.0 as usize].prepared = true;
        let frame = client_frame::Frame::Transact(proto::Transact {
            transaction: open.number,
            verb: Verb::Prepare.into(),
            xid: Some(proto::Xid {
                format: 1,
                global: open.id.0.to_le_bytes().to_vec(),
                branch: Vec::new(),
            }),
            seen: Vec::new(),
        });
        vec![(frame, Some(Asked::Prepare(open.id)))]
    }

    /// Rolls back what was begun. What it holds comes again.
    pub fn roll_back(&mut self, env: &mut Env) -> Vec<Sending> {
        let Some(open) = self.transaction.take() else {
            return Vec::new();
        };
        self.in_transaction.clear();
        self.undo(env, open)
    }

    /// A commit found no room, so the transaction is open still: it is rolled back, and nothing of it may have taken effect.
    pub fn commit_refused(&mut self, env: &mut Env, id: TxId, number: u64) -> Vec<Sending> {
        // Behind another one that is open already, what comes again could not be told apart.
        if self.transaction.is_some() || !self.open {
            return Vec::new();
        }
        self.undo(env, OpenTransaction { id, number })
    }

    fn undo(&mut self, env: &mut Env, open: OpenTransaction) -> Vec<Sending> {
        env.note(Event::RolledBack(open.id));
        let seen = self.part(env, |_| true);
        self.barriers += 1;
        vec![(transact(open.number, Verb::Rollback, &seen), Some(Asked::Barrier))]
    }

    /// Closes a consumer; what the application saw of its messages stays here.
    fn close_consumer(&mut self, env: &mut Env) -> Vec<Sending> {
        let open: Vec<usize> = (0..self.consumers.len())
            .filter(|index| self.consumers[*index].open && !self.consumers[*index].closing)
            .collect();
        let Some(index) = env.pick(&open) else {
            return Vec::new();
        };
        let number = self.consumers[index].number;
        self.consumers[index].closing = true;
        env.consumer_down(self.consumers[index].id, self.consumers[index].place);
        let source = self.consumers[index].source;
        let seen = self.part(env, |consumer| consumer == number);
        for (source, sequence, delivery) in &seen {
            self.held.add(*source, *sequence, *delivery, number);
        }
        // What it acknowledged in an open transaction has to stay with the session as well.
        let mut kept = seen;
        kept.extend(self.in_transaction.iter().filter(|(other, ..)| *other == source));
        kept.sort_unstable();
        let close = proto::CloseConsumer {
            consumer: number,
            seen: seen_sets(&kept),
        };
        vec![(
            client_frame::Frame::CloseConsumer(close),
            Some(Asked::CloseConsumer(number)),
        )]
    }

    /// Closes the session: what was seen counts, the rest does not.
    pub fn close(&mut self, env: &mut Env) -> Vec<Sending> {
        let seen = self.part(env, |_| true);
        for consumer in &self.consumers {
            env.consumer_down(consumer.id, consumer.place);
        }
        self.open = false;
        self.transaction = None;
        self.in_transaction.clear();
        let close = proto::CloseSession { seen: seen_sets(&seen) };
        vec![(client_frame::Frame::CloseSession(close), Some(Asked::CloseSession))]
    }
}

fn note_returned(env: &mut Env, taken: &[(u64, u64, DeliveryId)]) {
    for (_, _, delivery) in taken {
        env.note(Event::Returned(*delivery));
    }
}

fn transact(number: u64, verb: Verb, seen: &[(u64, u64, DeliveryId)]) -> client_frame::Frame {
    client_frame::Frame::Transact(proto::Transact {
        transaction: number,
        verb: verb.into(),
        xid: None,
        seen: seen_sets(seen),
    })
}
