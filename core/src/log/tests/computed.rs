//! Manifests that a forced start computes from the files, or completes by them: in the right order, of all that is there
//! and of nothing else, and with no word of a loss where none is.

use super::forced::{nothing_lacks, rewritten};
use super::upkeep::Shedding;
use super::*;
use crate::log::commit::CommitHead;
use crate::log::disk::{Disk, OpenFile};
use crate::log::footer::Footer;
use crate::log::manifest::{Entry, MANIFEST_FILES, Manifest, ManifestFiles};
use crate::log::segment_header::{SegmentHeader, footer_name, segment_name};
use crate::log::slots;
use crate::log::watermark::WATERMARK_FILE;

fn forced() -> Options {
    Options {
        force_start: true,
        ..options()
    }
}

/// What a stopped log was.
pub(super) struct Stopped {
    pub disk: SimDisk,
    pub appended: BTreeMap<Position, Known>,
    pub manifest: Manifest,
    /// Number, base and end of every segment.
    pub segments: Vec<(u64, Position, Position)>,
}

pub(super) fn stopped(host: Host) -> Stopped {
    let segments = host
        .log
        .segments
        .iter()
        .map(|segment| (segment.id, segment.base, segment.end))
        .collect();
    Stopped {
        disk: host.disk.clone(),
        appended: host.appended.clone(),
        manifest: host.log.manifest.clone(),
        segments,
    }
}

/// As it was written, in several segments.
pub(super) fn plain() -> Host {
    let mut host = filled(4, 120, 2500);
    host.maintain(&KeepAll).unwrap();
    assert!(host.log.segments.len() > 3 && host.log.segments.last().is_some_and(|last| !last.sealed));
    host
}

/// As [`plain`], the segments but so many rewritten.
pub(super) fn rewritten_behind(count: usize) -> Host {
    let mut host = plain().reopen(compacting()).unwrap();
    let from = host.log.segments.iter().nth(count).unwrap().base;
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let sparse = positions.iter().filter(|position| **position >= from).step_by(17);
    let dense = positions.iter().filter(|position| **position < from);
    let kept: Vec<Position> = dense.chain(sparse).copied().collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    host.maintain(&Shedding { kept: &kept }).unwrap();
    let compacted: Vec<bool> = host.log.segments.iter().map(|segment| segment.compacted).collect();
    assert!(!compacted[count - 1] && compacted[count], "{compacted:?}");
    let copies = host.log.segments.iter().filter(|segment| segment.compacted);
    let copies: Vec<(Position, Position)> = copies.map(|segment| (segment.base, segment.end)).collect();
    host.appended.retain(|position, _| {
        let copied = copies.iter().any(|(base, end)| base <= position && position < end);
        !copied || kept.binary_search(position).is_ok()
    });
    host
}

/// Puts a manifest in force, whatever there was.
pub(super) fn put(disk: &SimDisk, newest: &Manifest, entries: Vec<Entry>, next_id: u64) {
    let files = ManifestFiles::open(disk).unwrap();
    for version in [newest.version + 1, newest.version + 2] {
        let manifest = Manifest {
            version,
            next_id,
            entries: entries.clone(),
            ..newest.clone()
        };
        files.write(&manifest).unwrap();
    }
}

/// As the manifest was when only the first segment was sealed, but for what it lists.
fn sealed_up_to_the_first(disk: &SimDisk, manifest: &Manifest) -> Manifest {
    let first = manifest.entries[0];
    let footer = Footer::read(disk, manifest.store_id, first.id, first.footer_crc)
        .unwrap()
        .unwrap();
    Manifest {
        sealed_end: footer.end,
        sealed_hash: footer.hash_after,
        sealed_epoch: footer.epoch,
        ..manifest.clone()
    }
}

/// As the manifest was when none was.
pub(super) fn nothing_sealed(manifest: &Manifest) -> Manifest {
    Manifest {
        sealed_end: Position::FIRST,
        sealed_hash: 0,
        sealed_epoch: 0,
        ..manifest.clone()
    }
}

fn without_manifests(disk: &SimDisk) {
    MANIFEST_FILES.iter().for_each(|name| disk.remove(name).unwrap());
}

pub(super) fn write(disk: &SimDisk, name: &str, bytes: &[u8]) {
    let file = disk.open(name, OpenFile::Fresh).unwrap();
    slots::write(file.as_ref(), 0, bytes).unwrap();
    file.sync_data().unwrap();
    disk.sync_directory().unwrap();
}

