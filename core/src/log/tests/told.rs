//! What is told of a damaged segment, exactly: how many records, where in the file and between which positions; and that
//! nothing is told of what is whole, and nothing taken that was never there.

use std::sync::Arc;

use super::opening::{Begun, damage, forced, roomy};
use super::*;
use crate::log::commit::{COMMIT_BYTES, CommitHead};
use crate::log::disk::{Disk, DiskFile, OpenFile};
use crate::log::footer::{Index, IndexEntry};
use crate::log::losses::Losses;
use crate::log::manifest::MANIFEST_FILES;
use crate::log::position::block_aligned;
use crate::log::record::{self, KIND_COMMIT, KIND_SKIP, RecordHeader};
use crate::log::recovery::{self, Unreadable};
use crate::log::salvage::{Patient, Salvaged, salvage};
use crate::log::scan::{self, Cursor, Window};
use crate::log::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};
use crate::log::slots::{self, Slot};

const BASE: Position = Position(10 * BLOCK_BYTES);
const HASH: u64 = 7;
/// What each record takes.
const STORED: u64 = 136;
/// Everything may have been durable.
const UNKNOWN: Position = Position(u64::MAX);

fn header(compacted: bool) -> SegmentHeader {
    SegmentHeader {
        store_id: [9; 16],
        id: 1,
        base: BASE,
        previous_end: BASE,
        epoch: 1,
        hash_before: HASH,
        end: if compacted { BASE.plus(1 << 20) } else { Position::ZERO },
        hash_after: if compacted { 99 } else { 0 },
        epoch_after: u64::from(compacted),
        compacted,
    }
}

/// A record or a commit's own, and where it lies.
struct Piece {
    position: Position,
    bytes: Vec<u8>,
}

impl Piece {
    fn record(position: Position, payload: &[u8]) -> Self {
        let mut bytes = Vec::new();
        record::encode(&mut bytes, position, 1, 16, b"head", payload);
        Self { position, bytes }
    }

    fn header(&self) -> RecordHeader {
        RecordHeader::decode(&self.bytes, u64::MAX).unwrap()
    }

    fn offset(&self) -> u64 {
        DATA_OFFSET + self.position.get() - BASE.get()
    }

    fn end(&self) -> Position {
        self.position.plus(self.bytes.len() as u64)
    }
}

/// Commits with so many records each, one behind the other, from the base on; where they end, and the hash there.
fn commits(counts: &[u32]) -> (Vec<Piece>, Cursor) {
    let (mut start, mut hash) = (BASE, HASH);
    let mut pieces = Vec::new();
    for count in counts {
        let own = pieces.len();
        let mut at = start.plus(COMMIT_BYTES as u64);
        let hash_before = hash;
        for _ in 0..*count {
            let piece = Piece::record(at, &[5; 100]);
            at = piece.end();
            hash = record::chain(hash, piece.header().crc);
            pieces.push(piece);
        }
        let used = at.get() - start.get();
        let head = CommitHead {
            span: block_aligned(used) as u32,
            used: used as u32,
            durable: start,
            hash_before,
            hash_after: hash,
            records: *count,
        };
        let bytes = head.encode(start, 1).to_vec();
        pieces.insert(own, Piece { position: start, bytes });
        start = Position(block_aligned(at.get()));
    }
    let (position, epoch) = (start, 1);
    (pieces, Cursor { position, epoch, hash })
}

/// The walk through a segment in which some pieces do not verify.
fn walk<'a>(header: SegmentHeader, pieces: &[Piece], damaged: &[usize]) -> Losses<'a> {
    let mut losses = Losses::new("a segment", header);
    for (index, piece) in pieces.iter().enumerate() {
        if !damaged.contains(&index) {
            losses.find(piece.offset(), &piece.header(), &piece.bytes);
        }
    }
    losses
}

/// Offset, first position, end, records.
type Told = (u64, Position, Position, Option<u64>);

fn told(dropped: &[Dropped]) -> Vec<Told> {
    dropped
        .iter()
        .map(|one| (one.offset, one.position, one.position.plus(one.bytes), one.records))
        .collect()
}

