//! A forced start: what can be read of a damaged segment is copied into a new sealed file, the rest is reported and left
//! out (EMS-STORE-A14). The damaged file is removed only when the manifest lists its replacement.
//!
//! Where a footer says what the segment held, records that are nothing but a head are made again from it, also when the
//! whole file is gone: what exists, what has ended, what was decided. Only messages have a payload, which is nowhere else.

use std::iter::Peekable;
use std::sync::Arc;

use super::compaction::SealedFile;
use super::disk::{Disk, DiskError, DiskFile};
use super::error::LogError;
use super::footer::{Footer, Index, IndexEntry, is_indexed};
use super::losses::Losses;
use super::position::{Position, block_aligned};
use super::record::{self, HEADER_BYTES, KIND_COMMIT, KIND_SKIP, RecordHeader};
use super::recovery::{Dropped, Unreadable};
use super::scan::{self, Cursor, Window};
use super::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};

/// A damaged segment and what is known about it from elsewhere.
pub(crate) struct Patient<'a> {
    pub disk: &'a Arc<dyn Disk>,
    /// None: it is gone.
    pub file: Option<&'a dyn DiskFile>,
    /// Its length now.
    pub file_bytes: u64,
    /// As it was, or as it must have been.
    pub header: SegmentHeader,
    /// Known to have been durable up to here.
    pub durable: Position,
    /// Records that verify, and that the layer above cannot read: they are left out, which is not damage.
    pub unreadable: Option<&'a Unreadable>,
    /// What it held, if that is known.
    pub known: Option<&'a Index>,
    /// The log's state at some positions, as other files tell it: the copy has to fit in between.
    pub states: &'a [Cursor],
    /// Nothing tells how far it was durable.
    pub unproven: bool,
}

/// The replacement.
pub(crate) struct Salvaged {
    pub footer: Footer,
    pub footer_crc: u32,
    pub file_bytes: u32,
    pub after: Cursor,
    pub dropped: Vec<Dropped>,
}

/// The new file while it is filled, in order of position.
struct Copy<'a, Known: Iterator<Item = IndexEntry<'a>>> {
    base: Position,
    file: SealedFile,
    index: Index,
    /// Records that are nothing but a head, as the footer has them, and that were not come by yet.
    known: Peekable<Known>,
    /// Of the records that the footer alone had: the last one's.
    epoch: u64,
}

impl<'a, Known: Iterator<Item = IndexEntry<'a>>> Copy<'a, Known> {
    /// Adds what the footer knows below a position, and was not found there.
    fn restore_below(&mut self, position: Position) -> Result<(), DiskError> {
        while let Some(entry) = self.known.next_if(|entry| entry.position < position) {
            let (bytes, header) = encode_again(&entry);
            self.index.push(self.base, &header, entry.head);
            self.file.add(&bytes)?;
            self.epoch = entry.epoch;
        }
        Ok(())
    }

    /// Adds a record that was found.
    fn add(&mut self, header: &RecordHeader, bytes: &[u8]) -> Result<(), DiskError> {
        self.restore_below(header.position)?;
        self.known.next_if(|entry| entry.position == header.position);
        let head = scan::records(bytes, false).next().map_or(&[][..], |stored| stored.head);
        self.index.push(self.base, header, head);
        self.file.add(bytes)
    }
}

/// A record that is nothing but a head, as it was. Whether its head was replaced the footer does not tell: then the rolling
/// hash cannot be computed over it, which is said of all of them.
fn encode_again(entry: &IndexEntry<'_>) -> (Vec<u8>, RecordHeader) {
    let mut header = RecordHeader {
        crc: 0,
        length: (HEADER_BYTES + entry.head.len()) as u32,
        position: entry.position,
        epoch: entry.epoch,
        head_length: entry.head.len() as u32,
        kind: entry.kind,
        slack: entry.slack,
        rewritten: entry.kind != KIND_COMMIT,
    };
    let mut bytes = Vec::with_capacity(entry.stored() as usize);
    header.crc = if header.rewritten {
        record::encode_rewritten(&mut bytes, &header, entry.slack, entry.head, &[])
    } else {
        record::encode(&mut bytes, entry.position, entry.epoch, entry.kind, entry.head, &[])
    };
    (bytes, header)
}

