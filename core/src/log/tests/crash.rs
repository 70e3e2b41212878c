//! Power losses, killed processes, short writes, failing syncs and full disks, from seeds.

use super::*;
use crate::log::disk::{Disk, OpenFile, passes};
use crate::log::guarded::GuardedDisk;
use crate::sim::Faults;

/// Works on a log until something stops it: appends, commits, upkeep, reads, holds.
pub(super) fn work(host: &mut Host, random: &mut Random, steps: u64) -> Result<(), String> {
    let payload_max = [100, 1500, 9000][random.below(3) as usize];
    for _ in 0..steps {
        match random.below(12) {
            0..6 => match host.append(random, payload_max) {
                Ok(position) => host.log.hold(position),
                Err(AppendError::NoSpace) => {}
                Err(error) => return Err(error.to_string()),
            },
            6..9 => host.commit().map_err(|error| error.to_string())?,
            9 => {
                host.maintain(&KeepAll).map_err(|error| error.to_string())?;
            }
            10 => host.log.request_watermark_sync(),
            _ => {
                let index = random.below(host.appended.len() as u64) as usize;
                if let Some(position) = host.appended.keys().nth(index).copied() {
                    match host.read(position) {
                        Ok(record) => assert_eq!(record.payload, host.appended[&position].payload),
                        Err(LogError::Disk(error)) => return Err(error.to_string()),
                        Err(error) => panic!("record at {position}: {error}"),
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn what_was_durable_survives_power_losses() {
    each_seed(300, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, options()).unwrap();
        let mut epoch = host.log.epoch();
        for _ in 0..4 {
            let crash_at = disk.operations() + 1 + random.below(80);
            disk.set_faults(Faults {
                crash_at: Some(crash_at),
                short_write_one_in: 3,
                ..Faults::default()
            });
            let outcome = work(&mut host, &mut random, 150);
            assert!(
                outcome.is_ok() || disk.is_down(),
                "stopped without a power loss: {outcome:?}"
            );
            if random.one_in(4) {
                disk.kill_process()
            } else {
                disk.power_cycle()
            }
            host = host.reopen(options()).unwrap();
            assert!(host.log.epoch() > epoch, "every open is a new epoch");
            epoch = host.log.epoch();
            host.check_recovered();
        }
    });
}

#[test]
fn a_power_loss_during_an_open_or_a_creation_loses_nothing() {
    each_seed(40, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut durable = Position::ZERO;
        let mut appended = BTreeMap::new();
        for crash_at in 1..40 {
            let faults = Faults {
                crash_at: Some(disk.operations() + crash_at),
                ..Faults::default()
            };
            disk.set_faults(faults);
            if let Ok(mut host) = Host::open(&disk, options()) {
                (host.appended, host.durable) = (appended, durable);
                host.check_recovered();
                let _ = work(&mut host, &mut random, 20);
                (appended, durable) = (host.appended, host.durable);
            }
            disk.power_cycle();
        }
        let mut host = Host::open(&disk, options()).unwrap();
        (host.appended, host.durable) = (appended, durable);
        host.check_recovered();
    });
}

#[test]
fn a_clean_stop_leaves_nothing_to_cut() {
    let mut host = filled(3, 200, 900);
    host.maintain(&KeepAll).unwrap();
    let Host {
        disk,
        log,
        appended,
        durable,
        ..
    } = host;
    log.close().unwrap();
    disk.power_cycle();
    let mut host = Host::open(&disk, options()).unwrap();
    (host.appended, host.durable) = (appended, durable);
    assert!(host.report.clean);
    assert_eq!(host.report.torn_bytes_cut, 0);
    host.check_recovered();
    assert_eq!(host.appended.len(), 200);
}

#[test]
fn a_failed_sync_is_final_and_nothing_after_it_is_promised() {
    each_seed(100, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, options()).unwrap();
        let fail_sync_at = Some(disk.operations() + 1 + random.below(60));
        disk.set_faults(Faults {
            fail_sync_at,
            ..Faults::default()
        });
        let outcome = work(&mut host, &mut random, 400);
        assert!(outcome.is_err());
        assert!(host.log.failed().is_some());
        assert!(matches!(host.log.append(20, b"", b""), Err(AppendError::Failed(_))));
        assert!(matches!(
            host.log.append_reserved(20, b"", b""),
            Err(AppendError::Failed(_))
        ));
        assert!(matches!(host.log.next_write(), Err(LogError::Failed(_))));
        assert!(host.log.maintenance(&KeepAll).is_none());
        if random.one_in(2) {
            // Only the process goes: what the disk refused can still be read, and is not on it.
            disk.kill_process();
            host = host.reopen(options()).unwrap();
            host.check_recovered();
        }
        disk.power_cycle();
        host = host.reopen(options()).unwrap();
        host.check_recovered();
    });
}

#[test]
fn a_full_disk_is_back_pressure_and_can_be_drained() {
    each_seed(50, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, options()).unwrap();
        disk.set_faults(Faults {
            space_bytes: Some(700_000),
            ..Faults::default()
        });
        let mut held = Vec::new();
        let refused = loop {
            assert!(held.len() < 10_000, "the disk never fills");
            match host.append(&mut random, 2000) {
                Ok(position) => {
                    host.log.hold(position);
                    held.push(position);
                }
                Err(error) => {
                    host.commit().unwrap();
                    host.maintain(&KeepAll).unwrap();
                    if host.log.space() == Space::Full {
                        break error;
                    }
                }
            }
        };
        assert_eq!(refused, AppendError::NoSpace);
        // The rest of the current segment may still take something; a segment's worth certainly not.
        assert!((0..64).any(|_| host.append(&mut random, 2000) == Err(AppendError::NoSpace)));
        let acknowledged = host.log.append_reserved(30, b"acknowledged", b"").unwrap();
        host.appended.insert(
            acknowledged,
            Known {
                kind: 30,
                head: b"acknowledged".to_vec(),
                payload: Vec::new(),
            },
        );
        host.commit().unwrap();
        assert!(host.durable > acknowledged);
        for position in held {
            host.log.release(position);
        }
        let floor = host.log.durable();
        host.log.set_floor(floor, Position::ZERO);
        host.maintain(&KeepAll).unwrap();
        for _ in 0..30 {
            host.append(&mut random, 2000).unwrap();
            host.commit().unwrap();
        }
        host.appended.retain(|position, _| *position >= acknowledged);
        disk.power_cycle();
        host = host.reopen(options()).unwrap();
        host.appended.retain(|position, _| *position >= acknowledged);
        host.recovered.retain(|record| record.0 >= acknowledged);
        host.check_recovered();
    });
}

