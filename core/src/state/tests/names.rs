//! Producers that are known by their names: over starts, checkpoints, compaction and on a standby, and when too many are.

use super::shipping::follow;
use super::*;
use crate::log::AppendError;
use crate::sim::Random;
use crate::sim::seeds::each_seed;
use crate::state::{SECRET_BYTES, Start};

fn small_table(named_producers_max: usize) -> StateOptions {
    StateOptions {
        producers_max: 4,
        named_producers_max,
        ..small_options()
    }
}

fn open(bench: &mut Bench, user: &str, name: &str, at: DestinationId) -> Named {
    bench.state().open_named(user, name, at, false).unwrap()
}

fn send(bench: &mut Bench, at: DestinationId, who: Named, sequence: u64) -> bool {
    let text = format!("{:x}.{sequence}", who.incarnation);
    bench
        .send_as(at, &Message::text(text), (who.incarnation, sequence), None)
        .unwrap()
        .duplicate
}

/// So many other producers send that none of before is in the table of all.
fn crowd(bench: &mut Bench, at: DestinationId) {
    for _ in 0..10 {
        let incarnation = bench.state().next_incarnation().unwrap();
        bench
            .send_as(at, &Message::text("another's"), (incarnation, 1), None)
            .unwrap();
    }
    bench.settle();
}

#[test]
fn a_named_producer_goes_on_with_its_numbers_after_any_start_however_many_others_there_were() {
    let mut bench = Bench::on(SimDisk::new(1), small_table(10));
    let [queue, other] = ["a", "b"].map(|name| bench.queue(name, Properties::default()));
    let first = open(&mut bench, "me", "import", queue);
    assert_eq!((first.last, first.opening), (0, 1));
    assert!((1..=3).all(|sequence| !send(&mut bench, queue, first, sequence)));
    let [user, place] = [("you", queue), ("me", other)].map(|(user, at)| open(&mut bench, user, "import", at));
    assert!(user.incarnation != first.incarnation && place.incarnation != first.incarnation);
    assert_eq!(
        (user.last, place.last),
        (0, 0),
        "another user's, and another destination's, is another"
    );
    crowd(&mut bench, queue);
    for (opening, step) in (2..).zip(["kill", "stop", "checkpoint", "nothing"]) {
        match step {
            "kill" => bench.restart(),
            "stop" => bench.restart_cleanly(),
            "checkpoint" => {
                bench.state().checkpoint().unwrap();
                bench.settle();
                bench.restart();
            }
            _ => {}
        }
        let again = open(&mut bench, "me", "import", queue);
        assert_eq!(
            (again.incarnation, again.last, again.opening),
            (first.incarnation, 3, opening),
            "{step}"
        );
        assert!(
            (1..=3).all(|sequence| send(&mut bench, queue, again, sequence)),
            "{step}"
        );
        assert_eq!(bench.state().named_producers(), 3);
        bench.settle();
    }
    // The numbers of a queue that is no more are nobody's.
    bench.state().delete_destination(queue, true, "").unwrap();
    assert_eq!(bench.state().named_producers(), 1);
    bench.settle();
    bench.queues.remove(0);
    bench.restart();
    assert_eq!(bench.state().named_producers(), 1);
}

#[test]
fn numbers_of_a_named_producer_outlive_their_messages_and_the_segments_of_these() {
    let mut options = small_table(10);
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 16 * 1024;
    options.checkpoint_bytes = Some(128 * 1024);
    let mut bench = Bench::on(SimDisk::new(5), options);
    let queue = bench.queue("a", Properties::default());
    let named = open(&mut bench, "me", "import", queue);
    assert!(!send(&mut bench, queue, named, 1));
    let begin = bench.state().log().start();
    bench.settle();
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    bench.acknowledge(queue.source(), sequence);
    for _ in 0..600 {
        bench.send(queue, &Message::text("x".repeat(2_000)));
        bench.settle();
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        bench.acknowledge(queue.source(), sequence);
        bench.settle();
    }
    assert!(
        bench.state().log().start() > begin,
        "nothing of before is left in the log"
    );
    bench.restart();
    let again = open(&mut bench, "me", "import", queue);
    assert_eq!((again.incarnation, again.last), (named.incarnation, 1));
    assert!(send(&mut bench, queue, again, 1));
}

