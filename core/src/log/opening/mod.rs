//! Bringing a log up: making it, or checking its files, showing its records to the visitor and settling where it ends.
//!
//! Opening changes as little as it can before the state layer has seen all records: it removes files that the manifest has
//! retired, and in a forced start it replaces damaged segments. A refused open leaves everything for a second look.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use crate::log::cache::Cache;
use crate::log::disk::{Disk, DiskError, DiskFile, DiskLock, OpenFile, read_full};
use crate::log::error::LogError;
use crate::log::guarded::GuardedDisk;
use crate::log::manifest::{Entry, MANIFEST_FILES, Manifest, ManifestFiles};
use crate::log::options::{OpenMode, Options};
use crate::log::position::{BLOCK_BYTES, Position};
use crate::log::recovery::{Damage, Recovered, RecoveryReport};
use crate::log::running::Log;
use crate::log::scan::Cursor;
use crate::log::segment_header::{SegmentHeader, parse_name, segment_name};
use crate::log::segments::{Segment, Segments};
use crate::log::tail::Tail;
use crate::log::watermark::{WATERMARK_FILE, Watermark, WatermarkFile};

mod sealed;
mod unsealed;

const LOCK_FILE: &str = "lock";
/// How much of a new log's first segment is filled with zeros before the first append; maintenance does the rest.
const FIRST_FILL_BYTES: u64 = 4 * 1024 * 1024;

type Visitor<'a> = &'a mut dyn FnMut(Recovered<'_>) -> Result<(), String>;

impl Log {
    /// Opens or makes the log in `disk` and shows every record of the state layer's kinds to `visitor`, in append order.
    /// The store is locked for as long as the log lives (EMS-STORE-A12).
    ///
    /// # Errors
    /// [`LogError::Locked`]; [`LogError::Damaged`] naming file and offset, unless `force_start` is set; the visitor's
    /// refusal; the disk's errors.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: Options,
        visitor: Visitor<'_>,
    ) -> Result<(Log, RecoveryReport), LogError> {
        options.check()?;
        let disk: Arc<dyn Disk> = Arc::new(GuardedDisk::new(disk));
        let lock = disk.lock(LOCK_FILE).map_err(|error| match error.source.kind() {
            ErrorKind::WouldBlock => LogError::Locked {
                file: error.file,
                source: error.source,
            },
            _ => LogError::Disk(error),
        })?;
        let mut report = RecoveryReport::default();
        let files = match find_files(disk.as_ref())? {
            Some(files) => files,
            None => {
                report.created = true;
                create(disk.as_ref(), &options)?
            }
        };
        let mut opening = Opening::new(disk, options, files, report)?;
        opening.remove_retired()?;
        opening.open_sealed(visitor)?;
        opening.open_tail(visitor)?;
        opening.finish(lock)
    }
}

/// The bookkeeping files of an existing log.
struct Files {
    manifest_files: ManifestFiles,
    manifest: Manifest,
    watermark_file: WatermarkFile,
    watermark: Option<Watermark>,
}

/// Finds an existing log; `None` if there is none, or only what a creation cut short left behind.
fn find_files(disk: &dyn Disk) -> Result<Option<Files>, LogError> {
    let names = disk.list()?;
    let has = |name: &str| names.iter().any(|known| known == name);
    let complete = MANIFEST_FILES.iter().all(|name| has(name)) && has(WATERMARK_FILE);
    if complete {
        let (manifest_files, manifest) = ManifestFiles::open(disk)?;
        if let Some(manifest) = manifest {
            // Names that a killed process left unsynced: nothing may be removed before they are durable.
            disk.sync_directory()?;
            let (watermark_file, watermark) = WatermarkFile::open(disk)?;
            return Ok(Some(Files {
                manifest_files,
                manifest,
                watermark_file,
                watermark,
            }));
        }
    }
    // A creation makes the watermark last, and no record is written before it is there.
    for name in &names {
        if let Some((id, true)) = parse_name(name)
            && SegmentHeader::decode_any(&first_block(disk, name)?, id).is_some()
        {
            return Err(LogError::Damaged {
                file: format!("{}, {WATERMARK_FILE}", MANIFEST_FILES.join(", ")),
                offset: 0,
                position: Position::ZERO,
                why: format!("missing or empty, but {name} holds records"),
            });
        }
    }
    Ok(None)
}

fn first_block(disk: &dyn Disk, name: &str) -> Result<Vec<u8>, DiskError> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let file = disk.open(name, OpenFile::ReadOnly)?;
    read_full(file.as_ref(), 0, &mut block).map_err(|error| DiskError::new("read", name, error))?;
    Ok(block)
}

/// Makes an empty log. Whatever a creation cut short left behind is replaced.
fn create(disk: &dyn Disk, options: &Options) -> Result<Files, LogError> {
    let id = 1;
    let name = segment_name(id);
    let wrap = |error| DiskError::new("create", &name, error);
    let file = disk.open(&name, OpenFile::Fresh)?;
    file.allocate(u64::from(options.segment_bytes)).map_err(wrap)?;
    if options.zero_fill {
        let zeros = vec![0; FIRST_FILL_BYTES.min(u64::from(options.segment_bytes)) as usize];
        crate::log::disk::write_all(file.as_ref(), 0, &mut [std::io::IoSlice::new(&zeros)]).map_err(wrap)?;
    }
    file.sync_data().map_err(wrap)?;
    let first = Manifest {
        version: 1,
        store_id: options.store_id,
        next_id: id + 1,
        sealed_end: Position::FIRST,
        sealed_hash: 0,
        sealed_epoch: 0,
        entries: vec![Entry {
            id,
            file_bytes: options.segment_bytes,
            ..Entry::default()
        }],
    };
    let manifest_files = ManifestFiles::create(disk, &first)?;
    // Both slots are filled, so that from here on an unreadable one can only be damage or a write cut short.
    let manifest = Manifest { version: 2, ..first };
    manifest_files.write(&manifest)?;
    let watermark = Watermark {
        store_id: options.store_id,
        manifest: 2,
        durable: Position::FIRST,
        ..Watermark::default()
    };
    let watermark_file = WatermarkFile::create(disk, &watermark)?;
    disk.sync_directory()?;
    Ok(Files {
        manifest_files,
        manifest,
        watermark_file,
        watermark: Some(watermark),
    })
}

