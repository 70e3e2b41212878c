//! What a transacted session was sent, and the engine gave back by itself: its consumer was closed because the destination
//! went, or lives elsewhere now.
//!
//! The client may not have heard of it yet, and have worked on those messages: it goes on to acknowledge them in a
//! transaction, with what it sends because of them. Somebody else is given the messages, so that this transaction must
//! not take effect (EMS-TX-A02). Where the session does hold what it names, it was sent it again since, and all is well.

use super::errors::{Refused, refuse};
use crate::proto::ErrorCode;
use crate::state::SourceId;
use std::collections::{BTreeMap, BTreeSet};

/// So many deliveries are remembered by a session; beyond that whatever it does not hold counts as withdrawn.
const REMEMBERED_MAX: usize = 65_536;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Withdrawn {
    sequences: BTreeMap<SourceId, BTreeSet<u64>>,
    count: usize,
    overflowed: bool,
}

impl Withdrawn {
    /// Notes deliveries.
    pub fn add(&mut self, source: SourceId, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            if self.count >= REMEMBERED_MAX {
                self.overflowed = true;
                return;
            }
            self.count += usize::from(self.sequences.entry(source).or_default().insert(sequence));
        }
    }

    /// Whether nothing is withdrawn, as is nearly always so.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && !self.overflowed
    }

    /// Whether it is not known any more which deliveries were withdrawn.
    #[must_use]
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Those within some ranges (both ends included) that were withdrawn. Costs no more than the ranges and what is found.
    #[must_use]
    pub fn within(&self, source: SourceId, ranges: &[(u64, u64)]) -> BTreeSet<u64> {
        let Some(sequences) = self.sequences.get(&source) else {
            return BTreeSet::new();
        };
        let ordered = ranges.iter().filter(|(first, last)| first <= last);
        ordered
            .flat_map(|(first, last)| sequences.range(first..=last))
            .copied()
            .collect()
    }

    /// The session was sent this again.
    pub fn forget(&mut self, source: SourceId, sequence: u64) {
        let Some(sequences) = self.sequences.get_mut(&source) else {
            return;
        };
        self.count -= usize::from(sequences.remove(&sequence));
        if sequences.is_empty() {
            self.sequences.remove(&source);
        }
    }
}

/// Why a transaction in which such a message is acknowledged is rolled back.
#[must_use]
pub fn refusal() -> Refused {
    let message = "A message that is acknowledged in it was given back before, when its consumer was closed.";
    refuse(ErrorCode::Closed, "acknowledge", message)
}
