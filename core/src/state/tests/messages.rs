//! One queue: order, priorities, redelivery, expiry, delay, the undelivered queue.

use super::*;

// covers: EMS-DEST-A01
#[test]
fn a_queue_hands_each_message_to_one_consumer_and_keeps_it_until_acknowledged() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    for text in ["a", "b", "c"] {
        assert_eq!(bench.send(queue, &Message::text(text)).durability, Durability::Durable);
    }
    assert_eq!(
        bench.state().next_ready(source, &mut Cursor::default(), None),
        Next::Empty,
        "not durable yet"
    );
    bench.settle();
    let (first, sequence, delivered) = bench.take(source).unwrap();
    assert_eq!(
        (first.as_str(), delivered.redelivered, delivered.delivery_count),
        ("a", false, 1)
    );
    assert_eq!(bench.take_all(source), ["b", "c"], "nobody else gets the first");
    assert_eq!(bench.acknowledge(source, sequence).count, 1);
    assert_eq!(bench.acknowledge(source, sequence).count, 0);
    bench.settle();
    bench.restart();
    assert_eq!(
        bench.take_all(source),
        ["b", "c"],
        "what was not acknowledged is there again"
    );
}

#[test]
fn only_the_holder_acknowledges() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("a"));
    bench.settle();
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    let refused = bench
        .state()
        .acknowledge(queue.source(), &[(0, u64::MAX)], |holder| holder == 99, None)
        .unwrap();
    assert_eq!(refused.count, 0);
    let accepted = bench
        .state()
        .acknowledge(queue.source(), &[(sequence, sequence)], |holder| holder == 1, None);
    assert_eq!(accepted.unwrap().count, 1);
}

// covers: EMS-MSG-A15
#[test]
fn higher_priorities_go_first_and_each_is_first_come_first_served() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    for (text, priority) in [("4a", 4), ("0", 0), ("9a", 9), ("4b", 4), ("9b", 9)] {
        bench.send(queue, &Message::text(text).priority(priority));
    }
    bench.send(queue, &Message::text("4c"));
    bench.settle();
    assert_eq!(bench.take_all(queue.source()), ["9a", "9b", "4a", "4b", "4c", "0"]);
}

// covers: EMS-MSG-A16, EMS-MSG-A17, EMS-STORE-A01, EMS-STORE-A02
#[test]
fn persistent_messages_survive_a_restart_and_others_do_not() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let kept = bench.send(queue, &Message::text("kept"));
    assert!(
        kept.wait_for
            .is_some_and(|position| position >= bench.state().committed()),
        "confirmed when on disk"
    );
    let lost = bench.send(queue, &Message::text("lost").volatile());
    assert_eq!((lost.durability, lost.wait_for), (Durability::Accepted, None));
    bench.settle();
    assert!(
        kept.wait_for
            .is_some_and(|position| position < bench.state().committed())
    );
    assert_eq!(bench.texts(queue.source()), ["kept", "lost"]);
    bench.restart_cleanly();
    assert_eq!(bench.texts(queue.source()), ["kept"]);
}

// covers: EMS-MSG-A20
#[test]
fn redelivered_messages_are_flagged_and_counted() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    ["a", "b"].iter().for_each(|text| {
        bench.send(queue, &Message::text(*text));
    });
    bench.settle();
    let (_, a, _) = bench.take(source).unwrap();
    let (_, b, _) = bench.take(source).unwrap();
    assert_eq!(bench.state().release(source, b, false), Released::Returned);
    assert_eq!(bench.state().release(source, a, true), Released::Returned);
    assert_eq!(bench.state().release(source, a, true), Released::NotInFlight);
    let (text, _, delivered) = bench.take(source).unwrap();
    assert_eq!(
        (text.as_str(), delivered.redelivered, delivered.delivery_count),
        ("a", true, 2),
        "in its place, flagged"
    );
    let (text, _, delivered) = bench.take(source).unwrap();
    assert_eq!(
        (text.as_str(), delivered.redelivered, delivered.delivery_count),
        ("b", false, 1),
        "unseen: not counted"
    );
}

// covers: EMS-MSG-A20
#[test]
fn what_was_delivered_before_a_crash_comes_flagged_after_it_and_the_count_starts_again() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    for number in 0..100 {
        bench.send(queue, &Message::text(format!("{number}")));
    }
    bench.settle();
    let taken: Vec<_> = (0..50).map(|_| bench.take(source).unwrap().1).collect();
    bench.state().release(source, taken[0], true);
    bench.restart();
    for number in 0..100 {
        let (_, sequence, delivered) = bench.take(source).unwrap();
        assert!(
            delivered.redelivered || !taken.contains(&sequence),
            "delivered before, not flagged: {sequence}"
        );
        assert_eq!(delivered.delivery_count, 1);
        assert!(!delivered.redelivered || number < 50 + 40, "the watermark is bounded");
    }
}

