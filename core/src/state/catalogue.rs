//! What exists: destinations and subscriptions, by number and by name, and which subscriptions a topic's messages go to.
//!
//! Changed by `apply` alone (and, for what is never logged, by the facade). Routing is found in a trie and cached with
//! each destination; a generation number tells when the cache is out of date, so publishing costs the same however many
//! destinations and subscriptions there are.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::name::{DestinationName, Pattern, Trie};
use crate::selector::Selector;

use super::bridge::{Bridge, BridgeTarget};
use super::catalogue_record::Origin;
use super::ids::{DestinationId, FIRST_ID, Kind, SourceId, UNDELIVERED, UNLOGGED_ID};
use super::properties::{FAILSAFE, Properties, StoreIndex};

/// Names of deleted destinations that are kept at most, for messages that came from them.
const RETIRED_MAX: usize = 65_536;

/// A queue or a topic.
#[derive(Debug)]
pub struct Destination {
    /// Its number.
    pub id: DestinationId,
    /// Queue or topic.
    pub kind: Kind,
    /// Its name.
    pub name: DestinationName,
    /// Grows when a destination of this name is made again.
    pub generation: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// What it is configured to do.
    pub properties: Properties,
    /// Whether the host has said, under the configuration that holds now, that it may be used here.
    pub settled: bool,
    /// Whether `properties` are those of the configuration that holds now: they are not logged, so a restart forgets them.
    pub is_current: bool,
    /// Whether the host has been asked for them, and has not answered yet.
    pub(super) is_asked: bool,
    /// Where its messages are accounted.
    pub store: StoreIndex,
    /// Producers that have it open, as the engine counts them.
    pub producers: u32,
    /// Messages published to it since the start, bridged ones included.
    pub published_total: u64,
    /// Their bytes.
    pub published_bytes_total: u64,
    pub(super) routes: Routes,
}

impl Destination {
    /// Subscriptions that its last message met, before selectors.
    #[must_use]
    pub fn matching_subscriptions(&self) -> usize {
        self.routes.subscriptions.len()
    }

    /// Whether records name it.
    #[must_use]
    pub const fn is_logged(&self) -> bool {
        matches!(self.origin, Origin::Static | Origin::Dynamic | Origin::System)
    }
}

/// Whose messages a subscription does not want (noLocal).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unwanted {
    /// Nobody's: it takes all.
    Nobody,
    /// What this connection published.
    Connection(u64),
    /// What this client id published.
    Client(Arc<str>),
}

/// One subscription that a topic's messages may go to.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub source: SourceId,
    pub selector: Option<Arc<Selector>>,
    pub unwanted: Unwanted,
}

/// Where a destination's messages go, as computed at some generation.
#[derive(Debug, Default)]
pub(super) struct Routes {
    pub generation: u64,
    pub subscriptions: Vec<Match>,
    pub bridges: Vec<BridgeTarget>,
}

/// A subscription to a topic or to all topics that match a pattern.
#[derive(Debug)]
pub struct Subscription {
    /// The source in which its messages wait.
    pub id: SourceId,
    /// The client id it belongs to; empty for a shared one without.
    pub client_id: String,
    /// Its name; empty for a plain non-durable one.
    pub name: String,
    /// Kept in the log; collects while nobody consumes.
    pub durable: bool,
    /// Several consumers share it.
    pub shared: bool,
    /// Configured by an administrator.
    pub is_static: bool,
    /// The topic or pattern.
    pub pattern: Pattern,
    /// Its selector's text; empty: all.
    pub selector_text: String,
    /// The compiled selector.
    pub selector: Option<Arc<Selector>>,
    /// noLocal, and for whom.
    pub unwanted: Unwanted,
}

/// All that exists.
#[derive(Debug)]
pub struct Catalogue {
    destinations: FxHashMap<DestinationId, Destination>,
    names: [FxHashMap<DestinationName, DestinationId>; 2],
    subscriptions: FxHashMap<SourceId, Subscription>,
    // By client id, then name; plain non-durable ones have no name and are not here.
    subscription_names: FxHashMap<(String, String), SourceId>,
    patterns: Trie<SourceId>,
    bridges: Vec<Bridge>,
    // Grows with every change that may alter where messages go.
    routing_generation: u64,
    pub(super) next_id: u64,
    next_unlogged_id: u64,
    pub(super) generations: u64,
    retired: FxHashMap<DestinationId, (Kind, DestinationName)>,
}

const fn kind_index(kind: Kind) -> usize {
    match kind {
        Kind::Queue => 0,
        Kind::Topic => 1,
    }
}