fn between(from: &Piece, to: Position, records: Option<u64>) -> Told {
    (from.offset(), from.position, to, records)
}

#[test]
fn of_a_whole_segment_nothing_is_told() {
    let (pieces, end) = commits(&[3, 2, 4]);
    assert!(
        walk(header(false), &pieces, &[])
            .finish(end.position, None, UNKNOWN)
            .is_empty()
    );
    // Its first commit need not continue what was saved of the segment before.
    let other = SegmentHeader {
        hash_before: HASH + 1,
        ..header(false)
    };
    assert!(walk(other, &pieces, &[]).finish(end.position, None, UNKNOWN).is_empty());
}

#[test]
fn a_commit_of_which_only_its_own_record_is_lost_loses_nothing() {
    let (pieces, end) = commits(&[3, 2, 4]);
    for own in [0, 4, 7] {
        let last = if own == 7 { Some(end) } else { None };
        let dropped = walk(header(false), &pieces, &[own]).finish(end.position, last, UNKNOWN);
        assert!(dropped.is_empty(), "{own}: {dropped:?}");
    }
}

#[test]
fn losses_are_told_by_their_place_and_number_where_a_commit_says_it_and_without_a_number_where_none_does() {
    let (pieces, end) = commits(&[3, 2, 4]);
    let finish = |damaged: &[usize]| told(&walk(header(false), &pieces, damaged).finish(end.position, None, UNKNOWN));
    let of = |from: usize, to: usize, records| between(&pieces[from], pieces[to].position, records);
    assert_eq!(finish(&[1]), [of(1, 2, Some(1))], "the first of a commit");
    assert_eq!(finish(&[2]), [of(2, 3, Some(1))], "one in the middle");
    assert_eq!(
        finish(&[3]),
        [between(&pieces[3], pieces[3].end(), Some(1))],
        "the last"
    );
    assert_eq!(
        finish(&[2, 9]),
        [of(2, 3, Some(1)), of(9, 10, Some(1))],
        "in two commits"
    );
    assert_eq!(finish(&[4, 5, 6]), [of(4, 7, None)], "a whole commit");
    assert_eq!(finish(&[4, 5]), [of(4, 7, None)], "a commit and one of its records");
    assert_eq!(
        finish(&[7, 8, 9, 10, 11]),
        [between(&pieces[7], end.position, None)],
        "the last commit"
    );
}

#[test]
fn what_is_missing_at_the_end_is_told_if_it_may_have_been_durable_and_nothing_continues_behind_it() {
    let (pieces, end) = commits(&[3, 2]);
    let further = end.position.plus(2 * BLOCK_BYTES);
    let finish = |known, durable| told(&walk(header(false), &pieces, &[]).finish(further, known, durable));
    let offset = DATA_OFFSET + end.position.get() - BASE.get();
    let lacks = [(offset, end.position, further, None)];
    assert_eq!(finish(None, UNKNOWN), lacks);
    assert_eq!(finish(None, end.position), [], "it was never durable");
    assert_eq!(finish(None, end.position.plus(8)), lacks);
    let behind = Cursor {
        position: further,
        ..end
    };
    assert_eq!(finish(Some(behind), UNKNOWN), [], "the next segment continues here");
    let other = Cursor { hash: 1, ..behind };
    assert_eq!(finish(Some(other), UNKNOWN), lacks);
}

#[test]
fn of_many_stretches_in_one_segment_the_last_one_told_counts_the_rest() {
    let (pieces, end) = commits(&[601]);
    let damaged: Vec<usize> = (1..601).step_by(2).collect();
    let dropped = walk(header(false), &pieces, &damaged).finish(end.position, None, UNKNOWN);
    assert_eq!(dropped.len(), 256);
    assert_eq!(dropped.iter().filter_map(|one| one.records).sum::<u64>(), 300);
    let last = dropped.last().unwrap();
    assert_eq!(last.position, pieces[511].position);
    assert_eq!(last.position.plus(last.bytes), pieces[599].end());
}

