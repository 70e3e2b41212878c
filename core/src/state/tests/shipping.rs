//! A second state that takes the first one's log answers identically.

use super::*;
use crate::log::Position;
use crate::state::{SECRET_BYTES, Start};

fn busy(bench: &mut Bench) {
    let queue = bench.queue(
        "orders",
        Properties {
            redelivery_max: 2,
            ..Properties::default()
        },
    );
    let topic = bench.topic("news", Properties::default());
    let durable = bench.subscribe("d", "news", |_| {});
    let gone = bench.subscribe("gone", "news", |_| {});
    bench.bridge(Kind::Topic, "news", Kind::Queue, "orders", Some("n > 1"));
    for number in 0..40 {
        bench.send(
            topic,
            &Message::text(number.to_string())
                .with("n", Value::Int(number % 4))
                .preserved()
                .ttl(5_000),
        );
        bench.send(
            queue,
            &Message::text(format!("q{number}")).priority(number.unsigned_abs() % 10),
        );
        bench.send(queue, &Message::text("volatile").volatile());
    }
    bench.settle();
    for _ in 0..10 {
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        bench.acknowledge(queue.source(), sequence);
        let (_, sequence, _) = bench.take(durable).unwrap();
        bench.state().release(durable, sequence, true);
    }
    for number in 1..=3 {
        let tx = Tx { owner: 9, number };
        bench.send_in(tx, queue, &Message::text("tx")).unwrap();
        let (_, sequence, _) = bench.take(durable).unwrap();
        bench
            .state()
            .acknowledge(durable, &[(sequence, sequence)], |_| true, Some(tx))
            .unwrap();
        match number {
            1 => drop(bench.state().commit(tx).unwrap()),
            2 => bench.state().rollback(tx).unwrap(),
            _ => drop(
                bench
                    .state()
                    .prepare(
                        tx,
                        Xid {
                            format: 7,
                            ..Xid::default()
                        },
                    )
                    .unwrap(),
            ),
        }
    }
    bench.state().unsubscribe(gone, "admin").unwrap();
    bench.advance(6_000);
    bench.settle();
}

pub(super) fn follow(bench: &mut Bench, follower: &mut State, from: &mut Position) {
    loop {
        let end = bench.state().log().durable();
        if *from >= end {
            return;
        }
        let chunk = bench.state().read_log(*from, 32 * 1024).unwrap();
        *from = follower.append_log(&chunk).unwrap();
        while let Some(job) = follower.next_write().unwrap() {
            let done = job.run();
            follower.complete_write(done).unwrap();
        }
        while let Some(job) = follower.maintenance().unwrap() {
            let done = job.run();
            follower.complete_maintenance(done).unwrap();
        }
    }
}

#[test]
fn a_standby_that_applies_the_log_has_the_same_state() {
    let mut bench = Bench::new();
    let disk = SimDisk::new(2);
    let (mut follower, _) = State::open(Arc::new(disk.clone()), follower_options(), bench.now).unwrap();
    let mut from = follower.log().end();
    follow(&mut bench, &mut follower, &mut from);
    busy(&mut bench);
    follow(&mut bench, &mut follower, &mut from);
    assert_eq!(follower.dump(), bench.state().dump());
    assert!(bench.state().dump().lines().count() > 60, "{}", bench.state().dump());
    assert_eq!(follower.log().rolling_hash(), bench.state().log().rolling_hash());

    // It takes over: what its leader may have delivered comes flagged.
    let epoch = bench.state().epoch() + 1;
    follower
        .begin_epoch(
            epoch,
            Start {
                id: 99,
                secret: [9; SECRET_BYTES],
            },
        )
        .unwrap();
    let queue = bench.state().destination(Kind::Queue, "orders").unwrap().id;
    let mut promoted = Bench {
        disk,
        state: Some(follower),
        ..bench
    };
    promoted.settle();
    let (_, _, delivered) = promoted.take(queue.source()).unwrap();
    assert!(delivered.redelivered);
}

