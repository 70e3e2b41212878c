//! What happened in a simulated run, in one total order, as the simulator saw it from outside the engine.
//!
//! The simulator appends events while it runs; [`super::checker`] reads them afterwards. An event is noted where it can
//! be known for sure: a message is `Sent` when its bytes are put on the wire, `Handed` when the engine put them out,
//! `Received` when the client got them, `Confirmed` when the client read it.

use super::facts::{ConsumerId, Facts, Key, PlaceId, TxId};

/// A delivery: the index among all `Handed` events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryId(pub u32);

/// What the engine said with a delivery.
#[derive(Clone, Debug)]
pub struct Handed {
    /// Where it was taken from.
    pub place: PlaceId,
    /// Which message it is.
    pub key: Key,
    /// The place's number for it.
    pub sequence: u64,
    /// Who gets it.
    pub consumer: ConsumerId,
    /// Flagged.
    pub redelivered: bool,
    /// `delivery_count`, at least 1.
    pub count: u32,
    /// When the engine says that it arrived; wall clock.
    pub timestamp_ms: u64,
    /// Whether the message's bytes are those that were sent.
    pub intact: bool,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message was put on the wire, for the first time or again.
    Sent(Key),
    /// Its producer heard that it is safe, and whether durable.
    Confirmed(Key, bool),
    /// Its producer heard that it was refused.
    Rejected(Key),
    /// The engine put a delivery out.
    Handed(Handed),
    /// The client got it.
    Received(DeliveryId),
    /// The client gave it back without having seen it. From here on the engine may not count it.
    Returned(DeliveryId),
    /// The client put an acknowledgement on the wire.
    Acked(DeliveryId, Option<TxId>),
    /// The client heard that the acknowledgement is done.
    AckConfirmed(DeliveryId),
    /// Commit was put on the wire.
    CommitSent(TxId),
    /// The client heard that it is committed.
    Committed(TxId),
    /// The client asked for a rollback, or heard that there was one.
    RolledBack(TxId),
    /// The client knows that a subscription exists.
    PlaceUp(PlaceId),
    /// A subscription was asked to end, or may have ended with its consumer.
    PlaceDown(PlaceId),
    /// A consumer was asked for.
    ConsumerAsked(ConsumerId),
    /// The client knows that a consumer is open.
    ConsumerUp(ConsumerId),
    /// A consumer may be closed from here on.
    ConsumerDown(ConsumerId),
    /// A consumer is closed: the client was told, or the broker knows that its client is gone.
    ConsumerGone(ConsumerId),
    /// Everything that waits in a place is to be dropped.
    PurgeAsked(PlaceId),
    /// That is durable.
    Purged(PlaceId),
    /// It was refused for want of room: some may be gone all the same.
    PurgeRefused(PlaceId),
    /// The broker stopped: power loss, kill, or cleanly.
    Stopped,
    /// It started again.
    Started,
    /// The log took no more messages just then: one that was refused for it may be sent again, behind others.
    OutOfRoom,
    /// The clocks moved.
    Ticked,
}

/// An event with the time at which it happened.
#[derive(Clone, Debug)]
pub struct Stamped {
    /// Monotonic, milliseconds; goes on over restarts.
    pub monotonic_ms: u64,
    /// Wall, milliseconds.
    pub wall_ms: u64,
    /// What.
    pub event: Event,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What it is about.
    pub facts: Facts,
    /// What happened, in order.
    pub events: Vec<Stamped>,
    handed: u32,
}

impl History {
    /// Adds an event.
    pub fn push(&mut self, monotonic_ms: u64, wall_ms: u64, event: Event) {
        self.handed += u32::from(matches!(event, Event::Handed(_)));
        self.events.push(Stamped {
            monotonic_ms,
            wall_ms,
            event,
        });
    }

    /// Adds a delivery and names it.
    pub fn push_handed(&mut self, monotonic_ms: u64, wall_ms: u64, handed: Handed) -> DeliveryId {
        let id = DeliveryId(self.handed);
        self.push(monotonic_ms, wall_ms, Event::Handed(handed));
        id
    }

    /// How many deliveries there were.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.handed
    }
}
