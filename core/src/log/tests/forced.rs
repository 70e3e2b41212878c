//! Forced starts: what is saved, what is said of the rest, and that the next start needs no force.

use super::upkeep::Shedding;
use super::*;
use crate::log::disk::Disk;
use crate::log::manifest::{Entry, MANIFEST_FILES, Manifest, ManifestFiles};
use crate::log::segment_header::segment_name;
use std::collections::BTreeSet;

fn forced() -> Options {
    Options {
        force_start: true,
        ..options()
    }
}

/// A log of several segments, sealed, rewritten and unsealed ones, with what is appended to it. It stopped somehow.
pub(super) fn grown(seed: u64) -> (SimDisk, BTreeMap<Position, Known>, Position) {
    let mut random = Random::new(seed);
    let mut host = filled(seed, 60 + random.below(100) as usize, 2500);
    if random.one_in(2) {
        host.maintain(&KeepAll).unwrap();
    }
    if random.one_in(2) {
        host = rewritten(host);
    }
    for _ in 0..random.below(20) {
        let _ = host.append(&mut random, 2000);
        host.commit().unwrap();
    }
    let Host {
        disk,
        log,
        appended,
        durable,
        ..
    } = host;
    if random.one_in(3) {
        log.close().unwrap();
    } else {
        drop(log);
    }
    (disk, appended, durable)
}

/// Rewrites the sealed segments, so that every seventeenth record stays.
pub(super) fn rewritten(host: Host) -> Host {
    let mut host = host.reopen(compacting()).unwrap();
    let kept: Vec<Position> = host.appended.keys().copied().step_by(17).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    host.maintain(&Shedding { kept: &kept }).unwrap();
    let dense: Vec<(Position, Position)> = host
        .log
        .segments
        .iter()
        .filter(|segment| segment.compacted)
        .map(|segment| (segment.base, segment.end))
        .collect();
    for (index, position) in kept.iter().enumerate() {
        let in_dense = dense.iter().any(|(base, end)| base <= position && position < end);
        if index % 2 == 1 && in_dense {
            let known = host.appended.get_mut(position).unwrap();
            known.head.truncate(known.head.len() / 4 * 3);
        }
    }
    let gone = |position: &Position| dense.iter().any(|(base, end)| base <= position && position < end);
    host.appended
        .retain(|position, _| kept.binary_search(position).is_ok() || !gone(position));
    host
}

fn break_something(disk: &SimDisk, random: &mut Random) -> String {
    let names: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name != "lock").collect();
    let name = names[random.below(names.len() as u64) as usize].clone();
    let length = disk.contents(&name).unwrap().len() as u64;
    let reach = if name.ends_with("segment") {
        length
    } else {
        length.min(4300)
    };
    let at = random.below(reach.max(1)) as usize;
    let most = [8, 600, 30_000][random.below(3) as usize];
    let count = 1 + random.below(most) as usize;
    let range = at..(at + count).min(length as usize);
    let kind = random.below(6);
    match kind {
        0 => disk.edit(&name, |bytes| bytes[range.clone()].fill(0)),
        1 => disk.edit(&name, |bytes| {
            bytes[range.clone()].iter_mut().for_each(|byte| *byte ^= 0x5a)
        }),
        2 => disk.edit(&name, |bytes| bytes.truncate(at)),
        3 => disk.remove(&name).unwrap(),
        4 => (0..=count as u64 / 4096).for_each(|block| disk.make_unreadable(&name, at as u64 + block * 4096)),
        _ => disk.edit(&name, |bytes| bytes[..range.end.min(4096)].fill(0xaa)),
    }
    disk.sync_directory().unwrap();
    format!(
        "{name}: {} at {at}, {count} bytes",
        ["zeros", "flips", "cut", "removed", "unreadable", "head"][kind as usize]
    )
}

/// All that was appended was recovered, in order.
pub(super) fn nothing_lacks(host: &Host, appended: &BTreeMap<Position, Known>) {
    let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
    assert_eq!(
        found,
        appended.keys().copied().collect::<Vec<_>>(),
        "{:?}",
        host.report.dropped
    );
}

