//! Transactions: all or nothing, and nothing before the commit.

use super::index::{Index, TransactionLife, Verdict};
use super::loss::{done_with, is_owed, may_be_gone};
use super::{Found, Rule};
use crate::sim::facts::Mode;

pub fn check(index: &Index<'_>, found: &mut Found) {
    for (number, transaction) in index.transactions.iter().enumerate() {
        uncommitted(index, number, transaction, found);
        if transaction.verdict() != Verdict::Unknown {
            // A committed one is covered by loss and by what returns, an aborted one by what must not be seen.
            continue;
        }
        let commit = transaction.commit_sent.unwrap_or_default();
        let happened = evidence_of_commit(index, transaction, commit);
        let did_not = evidence_of_rollback(index, transaction, commit);
        if let (Some(happened), Some(did_not)) = (happened, did_not) {
            found.add(
                Rule::TransactionTorn,
                format!("transaction {number}: {happened}, but {did_not}"),
            );
        }
    }
}

/// What a transaction sends is seen by nobody before it is committed, or if it never is.
fn uncommitted(index: &Index<'_>, number: usize, transaction: &TransactionLife, found: &mut Found) {
    let commit = match transaction.verdict() {
        Verdict::Aborted => usize::MAX,
        _ => transaction.commit_sent.unwrap_or(usize::MAX),
    };
    for &key in &transaction.sends {
        let places = index.place_ids();
        let early = places
            .flat_map(|place| index.deliveries_of(place, key))
            .find(|id| index.delivery(**id).at < commit);
        if let Some(early) = early {
            let name = index.name(index.delivery(*early).handed.place, key);
            found.add(Rule::UncommittedSeen, format!("{name}, of transaction {number}"));
        }
    }
}

fn evidence_of_commit(index: &Index<'_>, transaction: &TransactionLife, commit: usize) -> Option<String> {
    let seen = transaction.sends.iter().find_map(|&key| {
        let place = index
            .place_ids()
            .find(|place| !index.deliveries_of(*place, key).is_empty())?;
        Some(format!("{} was delivered", index.name(place, key)))
    });
    seen.or_else(|| {
        transaction.acks.iter().find_map(|id| {
            let handed = index.delivery(*id).handed;
            let message = index.facts.message(handed.key);
            let (place, key) = (handed.place, handed.key);
            let kept = message.mode == Mode::Persistent && index.facts.place(place).durable;
            let owed = kept
                && index
                    .life(key)
                    .confirmed
                    .is_some_and(|(at, durable)| is_owed(index, key, place, at, durable));
            // Acknowledged in this one alone, it would have had to come again.
            let alone = index
                .deliveries_of(place, key)
                .iter()
                .all(|other| other == id || index.delivery(*other).acked.is_empty())
                && index.delivery(*id).acked.len() == 1;
            let again = index.deliveries_of(place, key).iter().any(|other| {
                let other = index.delivery(*other);
                other.at > commit && other.handed.sequence == handed.sequence
            });
            (owed && alone && !again && !may_be_gone(index, place, key))
                .then(|| format!("{} was acknowledged by it", index.name(place, key)))
        })
    })
}

fn evidence_of_rollback(index: &Index<'_>, transaction: &TransactionLife, commit: usize) -> Option<String> {
    let missing = transaction.sends.iter().find_map(|&key| {
        index.place_ids().find_map(|place| {
            let lost = is_owed(index, key, place, commit, true)
                && done_with(index, place, key) < index.facts.copies(key, place) as usize
                && !may_be_gone(index, place, key);
            lost.then(|| format!("{} is missing", index.name(place, key)))
        })
    });
    missing.or_else(|| {
        transaction.acks.iter().find_map(|id| {
            let handed = index.delivery(*id).handed;
            let kept =
                index.facts.message(handed.key).mode == Mode::Persistent && index.facts.place(handed.place).durable;
            let again = index.deliveries_of(handed.place, handed.key).iter().any(|other| {
                let other = index.delivery(*other);
                other.at > commit
                    && other.handed.sequence == handed.sequence
                    && (kept || !index.stopped_between(commit, other.at))
            });
            again.then(|| format!("{} came again", index.name(handed.place, handed.key)))
        })
    })
}
