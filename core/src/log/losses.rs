//! What a forced start says is lost of a segment, and no more: how many records where that can be counted, and between
//! which positions where it cannot.
//!
//! A segment as it was written mirrors position space, and each group commit says how many records it has. So a hole inside
//! a commit whose own record verifies is counted exactly. A hole with a commit's record in it is not, unless the rolling
//! hash over what was found continues behind it: then nothing is missing but the frame. An index says everything.

use super::commit::{COMMIT_BYTES, CommitHead};
use super::footer::{Index, IndexEntry};
use super::position::Position;
use super::record::{self, KIND_COMMIT, KIND_SKIP, KIND_USER_MIN, RecordHeader};
use super::recovery::Dropped;
use super::scan::Cursor;
use super::segment_header::{DATA_OFFSET, SegmentHeader};

/// Stretches told of one segment; what is beyond is added to the last one.
const STRETCHES_MAX: usize = 256;

/// A commit whose own record verifies.
struct Frame {
    used_end: Position,
    end: Position,
    /// Records in it that were not found yet.
    missing: u32,
    holes: Vec<(u64, Position, Position)>,
    hash_after: u64,
}

/// The walk through one damaged segment.
pub(super) struct Losses<'a> {
    name: &'a str,
    header: SegmentHeader,
    /// Everything below is accounted for: its offset and position, and the hash there.
    at: (u64, Position),
    hash: u64,
    /// A commit's record may be in the hole before what comes next.
    unframed: Option<(u64, Position)>,
    /// Highest position of which a commit says that it was durable.
    proven: Position,
    frame: Option<Frame>,
    dropped: Vec<Dropped>,
}

impl<'a> Losses<'a> {
    pub fn new(name: &'a str, header: SegmentHeader) -> Self {
        Self {
            name,
            header,
            at: (DATA_OFFSET, header.base),
            hash: header.hash_before,
            unframed: None,
            proven: header.base,
            frame: None,
            dropped: Vec::new(),
        }
    }

    /// The rolling hash as far as it is known.
    pub fn hash(&self) -> u64 {
        self.frame.as_ref().map_or(self.hash, |frame| frame.hash_after)
    }

    /// A record verifies here; returns where it ends.
    pub fn find(&mut self, offset: u64, header: &RecordHeader, bytes: &[u8]) -> Position {
        if self.header.compacted {
            return self.find_stored(offset, header);
        }
        let commit = CommitHead::verify(bytes, header.position, u64::MAX).ok();
        if let (KIND_COMMIT, Some((_, commit))) = (header.kind, commit) {
            self.close_frame();
            self.begin_frame(offset, header.position, &commit);
            return header.position.plus(COMMIT_BYTES as u64);
        }
        let end = header.position.plus(header.span());
        if self
            .frame
            .as_ref()
            .is_some_and(|frame| header.position >= frame.used_end)
        {
            self.close_frame();
        }
        match &mut self.frame {
            Some(frame) => {
                frame.missing = frame.missing.saturating_sub(1);
                if header.position > self.at.1 {
                    frame.holes.push((self.at.0, self.at.1, header.position));
                }
            }
            None => {
                // Records without a commit of their own: its record is in the hole before them.
                self.unframed.get_or_insert(self.at);
                if header.kind != KIND_SKIP {
                    self.hash = record::chain(self.hash, header.crc);
                }
            }
        }
        self.at = (offset + header.span(), end);
        end
    }

    /// In a compacted file records lie one after another, so a hole shows by its offset.
    fn find_stored(&mut self, offset: u64, header: &RecordHeader) -> Position {
        if offset > self.at.0 {
            self.push(self.at, header.position, None, "no record verifies here");
        }
        let end = header.position.plus(header.stored());
        self.at = (offset + header.stored(), end);
        end
    }

