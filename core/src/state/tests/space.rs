//! A full disk: nothing is lost, and taking messages out makes room again.

use crate::log::disk::Disk as _;
use crate::sim::Faults;

use super::*;

fn fill(bench: &mut Bench, queue: DestinationId) -> u64 {
    let body = "x".repeat(8_000);
    for sent in 0..10_000 {
        match bench.try_send(queue, &Message::text(body.clone())) {
            Ok(_) => bench.settle(),
            Err(PublishError::Append(_)) => return sent,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk is never full");
}

#[test]
fn a_disk_that_filled_before_the_first_checkpoint_can_be_drained_and_used_again() {
    let mut bench = Bench::new();
    let queue = bench.queue("orders", Properties::default());
    bench.disk.set_faults(Faults {
        space_bytes: Some(2_000_000),
        ..Faults::default()
    });
    let sent = fill(&mut bench, queue);
    assert!(sent > 50, "{sent}");
    let mut taken = 0;
    while let Some((_, sequence, _)) = bench.take(queue.source()) {
        bench.acknowledge(queue.source(), sequence);
        taken += 1;
        if taken % 16 == 0 {
            bench.state().request_watermark_sync();
            bench.settle();
        }
    }
    assert_eq!(taken, sent);
    for _ in 0..5 {
        bench.state().request_watermark_sync();
        bench.settle();
    }
    let again = fill(&mut bench, queue);
    assert!(again > sent / 2, "only {again} of {sent} fit again");
    bench.restart();
    assert_eq!(bench.texts(queue.source()).len() as u64, again);
}

// covers: EMS-DEST-A63
#[test]
fn nothing_is_discarded_for_a_message_that_finds_no_room_itself() {
    let mut bench = Bench::new();
    let rolling = bench.queue(
        "rolling",
        Properties {
            messages_max: 2,
            overflow: OverflowPolicy::DiscardOld,
            ..Properties::default()
        },
    );
    let queue = bench.queue("orders", Properties::default());
    bench.send(rolling, &Message::text("a"));
    bench.send(rolling, &Message::text("b"));
    bench.disk.set_faults(Faults {
        space_bytes: Some(2_000_000),
        ..Faults::default()
    });
    fill(&mut bench, queue);
    let refused = bench.try_send(rolling, &Message::text("x".repeat(8_000)));
    assert!(matches!(refused, Err(PublishError::Append(_))));
    assert_eq!(bench.texts(rolling.source()), ["a", "b"]);
}

#[test]
fn what_comes_back_and_waits_leaves_the_room_that_is_kept_for_taking_out() {
    const DELAY_MS: u64 = 20_000;
    let mut bench = Bench::new();
    let queue = bench.queue(
        "orders",
        Properties {
            redelivery_delay_ms: DELAY_MS,
            ..Properties::default()
        },
    );
    bench.disk.set_faults(Faults {
        space_bytes: Some(2_000_000),
        ..Faults::default()
    });
    let sent = fill(&mut bench, queue);
    for _ in 0..50 {
        while let Some((_, sequence, _)) = bench.take(queue.source()) {
            assert_eq!(
                bench.state().release(queue.source(), sequence, true),
                Released::Returned
            );
        }
        let statistics = bench.state().source(queue.source()).unwrap().statistics;
        assert_eq!(statistics.returned_messages, sent);
        bench.settle();
        bench.advance(DELAY_MS);
    }
    let mut taken = 0;
    while let Some((_, sequence, _)) = bench.take(queue.source()) {
        bench.acknowledge_alone(queue.source(), sequence).unwrap();
        taken += 1;
    }
    assert_eq!(taken, sent);
}

/// A store that is full of small messages which came many to a write.
fn full_of_small_ones(space_bytes: u64) -> (Bench, DestinationId, u64) {
    filled_with_small_ones(Bench::new(), space_bytes)
}

/// A store that is young, on a disk that has no room for it to grow.
fn young_and_full() -> (Bench, DestinationId, u64) {
    let mut options = small_options();
    (options.log.young_bytes, options.log.segment_bytes) = (options.log.segment_bytes, 4 << 20);
    let (mut bench, queue, sent) = filled_with_small_ones(Bench::on(SimDisk::new(1), options), 6_000_000);
    assert!(bench.state().log().is_young() && bench.state().log().space() == crate::log::Space::Full);
    assert!(sent > 400, "{sent}");
    (bench, queue, sent)
}

fn filled_with_small_ones(mut bench: Bench, space_bytes: u64) -> (Bench, DestinationId, u64) {
    let queue = bench.queue("orders", Properties::default());
    bench.disk.set_faults(Faults {
        space_bytes: Some(space_bytes),
        ..Faults::default()
    });
    let body = "x".repeat(1_000);
    for sent in 0..100_000 {
        if bench.try_send(queue, &Message::text(body.clone())).is_err() {
            bench.settle();
            return (bench, queue, sent);
        }
        if sent % 32 == 0 {
            bench.settle();
        }
    }
    panic!("the disk is never full");
}

impl Bench {
    /// Acknowledges one message, alone in its write; where there is no room, again in the host's next seconds.
    fn acknowledge_alone(&mut self, source: SourceId, sequence: u64) -> Result<(), u64> {
        for seconds in 0..20 {
            let acknowledged = self.acknowledge(source, sequence);
            self.settle();
            if acknowledged.count == 1 {
                return Ok(());
            }
            assert!(acknowledged.short_of_room, "{sequence} after {seconds} s");
            self.state().request_watermark_sync();
            self.settle();
        }
        Err(sequence)
    }

    /// Takes everything, and acknowledges it one by one, in this order.
    fn drain_alone(&mut self, source: SourceId, order: impl FnOnce(&mut Vec<u64>)) -> usize {
        let mut sequences: Vec<u64> =
            std::iter::from_fn(|| self.take(source).map(|(_, sequence, _)| sequence)).collect();
        order(&mut sequences);
        let count = sequences.len();
        for (done, sequence) in sequences.into_iter().enumerate() {
            let acknowledged = self.acknowledge_alone(source, sequence);
            assert_eq!(acknowledged, Ok(()), "stuck after {done} of {count}");
            if done % 64 == 0 {
                self.state().request_watermark_sync();
                self.settle();
            }
        }
        count
    }
}

#[test]
fn a_full_disk_is_drained_by_single_acknowledgements_to_the_end() {
    let (mut bench, queue, sent) = full_of_small_ones(6_000_000);
    assert!(sent > 3_000, "{sent}");
    assert_eq!(bench.drain_alone(queue.source(), |_| {}) as u64, sent);
    for _ in 0..5 {
        bench.state().request_watermark_sync();
        bench.settle();
    }
    let again = fill(&mut bench, queue);
    assert!(again * 8 > sent / 2, "only {again} of 8 kB after {sent} of 1 kB");
}

#[test]
fn a_full_disk_is_drained_by_single_acknowledgements_in_whatever_order() {
    let (mut bench, queue, sent) = full_of_small_ones(6_000_000);
    let mut random = crate::sim::Random::new(7);
    let drained = bench.drain_alone(queue.source(), |sequences| {
        for at in (1..sequences.len()).rev() {
            sequences.swap(at, random.below(at as u64 + 1) as usize);
        }
    });
    assert_eq!(drained as u64, sent);
}

#[test]
fn a_young_store_without_room_to_grow_is_drained_by_single_acknowledgements_and_used_again() {
    let (mut bench, queue, sent) = young_and_full();
    let mut random = crate::sim::Random::new(7);
    for round in 0..3 {
        let drained = bench.drain_alone(queue.source(), |sequences| {
            for at in (1..sequences.len() * usize::from(round > 0)).rev() {
                sequences.swap(at, random.below(at as u64 + 1) as usize);
            }
        });
        assert!(round > 0 || drained as u64 == sent);
        for _ in 0..5 {
            bench.state().request_watermark_sync();
            bench.settle();
        }
        let again = fill(&mut bench, queue);
        assert!(again * 8 > sent / 2, "only {again} of 8 kB after {sent} of 1 kB");
        bench.restart();
    }
    // There is room again, which it finds by itself.
    bench.disk.set_faults(Faults::default());
    bench.drain_alone(queue.source(), |_| {});
    for _ in 0..20 {
        bench.state().request_watermark_sync();
        bench.settle();
    }
    assert!(!bench.state().log().is_young());
    for _ in 0..500 {
        bench.send(queue, &Message::text("once more".to_owned()));
        bench.settle();
    }
}

#[test]
fn a_broker_that_dies_at_any_point_of_draining_a_full_disk_starts_and_goes_on() {
    drain_over_deaths(full_of_small_ones(4_000_000));
    drain_over_deaths(young_and_full());
}

fn drain_over_deaths((mut bench, queue, sent): (Bench, DestinationId, u64)) {
    let mut random = crate::sim::Random::new(3);
    let mut taken = 0;
    while let Some((_, sequence, _)) = bench.take(queue.source()) {
        assert_eq!(
            bench.acknowledge_alone(queue.source(), sequence),
            Ok(()),
            "stuck after {taken} of {sent}"
        );
        taken += 1;
        match random.below(60) {
            0 => bench.restart(),
            1 => bench.restart_cleanly(),
            _ => {}
        }
    }
    assert_eq!(taken, sent);
}

/// Nothing but acknowledgements, without upkeep between them: the reserve goes as far as it may.
fn exhaust_the_reserve(bench: &mut Bench, queue: DestinationId) -> u64 {
    let mut taken = 0;
    while let Some((_, sequence, _)) = bench.take(queue.source()) {
        let acknowledged = bench.acknowledge(queue.source(), sequence);
        if acknowledged.short_of_room {
            return taken;
        }
        taken += 1;
        let job = bench.state().next_write().unwrap().unwrap();
        bench.state().complete_write(job.run()).unwrap();
    }
    panic!("the reserve has no end");
}

#[test]
fn a_reserve_that_acknowledgements_used_up_lets_upkeep_make_room() {
    let (mut bench, queue, sent) = full_of_small_ones(4_000_000);
    let taken = exhaust_the_reserve(&mut bench, queue);
    assert!(taken > 60, "{taken}");
    let rest = bench.drain_alone(queue.source(), |_| {}) as u64;
    // One was in flight when it was refused.
    assert_eq!(taken + rest + 1, sent);
}

#[test]
fn a_reserve_that_acknowledgements_used_up_leaves_room_for_starts() {
    let (mut bench, queue, sent) = full_of_small_ones(4_000_000);
    let taken = exhaust_the_reserve(&mut bench, queue);
    // Others have taken what the spare kept: only the log's own room is left.
    bench.disk.remove("spare").unwrap();
    bench.disk.set_faults(Faults {
        space_bytes: Some(4_000_000 - 2 * 256 * 1024),
        ..Faults::default()
    });
    for _ in 0..5 {
        // Upkeep gets no turn in these lives.
        bench.state = None;
        bench.disk.kill_process();
        let (state, _) = State::open(Arc::new(bench.disk.clone()), bench.options.clone(), bench.now).unwrap();
        bench.state = Some(state);
    }
    bench.disk.set_faults(Faults {
        space_bytes: Some(4_000_000),
        ..Faults::default()
    });
    bench.restart();
    // What is handed out is logged before, which takes room as well: the host's next seconds make some.
    for _ in 0..5 {
        bench.state().request_watermark_sync();
        bench.settle();
    }
    assert_eq!(bench.drain_alone(queue.source(), |_| {}) as u64, sent - taken);
}

#[test]
fn a_reserve_that_acknowledgements_used_up_leaves_room_for_a_purge() {
    let (mut bench, queue, sent) = full_of_small_ones(4_000_000);
    let taken = exhaust_the_reserve(&mut bench, queue);
    let purged = bench.state().purge(queue.source(), "test").unwrap();
    assert_eq!(purged, sent - taken);
    for _ in 0..5 {
        bench.state().request_watermark_sync();
        bench.settle();
    }
    assert!(fill(&mut bench, queue) > 50);
}

#[test]
fn the_reserve_that_acknowledgements_began_is_not_for_messages() {
    let (mut bench, queue, _) = full_of_small_ones(4_000_000);
    // Once what was left of the last segment is used up, the next one has room for many.
    for _ in 0..70 {
        let (_, sequence, _) = bench.take(queue.source()).unwrap();
        assert!(!bench.acknowledge(queue.source(), sequence).short_of_room);
        let job = bench.state().next_write().unwrap().unwrap();
        bench.state().complete_write(job.run()).unwrap();
    }
    let state = bench.state();
    assert!(state.log().space() == crate::log::Space::Full && !state.log().has_room(1));
    assert!(bench.try_send(queue, &Message::text("small")).is_err());
    let (_, sequence, _) = bench.take(queue.source()).unwrap();
    assert!(!bench.acknowledge(queue.source(), sequence).short_of_room);
    // Nor in a commit that acknowledgements began.
    assert!(bench.try_send(queue, &Message::text("small")).is_err());
}

#[test]
fn a_store_that_is_made_on_a_full_disk_leaves_room_for_starts() {
    // Without a byte for a second segment.
    let (empty, now) = (SimDisk::new(2), Bench::new().now);
    drop(State::open(Arc::new(empty.clone()), small_options(), now).unwrap());
    let disk = SimDisk::new(1);
    disk.set_faults(Faults {
        space_bytes: Some(empty.used_bytes()),
        ..Faults::default()
    });
    let mut bench = Bench::on(disk, small_options());
    assert!(bench.state().log().space() == crate::log::Space::Full && bench.state().log.ahead.is_empty());
    let queue = bench.queue("orders", Properties::default());
    let (mut sent, body) = (0, "x".repeat(1_000));
    while bench.try_send(queue, &Message::text(body.clone())).is_ok() {
        sent += 1;
        bench.settle();
    }
    assert!(sent > 20 && !bench.state().log().has_room(1_000), "{sent}");
    for _ in 0..5 {
        bench.restart();
    }
    assert_eq!(bench.texts(queue.source()).len(), sent);
    // There is room again.
    bench.disk.set_faults(Faults::default());
    bench.state().request_watermark_sync();
    bench.settle();
    assert_eq!(bench.drain_alone(queue.source(), |_| {}), sent);
}
