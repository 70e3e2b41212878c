//! The unsealed part of a log at open: every record is verified, the end is found, and torn is told from damaged.

use std::io::{ErrorKind, IoSlice};

use super::settling::grow;
use super::survey::{Beginning, beginning};
use super::{Opening, Visitor, first_block};
use crate::log::compaction::write_footer;
use crate::log::disk::{DiskError, DiskFile, OpenFile, write_all};
use crate::log::error::LogError;
use crate::log::footer::{Footer, Index};
use crate::log::manifest::{Entry, MANIFEST_FILES};
use crate::log::position::{BLOCK_BYTES, Position};
use crate::log::recovery::{self, Damage};
use crate::log::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};
use crate::log::segments::{Segment, SegmentFiles};

impl Opening {
    pub(super) fn open_tail(&mut self, visitor: Visitor<'_>) -> Result<(), LogError> {
        let tail: Vec<Entry> = self
            .manifest
            .entries
            .iter()
            .copied()
            .filter(|entry| !entry.sealed)
            .collect();
        let store_id = self.manifest.store_id;
        // What stopped the scan of the segment before.
        let mut stop: Option<Damage> = None;
        for entry in tail {
            let name = segment_name(entry.id);
            let files = match SegmentFiles::open(self.disk.as_ref(), &name) {
                Ok(files) => files,
                Err(error) if error.source.kind() == ErrorKind::NotFound => {
                    // Whether it was begun cannot be known.
                    self.pass_over(self.damage_at(&name, 0, "the file is missing"), 0)?;
                    self.replace(entry.id, None);
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
                while !self.ahead.is_empty() {
                    self.save_unbegun(header.previous_end, visitor)?;
                }
            } else if header.previous_end > self.cursor.position && (!self.lenient || stop.is_some()) {
                let damage = stop
                    .take()
                    .unwrap_or_else(|| self.end_damage("a later segment continues further on"));
                let limit = self.segments.last().map_or(header.previous_end, Segment::limit);
                self.save_last(damage, header.previous_end.min(limit), visitor)?;
            }
            if self.lenient && header.base > self.cursor.position {
                self.pass_to(header.base, "nothing is left of what lay here")?;
            }
            if self.lenient && header.base == self.cursor.position && header.hash_before != self.cursor.hash {
                self.save_foreign(&name, files, header, visitor)?;
                continue;
            }
            stop = self.open_unsealed(&entry, files, header, visitor)?;
        }
        self.check_durable(stop, visitor)?;
        self.leave_out_unreadable()?;
        if self.lenient { self.seal_everything() } else { Ok(()) }
    }

    /// What was durable must have been found.
    fn check_durable(&mut self, mut stop: Option<Damage>, visitor: Visitor<'_>) -> Result<(), LogError> {
        loop {
            let limit = self.segments.last().filter(|last| !last.sealed).map(Segment::limit);
            let unbegun = self.look_at_unbegun()?;
            let next = unbegun.map(|(base, _)| base);
            let durable = self
                .durable()
                .max(unbegun.map_or(Position::ZERO, |(_, durable)| durable));
            if durable <= self.cursor.position {
                return self.doubt_end();
            }
            let limit = limit.filter(|&limit| durable <= limit || next.is_some_and(|next| next > self.cursor.position));
            if let (Some(limit), Some(stop)) = (limit, stop.take()) {
                let end = durable.min(limit).min(next.unwrap_or(limit));
                self.save_last(stop, end, visitor)?;
            } else if self.ahead.is_empty() {
                self.pass_to(durable, "the log ends before what was durable")?;
                // No position is used again, whatever was lost.
                self.cursor.position = durable;
            } else {
                self.save_unbegun(durable, visitor)?;
            }
        }
    }

    /// Without the newest watermark nothing but the log itself proves how far it reached: a forced start says so.
    fn doubt_end(&mut self) -> Result<(), LogError> {
        if let Some((id, base, file_bytes)) = self.newest.filter(|_| self.options.force_start && self.doubtful) {
            let from = DATA_OFFSET + self.cursor.position.0.saturating_sub(base.0);
            let to = base
                .plus(file_bytes.saturating_sub(DATA_OFFSET))
                .max(self.cursor.position);
            let why = "the newest watermark is lost: whether the log reached further cannot be told";
            self.drop_stretch(segment_name(id), from, (self.cursor.position, to), None, why.to_owned());
        }
        Ok(())
    }

    /// Where the first segment that was taken for unused begins, if it was begun after all, and what its commits prove to
    /// have been durable. Its header is damaged then, or was torn.
    fn look_at_unbegun(&self) -> Result<Option<(Position, Position)>, LogError> {
        let look = |segment: &Segment| self.look_at(segment.id, segment.file_bytes, self.cursor.position);
        self.ahead.front().map_or(Ok(None), look)
    }

    /// As [`Opening::look_at_unbegun`], of any segment, if it begins at `from` or later.
    fn look_at(&self, id: u64, file_bytes: u32, from: Position) -> Result<Option<(Position, Position)>, LogError> {
        let (disk, name) = (self.disk.as_ref(), segment_name(id));
        if !matches!(beginning(disk, &name, id)?, Beginning::Strange) {
            return Ok(None);
        }
        let file = disk.open(&name, OpenFile::ReadOnly)?;
        Ok(recovery::find_base(file.as_ref(), &name, u64::from(file_bytes), from)?)
    }

    /// How far an unsealed segment with damage was durable. Where the next one was begun, it is known exactly: that happens
    /// only after this one's sync, and tells where this one ended. Its last blocks may have been left free, and what is
    /// taken for its own beyond its end would leave the next one without a place.
    fn durable_of(&self, header: &SegmentHeader, limit: Position) -> Result<Position, LogError> {
        // Where the next one begins, and where this one ends.
        let mut next: Option<(Position, Position)> = None;
        for entry in self.manifest.entries.iter().filter(|entry| !entry.sealed) {
            let block = match first_block(self.disk.as_ref(), &segment_name(entry.id)) {
                Ok(block) => block,
                Err(error) if error.source.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            };
            let found = match SegmentHeader::decode(&block, self.manifest.store_id, entry.id) {
                Some(found) if found.base > header.base && found.epoch >= header.epoch => {
                    Some((found.base, found.previous_end))
                }
                Some(_) => None,
                // Where its header is lost, its commits tell where it began.
                None => {
                    let begun = self.look_at(entry.id, entry.file_bytes, header.base.plus(1))?;
                    begun.map(|(base, _)| (base, base))
                }
            };
            if let Some(found) = found.filter(|(_, end)| (header.base..=limit).contains(end))
                && next.is_none_or(|known| found.0 < known.0)
            {
                next = Some(found);
            }
        }
        Ok(next.map_or_else(|| self.durable().min(limit), |(_, end)| end))
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
        let to = position.plus(bytes);
        self.drop_stretch(file, offset, (position, to), None, why);
        Ok(())
    }

    /// As [`Opening::pass_over`], up to a position; a missing file that was noted last reached that far.
    fn pass_to(&mut self, to: Position, why: &str) -> Result<(), LogError> {
        let (at, bytes) = (self.cursor.position, to.0 - self.cursor.position.0);
        match self.report.dropped.last_mut() {
            Some(last) if last.position == at && last.bytes == 0 && last.records.is_none() => {
                last.bytes = bytes;
                Ok(())
            }
            _ => self.pass_over(self.end_damage(why), bytes),
        }
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
        self.newest = Some((entry.id, header.base, u64::from(entry.file_bytes)));
        let limit = header.base.plus(u64::from(entry.file_bytes) - DATA_OFFSET);
        let scanned = recovery::scan_written(file.as_ref(), &header, limit)?;
        let unreadable = self.options.force_start.then_some(&mut self.unreadable);
        recovery::visit(&scanned.index, header.base, &mut self.report, visitor, unreadable)?;
        self.cursor = scanned.after;
        let mut segment = Segment::ahead(entry.id, entry.file_bytes, files, 0);
        segment.resume(&header, scanned.index, scanned.after);
        self.segments.push(segment);
        let Some(stop) = scanned.stop else { return Ok(None) };
        let behind = recovery::look_behind(file.as_ref(), &header, self.cursor, limit)?;
        if behind.proof.is_some() {
            let durable = self.durable_of(&header, limit)?;
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
        let store_id = self.manifest.store_id;
        let Some(last) = self.segments.pop() else {
            return Err(damage.into());
        };
        let (header, seen) = (last.header(store_id), self.cursor.position);
        let Some(file) = last.file else {
            return Err(damage.into());
        };
        self.save(file.as_ref(), header, durable, damage, seen, visitor)
    }

    /// What comes before was saved in part, so that this segment does not continue it: its copy does.
    fn save_foreign(
        &mut self,
        name: &str,
        files: SegmentFiles,
        header: SegmentHeader,
        visitor: Visitor<'_>,
    ) -> Result<(), LogError> {
        let damage = self.damage_at(name, 0, "the rolling hash does not continue from the segment before");
        let length = files
            .writer
            .length()
            .map_err(|error| DiskError::new("length of", name, error))?;
        let limit = header.base.plus(length.saturating_sub(DATA_OFFSET));
        let (durable, seen) = (self.durable_of(&header, limit)?, self.cursor.position);
        let header = SegmentHeader {
            hash_before: self.cursor.hash,
            ..header
        };
        self.save(files.writer.as_ref(), header, durable, damage, seen, visitor)
    }

    /// The first segment taken for unused was begun after all: its header is damaged.
    fn save_unbegun(&mut self, durable: Position, visitor: Visitor<'_>) -> Result<(), LogError> {
        let found = self.look_at_unbegun()?;
        let base = found.map_or(self.cursor.position, |(base, _)| base);
        let Some(segment) = self.ahead.pop_front() else {
            return Ok(());
        };
        let damage = self.damage_at(&segment_name(segment.id), 0, "the segment's header does not verify");
        if !self.options.force_start {
            return Err(damage.into());
        }
        if base > self.cursor.position {
            self.pass_to(base, "nothing is left of what lay here")?;
        }
        let header = SegmentHeader {
            store_id: self.manifest.store_id,
            id: segment.id,
            base,
            previous_end: base,
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
        // Where headers behind it are lost, too, the first whose commits tell where it began bounds this one.
        let mut next = None;
        for behind in &self.ahead {
            if next.is_none() {
                next = self.look_at(behind.id, behind.file_bytes, self.cursor.position)?;
            }
        }
        let durable = next
            .filter(|(next, _)| *next >= base)
            .map_or(durable, |(next, _)| durable.min(next));
        if found.is_none() && durable <= base {
            // Nothing can be recognised in it, and no room is left for it: a copy would begin where the next one does.
            self.replace(segment.id, None);
            return self.pass_over(damage, 0);
        }
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
        let (footer, entry) = self.salvage(Some(file), header, durable, damage, None)?;
        let mut unseen = Index::default();
        for entry in footer.index.entries(footer.base).filter(|entry| entry.position >= seen) {
            unseen.push_entry(footer.base, &entry);
        }
        recovery::visit(
            &unseen,
            footer.base,
            &mut self.report,
            visitor,
            Some(&mut self.unreadable),
        )?;
        self.push_sealed(&entry, &footer);
        Ok(())
    }

    /// Writes the footers of all begun segments and lists them as sealed, in a manifest yet to be written.
    pub(super) fn seal_begun(&mut self) -> Result<(), LogError> {
        let store_id = self.manifest.store_id;
        for segment in self.segments.iter_mut().filter(|segment| !segment.sealed) {
            grow(segment, segment.offset_of(segment.end))?;
            let footer = segment.footer(store_id);
            segment.footer_crc = write_footer(self.disk.as_ref(), &footer)?;
            segment.seal(&footer);
            let entry = segment.entry();
            let manifest = &mut self.manifest;
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
        let manifest = &mut self.manifest;
        let cursor = self.cursor;
        (manifest.sealed_end, manifest.sealed_hash, manifest.sealed_epoch) =
            (cursor.position, cursor.hash, cursor.epoch);
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
