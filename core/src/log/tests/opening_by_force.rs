//! Forced starts at places where exactly one thing is wrong: what is saved, and what is said, to the byte.

use super::forced::nothing_lacks;
use super::opening::{Begun, age_watermark, begun, begun_of, damage, forced, roomy, sealed, write_manifest};
use super::upkeep::Shedding;
use super::*;
use crate::log::commit::CommitHead;
use crate::log::disk::Disk;
use crate::log::manifest::{MANIFEST_FILES, Manifest};
use crate::log::segment_header::{DATA_OFFSET, SegmentHeader, footer_name, segment_name};
use crate::sim::Faults;

/// File, position, bytes and records of each stretch.
type Told = Vec<(String, Position, u64, Option<u64>)>;

fn told(host: &Host) -> Told {
    let stretches = host.report.dropped.iter();
    stretches
        .map(|lost| (lost.file.clone(), lost.position, lost.bytes, lost.records))
        .collect()
}

fn stretch(id: u64, from: Position, to: Position, records: Option<u64>) -> (String, Position, u64, Option<u64>) {
    (segment_name(id), from, to.get() - from.get(), records)
}

/// Starts by force; what is lacking of what was appended. The next start needs no force, and finds the same.
#[track_caller]
fn lacking(disk: &SimDisk, appended: &BTreeMap<Position, Known>) -> (Vec<Position>, Told) {
    assert!(matches!(
        Host::open(&disk.fork(1), options()),
        Err(LogError::Damaged { .. })
    ));
    let host = Host::open(disk, forced()).unwrap();
    let (found, said) = (host.recovered.clone(), told(&host));
    let again = host.reopen(options()).unwrap();
    assert_eq!(again.recovered, found, "another start finds something else");
    assert!(again.report.dropped.is_empty());
    let bases: Vec<Position> = again.log.segments.iter().map(|segment| segment.base).collect();
    assert!(bases.windows(2).all(|pair| pair[0] < pair[1]), "{bases:?}");
    let positions: Vec<Position> = found.iter().map(|record| record.0).collect();
    let lacking = appended.keys().copied().filter(|known| !positions.contains(known));
    (lacking.collect(), said)
}

/// The record behind another.
fn next(appended: &BTreeMap<Position, Known>, position: Position) -> Position {
    *appended.range(position.plus(1)..).next().unwrap().0
}

fn remove(disk: &SimDisk, name: &str) {
    disk.remove(name).unwrap();
    disk.sync_directory().unwrap();
}

#[test]
fn manifests_that_cannot_be_read_refuse_a_start_and_no_forced_one() {
    let follower = Options {
        mode: OpenMode::Follower,
        ..options()
    };
    let Host { disk, log, .. } = Host::open(&SimDisk::new(3), follower).unwrap();
    drop(log);
    let (full, appended, _) = sealed(3);
    for (disk, appended) in [(disk, BTreeMap::new()), (full, appended)] {
        for name in MANIFEST_FILES {
            disk.edit(name, |bytes| bytes[40] ^= 1);
        }
        assert_eq!(lacking(&disk, &appended).0, []);
    }
}

#[test]
fn a_forced_start_of_a_sound_log_says_nothing_and_seals_nothing() {
    for closed in [false, true] {
        let mut host = filled(3, 120, 2500);
        host.maintain(&KeepAll).unwrap();
        let Host {
            disk, log, appended, ..
        } = host;
        let last = log.segments.iter().last().unwrap().id;
        if closed {
            log.close().unwrap();
        } else {
            drop(log);
        }
        let host = Host::open(&disk, forced()).unwrap();
        nothing_lacks(&host, &appended);
        let report = &host.report;
        assert!(!report.manifest_computed && !report.watermark_lost && report.dropped.is_empty());
        let found = host.log.segments.iter().last().unwrap();
        assert!(found.id == last && !found.sealed, "{closed}");
    }
}

