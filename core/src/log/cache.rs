//! Payloads in memory, with a byte budget: what was written lately and what was read, together.
//!
//! An extent is a stretch of whole, verified records. Eviction goes round in order of arrival and spares once what was
//! used since (second chance), so a scan through a backlog does not cost more than a queue's look. What somebody waits for
//! stays until it was found, or many readers of what is not in memory would take each other's reads away.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::position::Position;
use super::record::{HEADER_BYTES, KIND_USER_MIN, RecordHeader};

/// What an extent costs beyond its bytes.
const EXTENT_OVERHEAD_BYTES: usize = 160;

/// For so many extents that come after it a position counts as waited for; whoever asked may be gone.
const WANTED_EXTENTS: u64 = 64;
/// What is waited for stays beyond the budget, but not beyond this much more.
const WANTED_BYTES_MAX: usize = 32 << 20;

/// A record with its payload; both share the cache's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Where it is.
    pub position: Position,
    /// The epoch it was appended in.
    pub epoch: u64,
    /// Its kind, as given to `append`.
    pub kind: u8,
    /// Its head.
    pub head: Bytes,
    /// Its payload.
    pub payload: Bytes,
}

/// Cuts the record for `position` out of bytes that begin with it; `None` when another one does.
#[inline]
pub(crate) fn cut(bytes: &Bytes, at: usize, position: Position) -> Option<Record> {
    let rest = bytes.get(at..)?;
    let header = RecordHeader::decode(rest, rest.len() as u64).ok()?;
    if header.position != position || header.kind < KIND_USER_MIN {
        return None;
    }
    let head_end = at + HEADER_BYTES + header.head_length as usize;
    Some(Record {
        position,
        epoch: header.epoch,
        kind: header.kind,
        head: bytes.slice(at + HEADER_BYTES..head_end),
        payload: bytes.slice(head_end..at + header.length as usize),
    })
}

/// A stretch of records. Without `places`, bytes mirror position space.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub start: Position,
    pub end: Position,
    pub bytes: Bytes,
    /// Of compacted segments: where in `bytes` each record begins.
    pub places: Option<Vec<(Position, u32)>>,
}

impl Extent {
    pub fn record(&self, position: Position) -> Option<Record> {
        let at = match &self.places {
            None => (position.0 - self.start.0) as usize,
            Some(places) => {
                let index = places.binary_search_by_key(&position, |place| place.0).ok()?;
                places[index].1 as usize
            }
        };
        cut(&self.bytes, at, position)
    }

    fn cost(&self) -> usize {
        self.bytes.len() + EXTENT_OVERHEAD_BYTES + self.places.as_ref().map_or(0, |places| places.len() * 16)
    }
}

struct Kept {
    extent: Extent,
    used: bool,
}

/// The cache.
pub(crate) struct Cache {
    extents: BTreeMap<Position, Kept>,
    arrival: VecDeque<Position>,
    bytes: usize,
    budget: usize,
    /// Positions that somebody waits for, and how many extents had come when they were asked for.
    wanted: BTreeMap<Position, u64>,
    inserted: u64,
}

impl Cache {
    pub fn new(budget: usize) -> Self {
        Self {
            extents: BTreeMap::new(),
            arrival: VecDeque::new(),
            bytes: 0,
            budget,
            wanted: BTreeMap::new(),
            inserted: 0,
        }
    }

    /// Somebody waits for the record at a position: what brings it stays until it was found.
    pub fn want(&mut self, position: Position) {
        self.wanted.insert(position, self.inserted);
    }

    /// The record, if an extent covers the position. The outer `None`: not cached; the inner: nothing is stored there.
    pub fn find(&mut self, position: Position) -> Option<Option<Record>> {
        let (_, kept) = self.extents.range_mut(..=position).next_back()?;
        if position >= kept.extent.end {
            return None;
        }
        kept.used = true;
        if !self.wanted.is_empty() {
            self.wanted.remove(&position);
        }
        Some(kept.extent.record(position))
    }

