//! Logs that begin small: what they take, what they hold, and that growing loses nothing wherever it is cut short.

use super::crash::work;
use super::upkeep::Shedding;
use super::*;
use crate::log::reserve::SPARE_FILE;
use crate::sim::Faults;

const YOUNG: u64 = 64 * 1024;
const FULL: u64 = 512 * 1024;
/// Of the largest record's payload: it fits into no young file.
const LARGE: usize = 70 * 1024;

fn young() -> Options {
    Options {
        segment_bytes: FULL as u32,
        young_bytes: YOUNG as u32,
        record_bytes_max: 80 * 1024,
        ..options()
    }
}

fn begun(seed: u64) -> Host {
    let mut host = Host::open(&SimDisk::new(seed), young()).unwrap();
    host.maintain(&KeepAll).unwrap();
    host
}

fn lengths(host: &Host) -> Vec<u64> {
    let files = host.log.segments.iter().chain(&host.log.ahead);
    files.map(|segment| u64::from(segment.file_bytes)).collect()
}

fn step(host: &mut Host) -> bool {
    match host.log.maintenance(&KeepAll) {
        Some(job) => host.log.complete_maintenance(job.run()).is_ok(),
        None => false,
    }
}

fn append(host: &mut Host, bytes: usize) -> Result<Position, AppendError> {
    let (kind, head, payload) = (16, b"head".to_vec(), vec![7; bytes]);
    let position = host.log.append(kind, &head, &payload)?;
    host.appended.insert(position, Known { kind, head, payload });
    Ok(position)
}

fn limit(host: &Host, space_bytes: u64) {
    host.disk.set_faults(Faults {
        space_bytes: Some(space_bytes),
        ..Faults::default()
    });
}

/// Appends until the log takes no more, with all the upkeep there is, and holds all of it.
fn fill(host: &mut Host) -> Vec<Position> {
    let mut held = Vec::new();
    loop {
        assert!(held.len() < 1000, "it never fills");
        match append(host, 4000) {
            Ok(position) => {
                host.log.hold(position);
                held.push(position);
            }
            Err(error) => {
                assert_eq!(error, AppendError::NoSpace);
                host.commit().unwrap();
                host.maintain(&KeepAll).unwrap();
                if host.log.space() == Space::Full {
                    return held;
                }
            }
        }
    }
}

#[test]
fn a_log_that_holds_nothing_takes_six_small_files_and_stays_so_over_starts() {
    let mut host = begun(1);
    for _ in 0..3 {
        assert!(host.log.is_young());
        assert_eq!(lengths(&host), [YOUNG; 4]);
        assert_eq!(host.disk.contents(SPARE_FILE).unwrap().len() as u64, 2 * YOUNG);
        assert_eq!(host.log.to_set_aside(), (4 * FULL - 6 * YOUNG, 6 * FULL - 6 * YOUNG));
        host.disk.kill_process();
        host = host.reopen(young()).unwrap();
        host.maintain(&KeepAll).unwrap();
    }
}

#[test]
fn a_log_whose_segments_are_no_longer_than_that_is_never_young() {
    for segment_bytes in [YOUNG as u32, 2 * YOUNG as u32] {
        let same = Options {
            segment_bytes,
            young_bytes: 2 * YOUNG as u32,
            record_bytes_max: 8 * 1024,
            ..options()
        };
        let host = Host::open(&SimDisk::new(1), same).unwrap();
        assert!(!host.log.is_young());
        assert_eq!(lengths(&host), [u64::from(segment_bytes)]);
        assert_eq!(host.log.to_set_aside(), (0, 0));
    }
}

#[test]
fn the_files_of_a_young_log_are_an_eighth_of_the_full_length_at_most() {
    let of = |segment_bytes| Options {
        segment_bytes,
        ..Options::default()
    };
    let mebibyte = 1024 * 1024;
    let lengths = [(4, None), (8, Some(1)), (32, Some(4)), (64, Some(4)), (1024, Some(4))];
    for (full, young) in lengths {
        assert_eq!(of(full * mebibyte).young(), young.map(|young| young * mebibyte));
    }
    assert_eq!(of(4 * mebibyte + 4096).young(), Some(mebibyte / 2), "in whole blocks");
}

