//! Deleting a topic: what durable subscriptions to exactly it hold keeps it, and goes with it where that is asked for, also over
//! a restart, and whatever is in hand or in transactions.

use super::*;
use crate::state::error::StateError;
use crate::state::terminal_record::Reason;

const TX: Tx = Tx { owner: 1, number: 1 };

fn xid() -> Xid {
    Xid {
        format: 1,
        global: vec![1],
        branch: Vec::new(),
    }
}

/// A topic with durable subscriptions to it, one of them shared, and to a pattern, and with one that is not durable.
struct Told {
    bench: Bench,
    topic: DestinationId,
    durables: [SourceId; 2],
    pattern: SourceId,
    passing: SourceId,
}

impl Told {
    fn new() -> Self {
        let mut bench = Bench::new();
        let topic = bench.topic("news.a", Properties::default());
        let durables = [
            bench.subscribe("own", "news.a", |_| {}),
            bench.subscribe("shared", "news.a", |wanted| wanted.shared = true),
        ];
        let pattern = bench.subscribe("all", "news.*", |_| {});
        let passing = bench.subscribe("passing", "news.a", |wanted| wanted.durable = false);
        Self {
            bench,
            topic,
            durables,
            pattern,
            passing,
        }
    }

    fn publish(&mut self, text: &str) {
        self.bench.send(self.topic, &Message::text(text));
        self.bench.settle();
    }

    fn delete(&mut self, with_messages: bool) -> Result<u64, StateError> {
        let deleted = self
            .bench
            .state()
            .delete_destination(self.topic, with_messages, "admin");
        if deleted.is_ok() {
            self.bench.topics.clear();
        }
        deleted
    }

    fn in_durables(&mut self) -> usize {
        let [own, shared] = self.durables;
        self.bench.texts(own).len() + self.bench.texts(shared).len()
    }

    fn is_there(&mut self) -> bool {
        self.bench.state().destination(Kind::Topic, "news.a").is_some()
    }

    fn counted(&mut self, source: SourceId) -> Vec<(&'static str, u64)> {
        let state = self.bench.state();
        let counted = state.witness.all(&state.tables);
        let found = counted.into_iter().find(|(id, _)| *id == source);
        found.map_or_else(Vec::new, |(_, counted)| counted.told().collect())
    }
}

fn in_use(refused: Result<u64, StateError>) -> Option<u64> {
    match refused {
        Err(StateError::InUse { messages, .. }) => Some(messages),
        _ => None,
    }
}

#[test]
fn a_topic_whose_durable_subscriptions_hold_messages_is_not_deleted_without_them() {
    let mut told = Told::new();
    told.publish("one");
    told.publish("two");
    assert_eq!(in_use(told.delete(false)), Some(4), "in each of the two");
    assert!(told.is_there() && told.in_durables() == 4);
    told.bench.restart();
    assert!(told.is_there() && told.in_durables() == 4);
    // What others hold of it keeps nothing.
    for durable in told.durables {
        told.bench.state().purge(durable, "admin").unwrap();
    }
    told.publish("three");
    for durable in told.durables {
        let (_, sequence, _) = told.bench.take(durable).unwrap();
        assert!(in_use(told.delete(false)).is_some(), "in hand it is held, too");
        told.bench.acknowledge(durable, sequence);
    }
    assert_eq!(told.bench.texts(told.pattern).len(), 3);
    assert_eq!(told.delete(false).unwrap(), 0);
}

#[test]
fn with_its_messages_a_topic_goes_for_good_and_the_subscriptions_stay() {
    let mut told = Told::new();
    told.publish("one");
    told.publish("two");
    told.bench.take(told.durables[0]).unwrap();
    assert_eq!(told.delete(true).unwrap(), 4);
    assert_eq!((told.is_there(), told.in_durables()), (false, 0));
    assert_eq!(told.bench.texts(told.pattern), ["one", "two"], "it gets others, too");
    assert_eq!(told.bench.texts(told.passing), ["one", "two"]);
    let lost: Vec<_> = told.bench.state().destroyed().totals().collect();
    assert_eq!(lost, [(DELETED, 4)], "as what goes with its queue");
    for durable in told.durables {
        assert_eq!(
            told.counted(durable),
            [("arrived", 2), (Reason::Deleted.name(), 2)]
                .into_iter()
                .chain((durable == told.durables[0]).then_some(("delivered", 1)))
                .collect::<Vec<_>>()
        );
    }
    told.bench.settle();
    told.bench.restart();
    assert_eq!((told.is_there(), told.in_durables()), (false, 0));
    assert_eq!(told.bench.texts(told.pattern), ["one", "two"]);
    // Made again it feeds the same subscriptions.
    told.topic = told.bench.topic("news.a", Properties::default());
    told.publish("three");
    assert_eq!(told.in_durables(), 2);
    told.bench.state().checkpoint().unwrap();
    told.bench.settle();
    told.bench.restart();
    assert_eq!(told.in_durables(), 2);
}

#[test]
fn what_is_not_logged_and_what_is_delayed_go_with_their_topic() {
    let mut told = Told::new();
    told.bench.send(told.topic, &Message::text("volatile").volatile());
    told.bench.send(told.topic, &Message::text("later").delay(60_000));
    told.bench.settle();
    assert_eq!(in_use(told.delete(false)), Some(4));
    assert_eq!(told.delete(true).unwrap(), 4);
    told.bench.settle();
    told.bench.advance(120_000);
    assert_eq!(told.in_durables(), 0);
    told.bench.restart();
    assert_eq!(told.in_durables(), 0);
}

