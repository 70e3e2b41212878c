//! The messages that wait in one source: ten priorities, each a deque of 24-byte entries sorted by sequence.
//!
//! A source's front door is [`super::source`]; this file knows only entries. An entry stays in its place while it is in
//! flight, so giving it back keeps its order. A removed entry is marked dead and dropped when it reaches the front, or
//! when more than half of a level is dead, so every operation is cheap however many wait. What is in flight has a little
//! more beside it, in a map.
//!
//! `scan` of a level is the bound below which no entry is ready for a consumer without a selector.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::log::Position;

use super::ranges::{Range, contains, in_order, span};

/// Handed to a consumer and not yet acknowledged.
pub const IN_FLIGHT: u16 = 1;
/// Removed; waits to be dropped.
pub const DEAD: u16 = 2;
/// Its time has not come yet.
pub const DELAYED: u16 = 4;
/// Belongs to a transaction whose commit is not durable yet.
pub const GATED: u16 = 8;
/// Has an expiry timer.
pub const EXPIRES: u16 = 16;
/// Its sender wants it in `$sys.undelivered` instead of dropped.
pub const PRESERVE: u16 = 32;
/// Its time was up while it was in flight.
pub const EXPIRED: u16 = 64;
/// Came here by a move; the source keeps why.
pub const MOVED: u16 = 128;

/// Was delivered, came back, and waits for its queue's redelivery delay; DELAYED as well. The source keeps until when.
pub const RETURNED: u16 = 256;

#[cfg(test)]
thread_local! {
    /// How many numbers were looked at to find what is in flight within ranges.
    pub static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn count_looks(more: u64) {
    LOOKED_AT.with(|looked| looked.set(looked.get() + more));
}

/// One waiting message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Entry {
    /// The source's number for it.
    pub sequence: u64,
    /// Where the message is: in the log, or with the top bit set in the volatile store.
    pub position: Position,
    /// Size of the message as the producer encoded it.
    pub bytes: u32,
    /// The constants above.
    pub flags: u16,
    /// Which copy of the message it is.
    pub copy: u8,
    /// Deliveries that count, up to now.
    pub count: u8,
}

// Goal: 100 bytes of memory a queued message at most (BARS B8); a deque may hold twice what it needs.
const _: () = assert!(size_of::<Entry>() == 24);

impl Entry {
    /// Whether any of `flags` is set.
    #[must_use]
    pub fn is(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }
}

/// What is known beside an entry while it is in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InFlight {
    /// The engine's key of who has it.
    pub holder: u64,
    /// The transaction in which it is acknowledged; 0: none.
    pub transaction: u64,
    /// Where the entry is.
    pub priority: u8,
}

/// The entries of one priority.
#[derive(Debug)]
pub struct Level {
    /// 0 to 9.
    pub priority: u8,
    /// No entry below this sequence is ready.
    pub scan: u64,
    entries: VecDeque<Entry>,
    dead: usize,
}

impl Level {
    fn new(priority: u8) -> Self {
        Self {
            priority,
            scan: 0,
            entries: VecDeque::new(),
            dead: 0,
        }
    }

    /// Index of the first entry whose sequence is `sequence` or higher.
    #[must_use]
    pub fn index_from(&self, sequence: u64) -> usize {
        let Some(front) = self.entries.front() else { return 0 };
        // Numbers are mostly without gaps, so the place can be guessed.
        let guess = usize::try_from(sequence.saturating_sub(front.sequence)).unwrap_or(usize::MAX);
        if self.entries.get(guess).is_some_and(|entry| entry.sequence == sequence) {
            return guess;
        }
        self.entries.partition_point(|entry| entry.sequence < sequence)
    }

    fn index_of(&self, sequence: u64) -> Option<usize> {
        let index = self.index_from(sequence);
        self.entries
            .get(index)
            .filter(|entry| entry.sequence == sequence && !entry.is(DEAD))
            .map(|_| index)
    }

