//! The durable pieces one by one, and what the log's parts promise each other: bounds, numbers, files that cannot be
//! opened for the moment.

use std::sync::Arc;

use super::*;
use crate::log::disk::{Disk, DiskFile, OpenFile};
use crate::log::footer::{Footer, Index, IndexEntry};
use crate::log::manifest::{Entry, MANIFEST_FILES, Manifest, ManifestFiles};
use crate::log::segment_header::footer_name;
use crate::log::slots;
use crate::log::watermark::{WATERMARK_FILE, Watermark, WatermarkFile};
use crate::sim::Faults;

const STORE: [u8; 16] = [9; 16];

fn footer(entries: u32) -> Footer {
    let base = Position(BLOCK_BYTES);
    let mut index = Index::default();
    for number in 0..entries {
        index.push_entry(
            base,
            &IndexEntry {
                position: base.plus(u64::from(number) * 10_000),
                epoch: 3,
                kind: 16,
                slack: 8,
                head: b"head",
                payload_length: 9_000,
            },
        );
    }
    Footer {
        store_id: STORE,
        id: 7,
        base,
        end: base.plus(1 << 20),
        hash_before: 1,
        hash_after: 2,
        epoch: 3,
        index,
    }
}

fn write(disk: &SimDisk, name: &str, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(name, OpenFile::Fresh).unwrap();
    slots::write(file.as_ref(), 0, bytes).unwrap();
    file
}

#[test]
fn a_footer_is_read_as_it_was_written_and_only_its_own() {
    for entries in [0, 1, 20] {
        let disk = SimDisk::new(1);
        let (bytes, crc) = footer(entries).encode();
        write(&disk, &footer_name(7), &bytes);
        assert_eq!(Footer::read(&disk, STORE, 7, crc).unwrap(), Some(footer(entries)));
        assert_eq!(Footer::read_any(&disk, STORE, 7).unwrap(), Some(footer(entries)));
        assert_eq!(Footer::read(&disk, STORE, 7, crc ^ 1).unwrap(), None, "an older one");
        assert_eq!(Footer::read_any(&disk, [8; 16], 7).unwrap(), None, "another store's");
        assert_eq!(Footer::read_any(&disk, STORE, 8).unwrap(), None, "there is none");
    }
    let disk = SimDisk::new(1);
    write(&disk, &footer_name(7), &slots::encode(b"STERNAFT", 7, &STORE));
    assert_eq!(Footer::read_any(&disk, STORE, 7).unwrap(), None, "too short");
}

#[test]
fn a_footer_that_cannot_be_opened_for_the_moment_is_not_a_missing_one() {
    let disk = SimDisk::new(1);
    write(&disk, &footer_name(7), &footer(3).encode().0);
    let faults = |shortage_one_in| Faults {
        shortage_one_in,
        ..Faults::default()
    };
    disk.set_faults(faults(1));
    assert!(Footer::read_any(&disk, STORE, 7).is_err());
    disk.set_faults(faults(0));
    assert!(Footer::read_any(&disk, STORE, 7).unwrap().is_some());
}

#[test]
fn landmarks_stand_at_records_of_a_compacted_file_at_least_64_kib_apart() {
    let footer = footer(40);
    // Head and payload, rounded up to eight bytes, and what a shorter head left.
    let stored = (HEADER_BYTES as u64 + 4 + 9_000).next_multiple_of(8) + 8;
    assert!(footer.index.entries(footer.base).all(|entry| entry.stored() == stored));
    let every = (64 * 1024_u64).div_ceil(stored);
    let wanted: Vec<(Position, u64)> = (0..40)
        .step_by(every as usize)
        .map(|number| (footer.base.plus(number * 10_000), BLOCK_BYTES + number * stored))
        .collect();
    assert!(wanted.len() > 4);
    assert_eq!(footer.index.landmarks(footer.base), wanted);
}

#[test]
fn large_compacted_segments_are_read_from_their_landmarks() {
    let large = Options {
        segment_bytes: 1024 * 1024,
        ..compacting()
    };
    let mut host = filled_as(1, 1500, 4000, large.clone());
    let kept: Vec<Position> = host.appended.keys().copied().step_by(5).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    host.maintain(&upkeep::Shedding { kept: &kept }).unwrap();
    let landmarks = |host: &Host| host.log.segments.iter().map(|segment| segment.landmarks.len()).max();
    assert!(landmarks(&host) > Some(2), "{:?}", landmarks(&host));
    for reopened in [false, true] {
        if reopened {
            host = host.reopen(large.clone()).unwrap();
        }
        for position in &kept {
            let record = host.read(*position).unwrap();
            assert_eq!(record.payload, host.appended[position].payload, "{position}");
        }
    }
}

