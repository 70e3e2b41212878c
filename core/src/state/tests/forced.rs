//! Forced starts that lose the records by which queues and subscriptions are named: what is sound of them is kept.

use super::*;
use crate::log::Position;
use crate::log::disk::Disk;
use crate::sim::Faults;

/// Segments so small that what a test sends fills several.
fn options() -> StateOptions {
    let mut options = small_options();
    options.log.segment_bytes = 64 * 1024;
    options.log.record_bytes_max = 16 * 1024;
    options.log.commit_bytes_max = 16 * 1024;
    options
}

fn text(number: u64) -> Message {
    Message::text(format!("{number} {}", "x".repeat(2_000)))
}

impl Bench {
    /// A queue, and a durable subscription to a topic, defined in the first segment; a hundred messages each, in several.
    fn grown() -> (Self, DestinationId, SourceId) {
        let mut bench = Self::on(SimDisk::new(3), options());
        let orders = bench.queue("orders", Properties::default());
        let flights = bench.topic("flights", Properties::default());
        let late = bench.subscribe("late", "flights", |_| {});
        for number in 1..=100 {
            bench.send(orders, &text(number));
            bench.send(flights, &text(number));
            if number % 5 == 0 {
                bench.settle();
            }
        }
        (bench, orders, late)
    }

    /// Nothing is configured: what there is comes from the records.
    fn forget_configuration(&mut self) {
        self.queues.clear();
        self.topics.clear();
    }

    /// A forced start that the store goes on from.
    fn go_on_by_force(&mut self) -> RecoveryReport {
        self.state = None;
        self.disk.kill_process();
        let mut options = self.options.clone();
        options.log.force_start = true;
        let (state, report) = State::open(Arc::new(self.disk.clone()), options, self.now).unwrap();
        self.state = Some(state);
        self.settle();
        report
    }

    fn sealed(&self) -> Vec<String> {
        let mut names = self.disk.list().unwrap();
        names.retain(|name| name.ends_with(".footer"));
        names.iter().map(|name| name.replace("footer", "segment")).collect()
    }

    /// Takes the first segments away, with their footers or without.
    fn lose(&mut self, files: &[String], with_footers: bool) {
        self.state = None;
        self.disk.kill_process();
        for file in files {
            self.disk.remove(file).unwrap();
            if with_footers {
                self.disk.remove(&file.replace("segment", "footer")).unwrap();
            }
        }
        self.disk.sync_directory().unwrap();
    }

    fn sequences(&mut self, source: SourceId) -> Vec<u64> {
        let source = self.state().source(source).unwrap();
        source.queue.iter().map(|(_, entry)| entry.sequence).collect()
    }

    /// Which queue is called orders, and which subscription late.
    fn named(&mut self) -> (Option<DestinationId>, Option<SourceId>) {
        let queue = self.state().destination(Kind::Queue, "orders").map(|found| found.id);
        let subscription = self.state().subscription("me", "late").map(|found| found.id);
        (queue, subscription)
    }
}

fn positions(bench: &mut Bench, source: SourceId) -> Vec<Position> {
    let source = bench.state().source(source).unwrap();
    source.queue.iter().map(|(_, entry)| entry.position).collect()
}

/// What a report says is lost of these messages.
fn lost(report: &RecoveryReport, positions: &[Position]) -> usize {
    let within = |position: &&Position| {
        report
            .dropped
            .iter()
            .any(|lost| lost.position <= **position && position.0 < lost.position.0 + lost.bytes)
    };
    positions.iter().filter(within).count()
}

// covers: EMS-STORE-A14
#[test]
fn who_loses_the_segment_with_the_definitions_keeps_the_names_from_its_footer() {
    let (mut bench, orders, late) = Bench::grown();
    let (acknowledged, _) = (5, bench.take(orders.source()).unwrap());
    bench.acknowledge(orders.source(), 1);
    bench.settle();
    let before = positions(&mut bench, orders.source());
    let first = bench.sealed()[..1].to_vec();
    bench.lose(&first, false);
    assert!(State::open(Arc::new(bench.disk.clone()), bench.options.clone(), bench.now).is_err());
    let report = bench.go_on_by_force();
    assert!(report.renamed.is_empty(), "{:?}", report.renamed);
    assert!(
        report.dropped.iter().all(|lost| lost.why.contains("is missing")),
        "{:?}",
        report.dropped
    );
    for _ in 0..2 {
        assert_eq!(bench.named(), (Some(orders), Some(late)));
        let held = bench.sequences(orders.source());
        assert_eq!(held.last(), Some(&100));
        assert!(held[0] > acknowledged, "what lay in the segment is lost, and only that");
        assert_eq!(held.len() + lost(&report, &before), before.len());
        let texts = bench.texts(late);
        assert!(
            texts.len() > 50 && texts.last().unwrap().starts_with("100 "),
            "{}",
            texts.len()
        );
        bench.forget_configuration();
        bench.restart();
    }
}

