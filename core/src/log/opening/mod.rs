//! Bringing a log up: making it, or checking its files, showing its records to the visitor and settling where it ends.
//!
//! Nothing is removed, and no manifest comes into force, before the state layer has taken all records: a refused open
//! leaves everything for a second look. What a forced start saves of a damaged segment goes into a new file, and what can be
//! computed from the segments ([`survey`]) stands for bookkeeping that is lost.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use crate::log::cache::Cache;
use crate::log::disk::{Disk, DiskError, DiskLock, OpenFile, read_places};
use crate::log::error::LogError;
use crate::log::footer::Footer;
use crate::log::growing::Growth;
use crate::log::guarded::GuardedDisk;
use crate::log::manifest::{Entry, MANIFEST_FILES, Manifest, ManifestFiles};
use crate::log::options::{OpenMode, Options};
use crate::log::position::{BLOCK_BYTES, Position};
use crate::log::recovery::{Damage, Dropped, Recovered, RecoveryReport, Unreadable};
use crate::log::running::Log;
use crate::log::scan::Cursor;
use crate::log::segment_header::{SegmentHeader, parse_name, segment_name};
use crate::log::segments::{Segment, Segments};
use crate::log::tail::Tail;
use crate::log::watermark::{WATERMARK_FILE, Watermark, WatermarkFile};

mod sealed;
mod settling;
mod survey;
mod unsealed;

use survey::Beginning;

const LOCK_FILE: &str = "lock";
/// There from the beginning of a forced start until what the layer above concludes from its losses is durable.
const FORCED_FILE: &str = "forced";
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
        let mut report = RecoveryReport {
            force_unfinished: disk.list()?.iter().any(|name| name == FORCED_FILE),
            ..RecoveryReport::default()
        };
        if options.force_start && !report.force_unfinished {
            begin_force(disk.as_ref())?;
        }
        let files = match find_files(disk.as_ref(), options.force_start)? {
            Some(files) => files,
            None => {
                report.created = true;
                create(disk.as_ref(), &options)?
            }
        };
        let mut opening = Opening::new(disk, options, files, report)?;
        opening.check_unlisted()?;
        opening.open_sealed(visitor)?;
        opening.open_tail(visitor)?;
        opening.finish(lock)
    }

    /// What a forced start has found is durable, and so is what was concluded from it.
    ///
    /// # Errors
    /// The disk's.
    pub fn end_force(&self) -> Result<(), DiskError> {
        self.disk.remove(FORCED_FILE)?;
        self.disk.sync_directory()
    }
}

/// Notes that a forced start is under way: once its manifest is written the next start needs no force, and would take what
/// nothing names for deleted. Where there is no room for that it goes on all the same.
fn begin_force(disk: &dyn Disk) -> Result<(), DiskError> {
    let noted = disk
        .open(FORCED_FILE, OpenFile::Fresh)
        .and_then(|_| disk.sync_directory());
    noted.or_else(|error| if error.is_no_space() { Ok(()) } else { Err(error) })
}

/// The bookkeeping files of an existing log.
struct Files {
    /// `None`: not all of it was there, and it is made when the open has succeeded.
    manifest_files: Option<ManifestFiles>,
    /// `None`: to be computed.
    manifest: Option<Manifest>,
    watermark_file: Option<WatermarkFile>,
    watermark: Option<Watermark>,
    /// A newer watermark may have been there.
    doubtful: bool,
}

