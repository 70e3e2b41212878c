//! The compiled configuration, and what administrators do: make everything so, delete, purge.
//!
//! The host works out what holds for each name (inheritance, policies); here the whole of it is compared with what
//! exists, and the differences are applied. What cannot be applied is told and changes nothing else: a destination that
//! still holds messages, for example, is kept as a dynamic one.

use super::engine::Engine;
use super::errors::{Refused, of_state, refuse};
use super::tickets::name_excerpt;
use crate::name::{DestinationName, Pattern};
use crate::proto::ErrorCode;
use crate::selector::Selector;
use crate::state::{
    Bridge, DestinationId, Kind, Origin, Properties, SourceId, State, StoreDefinition, SubscriptionDefinition, Told,
};
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// A durable subscription that an administrator defined.
#[derive(Debug, Clone)]
pub struct DurableDefinition {
    /// Its name.
    pub name: String,
    /// The client id it belongs to; empty for a shared one without.
    pub client_id: String,
    /// The topic or pattern.
    pub pattern: Pattern,
    /// What it wants; none: all.
    pub selector: Option<Arc<Selector>>,
    /// Nothing that its own client id published.
    pub no_local: bool,
    /// Several consumers share it.
    pub shared: bool,
}

/// Everything an administrator has configured.
#[derive(Debug, Default)]
pub struct Configuration {
    /// Static destinations with the properties that hold for them.
    pub destinations: Vec<(Kind, DestinationName, Properties)>,
    /// What temporary destinations get.
    pub temporaries: Vec<(Kind, Properties)>,
    /// All bridges.
    pub bridges: Vec<Bridge>,
    /// All static durable subscriptions.
    pub durables: Vec<DurableDefinition>,
    /// The stores.
    pub stores: Vec<StoreDefinition>,
}

/// What happened to one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Created,
    /// It is another.
    Changed,
    /// It is gone.
    Deleted,
}

/// What became of a configuration: kind and name of each object that changed or could not.
#[derive(Debug, Default)]
pub struct Configured {
    /// What changed.
    pub changes: Vec<(&'static str, String, Change)>,
    /// What could not be made so, and why.
    pub refused: Vec<(&'static str, String, Refused)>,
}

const fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Queue => "queue",
        Kind::Topic => "topic",
    }
}

impl Engine {
    /// Makes what exists as the configuration says. Doing so again changes nothing.
    pub fn configure(&mut self, configuration: Configuration) -> Configured {
        let mut configured = Configured::default();
        self.state.set_stores(configuration.stores);
        self.configure_temporaries(configuration.temporaries);
        let mut wanted: FxHashSet<(Kind, DestinationName)> = FxHashSet::default();
        for (kind, name, properties) in configuration.destinations {
            self.configure_destination(kind, &name, properties, &mut configured);
            wanted.insert((kind, name));
        }
        self.state.set_bridges(configuration.bridges);
        self.remove_destinations(&wanted, &mut configured);
        self.configure_durables(configuration.durables, &mut configured);
        self.ask_about_dynamic();
        self.note_configured(&configured);
        configured
    }

    /// For audits: what holds from here on may be another configuration.
    pub(super) fn note_configured(&mut self, configured: &Configured) {
        let objects = configured.changes.len() as u64;
        self.state.note(Told::Configured { objects });
    }

    pub(super) fn configure_destination(
        &mut self,
        kind: Kind,
        name: &DestinationName,
        properties: Properties,
        configured: &mut Configured,
    ) {
        let before = self.state.destination(kind, name.as_str());
        let same = before.is_some_and(|found| found.origin == Origin::Static && found.properties == properties);
        if same {
            return;
        }
        let existed = before.is_some();
        let exclusive = properties.exclusive;
        match self.state.ensure_destination(kind, name, Origin::Static, properties) {
            Ok(id) => {
                if let Some(receivers) = self.receivers.get_mut(&id.source()) {
                    receivers.exclusive = exclusive;
                    self.mark_dirty(id.source());
                }
                let change = if existed { Change::Changed } else { Change::Created };
                configured
                    .changes
                    .push((kind_word(kind), name.as_str().to_owned(), change));
            }
            Err(error) => configured
                .refused
                .push((kind_word(kind), name.as_str().to_owned(), of_state(&error))),
        }
    }

