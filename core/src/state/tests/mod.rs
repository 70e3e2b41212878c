//! Tests of the whole layer over the simulated disk, by what they show. This file is their harness: a state, its disk and
//! its clock, and a host that runs every job at once.

mod aside;
mod bounds;
mod bridges;
mod checksums;
mod chunks;
mod compaction;
mod copies;
mod cuts;
mod deleting;
mod dependencies;
mod due;
mod due_at_commit;
mod ends;
mod forced;
mod giving_way;
mod keeping;
mod limits;
mod messages;
mod model;
mod names;
mod reads;
mod records;
mod recovery;
mod refusals;
mod responders;
mod returning;
mod rooms;
mod round_trips;
mod senders;
mod shipping;
mod space;
mod topics;
mod transactions;
mod whole;

use std::sync::Arc;

use crate::log::{OpenMode, Options, RecoveryReport};
use crate::message::MessageView;
use crate::name::{DestinationName, Pattern};
use crate::selector::{Scope, Selector};
use crate::sim::SimDisk;
use crate::wire::{put_bytes_field, put_varint, put_varint_field};

use super::*;

/// A message under construction.
#[derive(Clone, Default)]
pub(super) struct Message {
    pub mode: u64,
    pub priority: Option<u64>,
    pub ttl_ms: u64,
    pub delay_ms: u64,
    pub properties: Vec<(&'static str, Value)>,
    pub reply_to: &'static str,
    pub text: String,
}

#[derive(Clone)]
pub(super) enum Value {
    Bool(bool),
    Int(i64),
    Text(&'static str),
}

impl Message {
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    pub fn volatile(mut self) -> Self {
        self.mode = 1;
        self
    }

    pub fn priority(mut self, priority: u64) -> Self {
        self.priority = Some(priority);
        self
    }

    pub fn ttl(mut self, ttl_ms: u64) -> Self {
        self.ttl_ms = ttl_ms;
        self
    }

    pub fn delay(mut self, delay_ms: u64) -> Self {
        self.delay_ms = delay_ms;
        self
    }

    pub fn with(mut self, name: &'static str, value: Value) -> Self {
        self.properties.push((name, value));
        self
    }

    pub fn preserved(self) -> Self {
        self.with("JMS_STERNA_PRESERVE_UNDELIVERED", Value::Bool(true))
    }

