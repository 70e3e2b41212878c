//! The course of a compaction inside the running log: which segment, asking the rewriter, and putting the copy in force.
//! The copying itself is in [`super::compaction`].

use rustc_hash::FxHashSet;

use super::compaction::{Copied, Copying, Kept, Presence, Rewritable, Rewrite, Rewriter, Slice};
use super::footer::{Footer, IndexEntry};
use super::maintenance::Task;
use super::manifest::{Entry, Manifest};
use super::position::Position;
use super::record::KIND_USER_MIN;
use super::recovery::Damage;
use super::reserve::RESERVE_SEGMENTS;
use super::running::Log;
use super::segment_header::{SegmentHeader, footer_name};
use super::segments::{Liveness, Segment};

/// Records the rewriter is asked about in one call.
const DECISIONS_MAX: usize = 4096;

/// On a full disk a segment is rewritten that holds less than this share of its records.
const DRAIN_BELOW_PERCENT: u64 = 75;

/// What a rewrite remembers between jobs.
#[derive(Default)]
pub(crate) struct Rewriting {
    /// The segment, by its base.
    base: Option<Position>,
    stage: Option<Stage>,
    /// The end of the log when the first question was asked, and after the last answer.
    began_at: Position,
    decided_at: Position,
    /// What was superseded in the segment since then.
    pub superseded: FxHashSet<Position>,
    /// Something stays that was superseded before: for others the file is as old as the one that it replaces.
    keeps_superseded: bool,
    /// Number of the new file.
    copy_id: Option<u64>,
    /// The manifest that puts the copy in force is being written.
    switching: bool,
    /// A half-made file to be removed.
    pub discard: Option<u64>,
    /// The segments whose rewrites found no space, by their bases: tried again when some came free.
    given_up: Vec<Position>,
}

impl Rewriting {
    /// All of it, but what is to be tried again.
    fn take(&mut self) -> Self {
        let given_up = std::mem::take(&mut self.given_up);
        std::mem::replace(
            self,
            Self {
                given_up,
                ..Self::default()
            },
        )
    }

    /// What the new file knows of, given what the old one knew of.
    fn rewritten_at(&self, before: Position) -> Position {
        if self.keeps_superseded { before } else { self.began_at }
    }
}

/// A rewrite on its way.
enum Stage {
    Deciding(Deciding),
    /// A slice is to be copied.
    Ready(Box<Copying>),
    /// A slice is being copied.
    Out,
    Copied(Copied),
}

/// The part of a rewrite that asks.
struct Deciding {
    footer: Footer,
    /// Byte of the index where the next question begins.
    at: usize,
    kept: Kept,
    kept_bytes: u64,
    /// Something superseded is kept.
    superseded: bool,
}

impl Log {
    /// The next step of a rewrite, or the first one of another.
    pub(crate) fn compact_next(&mut self, rewriter: &dyn Rewriter) -> Option<Task> {
        let Some(base) = self.upkeep.rewrite.base else {
            return self.start_compaction();
        };
        if self.segments.by_base_mut(base).is_none() {
            self.abandon_compaction();
            return Some(Task::Pause);
        }
        // One piece of upkeep runs at a time: whoever asks for the next one has completed the last.
        self.upkeep.rewrite.switching = false;
        match self.upkeep.rewrite.stage.take()? {
            Stage::Deciding(deciding) => self.decide(rewriter, base, deciding),
            Stage::Ready(copying) => {
                self.upkeep.rewrite.stage = Some(Stage::Out);
                Some(Task::Copy(copying))
            }
            Stage::Out => None,
            Stage::Copied(copied) => {
                let ready = self.settled() >= self.upkeep.rewrite.decided_at;
                let (old, end) = self
                    .segments
                    .by_base_mut(base)
                    .map(|segment| (segment.id, segment.end))?;
                if self.readers.lowest() < end {
                    // A reader has come that may have had a message from the old file and not its end.
                    self.upkeep.rewrite.stage = Some(Stage::Copied(copied));
                    self.abandon_compaction();
                    return Some(Task::Pause);
                }
                let switch = ready.then(|| {
                    // Otherwise its space is given back: the copy took some.
                    let count_max = if self.reserve.drains { RESERVE_SEGMENTS } else { 0 };
                    let recycled = self.recycle(old, count_max);
                    Task::Switch {
                        old,
                        recycled,
                        manifest: self.switch_manifest(old, &copied),
                    }
                });
                self.upkeep.rewrite.switching = switch.is_some();
                self.upkeep.rewrite.stage = Some(Stage::Copied(copied));
                switch
            }
        }
    }

