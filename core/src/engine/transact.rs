//! Transactions: commit, rollback, and the two-phase verbs.
//!
//! A transaction begins with the first frame that names it. A message of it that was refused dooms it: commit then rolls
//! it back and says so, because nothing of a transaction arrives unless all of it does (EMS-TX-A02). What was
//! acknowledged in it comes back to the session at a rollback, and goes back to its source with what else the session
//! holds, flagged as seen where the client says so.

use super::engine::Engine;
use super::errors::{Refused, of_state, refuse};
use super::intake::{Handled, Outcome};
use super::seen::Seen;
use super::session::session_of;
use crate::log::AppendError;
use crate::proto::reply::Result as Answered;
use crate::proto::transact::Verb;
use crate::proto::{self, AcknowledgeMode, Durability, ErrorCode, Transact};
use crate::state::{Committed, SourceId, StateError, Tx, XID_PART_BYTES_MAX, Xid};

impl Engine {
    pub(super) fn transact(&mut self, key: u64, frame: &Transact) -> Handled {
        let Some(session) = self.sessions.get(&key) else {
            return Ok(Outcome::Done);
        };
        if session.mode != AcknowledgeMode::Transacted {
            return Err(refuse(
                ErrorCode::NotAllowed,
                "transact",
                "Only a transacted session has transactions.",
            ));
        }
        let verb = Verb::try_from(frame.verb).unwrap_or(Verb::Unspecified);
        if frame.transaction == 0 && matches!(verb, Verb::Commit | Verb::Rollback | Verb::Prepare) {
            let message = "A transaction has a number other than 0.";
            return Err(refuse(ErrorCode::InvalidArgument, "transaction", message));
        }
        let tx = Tx {
            owner: key,
            number: frame.transaction,
        };
        let waits = session.transactions.has_undone();
        let handled = match verb {
            Verb::Unspecified => Err(refuse(
                ErrorCode::InvalidArgument,
                "verb",
                "There is no verb of this number.",
            )),
            Verb::Commit => self.commit(key, tx),
            Verb::Rollback => self.roll_back(key, tx, frame),
            Verb::Prepare => self.prepare(key, tx, frame),
            Verb::CommitPrepared => {
                let xid = xid(frame)?;
                let committed = self.state.commit_prepared(&xid).map_err(|error| of_state(&error))?;
                Ok(transacted(0, Some(committed), false))
            }
            Verb::RollbackPrepared => {
                let xid = xid(frame)?;
                self.state.rollback_prepared(&xid).map_err(|error| of_state(&error))?;
                Ok(transacted(0, None, true))
            }
        };
        if waits {
            // It knows now that one was undone, and is handed messages again.
            self.wake_session(key);
        }
        handled
    }

    fn commit(&mut self, key: u64, tx: Tx) -> Handled {
        let begun = self
            .sessions
            .get_mut(&key)
            .and_then(|session| session.transactions.end(tx.number));
        let Some(begun) = begun else {
            // Nothing was sent or acknowledged in it.
            return Ok(transacted(tx.number, None, false));
        };
        if let Some(cause) = begun.failed {
            self.undo(key, tx);
            return Err(rolled_back(&cause));
        }
        let acknowledged = self.state.acknowledged_in(tx);
        match self.state.commit(tx) {
            Err(StateError::NoSuchTransaction) => Ok(transacted(tx.number, None, false)),
            Ok(committed) => Ok(transacted(tx.number, Some(committed), false)),
            Err(error) => Err(self.undo_instead(key, tx, acknowledged, &error)),
        }
    }

    /// Rolls back what could be neither committed nor prepared; what its client is told.
    fn undo_instead(&mut self, key: u64, tx: Tx, acknowledged: Vec<(SourceId, u64)>, error: &StateError) -> Refused {
        let cause = of_state(error);
        self.undo(key, tx);
        if !self.undoing.contains(&tx) {
            self.return_acknowledged(key, acknowledged);
        }
        rolled_back(&cause)
    }

    fn roll_back(&mut self, key: u64, tx: Tx, frame: &Transact) -> Handled {
        if self
            .sessions
            .get_mut(&key)
            .and_then(|session| session.transactions.end(tx.number))
            .is_some()
        {
            self.undo(key, tx);
        }
        self.give_all_back(key, Some(&Seen::of(&frame.seen)));
        Ok(transacted(tx.number, None, true))
    }

