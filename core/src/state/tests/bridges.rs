//! Bridges.

use super::*;

struct Copies {
    bench: Bench,
    source: DestinationId,
    target: DestinationId,
}

fn bridged(selector: Option<&str>) -> Copies {
    let mut bench = Bench::new();
    let source = bench.topic("flights.JFK", Properties::default());
    let target = bench.queue("delays", Properties::default());
    bench.bridge(Kind::Topic, "flights.JFK", Kind::Queue, "delays", selector);
    Copies { bench, source, target }
}

// covers: EMS-DEST-A48, EMS-DEST-A49
#[test]
fn a_copy_has_its_own_id_and_a_life_of_its_own() {
    let Copies {
        mut bench,
        source,
        target,
    } = bridged(None);
    let durable = bench.subscribe("d", "flights.JFK", |_| {});
    bench.send(source, &Message::text("late"));
    bench.settle();
    let (text, sequence, copied) = bench.take(target.source()).unwrap();
    assert_eq!(text, "late");
    let head = bench.message_at(copied.position).head;
    assert_ne!(head.id(copied.copy), (head.incarnation, head.sequence));
    assert_eq!(head.destination(copied.copy), Some(target));
    bench.acknowledge(target.source(), sequence);
    let (_, _, original) = bench.take(durable).unwrap();
    assert_eq!(original.position, copied.position, "stored once");
    assert_eq!(head.id(original.copy), (head.incarnation, head.sequence));
    bench.settle();
    bench.restart();
    assert!(bench.take(target.source()).is_none());
    assert!(
        bench.take(durable).is_some(),
        "consuming the copy left the original alone"
    );
}

// covers: EMS-DEST-A49
#[test]
fn copies_do_not_cross_further_bridges() {
    let Copies {
        mut bench,
        source,
        target,
    } = bridged(None);
    let further = bench.queue("further", Properties::default());
    bench.bridge(Kind::Queue, "delays", Kind::Queue, "further", None);
    bench.send(source, &Message::text("late"));
    bench.send(target, &Message::text("direct"));
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["late", "direct"]);
    assert_eq!(bench.texts(further.source()), ["direct"]);
}

// covers: EMS-DEST-A48, EMS-DEST-A50
#[test]
fn overlapping_bridges_make_a_copy_each_and_wildcards_match_every_destination() {
    let Copies {
        mut bench,
        source,
        target,
    } = bridged(None);
    let other = bench.topic("flights.EWR", Properties::default());
    bench.bridge(Kind::Topic, "flights.*", Kind::Queue, "delays", None);
    bench.send(source, &Message::text("twice"));
    bench.send(other, &Message::text("once"));
    bench.settle();
    let found: Vec<_> = bench.state().browse(target.source(), 0).collect();
    let ids: std::collections::HashSet<_> = found
        .iter()
        .map(|found| bench.message_at(found.position).head.id(found.copy))
        .collect();
    assert_eq!((found.len(), ids.len()), (3, 3), "each with an id of its own");
    assert_eq!(bench.texts(target.source()), ["twice", "twice", "once"]);
    bench.restart();
    assert_eq!(bench.texts(target.source()), ["twice", "twice", "once"]);
}

// covers: EMS-DEST-A52
#[test]
fn only_what_the_selector_wants_crosses() {
    let Copies {
        mut bench,
        source,
        target,
    } = bridged(Some("delay > 60"));
    for delay in [10, 61] {
        bench.send(
            source,
            &Message::text(delay.to_string()).with("delay", Value::Int(delay)),
        );
    }
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["61"]);
}

// covers: EMS-DEST-A51
#[test]
fn a_bridge_has_any_number_of_targets_of_either_kind() {
    let Copies {
        mut bench,
        source,
        target,
    } = bridged(None);
    let topic = bench.topic("copies", Properties::default());
    let listener = bench.subscribe("", "copies", |_| {});
    bench.bridge(Kind::Topic, "flights.JFK", Kind::Topic, "copies", None);
    bench.send(source, &Message::text("late"));
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["late"]);
    let (text, _, delivered) = bench.take(listener).unwrap();
    let head = bench.message_at(delivered.position).head;
    assert_eq!((text.as_str(), head.destination(delivered.copy)), ("late", Some(topic)));
}