    fn begin_frame(&mut self, offset: u64, position: Position, commit: &CommitHead) {
        let from = self.unframed.take().unwrap_or(self.at);
        if from.1 < position && commit.hash_before != self.hash {
            self.push(from, position, None, "no group commit verifies here");
        }
        self.proven = self.proven.max(commit.durable);
        self.frame = Some(Frame {
            used_end: position.plus(u64::from(commit.used)),
            end: position.plus(u64::from(commit.span)),
            missing: commit.records,
            holes: Vec::new(),
            hash_after: commit.hash_after,
        });
        self.at = (offset + COMMIT_BYTES as u64, position.plus(COMMIT_BYTES as u64));
    }

    /// A commit whose own record verifies ends: what of its records was not found is counted.
    fn close_frame(&mut self) {
        let Some(mut frame) = self.frame.take() else { return };
        if self.at.1 < frame.used_end {
            frame.holes.push((self.at.0, self.at.1, frame.used_end));
        }
        let missing = u64::from(frame.missing);
        if missing > 0 && frame.holes.len() as u64 == missing {
            for (offset, from, to) in &frame.holes {
                self.push((*offset, *from), *to, Some(1), "the record does not verify");
            }
        } else if missing > 0
            && let (Some(first), Some(last)) = (frame.holes.first(), frame.holes.last())
        {
            self.push((first.0, first.1), last.2, Some(missing), "records do not verify");
        }
        self.hash = frame.hash_after;
        self.at = (self.offset_of(frame.end), frame.end);
    }

    fn offset_of(&self, position: Position) -> u64 {
        DATA_OFFSET + position.0.saturating_sub(self.header.base.0)
    }

    fn push(&mut self, (offset, from): (u64, Position), to: Position, records: Option<u64>, why: &str) {
        let bytes = to.0.saturating_sub(from.0);
        if self.dropped.len() >= STRETCHES_MAX
            && let Some(last) = self.dropped.last_mut()
        {
            last.bytes = to.0.saturating_sub(last.position.0);
            last.records = last.records.zip(records).map(|(known, more)| known + more);
            "records do not verify, in several places".clone_into(&mut last.why);
            return;
        }
        self.dropped.push(Dropped {
            file: self.name.to_owned(),
            offset,
            position: from,
            bytes,
            records,
            why: why.to_owned(),
        });
    }

    /// The walk is over. The segment ends at `end`, in the state `known` if another file tells it.
    pub fn finish(mut self, end: Position, known: Option<Cursor>, durable: Position) -> Vec<Dropped> {
        if self.header.compacted {
            // Only what was found is known: its file has no place for what is missing at the end.
            self.push(self.at, end, None, "whether records lay behind here cannot be told");
            return self.dropped;
        }
        self.close_frame();
        let proven = self.proven.max(durable);
        let from = self.unframed.take().unwrap_or(self.at);
        let continues = known.is_some_and(|state| state.hash == self.hash);
        if from.1 < end && !continues {
            self.push(from, end, None, "no group commit verifies here");
        }
        // What was not yet durable was never a part of the log.
        self.dropped.retain(|dropped| dropped.position < proven);
        self.dropped
    }

    /// The same, when it is known what there was.
    pub fn against(mut self, known: &Index, found: &Index) -> Vec<Dropped> {
        self.dropped.clear();
        let base = self.header.base;
        let user = |entry: &IndexEntry<'_>| entry.kind >= KIND_USER_MIN;
        let mut found = found.entries(base).filter(user).peekable();
        let mut open: Option<(u64, Position, Position, u64)> = None;
        let mut offset = DATA_OFFSET;
        for entry in known.entries(base) {
            let at = if self.header.compacted {
                offset
            } else {
                self.offset_of(entry.position)
            };
            offset += entry.stored();
            if !user(&entry) {
                continue;
            }
            let end = entry.position.plus(entry.stored());
            if found.next_if(|found| found.position == entry.position).is_some() {
                if let Some((at, from, to, records)) = open.take() {
                    self.push((at, from), to, Some(records), "no record verifies here");
                }
            } else if let Some((_, _, to, records)) = &mut open {
                (*to, *records) = (end, *records + 1);
            } else {
                open = Some((at, entry.position, end, 1));
            }
        }
        if let Some((at, from, to, records)) = open.take() {
            self.push((at, from), to, Some(records), "no record verifies here");
        }
        self.dropped
    }
}