    /// The entry at an index, dead ones included.
    #[must_use]
    pub fn at(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    fn push(&mut self, entry: Entry) {
        if self.entries.back().is_none_or(|last| last.sequence < entry.sequence) {
            self.entries.push_back(entry);
        } else {
            let index = self.index_from(entry.sequence);
            self.entries.insert(index, entry);
            self.scan = self.scan.min(entry.sequence);
        }
    }

    /// Adds many at once in one pass; both sides are sorted.
    fn merge(&mut self, added: &[Entry]) {
        let Some(first) = added.first() else { return };
        if self.entries.back().is_none_or(|last| last.sequence < first.sequence) {
            self.entries.extend(added);
            return;
        }
        self.scan = self.scan.min(first.sequence);
        let mut tail = self
            .entries
            .split_off(self.index_from(first.sequence))
            .into_iter()
            .peekable();
        for entry in added {
            while let Some(before) = tail.next_if(|before| before.sequence < entry.sequence) {
                self.entries.push_back(before);
            }
            self.entries.push_back(*entry);
        }
        self.entries.extend(tail);
    }

    fn kill(&mut self, index: usize) -> Option<Entry> {
        let entry = self.entries.get_mut(index)?;
        let before = *entry;
        entry.flags = DEAD;
        self.dead += 1;
        self.tidy();
        Some(before)
    }

    fn kill_range(&mut self, first: u64, last: u64, mut removed: impl FnMut(Entry)) {
        let start = self.index_from(first);
        for entry in self.entries.range_mut(start..) {
            if entry.sequence > last {
                break;
            }
            if !entry.is(DEAD) {
                removed(*entry);
                entry.flags = DEAD;
                self.dead += 1;
            }
        }
        self.tidy();
    }

    /// Drops dead entries where that is cheap, and memory that is no longer needed.
    fn tidy(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.is(DEAD)) {
            self.entries.pop_front();
            self.dead -= 1;
        }
        if self.dead > 64 && self.dead * 2 > self.entries.len() {
            self.entries.retain(|entry| !entry.is(DEAD));
            self.dead = 0;
        }
        if self.entries.capacity() > 4096 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}

/// All entries of one source.
#[derive(Debug, Default)]
pub struct Queue {
    // Highest priority first; most sources have one level.
    levels: Vec<Level>,
    in_flight: FxHashMap<u64, InFlight>,
}

impl Queue {
    /// The levels that hold or held something, highest priority first.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// For advancing `scan`.
    pub fn level_mut(&mut self, index: usize) -> Option<&mut Level> {
        self.levels.get_mut(index)
    }

    fn level_for(&mut self, priority: u8) -> &mut Level {
        let index = self.levels.partition_point(|level| level.priority > priority);
        if self.levels.get(index).is_none_or(|level| level.priority != priority) {
            self.levels.insert(index, Level::new(priority));
        }
        &mut self.levels[index]
    }

    fn level(&self, priority: u8) -> Option<&Level> {
        self.levels.iter().find(|level| level.priority == priority)
    }

    /// Adds one entry, at its place by sequence.
    pub fn push(&mut self, priority: u8, entry: Entry) {
        self.level_for(priority).push(entry);
    }

    /// Adds several sorted entries, at their places.
    pub fn merge(&mut self, priority: u8, added: &[Entry]) {
        self.level_for(priority).merge(added);
    }

    /// A live entry.
    #[must_use]
    pub fn get(&self, priority: u8, sequence: u64) -> Option<&Entry> {
        let level = self.level(priority)?;
        level.index_of(sequence).and_then(|index| level.entries.get(index))
    }

    /// A live entry, to change its flags.
    pub fn get_mut(&mut self, priority: u8, sequence: u64) -> Option<&mut Entry> {
        let level = self.levels.iter_mut().find(|level| level.priority == priority)?;
        let index = level.index_of(sequence)?;
        level.entries.get_mut(index)
    }

    /// A live entry of whatever priority.
    #[must_use]
    pub fn find(&self, sequence: u64) -> Option<(u8, Entry)> {
        self.levels.iter().find_map(|level| {
            let index = level.index_of(sequence)?;
            level.entries.get(index).map(|entry| (level.priority, *entry))
        })
    }

    /// Removes a live entry, in flight or not.
    pub fn remove(&mut self, priority: u8, sequence: u64) -> Option<Entry> {
        let level = self.levels.iter_mut().find(|level| level.priority == priority)?;
        let index = level.index_of(sequence)?;
        let entry = level.kill(index)?;
        if entry.is(IN_FLIGHT) {
            self.in_flight.remove(&sequence);
        }
        Some(entry)
    }

    /// Removes all live entries within a range, in flight or not.
    pub fn remove_range(&mut self, first: u64, last: u64, mut removed: impl FnMut(u8, Entry)) {
        for level in &mut self.levels {
            let priority = level.priority;
            level.kill_range(first, last, |entry| {
                if entry.is(IN_FLIGHT) {
                    self.in_flight.remove(&entry.sequence);
                }
                removed(priority, entry);
            });
        }
    }

    /// Marks an entry as handed out.
    pub fn take(&mut self, priority: u8, sequence: u64, holder: u64) -> Option<Entry> {
        let entry = self.get_mut(priority, sequence).filter(|entry| !entry.is(IN_FLIGHT))?;
        entry.flags |= IN_FLIGHT;
        let taken = *entry;
        self.in_flight.insert(
            sequence,
            InFlight {
                holder,
                transaction: 0,
                priority,
            },
        );
        Some(taken)
    }

