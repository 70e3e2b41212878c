//! What is due: events of sealed segments, a cut that was asked for, and the end of what was exported or takes too much room.
//!
//! The keeper belongs to the engine's thread and does no I/O but at the start; its jobs run one at a time on the background
//! worker. From the first cut on it claims the log from where its events end, so that nothing is compacted or removed before
//! it was told of; while a cut is written it claims all of it.
//!
//! It gives way: when the log has no space left, everything that it keeps goes; beyond its bounds of bytes and age the oldest
//! events go; and a claim that holds more of the log than the bound is lost. What is missing then is a gap, with its reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::log::disk::{Disk, DiskError};
use crate::log::{Position, Space};
use crate::state::{Exported, MANIFEST_HASH_BYTES, State, StateError};

use super::cutting::{Cut, Cutting, Work};
use super::distilling::{Distilled, Distilling};
use super::gaps::{Gap, Gaps};
use super::making::Making;
use super::pieces::{Header, Kind, Reader, make_durable, name, parse_name};

/// The names of the claims on the log.
pub(super) const EVENTS: &str = "$sys.events";
pub(super) const CUT: &str = "$sys.cut";
/// How soon what the disk lacked for is tried again.
const RETRY_MS: u64 = 1000;

/// What may be kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes of files that wait to be exported; and of the log that is kept for them, beyond what is written and told of
    /// just now. Default: 1 GiB.
    pub bytes_max: u64,
    /// How old events may get, in milliseconds. Default: 7 days.
    pub age_max_ms: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            bytes_max: 1 << 30,
            age_max_ms: 7 * 24 * 3600 * 1000,
        }
    }
}

/// How far a cut is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Progress {
    /// None was asked for since the last one.
    #[default]
    None,
    /// It is being written.
    Making {
        /// Its number.
        number: u64,
    },
    /// It could not be written, and why; it may be asked for again.
    Failed(String),
    /// It waits to be exported.
    Ready {
        /// The cut.
        cut: Header,
        /// The manifest before it.
        previous: Option<[u8; MANIFEST_HASH_BYTES]>,
        /// Its events, in order.
        events: Vec<Header>,
        /// What they do not tell of.
        gaps: Vec<Gap>,
    },
}

/// Why something cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The state's.
    #[error(transparent)]
    State(#[from] StateError),
    /// The disk's.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The disk is full: cuts give way to messages.
    #[error("the disk is full: a cut can be made when messages are taken again")]
    NoSpace,
    /// Another cut, or none, waits to be exported.
    #[error("there is no cut {0} that waits to be exported")]
    NoSuchCut(u64),
}

/// A piece of work, to be run on any thread.
pub enum Job {
    /// Events of a segment.
    Distill(Box<Distilling>),
    /// A part of a cut.
    Cut(Box<Cutting>, Work),
    /// Files that nobody needs any more.
    Remove(Arc<dyn Disk>, Vec<String>),
}

/// What became of a [`Job`].
pub enum JobDone {
    /// Events of a segment.
    Distilled(Distilled),
    /// A part of a cut.
    Cut(Box<Cut>),
    /// These are gone, but for what could not be removed.
    Removed(Vec<String>),
}

impl Job {
    /// Does it.
    #[must_use]
    pub fn run(self) -> JobDone {
        match self {
            Self::Distill(distilling) => JobDone::Distilled(distilling.run()),
            Self::Cut(cutting, work) => JobDone::Cut(Box::new(cutting.run(work))),
            // What cannot be removed now is tried again, and at the next start.
            Self::Remove(disk, names) => {
                JobDone::Removed(names.into_iter().filter(|name| disk.remove(name).is_err()).collect())
            }
        }
    }
}

