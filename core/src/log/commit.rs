//! The record that opens every group commit. Written by write jobs, checked by recovery.
//!
//! A group commit is whole blocks: this record (72 bytes), the records, zeros to the next block. Recovery takes a commit
//! whole or not at all, so the cut of a torn tail is always at a block, below which everything was acknowledged or may be.
//!
//! Two things in it make the tail provable. The rolling hash of all records before it: a commit left over from before a
//! cut does not continue the chain and is never taken for a part of the new log. And the durable position known when it
//! was written: since one write is in flight at a time, a valid commit proves what lies before that position was synced,
//! so a broken commit in front of it is damage and not a torn tail.

use super::position::Position;
use super::record::{self, HEADER_BYTES, KIND_COMMIT, RecordHeader, u32_at, u64_at};

/// A commit record's size: header and head.
pub(crate) const COMMIT_BYTES: usize = HEADER_BYTES + COMMIT_HEAD_BYTES;
const COMMIT_HEAD_BYTES: usize = 40;

/// The head of a commit record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommitHead {
    /// Position space up to the next commit: whole blocks.
    pub span: u32,
    /// Bytes in use, this record included.
    pub used: u32,
    /// Everything below was on this disk when the commit was written.
    pub durable: Position,
    /// The rolling hash before the commit's first record.
    pub hash_before: u64,
    /// The rolling hash after its last record. Where records were skipped it cannot be computed, only believed.
    pub hash_after: u64,
    /// How many records follow, skips included. None: the commit only bridges a gap of position space.
    pub records: u32,
}

impl CommitHead {
    pub fn encode(&self, position: Position, epoch: u64) -> [u8; COMMIT_BYTES] {
        let mut head = [0; COMMIT_HEAD_BYTES];
        head[..4].copy_from_slice(&self.span.to_le_bytes());
        head[4..8].copy_from_slice(&self.used.to_le_bytes());
        head[8..16].copy_from_slice(&self.durable.0.to_le_bytes());
        head[16..24].copy_from_slice(&self.hash_before.to_le_bytes());
        head[24..32].copy_from_slice(&self.hash_after.to_le_bytes());
        head[32..36].copy_from_slice(&self.records.to_le_bytes());
        let mut bytes = [0; COMMIT_BYTES];
        record::encode(&mut bytes.as_mut_slice(), position, epoch, KIND_COMMIT, &head, &[]);
        bytes
    }

    /// Verifies the commit record that should be at `position`, with at most `room` bytes of position space for it.
    pub fn verify(bytes: &[u8], position: Position, room: u64) -> Result<(RecordHeader, Self), &'static str> {
        let header = record::verify(bytes, position, room)?;
        if header.kind != KIND_COMMIT
            || header.length as usize != COMMIT_BYTES
            || header.head_length as usize != COMMIT_HEAD_BYTES
        {
            return Err("no group commit here");
        }
        let head = &bytes[HEADER_BYTES..COMMIT_BYTES];
        let commit = Self {
            span: u32_at(head, 0),
            used: u32_at(head, 4),
            durable: Position(u64_at(head, 8)),
            hash_before: u64_at(head, 16),
            hash_after: u64_at(head, 24),
            records: u32_at(head, 32),
        };
        let sane = commit.used as usize >= COMMIT_BYTES
            && commit.used <= commit.span
            && u64::from(commit.span) <= room
            && u64::from(commit.span) % super::position::BLOCK_BYTES == 0;
        if sane {
            Ok((header, commit))
        } else {
            Err("group commit with impossible lengths")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_with_one_impossible_length_is_refused_whichever_it_is() {
        let (position, room) = (Position(8192), 8192);
        let sound = CommitHead {
            span: 4096,
            used: 500,
            durable: Position(0),
            hash_before: 1,
            hash_after: 2,
            records: 3,
        };
        let verify = |commit: &CommitHead| CommitHead::verify(&commit.encode(position, 1), position, room).is_ok();
        assert!(verify(&sound));
        for (span, used) in [(4096, 10), (4096, 4097), (12_288, 500), (4000, 500), (0, 0)] {
            let wrong = CommitHead { span, used, ..sound };
            assert!(!verify(&wrong), "{span} {used}");
        }
    }
}
