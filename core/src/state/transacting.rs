//! Deciding transactions. All of one takes effect, or nothing, also over a crash: what it sent and acknowledged is in the
//! log under its number, and one record decides.

use crate::log::{AppendError, Position, Purpose};

use super::catalogue_record::{Decision, TransactionHead, kinds};
use super::error::StateError;
use super::facade::State;
use super::ids::{DestinationId, SourceId, Tx, Xid};
use super::properties::OverflowPolicy;
use super::publishing::Durability;
use super::queue::EXPIRED;
use super::terminal_record::{Reason, TERMINAL_MESSAGES_MAX, TerminalHead};
use super::transaction::{PREPARED_HOLDER, Transaction};
use super::volatile::is_volatile;

/// A decided transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Committed {
    /// What the answer may say, once `wait_for` is committed.
    pub durability: Durability,
    /// The answer waits until [`State::committed`] is above this.
    pub wait_for: Option<Position>,
}

impl State {
    /// How many messages an open transaction has sent and acknowledged.
    #[must_use]
    pub fn transaction_size(&self, tx: Tx) -> u64 {
        let id = self.tables.transactions.of_owner(tx);
        id.and_then(|id| self.tables.transactions.get(id))
            .map_or(0, |transaction| {
                (transaction.entries.len() + transaction.acknowledged.len()) as u64
            })
    }

    /// Commits in one phase: everything sent and acknowledged in it takes effect, bridged copies included.
    ///
    /// # Errors
    /// There is none, or a message of it could not be taken in ([`StateError::RolledBack`]: nothing of it takes effect),
    /// or the log takes no record (it is still open then).
    pub fn commit(&mut self, tx: Tx) -> Result<Committed, StateError> {
        let id = self
            .tables
            .transactions
            .of_owner(tx)
            .ok_or(StateError::NoSuchTransaction)?;
        self.end_if_failed(id)?;
        self.check_decision(id, Decision::Committed, None)?;
        self.log_acknowledgements(id)?;
        self.commit_logged(id)
    }

    /// Rolls a transaction back that can only be rolled back: a message of it could not be taken in, or is due by now and finds
    /// no room.
    fn end_if_failed(&mut self, id: u64) -> Result<(), StateError> {
        let failed = self.tables.transactions.get(id).and_then(|open| open.failed.clone());
        let failed = failed.or_else(|| self.due_without_room(id).map(|error| error.to_string()));
        let Some(why) = failed else { return Ok(()) };
        self.roll_back(id)?;
        Err(StateError::RolledBack(why))
    }

    /// Whether there is room for all that a decision logs: the acknowledgements, itself, and what is discarded for the messages
    /// that come in. After its first record nothing of it may fail.
    fn check_decision(&mut self, id: u64, decision: Decision, xid: Option<Xid>) -> Result<(), AppendError> {
        let acknowledged = self.acknowledged_by_source(id);
        self.head_buffer.clear();
        let head = TransactionHead {
            transaction: id,
            decision,
            xid,
            time_ms: self.tables.now.wall_ms,
        };
        head.encode(&mut self.head_buffer)?;
        let mut others = vec![self.head_buffer.len() as u64];
        if decision == Decision::Committed {
            for (source, destination) in self.discarding_sources(id) {
                put_lengths_max(self.discards_at_most(id, source, destination), &mut others);
            }
        }
        // Mostly there is room enough without the reserve, and how much it is exactly need not be known.
        let mut roughly = Vec::new();
        for (_, sequences) in &acknowledged {
            put_lengths_max(sequences.len() as u64, &mut roughly);
        }
        // In the order in which they are appended, as what fits depends on it; and for their own purpose, too, which leaves
        // alone what is kept for upkeep: where no reserve is prepared yet, others know nothing of that.
        roughly.extend(&others);
        if [Purpose::Fill, Purpose::Drain]
            .into_iter()
            .all(|purpose| self.log.check_room(&roughly, purpose).is_ok())
        {
            return Ok(());
        }
        let mut lengths = Vec::new();
        for (source, sequences) in acknowledged {
            let (heads, _) = self.acknowledging_heads(source, &sequences, id);
            self.add_lengths(&heads, &mut lengths)?;
        }
        lengths.append(&mut others);
        self.log.check_room(&lengths, Purpose::Drain)
    }

    /// How many messages a source discards at most when a transaction's come in.
    fn discards_at_most(&self, id: u64, source: SourceId, destination: DestinationId) -> u64 {
        let (Some(open), Some(source), Some(destination)) = (
            self.tables.transactions.get(id),
            self.tables.sources.get(&source),
            self.tables.catalogue.destination(destination),
        ) else {
            return 0;
        };
        let totals = &source.statistics;
        let coming = open.entries.iter().filter(|pending| pending.source == source.id);
        let (count, bytes) = coming.fold((0, 0), |(count, bytes), pending| {
            (count + 1, bytes + u64::from(pending.entry.bytes))
        });
        let over = |max: u64, now: u64| if max > 0 { now.saturating_sub(max) } else { 0 };
        let properties = &destination.properties;
        let (counted, counted_bytes) = totals.counted();
        let over_messages = over(properties.messages_max, counted + count);
        let over_bytes = over(properties.bytes_max, counted_bytes + bytes);
        // Those that wait go first, then what comes in.
        let (mut discarded, mut freed) = (0, 0);
        let mut waiting = source.queue.waiting_by_age();
        while discarded < over_messages || freed < over_bytes {
            let Some(bytes) = waiting.next() else {
                return discarded + count;
            };
            discarded += 1;
            freed += u64::from(bytes);
        }
        discarded + count
    }

