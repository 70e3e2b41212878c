//! How a log begins small, and grows before it needs more.
//!
//! Six files of the full size stand for a log that has nothing in it. So a new one is young: its files are of
//! [`super::Options::young_bytes`], and all that holds for a log of such segments holds for it: reserve, spare, what is
//! kept. What adds fills two of them. Before that, or at the first record that fits into none, upkeep makes files of the
//! full size, as many as a log goes on with: one to fill and the two in reserve. They are durable and no manifest lists
//! them; then one manifest puts them in the place of the prepared ones, which nobody begins while it is being written.
//! Publishing waits for all that as it waits for any next file.
//!
//! Where the disk has no room for them the log stays young and takes no more, as on a full disk; it is drained from its own
//! reserve, and the disk is asked again later. Nothing says that a log is young but its files' lengths.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::ErrorKind;

use super::disk::{Disk, DiskError};
use super::maintenance::{Outcome, Task};
use super::manifest::{Entry, Manifest, ManifestFiles};
use super::options::Options;
use super::reserve::{Purpose, RESERVE_SEGMENTS, SPARE_SEGMENTS};
use super::running::{Log, Space};
use super::segment_header::{DATA_OFFSET, segment_name};
use super::segments::Segment;
use super::steps::{make_segment, tolerate};

/// Files that publishing fills before the log has grown: as many as are in reserve.
const FILLED_YOUNG: u64 = RESERVE_SEGMENTS as u64;
/// Full-sized files that a log goes on with: one to fill, and the reserve.
const FILES_GROWN: usize = 1 + RESERVE_SEGMENTS;
/// Full-sized segments of which a disk has to hold more. `SERVING_SEGMENTS` of the manifests says the same.
const SERVING_SEGMENTS: u64 = FILES_GROWN as u64 + 1;
/// The host's seconds from an attempt that took space in vain to the next one: meanwhile others may have it.
const PAUSE_SECONDS: u32 = 15;

/// How far a young log has come.
#[derive(Default)]
pub(crate) struct Growth {
    /// How long the files of a young log are; none once it has grown.
    young_bytes: Option<u32>,
    /// Something came that fits into none of them.
    wanted: Cell<bool>,
    /// Full-sized files that no manifest lists yet.
    made: Vec<Segment>,
    /// The prepared files whose place those are taking right now.
    leaving: VecDeque<Segment>,
    /// Files of an attempt that came to nothing.
    discard: Vec<u64>,
    /// Why the last attempt came to nothing.
    refused: Option<String>,
    /// The host's seconds until the next one.
    pause: u32,
}

impl Growth {
    /// As a log's files say: all that is unsealed is as long as a young log's, and nothing else was ever longer.
    pub fn found<'a>(options: &Options, mut files: impl Iterator<Item = &'a Segment>) -> Self {
        let mut fits = |young: u32| {
            files.all(|file| {
                let is_old = file.sealed && (file.compacted || file.file_bytes < young);
                is_old || file.file_bytes == young
            })
        };
        Self {
            young_bytes: options.young().filter(|young| fits(*young)),
            ..Self::default()
        }
    }

    /// The host's next second: what was refused is tried again.
    pub fn tick(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// What an attempt lacked.
    pub fn shortage(&self) -> Option<String> {
        self.refused.clone()
    }

    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Prepared files that cannot be begun just now, and stay in reserve or are followed by longer ones.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// All of its files that are neither listed nor ahead.
    pub fn files(&self) -> impl Iterator<Item = &Segment> {
        self.made.iter().chain(&self.leaving)
    }
}

impl Log {
    /// Whether it has not grown yet to the size of its options.
    #[must_use]
    pub fn is_young(&self) -> bool {
        self.growth.young_bytes.is_some()
    }

    /// How long a file is that is prepared now.
    pub(crate) fn file_bytes(&self) -> u32 {
        self.growth.young_bytes.unwrap_or(self.options.segment_bytes)
    }

    /// Whether `bytes` of commits fit into a prepared file, whichever it is. If not, longer ones are made.
    pub(crate) fn fits_ahead(&self, bytes: u64) -> bool {
        let fits = !self.is_young() || bytes <= u64::from(self.file_bytes()) - DATA_OFFSET;
        if !fits {
            self.growth.wanted.set(true);
        }
        fits
    }

    /// How many more files what adds may begin: a young log holds no more than its reserve is made for.
    pub(crate) fn left_to_fill(&self) -> usize {
        let Some(young) = self.growth.young_bytes.map(u64::from) else {
            return usize::MAX;
        };
        let held: u64 = self.segments.iter().map(|segment| u64::from(segment.file_bytes)).sum();
        (FILLED_YOUNG * young).saturating_sub(held).div_ceil(young) as usize
    }

    /// Whether it has no room for records of `bytes` altogether only because files are still being made for them.
    #[must_use]
    pub fn is_preparing(&self, bytes: u64) -> bool {
        if self.has_room(bytes) {
            return false;
        }
        match self.space() {
            Space::Preparing => true,
            Space::Ok => self.is_young() && !self.growth.is_refused() && !self.upkeep.is_full(),
            Space::Full => false,
        }
    }

