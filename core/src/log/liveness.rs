//! Which segments are still needed. All of it is counting by segment: a call for each message costs nanoseconds.
//!
//! A sealed segment may go when it lies below the floor, nothing in it is held, no segment that must outlive others still
//! has one of them, and every reader is past it. An acknowledgement's segment must outlive the segment of what it
//! acknowledges: if it went first, a restart would bring the message back.
//!
//! What is said here is said of records that may not be on disk yet: they wait behind another write. So nothing counts
//! before it is *settled*: a segment stays until what gave its last hold back is, a floor until its checkpoint is. This is
//! the only place that decides it; callers say what they did when they did it.

use rustc_hash::FxHashMap;

use super::position::Position;
use super::running::Log;
use super::segments::Segment;

/// A reader that fell so far behind that its claim on the log ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostReader {
    /// The name it was registered under.
    pub name: String,
    /// What it wanted next.
    pub position: Position,
}

struct Reader {
    position: Position,
    bound_bytes: u64,
}

/// All registered readers.
#[derive(Default)]
pub(crate) struct Readers {
    by_name: FxHashMap<String, Reader>,
    lost: Vec<LostReader>,
}

impl Readers {
    pub(super) fn lowest(&self) -> Position {
        self.by_name
            .values()
            .map(|reader| reader.position)
            .min()
            .unwrap_or(Position(u64::MAX))
    }
}

impl Log {
    /// Keeps the segment of a record. Counts: one hold for each reference is fine.
    pub fn hold(&mut self, position: Position) {
        if let Some(segment) = self.segments.find(position) {
            segment.liveness.holds += 1;
        }
    }

    /// Takes back one hold, for the sake of a record that was appended before. It counts when that is settled.
    pub fn release(&mut self, position: Position) {
        let end = self.end();
        if let Some(segment) = self.segments.find(position) {
            debug_assert!(segment.liveness.holds > 0, "released more often than held");
            segment.liveness.holds = segment.liveness.holds.saturating_sub(1);
            if segment.liveness.holds == 0 {
                segment.liveness.ended_at = end;
            }
        }
    }

    /// All records below may be acted upon: they are durable and, where somebody else has a say, committed.
    #[must_use]
    pub fn settled(&self) -> Position {
        self.committed
            .map_or(self.durable, |committed| committed.min(self.durable))
    }

    /// From now on only what lies below counts as committed, although more may be durable here: what a pair has in common.
    /// It only rises.
    pub fn set_committed(&mut self, position: Position) {
        self.committed = Some(self.committed.map_or(position, |committed| committed.max(position)));
        self.settle_floors();
    }

    /// The segment of `holder` (an acknowledgement, say) must outlive what it supersedes at `target`.
    pub fn depend(&mut self, holder: Position, target: Position) {
        let Some(holder) = self.segments.find(holder).map(|segment| segment.base) else {
            return;
        };
        let position = target;
        let Some(target) = self.segments.find(target) else {
            return;
        };
        let base = target.base;
        if base != holder && target.liveness.dependents.insert(holder) {
            self.block(holder, 1);
        }
        self.note_superseded(base, position);
    }

    /// Whether a copy of the record at `target` that does not know of the later record at `holder` may be on disk.
    #[must_use]
    pub fn may_exist(&self, holder: Position, target: Position) -> bool {
        self.segments
            .peek(target)
            .is_some_and(|segment| segment.rewritten_at <= holder)
    }

    /// What lies below `floor` is not needed for the catalogue's sake, once the record at `proof` is settled: the last of a
    /// checkpoint that begins at `floor`. Segments that reach above the floor are never removed. It only rises.
    pub fn set_floor(&mut self, floor: Position, proof: Position) {
        self.floors.push_back((floor, proof));
        self.settle_floors();
    }

    /// Raises the floor as far as checkpoints are settled.
    pub(crate) fn settle_floors(&mut self) {
        let settled = self.settled();
        while let Some((floor, _)) = self.floors.front().filter(|(_, proof)| *proof < settled) {
            self.floor = self.floor.max(*floor);
            self.floors.pop_front();
        }
    }

