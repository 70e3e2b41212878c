//! One pass over a history that gathers what the rules ask for.
//!
//! Events are named by their index, which is also their order in time.

use crate::sim::facts::{ConsumerId, Facts, Key, PlaceId, TxId};
use crate::sim::history::{DeliveryId, Event, Handed, History};
use std::collections::BTreeMap;

/// What happened to one message on its producer's side.
#[derive(Clone, Debug, Default)]
pub struct MessageLife {
    /// Each time it was put on the wire.
    pub sent: Vec<usize>,
    /// When it was first confirmed, and whether durable.
    pub confirmed: Option<(usize, bool)>,
    /// When it was refused.
    pub rejected: Option<usize>,
}

/// What happened to one delivery.
#[derive(Clone, Debug)]
pub struct DeliveryLife<'a> {
    /// When it was put out.
    pub at: usize,
    /// What was said with it.
    pub handed: &'a Handed,
    /// When it was given back unseen.
    pub returned: Option<usize>,
    /// Acknowledgements that were put on the wire.
    pub acked: Vec<(usize, Option<TxId>)>,
    /// When the first of them was answered.
    pub ack_confirmed: Option<usize>,
}

/// What happened to one transaction.
#[derive(Clone, Debug, Default)]
pub struct TransactionLife {
    /// When commit was put on the wire.
    pub commit_sent: Option<usize>,
    /// When it was answered.
    pub committed: Option<usize>,
    /// When it was certain that it will not be committed.
    pub rolled_back: Option<usize>,
    /// Messages sent in it.
    pub sends: Vec<Key>,
    /// Deliveries acknowledged in it.
    pub acks: Vec<DeliveryId>,
}

/// What is known of a transaction in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Answered so; from this event on.
    Committed(usize),
    /// Commit was never asked for, or refused.
    Aborted,
    /// Asked for, answer lost.
    Unknown,
}

impl TransactionLife {
    /// See [`Verdict`].
    pub fn verdict(&self) -> Verdict {
        match (self.committed, self.rolled_back, self.commit_sent) {
            (Some(at), _, _) => Verdict::Committed(at),
            (None, None, Some(_)) => Verdict::Unknown,
            _ => Verdict::Aborted,
        }
    }
}

/// A purge of a place.
#[derive(Clone, Copy, Debug)]
pub struct Purge {
    /// When it was asked for.
    pub asked: usize,
    /// When it was known to be durable.
    pub durable: Option<usize>,
    /// It was refused.
    pub refused: bool,
}

/// From when to when something was there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Asked for at this event.
    pub asked: Option<usize>,
    /// Known to be there from this event on.
    pub up: Option<usize>,
    /// Maybe gone from this event on.
    pub down: Option<usize>,
    /// Gone from this event on.
    pub gone: Option<usize>,
}

/// A history, ready to be asked.
pub struct Index<'a> {
    /// What the run is about.
    pub facts: &'a Facts,
    /// The run itself.
    pub history: &'a History,
    /// By key.
    pub messages: Vec<MessageLife>,
    /// By delivery.
    pub deliveries: Vec<DeliveryLife<'a>>,
    /// By transaction.
    pub transactions: Vec<TransactionLife>,
    /// By place; queues are up from before the beginning.
    pub places: Vec<Span>,
    /// By consumer.
    pub consumers: Vec<Span>,
    /// Purges by place: when asked for and, for those that are known to be durable, when that was.
    pub purges: BTreeMap<PlaceId, Vec<Purge>>,
    /// When the broker stopped.
    pub stops: Vec<usize>,
    /// When the log took no more messages.
    pub full: Vec<usize>,
    /// When it started again.
    pub starts: Vec<usize>,
    /// Deliveries by place and message, in order.
    pub of: BTreeMap<(PlaceId, Key), Vec<DeliveryId>>,
}

impl<'a> Index<'a> {
    /// Reads a history.
    pub fn new(history: &'a History) -> Self {
        let facts = &history.facts;
        let mut index = Self {
            facts,
            history,
            messages: vec![MessageLife::default(); facts.messages.len()],
            deliveries: Vec::new(),
            transactions: vec![TransactionLife::default(); facts.transactions.len()],
            places: vec![Span::default(); facts.places.len()],
            consumers: vec![Span::default(); facts.consumers.len()],
            purges: BTreeMap::new(),
            stops: Vec::new(),
            full: Vec::new(),
            starts: Vec::new(),
            of: BTreeMap::new(),
        };
        for (key, message) in (0u32..).map(Key).zip(&facts.messages) {
            if let Some(tx) = message.transaction {
                index.transactions[tx.0 as usize].sends.push(key);
            }
        }
        for (at, stamped) in history.events.iter().enumerate() {
            index.note(at, &stamped.event);
        }
        index
    }

