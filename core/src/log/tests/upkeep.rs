//! Sealing, retiring, recycling and compaction, with power lost at every disk operation on the way.

use super::*;
use crate::log::disk::Disk;
use crate::sim::Faults;

/// Drops all records but these.
pub(in crate::log) struct Shedding<'a> {
    pub kept: &'a [Position],
}

impl Rewriter for Shedding<'_> {
    fn rewrite(&self, record: Rewritable<'_>, _presence: &Presence<'_>) -> Rewrite {
        match self.kept.binary_search(&record.position) {
            Err(_) => Rewrite::Drop,
            Ok(index) if index % 2 == 0 => Rewrite::Keep,
            // Every other one with the last bytes of its head gone.
            Ok(_) => Rewrite::KeepAs(record.head[..record.head.len() / 4 * 3].to_vec()),
        }
    }
}

fn shorten(kept: &[Position], appended: &mut BTreeMap<Position, Known>) {
    for position in kept.iter().skip(1).step_by(2) {
        let known = appended.get_mut(position).unwrap();
        known.head.truncate(known.head.len() / 4 * 3);
    }
}

/// A log of several segments of which a few records are held.
fn sparse(seed: u64) -> (Host, Vec<Position>) {
    let mut host = filled(seed, 250, 1500).reopen(compacting()).unwrap();
    let kept: Vec<Position> = host.appended.keys().copied().step_by(17).collect();
    for position in &kept {
        host.log.hold(*position);
    }
    (host, kept)
}

#[test]
fn compaction_keeps_positions_and_gives_space_back() {
    let (mut host, kept) = sparse(1);
    let mut all: Vec<Position> = host.appended.keys().copied().collect();
    let (_, before) = host.log.disk_use();
    host.maintain(&Shedding { kept: &kept }).unwrap();
    let (segments, after) = host.log.disk_use();
    assert!(segments > 2);
    assert!(after < before, "{after} bytes after, {before} before");
    shorten(&kept, &mut host.appended);
    let last_sealed = host
        .log
        .segments
        .iter()
        .filter(|segment| segment.sealed)
        .map(|segment| segment.end)
        .max()
        .unwrap();
    all.retain(|position| *position < last_sealed && kept.binary_search(position).is_err());
    host.appended
        .retain(|position, _| *position < last_sealed && kept.binary_search(position).is_ok());
    for position in host.appended.keys().copied().collect::<Vec<_>>() {
        host.check(position);
    }
    for position in all {
        assert!(
            matches!(host.read(position), Err(LogError::Gone(_))),
            "{position} was dropped"
        );
    }
    let durable = host.durable;
    host.disk.power_cycle();
    host = host.reopen(compacting()).unwrap();
    host.durable = last_sealed;
    host.recovered.retain(|record| record.0 < last_sealed);
    host.check_recovered();
    assert!(host.log.durable() > durable);
    // And once more, when less is held.
    let fewer: Vec<Position> = host.appended.keys().copied().step_by(6).collect();
    for position in &fewer {
        host.log.hold(*position);
    }
    host.maintain(&Shedding { kept: &fewer }).unwrap();
    for position in fewer {
        let record = host.read(position).unwrap();
        assert!(record.payload == host.appended[&position].payload);
    }
    let compacted = host.log.segments.iter().filter(|segment| segment.compacted).count();
    assert!(compacted > 2);
}

#[test]
fn a_read_that_a_compaction_overtakes_is_asked_again_and_never_taken_for_damage() {
    let (mut host, kept) = sparse(3);
    let mut overtaken = Vec::new();
    for position in &kept {
        if let Ok(Read::Miss(request)) = host.log.read(*position) {
            overtaken.push(request);
        }
    }
    // One for each stretch: what a read will bring is not asked for again.
    assert!(overtaken.len() >= 5, "{}", overtaken.len());
    host.maintain(&Shedding { kept: &kept }).unwrap();
    let mut failed = 0;
    for request in overtaken {
        let done = request.run();
        failed += usize::from(done.failed());
        host.log.complete_read(done);
    }
    assert!(failed > 0, "no file was gone, so nothing was shown");
    for position in kept {
        let record = host.read(position).unwrap();
        assert_eq!(record.payload, host.appended[&position].payload);
    }
}

