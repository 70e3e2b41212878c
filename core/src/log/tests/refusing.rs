//! Chunks that are sound record by record and that a follower may not take all the same, and those next to them that it may.

use super::upkeep::Shedding;
use super::*;
use crate::log::chunk::lay_out;
use crate::log::commit::{COMMIT_BYTES, CommitHead};
use crate::log::record;
use crate::log::segment_header::{DATA_OFFSET, segment_name};

const STARTS: u64 = COMMIT_BYTES as u64;

fn following() -> Options {
    Options {
        mode: OpenMode::Follower,
        ..options()
    }
}

fn end_of(host: &Host) -> Position {
    Position(host.log.end().get().next_multiple_of(BLOCK_BYTES))
}

/// A follower with something in it.
fn follower(options: Options) -> Host {
    let leader = filled(1, 5, 500);
    let mut host = Host::open(&SimDisk::new(2), options).unwrap();
    host.maintain(&KeepAll).unwrap();
    let chunk = leader.log.read_log(end_of(&host), 1_000_000).unwrap();
    host.log.append_log(&chunk).unwrap();
    host.commit().unwrap();
    assert_eq!(host.log.rolling_hash(), leader.log.rolling_hash());
    host
}

/// A group commit as it is sent: its records lie at these distances from its start, 40 bytes each.
struct Sent {
    at: Vec<u64>,
    used: u64,
    span: u64,
    /// Of each record.
    epochs: Vec<u64>,
    /// What its head says beyond what is true.
    records_more: u32,
    hash_more: u64,
}

impl Sent {
    fn new(at: &[u64]) -> Self {
        Self {
            at: at.to_vec(),
            used: at.last().map_or(STARTS, |last| last + 40),
            span: BLOCK_BYTES,
            epochs: vec![1; at.len()],
            records_more: 0,
            hash_more: 0,
        }
    }

    fn used(self, used: u64) -> Self {
        Self { used, ..self }
    }

    fn span(self, span: u64) -> Self {
        Self { span, ..self }
    }

    /// The only commit of a chunk that continues this log.
    fn chunk(&self, host: &Host) -> LogChunk {
        let from = end_of(host);
        let mut bytes = Vec::new();
        let mut hash_after = host.log.rolling_hash().value;
        for (at, epoch) in self.at.iter().zip(&self.epochs) {
            let crc = record::encode(&mut bytes, from.plus(*at), *epoch, 20, b"", b"payload8");
            hash_after = record::chain(hash_after, crc);
        }
        hash_after = hash_after.wrapping_add(self.hash_more);
        let head = CommitHead {
            span: self.span as u32,
            used: self.used as u32,
            durable: from,
            hash_before: host.log.rolling_hash().value,
            hash_after,
            records: self.at.len() as u32 + self.records_more,
        };
        let bytes = [head.encode(from, 1).as_slice(), &bytes].concat();
        LogChunk {
            from,
            to: from.plus(self.span),
            hash_after,
            bytes: bytes.into(),
        }
    }
}

