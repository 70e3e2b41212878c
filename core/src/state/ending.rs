//! Ending what waits: room made by discarding, expiry, purges. The decision is logged where the message is, then applied.

use smallvec::SmallVec;

use crate::log::{AppendError, Position, Purpose};

use super::browsing::View;
use super::catalogue_record::kinds;
use super::error::StateError;
use super::facade::State;
use super::ids::{DestinationId, SourceId};
use super::queue::{Entry, GATED};
use super::source::Source;
use super::terminal_record::{Reason, TERMINAL_MESSAGES_MAX, TerminalHead};
use super::volatile::is_volatile;
use super::witness::What;

/// What is to be discarded, each with its priority.
pub(super) type Discards = SmallVec<[(u8, Entry); 8]>;

impl State {
    /// Discards the oldest waiting messages of a source until one more of this size fits. Delayed ones are not among them: they
    /// have room of their own (EMS-DEST-A63).
    pub(super) fn make_room(&mut self, id: SourceId, by: DestinationId, bytes: u64) -> Result<(), AppendError> {
        let discarded = self.choose_discards(id, by, (u64::from(bytes > 0), bytes));
        self.discard(id, &discarded)
    }

    /// Takes what has to be discarded for so many messages of so many bytes out of its queue's sight until that is logged, or
    /// [`State::spare`]d. Once for a source: what is chosen is counted until it has ended.
    pub(super) fn choose_discards(&mut self, id: SourceId, by: DestinationId, (added, bytes): (u64, u64)) -> Discards {
        let mut discarded = Discards::new();
        let Some(destination) = self.tables.catalogue.destination(by) else {
            return discarded;
        };
        let (messages_max, bytes_max) = (destination.properties.messages_max, destination.properties.bytes_max);
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return discarded;
        };
        let (mut messages, mut total) = source.statistics.counted();
        let added_bytes = bytes * added;
        while (messages_max > 0 && messages + added > messages_max)
            || (bytes_max > 0 && total + added_bytes > bytes_max)
        {
            let Some((priority, entry)) = source.queue.oldest_waiting() else {
                break;
            };
            if let Some(entry) = source.queue.get_mut(priority, entry.sequence) {
                entry.flags |= GATED;
            }
            messages -= 1;
            total -= u64::from(entry.bytes);
            discarded.push((priority, entry));
        }
        discarded
    }

    /// Leaves what was chosen where it is.
    pub(super) fn spare(&mut self, id: SourceId, discarded: &[(u8, Entry)]) {
        if let Some(source) = self.tables.sources.get_mut(&id) {
            for (priority, entry) in discarded {
                if let Some(entry) = source.queue.get_mut(*priority, entry.sequence) {
                    entry.flags &= !GATED;
                }
            }
        }
    }

    /// Discards what was chosen.
    pub(super) fn discard(&mut self, id: SourceId, discarded: &[(u8, Entry)]) -> Result<(), AppendError> {
        self.end_entries(id, discarded, Reason::Discarded, "")
            .inspect_err(|_| self.spare(id, discarded))
    }

    /// The records that end entries which are not in flight; none for what is not logged.
    pub(super) fn ending_heads(
        &self,
        id: SourceId,
        entries: &[(u8, Entry)],
        reason: Reason,
        actor: &str,
    ) -> Vec<TerminalHead> {
        let Some(source) = self.tables.sources.get(&id).filter(|source| source.logged) else {
            return Vec::new();
        };
        let mut logged: SmallVec<[(u64, Position); 8]> = entries
            .iter()
            .filter(|(_, entry)| !is_volatile(entry.position))
            .map(|(_, entry)| (entry.sequence, entry.position))
            .collect();
        logged.sort_unstable();
        let chunks = logged.chunks(TERMINAL_MESSAGES_MAX).map(|chunk| {
            let mut head = TerminalHead::new(reason, id, self.tables.now.wall_ms, actor);
            for (sequence, position) in chunk {
                head.add(*sequence, *position);
                if let Some(moved) = source.moved.get(sequence) {
                    head.add_target(moved.record);
                }
            }
            head.finish();
            head
        });
        chunks.collect()
    }

    /// Ends entries that are not in flight: logs it for what is logged, and removes them. All of them or, where there is no
    /// room for every record of it, none.
    pub(super) fn end_entries(
        &mut self,
        id: SourceId,
        entries: &[(u8, Entry)],
        reason: Reason,
        actor: &str,
    ) -> Result<(), AppendError> {
        let heads = self.ending_heads(id, entries, reason, actor);
        if heads.len() > 1 {
            let mut lengths = Vec::new();
            self.add_lengths(&heads, &mut lengths)?;
            self.log.check_room(&lengths, purpose_of(reason))?;
        }
        for head in heads {
            self.append_terminal(head)?;
        }
        let logged_source = self.tables.sources.get(&id).is_some_and(|source| source.logged);
        let is_logged = |entry: &Entry| logged_source && !is_volatile(entry.position);
        let mut removed = 0;
        for (priority, entry) in entries.iter().filter(|(_, entry)| !is_logged(entry)) {
            if self
                .tables
                .remove_entry(&mut self.log, id, *priority, entry.sequence)
                .is_some()
            {
                removed += 1;
            }
        }
        if let Some(source) = self.tables.sources.get_mut(&id) {
            match reason {
                Reason::Expired => source.statistics.expired_total += removed,
                Reason::Discarded | Reason::MaxRedelivery => source.statistics.discarded_total += removed,
                _ => {}
            }
        }
        if reason.destroys() {
            self.tables.note_destroyed(id, reason.name(), removed);
        }
        Ok(())
    }

    /// Drops every message of a source, also what is in flight: it does not come back (EMS-DEST-B14). What an open
    /// transaction has acknowledged or sent is left to it. Says how many.
    ///
    /// # Errors
    /// There is no such source, or the log takes no record.
    pub fn purge(&mut self, id: SourceId, actor: &str) -> Result<u64, StateError> {
        let purged = self.purge_those(id, actor, |_, _| true)?;
        let end = self.log.end();
        if let Some(source) = self.tables.sources.get_mut(&id) {
            source.purged = end;
        }
        Ok(purged)
    }

    /// Drops what senders delayed of a queue's or topic's messages, and leaves the others (EMS-DEST-A63). How many, for a topic
    /// counted in each subscription.
    ///
    /// # Errors
    /// As for [`State::purge`].
    pub fn purge_delayed(&mut self, destination: DestinationId, actor: &str) -> Result<u64, StateError> {
        let view = View::Delayed(destination);
        let mut purged = 0;
        for id in self.viewed_sources(view) {
            purged += self.purge_those(id, actor, |source, entry| {
                view.shows(entry) && source.delayed_to(entry.sequence) == Some(destination)
            })?;
        }
        Ok(purged)
    }

    fn purge_those(
        &mut self,
        id: SourceId,
        actor: &str,
        wanted: impl Fn(&Source, &Entry) -> bool,
    ) -> Result<u64, StateError> {
        let source = self.tables.sources.get(&id).ok_or(StateError::NoSuchSource)?;
        let waiting: Vec<(u8, Entry)> = source
            .queue
            .iter()
            .filter(|(_, entry)| {
                let flight = source.queue.flight(entry.sequence);
                wanted(source, entry) && !entry.is(GATED) && flight.is_none_or(|flight| flight.transaction == 0)
            })
            .map(|(priority, entry)| (priority, *entry))
            .collect();
        self.end_entries(id, &waiting, Reason::Purged, actor)?;
        Ok(waiting.len() as u64)
    }

    /// How long the heads of terminal records are, for asking whether there is room for them.
    pub(super) fn add_lengths(&mut self, heads: &[TerminalHead], lengths: &mut Vec<u64>) -> Result<(), AppendError> {
        for head in heads {
            self.head_buffer.clear();
            head.encode(&mut self.head_buffer)?;
            lengths.push(self.head_buffer.len() as u64);
        }
        Ok(())
    }

    /// Logs a terminal record and applies it.
    pub(super) fn append_terminal(&mut self, head: TerminalHead) -> Result<Position, AppendError> {
        self.head_buffer.clear();
        head.encode(&mut self.head_buffer)?;
        let position = self.append_event_for(kinds::TERMINAL, purpose_of(head.reason))?;
        let what = What::Ended(head.reason);
        self.witness.count(head.transaction, head.source, what, head.count());
        self.tables.apply_terminal(&mut self.log, position, head);
        Ok(position)
    }
}

/// A purge or a deletion makes room at once: it may use what is kept for upkeep.
fn purpose_of(reason: Reason) -> Purpose {
    match reason {
        Reason::Purged | Reason::Deleted => Purpose::Upkeep,
        _ => Purpose::Drain,
    }
}