#[test]
fn in_a_rewritten_segment_a_hole_shows_by_its_offset() {
    let header = header(true);
    let pieces: Vec<Piece> = [0, 5000, 9000, 20_000]
        .map(|at| Piece::record(BASE.plus(at), &[5; 100]))
        .into();
    let offsets = [0, STORED, 3 * STORED, 4 * STORED].map(|at| DATA_OFFSET + at);
    let mut losses = Losses::new("a segment", header);
    for (piece, offset) in pieces.iter().zip(offsets) {
        assert_eq!(losses.find(offset, &piece.header(), &piece.bytes), piece.end());
    }
    let end = DATA_OFFSET + 5 * STORED;
    let wanted = [
        (offsets[1] + STORED, pieces[1].end(), pieces[2].position, None),
        (end, pieces[3].end(), header.end, None),
    ];
    assert_eq!(told(&losses.finish(header.end, None, UNKNOWN)), wanted);
}

/// A file of a segment, with a block before its records.
fn file(disk: &SimDisk, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.open(&segment_name(1), OpenFile::Fresh).unwrap();
    slots::write(file.as_ref(), 0, &[&[0; BLOCK_BYTES as usize], bytes].concat()).unwrap();
    file
}

/// The segment's bytes, as it was written.
fn written(pieces: &[Piece]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.resize((piece.position.get() - BASE.get()) as usize, 0);
        bytes.extend_from_slice(&piece.bytes);
    }
    bytes.resize(block_aligned(bytes.len() as u64) as usize, 0);
    bytes
}

#[test]
fn the_base_of_a_segment_without_its_header_is_told_by_any_of_its_commits() {
    let (pieces, end) = commits(&[3, 2, 4]);
    let find = |damaged: &[usize], from: Position| {
        let mut bytes = written(&pieces);
        for index in damaged {
            bytes[(pieces[*index].offset() - DATA_OFFSET) as usize + 40] ^= 1;
        }
        let disk = SimDisk::new(1);
        let length = BLOCK_BYTES + bytes.len() as u64;
        recovery::find_base(file(&disk, &bytes).as_ref(), "a segment", length, from).unwrap()
    };
    // The last commit names its own beginning.
    let found = Some((BASE, Position(end.position.0 - BLOCK_BYTES)));
    assert_eq!(find(&[], BASE), found);
    assert_eq!(find(&[0], Position::ZERO), found);
    assert_eq!(find(&[0, 4], Position::ZERO), found);
    assert_eq!(find(&[7], BASE), Some((BASE, pieces[4].position)));
    assert_eq!(find(&[0, 4, 7], BASE), None);
    assert_eq!(find(&[], BASE.plus(BLOCK_BYTES)), None, "a former life");
}

#[test]
fn a_rewritten_segment_is_read_in_order_and_to_its_end() {
    let segment = SegmentHeader {
        end: BASE.plus(9000),
        ..header(true)
    };
    let scan = |places: &[u64]| {
        let bytes: Vec<u8> = places
            .iter()
            .flat_map(|at| Piece::record(BASE.plus(*at), &[5; 100]).bytes)
            .collect();
        let disk = SimDisk::new(1);
        let length = BLOCK_BYTES + bytes.len() as u64;
        recovery::scan_compacted(file(&disk, &bytes).as_ref(), &segment, length).unwrap()
    };
    let positions =
        |index: &Index| -> Vec<u64> { index.entries(BASE).map(|entry| entry.position.0 - BASE.0).collect() };
    assert_eq!(positions(&scan(&[0, 5000, 8000]).unwrap()), [0, 5000, 8000]);
    assert!(scan(&[0, 5000, 4000]).is_err(), "out of order");
    assert!(scan(&[0, 5000, 9000]).is_err(), "behind the end");
    let (disk, bytes) = (SimDisk::new(1), Piece::record(BASE, &[5; 100]).bytes);
    let file = file(&disk, &bytes);
    let mut window = Window::new(file.as_ref(), "a segment", BLOCK_BYTES + STORED);
    let mut next = |from| {
        scan::next_stored(&mut window, DATA_OFFSET, from, segment.end)
            .unwrap()
            .is_ok()
    };
    assert!(next(BASE));
    assert!(!next(BASE.plus(8)));
}