#[test]
fn a_forced_start_says_that_it_made_up_for_a_newer_manifest_even_where_the_files_are_the_same() {
    let mut host = Host::open(&SimDisk::new(3), options()).unwrap();
    host.append(&mut Random::new(1), 100).unwrap();
    host.commit().unwrap();
    let Host { disk, log, .. } = host;
    assert_eq!(log.manifest.version, 2);
    drop(log);
    disk.edit(MANIFEST_FILES[0], |bytes| bytes[40] ^= 1);
    assert!(Host::open(&disk.fork(1), options()).is_err());
    let host = Host::open(&disk, forced()).unwrap();
    assert!(host.report.manifest_computed);
    assert!(host.log.manifest.version > 2);
}

#[test]
fn sealed_segments_that_are_gone_are_told_once_and_what_follows_is_kept() {
    let (disk, appended, manifest) = sealed(3);
    let entries: Vec<_> = manifest.entries.iter().filter(|entry| entry.sealed).collect();
    let (first, last) = (entries[0], entries[entries.len() - 1]);
    remove(&disk, &segment_name(last.id));
    remove(&disk, &footer_name(last.id));
    // And one that is made anew before it.
    remove(&disk, &footer_name(first.id));
    let victim = *appended.keys().nth(2).unwrap();
    damage(&disk, first.id, first.base, victim);
    let (lost, said) = lacking(&disk, &appended);
    let gone = appended.range(last.base..last.end).map(|(position, _)| *position);
    assert_eq!(lost, [victim].into_iter().chain(gone).collect::<Vec<_>>());
    assert_eq!((said.len(), said[0].1, said[0].3), (2, victim, Some(1)));
    assert_eq!(said[1], stretch(last.id, last.base, last.end, None));
}

