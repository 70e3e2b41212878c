//! What is written byte by byte, and what is refused when a single field is not as it should be; the cache's account;
//! which errors say what.

use std::io;

use bytes::Bytes;
use rustix::io::Errno;

use super::*;
use crate::log::cache::{Cache, Extent};
use crate::log::commit::{COMMIT_BYTES, CommitHead};
use crate::log::disk::{Disk, DiskError, OpenFile};
use crate::log::file_disk::FileDisk;
use crate::log::record::{self, KIND_COMMIT, KIND_SKIP, RecordHeader, u32_at};
use crate::log::recovery::Damage;
use crate::log::segment_header::SegmentHeader;

const AT: Position = Position(8192);

fn encoded(kind: u8, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode(&mut bytes, AT, 3, kind, head, payload);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

#[test]
fn a_record_with_one_field_that_cannot_be_is_none() {
    let sound = encoded(16, b"head", b"payload");
    let decode = |bytes: &[u8]| RecordHeader::decode(bytes, bytes.len() as u64).is_ok();
    assert!(decode(&sound));
    // The kind, the slack, whether it was rewritten, and what is always zero.
    for (at, value) in [(28, 0), (29, 4), (30, 2), (31, 1), (24, 12), (4, 8)] {
        let mut wrong = sound.clone();
        wrong[at] = value;
        assert!(!decode(&wrong), "byte {at}");
    }
    assert!(!decode(&sound[..sound.len() - 8]), "it does not fit");
    let skip = record::encode_skip(AT, 3, 64);
    let decode = |bytes: &[u8]| RecordHeader::decode(bytes, 64).is_ok();
    assert!(decode(&skip));
    for (at, value) in [(4, HEADER_BYTES as u8 + 8), (24, 8), (24, 72)] {
        let mut wrong = skip;
        wrong[at] = value;
        assert!(!decode(&wrong), "byte {at} of a skip");
    }
    assert!(!RecordHeader::decode(&skip, 64).unwrap().is_hashed());
    assert!(RecordHeader::decode(&sound, 64).unwrap().is_hashed());
    assert_eq!(RecordHeader::decode(&skip, 64).unwrap().kind, KIND_SKIP);
}

#[test]
fn a_group_commit_is_of_its_kind_and_its_lengths() {
    let head = CommitHead {
        span: 4096,
        used: 500,
        durable: Position(0),
        hash_before: 1,
        hash_after: 2,
        records: 3,
    };
    let sound = head.encode(AT, 3);
    let body = &sound[HEADER_BYTES..COMMIT_BYTES];
    let verify = |bytes: &[u8]| CommitHead::verify(bytes, AT, 8192).is_ok();
    assert!(verify(&encoded(KIND_COMMIT, body, b"")));
    assert!(!verify(&encoded(16, body, b"")), "another kind");
    assert!(!verify(&encoded(KIND_COMMIT, &body[..20], &body[20..])), "another head");
    assert!(!verify(&encoded(KIND_COMMIT, body, b"payload.")), "another length");
}

#[test]
fn logs_with_other_records_have_other_hashes() {
    let hash = |payloads: &[&[u8]]| {
        let mut host = Host::open(&SimDisk::new(1), options()).unwrap();
        let before = host.log.rolling_hash().value;
        for payload in payloads {
            host.log.append(16, b"head", payload).unwrap();
        }
        host.commit().unwrap();
        assert_eq!(host.log.durable_hash().value, host.log.rolling_hash().value);
        assert_ne!(host.log.rolling_hash().value, before);
        host.log.rolling_hash().value
    };
    assert_eq!(hash(&[b"a", b"b"]), hash(&[b"a", b"b"]));
    let others = [
        hash(&[b"a", b"b"]),
        hash(&[b"b", b"a"]),
        hash(&[b"c", b"b"]),
        hash(&[b"c"]),
    ];
    let different: std::collections::BTreeSet<u64> = others.into_iter().collect();
    assert_eq!(different.len(), others.len(), "{others:?}");
}

#[test]
fn a_commit_whose_hash_is_not_that_of_its_records_is_damage() {
    let mut host = filled(4, 20, 1000);
    let start = host.log.durable();
    host.append(&mut Random::new(3), 500).unwrap();
    host.commit().unwrap();
    let segment = host.log.segments.last().unwrap();
    let (name, offset) = (
        crate::log::segment_header::segment_name(segment.id),
        segment.offset_of(start) as usize,
    );
    let disk = host.disk.clone();
    drop(host);
    disk.kill_process();
    let epoch = {
        let bytes = disk.contents(&name).unwrap();
        let (header, head) = CommitHead::verify(&bytes[offset..], start, 1 << 20).unwrap();
        let wrong = CommitHead {
            hash_after: head.hash_after ^ 1,
            ..head
        };
        let encoded = wrong.encode(start, header.epoch);
        disk.edit(&name, |bytes| {
            bytes[offset..offset + COMMIT_BYTES].copy_from_slice(&encoded);
        });
        header.epoch
    };
    assert!(epoch > 0);
    assert!(matches!(Host::open(&disk, options()), Err(LogError::Damaged { .. })));
}

#[test]
fn a_segments_header_has_its_magic_its_version_and_its_checksum() {
    let header = SegmentHeader {
        store_id: [9; 16],
        id: 7,
        base: AT,
        ..SegmentHeader::decode_raw(&filled(1, 3, 10).disk.contents("0000000000000001.segment").unwrap()).unwrap()
    };
    let sound = header.encode();
    let used = (12..=256)
        .find(|end| crc32c::crc32c(&sound[..end - 4]) == u32_at(&sound, end - 4))
        .unwrap();
    assert!(SegmentHeader::decode_raw(&sound).is_some());
    assert!(SegmentHeader::decode_any(&sound, 8).is_none());
    for at in [0, 8, 40] {
        let mut wrong = sound.clone();
        wrong[at] ^= 1;
        assert!(SegmentHeader::decode_raw(&wrong).is_none(), "the checksum is wrong");
        let crc = crc32c::crc32c(&wrong[..used - 4]);
        wrong[used - 4..used].copy_from_slice(&crc.to_le_bytes());
        let is_ours = SegmentHeader::decode_raw(&wrong).is_some();
        assert_eq!(is_ours, at == 40, "byte {at}, checksummed");
    }
}

#[test]
fn a_chunk_is_a_stretch_of_whole_blocks_with_records_that_lie_in_it() {
    let chunk = |from: u64, to: u64, records: &[u8]| {
        let mut bytes = Vec::new();
        [from, to, 5]
            .iter()
            .for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        bytes.extend_from_slice(records);
        LogChunk::decode(&Bytes::from(bytes))
    };
    assert!(chunk(4096, 8192, b"").is_ok());
    assert!(chunk(4096, 4096, b"").is_ok(), "nothing is a stretch");
    for (from, to) in [(8192, 4096), (4100, 8192), (4096, 8200)] {
        assert!(chunk(from, to, b"").is_err(), "{from} {to}");
    }
    assert!(LogChunk::decode(&Bytes::from(vec![0; 24])).is_ok());
    assert!(LogChunk::decode(&Bytes::from(vec![0; 23])).is_err());
    let record = encoded(16, b"head", b"payload");
    let read = |from, to, records: &[u8]| -> Vec<bool> {
        let chunk = chunk(from, to, records).unwrap();
        chunk.records().map(|record| record.is_ok()).collect()
    };
    assert_eq!(read(8192, 12_288, &record), [true]);
    assert_eq!(read(4096, 8192, &record), [false], "it is behind");
    assert_eq!(read(12_288, 16_384, &record), [false], "it is before");
    assert_eq!(
        read(8192, 12_288, &record[..record.len() - 8]),
        [false],
        "it is cut short"
    );
}

fn extent(start: u64, bytes: usize) -> Extent {
    Extent {
        start: Position(start),
        end: Position(start + bytes as u64),
        bytes: vec![0; bytes].into(),
        places: None,
    }
}

#[test]
fn the_cache_knows_what_it_holds() {
    let mut cache = Cache::new(10_000);
    let empty = cache.bytes();
    cache.insert(extent(0, 1000));
    let each = cache.bytes() - empty - 1000;
    let held = |cache: &Cache, bytes: &[usize]| {
        let wanted: usize = bytes.iter().map(|bytes| bytes + each).sum();
        assert_eq!(cache.bytes() - empty, wanted);
    };
    // One that brings less than is there, and one that brings more.
    cache.insert(extent(0, 500));
    held(&cache, &[1000]);
    cache.insert(extent(0, 2000));
    held(&cache, &[2000]);
    cache.insert(extent(4000, 1000));
    cache.insert(extent(6000, 1000));
    held(&cache, &[2000, 1000, 1000]);
    assert!(cache.find(Position(1500)).is_some());
    cache.forget(Position(4000), Position(6000));
    held(&cache, &[2000, 1000]);
    assert!(cache.find(Position(4500)).is_none());
    assert!(cache.find(Position(6500)).is_some());
    // What is left makes room as before.
    (0..40).for_each(|number| cache.insert(extent(10_000 + number * 1000, 1000)));
    assert!(cache.bytes() <= 10_000, "{}", cache.bytes());
    for gone in [100, 6500] {
        assert!(cache.find(Position(gone)).is_none(), "{gone} came first");
    }
    cache.forget(Position(0), Position(u64::MAX));
    assert_eq!(cache.bytes(), empty);
}

#[test]
fn damaged_places_are_counted_once_each() {
    let mut host = filled(4, 100, 2000);
    let mut note = |file: &str, offset, position| {
        host.log.note_damage(Damage {
            file: file.to_owned(),
            offset,
            position: Position(position),
            why: "a test".to_owned(),
        });
        (host.log.damaged_places().len(), host.log.damaged_total())
    };
    assert_eq!(note("a", 100, 4200), (1, 1));
    assert_eq!(note("a", 100, 4200), (1, 1), "the same");
    assert_eq!(note("a", 100, 4300), (1, 1), "the same block");
    assert_eq!(note("a", 200, 4200), (1, 1), "the same record");
    assert_eq!(note("b", 100, 4200), (2, 2), "another file");
    assert_eq!(note("a", 300, 4400), (3, 3), "another place");
    for place in 1..=300 {
        note("c", place, 5000 + place);
    }
    assert_eq!(
        note("d", 1, 1),
        (256, 304),
        "the first ones are remembered, all are counted"
    );
}

#[test]
fn errors_say_whether_they_pass_and_whether_a_place_is_damaged() {
    let error = |errno: Errno| DiskError::new("read", "a", io::Error::from(errno));
    for (errno, no_space, passes, unreadable) in [
        (Errno::NOSPC, true, true, false),
        (Errno::DQUOT, true, true, false),
        (Errno::MFILE, false, true, false),
        (Errno::NOMEM, false, true, false),
        (Errno::IO, false, false, true),
        (Errno::BADMSG, false, false, true),
        (Errno::ROFS, false, false, false),
    ] {
        let error = error(errno);
        let said = (error.is_no_space(), error.passes(), error.is_unreadable());
        assert_eq!(said, (no_space, passes, unreadable), "{errno}");
    }
}

#[test]
fn a_real_folder_loses_what_is_removed_and_says_what_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FileDisk::new(folder.path()).unwrap();
    let file = disk.open("a", OpenFile::Fresh).unwrap();
    file.allocate(300_000).unwrap();
    file.write_at(0, &[io::IoSlice::new(&[7; 300_000])]).unwrap();
    file.zero_at(4096, 270_336).unwrap();
    let mut found = vec![1; 300_000];
    assert_eq!(file.read_at(0, &mut found).unwrap(), found.len());
    let zeros = 4096..4096 + 270_336;
    let wanted = |(at, byte): (usize, &u8)| *byte == if zeros.contains(&at) { 0 } else { 7 };
    assert!(found.iter().enumerate().all(wanted));
    disk.remove("a").unwrap();
    assert!(disk.list().unwrap().is_empty());
    disk.remove("a").unwrap();
    std::fs::create_dir(folder.path().join("b")).unwrap();
    assert!(disk.remove("b").is_err(), "a folder is no file");
    assert_eq!(disk.list().unwrap(), ["b"]);
}

#[test]
fn the_largest_record_is_taken_and_one_byte_more_is_not() {
    let mut host = Host::open(&SimDisk::new(5), options()).unwrap();
    host.maintain(&KeepAll).unwrap();
    let largest = options().record_bytes_max as usize - HEADER_BYTES - 4;
    let check = |host: &Host, bytes: usize| host.log.check_room(&[bytes as u64 + 4], Purpose::Fill);
    check(&host, largest).unwrap();
    assert!(matches!(check(&host, largest + 1), Err(AppendError::TooLarge { .. })));
    host.log.append(16, b"head", &vec![7; largest]).unwrap();
    let refused = host.log.append(16, b"head", &vec![7; largest + 1]);
    assert!(matches!(refused, Err(AppendError::TooLarge { .. })));
}