    fn note(&mut self, at: usize, event: &'a Event) {
        match event {
            Event::Sent(key) => self.messages[key.0 as usize].sent.push(at),
            Event::Confirmed(key, durable) => {
                self.messages[key.0 as usize].confirmed.get_or_insert((at, *durable));
            }
            Event::Rejected(key) => {
                self.messages[key.0 as usize].rejected.get_or_insert(at);
            }
            Event::Handed(handed) => {
                let id = DeliveryId(self.deliveries.len() as u32);
                self.of.entry((handed.place, handed.key)).or_default().push(id);
                let life = DeliveryLife {
                    at,
                    handed,
                    returned: None,
                    acked: Vec::new(),
                    ack_confirmed: None,
                };
                self.deliveries.push(life);
            }
            Event::Received(_) | Event::Ticked => {}
            Event::Returned(id) => {
                self.deliveries[id.0 as usize].returned.get_or_insert(at);
            }
            Event::Acked(id, tx) => {
                self.deliveries[id.0 as usize].acked.push((at, *tx));
                if let Some(tx) = tx {
                    self.transactions[tx.0 as usize].acks.push(*id);
                }
            }
            Event::AckConfirmed(id) => {
                self.deliveries[id.0 as usize].ack_confirmed.get_or_insert(at);
            }
            Event::CommitSent(tx) => {
                self.transactions[tx.0 as usize].commit_sent.get_or_insert(at);
            }
            Event::Committed(tx) => {
                self.transactions[tx.0 as usize].committed.get_or_insert(at);
            }
            Event::RolledBack(tx) => {
                self.transactions[tx.0 as usize].rolled_back.get_or_insert(at);
            }
            Event::PlaceUp(place) => {
                self.places[place.0 as usize].up.get_or_insert(at);
            }
            Event::PlaceDown(place) => {
                self.places[place.0 as usize].down.get_or_insert(at);
            }
            Event::ConsumerAsked(consumer) => {
                self.consumers[consumer.0 as usize].asked.get_or_insert(at);
            }
            Event::ConsumerGone(consumer) => {
                self.consumers[consumer.0 as usize].gone.get_or_insert(at);
            }
            Event::ConsumerUp(consumer) => {
                self.consumers[consumer.0 as usize].up.get_or_insert(at);
            }
            Event::ConsumerDown(consumer) => {
                self.consumers[consumer.0 as usize].down.get_or_insert(at);
            }
            Event::PurgeAsked(place) | Event::PurgeRefused(place) | Event::Purged(place) => {
                self.note_purge(at, event, *place);
            }
            Event::Stopped => self.stops.push(at),
            Event::OutOfRoom => self.full.push(at),
            Event::Started => self.starts.push(at),
        }
    }

    fn note_purge(&mut self, at: usize, event: &Event, place: PlaceId) {
        let (purges, stops) = (self.purges.entry(place).or_default(), &self.stops);
        match event {
            Event::PurgeAsked(_) => purges.push(Purge {
                asked: at,
                durable: None,
                refused: false,
            }),
            Event::PurgeRefused(_) => purges.iter_mut().rev().take(1).for_each(|purge| purge.refused = true),
            // One that was asked for before a stop may be lost, whatever became of later ones.
            _ => purges
                .iter_mut()
                .filter(|purge| stops.iter().all(|stop| *stop < purge.asked))
                .for_each(|purge| {
                    purge.durable.get_or_insert(at);
                }),
        }
    }

    /// A delivery.
    pub fn delivery(&self, id: DeliveryId) -> &DeliveryLife<'a> {
        &self.deliveries[id.0 as usize]
    }

    /// A message's life.
    pub fn life(&self, key: Key) -> &MessageLife {
        &self.messages[key.0 as usize]
    }

    /// A consumer's span.
    pub fn consumer(&self, id: ConsumerId) -> Span {
        self.consumers[id.0 as usize]
    }

    /// Deliveries of a message from a place.
    pub fn deliveries_of(&self, place: PlaceId, key: Key) -> &[DeliveryId] {
        self.of.get(&(place, key)).map_or(&[], Vec::as_slice)
    }

    /// Whether the broker stopped between two events.
    pub fn stopped_between(&self, from: usize, to: usize) -> bool {
        self.stops.iter().any(|stop| (from..to).contains(stop))
    }

    /// The last start before an event.
    pub fn started_before(&self, at: usize) -> usize {
        self.starts.iter().copied().rfind(|start| *start < at).unwrap_or(0)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = Key> + use<> {
        (0..self.messages.len() as u32).map(Key)
    }

    /// All places.
    pub fn place_ids(&self) -> impl Iterator<Item = PlaceId> + use<> {
        (0..self.places.len() as u32).map(PlaceId)
    }

    /// What to call a message in a place.
    pub fn name(&self, place: PlaceId, key: Key) -> String {
        let message = self.facts.message(key);
        format!(
            "message {} ({:?}, {:?} {}, producer {}, priority {}, life {}, delay {}) in {}",
            key.0,
            message.mode,
            message.sort,
            message.destination,
            message.producer,
            message.priority,
            message.time_to_live_ms,
            message.delay_ms,
            self.facts.place(place).name
        )
    }
}