#[test]
fn a_sealed_segment_of_which_only_the_footer_is_left_has_all_records_without_a_payload() {
    let mut random = Random::new(4);
    let mut host = Host::open(&SimDisk::new(4), options()).unwrap();
    for index in 0..200 {
        let (head, payload) = (random.bytes(20), random.bytes(index % 2 * 3000));
        let position = loop {
            match host.log.append(20, &head, &payload) {
                Ok(position) => break position,
                Err(_) => {
                    host.commit().unwrap();
                    host.maintain(&KeepAll).unwrap();
                }
            }
        };
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
    host.maintain(&KeepAll).unwrap();
    let Host {
        disk, log, appended, ..
    } = host;
    let entry = log.manifest.entries[1];
    drop(log);
    assert!(entry.sealed);
    remove(&disk, &segment_name(entry.id));
    let (lost, said) = lacking(&disk, &appended);
    let inside = appended.range(entry.base..entry.end);
    let messages: Vec<Position> = inside
        .filter(|(_, known)| !known.payload.is_empty())
        .map(|(position, _)| *position)
        .collect();
    assert_eq!(lost, messages);
    let counted: u64 = said.iter().map(|lost| lost.3.unwrap()).sum();
    assert_eq!(counted, messages.len() as u64);
    assert!(said.iter().all(|lost| lost.0 == segment_name(entry.id)), "{said:?}");
}

/// A sealed segment whose last commit and footer are lost, so that only its successor tells how it ended.
fn without_its_end(id: usize) -> (SimDisk, BTreeMap<Position, Known>, Manifest) {
    let (disk, appended, manifest) = sealed(3);
    let entry = manifest.entries[id];
    remove(&disk, &footer_name(entry.id));
    let to = (DATA_OFFSET + entry.end.get() - entry.base.get()) as usize;
    disk.edit(&segment_name(entry.id), |bytes| {
        bytes[to - 5 * BLOCK_BYTES as usize..to].fill(0xee);
    });
    (disk, appended, manifest)
}

#[test]
fn how_a_damaged_sealed_segment_ended_is_told_by_the_next_one_which_stays_as_it_is() {
    let (disk, appended, manifest) = without_its_end(1);
    let (_, said) = lacking(&disk, &appended);
    let name = segment_name(manifest.entries[1].id);
    assert!(!said.is_empty() && said.iter().all(|lost| lost.0 == name), "{said:?}");
}

#[test]
fn a_segment_that_is_gone_keeps_no_other_from_being_saved() {
    let (disk, appended, manifest) = without_its_end(0);
    let gone = manifest.entries[2];
    remove(&disk, &segment_name(gone.id));
    remove(&disk, &footer_name(gone.id));
    let (lost, _) = lacking(&disk, &appended);
    assert!(
        appended
            .range(gone.base..gone.end)
            .all(|(known, _)| lost.contains(known))
    );
    // The same of unsealed ones.
    let Begun {
        disk, appended, bounds, ..
    } = begun(3);
    let victim = *appended.keys().nth(1).unwrap();
    damage(&disk, 1, bounds[0].0, victim);
    remove(&disk, &segment_name(3));
    let (lost, _) = lacking(&disk, &appended);
    let third = appended.range(bounds[2].0..).map(|(position, _)| *position);
    assert_eq!(lost, [victim].into_iter().chain(third).collect::<Vec<_>>());
}

#[test]
fn a_shortage_in_a_forced_start_is_never_taken_for_files_that_are_gone() {
    let (sealed, _, _) = without_its_end(1);
    let Begun {
        disk: unsealed,
        appended,
        bounds,
        ..
    } = roomy(3);
    damage(&unsealed, 1, bounds[0].0, *appended.keys().nth(1).unwrap());
    for disk in [sealed, unsealed] {
        let calm = Host::open(&disk.fork(1), forced()).unwrap();
        let (mut refused, mut opened) = (0, 0);
        for seed in 0..1500 {
            let disk = disk.fork(seed);
            disk.set_faults(Faults {
                shortage_one_in: 100,
                ..Faults::default()
            });
            match Host::open(&disk, forced()) {
                Ok(host) => {
                    opened += 1;
                    assert_eq!((&host.recovered, told(&host)), (&calm.recovered, told(&calm)), "{seed}");
                }
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0 && opened > 0, "{refused} {opened}");
    }
}

#[test]
fn a_copy_of_what_an_older_manifest_lists_as_unsealed_follows_on_where_it_ends() {
    let Begun {
        disk,
        appended,
        manifest: old,
        ..
    } = begun(2);
    let mut host = Host::open(&disk, compacting()).unwrap();
    let kept: Vec<Position> = appended.keys().copied().step_by(8).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    host.maintain(&Shedding { kept: &kept }).unwrap();
    let Host { log, .. } = host;
    let copy = *log.manifest.entries.iter().find(|entry| entry.compacted).unwrap();
    let newest = log.manifest.version;
    drop(log);
    assert!(copy.base == Position::FIRST && !disk.names().contains(&segment_name(1)));
    let older = Manifest { version: newest, ..old };
    write_manifest(&disk, &older);
    let host = Host::open(&disk, forced()).unwrap();
    // All that is said is that the file is not there.
    assert_eq!(told(&host), [(segment_name(1), copy.end, 0, None)]);
}

/// Starts by force while the layer above refuses this record.
fn refusing(disk: &SimDisk, victim: Position) -> (Log, RecoveryReport) {
    let mut refuse = |record: Recovered<'_>| {
        if record.position == victim {
            return Err("not this one".to_owned());
        }
        Ok(())
    };
    Log::open(Arc::new(disk.clone()), forced(), &mut refuse).unwrap()
}

#[test]
fn what_the_layer_above_cannot_read_is_left_out_and_every_other_record_can_be_read() {
    let (disk, appended, manifest) = sealed(3);
    let entry = manifest.entries[1];
    let victim = *appended.range(entry.base..).nth(1).unwrap().0;
    let (log, report) = refusing(&disk, victim);
    assert_eq!(report.dropped.len(), 1);
    assert_eq!(
        (report.dropped[0].position, report.dropped[0].records),
        (victim, Some(1))
    );
    let durable = log.durable();
    let mut host = Host {
        disk,
        log,
        report,
        recovered: Vec::new(),
        appended,
        durable,
    };
    for position in host
        .appended
        .keys()
        .copied()
        .filter(|known| *known != victim)
        .collect::<Vec<_>>()
    {
        host.check(position);
    }
    let bases: Vec<Position> = host.log.segments.iter().map(|segment| segment.base).collect();
    assert!(bases.is_sorted() && bases.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn what_was_torn_is_no_part_of_a_segment_that_is_made_anew_for_what_cannot_be_read() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(1);
    age_watermark(&disk);
    let last: Vec<Position> = appended.keys().rev().take(3).copied().collect();
    // The first of the last commit: the others verify.
    damage(&disk, 1, bounds[0].0, last[2]);
    let victim = *appended.keys().next().unwrap();
    let (log, report) = refusing(&disk, victim);
    assert!(report.torn_bytes_cut > 0);
    drop(log);
    let host = Host::open(&disk, options()).unwrap();
    let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
    let expected = appended
        .keys()
        .copied()
        .filter(|known| *known != victim && !last.contains(known));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn records_behind_an_old_watermark_are_saved() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(1);
    age_watermark(&disk);
    let victim = *appended.keys().next().unwrap();
    damage(&disk, 1, bounds[0].0, victim);
    let (lost, said) = lacking(&disk, &appended);
    assert_eq!(lost, [victim]);
    assert_eq!(said, [stretch(1, victim, next(&appended, victim), Some(1))]);
}

#[test]
fn two_places_in_one_unsealed_segment_are_told_up_to_where_the_next_one_begins() {
    let Begun {
        disk, appended, bounds, ..
    } = roomy(2);
    age_watermark(&disk);
    let (base, end) = bounds[0];
    let victim = *appended.keys().nth(1).unwrap();
    let last = *appended.range(..end).next_back().unwrap().0;
    damage(&disk, 1, base, victim);
    damage(&disk, 1, base, last);
    let (lost, said) = lacking(&disk, &appended);
    assert_eq!(lost, [victim, last]);
    let records: Vec<_> = said.iter().map(|lost| (lost.1, lost.3)).collect();
    assert_eq!(records, [(victim, Some(1)), (last, Some(1))]);
}

#[test]
fn a_damaged_last_commit_gives_back_its_other_records() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(2);
    let victim = *appended.keys().nth_back(1).unwrap();
    damage(&disk, 2, bounds[1].0, victim);
    let (lost, said) = lacking(&disk, &appended);
    assert_eq!(lost, [victim]);
    assert_eq!(said, [stretch(2, victim, next(&appended, victim), Some(1))]);
}

#[test]
fn an_unsealed_segment_that_is_gone_is_told_from_the_end_before_it_to_the_next_ones_beginning() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(4);
    // The one before it is full: nothing of that can be missing.
    remove(&disk, &segment_name(3));
    let (lost, said) = lacking(&disk, &appended);
    let inside = appended.range(bounds[2].0..bounds[2].1).map(|(position, _)| *position);
    assert_eq!(lost, inside.collect::<Vec<_>>());
    assert_eq!(said, [stretch(3, bounds[1].1, bounds[3].0, None)]);
}

