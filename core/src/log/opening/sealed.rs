//! The sealed part of a log at open: footers, and what stands in for them.

use std::io::ErrorKind;

use super::{Opening, Visitor, first_block, manifest_cursor};
use crate::log::disk::{DiskError, DiskFile, OpenFile};
use crate::log::error::LogError;
use crate::log::footer::Footer;
use crate::log::manifest::{Entry, MANIFEST_FILES};
use crate::log::position::Position;
use crate::log::recovery::{self, Damage, Dropped, Unreadable};
use crate::log::salvage::{self, Patient};
use crate::log::scan::Cursor;
use crate::log::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};
use crate::log::segments::Segment;

impl Opening {
    /// Sealed segments: their footers are read, and their records only where a footer cannot be.
    pub(super) fn open_sealed(&mut self, visitor: Visitor<'_>) -> Result<(), LogError> {
        let sealed: Vec<Entry> = self
            .manifest
            .entries
            .iter()
            .copied()
            .filter(|entry| entry.sealed)
            .collect();
        for entry in sealed {
            let (footer, entry) = match self.read_sealed(&entry)? {
                Ok(footer) => (footer, entry),
                Err(damage) => match self.force_sealed(&entry, damage)? {
                    Some(replaced) => replaced,
                    None => continue,
                },
            };
            let unreadable = self.options.force_start.then_some(&mut self.unreadable);
            recovery::visit(&footer.index, footer.base, &mut self.report, visitor, unreadable)?;
            self.push_sealed(&entry, &footer);
        }
        let end = manifest_cursor(&self.manifest);
        // The newest sealed segment may be retired already, but none reaches further than the manifest says.
        let contradicts =
            self.cursor.position > end.position || self.cursor.position == end.position && self.cursor != end;
        if !self.lenient && !self.segments.is_empty() && contradicts {
            let why = "the segments do not end as the manifest says".to_owned();
            let file = MANIFEST_FILES.join(", ");
            return Err(Damage {
                file,
                offset: 0,
                position: self.cursor.position,
                why,
            }
            .into());
        }
        if !self.lenient || self.cursor.position < end.position {
            self.cursor = end;
        }
        Ok(())
    }

    /// In a forced start: makes every segment with records that the layer above could not read anew without them, and says so.
    /// The next start then finds none.
    pub(super) fn leave_out_unreadable(&mut self) -> Result<(), LogError> {
        if self.unreadable.is_empty() {
            return Ok(());
        }
        self.lenient = true;
        self.seal_begun()?;
        let found: Vec<(u64, Position, Position)> = self
            .segments
            .iter()
            .map(|segment| (segment.id, segment.base, segment.end))
            .collect();
        for (id, base, end) in found {
            let unreadable: Unreadable = self
                .unreadable
                .range(base..end)
                .map(|(position, known)| (*position, known.clone()))
                .collect();
            let name = segment_name(id);
            let Some(mut dropped) = recovery::dropped_unreadable(&unreadable, &name, base) else {
                continue;
            };
            let file = self.disk.open(&name, OpenFile::ReadOnly)?;
            let store_id = self.manifest.store_id;
            let Some(header) = SegmentHeader::decode(&first_block(self.disk.as_ref(), &name)?, store_id, id) else {
                return Err(LogError::Gone(base));
            };
            if header.compacted {
                // Where they are in the file is not told by their positions.
                dropped.offset = 0;
            }
            let (footer, entry) = self.make_anew(Some(file.as_ref()), header, end, None, Some(&unreadable), dropped)?;
            if let Some(segment) = self.segments.iter_mut().find(|segment| segment.id == id) {
                let epoch_before = segment.epoch_before;
                *segment = Segment::sealed(&entry, &footer, footer.index.landmarks(footer.base));
                segment.epoch_before = epoch_before;
            }
        }
        Ok(())
    }

    pub(super) fn push_sealed(&mut self, entry: &Entry, footer: &Footer) {
        let landmarks = if entry.compacted {
            footer.index.landmarks(footer.base)
        } else {
            Vec::new()
        };
        let mut segment = Segment::sealed(entry, footer, landmarks);
        segment.epoch_before = self.cursor.epoch;
        self.segments.push(segment);
        self.cursor = Cursor {
            position: footer.end,
            epoch: footer.epoch,
            hash: footer.hash_after,
        };
    }

