//! What an open refuses, what it passes over, and what it leaves behind: bookkeeping that contradicts the files, headers
//! that do not continue the log, full and failing disks.

use super::*;
use crate::log::compaction::write_footer;
use crate::log::disk::{Disk, OpenFile};
use crate::log::footer::Footer;
use crate::log::manifest::{Entry, MANIFEST_FILES, Manifest, ManifestFiles};
use crate::log::position::block_aligned;
use crate::log::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};
use crate::log::watermark::{Watermark, WatermarkFile};
use crate::sim::Faults;

pub(super) fn forced() -> Options {
    Options {
        force_start: true,
        ..options()
    }
}

/// A stopped log with so many segments that were begun and never sealed, three records to a commit.
pub(super) struct Begun {
    pub disk: SimDisk,
    pub appended: BTreeMap<Position, Known>,
    /// Of each segment: where it begins and ends.
    pub bounds: Vec<(Position, Position)>,
    pub manifest: Manifest,
}

/// All but the last are full.
pub(super) fn begun(count: usize) -> Begun {
    begun_of(count, &[[3000; 3]])
}

/// In each is room for a block more.
pub(super) fn roomy(count: usize) -> Begun {
    let found = begun_of(count, &[[100, 100, 14_000]]);
    let room = |(base, end): &(Position, Position)| end.get() - base.get() + BLOCK_BYTES <= 60 * 1024;
    assert!(found.bounds.iter().all(room));
    found
}

/// Of each commit: the lengths of its payloads; those behind are as the last.
pub(super) fn begun_of(count: usize, payload_bytes: &[[usize; 3]]) -> Begun {
    let mut random = Random::new(7);
    let options = Options {
        record_bytes_max: 48 * 1024,
        ..options()
    };
    let mut host = Host::open(&SimDisk::new(7), options).unwrap();
    host.maintain(&KeepAll).unwrap();
    let mut behind = 0;
    let mut commits = payload_bytes
        .iter()
        .chain(std::iter::repeat(payload_bytes.last().unwrap()));
    while behind < 3 {
        for &length in commits.next().unwrap() {
            let (head, payload) = (random.bytes(20), random.bytes(length));
            let position = host.log.append_kept(20, &head, &payload).unwrap();
            host.appended.insert(
                position,
                Known {
                    kind: 20,
                    head,
                    payload,
                },
            );
        }
        host.commit().unwrap();
        behind += usize::from(host.log.segments.len() == count);
    }
    assert!(host.log.segments.iter().all(|segment| !segment.sealed));
    let segments = host.log.segments.iter();
    let bounds: Vec<(Position, Position)> = segments
        .map(|segment| (segment.base, Position(block_aligned(segment.end.get()))))
        .collect();
    let Host {
        disk, log, appended, ..
    } = host;
    let manifest = log.manifest.clone();
    drop(log);
    Begun {
        disk,
        appended,
        bounds,
        manifest,
    }
}

/// A stopped log of many sealed segments and one that is not.
pub(super) fn sealed(seed: u64) -> (SimDisk, BTreeMap<Position, Known>, Manifest) {
    let mut host = filled(seed, 120, 2500);
    host.maintain(&KeepAll).unwrap();
    let Host {
        disk, log, appended, ..
    } = host;
    let manifest = log.manifest.clone();
    drop(log);
    assert!(manifest.entries.iter().filter(|entry| entry.sealed).count() > 2);
    (disk, appended, manifest)
}

/// Puts this in force, as if it had been written by the log.
pub(super) fn write_manifest(disk: &SimDisk, manifest: &Manifest) {
    let files = ManifestFiles::open(disk).unwrap();
    for more in 1..3 {
        let version = manifest.version + more;
        files
            .write(&Manifest {
                version,
                ..manifest.clone()
            })
            .unwrap();
    }
}

/// As after a power loss: the watermark knows nothing yet.
pub(super) fn age_watermark(disk: &SimDisk) {
    let first = Watermark {
        store_id: [9; 16],
        durable: Position::FIRST,
        manifest: 1,
        ..Watermark::default()
    };
    let (mut file, _, _) = WatermarkFile::open(disk).unwrap();
    for _ in 0..2 {
        file.next(&first).run().unwrap();
    }
}

