//! What its sender delayed and is due before its transaction is committed meets the limits at the commit.

use super::limits::limited;
use super::*;

const TX: Tx = Tx { owner: 5, number: 1 };

fn xid() -> Xid {
    Xid {
        format: 1,
        global: vec![1],
        branch: vec![],
    }
}

/// Of a queue with room for two, one message waits there, and two that are delayed were sent in a transaction.
fn filled(overflow: OverflowPolicy, waiting: usize) -> (Bench, DestinationId) {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(2, 0, overflow));
    for number in 0..waiting {
        bench.send(queue, &Message::text(format!("waits {number}")));
    }
    for number in 0..2 {
        let message = Message::text(format!("late {number}")).delay(100);
        bench.send_in(TX, queue, &message).unwrap();
    }
    bench.settle();
    (bench, queue)
}

fn rolled_back(result: Result<impl Sized, StateError>) -> String {
    match result {
        Err(StateError::RolledBack(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it took effect"),
    }
}

// covers: EMS-TX-A04, EMS-TX-A02, EMS-DEST-A24
#[test]
fn a_commit_fails_as_a_whole_if_what_is_due_by_then_finds_no_room() {
    for policy in [OverflowPolicy::Default, OverflowPolicy::RejectIncoming] {
        for prepares in [false, true] {
            let (mut bench, queue) = filled(policy, 1);
            let other = bench.queue("other", Properties::default());
            bench.send(other, &Message::text("taken"));
            bench.send_in(TX, other, &Message::text("beside it")).unwrap();
            bench.settle();
            let (_, taken, _) = bench.take(other.source()).unwrap();
            let set = [(taken, taken)];
            let acknowledged = bench.state().acknowledge(other.source(), &set, |_| true, Some(TX));
            acknowledged.unwrap();
            bench.advance(100);
            let why = if prepares {
                rolled_back(bench.state().prepare(TX, xid()))
            } else {
                rolled_back(bench.state().commit(TX))
            };
            assert!(why.contains("orders") && why.contains("maxMessages"), "{why}");
            bench.settle();
            assert_eq!(bench.state().prepared(), []);
            for restart in [false, true] {
                if restart {
                    bench.restart();
                }
                assert_eq!(bench.texts(queue.source()), ["waits 0"], "{policy:?} {prepares}");
                assert_eq!(bench.texts(other.source()), ["taken"], "{policy:?} {prepares}");
                let statistics = bench.state().source(queue.source()).unwrap().statistics;
                assert_eq!(statistics.pending_messages, 0);
            }
        }
    }
}

// covers: EMS-TX-A04
#[test]
fn a_commit_takes_effect_if_what_is_due_by_then_finds_room() {
    for policy in [OverflowPolicy::Default, OverflowPolicy::RejectIncoming] {
        let (mut bench, queue) = filled(policy, 1);
        bench.advance(100);
        let (_, first, _) = bench.take(queue.source()).unwrap();
        bench.acknowledge(queue.source(), first);
        bench.state().commit(TX).unwrap();
        bench.settle();
        for restart in [false, true] {
            if restart {
                bench.restart();
            }
            assert_eq!(bench.texts(queue.source()), ["late 0", "late 1"], "{policy:?}");
        }
    }
}

#[test]
fn what_is_not_due_by_the_commit_or_over_by_then_takes_no_room_there() {
    let (mut bench, queue) = filled(OverflowPolicy::RejectIncoming, 2);
    bench.advance(99);
    bench.state().commit(TX).unwrap();
    let statistics = bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!((statistics.messages, statistics.delayed_messages), (4, 2));

    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(2, 0, OverflowPolicy::Default));
    bench.send(queue, &Message::text("waits"));
    bench
        .send_in(TX, queue, &Message::text("over").delay(50).ttl(80))
        .unwrap();
    bench.send_in(TX, queue, &Message::text("late").delay(100)).unwrap();
    bench.settle();
    bench.advance(100);
    bench.state().commit(TX).unwrap();
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["waits", "late"]);
}