#[test]
fn a_log_that_ends_before_what_was_durable_says_so_beside_what_is_gone_elsewhere() {
    let (disk, appended, manifest) = sealed(3);
    let mut without = manifest.clone();
    without.entries.retain(|entry| entry.sealed);
    write_manifest(&disk, &without);
    let (first, last) = (without.entries[0], without.entries[without.entries.len() - 1]);
    remove(&disk, &segment_name(first.id));
    remove(&disk, &footer_name(first.id));
    let durable = {
        let host = Host::open(&disk, forced()).unwrap();
        let said = told(&host);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[0], stretch(first.id, first.base, first.end, None));
        assert_eq!((said[1].0.clone(), said[1].1), (segment_name(last.id), last.end));
        last.end.plus(said[1].2)
    };
    assert!(durable > *appended.keys().last().unwrap());
}

#[test]
fn a_segment_that_does_not_continue_what_a_forced_start_replaced_is_saved_all_the_same() {
    let (disk, appended, manifest) = sealed(3);
    age_watermark(&disk);
    let damaged = manifest.entries[0].id;
    disk.edit(&segment_name(damaged), |bytes| bytes[40] ^= 1);
    let unsealed = *manifest.entries.iter().find(|entry| !entry.sealed).unwrap();
    assert!(appended.range(manifest.sealed_end..).count() > 0);
    disk.edit(&segment_name(unsealed.id), |bytes| {
        let mut header = SegmentHeader::decode(bytes, [9; 16], unsealed.id).unwrap();
        header.hash_before ^= 1;
        bytes[..BLOCK_BYTES as usize].copy_from_slice(&header.encode());
    });
    assert_eq!(lacking(&disk, &appended).0, []);
}