#[test]
fn a_standby_knows_names_and_goes_on_with_them() {
    let mut bench = Bench::on(SimDisk::new(1), small_table(2));
    let disk = SimDisk::new(2);
    let mut options = small_table(2);
    options.log.mode = OpenMode::Follower;
    let (mut follower, _) = State::open(Arc::new(disk), options, bench.now).unwrap();
    let mut from = follower.log().end();
    let queue = bench.queue("a", Properties::default());
    for name in ["one", "two", "one", "three"] {
        let named = open(&mut bench, "me", name, queue);
        send(&mut bench, queue, named, named.last + 1);
        bench.settle();
        follow(&mut bench, &mut follower, &mut from);
        assert_eq!(follower.dump(), bench.state().dump());
    }
    bench.state().checkpoint().unwrap();
    bench.settle();
    follow(&mut bench, &mut follower, &mut from);
    assert_eq!(follower.dump(), bench.state().dump());
    let epoch = bench.state().epoch() + 1;
    let start = Start {
        id: 99,
        secret: [9; SECRET_BYTES],
    };
    follower.begin_epoch(epoch, start).unwrap();
    assert_eq!(follower.open_named("me", "one", queue, false).unwrap().last, 2);
    assert!(matches!(
        follower.open_named("me", "two", queue, false),
        Err(NameError::Forgotten)
    ));
}

#[test]
fn what_a_full_table_forgot_is_not_taken_for_new_unless_its_application_says_so() {
    let mut bench = Bench::on(SimDisk::new(1), small_table(2));
    let queue = bench.queue("a", Properties::default());
    for name in ["one", "two", "three"] {
        let named = open(&mut bench, "me", name, queue);
        assert!(!send(&mut bench, queue, named, 1));
    }
    for step in 0..4 {
        assert_eq!(bench.state().named_producers(), 2);
        for name in ["one", "never seen"] {
            let refused = bench.state().open_named("me", name, queue, false);
            assert!(matches!(refused, Err(NameError::Forgotten)), "{step}: {name}");
        }
        assert_eq!(open(&mut bench, "me", "three", queue).last, 1);
        bench.settle();
        match step {
            0 => bench.restart(),
            1 => {
                bench.state().checkpoint().unwrap();
                bench.settle();
                bench.restart();
            }
            _ => bench.restart_cleanly(),
        }
    }
    assert_eq!(
        bench
            .state()
            .open_named("you", "their first", queue, false)
            .unwrap()
            .last,
        0
    );
    assert_eq!(bench.state().open_named("me", "one", queue, true).unwrap().last, 0);
}

#[test]
fn a_name_is_refused_at_once_where_the_store_is_full_and_nothing_of_it_is_kept() {
    let mut bench = Bench::new();
    let queue = bench.queue("a", Properties::default());
    bench.settle();
    bench.disk.set_faults(crate::sim::Faults {
        space_bytes: Some(0),
        ..crate::sim::Faults::default()
    });
    let mut refused = 0;
    for sequence in 0..2_000 {
        refused += u32::from(bench.try_send(queue, &Message::text("x".repeat(2_000))).is_err());
        if sequence % 10 == 0 {
            bench.settle();
        }
    }
    assert!(refused > 0);
    let before = bench.state().dump();
    let error = bench.state().open_named("me", "import", queue, false);
    assert!(matches!(
        error,
        Err(NameError::State(StateError::Append(AppendError::NoSpace)))
    ));
    assert_eq!((bench.state().dump(), bench.state().named_producers()), (before, 0));
}

// Names are opened and forgotten, numbers sent and sent again, in any order; what a start knows is what was known.
#[test]
fn a_named_number_is_stored_once_whatever_happens_in_between() {
    each_seed(40, |seed| {
        let mut random = Random::new(seed);
        let mut bench = Bench::on(SimDisk::new(seed), small_table(3));
        let queues = ["a", "b"].map(|name| bench.queue(name, Properties::default()));
        let mut stored: std::collections::BTreeMap<(u64, u64), u64> = std::collections::BTreeMap::new();
        for _ in 0..200 {
            let (who, at) = (random.below(3), random.below(2));
            let (user, queue) = (["me", "you"][random.below(2) as usize], queues[at as usize]);
            let name = format!("{who}");
            match random.below(12) {
                0 => bench.restart(),
                1 => {
                    bench.state().checkpoint().unwrap();
                    bench.settle();
                }
                2 => crowd(&mut bench, queue),
                _ => {
                    let known = bench.state().named_producer(user, &name, queue);
                    let named = bench.state().open_named(user, &name, queue, true).unwrap();
                    let key = (named.incarnation, queue.0);
                    assert_eq!(known.map_or(0, |known| known.last), named.last);
                    assert_eq!(stored.get(&key).copied().unwrap_or(0), named.last, "seed {seed}");
                    for sequence in named.last.saturating_sub(1).max(1)..=named.last + random.below(3) {
                        assert_eq!(send(&mut bench, queue, named, sequence), sequence <= named.last);
                        let last = stored.entry(key).or_default();
                        *last = sequence.max(*last);
                    }
                    assert!(bench.state().named_producers() <= 3);
                    bench.settle();
                }
            }
            let before = bench.state().dump();
            if random.one_in(8) {
                bench.state = None;
                bench.disk.kill_process();
                bench.open().unwrap();
                let names = |dump: &str| -> Vec<String> {
                    let lines = dump.lines().filter(|line| line.contains("ame"));
                    lines.map(str::to_owned).collect()
                };
                assert_eq!(names(&bench.state().dump()), names(&before), "seed {seed}");
            }
        }
    });
}
