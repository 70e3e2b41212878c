//! The end of an open: all records were found and taken, and the log is made ready to be appended to. Only here is anything
//! removed.

use std::collections::VecDeque;

use crate::log::disk::{DiskError, DiskFile, read_full, read_places};
use crate::log::error::LogError;
use crate::log::manifest::Entry;
use crate::log::position::{BLOCK_BYTES, Position};
use crate::log::running::Log;
use crate::log::segment_header::{parse_name, segment_name};
use crate::log::segments::Segment;

impl Log {
    /// Makes sure that there is a segment to append to, and that nothing behind its end can be taken for a continuation.
    pub(super) fn settle(&mut self, durable: Position) -> Result<(), LogError> {
        self.drop_misfits()?;
        for segment in self
            .segments
            .iter()
            .filter(|segment| !segment.sealed)
            .chain(&self.ahead)
        {
            grow(segment, u64::from(segment.file_bytes))?;
        }
        if self.ahead.is_empty() {
            match self.prepare_now() {
                Err(LogError::Disk(error)) if error.is_no_space() => {
                    // All records were found, so what the manifest does not list is of no use, and takes space.
                    self.remove_unlisted()?;
                    match self.prepare_now() {
                        Err(LogError::Disk(error)) if error.is_no_space() => {}
                        result => result?,
                    }
                }
                result => result?,
            }
        }
        let (end, store_id) = (self.manifest.sealed_end, self.store_id);
        if self.segments.last().is_none_or(|segment| segment.sealed) {
            if self.ahead.is_empty() {
                return Err(LogError::Options(format!(
                    "no space on disk for a segment of store {store_id:02x?}"
                )));
            }
            self.begin_segment(end, end);
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

    /// Prepared segments of another length than is wanted now: the largest record must fit into every one.
    fn drop_misfits(&mut self) -> Result<(), LogError> {
        let wanted = self.options.segment_bytes;
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
