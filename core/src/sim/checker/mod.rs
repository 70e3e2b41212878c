//! The history checker: reads what happened in a simulated run and says which promises of the broker it breaks.
//!
//! It knows the promises and the routing ([`super::facts`]), nothing of the engine. A run must have ended with a drain: no
//! faults, and consumers without a bound on every place, so that whatever was left has been handed out and acknowledged.
//! What a client cannot know (a confirmation or a commit whose answer was lost) is taken as either, consistently.
//!
//! Each promise is a [`Rule`]; `tests.rs` breaks a healthy history once for each of them and sees that it is found.

mod acknowledged;
mod deliveries;
mod index;
mod loss;
mod numbers;
mod order;
#[cfg(test)]
mod tests;
mod times;
mod transactions;

use super::history::History;
use index::Index;
use std::fmt;

/// A promise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rule {
    /// What was confirmed is delivered, unless it expired, was purged or was put aside.
    Lost,
    /// What was acknowledged does not come again.
    AcknowledgedReturned,
    /// A second delivery is flagged.
    DuplicateUnflagged,
    /// A first delivery is not flagged without a reason.
    FlaggedForNothing,
    /// One effect for each message and place.
    Doubled,
    /// First deliveries keep a producer's order.
    OutOfOrder,
    /// A transaction takes effect as a whole or not at all.
    TransactionTorn,
    /// Nothing of a transaction that was not committed is seen.
    UncommittedSeen,
    /// Nothing expired is delivered.
    ExpiredDelivered,
    /// Nothing is delivered before its delay is over.
    Early,
    /// Nothing is delivered that was not sent there, or not sent like that.
    Invented,
    /// Nothing that was refused is delivered.
    RejectedDelivered,
    /// Consumers get what their selector wants, and nothing else.
    Unselected,
    /// What is only in memory does not survive a restart.
    MemorySurvived,
    /// What was purged does not come.
    PurgedDelivered,
    /// An exclusive queue serves one consumer.
    NotExclusive,
    /// The delivery count says how often.
    WrongCount,
    /// Not more deliveries than the destination allows.
    OverMaximum,
    /// A number names one message.
    NumberReused,
    /// A message is confirmed or refused, once sent, and RELIABLE ones neither.
    WrongAnswer,
    /// A subscription has nothing that was confirmed before it was made.
    OlderThanPlace,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Lost,
        Self::AcknowledgedReturned,
        Self::DuplicateUnflagged,
        Self::FlaggedForNothing,
        Self::Doubled,
        Self::OutOfOrder,
        Self::TransactionTorn,
        Self::UncommittedSeen,
        Self::ExpiredDelivered,
        Self::Early,
        Self::Invented,
        Self::RejectedDelivered,
        Self::Unselected,
        Self::MemorySurvived,
        Self::PurgedDelivered,
        Self::NotExclusive,
        Self::WrongCount,
        Self::OverMaximum,
        Self::NumberReused,
        Self::WrongAnswer,
        Self::OlderThanPlace,
    ];
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// By what.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}", self.rule, self.what)
    }
}

/// Collects what the rules find.
#[derive(Debug, Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, rule: Rule, what: String) {
        self.0.push(Violation { rule, what });
    }
}

/// Every broken promise of a run that has ended with a drain.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let index = Index::new(history);
    let mut found = Found::default();
    deliveries::check(&index, &mut found);
    numbers::check(&index, &mut found);
    order::check(&index, &mut found);
    times::check(&index, &mut found);
    acknowledged::check(&index, &mut found);
    transactions::check(&index, &mut found);
    loss::check(&index, &mut found);
    found.0
}
