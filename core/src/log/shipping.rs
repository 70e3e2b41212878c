//! Copying the log to another one: chunks of whole group commits, and taking them in. The copy has the same records at the
//! same positions and the same rolling hash.
//!
//! Where the sender has compacted or removed segments, a chunk has gaps: the receiver bridges them with skip records and
//! commits without records. A chunk's bytes are records one after another, each commit record first; nothing in a chunk is
//! believed by the receiver before its checksums and hashes were verified.

use std::sync::Arc;

use bytes::Bytes;

use super::chunk::{LogChunk, lay_out};
use super::commit::{COMMIT_BYTES, CommitHead};
use super::disk::{Disk, DiskFile, OpenFile};
use super::error::LogError;
use super::position::{Position, block_aligned};
use super::record::{self, HEADER_BYTES, KIND_COMMIT, KIND_SKIP, KIND_USER_MIN, RecordHeader, u64_at};
use super::reserve::Purpose;
use super::running::Log;
use super::scan::{self, Cursor, Step, Window};
use super::segment_header::{DATA_OFFSET, segment_name};
use super::segments::Segment;
use super::tail::{Commit, Part};

/// A read of the log to be run on any thread.
pub struct ShipRequest {
    disk: Arc<dyn Disk>,
    from: Position,
    bytes_max: usize,
    id: u64,
    file: Option<Arc<dyn DiskFile>>,
    base: Position,
    /// Where the segment's durable records end, and where the next segment's begin.
    end: Position,
    next: Position,
    file_bytes: u32,
    compacted: bool,
    /// The rolling hash at the segment's end.
    hash_after: u64,
}

impl Log {
    /// Whole group commits from `from` on, at least one if there is one, about `bytes_max` at most. Durable ones only.
    ///
    /// # Errors
    /// [`LogError::Damaged`]; the disk's.
    pub fn read_log(&self, from: Position, bytes_max: usize) -> Result<LogChunk, LogError> {
        match self.ship(from, bytes_max) {
            Some(request) => request.run(),
            None => Ok(LogChunk {
                from,
                to: from,
                hash_after: self.durable_hash,
                bytes: Bytes::new(),
            }),
        }
    }

    /// As [`Log::read_log`], as a request that any thread may run; `None` when nothing durable lies there yet.
    #[must_use]
    pub fn ship(&self, from: Position, bytes_max: usize) -> Option<ShipRequest> {
        let segment = self.segments.first_after(from)?;
        let (end, next) = (
            segment.end.min(self.durable),
            Position(block_aligned(segment.end.0)).min(self.durable),
        );
        if self.durable <= from || end <= from {
            return None;
        }
        Some(ShipRequest {
            disk: self.disk.clone(),
            from,
            bytes_max,
            id: segment.id,
            file: segment.file.clone(),
            base: segment.base,
            end,
            next,
            file_bytes: segment.file_bytes,
            compacted: segment.compacted,
            hash_after: segment.hash_after,
        })
    }

    /// Takes in a chunk that begins where this log ends. Returns the new end; what did not fit can be sent again.
    ///
    /// # Errors
    /// [`LogError::Chunk`] when it does not continue this log (nothing of the offending commit is taken then);
    /// [`LogError::NoSpace`] when there is no room for any of it; [`LogError::Failed`]. After an error, too, what lies
    /// below [`Log::end`] was taken.
    pub fn append_log(&mut self, chunk: &LogChunk) -> Result<Position, LogError> {
        self.check_failed()?;
        let end = Position(block_aligned(self.end().0));
        if !self.follower || chunk.from != end {
            return Err(LogError::Chunk(format!(
                "begins at {}, this log ends at {end}",
                chunk.from
            )));
        }
        match self.take_chunk(chunk) {
            Err(LogError::NoSpace) if Position(block_aligned(self.end().0)) > end => {}
            result => result?,
        }
        Ok(Position(block_aligned(self.end().0)))
    }

    fn take_chunk(&mut self, chunk: &LogChunk) -> Result<(), LogError> {
        let mut at = 0;
        while at < chunk.bytes.len() {
            let header = chunk.verify_at(at)?;
            let room = chunk.to.0 - header.position.0;
            let (_, head) = CommitHead::verify(&chunk.bytes[at..], header.position, room)
                .map_err(|why| LogError::Chunk(format!("byte {at}: {why}")))?;
            let commit = self.check_commit(chunk, at + COMMIT_BYTES, &header, &head)?;
            self.bridge(header.position, head.hash_before)?;
            at = commit.next;
            self.take_commit(chunk, &header, &head, commit)?;
        }
        if chunk.to > Position(block_aligned(self.end().0)) {
            self.bridge(chunk.to, chunk.hash_after)?;
        } else if chunk.hash_after != self.hash && !chunk.bytes.is_empty() {
            return Err(LogError::Chunk(
                "the rolling hash at its end differs: the logs have diverged".to_owned(),
            ));
        }
        Ok(())
    }

