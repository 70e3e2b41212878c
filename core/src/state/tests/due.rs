//! What its senders delayed and that falls due while the broker is down meets the limits at the start.

use super::limits::limited;
use super::*;
use crate::state::catalogue_record::kinds;
use crate::state::checkpoint_record::Item;
use crate::state::codec::Decoder;
use crate::state::due::DueHead;
use crate::state::records::check;

const TX: Tx = Tx { owner: 5, number: 1 };

/// How the broker goes down.
const STOPS: [fn(&mut Bench); 2] = [Bench::restart, Bench::restart_cleanly];

/// Down for so long, and a start of which the first tick has come.
fn down(bench: &mut Bench, ms: u64, stop: fn(&mut Bench)) {
    bench.settle();
    bench.now.wall_ms += ms;
    // Another machine's, maybe.
    bench.now.monotonic_ms = 1_000;
    stop(bench);
    bench.advance(0);
    bench.settle();
}

// covers: EMS-MSG-A08, EMS-DEST-A24, EMS-DEST-A64
#[test]
fn what_falls_due_while_the_broker_is_down_meets_the_limits_of_its_queue_at_the_start() {
    for stop in STOPS {
        for (policy, held, aside) in [
            (OverflowPolicy::Default, &["gone", "kept", "a", "b"][..], &[][..]),
            (OverflowPolicy::DiscardOld, &["kept", "b"], &[]),
            (OverflowPolicy::RejectIncoming, &["a", "b"], &["kept"]),
        ] {
            let mut bench = Bench::new();
            let queue = bench.queue("orders", limited(2, 0, policy));
            bench.send(queue, &Message::text("gone").delay(100));
            bench.send(queue, &Message::text("kept").delay(100).preserved());
            bench.send(queue, &Message::text("a"));
            bench.send(queue, &Message::text("b"));
            down(&mut bench, 100, stop);
            for _ in 0..2 {
                assert_eq!(bench.texts(queue.source()), held, "{policy:?}");
                assert_eq!(bench.texts(UNDELIVERED.source()), aside, "{policy:?}");
                let statistics = bench.state().source(queue.source()).unwrap().statistics;
                assert_eq!(statistics.delayed_messages, 0);
                // What was decided stays so.
                down(&mut bench, 100, stop);
            }
        }
    }
}

// covers: EMS-DEST-A24, EMS-DEST-A64
#[test]
fn what_falls_due_while_the_broker_is_down_meets_the_limits_of_its_topic_at_the_start() {
    for stop in STOPS {
        for (policy, held) in [
            (OverflowPolicy::Default, ["a", "b"]),
            (OverflowPolicy::DiscardOld, ["late", "b"]),
            (OverflowPolicy::RejectIncoming, ["a", "b"]),
        ] {
            let mut bench = Bench::new();
            let topic = bench.topic("news", limited(2, 0, policy));
            let full = bench.subscribe("d", "news", |_| {});
            bench.send(topic, &Message::text("late").delay(100));
            bench.send(topic, &Message::text("a"));
            bench.send(topic, &Message::text("b"));
            down(&mut bench, 100, stop);
            assert_eq!(bench.texts(full), held, "{policy:?}");
        }
    }
}

#[test]
fn what_is_due_first_has_the_room() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(2, 0, OverflowPolicy::RejectIncoming));
    bench.send(queue, &Message::text("later").delay(200));
    bench.send(queue, &Message::text("sooner").delay(100));
    bench.send(queue, &Message::text("a"));
    down(&mut bench, 300, Bench::restart);
    assert_eq!(bench.texts(queue.source()), ["sooner", "a"]);
}

// covers: EMS-DEST-A64
#[test]
fn what_came_in_when_it_was_due_meets_no_limit_at_a_start() {
    for stop in STOPS {
        for checkpoint in [false, true] {
            let mut bench = Bench::new();
            let queue = bench.queue("orders", Properties::default());
            bench.send(queue, &Message::text("first").delay(100));
            bench.send(queue, &Message::text("second").delay(100));
            bench.settle();
            bench.advance(100);
            bench.settle();
            if checkpoint {
                bench.state().checkpoint().unwrap();
            }
            // Narrower than what it holds.
            bench.queues[0].1 = limited(1, 0, OverflowPolicy::RejectIncoming);
            for _ in 0..3 {
                down(&mut bench, 1_000, stop);
                assert_eq!(bench.texts(queue.source()), ["first", "second"]);
            }
            // Of what is due later none has room.
            bench.queues[0].1 = limited(3, 0, OverflowPolicy::RejectIncoming);
            down(&mut bench, 0, stop);
            bench.send(queue, &Message::text("third").delay(100));
            bench.send(queue, &Message::text("fourth").delay(100));
            down(&mut bench, 1_000, stop);
            assert_eq!(bench.texts(queue.source()), ["first", "second", "third"]);
        }
    }
}