#[test]
fn a_power_loss_at_every_operation_of_upkeep_leaves_the_old_or_the_new() {
    // Everything that upkeep does: prepare, seal, compact, retire, recycle, sync.
    let (mut host, kept) = sparse(2);
    host.log.request_watermark_sync();
    let start = host.disk.operations();
    let floor = host.log.durable();
    host.log.set_floor(floor, Position::ZERO);
    host.maintain(&Shedding { kept: &kept }).unwrap();
    let operations = host.disk.operations() - start;
    assert!(operations > 50, "{operations}");
    for crash_at in 1..=operations + 1 {
        let (mut host, kept) = sparse(2);
        host.log.request_watermark_sync();
        host.log.set_floor(floor, Position::ZERO);
        host.disk.set_faults(Faults {
            crash_at: Some(start + crash_at),
            ..Faults::default()
        });
        let _ = host.maintain(&Shedding { kept: &kept });
        host.disk.power_cycle();
        host = host.reopen(compacting()).unwrap();
        let mut shortened = host.appended.clone();
        shorten(&kept, &mut shortened);
        for (position, _, kind, head, payload_length) in &host.recovered {
            let (long, short) = (&host.appended[position], &shortened[position]);
            assert!(
                head == &long.head || head == &short.head,
                "crash at {crash_at}, record at {position}"
            );
            assert_eq!((*kind, *payload_length as usize), (long.kind, long.payload.len()));
        }
        let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
        assert!(found.is_sorted());
        for position in &kept {
            assert!(
                found.binary_search(position).is_ok(),
                "crash at {crash_at} lost the record at {position}"
            );
            let record = host.read(*position).unwrap();
            assert_eq!(record.payload, host.appended[position].payload);
        }
        // What was half done is done again.
        for position in &kept {
            host.log.hold(*position);
        }
        host.maintain(&Shedding { kept: &kept }).unwrap();
        host.disk.power_cycle();
        Host::open(&host.disk, options()).unwrap();
    }
}

#[test]
fn a_segment_goes_only_when_nothing_needs_it() {
    let mut host = filled(3, 200, 2000);
    host.maintain(&KeepAll).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let first = positions[0];
    let holder = *positions.last().unwrap();
    let gone = |host: &mut Host| {
        host.maintain(&KeepAll).unwrap();
        matches!(host.read(first), Err(LogError::Gone(_)))
    };
    assert!(!gone(&mut host), "above the floor");
    assert!(host.log.is_kept_by_floor(), "a checkpoint would free it");
    positions.iter().for_each(|position| host.log.hold(*position));
    assert!(
        !host.log.is_kept_by_floor(),
        "nothing that is held is kept by the floor"
    );
    positions.iter().for_each(|position| host.log.release(*position));
    host.log.hold(first);
    assert!(host.log.register_reader("standby", first, u64::MAX));
    assert!(!host.log.is_kept_by_floor(), "a reader keeps all of it");
    let floor = host.log.durable();
    host.log.set_floor(floor, Position::ZERO);
    assert!(!gone(&mut host), "held, and read");
    host.log.release(first);
    assert!(!gone(&mut host), "a reader needs it");
    assert!(host.log.advance_reader("standby", holder));
    assert!(!host.log.is_kept_by_floor(), "the floor is above it");
    assert!(gone(&mut host));
    let (_, use_now) = host.log.disk_use();
    assert!(use_now < 10 * 64 * 1024, "{use_now} bytes are kept");
    host = host.reopen(options()).unwrap();
    assert!(
        host.recovered.iter().all(|record| record.0 != first),
        "a removed record stays removed"
    );
}

#[test]
fn an_acknowledgement_outlives_what_it_acknowledges() {
    let mut host = filled(4, 60, 2000);
    let target = *host.appended.keys().next().unwrap();
    host.log.hold(target);
    // Acknowledge everything else far behind it, then let the acknowledgements' segment fall free too.
    let mut random = Random::new(1);
    let mut acknowledgement = Position::ZERO;
    for round in 0..120 {
        while host.append(&mut random, 2000).is_err() {
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
        }
        if round == 20 {
            acknowledgement = host.log.append_reserved(40, b"acknowledges", b"").unwrap();
            host.log.depend(acknowledgement, target);
        }
    }
    host.commit().unwrap();
    let floor = host.log.durable();
    host.log.set_floor(floor, Position::ZERO);
    host.maintain(&KeepAll).unwrap();
    assert!(
        host.read(acknowledgement).is_ok(),
        "the target is still on disk, so the acknowledgement stays"
    );
    host.log.release(target);
    host.maintain(&KeepAll).unwrap();
    assert!(matches!(host.read(target), Err(LogError::Gone(_))));
    assert!(
        matches!(host.read(acknowledgement), Err(LogError::Gone(_))),
        "nothing needs it any more"
    );
}

