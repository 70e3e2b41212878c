//! Changes of the configuration.

use super::*;
use crate::engine::errors::refuse;
use crate::name::{DestinationName, Pattern};
use crate::proto::ErrorCode;
use crate::state::{Bridge, BridgeTarget, Kind, Origin, UNDELIVERED};

fn named(name: &str) -> DestinationName {
    DestinationName::parse(name).unwrap()
}

fn durable(name: &str, pattern: &str) -> DurableDefinition {
    DurableDefinition {
        name: name.to_owned(),
        client_id: "me".to_owned(),
        pattern: Pattern::parse(pattern).unwrap(),
        selector: None,
        no_local: false,
        shared: false,
    }
}

fn words(configured: &Configured) -> Vec<(&str, Change)> {
    let changes = configured.changes.iter();
    changes.map(|(_, name, change)| (name.as_str(), *change)).collect()
}

#[test]
fn a_change_touches_what_it_names_and_nothing_else() {
    let mut bench = Bench::new(Properties::default());
    let configuration = Configuration {
        destinations: vec![
            (Kind::Queue, named("orders"), Properties::default()),
            (Kind::Queue, named("other"), Properties::default()),
            (Kind::Topic, named("news"), Properties::default()),
        ],
        durables: vec![durable("kept", "news"), durable("gone", "news")],
        ..Configuration::default()
    };
    assert_eq!(bench.engine().configure(configuration).refused.len(), 0);
    let changes = Changes {
        destinations: vec![(Kind::Queue, named("orders"), limited())],
        removed_destinations: vec![(Kind::Topic, named("unknown")), (Kind::Queue, named("other"))],
        durables: vec![durable("new", "news")],
        removed_durables: vec![("me".to_owned(), "gone".to_owned())],
        ..Changes::default()
    };
    let configured = bench.engine().reconfigure(changes);
    assert_eq!(
        words(&configured),
        [
            ("orders", Change::Changed),
            ("other", Change::Deleted),
            ("new", Change::Created),
            ("gone", Change::Deleted)
        ]
    );
    let state = bench.engine().state();
    assert_eq!(
        state
            .destination(Kind::Queue, "orders")
            .unwrap()
            .properties
            .messages_max,
        1
    );
    assert!(state.destination(Kind::Topic, "news").is_some(), "it was not named");
    assert!(state.subscription("me", "kept").is_some());
    let again = bench.engine().reconfigure(Changes {
        destinations: vec![(Kind::Queue, named("orders"), limited())],
        ..Changes::default()
    });
    assert!(again.changes.is_empty() && again.refused.is_empty());
}

#[test]
fn a_queue_that_holds_messages_lives_on_as_a_dynamic_one_when_it_is_configured_no_more() {
    let mut bench = Bench::new(limited());
    let configuration = Configuration {
        destinations: vec![(Kind::Queue, named("orders"), Properties::default())],
        ..Configuration::default()
    };
    bench.engine().configure(configuration);
    bench.connect();
    bench.producer(0, 0);
    bench.publish(1, "a");
    let configured = bench.engine().reconfigure(Changes {
        removed_destinations: vec![(Kind::Queue, named("orders"))],
        ..Changes::default()
    });
    let refused: Vec<_> = configured
        .refused
        .iter()
        .map(|(_, name, error)| (name.as_str(), error.code()))
        .collect();
    assert_eq!(refused, [("orders", ErrorCode::InUse)]);
    bench.settle();
    // What it gets as a dynamic one was asked for.
    bench.publish(2, "b");
    assert_eq!(bench.rejected(), [(2, ErrorCode::DestinationFull)]);
}

#[test]
fn a_client_cannot_end_a_subscription_that_was_configured() {
    let mut bench = Bench::new(Properties::default());
    let configured = DurableDefinition {
        client_id: String::new(),
        ..durable("kept", "news")
    };
    let configuration = Configuration {
        destinations: vec![(Kind::Topic, named("news"), Properties::default())],
        durables: vec![configured],
        ..Configuration::default()
    };
    assert_eq!(bench.engine().configure(configuration).refused.len(), 0);
    bench.settle();
    bench.connect();
    let unsubscribe = proto::Unsubscribe {
        name: "kept".to_owned(),
    };
    bench.send(1, Sent::Unsubscribe(unsubscribe));
    assert_eq!(bench.errors(), [ErrorCode::NotAllowed]);
    assert!(bench.engine().state().subscription("", "kept").is_some());
}