pub(super) fn unsealed(id: u64, file_bytes: u32) -> Entry {
    Entry {
        id,
        file_bytes,
        ..Entry::default()
    }
}

/// Everything is there, nothing is said to be lost, and the next start needs no force.
fn all_is_there(disk: &SimDisk, appended: &BTreeMap<Position, Known>) -> RecoveryReport {
    let host = Host::open(disk, forced()).unwrap();
    nothing_lacks(&host, appended);
    assert_eq!(host.report.dropped, []);
    let report = host.report.clone();
    drop(host);
    nothing_lacks(&Host::open(disk, options()).unwrap(), appended);
    report
}

pub(super) fn told(host: &Host) -> Vec<(Position, Position, Option<u64>)> {
    let dropped = host.report.dropped.iter();
    dropped
        .map(|one| (one.position, one.position.plus(one.bytes), one.records))
        .collect()
}

pub(super) fn found(host: &Host) -> Vec<Position> {
    host.recovered.iter().map(|record| record.0).collect()
}

#[test]
fn where_every_segment_is_there_footers_are_read_and_nothing_is_said_to_be_lost() {
    for host in [plain(), rewritten(plain()), rewritten_behind(1)] {
        let Stopped {
            disk,
            appended,
            manifest,
            ..
        } = stopped(host);
        let sealed = manifest.entries.iter().filter(|entry| entry.sealed).count() as u64;
        without_manifests(&disk);
        let missing = disk.fork(1);
        let report = all_is_there(&disk, &appended);
        assert_eq!((report.footers_read, report.footers_rebuilt), (sealed, 0));
        // A segment as it was written says by its records where it ends.
        let first = manifest.entries[0];
        if !first.compacted {
            missing.remove(&footer_name(first.id)).unwrap();
            all_is_there(&missing, &appended);
        }
    }
}

#[test]
fn a_rewritten_segment_without_a_footer_may_have_been_cut() {
    let Stopped {
        disk,
        appended,
        segments,
        ..
    } = stopped(rewritten_behind(1));
    let (id, base, end) = segments[1];
    without_manifests(&disk);
    disk.remove(&footer_name(id)).unwrap();
    let host = Host::open(&disk, forced()).unwrap();
    nothing_lacks(&host, &appended);
    assert_eq!(told(&host), [(base, end, None)]);
}

#[test]
fn damage_at_the_end_of_a_segment_is_told_by_what_the_next_one_says() {
    let Stopped {
        disk,
        appended,
        segments,
        ..
    } = stopped(plain());
    let (id, base, end) = segments[0];
    without_manifests(&disk);
    disk.remove(&footer_name(id)).unwrap();
    let victim = *appended.keys().rfind(|position| **position < end).unwrap();
    let offset = (victim.get() - base.get() + BLOCK_BYTES) as usize;
    let frame = disk.fork(1);
    disk.edit(&segment_name(id), |bytes| bytes[offset + 33] ^= 0xff);
    let host = Host::open(&disk, forced()).unwrap();
    let dropped: Vec<(Position, Option<u64>)> = told(&host).iter().map(|one| (one.0, one.2)).collect();
    assert_eq!(dropped, [(victim, Some(1))]);
    assert_eq!(host.recovered.len(), appended.len() - 1);
    // Without the last commit's own record nothing else tells that the segment reached further.
    frame.edit(&segment_name(id), |bytes| {
        let commit = |at: &usize| {
            let position = base.plus(*at as u64 - BLOCK_BYTES);
            CommitHead::verify(&bytes[*at..], position, u64::MAX).is_ok()
        };
        let last = (BLOCK_BYTES as usize..=offset)
            .rev()
            .find(|at| at % 4096 == 0 && commit(at));
        bytes[last.unwrap() + 40] ^= 1;
    });
    nothing_lacks(&Host::open(&frame, forced()).unwrap(), &appended);
}

