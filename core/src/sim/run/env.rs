//! What every part of a run shares: the seed's random numbers, the clocks, the history, and the bytes of all messages.

use crate::proto::{self, message, value};
use crate::sim::checker::Violation;
use crate::sim::facts::{ConsumerFacts, ConsumerId, Key, Message, Mode, Place, PlaceId, Predicate, Transaction, TxId};
use crate::sim::history::{Event, History};
use crate::sim::{Random, SimClock};
use crate::state::Now;
use prost::Message as _;
use std::collections::BTreeSet;

/// The wall clock at the beginning of a run.
const START_WALL_MS: i64 = 1_700_000_000_000;

/// Drawn by itself, and chosen so that the reduced runs in `tests/defects` of what has nothing to do with cuts have none.
const AUDITS_SALT: u64 = 110;

/// A transaction that waits for its coordinator.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    /// Which.
    pub tx: TxId,
    /// It was heard that it is prepared.
    pub heard: bool,
    /// What the coordinator has decided: to commit.
    pub decision: Option<bool>,
}

/// What some runs have beside what all have. It is drawn by itself, so that what other seeds do does not change with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Programs that name their producers.
    Names,
    /// Records that end where segments and the store's space do, or a little before.
    Rooms,
}

impl Beside {
    /// Chosen among all numbers so that the reduced runs in `tests/defects` have nothing beside.
    const SALT: u64 = 66;

    fn of(seed: u64) -> Self {
        match Random::new(seed ^ Self::SALT).below(6) {
            0 => Self::Names,
            1 => Self::Rooms,
            _ => Self::Nothing,
        }
    }
}

/// Whether a full disk is as full when the broker starts again, in a third of the seeds; in the others somebody has made room
/// meanwhile. Drawn by itself, too, and chosen so that reduced runs are among the others.
fn is_full_for_long(seed: u64) -> bool {
    const SALT: u64 = 727;
    Random::new(seed ^ SALT).one_in(3)
}

/// How long a transaction may be open, in milliseconds, in a quarter of the seeds; 0: for ever. Drawn as the others above.
fn transaction_ms(seed: u64) -> u32 {
    const SALT: u64 = 90_210;
    if Random::new(seed ^ SALT).one_in(4) { 400 } else { 0 }
}

/// See the module's documentation.
pub struct Env {
    /// Random numbers.
    pub random: Random,
    /// Both clocks.
    pub clock: SimClock,
    /// What happened.
    pub history: History,
    /// Encoded messages by key.
    pub bodies: Vec<Vec<u8>>,
    /// Transactions whose commit was asked for.
    pub decided: BTreeSet<TxId>,
    /// Transactions that are, or may be, prepared.
    pub prepared: Vec<Prepared>,
    /// What must never happen, and did: errors that no client caused, requests without an answer.
    pub complaints: Vec<String>,
    /// Where records are to end with their segment, or a little before: what is left of it.
    pub room: Option<u64>,
    /// What this run has that others do not.
    pub beside: Beside,
    /// A full disk is full at the next start, too.
    pub full_for_long: bool,
    /// The broker's limit of time for transactions.
    pub transaction_ms: u32,
    /// Cuts are taken in this run.
    pub audits: bool,
    /// What happened, in words, when somebody wants to read it.
    pub told: Option<Vec<String>>,
}

