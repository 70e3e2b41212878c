//! A forced start: what can be read of a damaged segment is copied into a new sealed file, the rest is reported and left
//! out (EMS-STORE-A14). The damaged file is removed only when the manifest lists its replacement.

use std::sync::Arc;

use super::compaction::SealedFile;
use super::disk::{Disk, DiskError, DiskFile};
use super::error::LogError;
use super::footer::{Footer, Index, is_indexed};
use super::losses::Losses;
use super::position::{Position, block_aligned};
use super::record::{self, HEADER_BYTES, KIND_SKIP, RecordHeader};
use super::recovery::{Dropped, Unreadable};
use super::scan::{self, Cursor, Window};
use super::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};

/// A damaged segment and what is known about it from elsewhere.
pub(crate) struct Patient<'a> {
    pub disk: &'a Arc<dyn Disk>,
    pub file: &'a dyn DiskFile,
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

/// Copies every record that verifies into the file numbered `id`.
pub(crate) fn salvage(patient: &Patient<'_>, id: u64) -> Result<Salvaged, LogError> {
    let old = patient.header;
    let name = segment_name(old.id);
    let mut window = Window::new(patient.file, &name, patient.file_bytes);
    let mut copy = SealedFile::create(patient.disk.as_ref(), id)?;
    let mut index = Index::default();
    let mut after = Cursor {
        position: old.base,
        epoch: old.epoch,
        hash: old.hash_before,
    };
    let mut losses = Losses::new(&name, old);
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
            let head = scan::records(bytes, false).next().map_or(&[][..], |stored| stored.head);
            index.push(old.base, &header, head);
            copy.add(bytes)?;
        }
        (after.epoch, after.position) = (header.epoch, end);
        offset += step;
    }
    after.hash = losses.hash();
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
