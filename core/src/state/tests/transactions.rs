//! Transactions over sends and acknowledgements, local and prepared.

use super::*;

const TX: Tx = Tx { owner: 5, number: 1 };

fn xid(number: u8) -> Xid {
    Xid {
        format: 1,
        global: vec![number],
        branch: vec![],
    }
}

// covers: EMS-TX-A03
#[test]
fn nothing_is_seen_before_the_commit_and_everything_after_it() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let other = bench.queue("other", Properties::default());
    bench.send(queue, &Message::text("taken"));
    bench.settle();
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    for number in 0..3 {
        bench.send_in(TX, other, &Message::text(format!("{number}"))).unwrap();
    }
    bench.send_in(TX, other, &Message::text("volatile").volatile()).unwrap();
    let taken = bench
        .state()
        .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(TX))
        .unwrap();
    assert_eq!((taken.count, bench.state().transaction_size(TX)), (1, 5));
    bench.send(other, &Message::text("outside"));
    bench.settle();
    assert_eq!(bench.texts(other.source()), ["outside"]);
    let committed = bench.state().commit(TX).unwrap();
    assert!(committed.wait_for.is_some());
    assert_eq!(
        bench.texts(other.source()),
        ["outside"],
        "not before the commit is durable"
    );
    bench.settle();
    assert_eq!(bench.take_all(other.source()).len(), 5);
    assert!(bench.texts(queue.source()).is_empty());
    assert!(matches!(bench.state().commit(TX), Err(StateError::NoSuchTransaction)));
    bench.restart();
    assert_eq!(bench.texts(other.source()), ["0", "1", "2", "outside"]);
    assert!(bench.texts(queue.source()).is_empty());
}

// covers: EMS-TX-A05
#[test]
fn a_rollback_leaves_nothing_and_what_was_taken_comes_again() {
    let mut bench = Bench::new();
    let properties = Properties {
        redelivery_max: 2,
        ..Properties::default()
    };
    let queue = bench.queue("orders", properties);
    bench.send(queue, &Message::text("taken"));
    bench.settle();
    for round in 1..=2 {
        let (_, sequence, delivered) = bench.take(queue.source()).unwrap();
        assert_eq!(delivered.delivery_count, round);
        bench.send_in(TX, queue, &Message::text("never")).unwrap();
        bench
            .state()
            .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(TX))
            .unwrap();
        bench.state().rollback(TX).unwrap();
        assert!(bench.take(queue.source()).is_none(), "still with its holder");
        let expected = if round == 1 {
            Released::Returned
        } else {
            Released::Destroyed
        };
        assert_eq!(bench.state().release(queue.source(), sequence, true), expected);
    }
    bench.settle();
    bench.restart();
    assert!(bench.texts(queue.source()).is_empty());
    assert_eq!(bench.state().source(queue.source()).unwrap().statistics.messages, 0);
}

// covers: EMS-TX-A04
#[test]
fn delay_and_life_count_from_the_send() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send_in(TX, queue, &Message::text("delayed").delay(100)).unwrap();
    bench.send_in(TX, queue, &Message::text("short").ttl(100)).unwrap();
    bench.advance(60);
    bench.state().commit(TX).unwrap();
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["short"]);
    bench.advance(40);
    assert_eq!(bench.take_all(queue.source()), ["delayed"]);
}

#[test]
fn an_open_transaction_ends_with_the_process() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send_in(TX, queue, &Message::text("never")).unwrap();
    bench.settle();
    bench.restart();
    assert!(bench.texts(queue.source()).is_empty());
    let statistics = bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!(statistics.pending_messages, 0, "nothing waits for a decision");
    assert!(matches!(bench.state().commit(TX), Err(StateError::NoSuchTransaction)));
    bench.send(queue, &Message::text("after"));
    bench.settle();
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["after"]);
}

#[test]
fn a_prepared_transaction_outlives_restarts_until_it_is_decided() {
    for commit in [true, false] {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", Properties::default());
        bench.send(queue, &Message::text("taken"));
        bench.settle();
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        bench.send_in(TX, queue, &Message::text("sent")).unwrap();
        bench
            .state()
            .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(TX))
            .unwrap();
        bench.state().prepare(TX, xid(1)).unwrap();
        bench.settle();
        for _ in 0..3 {
            bench.restart();
            assert_eq!(bench.state().prepared().len(), 1);
            assert!(bench.take(queue.source()).is_none(), "neither sent nor given back");
        }
        if commit {
            bench.state().commit_prepared(&xid(1)).unwrap();
        } else {
            bench.state().rollback_prepared(&xid(1)).unwrap();
        }
        bench.settle();
        bench.restart();
        assert!(bench.state().prepared().is_empty());
        let (text, _, delivered) = bench.take(queue.source()).unwrap();
        assert_eq!(text, if commit { "sent" } else { "taken" });
        assert!(commit || delivered.redelivered);
        assert!(bench.take(queue.source()).is_none());
    }
}