#[test]
fn a_removal_from_the_configuration_leaves_what_a_client_made_of_that_name() {
    let mut bench = Bench::new(Properties::default());
    bench.connect();
    bench.producer(0, 0);
    let changes = Changes {
        removed_destinations: vec![(Kind::Queue, named("orders"))],
        ..Changes::default()
    };
    let configured = bench.engine().reconfigure(changes);
    assert!(words(&configured).is_empty());
    bench.settle();
    bench.publish(1, "a");
    assert_eq!((bench.confirmed(), bench.held()), (vec![1], Some(1)));
}

fn topic(name: &str) -> proto::Destination {
    proto::Destination {
        kind: DestinationKind::Topic.into(),
        name: name.to_owned(),
    }
}

#[test]
fn only_subscribers_of_that_name_who_have_got_everything_are_sent_away() {
    let mut bench = Bench::new(Properties::default());
    bench.connect_as(AcknowledgeMode::Client);
    for (number, name) in [(1, "news"), (2, "*")] {
        let open = proto::OpenConsumer {
            consumer: number,
            destination: Some(topic(name)),
            ..proto::OpenConsumer::default()
        };
        bench.send(1, Sent::OpenConsumer(open));
    }
    let reason = refuse(ErrorCode::Moved, "news", "It lives elsewhere.");
    let closed = |bench: &mut Bench, pattern: &str| -> Vec<(u32, ErrorCode)> {
        bench.frames.clear();
        bench.engine().close_subscribers(pattern, &reason);
        bench.settle();
        let closed = bench.frames.iter().filter_map(|frame| match &frame.frame {
            Some(Got::ConsumerClosed(closed)) => Some((closed.consumer, closed.reason.as_ref()?.code())),
            _ => None,
        });
        closed.collect()
    };
    assert_eq!(closed(&mut bench, "*"), [(2, ErrorCode::Moved)]);
    let open = proto::OpenProducer {
        producer: 1,
        destination: Some(topic("news")),
        ..proto::OpenProducer::default()
    };
    bench.send(1, Sent::OpenProducer(open));
    bench.publish(1, "a");
    assert_eq!(closed(&mut bench, "news"), [], "a message waits for it");
    let source = bench.engine().state().catalogue().subscriptions().next().unwrap().id;
    assert_eq!(bench.engine().state().source(source).unwrap().statistics.messages, 1);
}

// covers: EMS-DEST-A53, EMS-DEST-E01
#[test]
fn a_bridges_target_that_is_deleted_is_there_again_at_once() {
    let mut bench = Bench::new(Properties::default());
    let target = BridgeTarget {
        kind: Kind::Queue,
        name: named("copies"),
        selector: None,
    };
    let bridge = Bridge {
        name: "b".to_owned(),
        kind: Kind::Topic,
        source: Pattern::parse("news").unwrap(),
        targets: vec![target],
    };
    let configuration = || Configuration {
        destinations: vec![
            (Kind::Topic, named("news"), Properties::default()),
            (Kind::Queue, named("copies"), limited()),
        ],
        bridges: vec![bridge.clone()],
        ..Configuration::default()
    };
    assert_eq!(bench.engine().configure(configuration()).refused.len(), 0);
    let before = bench.engine().state().destination(Kind::Queue, "copies").unwrap().id;
    assert_eq!(bench.engine().delete(Kind::Queue, "copies", true).unwrap(), 0);
    let found = bench.engine().state().destination(Kind::Queue, "copies").unwrap();
    assert_ne!(
        found.id, before,
        "nobody's producers and consumers go on as if nothing had happened"
    );
    assert_eq!((found.origin, found.properties.messages_max), (Origin::Static, 1));
    // What goes to another broker is another matter: there it has its home.
    let moved = refuse(ErrorCode::Moved, "destination", "It lives elsewhere.");
    bench.engine().delete_for(Kind::Queue, "copies", true, &moved).unwrap();
    assert!(bench.engine().state().destination(Kind::Queue, "copies").is_none());
    assert_eq!(bench.engine().configure(configuration()).refused.len(), 0);
    assert!(bench.engine().state().destination(Kind::Queue, "copies").is_some());
}

