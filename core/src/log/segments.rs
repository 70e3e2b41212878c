//! The segments of a log as memory knows them, in order of position, and how a position finds its segment.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::disk::{Disk, DiskError, DiskFile, OpenFile};
use super::footer::{Footer, Index};
use super::manifest::Entry;
use super::position::Position;
use super::segment_header::{DATA_OFFSET, SegmentHeader};

/// One segment file.
pub(crate) struct Segment {
    pub id: u64,
    pub file_bytes: u32,
    pub base: Position,
    pub previous_end: Position,
    /// Where its records end; grows while it is written.
    pub end: Position,
    pub hash_before: u64,
    pub hash_after: u64,
    /// The epoch when it began, and the one in force at its end.
    pub epoch_before: u64,
    pub epoch: u64,
    /// Open while the segment is unsealed; sealed ones are opened by who reads them.
    pub file: Option<Arc<dyn DiskFile>>,
    /// The file once more, for upkeep: whoever syncs a file needs a description of its own to be told of every failure.
    pub filler: Option<Arc<dyn DiskFile>>,
    /// The header block has been handed to a write job.
    pub begun: bool,
    /// File offset up to which blocks were written at least once (zeros or an earlier life).
    pub zeroed_to: u64,
    /// Of unsealed segments.
    pub index: Index,
    pub sealed: bool,
    pub compacted: bool,
    pub rewritten_at: Position,
    pub footer_crc: u32,
    /// Something in it was found damaged: it stays as it is until nothing needs it.
    pub damaged: bool,
    /// Of compacted segments: where in the file some positions are.
    pub landmarks: Vec<(Position, u64)>,
    pub user_records: u64,
    pub liveness: Liveness,
}

/// What keeps a segment from being removed.
#[derive(Default)]
pub(crate) struct Liveness {
    pub holds: u64,
    /// The end of the log when the last hold was given back: the record that did it lies below.
    pub ended_at: Position,
    /// How many sets of dependents (of other segments) contain this one.
    pub blockers: u32,
    /// Segments that must outlive this one, by their base: that never changes.
    pub dependents: FxHashSet<Position>,
    /// Those from before a rewrite of this segment that is going on.
    pub dependents_before: FxHashSet<Position>,
    /// Holds and blockers when a rewrite was last tried, so that a fruitless one is not repeated at once.
    pub tried_at: Option<(u64, u32)>,
}

/// An unsealed segment's file, open once for each job that syncs it. Both are open before the segment is needed.
pub(crate) struct SegmentFiles {
    pub writer: Arc<dyn DiskFile>,
    pub filler: Arc<dyn DiskFile>,
}

impl SegmentFiles {
    /// Opens a file that is there.
    pub fn open(disk: &dyn Disk, name: &str) -> Result<Self, DiskError> {
        Self::beside(disk, name, disk.open(name, OpenFile::Existing)?)
    }

    /// Opens once more a file that is open.
    pub fn beside(disk: &dyn Disk, name: &str, writer: Arc<dyn DiskFile>) -> Result<Self, DiskError> {
        let filler = disk.open(name, OpenFile::Existing)?;
        Ok(Self { writer, filler })
    }
}

impl Segment {
    /// A prepared file that holds nothing yet.
    pub fn ahead(id: u64, file_bytes: u32, files: SegmentFiles, zeroed_to: u64) -> Self {
        Self {
            id,
            file_bytes,
            base: Position::ZERO,
            previous_end: Position::ZERO,
            end: Position::ZERO,
            hash_before: 0,
            hash_after: 0,
            epoch_before: 0,
            epoch: 0,
            file: Some(files.writer),
            filler: Some(files.filler),
            begun: false,
            zeroed_to,
            index: Index::default(),
            sealed: false,
            compacted: false,
            rewritten_at: Position::ZERO,
            footer_crc: 0,
            damaged: false,
            landmarks: Vec::new(),
            user_records: 0,
            liveness: Liveness::default(),
        }
    }