/// Judges what a forced start says against what is really lost.
fn judge(host: &Host, appended: &BTreeMap<Position, Known>, what: &str) {
    let found: BTreeSet<Position> = host.recovered.iter().map(|record| record.0).collect();
    let lost: Vec<Position> = appended
        .keys()
        .copied()
        .filter(|position| !found.contains(position))
        .collect();
    let dropped = &host.report.dropped;
    let inside = |dropped: &Dropped, position: &Position| {
        let anywhere = dropped.bytes == 0 && dropped.records.is_none();
        anywhere || dropped.position <= *position && position.get() < dropped.position.get() + dropped.bytes
    };
    for position in &lost {
        assert!(
            dropped.iter().any(|dropped| inside(dropped, position)),
            "{what}: the record at {position} is lost, and nobody says so: {dropped:#?}"
        );
    }
    for stretch in dropped.iter().filter(|stretch| stretch.records.is_some()) {
        let gone = lost.iter().filter(|position| inside(stretch, position)).count() as u64;
        let said = stretch.records.unwrap();
        // The record that begins an epoch counts where only its group commit says how many there were.
        assert!(gone <= said && said <= gone + 1, "{what}: {gone} are lost: {stretch:?}");
    }
}

// covers: EMS-STORE-A14
#[test]
fn whatever_is_damaged_a_forced_start_tells_all_that_is_lost_and_the_next_start_needs_no_force() {
    each_seed(300, damaged_somehow);
}

#[test]
fn a_rewritten_segment_that_is_gone_follows_on_its_damaged_neighbour() {
    // The head of the one before it does not tell how that ended; both are made anew.
    damaged_somehow(323);
}

/// Damages a log in up to three places, starts it by force, and then as ever.
fn damaged_somehow(seed: u64) {
    let (disk, appended, durable) = grown(seed);
    let mut random = Random::new(seed ^ 77);
    let mut what = format!("seed {seed}");
    for _ in 0..1 + random.below(3) {
        what = format!("{what}; {}", break_something(&disk, &mut random));
    }
    let refused = match Host::open(&disk.fork(seed), options()) {
        Ok(_) => false,
        Err(LogError::Damaged { .. }) => true,
        Err(error) => panic!("{what}: {error}"),
    };
    let host = Host::open(&disk, forced()).unwrap_or_else(|error| panic!("{what}: {error}"));
    judge(&host, &appended, &what);
    let report = &host.report;
    let said = !report.dropped.is_empty() || report.watermark_lost || report.manifest_computed;
    assert!(said || !refused, "{what}: nothing was said");
    let found: Vec<_> = host.recovered.clone();
    drop(host);
    let mut host = Host::open(&disk, options()).unwrap_or_else(|error| panic!("{what}: again: {error}"));
    assert!(host.report.dropped.is_empty());
    assert_eq!(host.recovered, found, "{what}: another start finds something else");
    host.maintain(&KeepAll).unwrap();
    let position = host.append(&mut random, 100).unwrap();
    let lost_end = what.contains("watermark") || host.report.watermark_lost;
    assert!(position > durable || lost_end, "{what}: {position} is used again");
    host.commit().unwrap();
    host.maintain(&KeepAll).unwrap();
    let count = host.recovered.len() + 1;
    let host = host
        .reopen(options())
        .unwrap_or_else(|error| panic!("{what}: a third time: {error}"));
    assert_eq!(host.recovered.len(), count);
}

#[test]
fn a_refused_start_removes_nothing_and_a_forced_one_finds_the_rewritten_segment() {
    let mut refusals = 0;
    for seed in 0..12 {
        let mut host = filled(seed, 120, 2500);
        host.maintain(&KeepAll).unwrap();
        let host = rewritten(host);
        let Host {
            disk, log, appended, ..
        } = host;
        let newest = format!("manifest-{}", log.manifest.version % 2);
        drop(log);
        disk.edit(&newest, |bytes| bytes[40] ^= 1);
        let files = |disk: &SimDisk| -> BTreeMap<String, Vec<u8>> {
            let names = disk
                .list()
                .unwrap()
                .into_iter()
                .filter(|name| name.ends_with(".segment"));
            names
                .map(|name| (name.clone(), disk.contents(&name).unwrap()))
                .collect()
        };
        let before = files(&disk);
        if Host::open(&disk, options()).is_ok() {
            continue;
        }
        refusals += 1;
        assert!(files(&disk) == before, "a refused start changed the segments");
        let host = Host::open(&disk, forced()).unwrap();
        nothing_lacks(&host, &appended);
        drop(host);
        Host::open(&disk, options()).unwrap();
    }
    assert!(refusals >= 6, "only {refusals} starts were refused");
}

