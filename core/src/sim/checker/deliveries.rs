//! Rules that look at deliveries of one message from one place: invented, doubled, unflagged, miscounted, unwanted.

use super::index::{Index, Purge};
use super::{Found, Rule};
use crate::sim::facts::{Mode, PlaceId};
use crate::sim::history::DeliveryId;
use std::collections::BTreeSet;

pub fn check(index: &Index<'_>, found: &mut Found) {
    for (&(place, key), ids) in &index.of {
        let allowed = index.facts.copies(key, place);
        let name = index.name(place, key);
        let life = index.life(key);
        let first = index.delivery(ids[0]).at;
        if allowed == 0 || life.sent.first().is_none_or(|sent| *sent > first) {
            found.add(Rule::Invented, format!("{name} was never sent there"));
            continue;
        }
        let refused = life.rejected.filter(|_| life.confirmed.is_none());
        // What was in memory may have been delivered, forgotten in a restart, sent again and refused.
        if refused.is_some_and(|refused| {
            let lasting = index.facts.message(key).mode == Mode::Persistent && index.facts.place(place).durable;
            lasting || !index.stopped_between(first, refused)
        }) {
            found.add(Rule::RejectedDelivered, name.clone());
        }
        older(index, place, ids[0], &name, found);
        doubled(index, ids, allowed, &name, found);
        for (position, &id) in ids.iter().enumerate() {
            one(index, place, id, &name, found);
            repeated(index, &ids[..position], id, &name, found);
        }
    }
    exclusive(index, found);
}

/// A subscription begins empty, also one that takes the place of another of its name.
fn older(index: &Index<'_>, place: PlaceId, id: DeliveryId, name: &str, found: &mut Found) {
    let life = index.life(index.delivery(id).handed.key);
    let (Some(since), Some((confirmed, _))) = (index.facts.place(place).since, life.confirmed) else {
        return;
    };
    // Sent again since then, it may be new to a broker that had it in memory and has restarted.
    let again = life.sent.iter().any(|sent| *sent > since);
    if confirmed < since && !again {
        found.add(
            Rule::OlderThanPlace,
            format!("{name} was confirmed before anybody wanted such a subscription"),
        );
    }
}

/// What one delivery says of itself.
fn one(index: &Index<'_>, place: PlaceId, id: DeliveryId, name: &str, found: &mut Found) {
    let delivery = index.delivery(id);
    let handed = delivery.handed;
    let message = index.facts.message(handed.key);
    let life = index.life(handed.key);
    if !handed.intact {
        found.add(Rule::Invented, format!("{name} came with other bytes than were sent"));
    }
    if !index.facts.consumer(handed.consumer).predicate.wants(message) {
        found.add(
            Rule::Unselected,
            format!("{name} was handed to consumer {}", handed.consumer.0),
        );
    }
    let kept_in_memory = message.mode != Mode::Persistent || !index.facts.place(place).durable;
    let last_sent = life.sent.iter().rfind(|sent| **sent < delivery.at);
    if kept_in_memory && last_sent.is_some_and(|sent| index.stopped_between(*sent, delivery.at)) {
        found.add(Rule::MemorySurvived, format!("{name} was handed out after a restart"));
    }
    let maximum = index.facts.place(place).redelivery_max;
    // Without room for the record that puts it aside it stays, and comes once more.
    let stays = index.full.iter().any(|at| *at < delivery.at);
    if maximum > 0 && handed.count > maximum && !stays {
        found.add(
            Rule::OverMaximum,
            format!("{name} was handed out for the {}th time of {maximum}", handed.count),
        );
    }
    purged(index, place, id, name, found);
}

/// What was there before a purge does not come after it.
fn purged(index: &Index<'_>, place: PlaceId, id: DeliveryId, name: &str, found: &mut Found) {
    let delivery = index.delivery(id);
    let life = index.life(delivery.handed.key);
    let Some((confirmed, kept)) = life.confirmed else {
        return;
    };
    let purges = index.purges.get(&place).into_iter().flatten();
    for Purge { asked, durable, .. } in purges.filter(|purge| !purge.refused) {
        // Sent again after the purge it may be new to a broker that has restarted.
        let again = life.sent.iter().any(|sent| sent > asked);
        let certain = match durable {
            Some(durable) => *durable < delivery.at,
            None => !index.stopped_between(*asked, delivery.at),
        };
        // Lost in a restart before, it may have been on its way again.
        let there = kept || !index.stopped_between(confirmed, *asked);
        if there
            && confirmed < *asked
            && *asked < delivery.at
            && certain
            && !again
            && !was_promised(index, place, id, *asked)
        {
            found.add(Rule::PurgedDelivered, format!("{name} was handed out after a purge"));
        }
    }
}

