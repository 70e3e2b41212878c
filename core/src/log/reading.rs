//! Reading records by position: from memory at once, or through a request that any thread may run.
//!
//! A request reads ahead: a stretch that begins with the wanted record and grows while reads follow one another, so that a
//! backlog far bigger than memory comes at the disk's sequential speed. Every record is verified before it is kept.

use std::io;
use std::sync::Arc;

use super::cache::{Extent, Record, cut};
use super::disk::{Disk, DiskError, DiskFile, OpenFile, read_places};
use super::error::LogError;
use super::position::{BLOCK_BYTES, Position};
use super::record::{self, HEADER_BYTES, KIND_SKIP, RecordHeader};
use super::running::Log;
use super::segment_header::{DATA_OFFSET, segment_name};

const READ_BYTES_MIN: usize = 128 * 1024;
const READ_BYTES_MAX: usize = 1024 * 1024;
/// Reads that are under way at once. Whoever needs another one waits.
const READS_MAX: usize = 32;
/// Complaints kept for reads that were asked for and then not fetched.
const UNREADABLE_MAX: usize = 1024;

/// The answer to [`Log::read`].
pub enum Read {
    /// Here it is.
    Cached(Record),
    /// Run this, hand it to [`Log::complete_read`], read again.
    Miss(ReadRequest),
    /// A read that may bring it is under way, or as many as there may be: read again when one was handed to
    /// [`Log::complete_read`].
    Pending,
    /// The system lacks descriptors or memory for reads: read again when [`Log::request_watermark_sync`] was called.
    Later,
}

/// How far to read ahead: twice as much whenever a read begins where one ended.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Where recent reads ended, and how much they read.
    streams: [(Position, usize); 8],
    next: usize,
}

impl ReadAhead {
    fn size_for(&self, position: Position) -> usize {
        // A record's successor lies behind the end of a read by at most a commit's framing.
        let close = |end: Position| end <= position && position.0 - end.0 <= 2 * BLOCK_BYTES;
        let stream = self.streams.iter().find(|(end, bytes)| *bytes > 0 && close(*end));
        stream.map_or(READ_BYTES_MIN, |(_, bytes)| (bytes * 2).min(READ_BYTES_MAX))
    }

    fn note(&mut self, end: Position, bytes: usize) {
        self.streams[self.next] = (end, bytes);
        self.next = (self.next + 1) % self.streams.len();
    }
}

/// What was read, and the first place that could not be.
type Filled = (Vec<u8>, Option<u64>);

enum Layout {
    /// Offsets follow from positions; records are known to lie below `end`.
    Written { base: Position, end: Position },
    /// Records lie one after another from `offset` (which holds the one at `from`) to the end of the file.
    Compacted { offset: u64, from: Position, end: Position },
}

/// A read of the disk to be run on any thread.
pub struct ReadRequest {
    position: Position,
    disk: Arc<dyn Disk>,
    id: u64,
    file: Option<Arc<dyn DiskFile>>,
    layout: Layout,
    bytes: usize,
    record_bytes_max: usize,
}

/// What a [`ReadRequest`] found.
pub struct ReadDone {
    position: Position,
    /// The segment that was read.
    id: u64,
    bytes: usize,
    result: Result<Extent, LogError>,
}

impl Log {
    /// The record at a position. Records that are not durable yet can be read too.
    ///
    /// # Errors
    /// [`LogError::Damaged`] when its checksum is wrong (it is never delivered then), [`LogError::Gone`] when no record is
    /// there, or the disk's error met by the request that was run for it.
    pub fn read(&mut self, position: Position) -> Result<Read, LogError> {
        match self.in_memory(position).flatten() {
            Some(found) => Ok(Read::Cached(found)),
            // What was read around it may have taken a lost sector for the zeros behind a group commit: the place itself
            // says whether nothing was stored there, or it is damaged.
            None => self.request(position),
        }
    }