#[test]
fn a_segment_without_a_footer_ends_with_its_records_where_the_one_behind_it_is_gone() {
    let Stopped {
        disk,
        appended,
        segments,
        ..
    } = stopped(plain());
    without_manifests(&disk);
    let ((first, _, end), (gone, _, _), (_, next, _)) = (segments[0], segments[1], segments[2]);
    for name in [footer_name(first), segment_name(gone), footer_name(gone)] {
        disk.remove(&name).unwrap();
    }
    let host = Host::open(&disk, forced()).unwrap();
    assert_eq!(told(&host), [(end, next, None)]);
    assert_eq!(host.report.dropped[0].file, MANIFEST_FILES.join(", "));
    let left: Vec<Position> = appended.keys().copied().filter(|at| *at < end || *at >= next).collect();
    assert_eq!(found(&host), left);
}

#[test]
fn a_file_that_does_not_say_what_it_is_is_put_aside_and_never_taken_for_an_unused_one() {
    let Stopped {
        disk,
        appended,
        segments,
        ..
    } = stopped(plain());
    let (id, base, end) = segments[1];
    without_manifests(&disk);
    disk.edit(&segment_name(id), |bytes| bytes[20] ^= 1);
    let host = Host::open(&disk, forced()).unwrap();
    let mut left: Vec<Position> = appended.keys().copied().collect();
    left.retain(|position| *position < base || *position >= end);
    assert_eq!(found(&host), left);
    assert!(host.report.dropped.iter().any(|one| one.file == segment_name(id)));
    assert!(disk.names().contains(&format!("{}.damaged", segment_name(id))));
    // The only one there is: this is no new folder.
    let disk = filled(1, 3, 100).disk;
    disk.kill_process();
    without_manifests(&disk);
    disk.remove(WATERMARK_FILE).unwrap();
    disk.edit(&segment_name(1), |bytes| bytes[20] ^= 1);
    disk.names()
        .iter()
        .filter(|name| name.ends_with(".segment") && **name != segment_name(1))
        .for_each(|name| disk.remove(name).unwrap());
    assert!(matches!(Host::open(&disk, options()), Err(LogError::Damaged { .. })));
}

#[test]
fn a_recycled_file_is_not_the_segment_that_it_was() {
    let Stopped {
        disk,
        appended,
        segments,
        ..
    } = stopped(plain());
    let (id, _, end) = segments[0];
    without_manifests(&disk);
    disk.rename(&segment_name(id), &segment_name(50)).unwrap();
    disk.remove(&footer_name(id)).unwrap();
    let host = Host::open(&disk, forced()).unwrap();
    assert_eq!(told(&host), [(Position::FIRST, end, None)]);
    let left: Vec<Position> = appended.keys().copied().filter(|position| *position >= end).collect();
    assert_eq!(found(&host), left);
}

#[test]
fn where_nothing_names_the_store_it_is_the_one_of_most_segments() {
    let Stopped { disk, appended, .. } = stopped(plain());
    let foreign = Options {
        store_id: [200; 16],
        ..options()
    };
    let other = filled_as(10, 5, 100, foreign).disk;
    without_manifests(&disk);
    disk.remove(WATERMARK_FILE).unwrap();
    write(&disk, &segment_name(1000), &{
        let mut bytes = other.contents(&segment_name(1)).unwrap();
        let mut header = SegmentHeader::decode_raw(&bytes).unwrap();
        header.id = 1000;
        bytes.splice(..BLOCK_BYTES as usize, header.encode());
        bytes
    });
    let host = Host::open(&disk, forced()).unwrap();
    nothing_lacks(&host, &appended);
    assert!(disk.names().contains(&format!("{}.damaged", segment_name(1000))));
}

#[test]
fn what_an_old_manifest_does_not_list_comes_behind_what_is_begun_and_before_what_is_only_prepared() {
    let Stopped {
        disk,
        appended,
        manifest,
        segments,
    } = stopped(plain());
    let old = nothing_sealed(&manifest);
    let bytes = manifest.entries[0].file_bytes;
    write(&disk, &segment_name(99), &vec![0; bytes as usize]);
    for count in [1, 2] {
        let disk = disk.fork(count);
        let listed = (1..=count).chain([99]).map(|id| unsealed(id, bytes)).collect();
        put(&disk, &old, listed, count + 1);
        assert!(matches!(Host::open(&disk, options()), Err(LogError::Damaged { .. })));
        all_is_there(&disk, &appended);
    }
    // One that is listed as prepared is missing.
    let prepared = disk.fork(3);
    put(&prepared, &old, vec![unsealed(1, bytes), unsealed(98, bytes)], 2);
    nothing_lacks(&Host::open(&prepared, forced()).unwrap(), &appended);
    // One that is listed as sealed is missing.
    let (id, _, end) = segments[0];
    let old = sealed_up_to_the_first(&disk, &manifest);
    put(&disk, &old, vec![manifest.entries[0], unsealed(99, bytes)], 2);
    disk.remove(&segment_name(id)).unwrap();
    let host = Host::open(&disk, forced()).unwrap();
    let left: Vec<Position> = appended.keys().copied().filter(|position| *position >= end).collect();
    let found: Vec<Position> = found(&host).into_iter().filter(|position| *position >= end).collect();
    assert_eq!(found, left);
    drop(host);
    Host::open(&disk, options()).unwrap();
}