    /// A reader (standby, route) keeps all from `position` on, until it is more than `bound_bytes` behind the end. False:
    /// some of what it wants is being removed or rewritten just now, so it has to ask again when that is done.
    #[must_use]
    pub fn register_reader(&mut self, name: &str, position: Position, bound_bytes: u64) -> bool {
        if self.is_switching_above(position) || self.upkeep.is_retiring_above(position) {
            return false;
        }
        self.readers
            .by_name
            .insert(name.to_owned(), Reader { position, bound_bytes });
        self.drop_late_readers();
        true
    }

    /// Whether every record from `position` on is still there, those among them that only ended something. Who has all
    /// records below may go on from there; anybody else has to begin anew, since what it holds may be over without its
    /// hearing of it.
    #[must_use]
    pub fn has_all_from(&self, position: Position) -> bool {
        let mut before: Option<Position> = None;
        self.segments
            .iter()
            .filter(|segment| segment.end > position)
            .all(|segment| {
                let follows = match before {
                    Some(end) => segment.previous_end == end,
                    None => segment.base <= position,
                };
                before = Some(segment.end);
                follows && !segment.compacted
            })
    }

    /// Moves a reader on; false if it is unknown or has lost its claim.
    pub fn advance_reader(&mut self, name: &str, position: Position) -> bool {
        let Some(reader) = self.readers.by_name.get_mut(name) else {
            return false;
        };
        reader.position = reader.position.max(position);
        true
    }

    /// Whether a reader has a claim.
    #[must_use]
    pub fn has_reader(&self, name: &str) -> bool {
        self.readers.by_name.contains_key(name)
    }

    /// Ends a reader's claim.
    pub fn remove_reader(&mut self, name: &str) {
        self.readers.by_name.remove(name);
    }

    /// The readers that lost their claim since this was last asked.
    pub fn take_lost_readers(&mut self) -> Vec<LostReader> {
        std::mem::take(&mut self.readers.lost)
    }

    pub(crate) fn drop_late_readers(&mut self) {
        let end = self.end();
        let lost = &mut self.readers.lost;
        self.readers.by_name.retain(|name, reader| {
            let keeps = end.0.saturating_sub(reader.position.0) <= reader.bound_bytes;
            if !keeps {
                lost.push(LostReader {
                    name: name.clone(),
                    position: reader.position,
                });
            }
            keeps
        });
    }

    /// Notes that a set of dependents gained (or lost) the segment that begins at `holder`.
    pub(crate) fn block(&mut self, holder: Position, change: i32) {
        if let Some(segment) = self.segments.by_base_mut(holder) {
            segment.liveness.blockers = segment.liveness.blockers.saturating_add_signed(change);
        }
    }

    /// A segment that nobody needs any more.
    pub(crate) fn removable(&self) -> Option<u64> {
        let bound = self.floor.min(self.readers.lowest());
        let settled = self.settled();
        self.segments
            .iter()
            .find(|segment| segment.end <= bound && segment.is_free(settled))
            .map(|segment| segment.id)
    }

    /// Whether a segment that nobody needs stays only because the floor is not above it: a checkpoint would free it.
    #[must_use]
    pub fn is_kept_by_floor(&self) -> bool {
        let settled = self.settled();
        let bound = self.readers.lowest().min(settled);
        self.segments
            .iter()
            .any(|segment| segment.end > self.floor && segment.end <= bound && segment.is_free(settled))
    }

    /// Takes a segment out of memory once no manifest lists it: what depended on it is free.
    pub(crate) fn forget_segment(&mut self, id: u64) {
        let Some(segment) = self.segments.remove(id) else {
            return;
        };
        self.cache.forget(segment.base, segment.end);
        for set in [segment.liveness.dependents, segment.liveness.dependents_before] {
            for holder in set {
                self.block(holder, -1);
            }
        }
    }
}

impl Segment {
    /// Whether it is sealed, and nothing in it is needed for its own sake, as far as settled records tell.
    fn is_free(&self, settled: Position) -> bool {
        let liveness = &self.liveness;
        self.sealed && liveness.holds == 0 && liveness.blockers == 0 && liveness.ended_at <= settled
    }
}