#[test]
fn a_segment_whose_header_alone_is_lost_loses_nothing_and_nothing_else_is_named() {
    for aged in [false, true] {
        let Begun { disk, appended, .. } = roomy(2);
        if aged {
            age_watermark(&disk);
        }
        disk.edit(&segment_name(2), |bytes| bytes[40] ^= 1);
        let (lost, said) = lacking(&disk, &appended);
        assert_eq!(lost, []);
        assert_eq!(said.len(), 1);
        assert!(said[0].0 == segment_name(2) && said[0].3 == Some(0), "{said:?}");
    }
}

#[test]
fn a_segment_without_a_header_behind_a_damaged_commit_leaves_that_ones_other_records() {
    let Begun {
        disk, appended, bounds, ..
    } = roomy(2);
    let (base, end) = bounds[0];
    let last = *appended.range(..end).next_back().unwrap().0;
    damage(&disk, 1, base, last);
    disk.edit(&segment_name(2), |bytes| bytes[40] ^= 1);
    assert_eq!(lacking(&disk, &appended).0, [last]);
}

#[test]
fn a_segment_without_a_header_behind_one_that_is_gone_tells_where_that_ended() {
    let Begun {
        disk, appended, bounds, ..
    } = roomy(2);
    remove(&disk, &segment_name(1));
    disk.edit(&segment_name(2), |bytes| bytes[40] ^= 1);
    let (lost, said) = lacking(&disk, &appended);
    let first = appended.range(..bounds[0].1).map(|(position, _)| *position);
    assert_eq!(lost, first.collect::<Vec<_>>());
    assert_eq!(said[0], stretch(1, bounds[0].0, bounds[1].0, None));
}

#[test]
fn a_segment_without_a_header_whose_last_record_is_damaged_loses_that_alone() {
    let Begun {
        disk, appended, bounds, ..
    } = roomy(2);
    let last = *appended.keys().last().unwrap();
    damage(&disk, 2, bounds[1].0, last);
    disk.edit(&segment_name(2), |bytes| bytes[40] ^= 1);
    let (lost, said) = lacking(&disk, &appended);
    assert_eq!(lost, [last]);
    assert_eq!((said.len(), said[0].1, said[0].3), (1, last, Some(1)));
}

#[test]
fn segments_without_headers_are_all_found_each_where_it_began() {
    for count in [3, 4] {
        let Begun { disk, appended, .. } = roomy(count);
        for id in [2, 3] {
            disk.edit(&segment_name(id), |bytes| bytes[40] ^= 1);
        }
        assert_eq!(lacking(&disk, &appended).0, [], "{count}");
    }
}

