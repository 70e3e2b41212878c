//! The end of an open: all records were found and taken, and the log is made ready to be appended to. Only here is anything
//! removed.

use std::collections::VecDeque;

use crate::log::compaction::write_footer;
use crate::log::disk::{DiskError, DiskFile, read_full, read_places};
use crate::log::error::LogError;
use crate::log::footer::Footer;
use crate::log::manifest::Entry;
use crate::log::position::{BLOCK_BYTES, Position};
use crate::log::reserve::RESERVE_SEGMENTS;
use crate::log::running::Log;
use crate::log::segment_header::{parse_name, segment_name};
use crate::log::segments::Segment;

impl Log {
    /// Makes sure that there is a segment to append to, and that nothing behind its end can be taken for a continuation.
    pub(super) fn settle(&mut self, durable: Position, created: bool) -> Result<(), LogError> {
        self.drop_misfits()?;
        self.find_spare()?;
        for segment in self
            .segments
            .iter()
            .filter(|segment| !segment.sealed)
            .chain(&self.ahead)
        {
            grow(segment, u64::from(segment.file_bytes))?;
        }
        self.find_reserve(created)?;
        let (end, store_id) = (self.manifest.sealed_end, self.store_id);
        if self.segments.last().is_none_or(|segment| segment.sealed) {
            if self.ahead.is_empty() {
                return Err(LogError::Options(format!(
                    "no space on disk for a segment of store {store_id:02x?}"
                )));
            }
            self.begin_segment(end, end);
            if created {
                self.reserve.note_created();
            }
            return self.sync_found(durable);
        }
        let Some(segment) = self.segments.last() else {
            return Ok(());
        };
        let Some(file) = segment.file.clone() else {
            return Ok(());
        };
        let (name, offset) = (segment_name(segment.id), segment.offset_of(segment.end));
        let wipe = || {
            let mut block = [0; BLOCK_BYTES as usize];
            let (count, _) = read_places(file.as_ref(), offset, &mut block)?;
            if block[..count].iter().any(|&byte| byte != 0) {
                let zeros = [0; BLOCK_BYTES as usize];
                crate::log::disk::write_all(file.as_ref(), offset, &mut [std::io::IoSlice::new(&zeros[..count])])?;
                file.sync_data()?;
            }
            Ok(())
        };
        wipe().map_err(|error| DiskError::new("wipe the torn tail of", &name, error))?;
        self.sync_found(durable)
    }

    /// Sees to it that there is a segment to go on in and, in a log that was filled before, as many as its reserve has, so
    /// that who publishes need not wait for upkeep.
    fn find_reserve(&mut self, created: bool) -> Result<(), LogError> {
        let begins = self.segments.last().is_none_or(|segment| segment.sealed);
        let wanted = if created {
            1
        } else {
            RESERVE_SEGMENTS + usize::from(begins)
        };
        let mut cleaned = false;
        while self.ahead.len() < wanted {
            match self.prepare_now() {
                Err(LogError::Disk(error)) if error.is_no_space() => {
                    self.reserve.drains = true;
                    // All records were found, so what the manifest does not list is of no use, and takes space.
                    if !std::mem::replace(&mut cleaned, true) {
                        self.remove_unlisted()?;
                    } else if !self.ahead.is_empty() || !self.spend_spare_now()? {
                        break;
                    }
                }
                result => result?,
            }
        }
        if !created {
            self.reserve.note_found();
        }
        Ok(())
    }

    /// Removes the files of retired segments and of copies that never came into force.
    pub(super) fn remove_unlisted(&self) -> Result<(), LogError> {
        let mut removed = false;
        for name in self.disk.list()? {
            let Some((id, is_segment)) = parse_name(&name) else {
                continue;
            };
            let listed = |entry: &Entry| entry.id == id && (is_segment || entry.sealed);
            if !self.manifest.entries.iter().any(listed) {
                self.disk.remove(&name)?;
                removed = true;
            }
        }
        if removed {
            self.disk.sync_directory()?;
        }
        Ok(())
    }