// covers: EMS-MSG-A20
#[test]
fn a_backlog_that_a_consumer_had_not_reached_is_not_flagged_after_a_crash() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    bench.state().attach(source, false);
    for number in 0..400 {
        bench.send(queue, &Message::text(format!("{number}")));
    }
    bench.settle();
    (0..20).for_each(|_| drop(bench.take(source).unwrap()));
    bench.restart();
    let flags: Vec<bool> = (0..400).map(|_| bench.take(source).unwrap().2.redelivered).collect();
    assert!(flags[..20].iter().all(|flag| *flag), "delivered before");
    let flagged = flags.iter().filter(|flag| **flag).count();
    assert!(flagged < 200, "{flagged} flagged of 20 delivered");
}

#[test]
fn what_is_sent_after_a_crash_does_not_come_flagged() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("before"));
    bench.settle();
    assert_eq!(bench.take(queue.source()).unwrap().0, "before");
    bench.restart();
    bench.send(queue, &Message::text("after"));
    bench.settle();
    let flags: Vec<(String, bool)> = (0..2)
        .map(|_| bench.take(queue.source()).unwrap())
        .map(|(text, _, delivered)| (text, delivered.redelivered))
        .collect();
    assert_eq!(flags, [("before".to_owned(), true), ("after".to_owned(), false)]);
}

#[test]
fn after_a_clean_stop_only_what_was_delivered_is_flagged() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    (0..10).for_each(|number| {
        bench.send(queue, &Message::text(format!("{number}")));
    });
    bench.settle();
    (0..3).for_each(|_| drop(bench.take(queue.source()).unwrap()));
    bench.restart_cleanly();
    let flags: Vec<bool> = (0..10)
        .map(|_| bench.take(queue.source()).unwrap().2.redelivered)
        .collect();
    assert_eq!(flags.iter().filter(|flag| **flag).count(), 3, "{flags:?}");
}

// covers: EMS-DEST-A23, EMS-MSG-A08
#[test]
fn a_message_delivered_too_often_is_destroyed_or_kept_as_undelivered() {
    let mut bench = Bench::new();
    let properties = Properties {
        redelivery_max: 2,
        ..Properties::default()
    };
    let queue = bench.queue("orders", properties);
    let source = queue.source();
    bench.send(
        queue,
        &Message::text("dropped").with("JMS_STERNA_PRESERVE_UNDELIVERED", Value::Text("true")),
    );
    bench.send(queue, &Message::text("kept").preserved());
    bench.settle();
    for round in 1..=2 {
        let (_, first, _) = bench.take(source).unwrap();
        let (_, second, _) = bench.take(source).unwrap();
        let expected = if round < 2 {
            [Released::Returned; 2]
        } else {
            [Released::Destroyed, Released::Moved]
        };
        assert_eq!(
            [
                bench.state().release(source, first, true),
                bench.state().release(source, second, true)
            ],
            expected
        );
    }
    bench.settle();
    assert!(bench.take(source).is_none());
    bench.restart();
    let (text, sequence, delivered) = bench.take(UNDELIVERED.source()).unwrap();
    assert_eq!((text.as_str(), delivered.reason), ("kept", Some(Reason::MaxRedelivery)));
    let origin = bench
        .message_at(delivered.position)
        .head
        .destination(delivered.copy)
        .unwrap();
    assert_eq!(bench.state().destination_name(origin), Some((Kind::Queue, "orders")));
    bench.acknowledge(UNDELIVERED.source(), sequence);
    bench.settle();
    bench.restart();
    assert!(bench.take(UNDELIVERED.source()).is_none());
    assert!(bench.take(source).is_none());
}

// covers: EMS-MSG-A09
#[test]
fn the_undelivered_queue_is_always_there_and_stays() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("kept").preserved().ttl(10));
    bench.settle();
    let undelivered = bench.state().destination(Kind::Queue, "$sys.undelivered").unwrap().id;
    assert_eq!(undelivered, UNDELIVERED);
    assert!(matches!(
        bench.state().delete_destination(UNDELIVERED, true, "admin"),
        Err(StateError::System(_))
    ));
    bench.advance(11);
    bench.settle();
    assert_eq!(bench.texts(UNDELIVERED.source()), ["kept"]);
    assert_eq!(bench.state().purge(UNDELIVERED.source(), "admin").unwrap(), 1);
    bench.settle();
    bench.restart();
    assert!(bench.texts(UNDELIVERED.source()).is_empty());
}