#[test]
fn a_restart_has_the_same_state_as_before() {
    let mut bench = Bench::new();
    busy(&mut bench);
    let before = bench.state().dump();
    bench.restart();
    assert_eq!(bench.state().dump(), before);
    bench.state().checkpoint().unwrap();
    bench.settle();
    bench.restart();
    assert_eq!(bench.state().dump(), before, "a checkpoint changes nothing");
}

fn write(state: &mut State) {
    while let Some(job) = state.next_write().unwrap() {
        let done = job.run();
        state.complete_write(done).unwrap();
    }
}

fn upkeep(state: &mut State) {
    while let Some(job) = state.maintenance().unwrap() {
        let done = job.run();
        state.complete_maintenance(done).unwrap();
    }
}

// Its segments are smaller than its leader's, so that a chunk takes several of them.
#[test]
fn a_standby_that_finds_no_room_within_a_chunk_has_applied_what_its_log_took() {
    let mut options = small_options();
    options.log.segment_bytes = 2 * 1024 * 1024;
    let mut bench = Bench::on(SimDisk::new(1), options);
    let (mut follower, _) = State::open(Arc::new(SimDisk::new(2)), follower_options(), bench.now).unwrap();
    let queue = bench.queue("orders", Properties::default());
    for number in 0..180 {
        bench.send(queue, &Message::text(format!("{number} {}", "x".repeat(8_000))));
        bench.settle();
    }
    let end = bench.state().log().durable();
    let (mut from, mut stopped) = (follower.log().end(), 0);
    while from < end {
        let chunk = bench.state().read_log(from, 16 * 1024 * 1024).unwrap();
        match follower.append_log(&chunk) {
            Ok(now) => {
                stopped += u32::from(now < chunk.to);
                from = now;
            }
            Err(StateError::Log(crate::log::LogError::NoSpace)) => {
                write(&mut follower);
                upkeep(&mut follower);
            }
            Err(other) => panic!("{other}"),
        }
    }
    write(&mut follower);
    assert!(stopped > 0, "there was room for everything");
    assert_eq!(follower.dump(), bench.state().dump());
    assert_eq!(follower.log().rolling_hash(), bench.state().log().rolling_hash());
}

#[test]
fn a_standby_removes_what_lies_below_a_checkpoint_when_that_is_written() {
    let mut bench = Bench::new();
    let disk = SimDisk::new(2);
    let (mut follower, _) = State::open(Arc::new(disk.clone()), follower_options(), bench.now).unwrap();
    let mut from = follower.log().end();
    let queue = bench.queue("orders", Properties::default());
    bench.subscribe("d", "news", |_| {});
    for _ in 0..100 {
        bench.send(queue, &Message::text("x".repeat(8_000)));
        bench.settle();
    }
    bench.state().purge(queue.source(), "admin").unwrap();
    bench.settle();
    follow(&mut bench, &mut follower, &mut from);
    let (before, start) = (follower.dump(), follower.log().start());
    bench.state().checkpoint().unwrap();
    bench.settle();
    while from < bench.state().log().durable() {
        let chunk = bench.state().read_log(from, 1024).unwrap();
        from = follower.append_log(&chunk).unwrap();
    }
    upkeep(&mut follower);
    drop(follower);
    disk.kill_process();
    let (mut follower, _) = State::open(Arc::new(disk.clone()), follower_options(), bench.now).unwrap();
    assert_eq!(follower.dump(), before, "the checkpoint was not written");
    from = follower.log().end();
    follow(&mut bench, &mut follower, &mut from);
    assert_eq!(follower.dump(), bench.state().dump());
    assert!(follower.log().start() > start, "and now it is");
}