#[test]
fn copies_that_an_old_manifest_does_not_list_follow_on_what_it_lists() {
    let Stopped {
        disk,
        appended,
        manifest,
        ..
    } = stopped(rewritten_behind(1));
    let first = manifest.entries[0];
    let old = sealed_up_to_the_first(&disk, &manifest);
    let unlisted = disk.fork(1);
    put(&disk, &old, vec![first], first.id + 1);
    all_is_there(&disk, &appended);
    // Before the first was sealed.
    let old = nothing_sealed(&manifest);
    let again = unlisted.fork(2);
    put(
        &unlisted,
        &old,
        vec![unsealed(first.id, first.file_bytes)],
        first.id + 1,
    );
    all_is_there(&unlisted, &appended);
    again.remove(&footer_name(first.id)).unwrap();
    put(&again, &old, vec![unsealed(first.id, first.file_bytes)], first.id + 1);
    all_is_there(&again, &appended);
}

#[test]
fn what_an_old_manifest_lists_as_unsealed_or_not_at_all_is_not_lost_before_a_copy() {
    let Stopped {
        disk,
        appended,
        manifest,
        ..
    } = stopped(rewritten_behind(2));
    let first = manifest.entries[0];
    let old = nothing_sealed(&manifest);
    for footers in [true, false] {
        let disk = disk.fork(1);
        for entry in &manifest.entries[..if footers { 0 } else { 2 }] {
            disk.remove(&footer_name(entry.id)).unwrap();
        }
        put(&disk, &old, vec![unsealed(first.id, first.file_bytes)], first.id + 1);
        let missing = disk.fork(2);
        all_is_there(&disk, &appended);
        let listed = [first.id, 98].map(|id| unsealed(id, first.file_bytes)).into();
        put(&missing, &old, listed, first.id + 1);
        nothing_lacks(&Host::open(&missing, forced()).unwrap(), &appended);
    }
}

#[test]
fn a_copy_of_what_was_retired_is_not_taken() {
    let Stopped {
        disk,
        mut appended,
        manifest,
        segments,
    } = stopped(rewritten(plain()));
    let (id, base, end) = segments[1];
    let entries = manifest.entries.iter().copied();
    // By its number it could have been made later.
    let copy = manifest.next_id + 5;
    let mut bytes = disk.contents(&segment_name(id)).unwrap();
    let mut header = SegmentHeader::decode_raw(&bytes).unwrap();
    assert!(header.compacted);
    header.id = copy;
    bytes.splice(..BLOCK_BYTES as usize, header.encode());
    write(&disk, &segment_name(copy), &bytes);
    put(
        &disk,
        &manifest,
        entries.filter(|entry| entry.id != id).collect(),
        manifest.next_id,
    );
    disk.remove(&segment_name(id)).unwrap();
    appended.retain(|position, _| *position < base || *position >= end);
    all_is_there(&disk, &appended);
}

#[test]
fn one_copy_stands_for_the_one_segment_that_is_gone() {
    let host = plain();
    let before = host.log.manifest.clone();
    let Stopped {
        disk,
        appended,
        manifest,
        ..
    } = stopped(rewritten(host));
    let mut entries = manifest.entries.clone();
    let changed = |entry: &Entry| entry.compacted && !before.entries.contains(entry);
    let index = entries.iter().position(changed).unwrap();
    let base = entries[index].base;
    entries[index] = *before
        .entries
        .iter()
        .find(|entry| entry.sealed && entry.base == base)
        .unwrap();
    put(&disk, &manifest, entries, manifest.next_id);
    all_is_there(&disk, &appended);
}

