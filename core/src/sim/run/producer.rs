//! A simulated producer: numbers its messages, keeps those that are not settled, and sends them again after a reconnect.

use super::env::Env;
use super::scene::{self, At, ProducerPlan};
use crate::proto::{self, client_frame};
use crate::sim::facts::{Key, Message, Mode, Sort, TxId};
use crate::sim::history::Event;
use std::collections::BTreeMap;

/// How a message stands with its producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// The broker could not tell whether it arrived.
    Doubted,
    Waiting,
    /// As `Durable`, and a restart may forget it.
    Accepted,
    Durable,
    Rejected,
    /// Never answered: RELIABLE.
    Silent,
}

/// A message that may have to be sent again.
struct Kept {
    key: Key,
    at: At,
    standing: Standing,
}

/// What is known of a producer that has a name, also when its program was started again.
#[derive(Default)]
struct Named {
    /// Under what the name was known when it was last opened.
    incarnation: u64,
    /// The highest number that was sent under it.
    highest: u64,
    /// The program goes on from where the broker says, and sends nothing of before again but what is not there.
    goes_on: bool,
    /// Where the broker cannot tell whether the name is new, it is.
    unknown_is_new: bool,
}

/// See the module's documentation.
pub struct Producer {
    /// Its number for the checker.
    pub logical: u32,
    /// Its number in the connection.
    pub number: u32,
    plan: ProducerPlan,
    incarnation: u64,
    token: Vec<u8>,
    named: Named,
    next: u64,
    kept: BTreeMap<u64, Kept>,
    open: bool,
    sequence_limit: u64,
    bytes_limit: u64,
    sent_bytes: u64,
}

/// What a record of a message has beside its filler, about.
const OVERHEAD_BYTES: u64 = 196;

/// How many bytes a message is filled with; where rooms are of interest, mostly as many as leave 0 to 300 of its segment.
fn filler(env: &mut Env) -> usize {
    let plain = env.pick(&[10, 40, 40, 300, 300, 5000]).unwrap_or(10);
    let Some(room) = env.room else { return plain };
    let left = room.saturating_sub(OVERHEAD_BYTES + env.random.below(300));
    // With many copies a record has a long head, and larger ones than half a segment there are not.
    if (10..5_000).contains(&left) && !env.random.one_in(4) {
        left as usize
    } else {
        plain
    }
}

impl Producer {
    /// A producer that has never been open.
    #[must_use]
    pub fn new(logical: u32, number: u32, plan: ProducerPlan) -> Self {
        Self {
            logical,
            number,
            plan,
            incarnation: 0,
            token: Vec::new(),
            named: Named::default(),
            next: 1,
            kept: BTreeMap::new(),
            open: false,
            sequence_limit: 0,
            bytes_limit: 0,
            sent_bytes: 0,
        }
    }

    /// The connection is gone, or the program is, which names its producer when it is started again.
    pub fn disconnected(&mut self, env: &mut Env) {
        if self.plan.name.is_some() && env.random.one_in(2) {
            (self.incarnation, self.named.goes_on) = (0, env.random.one_in(2));
            self.token.clear();
        }
        self.open = false;
        self.sent_bytes = 0;
    }