    /// The footer of a sealed segment, read or made again; the inner error says what is damaged.
    fn read_sealed(&mut self, entry: &Entry) -> Result<Result<Footer, Damage>, LogError> {
        let name = segment_name(entry.id);
        let damage = |offset: u64, why: &str| {
            Ok(Err(Damage {
                file: name.clone(),
                offset,
                position: entry.base,
                why: why.to_owned(),
            }))
        };
        let file = match self.disk.open(&name, OpenFile::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.source.kind() == ErrorKind::NotFound => return damage(0, "the file is missing"),
            Err(error) => return Err(error.into()),
        };
        let length = file
            .length()
            .map_err(|error| DiskError::new("length of", &name, error))?;
        let needed = if entry.compacted {
            u64::from(entry.file_bytes)
        } else {
            DATA_OFFSET + (entry.end.0 - entry.base.0)
        };
        if length < needed {
            return damage(length, "the file is shorter than its records");
        }
        let store_id = self.manifest.store_id;
        let Some(header) = SegmentHeader::decode(&first_block(self.disk.as_ref(), &name)?, store_id, entry.id) else {
            return damage(0, "the segment's header does not verify");
        };
        if header.base != entry.base || header.compacted != entry.compacted {
            return damage(0, "the segment's header contradicts the manifest");
        }
        let footer = Footer::read(self.disk.as_ref(), store_id, entry.id, entry.footer_crc)?;
        let footer = match footer {
            Some(footer) if (footer.base, footer.end) == (entry.base, entry.end) => {
                self.report.footers_read += 1;
                footer
            }
            _ => match self.rebuild_footer(file.as_ref(), &header, entry)? {
                Ok(footer) => footer,
                Err(damage) => return Ok(Err(damage)),
            },
        };
        let continues = footer.base > self.cursor.position
            || self.segments.is_empty()
            || (footer.base == self.cursor.position && footer.hash_before == self.cursor.hash);
        if !continues {
            return damage(0, "the rolling hash does not continue from the segment before");
        }
        Ok(Ok(footer))
    }

    fn rebuild_footer(
        &mut self,
        file: &dyn DiskFile,
        header: &SegmentHeader,
        entry: &Entry,
    ) -> Result<Result<Footer, Damage>, LogError> {
        let (index, after) = if entry.compacted {
            match recovery::scan_compacted(file, header, u64::from(entry.file_bytes))? {
                Ok(index) => (
                    index,
                    Cursor {
                        position: header.end,
                        epoch: header.epoch_after,
                        hash: header.hash_after,
                    },
                ),
                Err(damage) => return Ok(Err(damage)),
            }
        } else {
            let scanned = recovery::scan_written(file, header, entry.end)?;
            match scanned.stop {
                Some(damage) => return Ok(Err(damage)),
                None => (scanned.index, scanned.after),
            }
        };
        self.report.footers_rebuilt += 1;
        let footer = Footer {
            store_id: header.store_id,
            id: entry.id,
            base: entry.base,
            end: entry.end,
            hash_before: header.hash_before,
            hash_after: after.hash,
            epoch: after.epoch,
            index,
        };
        self.remade.push(footer.clone());
        Ok(Ok(footer))
    }

    /// A damaged sealed segment: refuse, or in a forced start replace it by what can be read of it.
    fn force_sealed(&mut self, entry: &Entry, damage: Damage) -> Result<Option<(Footer, Entry)>, LogError> {
        if !self.options.force_start {
            return Err(damage.into());
        }
        self.lenient = true;
        let name = segment_name(entry.id);
        let store_id = self.manifest.store_id;
        let footer = Footer::read(self.disk.as_ref(), store_id, entry.id, entry.footer_crc)?
            .filter(|footer| (footer.base, footer.end) == (entry.base, entry.end));
        let file = match self.disk.open(&name, OpenFile::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.source.kind() == ErrorKind::NotFound => {
                let Some(footer) = footer else {
                    self.drop_stretch(name, 0, (entry.base, entry.end), None, damage.why);
                    self.replace(entry.id, None);
                    return Ok(None);
                };
                let mut header = self.header_of(&footer);
                self.follow_on(&mut header);
                return self.salvage(None, header, entry.end, damage, Some(&footer)).map(Some);
            }
            Err(error) => return Err(error.into()),
        };
        let block = first_block(self.disk.as_ref(), &name)?;
        let known = SegmentHeader::decode(&block, self.manifest.store_id, entry.id);
        let mut header = known.unwrap_or(SegmentHeader {
            store_id: self.manifest.store_id,
            id: entry.id,
            base: entry.base,
            previous_end: self.cursor.position,
            epoch: self.cursor.epoch,
            hash_before: self.cursor.hash,
            end: entry.end,
            hash_after: self.cursor.hash,
            epoch_after: self.cursor.epoch,
            compacted: entry.compacted,
        });
        self.follow_on(&mut header);
        self.salvage(Some(file.as_ref()), header, entry.end, damage, footer.as_ref())
            .map(Some)
    }

