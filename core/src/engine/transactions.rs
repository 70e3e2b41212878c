//! The transactions that a session has begun and not ended, as many as its limit allows.
//!
//! A transaction begins with the first frame that names it, so a client that never ends any could have the broker
//! remember numbers without end. Past the limit a number is refused and not remembered. From then on a number that is
//! not known here counts as one of those, because nothing of a transaction may arrive when a part of it was refused
//! (EMS-TX-A02): its commit answers that it was rolled back.

use super::errors::{Refused, over_limit};
use crate::state::SourceId;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::iter::Sum;

/// Messages that wait for their transaction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// How many.
    pub messages: u64,
    /// Their bytes, uploaded bodies included.
    pub bytes: u64,
}

impl Sum for Sent {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            messages: sum.messages + one.messages,
            bytes: sum.bytes + one.bytes,
        })
    }
}

/// A transaction that has not ended.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Messages sent and acknowledged in it.
    pub messages: u64,
    /// Messages sent in it and taken in, with their bytes.
    pub sent: Sent,
    /// Why it cannot be committed any more.
    pub failed: Option<Refused>,
    /// When the first frame came that names it; monotonic milliseconds.
    pub since_ms: u64,
    /// Something was sent or acknowledged in it, or was to be.
    pub takes_part: bool,
    /// It was open for too long, and is rolled back already; only its end is still to be answered.
    pub is_undone: bool,
    /// What its client says that the application was handed in it, and neither acknowledged nor gave back before.
    pub received: BTreeSet<(SourceId, u64)>,
}

/// What one session has begun, by the client's numbers.
#[derive(Debug, Default)]
pub struct Transactions {
    open: FxHashMap<u64, Transaction>,
    overflow: Option<Refused>,
    /// How many of those that are open are undone.
    undone: u32,
    /// Its client has said what the application was handed, and so knows that transactions may be undone.
    pub tells: bool,
}

impl Transactions {
    /// The transaction of this number, in which something is sent or acknowledged; it begins here if it has not yet.
    ///
    /// # Errors
    /// As many as `limit` are open.
    pub fn enter(&mut self, number: u64, limit: u32, now_ms: u64) -> Result<&mut Transaction, Refused> {
        let transaction = self.begin(number, limit, now_ms)?;
        transaction.takes_part = true;
        Ok(transaction)
    }

    /// The transaction of this number, which begins here if it has not yet.
    ///
    /// # Errors
    /// As many as `limit` are open.
    pub fn begin(&mut self, number: u64, limit: u32, now_ms: u64) -> Result<&mut Transaction, Refused> {
        if self.open.len() >= limit as usize && !self.open.contains_key(&number) {
            let refused = over_limit(
                "transactions",
                u64::from(limit),
                "A session may not have more transactions open",
            );
            self.overflow = Some(refused.clone());
            return Err(refused);
        }
        Ok(self.open.entry(number).or_insert_with(|| Transaction {
            since_ms: now_ms,
            ..Transaction::default()
        }))
    }

    /// Whether anything was sent or acknowledged in a transaction.
    #[must_use]
    pub fn has_begun(&self, number: u64) -> bool {
        self.open.get(&number).is_some_and(|open| open.takes_part)
    }

    /// A transaction that has begun.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Transaction> {
        self.open.get(&number)
    }

    /// Those that are not rolled back yet: their numbers, and since when they are open.
    pub fn running(&self) -> impl Iterator<Item = (u64, u64)> {
        let running = self.open.iter().filter(|(_, open)| !open.is_undone);
        running.map(|(number, open)| (*number, open.since_ms))
    }

    /// A transaction is rolled back before its client asks for it: why it cannot be committed, and what was received in it.
    pub fn note_undone(&mut self, number: u64, cause: &Refused) -> Option<(Refused, BTreeSet<(SourceId, u64)>)> {
        let open = self.open.get_mut(&number)?;
        self.undone += u32::from(!open.is_undone);
        open.is_undone = true;
        open.sent = Sent::default();
        let failed = open.failed.get_or_insert_with(|| cause.clone());
        Some((failed.clone(), open.received.clone()))
    }

    /// Whether one of them is undone and not ended: until its client does that, whose application may hang, nothing more is
    /// its. One that does not know of this would wait for ever.
    #[must_use]
    pub fn has_undone(&self) -> bool {
        self.tells && self.undone > 0
    }

    /// Messages that the application had received are its session's no more: its client gives them back.
    pub fn forget_received(&mut self, is_gone: impl Fn(SourceId, u64) -> bool) {
        for open in self.open.values_mut().filter(|open| !open.is_undone) {
            open.received.retain(|(source, sequence)| !is_gone(*source, *sequence));
        }
    }

    /// A part of the transaction was refused: it cannot be committed any more.
    pub fn doom(&mut self, number: u64, limit: u32, now_ms: u64, cause: &Refused) {
        if let Ok(transaction) = self.enter(number, limit, now_ms) {
            transaction.failed.get_or_insert_with(|| cause.clone());
        }
    }

    /// Takes a transaction out, to be decided; None when nothing was sent or acknowledged in it.
    pub fn end(&mut self, number: u64) -> Option<Transaction> {
        let ended = self.open.remove(&number);
        self.undone -= u32::from(ended.as_ref().is_some_and(|open| open.is_undone));
        ended.or_else(|| {
            let failed = Some(self.overflow.clone()?);
            Some(Transaction {
                failed,
                ..Transaction::default()
            })
        })
    }

    /// Puts back what was taken out and not decided.
    pub fn go_on(&mut self, number: u64, transaction: Transaction) {
        self.undone += u32::from(transaction.is_undone);
        self.open.insert(number, transaction);
    }

    /// What the transaction of this number, if it is known, has taken in more.
    pub fn note_sent(&mut self, number: u64, sent: Sent) {
        if let Some(transaction) = self.open.get_mut(&number) {
            transaction.sent = [transaction.sent, sent].into_iter().sum();
        }
    }

    /// What all that are open have taken in.
    #[must_use]
    pub fn sent(&self) -> Sent {
        self.open.values().map(|open| open.sent).sum()
    }

    /// Takes all out, in the order of their numbers.
    pub fn end_all(&mut self) -> Vec<u64> {
        self.undone = 0;
        let mut numbers: Vec<u64> = self.open.drain().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
    }
}
