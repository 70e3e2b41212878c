//! What has been appended and is not yet durable: the open group commit, those ready to be written, those on their way.
//!
//! A record is copied once, into a chunk that is shared: the write job writes from it, and afterwards it is the tail of the
//! read cache. Nothing here is allocated for a single record.

use bytes::{Bytes, BytesMut};

use super::commit::{COMMIT_BYTES, CommitHead};
use super::position::{Position, block_aligned};

/// Records share chunks of this size; a larger record has its own.
const CHUNK_BYTES: usize = 256 * 1024;

/// Whole records one after another.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub start: Position,
    pub bytes: Bytes,
}

impl Part {
    pub fn end(&self) -> Position {
        self.start.plus(self.bytes.len() as u64)
    }
}

/// One group commit, open or closed.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// The segment it goes to.
    pub segment: u64,
    pub start: Position,
    /// Bytes in use so far, the commit record included.
    pub used: u64,
    /// What `used` may grow to.
    pub used_max: u64,
    /// Position space to the next commit, where that is more than `used` rounded up to blocks.
    pub span_min: u64,
    pub epoch: u64,
    pub records: u32,
    pub hash_before: u64,
    pub hash_after: u64,
    pub parts: Vec<Part>,
}

impl Commit {
    pub fn span(&self) -> u64 {
        block_aligned(self.used).max(self.span_min)
    }

    pub fn end(&self) -> Position {
        self.start.plus(self.span())
    }

    pub fn head(&self, durable: Position) -> [u8; COMMIT_BYTES] {
        let head = CommitHead {
            span: self.span() as u32,
            used: self.used as u32,
            durable,
            hash_before: self.hash_before,
            hash_after: self.hash_after,
            records: self.records,
        };
        head.encode(self.start, self.epoch)
    }
}

/// The tail itself.
#[derive(Default)]
pub(crate) struct Tail {
    pub open: Option<Commit>,
    pub ready: Vec<Commit>,
    pub in_flight: Vec<Commit>,
    buffer: BytesMut,
    /// Position of the buffer's first byte.
    buffer_start: Position,
}

impl Tail {
    /// The buffer, with room for `bytes` more that begin at `position`.
    #[inline]
    pub fn buffer(&mut self, position: Position, bytes: usize) -> &mut BytesMut {
        if self.buffer.capacity() - self.buffer.len() < bytes {
            self.flush();
            self.buffer = BytesMut::with_capacity(bytes.max(CHUNK_BYTES));
        }
        if self.buffer.is_empty() {
            self.buffer_start = position;
        }
        &mut self.buffer
    }

    /// Moves what is in the buffer into the open commit.
    pub fn flush(&mut self) {
        if let Some(commit) = self.open.as_mut()
            && !self.buffer.is_empty()
        {
            commit.parts.push(Part {
                start: self.buffer_start,
                bytes: self.buffer.split().freeze(),
            });
        }
    }

    /// Ends the open commit; returns where it ends.
    pub fn close(&mut self) -> Option<Position> {
        self.flush();
        let commit = self.open.take()?;
        let end = commit.end();
        self.ready.push(commit);
        Some(end)
    }

    /// The bytes from `position` to the end of its part, if the tail has them.
    pub fn find(&mut self, position: Position) -> Option<Bytes> {
        if self.open.as_ref().is_some_and(|commit| commit.start <= position) {
            self.flush();
        }
        let commits = self.in_flight.iter().chain(&self.ready).chain(&self.open);
        let commit = commits.rev().find(|commit| commit.start <= position)?;
        let index = commit
            .parts
            .partition_point(|part| part.start <= position)
            .checked_sub(1)?;
        let part = &commit.parts[index];
        (position < part.end()).then(|| part.bytes.slice((position.0 - part.start.0) as usize..))
    }

    pub fn pending_bytes(&self) -> u64 {
        self.in_flight
            .iter()
            .chain(&self.ready)
            .chain(&self.open)
            .map(Commit::span)
            .sum()
    }
}
