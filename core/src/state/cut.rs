//! What waits where at one position of the log, written down while traffic goes on.
//!
//! A cut begins with a checkpoint, whose first record is its position: what the tables hold at that moment is what all
//! records below it say. The sources are then walked in slices. What came after the position is passed over; what goes
//! before its place was walked is saved when it goes. So the rows say what existed at the position, exactly, and cost
//! nobody more than a slice. Who holds a message, and how often it was handed out, is in no record: that is as it is when
//! its slice is walked.
//!
//! What no record names (volatile messages, temporary sources) is in no cut.

use rustc_hash::FxHashSet;

use crate::log::Position;

use super::error::StateError;
use super::facade::State;
use super::ids::SourceId;
use super::queue::{DEAD, DELAYED, Entry, IN_FLIGHT, MOVED};
use super::source::Source;
use super::tables::Tables;
use super::volatile::is_volatile;
use super::witness::Counted;

/// What goes while it is not walked is saved, up to so many at a time; a cut that would need more is given up.
const SAVED_MAX: usize = 2_000_000;

/// How a message stands in its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Standing {
    /// It waits for a consumer.
    Waiting = 0,
    /// Its time has not come yet.
    Delayed = 1,
    /// A consumer has it.
    InFlight = 2,
    /// It was sent in a transaction that is open.
    Pending = 3,
    /// It was taken in a transaction that is open.
    Taken = 4,
}

/// One message in one source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutRow {
    /// The queue or subscription.
    pub source: SourceId,
    /// Its number there.
    pub sequence: u64,
    /// Where the message is.
    pub position: Position,
    /// Which copy of it.
    pub copy: u8,
    /// 0 to 9.
    pub priority: u8,
    /// How it stands.
    pub standing: Standing,
    /// Deliveries that count.
    pub attempts: u8,
    /// Its size.
    pub bytes: u32,
    /// Of one that came by a move: the move's record, the reason, and where it was sent.
    pub moved: Option<(Position, u8, u64)>,
    /// The open transaction; 0: none.
    pub transaction: u64,
}

/// An open transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CutTransaction {
    /// Its number.
    pub transaction: u64,
    /// Its name and when it was prepared, if it was.
    pub prepared: Option<(super::ids::Xid, u64)>,
    /// How many messages were sent in it.
    pub messages: u64,
    /// How many were taken.
    pub taken: u64,
    /// Of these, what records say: source, first and last number of each run. Should it be committed, these end.
    pub ends: Vec<(SourceId, u64, u64)>,
}

/// What a cut begins with.
#[derive(Debug)]
pub struct CutBegun {
    /// Its position: the checkpoint's first record.
    pub position: Position,
    /// The checkpoint's last record.
    pub checkpoint_end: Position,
    /// What was sent in transactions that are open.
    pub pending: Vec<CutRow>,
    /// These transactions.
    pub transactions: Vec<CutTransaction>,
    /// What was counted apart from the tables, in no order.
    pub counters: Vec<(SourceId, Counted)>,
}

/// How far a walk came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walked {
    /// There is more.
    More,
    /// That was all.
    All,
    /// More went meanwhile than is saved: the cut is given up.
    GivenUp,
}

/// A cut under way.
#[derive(Debug)]
pub(super) struct Cutting {
    position: Position,
    /// What was pending at the position: it is told of already.
    pending: FxHashSet<(SourceId, u64)>,
    /// In order of their numbers.
    sources: Vec<SourceId>,
    /// The walk stands in this one.
    index: usize,
    /// At this priority, from this number on.
    priority: u8,
    from: u64,
    saved: Vec<CutRow>,
    given_up: bool,
}

const PRIORITY_MAX: u8 = 9;

