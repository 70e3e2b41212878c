//! Everything the records have added up to, in memory. `apply` changes it; the facade reads it and decides what to log.
//!
//! What is here follows from the log alone, except for what is never logged: temporaries, non-durable subscriptions,
//! volatile messages, what is in flight, and totals since the start.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::log::{Log, Position};

use super::catalogue::Catalogue;
use super::catalogue_record::{Decision, Origin};
use super::checkpoint::CheckpointReading;
use super::cut::Cutting;
use super::destroyed::Destroyed;
use super::due::Delays;
use super::exported::Exported;
use super::ids::{DestinationId, Kind, Now, SourceId, UNDELIVERED};
use super::names::Names;
use super::planted::Planted;
use super::producers::Producers;
use super::properties::Stores;
use super::queue::{DELAYED, EXPIRES, Entry, MOVED, PRESERVE};
use super::source::Source;
use super::starts::Starts;
use super::timers::{Timer, TimerKind, Timers};
use super::transaction::{PendingEntry, Transactions};
use super::volatile::{VolatileStore, is_volatile};

/// Who is told which records are still needed. The log itself while running; at recovery the log is not there yet.
pub(super) trait Liveness {
    fn hold(&mut self, position: Position);
    fn release(&mut self, position: Position);
    fn depend(&mut self, holder: Position, target: Position);
}

impl Liveness for Log {
    fn hold(&mut self, position: Position) {
        Log::hold(self, position);
    }

    fn release(&mut self, position: Position) {
        Log::release(self, position);
    }

    fn depend(&mut self, holder: Position, target: Position) {
        Log::depend(self, holder, target);
    }
}

/// Recovery's stand-in for the log: holds are counted afterwards from what is left, dependencies are kept.
#[derive(Debug, Default)]
pub(super) struct Recovering {
    pub dependencies: Vec<(Position, Position)>,
}

impl Liveness for Recovering {
    fn hold(&mut self, _: Position) {}

    fn release(&mut self, _: Position) {}

    fn depend(&mut self, holder: Position, target: Position) {
        self.dependencies.push((holder, target));
    }
}

/// Messages that become ready when a commit record is durable.
#[derive(Debug)]
pub(super) struct Gate {
    pub position: Position,
    pub entries: Vec<(SourceId, u8, u64)>,
}

/// What became of a prepared transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    /// Of the record that says so.
    pub position: Position,
    pub decision: Decision,
}

#[derive(Debug)]
pub(super) struct Tables {
    pub now: Now,
    pub epoch: u64,
    /// Whether what is applied is new (and so not durable yet), as opposed to recovered or shipped.
    pub live: bool,
    pub committed: Position,
    pub catalogue: Catalogue,
    /// Served to nobody, since they live on another broker; known only as long as the host says so.
    pub elsewhere: FxHashSet<DestinationId>,
    pub sources: FxHashMap<SourceId, Source>,
    pub transactions: Transactions,
    /// By the record that prepared it, for as long as one that knows nothing of the decision may be on disk.
    pub decided: FxHashMap<Position, Decided>,
    pub producers: Producers,
    pub names: Names,
    pub starts: Starts,
    pub volatile: VolatileStore,
    pub timers: Timers,
    pub delays: Delays,
    pub stores: Stores,
    pub gates: VecDeque<Gate>,
    pub watermarks: VecDeque<(Position, SourceId, u64)>,
    pub awaiting: Vec<SourceId>,
    pub dirty: Vec<SourceId>,
    /// Destinations whose properties the host is to be asked for.
    pub wanted: BTreeSet<DestinationId>,
    pub reading: Option<CheckpointReading>,
    /// Logged messages with references that their own records do not name: by moves, and from non-durable subscriptions.
    pub beside: FxHashMap<Position, u32>,
    /// Memory of the header parts that are kept for selectors.
    pub header_bytes: usize,
    /// What went without being taken, since the start.
    pub destroyed: Destroyed,
    /// Where the latest complete checkpoint begins.
    pub checkpoint: Position,
    /// How long its records' heads are.
    pub checkpoint_bytes: u64,
    /// The last cut that was exported, by the log.
    pub exported: Option<Exported>,
    /// A cut that is being walked.
    pub cutting: Option<Box<Cutting>>,
    /// What tests have go wrong.
    pub planted: Planted,
}

