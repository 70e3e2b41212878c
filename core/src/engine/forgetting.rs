//! The mode NONE: the broker forgets what it has sent (EMS-CLI-A06).
//!
//! Forgetting is an acknowledgement by the broker itself, and so a record. Where the log has no room for it just then, what
//! was sent stays in flight, whatever becomes of its consumer, and is forgotten as soon as there is room: it does not come
//! again. Only a restart before that brings it back, flagged, as after any crash.

use super::engine::Engine;
use super::session::session_of;
use crate::log::AppendError;
use crate::state::{SourceId, StateError};

/// Deliveries that went out and whose end could not be logged yet.
#[derive(Debug)]
pub(super) struct Unforgotten {
    source: SourceId,
    /// The consumer that got them.
    holder: u64,
    ranges: Vec<(u64, u64)>,
}

impl Engine {
    /// Forgets what a consumer was sent.
    pub(super) fn forget(&mut self, source: SourceId, holder: u64, ranges: Vec<(u64, u64)>) {
        match self.state.acknowledge(source, &ranges, |other| other == holder, None) {
            Ok(acknowledged) => self.acknowledged(session_of(holder), acknowledged.count),
            Err(StateError::Append(AppendError::NoSpace)) => {
                self.unforgotten.push(Unforgotten { source, holder, ranges })
            }
            // The source is gone with all it held, or the log is finished, which is told by other means.
            Err(_) => {}
        }
    }

    /// Forgets what could not be for want of room.
    pub(super) fn resume_forgetting(&mut self) {
        for sent in std::mem::take(&mut self.unforgotten) {
            self.forget(sent.source, sent.holder, sent.ranges);
        }
    }

    /// Whether a delivery is to be forgotten, so that nobody may give it back.
    pub(super) fn is_to_be_forgotten(&self, session: u64, source: SourceId, sequence: u64) -> bool {
        self.unforgotten.iter().any(|sent| {
            sent.source == source
                && session_of(sent.holder) == session
                && sent
                    .ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&sequence))
        })
    }
}
