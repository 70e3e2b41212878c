//! What reading and scrubbing say of a place: which one it is, and that all others are looked at.

use super::upkeep::Shedding;
use super::*;
use crate::log::disk::Disk;
use crate::log::scan;
use crate::log::segment_header::{DATA_OFFSET, segment_name};
use crate::sim::Faults;

fn scrubbing(bytes_per_second: u32, rewritten: bool) -> Options {
    Options {
        scrub_bytes_per_second: bytes_per_second,
        scrub_after_seconds: 3,
        scrub_every_seconds: 5,
        ..if rewritten { compacting() } else { options() }
    }
}

/// Sealed segments, as they were written or rewritten, with three records in each group commit.
fn sealed(bytes_per_second: u32, rewritten: bool) -> Host {
    let mut host = Host::open(&SimDisk::new(1), options()).unwrap();
    let mut random = Random::new(1);
    for number in 0..400 {
        while host.append(&mut random, 1000).is_err() {
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
        }
        if number % 3 == 0 {
            host.commit().unwrap();
        }
    }
    host.commit().unwrap();
    // Only now is anything rewritten, since nothing was held before.
    let mut host = host.reopen(scrubbing(bytes_per_second, rewritten)).unwrap();
    let kept: Vec<Position> = host.appended.keys().copied().step_by(6).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    if rewritten {
        host.maintain(&Shedding { kept: &kept }).unwrap();
        host.appended.retain(|position, _| kept.contains(position));
    } else {
        host.maintain(&KeepAll).unwrap();
    }
    host.appended
        .retain(|position, _| host.log.segments.peek(*position).is_some_and(|found| found.sealed));
    host
}

/// A second of the host, with all upkeep there is.
fn second(host: &mut Host) {
    host.log.request_watermark_sync();
    host.maintain(&KeepAll).unwrap();
}

fn round(host: &mut Host) -> u64 {
    let rounds = host.log.scrubbed_total().1;
    for seconds in 1..10_000 {
        second(host);
        if host.log.scrubbed_total().1 > rounds {
            return seconds;
        }
    }
    panic!("the round never ends");
}

/// Where records lie in a file: offset and position.
fn places(host: &Host, id: u64, rewritten: bool) -> Vec<(u64, Position)> {
    let bytes = host.disk.contents(&segment_name(id)).unwrap();
    let mut found = Vec::new();
    if rewritten {
        for stored in scan::records(&bytes[DATA_OFFSET as usize..], false) {
            if stored.header.kind >= KIND_USER_MIN {
                found.push((DATA_OFFSET + stored.at as u64, stored.header.position));
            }
        }
    } else {
        let segment = host.log.segments.by_id(id).unwrap();
        let inside = host.appended.range(segment.base..segment.end);
        found.extend(inside.map(|(position, _)| (segment.offset_of(*position), *position)));
    }
    found
}

fn bytes_to_scrub(host: &Host) -> Vec<u64> {
    let sealed = host.log.segments.iter().filter(|segment| segment.sealed);
    sealed
        .map(|segment| {
            if segment.compacted {
                u64::from(segment.file_bytes) - DATA_OFFSET
            } else {
                segment.end.get() - segment.base.get()
            }
        })
        .collect()
}

#[test]
fn a_round_verifies_each_record_once_at_its_pace_and_then_rests() {
    for rewritten in [false, true] {
        let mut host = sealed(1_000, rewritten);
        assert!(host.log.segments.iter().filter(|segment| segment.sealed).count() > 2);
        let records = host.appended.len() as u64;
        for _ in 0..3 {
            second(&mut host);
            assert_eq!(host.log.scrubbed_total(), (0, 0), "not before its time");
        }
        let bytes: u64 = bytes_to_scrub(&host).iter().sum();
        let seconds = round(&mut host);
        assert_eq!(host.log.scrubbed_total(), (records, 1));
        assert!(seconds <= bytes / 1_000 + 3, "{seconds} seconds for {bytes} bytes");
        // A slice ends behind a commit, or behind a record where it was rewritten.
        let over = if rewritten { 1_300 } else { 4_096 };
        assert!(seconds * (1_000 + over) >= bytes, "{seconds} seconds for {bytes} bytes");
        for _ in 0..5 {
            second(&mut host);
            assert_eq!(host.log.scrubbed_total().0, records, "it rests");
        }
        round(&mut host);
        assert_eq!(host.log.scrubbed_total(), (2 * records, 2));
        assert!(host.log.damaged_places().is_empty());
    }
}

#[test]
fn a_round_takes_of_a_second_no_more_than_it_reads() {
    for rewritten in [false, true] {
        let host = sealed(1, rewritten);
        let bytes: u64 = bytes_to_scrub(&host).iter().sum();
        let mut host = sealed(bytes as u32 + 100, rewritten);
        assert_eq!(round(&mut host), 4);
    }
}

#[test]
fn scrubbing_names_each_damaged_record_of_a_file() {
    for rewritten in [false, true] {
        let mut host = sealed(1_000_000, rewritten);
        let id = host.log.segments.iter().next().unwrap().id;
        let places = places(&host, id, rewritten);
        let count = places.len();
        assert!(count > 6);
        // Neither the first of its commit, nor the last of its file.
        let victims = [places[2], places[count / 2], places[count - 2]];
        for (offset, _) in victims {
            host.disk
                .edit(&segment_name(id), |bytes| bytes[offset as usize + 32] ^= 1);
        }
        round(&mut host);
        let mut found: Vec<(u64, Position)> = Vec::new();
        for place in host.log.damaged_places() {
            assert_eq!(place.file, segment_name(id));
            found.push((place.offset, place.position));
        }
        if rewritten {
            // Where none verifies, nobody knows which one it was: it lies behind the one before.
            assert_eq!(
                found.iter().map(|place| place.0).collect::<Vec<_>>(),
                victims.map(|victim| victim.0)
            );
        } else {
            assert_eq!(found, victims);
        }
    }
}