/// Whether a transaction had acknowledged it when it was purged: then it is left to that, and a rollback brings it back.
fn was_promised(index: &Index<'_>, place: PlaceId, id: DeliveryId, purged: usize) -> bool {
    let handed = index.delivery(id).handed;
    let deliveries = index.deliveries_of(place, handed.key).iter();
    deliveries.map(|other| index.delivery(*other)).any(|other| {
        let acked = |(at, tx): &(usize, Option<_>)| *at < purged && tx.is_some();
        other.handed.sequence == handed.sequence && other.acked.iter().any(acked)
    })
}

/// One effect: a place never has more copies of a message than belong there.
fn doubled(index: &Index<'_>, ids: &[DeliveryId], allowed: u32, name: &str, found: &mut Found) {
    let message = index.facts.message(index.delivery(ids[0]).handed.key);
    // What is only in memory may have been sent again to a broker that knows nothing of it any more.
    let runs: BTreeSet<usize> = ids
        .iter()
        .map(|id| index.started_before(index.delivery(*id).at))
        .collect();
    let groups: Vec<Vec<DeliveryId>> = if message.mode == Mode::Persistent {
        vec![ids.to_vec()]
    } else {
        let of = |run: usize| {
            ids.iter()
                .copied()
                .filter(move |id| index.started_before(index.delivery(*id).at) == run)
        };
        runs.iter().map(|run| of(*run).collect()).collect()
    };
    for group in groups {
        let sequences: BTreeSet<u64> = group.iter().map(|id| index.delivery(*id).handed.sequence).collect();
        if sequences.len() > allowed as usize {
            found.add(
                Rule::Doubled,
                format!("{name} is there as {sequences:?}, {allowed} expected"),
            );
        }
    }
}

/// Flag and count of a delivery, given those before it.
fn repeated(index: &Index<'_>, before: &[DeliveryId], id: DeliveryId, name: &str, found: &mut Found) {
    let delivery = index.delivery(id);
    let handed = delivery.handed;
    let place = index.facts.place(handed.place);
    let kept = place.durable && index.facts.message(handed.key).mode == Mode::Persistent;
    let earlier: Vec<_> = before
        .iter()
        .map(|id| index.delivery(*id))
        // What was in memory, and is there again after a restart, was sent again.
        .filter(|earlier| kept || !index.stopped_between(earlier.at, delivery.at))
        .filter(|earlier| earlier.handed.sequence == handed.sequence)
        .collect();
    let counted = earlier.iter().filter(|earlier| earlier.returned.is_none()).count();
    if counted > 0 && !handed.redelivered {
        found.add(Rule::DuplicateUnflagged, format!("{name}, number {}", handed.sequence));
    }
    let sent = index.life(handed.key).sent.first().copied().unwrap_or_default();
    if earlier.is_empty() && handed.redelivered && !place.undelivered && !index.stopped_between(sent, delivery.at) {
        found.add(Rule::FlaggedForNothing, format!("{name}, number {}", handed.sequence));
    }
    let run = index.started_before(delivery.at);
    let (this_run, before): (Vec<_>, Vec<_>) = earlier.into_iter().partition(|earlier| earlier.at >= run);
    let certain = 1 + this_run.iter().filter(|earlier| earlier.returned.is_none()).count();
    // What a transaction had acknowledged comes back from it as delivered, also when the broker stopped meanwhile.
    let promised = before
        .iter()
        .filter(|earlier| earlier.acked.iter().any(|(_, tx)| tx.is_some()));
    let possible = 1 + this_run.len() + promised.count();
    let count = handed.count as usize;
    if !place.undelivered && possible < 255 && !(certain..=possible).contains(&count) {
        let expected = format!("{certain} to {possible}");
        found.add(
            Rule::WrongCount,
            format!("{name} came with count {count}, {expected} expected"),
        );
    }
}

/// All of an exclusive queue goes to the consumer that came first, as long as it is there.
fn exclusive(index: &Index<'_>, found: &mut Found) {
    for delivery in &index.deliveries {
        let handed = delivery.handed;
        if !index.facts.place(handed.place).exclusive {
            continue;
        }
        let Some(own) = index.consumer(handed.consumer).asked else {
            continue;
        };
        let earlier = index
            .facts
            .consumers
            .iter()
            .zip(&index.consumers)
            .find(|(facts, span)| {
                facts.place == handed.place
                    && span
                        .up
                        .is_some_and(|up| up < own && !index.stopped_between(up, delivery.at))
                    && span.down.is_none_or(|down| down > delivery.at)
            });
        if earlier.is_some() {
            let name = index.name(handed.place, handed.key);
            found.add(
                Rule::NotExclusive,
                format!("{name} went to consumer {}", handed.consumer.0),
            );
        }
    }
}
