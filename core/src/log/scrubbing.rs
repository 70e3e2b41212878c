//! Looking for damage before somebody needs the record: sealed segments are read from the disk and verified, one slice after
//! another, as the least urgent piece of upkeep.
//!
//! The pace is the host's second ([`Log::request_watermark_sync`]): so many bytes in each, a round through the whole log,
//! then a rest. What is found is remembered ([`super::damage`]); the log goes on.

use super::commit::{COMMIT_BYTES, CommitHead};
use super::disk::{Disk, DiskError, DiskFile, OpenFile};
use super::maintenance::Task;
use super::options::Options;
use super::position::{BLOCK_BYTES, Position};
use super::record::KIND_USER_MIN;
use super::recovery::Damage;
use super::running::Log;
use super::scan::{self, Cursor, Step, Window};
use super::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};

/// What one piece of upkeep reads: reads for deliveries wait for it at most.
const SLICE_BYTES: u64 = 1024 * 1024;

/// How far scrubbing has come.
#[derive(Default)]
pub(crate) struct Scrub {
    /// All below was verified in this round.
    at: Position,
    /// A segment in part.
    current: Option<Scrubbing>,
    /// Bytes that may still be read before the host's next second.
    budget: u64,
    /// Seconds until the next round begins; `None` before the first call.
    rest: Option<u32>,
    /// Records verified since the log was opened, and rounds that were completed.
    pub records: u64,
    pub rounds: u64,
}

impl Scrub {
    /// A second has passed.
    pub fn tick(&mut self, options: &Options) {
        let rest = self.rest.get_or_insert(options.scrub_after_seconds);
        if *rest > 0 {
            *rest -= 1;
        } else {
            self.budget = u64::from(options.scrub_bytes_per_second);
        }
    }
}

/// The verifying of one segment, between two slices.
pub(crate) struct Scrubbing {
    header: SegmentHeader,
    file_bytes: u64,
    offset: u64,
    cursor: Cursor,
    bytes: u64,
}

/// What a slice found.
pub(crate) struct Scrubbed {
    scrubbing: Scrubbing,
    done: bool,
    bytes: u64,
    records: u64,
    damage: Vec<Damage>,
}

impl Log {
    /// Records that scrubbing verified since the log was opened, and the rounds that it completed.
    #[must_use]
    pub fn scrubbed_total(&self) -> (u64, u64) {
        (self.upkeep.scrub.records, self.upkeep.scrub.rounds)
    }

    /// The next slice, if this second still has room for it.
    pub(crate) fn scrub_next(&mut self) -> Option<Task> {
        if self.upkeep.scrub.budget == 0 {
            return None;
        }
        let current = self.upkeep.scrub.current.take();
        let scrubbing = current.filter(|current| self.segments.by_id(current.header.id).is_some());
        let Some(mut scrubbing) = scrubbing.or_else(|| self.next_to_scrub()) else {
            let every = self.options.scrub_every_seconds;
            let scrub = &mut self.upkeep.scrub;
            (scrub.at, scrub.budget, scrub.rest) = (Position::ZERO, 0, Some(every));
            scrub.rounds += 1;
            return None;
        };
        scrubbing.bytes = SLICE_BYTES.min(self.upkeep.scrub.budget);
        Some(Task::Scrub(Box::new(scrubbing)))
    }

    fn next_to_scrub(&self) -> Option<Scrubbing> {
        let segment = self.segments.first_after(self.upkeep.scrub.at)?;
        if !segment.sealed {
            return None;
        }
        let header = SegmentHeader {
            compacted: segment.compacted,
            end: segment.end,
            ..segment.header(self.store_id)
        };
        let file_bytes = if segment.compacted {
            u64::from(segment.file_bytes)
        } else {
            segment.offset_of(segment.end)
        };
        let cursor = Cursor {
            position: segment.base,
            epoch: segment.epoch_before,
            hash: segment.hash_before,
        };
        Some(Scrubbing {
            header,
            file_bytes,
            offset: DATA_OFFSET,
            cursor,
            bytes: 0,
        })
    }

    /// A slice was verified.
    pub(crate) fn scrubbed(&mut self, scrubbed: Scrubbed) {
        let scrub = &mut self.upkeep.scrub;
        scrub.budget = scrub.budget.saturating_sub(scrubbed.bytes.max(1));
        scrub.records += scrubbed.records;
        if scrubbed.done {
            scrub.at = scrubbed.scrubbing.header.end;
        } else {
            scrub.current = Some(scrubbed.scrubbing);
        }
        for damage in scrubbed.damage {
            self.note_damage(damage);
        }
    }
}

