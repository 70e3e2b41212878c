//! The index of a sealed segment: the heads of its records in order, so that a restart need not read payloads.
//!
//! Kept in a file of its own beside the segment, checksummed whole. It is derived: when it is missing or broken it is made
//! again from the segment. Built in memory while the segment is written, or by recovery's scan.
//!
//! Content (inside a slot, see [`super::slots`]): fixed part, then an entry for each record: offset from the segment's
//! base (4), payload length (4), epoch (8), head length (4), kind (1), slack (1), zero (2), head. A compacted segment's index also
//! lists the commit records that were kept, so that file offsets follow from adding up sizes.

use super::disk::{Disk, DiskError, OpenFile, read_places};
use super::position::{Position, record_aligned};
use super::record::{HEADER_BYTES, KIND_COMMIT, KIND_SKIP, RecordHeader, u32_at, u64_at};
use super::segment_header::{DATA_OFFSET, footer_name};
use super::slots::{self, Slot};

const MAGIC: &[u8; 8] = b"STERNAFT";
const FIXED_BYTES: usize = 16 + 8 * 7;
const ENTRY_BYTES: usize = 24;

/// The index while it grows, and after it was read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Index {
    bytes: Vec<u8>,
    /// Records of the state layer's kinds.
    pub user_records: u64,
}

/// One record of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IndexEntry<'a> {
    pub position: Position,
    pub epoch: u64,
    pub kind: u8,
    pub slack: u8,
    pub head: &'a [u8],
    pub payload_length: u32,
}

impl IndexEntry<'_> {
    /// What the record takes in a file.
    pub fn stored(&self) -> u64 {
        record_aligned(HEADER_BYTES as u64 + self.head.len() as u64 + u64::from(self.payload_length))
            + u64::from(self.slack)
    }
}

impl Index {
    /// Adds the next record.
    #[inline]
    pub fn push(&mut self, base: Position, header: &RecordHeader, head: &[u8]) {
        if header.kind != KIND_SKIP {
            let (position, payload_length) = (header.position, header.payload_length());
            let (epoch, kind, slack) = (header.epoch, header.kind, header.slack);
            self.push_entry(
                base,
                &IndexEntry {
                    position,
                    epoch,
                    kind,
                    slack,
                    head,
                    payload_length,
                },
            );
        }
    }

    /// Adds an entry of another index.
    #[inline]
    pub fn push_entry(&mut self, base: Position, entry: &IndexEntry<'_>) {
        let mut fixed = [0; ENTRY_BYTES];
        fixed[..4].copy_from_slice(&((entry.position.0 - base.0) as u32).to_le_bytes());
        fixed[4..8].copy_from_slice(&entry.payload_length.to_le_bytes());
        fixed[8..16].copy_from_slice(&entry.epoch.to_le_bytes());
        fixed[16..20].copy_from_slice(&(entry.head.len() as u32).to_le_bytes());
        fixed[20] = entry.kind;
        fixed[21] = entry.slack;
        self.bytes.extend_from_slice(&fixed);
        self.bytes.extend_from_slice(entry.head);
        self.user_records += u64::from(entry.kind >= super::record::KIND_USER_MIN);
    }

    /// A copy of what lies at a position or above it.
    pub fn from(&self, base: Position, position: Position) -> Self {
        let mut at = 0;
        while let Some((_, next)) = self.entry_at(base, at).filter(|(entry, _)| entry.position < position) {
            at = next;
        }
        Self {
            bytes: self.bytes[at..].to_vec(),
            user_records: self.user_records,
        }
    }