impl Cutting {
    /// Keeps what goes and was not walked yet.
    pub fn save(&mut self, source: &Source, priority: u8, entry: &Entry) {
        if self.given_up || self.has_walked(source.id, priority, entry.sequence) {
            return;
        }
        if let Some(row) = self.row(source, priority, entry) {
            if self.saved.len() >= SAVED_MAX {
                self.given_up = true;
                self.saved = Vec::new();
                return;
            }
            self.saved.push(row);
        }
    }

    fn has_walked(&self, source: SourceId, priority: u8, sequence: u64) -> bool {
        let Some(current) = self.sources.get(self.index) else {
            return true;
        };
        (source, std::cmp::Reverse(priority), sequence) < (*current, std::cmp::Reverse(self.priority), self.from)
    }

    /// A message as it stands, if it was there at the position.
    fn row(&self, source: &Source, priority: u8, entry: &Entry) -> Option<CutRow> {
        if !source.logged || is_volatile(entry.position) || entry.position >= self.position {
            return None;
        }
        let moved = source.moved.get(&entry.sequence).filter(|_| entry.is(MOVED));
        if moved.is_some_and(|moved| moved.record >= self.position)
            || self.pending.contains(&(source.id, entry.sequence))
        {
            return None;
        }
        let flight = source.queue.flight(entry.sequence);
        let transaction = flight.map_or(0, |flight| flight.transaction);
        let standing = if transaction != 0 {
            Standing::Taken
        } else if entry.is(IN_FLIGHT) {
            Standing::InFlight
        } else if entry.is(DELAYED) {
            Standing::Delayed
        } else {
            Standing::Waiting
        };
        Some(CutRow {
            source: source.id,
            sequence: entry.sequence,
            position: entry.position,
            copy: entry.copy,
            priority,
            standing,
            attempts: entry.count,
            bytes: entry.bytes,
            moved: moved.map(|moved| (moved.record, moved.reason as u8, moved.origin.0)),
            transaction,
        })
    }

    fn next_source(&mut self) {
        (self.index, self.priority, self.from) = (self.index + 1, PRIORITY_MAX, 0);
    }

    /// Looks at so many places of the sources, at least one.
    fn walk(&mut self, tables: &rustc_hash::FxHashMap<SourceId, Source>, looks_max: usize, out: &mut Vec<CutRow>) {
        let mut looks = 0;
        while looks < looks_max
            && let Some(id) = self.sources.get(self.index)
        {
            looks += 1;
            let level = tables.get(id).and_then(|source| {
                let level = source
                    .queue
                    .levels()
                    .iter()
                    .find(|level| level.priority <= self.priority)?;
                Some((source, level))
            });
            let Some((source, level)) = level else {
                self.next_source();
                continue;
            };
            if level.priority < self.priority {
                (self.priority, self.from) = (level.priority, 0);
            }
            let mut index = level.index_from(self.from);
            while let Some(entry) = level.at(index).filter(|_| looks <= looks_max) {
                if !entry.is(DEAD) {
                    out.extend(self.row(source, level.priority, entry));
                }
                self.from = entry.sequence + 1;
                (looks, index) = (looks + 1, index + 1);
            }
            if level.at(index).is_none() {
                match self.priority.checked_sub(1) {
                    Some(lower) => (self.priority, self.from) = (lower, 0),
                    None => self.next_source(),
                }
            }
        }
    }
}

impl State {
    /// Begins a cut: a checkpoint is written, and from then on what goes is kept until [`State::walk_cut`] has come to the
    /// end, or [`State::drop_cut`] is called. One at a time: another one that was under way is dropped.
    ///
    /// # Errors
    /// The log takes no records, has no room for the checkpoint, or belongs to a follower, which has no say.
    pub fn begin_cut(&mut self) -> Result<CutBegun, StateError> {
        if !self.tables.live {
            return Err(StateError::Following);
        }
        self.tables.cutting = None;
        let (position, checkpoint_end) = self.checkpoint()?;
        let (pending, transactions) = self.tables.pending_rows();
        let mut sources: Vec<SourceId> = self
            .tables
            .sources
            .values()
            .filter(|source| source.logged)
            .map(|source| source.id)
            .collect();
        sources.sort_unstable();
        self.tables.cutting = Some(Box::new(Cutting {
            position,
            pending: pending.iter().map(|row| (row.source, row.sequence)).collect(),
            sources,
            index: 0,
            priority: PRIORITY_MAX,
            from: 0,
            saved: Vec::new(),
            given_up: false,
        }));
        Ok(CutBegun {
            position,
            checkpoint_end,
            pending,
            transactions,
            counters: self.witness.all(&self.tables),
        })
    }