#[test]
fn what_lives_elsewhere_is_served_to_nobody_and_stays() {
    let mut bench = Bench::new(Properties::default());
    bench.connect_as(AcknowledgeMode::Client);
    bench.producer(0, 0);
    bench.publish(1, "a");
    bench.publish(2, "b");
    bench.consumer(1, 1);
    bench.settle();
    bench.frames.clear();
    let reason = refuse(ErrorCode::Moved, "orders", "It lives elsewhere.");
    bench
        .engine()
        .serve_elsewhere(Kind::Queue, "orders", Some(reason))
        .unwrap();
    bench.settle();
    let told: Vec<ErrorCode> = bench
        .frames
        .iter()
        .filter_map(|frame| match &frame.frame {
            Some(Got::ProducerClosed(closed)) => Some(closed.reason.as_ref()?.code()),
            Some(Got::ConsumerClosed(closed)) => Some(closed.reason.as_ref()?.code()),
            _ => None,
        })
        .collect();
    assert_eq!(told, [ErrorCode::Moved, ErrorCode::Moved]);
    bench.frames.clear();
    bench.producer(0, 0);
    bench.consumer(2, 1);
    bench.settle();
    let opened = bench.frames.iter().any(|frame| match &frame.frame {
        Some(Got::Reply(reply)) => !matches!(reply.result, Some(proto::reply::Result::Error(_))),
        _ => false,
    });
    assert!(!opened, "nobody opens it: {:?}", bench.frames);
    assert_eq!(bench.held(), Some(2));
    bench.engine().serve_elsewhere(Kind::Queue, "orders", None).unwrap();
    bench.frames.clear();
    bench.consumer(3, 1);
    bench.settle();
    let flags: Vec<bool> = bench
        .frames
        .iter()
        .filter_map(|frame| match &frame.frame {
            Some(Got::Deliver(deliver)) => Some(deliver.deliveries.iter().map(|one| one.redelivered)),
            _ => None,
        })
        .flatten()
        .collect();
    assert_eq!(flags, [true], "the first one had been sent to somebody");
}

/// What was asked for the sake of messages that wait for it.
fn asked_for_properties(bench: &mut Bench) -> Vec<u64> {
    let tickets = bench.engine().poll().tickets;
    let found = tickets
        .iter()
        .filter(|request| matches!(&request.question, Question::Properties { name, .. } if name.as_str() == "orders"));
    found.map(|request| request.ticket).collect()
}

fn pass(bench: &mut Bench, ms: u64) {
    bench.now = Now {
        wall_ms: bench.now.wall_ms + ms,
        monotonic_ms: bench.now.monotonic_ms + ms,
    };
    let now = bench.now;
    bench.engine().tick(now);
}

// covers: EMS-DEST-A23
#[test]
fn nothing_in_a_dynamic_queue_ends_before_the_host_has_told_its_properties() {
    // After a restart, and under another configuration.
    for restarts in [true, false] {
        let mut bench = Bench::new(Properties::default());
        bench.connect();
        bench.producer(0, 0);
        bench.publish_for(1, 100);
        bench.close();
        if restarts {
            bench.start();
        } else {
            let changes = Changes {
                inherited: true,
                ..Changes::default()
            };
            bench.engine().reconfigure(changes);
            bench.settle();
        }
        pass(&mut bench, 200);
        assert_eq!(bench.held(), Some(1), "it waits");
        let asked = asked_for_properties(&mut bench);
        assert_eq!(asked.len(), 1);
        // While there is no answer it is not asked again.
        pass(&mut bench, 5_000);
        assert!(asked_for_properties(&mut bench).is_empty());
        let refused = refuse(ErrorCode::Internal, "ticket", "No.");
        bench.engine().answer(asked[0], Answer::Refused(refused));
        assert!(
            asked_for_properties(&mut bench).is_empty(),
            "it is asked again in a while"
        );
        pass(&mut bench, 1_000);
        let asked = asked_for_properties(&mut bench);
        let properties = Properties {
            dead_letter: "$sys.undelivered".to_owned(),
            ..Properties::default()
        };
        bench.engine().answer(asked[0], Answer::Create(properties));
        pass(&mut bench, 0);
        assert_eq!(
            bench.held(),
            Some(0),
            "it goes at once, not when it would be tried again"
        );
        let undelivered = bench.engine().state().source(UNDELIVERED.source()).unwrap();
        assert_eq!(undelivered.statistics.messages, 1);
        // Whether clients may use it here the host has still to say.
        let settled = |bench: &mut Bench| {
            bench
                .engine()
                .state()
                .destination(Kind::Queue, "orders")
                .unwrap()
                .settled
        };
        assert!(!settled(&mut bench));
    }
}
