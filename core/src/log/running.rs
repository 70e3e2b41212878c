//! The open log: its parts, its figures, and the hand-over of write jobs. Appending, reading, liveness, maintenance and
//! shipping are further `impl` blocks in the files of those names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::cache::{Cache, Extent};
use super::damage::Damages;
use super::disk::{Disk, DiskError, DiskLock};
use super::error::LogError;
use super::growing::Growth;
use super::liveness::Readers;
use super::maintenance::Upkeep;
use super::manifest::{Manifest, ManifestFiles};
use super::options::Options;
use super::position::{Position, block_aligned};
use super::reading::ReadAhead;
use super::reserve::{Purpose, Reserve};
use super::segments::{Segment, Segments};
use super::tail::{Commit, Tail};
use super::watermark::{Watermark, WatermarkFile};
use super::writing::{SegmentWrite, WriteDone, WriteJob};

/// A point of the log and the chain of all records' checksums up to it: equal on two logs that hold the same records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RollingHash {
    /// All records below are counted.
    pub position: Position,
    /// The chain.
    pub value: u64,
}

/// Whether there is room to append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Space {
    /// There is.
    Ok,
    /// Not much, and more is being prepared: run maintenance.
    Preparing,
    /// The disk had none left when it was last asked; only the reserve may be left.
    Full,
}

/// The log. One thread uses it; its jobs may run on others.
pub struct Log {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) options: Options,
    pub(crate) store_id: [u8; 16],
    pub(crate) manifest_files: ManifestFiles,
    pub(crate) manifest: Manifest,
    pub(crate) watermark_file: WatermarkFile,
    pub(crate) segments: Segments,
    pub(crate) ahead: VecDeque<Segment>,
    pub(crate) reserve: Reserve,
    pub(crate) growth: Growth,
    pub(crate) tail: Tail,
    /// Records made durable since the start.
    pub(crate) records_written: u64,
    pub(crate) cache: Cache,
    pub(crate) read_ahead: ReadAhead,
    /// Reads under way: where they begin, and up to where they will bring records.
    pub(crate) reading: BTreeMap<Position, Position>,
    pub(crate) unreadable: FxHashMap<Position, LogError>,
    pub(crate) damages: Damages,
    /// A read lacked a descriptor or memory: none is handed out before the host's next second.
    pub(crate) reads_postponed: bool,
    /// What the last write lacked: it is tried again in the host's next second.
    pub(crate) stalled: Option<DiskError>,
    pub(crate) readers: Readers,
    pub(crate) floor: Position,
    /// Floors to come, each with the record that has to be settled first.
    pub(crate) floors: VecDeque<(Position, Position)>,
    /// What is committed, if that is not for this log alone to say.
    pub(crate) committed: Option<Position>,
    pub(crate) upkeep: Upkeep,
    pub(crate) epoch: u64,
    pub(crate) hash: u64,
    pub(crate) durable: Position,
    pub(crate) durable_hash: u64,
    pub(crate) follower: bool,
    pub(crate) failed: Option<String>,
    // Last, so that the store is given up only when everything else is gone.
    pub(crate) _lock: Box<dyn DiskLock>,
}

impl Log {
    /// Everything pending as one job. `None` when nothing is pending, when a write is in flight (one at a time), or while
    /// the next blocks are just being filled with zeros: ask again after every completion.
    ///
    /// # Errors
    /// [`LogError::Failed`] after a failed write.
    pub fn next_write(&mut self) -> Result<Option<WriteJob>, LogError> {
        self.check_failed()?;
        if self.write_in_flight() || self.stalled.is_some() {
            return Ok(None);
        }
        self.tail.close();
        if self.tail.ready.is_empty() || self.upkeep.is_filling(&self.segments, &self.tail.ready) {
            return Ok(None);
        }
        self.tail.in_flight = std::mem::take(&mut self.tail.ready);
        let mut segments: Vec<SegmentWrite> = Vec::new();
        for commit in &self.tail.in_flight {
            let Some(segment) = self.segments.by_id_mut(commit.segment) else {
                continue;
            };
            let Some(file) = segment.file.clone() else { continue };
            if segments.last().is_none_or(|write| write.id() != segment.id) {
                segments.push(SegmentWrite::new(segment.id, file));
            }
            let Some(write) = segments.last_mut() else { continue };
            if !segment.begun {
                segment.begun = true;
                write.add(0, segment.header(self.store_id).encode().into());
            }
            add_commit(write, segment, commit, self.durable);
            segment.zeroed_to = segment.zeroed_to.max(write.end());
        }
        let watermark = self.watermark_file.next(&self.watermark_for(&self.tail.in_flight));
        Ok(Some(WriteJob { segments, watermark }))
    }