    /// A sealed file, as its footer describes it.
    pub fn sealed(entry: &Entry, footer: &Footer, landmarks: Vec<(Position, u64)>) -> Self {
        Self {
            id: entry.id,
            file_bytes: entry.file_bytes,
            base: footer.base,
            previous_end: footer.base,
            end: footer.end,
            hash_before: footer.hash_before,
            hash_after: footer.hash_after,
            epoch_before: footer.epoch,
            epoch: footer.epoch,
            file: None,
            filler: None,
            begun: true,
            zeroed_to: u64::from(entry.file_bytes),
            index: Index::default(),
            sealed: true,
            compacted: entry.compacted,
            rewritten_at: entry.rewritten_at,
            footer_crc: entry.footer_crc,
            damaged: false,
            landmarks,
            user_records: footer.index.user_records,
            liveness: Liveness::default(),
        }
    }

    /// Position space the file has room for, as seen from its base.
    pub fn limit(&self) -> Position {
        self.base.plus(u64::from(self.file_bytes) - DATA_OFFSET)
    }

    /// File offset of a position, in a segment as it was written.
    pub fn offset_of(&self, position: Position) -> u64 {
        DATA_OFFSET + (position.0 - self.base.0)
    }

    pub fn header(&self, store_id: [u8; 16]) -> SegmentHeader {
        SegmentHeader {
            store_id,
            id: self.id,
            base: self.base,
            previous_end: self.previous_end,
            epoch: self.epoch_before,
            hash_before: self.hash_before,
            end: Position::ZERO,
            hash_after: 0,
            epoch_after: 0,
            compacted: false,
        }
    }

    /// What the manifest says of it.
    pub fn entry(&self) -> Entry {
        let place = |position| if self.sealed { position } else { Position::ZERO };
        Entry {
            id: self.id,
            base: place(self.base),
            end: place(self.end),
            rewritten_at: self.rewritten_at,
            file_bytes: self.file_bytes,
            footer_crc: self.footer_crc,
            sealed: self.sealed,
            compacted: self.compacted,
        }
    }
}

/// The segments that hold records, in order of position.
#[derive(Default)]
pub(crate) struct Segments {
    list: Vec<Segment>,
    /// Where the last look-up ended: most follow one another closely.
    hot: usize,
}

impl Segments {
    pub fn push(&mut self, segment: Segment) {
        self.list.push(segment);
    }

    pub fn pop(&mut self) -> Option<Segment> {
        self.list.pop()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Segment> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Segment> {
        self.list.iter_mut()
    }

    pub fn last(&self) -> Option<&Segment> {
        self.list.last()
    }

    pub fn last_mut(&mut self) -> Option<&mut Segment> {
        self.list.last_mut()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The segment whose position space contains `position`.
    #[inline]
    pub fn find(&mut self, position: Position) -> Option<&mut Segment> {
        let index = self.index_of(position)?;
        self.hot = index;
        self.list.get_mut(index)
    }

    /// As [`Segments::find`], without remembering.
    pub fn peek(&self, position: Position) -> Option<&Segment> {
        self.list.get(self.index_of(position)?)
    }

    #[inline]
    fn index_of(&self, position: Position) -> Option<usize> {
        let inside = |segment: &Segment| segment.base <= position && position < segment.end;
        if self.list.get(self.hot).is_some_and(inside) {
            return Some(self.hot);
        }
        let index = self
            .list
            .partition_point(|segment| segment.base <= position)
            .checked_sub(1)?;
        self.list.get(index).is_some_and(inside).then_some(index)
    }

    /// The first segment that ends after `position`.
    pub fn first_after(&self, position: Position) -> Option<&Segment> {
        self.list
            .get(self.list.partition_point(|segment| segment.end <= position))
    }

    pub fn by_id(&self, id: u64) -> Option<&Segment> {
        self.list.iter().rev().find(|segment| segment.id == id)
    }

    pub fn by_id_mut(&mut self, id: u64) -> Option<&mut Segment> {
        self.list.iter_mut().rev().find(|segment| segment.id == id)
    }

    pub fn by_base_mut(&mut self, base: Position) -> Option<&mut Segment> {
        let index = self.list.binary_search_by_key(&base, |segment| segment.base).ok()?;
        self.list.get_mut(index)
    }

    pub fn remove(&mut self, id: u64) -> Option<Segment> {
        let index = self.list.iter().position(|segment| segment.id == id)?;
        self.hot = 0;
        Some(self.list.remove(index))
    }
}
