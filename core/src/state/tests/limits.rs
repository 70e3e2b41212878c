//! Limits and what happens at them.

use super::*;

pub(super) fn limited(messages_max: u64, bytes_max: u64, overflow: OverflowPolicy) -> Properties {
    Properties {
        messages_max,
        bytes_max,
        overflow,
        ..Properties::default()
    }
}

// covers: EMS-DEST-A19, EMS-DEST-A21, EMS-DEST-A24
#[test]
fn a_full_queue_refuses_and_counts_what_is_in_flight() {
    for policy in [OverflowPolicy::Default, OverflowPolicy::RejectIncoming] {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", limited(2, 0, policy));
        bench.send(queue, &Message::text("a"));
        bench.send(queue, &Message::text("b").volatile());
        bench.settle();
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        let refused = bench.try_send(queue, &Message::text("c"));
        assert!(
            matches!(
                refused,
                Err(PublishError::DestinationFull {
                    limit: "maxMessages",
                    ..
                })
            ),
            "{refused:?}"
        );
        bench.acknowledge(queue.source(), sequence);
        bench.send(queue, &Message::text("d"));
        bench.settle();
        bench.restart();
        assert_eq!(
            bench.texts(queue.source()),
            ["d"],
            "the volatile one is lost, the refused one never came"
        );
    }
    let mut bench = Bench::new();
    let size = Message::text("a").encode().len() as u64;
    let queue = bench.queue("orders", limited(0, size * 2, OverflowPolicy::Default));
    bench.send(queue, &Message::text("a"));
    bench.send(queue, &Message::text("b"));
    let refused = bench.try_send(queue, &Message::text("c"));
    assert!(matches!(
        refused,
        Err(PublishError::DestinationFull { limit: "maxBytes", .. })
    ));
}

// covers: EMS-DEST-A24
#[test]
fn discard_old_drops_the_oldest_by_age_and_never_what_is_handed_out() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(3, 0, OverflowPolicy::DiscardOld));
    bench.send(queue, &Message::text("handed out"));
    bench.settle();
    let (_, held, _) = bench.take(queue.source()).unwrap();
    bench.send(queue, &Message::text("oldest").priority(9));
    for text in ["b", "c", "d"] {
        bench.send(queue, &Message::text(text));
    }
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["handed out", "c", "d"]);
    assert_eq!(
        bench.state().source(queue.source()).unwrap().statistics.discarded_total,
        2
    );
    bench.acknowledge(queue.source(), held);
    bench.settle();
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["c", "d"]);
}

// covers: EMS-DEST-A24, EMS-DEST-A63
#[test]
fn room_for_what_is_due_is_not_made_by_dropping_what_is_delayed() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(2, 0, OverflowPolicy::DiscardOld));
    bench.send(queue, &Message::text("delayed").delay(100));
    for text in ["a", "b", "c"] {
        bench.send(queue, &Message::text(text));
    }
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["b", "c"]);
    bench.advance(100);
    bench.settle();
    // Now it is one of those that have room here, for which the oldest goes.
    assert_eq!(bench.texts(queue.source()), ["delayed", "c"]);
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["delayed", "c"]);
}

#[test]
fn what_expires_as_something_falls_due_ends_once_and_leaves_its_room() {
    for asks_for_a_topic in [false, true] {
        let mut bench = Bench::new();
        let properties = limited(2, 0, OverflowPolicy::DiscardOld);
        let (to, source) = if asks_for_a_topic {
            (bench.topic("news", properties), bench.subscribe("d", "news", |_| {}))
        } else {
            let queue = bench.queue("orders", properties);
            (queue, queue.source())
        };
        bench.send(to, &Message::text("short").ttl(100));
        bench.send(to, &Message::text("stays"));
        bench.send(to, &Message::text("late").delay(100));
        bench.settle();
        bench.advance(100);
        bench.settle();
        assert_eq!(bench.texts(source), ["stays", "late"]);
        let statistics = bench.state().source(source).unwrap().statistics;
        assert_eq!((statistics.expired_total, statistics.discarded_total), (1, 0));
    }
}

// covers: EMS-DEST-A24
#[test]
fn what_falls_due_in_a_full_queue_drops_nothing_that_a_consumer_holds() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(1, 0, OverflowPolicy::DiscardOld));
    bench.send(queue, &Message::text("delayed").delay(100));
    bench.send(queue, &Message::text("held"));
    bench.settle();
    let (_, held, _) = bench.take(queue.source()).unwrap();
    bench.advance(100);
    bench.settle();
    bench.acknowledge(queue.source(), held);
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["delayed"]);
}