#[test]
fn presence_says_when_an_acknowledgement_may_be_dropped() {
    let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let kept: Vec<Position> = positions.iter().copied().step_by(19).collect();
    for position in &kept {
        host.log.hold(*position);
    }
    let (target, early, late) = (positions[0], positions[249], Position(u64::MAX));
    let may_exist = |host: &Host, holder| {
        let presence = Presence {
            segments: &host.log.segments,
            rewriting: Position::ZERO,
            superseded: &Default::default(),
        };
        presence.may_exist(holder, target)
    };
    assert!(may_exist(&host, early));
    host.maintain(&Shedding { kept: &kept }).unwrap();
    assert!(!may_exist(&host, early), "the rewrite knew of it");
    assert!(may_exist(&host, late), "the rewrite could not know of it");
    host = host.reopen(options()).unwrap();
    assert!(!may_exist(&host, early), "and this is remembered");
}

#[test]
fn a_reader_beyond_its_bound_loses_its_claim_and_is_told() {
    let mut host = filled(6, 10, 1000);
    let start = host.log.durable();
    assert!(host.log.register_reader("route", start, 20_000));
    assert!(host.log.register_reader("standby", start, u64::MAX));
    let mut random = Random::new(1);
    for _ in 0..60 {
        while host.append(&mut random, 1500).is_err() {
            host.maintain(&KeepAll).unwrap();
        }
        host.commit().unwrap();
    }
    let lost = host.log.take_lost_readers();
    assert_eq!(
        lost,
        [LostReader {
            name: "route".to_owned(),
            position: start
        }]
    );
    assert!(!host.log.advance_reader("route", host.durable));
    assert!(host.log.advance_reader("standby", host.durable));
    assert!(host.log.take_lost_readers().is_empty());
}

#[test]
fn files_are_recycled_so_that_steady_work_needs_no_new_ones() {
    let mut host = filled(7, 1, 100);
    let mut random = Random::new(2);
    for _ in 0..1500 {
        while host.append(&mut random, 2000).is_err() {
            host.commit().unwrap();
            host.maintain(&KeepAll).unwrap();
        }
        if random.one_in(4) {
            host.commit().unwrap();
            let floor = host.log.durable();
            host.log.set_floor(floor, Position::ZERO);
            host.maintain(&KeepAll).unwrap();
        }
    }
    let (segments, bytes) = host.log.disk_use();
    assert!(
        segments <= 3 && bytes <= 9 * 64 * 1024,
        "{segments} segments, {bytes} bytes"
    );
    let files = host.disk.list().unwrap();
    assert!(files.len() < 16, "{files:?}");
    host.commit().unwrap();
    let oldest = host.log.segments.iter().next().unwrap().base;
    host.disk.power_cycle();
    host = host.reopen(options()).unwrap();
    host.appended.retain(|position, _| *position >= oldest);
    host.recovered.retain(|record| record.0 >= oldest);
    host.check_recovered();
}

/// Wants a head for which there is no room.
pub(in crate::log) struct Growing;

impl Rewriter for Growing {
    fn rewrite(&self, record: Rewritable<'_>, _presence: &Presence<'_>) -> Rewrite {
        let mut head = record.head.to_vec();
        head.push(1);
        Rewrite::KeepAs(head)
    }
}

