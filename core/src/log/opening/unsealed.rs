//! The unsealed part of a log at open: every record is verified, the end is found, and torn is told from damaged.

use std::io::{ErrorKind, IoSlice};

use super::{Opening, Visitor, first_block};
use crate::log::compaction::write_footer;
use crate::log::disk::{DiskError, DiskFile, write_all};
use crate::log::error::LogError;
use crate::log::footer::{Footer, Index};
use crate::log::manifest::{Entry, MANIFEST_FILES};
use crate::log::position::{BLOCK_BYTES, Position};
use crate::log::recovery::{self, Damage, Dropped};
use crate::log::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};
use crate::log::segments::{Segment, SegmentFiles};

impl Opening {
    pub(super) fn open_tail(&mut self, visitor: Visitor<'_>) -> Result<(), LogError> {
        let tail: Vec<Entry> = self
            .files
            .manifest
            .entries
            .iter()
            .copied()
            .filter(|entry| !entry.sealed)
            .collect();
        let store_id = self.files.manifest.store_id;
        // What stopped the scan of the segment before.
        let mut stop: Option<Damage> = None;
        for entry in tail {
            let name = segment_name(entry.id);
            let files = match SegmentFiles::open(self.disk.as_ref(), &name) {
                Ok(files) => files,
                Err(error) if error.source.kind() == ErrorKind::NotFound => {
                    // Whether it was begun cannot be known.
                    self.pass_over(self.damage_at(&name, 0, "the file is missing"), 0)?;
                    self.replace(entry.id, None)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let header = SegmentHeader::decode(&first_block(self.disk.as_ref(), &name)?, store_id, entry.id);
            let Some(header) = header.filter(|header| self.continues(header)) else {
                // Nothing was begun here, or what was begun is no part of this history.
                self.ahead
                    .push_back(Segment::ahead(entry.id, entry.file_bytes, files, 0));
                continue;
            };
            // A segment is begun only when those before it are full and synced.
            if !self.ahead.is_empty() {
                self.save_unbegun(header.previous_end, visitor)?;
            } else if header.previous_end > self.cursor.position && !self.lenient {
                let damage = stop
                    .take()
                    .unwrap_or_else(|| self.end_damage("a later segment continues further on"));
                self.save_last(damage, header.previous_end, visitor)?;
            }
            stop = self.open_unsealed(&entry, files, header, visitor)?;
        }
        self.check_durable(stop, visitor)?;
        if self.lenient { self.seal_everything() } else { Ok(()) }
    }

    /// What was durable must have been found.
    fn check_durable(&mut self, stop: Option<Damage>, visitor: Visitor<'_>) -> Result<(), LogError> {
        let durable = self.durable();
        if durable <= self.cursor.position {
            return Ok(());
        }
        let limit = self.segments.last().filter(|last| !last.sealed).map(Segment::limit);
        match stop {
            Some(stop) if limit.is_some_and(|limit| durable <= limit) => self.save_last(stop, durable, visitor)?,
            _ if !self.ahead.is_empty() => self.save_unbegun(durable, visitor)?,
            _ => {
                let bytes = durable.0 - self.cursor.position.0;
                self.pass_over(self.end_damage("the log ends before what was durable"), bytes)?;
            }
        }
        // No position is used again, whatever was lost.
        self.cursor.position = self.cursor.position.max(durable);
        Ok(())
    }

    fn continues(&self, header: &SegmentHeader) -> bool {
        // Behind a gap (in a follower of a compacted log) the hash cannot be known.
        let chained = header.hash_before == self.cursor.hash || header.base > header.previous_end;
        let follows = header.previous_end == self.cursor.position && chained;
        let later = header.previous_end > self.cursor.position;
        let forced = self.lenient && header.base >= self.cursor.position;
        !header.compacted && header.epoch >= self.cursor.epoch && (follows || later || forced)
    }

    fn damage_at(&self, file: &str, offset: u64, why: &str) -> Damage {
        Damage {
            file: file.to_owned(),
            offset,
            position: self.cursor.position,
            why: why.to_owned(),
        }
    }

    fn end_damage(&self, why: &str) -> Damage {
        match self.segments.last() {
            Some(last) => {
                let offset = DATA_OFFSET + self.cursor.position.0.saturating_sub(last.base.0);
                self.damage_at(&segment_name(last.id), offset, why)
            }
            None => self.damage_at(&MANIFEST_FILES.join(", "), 0, why),
        }
    }

    /// Refuses damage from which nothing can be saved; a forced start notes it and goes on.
    fn pass_over(&mut self, damage: Damage, bytes: u64) -> Result<(), LogError> {
        if !self.options.force_start {
            return Err(damage.into());
        }
        self.lenient = true;
        let Damage {
            file,
            offset,
            position,
            why,
        } = damage;
        self.report.dropped.push(Dropped {
            file,
            offset,
            position,
            bytes,
            why,
        });
        Ok(())
    }

    /// Scans one begun segment; returns what stopped the scan.
    fn open_unsealed(
        &mut self,
        entry: &Entry,
        files: SegmentFiles,
        header: SegmentHeader,
        visitor: Visitor<'_>,
    ) -> Result<Option<Damage>, LogError> {
        let file = files.writer.clone();
        let limit = header.base.plus(u64::from(entry.file_bytes) - DATA_OFFSET);
        let scanned = recovery::scan_written(file.as_ref(), &header, limit)?;
        recovery::visit(&scanned.index, header.base, &mut self.report, visitor)?;
        self.cursor = scanned.after;
        let mut segment = Segment::ahead(entry.id, entry.file_bytes, files, 0);
        segment.resume(&header, scanned.index, scanned.after);
        self.segments.push(segment);
        let Some(stop) = scanned.stop else { return Ok(None) };
        let behind = recovery::look_behind(file.as_ref(), &header, self.cursor, limit)?;
        if behind.proof.is_some() {
            let durable = self.durable().min(limit);
            self.save_last(stop, durable, visitor)?;
            return Ok(None);
        }
        self.report.torn_bytes_cut += behind.torn_bytes;
        Ok(Some(stop))
    }

    /// The last segment is damaged where its scan stopped: refuse, or save what verifies behind that.
    fn save_last(&mut self, mut damage: Damage, durable: Position, visitor: Visitor<'_>) -> Result<(), LogError> {
        damage.why.push_str("; it had been durable");
        if !self.options.force_start {
            return Err(damage.into());
        }
        let store_id = self.files.manifest.store_id;
        let Some(last) = self.segments.pop() else {
            return Err(damage.into());
        };
        let (header, seen) = (last.header(store_id), self.cursor.position);
        let Some(file) = last.file else {
            return Err(damage.into());
        };
        self.save(file.as_ref(), header, durable, damage, seen, visitor)
    }

    /// The first segment taken for unused was begun after all: its header is damaged.
    fn save_unbegun(&mut self, durable: Position, visitor: Visitor<'_>) -> Result<(), LogError> {
        let Some(segment) = self.ahead.pop_front() else {
            return Ok(());
        };
        let damage = self.damage_at(&segment_name(segment.id), 0, "the segment's header does not verify");
        if !self.options.force_start {
            return Err(damage.into());
        }
        let header = SegmentHeader {
            store_id: self.files.manifest.store_id,
            id: segment.id,
            base: self.cursor.position,
            previous_end: self.cursor.position,
            epoch: self.cursor.epoch,
            hash_before: self.cursor.hash,
            end: Position::ZERO,
            hash_after: 0,
            epoch_after: 0,
            compacted: false,
        };
        let Some(file) = segment.file.clone() else {
            return Err(damage.into());
        };
        let durable = durable.min(header.base.plus(u64::from(segment.file_bytes) - DATA_OFFSET));
        self.save(file.as_ref(), header, durable, damage, self.cursor.position, visitor)
    }

    /// Replaces an unsealed segment by what verifies of it, and shows the visitor what it has not `seen`.
    fn save(
        &mut self,
        file: &dyn DiskFile,
        header: SegmentHeader,
        durable: Position,
        damage: Damage,
        seen: Position,
        visitor: Visitor<'_>,
    ) -> Result<(), LogError> {
        self.lenient = true;
        // The replacement is sealed, so what lies before it must be too, under the same manifest.
        self.seal_begun()?;
        let (footer, entry) = self.salvage(file, header, durable, damage)?;
        let mut unseen = Index::default();
        for entry in footer.index.entries(footer.base).filter(|entry| entry.position >= seen) {
            unseen.push_entry(footer.base, &entry);
        }
        recovery::visit(&unseen, footer.base, &mut self.report, visitor)?;
        self.push_sealed(&entry, &footer);
        Ok(())
    }

    /// Writes the footers of all begun segments and lists them as sealed, in a manifest yet to be written.
    fn seal_begun(&mut self) -> Result<(), LogError> {
        let store_id = self.files.manifest.store_id;
        for segment in self.segments.iter_mut().filter(|segment| !segment.sealed) {
            let footer = segment.footer(store_id);
            segment.footer_crc = write_footer(self.disk.as_ref(), &footer)?;
            segment.seal(&footer);
            let entry = segment.entry();
            let manifest = &mut self.files.manifest;
            if let Some(listed) = manifest.entries.iter_mut().find(|listed| listed.id == entry.id) {
                *listed = entry;
            }
        }
        self.disk.sync_directory()?;
        Ok(())
    }

    /// After a forced start the manifest alone says what the log is: nothing is left to be told from its tail.
    fn seal_everything(&mut self) -> Result<(), LogError> {
        self.seal_begun()?;
        for segment in &self.ahead {
            let Some(file) = &segment.file else { continue };
            let zeros = [0; BLOCK_BYTES as usize];
            write_all(file.as_ref(), 0, &mut [IoSlice::new(&zeros)])
                .and_then(|()| file.sync_data())
                .map_err(|error| DiskError::new("wipe", &segment_name(segment.id), error))?;
        }
        let manifest = &mut self.files.manifest;
        let cursor = self.cursor;
        (manifest.sealed_end, manifest.sealed_hash, manifest.sealed_epoch) =
            (cursor.position, cursor.hash, cursor.epoch);
        manifest.version += 1;
        self.files.manifest_files.write(manifest)?;
        Ok(())
    }
}

impl Segment {
    /// Takes up a begun segment where a scan found its end.
    fn resume(&mut self, header: &SegmentHeader, index: Index, after: crate::log::scan::Cursor) {
        (self.base, self.previous_end, self.end) = (header.base, header.previous_end, after.position);
        (self.hash_before, self.hash_after) = (header.hash_before, after.hash);
        (self.epoch_before, self.epoch) = (header.epoch, after.epoch);
        self.begun = true;
        self.zeroed_to = self.offset_of(self.end);
        self.user_records = index.user_records;
        self.index = index;
    }

    /// The footer of a segment that will not grow.
    pub(crate) fn footer(&mut self, store_id: [u8; 16]) -> Footer {
        Footer {
            store_id,
            id: self.id,
            base: self.base,
            end: self.end,
            hash_before: self.hash_before,
            hash_after: self.hash_after,
            epoch: self.epoch,
            index: std::mem::take(&mut self.index),
        }
    }

    /// From here on it is read only.
    pub(crate) fn seal(&mut self, footer: &Footer) {
        self.sealed = true;
        self.user_records = footer.index.user_records;
        (self.file, self.filler) = (None, None);
    }
}