// covers: EMS-STORE-A14
#[test]
fn who_loses_every_record_of_a_queues_name_finds_its_messages_under_its_number() {
    let (mut bench, orders, late) = Bench::grown();
    let first = bench.sealed()[..1].to_vec();
    bench.lose(&first, true);
    bench.forget_configuration();
    let report = bench.go_on_by_force();
    let [queue, subscription] = [orders.source(), late].map(|source| format!("$sys.recovered.{}", source.0));
    let names: Vec<&str> = report.renamed.iter().map(|renamed| renamed.name.as_str()).collect();
    assert_eq!(names, [&queue, &subscription]);
    let held = report.renamed[0].messages;
    assert!((50..100).contains(&held), "{held}");
    for start in 0..3 {
        assert!(bench.state().destination(Kind::Queue, "orders").is_none());
        let found = bench.state().destination(Kind::Queue, &queue).unwrap();
        assert_eq!((found.id, found.origin), (orders, Origin::Dynamic));
        assert!(found.settled && found.is_current, "nobody is asked what it is like");
        for name in [&queue, &subscription] {
            let id = bench.state().destination(Kind::Queue, name).unwrap().id;
            let texts = bench.texts(id.source());
            assert!(texts.len() as u64 >= held && texts.last().unwrap().starts_with("100 "));
        }
        if start == 1 {
            // Another configuration holds, and a checkpoint stands for all records before it.
            bench.state().unsettle_dynamic();
            let found = bench.state().destination(Kind::Queue, &queue).unwrap();
            assert!(found.settled && found.is_current);
            bench.state().checkpoint().unwrap();
            bench.settle();
        }
        bench.restart();
    }
    // Whoever is called so now is somebody else.
    let again = bench.queue("orders", Properties::default());
    assert!(again > orders);
    let taken = bench.take_all(orders.source()).len() as u64;
    assert_eq!(taken, held);
    let all = bench.sequences(orders.source());
    all.into_iter().for_each(|sequence| {
        bench.acknowledge(orders.source(), sequence);
    });
    bench.settle();
    assert_eq!(bench.state().delete_destination(orders, false, "unused").unwrap(), 0);
    bench.settle();
    bench.restart();
    assert!(bench.state().destination(Kind::Queue, &queue).is_none());
    assert_eq!(bench.texts(again.source()).len(), 0);
}

#[test]
fn who_loses_the_newest_checkpoint_keeps_the_names_from_its_footer() {
    let (mut bench, orders, late) = Bench::grown();
    let before = bench.sealed();
    bench.state().checkpoint().unwrap();
    // From now on nothing but the checkpoint names them.
    for number in 1..=30 {
        let held = bench.take(orders.source()).unwrap();
        bench.acknowledge(orders.source(), held.1);
        bench.send(orders, &text(100 + number));
        bench.settle();
    }
    let holder = bench.sealed().into_iter().find(|name| !before.contains(name)).unwrap();
    bench.lose(&before[..1], true);
    bench.lose(&[holder], false);
    bench.forget_configuration();
    let report = bench.go_on_by_force();
    assert!(report.renamed.is_empty(), "{:?}", report.renamed);
    assert_eq!(bench.named(), (Some(orders), Some(late)));
    assert!(bench.sequences(orders.source()).len() > 50);
}

#[test]
fn what_was_deleted_and_made_again_is_not_kept_under_two_names() {
    let mut bench = Bench::on(SimDisk::new(4), options());
    let first = bench.queue("orders", Properties::default());
    let other = bench.queue("other", Properties::default());
    bench.subscribe("late", "flights", |_| {});
    (1..=40).for_each(|number| {
        bench.send(first, &text(number));
        bench.settle();
    });
    bench.settle();
    let before = bench.sealed();
    bench.state().delete_destination(first, true, "admin").unwrap();
    let late = bench.state().subscription("me", "late").unwrap().id;
    bench.state().unsubscribe(late, "admin").unwrap();
    // The record of its end lies in a segment of which nothing is left; the next definitions in a later one.
    let mut filled = 0;
    while bench.sealed().len() <= before.len() {
        filled += 1;
        bench.send(other, &text(filled));
        bench.settle();
    }
    let again = bench.queue("orders", Properties::default());
    let anew = bench.subscribe("late", "flights", |_| {});
    bench.send(again, &text(1));
    bench.settle();
    let holder = bench.sealed().into_iter().find(|name| !before.contains(name)).unwrap();
    bench.lose(&[holder], true);
    bench.forget_configuration();
    let report = bench.go_on_by_force();
    assert!(report.renamed.is_empty(), "{:?}", report.renamed);
    assert_eq!(bench.named(), (Some(again), Some(anew)));
    assert!(
        bench.state().destination_by_id(first).is_none(),
        "there is one queue of a name"
    );
    assert!(bench.state().source(first.source()).is_none());
    assert!(bench.state().source(late).is_none());
    assert_eq!(bench.texts(again.source()).len(), 1);
}

