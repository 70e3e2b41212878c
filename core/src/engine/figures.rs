//! What an engine counts of its work for people to look at: how long confirmations take, what is refused, who is cut off.

use super::engine::Engine;
use super::errors::Refused;
use crate::proto::reply::Result as Answered;
use crate::proto::{ErrorCode, server_frame};
use std::collections::BTreeMap;

/// How long things took, counted by upper bounds, for a Prometheus histogram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    bounds_us: &'static [u64],
    /// How many took at most each bound and more than the one before; the last ones took longer than all.
    counts: Vec<u64>,
    sum_us: u64,
}

impl Histogram {
    /// One that has counted nothing. Bounds grow.
    #[must_use]
    pub fn new(bounds_us: &'static [u64]) -> Self {
        Self {
            bounds_us,
            counts: vec![0; bounds_us.len() + 1],
            sum_us: 0,
        }
    }

    /// So many took so long each.
    pub fn add(&mut self, took_us: u64, times: u64) {
        let place = self.bounds_us.partition_point(|&bound| bound < took_us);
        if let Some(count) = self.counts.get_mut(place) {
            *count += times;
        }
        self.sum_us = self.sum_us.saturating_add(took_us.saturating_mul(times));
    }

    /// Each bound with how many took at most so long and longer than the bound before; the last, without a bound, longer.
    pub fn counts(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = self.bounds_us.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts.iter().copied())
    }

    /// What all of them took together.
    #[must_use]
    pub const fn sum_us(&self) -> u64 {
        self.sum_us
    }
}

/// The engine's clock has milliseconds, so that less than one is all that can be told apart.
const CONFIRM_BOUNDS_US: &[u64] = &[
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// See the module. Codes by their names in the contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// From a message's arrival to its confirmation, each message counted.
    pub confirms: Histogram,
    /// Messages and requests that were refused.
    pub refused: BTreeMap<&'static str, u64>,
    /// Streams that were ended because of what their client did, or did not do.
    pub cut: BTreeMap<&'static str, u64>,
    /// Bytes of bodies that came ahead of their messages.
    pub uploaded_bytes: u64,
    /// Bodies that went on where a broken stream had left them.
    pub uploads_resumed: u64,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            confirms: Histogram::new(CONFIRM_BOUNDS_US),
            refused: BTreeMap::new(),
            cut: BTreeMap::new(),
            uploaded_bytes: 0,
            uploads_resumed: 0,
        }
    }
}

fn name(code: i32) -> &'static str {
    ErrorCode::try_from(code).unwrap_or_default().as_str_name()
}

impl Figures {
    /// A frame goes to a client, which may tell of refusals.
    pub fn note(&mut self, frame: &server_frame::Frame) {
        let (code, times) = match frame {
            server_frame::Frame::Rejected(rejected) => {
                let code = rejected.error.as_ref().map_or(0, |error| error.code);
                (code, (rejected.last + 1).saturating_sub(rejected.first))
            }
            server_frame::Frame::Error(error) => (error.code, 1),
            server_frame::Frame::TransactionEnded(ended) => (ended.reason.as_ref().map_or(0, |reason| reason.code), 1),
            server_frame::Frame::Reply(reply) => match &reply.result {
                Some(Answered::Error(error)) => (error.code, 1),
                _ => return,
            },
            _ => return,
        };
        *self.refused.entry(name(code)).or_default() += times;
    }

    /// A stream is ended.
    pub fn note_cut(&mut self, why: &Refused) {
        *self.cut.entry(name(why.code)).or_default() += 1;
    }

    /// So many messages that arrived then are confirmed now. Both times are rounded down: what is counted is the most it may
    /// have taken.
    pub fn note_confirmed(&mut self, arrived_ms: u64, now_ms: u64, messages: u64) {
        self.confirms
            .add((now_ms.saturating_sub(arrived_ms) + 1) * 1_000, messages);
    }
}

impl Engine {
    /// A frame goes out. What comes of single calls is told to their callers by whoever makes them here, and counted there.
    pub(super) fn note_refusal(&mut self, stream: u64, frame: &server_frame::Frame) {
        if self.streams.get(&stream).is_some_and(|stream| !stream.internal) {
            self.figures.note(frame);
        }
    }

    /// What is kept of bodies whose stream broke, in bytes.
    #[must_use]
    pub const fn kept_upload_bytes(&self) -> u64 {
        self.kept_uploads.bytes()
    }

    /// What it has counted since the start.
    #[must_use]
    pub const fn figures(&self) -> &Figures {
        &self.figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_exactly_a_bound_is_within_it_and_what_exceeds_all_is_counted_too() {
        let mut histogram = Histogram::new(&[10, 20]);
        for took_us in [0, 10, 11, 20, 21, u64::MAX] {
            histogram.add(took_us, 1);
        }
        histogram.add(15, 5);
        let counts: Vec<_> = histogram.counts().collect();
        assert_eq!(counts, [(Some(10), 2), (Some(20), 7), (None, 2)]);
        assert_eq!(histogram.sum_us(), u64::MAX);
    }

    #[test]
    fn a_transaction_that_was_open_for_too_long_counts_as_refused() {
        let mut figures = Figures::default();
        let reason = super::super::errors::refuse(ErrorCode::TransactionRolledBack, "transaction_ms", "It was open.");
        figures.note(&server_frame::Frame::TransactionEnded(crate::proto::TransactionEnded {
            transaction: 7,
            reason: Some(*reason),
        }));
        assert_eq!(figures.refused.get("TRANSACTION_ROLLED_BACK"), Some(&1));
    }

    #[test]
    fn a_confirmation_counts_as_the_most_it_may_have_taken() {
        let mut figures = Figures::default();
        figures.note_confirmed(7, 7, 3);
        figures.note_confirmed(7, 8, 1);
        let counts: Vec<_> = figures.confirms.counts().take(2).collect();
        assert_eq!(counts, [(Some(1_000), 3), (Some(2_000), 1)]);
    }
}