#[test]
fn bookkeeping_that_is_missing_is_computed_from_the_segments_in_a_forced_start() {
    let cases: [&[&str]; 6] = [
        &["manifest-0"],
        &["manifest-1"],
        &["manifest-0", "manifest-1"],
        &["watermark"],
        &["manifest-1", "watermark"],
        &["manifest-0", "manifest-1", "watermark"],
    ];
    each_seed(12, |seed| {
        let (disk, appended, _) = grown(seed);
        for missing in cases {
            let disk = disk.fork(seed);
            missing.iter().for_each(|name| disk.remove(name).unwrap());
            disk.sync_directory().unwrap();
            let before = disk.list().unwrap();
            assert!(matches!(Host::open(&disk, options()), Err(LogError::Damaged { .. })));
            assert_eq!(disk.list().unwrap(), before, "a refused start changed the folder");
            let host = Host::open(&disk, forced()).unwrap_or_else(|error| panic!("{missing:?}: {error}"));
            let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
            assert_eq!(found, appended.keys().copied().collect::<Vec<_>>(), "{missing:?}");
            drop(host);
            let again = Host::open(&disk, options()).unwrap_or_else(|error| panic!("{missing:?}: {error}"));
            assert_eq!(again.recovered.len(), found.len());
        }
    });
}

#[test]
fn one_unreadable_block_anywhere_neither_ends_the_log_nor_keeps_a_forced_start_from_going_on() {
    each_seed(60, |seed| {
        let (disk, appended, _) = grown(seed);
        let mut random = Random::new(seed ^ 5);
        let names: Vec<String> = disk.list().unwrap().into_iter().filter(|name| name != "lock").collect();
        let name = &names[random.below(names.len() as u64) as usize];
        let block = random.below(disk.contents(name).unwrap().len() as u64 / BLOCK_BYTES + 1);
        disk.make_unreadable(name, block * BLOCK_BYTES);
        let opened = match Host::open(&disk, compacting()) {
            Err(LogError::Damaged { .. }) => Host::open(&disk, forced()),
            opened => opened,
        };
        let mut host = opened.unwrap_or_else(|error| panic!("{name}, block {block}: {error}"));
        judge(&host, &appended, name);
        // Everything is read, little is held, so that everything is rewritten, and scrubbed besides.
        let mut damaged = 0;
        for (position, ..) in host.recovered.clone() {
            match host.read(position) {
                Ok(record) => assert_eq!(record.payload, appended[&position].payload),
                Err(LogError::Damaged { .. }) => damaged += 1,
                Err(error) => panic!("{name}, block {block}: {error}"),
            }
        }
        for _ in 0..5 {
            host.log.request_watermark_sync();
            host.maintain(&Shedding { kept: &[] }).unwrap();
        }
        let places = host.log.damaged_places().len();
        assert!(damaged == 0 || places > 0);
        assert!(places <= damaged + 1, "{:?}", host.log.damaged_places());
        host.append(&mut random, 100).unwrap();
        host.commit().unwrap();
        assert!(host.log.failed().is_none());
    });
}

/// A log with two begun segments, neither of them sealed.
fn two_begun(seed: u64) -> Host {
    let mut random = Random::new(seed);
    let mut host = Host::open(&SimDisk::new(seed), options()).unwrap();
    host.maintain(&KeepAll).unwrap();
    let mut behind = 0;
    while behind < 3 {
        host.append(&mut random, 9000).unwrap();
        host.commit().unwrap();
        behind += usize::from(host.log.segments.len() > 1);
    }
    assert!(host.log.segments.iter().all(|segment| !segment.sealed));
    host
}

