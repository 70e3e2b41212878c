//! Forced starts with an older manifest where headers are lost as well: what it lists as unsealed is neither wiped nor passed
//! over.

use super::computed::{Stopped, found, nothing_sealed, plain, put, rewritten_behind, stopped, told, unsealed, write};
use super::opening::{Begun, begun, forced};
use super::*;
use crate::log::disk::Disk;
use crate::log::manifest::Manifest;
use crate::log::segment_header::{footer_name, segment_name};

/// A log whose first two segments are as they were written and whose others were rewritten, under a manifest from before
/// anything was sealed, which lists these two.
fn old_before_copies() -> Stopped {
    let host = stopped(rewritten_behind(2));
    let (disk, manifest) = (&host.disk, &host.manifest);
    let listed: Vec<_> = manifest.entries[..2]
        .iter()
        .map(|entry| unsealed(entry.id, entry.file_bytes))
        .collect();
    let next_id = manifest.entries[1].id + 1;
    put(disk, &nothing_sealed(manifest), listed, next_id);
    host
}

fn lose_header(disk: &SimDisk, id: u64) {
    disk.edit(&segment_name(id), |bytes| bytes[40] ^= 1);
}

fn remove_footer(disk: &SimDisk, id: u64) {
    disk.remove(&footer_name(id)).unwrap();
    disk.sync_directory().unwrap();
}

/// A plain start is refused and changes nothing; a forced one finds all of this, and so does the plain one after it.
#[track_caller]
fn all_are_found(disk: &SimDisk, appended: &BTreeMap<Position, Known>) {
    refused(disk);
    let host = Host::open(disk, forced()).unwrap();
    let all: Vec<Position> = appended.keys().copied().collect();
    assert_eq!(found(&host), all);
    let lost: u64 = host.report.dropped.iter().filter_map(|lost| lost.records).sum();
    assert_eq!(lost, 0, "{:?}", host.report.dropped);
    drop(host);
    let host = Host::open(disk, options()).unwrap();
    assert_eq!((found(&host), host.report.dropped.len()), (all, 0));
}

#[track_caller]
fn refused(disk: &SimDisk) {
    let files = |disk: &SimDisk| -> Vec<_> {
        let names = disk.names().into_iter().filter(|name| name.ends_with(".segment"));
        names.map(|name| (disk.contents(&name), name)).collect()
    };
    let (copy, before) = (disk.fork(1), files(disk));
    assert!(matches!(Host::open(&copy, options()), Err(LogError::Damaged { .. })));
    assert_eq!(files(&copy), before);
}

#[test]
fn what_lost_its_header_and_is_listed_as_unsealed_is_saved_before_a_copy() {
    for lost in [&[0][..], &[1], &[0, 1]] {
        for footers in [true, false] {
            let Stopped {
                disk,
                appended,
                segments,
                ..
            } = old_before_copies();
            for &index in lost {
                lose_header(&disk, segments[index].0);
            }
            for segment in &segments[..if footers { 0 } else { 2 }] {
                remove_footer(&disk, segment.0);
            }
            all_are_found(&disk, &appended);
        }
    }
}

#[test]
fn what_lies_before_a_copy_and_of_which_nothing_is_left_is_told_and_put_aside() {
    for lost in 0..2 {
        let Stopped {
            disk,
            appended,
            segments,
            ..
        } = old_before_copies();
        let ((id, base, _), (_, end, _)) = (segments[lost], segments[lost + 1]);
        disk.edit(&segment_name(id), |bytes| bytes.fill(0xee));
        remove_footer(&disk, id);
        refused(&disk);
        let host = Host::open(&disk, forced()).unwrap();
        let left: Vec<Position> = appended.keys().copied().filter(|at| *at < base || *at >= end).collect();
        assert_eq!(found(&host), left);
        assert!(told(&host).contains(&(base, end, None)), "{:?}", host.report.dropped);
        let name = segment_name(id);
        assert!(host.report.dropped.iter().any(|one| one.file == name));
        drop(host);
        assert!(disk.names().contains(&format!("{name}.damaged")));
        assert_eq!(found(&Host::open(&disk, options()).unwrap()), left);
    }
}

#[test]
fn of_what_lies_before_a_copy_and_has_its_footer_alone_the_messages_are_lost_and_counted() {
    for lost in 0..2 {
        for kept in [true, false] {
            let Stopped {
                disk,
                appended,
                segments,
                ..
            } = old_before_copies();
            let (id, base, end) = segments[lost];
            // Zeros look like a file that was never used.
            let fill = if kept { 0xee } else { 0 };
            disk.edit(&segment_name(id), |bytes| bytes.fill(fill));
            refused(&disk);
            let host = Host::open(&disk, forced()).unwrap();
            let is_left = |at: &Position| !(base..end).contains(at) || appended[at].payload.is_empty();
            let left: Vec<Position> = appended.keys().copied().filter(is_left).collect();
            assert_eq!(found(&host), left);
            let counted: u64 = host.report.dropped.iter().map(|lost| lost.records.unwrap()).sum();
            assert_eq!(counted as usize, appended.len() - left.len());
            drop(host);
            assert_eq!(found(&Host::open(&disk, options()).unwrap()), left);
        }
    }
}

#[test]
fn the_file_that_was_rewritten_is_taken_rather_than_its_copy_also_without_its_header() {
    let host = plain();
    let (before, whole) = (host.disk.fork(1), host.appended.clone());
    let Stopped {
        disk,
        mut appended,
        manifest,
        segments,
    } = stopped(super::forced::rewritten(host));
    let name = segment_name(1);
    write(&disk, &name, &before.contents(&name).unwrap());
    lose_header(&disk, 1);
    appended.extend(whole.into_iter().filter(|(position, _)| *position < segments[0].2));
    let listed = vec![unsealed(1, manifest.entries[0].file_bytes)];
    put(&disk, &nothing_sealed(&manifest), listed, 2);
    all_are_found(&disk, &appended);
}

#[test]
fn what_lost_its_header_is_saved_before_begun_segments_that_an_older_manifest_does_not_list() {
    for (lost, listed) in [(1, 2), (1, 3), (2, 3), (0, 1), (0, 2)] {
        let Begun {
            disk,
            appended,
            manifest,
            ..
        } = begun(4);
        lose_header(&disk, lost + 1);
        let mut older: Manifest = manifest;
        older.entries.retain(|entry| entry.id <= listed);
        older.next_id = listed + 1;
        super::opening::write_manifest(&disk, &older);
        all_are_found(&disk, &appended);
    }
}