    /// The record at a position, if that takes no reading.
    pub fn peek(&mut self, position: Position) -> Option<Record> {
        self.in_memory(position).flatten()
    }

    fn in_memory(&mut self, position: Position) -> Option<Option<Record>> {
        self.cache
            .find(position)
            .or_else(|| self.tail.find(position).map(|bytes| cut(&bytes, 0, position)))
    }

    fn request(&mut self, position: Position) -> Result<Read, LogError> {
        if let Some(error) = self.unreadable.remove(&position) {
            return Err(error);
        }
        if self.reads_postponed {
            return Ok(Read::Later);
        }
        let durable = self.durable;
        let segment = self.segments.find(position).ok_or(LogError::Gone(position))?;
        let end = segment.end.min(durable);
        if position >= end {
            return Err(LogError::Gone(position));
        }
        let layout = if segment.compacted {
            let index = segment.landmarks.partition_point(|(landmark, _)| *landmark <= position);
            let Some((from, offset)) = index.checked_sub(1).and_then(|index| segment.landmarks.get(index)) else {
                return Err(LogError::Gone(position));
            };
            Layout::Compacted {
                offset: *offset,
                from: *from,
                end,
            }
        } else {
            Layout::Written {
                base: segment.base,
                end,
            }
        };
        let bytes = self.read_ahead.size_for(position);
        self.cache.want(position);
        let before = self.reading.range(..=position).next_back();
        if before.is_some_and(|(_, end)| position < *end) || self.reading.len() >= READS_MAX {
            return Ok(Read::Pending);
        }
        let brings = match &layout {
            Layout::Written { end, .. } => position.plus(bytes as u64).min(*end),
            // How far it comes depends on what was left out.
            Layout::Compacted { .. } => position.plus(1),
        };
        self.reading.insert(position, brings);
        Ok(Read::Miss(ReadRequest {
            position,
            disk: self.disk.clone(),
            id: segment.id,
            file: segment.file.clone(),
            layout,
            bytes,
            record_bytes_max: self.options.segment_bytes.max(segment.file_bytes) as usize,
        }))
    }

    /// Takes what a request found; the same [`Log::read`] finds it (or its error) then.
    pub fn complete_read(&mut self, done: ReadDone) {
        self.reading.remove(&done.position);
        match done.result {
            Ok(extent) => {
                if extent.record(done.position).is_none() {
                    // What verifies there is the log's own.
                    self.note_unreadable(done.position, LogError::Gone(done.position));
                }
                // The segment may have been removed or rewritten meanwhile; records are the same in either case, and a
                // removed one is not asked for again.
                self.read_ahead.note(extent.end, done.bytes);
                self.cache.insert(extent);
            }
            // The segment was rewritten or removed between the request and its run: its file may have been gone, or have
            // begun to hold another. That says nothing of the record; the next read asks where it is now.
            Err(_)
                if self
                    .segments
                    .find(done.position)
                    .is_none_or(|segment| segment.id != done.id) => {}
            // It lacked something: that says nothing of the record.
            Err(LogError::Disk(error)) if error.passes() => self.reads_postponed = true,
            Err(error) => {
                // The same file was taken away by upkeep whose result is not known here yet.
                let missing = matches!(&error, LogError::Disk(error) if error.source.kind() == io::ErrorKind::NotFound);
                if missing && self.upkeep.is_out() {
                    return;
                }
                self.note_damaged_read(&error);
                self.note_unreadable(done.position, error);
            }
        }
    }

    /// The next read of a position finds this.
    fn note_unreadable(&mut self, position: Position, error: LogError) {
        if self.unreadable.len() >= UNREADABLE_MAX {
            self.unreadable.clear();
        }
        self.unreadable.insert(position, error);
    }
}

#[cfg(test)]
impl ReadDone {
    /// Whether the read met an error.
    pub(crate) fn failed(&self) -> bool {
        self.result.is_err()
    }
}

