//! Upkeep: preparing segments ahead, filling them with zeros, sealing, compacting, retiring, syncing the watermark.
//!
//! One job is out at a time, bounded in size, so that it never holds up commits for long. What is most urgent comes first.
//! A full disk postpones what needs space until something is retired or the host asks again; lacking descriptors or memory
//! postpone everything until then. What is read and cannot be is damage of that place. Any other error is final.

use std::sync::Arc;

use super::compaction::{Copying, Rewriter, Slice};
use super::disk::{Disk, DiskError, DiskFile};
use super::error::LogError;
use super::footer::Footer;
use super::growing::{grow, replace};
use super::manifest::{Entry, Manifest, ManifestFiles};
use super::position::Position;
use super::reserve::{RESERVE_SEGMENTS, SPARE_FILE, make_spare};
use super::rewriting::Rewriting;
use super::running::Log;
use super::scrubbing::{Scrub, Scrubbed, Scrubbing};
use super::segments::{Segment, Segments};
use super::steps::{fill, prepare, remove_files, retire, seal};
use super::tail::Commit;
use super::watermark::WatermarkFile;

/// How many retired files more than the prepared ones are kept for later.
const RECYCLED_EXTRA: usize = 2;

/// What upkeep remembers between jobs.
#[derive(Default)]
pub(crate) struct Upkeep {
    out: bool,
    /// Segment and file range being filled.
    pub(super) filling: Option<(u64, u64, u64)>,
    /// The segment that is being sealed: the job has its index.
    sealing: Option<u64>,
    /// Where the segment ends that is being retired.
    retiring: Option<Position>,
    /// The disk had no space for a whole file when it was last asked.
    full: bool,
    /// Nor for a footer or a copy.
    cramped: bool,
    /// The job that is out needs space for a whole file.
    wants_file: bool,
    /// Nothing is tried before the host asks again: something else was lacking, or space for what needs none.
    postponed: bool,
    /// What was lacking.
    short_of: Option<String>,
    pub(crate) scrub: Scrub,
    sync_watermark: bool,
    pub(crate) rewrite: Rewriting,
}

impl Upkeep {
    pub fn is_out(&self) -> bool {
        self.out
    }

    /// Whether a segment that is on its way out holds something a reader at this position may need.
    pub fn is_retiring_above(&self, position: Position) -> bool {
        self.retiring.is_some_and(|end| position < end)
    }

    /// Whether a job has this segment's index just now.
    pub fn is_sealing(&self, id: u64) -> bool {
        self.sealing == Some(id)
    }

    pub fn is_full(&self) -> bool {
        self.full || self.cramped || self.postponed
    }

    /// Space came free.
    fn freed(&mut self) {
        (self.full, self.cramped) = (false, false);
    }

    /// The next job needs space for a whole file.
    pub fn want_file(&mut self) {
        self.wants_file = true;
    }

    pub fn shortage(&self) -> Option<String> {
        self.short_of.clone().filter(|_| self.is_full())
    }

    /// Whether blocks that `commits` go to are being filled with zeros right now.
    pub fn is_filling(&self, segments: &Segments, commits: &[Commit]) -> bool {
        let Some((id, from, to)) = self.filling else {
            return false;
        };
        let Some(segment) = segments.by_id(id) else {
            return false;
        };
        let meets = |commit: &Commit| {
            let start = segment.offset_of(commit.start);
            // The first commit brings the header along.
            let written_from = if segment.begun { start } else { 0 };
            written_from < to && start + commit.span() > from
        };
        commits.iter().any(|commit| commit.segment == id && meets(commit))
    }
}

pub(crate) enum Task {
    Prepare {
        id: u64,
        file_bytes: u32,
        manifest: Manifest,
    },
    Fill {
        id: u64,
        file: Arc<dyn DiskFile>,
        from: u64,
        to: u64,
    },
    Seal {
        footer: Footer,
        entry: Entry,
        manifest: Manifest,
    },
    /// `recycled`: the number under which the file is prepared again.
    Retire {
        id: u64,
        recycled: Option<(u64, u32)>,
        manifest: Manifest,
    },
    SyncWatermark,
    /// A full-sized file for a young log; `needed` is what the disk has to have for all of them.
    Grow {
        id: u64,
        file_bytes: u32,
        needed: Option<u64>,
    },
    /// Those take the place of the prepared ones.
    Replace {
        leaving: Vec<u64>,
        manifest: Manifest,
    },
    /// Sets the spare's space aside, in the place of a shorter one perhaps, or gives it back.
    MakeSpare {
        bytes: u64,
        replaces: bool,
    },
    SpendSpare,
    Load {
        store_id: [u8; 16],
        id: u64,
        footer_crc: u32,
    },
    Copy(Box<Copying>),
    /// `recycled`: as for retiring.
    Switch {
        old: u64,
        recycled: Option<(u64, u32)>,
        manifest: Manifest,
    },
    Discard {
        id: u64,
    },
    Scrub(Box<Scrubbing>),
    Pause,
}

