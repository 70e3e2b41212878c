//! Walking the records of a segment file with every check: the one reader behind recovery, footers that must be made
//! again, compaction, scrubbing and shipping.
//!
//! Nothing is believed: lengths are checked against the file before memory is taken, then positions, epochs, checksums and
//! the rolling hash.

use super::commit::{COMMIT_BYTES, CommitHead};
use super::disk::{DiskError, DiskFile, read_places};
use super::position::{BLOCK_BYTES, Position};
use super::record::{self, HEADER_BYTES, KIND_SKIP, RecordHeader};
use super::segment_header::DATA_OFFSET;

const WINDOW_BYTES: usize = 1024 * 1024;

/// A sliding buffer over a file.
pub(crate) struct Window<'a> {
    file: &'a dyn DiskFile,
    name: &'a str,
    /// Nothing is read from here on.
    limit: u64,
    buffer: Vec<u8>,
    start: u64,
    /// The last place that the disk could not give back.
    broken: Option<u64>,
}

impl<'a> Window<'a> {
    pub fn new(file: &'a dyn DiskFile, name: &'a str, limit: u64) -> Self {
        Self {
            file,
            name,
            limit,
            buffer: Vec::new(),
            start: 0,
            broken: None,
        }
    }

    /// Why what begins at `offset` does not verify; a place that could not be read explains it.
    pub fn explain(&self, why: &str, offset: u64) -> String {
        match self
            .broken
            .filter(|&broken| broken >= offset / BLOCK_BYTES * BLOCK_BYTES)
        {
            Some(broken) => format!("{why}; the disk cannot read what is at offset {broken}"),
            None => why.to_owned(),
        }
    }

    /// The bytes from `offset`: `length` of them, or fewer where the file or the limit ends.
    pub fn get(&mut self, offset: u64, length: usize) -> Result<&[u8], DiskError> {
        let length = (length as u64).min(self.limit.saturating_sub(offset)) as usize;
        let have = self.start <= offset && offset + length as u64 <= self.start + self.buffer.len() as u64;
        if !have {
            let wanted = (length.max(WINDOW_BYTES) as u64).min(self.limit.saturating_sub(offset)) as usize;
            self.buffer.resize(wanted, 0);
            let (filled, broken) = read_places(self.file, offset, &mut self.buffer)
                .map_err(|error| DiskError::new("read", self.name, error))?;
            self.broken = broken.or(self.broken);
            self.buffer.truncate(filled);
            self.start = offset;
        }
        let from = ((offset - self.start) as usize).min(self.buffer.len());
        let to = (from + length).min(self.buffer.len());
        Ok(&self.buffer[from..to])
    }
}

/// How far the walk has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cursor {
    pub position: Position,
    pub epoch: u64,
    pub hash: u64,
}

/// A group commit in which everything verifies.
pub(crate) struct VerifiedCommit<'w> {
    /// From the commit record to the last record.
    pub bytes: &'w [u8],
    /// Where the walk stands after it.
    pub after: Cursor,
}

/// What lies at the cursor.
pub(crate) enum Step<'w> {
    Commit(VerifiedCommit<'w>),
    /// The segment has no room for another commit.
    Full,
    /// No valid commit that continues the log: `offset` and `position` are the broken record's.
    Broken {
        offset: u64,
        position: Position,
        why: &'static str,
    },
}

