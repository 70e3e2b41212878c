//! Space comes back, and nothing else changes.

use super::*;

/// A segment of which little is alive is soon rewritten.
pub(super) fn compacting() -> StateOptions {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 16 * 1024;
    options.log.compact_below_percent = 60;
    options.checkpoint_bytes = Some(128 * 1024);
    options
}

fn disk_bytes(bench: &mut Bench) -> u64 {
    bench.state().log().disk_use().1
}

// A few messages of each kind stay; thousands go. What stays must survive being rewritten.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told from begin to end")]
fn compaction_keeps_the_state_and_gives_space_back() {
    let mut bench = Bench::on(SimDisk::new(5), compacting());
    let queue = bench.queue(
        "orders",
        Properties {
            redelivery_max: 2,
            ..Properties::default()
        },
    );
    let source = queue.source();
    let topic = bench.topic("news", Properties::default());
    let durable = bench.subscribe("d", "news", |_| {});
    let plain = bench.subscribe("", "news", |_| {});
    let mut kept_plain = Vec::new();
    for number in 0..3_000_u64 {
        let text = format!("{number}:{}", "x".repeat(500));
        let tx = Tx {
            owner: 1,
            number: number + 1,
        };
        match number % 100 {
            7 => {
                bench.send_in(tx, queue, &Message::text(text)).unwrap();
                bench.state().commit(tx).unwrap();
            }
            8 => {
                bench.send_in(tx, queue, &Message::text(text)).unwrap();
                bench.state().rollback(tx).unwrap();
            }
            9 => {
                bench.send(topic, &Message::text(text).preserved());
                kept_plain.push(number.to_string());
            }
            _ => drop(bench.send(queue, &Message::text(text))),
        }
        if number % 20 == 19 {
            bench.settle();
            // All but a few are consumed; one in a while is delivered too often and moved.
            while let Some((text, sequence, _)) = bench.take(source) {
                let number: u64 = text.split(':').next().unwrap().parse().unwrap();
                match number % 50 {
                    7 => {}
                    11 => {
                        bench.state().release(source, sequence, true);
                    }
                    _ => drop(bench.acknowledge(source, sequence)),
                }
            }
        }
    }
    bench.settle();
    let before = bench.state().dump();
    let bytes = disk_bytes(&mut bench);
    assert!(bytes < 1_000_000, "{bytes} bytes on disk for few messages");
    let starts = |texts: Vec<String>| -> Vec<String> {
        texts
            .into_iter()
            .map(|text| text.split(':').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        starts(bench.texts(plain)),
        kept_plain,
        "a non-durable subscription's messages can be read"
    );
    let durable_before = bench.texts(durable);
    bench.restart();
    assert_eq!(bench.state().dump(), before);
    assert_eq!(bench.texts(durable), durable_before);
    assert_eq!(bench.texts(source).len(), 60, "what was kept");
    bench.state().purge(source, "admin").unwrap();
    bench.state().unsubscribe(durable, "me").unwrap();
    bench.settle();
    bench.restart();
    assert!(bench.texts(source).is_empty() && bench.texts(UNDELIVERED.source()).is_empty());
}

#[test]
fn what_was_deleted_stays_deleted_when_its_records_are_gone() {
    let mut bench = Bench::on(SimDisk::new(6), compacting());
    let pinned = bench.queue("pinned", Properties::default());
    let name = DestinationName::parse("gone").unwrap();
    let gone = bench
        .state()
        .ensure_destination(Kind::Queue, &name, Origin::Dynamic, Properties::default())
        .unwrap();
    bench.send(pinned, &Message::text("pin"));
    bench.send(gone, &Message::text("old"));
    bench.settle();
    let filler = bench.queue("filler", Properties::default());
    for round in 0..2_000 {
        bench.send(filler, &Message::text("x".repeat(500)));
        if round == 1_000 {
            assert_eq!(bench.state().delete_destination(gone, true, "admin").unwrap(), 1);
        }
        if round % 50 == 0 {
            bench.settle();
            bench.state().purge(filler.source(), "admin").unwrap();
        }
    }
    bench.settle();
    bench.restart();
    assert!(bench.state().destination(Kind::Queue, "gone").is_none());
    assert!(bench.state().source(gone.source()).is_none());
    assert_eq!(bench.texts(pinned.source()), ["pin"]);
    let again = bench
        .state()
        .ensure_destination(Kind::Queue, &name, Origin::Dynamic, Properties::default())
        .unwrap();
    assert_ne!(again, gone, "a number is never used again");
    assert!(bench.texts(again.source()).is_empty());
}

#[test]
fn producers_are_remembered_when_their_messages_are_gone() {
    let mut bench = Bench::on(SimDisk::new(7), compacting());
    let queue = bench.queue("orders", Properties::default());
    let producer = bench.state().next_incarnation().unwrap();
    bench
        .send_as(queue, &Message::text("once"), (producer, 41), None)
        .unwrap();
    for round in 0..2_000 {
        bench.send(queue, &Message::text("x".repeat(500)));
        if round % 50 == 0 {
            bench.settle();
            bench.state().purge(queue.source(), "admin").unwrap();
        }
    }
    bench.settle();
    bench.restart();
    assert_eq!(
        bench.state().producer_knowledge(producer, queue),
        ProducerKnowledge::Known(41)
    );
    assert!(
        bench
            .send_as(queue, &Message::text("once"), (producer, 41), None)
            .unwrap()
            .duplicate
    );
}

#[test]
fn a_prepared_transaction_stands_while_all_around_it_is_rewritten() {
    for commits in [true, false] {
        let mut bench = Bench::on(SimDisk::new(8), compacting());
        let queue = bench.queue("orders", Properties::default());
        let filler = bench.queue("filler", Properties::default());
        bench.send(queue, &Message::text("taken"));
        bench.settle();
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        let tx = Tx { owner: 1, number: 1 };
        let xid = Xid {
            format: 1,
            global: vec![1],
            branch: vec![],
        };
        bench.send_in(tx, queue, &Message::text("sent")).unwrap();
        bench
            .state()
            .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(tx))
            .unwrap();
        bench.state().prepare(tx, xid.clone()).unwrap().unwrap();
        for round in 0..2_000 {
            bench.send(filler, &Message::text("x".repeat(500)));
            if round % 50 == 0 {
                bench.settle();
                bench.state().purge(filler.source(), "admin").unwrap();
            }
        }
        bench.settle();
        assert!(disk_bytes(&mut bench) < 700_000, "there was something to rewrite");
        bench.restart();
        assert_eq!(bench.state().prepared().len(), 1);
        assert!(bench.take(queue.source()).is_none(), "neither sent nor given back");
        if commits {
            bench.state().commit_prepared(&xid).unwrap();
        } else {
            bench.state().rollback_prepared(&xid).unwrap();
        }
        bench.settle();
        bench.restart();
        let left = if commits { "sent" } else { "taken" };
        assert_eq!(bench.take_all(queue.source()), [left]);
    }
}