    /// Verifies the records of one commit of a chunk.
    fn check_commit(
        &self,
        chunk: &LogChunk,
        from: usize,
        header: &RecordHeader,
        head: &CommitHead,
    ) -> Result<ChunkCommit, LogError> {
        let start = header.position;
        let refuse = |why: String| Err(LogError::Chunk(format!("commit at {start}: {why}")));
        let continues = start == Position(block_aligned(self.end().0));
        if header.epoch < self.epoch {
            return refuse(format!("epoch {} is below {}", header.epoch, self.epoch));
        }
        if continues && head.hash_before != self.hash {
            return refuse("the rolling hash differs: the logs have diverged".to_owned());
        }
        let mut commit = ChunkCommit {
            from,
            next: from,
            used: COMMIT_BYTES as u64,
            records: 0,
            epoch: header.epoch,
        };
        let (mut hash, mut whole) = (head.hash_before, head.records > 0);
        while commit.next < chunk.bytes.len() {
            let record = chunk.verify_at(commit.next)?;
            if record.kind == KIND_COMMIT {
                break;
            }
            let at = record.position.0.saturating_sub(start.0);
            let gap = at.wrapping_sub(commit.used);
            if at < commit.used
                || (gap > 0 && gap < HEADER_BYTES as u64)
                || at + record.span() > u64::from(head.used)
                || record.epoch < commit.epoch
            {
                return refuse(format!("record at {} is out of place", record.position));
            }
            if gap > 0 {
                (whole, commit.records) = (false, commit.records + 1);
            }
            if record.is_hashed() {
                hash = record::chain(hash, record.crc);
            }
            whole &= record.kind != KIND_SKIP && !record.rewritten;
            commit.epoch = record.epoch;
            commit.records += 1;
            commit.used = at + record.span();
            commit.next += record.stored() as usize;
        }
        let used = u64::from(head.used);
        if commit.used < used {
            // What is missing at the end is skipped too: the records alone no longer make the hash.
            if used - commit.used < HEADER_BYTES as u64 {
                return refuse("its records do not fill it".to_owned());
            }
            (whole, commit.records, commit.used) = (false, commit.records + 1, used);
        }
        if whole && (hash != head.hash_after || commit.records != head.records) {
            return refuse("the rolling hash does not match its records".to_owned());
        }
        Ok(commit)
    }

    /// Fills position space up to `to`, where nothing is left of the sender's records.
    fn bridge(&mut self, to: Position, hash: u64) -> Result<(), LogError> {
        let start = Position(block_aligned(self.end().0));
        if start == to {
            return Ok(());
        }
        self.tail.close();
        let room = self
            .current()
            .map_or(0, |segment| segment.limit().0.saturating_sub(start.0));
        let span = to.0.saturating_sub(start.0);
        let unbegun = |current: &&mut Segment| !current.begun && current.end == current.base;
        if let Some(current) = self.segments.last_mut().filter(unbegun) {
            // Nothing was written to it yet, so it can as well begin behind the gap.
            (current.base, current.end) = (to, to);
            (current.hash_before, current.hash_after, self.hash) = (hash, hash, hash);
            return Ok(());
        }
        if self.begins_next(room, span)? {
            self.hash = hash;
            self.begin_segment(to, start);
            return Ok(());
        }
        let used = COMMIT_BYTES as u64;
        self.push_commit(start, used, span, (self.epoch, 0), (self.hash, hash), Vec::new());
        Ok(())
    }

    /// Whether a commit of this length goes to the next segment, when so much room is left in this one. It has to leave
    /// what a takeover needs.
    fn begins_next(&self, room: u64, span: u64) -> Result<bool, LogError> {
        let (ahead, left) = if span <= room {
            (self.ahead.len(), room)
        } else {
            let next = self.ahead.front().ok_or(LogError::NoSpace)?;
            (self.ahead.len() - 1, u64::from(next.file_bytes) - DATA_OFFSET)
        };
        // Otherwise more is being prepared.
        if self.reserve.drains {
            self.check_kept(Purpose::Drain, ahead, left, span)
                .map_err(|_| LogError::NoSpace)?;
        }
        Ok(span > room)
    }

    fn take_commit(
        &mut self,
        chunk: &LogChunk,
        header: &RecordHeader,
        head: &CommitHead,
        commit: ChunkCommit,
    ) -> Result<(), LogError> {
        let (start, span) = (header.position, u64::from(head.span));
        let room = self
            .current()
            .map_or(0, |segment| segment.limit().0.saturating_sub(start.0));
        if span > room && span > u64::from(self.options.segment_bytes) - DATA_OFFSET {
            return Err(LogError::Chunk(format!(
                "commit at {start}: longer than a segment of this log"
            )));
        }
        if span > room && !self.fits_ahead(span) {
            return Err(LogError::NoSpace);
        }
        if self.begins_next(room, span)? {
            self.begin_segment(start, start);
        }
        let parts = lay_out(
            &chunk.bytes.slice(commit.from..commit.next),
            start,
            commit.epoch,
            commit.used,
        );
        if let Some(segment) = self.segments.last_mut() {
            for stored in scan::records(&chunk.bytes[commit.from..commit.next], false) {
                segment.index.push(segment.base, &stored.header, stored.head);
                segment.user_records += u64::from(stored.header.kind >= KIND_USER_MIN);
            }
        }
        let hashes = (head.hash_before, head.hash_after);
        self.push_commit(start, commit.used, span, (header.epoch, commit.records), hashes, parts);
        self.epoch = commit.epoch;
        if let Some(segment) = self.segments.last_mut() {
            segment.epoch = commit.epoch;
        }
        Ok(())
    }

