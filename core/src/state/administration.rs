//! What administrators and the opening of producers and consumers change: destinations, subscriptions, stores, bridges.

use std::sync::Arc;

use crate::log::{AppendError, Purpose, Space};
use crate::name::{DestinationName, Pattern};
use crate::selector::Selector;

use super::bridge::Bridge;
use super::catalogue::{Subscription, Unwanted};
use super::catalogue_record::{DestinationHead, Origin, SubscriptionHead, WatermarkHead, kinds};
use super::error::StateError;
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId, UNDELIVERED};
use super::properties::{Properties, StoreDefinition};
use super::queue::{Entry, GATED, IN_FLIGHT};
use super::tables::Tables;
use super::terminal_record::Reason;

/// What the record of a destination or subscription takes, at most.
const CATALOGUE_RECORD_BYTES: u64 = 16 << 10;

/// A subscription that is wanted.
#[derive(Clone, Debug)]
pub struct SubscriptionDefinition {
    /// The client id it belongs to; empty for a shared one without, and for plain non-durable ones.
    pub client_id: String,
    /// Its name; empty for a plain non-durable one.
    pub name: String,
    /// Collects while nobody consumes, and is kept in the log.
    pub durable: bool,
    /// Several consumers may share it.
    pub shared: bool,
    /// Configured by an administrator.
    pub is_static: bool,
    /// The topic or pattern.
    pub pattern: Pattern,
    /// Its selector.
    pub selector: Option<Arc<Selector>>,
    /// Not what its own client (durable) or connection published.
    pub no_local: bool,
    /// The connection, for noLocal of a non-durable one.
    pub connection: u64,
}

/// A subscription that is there now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subscribed {
    /// Where its messages wait.
    pub source: SourceId,
    /// One of this name and another definition was dropped with what it held.
    pub replaced: bool,
    /// It is new (also when it replaces one).
    pub created: bool,
}

impl State {
    /// Makes sure that a destination exists and has these properties. A dynamic one that is configured becomes static; a
    /// static one that is opened stays so.
    ///
    /// # Errors
    /// It belongs to the system, names a store that does not exist, or cannot be logged.
    pub fn ensure_destination(
        &mut self,
        kind: Kind,
        name: &DestinationName,
        origin: Origin,
        properties: Properties,
    ) -> Result<DestinationId, StateError> {
        if !properties.store.is_empty() && !self.tables.stores.has(&properties.store) {
            return Err(StateError::Configuration(format!(
                "there is no store {}",
                properties.store
            )));
        }
        let id = match self.tables.catalogue.id_of(kind, name.as_str()) {
            Some(id) => {
                let destination = self.tables.catalogue.destination(id);
                let before = destination.map_or(origin, |destination| destination.origin);
                let generation = destination.map_or(1, |destination| destination.generation);
                if before == Origin::Dynamic && origin == Origin::Static {
                    self.log_destination(id, kind, name, generation, origin)?;
                }
                id
            }
            None => {
                let id = DestinationId(self.tables.catalogue.allocate_id(origin != Origin::Temporary));
                let generation = self.tables.catalogue.generations + 1;
                self.log_destination(id, kind, name, generation, origin)?;
                id
            }
        };
        self.configure_destination(id, properties);
        Ok(id)
    }

    /// Refuses what a client brings into being once the disk is full: the reserve is for taking messages out. While the
    /// next segments are being prepared it may be used; that is a matter of moments.
    pub(super) fn leave_reserve(&self) -> Result<(), AppendError> {
        if self.log.space() == Space::Full && !self.log.has_room(CATALOGUE_RECORD_BYTES) {
            return Err(AppendError::NoSpace);
        }
        Ok(())
    }

    fn log_destination(
        &mut self,
        id: DestinationId,
        kind: Kind,
        name: &DestinationName,
        generation: u64,
        origin: Origin,
    ) -> Result<(), StateError> {
        if origin != Origin::Temporary {
            if origin == Origin::Dynamic {
                self.leave_reserve()?;
            }
            let name = name.as_str().to_owned();
            let head = DestinationHead {
                deleted: false,
                id,
                kind,
                name,
                generation,
                origin,
                actor: String::new(),
            };
            self.head_buffer.clear();
            head.encode(&mut self.head_buffer).map_err(AppendError::from)?;
            self.append_event(kinds::DESTINATION)?;
        }
        self.tables
            .create_destination(id, kind, name.clone(), generation, origin);
        Ok(())
    }

