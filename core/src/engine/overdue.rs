//! Transactions that are open for longer than they may be (`transaction_ms`): they are rolled back, and their clients told.
//!
//! There is no timer for each: all that are open are looked at when the oldest of them may be due, and not more often than a
//! small part of the limit allows, so that one may be open for so much longer. Whatever comes of a transaction afterwards is
//! refused, or goes back where it came from; what remains of it here is the answer that its commit gets. Until its client
//! ends it the session is handed nothing, if it knows of all that: an application that hangs would get what it held again.

use super::engine::Engine;
use super::errors::{Refused, over_limit, refuse};
use super::intake::{Handled, Outcome};
use super::seen::Seen;
use super::session::session_of;
use super::transact::rolled_back;
use crate::proto::{self, AcknowledgeMode, ErrorCode, server_frame};
use crate::state::{SourceId, Tx};

/// The part of the limit between two looks.
const LOOKS: u64 = 16;

/// So long it is at most.
const LOOK_MS_MAX: u64 = 1_000;

fn refusal(limit_ms: u64) -> Refused {
    let message = format!(
        "It was open for longer than the broker allows, which is {limit_ms} ms (limits.transactionMs); commit or roll back \
         sooner, or have the limit raised."
    );
    refuse(ErrorCode::LimitExceeded, "transaction_ms", message)
}

impl Engine {
    /// A transaction may have begun: makes sure that it is looked at in time.
    pub(super) fn watch_transactions(&mut self) {
        let limit_ms = u64::from(self.settings.limits.transaction_ms);
        if limit_ms > 0 {
            self.overdue_at_ms = self.overdue_at_ms.min(self.now.monotonic_ms + limit_ms);
        }
    }

    /// Rolls back what has been open for too long.
    pub(super) fn end_overdue(&mut self) {
        let now_ms = self.now.monotonic_ms;
        let limit_ms = u64::from(self.settings.limits.transaction_ms);
        let look_ms = now_ms + (limit_ms / LOOKS).clamp(1, LOOK_MS_MAX);
        if let Some((until_ms, _)) = self.catching_up {
            // The process stood still, and a commit may have come meanwhile.
            self.overdue_at_ms = until_ms.max(look_ms);
            return;
        }
        let (mut due, mut next_ms) = (Vec::new(), u64::MAX);
        for (&owner, session) in &self.sessions {
            for (number, since_ms) in session.transactions.running() {
                if since_ms + limit_ms <= now_ms {
                    due.push(Tx { owner, number });
                } else {
                    next_ms = next_ms.min(since_ms + limit_ms);
                }
            }
        }
        self.overdue_at_ms = next_ms.max(look_ms);
        if next_ms == u64::MAX {
            self.overdue_at_ms = u64::MAX;
        }
        due.sort_unstable_by_key(|tx| (tx.owner, tx.number));
        for tx in due {
            self.end_transaction(tx, &refusal(limit_ms));
        }
    }

    fn end_transaction(&mut self, tx: Tx, cause: &Refused) {
        let Some(session) = self.sessions.get_mut(&tx.owner) else {
            return;
        };
        let (stream, number) = (session.stream, session.number);
        let Some((failed, received)) = session.transactions.note_undone(tx.number, cause) else {
            return;
        };
        self.undo(tx.owner, tx);
        let received: Vec<_> = received.into_iter().collect();
        for group in received.chunk_by(|one, other| one.0 == other.0) {
            let ranges: Vec<_> = group.iter().map(|(_, sequence)| (*sequence, *sequence)).collect();
            if let Some((source, _)) = group.first() {
                let held = self.held_by_session(tx.owner, *source, &ranges);
                self.take_back_seen(tx.owner, *source, &held);
            }
        }
        // What of it still waits for room would be taken in for nothing.
        self.drop_held(tx.owner, tx.number);
        let ended = proto::TransactionEnded {
            transaction: tx.number,
            reason: Some(*rolled_back(&failed)),
        };
        self.send(stream, number, server_frame::Frame::TransactionEnded(ended));
    }

    /// What of these messages a session holds, in no transaction.
    fn held_by_session(&self, key: u64, source: SourceId, ranges: &[(u64, u64)]) -> Vec<u64> {
        self.state
            .in_flight_within(source, ranges, |holder| session_of(holder) == key)
    }

    /// Takes messages back from a session that does not know of it yet: where it acknowledges them it is to hear of that.
    fn take_back_seen(&mut self, key: u64, source: SourceId, held: &[u64]) {
        for sequence in held {
            self.give_back(key, source, *sequence, true);
        }
        if let Some(session) = self.sessions.get_mut(&key) {
            session.withdrawn.add(source, held.iter().copied());
        }
        self.mark_dirty(source);
    }

    /// Whether a transaction was rolled back because it was open for too long.
    pub(super) fn is_undone(&self, tx: Tx) -> bool {
        let session = self.sessions.get(&tx.owner);
        let open = session.and_then(|session| session.transactions.get(tx.number));
        open.is_some_and(|open| open.is_undone)
    }

    /// A client that has not heard yet that a transaction is rolled back says what it has received or acknowledged in it:
    /// that goes back, but for what went back then, which may have been sent to it again.
    pub(super) fn take_back_late(&mut self, tx: Tx, named: &[(SourceId, &[(u64, u64)])]) {
        for &(source, ranges) in named {
            let mut held = self.held_by_session(tx.owner, source, ranges);
            let session = self.sessions.get(&tx.owner);
            if let Some(open) = session.and_then(|session| session.transactions.get(tx.number)) {
                held.retain(|sequence| !open.received.contains(&(source, *sequence)));
            }
            self.take_back_seen(tx.owner, source, &held);
        }
    }

    /// A client says what its application was handed in a transaction, which is open from now on if it was not.
    pub(super) fn handed_out(&mut self, key: u64, frame: &proto::HandedOut) -> Handled {
        let Some(session) = self.sessions.get_mut(&key) else {
            return Ok(Outcome::Done);
        };
        if session.mode != AcknowledgeMode::Transacted || frame.transaction == 0 {
            let message = "Only a transacted session has transactions, and each has a number other than 0.";
            return Err(refuse(ErrorCode::NotAllowed, "transaction", message));
        }
        let tx = Tx {
            owner: key,
            number: frame.transaction,
        };
        let limits = &self.settings.limits;
        let (limit_of_all, limit) = (limits.transactions, u64::from(limits.transaction_messages));
        let now_ms = self.now.monotonic_ms;
        session.transactions.tells = true;
        session.transactions.begin(tx.number, limit_of_all, now_ms)?;
        self.watch_transactions();
        let seen = Seen::of(&frame.sets);
        let named: Vec<_> = seen.by_source().collect();
        if self.is_undone(tx) {
            self.take_back_late(tx, &named);
            return Ok(Outcome::Done);
        }
        for (source, ranges) in named {
            let held = self.held_by_session(key, source, ranges);
            if let Some(session) = self.sessions.get_mut(&key) {
                let open = session.transactions.begin(tx.number, limit_of_all, now_ms)?;
                if (open.received.len() + held.len()) as u64 > limit {
                    let what = "A transaction may not hold more messages";
                    let refused = over_limit("transaction_messages", limit, what);
                    session.transactions.doom(tx.number, limit_of_all, now_ms, &refused);
                    return Err(refused);
                }
                open.received
                    .extend(held.into_iter().map(|sequence| (source, sequence)));
            }
        }
        Ok(Outcome::Done)
    }
}
