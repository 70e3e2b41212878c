//! The redelivery delay: what came back waits, in every way of coming back, and over restarts.

use proptest::prelude::*;

use super::*;
use crate::sim::seeds::cases;
use crate::state::catalogue_record::kinds;
use crate::state::checkpoint_record::Item;
use crate::state::codec::Decoder;
use crate::state::records::check;
use crate::state::returning::ReturnHead;
use crate::state::terminal_record::TERMINAL_MESSAGES_MAX;
use crate::state::{BrowseNext, View};

const DELAY_MS: u64 = 20_000;

fn delaying(change: impl FnOnce(&mut Properties)) -> Properties {
    let mut properties = Properties {
        redelivery_delay_ms: DELAY_MS,
        ..Properties::default()
    };
    change(&mut properties);
    properties
}

/// A bench with a queue that has these messages.
fn bench_with(properties: Properties, texts: &[&'static str]) -> (Bench, DestinationId) {
    let mut bench = Bench::on(SimDisk::new(1), super::compaction::compacting());
    let queue = bench.queue("orders", properties);
    for text in texts {
        bench.send(queue, &Message::text(*text));
    }
    bench.settle();
    (bench, queue)
}

/// Takes the next message and gives it back as seen.
fn fail_one(bench: &mut Bench, queue: DestinationId) -> Released {
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench.state().release(queue.source(), sequence, true)
}

fn viewed(bench: &mut Bench, view: View) -> Vec<String> {
    let mut cursor = bench.state().browse_view(view);
    let mut texts = Vec::new();
    loop {
        match bench.state().browse_next(&mut cursor, None) {
            BrowseNext::Found(_, delivered) => texts.push(bench.text_at(delivered.position)),
            BrowseNext::NeedsRead => bench.settle(),
            BrowseNext::End => return texts,
        }
    }
}

// covers: EMS-DEST-A32
#[test]
fn what_was_seen_and_came_back_waits_and_then_comes_first_again() {
    let (mut bench, queue) = bench_with(delaying(|_| {}), &["a", "b"]);
    assert_eq!(fail_one(&mut bench, queue), Released::Returned);
    assert_eq!(bench.texts(queue.source()), ["b"], "others go ahead");
    bench.advance(DELAY_MS - 1);
    assert_eq!(bench.texts(queue.source()), ["b"]);
    bench.advance(1);
    let (text, sequence, delivered) = bench.take(queue.source()).unwrap();
    assert_eq!(
        (text.as_str(), delivered.delivery_count, delivered.redelivered),
        ("a", 2, true)
    );
    bench.acknowledge(queue.source(), sequence);
    assert_eq!(bench.take_all(queue.source()), ["b"]);
}

/// Takes the next message and gives it back, to wait so long.
fn put_off(bench: &mut Bench, source: SourceId, delay_ms: u64) -> Released {
    let (_, sequence, _) = bench.take(source).unwrap();
    bench.state().release_for(source, sequence, true, delay_ms)
}

// covers: EMS-DEST-A32
#[test]
fn whoever_gives_a_message_back_may_have_it_wait_longer_than_its_queue_says_and_not_shorter() {
    for (own_ms, asked_ms, waits_ms) in [
        (0, 700, 700),
        (DELAY_MS, 7, DELAY_MS),
        (DELAY_MS, 2 * DELAY_MS, 2 * DELAY_MS),
        (0, u64::MAX, 8 * 3_600_000),
    ] {
        let properties = Properties {
            redelivery_delay_ms: own_ms,
            ..Properties::default()
        };
        let (mut bench, queue) = bench_with(properties, &["a", "b"]);
        assert_eq!(put_off(&mut bench, queue.source(), asked_ms), Released::Returned);
        bench.settle();
        bench.restart();
        bench.advance(waits_ms - 1);
        assert_eq!(bench.texts(queue.source()), ["b"], "{own_ms} {asked_ms}");
        bench.advance(1);
        assert_eq!(bench.texts(queue.source()), ["a", "b"], "{own_ms} {asked_ms}");
    }
}

#[test]
fn a_subscriber_may_put_a_message_off_as_well() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", Properties::default());
    let durable = bench.subscribe("d", "news", |_| {});
    bench.send(topic, &Message::text("a"));
    bench.send(topic, &Message::text("b"));
    bench.settle();
    assert_eq!(put_off(&mut bench, durable, 700), Released::Returned);
    bench.settle();
    bench.restart();
    assert_eq!(bench.texts(durable), ["b"]);
    bench.advance(700);
    assert_eq!(bench.texts(durable), ["a", "b"]);
}

