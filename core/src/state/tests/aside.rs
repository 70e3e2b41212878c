//! What goes to a queue's dead letter queue, and the count of what is destroyed.

use super::*;

// covers: EMS-DEST-A23
#[test]
fn what_exhausts_its_deliveries_or_expires_goes_where_its_queue_wants_it() {
    for named in ["$sys.undelivered", "orders.dead", "nowhere", "orders"] {
        let mut bench = Bench::new();
        let dead = bench.queue("orders.dead", Properties::default());
        let properties = Properties {
            redelivery_max: 2,
            dead_letter: named.to_owned(),
            ..Properties::default()
        };
        let queue = bench.queue("orders", properties);
        // What is not there, and the queue itself, cannot be gone to.
        let to = if named == "orders.dead" { dead } else { UNDELIVERED };
        bench.send(queue, &Message::text("exhausted"));
        bench.send(queue, &Message::text("expired").ttl(10));
        bench.send(queue, &Message::text("fleeting").volatile().ttl(10));
        bench.send(queue, &Message::text("kept").preserved().ttl(10));
        bench.settle();
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        assert_eq!(
            bench.state().release(queue.source(), sequence, true),
            Released::Returned
        );
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        assert_eq!(bench.state().release(queue.source(), sequence, true), Released::Moved);
        bench.advance(11);
        bench.settle();
        let mut found = Vec::new();
        while let Some((text, sequence, delivered)) = bench.take(to.source()) {
            let origin = bench
                .message_at(delivered.position)
                .head
                .destination(delivered.copy)
                .unwrap();
            assert_eq!(bench.state().destination_name(origin), Some((Kind::Queue, "orders")));
            found.push((text, delivered.reason.unwrap()));
            bench.acknowledge(to.source(), sequence);
        }
        found.sort();
        let expected = [
            ("exhausted", Reason::MaxRedelivery),
            ("expired", Reason::Expired),
            ("fleeting", Reason::Expired),
            ("kept", Reason::Expired),
        ];
        assert_eq!(
            found,
            expected.map(|(text, reason)| (text.to_owned(), reason)),
            "{named}"
        );
        assert_eq!(bench.state().destroyed().totals().count(), 0, "{named}");
    }
}

#[test]
fn what_lives_on_another_broker_is_not_gone_to_although_some_of_it_is_here() {
    let mut bench = Bench::new();
    let dead = bench.queue("orders.dead", Properties::default());
    let properties = Properties {
        redelivery_max: 2,
        dead_letter: "orders.dead".to_owned(),
        ..Properties::default()
    };
    let queue = bench.queue("orders", properties);
    for (elsewhere, to, other) in [(true, UNDELIVERED, dead), (false, dead, UNDELIVERED)] {
        bench.state().set_elsewhere(dead, elsewhere);
        bench.send(queue, &Message::text("exhausted"));
        bench.send(queue, &Message::text("expired").ttl(10));
        bench.settle();
        for _ in 0..2 {
            let (_, sequence, _) = bench.take(queue.source()).unwrap();
            bench.state().release(queue.source(), sequence, true);
        }
        bench.advance(11);
        bench.settle();
        assert_eq!(bench.take_all(to.source()).len(), 2, "{elsewhere}");
        assert!(bench.take_all(other.source()).is_empty(), "{elsewhere}");
    }
}

// covers: EMS-DEST-A23
#[test]
fn what_was_put_aside_survives_a_restart_and_is_not_destroyed_there() {
    let mut bench = Bench::new();
    let dead = Properties {
        redelivery_max: 2,
        ..Properties::default()
    };
    let dead = bench.queue("orders.dead", dead);
    let properties = Properties {
        redelivery_max: 2,
        dead_letter: "orders.dead".to_owned(),
        ..Properties::default()
    };
    let queue = bench.queue("orders", properties);
    bench.send(queue, &Message::text("stubborn"));
    bench.settle();
    for place in [queue.source(), dead.source()] {
        for expected in [Released::Returned, Released::Moved] {
            let (_, sequence, _) = bench.take(place).unwrap();
            assert_eq!(bench.state().release(place, sequence, true), expected);
            bench.settle();
        }
    }
    bench.restart();
    assert!(bench.take(queue.source()).is_none());
    assert!(bench.take(dead.source()).is_none());
    let (text, sequence, delivered) = bench.take(UNDELIVERED.source()).unwrap();
    assert_eq!(
        (text.as_str(), delivered.reason),
        ("stubborn", Some(Reason::MaxRedelivery))
    );
    bench.acknowledge(UNDELIVERED.source(), sequence);
    bench.settle();
    bench.restart();
    assert!(bench.take(UNDELIVERED.source()).is_none());
}

#[test]
fn what_is_destroyed_is_counted_by_reason_and_place_and_only_once() {
    let mut bench = Bench::new();
    let properties = Properties {
        redelivery_max: 2,
        messages_max: 3,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    };
    let queue = bench.queue("orders", properties);
    let source = queue.source();
    bench.send(queue, &Message::text("exhausted"));
    bench.settle();
    for _ in 0..2 {
        let (_, sequence, _) = bench.take(source).unwrap();
        bench.state().release(source, sequence, true);
    }
    bench.send(queue, &Message::text("expired").ttl(10));
    bench.send(queue, &Message::text("volatile").volatile().ttl(10));
    bench.settle();
    bench.advance(11);
    for text in ["discarded", "b", "c", "d"] {
        bench.send(queue, &Message::text(text));
    }
    bench.settle();
    let (_, sequence, _) = bench.take(source).unwrap();
    bench.acknowledge(source, sequence);
    bench.state().purge(source, "admin").unwrap();
    bench.send(queue, &Message::text("deleted"));
    bench.settle();
    bench.state().delete_destination(queue, true, "admin").unwrap();
    let mut totals: Vec<_> = bench.state().destroyed().totals().collect();
    totals.sort_unstable();
    let expected = [
        ("DELETED", 1),
        ("DISCARDED", 1),
        ("EXPIRED", 2),
        ("MAX_REDELIVERY", 1),
        ("PURGED", 2),
    ];
    assert_eq!(totals, expected);
    let places: u64 = bench.state().destroyed().places().map(|lost| lost.messages).sum();
    assert_eq!((places, bench.state().destroyed().elsewhere()), (7, 0));
    assert!(bench.state().destroyed().places().all(|lost| lost.name == "orders"));
    bench.settle();
    bench.restart();
    assert_eq!(
        bench.state().destroyed().totals().count(),
        0,
        "nothing is counted again"
    );
}