/// Something else happens until the log has gone on by some segments, with a checkpoint there.
fn go_on(bench: &mut Bench, filler: DestinationId) {
    for round in 0..600 {
        bench.send(filler, &Message::text("x".repeat(484)));
        if round % 50 == 49 {
            bench.settle();
            bench.state().purge(filler.source(), "admin").unwrap();
        }
    }
    bench.state().checkpoint().unwrap();
    bench.settle();
}

// The record that prepared it lies beside what is held, so that its segment stays (or is rewritten) while the one with the
// decision is free to go.
#[test]
fn a_decided_transaction_stays_decided_when_its_decision_goes() {
    for (commits, percent) in [(true, 0), (false, 0), (true, 60), (false, 60)] {
        let mut options = compacting();
        options.log.compact_below_percent = percent;
        let mut bench = Bench::on(SimDisk::new(9), options);
        let queue = bench.queue("orders", Properties::default());
        let filler = bench.queue("filler", Properties::default());
        go_on(&mut bench, filler);
        let xid = Xid::default();
        let tx = Tx { owner: 1, number: 1 };
        bench.send(queue, &Message::text("pinned"));
        bench.send_in(tx, queue, &Message::text("sent")).unwrap();
        bench.state().prepare(tx, xid.clone()).unwrap().unwrap();
        go_on(&mut bench, filler);
        if commits {
            bench.state().commit_prepared(&xid).unwrap();
        } else {
            bench.state().rollback_prepared(&xid).unwrap();
        }
        let decided = bench.state().end();
        bench.settle();
        go_on(&mut bench, filler);
        go_on(&mut bench, filler);
        let rewritten = bench.state().log().has_rewritten();
        assert_eq!(rewritten, percent > 0, "what is held is alone in its segment");
        bench.restart();
        assert!(
            bench.state().prepared().is_empty(),
            "commits {commits}, rewritten {rewritten}, decided below {}",
            decided.0
        );
        let left: &[&str] = if commits { &["pinned", "sent"] } else { &["pinned"] };
        assert_eq!(bench.texts(queue.source()), left);
        assert!(bench.state().commit_prepared(&xid).is_err(), "it was decided once");
    }
}