    /// Gives a destination its effective properties. They are configuration and not logged. Messages that wait stay in the
    /// account of the store they came to (EMS-STORE-A11).
    pub fn configure_destination(&mut self, id: DestinationId, properties: Properties) {
        let store = self.tables.stores.index(&properties.store);
        let Some(destination) = self.tables.catalogue.destination_mut(id) else {
            return;
        };
        destination.properties = properties;
        destination.settled = true;
        destination.is_current = true;
        destination.is_asked = false;
        destination.store = store;
        let now_ms = self.tables.now.monotonic_ms;
        self.tables.timers.release(id, now_ms);
        // As what a start finds overdue it goes before anything is handed out, even while the clock stands still.
        self.overdue |= self.tables.timers.is_due(now_ms);
        if let Some(source) = self.tables.sources.get_mut(&id.source())
            && source.store != store
        {
            let (messages, bytes) = (source.statistics.messages, source.statistics.bytes);
            let before = std::mem::replace(&mut source.store, store);
            self.tables.stores.transfer(before, store, messages, bytes);
        }
    }

    /// Leaves a destination the properties it has, although the configuration that holds now says nothing of it.
    pub fn settle_destination(&mut self, id: DestinationId) {
        if let Some(destination) = self.tables.catalogue.destination_mut(id) {
            destination.settled = true;
        }
    }

    /// Another configuration holds: properties of dynamic destinations are to be asked for anew.
    pub fn unsettle_dynamic(&mut self) {
        self.tables.catalogue.unsettle_dynamic();
    }

    /// A static destination that is configured no more: it stays while it holds messages or is in use, as a dynamic one.
    ///
    /// # Errors
    /// It cannot be logged.
    pub fn make_dynamic(&mut self, id: DestinationId) -> Result<(), StateError> {
        let Some(destination) = self.tables.catalogue.destination(id) else {
            return Ok(());
        };
        if destination.origin != Origin::Static {
            return Ok(());
        }
        let (kind, name, generation) = (destination.kind, destination.name.clone(), destination.generation);
        self.log_destination(id, kind, &name, generation, Origin::Dynamic)
    }

    /// Sets the bridges, all of them.
    pub fn set_bridges(&mut self, bridges: Vec<Bridge>) {
        self.tables.catalogue.set_bridges(bridges);
    }

    /// Adds and changes stores. The three of the system are always there.
    pub fn set_stores(&mut self, stores: Vec<StoreDefinition>) {
        self.tables.stores.configure(stores);
    }

    /// Whether a subscription is what a definition asks for.
    #[must_use]
    pub fn is_same_subscription(subscription: &Subscription, definition: &SubscriptionDefinition) -> bool {
        let selector = subscription.selector.as_deref() == definition.selector.as_deref();
        let no_local = (subscription.unwanted != Unwanted::Nobody) == definition.no_local;
        subscription.pattern == definition.pattern
            && selector
            && no_local
            && subscription.shared == definition.shared
            && subscription.durable == definition.durable
    }

    /// Finds or makes a subscription. A named one that differs from what is there is dropped with what it holds, and made
    /// anew; whether that is allowed (a static one, one with consumers) is for the caller to decide before.
    ///
    /// # Errors
    /// It cannot be logged.
    pub fn subscribe(&mut self, definition: SubscriptionDefinition) -> Result<Subscribed, StateError> {
        let existing = match definition.name.as_str() {
            "" => None,
            name => self.tables.catalogue.subscription_named(&definition.client_id, name),
        };
        if let Some(existing) = existing {
            let source = existing.id;
            if Self::is_same_subscription(existing, &definition) {
                if definition.is_static && !existing.is_static && existing.durable {
                    self.create_subscription(source, definition)?;
                }
                return Ok(Subscribed {
                    source,
                    replaced: false,
                    created: false,
                });
            }
            let new = SourceId(self.tables.catalogue.allocate_id(definition.durable));
            let lengths = self.replacing_lengths(source, new, &definition)?;
            self.log.check_room(&lengths, Purpose::Drain)?;
            self.unsubscribe(source, "replaced")?;
            self.make_subscription(new, definition)?;
            return Ok(Subscribed {
                source: new,
                replaced: true,
                created: true,
            });
        }
        let source = SourceId(self.tables.catalogue.allocate_id(definition.durable));
        self.create_subscription(source, definition)?;
        Ok(Subscribed {
            source,
            replaced: false,
            created: true,
        })
    }

