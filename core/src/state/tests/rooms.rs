//! Room that is nearly used up: what an operation asked for is there for all of its records, at every place where a record
//! may end before a segment or what is kept does.

use super::*;
use crate::log::AppendError;

/// A store whose upkeep has prepared nothing yet: what publishing leaves alone is not there, what is kept for upkeep is.
fn without_reserve(filler: usize) -> (Bench, [DestinationId; 3]) {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 16 * 1024;
    options.log.commit_bytes_max = 16 * 1024;
    let now = Now {
        wall_ms: 1_700_000_000_000,
        monotonic_ms: 1_000,
    };
    let disk = SimDisk::new(1);
    let (mut state, _) = State::open(Arc::new(disk.clone()), options.clone(), now).unwrap();
    let incarnation = state.next_incarnation().unwrap();
    let mut bench = Bench {
        disk,
        state: Some(state),
        now,
        options,
        queues: Vec::new(),
        topics: Vec::new(),
        bridges: Vec::new(),
        next_number: 0,
        incarnation,
        user: "",
    };
    let plain = Properties::default();
    let rolling = Properties {
        messages_max: 2,
        overflow: OverflowPolicy::DiscardOld,
        ..Properties::default()
    };
    let queues = [("a", plain.clone()), ("b", plain), ("rolling", rolling)];
    let queues = queues.map(|(name, properties)| bench.queue(name, properties));
    for queue in [queues[0], queues[1], queues[2], queues[2]] {
        bench.send(queue, &Message::text("x"));
    }
    while let Some(job) = bench.state().next_write().unwrap() {
        bench.state().complete_write(job.run()).unwrap();
    }
    // As far as what is kept for upkeep, and then in small steps over it.
    for _ in 0..3 {
        bench.send(queues[0], &Message::text("x".repeat(4_000)));
    }
    bench.send(queues[0], &Message::text("x".repeat(filler)));
    (bench, queues)
}

/// Takes a message of each of two queues and sends two to a third one, which discards; commits. What came of it, and whether
/// that logged anything; none where a message found no room.
fn commit(bench: &mut Bench, queues: [DestinationId; 3]) -> Option<(Result<Committed, StateError>, bool)> {
    let tx = Tx { owner: 9, number: 1 };
    for queue in &queues[..2] {
        let source = queue.source();
        let taken = bench.state().browse(source, 0).next()?.sequence;
        bench.state().deliver(source, 4, taken, 1)?;
        bench
            .state()
            .acknowledge(source, &[(taken, taken)], |_| true, Some(tx))
            .unwrap();
    }
    for _ in 0..2 {
        bench.send_in(tx, queues[2], &Message::text("new")).ok()?;
    }
    let end = bench.state().log().end();
    let committed = bench.state().commit(tx);
    Some((committed, bench.state().log().end() > end))
}

#[test]
fn a_commit_that_is_refused_for_want_of_room_has_logged_nothing_and_one_that_is_not_has_room_for_all() {
    let (mut refused, mut done) = (0, 0);
    for filler in (8..13_000).step_by(104) {
        let (mut bench, queues) = without_reserve(filler);
        match commit(&mut bench, queues) {
            Some((Ok(_), _)) => {
                done += 1;
                let held = bench.state().held_messages(queues[2]);
                assert_eq!(held, 2, "{filler}: what had to be discarded found no room");
            }
            Some((Err(StateError::Append(AppendError::NoSpace)), logged)) => {
                refused += 1;
                assert!(!logged, "{filler}: refused with a part of it in the log");
            }
            Some((Err(other), _)) => panic!("{other}"),
            None => {}
        }
    }
    assert!(
        refused > 0 && done > 0,
        "{refused} refused, {done} done: the boundary was not met"
    );
}

/// At once, and not a second later: till then it would be counted, and nobody could have it.
#[test]
fn what_expired_and_found_no_room_goes_as_soon_as_upkeep_has_made_some() {
    let mut waited = 0;
    for filler in (8..13_000).step_by(104) {
        let (mut bench, queues) = without_reserve(filler);
        if bench.try_send(queues[1], &Message::text("brief").ttl(10)).is_err() {
            continue;
        }
        let waiting = |bench: &mut Bench| bench.state().source(queues[1].source()).unwrap().statistics.messages;
        bench.advance(10);
        if waiting(&mut bench) == 1 {
            continue; // there was room
        }
        waited += 1;
        bench.settle();
        let now = bench.now;
        assert_eq!(bench.state().next_deadline(), Some(now.monotonic_ms), "with {filler}");
        bench.state().tick(now);
        assert_eq!(waiting(&mut bench), 1, "with {filler}");
    }
    assert!(waited > 0);
}