// covers: EMS-MSG-A08, EMS-MSG-A04
#[test]
fn messages_expire_by_the_producers_time_unless_the_destination_has_its_own() {
    let mut bench = Bench::new();
    let plain = bench.queue("plain", Properties::default());
    let own = bench.queue(
        "own",
        Properties {
            expiration_ms: Some(1_000),
            ..Properties::default()
        },
    );
    let never = bench.queue(
        "never",
        Properties {
            expiration_ms: Some(0),
            ..Properties::default()
        },
    );
    for queue in [plain, own, never] {
        bench.send(queue, &Message::text("short").ttl(100));
        bench.send(queue, &Message::text("volatile").ttl(100).volatile());
        bench.send(queue, &Message::text("long"));
    }
    bench.settle();
    let told = |bench: &mut Bench, queue: DestinationId| {
        let found = bench.state().browse(queue.source(), 0).next().unwrap();
        bench.message_at(found.position).head.told_expiration_ms(found.copy)
    };
    assert_eq!(told(&mut bench, plain), bench.now.wall_ms + 100);
    assert_eq!(told(&mut bench, own), 0, "the destination rules");
    bench.advance(100);
    assert_eq!(bench.texts(plain.source()), ["long"]);
    assert_eq!(bench.texts(own.source()).len(), 3);
    bench.settle();
    bench.now.wall_ms += 1_000;
    bench.restart();
    bench.advance(0);
    assert!(bench.texts(own.source()).is_empty(), "the wall clock bridges a restart");
    assert_eq!(bench.texts(never.source()), ["short", "long"]);
}

#[test]
fn what_expires_while_in_flight_may_be_acknowledged_and_is_gone_when_it_comes_back() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    ["a", "b"].iter().for_each(|text| {
        bench.send(queue, &Message::text(*text).ttl(50));
    });
    bench.settle();
    let (_, a, _) = bench.take(source).unwrap();
    let (_, b, _) = bench.take(source).unwrap();
    bench.advance(60);
    assert_eq!(bench.acknowledge(source, a).count, 1);
    assert_eq!(bench.state().release(source, b, false), Released::Destroyed);
    assert_eq!(bench.state().source(source).unwrap().statistics.messages, 0);
}

// covers: EMS-MSG-A03
#[test]
fn a_delayed_message_is_not_ready_before_its_time_also_over_a_restart() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    bench.send(queue, &Message::text("later").delay(5_000));
    bench.send(queue, &Message::text("now"));
    bench.settle();
    assert_eq!(bench.take_all(source), ["now"]);
    bench.advance(1_000);
    bench.restart();
    bench.advance(3_999);
    assert_eq!(bench.take_all(source), ["now"]);
    bench.state().attach(source, false);
    bench.state().take_dirty();
    assert_eq!(bench.state().next_deadline(), Some(bench.now.monotonic_ms + 1));
    bench.advance(1);
    assert_eq!(bench.state().take_dirty(), [source], "the engine is told");
    assert_eq!(bench.take_all(source), ["later"]);
}

// covers: EMS-CLI-A20
#[test]
fn a_selector_finds_its_messages_in_a_backlog_and_what_comes_back() {
    let mut bench = Bench::new();
    bench.options.log.cache_bytes = 64 * 1024;
    bench.restart();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    for number in 0..300 {
        let text = format!("{number}:{}", "x".repeat(2_000));
        bench.send(queue, &Message::text(text).with("number", Value::Int(number)));
        bench.settle();
    }
    let wanted = Selector::parse("number = 5 OR number = 250 OR number > 298").unwrap();
    let mut cursor = Cursor::default();
    bench.state().attach(source, true);
    let mut found = Vec::new();
    while let Some((text, sequence, _)) = bench.take_with(source, &mut cursor, Some(&wanted)) {
        found.push((text.split(':').next().unwrap().to_owned(), sequence));
    }
    assert_eq!(
        found.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>(),
        ["5", "250", "299"]
    );
    bench.state().release(source, found[1].1, true);
    let (text, _, delivered) = bench.take_with(source, &mut cursor, Some(&wanted)).unwrap();
    assert!(
        text.starts_with("250:") && delivered.redelivered,
        "the cursor goes back for it"
    );
    // Header parts are in memory now: another consumer's selector needs no read of the log.
    let other = Selector::parse("number = 7").unwrap();
    let next = bench.state().next_ready(source, &mut Cursor::default(), Some(&other));
    assert!(matches!(next, Next::Ready { .. }), "{next:?}");
    // So are those of what comes from now on, once it was looked at and the log's cache has lost it.
    for number in 300..400 {
        let text = format!("{number}:{}", "x".repeat(2_000));
        bench.send(queue, &Message::text(text).with("number", Value::Int(number)));
        bench.settle();
        let wanted = Selector::parse("number = -1").unwrap();
        assert!(bench.take_with(source, &mut cursor, Some(&wanted)).is_none());
    }
    let newer = Selector::parse("number = 301").unwrap();
    let next = bench.state().next_ready(source, &mut Cursor::default(), Some(&newer));
    assert!(matches!(next, Next::Ready { .. }), "{next:?}");
    // With the last consumer that has a selector the memory is given back.
    bench.state().detach(source, true);
    let next = bench.state().next_ready(source, &mut Cursor::default(), Some(&newer));
    assert!(matches!(next, Next::NeedsRead(_)), "{next:?}");
}