pub(crate) enum Outcome {
    Prepared {
        segment: Segment,
        manifest: Manifest,
    },
    Filled {
        id: u64,
        to: u64,
    },
    Sealed {
        id: u64,
        footer: Footer,
        footer_crc: u32,
        manifest: Manifest,
    },
    Retired {
        id: u64,
        recycled: Option<Segment>,
        manifest: Manifest,
    },
    Loaded(Option<Footer>),
    Copied(Slice),
    Scrubbed(Scrubbed),
    Switched {
        recycled: Option<Segment>,
        manifest: Manifest,
    },
    Grew(Segment),
    NotGrown(String),
    Replaced(Manifest),
    Spare(bool),
    Nothing,
}

/// A piece of upkeep, to be run on any thread.
pub struct MaintenanceJob {
    disk: Arc<dyn Disk>,
    manifest_files: ManifestFiles,
    watermark_file: WatermarkFile,
    task: Task,
}

/// What became of a [`MaintenanceJob`].
pub struct MaintenanceDone {
    result: Result<Outcome, DiskError>,
    /// An index that a failed sealing gives back.
    unsealed: Option<(u64, Footer)>,
}

impl Log {
    /// The most urgent piece of upkeep, or `None`. One job is out at a time. `rewriter` is asked during this call.
    pub fn maintenance(&mut self, rewriter: &dyn Rewriter) -> Option<MaintenanceJob> {
        if self.upkeep.out || self.upkeep.postponed || self.failed.is_some() {
            return None;
        }
        let task = self.next_task(rewriter)?;
        self.upkeep.out = true;
        Some(self.job(task))
    }

    /// Takes the result of a piece of upkeep.
    ///
    /// # Errors
    /// [`LogError::Failed`] when the disk failed otherwise than by being full: the log is finished for this process.
    pub fn complete_maintenance(&mut self, done: MaintenanceDone) -> Result<(), LogError> {
        self.upkeep.out = false;
        (self.upkeep.filling, self.upkeep.sealing, self.upkeep.retiring) = (None, None, None);
        if let Some((id, footer)) = done.unsealed
            && let Some(segment) = self.segments.by_id_mut(id)
        {
            segment.index = footer.index;
        }
        match done.result {
            Ok(outcome) => self.take(outcome),
            Err(error) if error.passes() => {
                self.not_replaced();
                self.postpone(&error);
            }
            Err(error) => return Err(self.fail(error.to_string())),
        }
        Ok(())
    }

    /// The system lacked something that it may have again.
    fn postpone(&mut self, error: &DiskError) {
        let upkeep = &mut self.upkeep;
        if !error.is_no_space() || upkeep.cramped {
            upkeep.postponed = true;
        } else if upkeep.wants_file {
            upkeep.full = true;
        } else {
            upkeep.cramped = true;
        }
        self.reserve.drains |= error.is_no_space();
        self.upkeep.short_of = Some(error.to_string());
        if !self.upkeep.wants_file {
            self.give_up_for_now();
        }
    }

    /// Asks that the next upkeep sync the watermark, that what lacked space or descriptors be tried again, and that the next
    /// part of the log be scrubbed: call it about once a second.
    pub fn request_watermark_sync(&mut self) {
        self.upkeep.sync_watermark = true;
        self.upkeep.freed();
        self.upkeep.postponed = false;
        (self.stalled, self.reads_postponed) = (None, false);
        self.growth.tick();
        self.upkeep.scrub.tick(&self.options);
    }

    /// Prepares one segment here and now.
    pub(crate) fn prepare_now(&mut self) -> Result<(), LogError> {
        let task = self.prepare();
        let done = self.job(task).run();
        self.take(done.result?);
        Ok(())
    }

    fn job(&self, task: Task) -> MaintenanceJob {
        let (disk, manifest_files) = (self.disk.clone(), self.manifest_files.clone());
        MaintenanceJob {
            disk,
            manifest_files,
            watermark_file: self.watermark_file.clone(),
            task,
        }
    }