    /// Takes the result of a write job and returns the new durable position. A write that lacked space or memory is tried
    /// again when the host asks: until then [`Log::space`] says that the disk is full.
    ///
    /// # Errors
    /// [`LogError::Failed`]: the log is finished for this process. A failed sync is never tried again.
    pub fn complete_write(&mut self, done: WriteDone) -> Result<Position, LogError> {
        match done.result {
            Ok(()) => {}
            Err(error) if error.passes() && self.failed.is_none() => {
                self.stall(error);
                return Ok(self.durable);
            }
            Err(error) => return Err(self.fail(error.to_string())),
        }
        self.check_failed()?;
        let commits = std::mem::take(&mut self.tail.in_flight);
        if let Some(last) = commits.last() {
            self.durable = last.end();
            self.durable_hash = last.hash_after;
        }
        self.records_written += commits.iter().map(|commit| u64::from(commit.records)).sum::<u64>();
        for part in commits.into_iter().flat_map(|commit| commit.parts) {
            let end = part.end();
            self.cache.insert(Extent {
                start: part.start,
                end,
                bytes: part.bytes,
                places: None,
            });
        }
        self.drop_late_readers();
        self.settle_floors();
        Ok(self.durable)
    }

    /// Nothing of a write counts that lacked something on its way: all of it is written again, to the same places.
    fn stall(&mut self, error: DiskError) {
        self.stalled = Some(error);
        let mut again = std::mem::take(&mut self.tail.in_flight);
        for commit in &again {
            if let Some(segment) = self.segments.by_id_mut(commit.segment)
                && segment.base == commit.start
            {
                // Its header goes with its first commit.
                segment.begun = false;
            }
        }
        again.append(&mut self.tail.ready);
        self.tail.ready = again;
        self.watermark_file.take_back();
    }

    /// What the disk lacks now, if it lacks something: space, descriptors or memory.
    #[must_use]
    pub fn shortage(&self) -> Option<String> {
        self.stalled
            .as_ref()
            .map(DiskError::to_string)
            .or_else(|| self.upkeep.shortage())
            .or_else(|| self.growth.shortage())
    }

    /// Whether something waits for [`Log::request_watermark_sync`]: it is tried again when the host asks.
    #[must_use]
    pub fn waits_for_host(&self) -> bool {
        self.stalled.is_some() || self.reads_postponed || self.upkeep.is_full()
    }

    /// Where the oldest record lies that is still there, at the earliest.
    #[must_use]
    pub fn start(&self) -> Position {
        self.segments
            .iter()
            .next()
            .map_or(Position::FIRST, |segment| segment.base)
    }

    /// How many records were made durable since the log was opened.
    #[must_use]
    pub fn records_written(&self) -> u64 {
        self.records_written
    }

    /// All appended records are below.
    #[must_use]
    pub fn end(&self) -> Position {
        self.segments.last().map_or(Position::FIRST, |segment| segment.end)
    }