// covers: EMS-DEST-A19
#[test]
fn an_uploaded_body_counts_against_the_queues_bytes() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(0, 1000, OverflowPolicy::Default));
    let bytes = Message::text("a").encode();
    let view = MessageView::parse(&bytes).unwrap();
    let incoming = Incoming {
        view: &view,
        uploaded: &[7; 1000],
        incarnation: 0,
        sequence: 0,
        connection: 7,
        client_id: "me",
        user: "",
        transaction: None,
        may_be_again: false,
    };
    let refused = bench.state().publish(queue, &incoming);
    assert!(matches!(
        refused,
        Err(PublishError::DestinationFull { limit: "maxBytes", .. })
    ));
}

// covers: EMS-DEST-A20, EMS-DEST-A24
#[test]
fn topics_are_limited_for_each_subscription() {
    for (policy, refused, full, other) in [
        (OverflowPolicy::Default, false, vec!["a"], vec!["a", "b"]),
        (OverflowPolicy::DiscardOld, false, vec!["b"], vec!["a", "b"]),
        (OverflowPolicy::RejectIncoming, true, vec!["a"], vec!["a"]),
    ] {
        let mut bench = Bench::new();
        let topic = bench.topic("news", limited(1, 0, policy));
        let slow = bench.subscribe("slow", "news", |_| {});
        let quick = bench.subscribe("", "news", |_| {});
        let picky = bench.subscribe("", "news", |wanted| wanted.selector = selector("never = 1"));
        bench.send(topic, &Message::text("a"));
        bench.settle();
        let (mut got, sequence, _) = bench.take(quick).unwrap();
        bench.acknowledge(quick, sequence);
        let mut quickly = vec![std::mem::take(&mut got)];
        assert_eq!(
            bench.try_send(topic, &Message::text("b")).is_err(),
            refused,
            "{policy:?}"
        );
        bench.settle();
        quickly.extend(bench.take_all(quick));
        assert_eq!(
            (bench.texts(slow), quickly),
            (
                full.iter().map(|s| (*s).to_owned()).collect(),
                other.iter().map(|s| (*s).to_owned()).collect()
            ),
            "{policy:?}"
        );
        assert!(bench.texts(picky).is_empty());
    }
}

// covers: EMS-DEST-A24, EMS-DEST-A63
#[test]
fn a_delayed_message_to_a_full_subscription_is_refused() {
    for policy in [
        OverflowPolicy::Default,
        OverflowPolicy::DiscardOld,
        OverflowPolicy::RejectIncoming,
    ] {
        let mut bench = Bench::new();
        let topic = bench.topic("news", limited(1, 0, policy));
        let durable = bench.subscribe("d", "news", |_| {});
        bench.send(topic, &Message::text("a").delay(100));
        assert!(
            bench.try_send(topic, &Message::text("b").delay(100)).is_err(),
            "{policy:?}"
        );
        bench.send(topic, &Message::text("not delayed: room of its own"));
        let statistics = bench.state().source(durable).unwrap().statistics;
        assert_eq!((statistics.messages, statistics.delayed_messages), (2, 1), "{policy:?}");
    }
}

// covers: EMS-MSG-A08, EMS-DEST-A64
#[test]
fn a_delay_that_ends_at_a_full_queue_drops_the_message_or_keeps_it_as_undelivered() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(2, 0, OverflowPolicy::RejectIncoming));
    bench.send(queue, &Message::text("dropped").delay(100));
    bench.send(queue, &Message::text("kept").delay(100).preserved());
    bench.send(queue, &Message::text("a"));
    bench.send(queue, &Message::text("b"));
    bench.settle();
    bench.advance(100);
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["a", "b"]);
    assert_eq!(bench.texts(UNDELIVERED.source()), ["kept"]);
}