    /// Whatever became of the segment before: the copies continue one another.
    fn follow_on(&self, header: &mut SegmentHeader) {
        if header.base == self.cursor.position {
            header.hash_before = self.cursor.hash;
        }
    }

    /// The header of a file that is gone, and of which only the footer is there: as of one that was rewritten.
    fn header_of(&self, footer: &Footer) -> SegmentHeader {
        SegmentHeader {
            store_id: footer.store_id,
            id: footer.id,
            base: footer.base,
            previous_end: self.cursor.position,
            epoch: self.cursor.epoch,
            hash_before: footer.hash_before,
            end: footer.end,
            hash_after: footer.hash_after,
            epoch_after: footer.epoch,
            compacted: true,
        }
    }

    /// The log's state where segments begin, as their headers tell it, and where the sealed ones end.
    fn states(&self) -> Result<Vec<Cursor>, LogError> {
        let mut states = vec![manifest_cursor(&self.manifest)];
        for entry in &self.manifest.entries {
            let name = segment_name(entry.id);
            let block = match first_block(self.disk.as_ref(), &name) {
                Ok(block) => block,
                Err(error) if error.source.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            let header = SegmentHeader::decode(&block, self.manifest.store_id, entry.id);
            states.extend(
                header
                    .filter(|header| header.previous_end == header.base)
                    .map(|header| Cursor {
                        position: header.base,
                        epoch: header.epoch,
                        hash: header.hash_before,
                    }),
            );
        }
        Ok(states)
    }

    pub(super) fn salvage(
        &mut self,
        file: Option<&dyn DiskFile>,
        header: SegmentHeader,
        durable: Position,
        damage: Damage,
        known: Option<&Footer>,
    ) -> Result<(Footer, Entry), LogError> {
        let Damage {
            file: damaged,
            offset,
            position,
            why,
        } = damage;
        let dropped = Dropped {
            file: damaged,
            offset,
            position,
            bytes: 0,
            records: Some(0),
            why: format!("{why}; every record was found all the same"),
        };
        self.make_anew(file, header, durable, known, None, dropped)
    }

    /// Copies what can be read of a segment into a new one that takes its place. `otherwise` is reported where nothing that
    /// was lost can be named.
    fn make_anew(
        &mut self,
        file: Option<&dyn DiskFile>,
        header: SegmentHeader,
        durable: Position,
        known: Option<&Footer>,
        unreadable: Option<&Unreadable>,
        otherwise: Dropped,
    ) -> Result<(Footer, Entry), LogError> {
        let name = segment_name(header.id);
        let mut file_bytes = match file {
            Some(file) => file
                .length()
                .map_err(|error| DiskError::new("length of", &name, error))?,
            None => 0,
        };
        if unreadable.is_some() && !header.compacted {
            // It is whole: what lies behind its end is no part of it.
            file_bytes = file_bytes.min(DATA_OFFSET + (durable.0 - header.base.0));
        }
        let id = self.manifest.next_id;
        let states = self.states()?;
        let saved = salvage::salvage(
            &Patient {
                disk: &self.disk,
                file,
                file_bytes,
                header,
                durable,
                unreadable,
                known: known.map(|footer| &footer.index),
                states: &states,
                unproven: self.doubtful,
            },
            id,
        )?;
        let mut dropped = saved.dropped;
        if file.is_none() {
            // Of what it held only the messages are lost.
            for lost in &mut dropped {
                (lost.offset, lost.why) = (0, "the file is missing".to_owned());
            }
        }
        if dropped.is_empty() || unreadable.is_some() {
            dropped.push(otherwise);
        }
        self.report.dropped.append(&mut dropped);
        let entry = Entry {
            id,
            base: header.base,
            end: saved.after.position,
            rewritten_at: Position::ZERO,
            file_bytes: saved.file_bytes,
            footer_crc: saved.footer_crc,
            sealed: true,
            compacted: true,
        };
        let manifest = &mut self.manifest;
        if saved.after.position > manifest.sealed_end {
            let after = saved.after;
            (manifest.sealed_end, manifest.sealed_hash, manifest.sealed_epoch) =
                (after.position, after.hash, after.epoch);
        }
        self.replace(header.id, Some(entry));
        Ok((saved.footer, entry))
    }

    /// Lets one file stand for another in the manifest that comes into force when the open has succeeded. The old file goes
    /// after that.
    pub(super) fn replace(&mut self, old: u64, new: Option<Entry>) {
        let manifest = &mut self.manifest;
        let index = manifest.entries.iter().position(|entry| entry.id == old);
        if let Some(index) = index {
            manifest.entries.splice(index..=index, new);
        }
        if let Some(entry) = new {
            manifest.next_id = entry.id + 1;
        }
    }
}