    /// The lengths of the records by which one subscription ends and another takes its place, if both may be written.
    fn replacing_lengths(
        &mut self,
        old: SourceId,
        new: SourceId,
        definition: &SubscriptionDefinition,
    ) -> Result<Vec<u64>, AppendError> {
        let mut lengths = Vec::new();
        let ends = self.tables.catalogue.subscription(old).filter(|old| old.durable);
        if let Some(ends) = ends.map(|ends| head_of(ends, true, "replaced")) {
            self.head_buffer.clear();
            ends.encode(&mut self.head_buffer)?;
            lengths.push(self.head_buffer.len() as u64);
        }
        if definition.durable {
            if !definition.is_static {
                self.leave_reserve()?;
            }
            self.head_buffer.clear();
            subscription_head(new, definition).encode(&mut self.head_buffer)?;
            lengths.push(self.head_buffer.len() as u64);
        }
        Ok(lengths)
    }

    fn create_subscription(&mut self, id: SourceId, definition: SubscriptionDefinition) -> Result<(), StateError> {
        if definition.durable && !definition.is_static {
            self.leave_reserve()?;
        }
        self.make_subscription(id, definition)
    }

    /// Logs a subscription and makes it, also where only the reserve is left.
    fn make_subscription(&mut self, id: SourceId, definition: SubscriptionDefinition) -> Result<(), StateError> {
        if definition.durable {
            self.head_buffer.clear();
            subscription_head(id, &definition)
                .encode(&mut self.head_buffer)
                .map_err(AppendError::from)?;
            self.append_event(kinds::SUBSCRIPTION)?;
        }
        let unwanted = match (definition.no_local, definition.durable) {
            (false, _) => Unwanted::Nobody,
            (true, true) => Unwanted::Client(definition.client_id.as_str().into()),
            (true, false) => Unwanted::Connection(definition.connection),
        };
        let selector_text = definition
            .selector
            .as_ref()
            .map_or(String::new(), |selector| selector.text().to_owned());
        self.tables.create_subscription(Subscription {
            id,
            client_id: definition.client_id,
            name: definition.name,
            durable: definition.durable,
            shared: definition.shared,
            is_static: definition.is_static,
            pattern: definition.pattern,
            selector_text,
            selector: definition.selector,
            unwanted,
        });
        self.account_subscription(id);
        Ok(())
    }

    /// A durable subscription to one topic is in its topic's store; one to a pattern in `$sys.failsafe`.
    fn account_subscription(&mut self, id: SourceId) {
        let Some(subscription) = self.tables.catalogue.subscription(id) else {
            return;
        };
        let topic = self.tables.catalogue.id_of(Kind::Topic, subscription.pattern.as_str());
        let Some(store) = topic.map(|topic| self.tables.store_of(topic)) else {
            return;
        };
        if let Some(source) = self.tables.sources.get_mut(&id) {
            let (messages, bytes) = (source.statistics.messages, source.statistics.bytes);
            let before = std::mem::replace(&mut source.store, store);
            self.tables.stores.transfer(before, store, messages, bytes);
        }
    }

    /// Ends a subscription with what it holds; says how many messages that were.
    ///
    /// # Errors
    /// It is not there, or its end cannot be logged.
    pub fn unsubscribe(&mut self, id: SourceId, actor: &str) -> Result<u64, StateError> {
        let subscription = self.tables.catalogue.subscription(id).ok_or(StateError::NoSuchSource)?;
        if subscription.durable {
            let head = head_of(subscription, true, actor);
            self.head_buffer.clear();
            head.encode(&mut self.head_buffer).map_err(AppendError::from)?;
            self.append_event_for(kinds::SUBSCRIPTION, Purpose::Upkeep)?;
        }
        self.witness.forget(id);
        Ok(self.tables.drop_subscription(&mut self.log, id))
    }

    /// What is here of a destination lives on another broker (or does no more): nothing is put aside into it.
    pub fn set_elsewhere(&mut self, id: DestinationId, elsewhere: bool) {
        if elsewhere {
            self.tables.elsewhere.insert(id);
        } else {
            self.tables.elsewhere.remove(&id);
        }
    }

