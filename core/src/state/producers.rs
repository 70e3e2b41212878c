//! Which numbers of which producers have arrived, per destination, so that a message sent again is not stored again.
//!
//! A producer is known by its incarnation, which the broker gives out and never gives twice. The table is bounded: it has
//! a young and an old half, every number that arrives makes its producer young, and when the young half is full the old
//! one is forgotten. What is forgotten is known by the highest forgotten incarnation, so that an old producer gets an
//! honest "unknown" instead of a silent duplicate. The table follows from the log's records alone; numbers of messages
//! that are not logged are kept apart, in memory.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::log::Position;

use super::ids::DestinationId;
use super::refusals::{Key, Ranges, Refusal, Refusals, WINDOW};

/// What is known about an incarnation at a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProducerKnowledge {
    /// The highest number that arrived.
    Known(u64),
    /// Nothing of it ever arrived here.
    New,
    /// Something may have arrived; it is too long ago to know.
    Forgotten,
}

/// What the table keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LastArrival {
    /// The highest number.
    pub sequence: u64,
    /// The record of that message; [`Position::ZERO`] when it is older than the last start.
    pub position: Position,
    /// Up to here it cannot be told whether a number was refused; 0: it can.
    pub untold: u64,
}

/// The table.
#[derive(Debug)]
pub struct Producers {
    young: FxHashMap<Key, LastArrival>,
    old: FxHashMap<Key, LastArrival>,
    /// Rows of producers that have a name, which nobody pushes out: [`super::names`] bounds them.
    kept: FxHashMap<Key, LastArrival>,
    forgotten_up_to: u64,
    /// As `forgotten_up_to`, of what was only ever in memory: it ends with the process, like those messages.
    forgotten_unlogged: u64,
    /// Numbers below the highest that never arrived.
    refusals: Refusals,
    /// Whether there is a mark of what was forgotten of them: most stores never meet that, and ask no further.
    marked: bool,
    unlogged: Box<[FxHashMap<Key, LastArrival>; 2]>,
    half_max: usize,
}