// covers: EMS-TX-A04, EMS-DEST-A24
#[test]
fn what_is_due_by_the_commit_has_the_oldest_discarded_where_that_is_the_policy() {
    let (mut bench, queue) = filled(OverflowPolicy::DiscardOld, 2);
    bench.advance(100);
    bench.state().commit(TX).unwrap();
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["late 0", "late 1"]);

    // What consumers hold is never discarded, so there is no room to make.
    let (mut bench, queue) = filled(OverflowPolicy::DiscardOld, 2);
    assert_eq!(bench.take_all(queue.source()).len(), 2);
    bench.advance(100);
    rolled_back(bench.state().commit(TX));
    assert_eq!(bench.state().source(queue.source()).unwrap().statistics.messages, 2);
}

// covers: EMS-TX-A04, EMS-DEST-A19
#[test]
fn bytes_and_what_others_sent_in_open_transactions_count_at_the_commit() {
    let size = Message::text("late 0").encode().len() as u64;
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(0, 2 * size - 1, OverflowPolicy::Default));
    bench.send(queue, &Message::text("waits!"));
    bench.send_in(TX, queue, &Message::text("late 0").delay(100)).unwrap();
    bench.advance(100);
    let why = rolled_back(bench.state().commit(TX));
    assert!(why.contains("maxBytes"), "{why}");

    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(2, 0, OverflowPolicy::Default));
    let other = Tx { owner: 6, number: 1 };
    bench.send(queue, &Message::text("waits"));
    bench.send_in(other, queue, &Message::text("theirs")).unwrap();
    bench.send_in(TX, queue, &Message::text("late").delay(100)).unwrap();
    bench.advance(100);
    rolled_back(bench.state().commit(TX));
    bench.state().commit(other).unwrap();
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["waits", "theirs"]);
}

// covers: EMS-TX-A04, EMS-DEST-A64
#[test]
fn a_full_subscriber_of_what_is_due_fails_the_commit_as_it_refuses_a_delayed_message() {
    for policy in [
        OverflowPolicy::Default,
        OverflowPolicy::DiscardOld,
        OverflowPolicy::RejectIncoming,
    ] {
        let mut bench = Bench::new();
        let topic = bench.topic("news", limited(1, 0, policy));
        let full = bench.subscribe("d", "news", |_| {});
        bench.send(topic, &Message::text("waits"));
        bench.send_in(TX, topic, &Message::text("late").delay(100)).unwrap();
        bench.settle();
        bench.advance(100);
        let committed = bench.state().commit(TX);
        if policy == OverflowPolicy::DiscardOld {
            committed.unwrap();
        } else {
            rolled_back(committed);
        }
        bench.settle();
        let held = if policy == OverflowPolicy::DiscardOld {
            "late"
        } else {
            "waits"
        };
        assert_eq!(bench.texts(full), [held], "{policy:?}");
    }
}

// covers: EMS-TX-A04, EMS-TX-A02
#[test]
fn what_falls_due_in_a_prepared_transaction_keeps_no_commit_from_taking_effect() {
    for restart in [false, true] {
        let (mut bench, queue) = filled(OverflowPolicy::RejectIncoming, 2);
        let aside = Message::text("kept").delay(100).preserved();
        let own = bench.queue("own", limited(1, 0, OverflowPolicy::RejectIncoming));
        bench.send(own, &Message::text("waits"));
        bench.send_in(TX, own, &aside).unwrap();
        bench.state().prepare(TX, xid()).unwrap();
        bench.settle();
        bench.advance(100);
        bench.state().commit_prepared(&xid()).unwrap();
        bench.settle();
        if restart {
            bench.restart();
        }
        assert_eq!(bench.texts(queue.source()), ["waits 0", "waits 1"]);
        assert_eq!(bench.texts(own.source()), ["waits"]);
        assert_eq!(bench.texts(UNDELIVERED.source()), ["kept"]);
    }
}

#[test]
fn what_was_due_when_it_was_prepared_comes_in_with_the_commit() {
    let (mut bench, queue) = filled(OverflowPolicy::RejectIncoming, 0);
    bench.advance(100);
    bench.state().prepare(TX, xid()).unwrap();
    bench.settle();
    let refused = bench.try_send(queue, &Message::text("no room"));
    assert!(refused.is_err(), "what is prepared holds its room");
    bench.state().commit_prepared(&xid()).unwrap();
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["late 0", "late 1"]);
}