    /// What a transaction acknowledged, by source, each in order.
    fn acknowledged_by_source(&self, id: u64) -> Vec<(SourceId, Vec<u64>)> {
        let mut acknowledged = match self.tables.transactions.get(id) {
            Some(open) => open.acknowledged.clone(),
            None => return Vec::new(),
        };
        acknowledged.sort_unstable();
        acknowledged
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|group| {
                let (source, _) = group.first()?;
                Some((*source, group.iter().map(|(_, sequence)| *sequence).collect()))
            })
            .collect()
    }

    fn commit_logged(&mut self, id: u64) -> Result<Committed, StateError> {
        let Some(open) = self.tables.transactions.get(id) else {
            return Err(StateError::NoSuchTransaction);
        };
        let has_records = open.messages > 0 || !open.terminals.is_empty() || open.prepared.is_some();
        // What it acknowledged and somebody else has ended, by a purge or with its queue, is ended when that is durable, and
        // no sooner: without a record of its own, what it sent would be there before.
        let needs_record = has_records || open.follows_purge || self.is_ended_otherwise(&open.acknowledged);
        let unlogged = open.acknowledged.clone();
        let touched = self.discarding_sources(id);
        let mut entries = open.entries.iter();
        let is_due = entries.any(|pending| {
            pending.due_ms > 0 && !is_volatile(pending.entry.position) && self.tables.was_due(pending, 0)
        });
        let mut discards = Vec::new();
        for (source, destination) in &touched {
            put_lengths_max(self.discards_at_most(id, *source, *destination), &mut discards);
        }
        let position = if needs_record {
            self.append_decision(id, Decision::Committed, None)?
        } else {
            Position::ZERO
        };
        self.witness
            .decide(id, true, |source| self.tables.sources.contains_key(&source));
        let time_ms = self.tables.now.wall_ms;
        self.tables.apply_commit(&mut self.log, position, id, time_ms);
        // What no record names is done with as well; it was left out of the terminal records.
        for (source, sequence) in unlogged {
            if self.tables.remove_unlogged(&mut self.log, source, sequence)
                && let Some(source) = self.tables.sources.get_mut(&source)
            {
                source.statistics.acknowledged_total += 1;
            }
        }
        // What came in only now may have expired before, or be due since it was prepared. What that ends leaves the room that
        // `check_decision` found for the rest.
        self.promised = discards;
        let due = self.tables.timers.next_deadline_ms();
        if due.is_some_and(|due_ms| due_ms <= self.tables.now.monotonic_ms) {
            self.run_timers();
        }
        self.promised.clear();
        for (source, destination) in touched {
            // There is room for it, by `check_decision`. Should the log be finished, it says so to everybody who waits.
            let _ = self.make_room(source, destination, 0);
        }
        if is_due {
            self.log_due();
        }
        Ok(if needs_record {
            Committed {
                durability: Durability::Durable,
                wait_for: Some(position),
            }
        } else {
            Committed {
                durability: Durability::Accepted,
                wait_for: None,
            }
        })
    }

    /// Whether something that was acknowledged, and that records tell of, is gone without this transaction.
    fn is_ended_otherwise(&self, acknowledged: &[(SourceId, u64)]) -> bool {
        acknowledged.iter().any(|(id, sequence)| {
            let source = self.tables.sources.get(id);
            source.is_none_or(|source| source.logged && source.queue.flight(*sequence).is_none())
        })
    }

    /// Sources that may have to discard when this transaction's messages come in.
    fn discarding_sources(&self, id: u64) -> Vec<(SourceId, DestinationId)> {
        let Some(open) = self.tables.transactions.get(id) else {
            return Vec::new();
        };
        let mut found: Vec<(SourceId, DestinationId)> = open
            .entries
            .iter()
            .filter_map(|pending| {
                let destination = self.tables.catalogue.destination(pending.destination)?;
                let discards = destination.properties.overflow == OverflowPolicy::DiscardOld;
                discards.then_some((pending.source, destination.id))
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Logs a transaction's acknowledgements under its number; those that no record can name stay with it in memory.
    fn log_acknowledgements(&mut self, id: u64) -> Result<(), AppendError> {
        // All stay noted: a rollback gives back what is still in flight, a commit finds the logged ones gone.
        for (source, sequences) in self.acknowledged_by_source(id) {
            self.end_flights(source, &sequences, id).stopped.map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    fn append_decision(&mut self, id: u64, decision: Decision, xid: Option<Xid>) -> Result<Position, AppendError> {
        let head = TransactionHead {
            transaction: id,
            decision,
            xid,
            time_ms: self.tables.now.wall_ms,
        };
        self.head_buffer.clear();
        head.encode(&mut self.head_buffer)?;
        self.append_event(kinds::TRANSACTION)
    }

    /// Rolls back: nothing of it takes effect. What it acknowledged is again unacknowledged, with its holders, who release
    /// it as their session says.
    ///
    /// # Errors
    /// There is none, or the log takes no record of it.
    pub fn rollback(&mut self, tx: Tx) -> Result<(), StateError> {
        let id = self
            .tables
            .transactions
            .of_owner(tx)
            .ok_or(StateError::NoSuchTransaction)?;
        self.roll_back(id)
    }

    fn roll_back(&mut self, id: u64) -> Result<(), StateError> {
        let Some(open) = self.tables.transactions.get(id) else {
            return Err(StateError::NoSuchTransaction);
        };
        // Without its record it would be rolled back by the next start all the same, unless it is prepared.
        let needs_record = open.messages > 0 || !open.terminals.is_empty() || open.prepared.is_some();
        let position = if needs_record {
            self.append_decision(id, Decision::RolledBack, None)?
        } else {
            Position::ZERO
        };
        self.witness.decide(id, false, |_| false);
        for (source, priority, entry) in self.tables.apply_rollback(&mut self.log, position, id) {
            let maximum = self
                .tables
                .sources
                .get(&source)
                .map_or(0, |source| self.tables.redelivery_max(source));
            if maximum > 0 && entry.count >= maximum && !entry.is(EXPIRED) {
                // Without room for its record it stays where it is, and is put aside at its next return.
                let _ = self.put_aside(source, priority, &entry, Reason::MaxRedelivery);
            } else if !entry.is(EXPIRED) {
                self.hold_back(source, &entry, 0);
            }
        }
        Ok(())
    }

    /// First phase: the transaction outlives its session, and a restart, and waits for its coordinator under `xid`. Deliveries
    /// acknowledged in it leave their holders. `None`: it held nothing, so it is over, and nothing waits for a decision.
    ///
    /// # Errors
    /// The name is taken, a message of it could not be taken in, or the log takes no record.
    pub fn prepare(&mut self, tx: Tx, xid: Xid) -> Result<Option<Committed>, StateError> {
        if self.tables.transactions.of_xid(&xid).is_some() {
            return Err(StateError::TransactionExists);
        }
        let Some(id) = self.tables.transactions.of_owner(tx) else {
            return Ok(None);
        };
        self.end_if_failed(id)?;
        if self.tables.transactions.get(id).is_none_or(Transaction::is_empty) {
            self.tables.transactions.remove(id);
            return Ok(None);
        }
        self.check_decision(id, Decision::Prepared, Some(xid.clone()))?;
        self.log_acknowledgements(id)?;
        let position = self.append_decision(id, Decision::Prepared, Some(xid.clone()))?;
        for (source, sequence) in self
            .tables
            .transactions
            .get(id)
            .map(|open| open.acknowledged.clone())
            .unwrap_or_default()
        {
            let flight = self
                .tables
                .sources
                .get_mut(&source)
                .and_then(|source| source.queue.flight_mut(sequence));
            if let Some(flight) = flight {
                flight.holder = PREPARED_HOLDER;
            }
        }
        let time_ms = self.tables.now.wall_ms;
        self.tables.apply_prepare(&mut self.log, position, id, xid, time_ms);
        Ok(Some(Committed {
            durability: Durability::Durable,
            wait_for: Some(position),
        }))
    }

    /// Second phase.
    ///
    /// # Errors
    /// There is none of this name, or the log takes no record.
    pub fn commit_prepared(&mut self, xid: &Xid) -> Result<Committed, StateError> {
        let id = self
            .tables
            .transactions
            .of_xid(xid)
            .ok_or(StateError::NoSuchTransaction)?;
        self.check_decision(id, Decision::Committed, None)?;
        self.commit_logged(id)
    }

    /// Second phase, the other way: what it acknowledged goes back to its sources, flagged.
    ///
    /// # Errors
    /// There is none of this name, or the log takes no record.
    pub fn rollback_prepared(&mut self, xid: &Xid) -> Result<(), StateError> {
        let id = self
            .tables
            .transactions
            .of_xid(xid)
            .ok_or(StateError::NoSuchTransaction)?;
        self.roll_back(id)
    }

    /// Names of prepared transactions that wait for their coordinators, with when they were prepared.
    #[must_use]
    pub fn prepared(&self) -> Vec<(Xid, u64)> {
        self.tables.transactions.prepared()
    }
}

/// What the heads of terminal records for so many messages take at most.
fn put_lengths_max(mut messages: u64, lengths: &mut Vec<u64>) {
    while messages > 0 {
        let ended = messages.min(TERMINAL_MESSAGES_MAX as u64);
        lengths.push(TerminalHead::bytes_max(ended));
        messages -= ended;
    }
}