    /// Static destinations that are no longer configured go, unless they hold messages (a topic: in its durable subscriptions).
    fn remove_destinations(&mut self, wanted: &FxHashSet<(Kind, DestinationName)>, configured: &mut Configured) {
        let gone: Vec<(DestinationId, Kind, DestinationName)> = self
            .state
            .catalogue()
            .destinations()
            .filter(|found| found.origin == Origin::Static && !wanted.contains(&(found.kind, found.name.clone())))
            .map(|found| (found.id, found.kind, found.name.clone()))
            .collect();
        for (id, kind, name) in gone {
            self.remove_destination(id, kind, name.as_str(), configured);
        }
    }

    pub(super) fn remove_destination(
        &mut self,
        id: DestinationId,
        kind: Kind,
        name: &str,
        configured: &mut Configured,
    ) {
        let reason = refuse(
            ErrorCode::NoSuchDestination,
            "destination",
            "The destination was deleted.",
        );
        match self.delete_known(id, false, &reason) {
            Ok(_) => configured
                .changes
                .push((kind_word(kind), name.to_owned(), Change::Deleted)),
            Err(refused) => {
                // It lives on as if a client had made it, and goes when nobody needs it.
                let made = self.state.make_dynamic(id).map_err(|error| of_state(&error));
                let refused = made.err().unwrap_or(refused);
                configured.refused.push((kind_word(kind), name.to_owned(), refused));
            }
        }
    }

    fn configure_durables(&mut self, durables: Vec<DurableDefinition>, configured: &mut Configured) {
        let mut wanted: FxHashSet<(String, String)> = FxHashSet::default();
        for durable in durables {
            wanted.insert((durable.client_id.clone(), durable.name.clone()));
            self.note_durable(durable, configured);
        }
        let gone: Vec<(SourceId, String)> = self
            .state
            .catalogue()
            .subscriptions()
            .filter(|found| found.is_static && !wanted.contains(&(found.client_id.clone(), found.name.clone())))
            .map(|found| (found.id, found.name.clone()))
            .collect();
        for (source, name) in gone {
            self.remove_durable(source, name, configured);
        }
    }

    pub(super) fn note_durable(&mut self, durable: DurableDefinition, configured: &mut Configured) {
        let name = durable.name.clone();
        match self.configure_durable(durable) {
            Ok(None) => {}
            Ok(Some(change)) => configured.changes.push(("durable", name, change)),
            Err(refused) => configured.refused.push(("durable", name, refused)),
        }
    }

    pub(super) fn remove_durable(&mut self, source: SourceId, name: String, configured: &mut Configured) {
        match self.delete_durable_known(source, &name, false) {
            Ok(_) => configured.changes.push(("durable", name, Change::Deleted)),
            Err(refused) => configured.refused.push(("durable", name, refused)),
        }
    }

    fn configure_durable(&mut self, durable: DurableDefinition) -> Result<Option<Change>, Refused> {
        let definition = SubscriptionDefinition {
            client_id: durable.client_id,
            name: durable.name,
            durable: true,
            shared: durable.shared,
            is_static: true,
            pattern: durable.pattern,
            selector: durable.selector,
            no_local: durable.no_local,
            connection: 0,
        };
        let before = self.state.subscription(&definition.client_id, &definition.name);
        let existed = before.map(|found| {
            (
                found.id,
                found.is_static,
                State::is_same_subscription(found, &definition),
            )
        });
        match existed {
            Some((_, true, true)) => return Ok(None),
            Some((source, _, false)) if self.consumers_of(source) > 0 => {
                let message = format!("The subscription {} has an active consumer.", definition.name);
                return Err(refuse(ErrorCode::InUse, name_excerpt(&definition.name), message));
            }
            _ => {}
        }
        self.state.subscribe(definition).map_err(|error| of_state(&error))?;
        Ok(Some(if existed.is_some() {
            Change::Changed
        } else {
            Change::Created
        }))
    }

