//! Messages that a forced start finds in queues and subscriptions that nothing names: what named them lay in a segment that
//! is lost with its footer. Nothing of them is damaged, so they are kept, each source in a queue `$sys.recovered.` and its
//! number, whose name is logged like any other. Such a queue takes no messages, belongs to this broker alone, and goes when
//! it has been emptied.
//!
//! Some may have belonged to what was deleted: that is told by the same records. Who forces a start looks and decides.
//!
//! A forced start that is killed before all of this is durable is gone on with by the next start, forced or not: a file in
//! the store's folder says so.
//!
//! Producers are told by records as well. Where some are lost, one that is not known may have been: of it, and of a
//! producer's name that is not known, it cannot be told any more whether it is new. The checkpoint that says so from then
//! on is written at once.

use crate::log::{AppendError, Dropped, Position, Purpose, RecoveryReport, Renamed};
use crate::name::DestinationName;

use super::catalogue_record::{DestinationHead, Origin, kinds};
use super::error::StateError;
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId, within_epoch};
use super::tables::Tables;

/// What the names of such queues begin with; the number of the source follows.
pub const RECOVERED_PREFIX: &str = "$sys.recovered.";

impl Tables {
    /// Gives a name to every source that holds something and has none.
    pub fn name_unnamed(&mut self) -> Vec<Renamed> {
        let unnamed = self.sources.values().filter(|source| !source.named);
        let mut unnamed: Vec<(SourceId, u64)> = unnamed
            .map(|source| {
                (
                    source.id,
                    source.statistics.messages + source.statistics.pending_messages,
                )
            })
            .filter(|(_, messages)| *messages > 0)
            .collect();
        unnamed.sort_unstable();
        let mut renamed = Vec::with_capacity(unnamed.len());
        for (SourceId(id), messages) in unnamed {
            let text = format!("{RECOVERED_PREFIX}{id}");
            let Ok(name) = DestinationName::parse(&text) else {
                continue;
            };
            let generation = self.catalogue.generations + 1;
            self.create_destination(DestinationId(id), Kind::Queue, name, generation, Origin::Dynamic);
            renamed.push(Renamed { name: text, messages });
        }
        renamed
    }
}

impl State {
    /// After a forced start that lost something: logs the names that it gave out, and what cannot be told any more, and has
    /// that durable before anybody hears of it. For want of room it happens later.
    pub(super) fn settle_forced(&mut self, report: &RecoveryReport, is_forced: bool) -> Result<(), StateError> {
        // A follower has from its leader what it lacks, and leaves what an earlier start owes to the one that does not follow.
        let follows = !self.tables.live;
        if report.force_unfinished && follows || !(report.force_unfinished || is_forced) {
            return Ok(());
        }
        let is_loss = |dropped: &Dropped| dropped.records != Some(0);
        self.force_ends = Some(Position::ZERO);
        // What an earlier one had lost that did not come to its end nobody knows any more.
        let is_whole = !report.dropped.iter().any(is_loss) && report.renamed.is_empty() && !report.force_unfinished;
        if follows || is_whole {
            return self.end_force();
        }
        let catalogue = &self.tables.catalogue;
        let ids = report.renamed.iter().rev();
        self.recovered = ids
            .filter_map(|renamed| catalogue.id_of(Kind::Queue, &renamed.name))
            .collect();
        self.log_recovered()?;
        self.tables.names.mark(None);
        // All that was given out before this start.
        if let Some(incarnation) = within_epoch(self.log.epoch(), 0, self.incarnation_bits) {
            self.tables.producers.restore_forgotten(incarnation);
        }
        self.checkpoint_owed = true;
        self.checkpoint_if_due()?;
        self.log.flush_now()?;
        self.advance_commit(self.log.durable());
        self.end_force()
    }

    /// Writes a checkpoint when one is due, and first what a forced start still owes, as far as there is room.
    pub(super) fn settle_owed(&mut self) -> Result<(), StateError> {
        let owed = !self.recovered.is_empty() || self.checkpoint_owed;
        self.log_recovered()?;
        self.checkpoint_if_due()?;
        if let Some(end) = self.force_ends.as_mut().filter(|_| owed) {
            *end = self.log.end();
        }
        self.end_force()
    }

    /// Notes that a forced start is over, when all that it has to say is durable.
    fn end_force(&mut self) -> Result<(), StateError> {
        let Some(end) = self.force_ends else { return Ok(()) };
        if self.recovered.is_empty() && !self.checkpoint_owed && self.log.durable() >= end {
            self.log.end_force()?;
            self.force_ends = None;
        }
        Ok(())
    }

    /// Logs names that a forced start gave out, as far as there is room.
    pub(super) fn log_recovered(&mut self) -> Result<(), AppendError> {
        while let Some(id) = self.recovered.last() {
            if let Some(found) = self.tables.catalogue.destination(*id) {
                let head = DestinationHead {
                    deleted: false,
                    id: found.id,
                    kind: found.kind,
                    name: found.name.as_str().to_owned(),
                    generation: found.generation,
                    origin: found.origin,
                    actor: String::new(),
                };
                self.head_buffer.clear();
                head.encode(&mut self.head_buffer)?;
                match self.append_event_for(kinds::DESTINATION, Purpose::Upkeep) {
                    Ok(_) => {}
                    // A checkpoint has them, too.
                    Err(AppendError::NoSpace) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            self.recovered.pop();
        }
        Ok(())
    }
}