#[test]
fn truncation_at_every_byte_of_the_last_block_cuts_only_what_was_not_promised() {
    let mut host = filled(5, 40, 300);
    let promised = host.durable;
    let mut random = Random::new(6);
    // Written, and never reported: the process died between the write and the report.
    for _ in 0..8 {
        host.append(&mut random, 200).unwrap();
    }
    let job = host.log.next_write().unwrap().unwrap();
    let before = host.disk.fork(1);
    let name = "0000000000000001.segment";
    let start = (promised.get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
    drop(job.run());
    let written = host.disk.contents(name).unwrap();
    let appended = host.appended;
    for cut in start..start + BLOCK_BYTES as usize {
        let disk = before.fork(cut as u64);
        disk.edit(name, |bytes| bytes[start..cut].copy_from_slice(&written[start..cut]));
        let mut again = Host::open(&disk, options()).unwrap();
        (again.appended, again.durable) = (appended.clone(), promised);
        again.check_recovered();
    }
}

#[test]
fn leftovers_of_a_cut_tail_are_never_taken_for_a_part_of_the_log() {
    each_seed(200, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, options()).unwrap();
        // All commits are equally long, so that what is left behind a cut lies exactly where the next ones go.
        for _ in 0..6 {
            let crash_at = disk.operations() + 2 + random.below(6);
            disk.set_faults(Faults {
                crash_at: Some(crash_at),
                ..Faults::default()
            });
            for _ in 0..8 {
                let payload = random.bytes(15_000);
                for part in payload.chunks(5000) {
                    if let Ok(position) = host.log.append(16, b"", part) {
                        let known = Known {
                            kind: 16,
                            head: Vec::new(),
                            payload: part.to_vec(),
                        };
                        host.appended.insert(position, known);
                    }
                }
                if host.commit().is_err() {
                    break;
                }
                let _ = host.maintain(&KeepAll);
            }
            disk.power_cycle();
            host = host.reopen(options()).unwrap();
            host.check_recovered();
        }
    });
}

/// A log whose next segment is filled with zeros while the one before it, or itself further on, is written.
fn filling() -> Options {
    Options {
        segment_bytes: 128 * 1024,
        fill_bytes: BLOCK_BYTES as u32,
        fill_distance_bytes: BLOCK_BYTES as u32,
        ..options()
    }
}