#[test]
fn a_store_that_does_not_say_what_came_in_has_all_of_it() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(1, 0, OverflowPolicy::RejectIncoming));
    // As one from before, which had no such record.
    bench.state().tables.delays.met(1);
    bench.send(queue, &Message::text("a"));
    bench.send(queue, &Message::text("late").delay(100));
    down(&mut bench, 1_000, Bench::restart);
    assert_eq!(bench.texts(queue.source()), ["a", "late"]);
    // From now on it says.
    bench.send(queue, &Message::text("later").delay(100));
    down(&mut bench, 1_000, Bench::restart);
    assert_eq!(bench.texts(queue.source()), ["a", "late"]);
}

// covers: EMS-TX-A04
#[test]
fn what_was_due_at_its_commit_came_in_with_it_and_the_rest_meets_the_limits_at_the_start() {
    for prepares in [false, true] {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", limited(2, 0, OverflowPolicy::RejectIncoming));
        bench.send_in(TX, queue, &Message::text("due").delay(100)).unwrap();
        bench.send_in(TX, queue, &Message::text("later").delay(200)).unwrap();
        bench.advance(100);
        if prepares {
            let xid = Xid {
                format: 1,
                global: vec![1],
                branch: vec![],
            };
            bench.state().prepare(TX, xid.clone()).unwrap();
            down(&mut bench, 0, Bench::restart);
            bench.state().commit_prepared(&xid).unwrap();
        } else {
            bench.state().commit(TX).unwrap();
        }
        bench.send(queue, &Message::text("a"));
        bench.settle();
        bench.queues[0].1 = limited(1, 0, OverflowPolicy::RejectIncoming);
        down(&mut bench, 1_000, Bench::restart);
        assert_eq!(bench.texts(queue.source()), ["due", "a"], "{prepares}");
    }
}

// covers: EMS-DEST-A64
#[test]
fn what_fell_due_waits_at_a_start_until_the_limits_of_its_queue_are_known() {
    let mut bench = Bench::new();
    let properties = limited(1, 0, OverflowPolicy::RejectIncoming);
    let name = DestinationName::parse("made").unwrap();
    let made = bench
        .state()
        .ensure_destination(Kind::Queue, &name, Origin::Dynamic, properties.clone());
    let queue = made.unwrap();
    bench.send(queue, &Message::text("late").delay(100));
    bench.send(queue, &Message::text("a"));
    down(&mut bench, 100, Bench::restart);
    assert_eq!(bench.state().take_wanted(10), [queue]);
    assert!(bench.state().note_properties(queue, Some(properties)));
    bench.advance(0);
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["a"]);
}

#[test]
fn who_copies_the_log_knows_what_came_in() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("first").delay(100));
    bench.settle();
    bench.advance(100);
    bench.settle();
    let dump = bench.state().dump();
    assert!(dump.contains(&format!("up to {}", bench.now.wall_ms)), "{dump}");
    bench.restart();
    assert_eq!(bench.state().dump(), dump);
}

#[test]
fn a_due_record_and_item_are_read_as_they_were_written() {
    for until_ms in [0, 1, 1_700_000_000_000, u64::MAX] {
        let mut bytes = Vec::new();
        DueHead { until_ms }.encode(&mut bytes);
        assert_eq!(check(kinds::DUE, &bytes), Ok(()));
        assert_eq!(DueHead::decode(&bytes), Ok(DueHead { until_ms }));
        for cut in 0..bytes.len() {
            assert!(DueHead::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let item = Item::Due(until_ms);
        let mut bytes = Vec::new();
        item.encode(&mut bytes).unwrap();
        assert_eq!(Item::decode(&mut Decoder::new(&bytes)), Ok(item));
    }
}