    /// Puts an entry back in its place; it is ready again.
    pub fn give_back(&mut self, sequence: u64) -> Option<(u8, &mut Entry)> {
        let flight = self.in_flight.remove(&sequence)?;
        let level = self.levels.iter_mut().find(|level| level.priority == flight.priority)?;
        let index = level.index_of(sequence)?;
        level.scan = level.scan.min(sequence);
        let entry = level.entries.get_mut(index)?;
        entry.flags &= !IN_FLIGHT;
        Some((flight.priority, entry))
    }

    /// Lowers the level's bound so that `sequence` is looked at again.
    pub fn rewind(&mut self, priority: u8, sequence: u64) {
        if let Some(level) = self.levels.iter_mut().find(|level| level.priority == priority) {
            level.scan = level.scan.min(sequence);
        }
    }

    /// What is known of an entry in flight.
    #[must_use]
    pub fn flight(&self, sequence: u64) -> Option<&InFlight> {
        self.in_flight.get(&sequence)
    }

    /// For noting the transaction of an acknowledgement.
    pub fn flight_mut(&mut self, sequence: u64) -> Option<&mut InFlight> {
        self.in_flight.get_mut(&sequence)
    }

    /// How many are in flight.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// The sequences in flight within a range, in order. Costs no more than what is in flight, or the range if smaller.
    pub fn flights_in(&self, first: u64, last: u64, out: &mut Vec<u64>) {
        if first > last {
            return;
        }
        #[cfg(test)]
        count_looks((last - first).min(self.in_flight.len() as u64));
        if last - first < self.in_flight.len() as u64 {
            out.extend((first..=last).filter(|sequence| self.in_flight.contains_key(sequence)));
        } else {
            let start = out.len();
            out.extend(
                self.in_flight
                    .keys()
                    .copied()
                    .filter(|sequence| (first..=last).contains(sequence)),
            );
            out[start..].sort_unstable();
        }
    }

    /// The sequences in flight within any of some ranges, in order and each once. However many ranges there are, what is in
    /// flight is walked once at most.
    pub fn flights_in_any(&self, ranges: &[Range], out: &mut Vec<u64>) {
        if let [(first, last)] = *ranges {
            return self.flights_in(first, last, out);
        }
        let ranges = in_order(ranges);
        if span(&ranges) <= self.in_flight.len() as u64 {
            for (first, last) in ranges.iter() {
                self.flights_in(*first, *last, out);
            }
        } else {
            #[cfg(test)]
            count_looks(self.in_flight.len() as u64);
            let start = out.len();
            let named = self.in_flight.keys().copied();
            out.extend(named.filter(|sequence| contains(&ranges, *sequence)));
            out[start..].sort_unstable();
        }
    }

    /// All live entries with their priorities, highest priority first, by sequence within each.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &Entry)> {
        self.levels.iter().flat_map(|level| {
            level
                .entries
                .iter()
                .filter(|entry| !entry.is(DEAD))
                .map(move |entry| (level.priority, entry))
        })
    }

    /// Live entries from a sequence on of one priority.
    pub fn iter_from(&self, priority: u8, sequence: u64) -> impl Iterator<Item = &Entry> {
        self.level(priority).into_iter().flat_map(move |level| {
            level
                .entries
                .range(level.index_from(sequence)..)
                .filter(|entry| !entry.is(DEAD))
        })
    }

    /// The live entry that is oldest by sequence among those that are due and not handed out. Looks from `scan` on first, so what is in
    /// flight at the front costs nothing.
    #[must_use]
    pub fn oldest_waiting(&self) -> Option<(u8, Entry)> {
        let find = |from_scan: bool| {
            self.levels
                .iter()
                .filter_map(|level| {
                    let start = if from_scan { level.index_from(level.scan) } else { 0 };
                    let entry = level
                        .entries
                        .range(start..)
                        .find(|entry| !entry.is(DEAD | IN_FLIGHT | GATED | DELAYED))?;
                    Some((level.priority, *entry))
                })
                .min_by_key(|(_, entry)| entry.sequence)
        };
        find(true).or_else(|| find(false))
    }

