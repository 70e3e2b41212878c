//! What came into each source and what ended there, counted where it is decided.
//!
//! The tables are what `apply` makes of the records; the events of an audit are what the records say. Should one of them be
//! wrong about a message, this is the third that is asked: it is told by whoever decides, never by `apply`, and adds up on
//! its own. Of a source: what it began with, and what arrived, less what ended, is what it holds.
//!
//! It counts from the moment in which this process may write to the store, and so within one epoch. What is not logged is
//! counted apart, and so is what leaves no record: deliveries that came back, duplicates, messages that nobody wanted.

use rustc_hash::FxHashMap;

use super::ids::SourceId;
use super::message_record::{MessageHead, Reference};
use super::tables::Tables;
use super::terminal_record::Reason;

const REASONS: [Reason; 9] = [
    Reason::Acknowledged,
    Reason::Expired,
    Reason::Discarded,
    Reason::Purged,
    Reason::MaxRedelivery,
    Reason::Moved,
    Reason::Dead,
    Reason::Damaged,
    Reason::Deleted,
];

/// The counts of one source; of a topic, what happened to messages on their way through it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    began: u64,
    arrived: u64,
    ended: [u64; REASONS.len()],
    volatile: u64,
    released: u64,
    delivered: u64,
    duplicates: u64,
    unwanted: u64,
}

impl Counted {
    /// What was counted, by name; zeros are left out.
    pub fn told(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let ended = REASONS
            .iter()
            .zip(self.ended)
            .map(|(reason, count)| (reason.name(), count));
        [("began", self.began), ("arrived", self.arrived)]
            .into_iter()
            .chain(ended)
            .chain([
                ("volatile", self.volatile),
                ("released", self.released),
                ("delivered", self.delivered),
                ("duplicates", self.duplicates),
                ("unwanted", self.unwanted),
            ])
            .filter(|(_, count)| *count > 0)
    }

    fn add(&mut self, what: What, count: u64) {
        let counter = match what {
            What::Arrived => &mut self.arrived,
            What::Volatile => &mut self.volatile,
            What::Ended(reason) => &mut self.ended[reason as usize - 1],
        };
        *counter += count;
    }
}

/// What a decision does to a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Arrived,
    Volatile,
    Ended(Reason),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Witness {
    sources: FxHashMap<SourceId, Counted>,
    /// What open transactions will do, by their numbers.
    undecided: FxHashMap<u64, Vec<(SourceId, What, u64)>>,
}

impl Witness {
    /// Begins with what a start, or who follows, has found.
    pub fn begin(tables: &Tables) -> Self {
        let mut witness = Self::default();
        for source in tables.sources.values().filter(|source| source.statistics.messages > 0) {
            if let Some(counted) = witness.of(source.id) {
                counted.began = source.statistics.messages;
            }
        }
        for id in tables.transactions.ids() {
            let Some(open) = tables.transactions.get(id) else {
                continue;
            };
            for pending in &open.entries {
                witness.count(id, pending.source, What::Arrived, 1);
            }
            for (_, head) in &open.terminals {
                witness.count(id, head.source, What::Ended(head.reason), head.count());
            }
        }
        witness
    }

    /// Counts what a decision does, now or with its transaction.
    pub fn count(&mut self, transaction: u64, source: SourceId, what: What, count: u64) {
        if transaction == 0 {
            if let Some(counted) = self.of(source) {
                counted.add(what, count);
            }
            return;
        }
        let undecided = self.undecided.entry(transaction).or_default();
        match undecided.last_mut() {
            Some((last, same, total)) if (*last, *same) == (source, what) => *total += count,
            _ => undecided.push((source, what, count)),
        }
    }

    /// A message arrived, now or with its transaction; `unlogged`: where no record says so.
    pub fn arrived(&mut self, head: &MessageHead, unlogged: &[Reference]) {
        let logged = head.references.iter().map(|reference| (reference, What::Arrived));
        let all = logged.chain(unlogged.iter().map(|reference| (reference, What::Volatile)));
        for (reference, what) in all {
            self.count(head.transaction, reference.source, what, 1);
        }
    }

    /// A transaction is decided. `is_there`: whether a source was not deleted meanwhile.
    pub fn decide(&mut self, transaction: u64, is_committed: bool, is_there: impl Fn(SourceId) -> bool) {
        let undecided = self.undecided.remove(&transaction).unwrap_or_default();
        for (source, what, count) in undecided {
            if is_committed && is_there(source) {
                self.count(0, source, what, count);
            }
        }
    }

    /// A delivery came back.
    pub fn released(&mut self, source: SourceId) {
        if let Some(counted) = self.of(source) {
            counted.released += 1;
        }
    }

    /// A message had arrived at a destination before.
    pub fn duplicate(&mut self, destination: SourceId) {
        if let Some(counted) = self.of(destination) {
            counted.duplicates += 1;
        }
    }

    /// Nobody wanted a message.
    pub fn unwanted(&mut self, destination: SourceId) {
        if let Some(counted) = self.of(destination) {
            counted.unwanted += 1;
        }
    }

    /// A queue, topic or subscription is no more.
    pub fn forget(&mut self, source: SourceId) {
        self.sources.remove(&source);
    }

    /// All counts as they are now, by source.
    pub fn all(&self, tables: &Tables) -> Vec<(SourceId, Counted)> {
        let told = |(id, counted): (&SourceId, &Counted)| {
            let delivered = tables
                .sources
                .get(id)
                .map_or(0, |source| source.statistics.delivered_total);
            (*id, Counted { delivered, ..*counted })
        };
        self.sources.iter().map(told).collect()
    }

    /// What no record names is not counted.
    fn of(&mut self, source: SourceId) -> Option<&mut Counted> {
        source.is_kept().then(|| self.sources.entry(source).or_default())
    }
}