#[test]
fn the_first_record_may_be_the_largest_and_waits_for_the_files_that_are_made_for_it() {
    let mut host = begun(1);
    assert_eq!(host.log.space(), Space::Ok);
    assert!(!host.log.has_room(LARGE as u64));
    assert!(host.log.is_preparing(LARGE as u64));
    assert_eq!(append(&mut host, LARGE), Err(AppendError::NoSpace));
    host.maintain(&KeepAll).unwrap();
    assert!(!host.log.is_young() && host.log.has_room(LARGE as u64) && !host.log.is_preparing(LARGE as u64));
    assert_eq!(lengths(&host), [YOUNG, FULL, FULL, FULL]);
    assert_eq!(host.disk.contents(SPARE_FILE).unwrap().len() as u64, 2 * FULL);
    // Nothing is left over of what it had before.
    let names = host.disk.names();
    assert_eq!(names.iter().filter(|name| name.ends_with(".segment")).count(), 4);
    append(&mut host, LARGE).unwrap();
    host.commit().unwrap();
    host.disk.power_cycle();
    let mut host = host.reopen(young()).unwrap();
    host.check_recovered();
    assert!(!host.log.is_young() && host.appended.len() == 1);
}

#[test]
fn whoever_only_asks_for_room_gets_the_log_to_grow() {
    type Asks = fn(&Host);
    let asks: [Asks; 2] = [
        |host| assert!(!host.log.has_room(LARGE as u64)),
        |host| assert!(host.log.check_room(&[LARGE as u64], Purpose::Fill).is_err()),
    ];
    for ask in asks {
        let mut host = begun(1);
        ask(&host);
        host.maintain(&KeepAll).unwrap();
        assert!(!host.log.is_young());
    }
}

#[test]
fn it_grows_before_it_needs_more_and_refuses_nothing_that_upkeep_keeps_up_with() {
    each_seed(50, |seed| {
        let mut random = Random::new(seed);
        let mut host = begun(seed);
        for _ in 0..300 {
            host.append(&mut random, 2000).unwrap();
            host.commit().unwrap();
            // One piece of upkeep for each commit.
            step(&mut host);
        }
        assert!(!host.log.is_young());
        host.maintain(&KeepAll).unwrap();
        host.disk.power_cycle();
        host = host.reopen(young()).unwrap();
        host.check_recovered();
        assert_eq!(host.appended.len(), 300);
    });
}

#[test]
fn while_files_take_the_place_of_others_neither_are_begun_and_what_has_room_goes_on() {
    // Found at a start, too, where nothing says how the segment that is written was begun.
    for is_found in [false, true] {
        let mut host = begun(1);
        if is_found {
            host.disk.kill_process();
            host = host.reopen(young()).unwrap();
        }
        append(&mut host, 10).unwrap();
        host.commit().unwrap();
        assert!(append(&mut host, LARGE).is_err());
        for _ in 0..3 {
            assert!(step(&mut host));
        }
        let job = host.log.maintenance(&KeepAll).unwrap();
        assert!(host.log.ahead.is_empty() && host.log.is_young());
        assert_eq!(host.log.space(), Space::Preparing);
        append(&mut host, 100).unwrap();
        host.log.append_reserved(40, b"ends one", b"").unwrap();
        host.commit().unwrap();
        assert!(append(&mut host, LARGE).is_err() && host.log.is_preparing(LARGE as u64));
        assert!(append(&mut host, 50_000).is_err() && host.log.is_preparing(50_000));
        host.log.complete_maintenance(job.run()).unwrap();
        assert!(!host.log.is_young() && host.log.ahead.len() == 3);
        append(&mut host, LARGE).unwrap();
        host.commit().unwrap();
    }
}