/// Copies every record that verifies, or that the footer has all of, into the file numbered `id`.
pub(crate) fn salvage(patient: &Patient<'_>, id: u64) -> Result<Salvaged, LogError> {
    let old = patient.header;
    let name = segment_name(old.id);
    let is_whole = |entry: &IndexEntry<'_>| entry.payload_length == 0;
    let known = patient.known.into_iter().flat_map(|known| known.entries(old.base));
    let mut copy = Copy {
        base: old.base,
        file: SealedFile::create(patient.disk.as_ref(), id)?,
        index: Index::default(),
        known: known.filter(is_whole).peekable(),
        epoch: 0,
    };
    let (after, losses) = copy_found(patient, &name, &mut copy)?;
    copy.restore_below(Position(u64::MAX))?;
    let mut after = Cursor {
        hash: losses.hash(),
        epoch: after.epoch.max(copy.epoch),
        ..after
    };
    let Copy { file: copy, index, .. } = copy;
    after.position = Position(block_aligned(after.position.0)).max(patient.durable);
    if old.compacted {
        (after.position, after.hash, after.epoch) = (old.end, old.hash_after, old.epoch_after);
    }
    let state = patient.states.iter().find(|state| state.position == after.position);
    after = state.copied().unwrap_or(after);
    let dropped = match patient.known {
        Some(known) => losses.against(known, &index),
        None => {
            let durable = if patient.unproven {
                Position(u64::MAX)
            } else {
                patient.durable
            };
            losses.finish(after.position, state.copied(), durable)
        }
    };
    finish(patient, copy, index, after, dropped)
}

/// Copies what verifies in the damaged file; where that ends.
fn copy_found<'n, 'a>(
    patient: &Patient<'_>,
    name: &'n str,
    copy: &mut Copy<'a, impl Iterator<Item = IndexEntry<'a>>>,
) -> Result<(Cursor, Losses<'n>), LogError> {
    let old = patient.header;
    let mut after = Cursor {
        position: old.base,
        epoch: old.epoch,
        hash: old.hash_before,
    };
    let mut losses = Losses::new(name, old);
    let Some(file) = patient.file else {
        return Ok((after, losses));
    };
    let mut window = Window::new(file, name, patient.file_bytes);
    let mut offset = DATA_OFFSET;
    while offset + HEADER_BYTES as u64 <= patient.file_bytes {
        let position = place(&old, offset);
        let found = record_at(&mut window, &old, offset, position)?
            .filter(|(header, _)| header.epoch >= after.epoch && header.position >= after.position);
        let Some((header, bytes)) = found else {
            offset += 8;
            continue;
        };
        let step = if old.compacted { header.stored() } else { header.span() };
        let end = losses.find(offset, &header, bytes);
        let left_out = patient
            .unreadable
            .is_some_and(|unreadable| unreadable.contains_key(&header.position));
        if is_indexed(header.kind, true) && !left_out {
            copy.add(&header, bytes)?;
        }
        (after.epoch, after.position) = (header.epoch, end);
        offset += step;
    }
    Ok((after, losses))
}

fn finish(
    patient: &Patient<'_>,
    copy: SealedFile,
    index: Index,
    after: Cursor,
    dropped: Vec<Dropped>,
) -> Result<Salvaged, LogError> {
    let old = patient.header;
    let header = SegmentHeader {
        id: copy.id(),
        end: after.position,
        hash_after: after.hash,
        epoch_after: after.epoch,
        compacted: true,
        ..old
    };
    let footer = Footer {
        store_id: old.store_id,
        id: copy.id(),
        base: old.base,
        end: after.position,
        hash_before: old.hash_before,
        hash_after: after.hash,
        epoch: after.epoch,
        index,
    };
    let (file_bytes, footer_crc) = copy.finish(patient.disk.as_ref(), &header, &footer)?;
    Ok(Salvaged {
        footer,
        footer_crc,
        file_bytes,
        after,
        dropped,
    })
}

fn place(header: &SegmentHeader, offset: u64) -> Option<Position> {
    (!header.compacted).then(|| header.base.plus(offset - DATA_OFFSET))
}

fn record_at<'w>(
    window: &'w mut Window<'_>,
    segment: &SegmentHeader,
    offset: u64,
    position: Option<Position>,
) -> Result<Option<(RecordHeader, &'w [u8])>, DiskError> {
    let Ok(header) = RecordHeader::decode(window.get(offset, HEADER_BYTES)?, u64::MAX) else {
        return Ok(None);
    };
    let inside = header.position >= segment.base && header.stored() <= u64::from(u32::MAX);
    if !inside || position.is_some_and(|position| position != header.position) {
        return Ok(None);
    }
    if segment.compacted && (header.position >= segment.end || header.kind == KIND_SKIP) {
        return Ok(None);
    }
    let bytes = window.get(offset, header.stored() as usize)?;
    Ok(record::verify(bytes, header.position, u64::MAX)
        .is_ok()
        .then_some((header, bytes)))
}
