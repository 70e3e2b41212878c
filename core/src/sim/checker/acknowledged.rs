//! What was acknowledged does not come again.

use super::index::{Index, Verdict};
use super::{Found, Rule};
use crate::sim::facts::Mode;
use crate::sim::history::DeliveryId;

pub fn check(index: &Index<'_>, found: &mut Found) {
    for id in (0..index.deliveries.len() as u32).map(DeliveryId) {
        let delivery = index.delivery(id);
        let Some(done) = done_at(index, id) else { continue };
        let handed = delivery.handed;
        let message = index.facts.message(handed.key);
        let kept = message.mode == Mode::Persistent && index.facts.place(handed.place).durable;
        let again = index
            .deliveries_of(handed.place, handed.key)
            .iter()
            .map(|id| index.delivery(*id))
            .find(|later| {
                later.at > done
                && later.handed.sequence == handed.sequence
                // What was in memory and is there again was sent again, also where a stop came before it was known to be done.
                && (kept || !index.stopped_between(delivery.at, later.at))
            });
        if let Some(again) = again {
            let name = index.name(handed.place, handed.key);
            let what = format!(
                "{name}, number {}, acknowledged at event {done}, came at {}",
                handed.sequence, again.at
            );
            found.add(Rule::AcknowledgedReturned, what);
        }
    }
}

/// When a delivery was known to be done with.
fn done_at(index: &Index<'_>, id: DeliveryId) -> Option<usize> {
    let delivery = index.delivery(id);
    if let Some(at) = delivery.ack_confirmed {
        return Some(at);
    }
    delivery
        .acked
        .iter()
        .find_map(|(_, tx)| match index.transactions[(*tx)?.0 as usize].verdict() {
            Verdict::Committed(at) => Some(at),
            Verdict::Aborted | Verdict::Unknown => None,
        })
}