/// Finds an existing log; `None` if there is none, or only what a creation cut short left behind.
fn find_files(disk: &dyn Disk, force: bool) -> Result<Option<Files>, LogError> {
    let names = disk.list()?;
    let found = ManifestFiles::find(disk)?;
    let has_watermark = names.iter().any(|known| known == WATERMARK_FILE);
    if found.missing == 0 && has_watermark {
        if let Some(manifest) = found.newest {
            let manifest_files = ManifestFiles::open(disk)?;
            // A killed process may have left it readable and not durable; before it is acted upon it must be both. The
            // bytes are the same, so a write cut short changes nothing.
            manifest_files.write(&manifest)?;
            // Names that it left unsynced: nothing may be removed before they are durable.
            disk.sync_directory()?;
            let (watermark_file, watermark, doubtful) = WatermarkFile::open(disk)?;
            return Ok(Some(Files {
                doubtful,
                manifest_files: Some(manifest_files),
                manifest: Some(manifest),
                watermark_file: Some(watermark_file),
                watermark,
            }));
        }
        if found.unreadable > 0 && !force {
            return Err(bookkeeping_lost("neither manifest can be read".to_owned()));
        }
    }
    // A creation makes the watermark last, and no record is written before it is there.
    let mut begun = None;
    for name in &names {
        if let Some((id, true)) = parse_name(name)
            && !matches!(survey::beginning(disk, name, id)?, Beginning::Unused)
        {
            begun.get_or_insert(name);
        }
    }
    match begun {
        None if found.unreadable == 0 => Ok(None),
        None if !force => Err(bookkeeping_lost("neither manifest can be read".to_owned())),
        Some(name) if !force => Err(bookkeeping_lost(format!("missing or empty, but {name} holds records"))),
        _ => {
            let (watermark_file, watermark, doubtful) = if has_watermark {
                let (file, value, doubtful) = WatermarkFile::open(disk)?;
                (Some(file), value, doubtful)
            } else {
                (None, None, true)
            };
            Ok(Some(Files {
                doubtful,
                manifest_files: None,
                manifest: found.newest,
                watermark_file,
                watermark,
            }))
        }
    }
}

fn bookkeeping_lost(why: String) -> LogError {
    LogError::Damaged {
        file: format!("{}, {WATERMARK_FILE}", MANIFEST_FILES.join(", ")),
        offset: 0,
        position: Position::ZERO,
        why,
    }
}

fn first_block(disk: &dyn Disk, name: &str) -> Result<Vec<u8>, DiskError> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let file = disk.open(name, OpenFile::ReadOnly)?;
    read_places(file.as_ref(), 0, &mut block).map_err(|error| DiskError::new("read", name, error))?;
    Ok(block)
}

/// Makes an empty log. Whatever a creation cut short left behind is replaced.
fn create(disk: &dyn Disk, options: &Options) -> Result<Files, LogError> {
    let id = 1;
    let name = segment_name(id);
    let wrap = |error| DiskError::new("create", &name, error);
    let file = disk.open(&name, OpenFile::Fresh)?;
    let file_bytes = options.young().unwrap_or(options.segment_bytes);
    file.allocate(u64::from(file_bytes)).map_err(wrap)?;
    if options.zero_fill {
        let zeros = vec![0; FIRST_FILL_BYTES.min(u64::from(file_bytes)) as usize];
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
            file_bytes,
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
        doubtful: false,
        manifest_files: Some(manifest_files),
        manifest: Some(manifest),
        watermark_file: Some(watermark_file),
        watermark: Some(watermark),
    })
}

struct Opening {
    disk: Arc<dyn Disk>,
    options: Options,
    manifest_files: Option<ManifestFiles>,
    manifest: Manifest,
    /// Files with this number or a higher one the manifest that was read cannot know.
    known_below: u64,
    watermark_file: Option<WatermarkFile>,
    watermark: Option<Watermark>,
    report: RecoveryReport,
    segments: Segments,
    ahead: VecDeque<Segment>,
    /// Where the log as checked so far ends.
    cursor: Cursor,
    /// A forced start replaced something: the hash before what follows cannot be known.
    lenient: bool,
    /// What the layer above could not read, in a forced start.
    unreadable: Unreadable,
    /// A newer watermark may have been there.
    doubtful: bool,
    /// The last begun segment, as it was found: its number, base and length.
    newest: Option<(u64, Position, u64)>,
    /// Files that hold something, of which it cannot be said what: they are put aside.
    strange: Vec<String>,
    /// Footers that were made again from the records: they are written when the open has succeeded.
    remade: Vec<Footer>,
}