#[test]
fn a_missing_file_is_damage_and_one_that_cannot_be_opened_for_the_moment_is_not() {
    let mut host = sealed(1_000_000, false);
    for _ in 0..3 {
        second(&mut host);
    }
    host.disk.set_faults(Faults {
        shortage_one_in: 1,
        ..Faults::default()
    });
    second(&mut host);
    assert!(host.log.damaged_places().is_empty());
    assert_eq!(host.log.scrubbed_total().0, 0);
    assert!(host.log.waits_for_host());
    host.disk.set_faults(Faults::default());
    let name = segment_name(host.log.segments.iter().nth(1).unwrap().id);
    host.disk.remove(&name).unwrap();
    round(&mut host);
    let places = host.log.damaged_places();
    assert_eq!(places.len(), 1);
    assert_eq!((&places[0].file, places[0].offset), (&name, 0));
    assert!(places[0].why.contains("missing"), "{}", places[0].why);
}

#[test]
fn what_is_damaged_in_a_rewritten_file_is_named_and_what_lies_beside_it_is_read() {
    let whole = sealed(0, true);
    let id = whole.log.segments.iter().next().unwrap().id;
    let places = places(&whole, id, true);
    let Host {
        disk, log, appended, ..
    } = whole;
    drop(log);
    for (offset, victim) in places.iter().copied() {
        let disk = disk.fork(1);
        disk.edit(&segment_name(id), |bytes| bytes[offset as usize + 32] ^= 1);
        let mut host = Host::open(&disk, compacting()).unwrap();
        for (place, position) in places.iter().copied() {
            let found = host.read(position);
            if position == victim {
                match found {
                    Err(LogError::Damaged { offset, position, .. }) => assert_eq!((offset, position), (place, victim)),
                    other => panic!("{other:?}"),
                }
            } else {
                assert_eq!(found.unwrap().payload, appended[&position].payload);
            }
        }
        // Nothing is stored right behind the first one's header, whatever is damaged further on.
        if victim != places[0].1 && victim != places[1].1 {
            let none = host.read(places[0].1.plus(8));
            assert!(matches!(none, Err(LogError::Gone(_))), "{none:?}");
        }
    }
}

#[test]
fn records_longer_than_a_read_come_whole_out_of_a_rewritten_file() {
    let large = Options {
        segment_bytes: 2 * 1024 * 1024,
        record_bytes_max: 1024 * 1024,
        ..compacting()
    };
    let before = Options {
        compact_below_percent: 0,
        ..large.clone()
    };
    let mut host = Host::open(&SimDisk::new(3), before).unwrap();
    let mut kept = Vec::new();
    for number in 0..60_u8 {
        let payload = vec![number; if number % 10 == 0 { 300_000 } else { 200_000 }];
        let position = loop {
            match host.log.append(20, b"head", &payload) {
                Ok(position) => break position,
                Err(_) => {
                    host.commit().unwrap();
                    host.maintain(&KeepAll).unwrap();
                }
            }
        };
        if number % 10 == 0 {
            kept.push((position, payload));
        }
    }
    host.commit().unwrap();
    let mut host = host.reopen(large).unwrap();
    let positions: Vec<Position> = kept.iter().map(|(position, _)| *position).collect();
    positions.iter().for_each(|position| host.log.hold(*position));
    host.maintain(&Shedding { kept: &positions }).unwrap();
    let mut read = 0;
    for (position, payload) in kept {
        if host.log.segments.find(position).unwrap().compacted {
            assert_eq!(host.read(position).unwrap().payload, payload);
            read += 1;
        }
    }
    assert!(read > 2);
}

#[test]
fn a_read_of_a_missing_file_ends_with_an_error() {
    let host = sealed(0, false);
    let (id, position) = {
        let segment = host.log.segments.iter().next().unwrap();
        (segment.id, *host.appended.range(segment.base..).next().unwrap().0)
    };
    let mut host = host.reopen(options()).unwrap();
    host.disk.remove(&segment_name(id)).unwrap();
    let found = host.read(position);
    assert!(matches!(found, Err(LogError::Disk(_))), "{found:?}");
}

#[test]
fn nothing_is_kept_of_what_lies_above_what_is_durable() {
    let mut host = filled(5, 10, 500);
    host.log.cache.forget(Position::ZERO, Position(u64::MAX));
    let first = *host.appended.keys().next().unwrap();
    assert!(host.log.peek(first).is_none(), "it takes a read");
    let above = host.log.append(20, b"head", b"payload").unwrap();
    assert!(host.log.peek(above).is_some());
    let job = host.log.next_write().unwrap().unwrap();
    let written = job.run();
    host.check(first);
    assert!(host.log.peek(first).is_some());
    assert!(host.log.cache_bytes() > 1_000);
    assert!(host.log.cache.find(above).is_none(), "its write has not been completed");
    host.log.complete_write(written).unwrap();
    assert!(host.log.cache.find(above).is_some());
}