    fn push_commit(
        &mut self,
        start: Position,
        used: u64,
        span_min: u64,
        (epoch, records): (u64, u32),
        (hash_before, hash_after): (u64, u64),
        parts: Vec<Part>,
    ) {
        let Some(segment) = self.segments.last_mut() else {
            return;
        };
        let (segment_id, used_max) = (segment.id, used);
        self.hash = hash_after;
        (segment.end, segment.hash_after) = (start.plus(span_min), hash_after);
        self.tail.ready.push(Commit {
            segment: segment_id,
            start,
            used,
            used_max,
            span_min,
            epoch,
            records,
            hash_before,
            hash_after,
            parts,
        });
    }
}

/// One commit of a chunk, verified.
struct ChunkCommit {
    from: usize,
    next: usize,
    used: u64,
    records: u32,
    epoch: u64,
}

impl ShipRequest {
    /// Reads and verifies.
    ///
    /// # Errors
    /// [`LogError::Damaged`]; the disk's.
    pub fn run(&self) -> Result<LogChunk, LogError> {
        let name = segment_name(self.id);
        let file = match &self.file {
            Some(file) => file.clone(),
            None => self.disk.open(&name, OpenFile::ReadOnly)?,
        };
        if self.compacted {
            self.run_compacted(file.as_ref(), &name)
        } else {
            self.run_written(file.as_ref(), &name)
        }
    }

    fn damaged(&self, name: &str, offset: u64, position: Position, why: &str) -> LogError {
        LogError::Damaged {
            file: name.to_owned(),
            offset,
            position,
            why: why.to_owned(),
        }
    }

    fn run_written(&self, file: &dyn DiskFile, name: &str) -> Result<LogChunk, LogError> {
        let start = self.from.max(self.base);
        let limit = DATA_OFFSET + (block_aligned(self.end.0).min(self.next.0) - self.base.0);
        let mut window = Window::new(file, name, limit);
        let offset = DATA_OFFSET + (start.0 - self.base.0);
        let (header, head) = CommitHead::verify(window.get(offset, COMMIT_BYTES)?, start, limit.saturating_sub(offset))
            .map_err(|why| self.damaged(name, offset, start, why))?;
        let mut cursor = Cursor {
            position: start,
            epoch: header.epoch,
            hash: head.hash_before,
        };
        let mut bytes = Vec::new();
        while bytes.is_empty() || bytes.len() < self.bytes_max {
            match scan::next_commit(&mut window, self.base, cursor)? {
                Step::Full => break,
                Step::Broken { offset, position, why } => return Err(self.damaged(name, offset, position, why)),
                Step::Commit(commit) => {
                    for stored in scan::records(commit.bytes, true) {
                        bytes.extend_from_slice(&commit.bytes[stored.at..stored.at + stored.header.stored() as usize]);
                    }
                    cursor = commit.after;
                }
            }
        }
        Ok(LogChunk {
            from: self.from,
            to: cursor.position,
            hash_after: cursor.hash,
            bytes: bytes.into(),
        })
    }

    /// Commits of which nothing was kept are missing; the chunk ends where one begins, or where the segment does.
    fn run_compacted(&self, file: &dyn DiskFile, name: &str) -> Result<LogChunk, LogError> {
        let mut window = Window::new(file, name, u64::from(self.file_bytes));
        let (mut offset, mut from) = (DATA_OFFSET, self.base);
        let mut bytes = Vec::new();
        while offset < u64::from(self.file_bytes) {
            let (header, stored) = scan::next_stored(&mut window, offset, from, self.end)?
                .map_err(|why| self.damaged(name, offset, from, why))?;
            if header.position >= self.from {
                if header.kind == KIND_COMMIT && !bytes.is_empty() && bytes.len() >= self.bytes_max {
                    let (to, hash_after) = (header.position, commit_hash_before(stored));
                    return Ok(LogChunk {
                        from: self.from,
                        to,
                        hash_after,
                        bytes: bytes.into(),
                    });
                }
                bytes.extend_from_slice(stored);
            }
            offset += header.stored();
            from = header.position.plus(1);
        }
        Ok(LogChunk {
            from: self.from,
            to: self.next,
            hash_after: self.hash_after,
            bytes: bytes.into(),
        })
    }
}

/// The hash in a commit record that was verified.
fn commit_hash_before(bytes: &[u8]) -> u64 {
    let (at, end) = (HEADER_BYTES + 16, HEADER_BYTES + 24);
    if bytes.len() >= end { u64_at(bytes, at) } else { 0 }
}