#[test]
fn a_head_that_does_not_fit_leaves_the_segment_and_its_dependents_as_they_are() {
    let mut host = filled(8, 250, 1500).reopen(compacting()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let (target, holder) = (positions[0], positions[150]);
    for position in positions.iter().step_by(10) {
        host.log.hold(*position);
    }
    host.log.depend(holder, target);
    host.maintain(&Growing).unwrap();
    assert!(host.log.segments.iter().all(|segment| !segment.compacted));
    for position in &positions {
        host.check(*position);
    }
    let holder = host.log.segments.find(holder).unwrap();
    assert_eq!(holder.liveness.blockers, 1, "it still must outlive its target");
    let base = holder.base;
    let target = host.log.segments.find(target).unwrap();
    assert!(target.liveness.dependents.contains(&base), "and the target knows");
}

#[test]
fn a_reader_that_begins_anew_during_a_rewrite_gets_one_version_of_a_segment() {
    let (mut refused, mut kept_old) = (0, 0);
    // The reader comes while the piece of upkeep with this number is under way.
    for during in 0..40 {
        let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
        let positions: Vec<Position> = host.appended.keys().copied().collect();
        let kept: Vec<Position> = positions.iter().copied().step_by(19).collect();
        kept.iter().for_each(|position| host.log.hold(*position));
        let is_old = |host: &Host| {
            host.log
                .segments
                .iter()
                .next()
                .is_some_and(|segment| !segment.compacted)
        };
        let mut granted = false;
        for step in 0.. {
            let Some(job) = host.log.maintenance(&Shedding { kept: &kept }) else {
                break;
            };
            let done = job.run();
            if step == during && is_old(&host) {
                // It has had the first records of the segment before, and may not miss what ends them.
                granted = host.log.register_reader("standby", positions[10], u64::MAX);
                refused += u32::from(!granted);
            }
            host.log.complete_maintenance(done).unwrap();
        }
        if granted {
            assert!(is_old(&host), "the reader came during step {during}");
            kept_old += 1;
        }
    }
    assert!(refused > 0 && kept_old > 0, "{refused} {kept_old}");
}

#[test]
fn a_segment_that_a_reader_has_yet_to_read_is_rewritten_once_it_has() {
    let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let kept: Vec<Position> = positions.iter().copied().step_by(19).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    let is_rewritten = |host: &Host| host.log.segments.iter().any(|segment| segment.compacted);
    assert!(host.log.register_reader("standby", positions[0], u64::MAX));
    host.maintain(&Shedding { kept: &kept }).unwrap();
    assert!(!is_rewritten(&host), "the reader has yet to read it");
    let end = host.log.durable();
    assert!(host.log.advance_reader("standby", end));
    host.maintain(&Shedding { kept: &kept }).unwrap();
    assert!(is_rewritten(&host), "it was not tried for nothing before");
}

#[test]
fn a_rewrite_comes_into_force_when_all_is_durable_that_it_was_decided_by() {
    let mut host = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let positions: Vec<Position> = host.appended.keys().copied().collect();
    let kept: Vec<Position> = positions.iter().copied().step_by(19).collect();
    kept.iter().for_each(|position| host.log.hold(*position));
    host.log.append(16, b"ends others", b"").unwrap();
    let is_rewritten = |host: &Host| host.log.segments.iter().any(|segment| segment.compacted);
    host.maintain(&Shedding { kept: &kept }).unwrap();
    assert!(!is_rewritten(&host), "what ended its messages may still be lost");
    host.commit().unwrap();
    host.maintain(&Shedding { kept: &kept }).unwrap();
    assert!(is_rewritten(&host));
}

#[test]
fn a_reader_that_begins_anew_while_a_segment_is_retired_keeps_it_or_has_to_ask_again() {
    let (mut refused, mut kept) = (0, 0);
    // The reader comes while the piece of upkeep with this number is under way.
    for during in 0..30 {
        let mut host = filled(5, 250, 1500);
        host.maintain(&KeepAll).unwrap();
        let first = *host.appended.keys().next().unwrap();
        let floor = host.log.durable();
        host.log.set_floor(floor, Position::ZERO);
        let is_there = |host: &Host| host.log.start() <= first;
        let mut granted = false;
        for step in 0.. {
            let Some(job) = host.log.maintenance(&KeepAll) else {
                break;
            };
            let done = job.run();
            if step == during && is_there(&host) {
                granted = host.log.register_reader("standby", first, u64::MAX);
                refused += u32::from(!granted);
            }
            host.log.complete_maintenance(done).unwrap();
        }
        if granted {
            assert!(is_there(&host), "the reader came during step {during}");
            kept += 1;
        } else {
            assert!(!is_there(&host));
        }
    }
    assert!(refused > 0, "{refused} {kept}");
}

#[test]
fn a_floor_counts_when_its_proof_is_settled() {
    let mut host = filled(3, 200, 2000);
    host.maintain(&KeepAll).unwrap();
    let start = host.log.start();
    let floor = host.log.durable();
    let proof = host.log.append(16, b"says all that lies below", b"").unwrap();
    host.log.set_floor(floor, proof);
    host.maintain(&KeepAll).unwrap();
    assert_eq!(host.log.start(), start, "the proof is not durable");
    host.log.set_committed(floor);
    host.commit().unwrap();
    host.maintain(&KeepAll).unwrap();
    assert_eq!(host.log.start(), start, "it is durable here, and not committed");
    let end = host.log.durable();
    host.log.set_committed(end);
    host.maintain(&KeepAll).unwrap();
    assert!(host.log.start() > start);
}
