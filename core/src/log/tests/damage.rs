//! Flipped bits, missing and exchanged files: detected, reported with file and offset, never delivered, and passed over
//! only when told to.

use super::*;
use crate::log::disk::Disk;

const SEGMENT: &str = "0000000000000001.segment";

fn forced() -> Options {
    Options {
        force_start: true,
        ..options()
    }
}

/// Opens, and if that works reads everything: each durable record comes back as it was or an error names the damage.
fn damage_shows(disk: &SimDisk, appended: &BTreeMap<Position, Known>, what: &str) -> bool {
    let mut host = match Host::open(disk, options()) {
        Err(LogError::Damaged { .. }) => return true,
        Err(error) => panic!("{what}: {error}"),
        Ok(host) => host,
    };
    let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
    let known: Vec<Position> = appended.keys().copied().collect();
    assert_eq!(found, known, "{what}: records are missing and nothing was said");
    let mut damaged = false;
    for (position, known) in appended {
        match host.read(*position) {
            Ok(record) => {
                assert_eq!(record.head, known.head, "{what}");
                assert_eq!(record.payload, known.payload, "{what}");
            }
            Err(LogError::Damaged { .. }) => damaged = true,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    damaged
}

// covers: EMS-STORE-A13
#[test]
fn a_flip_of_any_byte_below_the_watermark_is_detected_or_changes_nothing() {
    let host = filled(1, 14, 500);
    let Host {
        disk,
        log,
        appended,
        durable,
        ..
    } = host;
    drop(log);
    let end = (durable.get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
    let before = disk.contents(SEGMENT).unwrap();
    let mut shown = 0;
    for offset in (0..100).chain(BLOCK_BYTES as usize..end) {
        let disk = disk.fork(offset as u64);
        disk.edit(SEGMENT, |bytes| bytes[offset] ^= 0x10);
        shown += usize::from(damage_shows(&disk, &appended, &format!("flip at {offset}")));
    }
    let stored: usize = before[BLOCK_BYTES as usize..end]
        .iter()
        .filter(|&&byte| byte != 0)
        .count();
    assert!(
        shown * 10 > stored * 9,
        "{shown} flips shown of {stored} bytes that matter"
    );
}

#[test]
fn flips_in_sealed_segments_and_in_the_bookkeeping_are_detected_or_change_nothing() {
    let mut host = filled(2, 120, 2500);
    host.maintain(&KeepAll).unwrap();
    let Host {
        disk, log, appended, ..
    } = host;
    drop(log);
    let mut random = Random::new(1);
    for name in disk.list().unwrap() {
        let length = disk.contents(&name).unwrap().len() as u64;
        for _ in 0..if length == 0 { 0 } else { 60 } {
            // Most of a bookkeeping file is unused: look at its beginning.
            let reach = if name.ends_with("segment") {
                length
            } else {
                length.min(4300)
            };
            let offset = random.below(reach) as usize;
            let disk = disk.fork(offset as u64);
            disk.edit(&name, |bytes| bytes[offset] ^= 1 << (offset % 8));
            damage_shows(&disk, &appended, &format!("flip in {name} at {offset}"));
        }
    }
}

// covers: EMS-STORE-A13, EMS-STORE-A14
#[test]
fn damage_refuses_the_start_with_file_and_offset_and_a_forced_start_reports_each_drop() {
    let mut host = filled(7, 30, 700);
    host.commit().unwrap();
    let Host {
        disk,
        log,
        mut appended,
        durable,
        ..
    } = host;
    drop(log);
    let victims: Vec<Position> = appended.keys().copied().skip(4).step_by(9).collect();
    for victim in &victims {
        let offset = (victim.get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
        disk.edit(SEGMENT, |bytes| bytes[offset + 33] ^= 0xff);
    }
    let Err(LogError::Damaged {
        file, offset, position, ..
    }) = Host::open(&disk, options())
    else {
        panic!("a damaged log was opened")
    };
    assert_eq!(
        (file.as_str(), position),
        (SEGMENT, victims[0]),
        "the first error is named"
    );
    assert_eq!(offset, victims[0].get() - Position::FIRST.get() + BLOCK_BYTES);

    let mut host = Host::open(&disk, forced()).unwrap();
    let dropped: Vec<Position> = host.report.dropped.iter().map(|dropped| dropped.position).collect();
    assert_eq!(dropped, victims, "each dropped record is reported");
    appended.retain(|position, _| !victims.contains(position));
    (host.appended, host.durable) = (appended, durable);
    host.check_recovered();
    // From here on it is a log like any other, and no position is used twice.
    let position = host.log.append(20, b"new", b"payload").unwrap();
    assert!(position > durable);
    let (kind, head, payload) = (20, b"new".to_vec(), b"payload".to_vec());
    host.appended.insert(position, Known { kind, head, payload });
    host.commit().unwrap();
    host = host.reopen(options()).unwrap();
    assert!(host.report.dropped.is_empty());
    host.check_recovered();
}

// covers: EMS-STORE-A14
#[test]
fn a_forced_start_saves_the_rest_of_damaged_sealed_segments_and_survives_power_losses() {
    each_seed(20, |seed| {
        let mut random = Random::new(seed);
        let mut host = filled(seed, 150, 2500);
        host.maintain(&KeepAll).unwrap();
        let Host {
            disk,
            log,
            mut appended,
            durable,
            ..
        } = host;
        drop(log);
        // Headers and footers both, so that the damage shows at open.
        let footers: Vec<String> = disk
            .list()
            .unwrap()
            .into_iter()
            .filter(|name| name.ends_with("footer"))
            .collect();
        let footer = &footers[random.below(footers.len() as u64) as usize];
        let segment = footer.replace("footer", "segment");
        disk.edit(footer, |bytes| bytes[30] ^= 1);
        let at = 8192 + random.below(40_000) as usize;
        disk.edit(&segment, |bytes| bytes[at..at + 64].fill(0xee));
        if !damage_shows(&disk, &appended, "64 bytes overwritten") {
            // They were padding.
            return;
        }
        for crash_at in [3, 6, 9, 12, u64::MAX] {
            let crash_at = Some(disk.operations().saturating_add(crash_at));
            disk.set_faults(crate::sim::Faults {
                crash_at,
                ..Default::default()
            });
            match Host::open(&disk, forced()) {
                Err(_) => disk.power_cycle(),
                Ok(mut host) => {
                    let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
                    let lost: Vec<Position> = appended
                        .keys()
                        .copied()
                        .filter(|position| !found.contains(position))
                        .collect();
                    assert!(lost.len() <= 3, "64 bytes cost {} records", lost.len());
                    appended.retain(|position, _| found.contains(position));
                    (host.appended, host.durable) = (appended, durable);
                    host.check_recovered();
                    break;
                }
            }
        }
        disk.power_cycle();
        Host::open(&disk, options()).unwrap();
    });
}

#[test]
fn a_missing_or_foreign_file_refuses_the_start() {
    let mut host = filled(9, 120, 2500);
    host.maintain(&KeepAll).unwrap();
    let Host { disk, log, .. } = host;
    drop(log);
    let foreign = Options {
        store_id: [1; 16],
        ..options()
    };
    let mut other = filled_as(10, 120, 2500, foreign);
    other.maintain(&KeepAll).unwrap();
    for name in disk.list().unwrap() {
        if name.ends_with("footer") || ["lock", "spare"].contains(&name.as_str()) {
            continue;
        }
        let without = disk.fork(1);
        without.remove(&name).unwrap();
        let refused = Host::open(&without, options());
        assert!(refused.is_err(), "{name} was missing and nobody said so");
        let exchanged = disk.fork(1);
        if let Some(foreign) = other.disk.contents(&name).filter(|_| name.ends_with("segment")) {
            exchanged.edit(&name, |bytes| *bytes = foreign);
            damage_shows(&exchanged, &host.appended, &format!("{name} of another store"));
        }
    }
}

#[test]
fn a_torn_tail_is_cut_and_reported_and_damage_behind_a_lost_watermark_is_proved_by_the_log_itself() {
    let mut host = filled(11, 20, 600);
    let mut random = Random::new(3);
    for _ in 0..3 {
        host.append(&mut random, 600).unwrap();
        host.commit().unwrap();
    }
    let Host {
        disk,
        log,
        appended,
        durable,
        ..
    } = host;
    drop(log);
    // The watermark is as lost as an unsynced block can be.
    disk.edit("watermark", |bytes| bytes.fill(0xaa));
    let last = *appended.keys().last().unwrap();
    let offset = |position: Position| (position.get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
    let torn = disk.fork(1);
    torn.edit(SEGMENT, |bytes| bytes[offset(last) + 40] ^= 1);
    let mut host = Host::open(&torn, options()).unwrap();
    assert!(host.report.watermark_lost);
    assert!(host.report.torn_bytes_cut >= BLOCK_BYTES);
    let mut rest = appended.clone();
    rest.remove(&last);
    (host.appended, host.durable) = (rest, last);
    host.check_recovered();

    let damaged = disk.fork(2);
    let earlier = *appended.keys().nth_back(1).unwrap();
    damaged.edit(SEGMENT, |bytes| bytes[offset(earlier) + 40] ^= 1);
    assert!(matches!(Host::open(&damaged, options()), Err(LogError::Damaged { position, .. }) if position == earlier));
    assert!(durable > earlier);
}

// covers: EMS-STORE-A12
#[test]
fn a_store_that_is_open_cannot_be_opened_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let disk = Arc::new(FileDisk::new(folder.path()).unwrap());
        Log::open(disk, options(), &mut |_| Ok(()))
    };
    let (log, report) = open().unwrap();
    assert!(report.created);
    assert!(matches!(open(), Err(LogError::Locked { .. })));
    drop(log);
    let (_log, report) = open().unwrap();
    assert!(!report.created);
}

#[test]
fn a_footer_that_was_made_again_is_written_so_that_its_segment_can_be_rewritten() {
    let mut host = filled(11, 200, 2000);
    host.maintain(&KeepAll).unwrap();
    let sealed = host.log.segments.iter().filter(|segment| segment.sealed).count() as u64;
    assert!(sealed > 2, "{sealed}");
    let Host {
        disk, log, appended, ..
    } = host;
    drop(log);
    for name in disk.list().unwrap().iter().filter(|name| name.ends_with(".footer")) {
        disk.remove(name).unwrap();
    }
    let refused = disk.fork(2);
    let host = Host::open(&disk, options()).unwrap();
    assert_eq!(host.report.footers_rebuilt, sealed);
    let Host { log, .. } = host;
    drop(log);
    disk.kill_process();
    // They are there after a power cut, too, and right.
    disk.power_cycle();
    let mut host = Host::open(&disk, compacting()).unwrap();
    assert_eq!((host.report.footers_rebuilt, host.report.footers_read), (0, sealed));
    host.appended = appended;
    host.check_recovered();
    // Nothing is held, so that all are rewritten.
    for _ in 0..3 {
        host.maintain(&KeepAll).unwrap();
    }
    assert!(host.log.damaged_places().is_empty(), "{:?}", host.log.damaged_places());
    // A refused start writes none.
    let refuse = &mut |_: Recovered<'_>| Err("not today".to_owned());
    assert!(Log::open(Arc::new(refused.clone()), options(), refuse).is_err());
    assert!(refused.list().unwrap().iter().all(|name| !name.ends_with(".footer")));
}
