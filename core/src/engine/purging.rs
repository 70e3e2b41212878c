//! Purging: dropping what a queue, a topic's subscriptions, a durable subscription, or a name under which delayed messages
//! are seen holds.

use super::configuring::{missing, missing_durable};
use super::engine::Engine;
use super::errors::{Refused, of_state, refuse};
use super::session::session_of;
use super::tickets::name_excerpt;
use crate::proto::ErrorCode;
use crate::state::{Kind, SourceId, Viewed};

impl Engine {
    /// Drops all messages of a queue, those being processed too. How many.
    ///
    /// # Errors
    /// There is no such queue, or the store takes nothing more.
    pub fn purge_queue(&mut self, name: &str) -> Result<u64, Refused> {
        if let Some(viewed) = Viewed::of(name) {
            return self.purge_viewed(name, viewed);
        }
        let Some(id) = self.state.destination(Kind::Queue, name).map(|found| found.id) else {
            return Err(missing(Kind::Queue, name));
        };
        self.purge_source(id.source())
    }

    /// Drops what is seen under a name that is no destination, where that can be dropped.
    fn purge_viewed(&mut self, name: &str, viewed: Viewed<'_>) -> Result<u64, Refused> {
        let Viewed::Delayed(kind, of) = viewed else {
            let message = format!(
                "{} cannot be purged. Purge the queues that its messages are of.",
                name_excerpt(name)
            );
            return Err(refuse(ErrorCode::NotAllowed, name_excerpt(name), message));
        };
        let found = self.state.destination(kind, of).map(|found| found.id);
        let id = found.ok_or_else(|| missing(kind, of))?;
        let purged = self.state.purge_delayed(id, "administrator");
        purged.map_err(|error| of_state(&error))
    }

    /// Drops what a source holds, and takes it from whoever was handed it.
    fn purge_source(&mut self, source: SourceId) -> Result<u64, Refused> {
        let held = self.in_hands(source);
        let purged = self
            .state
            .purge(source, "administrator")
            .map_err(|error| of_state(&error))?;
        self.take_from_hands(&held);
        Ok(purged)
    }

    /// What consumers of a source have been handed and not acknowledged, each sequence with its holder.
    pub(super) fn in_hands(&self, source: SourceId) -> Vec<(u64, u64)> {
        let sequences = self.state.in_flight(source, |_| true).into_iter();
        sequences
            .filter_map(|sequence| Some((sequence, self.state.holder(source, sequence)?)))
            .collect()
    }

    /// Takes what is gone from those who were handed it, who can be handed as much again.
    pub(super) fn take_from_hands(&mut self, held: &[(u64, u64)]) {
        for (sequence, holder) in held {
            if let Some(consumer) = self.consumers.get_mut(holder) {
                consumer.withdraw(*sequence);
                self.wake_consumer(*holder);
            }
            self.acknowledged(session_of(*holder), 1);
        }
    }

    /// Drops what every subscription to this topic, or to this very pattern, holds (EMS-DEST-B15). A subscription to another
    /// pattern keeps what it has of the topic. Under the name by which what is delayed of a topic is seen, that goes, wherever
    /// it waits (EMS-DEST-A63). How many messages, counted for each subscription.
    ///
    /// # Errors
    /// There is neither such a topic nor such a subscription, or the store takes nothing more.
    pub fn purge_topic(&mut self, name: &str) -> Result<u64, Refused> {
        if let Some(viewed @ Viewed::Delayed(Kind::Topic, _)) = Viewed::of(name) {
            return self.purge_viewed(name, viewed);
        }
        let subscriptions = self.state.catalogue().subscriptions();
        let mut sources: Vec<SourceId> = subscriptions
            .filter(|found| found.pattern.as_str() == name)
            .map(|found| found.id)
            .collect();
        if sources.is_empty() && self.state.destination(Kind::Topic, name).is_none() {
            return Err(missing(Kind::Topic, name));
        }
        sources.sort_unstable();
        let mut purged = 0;
        for source in sources {
            purged += self.purge_source(source)?;
        }
        Ok(purged)
    }

    /// Drops all messages of a durable subscription. How many.
    ///
    /// # Errors
    /// There is no such subscription, or the store takes nothing more.
    pub fn purge_durable(&mut self, client_id: &str, name: &str) -> Result<u64, Refused> {
        let Some(source) = self.durable(client_id, name) else {
            return Err(missing_durable(name));
        };
        self.purge_source(source)
    }
}