#[test]
fn what_the_layer_above_cannot_read_is_told_with_its_place_and_length() {
    let mut index = Index::default();
    for number in 0..4 {
        let entry = IndexEntry {
            position: BASE.plus(1000 + number * 1000),
            epoch: 1,
            kind: 16,
            slack: 0,
            head: b"head",
            payload_length: 100,
        };
        index.push_entry(BASE, &entry);
    }
    let mut report = RecoveryReport::default();
    let mut unreadable = Unreadable::default();
    let mut visitor = |record: Recovered<'_>| match (record.position.0 - BASE.0) / 1000 {
        2 | 3 => Err("what is this?".to_owned()),
        _ => Ok(()),
    };
    recovery::visit(&index, BASE, &mut report, &mut visitor, Some(&mut unreadable)).unwrap();
    assert_eq!(report.records, 2);
    let dropped = recovery::dropped_unreadable(&unreadable, "a segment", BASE).unwrap();
    assert_eq!(
        (dropped.offset, dropped.position),
        (DATA_OFFSET + 2000, BASE.plus(2000))
    );
    assert_eq!((dropped.bytes, dropped.records), (2 * (32 + 4 + 100), Some(2)));
}

#[test]
fn a_slot_of_another_kind_of_file_is_not_taken_for_this_ones() {
    let disk = SimDisk::new(1);
    let file = disk.open("slots", OpenFile::Fresh).unwrap();
    slots::write(file.as_ref(), 0, &slots::encode(b"STERNAMF", 4, b"content")).unwrap();
    let read = |magic| slots::read(file.as_ref(), 0, 100, magic).unwrap();
    assert!(matches!(read(b"STERNAMF"), Slot::Present { sequence: 4, content } if content == b"content"));
    assert!(matches!(read(b"STERNAWM"), Slot::Unreadable));
    let read = |content_max| slots::read(file.as_ref(), 0, content_max, b"STERNAMF").unwrap();
    assert!(matches!(read(7), Slot::Present { .. }));
    assert!(matches!(read(6), Slot::Unreadable));
    disk.edit("slots", |bytes| bytes[30] ^= 1);
    assert!(matches!(read(7), Slot::Unreadable));
}

/// What is saved of a file with these bytes, which may be damaged.
fn saved(disk: &SimDisk, header: SegmentHeader, bytes: &[u8]) -> Salvaged {
    saved_without(disk, header, bytes, None)
}

fn saved_without(disk: &SimDisk, header: SegmentHeader, bytes: &[u8], unreadable: Option<&Unreadable>) -> Salvaged {
    let file = file(disk, bytes);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let patient = Patient {
        disk: &shared,
        file: Some(file.as_ref()),
        file_bytes: BLOCK_BYTES + bytes.len() as u64,
        header,
        durable: BASE,
        unreadable,
        known: None,
        states: &[],
        unproven: true,
    };
    salvage(&patient, 2).unwrap()
}

fn messages(saved: &Salvaged) -> Vec<Position> {
    let entries = saved.footer.index.entries(BASE);
    entries
        .filter(|entry| entry.kind >= 16)
        .map(|entry| entry.position)
        .collect()
}

#[test]
fn a_copy_says_what_it_stands_for_in_its_own_header() {
    let (pieces, end) = commits(&[3, 2]);
    let disk = SimDisk::new(1);
    let saved = saved(&disk, header(false), &written(&pieces));
    assert_eq!(messages(&saved).len(), 5);
    let block = disk.contents(&segment_name(2)).unwrap();
    let wanted = SegmentHeader {
        id: 2,
        end: end.position,
        hash_after: end.hash,
        epoch_after: end.epoch,
        compacted: true,
        ..header(false)
    };
    assert_eq!(SegmentHeader::decode_raw(&block), Some(wanted));
}

