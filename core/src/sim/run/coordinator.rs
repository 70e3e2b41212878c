//! The coordinator of prepared transactions: decides each once, and asks for that until it is heard to be durable.
//!
//! It stands beside the clients and speaks to the state itself, because a prepared transaction belongs to no session.

use super::broker::World;
use super::env::Prepared;
use crate::log::AppendError;
use crate::sim::history::Event;
use crate::state::{StateError, Xid};

impl World {
    /// Decides one of the transactions that are prepared. Whether there was one, and room for it.
    pub fn coordinate(&mut self) -> bool {
        let Some(host) = &mut self.machine.host else {
            return false;
        };
        if self.env.prepared.is_empty() {
            return false;
        }
        let index = self.env.random.below(self.env.prepared.len() as u64) as usize;
        let mut one = self.env.prepared.swap_remove(index);
        let asked_before = one.decision.is_some();
        let commits = one.decision.unwrap_or_else(|| !self.env.random.one_in(3));
        one.decision = Some(commits);
        if !asked_before {
            if commits {
                self.env.commit_sent(one.tx);
            } else {
                self.env.note(Event::RolledBack(one.tx));
            }
        }
        let xid = Xid {
            format: 1,
            global: one.tx.0.to_le_bytes().to_vec(),
            branch: Vec::new(),
        };
        let state = host.engine_mut().state_mut();
        let result = if commits {
            state.commit_prepared(&xid).map(|_| ())
        } else {
            state.rollback_prepared(&xid)
        };
        let end = state.end();
        self.env.tell(|| format!("{one:?} is decided: {result:?}"));
        match result {
            Ok(()) => {
                self.machine.touched = true;
                self.deciding.push((one, end));
            }
            // Decided before, or never prepared: what the clients saw tells which.
            Err(StateError::NoSuchTransaction) if commits && one.heard => self.env.note(Event::Committed(one.tx)),
            Err(StateError::NoSuchTransaction) if commits && !asked_before => self.env.note(Event::RolledBack(one.tx)),
            Err(StateError::NoSuchTransaction) => {}
            Err(StateError::Append(AppendError::NoSpace)) => {
                // It is asked again; room comes of something else.
                self.env.prepared.push(one);
                return false;
            }
            Err(error) => {
                self.env.tell(|| format!("the log is finished: {error}"));
                self.env.prepared.push(one);
            }
        }
        true
    }

    /// Notes decisions that have become durable.
    pub fn settle_decisions(&mut self) {
        let Some(host) = &self.machine.host else { return };
        let committed = host.engine().state().committed();
        let (durable, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deciding)
            .into_iter()
            .partition(|(_, end)| committed >= *end);
        self.deciding = waiting;
        for (one, _) in durable {
            if one.decision == Some(true) {
                self.env.note(Event::Committed(one.tx));
            }
        }
    }

    /// The broker stopped: what was not heard to be durable is asked for again.
    pub fn forget_decisions(&mut self) {
        let lost: Vec<Prepared> = self.deciding.drain(..).map(|(one, _)| one).collect();
        self.env.prepared.extend(lost);
    }
}
