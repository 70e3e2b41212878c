//! Time: expiry and delays follow the monotonic clock while the broker runs, and the wall clock across restarts.

use super::index::{DeliveryLife, Index};
use super::{Found, Rule};
use crate::sim::facts::{Key, PlaceId};
use crate::sim::history::Handed;

pub fn check(index: &Index<'_>, found: &mut Found) {
    for delivery in &index.deliveries {
        let handed = delivery.handed;
        let (place, message) = (index.facts.place(handed.place), index.facts.message(handed.key));
        if place.undelivered {
            continue;
        }
        let now_ms = index.history.events[delivery.at].monotonic_ms;
        if let Some(before_ms) = handed_before(index, delivery)
            && now_ms < before_ms + place.redelivery_delay_ms
        {
            let name = index.name(handed.place, handed.key);
            let after_ms = now_ms - before_ms;
            found.add(
                Rule::Early,
                format!(
                    "{name} was handed out again after {after_ms} ms and has to wait {} ms",
                    place.redelivery_delay_ms
                ),
            );
        }
        let life_ms = place.life_ms(message);
        if life_ms > 0
            && let Some((_, latest)) = moments(index, handed, delivery.at, life_ms)
            && now_ms >= latest
        {
            let name = index.name(handed.place, handed.key);
            found.add(
                Rule::ExpiredDelivered,
                format!("{name} was handed out {} ms after its end", now_ms - latest),
            );
        }
        if message.delay_ms > 0
            && let Some((earliest, _)) = moments(index, handed, delivery.at, message.delay_ms)
            && now_ms < earliest
        {
            let name = index.name(handed.place, handed.key);
            found.add(
                Rule::Early,
                format!("{name} was handed out {} ms before its time", earliest - now_ms),
            );
        }
    }
}

/// When the delivery that this one counts as the last was made, at the earliest; none: none that this run of the broker counted.
fn handed_before(index: &Index<'_>, delivery: &DeliveryLife<'_>) -> Option<u64> {
    let handed = delivery.handed;
    let run = index.started_before(delivery.at);
    let others = index.deliveries_of(handed.place, handed.key).iter();
    others
        .map(|id| index.delivery(*id))
        .filter(|other| (run..delivery.at).contains(&other.at))
        .filter(|other| other.handed.sequence == handed.sequence && other.handed.count + 1 == handed.count)
        .map(|other| index.history.events[other.at].monotonic_ms)
        .min()
}

/// The monotonic times, earliest and latest, at which `after_ms` from a message's arrival may be over for the broker that
/// runs at event `at`.
fn moments(index: &Index<'_>, handed: &Handed, at: usize, after_ms: u64) -> Option<(u64, u64)> {
    let run = index.started_before(at);
    let life = index.life(handed.key);
    let mut earliest = u64::MAX;
    let mut latest = 0;
    let in_this_run = life.sent.iter().filter(|sent| **sent < at);
    for sent in in_this_run.clone() {
        // It may have arrived any time from then on; that it was taken in before it was handed out bounds it.
        let sent_ms = index.history.events[*sent].monotonic_ms;
        earliest = earliest.min(sent_ms + after_ms);
    }
    let stop = index.stops.iter().copied().rfind(|stop| *stop < at);
    let stamped = &index.history.events[if stop.is_some() { run } else { 0 }];
    if life
        .sent
        .first()
        .is_some_and(|sent| stop.is_some_and(|stop| *sent < stop))
    {
        // Possibly recovered: from the stamp of its arrival, by the wall clock at the start.
        let offset = stamped.monotonic_ms as i64 - stamped.wall_ms as i64;
        let recovered = (handed.timestamp_ms as i64 + after_ms as i64 + offset).max(stamped.monotonic_ms as i64) as u64;
        earliest = earliest.min(recovered);
        latest = latest.max(recovered);
    }
    if in_this_run.clone().any(|sent| stop.is_none_or(|stop| *sent > stop)) {
        // Taken in by this run, at the latest just now: known by its stamp, unless the wall clock was set meanwhile.
        let arrived = arrival_bounds(index, handed, at)?;
        latest = latest.max(arrived + after_ms);
    }
    (earliest < u64::MAX && latest > 0).then_some((earliest, latest))
}

/// The latest monotonic time at which a message handed out at `at` can have arrived in this run: the last moment before
/// at which the wall clock showed its stamp, or its last sending if the stamp says nothing.
fn arrival_bounds(index: &Index<'_>, handed: &Handed, at: usize) -> Option<u64> {
    let run = index.started_before(at);
    let events = &index.history.events[run..=at];
    let showing = events
        .iter()
        .rfind(|event| event.wall_ms == handed.timestamp_ms)
        .map(|event| event.monotonic_ms);
    showing.or_else(|| events.last().map(|event| event.monotonic_ms))
}

/// Whether a message may have expired in a place by the end of the run, judged generously: from its earliest arrival, and
/// whatever the wall clock said at any start.
pub fn may_have_expired(index: &Index<'_>, place: PlaceId, key: Key) -> bool {
    let life_ms = index.facts.place(place).life_ms(index.facts.message(key));
    let (Some(&sent), Some(end)) = (index.life(key).sent.first(), index.history.events.last()) else {
        return false;
    };
    if life_ms == 0 {
        return false;
    }
    let first = &index.history.events[sent];
    if end.monotonic_ms >= first.monotonic_ms + life_ms {
        return true;
    }
    // A restart looks at the wall clock, which may have been set to any time.
    let jumped_ms = index.history.events[sent..].iter().map(|event| {
        (event.wall_ms as i64 - first.wall_ms as i64) - (event.monotonic_ms as i64 - first.monotonic_ms as i64)
    });
    let ahead_ms = jumped_ms.max().unwrap_or(0).max(0) as u64;
    index.stops.iter().any(|stop| *stop > sent) && end.monotonic_ms + ahead_ms >= first.monotonic_ms + life_ms
}