impl Producers {
    /// A table that keeps at least half of `producers_max` and at most all, and refused numbers of `refusals_max`.
    #[must_use]
    pub fn new(producers_max: usize, refusals_max: usize) -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            kept: FxHashMap::default(),
            forgotten_up_to: 0,
            forgotten_unlogged: 0,
            refusals: Refusals::new(refusals_max),
            marked: false,
            unlogged: Box::default(),
            half_max: (producers_max / 2).max(1),
        }
    }

    /// The highest number of a producer that arrived at a destination, logged or not.
    #[must_use]
    pub fn last(&self, incarnation: u64, destination: DestinationId) -> Option<LastArrival> {
        let key = (incarnation, destination);
        let logged = self.row(&key).copied();
        let unlogged = self.unlogged.iter().find_map(|half| half.get(&key)).copied();
        match (logged, unlogged) {
            (logged, None) => logged,
            (None, unlogged) => unlogged,
            (Some(logged), Some(unlogged)) => Some(LastArrival {
                sequence: logged.sequence.max(unlogged.sequence),
                position: logged.position,
                untold: logged.untold.max(unlogged.untold),
            }),
        }
    }

    fn row(&self, key: &Key) -> Option<&LastArrival> {
        let row = self.young.get(key).or_else(|| self.old.get(key));
        match row {
            None if !self.kept.is_empty() => self.kept.get(key),
            row => row,
        }
    }

    fn row_mut(&mut self, key: &Key) -> Option<&mut LastArrival> {
        let row = self.young.get_mut(key).or_else(|| self.old.get_mut(key));
        row.or_else(|| self.kept.get_mut(key))
    }

    /// The row of a producer that has a name.
    pub(super) fn kept_row(&self, key: &Key) -> Option<&LastArrival> {
        self.kept.get(key)
    }

    /// Rows of producers that have a name.
    pub(super) const fn kept_mut(&mut self) -> &mut FxHashMap<Key, LastArrival> {
        &mut self.kept
    }

    /// Takes a row out from among the others.
    pub(super) fn take_row(&mut self, key: Key) -> Option<LastArrival> {
        self.young.remove(&key).or_else(|| self.old.remove(&key))
    }

    /// Puts a row among the others.
    pub(super) fn put_row(&mut self, key: Key, row: LastArrival) {
        self.young.insert(key, row);
        self.bound();
    }

    /// As [`Producers::put_row`], where it is said afterwards which rows stay.
    pub(super) fn put_row_unbounded(&mut self, key: Key, row: LastArrival) {
        self.young.insert(key, row);
    }

    fn bound(&mut self) {
        if self.young.len() >= self.half_max {
            self.rotate();
        }
    }

    /// As [`Producers::last`], and whether there may have been something that is forgotten.
    #[must_use]
    pub fn knowledge(&self, incarnation: u64, destination: DestinationId) -> ProducerKnowledge {
        match self.last(incarnation, destination) {
            Some(last) if self.refusal(incarnation, destination, last.sequence) == Refusal::Unknown => {
                ProducerKnowledge::Forgotten
            }
            Some(last) => ProducerKnowledge::Known(last.sequence),
            None if self.may_have_forgotten(incarnation) => ProducerKnowledge::Forgotten,
            None => ProducerKnowledge::New,
        }
    }

    /// Whether rows of an incarnation may have left the table.
    #[must_use]
    pub const fn may_have_forgotten(&self, incarnation: u64) -> bool {
        incarnation <= self.forgotten_up_to || incarnation <= self.forgotten_unlogged
    }

    /// Whether nothing was refused that counts.
    fn is_plain(&self) -> bool {
        self.refusals.is_empty() && !self.marked
    }

    /// Whether a number that is not above the highest was refused.
    #[must_use]
    pub fn refusal(&self, incarnation: u64, destination: DestinationId, sequence: u64) -> Refusal {
        if self.is_plain() {
            return Refusal::None;
        }
        match self.refusals.of((incarnation, destination), sequence) {
            Refusal::None
                if self
                    .last(incarnation, destination)
                    .is_some_and(|last| sequence <= last.untold) =>
            {
                Refusal::Unknown
            }
            known => known,
        }
    }

    /// Notes that a number was refused. One that had arrived before, or of which that cannot be told, does not become new
    /// by being refused when it comes again.
    pub fn note_refused(&mut self, incarnation: u64, destination: DestinationId, sequence: u64) {
        let has_arrived = match self.refusal(incarnation, destination, sequence) {
            Refusal::Unknown => true,
            Refusal::Refused => false,
            Refusal::None => self
                .last(incarnation, destination)
                .is_some_and(|last| sequence <= last.sequence),
        };
        if !has_arrived {
            self.refusals.note((incarnation, destination), sequence);
            self.mark_evicted();
        }
    }

    /// Notes that these numbers are passed over by a producer of which nothing above them has arrived: should they come after
    /// all, as from a program that was started again, they are new.
    pub fn note_skipped(&mut self, incarnation: u64, destination: DestinationId, first: u64, last: u64) {
        let arrived = self.last(incarnation, destination).map_or(0, |last| last.sequence);
        let first = first.max(arrived.saturating_add(1));
        if first <= last {
            self.refusals.note_range((incarnation, destination), first, last);
            self.mark_evicted();
        }
    }

    /// Notes that a number was refused before it was known where it goes, and may have arrived somewhere before that: neither
    /// it nor those before it can be told any more.
    pub fn note_doubtful(&mut self, incarnation: u64, sequence: u64) {
        self.doubt(incarnation, DestinationId::ANYWHERE, sequence);
    }

    /// The same of a number whose destination is known, and whose producer is not any more.
    pub fn doubt(&mut self, incarnation: u64, destination: DestinationId, sequence: u64) {
        self.refusals.doubt((incarnation, destination), sequence);
        self.mark_evicted();
    }

    /// What a record of this number has to carry: which numbers before it were refused, and up to where that cannot be told.
    #[must_use]
    pub fn refused_before(&self, incarnation: u64, destination: DestinationId, sequence: u64) -> Ranges {
        if self.is_plain() {
            return Ranges::default();
        }
        let mut ranges = self.refusals.before((incarnation, destination), sequence);
        ranges.forget_up_to(match self.last(incarnation, destination) {
            Some(last) => last.untold,
            // What was forgotten of it may be above this one: as far as its producer can have been ahead.
            None if incarnation <= self.refusals.forgotten_up_to => sequence.saturating_add(WINDOW),
            None => 0,
        });
        ranges
    }

    /// Puts a mark where refused numbers were forgotten.
    fn mark_evicted(&mut self) {
        while let Some((key, up_to)) = self.refusals.evict() {
            self.marked = true;
            let [young, old] = self.unlogged.as_mut();
            let mut found = false;
            for half in [&mut self.young, &mut self.old, &mut self.kept, young, old] {
                if let Some(last) = half.get_mut(&key) {
                    last.untold = last.untold.max(up_to);
                    found = true;
                }
            }
            if key.1 == DestinationId::ANYWHERE {
                self.refusals.anywhere_forgotten_up_to = self.refusals.anywhere_forgotten_up_to.max(key.0);
            } else if !found {
                self.refusals.forgotten_up_to = self.refusals.forgotten_up_to.max(key.0);
            }
        }
    }

    /// Notes a logged arrival, with what its record says of numbers refused before it.
    pub fn arrive(
        &mut self,
        incarnation: u64,
        destination: DestinationId,
        sequence: u64,
        position: Position,
        refused: &Ranges,
    ) {
        let key = (incarnation, destination);
        self.note(key, sequence, position, refused.unknown_up_to());
        if !self.refusals.is_empty() || !refused.is_empty() {
            self.set_refused(key, refused);
            self.refusals.arrived(key, sequence);
            self.mark_evicted();
        }
    }

    /// Notes an arrival that no record tells of.
    pub fn arrive_unlogged(&mut self, incarnation: u64, destination: DestinationId, sequence: u64, refused: &Ranges) {
        let key = (incarnation, destination);
        self.refusals.arrived(key, sequence);
        self.note_unlogged(key, sequence, refused.unknown_up_to());
    }

    /// What a record or a checkpoint says of refused numbers: all that counts at that point.
    fn set_refused(&mut self, key: Key, refused: &Ranges) {
        self.marked |= refused.unknown_up_to() > 0;
        let mut exact = Ranges::default();
        refused
            .exact()
            .iter()
            .for_each(|(first, last)| exact.push(*first, *last));
        self.refusals.set(key, exact);
    }

    fn note(&mut self, key: Key, sequence: u64, position: Position, untold: u64) {
        let arrival = LastArrival {
            sequence,
            position,
            untold,
        };
        let kept = match self.kept.is_empty() {
            true => None,
            false => self.kept.get_mut(&key),
        };
        if let Some(last) = kept.or_else(|| self.young.get_mut(&key)) {
            if sequence >= last.sequence {
                *last = arrival;
            } else {
                // Refused before, and sent again behind later ones: it is confirmed no sooner than it is safe.
                last.position = last.position.max(position);
                last.untold = untold;
            }
            return;
        }
        let row = match self.old.remove(&key).filter(|last| last.sequence > sequence) {
            Some(before) => LastArrival { untold, ..before },
            None => arrival,
        };
        self.put_row(key, row);
    }

    fn note_unlogged(&mut self, key: Key, sequence: u64, untold: u64) {
        self.marked |= untold > 0;
        let [young, old] = self.unlogged.as_mut();
        if let Some(last) = young.get_mut(&key) {
            last.sequence = sequence.max(last.sequence);
            last.untold = untold.max(last.untold);
            return;
        }
        let before = old.remove(&key);
        young.insert(
            key,
            LastArrival {
                sequence: before.map_or(sequence, |last| last.sequence.max(sequence)),
                position: Position::ZERO,
                untold: before.map_or(untold, |last| last.untold.max(untold)),
            },
        );
        if young.len() >= self.half_max {
            let evicted = std::mem::replace(old, std::mem::take(young));
            let known = |key: &Key| {
                [&self.young, &self.old, &self.kept]
                    .iter()
                    .any(|rows| rows.contains_key(key))
            };
            // Logged messages keep it known, and then only with all of its numbers.
            let (kept, gone): (FxHashMap<_, _>, FxHashMap<_, _>) = evicted.into_iter().partition(|(key, _)| known(key));
            let highest = gone.keys().map(|(incarnation, _)| *incarnation).max().unwrap_or(0);
            self.forgotten_unlogged = self.forgotten_unlogged.max(highest);
            self.mark_rows(&gone);
            self.unlogged[1].extend(kept);
        }
    }

    /// Rows leave that knew up to where it cannot be told: whoever of them comes again begins with a mark.
    fn mark_rows(&mut self, evicted: &FxHashMap<Key, LastArrival>) {
        if self.marked {
            let untold = evicted.iter().filter(|(_, last)| last.untold > 0);
            let highest = untold.map(|((incarnation, _), _)| *incarnation).max().unwrap_or(0);
            self.refusals.forgotten_up_to = self.refusals.forgotten_up_to.max(highest);
        }
    }

    fn rotate(&mut self) {
        let evicted = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let highest = evicted.keys().map(|(incarnation, _)| *incarnation).max().unwrap_or(0);
        self.forgotten_up_to = self.forgotten_up_to.max(highest);
        // What is left in memory of one that is forgotten knows too little: later numbers of it were logged.
        for half in self.unlogged.iter_mut().filter(|half| !half.is_empty()) {
            half.retain(|key, _| !evicted.contains_key(key));
        }
        self.mark_rows(&evicted);
    }

    /// The highest incarnation of which something is forgotten.
    #[must_use]
    pub const fn forgotten_up_to(&self) -> u64 {
        self.forgotten_up_to
    }

    /// All that is logged, old half first, each half sorted: with [`Producers::restore`] this makes the same table.
    #[must_use]
    pub fn snapshot(&self) -> [Vec<(u64, DestinationId, u64)>; 2] {
        [&self.old, &self.young].map(|half| {
            let mut rows: Vec<_> = half
                .iter()
                .map(|((who, to), last)| (*who, *to, last.sequence))
                .collect();
            rows.sort_unstable();
            rows
        })
    }

    /// What was refused, for a checkpoint, with the marks that stand in rows.
    pub fn refused_snapshot(&self) -> Vec<(Key, Ranges)> {
        if self.is_plain() {
            return Vec::new();
        }
        let marked = [&self.old, &self.young, &self.kept]
            .into_iter()
            .flatten()
            .filter(|(key, last)| last.untold > 0 && self.refusals.get(**key).is_none());
        let mut rows: Vec<_> = marked
            .map(|(key, last)| {
                let mut ranges = Ranges::default();
                ranges.forget_up_to(last.untold);
                (*key, ranges)
            })
            .collect();
        rows.sort_unstable();
        rows.extend(self.refusals.iter().map(|(key, ranges)| {
            let mut ranges = ranges.clone();
            ranges.forget_up_to(self.last(key.0, key.1).map_or(0, |last| last.untold));
            (key, ranges)
        }));
        rows
    }

    /// The highest incarnations of which refused numbers are forgotten: where nothing of them had arrived, and where it was
    /// not known where they go.
    #[must_use]
    pub const fn refusals_forgotten_up_to(&self) -> [u64; 2] {
        [self.refusals.forgotten_up_to, self.refusals.anywhere_forgotten_up_to]
    }

    /// Takes what a checkpoint says was refused. Rows come before.
    pub fn restore_refused(&mut self, incarnation: u64, destination: DestinationId, refused: &Ranges) {
        let key = (incarnation, destination);
        self.set_refused(key, refused);
        let untold = refused.unknown_up_to();
        match self.row_mut(&key) {
            Some(last) => last.untold = untold,
            None if untold > 0 => self.refusals.set(key, refused.clone()),
            None => {}
        }
        self.mark_evicted();
    }

    /// A checkpoint that names all that was refused is complete: what messages from before it say of others had ended.
    pub fn keep_refused(&mut self, named: &FxHashSet<Key>) {
        let ended: Vec<Key> = self
            .refusals
            .iter()
            .map(|(key, _)| key)
            .filter(|key| !named.contains(key))
            .collect();
        for key in ended {
            self.refusals.set(key, Ranges::default());
        }
        for (_, last) in self
            .young
            .iter_mut()
            .chain(&mut self.old)
            .chain(&mut self.kept)
            .filter(|(key, _)| !named.contains(key))
        {
            last.untold = 0;
        }
    }

    /// Takes a checkpoint's bounds.
    pub fn restore_refusals_forgotten(&mut self, [unseen, anywhere]: [u64; 2]) {
        self.marked |= unseen.max(anywhere) > 0;
        let refusals = &mut self.refusals;
        refusals.forgotten_up_to = refusals.forgotten_up_to.max(unseen);
        refusals.anywhere_forgotten_up_to = refusals.anywhere_forgotten_up_to.max(anywhere);
    }

    /// Takes a row of a checkpoint, unless the table knows better.
    pub fn restore(&mut self, young: bool, incarnation: u64, destination: DestinationId, sequence: u64) {
        let key = (incarnation, destination);
        if let Some(last) = self.kept.get_mut(&key) {
            last.sequence = last.sequence.max(sequence);
            return;
        }
        if self.row(&key).is_some_and(|last| last.sequence >= sequence) {
            return;
        }
        // It stands in one half: an earlier message's number in the other would hide this one.
        let (half, other) = if young {
            (&mut self.young, &mut self.old)
        } else {
            (&mut self.old, &mut self.young)
        };
        other.remove(&key);
        half.insert(
            key,
            LastArrival {
                sequence,
                position: Position::ZERO,
                untold: 0,
            },
        );
    }

    /// A checkpoint that names all rows, each with whether it is young, is complete. Messages from before it tell of others
    /// less than had arrived of them: those were forgotten, up to this incarnation and no further.
    pub fn keep_rows(&mut self, named: &FxHashMap<Key, bool>, forgotten_up_to: u64) {
        self.forgotten_up_to = forgotten_up_to;
        let mut halves = [FxHashMap::default(), FxHashMap::default()];
        for (key, last) in self.old.drain().chain(self.young.drain()) {
            if let Some(young) = named.get(&key) {
                halves[usize::from(*young)].insert(key, last);
            }
        }
        [self.old, self.young] = halves;
    }

    /// Takes a checkpoint's bound.
    pub fn restore_forgotten(&mut self, incarnation: u64) {
        self.forgotten_up_to = self.forgotten_up_to.max(incarnation);
    }
}

#[cfg(test)]
mod tests;