#[test]
fn a_sync_that_failed_for_upkeep_is_no_success_for_the_writer() {
    let told = std::cell::Cell::new(0);
    each_seed(200, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, filling()).unwrap();
        // When enough is prepared ahead, upkeep fills with zeros.
        for _ in 0..3 {
            let job = host.log.maintenance(&KeepAll).unwrap();
            host.log.complete_maintenance(job.run()).unwrap();
        }
        disk.set_faults(Faults {
            fail_sync_at: Some(disk.operations() + 1 + random.below(60)),
            fail_sync_for: [0, 6, u64::MAX][random.below(3) as usize],
            ..Faults::default()
        });
        for _ in 0..40 {
            host.append(&mut random, 3000).unwrap();
            let Ok(Some(write)) = host.log.next_write() else { break };
            let Some(upkeep) = host.log.maintenance(&KeepAll) else {
                host.log.complete_write(write.run()).unwrap();
                continue;
            };
            let (written, kept) = disk.interleave(|| write.run(), || upkeep.run());
            // Whoever hears of the writer first believes it.
            let Ok(durable) = host.log.complete_write(written) else {
                break;
            };
            host.durable = durable;
            if host.log.complete_maintenance(kept).is_err() {
                told.set(told.get() + 1);
                break;
            }
        }
        disk.power_cycle();
        host = host.reopen(filling()).unwrap();
        host.check_recovered();
    });
    assert!(told.get() > 0, "no sync failed for upkeep alone");
}

#[test]
fn a_failed_sync_or_write_sticks_to_its_file_whatever_the_disk_says_later() {
    let disk = SimDisk::new(1);
    let guarded = GuardedDisk::new(Arc::new(disk.clone()));
    let open = |name, how| guarded.open(name, how).unwrap();
    let (first, second) = (open("a", OpenFile::Fresh), open("a", OpenFile::Existing));
    let other = open("b", OpenFile::Fresh);
    first.sync_data().unwrap();
    disk.set_faults(Faults {
        fail_sync_at: Some(0),
        ..Faults::default()
    });
    assert!(first.sync_data().is_err());
    for file in [&first, &second, &first, &open("a", OpenFile::Existing)] {
        let error = file.sync_data().unwrap_err();
        assert!(!passes(&error), "it is final: {error}");
    }
    guarded.rename("a", "c").unwrap();
    assert!(open("c", OpenFile::Existing).sync_data().is_err());
    other.sync_data().unwrap();
}

#[test]
fn what_the_system_lacks_for_a_while_is_tried_again_and_nothing_is_lost_or_failed() {
    each_seed(150, |seed| {
        let mut random = Random::new(seed);
        let disk = SimDisk::new(seed);
        let mut host = Host::open(&disk, filling()).unwrap();
        for _ in 0..3 {
            disk.set_faults(Faults {
                shortage_one_in: 2 + random.below(6),
                short_write_one_in: 4,
                ..Faults::default()
            });
            work(&mut host, &mut random, 120).unwrap();
            assert!(host.log.failed().is_none());
            disk.set_faults(Faults::default());
            host.log.request_watermark_sync();
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
            assert_eq!((host.log.shortage(), host.log.space()), (None, Space::Ok));
            assert_eq!(host.durable, host.log.durable());
            assert!(!host.log.has_pending());
            for position in host.appended.keys().copied().collect::<Vec<_>>() {
                host.check(position);
            }
            if random.one_in(2) {
                disk.power_cycle();
                host = host.reopen(filling()).unwrap();
                host.check_recovered();
            }
        }
    });
}

#[test]
fn a_write_that_found_no_space_keeps_what_was_appended_and_says_that_the_disk_is_full() {
    let mut random = Random::new(1);
    let disk = SimDisk::new(1);
    let mut host = Host::open(&disk, filling()).unwrap();
    host.maintain(&KeepAll).unwrap();
    let first = host.append(&mut random, 500).unwrap();
    let lacking = Faults {
        shortage_one_in: 1,
        ..Faults::default()
    };
    disk.set_faults(lacking);
    let before = host.durable;
    host.commit().unwrap();
    assert!(host.durable == before && host.log.has_pending() && host.log.failed().is_none());
    assert!(host.log.shortage().is_some());
    assert_eq!(host.log.space(), Space::Full);
    assert!(!host.log.has_room(100), "senders wait, or hear that the store is full");
    assert!(
        host.log.next_write().unwrap().is_none(),
        "it is not tried at once again"
    );
    disk.set_faults(Faults::default());
    host.log.request_watermark_sync();
    host.commit().unwrap();
    assert!(host.durable > first && host.log.shortage().is_none());
    // A clean stop without space says that it was none.
    host.append(&mut random, 500).unwrap();
    disk.set_faults(lacking);
    let Host { log, appended, .. } = host;
    assert!(matches!(log.close(), Err(LogError::Disk(error)) if error.passes()));
    disk.set_faults(Faults::default());
    disk.power_cycle();
    let mut host = Host::open(&disk, filling()).unwrap();
    (host.appended, host.durable) = (appended, before);
    host.check_recovered();
    assert!(host.appended.contains_key(&first));
}