/// See the module's documentation.
pub struct Keeper {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) bounds: Bounds,
    /// By where they begin.
    pub(super) events: BTreeMap<Position, Header>,
    pub(super) gaps: Gaps,
    /// All below was told of, or is a gap.
    pub(super) distilled: Position,
    /// The claim stands.
    pub(super) claims: bool,
    pub(super) cut: Option<Header>,
    /// A cut was asked for, and begins as soon as it can.
    pub(super) wanted: bool,
    pub(super) making: Option<Making>,
    pub(super) distilling: Option<Box<Distilling>>,
    pub(super) failed: Option<String>,
    /// Exported up to here, once the record at the first position is settled.
    pub(super) confirmed: Option<(Position, Position)>,
    pub(super) out: bool,
    pub(super) trash: Vec<String>,
    /// Work that the disk lacked something for is tried again then; what could not be removed, apart from it.
    pub(super) again_at_ms: u64,
    pub(super) remove_at_ms: u64,
}

impl Keeper {
    /// Finds what an earlier process left, and claims what is not told of yet. To be called before any upkeep runs.
    ///
    /// # Errors
    /// The disk's.
    pub fn open(disk: Arc<dyn Disk>, state: &mut State, bounds: Bounds) -> Result<Self, DiskError> {
        let mut keeper = Self {
            bounds,
            events: BTreeMap::new(),
            gaps: Gaps::default(),
            distilled: Position::ZERO,
            claims: false,
            cut: None,
            wanted: false,
            making: None,
            distilling: None,
            failed: None,
            confirmed: None,
            out: false,
            trash: Vec::new(),
            again_at_ms: 0,
            remove_at_ms: 0,
            disk,
        };
        let mut events = Vec::new();
        for file in keeper.disk.list()? {
            let Some((kind, number)) = parse_name(&file) else {
                continue;
            };
            let header = match Reader::open(keeper.disk.as_ref(), kind, number, state.store_id()) {
                Ok(reader) => reader.map(|reader| reader.header),
                // It is as good as gone, and no reason not to start.
                Err(error) if error.is_unreadable() => None,
                Err(error) => return Err(error),
            };
            match (kind, header) {
                (Kind::Events, Some(header)) => events.push(header),
                (Kind::Cut, Some(header)) if Self::is_next(state, &header) => keeper.cut = Some(header),
                _ => keeper.trash.push(file),
            }
        }
        events.sort_unstable_by_key(|header| header.from);
        // Work is done one piece after the other, so that all older ones were synced before the newest was begun.
        if let Some(newest) = events.last().copied()
            && !is_made_durable(keeper.disk.as_ref(), &newest)?
        {
            events.pop();
            keeper.trash.push(newest.file_name());
        }
        if let Some(cut) = keeper.cut
            && !is_made_durable(keeper.disk.as_ref(), &cut)?
        {
            keeper.cut = None;
            keeper.trash.push(cut.file_name());
        }
        let begins = match (state.exported(), &keeper.cut) {
            (Some(exported), _) => exported.position,
            (None, Some(cut)) => cut.to,
            (None, None) => {
                keeper.trash.extend(events.iter().map(Header::file_name));
                return Ok(keeper);
            }
        };
        keeper.adopt(begins, events, state);
        Ok(keeper)
    }

    /// The number of the cut that comes after the last that was exported.
    pub(super) fn next_number(state: &State) -> u64 {
        state.exported().map_or(0, |exported| exported.number) + 1
    }

    /// Whether a cut is the one that comes after the last that was exported, and of the log as it is.
    fn is_next(state: &State, cut: &Header) -> bool {
        let follows = state.exported().is_none_or(|exported| cut.from == exported.position);
        follows && cut.number == Self::next_number(state) && cut.to <= state.log().end()
    }

    /// Takes the files that go on from a position, in their order.
    fn adopt(&mut self, begins: Position, events: Vec<Header>, state: &mut State) {
        self.distilled = begins;
        for header in events {
            if header.from < self.distilled || header.to > state.log().end() {
                self.trash.push(header.file_name());
                continue;
            }
            self.note_gap(header.from, "these events were lost");
            self.distilled = header.to;
            self.events.insert(header.from, header);
        }
        if !state.log().has_all_from(self.distilled) {
            self.note_gap(state.log().settled(), "the log was rewritten before it was told of");
        }
        self.claim(state);
    }