// covers: EMS-TX-A05, EMS-DEST-A23
#[test]
fn each_rollback_of_a_prepared_transaction_counts_as_a_delivery_and_the_last_one_puts_aside() {
    for restarts in [false, true] {
        let mut bench = Bench::new();
        let properties = Properties {
            redelivery_max: 3,
            ..Properties::default()
        };
        let queue = bench.queue("orders", properties);
        bench.send(queue, &Message::text("kept").preserved());
        bench.send(queue, &Message::text("dropped"));
        bench.settle();
        for round in 1..=3 {
            for _ in 0..2 {
                let (_, sequence, delivered) = bench.take(queue.source()).unwrap();
                assert_eq!((delivered.delivery_count, delivered.redelivered), (round, round > 1));
                bench
                    .state()
                    .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(TX))
                    .unwrap();
            }
            bench.state().prepare(TX, xid(1)).unwrap().unwrap();
            bench.settle();
            if restarts {
                bench.restart();
            }
            bench.state().rollback_prepared(&xid(1)).unwrap();
            bench.settle();
            if restarts {
                bench.restart();
            }
        }
        for _ in 0..2 {
            assert!(bench.take(queue.source()).is_none(), "it was delivered often enough");
            assert_eq!(bench.state().source(queue.source()).unwrap().statistics.messages, 0);
            assert_eq!(bench.texts(UNDELIVERED.source()), ["kept"]);
            bench.restart();
        }
    }
}

#[test]
fn a_message_sent_earlier_and_committed_later_takes_its_place() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send_in(TX, queue, &Message::text("first")).unwrap();
    for number in 0..5 {
        bench.send(queue, &Message::text(format!("{number}")));
    }
    bench.settle();
    assert_eq!(bench.take_all(queue.source()), ["0", "1", "2", "3", "4"]);
    bench.state().attach(queue.source(), false);
    bench.state().take_dirty();
    bench.state().commit(TX).unwrap();
    bench.settle();
    assert_eq!(bench.state().take_dirty(), [queue.source()]);
    assert_eq!(bench.take_all(queue.source()), ["first"]);
}

// covers: EMS-TX-A01
#[test]
fn a_consumer_with_a_selector_sees_what_is_committed_behind_where_it_has_looked() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let tx = Tx { owner: 1, number: 1 };
    let wanted = Message::text("late").volatile().with("n", Value::Int(1));
    bench.send_in(tx, queue, &wanted).unwrap();
    bench.send(queue, &Message::text("not wanted"));
    bench.settle();
    let selector = Selector::parse("n = 1").unwrap();
    let mut cursor = Cursor::default();
    bench.state().attach(queue.source(), true);
    assert!(bench.take_with(queue.source(), &mut cursor, Some(&selector)).is_none());
    bench.state().commit(tx).unwrap();
    bench.settle();
    let (text, ..) = bench.take_with(queue.source(), &mut cursor, Some(&selector)).unwrap();
    assert_eq!(text, "late");
}

#[test]
fn what_expired_while_a_transaction_was_prepared_does_not_come_back() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("a").ttl(100));
    bench.settle();
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench
        .state()
        .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(TX))
        .unwrap();
    bench.state().prepare(TX, xid(1)).unwrap();
    bench.settle();
    bench.advance(200);
    bench.state().rollback_prepared(&xid(1)).unwrap();
    bench.settle();
    bench.advance(1);
    bench.settle();
    let statistics = bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!((statistics.messages, statistics.expired_total), (0, 1));
}

#[test]
fn a_purge_leaves_to_a_transaction_what_it_has_acknowledged() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("taken"));
    bench.send(queue, &Message::text("waiting"));
    bench.settle();
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench
        .state()
        .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(TX))
        .unwrap();
    assert_eq!(bench.state().purge(queue.source(), "admin").unwrap(), 1);
    bench.state().rollback(TX).unwrap();
    bench.state().release(queue.source(), sequence, true);
    bench.settle();
    assert_eq!(bench.take_all(queue.source()), ["taken"]);
}

