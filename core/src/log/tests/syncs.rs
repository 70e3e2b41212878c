//! What has to be synced before something rests on it: names, watermarks, and all of it on a real disk. Power is lost on
//! many copies of a disk, since each loss keeps something else of what was not synced.

use super::*;
use crate::log::footer::{Footer, Index};
use crate::log::watermark::WatermarkFile;
use crate::sim::Faults;

/// Copies of a disk on which power is lost.
const COPIES: u64 = 12;

/// A log of sealed segments in which nothing is held any more.
fn free(seed: u64) -> Host {
    let mut host = filled(seed, 200, 2000);
    host.maintain(&KeepAll).unwrap();
    let floor = host.log.durable();
    host.log.set_floor(floor, Position::ZERO);
    host.log.request_watermark_sync();
    host
}

#[test]
fn a_recycled_file_has_its_name_before_the_manifest_lists_it() {
    let mut host = free(3);
    let start = host.disk.operations();
    host.maintain(&KeepAll).unwrap();
    let operations = host.disk.operations() - start;
    assert!(operations > 20, "{operations}");
    for crash_at in 1..=operations {
        let mut host = free(3);
        host.disk.set_faults(Faults {
            crash_at: Some(start + crash_at),
            ..Faults::default()
        });
        let _ = host.maintain(&KeepAll);
        for copy in 0..COPIES {
            let disk = host.disk.fork(copy);
            disk.power_cycle();
            if let Err(error) = Host::open(&disk, options()) {
                panic!("power lost at operation {crash_at}, copy {copy}: {error}");
            }
        }
    }
}

#[test]
fn a_sealed_segment_has_its_footer_and_the_watermark_is_durable_with_it() {
    let mut host = filled(4, 200, 2000);
    let mut sealed = 0;
    while let Some(job) = host.log.maintenance(&KeepAll) {
        host.log.complete_maintenance(job.run()).unwrap();
        let now = host.log.segments.iter().filter(|segment| segment.sealed).count();
        if now == sealed {
            continue;
        }
        sealed = now;
        let end = host.log.segments.iter().rfind(|segment| segment.sealed).unwrap().end;
        for copy in 0..COPIES {
            let disk = host.disk.fork(copy);
            disk.power_cycle();
            let (_, watermark) = WatermarkFile::open(&disk).unwrap();
            assert!(
                watermark.unwrap().durable >= end,
                "the watermark is older than the segment"
            );
            let opened = Host::open(&disk, options()).unwrap();
            assert_eq!(opened.report.footers_rebuilt, 0, "its footer is missing");
        }
    }
    assert!(sealed > 2);
}

#[test]
fn the_watermark_is_durable_when_that_was_asked_for() {
    let mut host = filled(5, 20, 2000);
    host.log.request_watermark_sync();
    host.maintain(&KeepAll).unwrap();
    for copy in 0..COPIES {
        let disk = host.disk.fork(copy);
        disk.power_cycle();
        let (_, watermark) = WatermarkFile::open(&disk).unwrap();
        assert_eq!(watermark.unwrap().durable, host.durable);
    }
}

#[test]
fn a_rewritten_segment_has_its_names_before_the_manifest_lists_it() {
    let sparse = || {
        let mut host = filled(2, 250, 1500).reopen(compacting()).unwrap();
        let kept: Vec<Position> = host.appended.keys().copied().step_by(17).collect();
        kept.iter().for_each(|position| host.log.hold(*position));
        (host, kept)
    };
    let (mut host, kept) = sparse();
    let mut rewritten = 0;
    while let Some(job) = host.log.maintenance(&upkeep::Shedding { kept: &kept }) {
        host.log.complete_maintenance(job.run()).unwrap();
        let now = host.log.segments.iter().filter(|segment| segment.compacted).count();
        if now == rewritten {
            continue;
        }
        rewritten = now;
        for copy in 0..COPIES {
            let disk = host.disk.fork(copy);
            disk.power_cycle();
            let opened = Host::open(&disk, options()).unwrap();
            assert_eq!(opened.report.footers_rebuilt, 0, "its footer is missing");
        }
    }
    assert!(rewritten > 2);
}