    /// Writes footers that were made again, so that their segments can be rewritten, and the next open reads them. Where there
    /// is no space for one it is as it was.
    pub(super) fn write_remade(&mut self, remade: Vec<Footer>) -> Result<(), LogError> {
        let mut manifest = self.next_manifest();
        let mut changed = false;
        for footer in remade {
            // A forced start may have replaced the segment since.
            let Some(entry) = manifest.entries.iter_mut().find(|entry| entry.id == footer.id) else {
                continue;
            };
            let footer_crc = match write_footer(self.disk.as_ref(), &footer) {
                Ok(footer_crc) => footer_crc,
                Err(error) if error.passes() => continue,
                Err(error) => return Err(error.into()),
            };
            changed |= entry.footer_crc != footer_crc;
            entry.footer_crc = footer_crc;
            if let Some(segment) = self.segments.by_id_mut(footer.id) {
                segment.footer_crc = footer_crc;
            }
            self.disk.sync_directory()?;
        }
        if changed {
            self.manifest_files.write(&manifest)?;
            self.adopt(manifest);
        }
        Ok(())
    }

    /// Prepared segments of another length than is wanted now: the largest record must fit into every one.
    fn drop_misfits(&mut self) -> Result<(), LogError> {
        let wanted = self.file_bytes();
        let (fit, misfits): (VecDeque<Segment>, VecDeque<Segment>) = std::mem::take(&mut self.ahead)
            .into_iter()
            .partition(|segment| segment.file_bytes == wanted);
        self.ahead = fit;
        if misfits.is_empty() {
            return Ok(());
        }
        let mut manifest = self.next_manifest();
        manifest
            .entries
            .retain(|entry| misfits.iter().all(|misfit| misfit.id != entry.id));
        self.manifest_files.write(&manifest)?;
        self.adopt(manifest);
        for misfit in misfits {
            self.disk.remove(&segment_name(misfit.id))?;
        }
        self.disk.sync_directory()?;
        Ok(())
    }

    /// A killed process may have left commits written and not synced. They were found valid, so they are a part of the
    /// log; before anything rests on them they must be durable. A sync that failed in that process may have left them
    /// readable and yet never to be written: so what is not known to be durable is written again.
    fn sync_found(&self, durable: Position) -> Result<(), LogError> {
        for segment in self.segments.iter().filter(|segment| !segment.sealed && segment.begun) {
            let Some(file) = &segment.file else { continue };
            let name = segment_name(segment.id);
            // The header comes along: the blocks of a segment begun lately are as doubtful as its header.
            let doubtful = if durable <= segment.base {
                0
            } else {
                segment.offset_of(durable.min(segment.end))
            };
            rewrite(file.as_ref(), doubtful, segment.offset_of(segment.end))
                .and_then(|()| file.sync_data())
                .map_err(|error| DiskError::new("sync", &name, error))?;
        }
        Ok(())
    }
}

/// Gives an unsealed segment's file its length back: one that was cut inside a last block's padding has all records.
pub(super) fn grow(segment: &Segment, bytes: u64) -> Result<(), LogError> {
    let Some(file) = &segment.file else { return Ok(()) };
    let grow = || match file.length()? {
        length if length < bytes => file.allocate(bytes).and_then(|()| file.sync_data()),
        _ => Ok(()),
    };
    Ok(grow().map_err(|error| DiskError::new("grow", &segment_name(segment.id), error))?)
}

/// Writes what a file holds over itself.
fn rewrite(file: &dyn DiskFile, from: u64, to: u64) -> std::io::Result<()> {
    const PIECE_BYTES: u64 = 1024 * 1024;
    let mut piece = vec![0; PIECE_BYTES.min(to.saturating_sub(from)) as usize];
    let mut at = from;
    while at < to {
        let wanted = PIECE_BYTES.min(to - at) as usize;
        let count = read_full(file, at, &mut piece[..wanted])?;
        if count == 0 {
            break;
        }
        crate::log::disk::write_all(file, at, &mut [std::io::IoSlice::new(&piece[..count])])?;
        at += count as u64;
    }
    Ok(())
}
