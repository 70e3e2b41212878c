//! Deleting a destination, and what goes with it: a queue's own messages with the queue; of a topic what durable subscriptions
//! to exactly it hold, while these subscriptions stay.
//!
//! Called by the engine for administrators, clients' temporaries and what nobody uses. Durable subscriptions to a pattern keep
//! what they have of a topic: others of its names feed them, and whoever comes for them gets it.

use crate::log::{AppendError, Purpose};

use super::catalogue_record::{DestinationHead, Origin, kinds};
use super::error::StateError;
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId};
use super::queue::Entry;
use super::terminal_record::Reason;

/// What a source gives up, each with its priority.
type Given = (SourceId, Vec<(u8, Entry)>);

impl State {
    /// Messages that a destination holds, those of undecided transactions among them: a queue's own; of a topic those of
    /// durable subscriptions to exactly it.
    #[must_use]
    pub fn held_messages(&self, id: DestinationId) -> u64 {
        let held = |id: SourceId| {
            let statistics = self.tables.sources.get(&id).map(|source| &source.statistics);
            statistics.map_or(0, |held| held.messages + held.pending_messages)
        };
        held(id.source()) + self.durables_at(id).into_iter().map(held).sum::<u64>()
    }

    /// The durable subscriptions to exactly this topic, in the order of their numbers; of a queue there are none.
    #[must_use]
    pub fn durables_at(&self, id: DestinationId) -> Vec<SourceId> {
        let found = self.tables.catalogue.destination(id);
        let Some(topic) = found.filter(|found| found.kind == Kind::Topic) else {
            return Vec::new();
        };
        let name = topic.name.as_str();
        let matching = self.tables.catalogue.subscriptions_of(name);
        let mut durables: Vec<SourceId> = matching
            .into_iter()
            .filter(|found| found.durable && found.pattern.as_str() == name)
            .map(|found| found.id)
            .collect();
        durables.sort_unstable();
        durables
    }

    /// Deletes a destination with what it holds; says how many messages that were. What transactions that are open have sent
    /// to a topic's durable subscriptions does not come: they can only be rolled back. One that is prepared keeps what it was
    /// promised: what it sent comes with its commit, and what it acknowledged is back should it be rolled back.
    ///
    /// # Errors
    /// It is not there, belongs to the system, is a bridge's source, or holds messages and `with_messages` is not given.
    pub fn delete_destination(
        &mut self,
        id: DestinationId,
        with_messages: bool,
        actor: &str,
    ) -> Result<u64, StateError> {
        let destination = self.tables.catalogue.destination(id).ok_or(StateError::NoSuchSource)?;
        let name = destination.name.as_str().to_owned();
        if destination.origin == Origin::System {
            return Err(StateError::System(name));
        }
        let bridge = self.tables.catalogue.bridges().iter().find(|bridge| {
            bridge.kind == destination.kind && !bridge.source.has_wildcard() && bridge.source.as_str() == name
        });
        if let Some(bridge) = bridge {
            return Err(StateError::Bridged {
                name,
                bridge: bridge.name.clone(),
            });
        }
        let messages = self.held_messages(id);
        if messages > 0 && !with_messages {
            return Err(StateError::InUse { name, messages });
        }
        let head = DestinationHead {
            deleted: true,
            id,
            kind: destination.kind,
            name,
            generation: destination.generation,
            origin: destination.origin,
            actor: actor.to_owned(),
        };
        let given = self.given_up_with(id);
        if !given.is_empty() {
            self.check_deletion(&head, &given, actor)?;
        }
        // First what goes, then the topic: should the log end between them, it is still there to be deleted again.
        let mut emptied = 0;
        for (source, entries) in &given {
            self.end_entries(*source, entries, Reason::Deleted, actor)?;
            emptied += entries.len() as u64;
        }
        if head.origin != Origin::Temporary {
            self.head_buffer.clear();
            head.encode(&mut self.head_buffer).map_err(AppendError::from)?;
            self.append_event_for(kinds::DESTINATION, Purpose::Upkeep)?;
        }
        self.shut_out(id);
        self.witness.forget(id.source());
        Ok(emptied + self.tables.drop_destination(&mut self.log, id))
    }

    /// What durable subscriptions give up with their topic: all but what a prepared transaction has acknowledged.
    fn given_up_with(&self, topic: DestinationId) -> Vec<Given> {
        let all = self.durables_at(topic).into_iter();
        let given = all.map(|id| (id, self.given_up_by(id)));
        given.filter(|(_, entries)| !entries.is_empty()).collect()
    }

    fn given_up_by(&self, id: SourceId) -> Vec<(u8, Entry)> {
        let Some(source) = self.tables.sources.get(&id) else {
            return Vec::new();
        };
        // What has a record of its own that waits for the decision is ended by that.
        let is_promised = |sequence: u64| {
            let transaction = source.queue.flight(sequence).map_or(0, |flight| flight.transaction);
            let open = self.tables.transactions.get(transaction);
            open.is_some_and(|open| open.prepared.is_some() || !open.terminals.is_empty())
        };
        let entries = source.queue.iter();
        entries
            .filter(|(_, entry)| !is_promised(entry.sequence))
            .map(|(priority, entry)| (priority, *entry))
            .collect()
    }

    /// Whether there is room for all that a deletion logs: after its first record none of it may fail.
    fn check_deletion(&mut self, head: &DestinationHead, given: &[Given], actor: &str) -> Result<(), AppendError> {
        let mut lengths = Vec::new();
        for (source, entries) in given {
            let heads = self.ending_heads(*source, entries, Reason::Deleted, actor);
            self.add_lengths(&heads, &mut lengths)?;
        }
        self.head_buffer.clear();
        head.encode(&mut self.head_buffer)?;
        lengths.push(self.head_buffer.len() as u64);
        self.log.check_room(&lengths, Purpose::Upkeep)
    }

    /// Keeps from a deleted topic's durable subscriptions what open transactions have sent to them, and has a transaction that
    /// acknowledges there what is gone wait until that is durable.
    fn shut_out(&mut self, topic: DestinationId) {
        let durables = self.durables_at(topic);
        let end = self.log.end();
        for id in &durables {
            if let Some(source) = self.tables.sources.get_mut(id) {
                source.purged = end;
            }
        }
        let name = self.tables.catalogue.name_of(topic).map(|(_, name)| name.as_str());
        let why = format!("the topic {} was deleted", name.unwrap_or_default());
        self.tables.transactions.fail_those_into(&durables, &why);
    }
}
