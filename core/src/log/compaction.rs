//! Rewriting segments of which little is alive into small sealed files. Positions stay; the file only gets denser.
//!
//! In steps, each a job of its own or a bounded piece of the caller's time: load the footer; ask the [`Rewriter`] about
//! every record; copy what stays, a slice at a time; when everything that the decisions knew of is durable, put a manifest
//! in force that lists the new file; remove the old one. Until that manifest, a crash leaves the old file alone in force
//! and the half-made one to be removed at the next open.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::disk::{Disk, DiskError, DiskFile, OpenFile, write_all};
use super::footer::{Footer, Index};
use super::position::Position;
use super::position::record_aligned;
use super::record::{self, HEADER_BYTES, KIND_COMMIT, KIND_SKIP, KIND_USER_MIN};
use super::recovery::Damage;
use super::scan::{self, Cursor, Step, Window};
use super::segment_header::{DATA_OFFSET, SegmentHeader, footer_name, segment_name};
use super::segments::Segments;

/// How much of the old file one copying job reads.
const SLICE_BYTES: u64 = 8 * 1024 * 1024;

/// What the rewriter is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Rewritable<'a> {
    /// Where the record is.
    pub position: Position,
    /// The epoch it was appended in.
    pub epoch: u64,
    /// Its kind.
    pub kind: u8,
    /// Its head.
    pub head: &'a [u8],
    /// How long its payload is.
    pub payload_length: u32,
}

/// What becomes of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rewrite {
    /// Nobody needs it any more.
    Drop,
    /// It stays as it is.
    Keep,
    /// It stays as it is for what it ends itself, although a later record has ended what it began: that one must still
    /// outlive it.
    KeepSuperseded,
    /// It stays, with another head, which must not be longer than the old one: otherwise the segment stays as it is.
    KeepAs(Vec<u8>),
}

/// The state layer's say in a compaction.
///
/// After the rewrite, nothing in the segment may be superseded by a record that was appended before the rewrite began:
/// drop what is dead, take acknowledged references out of a head by [`Rewrite::KeepAs`], and say what has to stay all the
/// same by [`Rewrite::KeepSuperseded`]. Decisions may rest on
/// anything appended: the rewritten file comes into force only when that is durable.
pub trait Rewriter {
    /// Decides about one record.
    fn rewrite(&self, record: Rewritable<'_>, presence: &Presence<'_>) -> Rewrite;
}

/// Keeps everything: for hosts without a state layer.
pub struct KeepAll;

impl Rewriter for KeepAll {
    fn rewrite(&self, _record: Rewritable<'_>, _presence: &Presence<'_>) -> Rewrite {
        Rewrite::Keep
    }
}

/// Answers what is still on disk.
pub struct Presence<'a> {
    pub(crate) segments: &'a Segments,
    pub(crate) rewriting: Position,
    /// What was superseded in that segment since its rewrite began.
    pub(crate) superseded: &'a FxHashSet<Position>,
}

impl Presence<'_> {
    /// Whether a copy of the record at `target` that does not know of the later record at `holder` may still be on disk.
    /// While it may, the record at `holder` (an acknowledgement, say) must be kept.
    #[must_use]
    pub fn may_exist(&self, holder: Position, target: Position) -> bool {
        let Some(segment) = self.segments.peek(target) else {
            return false;
        };
        if segment.base == self.rewriting {
            // Asked before this, the record at `target` may have been kept: what superseded it came only then.
            return self.superseded.contains(&target);
        }
        segment.rewritten_at <= holder
    }
}

/// A new sealed file while it is written.
pub(crate) struct SealedFile {
    id: u64,
    file: Arc<dyn DiskFile>,
    offset: u64,
    buffer: Vec<u8>,
}