/// Verifies the commit at the cursor in a segment that begins at `base`.
pub(crate) fn next_commit<'w>(
    window: &'w mut Window<'_>,
    base: Position,
    cursor: Cursor,
) -> Result<Step<'w>, DiskError> {
    let offset = DATA_OFFSET + (cursor.position.0 - base.0);
    let room = window.limit.saturating_sub(offset);
    if room < BLOCK_BYTES {
        return Ok(Step::Full);
    }
    let broken = |why| {
        Ok(Step::Broken {
            offset,
            position: cursor.position,
            why,
        })
    };
    let commit = match CommitHead::verify(window.get(offset, COMMIT_BYTES)?, cursor.position, room) {
        Ok((header, commit)) if header.epoch >= cursor.epoch => commit,
        Ok(_) => return broken("group commit of an earlier epoch"),
        Err(why) => return broken(why),
    };
    if commit.hash_before != cursor.hash {
        return broken("group commit of another history");
    }
    let bytes = window.get(offset, commit.used as usize)?;
    if bytes.len() < commit.used as usize {
        return broken("group commit cut short");
    }
    Ok(match check_records(bytes, cursor, &commit) {
        Ok(epoch) => {
            let position = cursor.position.plus(u64::from(commit.span));
            Step::Commit(VerifiedCommit {
                bytes,
                after: Cursor {
                    position,
                    epoch,
                    hash: commit.hash_after,
                },
            })
        }
        Err((at, why)) => Step::Broken {
            offset: offset + at as u64,
            position: cursor.position.plus(at as u64),
            why,
        },
    })
}

/// Verifies every record of a commit and the hash over them; returns the epoch after it.
fn check_records(bytes: &[u8], cursor: Cursor, commit: &CommitHead) -> Result<u64, (usize, &'static str)> {
    let (mut at, mut hash, mut epoch, mut count) = (COMMIT_BYTES, cursor.hash, cursor.epoch, 0);
    // Position space that is not stored cannot be hashed: such a commit's own word is taken for the hash.
    let mut gap = commit.records == 0;
    while at < bytes.len() {
        let position = cursor.position.plus(at as u64);
        let room = (bytes.len() - at) as u64;
        let header = record::verify(&bytes[at..], position, room).map_err(|why| (at, why))?;
        if header.epoch < epoch {
            return Err((at, "record of an earlier epoch"));
        }
        epoch = header.epoch;
        if header.is_hashed() {
            hash = record::chain(hash, header.crc);
        }
        gap |= header.kind == KIND_SKIP || header.rewritten;
        count += 1;
        at += header.span() as usize;
    }
    if count != commit.records {
        return Err((0, "group commit with another number of records"));
    }
    if !gap && hash != commit.hash_after {
        return Err((0, "rolling hash does not match"));
    }
    Ok(epoch)
}

/// One record inside bytes that were verified before.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub header: RecordHeader,
    /// Where it begins in the bytes walked.
    pub at: usize,
    pub head: &'a [u8],
    pub payload: &'a [u8],
}

/// The records in verified bytes, commit records included. `by_span`: the bytes mirror position space (a segment as it was
/// written); otherwise records lie one after another (a compacted one).
pub(crate) fn records(bytes: &[u8], by_span: bool) -> impl Iterator<Item = Stored<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..)?;
        let header = RecordHeader::decode(rest, u64::MAX).ok()?;
        let head_end = if header.kind == KIND_SKIP {
            HEADER_BYTES
        } else {
            HEADER_BYTES + header.head_length as usize
        };
        let head = rest.get(HEADER_BYTES..head_end)?;
        let payload = rest.get(head_end..header.length as usize)?;
        let stored = Stored {
            header,
            at,
            head,
            payload,
        };
        at += if by_span { header.span() } else { header.stored() } as usize;
        Some(stored)
    })
}

/// Verifies the record at `offset` of a compacted file, which must lie in `from..end` of position space.
pub(crate) fn next_stored<'w>(
    window: &'w mut Window<'_>,
    offset: u64,
    from: Position,
    end: Position,
) -> Result<Result<(RecordHeader, &'w [u8]), &'static str>, DiskError> {
    let room = window.limit.saturating_sub(offset);
    let header = match RecordHeader::decode(window.get(offset, HEADER_BYTES)?, u64::MAX) {
        Ok(header) if header.stored() <= room && header.kind != KIND_SKIP => header,
        Ok(_) => return Ok(Err("lengths do not fit")),
        Err(why) => return Ok(Err(why)),
    };
    if header.position < from || header.position >= end {
        return Ok(Err("record of another position"));
    }
    let bytes = window.get(offset, header.stored() as usize)?;
    Ok(record::verify(bytes, header.position, room).map(|header| (header, bytes)))
}