#[test]
fn a_standby_that_cannot_read_a_record_stops_for_good_and_says_why() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.send(queue, &Message::text("a"));
    bench.settle();
    let disk = SimDisk::new(2);
    let (mut follower, _) = State::open(Arc::new(disk.clone()), follower_options(), bench.now).unwrap();
    let mut from = follower.log().end();
    follow(&mut bench, &mut follower, &mut from);
    let before = follower.dump();
    // A newer leader knows more.
    let strange = bench.state().log.append(99, b"newer", b"").unwrap();
    bench.send(queue, &Message::text("b"));
    bench.settle();
    for _ in 0..3 {
        let chunk = bench.state().read_log(from, 32 * 1024).unwrap();
        let error = follower.append_log(&chunk).unwrap_err().to_string();
        assert!(
            error.contains(&format!("position {}", strange.get())) && error.contains("newer version"),
            "{error}"
        );
        assert!(follower.failed().is_some());
    }
    assert_eq!(
        (follower.log().end(), follower.dump()),
        (from, before),
        "nothing of it was taken"
    );
    assert!(follower.maintenance().unwrap().is_none());
    // With a version that can read it, it would go on from there.
    drop(follower);
    disk.kill_process();
    let (follower, _) = State::open(Arc::new(disk), follower_options(), bench.now).unwrap();
    assert_eq!(follower.log().end(), from);
}

// What tells of the queue lies behind its messages: in a checkpoint, since the record that made it is gone.
#[test]
fn a_standby_that_restarts_before_it_has_heard_of_a_queue_keeps_its_messages() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    for number in 0..100 {
        bench.send(queue, &Message::text(format!("{number} {}", "x".repeat(8_000))));
        bench.settle();
    }
    for _ in 0..95 {
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        bench.acknowledge(queue.source(), sequence);
    }
    bench.settle();
    bench.state().checkpoint().unwrap();
    bench.settle();
    assert!(
        bench.state().log().start() > Position::FIRST,
        "its record is still there"
    );
    let disk = SimDisk::new(2);
    let (mut follower, _) = State::open(Arc::new(disk.clone()), follower_options(), bench.now).unwrap();
    for _ in 0..3 {
        let chunk = bench.state().read_log(follower.log().end(), 1024).unwrap();
        follower.append_log(&chunk).unwrap();
        write(&mut follower);
    }
    let before = logged_messages(&follower);
    assert!(before.len() > 1 && follower.destination(Kind::Queue, "orders").is_none());
    drop(follower);
    disk.kill_process();
    let (mut follower, _) = State::open(Arc::new(disk.clone()), follower_options(), bench.now).unwrap();
    assert_eq!(logged_messages(&follower), before);
    let mut from = follower.log().end();
    follow(&mut bench, &mut follower, &mut from);
    assert_eq!(follower.dump(), bench.state().dump());
}

// What a checkpoint does not name is gone; the record that deleted it may have gone before what it deleted was sent on.
#[test]
fn a_standby_that_never_hears_of_a_deletion_drops_what_was_deleted_at_the_next_checkpoint() {
    let mut bench = Bench::new();
    let (topic, queue) = (
        bench.topic("news", Properties::default()),
        bench.queue("orders", Properties::default()),
    );
    bench.subscribe("kept", "news", |_| {});
    let gone = bench.subscribe("gone", "news", |_| {});
    let fill = |bench: &mut Bench, to| {
        for _ in 0..40 {
            bench.send(to, &Message::text("x".repeat(8_000)));
            bench.settle();
        }
    };
    // What defines it and what deletes it are in segments of which nothing else is needed.
    fill(&mut bench, queue);
    fill(&mut bench, topic);
    fill(&mut bench, queue);
    bench.state().unsubscribe(gone, "admin").unwrap();
    fill(&mut bench, queue);
    bench.state().purge(queue.source(), "admin").unwrap();
    bench.settle();
    bench.state().checkpoint().unwrap();
    bench.settle();
    assert!(
        !bench.state().log().has_all_from(Position::FIRST),
        "the deletion is still there"
    );
    let (mut follower, _) = State::open(Arc::new(SimDisk::new(2)), follower_options(), bench.now).unwrap();
    let mut from = follower.log().end();
    follow(&mut bench, &mut follower, &mut from);
    assert_eq!(follower.dump(), bench.state().dump());
}

fn logged_messages(state: &State) -> Vec<String> {
    let dump = state.dump();
    let messages = dump.lines().filter(|line| line.starts_with("message "));
    messages.map(str::to_owned).collect()
}
