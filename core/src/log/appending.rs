//! Appending: where the next record goes, and copying it there.
//!
//! A position is final when `append` returns, so the layout (which commit, which segment) is settled here and not by the
//! write job. Nothing changes when an append is refused.

use super::commit::COMMIT_BYTES;
use super::error::{AppendError, LogError};
use super::position::{BLOCK_BYTES, Position, block_aligned, record_aligned};
use super::record::{self, HEADER_BYTES, KIND_EPOCH, KIND_USER_MIN, RecordHeader};
use super::reserve::{Purpose, RESERVE_SEGMENTS};
use super::running::Log;
use super::segment_header::DATA_OFFSET;
use super::segments::Segment;
use super::tail::Commit;

impl Log {
    /// Copies one record into the pending group commit. It is durable once [`Log::durable`] is above its position.
    ///
    /// # Errors
    /// [`AppendError::NoSpace`] is back-pressure: run maintenance and try again later. Nothing changed in any case.
    pub fn append(&mut self, kind: u8, head: &[u8], payload: &[u8]) -> Result<Position, AppendError> {
        self.append_user(kind, head, payload, Purpose::Fill)
    }

    /// As [`Log::append`], and may use of the reserve what [`Purpose::Drain`] may: for acknowledgements and other terminal
    /// records, so that a full disk can be drained.
    ///
    /// # Errors
    /// As for [`Log::append`].
    pub fn append_reserved(&mut self, kind: u8, head: &[u8], payload: &[u8]) -> Result<Position, AppendError> {
        self.append_user(kind, head, payload, Purpose::Drain)
    }

    /// As [`Log::append`], and may use all there is: for what makes room at once, and for what a start and a stop log.
    ///
    /// # Errors
    /// As for [`Log::append`].
    pub fn append_kept(&mut self, kind: u8, head: &[u8], payload: &[u8]) -> Result<Position, AppendError> {
        self.append_user(kind, head, payload, Purpose::Upkeep)
    }

    /// Starts an epoch: all records from here on carry it. Durable when this returns. Turns a follower into an active log.
    ///
    /// # Errors
    /// [`LogError::Epoch`] if it is not above every earlier one; the disk's errors are final.
    pub fn begin_epoch(&mut self, epoch: u64) -> Result<(), LogError> {
        self.check_failed()?;
        if epoch <= self.epoch {
            return Err(LogError::Epoch {
                given: epoch,
                last: self.epoch,
            });
        }
        // A commit belongs to one epoch, so that whoever compares commits compares epochs.
        self.flush_now()?;
        let last = std::mem::replace(&mut self.epoch, epoch);
        if let Err(error) = self.append_any(KIND_EPOCH, &[], &[], Purpose::Upkeep) {
            self.epoch = last;
            return Err(LogError::Failed(format!("no room to begin epoch {epoch}: {error}")));
        }
        self.follower = false;
        self.flush_now()
    }

