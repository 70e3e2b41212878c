//! A store that has failed: nothing is confirmed any more, so nobody is left waiting for a confirmation.
//!
//! Every stream is told why and ends; what was unconfirmed is in doubt, as after a crash, and whoever connects again is
//! refused until the broker has been started anew. The broker's own streams may greet: people want to look.

use super::engine::Engine;
use super::errors::{Refused, refuse};
use crate::proto::ErrorCode;

impl Engine {
    /// Notes that nothing will be written any more, for a reason that the state may not know of.
    pub fn fail(&mut self, why: &str) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(why.to_owned());
        self.pending.clear();
        let mut streams: Vec<u64> = self.streams.keys().copied().collect();
        streams.sort_unstable();
        for id in streams {
            if let Some(refused) = self.store_failure() {
                self.fail_stream(id, refused);
            }
        }
    }

    /// Ends all streams when the log has failed since this was last asked.
    pub(super) fn check_store(&mut self) {
        if self.failed.is_none()
            && let Some(why) = self.state.failed().map(str::to_owned)
        {
            self.fail(&why);
        }
    }

    /// The refusal that everybody gets once the store has failed.
    pub(super) fn store_failure(&self) -> Option<Refused> {
        let why = self.failed.as_ref()?;
        let message = format!("The broker cannot write and confirms nothing any more: {why}.");
        Some(refuse(ErrorCode::StoreFailed, "store", message))
    }
}
