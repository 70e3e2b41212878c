//! Which place a consumer takes from: queues by name, subscriptions by the number that the broker gives them.

use super::env::Env;
use super::scene::{self, ConsumerPlan};
use crate::sim::facts::{Place, PlaceId, Sort};
use crate::state::UNDELIVERED_NAME;
use std::collections::BTreeMap;

/// Subscriptions with a number above this end with the broker's process, and their numbers come again.
const UNLOGGED: u64 = 1 << 62;

/// See the module's documentation.
pub struct Places {
    queues: BTreeMap<String, PlaceId>,
    subscriptions: BTreeMap<u64, PlaceId>,
}

impl Places {
    /// Knows the queues: `$sys.undelivered` is the last.
    #[must_use]
    pub fn new(queues: &[PlaceId]) -> Self {
        let names = scene::queues().chain([UNDELIVERED_NAME]).map(str::to_owned);
        Self {
            queues: names.zip(queues.iter().copied()).collect(),
            subscriptions: BTreeMap::new(),
        }
    }

    /// The place of a queue.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<PlaceId> {
        self.queues.get(name).copied()
    }

    /// The broker's process has ended.
    pub fn restarted(&mut self) {
        self.subscriptions.retain(|source, _| *source < UNLOGGED);
    }

    /// The place that a consumer was opened on.
    pub fn resolve(
        &mut self,
        env: &mut Env,
        client: u32,
        client_id: &str,
        plan: &ConsumerPlan,
        source: u64,
    ) -> PlaceId {
        if plan.at.sort == Sort::Queue
            && let Some(place) = self.queue(&plan.at.name)
        {
            return place;
        }
        if let Some(place) = self.subscriptions.get(&source) {
            return *place;
        }
        let (name, durable) = match &plan.subscription {
            Some((name, durable, _)) => (format!("{client_id}/{name}"), *durable),
            None => (format!("{client_id} on {}", plan.at.name), false),
        };
        let place = env.place(Place {
            unwanted_client: plan.no_local.then_some(client),
            ..Place::subscription(&name, &plan.at.name, plan.predicate, durable)
        });
        self.subscriptions.insert(source, place);
        place
    }
}
