//! The checker can fail: for each rule a small story that is healthy, and the same story with the promise broken.

use super::{Rule, check};
use crate::sim::facts::{
    BridgeFacts, ConsumerFacts, ConsumerId, Key, Message, Mode, Place, PlaceId, Predicate, Sort, Transaction, TxId,
};
use crate::sim::history::{DeliveryId, Event, Handed, History};
use std::collections::BTreeSet;

const QUEUE: PlaceId = PlaceId(0);
const DURABLE: PlaceId = PlaceId(1);
const EXCLUSIVE: PlaceId = PlaceId(2);
const LIMITED: PlaceId = PlaceId(3);
const UNDELIVERED: PlaceId = PlaceId(4);
const BRIDGED: PlaceId = PlaceId(5);

/// Tells a history, one thing after the other.
struct Story {
    history: History,
    now_ms: u64,
}

impl Story {
    fn new() -> Self {
        let mut story = Self {
            history: History::default(),
            now_ms: 1000,
        };
        let queue = Place::queue;
        story.history.facts.places = vec![
            queue("q"),
            Place::subscription("d", "t.*", Predicate::Color(1), true),
            Place {
                exclusive: true,
                ..queue("x")
            },
            Place {
                redelivery_max: 2,
                redelivery_delay_ms: 40,
                ..queue("limited")
            },
            Place {
                undelivered: true,
                ..queue("$sys.undelivered")
            },
            queue("b"),
        ];
        story.history.facts.bridges = vec![BridgeFacts {
            from_sort: Sort::Queue,
            from: "q".to_owned(),
            to_sort: Sort::Queue,
            to: "b".to_owned(),
            predicate: Predicate::Heavier(5),
        }];
        for place in 0..6 {
            story.add(Event::PlaceUp(PlaceId(place)));
        }
        story
    }

    fn add(&mut self, event: Event) {
        self.now_ms += 1;
        self.history.push(self.now_ms, self.now_ms + 1_000_000, event);
    }

    fn message(&mut self, destination: &str, change: impl FnOnce(&mut Message)) -> Key {
        let sort = if destination.starts_with("t.") {
            Sort::Topic
        } else {
            Sort::Queue
        };
        let mut message = Message {
            producer: 0,
            client: 0,
            sort,
            destination: destination.to_owned(),
            mode: Mode::Persistent,
            priority: 4,
            time_to_live_ms: 0,
            delay_ms: 0,
            preserve: false,
            color: 1,
            weight: 1,
            transaction: None,
        };
        change(&mut message);
        let key = Key(self.history.facts.messages.len() as u32);
        self.history.facts.messages.push(message);
        self.add(Event::Sent(key));
        key
    }

    fn confirmed(&mut self, destination: &str, change: impl FnOnce(&mut Message)) -> Key {
        let key = self.message(destination, change);
        let durable = self.history.facts.message(key).mode == Mode::Persistent;
        self.add(Event::Confirmed(key, durable));
        key
    }

    fn consumer(&mut self, place: PlaceId, predicate: Predicate) -> ConsumerId {
        let id = ConsumerId(self.history.facts.consumers.len() as u32);
        self.history.facts.consumers.push(ConsumerFacts { place, predicate });
        self.add(Event::ConsumerAsked(id));
        self.add(Event::ConsumerUp(id));
        id
    }

    fn hand(&mut self, consumer: ConsumerId, key: Key, sequence: u64, change: impl FnOnce(&mut Handed)) -> DeliveryId {
        let place = self.history.facts.consumer(consumer).place;
        self.now_ms += 1;
        let mut handed = Handed {
            place,
            key,
            sequence,
            consumer,
            redelivered: false,
            count: 1,
            timestamp_ms: 0,
            intact: true,
        };
        let arrived = self
            .history
            .events
            .iter()
            .find(|stamped| matches!(stamped.event, Event::Sent(sent) if sent == key));
        handed.timestamp_ms = arrived.map_or(0, |stamped| stamped.wall_ms);
        change(&mut handed);
        let id = self.history.push_handed(self.now_ms, self.now_ms + 1_000_000, handed);
        self.add(Event::Received(id));
        id
    }

    fn ack(&mut self, id: DeliveryId) {
        self.add(Event::Acked(id, None));
        self.add(Event::AckConfirmed(id));
    }

    fn take(&mut self, consumer: ConsumerId, key: Key, sequence: u64) {
        let id = self.hand(consumer, key, sequence, |_| {});
        self.ack(id);
    }