    /// One more consumer takes from a source.
    pub fn attach(&mut self, id: SourceId, has_selector: bool) {
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return;
        };
        source.consumers += 1;
        source.selecting += u32::from(has_selector);
        let (next, logged) = (source.next_sequence, source.watermark.logged);
        // Raised at once, so that the first deliveries need not wait. Where it cannot be, they try again.
        if source.logged && source.statistics.messages > 0 && next > logged {
            let lowest = source.queue.lowest().unwrap_or(next);
            let _ = self.reserve(id, lowest.max(logged));
        }
    }

    /// One consumer less.
    pub fn detach(&mut self, id: SourceId, has_selector: bool) {
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return;
        };
        source.consumers = source.consumers.saturating_sub(1);
        source.selecting = source.selecting.saturating_sub(u32::from(has_selector));
        if source.selecting == 0 {
            let freed: usize = source
                .headers
                .values()
                .map(|header| super::dispatching::header_cost(header.len()))
                .sum();
            source.headers = rustc_hash::FxHashMap::default();
            self.tables.header_bytes = self.tables.header_bytes.saturating_sub(freed);
        }
    }

    /// One more producer has a destination open.
    pub fn attach_producer(&mut self, id: DestinationId) {
        if let Some(destination) = self.tables.catalogue.destination_mut(id) {
            destination.producers += 1;
        }
    }

    /// One producer less.
    pub fn detach_producer(&mut self, id: DestinationId) {
        if let Some(destination) = self.tables.catalogue.destination_mut(id) {
            destination.producers = destination.producers.saturating_sub(1);
        }
    }

    /// Moves a waiting message to another queue.
    ///
    /// # Errors
    /// Source, target or message are not there, or the log takes no record.
    pub fn move_message(&mut self, from: SourceId, sequence: u64, to: SourceId, actor: &str) -> Result<(), StateError> {
        let source = self.tables.sources.get(&from).ok_or(StateError::NoSuchSource)?;
        let found = source
            .queue
            .find(sequence)
            .filter(|(_, entry)| !entry.is(IN_FLIGHT | GATED));
        let (priority, entry) = found.ok_or(StateError::NoSuchSource)?;
        if !self.tables.sources.contains_key(&to) {
            return Err(StateError::NoSuchSource);
        }
        Ok(self.move_entry(from, priority, &entry, to, Reason::Moved, actor)?)
    }

    /// Moves a damaged message that is not in flight to `$sys.undelivered`, with its reason: nobody tries it again, and it is
    /// still there for whoever mends the disk. Found damaged there, too, it ends. Whether it was there.
    ///
    /// # Errors
    /// There is no such source, or the log takes no record.
    pub fn put_damaged_aside(&mut self, id: SourceId, sequence: u64) -> Result<bool, StateError> {
        let source = self.tables.sources.get(&id).ok_or(StateError::NoSuchSource)?;
        let waiting = |(_, entry): &(u8, Entry)| !entry.is(IN_FLIGHT | GATED);
        let Some((priority, entry)) = source.queue.find(sequence).filter(waiting) else {
            return Ok(false);
        };
        if Tables::may_preserve(id) {
            self.move_entry(id, priority, &entry, UNDELIVERED.source(), Reason::Damaged, "")?;
        } else {
            self.end_entries(id, &[(priority, entry)], Reason::Damaged, "")?;
        }
        Ok(true)
    }

    /// When the oldest waiting message of a source arrived, if it is in memory: for statistics.
    pub fn oldest_ms(&mut self, id: SourceId) -> Option<u64> {
        let entry = self
            .tables
            .sources
            .get(&id)?
            .queue
            .oldest_waiting()
            .map(|(_, entry)| entry)?;
        self.peek_head(entry.position).map(|head| head.arrived_ms)
    }

    pub(super) fn append_watermark(&mut self, head: WatermarkHead) -> Result<(), AppendError> {
        self.head_buffer.clear();
        head.encode(&mut self.head_buffer);
        let position = self.append_event(kinds::WATERMARK)?;
        self.tables.apply_watermark(position, head);
        Ok(())
    }
}

/// A durable subscription that begins.
fn subscription_head(id: SourceId, definition: &SubscriptionDefinition) -> SubscriptionHead {
    let selector = definition.selector.as_ref();
    SubscriptionHead {
        deleted: false,
        id,
        client_id: definition.client_id.clone(),
        name: definition.name.clone(),
        pattern: definition.pattern.as_str().to_owned(),
        selector: selector.map_or(String::new(), |selector| selector.text().to_owned()),
        shared: definition.shared,
        no_local: definition.no_local,
        is_static: definition.is_static,
        actor: String::new(),
    }
}

/// A durable subscription as records have it; `deleted`: it ends, by this actor.
pub(super) fn head_of(subscription: &Subscription, deleted: bool, actor: &str) -> SubscriptionHead {
    SubscriptionHead {
        deleted,
        id: subscription.id,
        client_id: subscription.client_id.clone(),
        name: subscription.name.clone(),
        pattern: subscription.pattern.as_str().to_owned(),
        selector: subscription.selector_text.clone(),
        shared: subscription.shared,
        no_local: subscription.unwanted != Unwanted::Nobody,
        is_static: subscription.is_static,
        actor: actor.to_owned(),
    }
}