/// The name of the queue that keeps what must be dropped and should be kept.
pub const UNDELIVERED_NAME: &str = "$sys.undelivered";

impl Catalogue {
    /// A catalogue with the system's own destinations.
    #[must_use]
    pub fn new() -> Self {
        let mut catalogue = Self {
            destinations: FxHashMap::default(),
            names: [FxHashMap::default(), FxHashMap::default()],
            subscriptions: FxHashMap::default(),
            subscription_names: FxHashMap::default(),
            patterns: Trie::new(),
            bridges: Vec::new(),
            routing_generation: 1,
            next_id: FIRST_ID,
            next_unlogged_id: UNLOGGED_ID,
            generations: 1,
            retired: FxHashMap::default(),
        };
        if let Ok(name) = DestinationName::parse(UNDELIVERED_NAME) {
            catalogue.insert_destination(UNDELIVERED, Kind::Queue, name, 1, Origin::System);
        }
        catalogue
    }

    /// The number of the next destination or subscription; `logged`: one that records will name.
    pub(super) fn allocate_id(&mut self, logged: bool) -> u64 {
        let counter = if logged {
            &mut self.next_id
        } else {
            &mut self.next_unlogged_id
        };
        *counter += 1;
        *counter - 1
    }

    /// Never gives out a number that a record names.
    pub(super) fn note_id(&mut self, id: u64) {
        if id < UNLOGGED_ID {
            self.next_id = self.next_id.max(id + 1);
        }
    }

    pub(super) fn insert_destination(
        &mut self,
        id: DestinationId,
        kind: Kind,
        name: DestinationName,
        generation: u64,
        origin: Origin,
    ) {
        self.note_id(id.0);
        self.generations = self.generations.max(generation);
        self.routing_generation += 1;
        self.retired.remove(&id);
        self.names[kind_index(kind)].insert(name.clone(), id);
        // Of what is the broker's own nobody but the broker says anything.
        let is_own = origin == Origin::Dynamic && name.is_system();
        let destination = Destination {
            id,
            kind,
            name,
            generation,
            origin,
            properties: Properties::default(),
            settled: is_own,
            is_current: is_own,
            is_asked: false,
            store: FAILSAFE,
            producers: 0,
            published_total: 0,
            published_bytes_total: 0,
            routes: Routes::default(),
        };
        self.destinations.insert(id, destination);
    }

    pub(super) fn remove_destination(&mut self, id: DestinationId) -> Option<Destination> {
        let destination = self.destinations.remove(&id)?;
        let names = &mut self.names[kind_index(destination.kind)];
        if names.get(&destination.name) == Some(&id) {
            names.remove(&destination.name);
        }
        self.routing_generation += 1;
        if self.retired.len() < RETIRED_MAX {
            self.retired.insert(id, (destination.kind, destination.name.clone()));
        }
        Some(destination)
    }

    /// Forgets the names of deleted destinations; for when no message can come from one any more.
    pub(super) fn forget_retired(&mut self) {
        self.retired.clear();
    }

    /// Keeps the name of a destination that was deleted.
    pub(super) fn retire(&mut self, id: DestinationId, kind: Kind, name: DestinationName) {
        self.note_id(id.0);
        if self.retired.len() < RETIRED_MAX && !self.destinations.contains_key(&id) {
            self.retired.insert(id, (kind, name));
        }
    }

    pub(super) fn retired(&self) -> impl Iterator<Item = (DestinationId, Kind, &DestinationName)> {
        self.retired.iter().map(|(id, (kind, name))| (*id, *kind, name))
    }

    /// Kind and name of a destination, also of one that was deleted and may have left messages behind.
    #[must_use]
    pub fn name_of(&self, id: DestinationId) -> Option<(Kind, &DestinationName)> {
        match self.destinations.get(&id) {
            Some(destination) => Some((destination.kind, &destination.name)),
            None => self.retired.get(&id).map(|(kind, name)| (*kind, name)),
        }
    }

    /// What people know a source by: the queue's name, or the subscription's with its client id before it.
    pub(super) fn label(&self, id: SourceId) -> String {
        match self.subscription(id) {
            Some(found) if found.name.is_empty() => found.pattern.as_str().to_owned(),
            Some(found) if found.client_id.is_empty() => found.name.clone(),
            Some(found) => format!("{}/{}", found.client_id, found.name),
            None => self
                .name_of(DestinationId(id.0))
                .map_or_else(String::new, |(_, name)| name.as_str().to_owned()),
        }
    }