// covers: EMS-MSG-A08, EMS-DEST-A24, EMS-DEST-A64
#[test]
fn what_falls_due_for_a_full_subscriber_meets_what_a_message_that_comes_meets() {
    for (policy, held, is_kept) in [
        (OverflowPolicy::Default, ["a", "b"], false),
        (OverflowPolicy::DiscardOld, ["kept", "b"], false),
        (OverflowPolicy::RejectIncoming, ["a", "b"], true),
    ] {
        let aside: &[&str] = if is_kept { &["kept"] } else { &[] };
        let counts = (2 - u64::from(is_kept), u64::from(is_kept));
        for (name, pattern) in [("durable", "news"), ("wide", "*"), ("", "news"), ("", ">")] {
            let mut bench = Bench::new();
            let topic = bench.topic("news", limited(2, 0, policy));
            let full = bench.subscribe(name, pattern, |_| {});
            bench.send(topic, &Message::text("gone").delay(100));
            bench.send(topic, &Message::text("kept").delay(100).preserved());
            bench.send(topic, &Message::text("a"));
            bench.send(topic, &Message::text("b"));
            bench.settle();
            if !name.is_empty() {
                // Its record says which topic it is of, after a restart as before.
                bench.restart();
            }
            bench.advance(99);
            bench.settle();
            assert_eq!(bench.texts(full), ["a", "b"], "{policy:?} {pattern}");
            bench.advance(1);
            bench.settle();
            assert_eq!(bench.texts(full), held, "{policy:?} {pattern}");
            assert_eq!(bench.texts(UNDELIVERED.source()), aside, "{policy:?} {pattern}");
            let statistics = bench.state().source(full).unwrap().statistics;
            assert_eq!((statistics.messages, statistics.delayed_messages), (2, 0));
            assert_eq!((statistics.discarded_total, statistics.undelivered_total), counts);
        }
    }
}

// covers: EMS-DEST-A24, EMS-DEST-A64
#[test]
fn what_falls_due_drops_nothing_that_a_subscriber_holds() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", limited(2, 0, OverflowPolicy::DiscardOld));
    let full = bench.subscribe("d", "news", |_| {});
    bench.send(topic, &Message::text("first").delay(100));
    bench.send(topic, &Message::text("second").delay(200));
    bench.send(topic, &Message::text("held"));
    bench.send(topic, &Message::text("waits"));
    bench.settle();
    let (_, held, _) = bench.take(full).unwrap();
    bench.advance(100);
    bench.settle();
    // Now that all is handed out there is nothing to discard: it goes without the next one, as it would at a send.
    let (text, first, _) = bench.take(full).unwrap();
    assert_eq!(text, "first");
    bench.advance(100);
    bench.settle();
    bench.acknowledge(full, held);
    bench.acknowledge(full, first);
    bench.settle();
    assert!(bench.texts(full).is_empty());
    assert_eq!(bench.state().source(full).unwrap().statistics.discarded_total, 2);
}

// covers: EMS-DEST-A24
#[test]
fn a_commit_has_the_oldest_of_a_full_subscriber_discarded() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", limited(2, 0, OverflowPolicy::DiscardOld));
    let named = bench.subscribe("d", "news", |_| {});
    let wide = bench.subscribe("", "*", |_| {});
    bench.send(topic, &Message::text("a"));
    bench.send(topic, &Message::text("b"));
    let tx = Tx { owner: 1, number: 1 };
    bench.send_in(tx, topic, &Message::text("c")).unwrap();
    bench.settle();
    assert_eq!(bench.texts(named), ["a", "b"]);
    bench.state().commit(tx).unwrap();
    bench.settle();
    assert_eq!(
        (bench.texts(named), bench.texts(wide)),
        (
            vec!["b".to_owned(), "c".to_owned()],
            vec!["b".to_owned(), "c".to_owned()]
        )
    );
}

// covers: EMS-DEST-A20, EMS-DEST-A22, EMS-DEST-A64
#[test]
fn limits_of_what_falls_due_are_those_of_its_topic_and_of_each_subscriber() {
    let mut bench = Bench::new();
    let size = Message::text("1").encode().len() as u64;
    let small = bench.topic("news.small", limited(0, size, OverflowPolicy::Default));
    let wide = bench.topic("news.wide", Properties::default());
    let both = bench.subscribe("both", "news.*", |_| {});
    let one = bench.subscribe("one", "news.small", |_| {});
    bench.send(small, &Message::text("s").delay(100));
    bench.send(wide, &Message::text("w").delay(100));
    bench.send(wide, &Message::text("1"));
    bench.settle();
    bench.restart();
    bench.advance(100);
    bench.settle();
    assert_eq!(
        (bench.texts(both), bench.texts(one)),
        (vec!["w".into(), "1".into()], vec!["s".to_owned()])
    );
}