    fn start_compaction(&mut self) -> Option<Task> {
        let percent = match u64::from(self.options.compact_below_percent) {
            0 => 0,
            percent if self.reserve.drains => percent.max(DRAIN_BELOW_PERCENT),
            percent => percent,
        };
        let store_id = self.store_id;
        // Above the floor nothing may be dropped for the catalogue's sake, so a rewrite there would be for nothing. Who never
        // sets a floor has no catalogue.
        let settled = self.settled();
        let bound = if self.floor == Position::ZERO {
            settled
        } else {
            self.floor.min(settled)
        };
        // A reader that has had a message must get its end as well, and a rewrite drops both.
        let bound = bound.min(self.readers.lowest());
        let worth = |segment: &&mut Segment| segment.end <= bound && segment.is_sparse(percent);
        let segment = self.segments.iter_mut().find(worth)?;
        segment.liveness.tried_at = Some((segment.liveness.holds, segment.liveness.blockers));
        let (id, footer_crc) = (segment.id, segment.footer_crc);
        self.upkeep.rewrite.base = Some(segment.base);
        Some(Task::Load {
            store_id,
            id,
            footer_crc,
        })
    }

    /// Notes that a record was superseded, if it lies in the segment that is being rewritten.
    pub(crate) fn note_superseded(&mut self, base: Position, target: Position) {
        let rewrite = &mut self.upkeep.rewrite;
        if rewrite.base == Some(base) {
            rewrite.superseded.insert(target);
        }
    }

    /// Whether a rewrite that is coming into force leaves out what a reader at this position may need.
    pub(crate) fn is_switching_above(&mut self, position: Position) -> bool {
        let rewrite = &self.upkeep.rewrite;
        let Some(base) = rewrite.base.filter(|_| rewrite.switching) else {
            return false;
        };
        self.segments
            .by_base_mut(base)
            .is_some_and(|segment| position < segment.end)
    }

    /// The footer is here: the questions begin.
    pub(crate) fn loaded(&mut self, footer: Option<Footer>) {
        let end = self.end();
        let rewrite = &mut self.upkeep.rewrite;
        let segment = rewrite.base.and_then(|base| self.segments.by_base_mut(base));
        let Some(segment) = segment else {
            rewrite.base = None;
            return;
        };
        let Some(footer) = footer else {
            // The next open makes it again; until then the segment stays as it is.
            let damage = Damage {
                file: footer_name(segment.id),
                offset: 0,
                position: segment.base,
                why: "the footer cannot be read, or does not verify".to_owned(),
            };
            rewrite.base = None;
            return self.note_damage(damage);
        };
        segment.liveness.dependents_before = std::mem::take(&mut segment.liveness.dependents);
        rewrite.superseded.clear();
        rewrite.began_at = end;
        rewrite.stage = Some(Stage::Deciding(Deciding {
            footer,
            at: 0,
            kept: Kept::new(),
            kept_bytes: 0,
            superseded: false,
        }));
    }

    fn decide(&mut self, rewriter: &dyn Rewriter, base: Position, mut deciding: Deciding) -> Option<Task> {
        let presence = Presence {
            segments: &self.segments,
            rewriting: base,
            superseded: &self.upkeep.rewrite.superseded,
        };
        for _ in 0..DECISIONS_MAX {
            let Some((entry, next)) = deciding.footer.index.entry_at(base, deciding.at) else {
                self.start_copying(base, deciding);
                return Some(Task::Pause);
            };
            deciding.at = next;
            if entry.kind < KIND_USER_MIN {
                continue;
            }
            let IndexEntry {
                position,
                epoch,
                kind,
                head,
                payload_length,
                ..
            } = entry;
            let kept = match rewriter.rewrite(
                Rewritable {
                    position,
                    epoch,
                    kind,
                    head,
                    payload_length,
                },
                &presence,
            ) {
                Rewrite::Drop => continue,
                Rewrite::Keep => None,
                Rewrite::KeepSuperseded => {
                    deciding.superseded = true;
                    None
                }
                Rewrite::KeepAs(new) if new.len() <= head.len() => Some(new),
                Rewrite::KeepAs(_) => {
                    // It has no room for that head, and the old one would bring back what is acknowledged.
                    self.abandon_compaction();
                    return Some(Task::Pause);
                }
            };
            deciding.kept.push_back((position, kept));
            deciding.kept_bytes += entry.stored();
        }
        self.upkeep.rewrite.stage = Some(Stage::Deciding(deciding));
        Some(Task::Pause)
    }

    fn start_copying(&mut self, base: Position, deciding: Deciding) {
        let store_id = self.store_id;
        let Some(segment) = self.segments.by_base_mut(base) else {
            return self.abandon_compaction();
        };
        let stored = if segment.compacted {
            u64::from(segment.file_bytes)
        } else {
            segment.end.0 - segment.base.0
        };
        let eighths = if self.reserve.drains { 7 } else { 6 };
        if deciding.kept_bytes * 8 > stored * eighths {
            // Not worth a copy; tried again when fewer are held.
            return self.abandon_compaction();
        }
        let superseded = deciding.superseded;
        let header = SegmentHeader {
            compacted: segment.compacted,
            ..segment.header(store_id)
        };
        let file_bytes = segment.file_bytes;
        let id = self.take_id();
        let copying = Copying::new(id, header, deciding.footer, file_bytes, deciding.kept);
        let decided_at = self.end();
        let rewrite = &mut self.upkeep.rewrite;
        (rewrite.copy_id, rewrite.decided_at) = (Some(id), decided_at);
        rewrite.keeps_superseded = superseded;
        rewrite.stage = Some(Stage::Ready(Box::new(copying)));
    }