    fn next_task(&mut self, rewriter: &dyn Rewriter) -> Option<Task> {
        self.upkeep.wants_file = false;
        if let Some(task) = self.grow_next() {
            return Some(task);
        }
        if self.drains() {
            return self.next_draining_task(rewriter);
        }
        let has_space = !self.upkeep.cramped;
        if self.ahead.len() <= RESERVE_SEGMENTS && !self.upkeep.full {
            return Some(self.prepare());
        }
        if let Some(id) = self.removable() {
            return Some(self.retire(id));
        }
        if std::mem::take(&mut self.upkeep.sync_watermark) {
            return Some(Task::SyncWatermark);
        }
        // Only asked when there is space: the task takes the segment's index with it.
        if has_space && let Some(task) = self.seal_next() {
            return Some(task);
        }
        if let Some(task) = self.set_aside_next() {
            return Some(task);
        }
        if let Some(id) = self.upkeep.rewrite.discard.take() {
            return Some(Task::Discard { id });
        }
        if let Some(task) = self.fill_next() {
            return Some(task);
        }
        let rewrite = if has_space { self.compact_next(rewriter) } else { None };
        rewrite.or_else(|| self.scrub_next())
    }

    /// On a full disk what makes room comes first, and whole files last: they would take the space that footers and copies
    /// need. Only with the spare is there enough for these.
    fn next_draining_task(&mut self, rewriter: &dyn Rewriter) -> Option<Task> {
        if let Some(id) = self.removable() {
            return Some(self.retire(id));
        }
        if let Some(id) = self.upkeep.rewrite.discard.take() {
            return Some(Task::Discard { id });
        }
        if self.upkeep.cramped && self.reserve.has_any_spare() {
            return Some(Task::SpendSpare);
        }
        if std::mem::take(&mut self.upkeep.sync_watermark) {
            return Some(Task::SyncWatermark);
        }
        if !self.upkeep.cramped {
            if let Some(task) = self.seal_next() {
                return Some(task);
            }
            if let Some(task) = self.compact_next(rewriter) {
                return Some(task);
            }
        }
        if !self.is_rewriting()
            && let Some(task) = self.set_aside_next()
        {
            return Some(task);
        }
        self.fill_next().or_else(|| self.scrub_next())
    }

    /// Sets a file's space aside: the spare first, then a segment.
    fn set_aside_next(&mut self) -> Option<Task> {
        if self.upkeep.full {
            None
        } else if !self.reserve.has_spare {
            self.upkeep.wants_file = true;
            Some(Task::MakeSpare {
                bytes: self.spare_bytes(),
                replaces: self.reserve.has_short_spare,
            })
        } else if self.ahead.len() < self.options.ahead_count as usize {
            Some(self.prepare())
        } else {
            None
        }
    }

    pub(crate) fn next_manifest(&self) -> Manifest {
        Manifest {
            version: self.manifest.version + 1,
            ..self.manifest.clone()
        }
    }

    /// A number for a new file. It is used up even if the file never gets into force.
    pub(crate) fn take_id(&mut self) -> u64 {
        let id = self.manifest.next_id;
        self.manifest.next_id += 1;
        id
    }

    fn prepare(&mut self) -> Task {
        self.upkeep.wants_file = true;
        let (id, file_bytes) = (self.take_id(), self.file_bytes());
        let mut manifest = self.next_manifest();
        manifest.entries.push(Entry {
            id,
            file_bytes,
            ..Entry::default()
        });
        Task::Prepare {
            id,
            file_bytes,
            manifest,
        }
    }

    /// The oldest unsealed segment that will not grow and is durable.
    fn seal_next(&mut self) -> Option<Task> {
        let current = self.segments.last()?.id;
        let durable = self.durable;
        let store_id = self.store_id;
        let segment = self.segments.iter_mut().find(|segment| !segment.sealed)?;
        if segment.id == current || segment.end > durable {
            return None;
        }
        let footer = segment.footer(store_id);
        self.upkeep.sealing = Some(segment.id);
        let (base, end) = (segment.base, segment.end);
        let entry = Entry {
            base,
            end,
            sealed: true,
            ..segment.entry()
        };
        let mut manifest = self.next_manifest();
        (manifest.sealed_end, manifest.sealed_hash, manifest.sealed_epoch) = (end, footer.hash_after, footer.epoch);
        Some(Task::Seal {
            footer,
            entry,
            manifest,
        })
    }

    fn retire(&mut self, id: u64) -> Task {
        // The spare is made of the space that comes free.
        let count_max = if self.reserve.has_spare || !self.reserve.drains {
            self.options.ahead_count as usize + RECYCLED_EXTRA
        } else {
            RESERVE_SEGMENTS
        };
        self.upkeep.retiring = self.segments.by_id(id).map(|old| old.end);
        let recycled = self.recycle(id, count_max);
        let mut manifest = self.next_manifest();
        manifest.entries.retain(|entry| entry.id != id);
        Task::Retire { id, recycled, manifest }
    }

    /// The number under which a segment's file is prepared again, if so many prepared ones are not there yet.
    pub(crate) fn recycle(&mut self, id: u64, count_max: usize) -> Option<(u64, u32)> {
        let file_bytes = self.file_bytes();
        let old = self.segments.by_id(id)?;
        let whole = !old.compacted && !old.damaged && old.file_bytes == file_bytes;
        (whole && self.ahead.len() < count_max).then(|| (self.take_id(), file_bytes))
    }

