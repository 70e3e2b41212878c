//! Ending what waits: room made by discarding, expiry, purges. The decision is logged where the message is, then applied.

use smallvec::SmallVec;

use crate::log::{AppendError, Position};

use super::catalogue_record::kinds;
use super::facade::State;
use super::ids::{DestinationId, SourceId};
use super::queue::{Entry, GATED};
use super::terminal_record::{Reason, TERMINAL_MESSAGES_MAX, TerminalHead};
use super::volatile::is_volatile;

impl State {
    /// Discards the oldest waiting messages of a source until one more of this size fits. Delayed ones are not among them: they
    /// have room of their own (EMS-DEST-A63).
    pub(super) fn make_room(&mut self, id: SourceId, by: DestinationId, bytes: u64) -> Result<(), AppendError> {
        let Some(destination) = self.tables.catalogue.destination(by) else {
            return Ok(());
        };
        let (messages_max, bytes_max) = (destination.properties.messages_max, destination.properties.bytes_max);
        let mut discarded: SmallVec<[(u8, Entry); 8]> = SmallVec::new();
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return Ok(());
        };
        let mut messages = source.statistics.messages - source.statistics.delayed_messages;
        let mut total = source.statistics.bytes - source.statistics.delayed_bytes;
        let added = u64::from(bytes > 0);
        while (messages_max > 0 && messages + added > messages_max) || (bytes_max > 0 && total + bytes > bytes_max) {
            let Some((priority, entry)) = source.queue.oldest_waiting() else {
                break;
            };
            // Out of the queue's sight until the decision is logged.
            if let Some(entry) = source.queue.get_mut(priority, entry.sequence) {
                entry.flags |= GATED;
            }
            messages -= 1;
            total -= u64::from(entry.bytes);
            discarded.push((priority, entry));
        }
        let result = self.end_entries(id, &discarded, Reason::Discarded, "");
        if result.is_err()
            && let Some(source) = self.tables.sources.get_mut(&id)
        {
            for (priority, entry) in &discarded {
                if let Some(entry) = source.queue.get_mut(*priority, entry.sequence) {
                    entry.flags &= !GATED;
                }
            }
        }
        result
    }

    /// Ends entries that are not in flight: logs it for what is logged, and removes them.
    pub(super) fn end_entries(
        &mut self,
        id: SourceId,
        entries: &[(u8, Entry)],
        reason: Reason,
        actor: &str,
    ) -> Result<(), AppendError> {
        let logged_source = self.tables.sources.get(&id).is_some_and(|source| source.logged);
        let is_logged = |entry: &Entry| logged_source && !is_volatile(entry.position);
        let mut logged: SmallVec<[(u64, Position); 8]> = entries
            .iter()
            .filter(|(_, entry)| is_logged(entry))
            .map(|(_, entry)| (entry.sequence, entry.position))
            .collect();
        logged.sort_unstable();
        for chunk in logged.chunks(TERMINAL_MESSAGES_MAX) {
            let mut head = TerminalHead::new(reason, id, self.tables.now.wall_ms, actor);
            let moved = self.tables.sources.get(&id).map(|source| &source.moved);
            for (sequence, position) in chunk {
                head.add(*sequence, *position);
                if let Some(moved) = moved.and_then(|moved| moved.get(sequence)) {
                    head.add_target(moved.record);
                }
            }
            self.append_terminal(head)?;
        }
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
        Ok(())
    }

    /// Logs a terminal record and applies it.
    pub(super) fn append_terminal(&mut self, mut head: TerminalHead) -> Result<Position, AppendError> {
        head.finish();
        self.head_buffer.clear();
        head.encode(&mut self.head_buffer)?;
        let position = self.append_event(kinds::TERMINAL)?;
        self.tables.apply_terminal(&mut self.log, position, head);
        Ok(position)
    }
}
