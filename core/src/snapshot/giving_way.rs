//! What of the keeper's goes before it is exported: for messages when the disk is full, and beyond its bounds.

use crate::state::State;

use super::keeper::{EVENTS, Gap, Keeper};
use super::pieces::Header;

impl Keeper {
    /// The log has no space left: nothing of this may be in its way.
    pub(super) fn give_way(&mut self, state: &mut State) {
        if !self.is_on(state) && !self.wanted {
            return;
        }
        if std::mem::take(&mut self.wanted) {
            self.failed = Some("the disk was full".to_owned());
        }
        self.abandon(state, "the disk was full");
        self.distilling = None;
        self.trash.extend(self.events.values().map(Header::file_name));
        let dropped = std::mem::take(&mut self.events);
        let from = dropped.keys().next().copied().unwrap_or(self.distilled);
        if let Some(cut) = self.cut.take_if(|_| self.confirmed.is_none()) {
            self.trash.push(cut.file_name());
            self.failed = Some("the disk was full".to_owned());
        }
        state.remove_reader(EVENTS);
        self.claims = false;
        self.distilled = from.min(self.distilled);
        self.note_gap(state.log().settled(), "the disk was full");
    }

    /// The oldest go where there are too many, or they are too old; and a claim that was lost is a gap.
    pub(super) fn keep_bounds(&mut self, state: &mut State) {
        if self.claims && !state.has_reader(EVENTS) {
            self.claims = false;
            self.distilling = None;
            self.note_gap(state.log().settled(), "the events were too far behind the log");
        }
        if !self.claims && self.is_on(state) && self.making.is_none() {
            self.note_gap(state.log().settled(), "the claim on the log was lost");
            self.claim(state);
        }
        let now_ms = state.now().wall_ms;
        let is_old = |header: &Header| now_ms.saturating_sub(header.time_ms) > self.bounds.age_max_ms;
        let mut bytes = self.kept().0;
        let mut dropped = Vec::new();
        for header in self.events.values() {
            if !is_old(header) && bytes <= self.bounds.bytes_max {
                break;
            }
            bytes -= header.file_bytes();
            dropped.push((
                *header,
                if is_old(header) {
                    "they were too old"
                } else {
                    "they took too much space"
                },
            ));
        }
        let cut_goes = self.cut.filter(|cut| is_old(cut) || bytes > self.bounds.bytes_max);
        for (header, why) in dropped {
            self.events.remove(&header.from);
            self.trash.push(header.file_name());
            self.insert_gap(&header, why);
        }
        if let Some(cut) = cut_goes.filter(|_| self.confirmed.is_none()) {
            self.cut = None;
            self.trash.push(cut.file_name());
            self.failed = Some("the cut was not exported in time, or takes more space than it may".to_owned());
            self.end_without_chain(state);
        }
    }

    /// A gap where there were events, joined with the ones beside it.
    pub(super) fn insert_gap(&mut self, header: &Header, why: &str) {
        self.gaps.push(Gap {
            from: header.from,
            to: header.to,
            why: why.to_owned(),
        });
        self.gaps.sort_unstable_by_key(|gap| gap.from);
        let gaps = std::mem::take(&mut self.gaps);
        for gap in gaps {
            match self.gaps.last_mut() {
                Some(last) if last.to == gap.from && last.why == gap.why => last.to = gap.to,
                _ => self.gaps.push(gap),
            }
        }
    }

    /// There is no chain without its first cut: nothing is kept for it.
    pub(super) fn end_without_chain(&mut self, state: &mut State) {
        if self.is_on(state) {
            return;
        }
        state.remove_reader(EVENTS);
        self.claims = false;
        self.distilling = None;
        self.gaps.clear();
        let events = std::mem::take(&mut self.events);
        self.trash.extend(events.values().map(Header::file_name));
    }
}