impl Env {
    /// The beginning of a run.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 0x51),
            clock: SimClock::new(START_WALL_MS),
            history: History::default(),
            bodies: Vec::new(),
            decided: BTreeSet::new(),
            prepared: Vec::new(),
            complaints: Vec::new(),
            room: None,
            beside: Beside::of(seed),
            full_for_long: is_full_for_long(seed),
            transaction_ms: transaction_ms(seed),
            audits: Random::new(seed ^ AUDITS_SALT).one_in(4),
            told: std::env::var_os("TELL").map(|_| Vec::new()),
        }
    }

    /// From here on the random numbers are those of one step of a seed, whatever was drawn before.
    pub fn draw_anew(&mut self, seed: u64, step: u32) {
        let mut mixed = Random::new(seed ^ u64::from(step) << 32);
        self.random = Random::new(mixed.next_u64() ^ u64::from(step));
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Now {
        Now {
            wall_ms: self.clock.wall_ms().max(0) as u64,
            monotonic_ms: self.clock.monotonic_ms(),
        }
    }

    /// Notes an event.
    pub fn note(&mut self, event: Event) {
        if self.told.is_some() {
            self.tell(|| format!("{event:?}"));
        }
        let now = self.now();
        self.history.push(now.monotonic_ms, now.wall_ms, event);
    }

    /// Notes words for whoever reads a failing run.
    pub fn tell(&mut self, words: impl FnOnce() -> String) {
        let (at, ms) = (self.history.events.len(), self.clock.monotonic_ms());
        if let Some(told) = &mut self.told {
            told.push(format!("{at:6} {ms:7} ms  {}", words()));
        }
    }

    /// A new place.
    pub fn place(&mut self, place: Place) -> PlaceId {
        self.history.facts.places.push(place);
        PlaceId(self.history.facts.places.len() as u32 - 1)
    }

    /// A new consumer.
    pub fn consumer(&mut self, place: PlaceId, predicate: Predicate) -> ConsumerId {
        self.history.facts.consumers.push(ConsumerFacts { place, predicate });
        ConsumerId(self.history.facts.consumers.len() as u32 - 1)
    }

    /// A consumer may be closed from here on, and a subscription that lives as long as its consumers may have ended.
    pub fn consumer_down(&mut self, id: ConsumerId, place: Option<PlaceId>) {
        self.note(Event::ConsumerDown(id));
        if let Some(place) = place
            && !self.history.facts.place(place).durable
        {
            self.note(Event::PlaceDown(place));
        }
    }

    /// Somebody asks for a commit.
    pub fn commit_sent(&mut self, tx: TxId) {
        self.decided.insert(tx);
        self.note(Event::CommitSent(tx));
    }

    /// A new transaction.
    pub fn transaction(&mut self) -> TxId {
        self.history.facts.transactions.push(Transaction::default());
        TxId(self.history.facts.transactions.len() as u32 - 1)
    }

    /// A new message, encoded.
    pub fn message(&mut self, message: Message, filler_bytes: usize) -> Key {
        let key = Key(self.bodies.len() as u32);
        self.bodies.push(encode(&message, key, filler_bytes));
        self.history.facts.messages.push(message);
        key
    }

    /// Which message these bytes are, and whether they are all of it.
    #[must_use]
    pub fn recognise(&self, bytes: &[u8]) -> Option<(Key, bool)> {
        let decoded = proto::Message::decode(bytes).ok()?;
        let Some(message::Body::Bytes(body)) = decoded.body else {
            return None;
        };
        let key = Key(u32::from_le_bytes(body.get(..4)?.try_into().ok()?));
        let sent = self.bodies.get(key.0 as usize)?;
        Some((key, sent == bytes))
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.random.below(high - low + 1)
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        let index = self.random.below(from.len() as u64) as usize;
        from.get(index).cloned()
    }
}

fn encode(facts: &Message, key: Key, filler_bytes: usize) -> Vec<u8> {
    let number = |name: &str, number: i64| property(name, value::Kind::LongValue(number));
    let mut properties = vec![number("color", facts.color), number("weight", facts.weight)];
    if facts.preserve {
        properties.push(property(
            "JMS_STERNA_PRESERVE_UNDELIVERED",
            value::Kind::BoolValue(true),
        ));
    }
    let mut body = key.0.to_le_bytes().to_vec();
    body.extend((0..filler_bytes).map(|index| (index as u32).wrapping_mul(key.0 | 1) as u8));
    let mode = match facts.mode {
        Mode::Persistent => proto::DeliveryMode::Persistent,
        Mode::NonPersistent => proto::DeliveryMode::NonPersistent,
        Mode::Reliable => proto::DeliveryMode::Reliable,
    };
    let message = proto::Message {
        delivery_mode: mode.into(),
        priority: Some(u32::from(facts.priority)),
        time_to_live_ms: facts.time_to_live_ms,
        delivery_delay_ms: facts.delay_ms,
        properties,
        body: Some(message::Body::Bytes(body)),
        ..proto::Message::default()
    };
    message.encode_to_vec()
}

fn property(name: &str, kind: value::Kind) -> proto::Property {
    proto::Property {
        name: name.to_owned(),
        value: Some(proto::Value { kind: Some(kind) }),
    }
}

/// How a run ended.
pub struct Outcome {
    /// Broken promises, and complaints.
    pub violations: Vec<Violation>,
    /// Things that must never happen and did.
    pub complaints: Vec<String>,
    /// What happened, if it was asked for.
    pub told: Vec<String>,
    /// Figures that show that the run did something.
    pub figures: Figures,
}

/// How much happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Messages sent.
    pub messages: u64,
    /// Deliveries put out.
    pub deliveries: u64,
    /// Deliveries that came flagged.
    pub redeliveries: u64,
    /// Transactions begun.
    pub transactions: u64,
    /// Times the broker stopped and started.
    pub restarts: u64,
    /// Times it started on a disk that was full, or nearly so.
    pub full_starts: u64,
    /// Times a follower was compared with its leader.
    pub comparisons: u64,
    /// Times a follower took over.
    pub takeovers: u64,
    /// Times a copy of the disk was damaged and compared.
    pub damages: u64,
    /// Cuts that were read and judged.
    pub cuts: u64,
    /// Of these, to which events led from the cut before.
    pub replays: u64,
    /// Gaps that were told instead.
    pub gaps: u64,
}

impl std::ops::AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.deliveries += other.deliveries;
        self.redeliveries += other.redeliveries;
        self.transactions += other.transactions;
        self.restarts += other.restarts;
        self.full_starts += other.full_starts;
        self.comparisons += other.comparisons;
        self.takeovers += other.takeovers;
        self.damages += other.damages;
        self.cuts += other.cuts;
        self.replays += other.replays;
        self.gaps += other.gaps;
    }
}
