//! Looking without changing: who holds what, figures for people.

use crate::log::Position;

use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId, Tx};
use super::queue::EXPIRED;

impl State {
    /// Where everything appended so far ends: it is durable when [`State::committed`] has come here.
    #[must_use]
    pub fn end(&self) -> Position {
        self.log.end()
    }

    /// Whether the last attempt to write such messages to a file failed, for want of room say; it is tried again.
    #[must_use]
    pub fn cannot_spill(&self) -> bool {
        self.tables.volatile.is_paused()
    }

    /// Whether the log takes no records of `bytes` altogether for want of room. One that has failed lacks nothing: whoever
    /// waited for it has to be told.
    #[must_use]
    pub fn lacks_room(&self, bytes: u64) -> bool {
        self.log.failed().is_none() && !self.log.has_room(bytes)
    }

    /// Whether messages that are not logged have taken all the memory that they may.
    #[must_use]
    pub fn is_memory_full(&self) -> bool {
        self.log.failed().is_none() && self.tables.volatile.is_full()
    }

    /// Whether as many bytes wait at a destination that has flow control as it allows, or at one that bridges lead to from
    /// it and that has it too (EMS-DEST-A57, A60).
    pub fn has_flow_enough(&mut self, id: DestinationId) -> bool {
        if !self.is_flow_controlled(id) {
            return false;
        }
        self.tables.catalogue.refresh_routes(id);
        let Some(destination) = self.tables.catalogue.destination(id) else {
            return false;
        };
        let bridges = destination.routes.bridges.iter();
        let targets: Vec<DestinationId> = bridges
            .filter_map(|bridge| self.tables.catalogue.id_of(bridge.kind, bridge.name.as_str()))
            .collect();
        self.is_at_flow_limit(id) || targets.into_iter().any(|target| self.is_at_flow_limit(target))
    }

    /// Whether a destination has flow control.
    #[must_use]
    pub fn is_flow_controlled(&self, id: DestinationId) -> bool {
        let found = self.tables.catalogue.destination(id);
        found.is_some_and(|found| found.properties.flow_control_bytes > 0)
    }

    fn is_at_flow_limit(&mut self, id: DestinationId) -> bool {
        if !self.is_flow_controlled(id) {
            return false;
        }
        self.tables.catalogue.refresh_routes(id);
        let Some(destination) = self.tables.catalogue.destination(id) else {
            return false;
        };
        let is_enough = |source: SourceId| {
            let found = self.tables.sources.get(&source);
            found.is_some_and(|found| found.statistics.counted().1 >= destination.properties.flow_control_bytes)
        };
        match destination.kind {
            Kind::Queue => is_enough(id.source()),
            Kind::Topic => destination.routes.subscriptions.iter().any(|to| is_enough(to.source)),
        }
    }

    /// Whether the log takes no records of `bytes` altogether only because its next segments are still being prepared: a
    /// matter of moments.
    #[must_use]
    pub fn is_preparing(&self, bytes: u64) -> bool {
        self.log.failed().is_none() && self.log.is_preparing(bytes)
    }

    /// What is in flight of a source with a holder that `is_holder` knows, in order; without what is acknowledged in an
    /// open transaction.
    #[must_use]
    pub fn in_flight(&self, id: SourceId, is_holder: impl Fn(u64) -> bool) -> Vec<u64> {
        self.in_flight_within(id, &[(0, u64::MAX)], is_holder)
    }

    /// As [`State::in_flight`], within some ranges, both ends included.
    #[must_use]
    pub fn in_flight_within(&self, id: SourceId, ranges: &[(u64, u64)], is_holder: impl Fn(u64) -> bool) -> Vec<u64> {
        let Some(source) = self.tables.sources.get(&id) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        source.queue.flights_in_any(ranges, &mut found);
        found.retain(|sequence| {
            source
                .queue
                .flight(*sequence)
                .is_some_and(|flight| flight.transaction == 0 && is_holder(flight.holder))
        });
        found
    }

    /// Those of some sequences (stretches with both ends) that are in the hands of such holders, also what an open transaction
    /// of theirs has acknowledged.
    #[must_use]
    pub fn held_within(&self, id: SourceId, ranges: &[(u64, u64)], is_holder: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        if let Some(source) = self.tables.sources.get(&id) {
            source.queue.flights_in_any(ranges, &mut found);
            let holder = |sequence: u64| source.queue.flight(sequence).map(|flight| flight.holder);
            found.retain(|sequence| holder(*sequence).is_some_and(&is_holder));
        }
        found
    }

    /// Who holds a delivery.
    #[must_use]
    pub fn holder(&self, id: SourceId, sequence: u64) -> Option<u64> {
        let source = self.tables.sources.get(&id)?;
        source.queue.flight(sequence).map(|flight| flight.holder)
    }

    /// Whether a message's time was up while it was in flight.
    #[must_use]
    pub fn is_expired_in_flight(&self, id: SourceId, sequence: u64) -> bool {
        let Some(source) = self.tables.sources.get(&id) else {
            return false;
        };
        let flight = source.queue.flight(sequence);
        flight.is_some_and(|flight| {
            source
                .queue
                .get(flight.priority, sequence)
                .is_some_and(|entry| entry.is(EXPIRED))
        })
    }

    /// What an open transaction has acknowledged.
    #[must_use]
    pub fn acknowledged_in(&self, tx: Tx) -> Vec<(SourceId, u64)> {
        let id = self.tables.transactions.of_owner(tx);
        id.and_then(|id| self.tables.transactions.get(id))
            .map(|open| open.acknowledged.clone())
            .unwrap_or_default()
    }
}