#[test]
fn wherever_growing_is_cut_short_nothing_is_lost_and_it_grows_afterwards() {
    let (mut as_young, mut as_grown) = (0, 0);
    for crash_at in 1..90 {
        for kills in [false, true] {
            let mut host = begun(crash_at);
            append(&mut host, 1000).unwrap();
            host.commit().unwrap();
            assert!(append(&mut host, LARGE).is_err());
            host.disk.set_faults(Faults {
                crash_at: Some(host.disk.operations() + crash_at),
                ..Faults::default()
            });
            while step(&mut host) {}
            if append(&mut host, LARGE).is_ok() {
                let _ = host.commit();
            }
            if kills {
                host.disk.kill_process();
            } else {
                host.disk.power_cycle();
            }
            host = host.reopen(young()).unwrap();
            host.check_recovered();
            if host.log.is_young() {
                as_young += 1;
            } else {
                as_grown += 1;
            }
            // Whatever an attempt left over is gone: all that is there is in use.
            let listed = host.log.segments.len() + host.log.ahead.len();
            let names = host.disk.names();
            assert_eq!(names.iter().filter(|name| name.ends_with(".segment")).count(), listed);
            while append(&mut host, LARGE).is_err() {
                assert!(step(&mut host));
            }
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
            assert!(!host.log.is_young() && host.log.reserve.has_spare);
            assert_eq!(host.disk.contents(SPARE_FILE).unwrap().len() as u64, 2 * FULL);
            assert!(!host.disk.names().contains(&"spare.next".to_owned()));
        }
    }
    assert!(as_young > 20 && as_grown > 20, "{as_young} {as_grown}");
}

#[test]
fn what_a_young_log_had_durable_survives_power_losses() {
    let grown = std::cell::Cell::new(0);
    each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, young()).unwrap();
        for _ in 0..5 {
            let was_young = host.log.is_young();
            disk.set_faults(Faults {
                crash_at: Some(disk.operations() + 1 + random.below(80)),
                short_write_one_in: 3,
                space_bytes: random.one_in(3).then(|| disk.used_bytes() + random.below(5 * FULL)),
                ..Faults::default()
            });
            if random.one_in(3) {
                let _ = append(&mut host, LARGE);
            }
            let outcome = work(&mut host, &mut random, 60);
            assert!(
                outcome.is_ok() || disk.is_down(),
                "stopped without a power loss: {outcome:?}"
            );
            grown.set(grown.get() + u32::from(was_young && !host.log.is_young()));
            if random.one_in(3) {
                disk.kill_process();
            } else {
                disk.power_cycle();
            }
            disk.set_faults(Faults::default());
            host = host.reopen(young()).unwrap();
            host.check_recovered();
        }
    });
    assert!(
        grown.get() > 50 || std::env::var_os("SEEDS").is_some(),
        "{}",
        grown.get()
    );
}

#[test]
fn a_sync_that_fails_while_it_grows_is_final_and_what_was_promised_is_there() {
    each_seed(150, |seed| {
        let mut random = Random::new(seed);
        let mut host = begun(seed);
        host.append(&mut random, 3000).unwrap();
        host.commit().unwrap();
        let _ = append(&mut host, LARGE);
        host.disk.set_faults(Faults {
            fail_sync_at: Some(host.disk.operations() + 1 + random.below(40)),
            ..Faults::default()
        });
        let mut outcome = Ok(());
        for _ in 0..20 {
            outcome = host.maintain(&KeepAll).map(|_| ()).and_then(|()| {
                let _ = host.append(&mut random, 3000);
                host.commit()
            });
            if outcome.is_err() {
                break;
            }
        }
        assert!(outcome.is_err() && host.log.failed().is_some());
        if random.one_in(2) {
            host.disk.kill_process();
            host = host.reopen(young()).unwrap();
            host.check_recovered();
        }
        host.disk.power_cycle();
        host = host.reopen(young()).unwrap();
        host.check_recovered();
    });
}

#[test]
fn what_a_young_log_lacks_for_a_while_is_tried_again() {
    each_seed(150, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, young()).unwrap();
        let _ = append(&mut host, LARGE);
        disk.set_faults(Faults {
            shortage_one_in: 2 + random.below(6),
            short_write_one_in: 4,
            ..Faults::default()
        });
        work(&mut host, &mut random, 120).unwrap();
        disk.set_faults(Faults::default());
        for _ in 0..20 {
            host.log.request_watermark_sync();
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
        }
        assert!(!host.log.is_young() && host.log.failed().is_none());
        assert_eq!((host.log.shortage(), host.log.space()), (None, Space::Ok));
        append(&mut host, LARGE).unwrap();
        host.commit().unwrap();
        disk.power_cycle();
        host = host.reopen(young()).unwrap();
        host.check_recovered();
    });
}