    fn transaction(&mut self) -> TxId {
        self.history.facts.transactions.push(Transaction::default());
        TxId(self.history.facts.transactions.len() as u32 - 1)
    }

    fn restart(&mut self) {
        self.add(Event::Stopped);
        self.add(Event::Started);
    }
}

/// A story with the promise it is about; told with `true` it breaks the promise.
type Told = (Rule, fn(&mut Story, bool));

const STORIES: &[Told] = &[
    (Rule::Lost, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.restart();
        if !broken {
            story.take(consumer, key, 1);
        }
    }),
    (Rule::Lost, |story, broken| {
        // A bridged copy is owed as well.
        let key = story.confirmed("q", |message| message.weight = 9);
        let (own, bridged) = (
            story.consumer(QUEUE, Predicate::All),
            story.consumer(BRIDGED, Predicate::All),
        );
        story.take(own, key, 1);
        if !broken {
            story.take(bridged, key, 1);
        }
    }),
    (Rule::Lost, |story, broken| {
        // A delivery that was never acknowledged, and does not come again.
        let key = story.confirmed("t.a", |_| {});
        let consumer = story.consumer(DURABLE, Predicate::All);
        story.hand(consumer, key, 1, |_| {});
        story.restart();
        if !broken {
            let again = story.hand(consumer, key, 1, |handed| handed.redelivered = true);
            story.ack(again);
        }
    }),
    (Rule::Lost, |story, broken| {
        // What was acknowledged in a transaction that was rolled back is owed again.
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        let tx = story.transaction();
        let first = story.hand(consumer, key, 1, |_| {});
        story.add(Event::Acked(first, Some(tx)));
        story.add(Event::RolledBack(tx));
        if !broken {
            let again = story.hand(consumer, key, 1, |handed| {
                (handed.redelivered, handed.count) = (true, 2)
            });
            story.ack(again);
        }
    }),
    (Rule::Lost, |story, broken| {
        // Delivered too often with the wish to be kept: has to be put aside. Never delivered: has to be somewhere.
        let key = story.confirmed("limited", |message| {
            (message.preserve, message.time_to_live_ms) = (true, 5)
        });
        let aside = story.consumer(UNDELIVERED, Predicate::All);
        story.now_ms += 100;
        if !broken {
            story.take(aside, key, 1);
        }
    }),
    (Rule::AcknowledgedReturned, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.take(consumer, key, 1);
        story.restart();
        if broken {
            story.hand(consumer, key, 1, |handed| handed.redelivered = true);
        }
    }),
    (Rule::AcknowledgedReturned, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        let tx = story.transaction();
        let first = story.hand(consumer, key, 1, |_| {});
        story.add(Event::Acked(first, Some(tx)));
        story.add(Event::CommitSent(tx));
        story.add(Event::Committed(tx));
        if broken {
            story.hand(consumer, key, 1, |handed| {
                (handed.redelivered, handed.count) = (true, 2)
            });
        }
    }),
    (Rule::DuplicateUnflagged, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.hand(consumer, key, 1, |_| {});
        story.restart();
        let again = story.hand(consumer, key, 1, |handed| handed.redelivered = !broken);
        story.ack(again);
    }),
    (Rule::DuplicateUnflagged, |story, broken| {
        // Given back unseen it need not be flagged; seen it must be.
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        let first = story.hand(consumer, key, 1, |_| {});
        if !broken {
            story.add(Event::Returned(first));
        }
        let again = story.hand(consumer, key, 1, |handed| handed.count = 1 + u32::from(broken));
        story.ack(again);
    }),
    (Rule::FlaggedForNothing, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        let only = story.hand(consumer, key, 1, |handed| handed.redelivered = broken);
        story.ack(only);
    }),
    (Rule::Doubled, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.take(consumer, key, 1);
        if broken {
            story.take(consumer, key, 2);
        }
    }),
    (Rule::OutOfOrder, |story, broken| {
        let keys = [story.confirmed("q", |_| {}), story.confirmed("q", |_| {})];
        let consumer = story.consumer(QUEUE, Predicate::All);
        let [first, second] = if broken { [1, 0] } else { [0, 1] };
        story.take(consumer, keys[first], first as u64 + 1);
        story.take(consumer, keys[second], second as u64 + 1);
    }),
    (Rule::TransactionTorn, |story, broken| {
        let tx = story.transaction();
        let keys: Vec<Key> = ["q", "x"]
            .iter()
            .map(|to| story.message(to, |message| message.transaction = Some(tx)))
            .collect();
        story.add(Event::CommitSent(tx));
        story.restart();
        let (queue, exclusive) = (
            story.consumer(QUEUE, Predicate::All),
            story.consumer(EXCLUSIVE, Predicate::All),
        );
        let flagged = |handed: &mut Handed| handed.redelivered = true;
        let first = story.hand(queue, keys[0], 1, flagged);
        story.ack(first);
        if !broken {
            let second = story.hand(exclusive, keys[1], 1, flagged);
            story.ack(second);
        }
    }),
    (Rule::TransactionTorn, |story, broken| {
        // Its message arrived, but what it acknowledged came again.
        let consumed = story.confirmed("q", |_| {});
        let (queue, exclusive) = (
            story.consumer(QUEUE, Predicate::All),
            story.consumer(EXCLUSIVE, Predicate::All),
        );
        let tx = story.transaction();
        let first = story.hand(queue, consumed, 1, |_| {});
        story.add(Event::Acked(first, Some(tx)));
        let sent = story.message("x", |message| message.transaction = Some(tx));
        story.add(Event::CommitSent(tx));
        story.restart();
        if broken {
            let again = story.hand(queue, consumed, 1, |handed| handed.redelivered = true);
            story.ack(again);
        }
        let arrived = story.hand(exclusive, sent, 1, |_| {});
        story.ack(arrived);
    }),
    (Rule::TransactionTorn, |story, broken| {
        // What it acknowledged is gone, but its message did not arrive.
        let consumed = story.confirmed("q", |_| {});
        let (queue, exclusive) = (
            story.consumer(QUEUE, Predicate::All),
            story.consumer(EXCLUSIVE, Predicate::All),
        );
        let tx = story.transaction();
        let first = story.hand(queue, consumed, 1, |_| {});
        story.add(Event::Acked(first, Some(tx)));
        let sent = story.message("x", |message| message.transaction = Some(tx));
        story.add(Event::CommitSent(tx));
        story.restart();
        if !broken {
            let arrived = story.hand(exclusive, sent, 1, |_| {});
            story.ack(arrived);
        }
    }),
    (Rule::UncommittedSeen, |story, broken| {
        let tx = story.transaction();
        let key = story.message("q", |message| message.transaction = Some(tx));
        let consumer = story.consumer(QUEUE, Predicate::All);
        if broken {
            story.take(consumer, key, 1);
        }
        story.add(Event::CommitSent(tx));
        story.add(Event::Committed(tx));
        if !broken {
            story.take(consumer, key, 1);
        }
    }),
    (Rule::UncommittedSeen, |story, broken| {
        let tx = story.transaction();
        let key = story.message("q", |message| message.transaction = Some(tx));
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.add(Event::CommitSent(tx));
        story.add(if broken {
            Event::RolledBack(tx)
        } else {
            Event::Committed(tx)
        });
        story.take(consumer, key, 1);
    }),
    (Rule::ExpiredDelivered, |story, broken| {
        let key = story.confirmed("q", |message| message.time_to_live_ms = 50);
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.now_ms += if broken { 60 } else { 20 };
        story.take(consumer, key, 1);
    }),
    (Rule::ExpiredDelivered, |story, broken| {
        // Over a restart the wall clock counts.
        let key = story.confirmed("q", |message| message.time_to_live_ms = 50);
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.add(Event::Stopped);
        story.now_ms += if broken { 60 } else { 20 };
        story.add(Event::Started);
        story.take(consumer, key, 1);
    }),
    (Rule::Early, |story, broken| {
        let key = story.confirmed("q", |message| message.delay_ms = 50);
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.now_ms += if broken { 20 } else { 60 };
        story.take(consumer, key, 1);
    }),
    (Rule::Early, |story, broken| {
        // Seen, and back: from when it was handed out before.
        let key = story.confirmed("limited", |_| {});
        let consumer = story.consumer(LIMITED, Predicate::All);
        for count in 1..=2 {
            story.hand(consumer, key, 1, |handed| {
                (handed.redelivered, handed.count) = (count > 1, count)
            });
            story.now_ms += if broken { 20 } else { 40 };
        }
    }),
    (Rule::Invented, |story, broken| {
        let key = story.confirmed("t.a", |message| message.color = 1 + i64::from(broken));
        let consumer = story.consumer(DURABLE, Predicate::All);
        story.take(consumer, key, 1);
    }),
    (Rule::Invented, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        let only = story.hand(consumer, key, 1, |handed| handed.intact = !broken);
        story.ack(only);
    }),
    (Rule::RejectedDelivered, |story, broken| {
        let key = story.message("q", |_| {});
        story.add(Event::Rejected(key));
        let consumer = story.consumer(QUEUE, Predicate::All);
        if broken {
            story.take(consumer, key, 1);
        }
    }),
    (Rule::Unselected, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::Color(1 + i64::from(broken)));
        story.take(consumer, key, 1);
    }),
    (Rule::MemorySurvived, |story, broken| {
        let key = story.confirmed("q", |message| message.mode = Mode::NonPersistent);
        let consumer = story.consumer(QUEUE, Predicate::All);
        if broken {
            story.restart();
        }
        story.take(consumer, key, 1);
    }),
    (Rule::PurgedDelivered, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        if !broken {
            story.take(consumer, key, 1);
        }
        story.add(Event::PurgeAsked(QUEUE));
        story.add(Event::Purged(QUEUE));
        if broken {
            story.restart();
            story.take(consumer, key, 1);
        }
    }),
    (Rule::NotExclusive, |story, broken| {
        let first = story.consumer(EXCLUSIVE, Predicate::All);
        let second = story.consumer(EXCLUSIVE, Predicate::All);
        let key = story.confirmed("x", |_| {});
        story.take(if broken { second } else { first }, key, 1);
    }),
    (Rule::NotExclusive, |story, broken| {
        let first = story.consumer(EXCLUSIVE, Predicate::All);
        let second = story.consumer(EXCLUSIVE, Predicate::All);
        let key = story.confirmed("x", |_| {});
        if !broken {
            story.add(Event::ConsumerDown(first));
        }
        story.take(second, key, 1);
    }),
    (Rule::WrongCount, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.hand(consumer, key, 1, |_| {});
        let count = if broken { 1 } else { 2 };
        let again = story.hand(consumer, key, 1, |handed| {
            (handed.redelivered, handed.count) = (true, count)
        });
        story.ack(again);
    }),
    (Rule::OverMaximum, |story, broken| {
        let key = story.confirmed("limited", |_| {});
        let consumer = story.consumer(LIMITED, Predicate::All);
        for count in 1..=if broken { 3 } else { 2 } {
            story.hand(consumer, key, 1, |handed| {
                (handed.redelivered, handed.count) = (count > 1, count)
            });
            story.now_ms += 40;
        }
    }),
    (Rule::NumberReused, |story, broken| {
        let keys = [story.confirmed("q", |_| {}), story.confirmed("q", |_| {})];
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.take(consumer, keys[0], 1);
        story.take(consumer, keys[1], if broken { 1 } else { 2 });
    }),
    (Rule::WrongAnswer, |story, broken| {
        let mode = if broken { Mode::Reliable } else { Mode::NonPersistent };
        let key = story.confirmed("q", |message| message.mode = mode);
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.take(consumer, key, 1);
    }),
    (Rule::WrongAnswer, |story, broken| {
        let key = story.confirmed("q", |_| {});
        let consumer = story.consumer(QUEUE, Predicate::All);
        story.take(consumer, key, 1);
        if broken {
            story.add(Event::Rejected(key));
        }
    }),
    (Rule::OlderThanPlace, |story, broken| {
        let key = story.confirmed("t.b", |_| {});
        let since = story.history.events.len();
        story.history.facts.places[DURABLE.0 as usize].since = broken.then_some(since);
        let consumer = story.consumer(DURABLE, Predicate::All);
        story.take(consumer, key, 1);
    }),
];

#[test]
fn a_healthy_story_breaks_no_promise() {
    for (number, (rule, tell)) in STORIES.iter().enumerate() {
        let mut story = Story::new();
        tell(&mut story, false);
        assert_eq!(check(&story.history), [], "story {number}, about {rule:?}");
    }
}

#[test]
fn a_broken_promise_is_found() {
    for (number, (rule, tell)) in STORIES.iter().enumerate() {
        let mut story = Story::new();
        tell(&mut story, true);
        let found: BTreeSet<Rule> = check(&story.history)
            .into_iter()
            .map(|violation| violation.rule)
            .collect();
        assert!(
            found.contains(rule),
            "story {number}: {rule:?} is broken, and {found:?} was found"
        );
    }
}

#[test]
fn every_rule_has_a_story() {
    let told: BTreeSet<Rule> = STORIES.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(told, BTreeSet::from(Rule::ALL));
}
