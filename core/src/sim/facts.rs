//! What a simulated run is about: places, bridges, messages, transactions, consumers, told apart from what happens to
//! them ([`super::history`]).
//!
//! This is the oracle's own small model of routing: which place a message belongs to, and how many copies of it. It is
//! written without the engine's tries, selectors and tables on purpose, so that it can disagree with them.

/// A message, by its index in [`Facts::messages`]. It travels in the message's body.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(pub u32);

/// A queue or subscription, by its index in [`Facts::places`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PlaceId(pub u32);

/// A consumer as long as it was open, by its index in [`Facts::consumers`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConsumerId(pub u32);

/// A transaction, by its index in [`Facts::transactions`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxId(pub u32);

/// Queue or topic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Sort {
    /// Each message for one consumer.
    Queue,
    /// Each message for every subscription.
    Topic,
}

/// How hard the broker holds on to a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mode {
    /// Survives a restart.
    Persistent,
    /// In memory, confirmed.
    NonPersistent,
    /// In memory, neither confirmed nor refused.
    Reliable,
}

/// What a selector asks for: few forms, each simple enough to be judged without a parser.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Predicate {
    /// Everything.
    All,
    /// The property `color` has this value.
    Color(i64),
    /// The property `weight` is above this value.
    Heavier(i64),
}

impl Predicate {
    /// The selector's text.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Color(color) => format!("color = {color}"),
            Self::Heavier(weight) => format!("weight > {weight} AND weight IS NOT NULL"),
        }
    }

    /// Whether it wants a message.
    #[must_use]
    pub fn wants(self, message: &Message) -> bool {
        match self {
            Self::All => true,
            Self::Color(color) => message.color == color,
            Self::Heavier(weight) => message.weight > weight,
        }
    }
}

/// A queue, or a subscription of a topic.
#[derive(Clone, Debug)]
pub struct Place {
    /// For people.
    pub name: String,
    /// What it takes from.
    pub sort: Sort,
    /// The queue's name, or the subscription's pattern.
    pub pattern: String,
    /// What the subscription selects.
    pub predicate: Predicate,
    /// noLocal: nothing that this client sent.
    pub unwanted_client: Option<u32>,
    /// What it holds survives a restart: a queue or a durable subscription.
    pub durable: bool,
    /// Consumers without acknowledgements may take from it.
    pub at_most_once: bool,
    /// Messages are dropped on overflow.
    pub may_discard: bool,
    /// Full, it refuses; also what was confirmed long before and becomes due only now (EMS-MSG-A08).
    pub refuses_late: bool,
    /// Most deliveries that count; 0: unlimited.
    pub redelivery_max: u32,
    /// How long what was seen and comes back waits.
    pub redelivery_delay_ms: u64,
    /// The destination's own expiration: `None`: as the producer says, 0: never.
    pub expiration_ms: Option<u64>,
    /// One consumer gets everything.
    pub exclusive: bool,
    /// `$sys.undelivered`.
    pub undelivered: bool,
    /// The event before which nobody had asked for it, where that is known.
    pub since: Option<usize>,
}

impl Place {
    /// A queue with nothing special.
    #[must_use]
    pub fn queue(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            sort: Sort::Queue,
            pattern: name.to_owned(),
            predicate: Predicate::All,
            unwanted_client: None,
            durable: true,
            at_most_once: false,
            may_discard: false,
            refuses_late: false,
            redelivery_max: 0,
            redelivery_delay_ms: 0,
            expiration_ms: None,
            exclusive: false,
            undelivered: false,
            since: None,
        }
    }

    /// A subscription.
    #[must_use]
    pub fn subscription(name: &str, pattern: &str, predicate: Predicate, durable: bool) -> Self {
        Self {
            sort: Sort::Topic,
            pattern: pattern.to_owned(),
            predicate,
            durable,
            ..Self::queue(name)
        }
    }

    /// How long a message may live here; 0: for ever.
    #[must_use]
    pub fn life_ms(&self, message: &Message) -> u64 {
        self.expiration_ms.unwrap_or(message.time_to_live_ms)
    }
}

/// A message as its producer made it.
#[derive(Clone, Debug)]
pub struct Message {
    /// The simulated producer; it makes its messages in the order of their keys.
    pub producer: u32,
    /// The client that the producer belongs to.
    pub client: u32,
    /// Queue or topic.
    pub sort: Sort,
    /// Its destination's name.
    pub destination: String,
    /// How hard the broker holds on to it.
    pub mode: Mode,
    /// 0 to 9.
    pub priority: u8,
    /// 0: for ever.
    pub time_to_live_ms: u64,
    /// 0: at once.
    pub delay_ms: u64,
    /// Goes to `$sys.undelivered` rather than being dropped.
    pub preserve: bool,
    /// A property for selectors.
    pub color: i64,
    /// Another.
    pub weight: i64,
    /// The transaction it belongs to.
    pub transaction: Option<TxId>,
}