#[test]
fn a_disk_without_room_to_grow_is_full_and_can_be_drained_and_filled_again() {
    each_seed(30, |seed| {
        let mut host = begun(seed);
        limit(&host, host.disk.used_bytes() + FULL * (seed % 3) + 2 * YOUNG);
        for _ in 0..3 {
            let held = fill(&mut host);
            assert!(host.log.is_young() && host.log.shortage().is_some());
            assert!(held.len() > 15, "{}", held.len());
            let filled: u64 = lengths(&host)[..host.log.segments.len()].iter().sum();
            assert!(filled <= 3 * YOUNG, "{filled}");
            assert!(!host.log.is_preparing(100) && !host.log.is_preparing(LARGE as u64));
            assert_eq!(append(&mut host, LARGE), Err(AppendError::NoSpace));
            // Each is acknowledged by itself, and takes a block.
            for position in held {
                let ended = host.log.append_reserved(40, b"ends one", b"");
                if let Ok(ended) = ended {
                    let (kind, head, payload) = (40, b"ends one".to_vec(), Vec::new());
                    host.appended.insert(ended, Known { kind, head, payload });
                }
                host.log.release(position);
                host.commit().unwrap();
                let floor = host.log.durable();
                host.log.set_floor(floor, Position::ZERO);
                host.log.request_watermark_sync();
                host.maintain(&KeepAll).unwrap();
                ended.expect("what drains finds room");
            }
            assert_eq!(host.log.space(), Space::Ok);
            let start = host.log.start();
            host.appended.retain(|position, _| *position >= start);
        }
        host.disk.power_cycle();
        let mut host = host.reopen(young()).unwrap();
        host.check_recovered();
        // There is room again: it is found without anybody's doing.
        host.disk.set_faults(Faults::default());
        assert!(append(&mut host, LARGE).is_err());
        host.maintain(&KeepAll).unwrap();
        append(&mut host, LARGE).unwrap();
        assert_eq!((host.log.shortage(), host.log.is_young()), (None, false));
    });
}

#[test]
fn an_attempt_that_the_disk_cuts_short_gives_back_what_it_took_and_pauses() {
    let mut host = begun(1);
    let before = host.disk.used_bytes();
    assert!(append(&mut host, LARGE).is_err());
    assert!(step(&mut host) && step(&mut host));
    assert_eq!(host.disk.used_bytes(), before + 2 * FULL);
    limit(&host, before + 2 * FULL);
    host.maintain(&KeepAll).unwrap();
    assert_eq!(host.disk.used_bytes(), before);
    assert!(host.log.is_young() && host.log.shortage().is_some());
    assert_eq!(host.log.space(), Space::Ok, "it takes what fits");
    append(&mut host, 100).unwrap();
    host.disk.set_faults(Faults::default());
    host.log.request_watermark_sync();
    host.maintain(&KeepAll).unwrap();
    assert!(
        host.log.is_young(),
        "whoever else needs the space may have it for a while"
    );
    for _ in 0..15 {
        host.log.request_watermark_sync();
    }
    host.maintain(&KeepAll).unwrap();
    assert!(!host.log.is_young() && host.log.shortage().is_none());
}

