//! Dynamic destinations that nobody needs go away (EMS-DEST-A04): no client has them open, a queue holds nothing, and no
//! subscription, on line or not, wants what a topic gets.
//!
//! Lazily: a destination goes when two looks in a row, half of `dynamic_idle_ms` apart, found it unused and nothing
//! published to it between them, so that who sends now and then without keeping a producer open does not make it come
//! and go. Each tick looks at a bounded number. A broker that nothing wakes looks at nothing: there is no hurry.

use super::engine::Engine;
use crate::state::{Destination, DestinationId, Kind, Origin};
use rustc_hash::FxHashMap;

/// Destinations that one tick looks at.
const LOOKS: usize = 1024;

/// How far the sweep has come.
#[derive(Debug, Default)]
pub struct Sweep {
    /// When the next one begins; monotonic.
    at_ms: u64,
    /// To be looked at in this one.
    left: Vec<DestinationId>,
    /// Found unused by the last one, with what had been published to them.
    before: FxHashMap<DestinationId, u64>,
    /// Found unused by this one.
    found: FxHashMap<DestinationId, u64>,
}

impl Engine {
    /// Looks at some dynamic destinations, if it is time to.
    pub(super) fn sweep_unused(&mut self) {
        let now_ms = self.now.monotonic_ms;
        if self.sweep.left.is_empty() {
            if now_ms < self.sweep.at_ms {
                return;
            }
            self.sweep.at_ms = now_ms + u64::from(self.settings.dynamic_idle_ms / 2).max(1);
            let dynamic = self.state.catalogue().destinations();
            self.sweep.left = dynamic
                .filter(|found| found.origin == Origin::Dynamic)
                .map(|found| found.id)
                .collect();
            self.sweep.before = std::mem::take(&mut self.sweep.found);
        }
        for _ in 0..LOOKS {
            let Some(id) = self.sweep.left.pop() else { return };
            self.look_at(id);
        }
    }

    fn look_at(&mut self, id: DestinationId) {
        let Some(found) = self.state.destination_by_id(id) else {
            return;
        };
        if found.origin != Origin::Dynamic || !self.is_unused(found) {
            return;
        }
        let published = found.published_total;
        // What cannot be deleted now is looked at again.
        if self.sweep.before.get(&id) != Some(&published)
            || self.state.out_of_space()
            || self.state.delete_destination(id, false, "unused").is_err()
        {
            self.sweep.found.insert(id, published);
        }
    }

    fn is_unused(&self, found: &Destination) -> bool {
        let name = found.name.as_str();
        let free = match found.kind {
            Kind::Queue => self.state.held_messages(found.id) == 0 && !self.receivers.contains_key(&found.id.source()),
            Kind::Topic => self.state.catalogue().subscriptions_of(name).is_empty(),
        };
        let is_end = |kind: Kind, other: &str| kind == found.kind && other == name;
        // Who comes back by a name relies on the numbers that are kept there, and is not to be taken for somebody new.
        free && found.producers == 0
            && !self.state.has_named_producers(found.id)
            && !self.state.catalogue().bridges().iter().any(|bridge| {
                is_end(bridge.kind, bridge.source.as_str())
                    || bridge
                        .targets
                        .iter()
                        .any(|target| is_end(target.kind, target.name.as_str()))
            })
    }
}