#[test]
fn of_a_damaged_rewritten_segment_all_that_verifies_is_saved() {
    let places = [0, 5000, 9000, 20_000].map(|at| BASE.plus(at));
    let mut bytes: Vec<u8> = places
        .iter()
        .flat_map(|position| Piece::record(*position, &[5; 100]).bytes)
        .collect();
    bytes[STORED as usize + 50] ^= 1;
    let saved = saved(&SimDisk::new(1), header(true), &bytes);
    assert_eq!(messages(&saved), [places[0], places[2], places[3]]);
}

/// A message that holds a record, at a place where one could begin.
fn around(position: Position, inner: &Piece) -> Piece {
    Piece::record(position, &[&[0; 4], &inner.bytes[..]].concat())
}

#[test]
fn what_looks_like_a_record_inside_a_damaged_message_is_not_taken_for_one() {
    // A message that holds a log's bytes, and whose own header does not verify.
    let start = BASE.plus(COMMIT_BYTES as u64);
    let inner = Piece::record(start.plus(3000), &[6; 50]);
    let outer = around(start, &inner);
    let mut bytes = written(&[outer]);
    bytes[COMMIT_BYTES + 4] ^= 1;
    assert_eq!(messages(&saved(&SimDisk::new(1), header(false), &bytes)), []);
    // Of a rewritten one nothing is taken that its header excludes.
    for outside in [header(true).end, Position(BASE.get() - 8)] {
        let mut bytes = around(BASE, &Piece::record(outside, &[6; 50])).bytes;
        bytes[4] ^= 1;
        assert_eq!(messages(&saved(&SimDisk::new(1), header(true), &bytes)), []);
    }
    let mut skip = record::encode_skip(BASE.plus(8), 1, 400).to_vec();
    skip.extend_from_slice(&Piece::record(BASE.plus(5000), &[5; 100]).bytes);
    let saved = saved(&SimDisk::new(1), header(true), &skip);
    assert_eq!(messages(&saved), [BASE.plus(5000)]);
    assert!(saved.footer.index.entries(BASE).all(|entry| entry.kind != KIND_SKIP));
}

#[test]
fn what_is_older_than_its_place_or_cannot_be_read_above_is_left_out() {
    let (pieces, _) = commits(&[3, 2]);
    let later = SegmentHeader {
        epoch: 2,
        ..header(false)
    };
    let left = saved(&SimDisk::new(1), later, &written(&pieces));
    assert_eq!(messages(&left), [], "of an earlier epoch");
    let bytes: Vec<u8> = [0, 5000, 4000, 6000]
        .iter()
        .flat_map(|at| Piece::record(BASE.plus(*at), &[5; 100]).bytes)
        .collect();
    let left = saved(&SimDisk::new(1), header(true), &bytes);
    assert_eq!(messages(&left), [0, 5000, 6000].map(|at| BASE.plus(at)), "out of order");
    let unreadable = Unreadable::from([(pieces[2].position, (STORED, "what is this?".to_owned()))]);
    let left = saved_without(&SimDisk::new(1), header(false), &written(&pieces), Some(&unreadable));
    let kept = [1, 3, 5, 6].map(|index: usize| pieces[index].position);
    assert_eq!(messages(&left), kept);
}

/// Three segments with room at their ends, of which the second is gone, and both manifests with it: nothing but its records
/// tells where the first one ended.
fn alone() -> (Begun, SimDisk) {
    let found = roomy(3);
    let disk = found.disk.clone();
    MANIFEST_FILES.iter().for_each(|name| disk.remove(name).unwrap());
    disk.remove(&segment_name(2)).unwrap();
    disk.sync_directory().unwrap();
    (found, disk)
}