#[test]
fn what_nobody_saw_comes_again_at_once() {
    let (mut bench, queue) = bench_with(delaying(|_| {}), &["a"]);
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench.state().release(queue.source(), sequence, false);
    assert_eq!(bench.texts(queue.source()), ["a"]);
}

// covers: EMS-DEST-A33
#[test]
fn what_waits_counts_towards_no_limit_and_is_seen_in_one_place() {
    for overflow in [
        OverflowPolicy::Default,
        OverflowPolicy::RejectIncoming,
        OverflowPolicy::DiscardOld,
    ] {
        let properties = delaying(|properties| {
            properties.messages_max = 1;
            properties.overflow = overflow;
        });
        let (mut bench, queue) = bench_with(properties, &["a"]);
        fail_one(&mut bench, queue);
        bench.send(queue, &Message::text("b"));
        bench.settle();
        assert_eq!(viewed(&mut bench, View::Returning), ["a"]);
        let statistics = bench.state().source(queue.source()).unwrap().statistics;
        assert_eq!((statistics.counted().0, statistics.returned_messages), (1, 1));
        assert_eq!(
            bench.try_send(queue, &Message::text("c")).is_ok(),
            overflow == OverflowPolicy::DiscardOld
        );
        bench.settle();
        bench.advance(DELAY_MS);
        bench.settle();
        assert_eq!(viewed(&mut bench, View::Returning).len(), 0);
        let expected = if overflow == OverflowPolicy::DiscardOld {
            "c"
        } else {
            "b"
        };
        assert_eq!(
            bench.texts(queue.source()),
            ["a", expected],
            "it has its place, full or not"
        );
        let statistics = bench.state().source(queue.source()).unwrap().statistics;
        assert_eq!((statistics.counted().0, statistics.returned_bytes), (2, 0));
    }
}

// covers: EMS-DEST-A33
#[test]
fn a_purge_and_a_deletion_take_what_waits_along() {
    let (mut bench, queue) = bench_with(delaying(|_| {}), &["a", "b"]);
    fail_one(&mut bench, queue);
    assert_eq!(bench.state().purge(queue.source(), "admin").unwrap(), 2);
    bench.settle();
    assert_eq!(viewed(&mut bench, View::Returning).len(), 0);
    let statistics = bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!((statistics.messages, statistics.returned_messages), (0, 0));
    bench.send(queue, &Message::text("c"));
    bench.settle();
    fail_one(&mut bench, queue);
    assert_eq!(bench.state().held_messages(queue), 1, "it is not empty");
    assert!(bench.state().delete_destination(queue, false, "admin").is_err());
    assert_eq!(bench.state().delete_destination(queue, true, "admin").unwrap(), 1);
    bench.advance(DELAY_MS);
    assert_eq!(viewed(&mut bench, View::Returning).len(), 0);
}

// covers: EMS-DEST-A32
#[test]
fn the_wait_outlives_restarts_checkpoints_and_compaction() {
    for with_checkpoint in [false, true] {
        let (mut bench, queue) = bench_with(delaying(|_| {}), &["a", "b", "c"]);
        fail_one(&mut bench, queue);
        bench.advance(DELAY_MS / 2);
        fail_one(&mut bench, queue);
        bench.settle();
        if with_checkpoint {
            bench.state().checkpoint().unwrap();
            // What lies below the checkpoint goes with its segments.
            for _ in 0..100 {
                bench.send(queue, &Message::text("x".repeat(10_000)));
                bench.settle();
                let (_, sequence, _) = bench.take(queue.source()).unwrap();
                bench.acknowledge(queue.source(), sequence);
            }
            bench.settle();
        }
        for _ in 0..2 {
            bench.restart();
            assert_eq!(viewed(&mut bench, View::Returning), ["a", "b"]);
        }
        bench.advance(DELAY_MS / 2);
        assert_eq!(viewed(&mut bench, View::Returning), ["b"]);
        let (text, _, delivered) = bench.take(queue.source()).unwrap();
        assert_eq!((text.as_str(), delivered.redelivered), ("a", true));
        bench.advance(DELAY_MS / 2);
        bench.restart_cleanly();
        assert_eq!(
            viewed(&mut bench, View::Returning).len(),
            0,
            "its time came while it ran"
        );
    }
}