// covers: EMS-STORE-A14
#[test]
fn a_damaged_segment_ends_where_the_one_behind_it_says_and_that_one_is_kept() {
    let with_room = std::cell::Cell::new(0);
    each_seed(30, |seed| {
        let Host {
            disk, log, appended, ..
        } = two_begun(seed);
        let first = log.segments.iter().next().unwrap();
        let (end, limit, version) = (first.end, first.limit(), log.manifest.version);
        with_room.set(with_room.get() + u32::from(end < limit));
        drop(log);
        let victim = appended.keys().copied().nth(3).unwrap();
        let offset = (victim.get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
        disk.edit(&segment_name(1), |bytes| bytes[offset + 33] ^= 0xff);
        let refused = Host::open(&disk, options());
        assert!(matches!(refused, Err(LogError::Damaged { position, .. }) if position == victim));
        let host = Host::open(&disk, forced()).unwrap();
        let found: BTreeSet<Position> = host.recovered.iter().map(|record| record.0).collect();
        let lost: Vec<Position> = appended
            .keys()
            .copied()
            .filter(|known| !found.contains(known))
            .collect();
        assert_eq!(lost, [victim], "{end} of {limit}: {:?}", host.report.dropped);
        let told: Vec<(Position, Option<u64>)> = host
            .report
            .dropped
            .iter()
            .map(|dropped| (dropped.position, dropped.records))
            .collect();
        assert_eq!(told, [(victim, Some(1))]);
        // Both manifests were written, and neither names what was replaced, should one of them be lost.
        let newest = host.log.manifest.version;
        assert!(newest >= version + 2, "{version}, then {newest}");
        drop(host);
        disk.edit(MANIFEST_FILES[(newest % 2) as usize], |bytes| bytes[40] ^= 1);
        let other = ManifestFiles::find(&disk).unwrap().newest.unwrap();
        assert!(other.version == newest - 1 && other.entries.iter().all(|entry| entry.id != 1));
    });
    assert!(with_room.get() > 0 || std::env::var_os("SEEDS").is_some());
}

#[test]
fn records_lost_within_one_commit_are_told_one_by_one_where_that_can_be_counted() {
    /// From which record to which, and how many.
    type Told<'a> = &'a [(usize, usize, u64)];
    let mut random = Random::new(5);
    let mut host = Host::open(&SimDisk::new(5), options()).unwrap();
    for commit in 0..2 {
        for _ in 0..6 {
            host.append(&mut random, 500 + commit).unwrap();
        }
        host.commit().unwrap();
    }
    let Host {
        disk, log, appended, ..
    } = host;
    drop(log);
    let positions: Vec<Position> = appended.keys().copied().collect();
    // Those that are damaged, and what is told.
    let cases: [(&[usize], Told<'_>); 3] = [
        (&[1, 3], &[(1, 2, 1), (3, 4, 1)]),
        (&[1, 2], &[(1, 3, 2)]),
        (&[1, 2, 4], &[(1, 5, 3)]),
    ];
    for (damaged, told) in cases {
        let disk = disk.fork(1);
        for victim in damaged {
            let offset = (positions[*victim].get() - Position::FIRST.get() + BLOCK_BYTES) as usize;
            disk.edit(&segment_name(1), |bytes| bytes[offset + 33] ^= 0xff);
        }
        let host = Host::open(&disk, forced()).unwrap();
        let dropped: Vec<(Position, u64, Option<u64>)> = host
            .report
            .dropped
            .iter()
            .map(|dropped| (dropped.position, dropped.bytes, dropped.records))
            .collect();
        let expected: Vec<(Position, u64, Option<u64>)> = told
            .iter()
            .map(|(from, to, records)| {
                let (from, to) = (positions[*from], positions[*to]);
                (from, to.get() - from.get(), Some(*records))
            })
            .collect();
        assert_eq!(dropped, expected, "{damaged:?}");
    }
}

// covers: EMS-STORE-A13
#[test]
fn a_manifest_that_is_older_than_the_watermark_says_is_refused_by_the_name_of_the_newer_one() {
    let mut host = filled(2, 120, 2500);
    host.maintain(&KeepAll).unwrap();
    let Host {
        disk, log, appended, ..
    } = host;
    let newest = MANIFEST_FILES[(log.manifest.version % 2) as usize];
    log.close().unwrap();
    disk.edit(newest, |bytes| bytes[40] ^= 1);
    match Host::open(&disk, options()) {
        Err(LogError::Damaged { file, offset, why, .. }) => {
            assert_eq!((file.as_str(), offset), (newest, 0));
            assert!(why.contains("a newer manifest"), "{why}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("an older manifest was taken for the newest"),
    }
    let host = Host::open(&disk, forced()).unwrap();
    let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
    assert_eq!(found, appended.keys().copied().collect::<Vec<_>>());
}

// covers: EMS-STORE-A14
#[test]
fn a_copy_that_the_older_manifest_knows_by_nothing_but_its_number_stands_for_the_segment_that_is_gone() {
    let mut host = filled(4, 120, 2500);
    host.maintain(&KeepAll).unwrap();
    let old = host.log.manifest.clone();
    let Host {
        disk, log, appended, ..
    } = rewritten(host);
    let newest = log.manifest.clone();
    drop(log);
    // One that was written while the copies were being made.
    let before = |entry: &Entry| {
        let same = |known: &&Entry| known.sealed && known.base == entry.base;
        *old.entries.iter().find(same).unwrap_or(entry)
    };
    let older = Manifest {
        version: newest.version - 1,
        entries: newest.entries.iter().map(before).collect(),
        ..newest.clone()
    };
    let gone = older
        .entries
        .iter()
        .filter(|entry| !newest.entries.contains(entry))
        .count();
    assert!(gone > 1, "{gone} were rewritten");
    ManifestFiles::open(&disk).unwrap().write(&older).unwrap();
    disk.edit(MANIFEST_FILES[(newest.version % 2) as usize], |bytes| bytes[40] ^= 1);
    assert!(matches!(Host::open(&disk, options()), Err(LogError::Damaged { .. })));
    let host = Host::open(&disk, forced()).unwrap();
    nothing_lacks(&host, &appended);
    drop(host);
    assert_eq!(Host::open(&disk, options()).unwrap().recovered.len(), appended.len());
}