impl ReadRequest {
    /// Reads and verifies.
    #[must_use]
    pub fn run(&self) -> ReadDone {
        let result = match self.open() {
            Err(error) => Err(error.into()),
            Ok(file) => match self.layout {
                Layout::Written { base, end } => self.run_written(file.as_ref(), base, end),
                Layout::Compacted { offset, from, end } => self.run_compacted(file.as_ref(), offset, from, end),
            },
        };
        ReadDone {
            position: self.position,
            id: self.id,
            bytes: self.bytes,
            result,
        }
    }

    fn open(&self) -> Result<Arc<dyn DiskFile>, DiskError> {
        match &self.file {
            Some(file) => Ok(file.clone()),
            None => self.disk.open(&segment_name(self.id), OpenFile::ReadOnly),
        }
    }

    fn damaged(&self, offset: u64, why: &str) -> LogError {
        let file = segment_name(self.id);
        LogError::Damaged {
            file,
            offset,
            position: self.position,
            why: why.to_owned(),
        }
    }

    /// What cannot be read verifies as nothing: it is damage of that place.
    fn fill(&self, file: &dyn DiskFile, offset: u64, bytes: usize) -> Result<Filled, LogError> {
        let mut buffer = vec![0; bytes];
        let (filled, broken) = read_places(file, offset, &mut buffer)
            .map_err(|error| DiskError::new("read", &segment_name(self.id), error))?;
        buffer.truncate(filled);
        Ok((buffer, broken))
    }

    /// Why what was read does not verify.
    fn explain(&self, offset: u64, why: &str, broken: Option<u64>) -> LogError {
        match broken {
            Some(broken) => self.damaged(
                offset,
                &format!("{why}; the disk cannot read what is at offset {broken}"),
            ),
            None => self.damaged(offset, why),
        }
    }

    /// At least the record at the start of what is read: more is read when it is longer.
    fn fill_whole(&self, file: &dyn DiskFile, offset: u64, room: u64) -> Result<Filled, LogError> {
        let (buffer, broken) = self.fill(file, offset, (self.bytes as u64).min(room) as usize)?;
        let header = RecordHeader::decode(&buffer, room).map_err(|why| self.explain(offset, why, broken))?;
        let stored = header.stored() as usize;
        if stored <= buffer.len() || stored > self.record_bytes_max {
            return Ok((buffer, broken));
        }
        self.fill(file, offset, stored)
    }

    fn run_written(&self, file: &dyn DiskFile, base: Position, end: Position) -> Result<Extent, LogError> {
        let offset = DATA_OFFSET + (self.position.0 - base.0);
        let room = end.0 - self.position.0;
        let (mut buffer, broken) = self.fill_whole(file, offset, room)?;
        file.will_need(offset + buffer.len() as u64, self.bytes as u64);
        let first = record::verify(&buffer, self.position, room.min(buffer.len() as u64))
            .map_err(|why| self.explain(offset, why, broken))?;
        let mut at = first.span() as usize;
        while at < buffer.len() {
            let position = self.position.plus(at as u64);
            match record::verify(&buffer[at..], position, (buffer.len() - at) as u64) {
                Ok(header) if header.kind != KIND_SKIP => at += header.span() as usize,
                Ok(_) => break,
                // Behind a commit's last record come zeros, up to the block where the next commit begins.
                Err(_) if position.0 % BLOCK_BYTES != 0 && is_zero(&buffer[at..]) => {
                    at += (BLOCK_BYTES - position.0 % BLOCK_BYTES) as usize;
                }
                Err(_) => break,
            }
        }
        buffer.truncate(at);
        let end = self.position.plus(buffer.len() as u64);
        Ok(Extent {
            start: self.position,
            end,
            bytes: buffer.into(),
            places: None,
        })
    }