#[test]
fn a_wait_ends_by_the_wall_clock_while_nobody_runs() {
    let (mut bench, queue) = bench_with(delaying(|_| {}), &["a"]);
    fail_one(&mut bench, queue);
    bench.settle();
    bench.now.wall_ms += DELAY_MS;
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["a"]);
}

#[test]
fn the_monotonic_clock_decides_while_it_runs() {
    let (mut bench, queue) = bench_with(delaying(|_| {}), &["a"]);
    fail_one(&mut bench, queue);
    bench.now.wall_ms += 10 * DELAY_MS;
    bench.advance(DELAY_MS - 1);
    assert!(bench.texts(queue.source()).is_empty());
    bench.now.wall_ms -= 20 * DELAY_MS;
    bench.advance(1);
    assert_eq!(bench.texts(queue.source()), ["a"]);
}

// covers: EMS-TX-A05
#[test]
fn a_rollback_makes_wait_what_was_acknowledged_in_it() {
    const TX: Tx = Tx { owner: 1, number: 1 };
    for is_prepared in [false, true] {
        let (mut bench, queue) = bench_with(delaying(|_| {}), &["a"]);
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        let ranges = [(sequence, sequence)];
        bench
            .state()
            .acknowledge(queue.source(), &ranges, |_| true, Some(TX))
            .unwrap();
        if is_prepared {
            let xid = Xid {
                format: 1,
                global: vec![1],
                branch: vec![1],
            };
            bench.state().prepare(TX, xid.clone()).unwrap();
            bench.settle();
            bench.state().rollback_prepared(&xid).unwrap();
        } else {
            bench.state().rollback(TX).unwrap();
            assert_eq!(
                bench.state().release(queue.source(), sequence, true),
                Released::Returned
            );
        }
        bench.settle();
        bench.restart();
        assert_eq!(viewed(&mut bench, View::Returning), ["a"], "prepared: {is_prepared}");
        bench.advance(DELAY_MS);
        assert_eq!(bench.take_all(queue.source()), ["a"]);
    }
}

#[test]
fn the_last_allowed_delivery_and_a_life_that_ends_do_not_wait() {
    let (mut bench, queue) = bench_with(delaying(|properties| properties.redelivery_max = 2), &["a"]);
    assert_eq!(fail_one(&mut bench, queue), Released::Returned);
    bench.advance(DELAY_MS);
    assert_eq!(fail_one(&mut bench, queue), Released::Destroyed);
    bench.send(queue, &Message::text("short").ttl(DELAY_MS / 2).preserved());
    bench.settle();
    assert_eq!(fail_one(&mut bench, queue), Released::Returned);
    bench.advance(DELAY_MS / 2);
    bench.settle();
    assert_eq!(bench.texts(UNDELIVERED.source()), ["short"]);
    let statistics = bench.state().source(queue.source()).unwrap().statistics;
    assert_eq!(
        (
            statistics.messages,
            statistics.returned_messages,
            statistics.returned_bytes
        ),
        (0, 0, 0)
    );
}

// covers: EMS-DEST-A63
#[test]
fn what_its_sender_delayed_is_not_what_came_back() {
    let (mut bench, queue) = bench_with(delaying(|_| {}), &["a"]);
    fail_one(&mut bench, queue);
    bench.send(queue, &Message::text("later").delay(DELAY_MS * 2));
    let mut in_memory = Message::text("in memory");
    in_memory.mode = 1;
    bench.send(queue, &in_memory);
    bench.settle();
    fail_one(&mut bench, queue);
    assert_eq!(viewed(&mut bench, View::Returning), ["a", "in memory"]);
    assert_eq!(viewed(&mut bench, View::Delayed(queue)), ["later"]);
    bench.restart();
    assert_eq!(viewed(&mut bench, View::Returning), ["a"]);
    bench.advance(DELAY_MS);
    assert_eq!(bench.texts(queue.source()), ["a"]);
    assert_eq!(viewed(&mut bench, View::Delayed(queue)), ["later"]);
    fail_one(&mut bench, queue);
    assert_eq!(bench.state().purge_delayed(queue, "admin").unwrap(), 1);
    bench.settle();
    bench.restart();
    assert_eq!(viewed(&mut bench, View::Delayed(queue)).len(), 0);
    assert_eq!(viewed(&mut bench, View::Returning), ["a"]);
}