    /// The destination of this name.
    #[must_use]
    pub fn id_of(&self, kind: Kind, name: &str) -> Option<DestinationId> {
        self.names[kind_index(kind)].get(name).copied()
    }

    /// A destination.
    #[must_use]
    pub fn destination(&self, id: DestinationId) -> Option<&Destination> {
        self.destinations.get(&id)
    }

    /// Notes that another configuration holds: who opens a dynamic destination next has to ask for its properties.
    pub(super) fn unsettle_dynamic(&mut self) {
        let all = self.destinations.values_mut();
        let dynamic = |found: &&mut Destination| found.origin == Origin::Dynamic && !found.name.is_system();
        for destination in all.filter(dynamic) {
            destination.settled = false;
            destination.is_current = false;
        }
    }

    pub(super) fn destination_mut(&mut self, id: DestinationId) -> Option<&mut Destination> {
        self.destinations.get_mut(&id)
    }

    /// All destinations, in no order.
    pub fn destinations(&self) -> impl Iterator<Item = &Destination> {
        self.destinations.values()
    }

    /// A subscription by its source.
    #[must_use]
    pub fn subscription(&self, id: SourceId) -> Option<&Subscription> {
        self.subscriptions.get(&id)
    }

    /// A named subscription.
    #[must_use]
    pub fn subscription_named(&self, client_id: &str, name: &str) -> Option<&Subscription> {
        // A tuple of strings cannot be looked up by borrowed parts; this is no hot path.
        let id = self.subscription_names.get(&(client_id.to_owned(), name.to_owned()))?;
        self.subscriptions.get(id)
    }

    /// All subscriptions, in no order.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Subscription> {
        self.subscriptions.values()
    }

    pub(super) fn insert_subscription(&mut self, subscription: Subscription) {
        self.note_id(subscription.id.0);
        self.routing_generation += 1;
        if !subscription.name.is_empty() {
            let key = (subscription.client_id.clone(), subscription.name.clone());
            self.subscription_names.insert(key, subscription.id);
        }
        self.patterns.insert(&subscription.pattern, subscription.id);
        self.subscriptions.insert(subscription.id, subscription);
    }

    pub(super) fn remove_subscription(&mut self, id: SourceId) -> Option<Subscription> {
        let subscription = self.subscriptions.remove(&id)?;
        let key = (subscription.client_id.clone(), subscription.name.clone());
        if self.subscription_names.get(&key) == Some(&id) {
            self.subscription_names.remove(&key);
        }
        self.patterns.remove(&subscription.pattern, |other| *other == id);
        self.routing_generation += 1;
        Some(subscription)
    }

    pub(super) fn set_bridges(&mut self, bridges: Vec<Bridge>) {
        self.bridges = bridges;
        self.routing_generation += 1;
    }

    /// Whether a bridge leads to a destination.
    #[must_use]
    pub fn is_target(&self, kind: Kind, name: &str) -> bool {
        let mut targets = self.bridges.iter().flat_map(|bridge| &bridge.targets);
        targets.any(|target| target.kind == kind && target.name.as_str() == name)
    }

    /// The bridges as configured.
    #[must_use]
    pub fn bridges(&self) -> &[Bridge] {
        &self.bridges
    }

    /// Subscriptions that match a topic's name.
    pub fn subscriptions_of<'a>(&'a self, topic: &str) -> Vec<&'a Subscription> {
        let mut found = Vec::new();
        self.patterns
            .matches(topic, |id| found.extend(self.subscriptions.get(id)));
        found
    }

    /// Makes sure that a destination's routes are up to date.
    pub(super) fn refresh_routes(&mut self, id: DestinationId) {
        let generation = self.routing_generation;
        let Some(destination) = self.destinations.get_mut(&id) else {
            return;
        };
        if destination.routes.generation == generation {
            return;
        }
        let routes = &mut destination.routes;
        routes.generation = generation;
        routes.subscriptions.clear();
        routes.bridges.clear();
        if destination.kind == Kind::Topic {
            let subscriptions = &self.subscriptions;
            self.patterns.matches(destination.name.as_str(), |id| {
                routes
                    .subscriptions
                    .extend(subscriptions.get(id).map(|subscription| Match {
                        source: *id,
                        selector: subscription.selector.clone(),
                        unwanted: subscription.unwanted.clone(),
                    }));
            });
            // The trie gives no order of its own; numbers are given in this one.
            routes.subscriptions.sort_unstable_by_key(|found| found.source);
        }
        for bridge in &self.bridges {
            if bridge.matches(destination.kind, destination.name.as_str()) {
                routes.bridges.extend(bridge.targets.iter().cloned());
            }
        }
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::new()
    }
}
