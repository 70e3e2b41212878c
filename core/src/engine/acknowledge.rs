//! Acknowledgements and releases: what a session holds, named by source and sequence.
//!
//! Only what this session holds is touched. Whatever else a frame names is passed over: an acknowledgement may cross a
//! redelivery on its way, and an epoch that is not this one's names deliveries that nobody holds any more.

use super::engine::Engine;
use super::errors::{of_state, over_limit, refuse};
use super::frames::SetsFrame;
use super::intake::{Handled, Outcome};
use super::owed::{Holder, outcome};
use super::session::session_of;
use crate::proto::{AcknowledgeMode, ErrorCode};
use crate::state::{SourceId, Tx};

impl Engine {
    pub(super) fn acknowledge(&mut self, key: u64, frame: &SetsFrame) -> Handled {
        let epoch = self.state.epoch();
        let transaction = self.acknowledging_transaction(key, frame.second)?;
        let mut logged = true;
        for set in &frame.sets {
            if set.epoch != 0 && set.epoch != epoch {
                continue;
            }
            let (source, ranges) = (SourceId(set.source), &frame.ranges[set.ranges.clone()]);
            let Some(tx) = transaction else {
                logged &= self
                    .acknowledge_or_owe(source, Holder::Session(key), ranges)
                    .map_err(|error| of_state(&error))?;
                continue;
            };
            let acknowledged = self
                .state
                .acknowledge(source, ranges, |holder| session_of(holder) == key, transaction)
                .map_err(|error| of_state(&error))?;
            self.acknowledged(key, acknowledged.count);
            self.count_in_transaction(key, tx.number, acknowledged.count)?;
        }
        Ok(outcome(logged))
    }

    /// The transaction that acknowledgements belong to, as the session's mode demands.
    fn acknowledging_transaction(&mut self, key: u64, number: u64) -> Result<Option<Tx>, super::errors::Refused> {
        let Some(session) = self.sessions.get_mut(&key) else {
            return Ok(None);
        };
        match (session.mode == AcknowledgeMode::Transacted, number) {
            (false, 0) => Ok(None),
            (true, 0) => {
                let message = "In a transacted session each Ack names its transaction.";
                Err(refuse(ErrorCode::NotAllowed, "transaction", message))
            }
            (false, _) => Err(refuse(
                ErrorCode::NotAllowed,
                "transaction",
                "Only a transacted session has transactions.",
            )),
            (true, number) => {
                session.transactions.entry(number).or_default();
                Ok(Some(Tx { owner: key, number }))
            }
        }
    }

    fn count_in_transaction(&mut self, key: u64, number: u64, count: u64) -> Result<(), super::errors::Refused> {
        let limit = u64::from(self.settings.limits.transaction_messages);
        let Some(session) = self.sessions.get_mut(&key) else {
            return Ok(());
        };
        let transaction = session.transactions.entry(number).or_default();
        transaction.messages += count;
        if transaction.messages > limit {
            let refused = over_limit(
                "transaction_messages",
                limit,
                "A transaction may not hold more messages",
            );
            transaction.failed.get_or_insert_with(|| refused.clone());
            return Err(refused);
        }
        Ok(())
    }

    /// Counts what a session no longer holds; a session that stood at its limit may take again.
    pub(super) fn acknowledged(&mut self, key: u64, count: u64) {
        let limit = u64::from(self.settings.limits.unacknowledged_messages);
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        let before = session.unacknowledged;
        session.unacknowledged = before.saturating_sub(count);
        if before >= limit && session.unacknowledged < limit {
            self.wake_session(key);
        }
    }

    pub(super) fn release(&mut self, key: u64, frame: &SetsFrame) -> Handled {
        let epoch = self.state.epoch();
        let seen = frame.second != 0;
        for set in &frame.sets {
            if set.epoch != 0 && set.epoch != epoch {
                continue;
            }
            let source = SourceId(set.source);
            for &(first, last) in &frame.ranges[set.ranges.clone()] {
                let held = self
                    .state
                    .in_flight_within(source, first, last, |holder| session_of(holder) == key);
                for sequence in held {
                    self.give_back(key, source, sequence, seen);
                }
            }
            self.mark_dirty(source);
        }
        self.wake_session(key);
        Ok(Outcome::Done)
    }
}
