//! What its sender delayed and is due before its transaction is committed: at the send it was counted with what is delayed
//! (EMS-DEST-A63), and it comes in with the commit, as its delay counts from the send (EMS-TX-A04). So it meets the limits
//! there, as if it were sent then: where one has no room for it, nothing of the transaction takes effect.
//!
//! A prepared transaction may not fail any more. What is due when it is prepared meets the limits then, and keeps its room
//! until the commit; what falls due later is treated as if it had been committed before: by `upkeep`, when it comes in.

use super::error::PublishError;
use super::facade::State;
use super::ids::{DestinationId, SourceId};
use super::properties::OverflowPolicy;
use super::queue::DELAYED;
use super::transaction::PendingEntry;

/// What a transaction brings into one source.
#[derive(Default)]
struct Coming {
    /// All that it sent there, with their bytes: none of that is in anybody's way.
    pending: (u64, u64),
    /// Of these, what comes in with the commit.
    entering: (u64, u64),
}

impl State {
    /// Why a transaction can only be rolled back for what is due in it by now; `None`: there is room for all of that.
    pub(super) fn due_without_room(&self, id: u64) -> Option<PublishError> {
        let entries = &self.tables.transactions.get(id)?.entries;
        let mut due: Vec<(SourceId, DestinationId, u32)> = entries
            .iter()
            .filter(|pending| self.tables.falls_due(pending))
            .map(|pending| (pending.source, pending.destination, pending.entry.bytes))
            .collect();
        // The largest of each place stands for all of them.
        due.sort_unstable_by(|one, other| other.cmp(one));
        due.dedup_by_key(|(source, destination, _)| (*source, *destination));
        due.into_iter()
            .find_map(|(source, destination, largest)| self.no_room_at_commit(entries, source, destination, largest))
    }

    fn no_room_at_commit(
        &self,
        entries: &[PendingEntry],
        id: SourceId,
        destination: DestinationId,
        largest: u32,
    ) -> Option<PublishError> {
        // Deleted meanwhile: nothing comes in there.
        let source = self.tables.sources.get(&id)?;
        let found = self.tables.catalogue.destination(destination)?;
        let properties = &found.properties;
        let (messages_max, bytes_max) = (properties.messages_max, properties.bytes_max);
        if messages_max == 0 && bytes_max == 0 {
            return None;
        }
        let mut coming = Coming::default();
        for pending in entries.iter().filter(|pending| pending.source == id) {
            let bytes = u64::from(pending.entry.bytes);
            add(&mut coming.pending, bytes);
            let waits = pending.entry.is(DELAYED) && !self.tables.falls_due(pending);
            if !waits && !self.tables.is_over(pending) {
                add(&mut coming.entering, bytes);
            }
        }
        let totals = &source.statistics;
        let (counted, counted_bytes) = totals.counted();
        // Others' open transactions hold the room that they were given.
        let messages = counted + totals.pending_messages - coming.pending.0 + coming.entering.0;
        let bytes = counted_bytes + totals.pending_bytes - coming.pending.1 + coming.entering.1;
        let over_messages = messages_max > 0 && messages > messages_max;
        if !over_messages && (bytes_max == 0 || bytes <= bytes_max) {
            return None;
        }
        // Room is made by what is oldest, and never by what is handed out.
        let is_made = properties.overflow == OverflowPolicy::DiscardOld
            && (messages_max == 0 || totals.in_flight_messages < messages_max)
            && (bytes_max == 0 || totals.in_flight_bytes + u64::from(largest) <= bytes_max);
        (!is_made).then(|| PublishError::DestinationFull {
            name: found.name.as_str().to_owned(),
            limit: if over_messages { "maxMessages" } else { "maxBytes" },
        })
    }
}

impl super::tables::Tables {
    /// Whether a transaction's message was delayed, and is due by now and not over.
    fn falls_due(&self, pending: &PendingEntry) -> bool {
        pending.entry.is(DELAYED) && pending.ready_ms <= self.now.monotonic_ms && !self.is_over(pending)
    }

    fn is_over(&self, pending: &PendingEntry) -> bool {
        pending.expires_ms > 0 && pending.expires_ms <= self.now.monotonic_ms
    }

    /// What is due in a transaction that is prepared has met the limits, and is counted among what is not delayed.
    pub(super) fn end_delays_of(&mut self, id: u64, time_ms: u64) {
        let mut entries = std::mem::take(&mut self.transactions.entry(id).entries);
        for pending in entries.iter_mut().filter(|pending| self.was_due(pending, time_ms)) {
            pending.entry.flags &= !DELAYED;
        }
        self.transactions.entry(id).entries = entries;
    }
}

fn add((messages, total): &mut (u64, u64), bytes: u64) {
    *messages += 1;
    *total += bytes;
}