fn refused(host: &mut Host, chunk: &LogChunk) -> bool {
    let (end, hash) = (end_of(host), host.log.rolling_hash());
    match host.log.append_log(chunk) {
        Ok(_) => false,
        Err(LogError::Chunk(_)) => {
            assert_eq!(
                (end_of(host), host.log.rolling_hash()),
                (end, hash),
                "and something of it was taken"
            );
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_commit_whose_records_are_not_what_its_head_says_is_refused() {
    let [first, second] = [STARTS, STARTS + 40];
    let two = || Sent::new(&[first, second]);
    let wrong = [
        ("overlapping", Sent::new(&[first, second - 8])),
        ("a gap without room for a skip", Sent::new(&[first, second + 8])),
        ("a gap of a skip less eight bytes", Sent::new(&[first, second + 24])),
        ("beyond what is used", two().used(second + 32)),
        ("a rest without room for a skip", two().used(second + 48)),
        ("a rest of a skip less eight bytes", two().used(second + 64)),
        (
            "an earlier epoch",
            Sent {
                epochs: vec![1, 0],
                ..two()
            },
        ),
        ("another hash", Sent { hash_more: 1, ..two() }),
        (
            "a record less",
            Sent {
                records_more: 1,
                ..two()
            },
        ),
    ];
    for (what, sent) in wrong {
        let mut host = follower(following());
        let chunk = sent.chunk(&host);
        assert!(refused(&mut host, &chunk), "{what}");
        let sound = two().chunk(&host);
        assert!(!refused(&mut host, &sound), "{what}: then the sound one");
    }
}

#[test]
fn a_commit_of_which_some_was_dropped_is_taken_and_comes_back_after_a_start() {
    let [first, second] = [STARTS, STARTS + 40];
    for (what, sent) in [
        ("a gap of a skip", Sent::new(&[first, second + 32])),
        ("a gap before the first", Sent::new(&[first + 32, second + 32])),
        ("a rest of a skip", Sent::new(&[first, second]).used(second + 72)),
        ("a longer rest", Sent::new(&[first]).used(second + 400)),
    ] {
        let mut host = follower(following());
        let chunk = sent.chunk(&host);
        assert_eq!(host.log.append_log(&chunk).unwrap(), chunk.to, "{what}");
        host.commit().unwrap();
        let wanted: Vec<Position> = sent.at.iter().map(|at| chunk.from.plus(*at)).collect();
        let hash = host.log.rolling_hash();
        host.disk.kill_process();
        let mut host = host.reopen(following()).unwrap();
        assert_eq!(host.log.rolling_hash(), hash, "{what}");
        let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
        assert!(found.ends_with(&wanted), "{what}");
        for position in wanted {
            assert_eq!(&host.read(position).unwrap().payload[..], b"payload8");
        }
    }
}

#[test]
fn what_a_file_holds_where_something_was_dropped_is_not_taken_for_a_record() {
    let mut host = follower(following());
    let sent = Sent::new(&[STARTS, STARTS + 240]);
    let chunk = sent.chunk(&host);
    host.log.append_log(&chunk).unwrap();
    host.commit().unwrap();
    // Behind the skip's own bytes, as an earlier use of the file may have left it.
    let gap = chunk.from.plus(STARTS + 80);
    let mut left = Vec::new();
    record::encode(&mut left, gap, 1, 20, b"", b"leftover");
    let segment = host.log.segments.last().unwrap();
    let (name, offset) = (segment_name(segment.id), segment.offset_of(gap) as usize);
    host.disk
        .edit(&name, |bytes| bytes[offset..offset + 40].copy_from_slice(&left));
    host.log.cache.forget(Position::ZERO, Position(u64::MAX));
    host.read(chunk.from.plus(STARTS)).unwrap();
    assert!(host.log.cache.find(gap).flatten().is_none());
}

#[test]
fn a_chunk_that_ends_elsewhere_than_its_commits_is_refused() {
    let mut host = follower(following());
    let mut chunk = Sent::new(&[STARTS]).span(2 * BLOCK_BYTES).chunk(&host);
    chunk.to = chunk.from.plus(BLOCK_BYTES);
    assert!(refused(&mut host, &chunk), "it is shorter than its commit");
    let mut chunk = Sent::new(&[STARTS]).chunk(&host);
    chunk.hash_after ^= 1;
    assert!(
        matches!(host.log.append_log(&chunk), Err(LogError::Chunk(_))),
        "another hash at its end"
    );
}

#[test]
fn only_a_follower_takes_a_chunk_and_only_at_its_end() {
    let leader = filled(1, 20, 2000);
    let mut active = Host::open(&SimDisk::new(2), options()).unwrap();
    let chunk = leader.log.read_log(end_of(&active), 1_000_000).unwrap();
    assert!(chunk.to > chunk.from);
    assert!(refused(&mut active, &chunk), "it is no follower");
    let mut host = Host::open(&SimDisk::new(2), following()).unwrap();
    assert!(refused(&mut host, &chunk), "its beginning is missing");
}

#[test]
fn a_commit_goes_into_a_segment_that_it_fits_or_is_refused() {
    let longest = 64 * 1024 - DATA_OFFSET;
    let mut host = follower(following());
    let chunk = Sent::new(&[STARTS]).span(longest + BLOCK_BYTES).chunk(&host);
    assert!(refused(&mut host, &chunk));
    let chunk = Sent::new(&[STARTS]).span(longest).chunk(&host);
    assert_eq!(host.log.append_log(&chunk).unwrap(), chunk.to);
    assert_eq!(host.log.segments.len(), 2);
    // What an older segment has room for, which is larger than those to come.
    let large = Options {
        segment_bytes: 128 * 1024,
        ..following()
    };
    let mut host = follower(large).reopen(following()).unwrap();
    let room = host.log.segments.last().unwrap().limit().get() - end_of(&host).get();
    assert!(room > longest + BLOCK_BYTES);
    let chunk = Sent::new(&[STARTS]).span(room).chunk(&host);
    assert_eq!(host.log.append_log(&chunk).unwrap(), chunk.to);
}

#[test]
fn a_follower_on_a_full_disk_leaves_what_a_takeover_needs_in_its_last_segment() {
    // Of a segment's 15 blocks seven are kept.
    for (span, is_taken) in [(10 * BLOCK_BYTES, false), (8 * BLOCK_BYTES, true)] {
        let mut host = follower(following());
        let filling = Sent::new(&[STARTS]).span(8 * BLOCK_BYTES).chunk(&host);
        host.log.append_log(&filling).unwrap();
        assert_eq!(host.log.segments.len(), 1);
        host.log.ahead.truncate(1);
        host.log.reserve.drains = true;
        let chunk = Sent::new(&[STARTS]).span(span).chunk(&host);
        match host.log.append_log(&chunk) {
            Ok(end) => assert!(is_taken && end == chunk.to, "{span}"),
            Err(LogError::NoSpace) => assert!(!is_taken, "{span}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_gap_to_the_very_end_of_the_last_segment_is_bridged() {
    let mut host = follower(following());
    host.log.ahead.clear();
    let (from, to) = (end_of(&host), host.log.segments.last().unwrap().limit());
    let chunk = LogChunk {
        from,
        to,
        hash_after: 7,
        bytes: bytes::Bytes::new(),
    };
    assert_eq!(host.log.append_log(&chunk).unwrap(), to);
    assert_eq!(host.log.rolling_hash().value, 7);
}

#[test]
fn what_is_laid_out_ends_where_its_commit_does() {
    let host = follower(following());
    for (sent, parts) in [
        (Sent::new(&[STARTS, STARTS + 40]), 1),
        (Sent::new(&[STARTS]).used(STARTS + 80), 2),
    ] {
        let chunk = sent.chunk(&host);
        let found = lay_out(&chunk.bytes.slice(COMMIT_BYTES..), chunk.from, 1, sent.used);
        assert_eq!(found.len(), parts);
        assert!(found.iter().all(|part| part.end() <= chunk.from.plus(sent.used)));
    }
}

#[test]
fn chunks_of_a_rewritten_segment_are_about_as_long_as_was_asked_for() {
    let mut leader = filled(5, 250, 1500).reopen(compacting()).unwrap();
    let kept: Vec<Position> = leader.appended.keys().copied().step_by(7).collect();
    kept.iter().for_each(|position| leader.log.hold(*position));
    leader.maintain(&Shedding { kept: &kept }).unwrap();
    let segment = leader.log.segments.iter().next().unwrap();
    assert!(segment.compacted);
    let (base, end) = (segment.base, segment.end);
    let whole = leader.log.read_log(base, 1_000_000).unwrap();
    assert!(whole.to >= end);
    assert!(whole.bytes.len() > 4_500, "{}", whole.bytes.len());
    let part = leader.log.read_log(base, 2_000).unwrap();
    assert!(
        part.to < end && part.bytes.len() < whole.bytes.len() - 2_000,
        "{}",
        part.bytes.len()
    );
}
