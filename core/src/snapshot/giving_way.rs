//! What of the keeper's goes before it is exported: for messages when the disk is full, and beyond its bounds.

use crate::state::State;

use super::keeper::{EVENTS, Keeper};
use super::pieces::Header;

const FULL: &str = "the disk was full";

impl Keeper {
    /// The log has no space left: nothing of this may be in its way.
    pub(super) fn give_way(&mut self, state: &mut State) {
        if !self.is_on(state) && !self.wanted {
            return;
        }
        if std::mem::take(&mut self.wanted) {
            self.failed = Some(FULL.to_owned());
        }
        self.abandon(state, FULL);
        self.drop_distilling();
        let is_waiting = self.confirmed.is_none();
        if let Some(cut) = self.cut.take_if(|_| is_waiting) {
            self.trash.push(cut.file_name());
            self.failed = Some(FULL.to_owned());
        }
        for header in self.events.clone().values() {
            self.drop_events(header, FULL);
        }
        state.remove_reader(EVENTS);
        self.claims = false;
        self.note_gap(state.log().settled(), FULL);
        self.end_without_chain(state);
    }

    /// The oldest go where there are too many, or they are too old; and a claim that was lost is a gap.
    pub(super) fn keep_bounds(&mut self, state: &mut State) {
        if self.claims && !state.has_reader(EVENTS) {
            self.claims = false;
            self.drop_distilling();
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
            self.drop_events(&header, why);
        }
        if let Some(cut) = cut_goes.filter(|_| self.confirmed.is_none()) {
            self.cut = None;
            self.trash.push(cut.file_name());
            self.failed = Some("the cut was not exported in time, or takes more space than it may".to_owned());
            self.end_without_chain(state);
        }
    }

    /// There is no chain without its first cut: nothing is kept for it.
    pub(super) fn end_without_chain(&mut self, state: &mut State) {
        if self.is_on(state) {
            return;
        }
        state.remove_reader(EVENTS);
        self.claims = false;
        self.drop_distilling();
        self.gaps.clear();
        let events = std::mem::take(&mut self.events);
        self.trash.extend(events.values().map(Header::file_name));
    }
}
