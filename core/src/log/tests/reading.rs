//! Reading: what is pending, cached, cold, compacted and damaged.

use super::*;

#[test]
fn a_cold_backlog_far_beyond_the_cache_is_read_whole_and_in_few_requests() {
    let mut host = filled(1, 900, 3000);
    host.maintain(&KeepAll).unwrap();
    host = host.reopen(options()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let mut requests = 0;
    for position in positions {
        let record = loop {
            match host.log.read(position).unwrap() {
                Read::Cached(record) => break record,
                Read::Miss(request) => {
                    requests += 1;
                    host.log.complete_read(request.run());
                }
                Read::Pending => panic!("nobody else reads"),
                Read::Later => panic!("nothing was lacking"),
            }
        };
        assert_eq!(record.payload, host.appended[&position].payload);
        // One extent may be larger than the whole budget here; a second one never stays.
        assert!(host.log.cache_bytes() <= 2 * 64 * 1024);
    }
    assert!(requests < 60, "{requests} requests for 900 records");
}

#[test]
fn records_can_be_read_before_they_are_durable() {
    let mut host = filled(2, 3, 100);
    let mut random = Random::new(1);
    let pending = host.append(&mut random, 4000).unwrap();
    host.check(pending);
    let later = host.append(&mut random, 4000).unwrap();
    let job = host.log.next_write().unwrap().unwrap();
    let open = host.append(&mut random, 4000).unwrap();
    for position in [pending, later, open] {
        host.check(position);
    }
    host.log.complete_write(job.run()).unwrap();
    host.commit().unwrap();
    for position in [pending, later, open] {
        host.check(position);
    }
}

#[test]
fn a_position_without_a_record_is_gone_and_not_somebody_elses() {
    let mut host = filled(3, 20, 500);
    let known: Vec<Position> = host.appended.keys().copied().collect();
    let end = host.log.end();
    for position in (0..end.get() + 9000).step_by(8).map(Position) {
        if !known.contains(&position) {
            let missing = host.read(position);
            assert!(
                matches!(missing, Err(LogError::Gone(_) | LogError::Damaged { .. })),
                "{position}: {missing:?}"
            );
        }
    }
}

#[test]
fn a_damaged_record_is_never_delivered_and_its_neighbours_are() {
    let mut host = filled(4, 100, 2000);
    host.maintain(&KeepAll).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let victim = positions[10];
    let offset = (victim.get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
    host.disk
        .edit("0000000000000001.segment", |bytes| bytes[offset + 36] ^= 4);
    host = host.reopen(options()).unwrap();
    for position in positions {
        if position == victim {
            assert!(matches!(host.read(position), Err(LogError::Damaged { position, .. }) if position == victim));
        } else {
            host.check(position);
        }
    }
    assert_eq!(host.log.damaged_places().len(), 1, "it is remembered once");
    assert_eq!(host.log.damaged_total(), 1, "and counted");
    assert_eq!(host.log.damaged_places()[0].position, victim);
}

// Zeros also stand behind a group commit's last record: what was read before has to tell these from a lost sector.
#[test]
fn a_record_whose_head_is_empty_is_damaged_whatever_was_read_before_it() {
    let whole = filled(4, 100, 2000);
    let positions: Vec<Position> = whole.appended.keys().copied().collect();
    for victim in positions[5..25].iter().copied() {
        let mut host = filled(4, 100, 2000);
        host.maintain(&KeepAll).unwrap();
        let offset = (victim.get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
        host.disk
            .edit("0000000000000001.segment", |bytes| bytes[offset..offset + 64].fill(0));
        host = host.reopen(options()).unwrap();
        for position in positions.iter().copied() {
            if position == victim {
                let found = host.read(position);
                assert!(
                    matches!(found, Err(LogError::Damaged { position, .. }) if position == victim),
                    "{found:?}"
                );
            } else {
                host.check(position);
            }
        }
        assert_eq!(host.log.damaged_places().len(), 1);
    }
}

#[test]
fn scrubbing_finds_damage_that_nobody_read_at_the_pace_that_was_given() {
    for rewritten in [false, true] {
        let scrubbing = Options {
            scrub_bytes_per_second: 10_000,
            scrub_after_seconds: 3,
            scrub_every_seconds: 1000,
            ..if rewritten { compacting() } else { options() }
        };
        let mut host = filled_as(4, 200, 2000, scrubbing.clone());
        host.maintain(&KeepAll).unwrap();
        if rewritten {
            let kept: Vec<Position> = host.appended.keys().copied().step_by(9).collect();
            kept.iter().for_each(|position| host.log.hold(*position));
            host.maintain(&super::upkeep::Shedding { kept: &kept }).unwrap();
        }
        let sealed: Vec<String> = host
            .log
            .segments
            .iter()
            .filter(|segment| segment.sealed && segment.compacted == rewritten)
            .map(|segment| super::segment_header::segment_name(segment.id))
            .collect();
        assert!(sealed.len() > 2);
        let victims = [&sealed[0], &sealed[2]];
        for name in victims {
            let length = host.disk.contents(name).unwrap().len() as u64;
            assert!(length > 6000);
            host.disk.edit(name, |bytes| bytes[4400..4420].fill(7));
            host.disk.make_unreadable(name, length / BLOCK_BYTES / 2 * BLOCK_BYTES);
        }
        let mut seconds = 0;
        while host.log.upkeep.scrub.rounds == 0 {
            host.log.request_watermark_sync();
            host.maintain(&KeepAll).unwrap();
            seconds += 1;
            assert!(seconds < 10_000, "the round never ends");
        }
        let bytes: u64 = sealed
            .iter()
            .map(|name| host.disk.contents(name).unwrap().len() as u64)
            .sum();
        assert!(
            seconds > 3 && (seconds - 3) * 70_000 > bytes,
            "{bytes} bytes in {seconds} seconds"
        );
        let places = host.log.damaged_places();
        for name in victims {
            let found = places.iter().filter(|place| place.file == *name).count();
            assert!((1..=2).contains(&found), "{name}: {places:?}");
        }
        assert!(
            places.iter().any(|place| place.why.contains("cannot read")),
            "{places:?}"
        );
        assert!(host.log.failed().is_none());
        assert!(places.iter().all(|place| victims.contains(&&place.file)));
    }
}

#[test]
fn records_longer_than_a_read_come_whole() {
    let large = Options {
        segment_bytes: 4 * 1024 * 1024,
        record_bytes_max: 2 * 1024 * 1024,
        commit_bytes_max: 64 * 1024,
        ..options()
    };
    let mut random = Random::new(8);
    let mut host = Host::open(&SimDisk::new(8), large.clone()).unwrap();
    for _ in 0..12 {
        while host.append(&mut random, 1_900_000).is_err() {
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
        }
    }
    host.commit().unwrap();
    let too_large = vec![0; 2 * 1024 * 1024];
    let refused = host.log.append(20, b"", &too_large);
    assert_eq!(
        refused,
        Err(AppendError::TooLarge {
            bytes: 2 * 1024 * 1024 + 32,
            max: 2 * 1024 * 1024
        })
    );
    host = host.reopen(large).unwrap();
    host.check_recovered();
}

#[test]
fn many_readers_of_what_is_not_in_memory_read_each_stretch_once_and_find_what_was_read() {
    let mut host = filled(9, 900, 3000);
    host.maintain(&KeepAll).unwrap();
    host = host.reopen(options()).unwrap();
    // Many times what fits the cache. All that still wait ask again after every read, as consumers do.
    let mut waiting: Vec<Position> = host.appended.keys().copied().step_by(5).collect();
    let mut under_way = std::collections::VecDeque::new();
    let mut reads = 0;
    while !waiting.is_empty() {
        waiting.retain(|position| match host.log.read(*position).unwrap() {
            Read::Cached(_) => false,
            Read::Miss(request) => {
                under_way.push_back(request);
                true
            }
            Read::Pending => true,
            Read::Later => panic!("nothing was lacking"),
        });
        assert!(under_way.len() <= 32, "bounded");
        if let Some(request) = under_way.pop_front() {
            reads += 1;
            host.log.complete_read(request.run());
        }
    }
    assert!(reads < 60, "{reads} reads for a backlog of about 30 stretches");
}