    /// What lies between the last event and `to` is not told of.
    pub(super) fn note_gap(&mut self, to: Position, why: &str) {
        let from = self.distilled;
        self.distilled = from.max(to);
        self.add_gap(from, to, why);
    }

    /// No event tells of what lies there.
    fn add_gap(&mut self, from: Position, to: Position, why: &str) {
        let why = why.to_owned();
        if let Some((from, to)) = self.gaps.add(Gap { from, to, why }) {
            let between: Vec<Position> = self.events.range(from..to).map(|(at, _)| *at).collect();
            let gone = between.iter().filter_map(|at| self.events.remove(at));
            self.trash.extend(gone.map(|header| header.file_name()));
        }
    }

    /// Gives up events that wait.
    pub(super) fn drop_events(&mut self, header: &Header, why: &str) {
        if self.events.remove(&header.from).is_some() {
            self.trash.push(header.file_name());
            self.add_gap(header.from, header.to, why);
        }
    }

    /// Gives up a file of events that is half made.
    pub(super) fn drop_distilling(&mut self) {
        let half = self.distilling.take();
        self.trash.extend(half.map(|distilling| distilling.file_name()));
    }

    pub(super) fn claim(&mut self, state: &mut State) {
        // The segment that is being written is kept for nobody, and of one that is sealed, little is left when it is told of:
        // where the bound is less than that, none would ever be.
        let bound_bytes = self.bounds.bytes_max.saturating_add(2 * state.log().segment_bytes());
        self.claims = state.register_reader(EVENTS, self.distilled, bound_bytes);
    }

    /// Whether events are kept for a next cut.
    pub(super) fn is_on(&self, state: &State) -> bool {
        state.exported().is_some() || self.cut.is_some() || self.making.is_some()
    }

    /// When something is tried again that the disk lacked for: monotonic milliseconds.
    #[must_use]
    pub fn retry_at_ms(&self, state: &State) -> Option<u64> {
        let now_ms = state.now().monotonic_ms;
        let later = [self.again_at_ms, self.remove_at_ms]
            .into_iter()
            .filter(|at| *at > now_ms);
        later.min()
    }

    /// How many bytes of files wait, and since when the oldest does.
    #[must_use]
    pub fn kept(&self) -> (u64, Option<u64>) {
        let headers = || self.events.values().chain(&self.cut);
        let bytes = headers().map(Header::file_bytes).sum();
        (bytes, headers().map(|header| header.time_ms).min())
    }

    /// How many ranges of records nothing is told of, since the last cut that was exported.
    #[must_use]
    pub fn gaps(&self) -> usize {
        self.gaps.count()
    }

    /// Whether half of what may be kept is.
    #[must_use]
    pub fn is_half_full(&self, now_ms: u64) -> bool {
        let (bytes, since) = self.kept();
        bytes >= self.bounds.bytes_max / 2
            || since.is_some_and(|since| now_ms.saturating_sub(since) >= self.bounds.age_max_ms / 2)
    }

