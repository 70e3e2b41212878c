//! Messages that are gone without anybody having taken them: how many since the start, why, and where.
//!
//! For people, not for recovery: what a log says is counted when it happens, not when it is read again. Who empties a
//! queue on purpose is counted as well, so that the figures add up. What was put aside still exists and is not here.

use std::collections::BTreeMap;

use super::ids::SourceId;
use super::terminal_record::Reason;

/// Places that are counted by themselves; of all others together it is known how many.
const PLACES_MAX: usize = 256;

/// Why messages went whose queue or subscription did, which no terminal record names, or whose topic did, where one does.
pub const DELETED: &str = Reason::Deleted.name();

/// What went at one place for one reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The queue's name, or the subscription's.
    pub name: String,
    /// Why, by [`super::Reason::name`], or [`DELETED`].
    pub reason: &'static str,
    /// How many since the start.
    pub messages: u64,
}

/// The figures.
#[derive(Debug, Default)]
pub struct Destroyed {
    totals: BTreeMap<&'static str, u64>,
    places: BTreeMap<(SourceId, &'static str), Lost>,
    elsewhere: u64,
}

impl Destroyed {
    /// Counts; `name` is asked for when a place is met for the first time.
    pub(super) fn note(&mut self, id: SourceId, reason: &'static str, messages: u64, name: impl FnOnce() -> String) {
        if messages == 0 {
            return;
        }
        *self.totals.entry(reason).or_insert(0) += messages;
        if let Some(place) = self.places.get_mut(&(id, reason)) {
            place.messages += messages;
        } else if self.places.len() < PLACES_MAX {
            let name = name();
            let lost = Lost { name, reason, messages };
            self.places.insert((id, reason), lost);
        } else {
            self.elsewhere += messages;
        }
    }

    /// How many by reason.
    pub fn totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.totals.iter().map(|(reason, messages)| (*reason, *messages))
    }

    /// How many by place and reason, of as many places as are kept.
    pub fn places(&self) -> impl Iterator<Item = &Lost> {
        self.places.values()
    }

    /// How many at all other places.
    #[must_use]
    pub const fn elsewhere(&self) -> u64 {
        self.elsewhere
    }
}