    /// Whether records of `bytes` altogether, their headers and heads included, can be appended now without the reserve.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        if self.stalled.is_some() {
            return false;
        }
        // A commit more may begin on the way.
        let most = bytes + 2 * BLOCK_BYTES;
        if self.fits_ahead(most) && self.usable_ahead(Purpose::Fill) > 0 {
            return true;
        }
        if self.is_in_reserve() {
            return false;
        }
        let start = match &self.tail.open {
            Some(commit) => commit.end(),
            None => Position(block_aligned(self.end().0)),
        };
        let room = self
            .segments
            .last()
            .map_or(0, |segment| segment.limit().0.saturating_sub(start.0));
        most + self.left_by_publishing() <= room
    }

    /// How many bytes are left behind the last record in the segment being written.
    #[must_use]
    pub fn room_left(&self) -> u64 {
        let limit = self.segments.last().map_or(0, |segment| segment.limit().0);
        limit.saturating_sub(self.end().0)
    }

    /// Whether records with heads and payloads of these lengths can all be appended now for this purpose, in this order.
    /// Whoever appends several asks before the first, so that none of them fails when others have taken effect.
    ///
    /// # Errors
    /// What the first that could not would be refused with.
    pub fn check_room(&self, lengths: &[u64], purpose: Purpose) -> Result<(), AppendError> {
        if let Some(why) = &self.failed {
            return Err(AppendError::Failed(why.clone()));
        }
        if self.follower {
            return Err(AppendError::ReadOnly);
        }
        let is_shut = purpose == Purpose::Fill && (self.stalled.is_some() || self.is_in_reserve());
        let mut ahead = self.ahead.iter().take(self.usable_ahead(purpose));
        let limit = self.segments.last().map_or(0, |segment| segment.limit().0);
        // Where the open commit begins, seen from the segment's end, and how full it is: as `open_commit` would have it.
        let (mut left, mut used, mut used_max) = match &self.tail.open {
            Some(commit) => (limit.saturating_sub(commit.start.0), commit.used, commit.used_max),
            None => (limit.saturating_sub(block_aligned(self.end().0)), 0, 0),
        };
        let max = u64::from(self.options.record_bytes_max);
        for length in lengths {
            let bytes = HEADER_BYTES as u64 + length;
            if bytes > max {
                return Err(AppendError::TooLarge { bytes, max });
            }
            if is_shut {
                return Err(AppendError::NoSpace);
            }
            let stored = record_aligned(bytes);
            if used + stored <= used_max {
                used += stored;
                self.check_kept(purpose, ahead.len(), left, used)?;
                continue;
            }
            left = left.saturating_sub(block_aligned(used));
            let needed = COMMIT_BYTES as u64 + stored;
            if block_aligned(needed) > left {
                if !self.fits_ahead(block_aligned(needed)) {
                    return Err(AppendError::NoSpace);
                }
                let next = ahead.next().ok_or(AppendError::NoSpace)?;
                left = u64::from(next.file_bytes) - DATA_OFFSET;
            }
            if block_aligned(needed) > left {
                return Err(AppendError::NoSpace);
            }
            used = needed;
            used_max = u64::from(self.options.commit_bytes_max)
                .max(block_aligned(needed))
                .min(left);
            self.check_kept(purpose, ahead.len(), left, used)?;
        }
        Ok(())
    }

    fn append_user(
        &mut self,
        kind: u8,
        head: &[u8],
        payload: &[u8],
        purpose: Purpose,
    ) -> Result<Position, AppendError> {
        if let Some(why) = &self.failed {
            return Err(AppendError::Failed(why.clone()));
        }
        if self.follower {
            return Err(AppendError::ReadOnly);
        }
        if kind < KIND_USER_MIN {
            return Err(AppendError::Kind(kind));
        }
        if purpose == Purpose::Fill && self.stalled.is_some() {
            // What was appended waits for the disk to have room; nothing joins it that could be refused.
            return Err(AppendError::NoSpace);
        }
        self.append_any(kind, head, payload, purpose)
    }

    /// Appends a record, leaving untouched what is not for its purpose.
    fn append_any(&mut self, kind: u8, head: &[u8], payload: &[u8], purpose: Purpose) -> Result<Position, AppendError> {
        let bytes = HEADER_BYTES as u64 + head.len() as u64 + payload.len() as u64;
        let max = u64::from(self.options.record_bytes_max);
        if bytes > max {
            return Err(AppendError::TooLarge { bytes, max });
        }
        let stored = record_aligned(bytes);
        self.make_room(stored, purpose)?;
        let Some(commit) = self.tail.open.as_mut() else {
            return Err(AppendError::NoSpace);
        };
        let position = commit.start.plus(commit.used);
        commit.used += stored;
        commit.records += 1;
        let buffer = self.tail.buffer(position, stored as usize);
        let crc = record::encode(buffer, position, self.epoch, kind, head, payload);
        self.hash = record::chain(self.hash, crc);
        let (length, head_length) = (bytes as u32, head.len() as u32);
        let header = RecordHeader {
            crc,
            length,
            position,
            epoch: self.epoch,
            head_length,
            kind,
            slack: 0,
            rewritten: false,
        };
        self.note_appended(&header, head, stored);
        Ok(position)
    }

    #[inline]
    fn note_appended(&mut self, header: &RecordHeader, head: &[u8], stored: u64) {
        let (hash, epoch) = (self.hash, self.epoch);
        if let Some(commit) = self.tail.open.as_mut() {
            commit.hash_after = hash;
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.index.push(segment.base, header, head);
            segment.user_records += u64::from(header.kind >= KIND_USER_MIN);
            segment.end = header.position.plus(stored);
            segment.hash_after = hash;
            segment.epoch = epoch;
        }
    }

    /// Sees to it that the open commit has room for a record of `stored` bytes.
    #[inline]
    fn make_room(&mut self, stored: u64, purpose: Purpose) -> Result<(), AppendError> {
        match &self.tail.open {
            Some(commit) if commit.used + stored <= commit.used_max => {
                // Only a short reserve makes a difference between purposes here.
                if self.ahead.len() >= RESERVE_SEGMENTS {
                    return Ok(());
                }
                let (start, used) = (commit.start, commit.used + stored);
                self.check_purpose(purpose, start, used)
            }
            _ => self.open_commit(stored, purpose),
        }
    }

    /// Whether the segment being written may take a commit that begins here and is so full then.
    fn check_purpose(&self, purpose: Purpose, start: Position, used: u64) -> Result<(), AppendError> {
        if purpose == Purpose::Fill && self.is_in_reserve() {
            return Err(AppendError::NoSpace);
        }
        let limit = self.segments.last().map_or(0, |segment| segment.limit().0);
        self.check_kept(purpose, self.usable_ahead(purpose), limit.saturating_sub(start.0), used)
    }

    fn open_commit(&mut self, stored: u64, purpose: Purpose) -> Result<(), AppendError> {
        let needed = COMMIT_BYTES as u64 + stored;
        let start = match &self.tail.open {
            Some(commit) => commit.end(),
            None => Position(block_aligned(self.end().0)),
        };
        let room = self
            .segments
            .last()
            .map_or(0, |segment| segment.limit().0.saturating_sub(start.0));
        if block_aligned(needed) > room {
            if !self.fits_ahead(block_aligned(needed)) {
                return Err(AppendError::NoSpace);
            }
            let usable = self.usable_ahead(purpose);
            let next = self.ahead.front().filter(|_| usable > 0);
            let next = next.ok_or(AppendError::NoSpace)?;
            self.check_kept(purpose, usable - 1, u64::from(next.file_bytes) - DATA_OFFSET, needed)?;
            self.tail.close();
            self.begin_segment(start, start);
        } else {
            self.check_purpose(purpose, start, needed)?;
            self.tail.close();
        }
        self.open_commit_at(start, needed);
        Ok(())
    }

    /// Takes the next prepared segment into use. The caller has made sure that there is one.
    pub(crate) fn begin_segment(&mut self, base: Position, previous_end: Position) {
        if let Some(full) = self.segments.last_mut().filter(|last| !last.sealed) {
            // Its position space reaches to where the next one begins.
            full.end = previous_end;
        }
        self.reserve.note_begun(self.ahead.len());
        let Some(mut segment) = self.ahead.pop_front() else {
            return;
        };
        (segment.base, segment.previous_end, segment.end) = (base, previous_end, base);
        (segment.hash_before, segment.hash_after) = (self.hash, self.hash);
        (segment.epoch_before, segment.epoch) = (self.epoch, self.epoch);
        self.segments.push(segment);
    }

    fn open_commit_at(&mut self, start: Position, needed: u64) {
        let Some(segment) = self.segments.last_mut() else {
            return;
        };
        segment.end = start;
        let room = segment.limit().0 - start.0;
        let used_max = u64::from(self.options.commit_bytes_max)
            .max(block_aligned(needed))
            .min(room);
        self.tail.open = Some(Commit {
            segment: segment.id,
            start,
            used: COMMIT_BYTES as u64,
            used_max,
            span_min: 0,
            epoch: self.epoch,
            records: 0,
            hash_before: self.hash,
            hash_after: self.hash,
            parts: Vec::new(),
        });
    }

    /// The segment being written.
    pub(crate) fn current(&self) -> Option<&Segment> {
        self.segments.last()
    }
}