#[test]
fn a_copy_that_never_came_into_force_is_no_part_of_the_log() {
    let host = plain().reopen(compacting()).unwrap();
    let before = host.disk.fork(3);
    let (manifest, appended) = (host.log.manifest.clone(), host.appended.clone());
    let after = stopped(rewritten(host));
    let last = before
        .names()
        .iter()
        .rev()
        .find(|name| name.ends_with(".segment"))
        .cloned();
    let mut copies: Vec<&Entry> = after.manifest.entries.iter().filter(|entry| entry.compacted).collect();
    copies.retain(|entry| last.as_ref().is_none_or(|last| segment_name(entry.id) > *last));
    assert!(copies.len() > 1, "{copies:?}");
    for copy in &copies {
        for name in [segment_name(copy.id), footer_name(copy.id)] {
            write(&before, &name, &after.disk.contents(&name).unwrap());
        }
    }
    for half in [false, true] {
        for known in [false, true] {
            let disk = before.fork(4);
            if half {
                let header = |bytes: &mut Vec<u8>| bytes[..BLOCK_BYTES as usize].fill(0);
                copies.iter().for_each(|copy| disk.edit(&segment_name(copy.id), header));
            }
            // Of one that is not complete nothing can be said, but by its number.
            if half && !known {
                continue;
            }
            let next_id = if known { 10_000 } else { copies[0].id };
            put(&disk, &manifest, manifest.entries.clone(), next_id);
            all_is_there(&disk, &appended);
            assert!(disk.names().iter().all(|name| !name.ends_with(".damaged")));
        }
    }
}

#[test]
fn segments_that_do_not_end_as_the_manifest_says_are_refused() {
    let Stopped { disk, manifest, .. } = stopped(plain());
    let other = Manifest {
        sealed_hash: manifest.sealed_hash ^ 1,
        ..manifest.clone()
    };
    put(&disk, &other, manifest.entries.clone(), manifest.next_id);
    match Host::open(&disk, options()) {
        Err(LogError::Damaged { why, .. }) => assert!(why.contains("do not end as the manifest says"), "{why}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was opened"),
    }
}

#[test]
fn where_one_segment_ends_and_the_next_begins_the_next_one_is_found() {
    let mut host = plain();
    let bases: Vec<Position> = host.log.segments.iter().map(|segment| segment.base).collect();
    for pair in bases.windows(2) {
        let last = Position(pair[1].get() - 8);
        assert_eq!(host.log.segments.find(last).map(|segment| segment.base), Some(pair[0]));
        assert_eq!(
            host.log.segments.find(pair[1]).map(|segment| segment.base),
            Some(pair[1])
        );
    }
}

#[test]
fn the_file_that_an_old_manifest_lists_as_unsealed_is_taken_rather_than_its_copy() {
    let host = plain();
    let (before, first) = (host.disk.fork(1), host.log.manifest.entries[0]);
    let whole = host.appended.clone();
    let Stopped {
        disk,
        mut appended,
        manifest,
        segments,
    } = stopped(rewritten(host));
    write(
        &disk,
        &segment_name(first.id),
        &before.contents(&segment_name(first.id)).unwrap(),
    );
    appended.extend(whole.into_iter().filter(|(position, _)| *position < segments[0].2));
    let listed = vec![unsealed(first.id, first.file_bytes)];
    put(&disk, &nothing_sealed(&manifest), listed, first.id + 1);
    all_is_there(&disk, &appended);
}

#[test]
fn copies_and_what_an_old_manifest_lists_between_them_come_in_order() {
    let Stopped {
        disk,
        mut appended,
        manifest,
        segments,
    } = stopped(rewritten_behind(2));
    // The first was retired, the second is as it was written, the third was rewritten, the last is still written to.
    let last = segments.last().unwrap().0;
    assert!(segments[2].0 > last && !manifest.entries.iter().any(|entry| entry.id == 3));
    let listed = [1, 2, 3, last].map(|id| unsealed(id, manifest.entries[0].file_bytes));
    put(&disk, &nothing_sealed(&manifest), listed.to_vec(), last + 1);
    for name in [segment_name(segments[0].0), footer_name(segments[0].0)] {
        disk.remove(&name).unwrap();
    }
    appended.retain(|position, _| *position >= segments[0].2);
    let host = Host::open(&disk, forced()).unwrap();
    nothing_lacks(&host, &appended);
    drop(host);
    nothing_lacks(&Host::open(&disk, options()).unwrap(), &appended);
}