#[test]
fn what_an_open_transaction_sent_to_a_deleted_topic_does_not_come() {
    let mut told = Told::new();
    let other = told.bench.queue("other", Properties::default());
    let (topic, own) = (told.topic, told.durables[0]);
    told.bench.send_in(TX, topic, &Message::text("sent")).unwrap();
    told.bench.send_in(TX, other, &Message::text("besides")).unwrap();
    assert_eq!(in_use(told.delete(false)), Some(2));
    assert_eq!(told.delete(true).unwrap(), 0, "nothing was stored");
    let refused = told.bench.state().commit(TX);
    assert!(
        matches!(&refused, Err(StateError::RolledBack(why)) if why.contains("news.a")),
        "{refused:?}"
    );
    told.bench.settle();
    assert_eq!((told.in_durables(), told.bench.texts(other.source()).len()), (0, 0));
    let statistics = told.bench.state().source(own).unwrap().statistics;
    assert_eq!((statistics.messages, statistics.pending_messages), (0, 0));
    // Of others nothing is refused.
    told.bench.send_in(TX, other, &Message::text("fine")).unwrap();
    told.bench.state().commit(TX).unwrap();
    told.bench.settle();
    told.bench.restart();
    assert_eq!((told.in_durables(), told.bench.texts(other.source()).len()), (0, 1));
}

#[test]
fn what_an_open_transaction_acknowledged_of_a_deleted_topic_is_not_back() {
    for commits in [true, false] {
        let mut told = Told::new();
        told.publish("taken");
        let own = told.durables[0];
        let (_, sequence, _) = told.bench.take(own).unwrap();
        let range = [(sequence, sequence)];
        told.bench.state().acknowledge(own, &range, |_| true, Some(TX)).unwrap();
        assert_eq!(told.delete(true).unwrap(), 2);
        if commits {
            let committed = told.bench.state().commit(TX).unwrap();
            assert!(
                committed.wait_for.is_some(),
                "a crash now would bring back what it took"
            );
        } else {
            told.bench.state().rollback(TX).unwrap();
        }
        told.bench.settle();
        assert_eq!(told.in_durables(), 0, "{commits}");
        let ended = told
            .counted(own)
            .into_iter()
            .filter(|(what, _)| *what == "ACKNOWLEDGED");
        assert_eq!(ended.count(), 0, "it has ended once");
        told.bench.restart();
        assert_eq!(told.in_durables(), 0, "{commits}");
    }
}

#[test]
fn a_prepared_transaction_keeps_what_it_was_promised_when_its_topic_is_deleted() {
    for commits in [true, false] {
        let mut told = Told::new();
        told.publish("taken");
        let (topic, own) = (told.topic, told.durables[0]);
        let (_, sequence, _) = told.bench.take(own).unwrap();
        let range = [(sequence, sequence)];
        told.bench.state().acknowledge(own, &range, |_| true, Some(TX)).unwrap();
        told.bench.send_in(TX, topic, &Message::text("sent")).unwrap();
        told.bench.state().prepare(TX, xid()).unwrap();
        assert_eq!(told.delete(true).unwrap(), 1, "what the other one holds");
        told.bench.settle();
        told.bench.restart();
        assert!(!told.is_there());
        if commits {
            told.bench.state().commit_prepared(&xid()).unwrap();
        } else {
            told.bench.state().rollback_prepared(&xid()).unwrap();
        }
        told.bench.settle();
        told.bench.restart();
        let [own, shared] = told.durables;
        let held = (told.bench.texts(own), told.bench.texts(shared));
        let wanted: (&[&str], &[&str]) = if commits {
            (&["sent"], &["sent"])
        } else {
            (&["taken"], &[])
        };
        assert_eq!(
            (held.0.iter().map(String::as_str).collect::<Vec<_>>(), held.1.len()),
            (wanted.0.to_vec(), wanted.1.len())
        );
    }
}

#[test]
fn what_a_commit_has_just_brought_goes_with_its_topic() {
    let mut told = Told::new();
    let topic = told.topic;
    told.bench.send_in(TX, topic, &Message::text("sent")).unwrap();
    told.bench.state().commit(TX).unwrap();
    // The commit is on its way to the disk.
    assert_eq!(told.delete(true).unwrap(), 2);
    told.bench.settle();
    assert_eq!(told.in_durables(), 0);
    told.bench.restart();
    assert_eq!(told.in_durables(), 0);
}

#[test]
fn a_deletion_that_was_not_written_has_not_happened() {
    let mut told = Told::new();
    told.publish("one");
    told.delete(true).unwrap();
    told.bench.restart();
    assert_eq!((told.is_there(), told.in_durables()), (true, 2));
}

#[test]
fn what_a_deleted_topic_left_is_rewritten_as_gone() {
    let mut told = Told::new();
    for number in 0..70 {
        told.publish(&format!("{number} {}", "x".repeat(8_000)));
    }
    let filler = told.bench.queue("filler", Properties::default());
    told.bench.state().purge(told.pattern, "admin").unwrap();
    told.bench.state().purge(told.passing, "admin").unwrap();
    let before = told.bench.state().log().disk_use().0;
    assert_eq!(told.delete(true).unwrap(), 140);
    for _ in 0..3 {
        for _ in 0..40 {
            told.bench.send(filler, &Message::text("x".repeat(8_000)));
            told.bench.settle();
        }
        told.bench.state().purge(filler.source(), "admin").unwrap();
        told.bench.state().checkpoint().unwrap();
        told.bench.settle();
    }
    assert!(told.bench.state().log().disk_use().0 < before);
    told.bench.restart();
    assert_eq!((told.is_there(), told.in_durables()), (false, 0));
}