    fn run_compacted(
        &self,
        file: &dyn DiskFile,
        offset: u64,
        from: Position,
        end: Position,
    ) -> Result<Extent, LogError> {
        let length = file
            .length()
            .map_err(|error| DiskError::new("length of", &segment_name(self.id), error))?;
        let room = length.saturating_sub(offset);
        let mut bytes = self.bytes;
        loop {
            let (buffer, broken) = self.fill(file, offset, (bytes as u64).min(room) as usize)?;
            let whole = buffer.len() as u64 == room;
            let mut walk = Walk::new(from, end);
            match walk.find(&buffer, self.position) {
                Found::Yes => {
                    let end = if whole && walk.at == buffer.len() {
                        end
                    } else {
                        walk.next
                    };
                    let bytes = bytes::Bytes::from(buffer).slice(..walk.at);
                    return Ok(Extent {
                        start: walk.start,
                        end,
                        bytes,
                        places: Some(walk.places),
                    });
                }
                Found::Passed if walk.damaged_at.is_none() => return Err(LogError::Gone(self.position)),
                Found::Ended if whole && walk.damaged_at.is_none() => return Err(LogError::Gone(self.position)),
                // It may lie behind what was read: a damaged record's length cannot be trusted.
                Found::Ended if !whole => bytes = bytes.saturating_mul(4),
                Found::Passed | Found::Ended => {
                    let at = walk.damaged_at.unwrap_or(walk.at);
                    return Err(self.explain(offset + at as u64, "record does not verify", broken));
                }
            }
        }
    }
}

/// A walk through records that lie one after another, in search of one of them.
struct Walk {
    /// The first record of the stretch without damage.
    start: Position,
    places: Vec<(Position, u32)>,
    at: usize,
    /// The next record's position is at least this.
    next: Position,
    end: Position,
    damaged_at: Option<usize>,
}

enum Found {
    Yes,
    /// A later record came instead.
    Passed,
    Ended,
}

impl Walk {
    fn new(from: Position, end: Position) -> Self {
        let places = Vec::new();
        Self {
            start: from,
            places,
            at: 0,
            next: from,
            end,
            damaged_at: None,
        }
    }

    /// Goes on to the end of the bytes, or to damage behind the wanted record.
    fn find(&mut self, buffer: &[u8], wanted: Position) -> Found {
        let mut outcome = Found::Ended;
        while self.at < buffer.len() {
            let room = (buffer.len() - self.at) as u64;
            let verified = RecordHeader::decode(&buffer[self.at..], room)
                .ok()
                .filter(|header| self.next <= header.position && header.position < self.end)
                .filter(|header| record::verify(&buffer[self.at..], header.position, room).is_ok());
            let Some(header) = verified else {
                if matches!(outcome, Found::Yes) {
                    break;
                }
                // Look for the next record that verifies; the stretch begins anew there.
                self.damaged_at.get_or_insert(self.at);
                self.places.clear();
                self.at += 8;
                continue;
            };
            if self.places.is_empty() {
                self.start = header.position;
            }
            match header.position.cmp(&wanted) {
                std::cmp::Ordering::Equal => outcome = Found::Yes,
                std::cmp::Ordering::Greater if matches!(outcome, Found::Ended) => return Found::Passed,
                _ => {}
            }
            self.places.push((header.position, self.at as u32));
            self.at += header.stored() as usize;
            self.next = header.position.plus(HEADER_BYTES as u64);
        }
        outcome
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().take(HEADER_BYTES).all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_does_not_lie_whole_in_what_was_read_is_not_found_there() {
        let (first, second) = (Position(8), Position(48));
        let mut bytes = Vec::new();
        record::encode(&mut bytes, first, 1, 20, b"h", b"");
        record::encode(&mut bytes, second, 1, 20, b"h", b"");
        let find = |length: usize| Walk::new(first, Position(4096)).find(&bytes[..length], second);
        assert!(matches!(find(80), Found::Yes));
        // Its padding lacks.
        assert!(matches!(find(79), Found::Ended));
    }
}