/// Damages a record, or a commit's own, of an unsealed segment that begins at `base`.
pub(super) fn damage(disk: &SimDisk, id: u64, base: Position, at: Position) {
    let offset = (DATA_OFFSET + at.get() - base.get()) as usize;
    disk.edit(&segment_name(id), |bytes| bytes[offset + 33] ^= 0xff);
}

fn positions(host: &Host) -> Vec<Position> {
    host.recovered.iter().map(|record| record.0).collect()
}

fn change_header(disk: &SimDisk, id: u64, change: impl FnOnce(&mut SegmentHeader)) {
    disk.edit(&segment_name(id), |bytes| {
        let mut header = SegmentHeader::decode(bytes, [9; 16], id).unwrap();
        change(&mut header);
        bytes[..BLOCK_BYTES as usize].copy_from_slice(&header.encode());
    });
}

/// The file and the reason of a refusal.
#[track_caller]
fn refusal(disk: &SimDisk) -> (String, u64, Position, String) {
    match Host::open(disk, options()) {
        Err(LogError::Damaged {
            file,
            offset,
            position,
            why,
        }) => (file, offset, position, why),
        Err(error) => panic!("{error}"),
        Ok(host) => panic!("it was opened, with {} records", host.recovered.len()),
    }
}

#[test]
fn a_manifest_that_contradicts_the_segments_refuses_the_start() {
    let (disk, _, manifest) = sealed(3);
    let manifests = MANIFEST_FILES.join(", ");
    let changed = |change: &dyn Fn(&mut Manifest)| {
        let disk = disk.fork(1);
        let mut manifest = manifest.clone();
        change(&mut manifest);
        write_manifest(&disk, &manifest);
        let (file, _, _, why) = refusal(&disk);
        (file, why)
    };
    let ends = "the segments do not end as the manifest says".to_owned();
    let otherwise = changed(&|manifest| manifest.sealed_hash ^= 1);
    assert_eq!(otherwise, (manifests.clone(), ends.clone()));
    let earlier = changed(&|manifest| manifest.sealed_end = Position(manifest.sealed_end.get() - BLOCK_BYTES));
    assert_eq!(earlier, (manifests, ends));
    let second = segment_name(manifest.entries[1].id);
    let rewritten = changed(&|manifest| manifest.entries[1].compacted = true);
    let why = "the segment's header contradicts the manifest".to_owned();
    assert_eq!(rewritten, (second.clone(), why));
    // A footer that is sound, and of another history.
    let mut footer = Footer::read_any(&disk, [9; 16], manifest.entries[1].id)
        .unwrap()
        .unwrap();
    footer.hash_before ^= 1;
    let crc = write_footer(&disk, &footer).unwrap();
    let foreign = changed(&|manifest| manifest.entries[1].footer_crc = crc);
    let why = "the rolling hash does not continue from the segment before".to_owned();
    assert_eq!(foreign, (second, why));
}

#[test]
fn a_sealed_segment_that_was_cut_refuses_the_start_even_where_its_footer_is_whole() {
    let (disk, _, manifest) = sealed(3);
    let Entry { id, base, end, .. } = manifest.entries[1];
    let length = DATA_OFFSET + end.get() - base.get() - 1;
    disk.edit(&segment_name(id), |bytes| bytes.truncate(length as usize));
    let (file, offset, position, why) = refusal(&disk);
    assert_eq!((file, offset, position), (segment_name(id), length, base));
    assert_eq!(why, "the file is shorter than its records");
}

#[test]
fn a_begun_segment_that_an_older_manifest_does_not_list_refuses_the_start() {
    let Begun { disk, manifest, .. } = begun(2);
    let mut older = manifest;
    older.entries.retain(|entry| entry.id < 2);
    older.next_id = 2;
    write_manifest(&disk, &older);
    age_watermark(&disk);
    let (file, _, _, why) = refusal(&disk);
    assert_eq!(file, segment_name(2));
    assert!(why.contains("the manifest is an older one"), "{why}");
}