    /// The folder's disk, for whoever reads what waits.
    #[must_use]
    pub fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }

    /// How far the next cut is.
    #[must_use]
    pub fn progress(&self, state: &State) -> Progress {
        if self.wanted || self.making.is_some() {
            return Progress::Making {
                number: Self::next_number(state),
            };
        }
        let Some(cut) = self.waiting() else {
            return self.failed.clone().map_or(Progress::None, Progress::Failed);
        };
        if self.distilled < cut.to {
            // Its events were lost, and are made again.
            return Progress::Making { number: cut.number };
        }
        let within = |from: Position| cut.from <= from && from < cut.to;
        Progress::Ready {
            cut,
            previous: state.exported().map(|exported| exported.manifest),
            events: self
                .events
                .values()
                .filter(|header| within(header.from))
                .copied()
                .collect(),
            gaps: self.gaps.within(cut.from, cut.to),
        }
    }

    /// The cut that waits to be exported, whether or not its events have to be made again first.
    #[must_use]
    pub fn waiting(&self) -> Option<Header> {
        self.cut.filter(|_| self.confirmed.is_none())
    }

    /// Has the next cut begun as soon as nothing is in its way, unless one is being written or waits to be exported: then it
    /// is that one. Its position is where the log ends when it begins.
    ///
    /// # Errors
    /// Why none can be begun.
    pub fn begin(&mut self, state: &mut State) -> Result<(), KeeperError> {
        if self.making.is_some() || self.waiting().is_some() {
            return Ok(());
        }
        if state.log().space() == Space::Full {
            return Err(KeeperError::NoSpace);
        }
        (self.wanted, self.failed) = (true, None);
        self.begin_wanted(state);
        Ok(())
    }

    /// Begins what was asked for. Not while files are being removed, which may have the same name, nor while the log is
    /// being rewritten.
    fn begin_wanted(&mut self, state: &mut State) {
        let is_free = !self.out && self.distilling.is_none() && self.making.is_none() && self.cut.is_none();
        if !self.wanted || !is_free || !state.register_reader(CUT, Position::ZERO, u64::MAX) {
            return;
        }
        self.wanted = false;
        match self.make(state) {
            Ok(making) => self.making = Some(making),
            Err(error) => {
                state.drop_cut();
                state.remove_reader(CUT);
                self.failed = Some(error.to_string());
            }
        }
    }

    /// Claims nothing of the log any more.
    #[cfg(any(test, feature = "sim"))]
    pub fn let_go(self, state: &mut State) {
        state.drop_cut();
        state.remove_reader(EVENTS);
        state.remove_reader(CUT);
    }

    /// Whether a cut is being written, so that its position is known.
    #[cfg(any(test, feature = "sim"))]
    #[must_use]
    pub fn is_making(&self) -> bool {
        self.making.is_some()
    }

    /// A file of this name is made again: the one before need not be removed.
    pub(super) fn reuse(&mut self, file: &str) {
        self.trash.retain(|name| name != file);
    }

    /// Notes that the cut that waits was exported whole, under a manifest of this hash. Says where the record is: it counts
    /// when that is committed. Told again of the last one that was exported, it says so again.
    ///
    /// # Errors
    /// It is another cut that waits, or the log takes no record.
    pub fn confirm(
        &mut self,
        state: &mut State,
        number: u64,
        manifest: [u8; MANIFEST_HASH_BYTES],
    ) -> Result<Position, KeeperError> {
        if let Some(exported) = state.exported()
            && exported.number == number
            && exported.manifest == manifest
        {
            return Ok(self.confirmed.map_or(Position::ZERO, |(record, _)| record));
        }
        // Not before its events are there: without them nobody has it whole.
        let waits = |cut: &Header| cut.number == number && cut.to <= self.distilled;
        let cut = self.waiting().filter(waits).ok_or(KeeperError::NoSuchCut(number))?;
        let record = state.note_exported(Exported {
            number,
            position: cut.to,
            manifest,
        })?;
        self.confirmed = Some((record, cut.to));
        Ok(record)
    }

    /// The next piece of work. One is out at a time.
    pub fn next_job(&mut self, state: &mut State) -> Option<Job> {
        let now_ms = state.now().monotonic_ms;
        if self.out || state.failed().is_some() {
            return None;
        }
        self.forget_exported(state);
        if state.log().space() == Space::Full {
            self.give_way(state);
        } else {
            self.keep_bounds(state);
            self.begin_wanted(state);
        }
        if !self.trash.is_empty() && now_ms >= self.remove_at_ms {
            self.out = true;
            return Some(Job::Remove(self.disk.clone(), std::mem::take(&mut self.trash)));
        }
        if now_ms < self.again_at_ms || state.log().space() == Space::Full {
            return None;
        }
        let job = match &mut self.distilling {
            Some(_) => self.distilling.take().map(Job::Distill),
            None if self.making.is_some() => self.next_of_cut(state),
            None => self.distill_next(state),
        };
        self.out = job.is_some();
        job
    }

    /// What was exported goes when the record of that is settled.
    fn forget_exported(&mut self, state: &State) {
        let Some((record, position)) = self.confirmed else {
            return;
        };
        if record >= state.log().settled() {
            return;
        }
        self.confirmed = None;
        self.trash.extend(self.cut.take().map(|cut| cut.file_name()));
        let kept = self.events.split_off(&position);
        self.trash.extend(self.events.values().map(Header::file_name));
        self.events = kept;
        self.gaps.forget_below(position);
    }

    /// The events of the next segment that is sealed, or of what lies below a cut: no file of events reaches beyond one.
    pub(super) fn distill_next(&mut self, state: &State) -> Option<Job> {
        if !self.claims {
            return None;
        }
        let position = match &self.making {
            Some(making) => Some(making.position),
            None => self.cut.map(|cut| cut.to),
        };
        let to = match position.filter(|position| self.distilled < *position) {
            Some(position) => position,
            None => state.log().sealed_after(self.distilled)?,
        };
        let request = state.log().heads(self.distilled, to).here()?;
        let distilling = Distilling::new(self.disk.clone(), request, state);
        self.reuse(&distilling.file_name());
        Some(Job::Distill(Box::new(distilling)))
    }

    /// Takes what became of a piece of work.
    pub fn complete(&mut self, state: &mut State, done: JobDone) {
        self.out = false;
        let now_ms = state.now().monotonic_ms;
        match done {
            JobDone::Removed(left) => {
                if !left.is_empty() {
                    self.remove_at_ms = now_ms + RETRY_MS;
                }
                self.trash.extend(left);
            }
            JobDone::Distilled(distilled) => self.distilled(state, distilled),
            JobDone::Cut(cut) => match *cut {
                Cut::On(cutting, is_done) => self.cut_goes_on(state, cutting, is_done),
                Cut::Done(header) => {
                    if self.making.take().is_some() {
                        state.remove_reader(CUT);
                        self.cut = Some(header);
                    } else {
                        self.trash.push(header.file_name());
                    }
                }
                Cut::Failed(error) => self.abandon(state, &error.to_string()),
            },
        }
    }

    fn distilled(&mut self, state: &mut State, distilled: Distilled) {
        match distilled {
            Distilled::More(distilling) if self.claims => self.distilling = Some(distilling),
            Distilled::More(distilling) => self.trash.push(distilling.file_name()),
            Distilled::Done(header) if header.from == self.distilled && self.claims => {
                self.events.insert(header.from, header);
                self.distilled = header.to;
            }
            // The claim was lost meanwhile: it is in a gap.
            Distilled::Done(header) => self.trash.push(header.file_name()),
            Distilled::Gap { from, to, why, is_left } => {
                if is_left {
                    self.trash.push(name(Kind::Events, from.0));
                }
                if from == self.distilled {
                    self.note_gap(to, &why);
                }
            }
            Distilled::Later => self.again_at_ms = state.now().monotonic_ms + RETRY_MS,
        }
        state.advance_reader(EVENTS, self.distilled);
    }
}

/// Whether a file that was found is whole on the disk, too, from now on.
fn is_made_durable(disk: &dyn Disk, header: &Header) -> Result<bool, DiskError> {
    match make_durable(disk, header) {
        Ok(()) => Ok(true),
        // What is left of it nobody knows.
        Err(error) if error.is_unreadable() => Ok(false),
        Err(error) => Err(error),
    }
}