    /// Keeps an extent, and lets others go.
    pub fn insert(&mut self, extent: Extent) {
        let (start, cost) = (extent.start, extent.cost());
        match self.extents.get_mut(&start) {
            Some(kept) if kept.extent.end >= extent.end => return,
            Some(kept) => {
                self.bytes -= kept.extent.cost();
                *kept = Kept { extent, used: false };
            }
            None => {
                self.extents.insert(start, Kept { extent, used: false });
                self.arrival.push_back(start);
            }
        }
        self.bytes += cost;
        self.inserted += 1;
        let inserted = self.inserted;
        self.wanted.retain(|_, asked| inserted - *asked <= WANTED_EXTENTS);
        // Each is looked at twice at most: once it was used, then it is not any more.
        let mut looks = 2 * self.arrival.len();
        while self.bytes > self.budget && self.arrival.len() > 1 && looks > 0 {
            self.evict_one(start);
            looks -= 1;
        }
    }

    /// Forgets all that lies in `from..to`: the segment is gone or was rewritten.
    pub fn forget(&mut self, from: Position, to: Position) {
        let gone: Vec<Position> = self.extents.range(from..to).map(|(start, _)| *start).collect();
        for start in gone {
            if let Some(kept) = self.extents.remove(&start) {
                self.bytes -= kept.extent.cost();
            }
        }
        self.arrival.retain(|start| *start < from || *start >= to);
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn evict_one(&mut self, spare: Position) {
        let Some(oldest) = self.arrival.pop_front() else { return };
        let Some(kept) = self.extents.get_mut(&oldest) else {
            return;
        };
        let may_stay = self.bytes <= self.budget.saturating_add(WANTED_BYTES_MAX);
        let is_wanted = may_stay && self.wanted.range(kept.extent.start..kept.extent.end).next().is_some();
        if kept.used || oldest == spare || is_wanted {
            kept.used = false;
            self.arrival.push_back(oldest);
            return;
        }
        self.bytes -= kept.extent.cost();
        self.extents.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, payload: usize) -> Extent {
        let mut bytes = Vec::new();
        super::super::record::encode(&mut bytes, Position(start), 1, 20, b"h", &vec![7; payload]);
        Extent {
            start: Position(start),
            end: Position(start + bytes.len() as u64),
            bytes: bytes.into(),
            places: None,
        }
    }

    #[test]
    fn what_is_waited_for_stays_until_it_was_found_or_nobody_asks_any_more() {
        let mut cache = Cache::new(2_000);
        cache.want(Position(8));
        cache.insert(extent(8, 900));
        for start in (1032..1032 + 10 * 1024).step_by(1024) {
            cache.insert(extent(start, 900));
        }
        assert!(cache.find(Position(8)).is_some(), "waited for");
        for start in (20_000..20_000 + 10 * 1024).step_by(1024) {
            cache.insert(extent(start, 900));
        }
        assert!(cache.find(Position(8)).is_none(), "found before");
        assert!(cache.bytes() <= 3_000);
        // Whoever waited is gone.
        cache.want(Position(8));
        cache.insert(extent(8, 900));
        for start in (40_000..).step_by(1024).take(WANTED_EXTENTS as usize + 10) {
            cache.insert(extent(start, 900));
        }
        assert!(cache.find(Position(8)).is_none());
    }

    #[test]
    fn the_budget_holds_and_what_is_used_stays_longer() {
        let mut cache = Cache::new(10_000);
        for start in (8..8 + 20 * 1024).step_by(1024) {
            cache.insert(extent(start, 900));
            assert!(cache.find(Position(8)).is_some(), "used all along");
            assert!(cache.bytes() <= 10_000);
        }
        assert!(cache.find(Position(8 + 1024)).is_none());
        assert_eq!(cache.find(Position(8 + 19 * 1024)).unwrap().unwrap().payload.len(), 900);
        assert_eq!(
            cache.find(Position(16 + 19 * 1024)),
            Some(None),
            "inside a record nothing begins"
        );
        cache.forget(Position(0), Position(u64::MAX));
        assert_eq!(cache.bytes(), 0);
    }
}