impl Opening {
    fn new(disk: Arc<dyn Disk>, options: Options, files: Files, report: RecoveryReport) -> Result<Self, LogError> {
        let cursor = Cursor {
            position: Position::FIRST,
            epoch: 0,
            hash: 0,
        };
        let computed = files.manifest.is_none() || files.manifest_files.is_none();
        let known_below = files.manifest.as_ref().map_or(0, |manifest| manifest.next_id);
        let mut opening = Self {
            disk,
            options,
            manifest_files: files.manifest_files,
            manifest: files.manifest.clone().unwrap_or_default(),
            known_below,
            watermark_file: files.watermark_file,
            watermark: files.watermark,
            report,
            segments: Segments::default(),
            ahead: VecDeque::new(),
            cursor,
            lenient: computed,
            unreadable: Unreadable::default(),
            doubtful: files.doubtful,
            newest: None,
            strange: Vec::new(),
            remade: Vec::new(),
        };
        opening.check_watermark(files.manifest.is_some())?;
        if opening.options.force_start {
            opening.complete_manifest(files.manifest.as_ref())?;
        }
        let first = opening.manifest.entries.iter().find(|entry| entry.sealed);
        opening.cursor = match first {
            Some(entry) => Cursor {
                position: entry.base,
                ..opening.cursor
            },
            None => manifest_cursor(&opening.manifest),
        };
        Ok(opening)
    }

    /// Whether manifest and watermark are of one log, and of one time.
    fn check_watermark(&mut self, has_manifest: bool) -> Result<(), LogError> {
        let force = self.options.force_start;
        let refuse = |file: &str, why: &str| -> Result<(), LogError> {
            Err(Damage {
                file: file.to_owned(),
                offset: 0,
                position: Position::ZERO,
                why: why.to_owned(),
            }
            .into())
        };
        match &self.watermark {
            None => self.report.watermark_lost = true,
            Some(watermark) if has_manifest && watermark.store_id != self.manifest.store_id => {
                if !force {
                    return refuse(WATERMARK_FILE, "belongs to another store than the manifest");
                }
                self.watermark = None;
                self.doubtful = true;
                self.report.watermark_lost = true;
            }
            Some(watermark) if watermark.manifest > self.manifest.version && !force => {
                let file = MANIFEST_FILES[(watermark.manifest % 2) as usize];
                return refuse(file, "a newer manifest was in force");
            }
            Some(watermark) => self.report.clean = watermark.clean,
        }
        Ok(())
    }

    /// In a forced start: what the segments say stands for what the manifest does not.
    fn complete_manifest(&mut self, known: Option<&Manifest>) -> Result<(), LogError> {
        let store_id = known
            .map(|manifest| manifest.store_id)
            .or(self.watermark.map(|watermark| watermark.store_id));
        let survey = survey::survey(self.disk.as_ref(), known, store_id)?;
        let newest = self.watermark.map_or(0, |watermark| watermark.manifest);
        self.manifest = survey.manifest;
        let changed = survey.changed || self.manifest_files.is_none() || newest > self.manifest.version;
        self.manifest.version = self.manifest.version.max(newest);
        self.report.manifest_computed = changed;
        self.lenient |= changed;
        for (from, to) in survey.gaps {
            let why = "the manifest was made anew: whether records that were needed lay here cannot be told";
            self.drop_stretch(MANIFEST_FILES.join(", "), 0, (from, to), None, why.to_owned());
        }
        for name in &survey.strange {
            let why = "the segment's header does not verify and nothing says what it held; the file is put aside";
            self.drop_stretch(name.clone(), 0, (Position::ZERO, Position::ZERO), None, why.to_owned());
        }
        self.lenient |= !survey.strange.is_empty();
        self.strange = survey.strange;
        Ok(())
    }

    /// Notes what a forced start could not save.
    fn drop_stretch(
        &mut self,
        file: String,
        offset: u64,
        (from, to): (Position, Position),
        records: Option<u64>,
        why: String,
    ) {
        self.report.dropped.push(Dropped {
            file,
            offset,
            position: from,
            bytes: to.0.saturating_sub(from.0),
            records,
            why,
        });
    }