// covers: EMS-DEST-A53
#[test]
fn a_bridges_source_cannot_be_deleted() {
    let Copies {
        mut bench,
        source,
        target,
    } = bridged(None);
    let refused = bench.state().delete_destination(source, true, "admin");
    assert!(matches!(refused, Err(StateError::Bridged { .. })));
    assert_eq!(bench.state().delete_destination(target, false, "admin").unwrap(), 0);
    let refused = bench.try_send(source, &Message::text("late"));
    assert!(
        matches!(refused, Err(PublishError::NoSuchDestination { .. })),
        "the sender is told"
    );
}

// covers: EMS-TX-A01, EMS-TX-A02
#[test]
fn copies_belong_to_the_senders_transaction() {
    let Copies {
        mut bench,
        source,
        target,
    } = bridged(None);
    let durable = bench.subscribe("d", "flights.JFK", |_| {});
    let [first, second, third] = [1, 2, 3].map(|number| Tx { owner: 1, number });
    bench.send_in(first, source, &Message::text("rolled back")).unwrap();
    bench.settle();
    assert!(bench.texts(target.source()).is_empty());
    bench.state().rollback(first).unwrap();
    bench.send_in(second, source, &Message::text("committed")).unwrap();
    bench.state().commit(second).unwrap();
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["committed"]);
    assert_eq!(bench.texts(durable), ["committed"]);

    let limited = Properties {
        messages_max: 1,
        ..Properties::default()
    };
    bench.state().configure_destination(target, limited);
    assert!(
        bench.send_in(third, source, &Message::text("torn")).is_err(),
        "the copy has no room"
    );
    assert!(matches!(bench.state().commit(third), Err(StateError::RolledBack(_))));
    bench.settle();
    bench.restart();
    assert_eq!(bench.texts(durable), ["committed"]);
    assert_eq!(bench.texts(target.source()), ["committed"]);
}

fn rolling(messages_max: u64, overflow: OverflowPolicy) -> Properties {
    Properties {
        messages_max,
        overflow,
        ..Properties::default()
    }
}

// covers: EMS-DEST-A63
#[test]
fn two_copies_that_meet_in_one_queue_make_room_for_both_and_for_no_more() {
    let mut bench = Bench::new();
    let source = bench.topic("flights.JFK", Properties::default());
    let target = bench.queue("delays", Properties::default());
    bench.bridge(Kind::Topic, "flights.JFK", Kind::Queue, "delays", None);
    bench.bridge(Kind::Topic, "flights.*", Kind::Queue, "delays", None);
    for text in ["a", "b", "c", "d", "e"] {
        bench.send(target, &Message::text(text));
    }
    bench.settle();
    let state = bench.state();
    state.configure_destination(target, rolling(4, OverflowPolicy::DiscardOld));
    // Three go: one of them was over the limit that came later.
    bench.send(source, &Message::text("twice"));
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["d", "e", "twice", "twice"]);
    bench
        .state()
        .configure_destination(target, rolling(5, OverflowPolicy::DiscardOld));
    // The first copy finds room, the second does not.
    bench.send(source, &Message::text("again"));
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["e", "twice", "twice", "again", "again"]);
    let bytes = bench.state().source(target.source()).unwrap().statistics.bytes;
    bench.state().configure_destination(
        target,
        Properties {
            bytes_max: bytes,
            overflow: OverflowPolicy::DiscardOld,
            ..Properties::default()
        },
    );
    bench.send(source, &Message::text("third"));
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["again", "again", "third", "third"]);
}

#[test]
fn two_copies_that_meet_in_one_queue_are_refused_where_there_is_room_for_one() {
    let mut bench = Bench::new();
    let source = bench.topic("flights.JFK", Properties::default());
    let target = bench.queue("delays", rolling(2, OverflowPolicy::RejectIncoming));
    bench.bridge(Kind::Topic, "flights.JFK", Kind::Queue, "delays", None);
    bench.bridge(Kind::Topic, "flights.*", Kind::Queue, "delays", None);
    bench.send(target, &Message::text("a"));
    let refused = bench.try_send(source, &Message::text("twice"));
    assert!(
        matches!(refused, Err(PublishError::DestinationFull { .. })),
        "{refused:?}"
    );
    bench.settle();
    assert_eq!(bench.texts(target.source()), ["a"]);
}
