//! What the host decides, one step of its workers at a time. The simulator does the same by seeds (`sim/run`).

use super::*;
use crate::engine::Settings;
use crate::log::disk::Disk;
use crate::log::{OpenMode, Options};
use crate::name::DestinationName;
use crate::sim::{Faults, SimDisk, Steps, Worker};
use crate::state::{Kind, Origin, Properties, State, StateOptions};
use std::sync::Arc;

fn open(disk: &SimDisk) -> Host<Steps> {
    let options = StateOptions {
        broker: "test".to_owned(),
        log: Options {
            segment_bytes: 64 << 10,
            record_bytes_max: 32 << 10,
            commit_bytes_max: 32 << 10,
            mode: OpenMode::Active { epoch: None },
            zero_fill: false,
            store_id: [7; 16],
            ..Options::default()
        },
        ..StateOptions::default()
    };
    let now = Now {
        wall_ms: 1_700_000_000_000,
        monotonic_ms: 0,
    };
    let (state, _) = State::open(Arc::new(disk.clone()), options, now).unwrap();
    Host::new(Engine::new(state, Settings::default(), now), Steps::whole())
}

/// Something to be written, under a name of its own.
fn change(host: &mut Host<Steps>, name: &str) {
    let name = DestinationName::parse(name).unwrap();
    let state = host.engine_mut().state_mut();
    state
        .ensure_destination(Kind::Queue, &name, Origin::Static, Properties::default())
        .unwrap();
}

/// Runs and polls until nothing is left to do.
fn settle(host: &mut Host<Steps>) {
    loop {
        host.poll();
        let steps = host.executor_mut();
        if !steps.run(Worker::Writer) && !steps.run(Worker::Background) {
            return;
        }
    }
}

fn committed(host: &Host<Steps>) -> bool {
    let state = host.engine().state();
    state.committed() >= state.end()
}

#[test]
fn what_comes_together_is_written_together_and_one_write_is_out_at_a_time() {
    let mut host = open(&SimDisk::new(1));
    settle(&mut host);
    let before = host.commits();
    change(&mut host, "a");
    change(&mut host, "b");
    assert!(!host.executor().has_job(Worker::Writer), "a batch may still come");
    host.poll();
    change(&mut host, "c");
    host.poll();
    assert!(host.executor_mut().run(Worker::Writer));
    assert!(
        !host.executor_mut().run(Worker::Writer),
        "the third waits for the second's result"
    );
    assert!(!committed(&host) && host.executor().is_woken());
    settle(&mut host);
    assert!(committed(&host) && host.commits() == before + 2);
}

#[test]
fn a_result_counts_when_it_is_looked_at_and_not_before() {
    let mut host = open(&SimDisk::new(2));
    settle(&mut host);
    change(&mut host, "a");
    host.poll();
    host.executor_mut().run(Worker::Writer);
    assert!(!committed(&host));
    host.poll();
    assert!(committed(&host) && !host.executor().is_woken());
}

#[test]
fn a_worker_that_ends_fails_the_engine_once() {
    for worker in [Worker::Writer, Worker::Background] {
        let mut host = open(&SimDisk::new(3));
        settle(&mut host);
        host.executor_mut().break_worker(worker);
        assert!(host.executor().is_woken() && host.failed().is_none());
        host.poll();
        assert_eq!(host.failed(), Some("a thread of the engine has ended"));
        assert!(
            host.poll().deadline_ms.is_none_or(|at| at > 0),
            "nothing is tried again"
        );
    }
}

#[test]
fn a_failed_sync_fails_the_engine_and_the_stop_says_so() {
    let disk = SimDisk::new(4);
    let mut host = open(&disk);
    settle(&mut host);
    change(&mut host, "a");
    host.poll();
    disk.set_faults(Faults {
        fail_sync_at: Some(disk.operations() + 1),
        ..Faults::default()
    });
    host.executor_mut().run(Worker::Writer);
    host.poll();
    assert!(host.failed().is_some() && !committed(&host));
    assert!(host.stop().is_err());
}

#[test]
fn a_write_that_found_no_room_is_tried_again_at_the_time_that_the_poll_names() {
    let disk = SimDisk::new(5);
    let mut host = open(&disk);
    settle(&mut host);
    change(&mut host, "a");
    disk.set_faults(Faults {
        shortage_one_in: 1,
        ..Faults::default()
    });
    host.poll();
    host.executor_mut().run(Worker::Writer);
    let deadline = host.poll().deadline_ms.expect("it comes back by itself");
    disk.set_faults(Faults::default());
    settle(&mut host);
    assert!(!committed(&host), "it is not tried again before");
    let mut now = host.engine().now();
    now.monotonic_ms = deadline;
    host.tick(now);
    settle(&mut host);
    assert!(committed(&host) && host.failed().is_none());
}

#[test]
fn a_stop_finishes_what_is_under_way_and_what_was_not_begun() {
    let disk = SimDisk::new(6);
    let mut host = open(&disk);
    change(&mut host, "a");
    host.poll();
    change(&mut host, "b");
    host.stop().unwrap();
    // Nobody has to give up the lock for it, and nothing was torn.
    let host = open(&disk);
    for name in ["a", "b"] {
        assert!(host.engine().state().destination(Kind::Queue, name).is_some(), "{name}");
    }
}

#[test]
fn a_host_that_is_dropped_gives_up_the_store() {
    let disk = SimDisk::new(7);
    let mut host = open(&disk);
    change(&mut host, "a");
    host.poll();
    assert!(disk.lock("lock").is_err());
    drop(host);
    open(&disk);
}