#[test]
fn the_index_that_a_start_makes_is_the_one_that_the_writer_had() {
    let mut host = filled(3, 12, 2000);
    let index = |host: &Host| host.log.segments.last().unwrap().index.clone();
    let before = index(&host);
    assert!(before.user_records > 2);
    host.disk.kill_process();
    host = host.reopen(options()).unwrap();
    let base = host.log.segments.last().unwrap().base;
    let listed = |index: &Index| -> Vec<_> {
        let entries = index.entries(base);
        entries
            .map(|entry| (entry.position, entry.kind, entry.stored()))
            .collect()
    };
    let (before, after) = (listed(&before), listed(&index(&host)));
    // The start has begun an epoch.
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 1);
}

fn manifest(version: u64, entries: u64) -> Manifest {
    let entry = |id| Entry {
        id,
        sealed: id % 2 == 0,
        compacted: id % 3 == 0,
        ..Entry::default()
    };
    Manifest {
        version,
        store_id: STORE,
        next_id: 100,
        entries: (0..entries).map(entry).collect(),
        ..Manifest::default()
    }
}

#[test]
fn manifests_that_cannot_be_read_are_counted_and_the_newest_of_the_others_is_taken() {
    let disk = SimDisk::new(1);
    let files = ManifestFiles::create(&disk, &manifest(1, 3)).unwrap();
    files.write(&manifest(2, 4)).unwrap();
    let found = |disk: &SimDisk| {
        let found = ManifestFiles::find(disk).unwrap();
        (found.newest, found.missing, found.unreadable)
    };
    assert_eq!(found(&disk), (Some(manifest(2, 4)), 0, 0));
    disk.edit(MANIFEST_FILES[0], |bytes| bytes[30] ^= 1);
    assert_eq!(found(&disk), (Some(manifest(1, 3)), 0, 1));
    disk.edit(MANIFEST_FILES[1], |bytes| bytes[30] ^= 1);
    assert_eq!(found(&disk), (None, 0, 2));
    disk.remove(MANIFEST_FILES[1]).unwrap();
    assert_eq!(found(&disk), (None, 1, 1));
    // Checksummed, and of a layout that is not ours.
    let mut layout = [0; 56];
    layout[0] = 0xff;
    write(&disk, MANIFEST_FILES[0], &slots::encode(b"STERNAMF", 4, &layout));
    assert_eq!(found(&disk), (None, 1, 1));
}

#[test]
fn manifests_that_cannot_be_opened_for_the_moment_are_neither_missing_nor_made_anew() {
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        ManifestFiles::create(&disk, &manifest(1, 3)).unwrap();
        for one_in in [1, 2] {
            disk.set_faults(Faults {
                shortage_one_in: one_in,
                ..Faults::default()
            });
            if let Ok(found) = ManifestFiles::find(&disk) {
                assert_eq!(found.missing, 0);
            }
            let _ = ManifestFiles::open(&disk);
        }
        disk.set_faults(Faults::default());
        assert_eq!(ManifestFiles::find(&disk).unwrap().newest, Some(manifest(1, 3)));
    }
}

#[test]
fn a_manifest_that_outgrows_its_file_has_space_set_aside_for_twice_as_much() {
    let disk = SimDisk::new(1);
    let files = ManifestFiles::create(&disk, &manifest(1, 3)).unwrap();
    let before = disk.contents(MANIFEST_FILES[0]).unwrap().len();
    let large = manifest(2, 2 + before as u64 / 40);
    files.write(&large).unwrap();
    assert!(disk.contents(MANIFEST_FILES[0]).unwrap().len() > before * 2);
    assert_eq!(ManifestFiles::find(&disk).unwrap().newest, Some(large));
}

fn watermark(durable: u64) -> Watermark {
    Watermark {
        store_id: STORE,
        durable: Position(durable),
        ..Watermark::default()
    }
}