impl Tables {
    pub fn new(now: Now, (producers, names): (Producers, Names), volatile: VolatileStore, starts: Starts) -> Self {
        let mut tables = Self {
            now,
            epoch: 0,
            live: false,
            committed: Position::ZERO,
            catalogue: Catalogue::new(),
            elsewhere: FxHashSet::default(),
            sources: FxHashMap::default(),
            transactions: Transactions::default(),
            decided: FxHashMap::default(),
            producers,
            names,
            starts,
            volatile,
            timers: Timers::default(),
            delays: Delays::reading(),
            stores: Stores::default(),
            gates: VecDeque::new(),
            watermarks: VecDeque::new(),
            awaiting: Vec::new(),
            dirty: Vec::new(),
            wanted: BTreeSet::new(),
            reading: None,
            beside: FxHashMap::default(),
            header_bytes: 0,
            destroyed: Destroyed::default(),
            checkpoint: Position::ZERO,
            checkpoint_bytes: 0,
            exported: None,
            cutting: None,
            planted: Planted::from_environment(),
        };
        let mut undelivered = Source::new(UNDELIVERED.source(), Some(UNDELIVERED), true);
        undelivered.named = true;
        tables.sources.insert(undelivered.id, undelivered);
        tables
    }

    /// The monotonic time at which the wall clock shows `wall_ms`, never 0. What was due before others stays so, as far back
    /// as that clock goes.
    pub fn monotonic_of(&self, wall_ms: u64) -> u64 {
        let ahead_ms = wall_ms.saturating_sub(self.now.wall_ms);
        let ago_ms = self.now.wall_ms.saturating_sub(wall_ms);
        let monotonic_ms = self.now.monotonic_ms;
        monotonic_ms.saturating_add(ahead_ms).saturating_sub(ago_ms).max(1)
    }

    /// A source, made if a record is the first to name it.
    pub fn source_or_placeholder(&mut self, id: SourceId) -> &mut Source {
        self.sources.entry(id).or_insert_with(|| {
            // Its definition may be lost: nobody else may get its number.
            self.catalogue.note_id(id.0);
            Source::new(id, None, true)
        })
    }

    pub fn mark_dirty(&mut self, id: SourceId) {
        let Some(source) = self.sources.get_mut(&id) else {
            return;
        };
        if source.consumers > 0 && !source.dirty {
            source.dirty = true;
            self.dirty.push(id);
        }
    }

    pub fn hold(&mut self, liveness: &mut impl Liveness, position: Position) {
        if is_volatile(position) {
            self.volatile.hold(position);
        } else {
            liveness.hold(position);
        }
    }

    pub fn release(&mut self, liveness: &mut impl Liveness, position: Position) {
        if is_volatile(position) {
            self.volatile.release(position);
        } else {
            liveness.release(position);
        }
    }

    /// Puts a message into a source. Its position is held already.
    pub fn add_entry(&mut self, pending: &PendingEntry) {
        let PendingEntry {
            source: id,
            priority,
            entry,
            ..
        } = *pending;
        let Some(source) = self.sources.get_mut(&id) else {
            return;
        };
        source.queue.push(priority, entry);
        self.note_added(pending);
    }

    /// Accounts, timers and waking for an entry that is in its queue.
    pub fn note_added(&mut self, pending: &PendingEntry) {
        let PendingEntry {
            source: id,
            priority,
            entry,
            expires_ms,
            ready_ms,
            destination,
            ..
        } = *pending;
        let Some(source) = self.sources.get_mut(&id) else {
            return;
        };
        if entry.is(DELAYED) && source.destination.is_none() {
            source.delayed_to.insert(entry.sequence, destination);
        }
        source.account_in(&entry);
        source.statistics.published_total += 1;
        source.statistics.published_bytes_total += u64::from(entry.bytes);
        self.stores.add(source.store, entry.bytes);
        if !is_volatile(entry.position) && (entry.is(MOVED) || !source.logged) {
            *self.beside.entry(entry.position).or_insert(0) += 1;
        }
        if is_volatile(entry.position) {
            self.mark_dirty(id);
        } else if self.live {
            source.last_position = source.last_position.max(entry.position);
            if !source.awaiting {
                source.awaiting = true;
                self.awaiting.push(id);
            }
        }
        if entry.is(EXPIRES) {
            self.timers
                .add(Timer::new(expires_ms, id, priority, entry.sequence, TimerKind::Expiry));
        }
        if entry.is(DELAYED) {
            self.timers
                .add(Timer::new(ready_ms, id, priority, entry.sequence, TimerKind::Delay));
        }
    }

    /// Accounts for an entry that was just removed from its queue, and lets go of its message.
    pub fn note_removed(&mut self, liveness: &mut impl Liveness, id: SourceId, priority: u8, entry: &Entry) {
        if let Some(source) = self.sources.get_mut(&id) {
            if let Some(cutting) = &mut self.cutting {
                cutting.save(source, priority, entry);
            }
            source.account_out(entry);
            if let Some(header) = source.headers.remove(&entry.sequence) {
                self.header_bytes = self
                    .header_bytes
                    .saturating_sub(super::dispatching::header_cost(header.len()));
            }
            self.stores.take(source.store, entry.bytes);
            if !is_volatile(entry.position)
                && (entry.is(MOVED) || !source.logged)
                && let Some(count) = self.beside.get_mut(&entry.position)
            {
                *count -= 1;
                if *count == 0 {
                    self.beside.remove(&entry.position);
                }
            }
            if entry.is(MOVED)
                && let Some(moved) = source.moved.remove(&entry.sequence)
                && moved.record != Position::ZERO
            {
                liveness.release(moved.record);
            }
        }
        if entry.is(EXPIRES | DELAYED) {
            self.timers.note_stale();
        }
        self.release(liveness, entry.position);
    }