#[test]
fn messages_sent_again_are_stored_once_also_after_a_restart() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let producer = bench.state().next_incarnation().unwrap();
    for sequence in 1..=3 {
        bench
            .send_as(queue, &Message::text(format!("{sequence}")), (producer, sequence), None)
            .unwrap();
    }
    let again = bench.send_as(queue, &Message::text("3"), (producer, 3), None).unwrap();
    assert!(
        again.duplicate && again.wait_for.is_some(),
        "confirmed again, when durable"
    );
    bench.settle();
    bench.restart();
    for sequence in 2..=4 {
        let sent = bench
            .send_as(queue, &Message::text(format!("{sequence}")), (producer, sequence), None)
            .unwrap();
        assert_eq!(sent.duplicate, sequence < 4);
    }
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["1", "2", "3", "4"]);
    assert_eq!(
        bench.state().producer_knowledge(producer, queue),
        ProducerKnowledge::Known(4)
    );
}

#[test]
fn incarnations_are_never_given_twice() {
    let mut bench = Bench::new();
    let before: Vec<u64> = (0..10).map(|_| bench.state().next_incarnation().unwrap()).collect();
    bench.restart();
    assert!((0..10).all(|_| !before.contains(&bench.state().next_incarnation().unwrap())));
}

// covers: EMS-STORE-A01, EMS-STORE-B16, EMS-PERF-B03
#[test]
fn volatile_messages_beyond_the_budget_spill_and_come_back_in_order() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let source = queue.source();
    for number in 0..3_000 {
        bench.send(
            queue,
            &Message::text(format!("{number}:{}", "x".repeat(1_000))).volatile(),
        );
        if number % 100 == 0 {
            bench.settle();
        }
    }
    bench.settle();
    let (messages, memory_bytes, _) = bench.state().volatile_use();
    assert_eq!(messages, 3_000);
    assert!(memory_bytes < 1_400_000, "{memory_bytes}");
    for number in 0..3_000 {
        let (text, sequence, _) = bench.take(source).unwrap();
        assert!(text.starts_with(&format!("{number}:")));
        bench.acknowledge(source, sequence);
    }
    bench.settle();
    assert_eq!(bench.state().volatile_use().0, 0);
    use crate::log::disk::Disk as _;
    let left: Vec<_> = bench
        .disk
        .list()
        .unwrap()
        .into_iter()
        .filter(|name| name.ends_with(".spill"))
        .collect();
    assert!(left.len() <= 1, "{left:?}");
    bench.restart();
    assert!(
        bench.disk.list().unwrap().iter().all(|name| !name.ends_with(".spill")),
        "wiped at start"
    );
}

#[test]
fn a_moved_message_is_handed_out_when_its_move_is_durable() {
    let mut bench = Bench::new();
    let (from, to) = (
        bench.queue("from", Properties::default()),
        bench.queue("to", Properties::default()),
    );
    let accepted = bench.send(from, &Message::text("a"));
    assert!(accepted.wait_for.is_some());
    bench.settle();
    bench
        .state()
        .move_message(from.source(), 1, to.source(), "admin")
        .unwrap();
    let next = bench.state().next_ready(to.source(), &mut Cursor::default(), None);
    assert_eq!(next, Next::Empty, "it may still be in its old place after a crash");
    bench.settle();
    assert_eq!(bench.take_all(to.source()), ["a"]);
}

#[test]
fn a_selector_that_missed_more_returns_than_are_remembered_looks_from_the_front_again() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    for number in 0..300 {
        bench.send(
            queue,
            &Message::text(format!("{number}")).volatile().with("n", Value::Int(1)),
        );
    }
    // What it does not want lies behind them: having seen that, it looks no more at what lies before.
    bench.send(queue, &Message::text("other").volatile().with("n", Value::Int(2)));
    bench.settle();
    let selector = Selector::parse("n = 1").unwrap();
    let mut cursor = Cursor::default();
    bench.state().attach(queue.source(), true);
    let mut taken = Vec::new();
    while let Some((_, sequence, _)) = bench.take_with(queue.source(), &mut cursor, Some(&selector)) {
        taken.push(sequence);
    }
    assert_eq!(taken.len(), 300);
    for sequence in taken {
        bench.state().release(queue.source(), sequence, false);
    }
    let (text, ..) = bench.take_with(queue.source(), &mut cursor, Some(&selector)).unwrap();
    assert_eq!(text, "0");
}