    /// All records below are on disk.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// Whether something is appended and not yet handed to a write job.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.tail.open.is_some() || !self.tail.ready.is_empty()
    }

    /// Whether a write job is out.
    #[must_use]
    pub fn write_in_flight(&self) -> bool {
        !self.tail.in_flight.is_empty()
    }

    /// Bytes appended and not yet durable.
    #[must_use]
    pub fn pending_bytes(&self) -> u64 {
        self.tail.pending_bytes()
    }

    /// The epoch records are appended in.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Over all records appended so far.
    #[must_use]
    pub fn rolling_hash(&self) -> RollingHash {
        RollingHash {
            position: Position(block_aligned(self.end().0)),
            value: self.hash,
        }
    }

    /// Over all durable records.
    #[must_use]
    pub fn durable_hash(&self) -> RollingHash {
        RollingHash {
            position: self.durable,
            value: self.durable_hash,
        }
    }

    /// The store's identity, given when it was created.
    #[must_use]
    pub fn store_id(&self) -> [u8; 16] {
        self.store_id
    }

    /// How long its files are.
    #[must_use]
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.options.segment_bytes)
    }

    /// Whether there is room to append.
    #[must_use]
    pub fn space(&self) -> Space {
        let drains = self.reserve.drains || self.upkeep.is_full() || self.growth.is_refused();
        match (self.usable_ahead(Purpose::Fill) > 0, drains) {
            _ if self.stalled.is_some() => Space::Full,
            (true, _) => Space::Ok,
            (false, false) => Space::Preparing,
            (false, true) => Space::Full,
        }
    }

    /// Why the log stopped, if it did.
    #[must_use]
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// How many segment files hold records, and the bytes of all files set aside for segments.
    #[must_use]
    pub fn disk_use(&self) -> (usize, u64) {
        let files = self.segments.iter().chain(&self.ahead).chain(self.growth.files());
        (
            self.segments.len(),
            files.map(|segment| u64::from(segment.file_bytes)).sum(),
        )
    }

    /// Whether a file is in force that a compaction made.
    #[cfg(test)]
    pub(crate) fn has_rewritten(&self) -> bool {
        self.segments.iter().any(|segment| segment.compacted)
    }

    /// Memory the payload cache holds.
    #[must_use]
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Clean stop: writes what is pending and leaves a durable mark that nothing can be torn. Runs on the caller's thread.
    ///
    /// # Errors
    /// [`LogError::Failed`] when the log has failed, the disk's error otherwise; the log is then as after a crash.
    pub fn close(mut self) -> Result<(), LogError> {
        self.flush_now()?;
        let clean = Watermark {
            clean: true,
            ..self.watermark_for(&[])
        };
        // Both slots, so that even a damaged one leaves the truth.
        for _ in 0..2 {
            self.watermark_file.next(&clean).run()?;
            self.watermark_file.sync()?;
        }
        Ok(())
    }

    /// Writes everything pending, here and now.
    pub(crate) fn flush_now(&mut self) -> Result<(), LogError> {
        if self.write_in_flight() || self.upkeep.is_out() {
            return Err(LogError::Options("a write or maintenance job is still out".to_owned()));
        }
        self.stalled = None;
        while let Some(job) = self.next_write()? {
            self.complete_write(job.run())?;
        }
        // It is as after a crash; whoever needs it durable is told why it is not.
        self.stalled.take().map_or(Ok(()), |error| Err(error.into()))
    }

    pub(crate) fn check_failed(&self) -> Result<(), LogError> {
        match &self.failed {
            Some(why) => Err(LogError::Failed(why.clone())),
            None => Ok(()),
        }
    }

    /// The layer above cannot read a record of its leader's: the log is finished for this process, since it can neither go on
    /// without it nor with it.
    pub fn stop_for(&mut self, position: Position, why: &str) -> LogError {
        self.fail(format!(
            "the leader's record at position {position} cannot be read here ({why}): is the leader of a newer version?"
        ))
    }

    /// From now on nothing is reported durable.
    pub(crate) fn fail(&mut self, why: String) -> LogError {
        let why = self.failed.get_or_insert(why).clone();
        LogError::Failed(why)
    }

    /// The watermark once `commits` are durable.
    pub(crate) fn watermark_for(&self, commits: &[Commit]) -> Watermark {
        let last = commits.last();
        Watermark {
            store_id: self.store_id,
            durable: last.map_or(self.durable, Commit::end),
            epoch: last.map_or(self.epoch, |commit| commit.epoch),
            hash: last.map_or(self.durable_hash, |commit| commit.hash_after),
            manifest: self.manifest.version,
            clean: false,
        }
    }
}

fn add_commit(write: &mut SegmentWrite, segment: &Segment, commit: &Commit, durable: Position) {
    write.add(
        segment.offset_of(commit.start),
        Bytes::copy_from_slice(&commit.head(durable)),
    );
    for part in &commit.parts {
        write.add(segment.offset_of(part.start), part.bytes.clone());
    }
    write.fill_block();
}