#[test]
fn what_a_commit_brings_in_makes_older_messages_go_where_the_oldest_are_discarded() {
    let mut bench = Bench::new();
    let properties = Properties {
        messages_max: 2,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    };
    let queue = bench.queue("orders", properties);
    for text in ["a", "b"] {
        bench.send(queue, &Message::text(text));
    }
    for text in ["c", "d"] {
        bench.send_in(TX, queue, &Message::text(text)).unwrap();
    }
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["a", "b"]);
    bench.state().commit(TX).unwrap();
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["c", "d"]);
}

// The second commit has nothing to write; the first one waits for its record.
#[test]
fn a_commit_that_needs_no_record_does_not_overtake_one_that_does() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    let [first, second] = [1, 2].map(|number| Tx { owner: 1, number });
    bench.send_in(first, queue, &Message::text("logged")).unwrap();
    bench.send_in(first, queue, &Message::text("first").volatile()).unwrap();
    bench
        .send_in(second, queue, &Message::text("second").volatile())
        .unwrap();
    bench.send(queue, &Message::text("other"));
    bench.settle();
    // Somebody has looked beyond all of them, and nothing stands there.
    let (_, sequence, _) = bench.take(source).unwrap();
    bench.acknowledge(source, sequence);
    bench.settle();
    assert_eq!(
        bench.state().next_ready(source, &mut Cursor::default(), None),
        Next::Empty
    );
    bench.state().commit(first).unwrap();
    bench.state().commit(second).unwrap();
    assert_eq!(
        bench.state().next_ready(source, &mut Cursor::default(), None),
        Next::Empty,
        "the first is not durable yet"
    );
    bench.settle();
    assert_eq!(bench.take_all(source), ["logged", "first", "second"]);
}

#[test]
fn what_a_transaction_held_is_counted_no_more_when_it_is_decided() {
    let mut bench = Bench::new();
    let (queue, other) = (
        bench.queue("orders", Properties::default()),
        bench.queue("other", Properties::default()),
    );
    for commits in [true, false] {
        bench.send(queue, &Message::text("taken"));
        bench.settle();
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        bench.send_in(TX, other, &Message::text("sent")).unwrap();
        bench
            .state()
            .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(TX))
            .unwrap();
        bench.state().prepare(TX, xid(1)).unwrap().unwrap();
        let pending = bench
            .state()
            .source(other.source())
            .unwrap()
            .statistics
            .pending_messages;
        let in_flight = bench
            .state()
            .source(queue.source())
            .unwrap()
            .statistics
            .in_flight_messages;
        assert_eq!((pending, in_flight), (1, 1));
        if commits {
            bench.state().commit_prepared(&xid(1)).unwrap();
        } else {
            bench.state().rollback_prepared(&xid(1)).unwrap();
        }
        bench.settle();
        for id in [queue, other] {
            let counted = &bench.state().source(id.source()).unwrap().statistics;
            assert_eq!((counted.pending_messages, counted.pending_bytes), (0, 0), "{commits}");
            assert_eq!(
                (counted.in_flight_messages, counted.in_flight_bytes),
                (0, 0),
                "{commits}"
            );
        }
    }
}

// What it acknowledges was purged while that was on its way: its commit has nothing left to log.
#[test]
fn a_commit_of_what_a_purge_has_ended_does_not_overtake_the_purge() {
    let mut bench = Bench::new();
    let [taken, sent] = ["taken", "sent"].map(|name| bench.queue(name, Properties::default()));
    bench.send(taken, &Message::text("old"));
    bench.settle();
    let (_, sequence, _) = bench.take(taken.source()).unwrap();
    bench.settle();
    bench.state().purge(taken.source(), "admin").unwrap();
    bench
        .state()
        .acknowledge(taken.source(), &[(sequence, sequence)], |_| true, Some(TX))
        .unwrap();
    bench.send_in(TX, sent, &Message::text("new").volatile()).unwrap();
    let committed = bench.state().commit(TX).unwrap();
    assert!(
        committed.wait_for.is_some(),
        "a crash now would bring back what it took"
    );
    assert_eq!(
        bench.state().next_ready(sent.source(), &mut Cursor::default(), None),
        Next::Empty
    );
    bench.settle();
    assert_eq!(bench.take_all(sent.source()), ["new"]);
    bench.restart();
    assert!(bench.texts(taken.source()).is_empty());
}
