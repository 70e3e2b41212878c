//! Topics: who gets a message, and that it is stored once.

use super::*;

fn drain(bench: &mut Bench, source: SourceId) -> Vec<String> {
    bench.settle();
    bench.take_all(source)
}

// covers: EMS-DEST-A02
#[test]
fn every_subscription_gets_each_message_once_and_late_ones_miss_it() {
    let mut bench = Bench::new();
    let topic = bench.topic("news.sport", Properties::default());
    let plain = bench.subscribe("", "news.sport", |_| {});
    let durable = bench.subscribe("d", "news.*", |_| {});
    let deep = bench.subscribe("", "news.>", |_| {});
    let other = bench.subscribe("", "news.sport.tennis", |_| {});
    bench.send(topic, &Message::text("goal"));
    bench.settle();
    let late = bench.subscribe("", "news.sport", |_| {});
    for source in [plain, durable, deep] {
        assert_eq!(drain(&mut bench, source), ["goal"]);
    }
    assert!(drain(&mut bench, other).is_empty() && drain(&mut bench, late).is_empty());
}

#[test]
fn a_message_is_stored_once_whoever_references_it() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", Properties::default());
    let sources: Vec<_> = ["a", "b", "c"]
        .iter()
        .map(|name| bench.subscribe(name, "news", |_| {}))
        .collect();
    let plain = bench.subscribe("", "news", |_| {});
    bench.send(topic, &Message::text("one"));
    bench.settle();
    let positions: Vec<_> = sources
        .iter()
        .chain([&plain])
        .map(|source| bench.state().browse(*source, 0).next().unwrap().position)
        .collect();
    assert!(
        positions.iter().all(|position| *position == positions[0]),
        "{positions:?}"
    );
}

// covers: EMS-STORE-A03
#[test]
fn a_persistent_message_that_nobody_durable_wants_is_not_logged() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", Properties::default());
    let before = bench.state().log().end();
    let accepted = bench.send(topic, &Message::text("nobody"));
    assert_eq!((accepted.durability, accepted.wait_for), (Durability::Accepted, None));
    let plain = bench.subscribe("", "news", |_| {});
    bench.send(topic, &Message::text("plain"));
    assert_eq!(bench.state().log().end(), before);
    assert_eq!(bench.take_all(plain), ["plain"]);
    bench.subscribe("d", "news", |_| {});
    assert_eq!(
        bench.send(topic, &Message::text("durable")).durability,
        Durability::Durable
    );
}

#[test]
fn selectors_and_no_local_decide_at_publish() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", Properties::default());
    let some = bench.subscribe("some", "news", |wanted| wanted.selector = selector("n > 5"));
    let local = bench.subscribe("", "news", |wanted| wanted.no_local = true);
    let other = bench.subscribe("", "news", |wanted| (wanted.no_local, wanted.connection) = (true, 8));
    let mine = bench.subscribe("mine", "news", |wanted| wanted.no_local = true);
    let theirs = bench.subscribe("theirs", "news", |wanted| {
        wanted.no_local = true;
        wanted.client_id = "them".to_owned();
    });
    for number in [5, 6] {
        bench.send(topic, &Message::text(number.to_string()).with("n", Value::Int(number)));
    }
    bench.settle();
    assert_eq!(drain(&mut bench, some), ["6"]);
    assert!(drain(&mut bench, local).is_empty(), "published by its own connection");
    assert!(drain(&mut bench, mine).is_empty(), "published by its own client");
    assert_eq!(drain(&mut bench, other), ["5", "6"]);
    assert_eq!(drain(&mut bench, theirs), ["5", "6"]);
}

// covers: EMS-CLI-A01
#[test]
fn a_durable_subscription_collects_offline_survives_and_is_new_when_it_changes() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", Properties::default());
    let durable = bench.subscribe("d", "news", |_| {});
    bench.send(topic, &Message::text("a"));
    bench.settle();
    bench.restart();
    let topic = bench.state().destination(Kind::Topic, "news").unwrap().id;
    assert_eq!(bench.subscribe("d", "news", |_| {}), durable, "found again");
    bench.send(topic, &Message::text("b"));
    assert_eq!(drain(&mut bench, durable), ["a", "b"]);
    let changed = bench.subscribe("d", "news", |wanted| wanted.selector = selector("n = 1"));
    assert_ne!(changed, durable);
    bench.settle();
    bench.restart();
    assert!(bench.state().source(durable).is_none(), "dropped with what it held");
    let known = bench.state().subscription("me", "d").unwrap();
    assert_eq!((known.id, known.selector_text.as_str()), (changed, "n = 1"));
    bench.state().unsubscribe(changed, "me").unwrap();
    bench.send(topic, &Message::text("c").with("n", Value::Int(1)));
    bench.settle();
    bench.restart();
    assert!(bench.state().subscription("me", "d").is_none());
}

#[test]
fn many_subscriptions_that_do_not_match_cost_nothing() {
    let mut bench = Bench::new();
    let topic = bench.topic("news", Properties::default());
    for number in 0..500 {
        bench.subscribe("", &format!("other.{number}"), |_| {});
    }
    let mine = bench.subscribe("", "news", |_| {});
    bench.send(topic, &Message::text("a"));
    assert_eq!(
        bench.state().destination_by_id(topic).unwrap().matching_subscriptions(),
        1
    );
    assert_eq!(drain(&mut bench, mine), ["a"]);
}