#[test]
fn a_watermark_says_when_one_of_its_slots_cannot_be_read() {
    let opened = |disk: &SimDisk| {
        let (_, found, unreadable) = WatermarkFile::open(disk).unwrap();
        (found.map(|found| found.durable.get()), unreadable)
    };
    let two = || {
        let disk = SimDisk::new(1);
        let mut file = WatermarkFile::create(&disk, &watermark(10)).unwrap();
        file.next(&watermark(20)).run().unwrap();
        disk
    };
    assert_eq!(opened(&two()), (Some(20), false));
    for (slot, left) in [(0, 10), (1, 20)] {
        let disk = two();
        disk.edit(WATERMARK_FILE, |bytes| bytes[slot * BLOCK_BYTES as usize + 30] ^= 1);
        assert_eq!(opened(&disk), (Some(left), true), "slot {slot}");
    }
    let disk = two();
    disk.edit(WATERMARK_FILE, |bytes| bytes.truncate(BLOCK_BYTES as usize + 200));
    assert_eq!(opened(&disk), (Some(20), true), "it is too short");
    let disk = SimDisk::new(1);
    let mut file = WatermarkFile::renew(&disk).unwrap();
    assert_eq!(disk.contents(WATERMARK_FILE).unwrap().len() as u64, 2 * BLOCK_BYTES);
    file.next(&watermark(30)).run().unwrap();
    assert_eq!(opened(&disk).0, Some(30));
}

#[test]
fn a_watermark_that_was_perhaps_not_written_is_written_again_into_the_same_slot() {
    let disk = SimDisk::new(1);
    let mut file = WatermarkFile::create(&disk, &watermark(10)).unwrap();
    let before = disk.contents(WATERMARK_FILE).unwrap();
    for durable in [20, 30] {
        file.next(&watermark(durable)).run().unwrap();
        file.take_back();
    }
    let after = disk.contents(WATERMARK_FILE).unwrap();
    let block = BLOCK_BYTES as usize;
    assert_eq!(after[block..], before[block..], "the other slot is as it was");
    assert_ne!(after[..block], before[..block]);
}

#[test]
fn one_job_at_a_time_is_out_and_nothing_is_flushed_meanwhile() {
    let mut host = filled(4, 20, 2000);
    let job = host.log.maintenance(&KeepAll).unwrap();
    assert!(host.log.maintenance(&KeepAll).is_none());
    let epoch = host.log.epoch();
    assert!(matches!(host.log.begin_epoch(epoch + 1), Err(LogError::Options(_))));
    host.log.complete_maintenance(job.run()).unwrap();
    host.log.begin_epoch(epoch + 1).unwrap();
}

#[test]
fn a_number_that_is_taken_while_a_manifest_is_on_its_way_stays_taken() {
    let mut host = filled(4, 200, 2000);
    for _ in 0..8 {
        let Some(job) = host.log.maintenance(&KeepAll) else {
            break;
        };
        let taken = host.log.take_id();
        host.log.complete_maintenance(job.run()).unwrap();
        let next = host.log.take_id();
        assert!(next > taken, "{next} after {taken}");
        assert!(host.log.segments.iter().all(|segment| segment.id < next));
    }
}

#[test]
fn only_whole_files_without_damage_are_used_again() {
    let mut host = filled(4, 200, 2000);
    host.maintain(&KeepAll).unwrap();
    let id = host.log.segments.iter().next().unwrap().id;
    let bytes = host.log.options.segment_bytes;
    let recycled = |host: &mut Host, change: fn(&mut crate::log::segments::Segment)| {
        change(host.log.segments.by_id_mut(id).unwrap());
        let ahead = host.log.ahead.len();
        let found = [ahead, ahead + 1].map(|count| host.log.recycle(id, count).map(|(_, bytes)| bytes));
        let segment = host.log.segments.by_id_mut(id).unwrap();
        (segment.damaged, segment.compacted, segment.file_bytes) = (false, false, 64 * 1024);
        found
    };
    assert_eq!(
        recycled(&mut host, |_| {}),
        [None, Some(bytes)],
        "as many as there may be"
    );
    assert_eq!(recycled(&mut host, |segment| segment.damaged = true), [None; 2]);
    assert_eq!(recycled(&mut host, |segment| segment.compacted = true), [None; 2]);
    assert_eq!(recycled(&mut host, |segment| segment.file_bytes = 4096), [None; 2]);
}

#[test]
fn commits_of_one_segment_are_one_write_of_whole_blocks() {
    let mut host = Host::open(&SimDisk::new(5), options()).unwrap();
    host.maintain(&KeepAll).unwrap();
    assert_eq!((host.log.pending_bytes(), host.log.has_pending()), (0, false));
    // Each fills a commit.
    for _ in 0..3 {
        host.log.append(16, b"head", &vec![7; 15 * 1024]).unwrap();
    }
    let pending = host.log.pending_bytes();
    assert_eq!(pending, 3 * 16 * 1024);
    let job = host.log.next_write().unwrap().unwrap();
    assert_eq!(job.segments.len(), 1, "one sync");
    assert_eq!(job.bytes(), pending);
    assert_eq!(host.log.pending_bytes(), pending, "it is on its way");
    host.log.complete_write(job.run()).unwrap();
    assert_eq!(host.log.pending_bytes(), 0);
}