// The questions about a large segment are asked in several pieces. One piece sees the transaction open, a later one decided.
#[test]
fn a_transaction_that_is_decided_while_its_segment_is_rewritten_stays_decided() {
    let mut rewritten = 0;
    for during in 0..12 {
        let mut options = compacting();
        options.log.segment_bytes = 2 * 1024 * 1024;
        options.checkpoint_bytes = Some(u64::MAX);
        let mut bench = Bench::on(SimDisk::new(9), options);
        let queue = bench.queue("orders", Properties::default());
        let tiny = bench.queue("tiny", Properties::default());
        let filler = bench.queue("filler", Properties::default());
        bench.send(queue, &Message::text("taken"));
        bench.settle();
        let (tx, xid) = (Tx { owner: 1, number: 1 }, Xid::default());
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        bench
            .state()
            .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(tx))
            .unwrap();
        bench.send(queue, &Message::text("pinned"));
        for _ in 0..6_000 {
            bench.send(tiny, &Message::text("x"));
        }
        bench.state().prepare(tx, xid.clone()).unwrap().unwrap();
        (0..9).for_each(|_| go_on(&mut bench, filler));
        bench.state().purge(tiny.source(), "admin").unwrap();
        let write = |bench: &mut Bench| {
            while let Some(job) = bench.state().next_write().unwrap() {
                let done = job.run();
                bench.state().complete_write(done).unwrap();
            }
        };
        write(&mut bench);
        assert!(!bench.state().log().has_rewritten());
        for step in 0..30 {
            if step == during {
                rewritten += u32::from(bench.state().log().has_rewritten());
                bench.state().commit_prepared(&xid).unwrap();
                write(&mut bench);
            }
            match bench.state().maintenance().unwrap() {
                Some(job) => {
                    let done = job.run();
                    bench.state().complete_maintenance(done).unwrap();
                }
                None => write(&mut bench),
            }
            if step >= during && bench.state().log().has_rewritten() {
                // Another rewrite, which knows all, would make it good again.
                break;
            }
        }
        assert!(bench.state().log().has_rewritten());
        bench.restart();
        assert_eq!(bench.texts(queue.source()), ["pinned"], "decided during step {during}");
        assert!(bench.state().prepared().is_empty());
    }
    assert!((1..11).contains(&rewritten), "{rewritten} came after the rewrite");
}

// What a prepared transaction took is kept by a rewrite that comes after its acknowledgement, and its decision after both.
#[test]
fn an_acknowledgement_in_a_transaction_counts_from_its_commit_on() {
    let mut options = compacting();
    options.log.compact_below_percent = 20;
    let mut bench = Bench::on(SimDisk::new(9), options);
    let queue = bench.queue("orders", Properties::default());
    let dense = bench.queue("dense", Properties::default());
    let filler = bench.queue("filler", Properties::default());
    let thicken = |bench: &mut Bench| {
        for _ in 0..100 {
            bench.send(dense, &Message::text("x".repeat(184)));
        }
    };
    bench.send(queue, &Message::text("taken"));
    bench.send(queue, &Message::text("pinned"));
    thicken(&mut bench);
    go_on(&mut bench, filler);
    let (tx, xid) = (Tx { owner: 1, number: 1 }, Xid::default());
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench
        .state()
        .acknowledge(queue.source(), &[(sequence, sequence)], |_| true, Some(tx))
        .unwrap();
    bench.send(queue, &Message::text("beside it"));
    thicken(&mut bench);
    bench.state().prepare(tx, xid.clone()).unwrap().unwrap();
    thicken(&mut bench);
    go_on(&mut bench, filler);
    bench.state().purge(dense.source(), "admin").unwrap();
    // Now both segments are sparse: what is not decided is kept.
    go_on(&mut bench, filler);
    assert!(bench.state().log().has_rewritten());
    bench.state().commit_prepared(&xid).unwrap();
    go_on(&mut bench, filler);
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["pinned", "beside it"]);
}

#[test]
fn a_refused_number_is_remembered_when_the_records_that_told_of_it_are_gone() {
    let mut bench = Bench::on(SimDisk::new(7), compacting());
    let queue = bench.queue("orders", Properties::default());
    let filler = bench.queue("filler", Properties::default());
    let producer = bench.state().next_incarnation().unwrap();
    bench.state().note_refused(queue, producer, 1, false);
    bench
        .send_as(queue, &Message::text("later"), (producer, 2), None)
        .unwrap();
    bench.settle();
    bench.state().purge(queue.source(), "admin").unwrap();
    go_on(&mut bench, filler);
    go_on(&mut bench, filler);
    bench.restart();
    let again = |bench: &mut Bench, number| {
        let message = Message::text("again");
        bench
            .send_as(queue, &message, (producer, number), None)
            .unwrap()
            .duplicate
    };
    assert!(again(&mut bench, 2));
    assert!(!again(&mut bench, 1), "it was refused, so it is new");
}