    /// Whether it can send.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether it has messages without an answer.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.kept.values().any(|kept| kept.standing == Standing::Waiting)
    }

    /// The frame that opens it, again under its old incarnation if it had one.
    #[must_use]
    pub fn open_frame(&self) -> client_frame::Frame {
        client_frame::Frame::OpenProducer(proto::OpenProducer {
            producer: self.number,
            destination: self.plan.at.as_ref().map(At::to_proto),
            incarnation: self.incarnation,
            first_unconfirmed: if self.is_new() { 0 } else { self.first_kept() },
            token: self.token.clone(),
            left_out: self.settled(),
            name: self.plan.name.clone().unwrap_or_default(),
            unknown_is_new: self.named.unknown_is_new,
            settled_below: 0,
            uploads: Vec::new(),
        })
    }

    /// Whether it does not say where it begins.
    fn is_new(&self) -> bool {
        self.incarnation == 0 && (self.plan.name.is_none() || self.named.goes_on)
    }

    /// Numbers behind the first kept one that are not sent again.
    fn settled(&self) -> Vec<proto::SequenceRange> {
        let mut ranges = Vec::new();
        let mut expected = self.first_kept();
        for sequence in self.kept.keys().copied().chain([self.next]) {
            if self.incarnation != 0 && sequence > expected {
                ranges.push(proto::SequenceRange {
                    first: expected,
                    last: sequence - 1,
                });
            }
            expected = sequence + 1;
        }
        ranges
    }

    fn first_kept(&self) -> u64 {
        self.kept.keys().next().copied().unwrap_or(self.next)
    }

    /// Takes the answer to its opening; what has to be sent again.
    pub fn opened(&mut self, env: &mut Env, opened: &proto::ProducerOpened) -> Vec<client_frame::Frame> {
        if self.plan.name.is_some() && !self.name_opened(env, opened) {
            let close = proto::CloseProducer { producer: self.number };
            return vec![client_frame::Frame::CloseProducer(close)];
        }
        self.incarnation = opened.incarnation;
        self.token.clone_from(&opened.token);
        self.open = true;
        let credit = opened.credit.unwrap_or_default();
        (self.sequence_limit, self.bytes_limit) = (credit.sequence_limit, credit.bytes_limit);
        let mut frames = Vec::new();
        let mut run: Vec<(u64, Key, At)> = Vec::new();
        for (&sequence, kept) in &mut self.kept {
            // What was refused is asked for again: its number stands between others.
            if kept.standing == Standing::Rejected {
                kept.standing = Standing::Waiting;
            }
            if run
                .last()
                .is_some_and(|(before, _, at)| *at != kept.at || before + 1 != sequence || env.random.one_in(3))
            {
                frames.push(std::mem::take(&mut run));
            }
            run.push((sequence, kept.key, kept.at.clone()));
        }
        frames.push(run);
        frames
            .into_iter()
            .filter(|run| !run.is_empty())
            .map(|run| self.publish(env, &run, 0))
            .collect()
    }

    /// Takes the answer to the opening of a name. Whether it can go on from there: numbers follow on.
    fn name_opened(&mut self, env: &mut Env, opened: &proto::ProducerOpened) -> bool {
        let last = opened.last_sequence;
        let named = &mut self.named;
        let is_same = named.incarnation == opened.incarnation;
        let is_lasting = self
            .plan
            .at
            .as_ref()
            .is_some_and(|at| !scene::DYNAMIC.contains(&at.name.as_str()));
        if !is_same {
            let is_forgotten = named.unknown_is_new || named.incarnation == 0 || !is_lasting;
            if !is_forgotten {
                env.complaints
                    .push(format!("a name of producer {} stands for another one", self.logical));
            }
            (named.incarnation, named.highest) = (opened.incarnation, 0);
        } else if last > named.highest {
            env.complaints.push(format!(
                "number {last} of producer {} is known, and was not sent",
                self.logical
            ));
        }
        let durable = |kept: &Kept| kept.standing == Standing::Durable;
        if is_same
            && self
                .kept
                .iter()
                .any(|(sequence, kept)| *sequence > last && durable(kept))
        {
            env.complaints.push(format!(
                "producer {} is told that {last} is the last, and had more confirmed",
                self.logical
            ));
        }
        // It says so of one opening: later it may send again what it could not tell of.
        self.named.unknown_is_new = false;
        if !self.is_new() {
            return true;
        }
        // Of what is not above the last one nothing is sent again; only of that itself is it known that it is there.
        for (sequence, kept) in self.kept.range_mut(..=last) {
            if matches!(kept.standing, Standing::Waiting | Standing::Rejected) {
                if *sequence == last {
                    kept.standing = Standing::Accepted;
                    env.note(Event::Confirmed(kept.key, false));
                } else {
                    kept.standing = Standing::Doubted;
                }
            }
        }
        self.kept.retain(|sequence, _| *sequence > last);
        if self.kept.is_empty() {
            self.next = last + 1;
        }
        // Between them would be a gap: it says where it begins.
        self.named.goes_on = self.first_kept() == last + 1;
        self.named.goes_on
    }

    /// The broker has forgotten it: what became of what is unconfirmed cannot be known.
    pub fn forgotten(&mut self) {
        self.incarnation = 0;
        self.token.clear();
        (self.named.goes_on, self.named.unknown_is_new) = (true, true);
        self.next = 1;
        self.kept.clear();
    }

    fn publish(&mut self, env: &mut Env, run: &[(u64, Key, At)], transaction: u64) -> client_frame::Frame {
        let mut messages = Vec::new();
        for (_, key, _) in run {
            let body = env.bodies[key.0 as usize].clone();
            self.sent_bytes += body.len() as u64;
            messages.push(body.into());
            env.note(Event::Sent(*key));
        }
        let (first, _, at) = &run[0];
        self.named.highest = self.named.highest.max(*first + run.len() as u64 - 1);
        client_frame::Frame::Publish(proto::Publish {
            producer: self.number,
            first_sequence: *first,
            messages,
            destination: self.plan.at.is_none().then(|| at.to_proto()),
            transaction,
        })
    }

    /// Makes some messages and sends them, within its credit.
    pub fn send(&mut self, env: &mut Env, client: u32, tx: Option<(TxId, u64)>) -> Option<client_frame::Frame> {
        let at = self.plan.at.clone().unwrap_or_else(|| scene::target(env));
        let count = env.pick(&[1, 1, 2, 5, 12]).unwrap_or(1);
        let mut run = Vec::new();
        let mut bytes = self.sent_bytes;
        for _ in 0..count {
            let filler = filler(env);
            if self.next > self.sequence_limit || bytes + filler as u64 + 200 > self.bytes_limit {
                break;
            }
            let message = self.message(env, client, &at, tx.map(|(id, _)| id));
            let mode = message.mode;
            let key = env.message(message, filler);
            bytes += env.bodies[key.0 as usize].len() as u64;
            if tx.is_none() {
                let standing = if mode == Mode::Reliable {
                    Standing::Silent
                } else {
                    Standing::Waiting
                };
                self.kept.insert(
                    self.next,
                    Kept {
                        key,
                        at: at.clone(),
                        standing,
                    },
                );
            }
            run.push((self.next, key, at.clone()));
            self.next += 1;
        }
        if run.is_empty() {
            return None;
        }
        let frame = self.publish(env, &run, tx.map_or(0, |(_, number)| number));
        self.prune(env);
        Some(frame)
    }

    fn message(&self, env: &mut Env, client: u32, at: &At, transaction: Option<TxId>) -> Message {
        let mode = match env.random.below(12) {
            0 | 1 => Mode::NonPersistent,
            2 => Mode::Reliable,
            _ => Mode::Persistent,
        };
        let some_ms = |env: &mut Env, one_in: u64, of: &[u64]| {
            if env.random.one_in(one_in) {
                env.pick(of).unwrap_or(0)
            } else {
                0
            }
        };
        Message {
            producer: self.logical,
            client,
            sort: if at.sort == Sort::Queue {
                Sort::Queue
            } else {
                Sort::Topic
            },
            destination: at.name.clone(),
            mode,
            priority: env.pick(&[4, 4, 4, 4, 0, 9, 5]).unwrap_or(4),
            time_to_live_ms: some_ms(env, 6, &[50, 400, 3000, 600_000]),
            delay_ms: some_ms(env, 12, &[30, 300, 2000]),
            preserve: env.random.one_in(4),
            color: env.random.below(3) as i64,
            weight: env.random.below(100) as i64,
            transaction,
        }
    }

    /// Takes a confirmation of a range.
    pub fn confirmed(&mut self, env: &mut Env, first: u64, last: u64, durable: bool) {
        for sequence in first..=last {
            let Some(kept) = self.kept.get_mut(&sequence) else {
                continue;
            };
            if kept.standing == Standing::Silent {
                env.complaints
                    .push(format!("RELIABLE message {} was confirmed", kept.key.0));
            } else if !matches!(kept.standing, Standing::Accepted | Standing::Durable) {
                kept.standing = if durable { Standing::Durable } else { Standing::Accepted };
                env.note(Event::Confirmed(kept.key, durable));
            }
        }
        self.prune(env);
    }

    /// Takes a refusal of a range.
    pub fn rejected(&mut self, env: &mut Env, first: u64, last: u64) {
        for sequence in first..=last {
            let Some(kept) = self.kept.get_mut(&sequence) else {
                continue;
            };
            match kept.standing {
                Standing::Waiting => kept.standing = Standing::Rejected,
                Standing::Durable => {
                    env.complaints
                        .push(format!("message {} was confirmed, and then refused", kept.key.0));
                }
                Standing::Silent => env
                    .complaints
                    .push(format!("RELIABLE message {} was refused", kept.key.0)),
                Standing::Rejected | Standing::Accepted | Standing::Doubted => {}
            }
        }
        self.prune(env);
    }

    /// Takes the word that it cannot be told of a range whether it arrived: whatever became of it.
    pub fn doubted(&mut self, env: &mut Env, first: u64, last: u64) {
        for sequence in first..=last {
            match self.kept.get_mut(&sequence) {
                Some(kept) if kept.standing == Standing::Silent => env
                    .complaints
                    .push(format!("RELIABLE message {} was refused", kept.key.0)),
                Some(kept) if matches!(kept.standing, Standing::Waiting | Standing::Rejected) => {
                    kept.standing = Standing::Doubted;
                }
                _ => {}
            }
        }
        self.prune(env);
    }

    /// Forgets what lies below the first message without an answer. A refusal is final from then on.
    fn prune(&mut self, env: &mut Env) {
        while let Some(first) = self.kept.first_entry() {
            match first.get().standing {
                Standing::Waiting => break,
                Standing::Rejected => env.note(Event::Rejected(first.get().key)),
                Standing::Accepted | Standing::Durable | Standing::Silent | Standing::Doubted => {}
            }
            first.remove();
        }
    }

    /// Takes new credit.
    pub fn credit(&mut self, credit: &proto::ProducerCredit) {
        self.sequence_limit = self.sequence_limit.max(credit.sequence_limit);
        self.bytes_limit = self.bytes_limit.max(credit.bytes_limit);
    }

    /// The name was opened again, which nobody else does: by what it had sent on a link of before, and what was handled late.
    pub fn taken_over(&mut self) {
        if self.plan.name.is_some() {
            (self.incarnation, self.named.goes_on) = (0, false);
            self.token.clear();
        }
    }

    /// The broker closed it.
    pub fn closed(&mut self) {
        self.open = false;
        self.taken_over();
    }
}