    /// Removes one message.
    pub fn remove_entry(
        &mut self,
        liveness: &mut impl Liveness,
        id: SourceId,
        priority: u8,
        sequence: u64,
    ) -> Option<Entry> {
        let entry = self.sources.get_mut(&id)?.queue.remove(priority, sequence)?;
        self.note_removed(liveness, id, priority, &entry);
        Some(entry)
    }

    /// Removes a source with all it holds; says how many messages.
    pub fn remove_source(&mut self, liveness: &mut impl Liveness, id: SourceId) -> u64 {
        let Some(source) = self.sources.get_mut(&id) else {
            return 0;
        };
        let queue = std::mem::take(&mut source.queue);
        let mut messages = 0;
        for (priority, entry) in queue.iter() {
            // What was in flight left with the queue's map; it is accounted as such all the same.
            self.note_removed(liveness, id, priority, entry);
            messages += 1;
        }
        self.sources.remove(&id);
        messages
    }

    /// What becomes ready, now that everything below `position` is durable.
    pub fn advance_commit(&mut self, position: Position) {
        if position <= self.committed {
            return;
        }
        self.committed = position;
        while self.watermarks.front().is_some_and(|(record, _, _)| *record < position) {
            if let Some((_, id, below)) = self.watermarks.pop_front()
                && let Some(source) = self.sources.get_mut(&id)
            {
                source.watermark.durable = below;
                self.mark_dirty(id);
            }
        }
        while self.gates.front().is_some_and(|gate| gate.position < position) {
            let Some(gate) = self.gates.pop_front() else { break };
            for (id, priority, sequence) in gate.entries {
                self.open_gate(id, priority, sequence);
            }
        }
        let mut awaiting = std::mem::take(&mut self.awaiting);
        awaiting.retain(|id| {
            self.mark_dirty(*id);
            let Some(source) = self.sources.get_mut(id) else {
                return false;
            };
            source.awaiting = source.last_position >= position;
            source.awaiting
        });
        awaiting.append(&mut self.awaiting);
        self.awaiting = awaiting;
    }

    fn open_gate(&mut self, id: SourceId, priority: u8, sequence: u64) {
        if let Some(source) = self.sources.get_mut(&id)
            && let Some(entry) = source.queue.get_mut(priority, sequence)
        {
            entry.flags &= !super::queue::GATED;
            source.note_return(priority, sequence);
            self.mark_dirty(id);
        }
    }

    /// The properties that rule a queue's redeliveries.
    pub fn redelivery_max(&self, source: &Source) -> u8 {
        source
            .destination
            .and_then(|id| self.catalogue.destination(id))
            .map_or(0, |destination| destination.properties.redelivery_max)
    }

    /// Whether the broker keeps a message of this destination in `$sys.undelivered`: not what is there already.
    pub fn may_preserve(source: SourceId) -> bool {
        source != UNDELIVERED.source()
    }

    /// Where a message that cannot stay in its source goes; none: it is destroyed. That is the queue's business first
    /// (`deadLetterQueue`), then its sender's. What was put aside or moved before is never destroyed for being delivered
    /// too often. A queue that is not here, lives elsewhere or goes with its client cannot be gone to: `$sys.undelivered`
    /// always can.
    pub fn aside(&self, id: SourceId, entry: &Entry) -> Option<SourceId> {
        if !Self::may_preserve(id) {
            return None;
        }
        let named = self
            .sources
            .get(&id)
            .and_then(|source| self.catalogue.destination(source.destination?))
            .map_or("", |destination| destination.properties.dead_letter.as_str());
        if named.is_empty() {
            return entry.is(PRESERVE | MOVED).then(|| UNDELIVERED.source());
        }
        let target = self
            .catalogue
            .id_of(Kind::Queue, named)
            .and_then(|target| self.catalogue.destination(target))
            .filter(|target| target.origin != Origin::Temporary && target.id.source() != id)
            .filter(|target| !self.elsewhere.contains(&target.id))
            .map_or(UNDELIVERED, |target| target.id);
        Some(target.source())
    }

    /// Counts messages that are gone for good; what is read again is not counted again.
    pub fn note_destroyed(&mut self, id: SourceId, reason: &'static str, messages: u64) {
        if !self.live {
            return;
        }
        let Self {
            destroyed, catalogue, ..
        } = self;
        destroyed.note(id, reason, messages, || catalogue.label(id));
    }

    /// The store a destination's messages are accounted in.
    pub fn store_of(&self, id: DestinationId) -> super::properties::StoreIndex {
        self.catalogue
            .destination(id)
            .map_or(super::properties::FAILSAFE, |destination| destination.store)
    }
}