#[test]
fn a_segment_that_stands_alone_ends_with_its_records_and_not_with_its_room() {
    let (Begun { appended, bounds, .. }, disk) = alone();
    let host = Host::open(&disk, forced()).unwrap();
    let told: Vec<_> = host
        .report
        .dropped
        .iter()
        .map(|lost| (lost.position, lost.bytes))
        .collect();
    assert_eq!(told, [(bounds[0].1, bounds[2].0.get() - bounds[0].1.get())]);
    let gone = bounds[1].0..bounds[2].0;
    let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
    let left = appended.keys().copied().filter(|position| !gone.contains(position));
    assert_eq!(found, left.collect::<Vec<_>>());
}

#[test]
fn what_lies_behind_damage_in_a_segment_that_stands_alone_is_kept() {
    let (Begun { appended, bounds, .. }, disk) = alone();
    let victim = *appended.keys().nth(1).unwrap();
    damage(&disk, 1, bounds[0].0, victim);
    let host = Host::open(&disk, forced()).unwrap();
    let gone = bounds[1].0..bounds[2].0;
    let found: Vec<Position> = host.recovered.iter().map(|record| record.0).collect();
    let left = appended
        .keys()
        .copied()
        .filter(|position| *position != victim && !gone.contains(position));
    assert_eq!(found, left.collect::<Vec<_>>());
}

/// Two records with a payload for each without, in segments that are sealed.
fn heads_among_messages() -> Host {
    let mut host = Host::open(&SimDisk::new(4), options()).unwrap();
    let mut random = Random::new(4);
    for index in 0..150 {
        let (head, payload) = (random.bytes(20), random.bytes((index % 3).min(1) * 3000));
        let position = loop {
            match host.log.append(20, &head, &payload) {
                Ok(position) => break position,
                Err(_) => {
                    host.commit().unwrap();
                    host.maintain(&KeepAll).unwrap();
                }
            }
        };
        let known = Known {
            kind: 20,
            head,
            payload,
        };
        host.appended.insert(position, known);
    }
    host.commit().unwrap();
    host.maintain(&KeepAll).unwrap();
    host
}

#[test]
fn what_a_footer_and_the_file_both_tell_is_taken_once() {
    let Host {
        disk, log, appended, ..
    } = heads_among_messages();
    let entry = log.manifest.entries[1];
    drop(log);
    assert!(entry.sealed);
    let mut messages = appended
        .range(entry.base..entry.end)
        .filter(|(_, known)| !known.payload.is_empty());
    let victim = *messages.nth(3).unwrap().0;
    damage(&disk, entry.id, entry.base, victim);
    let found = |host: &Host| -> Vec<Position> { host.recovered.iter().map(|record| record.0).collect() };
    // What a sealed segment holds is looked at when its header is lost.
    disk.edit(&segment_name(entry.id), |bytes| bytes[0] ^= 1);
    let host = Host::open(&disk, forced()).unwrap();
    let left: Vec<Position> = appended
        .keys()
        .copied()
        .filter(|position| *position != victim)
        .collect();
    assert_eq!(found(&host), left);
    let host = host.reopen(options()).unwrap();
    assert_eq!(found(&host), left);
}

#[test]
fn of_what_a_footer_alone_has_it_is_said_that_its_head_was_replaced_and_of_no_commit() {
    let Host { disk, log, .. } = heads_among_messages();
    let entry = log.manifest.entries[1];
    drop(log);
    disk.remove(&segment_name(entry.id)).unwrap();
    disk.sync_directory().unwrap();
    let host = Host::open(&disk, forced()).unwrap();
    let copy = host
        .log
        .segments
        .iter()
        .find(|segment| segment.base == entry.base)
        .unwrap();
    assert!(copy.compacted);
    let bytes = disk.contents(&segment_name(copy.id)).unwrap();
    let (mut at, mut records) = (DATA_OFFSET as usize, 0);
    while at < copy.file_bytes as usize {
        let header = RecordHeader::decode(&bytes[at..], u64::MAX).unwrap();
        assert_eq!(header.rewritten, header.kind != KIND_COMMIT, "{header:?}");
        records += usize::from(header.kind == 20);
        at += header.stored() as usize;
    }
    assert!(records > 3, "{records}");
}