    fn durable(&self) -> Position {
        self.watermark.map_or(Position::ZERO, |watermark| watermark.durable)
    }

    /// Refuses files that a newer manifest must have listed. All numbers in use are left alone from here on.
    fn check_unlisted(&mut self) -> Result<(), LogError> {
        for name in self.disk.list()? {
            let Some((id, is_segment)) = parse_name(&name) else {
                continue;
            };
            self.manifest.next_id = self.manifest.next_id.max(id.saturating_add(1));
            let listed = self.manifest.entries.iter().any(|entry| entry.id == id);
            if listed || !is_segment || id < self.known_below || self.options.force_start {
                continue;
            }
            let begun = SegmentHeader::decode(&first_block(self.disk.as_ref(), &name)?, self.manifest.store_id, id)
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
        }
        Ok(())
    }

    /// The open has succeeded so far: bookkeeping that a forced start computed comes into force.
    fn settle_manifest(&mut self) -> Result<(ManifestFiles, WatermarkFile), LogError> {
        let disk = self.disk.as_ref();
        let manifest_files = match &self.manifest_files {
            Some(files) => files.clone(),
            None => ManifestFiles::open(disk)?,
        };
        if self.lenient {
            disk.sync_directory()?;
            // Both, so that no older one is left to fall back to.
            for _ in 0..2 {
                self.manifest.version += 1;
                manifest_files.write(&self.manifest)?;
            }
        }
        let watermark_file = match &self.watermark_file {
            Some(file) => file.clone(),
            None => WatermarkFile::renew(disk)?,
        };
        for name in &self.strange {
            disk.rename(name, &format!("{name}.damaged"))?;
        }
        if self.lenient {
            disk.sync_directory()?;
        }
        Ok((manifest_files, watermark_file))
    }

    fn finish(mut self, lock: Box<dyn DiskLock>) -> Result<(Log, RecoveryReport), LogError> {
        let durable = self.durable();
        let (manifest_files, watermark_file) = self.settle_manifest()?;
        let Self {
            disk,
            options,
            manifest,
            mut report,
            segments,
            ahead,
            cursor,
            remade,
            ..
        } = self;
        let mode = options.mode;
        let mut log = Log {
            growth: Growth::found(&options, segments.iter().chain(&ahead)),
            disk,
            cache: Cache::new(options.cache_bytes),
            options,
            store_id: manifest.store_id,
            manifest_files,
            manifest,
            watermark_file,
            segments,
            ahead,
            reserve: Default::default(),
            tail: Tail::default(),
            records_written: 0,
            read_ahead: Default::default(),
            reading: Default::default(),
            unreadable: Default::default(),
            damages: Default::default(),
            reads_postponed: false,
            stalled: None,
            readers: Default::default(),
            floor: Position::ZERO,
            floors: VecDeque::new(),
            committed: None,
            upkeep: Default::default(),
            epoch: cursor.epoch,
            hash: cursor.hash,
            durable: cursor.position,
            durable_hash: cursor.hash,
            follower: true,
            failed: None,
            _lock: lock,
        };
        log.settle(durable, report.created)?;
        log.write_remade(remade)?;
        match mode {
            OpenMode::Follower => {}
            OpenMode::Active { epoch } => log.begin_epoch(epoch.unwrap_or(cursor.epoch + 1))?,
        }
        log.remove_unlisted()?;
        report.segments = log.segments.len() as u64;
        report.end = log.end();
        report.epoch = log.epoch;
        report.bytes = log.segments.iter().map(|segment| segment.end.0 - segment.base.0).sum();
        Ok((log, report))
    }
}

fn manifest_cursor(manifest: &Manifest) -> Cursor {
    Cursor {
        position: manifest.sealed_end,
        epoch: manifest.sealed_epoch,
        hash: manifest.sealed_hash,
    }
}
