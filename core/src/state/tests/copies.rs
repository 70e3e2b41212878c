//! Messages on their way in: copies that meet in one source, numbers that come again, and what is counted.

use super::*;

/// A queue with this many bridges into another.
fn bridged(bridges: usize, messages_max: u64) -> (Bench, DestinationId, DestinationId) {
    let mut bench = Bench::new();
    let source = bench.queue("from", Properties::default());
    let limits = Properties {
        messages_max,
        ..Properties::default()
    };
    let target = bench.queue("to", limits);
    for _ in 0..bridges {
        bench.bridge(Kind::Queue, "from", Kind::Queue, "to", None);
    }
    (bench, source, target)
}

// covers: EMS-DEST-A48
#[test]
fn copies_that_meet_in_one_queue_have_a_number_each() {
    for volatile in [false, true] {
        for bridges in 2..5 {
            let (mut bench, from, to) = bridged(bridges, 0);
            let message = Message::text("again");
            bench.send(from, &if volatile { message.volatile() } else { message });
            bench.send(to, &Message::text("last"));
            bench.settle();
            let browsed = bench.state().browse(to.source(), 0);
            let numbers: Vec<u64> = browsed.map(|found| found.sequence).collect();
            let wanted: Vec<u64> = (0..=bridges as u64).map(|index| numbers[0] + index).collect();
            assert_eq!(numbers, wanted, "{bridges} bridges");
            let (_, taken, _) = bench.take(to.source()).unwrap();
            bench.acknowledge(to.source(), taken);
            bench.settle();
            let left = bench.texts(to.source()).len();
            assert_eq!(left, bridges, "one was acknowledged, the others and the last are there");
        }
    }
}

#[test]
fn a_copy_that_meets_its_original_has_a_number_of_its_own_and_counts() {
    for room in 1..4 {
        let mut bench = Bench::new();
        let limits = Properties {
            messages_max: room,
            ..Properties::default()
        };
        let queue = bench.queue("round", limits);
        bench.bridge(Kind::Queue, "round", Kind::Queue, "round", None);
        let taken = bench.try_send(queue, &Message::text("again"));
        assert_eq!(taken.is_ok(), room >= 2, "{room} may be there");
        bench.settle();
        if taken.is_ok() {
            let browsed = bench.state().browse(queue.source(), 0);
            let numbers: Vec<u64> = browsed.map(|found| found.sequence).collect();
            assert_eq!(numbers, [numbers[0], numbers[0] + 1]);
        }
    }
}

// covers: EMS-DEST-A19
#[test]
fn copies_that_meet_count_together_against_the_limit() {
    for bridges in 2..5 {
        for room in 1..6 {
            let (mut bench, from, to) = bridged(bridges, room);
            let taken = bench.try_send(from, &Message::text("again"));
            assert_eq!(
                taken.is_ok(),
                bridges as u64 <= room,
                "{bridges} copies, {room} may be there"
            );
            bench.settle();
            assert_eq!(bench.texts(to.source()).len(), if taken.is_ok() { bridges } else { 0 });
        }
    }
}

// covers: EMS-MSG-E01
#[test]
fn a_duplicate_is_confirmed_as_what_it_was() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let topic = bench.topic("nobody", Properties::default());
    let (kept, lost) = (Message::text("a"), Message::text("a").volatile());
    let mut again = |to, message: &Message| {
        let number = (bench.state().next_incarnation().unwrap(), 5);
        let first = bench.send_as(to, message, number, None).unwrap();
        let second = bench.send_as(to, message, number, None).unwrap();
        assert_eq!((first.duplicate, second.duplicate), (false, true));
        (second.durability, second.wait_for.is_some())
    };
    assert_eq!(again(queue, &kept), (Durability::Durable, true));
    assert_eq!(again(queue, &lost).0, Durability::Accepted, "it may be gone already");
    assert_eq!(again(topic, &kept).0, Durability::Accepted, "nothing of it was stored");
}

#[test]
fn a_refused_number_of_a_producer_that_is_known_is_new_even_where_it_may_be_sent_again() {
    for (may_be_again, known) in [(true, true), (false, false), (true, false)] {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", Properties::default());
        let incarnation = bench.state().next_incarnation().unwrap();
        if known {
            bench
                .send_as(queue, &Message::text("a"), (incarnation, 1), None)
                .unwrap();
        }
        bench.state().note_refused(queue, incarnation, 2, may_be_again);
        bench
            .send_as(queue, &Message::text("c"), (incarnation, 3), None)
            .unwrap();
        let accepted = bench
            .send_as(queue, &Message::text("b"), (incarnation, 2), None)
            .unwrap();
        assert!(!accepted.duplicate, "{may_be_again} {known}");
        bench.settle();
        let texts = bench.texts(queue.source());
        assert!(texts.contains(&"b".to_owned()), "{texts:?}");
    }
}