    /// How many bytes of the disk a young log still has to be given before it takes more than a little, and how many for all
    /// that it will set aside.
    #[must_use]
    pub fn to_set_aside(&self) -> (u64, u64) {
        if !self.is_young() {
            return (0, 0);
        }
        let full = u64::from(self.options.segment_bytes);
        let spare = if self.reserve.has_spare { self.spare_bytes() } else { 0 };
        let own = self.disk_use().1 + spare;
        let missing = (FILES_GROWN - self.growth.made.len()) as u64 * full;
        let needed = missing.max((SERVING_SEGMENTS * full).saturating_sub(own));
        let all = (1 + u64::from(self.options.ahead_count) + SPARE_SEGMENTS) * full;
        (needed, needed.max(all.saturating_sub(own)))
    }

    fn wants_to_grow(&self) -> bool {
        let used = self.current().map_or(0, |current| current.offset_of(self.end()));
        self.growth.wanted.get() || self.segments.len() > 1 || used > u64::from(self.file_bytes()) / 4
    }

    /// The next step of growing, if the log is young and needs more.
    pub(crate) fn grow_next(&mut self) -> Option<Task> {
        if let Some(id) = self.growth.discard.pop() {
            return Some(Task::Discard { id });
        }
        if !self.is_young() || self.growth.pause > 0 {
            return None;
        }
        if !self.wants_to_grow() {
            self.growth.refused = None;
            return None;
        }
        self.upkeep.want_file();
        let file_bytes = self.options.segment_bytes;
        if self.growth.made.len() < FILES_GROWN {
            let needed = self.growth.made.is_empty().then(|| self.to_set_aside().0);
            let id = self.take_id();
            return Some(Task::Grow { id, file_bytes, needed });
        }
        let leaving: Vec<u64> = self.ahead.iter().map(|segment| segment.id).collect();
        self.growth.leaving = std::mem::take(&mut self.ahead);
        let mut manifest = self.next_manifest();
        manifest.entries.retain(|entry| !leaving.contains(&entry.id));
        manifest.entries.extend(self.growth.made.iter().map(|made| Entry {
            id: made.id,
            file_bytes,
            ..Entry::default()
        }));
        Some(Task::Replace { leaving, manifest })
    }

    /// The disk has no room for a full-sized file: those that are there are given back.
    pub(crate) fn not_grown(&mut self, why: String) {
        let growth = &mut self.growth;
        growth.pause = if growth.made.is_empty() { 1 } else { PAUSE_SECONDS };
        growth.discard.extend(growth.made.drain(..).map(|made| made.id));
        growth.refused = Some(why);
        // What it holds can make room for what comes.
        self.reserve.drains |= self.usable_ahead(Purpose::Fill) == 0;
    }

    pub(crate) fn grew(&mut self, segment: Segment) {
        self.growth.made.push(segment);
    }

    /// The manifest with the full-sized files is in force.
    pub(crate) fn replaced(&mut self, manifest: Manifest) {
        self.adopt(manifest);
        self.ahead.extend(self.growth.made.drain(..));
        self.growth = Growth::default();
        self.reserve.outgrow_spare();
    }

    /// It is not: the prepared files are what they were.
    pub(crate) fn not_replaced(&mut self) {
        let leaving = std::mem::take(&mut self.growth.leaving);
        if !leaving.is_empty() {
            self.ahead = leaving;
        }
    }
}

/// Makes a full-sized file, of which no manifest knows: what a crash leaves of it the next open removes. The first is tried
/// only where the disk says that it has room for all that is needed.
pub(crate) fn grow(disk: &dyn Disk, id: u64, file_bytes: u32, needed: Option<u64>) -> Result<Outcome, DiskError> {
    let name = segment_name(id);
    let free = disk.free_bytes();
    if let (Some(needed), Some(free)) = (needed, free)
        && free < needed
    {
        let error = DiskError::new("allocate", &name, ErrorKind::StorageFull.into());
        return Ok(Outcome::NotGrown(format!("{error}: {needed} bytes are needed")));
    }
    match make_segment(disk, &name, file_bytes) {
        Ok(both) => Ok(Outcome::Grew(Segment::ahead(id, file_bytes, both, 0))),
        Err(error) if error.passes() => {
            tolerate(disk.remove(&name))?;
            if error.is_no_space() {
                Ok(Outcome::NotGrown(error.to_string()))
            } else {
                Err(error)
            }
        }
        Err(error) => Err(error),
    }
}

/// The manifest comes first; only then do the files go that it does not list any more. What the system lacks for that is left
/// over and goes at the next open.
pub(crate) fn replace(
    disk: &dyn Disk,
    files: &ManifestFiles,
    leaving: &[u64],
    manifest: Manifest,
) -> Result<Outcome, DiskError> {
    files.write(&manifest)?;
    let remove = || -> Result<(), DiskError> {
        for id in leaving {
            disk.remove(&segment_name(*id))?;
        }
        disk.sync_directory()
    };
    tolerate(remove())?;
    Ok(Outcome::Replaced(manifest))
}