    /// Deletes a destination; with messages in it only if `with_messages`, for a topic those that durable subscriptions to
    /// exactly it hold. How many went with it. One that a bridge leads to is made again at once, empty: nothing that is sent to
    /// the bridge's source finds it missing.
    ///
    /// # Errors
    /// It does not exist, holds messages, is the source of a bridge, or belongs to the broker.
    pub fn delete(&mut self, kind: Kind, name: &str, with_messages: bool) -> Result<u64, Refused> {
        let reason = refuse(
            ErrorCode::NoSuchDestination,
            "destination",
            "The destination was deleted.",
        );
        let target = self
            .state
            .destination(kind, name)
            .filter(|found| self.state.catalogue().is_target(found.kind, name))
            .map(|found| (found.name.clone(), found.origin, found.properties.clone()));
        let deleted = self.delete_for(kind, name, with_messages, &reason)?;
        if let Some((name, origin, properties)) = target {
            // A bridge's copies go on having a place (EMS-DEST-E01), or everybody who sends to its source would be refused.
            // Where there is no room for the record now, the host makes it with the next change.
            let _ = self.state.ensure_destination(kind, &name, origin, properties);
        }
        Ok(deleted)
    }

    /// As `delete`, telling its producers and consumers `reason`: that it lives somewhere else, for example.
    ///
    /// # Errors
    /// As `delete`.
    pub fn delete_for(
        &mut self,
        kind: Kind,
        name: &str,
        with_messages: bool,
        reason: &Refused,
    ) -> Result<u64, Refused> {
        let Some(id) = self.state.destination(kind, name).map(|found| found.id) else {
            return Err(missing(kind, name));
        };
        let deleted = self.delete_known(id, with_messages, reason)?;
        self.expel_producers_of(id, reason);
        Ok(deleted)
    }

    fn expel_producers_of(&mut self, id: DestinationId, reason: &Refused) {
        let mut bound: Vec<u64> = self
            .producers
            .iter()
            .filter(|(_, producer)| producer.target.as_ref().is_some_and(|target| target.destination == id))
            .map(|(key, _)| *key)
            .collect();
        bound.sort_unstable();
        for key in bound {
            self.expel_producer(key, reason.clone());
        }
    }

    /// Serves a destination to nobody, since it lives on another broker, as `reason` says: who uses it is told, and who
    /// opens it. What it holds stays, and can be browsed. Who subscribes to a topic gets what there is for it first:
    /// see `close_subscribers`. With none it is served again.
    ///
    /// # Errors
    /// It does not exist.
    pub fn serve_elsewhere(&mut self, kind: Kind, name: &str, reason: Option<Refused>) -> Result<(), Refused> {
        let Some(id) = self.state.destination(kind, name).map(|found| found.id) else {
            return Err(missing(kind, name));
        };
        let Some(reason) = reason else {
            self.elsewhere.remove(&id);
            self.state.set_elsewhere(id, false);
            return Ok(());
        };
        self.elsewhere.insert(id, reason.clone());
        self.state.set_elsewhere(id, true);
        self.expel_producers_of(id, &reason);
        match kind {
            Kind::Queue => self.close_consumers_of(id.source(), &reason, true),
            Kind::Topic => self.close_subscribers(name, &reason),
        }
        Ok(())
    }

    /// How who wants to use a destination is told that it lives on another broker.
    pub(super) fn lives_here(&self, id: DestinationId) -> Result<(), Refused> {
        match self.elsewhere.get(&id) {
            Some(reason) => Err(reason.clone()),
            None => Ok(()),
        }
    }

    /// Refuses from now on what is sent to a destination, with `reason`; or with none takes it again. What it holds can
    /// be consumed meanwhile.
    ///
    /// # Errors
    /// It does not exist.
    pub fn close_to_producers(&mut self, kind: Kind, name: &str, reason: Option<Refused>) -> Result<(), Refused> {
        let Some(id) = self.state.destination(kind, name).map(|found| found.id) else {
            return Err(missing(kind, name));
        };
        match reason {
            Some(reason) => self.closed.insert(id, reason),
            None => self.closed.remove(&id),
        };
        Ok(())
    }