struct Opening {
    disk: Arc<dyn Disk>,
    options: Options,
    files: Files,
    report: RecoveryReport,
    segments: Segments,
    ahead: VecDeque<Segment>,
    /// Where the log as checked so far ends.
    cursor: Cursor,
    /// A forced start replaced something: the hash before what follows cannot be known.
    lenient: bool,
}

impl Opening {
    fn new(disk: Arc<dyn Disk>, options: Options, files: Files, mut report: RecoveryReport) -> Result<Self, LogError> {
        let manifest = &files.manifest;
        let refuse = |file: &str, why: &str| {
            Err(Damage {
                file: file.to_owned(),
                offset: 0,
                position: Position::ZERO,
                why: why.to_owned(),
            }
            .into())
        };
        match &files.watermark {
            None => report.watermark_lost = true,
            Some(watermark) if watermark.store_id != manifest.store_id => {
                return refuse(WATERMARK_FILE, "belongs to another store than the manifest");
            }
            Some(watermark) if watermark.manifest > manifest.version => {
                return refuse(
                    MANIFEST_FILES[(watermark.manifest % 2) as usize],
                    "a newer manifest was in force",
                );
            }
            Some(watermark) => report.clean = watermark.clean,
        }
        let first = manifest.entries.iter().find(|entry| entry.sealed);
        let cursor = match first {
            Some(entry) => Cursor {
                position: entry.base,
                epoch: 0,
                hash: 0,
            },
            None => manifest_cursor(manifest),
        };
        let (segments, ahead) = (Segments::default(), VecDeque::new());
        Ok(Self {
            disk,
            options,
            files,
            report,
            segments,
            ahead,
            cursor,
            lenient: false,
        })
    }

    fn durable(&self) -> Position {
        self.files
            .watermark
            .map_or(Position::ZERO, |watermark| watermark.durable)
    }

    /// Removes the files of retired segments; refuses files that a newer manifest must have listed.
    fn remove_retired(&mut self) -> Result<(), LogError> {
        let manifest = &self.files.manifest;
        for name in self.disk.list()? {
            let Some((id, is_segment)) = parse_name(&name) else {
                continue;
            };
            if manifest
                .entries
                .iter()
                .any(|entry| entry.id == id && (is_segment || entry.sealed))
            {
                continue;
            }
            let begun = is_segment
                && id >= manifest.next_id
                && SegmentHeader::decode(&first_block(self.disk.as_ref(), &name)?, manifest.store_id, id)
                    .is_some_and(|header| !header.compacted);
            if begun {
                let why = "holds records that the manifest does not know: the manifest is an older one".to_owned();
                return Err(Damage {
                    file: name,
                    offset: 0,
                    position: Position::ZERO,
                    why,
                }
                .into());
            }
            self.disk.remove(&name)?;
        }
        Ok(())
    }

    fn finish(self, lock: Box<dyn DiskLock>) -> Result<(Log, RecoveryReport), LogError> {
        let durable = self.durable();
        let Self {
            disk,
            options,
            files,
            mut report,
            segments,
            ahead,
            cursor,
            ..
        } = self;
        let mode = options.mode;
        let mut log = Log {
            disk,
            cache: Cache::new(options.cache_bytes),
            options,
            store_id: files.manifest.store_id,
            manifest_files: files.manifest_files,
            manifest: files.manifest,
            watermark_file: files.watermark_file,
            segments,
            ahead,
            tail: Tail::default(),
            records_written: 0,
            read_ahead: Default::default(),
            unreadable: Default::default(),
            readers: Default::default(),
            floor: Position::ZERO,
            upkeep: Default::default(),
            epoch: cursor.epoch,
            hash: cursor.hash,
            durable: cursor.position,
            durable_hash: cursor.hash,
            follower: true,
            failed: None,
            _lock: lock,
        };
        log.settle(durable)?;
        match mode {
            OpenMode::Follower => {}
            OpenMode::Active { epoch } => log.begin_epoch(epoch.unwrap_or(cursor.epoch + 1))?,
        }
        report.segments = log.segments.len() as u64;
        report.end = log.end();
        report.epoch = log.epoch;
        report.bytes = log.segments.iter().map(|segment| segment.end.0 - segment.base.0).sum();
        Ok((log, report))
    }
}

impl Log {
    /// Makes sure that there is a segment to append to, and that nothing behind its end can be taken for a continuation.
    fn settle(&mut self, durable: Position) -> Result<(), LogError> {
        self.drop_misfits()?;
        if self.ahead.is_empty() {
            match self.prepare_now() {
                Err(LogError::Disk(error)) if error.is_no_space() => {}
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
            let count = read_full(file.as_ref(), offset, &mut block)?;
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

fn manifest_cursor(manifest: &Manifest) -> Cursor {
    Cursor {
        position: manifest.sealed_end,
        epoch: manifest.sealed_epoch,
        hash: manifest.sealed_hash,
    }
}