#[test]
fn a_record_that_was_told_to_be_left_out_is_known_to_be_gone() {
    let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let kept: Vec<Position> = positions.iter().copied().step_by(19).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    let (target, early) = (positions[0], positions[249]);
    assert!(host.log.may_exist(early, target));
    host.maintain(&upkeep::Shedding { kept: &kept }).unwrap();
    assert!(!host.log.may_exist(early, target), "the rewrite knew of it");
    assert!(
        host.log.may_exist(Position(u64::MAX), target),
        "it could not know of it"
    );
    assert!(!host.log.may_exist(early, Position::ZERO), "there is no such segment");
}

#[test]
fn whoever_asks_for_all_from_a_position_is_told_where_something_lacks() {
    let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let (start, end) = (host.log.start(), host.log.end());
    let ends: Vec<Position> = host.log.segments.iter().map(|segment| segment.end).collect();
    for position in [start, Position(start.get() + 8), ends[0], ends[1], end] {
        assert!(host.log.has_all_from(position), "{position}");
    }
    assert!(!host.log.has_all_from(Position(start.get() - 8)), "below the beginning");
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let second = host.log.segments.iter().nth(1).unwrap().base;
    let kept: Vec<Position> = positions.into_iter().filter(|position| *position >= second).collect();
    host.log.hold(*host.appended.keys().next().unwrap());
    kept.iter().for_each(|position| host.log.hold(*position));
    host.maintain(&upkeep::Shedding { kept: &kept }).unwrap();
    assert!(!host.log.has_all_from(start), "the first segment was rewritten");
    assert!(host.log.has_all_from(ends[0]), "the others were not");
    // One in the middle is gone.
    let third = host.log.segments.iter().nth(2).unwrap().id;
    host.log.forget_segment(third);
    assert!(!host.log.has_all_from(ends[0]));
    assert!(host.log.has_all_from(ends[2]));
}

#[test]
fn a_reader_that_ends_keeps_nothing() {
    let mut host = filled(3, 200, 2000);
    host.maintain(&KeepAll).unwrap();
    let (start, floor) = (host.log.start(), host.log.durable());
    assert!(host.log.register_reader("standby", start, u64::MAX));
    host.log.set_floor(floor, Position::ZERO);
    host.maintain(&KeepAll).unwrap();
    assert_eq!(host.log.start(), start);
    host.log.remove_reader("standby");
    host.maintain(&KeepAll).unwrap();
    assert!(host.log.start() > start);
    assert!(!host.log.advance_reader("standby", floor));
}

#[test]
fn bookkeeping_that_cannot_be_read_is_never_taken_for_none() {
    let stopped = || {
        let host = filled(4, 200, 2000);
        host.disk.clone()
    };
    let flip = |disk: &SimDisk, name: &str| disk.edit(name, |bytes| bytes[30] ^= 1);
    let refused = |disk: &SimDisk, what: &str| match Host::open(disk, options()) {
        Err(LogError::Damaged { .. }) => {}
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: the start was not refused"),
    };
    let disk = stopped();
    MANIFEST_FILES.iter().for_each(|name| flip(&disk, name));
    refused(&disk, "both manifests are damaged");
    disk.remove(WATERMARK_FILE).unwrap();
    refused(&disk, "and the watermark is missing");
    for name in disk.list().unwrap().iter().filter(|name| name.ends_with(".segment")) {
        disk.remove(name).unwrap();
    }
    refused(&disk, "and all segments");
    let disk = stopped();
    MANIFEST_FILES.iter().for_each(|name| disk.remove(name).unwrap());
    refused(&disk, "both manifests are missing");
    disk.remove(WATERMARK_FILE).unwrap();
    refused(&disk, "everything but segments is missing");
    let disk = stopped();
    flip(&disk, MANIFEST_FILES[0]);
    disk.remove(MANIFEST_FILES[1]).unwrap();
    refused(&disk, "one manifest is damaged and one is missing");
}