    /// Rolls one transaction back. What was acknowledged in it was seen, and goes back to its source as such.
    pub(super) fn undo(&mut self, key: u64, tx: Tx) {
        let acknowledged = self.state.acknowledged_in(tx);
        // It may have been rolled back before, or the log takes nothing more and the next start undoes it: either way
        // nothing of the transaction has happened.
        match self.state.rollback(tx) {
            Ok(()) => self.return_acknowledged(key, acknowledged),
            Err(StateError::Append(AppendError::NoSpace)) => self.undoing.push(tx),
            Err(_) => {}
        }
    }

    /// Rolls back what could not be for want of room, or what was acknowledged in it would come back at a restart only.
    pub(super) fn resume_undoing(&mut self) {
        for tx in std::mem::take(&mut self.undoing) {
            self.undo(tx.owner, tx);
        }
    }

    fn return_acknowledged(&mut self, key: u64, acknowledged: Vec<(SourceId, u64)>) {
        for (source, sequence) in acknowledged {
            if !self
                .state
                .in_flight_within(source, &[(sequence, sequence)], |holder| session_of(holder) == key)
                .is_empty()
            {
                self.state.release(source, sequence, true);
            }
            self.mark_dirty(source);
        }
    }

    /// Rolls back all that a session has begun, because it ends.
    pub(super) fn roll_back_all(&mut self, key: u64) {
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        for number in session.transactions.end_all() {
            self.undo(key, Tx { owner: key, number });
        }
    }

    fn prepare(&mut self, key: u64, tx: Tx, frame: &Transact) -> Handled {
        let xid = xid(frame)?;
        let begun = self
            .sessions
            .get_mut(&key)
            .and_then(|session| session.transactions.end(tx.number))
            .unwrap_or_default();
        if let Some(cause) = begun.failed {
            self.undo(key, tx);
            return Err(rolled_back(&cause));
        }
        let acknowledged = self.state.acknowledged_in(tx);
        match self.state.prepare(tx, xid) {
            Ok(Some(prepared)) => Ok(transacted(tx.number, Some(prepared), false)),
            Ok(None) => Ok(Outcome::AnswerCommitted(Answered::Transacted(proto::Transacted {
                transaction: tx.number,
                durability: Durability::Accepted.into(),
                read_only: true,
                ..proto::Transacted::default()
            }))),
            Err(error @ StateError::TransactionExists) => {
                // Nothing has changed: it goes on, and may be prepared under another name.
                if let Some(session) = self.sessions.get_mut(&key) {
                    session.transactions.go_on(tx.number, begun);
                }
                Err(of_state(&error))
            }
            Err(error) => Err(self.undo_instead(key, tx, acknowledged, &error)),
        }
    }
}

/// What a client is told whose transaction was rolled back for this.
pub(super) fn rolled_back(cause: &Refused) -> Refused {
    let message = format!("The transaction was rolled back: {}", cause.message);
    refuse(ErrorCode::TransactionRolledBack, cause.subject.clone(), message)
}

fn transacted(transaction: u64, committed: Option<Committed>, rolled_back: bool) -> Outcome {
    let durability = committed.map_or(Durability::Accepted, |committed| {
        super::confirms::durability(committed.durability)
    });
    let answer = proto::Transacted {
        transaction,
        durability: durability.into(),
        rolled_back,
        ..proto::Transacted::default()
    };
    Outcome::AnswerCommitted(Answered::Transacted(answer))
}

fn xid(frame: &Transact) -> Result<Xid, Refused> {
    let Some(xid) = &frame.xid else {
        return Err(refuse(ErrorCode::InvalidArgument, "xid", "This verb needs an xid."));
    };
    if xid.global.is_empty() || xid.global.len() > XID_PART_BYTES_MAX || xid.branch.len() > XID_PART_BYTES_MAX {
        let message =
            format!("The parts of an xid have at most {XID_PART_BYTES_MAX} bytes, the global one at least 1.");
        return Err(refuse(ErrorCode::InvalidArgument, "xid", message));
    }
    Ok(Xid {
        format: xid.format,
        global: xid.global.clone(),
        branch: xid.branch.clone(),
    })
}