#[test]
fn memory_that_is_full_refuses_only_what_would_lie_in_it() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    let topic = bench.topic("news", Properties::default());
    let quiet = bench.topic("quiet", Properties::default());
    bench.subscribe("d", "news", |_| {});
    bench.subscribe("", "news", |_| {});
    let large = Message::text("x".repeat(50_000)).volatile();
    while !matches!(bench.try_send(queue, &large), Err(PublishError::VolatileFull)) {}
    bench.send(queue, &Message::text("logged"));
    bench.send(topic, &Message::text("logged for one of two"));
    bench.send(quiet, &Message::text("for nobody").volatile());
}

// covers: EMS-DEST-A24
#[test]
fn a_large_message_takes_the_place_of_another() {
    let mut bench = Bench::new();
    let rolling = Properties {
        messages_max: 1,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    };
    let queue = bench.queue("rolling", rolling);
    bench.settle();
    for letter in ["a", "b", "c"] {
        bench.send(queue, &Message::text(letter.repeat(40_000)));
        bench.settle();
        assert_eq!(bench.texts(queue.source()), [letter.repeat(40_000)]);
    }
}

#[test]
fn what_is_published_is_counted_once_and_for_each_copy_where_it_goes() {
    let (mut bench, from, _) = bridged(2, 0);
    let message = Message::text("counted");
    let bytes = message.encode().len() as u64;
    for _ in 0..3 {
        bench.send(from, &message);
    }
    assert_eq!(bench.state().totals().published_total, 3);
    let mut counted = |name| {
        let destination = bench.state().destination(Kind::Queue, name).unwrap();
        (destination.published_total, destination.published_bytes_total)
    };
    assert_eq!(counted("from"), (3, 3 * bytes));
    assert_eq!(counted("to"), (6, 6 * bytes));
}

// covers: EMS-DEST-A51
#[test]
fn too_many_copies_are_refused_with_the_number_there_may_be() {
    let (mut bench, from, _) = bridged(255, 0);
    let refused = bench.try_send(from, &Message::text("wider")).unwrap_err();
    assert!(matches!(refused, PublishError::TooManyCopies(254, _)), "{refused}");
}

#[test]
fn deliveries_to_whoever_waits_need_no_write_of_their_own() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.state().attach(queue.source(), false);
    let mut waited = 0;
    for number in 0..60 {
        bench.send(queue, &Message::text(number.to_string()));
        bench.settle();
        let found = loop {
            match bench.state().next_ready(queue.source(), &mut Cursor::default(), None) {
                Next::Ready { sequence, priority, .. } => break (priority, sequence),
                Next::Reserving => {
                    waited += 1;
                    bench.settle();
                }
                other => panic!("{other:?}"),
            }
        };
        bench.state().deliver(queue.source(), found.0, found.1, 1).unwrap();
        bench.acknowledge(queue.source(), found.1);
    }
    assert_eq!(waited, 0, "each was covered with its message");
}

#[test]
fn a_delay_that_is_over_when_its_transaction_commits_is_not_waited_for_again() {
    for (waited, is_ready) in [(99, false), (100, true), (5_000, true)] {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", Properties::default());
        let tx = Tx { owner: 5, number: 1 };
        bench.send_in(tx, queue, &Message::text("later").delay(100)).unwrap();
        bench.settle();
        bench.now.wall_ms += waited;
        bench.now.monotonic_ms += waited;
        let now = bench.now;
        bench.state().tick(now);
        bench.state().commit(tx).unwrap();
        bench.settle();
        assert_eq!(bench.take(queue.source()).is_some(), is_ready, "after {waited} ms");
    }
}

#[test]
fn a_transaction_that_was_prepared_and_is_over_keeps_no_space() {
    for commits in [true, false] {
        let mut bench = Bench::new();
        let queue = bench.queue("orders", Properties::default());
        let filler = bench.queue("filler", Properties::default());
        let (tx, xid) = (
            Tx { owner: 5, number: 1 },
            Xid {
                format: 1,
                global: vec![1],
                branch: vec![],
            },
        );
        bench.send_in(tx, queue, &Message::text("a")).unwrap();
        bench.state().prepare(tx, xid.clone()).unwrap();
        bench.settle();
        if commits {
            bench.state().commit_prepared(&xid).unwrap();
        } else {
            bench.state().rollback_prepared(&xid).unwrap();
        }
        bench.settle();
        let prepared_at = bench.state().log().end();
        for number in 0..40 {
            bench.send(filler, &Message::text(format!("{number}").repeat(15_000)));
            bench.settle();
        }
        for source in [queue.source(), filler.source()] {
            while let Some((_, sequence, _)) = bench.take(source) {
                bench.acknowledge(source, sequence);
            }
        }
        bench.settle();
        bench.state().checkpoint().unwrap();
        bench.settle();
        assert!(bench.state().log().start() > prepared_at, "commits: {commits}");
    }
}
