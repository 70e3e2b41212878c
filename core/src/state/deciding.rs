//! What a transaction's decision does to the tables: the part of `apply` that is about all or nothing.

use crate::log::Position;

use super::catalogue_record::{Decision, TransactionHead};
use super::ids::{SourceId, Xid};
use super::planted::Fault;
use super::queue::{DELAYED, EXPIRED, Entry, GATED};
use super::tables::{Decided, Gate, Liveness, Tables};
use super::timers::{Timer, TimerKind};
use super::transaction::{PREPARED_HOLDER, PendingEntry, Transaction};
use super::volatile::is_volatile;

impl Tables {
    pub fn apply_transaction(&mut self, liveness: &mut impl Liveness, position: Position, head: TransactionHead) {
        self.transactions.note(head.transaction);
        match (head.decision, head.xid) {
            (Decision::Committed, _) => {
                self.apply_commit(liveness, position, head.transaction, head.time_ms);
            }
            (Decision::RolledBack, _) => {
                self.apply_rollback(liveness, position, head.transaction);
            }
            (Decision::Prepared, xid) => {
                self.apply_prepare(
                    liveness,
                    position,
                    head.transaction,
                    xid.unwrap_or_default(),
                    head.time_ms,
                );
            }
        }
    }

    /// A transaction outlives its session from now on. Its record must be there for as long as what it covers: without
    /// it, the next epoch would end the transaction.
    pub fn apply_prepare(&mut self, liveness: &mut impl Liveness, position: Position, id: u64, xid: Xid, time_ms: u64) {
        liveness.hold(position);
        self.transactions.entry(id).outlived_by(liveness, position);
        self.end_delays_of(id, time_ms);
        self.transactions.prepare(id, xid, position, time_ms);
    }

    /// All of a transaction takes effect. What it sent is ready when the commit is durable.
    pub fn apply_commit(&mut self, liveness: &mut impl Liveness, position: Position, id: u64, time_ms: u64) {
        let Some(mut transaction) = self.transactions.remove(id) else {
            return;
        };
        transaction
            .entries
            .sort_by_key(|pending| (pending.source, pending.priority, pending.entry.sequence));
        if position != Position::ZERO {
            transaction.outlived_by(liveness, position);
        }
        if let Some(prepared) = transaction.prepared {
            // A rewrite that kept what was undecided has let go of what depended on it: the record that prepared it is
            // needed for as long as before, or a commit of a later epoch would find nothing.
            transaction.outlived_by(liveness, prepared);
        }
        let gated = self.live && position != Position::ZERO;
        let mut gate = Gate {
            position,
            entries: Vec::new(),
        };
        let mut run = Vec::new();
        for group in transaction
            .entries
            .chunk_by(|a, b| (a.source, a.priority) == (b.source, b.priority))
        {
            let Some(first) = group.first() else { continue };
            run.clear();
            for pending in group {
                let mut pending = *pending;
                self.forget_pending(&pending);
                let entry = pending.entry;
                let victim = || format!("{} {} {}", pending.source.0, entry.sequence, entry.position.0);
                if self.live && self.planted.strikes(Fault::LoseInCommit, victim) {
                    continue;
                }
                if !self.sources.contains_key(&pending.source) {
                    // Deleted while the transaction was open.
                    self.release(liveness, pending.entry.position);
                    continue;
                }
                if gated {
                    pending.entry.flags |= GATED;
                    gate.entries
                        .push((pending.source, pending.priority, pending.entry.sequence));
                }
                // Its delay may be over by now, and whoever commits has seen to it that there is room. What fell due when it was
                // prepared already meets the limits like what falls due in its queue.
                if pending.entry.is(DELAYED) && transaction.prepared.is_none() && self.was_due(&pending, time_ms) {
                    pending.entry.flags &= !DELAYED;
                }
                run.push(pending.entry);
                self.note_added(&pending);
            }
            if let Some(source) = self.sources.get_mut(&first.source) {
                source.queue.merge(first.priority, &run);
                // They may stand behind where consumers have looked already. What is gated, too: nothing may overtake it.
                run.iter()
                    .for_each(|entry| source.note_return(first.priority, entry.sequence));
            }
        }
        if !gate.entries.is_empty() {
            self.gates.push_back(gate);
        }
        self.note_decided(liveness, &transaction, position, Decision::Committed);
        for (record, terminal) in &transaction.terminals {
            // Only now it ends anything, and must outlive it, whatever was rewritten before.
            terminal
                .targets
                .iter()
                .for_each(|target| liveness.depend(*record, *target));
            self.end_references(liveness, terminal);
            liveness.release(*record);
        }
        self.end_transaction(liveness, &transaction);
    }