// covers: EMS-DEST-A64
#[test]
fn what_falls_due_waits_until_the_limits_of_its_topic_are_known() {
    let mut bench = Bench::new();
    let properties = limited(1, 0, OverflowPolicy::RejectIncoming);
    let name = DestinationName::parse("news.a").unwrap();
    let made = bench
        .state()
        .ensure_destination(Kind::Topic, &name, Origin::Dynamic, properties.clone());
    let topic = made.unwrap();
    let full = bench.subscribe("d", "news.>", |_| {});
    bench.send(topic, &Message::text("late").delay(100));
    bench.send(topic, &Message::text("a"));
    bench.settle();
    bench.restart();
    bench.advance(100);
    bench.settle();
    assert_eq!(bench.texts(full), ["a"]);
    assert_eq!(bench.state().take_wanted(10), [topic]);
    assert!(bench.state().note_properties(topic, Some(properties)));
    bench.advance(0);
    bench.settle();
    let statistics = bench.state().source(full).unwrap().statistics;
    assert_eq!((statistics.messages, statistics.discarded_total), (1, 1));
    // A topic that is no more has no limits; what a durable subscription to a pattern holds of it stays.
    bench.send(topic, &Message::text("later").delay(100));
    bench.settle();
    bench.state().unsettle_dynamic();
    bench.advance(100);
    assert_eq!(bench.texts(full), ["a"]);
    bench.state().delete_destination(topic, true, "admin").unwrap();
    bench.advance(0);
    bench.settle();
    assert_eq!(bench.texts(full), ["a", "later"]);
}

// covers: EMS-DEST-A63
#[test]
fn a_purge_of_what_is_delayed_of_a_topic_leaves_what_is_due_and_what_is_of_others() {
    let mut bench = Bench::new();
    let news = bench.topic("news", Properties::default());
    let other = bench.topic("other", Properties::default());
    let own = bench.subscribe("own", "news", |_| {});
    let all = bench.subscribe("all", ">", |_| {});
    for topic in [news, other] {
        bench.send(topic, &Message::text("now"));
        bench.send(topic, &Message::text("late").delay(100));
        bench.send(topic, &Message::text("late, in memory").volatile().delay(100));
    }
    bench.settle();
    bench.restart();
    bench.send(news, &Message::text("late too").volatile().delay(100));
    assert_eq!(bench.state().purge_delayed(news, "admin").unwrap(), 4);
    assert_eq!(bench.state().purge_delayed(news, "admin").unwrap(), 0);
    bench.settle();
    bench.restart();
    assert_eq!(bench.state().source(all).unwrap().statistics.delayed_messages, 1);
    bench.advance(100);
    bench.settle();
    assert_eq!(bench.texts(own), ["now"]);
    assert_eq!(bench.texts(all), ["now", "now", "late"]);
}

#[test]
fn a_life_that_ends_before_the_delay_puts_a_message_aside_once_however_late_both_are_noticed() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", limited(1, 0, OverflowPolicy::RejectIncoming));
    bench.send(queue, &Message::text("kept").ttl(50).delay(100).preserved());
    bench.send(queue, &Message::text("a"));
    bench.settle();
    bench.advance(200);
    bench.settle();
    assert_eq!(bench.texts(queue.source()), ["a"]);
    assert_eq!(bench.texts(UNDELIVERED.source()), ["kept"]);
}

// covers: EMS-STORE-A07
#[test]
fn stores_are_labels_with_a_promise_a_quota_and_an_account() {
    let mut bench = Bench::new();
    let names: Vec<String> = bench
        .state()
        .stores()
        .all()
        .iter()
        .map(|store| store.name.clone())
        .collect();
    assert_eq!(names, ["$sys.failsafe", "$sys.nonfailsafe", "$sys.meta"]);
    bench.state().set_stores(vec![StoreDefinition {
        name: "small".to_owned(),
        sync: true,
        quota_bytes: 100,
    }]);
    let in_store = |store: &str| Properties {
        store: store.to_owned(),
        ..Properties::default()
    };
    let safe = bench.queue("safe", Properties::default());
    let fast = bench.queue("fast", in_store("$sys.nonfailsafe"));
    let small = bench.queue("small", in_store("small"));
    assert_eq!(bench.send(safe, &Message::text("a")).durability, Durability::Durable);
    let accepted = bench.send(fast, &Message::text("a"));
    assert_eq!(
        (accepted.durability, accepted.wait_for),
        (Durability::Accepted, None),
        "confirmed at once"
    );
    bench.send(small, &Message::text("x".repeat(60)));
    let refused = bench.try_send(small, &Message::text("x".repeat(60)));
    assert!(matches!(refused, Err(PublishError::StoreFull(name)) if name == "small"));
    bench.settle();
    bench.queues.retain(|(name, _)| *name != "small");
    bench.restart();
    assert_eq!(bench.texts(fast.source()), ["a"], "on disk, too, a little later");
    let account = bench.state().stores().all()[1].clone();
    assert_eq!(
        (account.messages, account.bytes),
        (1, Message::text("a").encode().len() as u64)
    );
    let unknown = bench.ensure(Kind::Queue, "lost", in_store("nowhere"));
    assert!(matches!(unknown, Err(StateError::Configuration(_))));
}
