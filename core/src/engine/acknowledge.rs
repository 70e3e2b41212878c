//! Acknowledgements and releases: what a session holds, named by source and sequence.
//!
//! Only what this session holds is touched. Whatever else a frame names is passed over: an acknowledgement may cross a
//! redelivery on its way, and an epoch that is not this one's names deliveries that nobody holds any more.

use super::engine::Engine;
use super::errors::{Refused, of_state, over_limit, refuse};
use super::frames::SetsFrame;
use super::intake::{Handled, Outcome};
use super::owed::{Holder, outcome};
use super::session::session_of;
use super::withdrawn;
use crate::proto::{AcknowledgeMode, ErrorCode};
use crate::state::{SourceId, Tx};

impl Engine {
    pub(super) fn acknowledge(&mut self, key: u64, frame: &SetsFrame) -> Handled {
        let Some(tx) = self.acknowledging_transaction(key, frame.second)? else {
            return self.acknowledge_at_once(key, frame);
        };
        if self.is_undone(tx) {
            let named: Vec<_> = self.named_now(frame).collect();
            self.take_back_late(tx, &named);
            return Ok(Outcome::Done);
        }
        self.acknowledge_within(key, tx, frame).inspect_err(|refused| {
            // Nothing of a transaction arrives when a part of it cannot (EMS-TX-A02).
            if let Some(session) = self.sessions.get_mut(&key) {
                let limit = self.settings.limits.transactions;
                session
                    .transactions
                    .doom(tx.number, limit, self.now.monotonic_ms, refused);
            }
        })?;
        Ok(Outcome::Done)
    }

    fn acknowledge_at_once(&mut self, key: u64, frame: &SetsFrame) -> Handled {
        let mut logged = true;
        for (source, ranges) in self.named_now(frame) {
            logged &= self
                .acknowledge_or_owe(source, Holder::Session(key), ranges)
                .map_err(|error| of_state(&error))?;
        }
        Ok(outcome(logged))
    }

    fn acknowledge_within(&mut self, key: u64, tx: Tx, frame: &SetsFrame) -> Result<(), Refused> {
        let mut misses = false;
        for (source, ranges) in self.named_now(frame) {
            misses |= self.misses_withdrawn(key, source, ranges);
            let acknowledged = self
                .state
                .acknowledge(source, ranges, |holder| session_of(holder) == key, Some(tx))
                .map_err(|error| of_state(&error))?;
            self.acknowledged(key, acknowledged.count);
            self.count_in_transaction(key, tx.number, acknowledged.count)?;
        }
        if misses && let Some(session) = self.sessions.get_mut(&key) {
            let limit = self.settings.limits.transactions;
            let now_ms = self.now.monotonic_ms;
            session
                .transactions
                .doom(tx.number, limit, now_ms, &withdrawn::refusal());
        }
        Ok(())
    }

    /// Whether something is acknowledged that was taken from the session without its doing, and not sent to it again.
    fn misses_withdrawn(&mut self, key: u64, source: SourceId, ranges: &[(u64, u64)]) -> bool {
        let Some(session) = self.sessions.get(&key).filter(|session| !session.withdrawn.is_empty()) else {
            return false;
        };
        let named = session.withdrawn.within(source, ranges);
        if named.is_empty() {
            return false;
        }
        let held = self
            .state
            .held_within(source, &named, |holder| session_of(holder) == key);
        if let Some(session) = self.sessions.get_mut(&key) {
            session.withdrawn.forget(source, &held);
        }
        let count = |(first, last): &(u64, u64)| last.saturating_sub(*first).saturating_add(1);
        (held.len() as u64) < named.iter().map(count).fold(0, u64::saturating_add)
    }

    /// The ranges that a frame names, source by source; those of another epoch name deliveries that nobody holds.
    fn named_now<'frame>(
        &self,
        frame: &'frame SetsFrame,
    ) -> impl Iterator<Item = (SourceId, &'frame [(u64, u64)])> + use<'frame> {
        let epoch = self.state.epoch();
        let named = frame
            .sets
            .iter()
            .filter(move |set| set.epoch == 0 || set.epoch == epoch);
        named.map(|set| (SourceId(set.source), &frame.ranges[set.ranges.clone()]))
    }

    /// The transaction that acknowledgements belong to, as the session's mode demands.
    fn acknowledging_transaction(&mut self, key: u64, number: u64) -> Result<Option<Tx>, Refused> {
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
                if !session.transactions.has_begun(number) {
                    // Perhaps it is what waits for flow control: it begins here, and waits no longer.
                    session.waits_for = None;
                }
                let (limit, now_ms) = (self.settings.limits.transactions, self.now.monotonic_ms);
                session.transactions.enter(number, limit, now_ms)?;
                self.watch_transactions();
                Ok(Some(Tx { owner: key, number }))
            }
        }
    }

    fn count_in_transaction(&mut self, key: u64, number: u64, count: u64) -> Result<(), Refused> {
        let limit = u64::from(self.settings.limits.transaction_messages);
        let Some(session) = self.sessions.get_mut(&key) else {
            return Ok(());
        };
        let limit_of_all = self.settings.limits.transactions;
        let transaction = session
            .transactions
            .enter(number, limit_of_all, self.now.monotonic_ms)?;
        transaction.messages += count;
        if transaction.messages > limit {
            return Err(over_limit(
                "transaction_messages",
                limit,
                "A transaction may not hold more messages",
            ));
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
        let seen = frame.second != 0;
        for (source, ranges) in self.named_now(frame) {
            let held = self
                .state
                .in_flight_within(source, ranges, |holder| session_of(holder) == key);
            if let Some(session) = self.sessions.get_mut(&key) {
                let is_gone = |of, sequence| of == source && held.binary_search(&sequence).is_ok();
                session.transactions.forget_received(is_gone);
            }
            for sequence in held {
                self.give_back_for(key, source, sequence, seen, frame.third);
            }
            self.mark_dirty(source);
        }
        self.wake_session(key);
        Ok(Outcome::Done)
    }
}
