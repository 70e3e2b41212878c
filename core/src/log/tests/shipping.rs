//! A second log made from the first one's chunks.

use super::upkeep::Shedding;
use super::*;

fn follower() -> Options {
    Options {
        mode: OpenMode::Follower,
        ..options()
    }
}

/// Takes chunks over until nothing durable is left.
fn follow(leader: &Log, follower: &mut Host, bytes_max: usize) {
    loop {
        let from = Position(follower.log.end().get().next_multiple_of(BLOCK_BYTES));
        let chunk = leader.read_log(from, bytes_max).unwrap();
        if chunk.to == from {
            return;
        }
        let chunk = LogChunk::decode(&chunk.encode().into()).unwrap();
        match follower.log.append_log(&chunk) {
            Ok(end) => assert_eq!(end, chunk.to),
            Err(LogError::NoSpace) => {}
            Err(error) => panic!("{error}"),
        }
        follower.commit().unwrap();
        follower.maintain(&KeepAll).unwrap();
    }
}

fn same(leader: &mut Host, follower: &mut Host) {
    assert_eq!(leader.log.rolling_hash(), follower.log.rolling_hash());
    assert_eq!(leader.log.durable_hash(), follower.log.durable_hash());
    assert_eq!(leader.log.epoch(), follower.log.epoch());
    follower.appended = leader.appended.clone();
    for position in leader.appended.keys() {
        follower.check(*position);
    }
}

#[test]
fn a_follower_has_the_same_records_at_the_same_positions() {
    each_seed(20, |seed| {
        let mut leader = filled(seed, 150, 2500);
        leader.maintain(&KeepAll).unwrap();
        let mut other = Host::open(&SimDisk::new(seed), follower()).unwrap();
        follow(&leader.log, &mut other, 10_000);
        same(&mut leader, &mut other);
        assert_eq!(other.log.append(20, b"", b""), Err(AppendError::ReadOnly));
        // Both go on after a restart of each.
        leader = leader.reopen(options()).unwrap();
        other.disk.power_cycle();
        other = other.reopen(follower()).unwrap();
        let mut random = Random::new(seed);
        for _ in 0..20 {
            leader.append(&mut random, 1000).unwrap();
        }
        leader.commit().unwrap();
        follow(&leader.log, &mut other, 100_000);
        same(&mut leader, &mut other);
        // And the follower takes over, in an epoch above.
        let refused = other.log.begin_epoch(1);
        assert!(matches!(refused, Err(LogError::Epoch { .. })));
        other.log.begin_epoch(77).unwrap();
        other.log.append(20, b"", b"").unwrap();
        assert_eq!(other.log.epoch(), 77);
    });
}

#[test]
fn a_follower_bridges_what_its_leader_compacted_or_removed() {
    each_seed(20, |seed| {
        let mut leader = filled(seed, 250, 2500).reopen(compacting()).unwrap();
        let positions: Vec<Position> = leader.appended.keys().copied().collect();
        let floor = positions[positions.len() / 2];
        leader.log.set_floor(floor, Position::ZERO);
        // Nothing is left of the first stretch, something of the second.
        let kept: Vec<Position> = positions
            .iter()
            .copied()
            .skip(80)
            .filter(|position| position.get() % 5 == 0)
            .collect();
        for position in &kept {
            leader.log.hold(*position);
        }
        leader.maintain(&Shedding { kept: &kept }).unwrap();
        let mut other = Host::open(&SimDisk::new(seed), follower()).unwrap();
        follow(&leader.log, &mut other, 5_000);
        let end = leader.log.end();
        leader.appended.retain(|position, _| kept.contains(position));
        for position in &kept {
            // Some have another head now.
            let record = leader.read(*position).unwrap();
            let known = leader.appended.get_mut(position).unwrap();
            assert!(known.payload == record.payload && known.head.starts_with(&record.head));
            known.head = record.head.to_vec();
        }
        same(&mut leader, &mut other);
        other.disk.power_cycle();
        other = other.reopen(follower()).unwrap();
        assert_eq!(other.log.end(), Position(end.get().next_multiple_of(BLOCK_BYTES)));
        same(&mut leader, &mut other);
        // A third one, from the follower.
        let mut third = Host::open(&SimDisk::new(seed), follower()).unwrap();
        follow(&other.log, &mut third, 7_000);
        same(&mut leader, &mut third);
    });
}

#[test]
fn a_chunk_that_was_changed_or_does_not_continue_is_refused() {
    let leader = filled(1, 20, 500);
    let chunk = leader.log.read_log(Position::FIRST, 1_000_000).unwrap().encode();
    for at in 0..chunk.len() {
        let mut bytes = chunk.clone();
        bytes[at] ^= 0x40;
        let mut other = Host::open(&SimDisk::new(1), follower()).unwrap();
        let taken = LogChunk::decode(&bytes.into()).and_then(|chunk| other.log.append_log(&chunk));
        if taken.is_ok() {
            // Padding behind a record is all that nothing covers.
            assert_eq!(
                other.log.rolling_hash().value,
                leader.log.rolling_hash().value,
                "flip at {at}"
            );
        }
    }
    let mut diverged = filled(2, 5, 500).reopen(follower()).unwrap();
    let from = Position(diverged.log.end().get().next_multiple_of(BLOCK_BYTES));
    if let Ok(chunk) = leader.log.read_log(from, 10_000) {
        assert!(matches!(diverged.log.append_log(&chunk), Err(LogError::Chunk(_))));
    }
}

#[test]
fn a_follower_whose_disk_is_full_can_take_over() {
    each_seed(20, |seed| {
        let mut leader = filled(seed, 400, 2500);
        leader.maintain(&KeepAll).unwrap();
        let disk = SimDisk::new(seed);
        disk.set_faults(crate::sim::Faults {
            space_bytes: Some(600_000 + seed % 20 * 1_000),
            ..Default::default()
        });
        let mut other = Host::open(&disk, follower()).unwrap();
        let mut refused = 0;
        while refused < 3 {
            let from = Position(other.log.end().get().next_multiple_of(BLOCK_BYTES));
            let chunk = leader.log.read_log(from, 20_000).unwrap();
            assert!(chunk.to > from, "the disk is never full");
            match other.log.append_log(&chunk) {
                Ok(_) => refused = 0,
                Err(LogError::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            other.commit().unwrap();
            other.maintain(&KeepAll).unwrap();
            other.log.request_watermark_sync();
        }
        let epoch = leader.log.epoch() + 1;
        other.log.begin_epoch(epoch).unwrap();
        // What makes room is logged, too.
        other.log.append_kept(40, b"purge", b"").unwrap();
        other.commit().unwrap();
    });
}