#[test]
fn it_grows_on_a_disk_of_little_more_than_four_full_segments_and_on_no_smaller_one() {
    for (space, grows) in [(4 * FULL, false), (4 * FULL + 192 * 1024, true)] {
        let disk = SimDisk::new(1);
        disk.set_faults(Faults {
            space_bytes: Some(space),
            ..Faults::default()
        });
        let mut host = Host::open(&disk, young()).unwrap();
        host.maintain(&KeepAll).unwrap();
        let (needed, wanted) = host.log.to_set_aside();
        let free = host.log.disk.free_bytes().unwrap();
        assert!((needed <= free) == grows && wanted > free, "{needed} {wanted} {free}");
        assert!(append(&mut host, LARGE).is_err());
        host.maintain(&KeepAll).unwrap();
        assert_eq!(append(&mut host, LARGE).is_ok(), grows);
        assert_eq!(host.log.is_young(), !grows);
        // There is no room for a spare of the full size: that of the young log stays.
        assert_eq!(disk.contents(SPARE_FILE).unwrap().len() as u64, 2 * YOUNG);
        assert!(host.log.reserve.has_any_spare());
        let host = host.reopen(young()).unwrap();
        assert!(host.log.reserve.has_any_spare());
        assert_eq!(host.log.is_young(), !grows);
    }
}

#[test]
fn on_a_full_disk_the_spare_of_a_young_log_is_spent_by_the_grown_one() {
    let mut host = begun(1);
    assert!(append(&mut host, LARGE).is_err());
    while host.log.is_young() {
        assert!(step(&mut host));
    }
    assert!(host.log.reserve.has_short_spare && !host.log.reserve.has_spare);
    limit(&host, host.disk.used_bytes());
    let held = fill(&mut host);
    assert!(host.log.reserve.drains);
    for position in held.iter().skip(1) {
        host.log.release(*position);
    }
    host.log.append_reserved(16, b"ends others", b"").unwrap();
    for _ in 0..4 {
        host.commit().unwrap();
        host.log.request_watermark_sync();
        host.maintain(&Shedding { kept: &held[..1] }).unwrap();
    }
    assert!(!host.log.reserve.has_any_spare());
    assert!(host.disk.contents(SPARE_FILE).is_none());
    host.disk.power_cycle();
    host.reopen(young()).unwrap();
}

#[test]
fn a_log_of_small_segments_that_is_to_have_large_ones_grows_at_once() {
    let small = Options {
        segment_bytes: YOUNG as u32,
        record_bytes_max: 8 * 1024,
        ..young()
    };
    let mut host = filled_as(3, 60, 1500, small);
    host.maintain(&KeepAll).unwrap();
    let mut host = host.reopen(young()).unwrap();
    host.check_recovered();
    assert!(host.log.is_young());
    host.maintain(&KeepAll).unwrap();
    assert!(!host.log.is_young());
    append(&mut host, LARGE).unwrap();
    host.commit().unwrap();
    let mut host = host.reopen(young()).unwrap();
    host.check_recovered();
    assert!(!host.log.is_young() && host.appended.len() == 61);
}

#[test]
fn room_is_promised_in_a_young_log_exactly_where_every_record_can_be_appended() {
    let (yes, no) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    each_seed(200, |seed| {
        let mut random = Random::new(seed);
        let mut host = begun(seed);
        // So that it stays young.
        limit(&host, host.disk.used_bytes() + FULL);
        for _ in 0..20 {
            let most = [10, 300, 5_000, 40_000, 75_000][random.below(5) as usize];
            let lengths: Vec<u64> = (0..1 + random.below(4)).map(|_| random.below(most)).collect();
            let purpose = [Purpose::Fill, Purpose::Drain, Purpose::Upkeep][random.below(3) as usize];
            let has_room = host.log.has_room(lengths.iter().map(|length| length + 64).sum());
            let promised = host.log.check_room(&lengths, purpose);
            assert!(!has_room || promised.is_ok(), "seed {seed}: {lengths:?} {purpose:?}");
            let appended = lengths.iter().try_for_each(|length| {
                let payload = vec![7; *length as usize];
                let append = match purpose {
                    Purpose::Fill => Log::append,
                    Purpose::Drain => Log::append_reserved,
                    Purpose::Upkeep => Log::append_kept,
                };
                append(&mut host.log, 40, &[], &payload).map(|_| ())
            });
            assert_eq!(promised, appended, "seed {seed}: {lengths:?} {purpose:?}");
            let count = if promised.is_ok() { &yes } else { &no };
            count.set(count.get() + 1);
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
        }
    });
    assert!(yes.get() > 100 && no.get() > 100);
}