    /// None of a transaction takes effect. What it acknowledged is again in its holders' hands, or back in its place if it
    /// was prepared and has none: these are returned, each with its priority. `position`: of the record that says so;
    /// [`Position::ZERO`] if it ends with its epoch.
    pub fn apply_rollback(
        &mut self,
        liveness: &mut impl Liveness,
        position: Position,
        id: u64,
    ) -> Vec<(SourceId, u8, Entry)> {
        let Some(transaction) = self.transactions.remove(id) else {
            return Vec::new();
        };
        if position != Position::ZERO {
            // A start would end it all the same; a standby that reads this epoch later has to be told.
            transaction.outlived_by(liveness, position);
        }
        self.note_decided(liveness, &transaction, position, Decision::RolledBack);
        let mut returned = Vec::new();
        for pending in &transaction.entries {
            self.forget_pending(pending);
            let entry = pending.entry;
            let victim = || format!("{} {} {}", pending.source.0, entry.sequence, entry.position.0);
            if self.live && self.planted.strikes(Fault::KeepInRollback, victim) {
                self.add_entry(pending);
                continue;
            }
            self.release(liveness, pending.entry.position);
        }
        let logged = transaction.terminals.iter().flat_map(|(_, head)| {
            head.ranges
                .iter()
                .flat_map(|(first, last)| (*first..=*last).map(|sequence| (head.source, sequence)))
        });
        for (id, sequence) in logged.chain(transaction.acknowledged.iter().copied()) {
            returned.extend(
                self.unlock_reference(id, sequence)
                    .map(|(priority, entry)| (id, priority, entry)),
            );
        }
        for (record, _) in &transaction.terminals {
            liveness.release(*record);
        }
        self.end_transaction(liveness, &transaction);
        returned
    }

    /// The record that prepared a transaction goes before the one that decides it, or a restart would find it undecided. And
    /// while it is on disk a rewrite has to know what was decided.
    fn note_decided(
        &mut self,
        liveness: &mut impl Liveness,
        transaction: &Transaction,
        position: Position,
        decision: Decision,
    ) {
        if let Some(prepared) = transaction.prepared {
            liveness.depend(position, prepared);
            self.decided.insert(prepared, Decided { position, decision });
        }
    }

    fn end_transaction(&mut self, liveness: &mut impl Liveness, transaction: &Transaction) {
        if let Some(record) = transaction.prepared {
            liveness.release(record);
        }
    }

    /// Gives back what was acknowledged and has no holder any more.
    fn unlock_reference(&mut self, id: SourceId, sequence: u64) -> Option<(u8, Entry)> {
        let source = self.sources.get_mut(&id)?;
        let flight = source.queue.flight_mut(sequence)?;
        flight.transaction = 0;
        if flight.holder != PREPARED_HOLDER {
            return None;
        }
        let (priority, entry) = source.queue.give_back(sequence)?;
        // Whoever acknowledged it had been handed it.
        entry.count = entry.count.saturating_add(1);
        let entry = *entry;
        if entry.is(EXPIRED) {
            // Its time was up meanwhile: it goes at the next tick.
            let now_ms = self.now.monotonic_ms.max(1);
            self.timers
                .add(Timer::new(now_ms, id, priority, sequence, TimerKind::Expiry));
        }
        source.statistics.in_flight_messages -= 1;
        source.statistics.in_flight_bytes -= u64::from(entry.bytes);
        source.note_return(priority, sequence);
        self.mark_dirty(id);
        Some((priority, entry))
    }

    fn forget_pending(&mut self, pending: &PendingEntry) {
        if let Some(source) = self.sources.get_mut(&pending.source) {
            source.statistics.pending_messages -= 1;
            source.statistics.pending_bytes -= u64::from(pending.entry.bytes);
        }
    }
}

impl Transaction {
    /// A record about it must be there for as long as what it sent and took, and what says that it took it.
    fn outlived_by(&self, liveness: &mut impl Liveness, record: Position) {
        let sent = self.entries.iter().map(|pending| pending.entry.position);
        let taken = self
            .terminals
            .iter()
            .flat_map(|(end, head)| std::iter::once(*end).chain(head.targets.iter().copied()));
        for target in sent.filter(|sent| !is_volatile(*sent)).chain(taken) {
            liveness.depend(record, target);
        }
    }
}