#[test]
fn names_that_find_no_room_are_logged_when_there_is_some() {
    let (mut bench, orders, _) = Bench::grown();
    let first = bench.sealed()[..1].to_vec();
    bench.lose(&first, true);
    bench.forget_configuration();
    // Nothing is left but the end of the segment that is written.
    let mut options = bench.options.clone();
    options.log.force_start = true;
    let mut state = State::open(Arc::new(bench.disk.clone()), options, bench.now).unwrap().0;
    let name = format!("$sys.recovered.{}", orders.0);
    assert!(state.recovered.is_empty(), "there was room");
    state.recovered.push(orders);
    let end = state.log().end();
    state.log_recovered().unwrap();
    assert!(state.log().end() > end && state.recovered.is_empty());
    // One that was deleted meanwhile is not made again.
    state.recovered.push(orders);
    state.delete_destination(orders, true, "admin").unwrap();
    let end = state.log().end();
    state.log_recovered().unwrap();
    assert!(state.log().end() == end && state.recovered.is_empty());
    bench.state = Some(state);
    bench.settle();
    bench.restart();
    assert!(bench.state().destination(Kind::Queue, &name).is_none());
}

/// Opens a producer by a name, not as a new one.
fn opened(bench: &mut Bench, name: &str, to: DestinationId) -> Result<Named, NameError> {
    bench.state().open_named("ann", name, to, false)
}

// covers: EMS-MSG-E01
#[test]
fn a_producer_that_the_lost_records_may_have_told_of_is_not_taken_for_new() {
    let mut bench = Bench::on(SimDisk::new(5), options());
    let orders = bench.queue("orders", Properties::default());
    let lost = opened(&mut bench, "lost", orders).unwrap();
    let plain = bench.state().next_incarnation().unwrap();
    for incarnation in [lost.incarnation, plain] {
        bench.send_as(orders, &text(1), (incarnation, 1), None).unwrap();
    }
    (1..=40).for_each(|number| {
        bench.send(orders, &text(number));
        bench.settle();
    });
    let kept = opened(&mut bench, "kept", orders).unwrap();
    bench.send_as(orders, &text(1), (kept.incarnation, 1), None).unwrap();
    bench.settle();
    let first = bench.sealed()[..1].to_vec();
    bench.lose(&first, true);
    bench.forget_configuration();
    bench.go_on_by_force();
    for _ in 0..2 {
        assert!(
            matches!(opened(&mut bench, "lost", orders), Err(NameError::Forgotten)),
            "it had sent number 1"
        );
        assert!(matches!(opened(&mut bench, "never", orders), Err(NameError::Forgotten)));
        assert_eq!(
            bench.state().producer_knowledge(plain, orders),
            ProducerKnowledge::Forgotten
        );
        let known = opened(&mut bench, "kept", orders).unwrap();
        assert_eq!((known.incarnation, known.last), (kept.incarnation, 1));
        // Who is new is so.
        let new = bench.state().next_incarnation().unwrap();
        assert_eq!(bench.state().producer_knowledge(new, orders), ProducerKnowledge::New);
        bench.settle();
        bench.restart();
    }
    assert_eq!(bench.state().open_named("ann", "lost", orders, true).unwrap().last, 0);
}

#[test]
fn a_forced_start_that_loses_nothing_forgets_nobody() {
    let mut bench = Bench::on(SimDisk::new(6), options());
    let orders = bench.queue("orders", Properties::default());
    let plain = bench.state().next_incarnation().unwrap();
    bench.settle();
    bench.go_on_by_force();
    assert_eq!(opened(&mut bench, "new", orders).unwrap().last, 0);
    assert_eq!(bench.state().producer_knowledge(plain, orders), ProducerKnowledge::New);
}

// covers: EMS-STORE-A14
#[test]
fn a_forced_start_that_is_killed_anywhere_loses_nothing_of_what_it_would_have_kept() {
    let (mut bench, orders, _) = Bench::grown();
    let first = bench.sealed()[..1].to_vec();
    bench.lose(&first, true);
    bench.forget_configuration();
    let damaged = bench.disk.fork(1);
    bench.go_on_by_force();
    let kept = bench.texts(orders.source()).len();
    let name = format!("$sys.recovered.{}", orders.0);
    let mut plain_starts = 0;
    for power in [false, true] {
        for at in 1.. {
            let disk = damaged.fork(at);
            disk.set_faults(Faults {
                crash_at: Some(disk.operations() + at),
                ..Faults::default()
            });
            let mut options = bench.options.clone();
            options.log.force_start = true;
            let forced = State::open(Arc::new(disk.clone()), options, bench.now);
            let ended = !disk.is_down();
            assert!(!ended || forced.is_ok());
            drop(forced);
            if power {
                disk.power_cycle();
            } else {
                disk.kill_process();
            }
            let plain = State::open(Arc::new(disk.clone()), bench.options.clone(), bench.now);
            if let Ok((state, _)) = plain {
                plain_starts += 1;
                let found = state.destination(Kind::Queue, &name).map(|found| found.id);
                assert_eq!(found, Some(orders), "power: {power}, killed at operation {at}");
                let source = state.source(orders.source()).unwrap();
                assert_eq!(source.queue.iter().count(), kept);
                assert!(!disk.names().iter().any(|name| name == "forced"), "it is over");
            }
            if ended {
                break;
            }
        }
    }
    assert!(plain_starts > 2, "{plain_starts}");
}