#[test]
fn segments_of_which_nothing_is_left_take_no_place_from_one_whose_commits_tell_where_it_began() {
    // Three that are full to 52, 16 and 48 KiB lie where two have room for 60 each.
    let commits = [[45_000, 15_000, 45_000], [15_000, 100, 100], [100; 3]];
    let Begun {
        disk, appended, bounds, ..
    } = begun_of(4, &commits);
    assert_eq!(bounds[3].0.get() - bounds[0].0.get(), 116 * 1024);
    let wiped = |disk: &SimDisk, ids: &[u64]| {
        for id in ids {
            disk.edit(&segment_name(*id), |bytes| bytes.fill(0xee));
        }
    };
    for headers in [true, false] {
        for (ids, from, to) in [(&[1, 2, 3][..], 0, 2), (&[2], 1, 1), (&[2, 3], 1, 2)] {
            let disk = disk.fork(1);
            wiped(&disk, ids);
            if !headers {
                disk.edit(&segment_name(4), |bytes| bytes[40] ^= 1);
            }
            let inside = appended.range(bounds[from].0..bounds[to].1);
            let inside: Vec<Position> = inside.map(|(position, _)| *position).collect();
            assert_eq!(lacking(&disk, &appended).0, inside, "{headers} {ids:?}");
        }
    }
}

#[test]
fn the_records_of_a_segment_without_header_and_commits_are_found_where_it_must_have_begun() {
    let Begun {
        disk, appended, bounds, ..
    } = begun(3);
    let (base, end) = bounds[1];
    disk.edit(&segment_name(2), |bytes| {
        bytes[40] ^= 1;
        for at in (0..end.get() - base.get()).step_by(BLOCK_BYTES as usize) {
            let offset = (DATA_OFFSET + at) as usize;
            if CommitHead::verify(&bytes[offset..], base.plus(at), u64::MAX).is_ok() {
                bytes[offset + 40] ^= 1;
            }
        }
    });
    assert_eq!(lacking(&disk, &appended).0, []);
}

#[test]
fn a_damaged_segment_ends_where_the_commits_of_the_next_one_tell_whose_header_is_lost() {
    let Begun {
        disk, appended, bounds, ..
    } = roomy(2);
    let victim = *appended.keys().nth(1).unwrap();
    damage(&disk, 1, bounds[0].0, victim);
    disk.edit(&segment_name(2), |bytes| bytes[40] ^= 1);
    assert_eq!(lacking(&disk, &appended).0, [victim]);
}

#[test]
fn a_watermark_that_is_lost_in_part_leaves_the_end_in_doubt_and_a_forced_start_says_where() {
    for slot in 0..2 {
        let Begun { disk, bounds, .. } = begun(2);
        disk.edit("watermark", |bytes| bytes[slot * BLOCK_BYTES as usize + 30] ^= 1);
        let host = Host::open(&disk, forced()).unwrap();
        let (base, end) = bounds[1];
        let limit = base.plus(64 * 1024 - DATA_OFFSET);
        assert_eq!(told(&host), [stretch(2, end, limit, None)]);
        let dropped = &host.report.dropped[0];
        assert_eq!(dropped.offset, DATA_OFFSET + end.get() - base.get());
        assert!(dropped.why.contains("cannot be told"), "{}", dropped.why);
    }
}

#[test]
fn footers_made_for_a_computed_manifest_are_known_to_the_next_one() {
    let (disk, appended, _) = sealed(3);
    for name in disk.names() {
        if name.ends_with(".footer") || name.starts_with("manifest") {
            disk.remove(&name).unwrap();
        }
    }
    disk.sync_directory().unwrap();
    let host = Host::open(&disk, forced()).unwrap();
    assert!(host.report.footers_rebuilt > 0);
    let host = host.reopen(options()).unwrap();
    assert_eq!(host.report.footers_rebuilt, 0);
    nothing_lacks(&host, &appended);
}