    /// Walks on, past so many places at most, and adds what it finds to `out`, with what has gone meanwhile.
    pub fn walk_cut(&mut self, looks_max: usize, out: &mut Vec<CutRow>) -> Walked {
        let tables = &mut self.tables;
        let Some(cutting) = tables.cutting.as_deref_mut() else {
            return Walked::GivenUp;
        };
        cutting.walk(&tables.sources, looks_max, out);
        out.append(&mut cutting.saved);
        let walked = match cutting {
            Cutting { given_up: true, .. } => Walked::GivenUp,
            Cutting { index, sources, .. } if *index >= sources.len() => Walked::All,
            _ => return Walked::More,
        };
        tables.cutting = None;
        walked
    }

    /// Gives a cut up.
    pub fn drop_cut(&mut self) {
        self.tables.cutting = None;
    }
}

#[cfg(any(test, feature = "sim"))]
impl State {
    /// What a cut at the log's end would say, looked up in one go, for whoever checks one. How messages stand is left out.
    #[must_use]
    pub fn rows_now(&self) -> (Vec<CutRow>, Vec<CutTransaction>) {
        let (mut rows, transactions) = self.tables.pending_rows();
        for source in self.tables.sources.values().filter(|source| source.logged) {
            let logged = source.queue.iter().filter(|(_, entry)| !is_volatile(entry.position));
            rows.extend(logged.map(|(priority, entry)| CutRow {
                source: source.id,
                sequence: entry.sequence,
                position: entry.position,
                copy: entry.copy,
                priority,
                standing: Standing::Waiting,
                attempts: 0,
                bytes: entry.bytes,
                moved: None,
                transaction: 0,
            }));
        }
        (rows, transactions)
    }
}

impl Tables {
    /// What was sent in transactions that are open, and these.
    fn pending_rows(&self) -> (Vec<CutRow>, Vec<CutTransaction>) {
        let (mut rows, mut transactions) = (Vec::new(), Vec::new());
        for id in self.transactions.ids() {
            let Some(open) = self.transactions.get(id) else {
                continue;
            };
            let logged = open.entries.iter().filter(|pending| {
                let is_logged = self.sources.get(&pending.source).is_some_and(|source| source.logged);
                is_logged && !is_volatile(pending.entry.position)
            });
            rows.extend(logged.map(|pending| CutRow {
                source: pending.source,
                sequence: pending.entry.sequence,
                position: pending.entry.position,
                copy: pending.entry.copy,
                priority: pending.priority,
                standing: Standing::Pending,
                attempts: 0,
                bytes: pending.entry.bytes,
                moved: None,
                transaction: id,
            }));
            let ends: Vec<_> = open
                .terminals
                .iter()
                .flat_map(|(_, head)| head.ranges.iter().map(|(first, last)| (head.source, *first, *last)))
                .collect();
            let logged: u64 = ends.iter().map(|(_, first, last)| last - first + 1).sum();
            transactions.push(CutTransaction {
                transaction: id,
                prepared: open
                    .xid
                    .clone()
                    .filter(|_| open.prepared.is_some())
                    .map(|xid| (xid, open.prepared_ms)),
                messages: open.messages,
                taken: logged.max(open.acknowledged.len() as u64),
                ends,
            });
        }
        (rows, transactions)
    }
}