#[test]
fn the_name_of_a_deleted_queue_is_known_while_messages_that_were_sent_there_are_kept() {
    let mut bench = Bench::on(SimDisk::new(7), compacting());
    let filler = bench.queue("filler", Properties::default());
    let name = DestinationName::parse("gone").unwrap();
    let properties = Properties {
        redelivery_max: 1,
        ..Properties::default()
    };
    let gone = bench
        .state()
        .ensure_destination(Kind::Queue, &name, Origin::Dynamic, properties)
        .unwrap();
    bench.send(gone, &Message::text("aside").preserved());
    bench.settle();
    let (_, sequence, _) = bench.take(gone.source()).unwrap();
    assert_eq!(bench.state().release(gone.source(), sequence, true), Released::Moved);
    bench.state().delete_destination(gone, true, "admin").unwrap();
    go_on(&mut bench, filler);
    go_on(&mut bench, filler);
    bench.restart();
    assert_eq!(bench.texts(UNDELIVERED.source()), ["aside"]);
    assert_eq!(bench.state().destination_name(gone), Some((Kind::Queue, "gone")));
}

// The segment of what it sent was rewritten while it was undecided; the commit came after a start.
#[test]
fn what_a_prepared_transaction_sent_is_there_when_it_was_committed_in_a_later_life() {
    let mut options = compacting();
    options.log.compact_below_percent = 20;
    let mut bench = Bench::on(SimDisk::new(9), options);
    let queue = bench.queue("orders", Properties::default());
    let filler = bench.queue("filler", Properties::default());
    let (tx, xid) = (Tx { owner: 1, number: 1 }, Xid::default());
    let dense = bench.queue("dense", Properties::default());
    bench.send_in(tx, queue, &Message::text("sent")).unwrap();
    bench.send(queue, &Message::text("pinned"));
    for _ in 0..100 {
        bench.send(dense, &Message::text("x".repeat(184)));
    }
    go_on(&mut bench, filler);
    bench.state().prepare(tx, xid.clone()).unwrap().unwrap();
    go_on(&mut bench, filler);
    bench.restart();
    // Now the segment is sparse.
    bench.state().purge(dense.source(), "admin").unwrap();
    go_on(&mut bench, filler);
    assert!(bench.state().log().has_rewritten());
    bench.state().commit_prepared(&xid).unwrap();
    go_on(&mut bench, filler);
    go_on(&mut bench, filler);
    bench.restart();
    assert_eq!(bench.texts(queue.source()), ["sent", "pinned"]);
    assert!(bench.state().prepared().is_empty());
}

// The first move is kept for the sake of the message that it ended, although it has been superseded itself.
#[test]
fn a_message_that_was_moved_twice_does_not_come_back_where_it_was_in_between() {
    let mut options = compacting();
    options.log.compact_below_percent = 20;
    let mut bench = Bench::on(SimDisk::new(9), options);
    let [from, between, last, pins, dense, filler] =
        ["from", "between", "last", "pins", "dense", "filler"].map(|name| bench.queue(name, Properties::default()));
    bench.send(from, &Message::text("moved"));
    bench.send(pins, &Message::text("beside the message"));
    for _ in 0..100 {
        bench.send(dense, &Message::text("x".repeat(184)));
    }
    go_on(&mut bench, filler);
    let move_first = |bench: &mut Bench, from: DestinationId, to: DestinationId| {
        bench
            .state()
            .move_message(from.source(), 1, to.source(), "admin")
            .unwrap();
    };
    move_first(&mut bench, from, between);
    bench.send(pins, &Message::text("beside the first move"));
    go_on(&mut bench, filler);
    move_first(&mut bench, between, last);
    go_on(&mut bench, filler);
    bench.state().purge(last.source(), "admin").unwrap();
    go_on(&mut bench, filler);
    bench.state().purge(dense.source(), "admin").unwrap();
    for _ in 0..3 {
        go_on(&mut bench, filler);
    }
    bench.restart();
    for place in [from, between, last] {
        assert_eq!(bench.state().held_messages(place), 0, "{place:?}");
    }
    assert_eq!(
        bench.texts(pins.source()),
        ["beside the message", "beside the first move"]
    );
}