    /// Sizes of the entries that are due and not handed out, the oldest by sequence first.
    pub fn waiting_by_age(&self) -> impl Iterator<Item = u32> {
        let mut levels: Vec<_> = self
            .levels
            .iter()
            .map(|level| {
                level
                    .entries
                    .iter()
                    .filter(|entry| !entry.is(DEAD | IN_FLIGHT | GATED | DELAYED))
                    .peekable()
            })
            .collect();
        std::iter::from_fn(move || {
            let oldest = levels
                .iter_mut()
                .filter_map(|level| Some((level.peek()?.sequence, level)))
                .min_by_key(|(sequence, _)| *sequence);
            oldest.and_then(|(_, level)| level.next()).map(|entry| entry.bytes)
        })
    }

    /// The lowest live sequence, of whatever priority.
    #[must_use]
    pub fn lowest(&self) -> Option<u64> {
        // The front of a level is never dead.
        self.levels
            .iter()
            .filter_map(|level| level.entries.front())
            .map(|entry| entry.sequence)
            .min()
    }

    /// Whether nothing is there, not even in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| level.entries.len() == level.dead)
    }

    /// Bytes that the entries and what is in flight take.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.levels
            .iter()
            .map(|level| level.entries.capacity() * size_of::<Entry>())
            .sum::<usize>()
            + self.in_flight.capacity() * (size_of::<InFlight>() + size_of::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(sequence: u64) -> Entry {
        Entry {
            sequence,
            position: Position(sequence * 8),
            bytes: 10,
            flags: 0,
            copy: 0,
            count: 0,
        }
    }

    fn sequences(queue: &Queue) -> Vec<u64> {
        queue.iter().map(|(_, entry)| entry.sequence).collect()
    }

    #[test]
    fn entries_stay_sorted_however_they_come() {
        let mut queue = Queue::default();
        for sequence in [1, 2, 5, 3] {
            queue.push(4, entry(sequence));
        }
        queue.merge(4, &[entry(4), entry(6), entry(9)]);
        queue.merge(4, &[entry(7), entry(8)]);
        queue.push(9, entry(10));
        assert_eq!(sequences(&queue), [10, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn removing_in_any_order_leaves_nothing_behind() {
        let mut queue = Queue::default();
        for sequence in 1..=1000 {
            queue.push(4, entry(sequence));
        }
        for sequence in (1..=1000).rev().step_by(2).chain((1..=1000).step_by(2)) {
            assert_eq!(queue.remove(4, sequence).map(|entry| entry.sequence), Some(sequence));
            assert_eq!(queue.remove(4, sequence), None);
        }
        assert!(queue.is_empty());
        assert_eq!(queue.lowest(), None);
        assert!(queue.levels[0].entries.is_empty(), "dead entries are dropped");
    }

    #[test]
    fn what_is_given_back_is_looked_at_again() {
        let mut queue = Queue::default();
        (1..=3).for_each(|sequence| queue.push(4, entry(sequence)));
        assert!(queue.take(4, 1, 77).is_some());
        assert!(queue.take(4, 1, 78).is_none(), "taken once");
        queue.level_mut(0).unwrap().scan = 2;
        assert_eq!(queue.oldest_waiting().map(|(_, entry)| entry.sequence), Some(2));
        queue.give_back(1).unwrap();
        assert_eq!(queue.levels()[0].scan, 1);
        assert_eq!(queue.in_flight_count(), 0);
    }

    #[test]
    fn a_huge_range_of_acknowledgements_costs_what_is_in_flight() {
        let mut queue = Queue::default();
        (1..=10).for_each(|sequence| queue.push(4, entry(sequence)));
        [2, 9, 4]
            .into_iter()
            .for_each(|sequence| assert!(queue.take(4, sequence, 1).is_some()));
        let mut found = Vec::new();
        queue.flights_in(0, u64::MAX, &mut found);
        assert_eq!(found, [2, 4, 9]);
        found.clear();
        queue.flights_in(3, 4, &mut found);
        assert_eq!(found, [4]);
    }

    #[test]
    fn many_ranges_name_each_message_in_flight_once() {
        let mut queue = Queue::default();
        (1..=100).for_each(|sequence| queue.push(4, entry(sequence)));
        (1..=100)
            .step_by(3)
            .for_each(|sequence| assert!(queue.take(4, sequence, 1).is_some()));
        for ranges in [
            vec![(1, 9), (40, 50)],
            vec![(40, 50), (1, 9), (4, 4), (2, 8)],
            vec![(1, 50); 20],
            vec![(60, u64::MAX), (0, 5)],
            vec![],
        ] {
            let mut found = Vec::new();
            queue.flights_in_any(&ranges, &mut found);
            let named = |sequence: &u64| ranges.iter().any(|(first, last)| (first..=last).contains(&sequence));
            let expected: Vec<u64> = (1..=100).step_by(3).filter(named).collect();
            assert_eq!(found, expected, "{ranges:?}");
        }
    }
}