#[test]
fn a_wait_that_was_decided_stands_whatever_is_configured_later() {
    let (mut bench, queue) = bench_with(delaying(|_| {}), &["a", "b"]);
    fail_one(&mut bench, queue);
    let name = DestinationName::parse("orders").unwrap();
    let plain = Properties::default();
    bench
        .state()
        .ensure_destination(Kind::Queue, &name, Origin::Static, plain)
        .unwrap();
    assert_eq!(fail_one(&mut bench, queue), Released::Returned);
    assert_eq!(bench.texts(queue.source()), ["b"]);
    bench.advance(DELAY_MS);
    assert_eq!(bench.texts(queue.source()), ["a", "b"]);
}

// covers: EMS-DEST-A63
#[test]
fn a_topics_delayed_messages_are_seen_once_and_without_those_of_others() {
    let mut bench = Bench::new();
    let (news, other) = (
        bench.topic("news", Properties::default()),
        bench.topic("other", Properties::default()),
    );
    bench.subscribe("one", "news", |_| {});
    bench.subscribe("all", ">", |_| {});
    bench.send(news, &Message::text("later").delay(1_000));
    bench.send(other, &Message::text("elsewhere").delay(1_000));
    bench.send(news, &Message::text("now"));
    bench.settle();
    assert_eq!(viewed(&mut bench, View::Delayed(news)), ["later"]);
    assert_eq!(viewed(&mut bench, View::Delayed(other)), ["elsewhere"]);
    bench.advance(1_000);
    assert_eq!(viewed(&mut bench, View::Delayed(news)).len(), 0);
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn returns(source in any::<u64>(), until_ms in any::<u64>(), begin in 1..(1_u64 << 62), counts in (0..9_u64, 1..4_u64)) {
        let (count, step) = counts;
        let ranges = (0..count).map(|index| (begin + index * step * 10, begin + index * step * 10 + index)).collect();
        let head = ReturnHead { source: SourceId(source), until_ms, ranges };
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        prop_assert_eq!(check(kinds::RETURN, &bytes), Ok(()));
        prop_assert_eq!(ReturnHead::decode(&bytes), Ok(head.clone()));
        let item = Item::Returning(head);
        let mut bytes = Vec::new();
        item.encode(&mut bytes).unwrap();
        let mut decoder = Decoder::new(&bytes);
        prop_assert_eq!(Item::decode(&mut decoder), Ok(item));
        prop_assert!(decoder.is_at_end());
    }

    #[test]
    fn returns_of_more_than_one_record_may_name_are_refused(first in any::<u64>(), extra in 0..u64::MAX / 2) {
        let last = first.saturating_add(TERMINAL_MESSAGES_MAX as u64).saturating_add(extra);
        prop_assume!(last - first >= TERMINAL_MESSAGES_MAX as u64);
        let head = ReturnHead { source: SourceId(1), until_ms: 1, ranges: vec![(first, last)] };
        prop_assert!(head.encode(&mut Vec::new()).is_err());
    }
}

/// As at the end of a session that had much in hand; each of them waits over a restart, in whatever order they came back.
#[test]
fn what_comes_back_together_is_one_record() {
    let records = |order: fn(&mut Vec<u64>)| {
        let (mut bench, queue) = bench_with(delaying(|_| {}), &["x"; 200]);
        let mut taken: Vec<u64> =
            std::iter::from_fn(|| bench.take(queue.source()).map(|(_, sequence, _)| sequence)).collect();
        bench.settle();
        order(&mut taken);
        let before = bench.state().log().records_written();
        for sequence in taken {
            assert_eq!(
                bench.state().release(queue.source(), sequence, true),
                Released::Returned
            );
        }
        bench.settle();
        let written = bench.state().log().records_written() - before;
        bench.restart();
        assert_eq!(bench.texts(queue.source()), Vec::<String>::new());
        assert_eq!(viewed(&mut bench, View::Returning).len(), 200);
        written
    };
    assert_eq!(records(|_| {}), 1);
    assert_eq!(records(|taken| taken.reverse()), 200);
}