/// Copies messages from what matches a pattern to one destination.
#[derive(Clone, Debug)]
pub struct BridgeFacts {
    /// Queue or topic.
    pub from_sort: Sort,
    /// A name or pattern.
    pub from: String,
    /// Queue or topic.
    pub to_sort: Sort,
    /// A name.
    pub to: String,
    /// What crosses.
    pub predicate: Predicate,
}

/// A transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// It was prepared, so that others may have been committed before it that began later.
    pub prepared: bool,
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct ConsumerFacts {
    /// What it takes from.
    pub place: PlaceId,
    /// Its own selector.
    pub predicate: Predicate,
}

/// Everything that a run is about.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Queues and subscriptions.
    pub places: Vec<Place>,
    /// Bridges.
    pub bridges: Vec<BridgeFacts>,
    /// Messages.
    pub messages: Vec<Message>,
    /// Transactions.
    pub transactions: Vec<Transaction>,
    /// Consumers.
    pub consumers: Vec<ConsumerFacts>,
}

impl Facts {
    /// A place.
    #[must_use]
    pub fn place(&self, id: PlaceId) -> &Place {
        &self.places[id.0 as usize]
    }

    /// A message.
    #[must_use]
    pub fn message(&self, key: Key) -> &Message {
        &self.messages[key.0 as usize]
    }

    /// A consumer.
    #[must_use]
    pub fn consumer(&self, id: ConsumerId) -> &ConsumerFacts {
        &self.consumers[id.0 as usize]
    }

    /// How many copies of a message belong into a place: its own, and one for each bridge that it crosses. Bridges do not
    /// chain. For `$sys.undelivered`: as many as may be put aside elsewhere.
    #[must_use]
    pub fn copies(&self, key: Key, place: PlaceId) -> u32 {
        let message = self.message(key);
        let into = self.place(place);
        if into.undelivered {
            let others = (0..self.places.len() as u32)
                .map(PlaceId)
                .filter(|other| !self.place(*other).undelivered);
            return if message.preserve {
                others.map(|other| self.copies(key, other)).sum()
            } else {
                0
            };
        }
        let local = into.unwanted_client == Some(message.client);
        let direct = u32::from(!local && lands(into, message, message.sort, &message.destination));
        let crossing = self.bridges.iter().filter(|bridge| {
            bridge.from_sort == message.sort
                && matches(&bridge.from, &message.destination)
                && bridge.predicate.wants(message)
                && lands(into, message, bridge.to_sort, &bridge.to)
        });
        direct + crossing.count() as u32
    }
}

fn lands(place: &Place, message: &Message, sort: Sort, destination: &str) -> bool {
    place.sort == sort && matches(&place.pattern, destination) && place.predicate.wants(message)
}

/// Whether a pattern matches a name: `*` is one element, a trailing `>` one or more.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut elements = name.split('.');
    for part in pattern.split('.') {
        match (part, elements.next()) {
            (_, None) => return false,
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (exact, Some(element)) if exact == element => {}
            _ => return false,
        }
    }
    elements.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_their_words_say() {
        for (pattern, name, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            ("*.b", "a.b", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} and {name}");
        }
    }

    #[test]
    fn overlapping_bridges_make_two_copies_and_do_not_chain() {
        let bridge = |from: &str, to: &str| BridgeFacts {
            from_sort: Sort::Queue,
            from: from.to_owned(),
            to_sort: Sort::Queue,
            to: to.to_owned(),
            predicate: Predicate::All,
        };
        let message = Message {
            producer: 0,
            client: 0,
            sort: Sort::Queue,
            destination: "a.x".to_owned(),
            mode: Mode::Persistent,
            priority: 4,
            time_to_live_ms: 0,
            delay_ms: 0,
            preserve: false,
            color: 0,
            weight: 0,
            transaction: None,
        };
        let facts = Facts {
            places: ["a.x", "b", "c"].iter().map(|name| Place::queue(name)).collect(),
            bridges: vec![bridge("a.x", "b"), bridge("a.*", "b"), bridge("b", "c")],
            messages: vec![message],
            ..Facts::default()
        };
        let copies: Vec<u32> = (0..3).map(|place| facts.copies(Key(0), PlaceId(place))).collect();
        assert_eq!(copies, [1, 2, 0]);
    }
}
