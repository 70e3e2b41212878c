//! Open transactions: what they will add and take when they are committed.
//!
//! A transaction has a number of its own in the log, above all that the log names and above those of earlier epochs; the owner's number (a session and its client's number) or, once it is
//! prepared, its global name leads to it. Messages are logged as they come, with the transaction's number in their heads;
//! acknowledgements are logged when it is prepared or committed. A transaction that is not prepared ends with its epoch:
//! the next one begins without it, and no record is needed to say so.

use rustc_hash::FxHashMap;

use crate::log::Position;

use super::ids::{DestinationId, SourceId, Tx, Xid};
use super::queue::Entry;
use super::terminal_record::TerminalHead;

/// The holder of what a prepared transaction has acknowledged.
pub const PREPARED_HOLDER: u64 = u64::MAX;

/// A message that waits for its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PendingEntry {
    pub source: SourceId,
    pub priority: u8,
    pub entry: Entry,
    /// Monotonic deadline of its expiry; 0: none.
    pub expires_ms: u64,
    /// Monotonic end of its delay; 0: none.
    pub ready_ms: u64,
    /// The same by the wall clock.
    pub due_ms: u64,
    /// Where it was sent.
    pub destination: DestinationId,
}

/// One open transaction.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub epoch: u64,
    pub owner: Option<Tx>,
    pub xid: Option<Xid>,
    /// The record that prepared it.
    pub prepared: Option<Position>,
    pub prepared_ms: u64,
    pub entries: Vec<PendingEntry>,
    /// How many message records it has.
    pub messages: u64,
    /// Acknowledged in it, not logged yet.
    pub acknowledged: Vec<(SourceId, u64)>,
    /// Logged acknowledgements and where they are.
    pub terminals: Vec<(Position, TerminalHead)>,
    /// Something that was acknowledged in it was purged before, which may not be durable yet.
    pub follows_purge: bool,
    /// A message of it could not be placed: it can only be rolled back (EMS-TX-A02).
    pub failed: Option<String>,
}

impl Transaction {
    /// Whether deciding it would change nothing.
    pub fn is_empty(&self) -> bool {
        self.messages == 0 && self.entries.is_empty() && self.terminals.is_empty() && self.acknowledged.is_empty()
    }
}

/// All open transactions.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: FxHashMap<u64, Transaction>,
    owners: FxHashMap<Tx, u64>,
    xids: FxHashMap<Xid, u64>,
    /// The highest number that was given or that a record names.
    highest: u64,
    /// The epoch in which those that are named for the first time began.
    pub epoch: u64,
}

/// An epoch's numbers begin at its own times two to this; so many transactions may run over into the next one's, which
/// then begins above them.
const EPOCH_BITS: u32 = 32;

impl Transactions {
    /// The number of an owner's transaction, which begins if it is new.
    pub fn begin(&mut self, owner: Tx, epoch: u64) -> u64 {
        if let Some(id) = self.owners.get(&owner) {
            return *id;
        }
        let id = self.highest.max(epoch << EPOCH_BITS) + 1;
        self.highest = id;
        self.owners.insert(owner, id);
        self.open.insert(
            id,
            Transaction {
                epoch,
                owner: Some(owner),
                ..Transaction::default()
            },
        );
        id
    }

    /// The number of an owner's open transaction.
    pub fn of_owner(&self, owner: Tx) -> Option<u64> {
        self.owners.get(&owner).copied()
    }

    /// The number of a prepared transaction.
    pub fn of_xid(&self, xid: &Xid) -> Option<u64> {
        self.xids.get(xid).copied()
    }

    /// The global names of all prepared transactions, with when they were prepared.
    pub fn prepared(&self) -> Vec<(Xid, u64)> {
        let mut found: Vec<_> = self
            .xids
            .iter()
            .map(|(xid, id)| (xid.clone(), self.prepared_ms(*id)))
            .collect();
        found.sort_unstable();
        found
    }

    fn prepared_ms(&self, id: u64) -> u64 {
        self.open.get(&id).map_or(0, |transaction| transaction.prepared_ms)
    }

    /// An open transaction, made if a record is the first to name it.
    pub fn entry(&mut self, id: u64) -> &mut Transaction {
        self.note(id);
        let epoch = self.epoch;
        self.open.entry(id).or_insert_with(|| Transaction {
            epoch,
            ..Transaction::default()
        })
    }

    /// Never gives out a number that a record names.
    pub fn note(&mut self, id: u64) {
        self.highest = self.highest.max(id);
    }

    /// An open transaction.
    pub fn get(&self, id: u64) -> Option<&Transaction> {
        self.open.get(&id)
    }

    /// Notes that it is prepared: it has no owner any more and is found by its name.
    pub fn prepare(&mut self, id: u64, xid: Xid, record: Position, time_ms: u64) {
        let transaction = self.entry(id);
        transaction.prepared = Some(record);
        transaction.prepared_ms = time_ms;
        transaction.xid = Some(xid.clone());
        if let Some(owner) = transaction.owner.take() {
            self.owners.remove(&owner);
        }
        self.xids.insert(xid, id);
    }

    /// Takes it out: it is decided.
    pub fn remove(&mut self, id: u64) -> Option<Transaction> {
        let transaction = self.open.remove(&id)?;
        if let Some(owner) = transaction.owner {
            self.owners.remove(&owner);
        }
        if let Some(xid) = &transaction.xid {
            self.xids.remove(xid);
        }
        Some(transaction)
    }

    /// Those that sent anything to one of these sources (in order) can only be rolled back, unless they are prepared.
    pub fn fail_those_into(&mut self, sources: &[SourceId], why: &str) {
        if sources.is_empty() {
            return;
        }
        for open in self.open.values_mut().filter(|open| open.prepared.is_none()) {
            let mut sent = open.entries.iter();
            if sent.any(|pending| sources.binary_search(&pending.source).is_ok()) {
                open.failed.get_or_insert_with(|| why.to_owned());
            }
        }
    }

    /// Those of earlier epochs that were never prepared.
    pub fn abandoned(&self, epoch: u64) -> Vec<u64> {
        let mut found: Vec<u64> = self
            .open
            .iter()
            .filter(|(_, transaction)| transaction.prepared.is_none() && transaction.epoch < epoch)
            .map(|(id, _)| *id)
            .collect();
        found.sort_unstable();
        found
    }

    /// All open ones by number, sorted.
    pub fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.open.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}
