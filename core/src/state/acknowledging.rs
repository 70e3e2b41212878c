//! Acknowledgements: deliveries that are done with leave their source, at once or with a transaction.

use smallvec::SmallVec;

use crate::log::{AppendError, Position};

use super::error::StateError;
use super::facade::State;
use super::ids::{SourceId, Tx};
use super::terminal_record::{Reason, TERMINAL_MESSAGES_MAX, TerminalHead};
use super::volatile::is_volatile;

/// Acknowledged deliveries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledged {
    /// How many were in flight and are now done with. Others were ignored.
    pub count: u64,
    /// It is durable when [`State::committed`] is above this.
    pub wait_for: Option<Position>,
    /// The log had no room for all of it: what is still in flight has to be acknowledged again.
    pub short_of_room: bool,
}

/// What became of deliveries that were to end.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// How many are done with; in a transaction: how many are logged.
    pub count: u64,
    /// The last record.
    pub last: Option<Position>,
    /// Why the log took no more records.
    pub stopped: Option<AppendError>,
}

impl State {
    /// Acknowledges what is in flight within `ranges` (both ends included) and belongs to a holder that `is_holder` knows.
    /// In a transaction it takes effect at the commit, and until then nobody else gets it. A source that is gone holds
    /// nothing, so an acknowledgement that names it beside others still counts for the others.
    ///
    /// # Errors
    /// The log is finished.
    pub fn acknowledge(
        &mut self,
        id: SourceId,
        ranges: &[(u64, u64)],
        is_holder: impl Fn(u64) -> bool,
        transaction: Option<Tx>,
    ) -> Result<Acknowledged, StateError> {
        let Some(source) = self.tables.sources.get(&id) else {
            return Ok(Acknowledged::default());
        };
        let mut sequences = std::mem::take(&mut self.sequences);
        sequences.clear();
        source.queue.flights_in_any(ranges, &mut sequences);
        sequences.retain(|sequence| {
            source
                .queue
                .flight(*sequence)
                .is_some_and(|flight| flight.transaction == 0 && is_holder(flight.holder))
        });
        // What is missing may have been purged, and be back after a crash.
        let asked = ranges
            .iter()
            .map(|(first, last)| last.saturating_sub(*first).saturating_add(1));
        let is_missing = asked.fold(0, u64::saturating_add) > sequences.len() as u64;
        let follows_purge = is_missing && source.purged > self.tables.committed;
        let result = match transaction {
            None => self.acknowledge_now(id, &sequences),
            Some(tx) => Ok(self.acknowledge_later(id, &sequences, tx, follows_purge)),
        };
        self.sequences = sequences;
        Ok(result?)
    }

    fn acknowledge_now(&mut self, id: SourceId, sequences: &[u64]) -> Result<Acknowledged, AppendError> {
        let ended = self.end_flights(id, sequences, 0);
        self.totals.acknowledged_total += ended.count;
        let short_of_room = match ended.stopped {
            None => false,
            Some(AppendError::NoSpace) => true,
            Some(error) => return Err(error),
        };
        Ok(Acknowledged {
            count: ended.count,
            wait_for: ended.last,
            short_of_room,
        })
    }

    /// The records that end deliveries, and those deliveries that no record names.
    pub(super) fn acknowledging_heads(
        &self,
        id: SourceId,
        sequences: &[u64],
        transaction: u64,
    ) -> (SmallVec<[TerminalHead; 1]>, SmallVec<[u64; 16]>) {
        let (mut heads, mut unlogged) = (SmallVec::<[TerminalHead; 1]>::new(), SmallVec::new());
        let Some(source) = self.tables.sources.get(&id) else {
            return (heads, unlogged);
        };
        let mut in_head = 0;
        for sequence in sequences {
            let Some(flight) = source.queue.flight(*sequence) else {
                continue;
            };
            let Some(entry) = source.queue.get(flight.priority, *sequence) else {
                continue;
            };
            if !source.logged || is_volatile(entry.position) {
                unlogged.push(*sequence);
                continue;
            }
            if heads.is_empty() || in_head >= TERMINAL_MESSAGES_MAX {
                let mut head = TerminalHead::new(Reason::Acknowledged, id, self.tables.now.wall_ms, "");
                head.transaction = transaction;
                heads.push(head);
                in_head = 0;
            }
            if let Some(head) = heads.last_mut() {
                head.add(*sequence, entry.position);
                if let Some(moved) = source.moved.get(sequence) {
                    head.add_target(moved.record);
                }
            }
            in_head += 1;
        }
        heads.iter_mut().for_each(TerminalHead::finish);
        (heads, unlogged)
    }

    /// Logs the end of deliveries and removes them, those that no record names included. With a transaction's number the
    /// logged ones only take effect with its commit, and the others are left to it.
    pub(super) fn end_flights(&mut self, id: SourceId, sequences: &[u64], transaction: u64) -> Ended {
        let mut ended = Ended::default();
        let (heads, unlogged) = self.acknowledging_heads(id, sequences, transaction);
        for mut head in heads {
            let first = head.ranges.first().map_or(0, |(first, _)| *first);
            head.reason = self.tables.reason_of_acknowledged(id, first);
            let count = head.count();
            match self.append_terminal(head) {
                Ok(position) => {
                    ended.last = Some(position);
                    ended.count += count;
                }
                Err(error) => {
                    ended.stopped = Some(error);
                    return ended;
                }
            }
        }
        if transaction == 0 {
            let mut removed = 0;
            for sequence in unlogged {
                removed += u64::from(self.tables.remove_unlogged(&mut self.log, id, sequence));
            }
            if let Some(source) = self.tables.sources.get_mut(&id) {
                source.statistics.acknowledged_total += removed;
            }
            ended.count += removed;
        }
        ended
    }

    fn acknowledge_later(&mut self, id: SourceId, sequences: &[u64], tx: Tx, follows_purge: bool) -> Acknowledged {
        let transaction = self.tables.transactions.begin(tx, self.log.epoch());
        if let Some(source) = self.tables.sources.get_mut(&id) {
            for sequence in sequences {
                if let Some(flight) = source.queue.flight_mut(*sequence) {
                    flight.transaction = transaction;
                }
            }
        }
        let open = self.tables.transactions.entry(transaction);
        open.follows_purge |= follows_purge;
        open.acknowledged
            .extend(sequences.iter().map(|sequence| (id, *sequence)));
        Acknowledged {
            count: sequences.len() as u64,
            ..Acknowledged::default()
        }
    }
}