impl Scrubbing {
    /// Reads and verifies the next slice.
    pub fn run(mut self, disk: &dyn Disk) -> Result<Scrubbed, DiskError> {
        let name = segment_name(self.header.id);
        let mut scrubbed = Scrubbed {
            done: false,
            bytes: 0,
            records: 0,
            damage: Vec::new(),
            scrubbing: Self { ..self },
        };
        let file = match disk.open(&name, OpenFile::ReadOnly) {
            Ok(file) => file,
            Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
                scrubbed
                    .damage
                    .push(self.damage(&name, 0, "the file is missing".to_owned()));
                scrubbed.done = true;
                return Ok(scrubbed);
            }
            Err(error) => return Err(error),
        };
        let (from, to) = (self.offset, self.offset + self.bytes);
        // What the system remembers of the file would be verified otherwise.
        file.wont_need(from, self.bytes + SLICE_BYTES);
        scrubbed.done = if self.header.compacted {
            self.verify_stored(file.as_ref(), &name, to, &mut scrubbed)?
        } else {
            self.verify_written(file.as_ref(), &name, to, &mut scrubbed)?
        };
        file.wont_need(from, self.offset.max(to) - from);
        scrubbed.bytes = self.offset - from;
        scrubbed.scrubbing = self;
        Ok(scrubbed)
    }

    fn damage(&self, file: &str, offset: u64, why: String) -> Damage {
        Damage {
            file: file.to_owned(),
            offset,
            position: self.cursor.position,
            why,
        }
    }

    fn verify_written(
        &mut self,
        file: &dyn DiskFile,
        name: &str,
        to: u64,
        scrubbed: &mut Scrubbed,
    ) -> Result<bool, DiskError> {
        let base = self.header.base;
        let mut window = Window::new(file, name, self.file_bytes);
        while self.offset < to {
            match scan::next_commit(&mut window, base, self.cursor)? {
                Step::Full => return Ok(true),
                Step::Commit(commit) => {
                    let users = |stored: &scan::Stored<'_>| stored.header.kind >= KIND_USER_MIN;
                    scrubbed.records += scan::records(commit.bytes, true).filter(users).count() as u64;
                    self.cursor = commit.after;
                    self.offset = DATA_OFFSET + (self.cursor.position.0 - base.0);
                }
                Step::Broken { offset, position, why } => {
                    let why = window.explain(why, offset);
                    scrubbed.damage.push(Damage {
                        position,
                        ..self.damage(name, offset, why)
                    });
                    if !self.skip_damage(&mut window)? {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Goes on at the next commit that verifies; whether there is one.
    fn skip_damage(&mut self, window: &mut Window<'_>) -> Result<bool, DiskError> {
        loop {
            self.offset += BLOCK_BYTES;
            if self.offset >= self.file_bytes {
                return Ok(false);
            }
            let position = self.header.base.plus(self.offset - DATA_OFFSET);
            let room = self.file_bytes - self.offset;
            if let Ok((header, commit)) = CommitHead::verify(window.get(self.offset, COMMIT_BYTES)?, position, room) {
                self.cursor = Cursor {
                    position,
                    epoch: header.epoch,
                    hash: commit.hash_before,
                };
                return Ok(true);
            }
        }
    }

    fn verify_stored(
        &mut self,
        file: &dyn DiskFile,
        name: &str,
        to: u64,
        scrubbed: &mut Scrubbed,
    ) -> Result<bool, DiskError> {
        let mut window = Window::new(file, name, self.file_bytes);
        let mut broken = false;
        while self.offset < self.file_bytes {
            if self.offset >= to && !broken {
                return Ok(false);
            }
            match scan::next_stored(&mut window, self.offset, self.cursor.position, self.header.end)? {
                Ok((header, _)) => {
                    scrubbed.records += u64::from(header.kind >= KIND_USER_MIN);
                    self.offset += header.stored();
                    self.cursor.position = header.position.plus(1);
                    broken = false;
                }
                Err(why) => {
                    if !broken {
                        let why = window.explain(why, self.offset);
                        scrubbed.damage.push(self.damage(name, self.offset, why));
                    }
                    // Records begin at eighths; the next one that verifies is the next one.
                    self.offset += 8;
                    broken = true;
                }
            }
        }
        Ok(true)
    }
}