#[test]
fn a_segment_that_does_not_continue_the_log_is_no_part_of_it() {
    type Change = fn(&mut SegmentHeader);
    let Begun {
        disk, appended, bounds, ..
    } = begun(2);
    age_watermark(&disk);
    let changes: [(&str, Change); 4] = [
        ("rewritten", |header| header.compacted = true),
        ("of an earlier epoch", |header| header.epoch = 0),
        ("behind another end", |header| {
            header.previous_end = Position(header.previous_end.get() - BLOCK_BYTES);
        }),
        ("of another history", |header| header.hash_before ^= 1),
    ];
    let first: Vec<Position> = appended.keys().copied().filter(|known| *known < bounds[0].1).collect();
    for (what, change) in changes {
        let disk = disk.fork(1);
        change_header(&disk, 2, change);
        let host = Host::open(&disk, options()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(positions(&host), first, "{what}");
    }
}

#[test]
fn damage_at_the_end_of_a_segment_is_named_where_the_next_one_was_begun() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(2);
    let (base, end) = bounds[0];
    let last = *appended.range(..end).next_back().unwrap().0;
    damage(&disk, 1, base, last);
    for aged in [false, true] {
        let disk = disk.fork(1);
        if aged {
            age_watermark(&disk);
        }
        let (file, _, position, why) = refusal(&disk);
        assert_eq!((file, position), (segment_name(1), last), "{why}");
    }
}

#[test]
fn damage_to_the_last_commit_is_named_where_the_watermark_knows_it() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(2);
    let victim = *appended.keys().nth_back(1).unwrap();
    damage(&disk, 2, bounds[1].0, victim);
    let (file, _, position, why) = refusal(&disk);
    assert_eq!((file, position), (segment_name(2), victim), "{why}");
}

#[test]
fn a_segment_that_continues_further_on_than_the_log_reached_refuses_the_start() {
    let Begun {
        disk, bounds, manifest, ..
    } = begun(4);
    let mut without = manifest;
    without.entries.retain(|entry| entry.id != 3);
    write_manifest(&disk, &without);
    // The one before is full, so that nothing but the gap shows.
    let (base, end) = bounds[1];
    let (file, offset, position, why) = refusal(&disk);
    let place = DATA_OFFSET + end.get() - base.get();
    assert_eq!((file, offset, position), (segment_name(2), place, end), "{why}");
}

#[test]
fn a_segment_whose_header_is_lost_is_found_by_its_commits() {
    let Begun { disk, bounds, .. } = roomy(2);
    age_watermark(&disk);
    disk.edit(&segment_name(2), |bytes| bytes[40] ^= 1);
    let (file, _, position, _) = refusal(&disk);
    assert_eq!((file, position), (segment_name(2), bounds[0].1));
}

#[test]
fn an_open_reports_the_position_space_of_all_segments() {
    let (disk, _, manifest) = sealed(3);
    let host = Host::open(&disk, options()).unwrap();
    let last = host.log.segments.iter().last().unwrap();
    assert_eq!(host.report.bytes, last.end.get() - manifest.entries[0].base.get());
}

#[test]
fn an_open_removes_what_nothing_lists() {
    let (disk, appended, _) = sealed(3);
    let unlisted = segment_name(0xff);
    disk.open(&unlisted, OpenFile::Fresh)
        .unwrap()
        .allocate(128 * 1024)
        .unwrap();
    let host = Host::open(&disk, options()).unwrap();
    assert!(!disk.names().contains(&unlisted));
    assert_eq!(host.recovered.len(), appended.len());
}

#[test]
fn prepared_segments_of_another_length_are_replaced() {
    let (disk, appended, manifest) = sealed(3);
    let old: Vec<u64> = manifest
        .entries
        .iter()
        .filter(|entry| !entry.sealed)
        .skip(1)
        .map(|entry| entry.id)
        .collect();
    assert!(!old.is_empty());
    let larger = || Options {
        segment_bytes: 128 * 1024,
        ..options()
    };
    let host = Host::open(&disk, larger()).unwrap();
    assert!(!host.log.ahead.is_empty());
    assert!(host.log.ahead.iter().all(|segment| segment.file_bytes == 128 * 1024));
    let names = disk.names();
    assert!(old.iter().all(|id| !names.contains(&segment_name(*id))));
    let host = host.reopen(larger()).unwrap();
    assert_eq!(host.recovered.len(), appended.len());
}