    fn take(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Prepared { segment, manifest } => {
                self.adopt(manifest);
                self.ahead.push_back(segment);
            }
            Outcome::Filled { id, to } => {
                let ahead = self.ahead.iter_mut().find(|segment| segment.id == id);
                if let Some(segment) = ahead.or_else(|| self.segments.by_id_mut(id)) {
                    segment.zeroed_to = segment.zeroed_to.max(to);
                }
            }
            Outcome::Sealed {
                id,
                footer,
                footer_crc,
                manifest,
            } => {
                self.adopt(manifest);
                if let Some(segment) = self.segments.by_id_mut(id) {
                    segment.footer_crc = footer_crc;
                    segment.seal(&footer);
                }
            }
            Outcome::Retired { id, recycled, manifest } => {
                self.adopt(manifest);
                self.forget_segment(id);
                self.ahead.extend(recycled);
                self.upkeep.freed();
                self.retry_given_up();
            }
            Outcome::Spare(is_there) => {
                (self.reserve.has_spare, self.reserve.has_short_spare) = (is_there, false);
                if !is_there {
                    self.upkeep.cramped = false;
                    self.retry_given_up();
                }
            }
            Outcome::Grew(segment) => self.grew(segment),
            Outcome::NotGrown(why) => self.not_grown(why),
            Outcome::Replaced(manifest) => self.replaced(manifest),
            Outcome::Loaded(footer) => self.loaded(footer),
            Outcome::Copied(slice) => self.copied(slice),
            Outcome::Scrubbed(scrubbed) => self.scrubbed(scrubbed),
            Outcome::Switched { recycled, manifest } => {
                self.switched(manifest);
                self.ahead.extend(recycled);
                self.upkeep.freed();
                self.retry_given_up();
            }
        }
    }

    /// A manifest came into force. Numbers taken meanwhile stay taken.
    pub(crate) fn adopt(&mut self, manifest: Manifest) {
        let next_id = self.manifest.next_id.max(manifest.next_id);
        self.manifest = Manifest { next_id, ..manifest };
    }
}

impl MaintenanceJob {
    /// Does it. The result goes to [`Log::complete_maintenance`] whatever it is.
    #[must_use]
    pub fn run(self) -> MaintenanceDone {
        let Self {
            disk,
            manifest_files,
            watermark_file,
            task,
        } = self;
        let disk = disk.as_ref();
        let mut unsealed = None;
        let result = match task {
            Task::Prepare {
                id,
                file_bytes,
                manifest,
            } => prepare(disk, &manifest_files, id, file_bytes, manifest),
            Task::Fill { id, file, from, to } => fill(id, file.as_ref(), from, to),
            Task::Seal {
                footer,
                entry,
                manifest,
            } => {
                let sealed = seal(disk, &manifest_files, &watermark_file, &footer, entry, manifest);
                match sealed {
                    Ok((footer_crc, manifest)) => Ok(Outcome::Sealed {
                        id: entry.id,
                        footer,
                        footer_crc,
                        manifest,
                    }),
                    Err(error) => {
                        unsealed = Some((entry.id, footer));
                        Err(error)
                    }
                }
            }
            Task::Retire { id, recycled, manifest } => retire(disk, &manifest_files, id, recycled, manifest)
                .map(|(recycled, manifest)| Outcome::Retired { id, recycled, manifest }),
            Task::SyncWatermark => watermark_file.sync().map(|()| Outcome::Nothing),
            Task::Load {
                store_id,
                id,
                footer_crc,
            } => Footer::read(disk, store_id, id, footer_crc).map(Outcome::Loaded),
            Task::Copy(copying) => copying.run(disk).map(Outcome::Copied),
            Task::Grow { id, file_bytes, needed } => grow(disk, id, file_bytes, needed),
            Task::Replace { leaving, manifest } => replace(disk, &manifest_files, &leaving, manifest),
            Task::MakeSpare { bytes, replaces } => make_spare(disk, bytes, replaces).map(|()| Outcome::Spare(true)),
            Task::SpendSpare => disk.remove(SPARE_FILE).map(|()| Outcome::Spare(false)),
            // The copy is in force, whatever becomes of the old file.
            Task::Switch {
                old,
                recycled,
                manifest,
            } => retire(disk, &manifest_files, old, recycled, manifest)
                .map(|(recycled, manifest)| Outcome::Switched { recycled, manifest }),
            Task::Scrub(scrubbing) => scrubbing.run(disk).map(Outcome::Scrubbed),
            Task::Discard { id } => remove_files(disk, id).map(|()| Outcome::Nothing),
            Task::Pause => Ok(Outcome::Nothing),
        };
        MaintenanceDone { result, unsealed }
    }
}