    /// A slice was copied.
    pub(crate) fn copied(&mut self, slice: Slice) {
        match slice {
            Slice::More(copying) => self.upkeep.rewrite.stage = Some(Stage::Ready(copying)),
            Slice::Done(copied) => self.upkeep.rewrite.stage = Some(Stage::Copied(copied)),
            // The old file stays as it is.
            Slice::Damaged(damage) => {
                self.abandon_compaction();
                self.note_damage(damage);
            }
        }
    }

    fn switch_manifest(&self, old: u64, copied: &Copied) -> Manifest {
        let mut manifest = self.next_manifest();
        if let Some(entry) = manifest.entries.iter_mut().find(|entry| entry.id == old) {
            let (id, file_bytes, footer_crc) = (copied.id, copied.file_bytes, copied.footer_crc);
            let rewritten_at = self.upkeep.rewrite.rewritten_at(entry.rewritten_at);
            *entry = Entry {
                id,
                file_bytes,
                footer_crc,
                rewritten_at,
                compacted: true,
                ..*entry
            };
        }
        manifest
    }

    /// The copy is in force.
    pub(crate) fn switched(&mut self, manifest: Manifest) {
        self.adopt(manifest);
        let mut rewrite = self.upkeep.rewrite.take();
        let Some(Stage::Copied(copied)) = rewrite.stage.take() else {
            return;
        };
        let Some(segment) = rewrite.base.and_then(|base| self.segments.by_base_mut(base)) else {
            return;
        };
        (segment.id, segment.file_bytes, segment.footer_crc) = (copied.id, copied.file_bytes, copied.footer_crc);
        (segment.compacted, segment.rewritten_at) = (true, rewrite.rewritten_at(segment.rewritten_at));
        (segment.landmarks, segment.user_records) = (copied.landmarks, copied.user_records);
        segment.zeroed_to = u64::from(copied.file_bytes);
        let (from, to) = (segment.base, segment.end);
        if rewrite.keeps_superseded {
            self.keep_dependents(from);
        } else {
            let freed = std::mem::take(&mut segment.liveness.dependents_before);
            for holder in freed {
                self.block(holder, -1);
            }
        }
        self.cache.forget(from, to);
    }

    /// Gives a rewrite up; the old file stays in force.
    pub(crate) fn abandon_compaction(&mut self) {
        let rewrite = self.upkeep.rewrite.take();
        self.upkeep.rewrite.discard = rewrite.copy_id;
        if let Some(base) = rewrite.base {
            self.keep_dependents(base);
        }
    }

    /// As [`Log::abandon_compaction`], for want of space or of something else that may be there again.
    pub(crate) fn give_up_for_now(&mut self) {
        if let Some(base) = self.upkeep.rewrite.base {
            self.upkeep.rewrite.given_up.push(base);
        }
        self.abandon_compaction();
    }

    /// Space came free: what was given up for want of it is worth a try again.
    pub(crate) fn retry_given_up(&mut self) {
        for base in std::mem::take(&mut self.upkeep.rewrite.given_up) {
            if let Some(segment) = self.segments.by_base_mut(base) {
                segment.liveness.tried_at = None;
            }
        }
    }

    /// Whether a segment is being rewritten.
    pub(crate) fn is_rewriting(&self) -> bool {
        self.upkeep.rewrite.base.is_some()
    }

    /// Whether a segment would be rewritten on a full disk if only the floor were above it: a checkpoint would allow it.
    #[must_use]
    pub fn is_kept_from_rewriting(&self) -> bool {
        let settled = self.settled();
        let bound = self.readers.lowest().min(settled);
        self.options.compact_below_percent > 0
            && self.segments.iter().any(|segment| {
                segment.end > self.floor && segment.end <= bound && segment.is_sparse(DRAIN_BELOW_PERCENT)
            })
    }

    /// What depended on a segment before its rewrite still does.
    fn keep_dependents(&mut self, base: Position) {
        let Some(segment) = self.segments.by_base_mut(base) else {
            return;
        };
        let before = std::mem::take(&mut segment.liveness.dependents_before);
        let known = &mut segment.liveness.dependents;
        let twice: Vec<Position> = before.into_iter().filter(|holder| !known.insert(*holder)).collect();
        for holder in twice {
            self.block(holder, -1);
        }
    }
}

impl Segment {
    /// Whether so little of it is held that a rewrite is worth a try that was not made before.
    fn is_sparse(&self, percent: u64) -> bool {
        let Liveness {
            holds,
            blockers,
            tried_at,
            ..
        } = &self.liveness;
        let sparse = holds * 100 < self.user_records * percent;
        let changed = tried_at.is_none_or(|(tried, blocked)| holds * 2 < tried || *blockers < blocked);
        self.sealed && !self.damaged && sparse && changed
    }
}