    /// Why nothing may be sent to a destination at present.
    pub(super) fn closed_to_producers(&self, id: DestinationId) -> Result<(), Refused> {
        self.lives_here(id)?;
        match self.closed.get(&id) {
            Some(reason) => Err(reason.clone()),
            None => Ok(()),
        }
    }

    fn delete_known(&mut self, id: DestinationId, with_messages: bool, reason: &Refused) -> Result<u64, Refused> {
        // The state decides first; consumers are only closed when the destination really goes. Those of a topic's durable
        // subscriptions stay, as these do, and have nothing of it in hand any more.
        let durables = self.state.durables_at(id);
        let held: Vec<(u64, u64)> = durables.iter().flat_map(|durable| self.in_hands(*durable)).collect();
        let deleted = self
            .state
            .delete_destination(id, with_messages, "administrator")
            .map_err(|error| of_state(&error))?;
        self.take_from_hands(&held);
        self.closed.remove(&id);
        self.elsewhere.remove(&id);
        self.state.set_elsewhere(id, false);
        self.close_consumers_of(id.source(), reason, false);
        Ok(deleted)
    }

    /// Deletes a durable subscription. How many messages went with it.
    ///
    /// # Errors
    /// It does not exist, has a consumer, or holds messages and `with_messages` is not given.
    pub fn delete_durable(&mut self, client_id: &str, name: &str, with_messages: bool) -> Result<u64, Refused> {
        let Some(source) = self.durable(client_id, name) else {
            return Err(missing_durable(name));
        };
        self.delete_durable_known(source, name, with_messages)
    }

    fn delete_durable_known(&mut self, source: SourceId, name: &str, with_messages: bool) -> Result<u64, Refused> {
        if self.consumers_of(source) > 0 {
            let message = format!("The subscription {name} has an active consumer.");
            return Err(refuse(ErrorCode::InUse, name_excerpt(name), message));
        }
        let messages = self.source_totals(source).messages;
        if messages > 0 && !with_messages {
            let message = format!("The subscription {name} still holds {messages} messages.");
            return Err(refuse(ErrorCode::InUse, name_excerpt(name), message));
        }
        let reason = refuse(
            ErrorCode::NoSuchSubscription,
            name_excerpt(name),
            "The subscription was deleted.",
        );
        self.close_consumers_of(source, &reason, false);
        self.state
            .unsubscribe(source, "administrator")
            .map_err(|error| of_state(&error))
    }

    pub(super) fn durable(&self, client_id: &str, name: &str) -> Option<SourceId> {
        self.state
            .subscription(client_id, name)
            .filter(|found| found.durable)
            .map(|found| found.id)
    }

    /// What a destination holds and did; a topic's is the sum over its subscriptions.
    #[must_use]
    pub fn destination_totals(&mut self, id: DestinationId) -> Totals {
        let Some(found) = self.state.destination_by_id(id) else {
            return Totals::default();
        };
        let mut totals = Totals {
            producers: found.producers,
            flow_controlled_sessions: self.waiting_for(id),
            published_total: found.published_total,
            published_bytes_total: found.published_bytes_total,
            ..Totals::default()
        };
        for durable in self.state.durables_at(id) {
            let Some(held) = self.state.source(durable).map(|source| &source.statistics) else {
                continue;
            };
            totals.durable_messages += held.messages;
            totals.durable_pending_messages += held.pending_messages;
        }
        let sources: Vec<SourceId> = match found.kind {
            Kind::Queue => vec![found.id.source()],
            Kind::Topic => {
                let found = self.state.catalogue().subscriptions_of(found.name.as_str());
                totals.subscriptions = u32::try_from(found.len()).unwrap_or(u32::MAX);
                found.iter().map(|subscription| subscription.id).collect()
            }
        };
        for source in sources {
            totals.add(self, source);
            totals.note_oldest(self.state.oldest_ms(source));
        }
        totals
    }