    /// A request, that is of no use where nobody could answer it.
    pub fn asking(mut self) -> Self {
        self.reply_to = "replies";
        self.with("JMS_STERNA_NEEDS_RESPONDER", Value::Bool(true))
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint_field(&mut out, 1, self.mode);
        if let Some(priority) = self.priority {
            put_varint(&mut out, 2 << 3);
            put_varint(&mut out, priority);
        }
        put_varint_field(&mut out, 3, self.ttl_ms);
        put_varint_field(&mut out, 4, self.delay_ms);
        if !self.reply_to.is_empty() {
            let mut destination = Vec::new();
            put_varint_field(&mut destination, 1, 1);
            put_bytes_field(&mut destination, 2, self.reply_to.as_bytes());
            put_bytes_field(&mut out, 6, &destination);
        }
        for (name, value) in &self.properties {
            let mut encoded = Vec::new();
            match value {
                Value::Bool(value) => {
                    put_varint(&mut encoded, 1 << 3);
                    put_varint(&mut encoded, u64::from(*value));
                }
                Value::Int(value) => {
                    put_varint(&mut encoded, 4 << 3);
                    put_varint(&mut encoded, crate::wire::zigzag_encode(*value));
                }
                Value::Text(value) => put_bytes_field(&mut encoded, 8, value.as_bytes()),
            }
            let mut property = Vec::new();
            put_bytes_field(&mut property, 1, name.as_bytes());
            put_bytes_field(&mut property, 2, &encoded);
            put_bytes_field(&mut out, 8, &property);
        }
        put_bytes_field(&mut out, 9, self.text.as_bytes());
        out
    }
}

/// A state, its disk and its clock.
pub(super) struct Bench {
    pub disk: SimDisk,
    pub state: Option<State>,
    pub now: Now,
    pub options: StateOptions,
    /// Configured again after every start, as a broker does.
    pub queues: Vec<(&'static str, Properties)>,
    pub topics: Vec<(&'static str, Properties)>,
    pub bridges: Vec<Bridge>,
    next_number: u64,
    incarnation: u64,
    /// Who sends; empty: anonymous.
    pub user: &'static str,
}

pub(super) fn small_options() -> StateOptions {
    StateOptions {
        broker: "test".to_owned(),
        log: Options {
            segment_bytes: 256 * 1024,
            record_bytes_max: 64 * 1024,
            commit_bytes_max: 64 * 1024,
            cache_bytes: 256 * 1024,
            ..Options::default()
        },
        volatile_bytes: 1024 * 1024,
        redelivery_reserve: 16,
        ..StateOptions::default()
    }
}

impl Bench {
    pub fn new() -> Self {
        Self::on(SimDisk::new(1), small_options())
    }

    pub fn on(disk: SimDisk, options: StateOptions) -> Self {
        let now = Now {
            wall_ms: 1_700_000_000_000,
            monotonic_ms: 1_000,
        };
        let mut bench = Self {
            disk,
            state: None,
            now,
            options,
            queues: Vec::new(),
            topics: Vec::new(),
            bridges: Vec::new(),
            next_number: 0,
            incarnation: 0,
            user: "",
        };
        bench.open().unwrap();
        bench
    }

    pub fn open(&mut self) -> Result<(), StateError> {
        let (state, _) = State::open(Arc::new(self.disk.clone()), self.options.clone(), self.now)?;
        self.state = Some(state);
        self.incarnation = self.state().next_incarnation().unwrap();
        self.next_number = 0;
        for (name, properties) in self.queues.clone() {
            self.ensure(Kind::Queue, name, properties)?;
        }
        for (name, properties) in self.topics.clone() {
            self.ensure(Kind::Topic, name, properties)?;
        }
        let bridges = self.bridges.clone();
        self.state().set_bridges(bridges);
        self.settle();
        Ok(())
    }

    fn ensure(&mut self, kind: Kind, name: &str, properties: Properties) -> Result<DestinationId, StateError> {
        let name = DestinationName::parse(name).unwrap();
        self.state().ensure_destination(kind, &name, Origin::Static, properties)
    }

    pub fn queue(&mut self, name: &'static str, properties: Properties) -> DestinationId {
        self.queues.push((name, properties.clone()));
        self.ensure(Kind::Queue, name, properties).unwrap()
    }

    pub fn topic(&mut self, name: &'static str, properties: Properties) -> DestinationId {
        self.topics.push((name, properties.clone()));
        self.ensure(Kind::Topic, name, properties).unwrap()
    }

    pub fn bridge(&mut self, kind: Kind, source: &str, to_kind: Kind, target: &str, selector: Option<&str>) {
        let selector = selector.map(|text| Arc::new(Selector::parse(text).unwrap()));
        self.bridges.push(Bridge {
            name: format!("{source}-{target}"),
            kind,
            source: Pattern::parse(source).unwrap(),
            targets: vec![BridgeTarget {
                kind: to_kind,
                name: DestinationName::parse(target).unwrap(),
                selector,
            }],
        });
        let bridges = self.bridges.clone();
        self.state().set_bridges(bridges);
    }

    pub fn state(&mut self) -> &mut State {
        self.state.as_mut().unwrap()
    }

    /// A forced start, and what it says; nothing runs afterwards, so that a plain one may follow.
    pub fn force(&mut self) -> RecoveryReport {
        self.state = None;
        self.disk.kill_process();
        let report = force(&self.disk, &self.options, self.now);
        self.disk.kill_process();
        report
    }

    /// Stops without a word, as a killed process; what was written stays.
    pub fn restart(&mut self) {
        self.state = None;
        self.disk.kill_process();
        self.open().unwrap();
    }

    /// A clean stop and a start.
    pub fn restart_cleanly(&mut self) {
        self.state.take().unwrap().stop().unwrap();
        self.disk.kill_process();
        self.open().unwrap();
    }

    /// Runs writes, reads and upkeep until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..10_000 {
            let mut idle = true;
            if let Some(job) = self.state().next_write().unwrap() {
                let done = job.run();
                self.state().complete_write(done).unwrap();
                idle = false;
            }
            for job in self.state().take_reads() {
                let done = job.run();
                self.state().complete_read(done);
                idle = false;
            }
            if let Some(job) = self.state().maintenance().unwrap() {
                let done = job.run();
                self.state().complete_maintenance(done).unwrap();
                idle = false;
            }
            if idle {
                return;
            }
        }
        panic!("upkeep does not come to an end");
    }

    pub fn advance(&mut self, ms: u64) {
        self.now = Now {
            wall_ms: self.now.wall_ms + ms,
            monotonic_ms: self.now.monotonic_ms + ms,
        };
        let now = self.now;
        self.state().tick(now);
    }