#[test]
fn an_older_footer_of_a_segment_is_not_taken_for_its_own() {
    let mut host = filled(6, 200, 2000);
    host.maintain(&KeepAll).unwrap();
    let segment = host.log.segments.iter().find(|segment| segment.sealed).unwrap();
    let (id, base, crc) = (segment.id, segment.base, segment.footer_crc);
    let store_id = host.log.store_id();
    let footer = Footer::read(&host.disk, store_id, id, crc).unwrap().unwrap();
    // It verifies, and knows nothing of the last record.
    let mut index = Index::default();
    let entries: Vec<_> = footer.index.entries(base).collect();
    for entry in &entries[..entries.len() - 1] {
        index.push_entry(base, entry);
    }
    let (bytes, _) = Footer {
        index,
        ..footer.clone()
    }
    .encode();
    host.disk
        .edit(&crate::log::segment_header::footer_name(id), |file| *file = bytes);
    let mut host = host.reopen(options()).unwrap();
    assert_eq!(host.report.footers_rebuilt, 1);
    host.check_recovered();
}

#[test]
fn a_write_that_succeeds_after_the_log_has_failed_is_not_counted() {
    let mut host = filled(7, 20, 2000);
    let durable = host.log.durable();
    host.log.append(16, b"late", b"").unwrap();
    let job = host.log.next_write().unwrap().unwrap();
    host.log.request_watermark_sync();
    let upkeep = host.log.maintenance(&KeepAll).unwrap();
    host.disk.set_faults(Faults {
        fail_sync_at: Some(0),
        ..Faults::default()
    });
    assert!(host.log.complete_maintenance(upkeep.run()).is_err());
    let done = job.run();
    assert!(host.log.complete_write(done).is_err());
    assert_eq!(host.log.durable(), durable);
    assert!(host.log.failed().is_some());
}

#[test]
fn zeros_never_come_over_what_was_written() {
    let options = Options {
        segment_bytes: 8 * 1024 * 1024,
        record_bytes_max: 512 * 1024,
        commit_bytes_max: 4 * 1024 * 1024,
        ..options()
    };
    let mut random = Random::new(8);
    let mut host = Host::open(&SimDisk::new(8), options.clone()).unwrap();
    let payload = vec![7; 300 * 1024];
    let mut met = 0;
    for _ in 0..60 {
        let upkeep = host.log.maintenance(&KeepAll);
        // The filler keeps its distance, and a burst reaches it all the same.
        for _ in 0..random.below(9) {
            if let Ok(position) = host.log.append(16, b"", &payload) {
                let known = Known {
                    kind: 16,
                    head: Vec::new(),
                    payload: payload.clone(),
                };
                host.appended.insert(position, known);
            }
        }
        let pending = host.log.has_pending();
        let write = host.log.next_write().unwrap();
        met += u32::from(pending && write.is_none());
        // The writer first: whatever upkeep does then is done over what was written.
        let written = write.map(|job| job.run());
        if let Some(job) = upkeep {
            host.log.complete_maintenance(job.run()).unwrap();
        }
        if let Some(done) = written {
            host.durable = host.log.complete_write(done).unwrap();
        }
    }
    assert!(met > 0, "the writer never met the filler");
    host.commit().unwrap();
    host.disk.kill_process();
    let mut host = host.reopen(options).unwrap();
    host.check_recovered();
}

#[test]
fn names_that_a_killed_process_left_unsynced_are_synced_before_anything_rests_on_them() {
    let disk = SimDisk::new(9);
    drop(Host::open(&disk, options()).unwrap());
    for killed_at in 1..=disk.operations() {
        let disk = SimDisk::new(9);
        disk.set_faults(Faults {
            crash_at: Some(killed_at),
            ..Faults::default()
        });
        let _ = Host::open(&disk, options());
        disk.kill_process();
        let mut host = Host::open(&disk, options()).unwrap();
        let position = host.log.append(16, b"head", b"payload").unwrap();
        host.commit().unwrap();
        for copy in 0..COPIES {
            let disk = host.disk.fork(copy);
            disk.power_cycle();
            let opened = Host::open(&disk, options())
                .unwrap_or_else(|error| panic!("killed at operation {killed_at}, copy {copy}: {error}"));
            let found = opened.recovered.iter().any(|record| record.0 == position);
            assert!(found, "killed at operation {killed_at}, copy {copy}");
        }
    }
}