    /// What a subscription holds and did.
    #[must_use]
    pub fn source_totals(&mut self, source: SourceId) -> Totals {
        let mut totals = Totals::default();
        totals.add(self, source);
        totals.note_oldest(self.state.oldest_ms(source));
        if let Some(source) = self.state.source(source) {
            totals.published_total = source.statistics.published_total;
            totals.published_bytes_total = source.statistics.published_bytes_total;
        }
        totals
    }

    /// What the broker holds and did as a whole.
    #[must_use]
    pub fn broker_totals(&self) -> BrokerTotals {
        let mut broker = BrokerTotals::default();
        let catalogue = self.state.catalogue();
        for found in catalogue.destinations() {
            match found.kind {
                Kind::Queue => {
                    broker.queues += 1;
                    broker.totals.add(self, found.id.source());
                }
                Kind::Topic => broker.topics += 1,
            }
        }
        for subscription in catalogue.subscriptions() {
            broker.subscriptions += 1;
            broker.totals.add(self, subscription.id);
        }
        let totals = self.state.totals();
        broker.totals.published_total = totals.published_total;
        broker.totals.delivered_total = totals.delivered_total;
        broker.totals.acknowledged_total = totals.acknowledged_total;
        broker
    }
}

/// What a destination, a subscription or the broker holds and did since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(
    missing_docs,
    reason = "the fields of DestinationStatistics in admin.proto, which documents them, but for those with a text"
)]
pub struct Totals {
    pub messages: u64,
    pub bytes: u64,
    pub delivered_messages: u64,
    pub delayed_messages: u64,
    pub redelivery_delayed_messages: u64,
    /// Sent in transactions that are open or prepared; not among the others.
    pub pending_messages: u64,
    pub durable_messages: u64,
    /// As `pending_messages`, of what would be among `durable_messages`.
    pub durable_pending_messages: u64,
    pub flow_controlled_sessions: u32,
    pub producers: u32,
    pub consumers: u32,
    pub subscriptions: u32,
    pub published_total: u64,
    pub published_bytes_total: u64,
    pub delivered_total: u64,
    pub acknowledged_total: u64,
    pub redelivered_total: u64,
    pub expired_total: u64,
    pub discarded_total: u64,
    pub undelivered_total: u64,
    pub oldest_ms: u64,
}

/// [`Totals`] of everything, with how many things there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BrokerTotals {
    /// Over all sources.
    pub totals: Totals,
    /// How many queues.
    pub queues: u32,
    /// How many topics.
    pub topics: u32,
    /// How many subscriptions.
    pub subscriptions: u32,
}

impl Totals {
    fn note_oldest(&mut self, oldest_ms: Option<u64>) {
        if let Some(oldest_ms) = oldest_ms
            && (self.oldest_ms == 0 || oldest_ms < self.oldest_ms)
        {
            self.oldest_ms = oldest_ms;
        }
    }

    fn add(&mut self, engine: &Engine, id: SourceId) {
        let Some(source) = engine.state.source(id) else { return };
        let found = &source.statistics;
        // What waits for its redelivery is told of by itself (EMS-DEST-A33).
        self.messages += found.messages - found.returned_messages;
        self.bytes += found.bytes - found.returned_bytes;
        self.redelivery_delayed_messages += found.returned_messages;
        self.delivered_messages += found.in_flight_messages;
        self.delayed_messages += found.delayed_messages;
        self.pending_messages += found.pending_messages;
        self.consumers += u32::try_from(engine.consumers_of(id)).unwrap_or(u32::MAX);
        self.delivered_total += found.delivered_total;
        self.acknowledged_total += found.acknowledged_total;
        self.redelivered_total += found.redelivered_total;
        self.expired_total += found.expired_total;
        self.discarded_total += found.discarded_total;
        self.undelivered_total += found.undelivered_total;
    }
}

pub(super) fn missing(kind: Kind, name: &str) -> Refused {
    let message = format!("There is no {kind} named {}.", name_excerpt(name));
    refuse(ErrorCode::NoSuchDestination, name_excerpt(name), message)
}

pub(super) fn missing_durable(name: &str) -> Refused {
    let message = format!("There is no durable subscription named {}.", name_excerpt(name));
    refuse(ErrorCode::NoSuchSubscription, name_excerpt(name), message)
}