#[test]
fn another_stores_watermark_is_refused_and_left_out_by_force() {
    let host = filled(4, 200, 2000);
    let disk = host.disk.clone();
    drop(host);
    let other = SimDisk::new(9);
    let foreign = Watermark {
        store_id: [8; 16],
        ..watermark(BLOCK_BYTES)
    };
    drop(WatermarkFile::create(&other, &foreign).unwrap());
    let foreign = other.contents(WATERMARK_FILE).unwrap();
    disk.edit(WATERMARK_FILE, |bytes| *bytes = foreign);
    match Host::open(&disk, options()) {
        Err(LogError::Damaged { file, .. }) => assert_eq!(file, WATERMARK_FILE),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was taken"),
    }
    let force = Options {
        force_start: true,
        ..options()
    };
    assert!(Host::open(&disk, force).unwrap().report.watermark_lost);
    assert!(!Host::open(&disk, options()).unwrap().report.watermark_lost);
}

/// Keeps every record with so many bytes less of its head.
struct Cutting(usize);

impl Rewriter for Cutting {
    fn rewrite(&self, record: Rewritable<'_>, _presence: &Presence<'_>) -> Rewrite {
        if record.head.len() == 100 {
            Rewrite::KeepAs(record.head[..100 - self.0].to_vec())
        } else {
            Rewrite::Drop
        }
    }
}

#[test]
fn a_head_that_is_shorter_by_any_number_of_bytes_leaves_a_record_that_is_read() {
    for cut in (8..=72).step_by(8).chain([1, 31, 33]) {
        let mut host = Host::open(&SimDisk::new(4), options()).unwrap();
        let mut kept = Vec::new();
        for number in 0..150_u32 {
            host.maintain(&KeepAll).unwrap();
            let head = vec![number as u8; if number % 17 == 0 { 100 } else { 60 }];
            let position = host.log.append(16, &head, &[7; 1500]).unwrap();
            if number % 17 == 0 {
                kept.push((position, head));
            }
            host.commit().unwrap();
        }
        let mut host = host.reopen(compacting()).unwrap();
        kept.iter().for_each(|(position, _)| host.log.hold(*position));
        host.maintain(&Cutting(cut)).unwrap();
        let mut host = host.reopen(compacting()).unwrap();
        kept.retain(|(position, _)| host.log.segments.find(*position).is_some_and(|found| found.compacted));
        assert!(kept.len() > 3, "{}", kept.len());
        for (position, head) in kept {
            let record = host
                .read(position)
                .unwrap_or_else(|error| panic!("shorter by {cut}: {error}"));
            assert!(record.head[..] == head[..100 - cut], "shorter by {cut}");
            assert!(record.payload[..] == [7; 1500], "shorter by {cut}");
        }
    }
}

#[test]
fn a_rewrite_that_left_a_record_out_frees_what_had_to_outlive_it() {
    let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let kept: Vec<Position> = positions.iter().copied().step_by(19).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    let holder = host.log.append(16, b"ends others", b"").unwrap();
    host.log.depend(holder, positions[1]);
    let blockers = |host: &mut Host| host.log.segments.find(holder).unwrap().liveness.blockers;
    assert_eq!(blockers(&mut host), 1);
    host.commit().unwrap();
    host.maintain(&upkeep::Shedding { kept: &kept }).unwrap();
    assert!(host.log.segments.find(positions[1]).unwrap().compacted);
    assert_eq!(blockers(&mut host), 0);
}

#[test]
fn of_a_segment_that_is_being_sealed_heads_are_not_told_before_it_is() {
    let mut host = filled(8, 300, 500);
    let (start, end) = (host.log.start(), host.log.end());
    let all = |log: &Log| {
        let (mut at, mut found) = (start, Vec::new());
        loop {
            match log.heads(at, end) {
                Sought::Here(request) => {
                    let mut heads = request.run().unwrap();
                    while let Some(head) = heads.next_head() {
                        found.push(head.position);
                    }
                    assert!(heads.end() > at, "whoever asks again asks for the same");
                    at = heads.end();
                }
                Sought::Later => return None,
                Sought::Nowhere => return Some(found),
            }
        }
    };
    let inside = *host.appended.keys().nth(5).unwrap();
    assert!(matches!(host.log.heads(inside, inside), Sought::Nowhere));
    let expected = all(&host.log);
    assert!(expected.as_ref().is_some_and(|found| found.len() >= 300));
    let mut sealing = 0;
    let mut random = Random::new(9);
    for _ in 0..400 {
        host.append(&mut random, 500).unwrap();
        host.commit().unwrap();
        while let Some(job) = host.log.maintenance(&KeepAll) {
            let found = all(&host.log);
            assert!(found.is_none() || found == expected);
            sealing += usize::from(found.is_none());
            host.log.complete_maintenance(job.run()).unwrap();
            assert_eq!(all(&host.log), expected);
        }
    }
    assert!(sealing > 0, "the segment in question was never sealed");
}