    pub fn send_as(
        &mut self,
        to: DestinationId,
        message: &Message,
        (incarnation, sequence): (u64, u64),
        transaction: Option<Tx>,
    ) -> Result<Accepted, PublishError> {
        let bytes = message.encode();
        let view = MessageView::parse(&bytes).unwrap();
        let user = self.user;
        let incoming = Incoming {
            view: &view,
            uploaded: &[],
            incarnation,
            sequence,
            connection: 7,
            client_id: "me",
            user,
            transaction,
            may_be_again: false,
        };
        self.state().publish(to, &incoming)
    }

    pub fn try_send(&mut self, to: DestinationId, message: &Message) -> Result<Accepted, PublishError> {
        self.next_number += 1;
        let number = (self.incarnation, self.next_number);
        self.send_as(to, message, number, None)
    }

    pub fn send(&mut self, to: DestinationId, message: &Message) -> Accepted {
        self.try_send(to, message).unwrap()
    }

    pub fn send_in(&mut self, tx: Tx, to: DestinationId, message: &Message) -> Result<Accepted, PublishError> {
        self.next_number += 1;
        let number = (self.incarnation, self.next_number);
        self.send_as(to, message, number, Some(tx))
    }

    /// Takes the next message: its text, sequence, and delivery.
    pub fn take(&mut self, source: SourceId) -> Option<(String, u64, Delivered)> {
        self.take_with(source, &mut Cursor::default(), None)
    }

    pub fn take_with(
        &mut self,
        source: SourceId,
        cursor: &mut Cursor,
        selector: Option<&Selector>,
    ) -> Option<(String, u64, Delivered)> {
        for _ in 0..100 {
            match self.state().next_ready(source, cursor, selector) {
                Next::Ready { sequence, priority, .. } => {
                    let delivered = self.state().deliver(source, priority, sequence, 1).unwrap();
                    return Some((self.text_at(delivered.position), sequence, delivered));
                }
                Next::Empty | Next::Expiring => return None,
                Next::Reserving | Next::NeedsRead(_) => self.settle(),
            }
        }
        panic!("the watermark is never durable");
    }

    pub fn message_at(&mut self, position: crate::log::Position) -> StoredMessage {
        for _ in 0..10 {
            match self.state().payload(position) {
                Payload::Ready(message) => return message,
                Payload::Reading => self.settle(),
                Payload::Damaged(why) => panic!("damaged: {why}"),
            }
        }
        panic!("the read never ends");
    }

    pub fn text_at(&mut self, position: crate::log::Position) -> String {
        let message = self.message_at(position);
        let view = MessageView::parse(&message.bytes).unwrap();
        view.body().text().unwrap().unwrap_or("").to_owned()
    }

    /// Takes everything that is ready, without acknowledging.
    pub fn take_all(&mut self, source: SourceId) -> Vec<String> {
        std::iter::from_fn(|| self.take(source).map(|(text, _, _)| text)).collect()
    }

    pub fn acknowledge(&mut self, source: SourceId, sequence: u64) -> Acknowledged {
        self.state()
            .acknowledge(source, &[(sequence, sequence)], |_| true, None)
            .unwrap()
    }

    pub fn texts(&mut self, source: SourceId) -> Vec<String> {
        let positions: Vec<_> = self.state().browse(source, 0).map(|found| found.position).collect();
        positions.into_iter().map(|position| self.text_at(position)).collect()
    }

    pub fn subscribe(
        &mut self,
        name: &str,
        pattern: &str,
        change: impl FnOnce(&mut SubscriptionDefinition),
    ) -> SourceId {
        let mut definition = SubscriptionDefinition {
            client_id: "me".to_owned(),
            name: name.to_owned(),
            durable: !name.is_empty(),
            shared: false,
            is_static: false,
            pattern: Pattern::parse(pattern).unwrap(),
            selector: None,
            no_local: false,
            connection: 7,
        };
        change(&mut definition);
        self.state().subscribe(definition).unwrap().source
    }
}

/// Opens a store by force and lets go of it; what the open reported.
pub(super) fn force(disk: &SimDisk, options: &StateOptions, now: Now) -> RecoveryReport {
    let mut options = options.clone();
    options.log.force_start = true;
    let (state, report) = State::open(Arc::new(disk.clone()), options, now).unwrap();
    drop(state);
    report
}

pub(super) fn selector(text: &str) -> Option<Arc<Selector>> {
    Some(Arc::new(Selector::parse_in(text, Scope::Undelivered).unwrap()))
}

pub(super) fn follower_options() -> StateOptions {
    let mut options = small_options();
    options.log.mode = OpenMode::Follower;
    options
}