#[test]
fn a_file_that_was_cut_behind_its_records_has_its_length_again() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(1);
    let ((base, end), name) = (bounds[0], segment_name(1));
    let whole = disk.contents(&name).unwrap().len();
    let records = (DATA_OFFSET + end.get() - base.get()) as usize;
    assert!(records < whole);
    disk.edit(&name, |bytes| bytes.truncate(records));
    let host = Host::open(&disk, options()).unwrap();
    assert_eq!(host.recovered.len(), appended.len());
    assert_eq!(disk.contents(&name).unwrap().len(), whole);
}

/// Leaves no byte of room.
fn fill_disk(disk: &SimDisk) {
    let space_bytes = Some(disk.used_bytes());
    disk.set_faults(Faults {
        space_bytes,
        ..Faults::default()
    });
}

/// Takes what was prepared from a log.
fn without_ahead(disk: &SimDisk, manifest: &Manifest) {
    let mut without = manifest.clone();
    let ahead: Vec<u64> = without
        .entries
        .iter()
        .filter(|entry| !entry.sealed)
        .skip(1)
        .map(|entry| entry.id)
        .collect();
    without.entries.retain(|entry| !ahead.contains(&entry.id));
    write_manifest(disk, &without);
    for id in ahead {
        disk.remove(&segment_name(id)).unwrap();
    }
    disk.sync_directory().unwrap();
}

#[test]
fn a_log_without_a_reserve_opens_on_a_full_disk_and_takes_nothing_but_what_drains() {
    let (disk, appended, manifest) = sealed(3);
    without_ahead(&disk, &manifest);
    disk.remove("spare").unwrap();
    fill_disk(&disk);
    let host = Host::open(&disk, options()).unwrap();
    assert_eq!(host.recovered.len(), appended.len());
    assert!(host.log.ahead.is_empty());
    assert!(host.log.reserve.drains && host.log.is_in_reserve());
}

#[test]
fn on_a_full_disk_unlisted_files_make_room_for_the_reserve_before_the_spare_does() {
    let (disk, _, manifest) = sealed(3);
    without_ahead(&disk, &manifest);
    assert!(disk.names().contains(&"spare".to_owned()));
    let with_unlisted = disk.fork(1);
    with_unlisted
        .open(&segment_name(0xff), OpenFile::Fresh)
        .unwrap()
        .allocate(128 * 1024)
        .unwrap();
    for (disk, spare_stays) in [(disk, false), (with_unlisted, true)] {
        fill_disk(&disk);
        let host = Host::open(&disk, options()).unwrap();
        assert_eq!(host.log.ahead.len(), 2);
        assert_eq!(disk.names().contains(&"spare".to_owned()), spare_stays);
        assert_eq!(host.log.reserve.has_spare, spare_stays);
    }
}

#[test]
fn a_footer_for_which_there_is_no_space_keeps_no_log_from_opening() {
    let (disk, appended, _) = sealed(3);
    for name in disk.names().iter().filter(|name| name.ends_with(".footer")) {
        disk.remove(name).unwrap();
    }
    disk.sync_directory().unwrap();
    fill_disk(&disk);
    let host = Host::open(&disk, options()).unwrap();
    assert!(host.report.footers_rebuilt > 0);
    assert_eq!(host.recovered.len(), appended.len());
}

#[test]
fn no_sync_that_fails_during_an_open_is_passed_over() {
    let (disk, _, manifest) = sealed(3);
    without_ahead(&disk, &manifest);
    for name in disk.names().iter().filter(|name| name.ends_with(".footer")) {
        disk.remove(name).unwrap();
    }
    disk.sync_directory().unwrap();
    let mut refused = 0;
    for fail_sync_at in 1..80 {
        let disk = disk.fork(fail_sync_at);
        disk.set_faults(Faults {
            fail_sync_at: Some(fail_sync_at),
            ..Faults::default()
        });
        if Host::open(&disk, options()).is_err() {
            refused += 1;
            continue;
        }
        if disk.operations() < fail_sync_at {
            break;
        }
        // None was asked for from there on: the next one fails.
        let probe = disk.open("probe", OpenFile::Fresh).unwrap();
        assert!(probe.sync_data().is_err(), "the one from operation {fail_sync_at} on");
    }
    assert!(refused > 10, "{refused}");
}