    /// The records in order.
    pub fn entries(&self, base: Position) -> impl Iterator<Item = IndexEntry<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (entry, next) = self.entry_at(base, at)?;
            at = next;
            Some(entry)
        })
    }

    /// The record whose entry begins at byte `at`, and where the next one begins.
    pub fn entry_at(&self, base: Position, at: usize) -> Option<(IndexEntry<'_>, usize)> {
        let fixed = self.bytes.get(at..at + ENTRY_BYTES)?;
        let next = at + ENTRY_BYTES + u32_at(fixed, 16) as usize;
        let entry = IndexEntry {
            position: base.plus(u64::from(u32_at(fixed, 0))),
            payload_length: u32_at(fixed, 4),
            epoch: u64_at(fixed, 8),
            kind: fixed[20],
            slack: fixed[21],
            head: self.bytes.get(at + ENTRY_BYTES..next)?,
        };
        Some((entry, next))
    }

    /// For a compacted file: position and file offset of a record every so often, to start reading from.
    pub fn landmarks(&self, base: Position) -> Vec<(Position, u64)> {
        const EVERY_BYTES: u64 = 64 * 1024;
        let mut landmarks: Vec<(Position, u64)> = Vec::new();
        let mut offset = DATA_OFFSET;
        for entry in self.entries(base) {
            if landmarks.last().is_none_or(|(_, last)| offset - last >= EVERY_BYTES) {
                landmarks.push((entry.position, offset));
            }
            offset += entry.stored();
        }
        landmarks
    }
}

/// A footer: what a sealed segment is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Footer {
    pub store_id: [u8; 16],
    pub id: u64,
    pub base: Position,
    pub end: Position,
    pub hash_before: u64,
    pub hash_after: u64,
    /// The epoch in force at the end.
    pub epoch: u64,
    pub index: Index,
}

impl Footer {
    /// The whole file, and the checksum the manifest remembers.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut content = Vec::with_capacity(FIXED_BYTES + self.index.bytes.len());
        content.extend_from_slice(&self.store_id);
        let numbers = [
            self.id,
            self.base.0,
            self.end.0,
            self.hash_before,
            self.hash_after,
            self.epoch,
        ];
        for number in numbers.into_iter().chain([self.index.user_records]) {
            content.extend_from_slice(&number.to_le_bytes());
        }
        content.extend_from_slice(&self.index.bytes);
        let bytes = slots::encode(MAGIC, self.id, &content);
        let crc = u32_at(&bytes, 20);
        (bytes, crc)
    }

    /// Reads a footer; `None` when it is missing, broken, or not the one with this checksum.
    pub fn read(disk: &dyn Disk, store_id: [u8; 16], id: u64, crc: u32) -> Result<Option<Self>, DiskError> {
        Self::read_checked(disk, store_id, id, Some(crc))
    }

    /// As [`Footer::read`], whatever its checksum is: for when no manifest says.
    pub fn read_any(disk: &dyn Disk, store_id: [u8; 16], id: u64) -> Result<Option<Self>, DiskError> {
        Self::read_checked(disk, store_id, id, None)
    }

    fn read_checked(disk: &dyn Disk, store_id: [u8; 16], id: u64, crc: Option<u32>) -> Result<Option<Self>, DiskError> {
        let name = footer_name(id);
        let file = match disk.open(&name, OpenFile::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let wrap = |error| DiskError::new("read", &name, error);
        let length = file.length().map_err(wrap)?;
        let mut known = [0; 4];
        read_places(file.as_ref(), 20, &mut known).map_err(wrap)?;
        if crc.is_some_and(|crc| u32::from_le_bytes(known) != crc) {
            return Ok(None);
        }
        match slots::read(file.as_ref(), 0, length, MAGIC).map_err(wrap)? {
            Slot::Present { sequence, content } if sequence == id => {
                Ok(Self::decode(content, store_id).filter(|footer| footer.id == id))
            }
            _ => Ok(None),
        }
    }

    fn decode(mut content: Vec<u8>, store_id: [u8; 16]) -> Option<Self> {
        if content.len() < FIXED_BYTES || content[..16] != store_id {
            return None;
        }
        let mut numbers = [0; 7];
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = u64_at(&content, 16 + index * 8);
        }
        let [id, base, end, hash_before, hash_after, epoch, user_records] = numbers;
        content.drain(..FIXED_BYTES);
        let index = Index {
            bytes: content,
            user_records,
        };
        let (base, end) = (Position(base), Position(end));
        Some(Self {
            store_id,
            id,
            base,
            end,
            hash_before,
            hash_after,
            epoch,
            index,
        })
    }
}

/// Whether an index lists this kind: commits only in compacted files.
pub(crate) fn is_indexed(kind: u8, compacted: bool) -> bool {
    kind != KIND_SKIP && (compacted || kind != KIND_COMMIT)
}