impl SealedFile {
    pub fn create(disk: &dyn Disk, id: u64) -> Result<Self, DiskError> {
        let file = disk.open(&segment_name(id), OpenFile::Fresh)?;
        Ok(Self {
            id,
            file,
            offset: DATA_OFFSET,
            buffer: Vec::new(),
        })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Adds an encoded record.
    pub fn add(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        const BUFFER_BYTES: usize = 1024 * 1024;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), DiskError> {
        self.write(self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        write_all(self.file.as_ref(), offset, &mut [IoSlice::new(bytes)])
            .map_err(|error| DiskError::new("write", &segment_name(self.id), error))
    }

    /// Completes the file and its footer, durable with their names; returns the file's length and the footer's checksum.
    pub fn finish(mut self, disk: &dyn Disk, header: &SegmentHeader, footer: &Footer) -> Result<(u32, u32), DiskError> {
        self.flush()?;
        self.write(0, &header.encode())?;
        self.file
            .sync_data()
            .map_err(|error| DiskError::new("sync", &segment_name(self.id), error))?;
        let footer_crc = write_footer(disk, footer)?;
        disk.sync_directory()?;
        Ok((self.offset as u32, footer_crc))
    }
}

/// Writes and syncs a footer file; its name is durable after the directory's sync. Returns its checksum.
pub(crate) fn write_footer(disk: &dyn Disk, footer: &Footer) -> Result<u32, DiskError> {
    let name = footer_name(footer.id);
    let (bytes, crc) = footer.encode();
    let file = disk.open(&name, OpenFile::Fresh)?;
    write_all(file.as_ref(), 0, &mut [IoSlice::new(&bytes)])
        .and_then(|()| file.sync_data())
        .map_err(|error| DiskError::new("write", &name, error))?;
    Ok(crc)
}

/// What stays of a segment: in order of position, with the new head if there is one.
pub(crate) type Kept = VecDeque<(Position, Option<Vec<u8>>)>;

/// The copying of one segment, between two slices.
pub(crate) struct Copying {
    pub footer: Footer,
    pub file_bytes: u32,
    /// The old file's header.
    pub header: SegmentHeader,
    pub kept: Kept,
    id: u64,
    /// Made by the first slice.
    copy: Option<SealedFile>,
    index: Index,
    /// Where the walk through the old file stands.
    offset: u64,
    cursor: Cursor,
}

/// A copy that is complete and durable, and not yet in force.
pub(crate) struct Copied {
    pub id: u64,
    pub file_bytes: u32,
    pub footer_crc: u32,
    pub landmarks: Vec<(Position, u64)>,
    pub user_records: u64,
}

/// What a slice led to.
pub(crate) enum Slice {
    More(Box<Copying>),
    Done(Copied),
    /// Something in the old file does not verify: it stays as it is.
    Damaged(Damage),
}

impl Copying {
    pub fn new(id: u64, header: SegmentHeader, footer: Footer, file_bytes: u32, kept: Kept) -> Self {
        let cursor = Cursor {
            position: header.base,
            epoch: header.epoch,
            hash: header.hash_before,
        };
        let (index, offset) = (Index::default(), DATA_OFFSET);
        Self {
            footer,
            file_bytes,
            header,
            kept,
            id,
            copy: None,
            index,
            offset,
            cursor,
        }
    }

    /// Copies the next slice.
    pub fn run(mut self: Box<Self>, disk: &dyn Disk) -> Result<Slice, DiskError> {
        let file = disk.open(&segment_name(self.header.id), OpenFile::ReadOnly)?;
        let to = self.offset + SLICE_BYTES;
        let mut copy = match self.copy.take() {
            Some(copy) => copy,
            None => SealedFile::create(disk, self.id)?,
        };
        let complete = if self.header.compacted {
            self.copy_compacted(file.as_ref(), &mut copy, to)?
        } else {
            self.copy_written(file.as_ref(), &mut copy, to)?
        };
        match complete {
            None => Ok(Slice::Damaged(Damage {
                file: segment_name(self.header.id),
                offset: self.offset,
                position: self.cursor.position,
                why: "it does not verify, or cannot be read".to_owned(),
            })),
            Some(true) => self.finish(disk, copy).map(Slice::Done),
            Some(false) => {
                self.copy = Some(copy);
                Ok(Slice::More(self))
            }
        }
    }

    /// From a segment as it was written; `None` if it does not verify, else whether its end was reached.
    fn copy_written(&mut self, file: &dyn DiskFile, copy: &mut SealedFile, to: u64) -> Result<Option<bool>, DiskError> {
        let name = segment_name(self.header.id);
        let base = self.header.base;
        let mut window = Window::new(file, &name, DATA_OFFSET + (self.footer.end.0 - base.0));
        while self.offset < to {
            let commit = match scan::next_commit(&mut window, base, self.cursor)? {
                Step::Full => return Ok(Some(true)),
                Step::Broken { .. } => return Ok(None),
                Step::Commit(commit) => commit,
            };
            let mut frame = None;
            for stored in scan::records(commit.bytes, true) {
                let end = stored.at + stored.header.stored() as usize;
                let bytes = &commit.bytes[stored.at..end.min(commit.bytes.len())];
                if stored.header.kind == KIND_COMMIT {
                    frame = Some((stored, bytes));
                } else if stored.header.kind != KIND_SKIP && keeps(&self.kept, &stored) {
                    if let Some((frame, bytes)) = frame.take() {
                        self.index.push(base, &frame.header, frame.head);
                        copy.add(bytes)?;
                    }
                    copy_record(&mut self.kept, &mut self.index, copy, base, &stored, bytes)?;
                }
            }
            self.cursor = commit.after;
            self.offset = DATA_OFFSET + (self.cursor.position.0 - base.0);
        }
        Ok(Some(false))
    }

    /// From a file compacted before.
    fn copy_compacted(
        &mut self,
        file: &dyn DiskFile,
        copy: &mut SealedFile,
        to: u64,
    ) -> Result<Option<bool>, DiskError> {
        let name = segment_name(self.header.id);
        let (base, end) = (self.header.base, self.footer.end);
        let mut window = Window::new(file, &name, u64::from(self.file_bytes));
        let mut frame: Option<(Vec<u8>, u64)> = None;
        while self.offset < u64::from(self.file_bytes) {
            let Ok((header, bytes)) = scan::next_stored(&mut window, self.offset, self.cursor.position, end)? else {
                return Ok(None);
            };
            let Some(stored) = scan::records(bytes, false).next() else {
                return Ok(None);
            };
            let (offset, next) = (self.offset, self.offset + header.stored());
            if header.kind == KIND_COMMIT {
                if offset >= to {
                    return Ok(Some(false));
                }
                frame = Some((bytes.to_vec(), offset));
            } else if keeps(&self.kept, &stored) {
                if let Some((frame, _)) = frame.take()
                    && let Some(commit) = scan::records(&frame, false).next()
                {
                    self.index.push(base, &commit.header, commit.head);
                    copy.add(&frame)?;
                }
                copy_record(&mut self.kept, &mut self.index, copy, base, &stored, bytes)?;
            }
            self.offset = next;
            self.cursor.position = header.position.plus(1);
        }
        Ok(Some(true))
    }

    fn finish(self, disk: &dyn Disk, copy: SealedFile) -> Result<Copied, DiskError> {
        let (base, end) = (self.footer.base, self.footer.end);
        let id = self.id;
        let landmarks = self.index.landmarks(base);
        let user_records = self.index.user_records;
        let header = SegmentHeader {
            id,
            end,
            hash_after: self.footer.hash_after,
            epoch_after: self.footer.epoch,
            compacted: true,
            ..self.header
        };
        let footer = Footer {
            id,
            index: self.index,
            ..self.footer
        };
        let (file_bytes, footer_crc) = copy.finish(disk, &header, &footer)?;
        Ok(Copied {
            id,
            file_bytes,
            footer_crc,
            landmarks,
            user_records,
        })
    }
}

/// The log's own records stay; the others if they are next in the list.
fn keeps(kept: &Kept, stored: &scan::Stored<'_>) -> bool {
    stored.header.kind < KIND_USER_MIN
        || kept
            .front()
            .is_some_and(|(position, _)| *position == stored.header.position)
}

fn copy_record(
    kept: &mut Kept,
    index: &mut Index,
    copy: &mut SealedFile,
    base: Position,
    stored: &scan::Stored<'_>,
    bytes: &[u8],
) -> Result<(), DiskError> {
    let header = stored.header;
    let head = if header.kind < KIND_USER_MIN {
        None
    } else {
        kept.pop_front().and_then(|(_, head)| head)
    };
    let Some(head) = head else {
        index.push(base, &header, stored.head);
        return copy.add(bytes);
    };
    // Between this record and the next there is room for a skip's header, or there is nothing.
    let shorter = record_aligned((HEADER_BYTES + head.len() + stored.payload.len()) as u64);
    let gap = header.stored().saturating_sub(shorter);
    let slack = if gap < HEADER_BYTES as u64 { gap as u8 } else { 0 };
    let mut record = Vec::with_capacity(bytes.len());
    record::encode_rewritten(&mut record, &header, slack, &head, stored.payload);
    if let Some(written) = scan::records(&record, false).next() {
        index.push(base, &written.header, written.head);
    }
    copy.add(&record)
}
