//! Copying the log to a standby, and reading it for others: claims on it, what is sent, and what a follower takes in.

use crate::log::{LogChunk, Position};

use super::error::StateError;
use super::facade::State;
use super::records::check;

impl State {
    /// Durable group commits from a position on, for a standby.
    ///
    /// # Errors
    /// The log cannot be read there.
    pub fn read_log(&self, from: Position, bytes_max: usize) -> Result<LogChunk, StateError> {
        Ok(self.log.read_log(from, bytes_max)?)
    }

    /// Keeps the log from `position` on for a reader (a standby), up to `bound_bytes` behind the end. What a reader has not
    /// had is neither compacted nor removed. Claims are not durable: a reader claims again after each start. False: not just
    /// now, but when the upkeep that is under way is done; until then it may not read.
    #[must_use]
    pub fn register_reader(&mut self, name: &str, position: Position, bound_bytes: u64) -> bool {
        self.log.register_reader(name, position, bound_bytes)
    }

    /// Ends a reader's claim.
    pub fn remove_reader(&mut self, name: &str) {
        self.log.remove_reader(name);
    }

    /// Whether a reader still has its claim.
    #[must_use]
    pub fn has_reader(&self, name: &str) -> bool {
        self.log.has_reader(name)
    }

    /// Moves a reader's claim on. Whether it still had one.
    pub fn advance_reader(&mut self, name: &str, position: Position) -> bool {
        self.log.advance_reader(name, position)
    }

    /// Takes a leader's records and applies them (followers only); says where it ends now, which is within the chunk when
    /// there was no room for all of it.
    ///
    /// # Errors
    /// The chunk does not fit, there is no room for any of it, or a record in it cannot be understood.
    pub fn append_log(&mut self, chunk: &LogChunk) -> Result<Position, StateError> {
        let (before, checkpoint) = (self.log.end(), self.tables.checkpoint);
        self.check_readable(chunk)?;
        let taken = self.log.append_log(chunk);
        // Whatever the log has taken the tables see, also when it stopped half-way.
        let after = self.log.end();
        let mut last = Position::ZERO;
        for record in chunk.records() {
            let Some(record) = record.ok().filter(|record| record.position < after) else {
                break;
            };
            if record.position < before {
                continue;
            }
            last = record.position;
            let payload_bytes = u32::try_from(record.payload.len()).unwrap_or(u32::MAX);
            self.tables
                .apply(
                    &mut self.log,
                    record.position,
                    record.epoch,
                    record.kind,
                    &record.head,
                    payload_bytes,
                )
                .map_err(|error| self.log.stop_for(record.position, &error.to_string()))?;
        }
        // The leader's new epoch ends the transactions that its last one left open.
        let epoch = self.log.epoch();
        self.tables.begin_epoch(&mut self.log, epoch);
        if self.tables.checkpoint != checkpoint {
            self.log.set_floor(self.tables.checkpoint, last);
        }
        Ok(taken?)
    }

    /// Whether each record of a leader's can be read. One that cannot stops this follower for good, before its log has taken
    /// it: asked for again it would come again, and passed over it would be missing from the tables.
    fn check_readable(&mut self, chunk: &LogChunk) -> Result<(), StateError> {
        let end = self.log.end();
        for record in chunk.records() {
            // What does not verify the log refuses by itself.
            let Ok(record) = record else { break };
            if record.position >= end
                && let Err(error) = check(record.kind, &record.head)
            {
                return Err(self.log.stop_for(record.position, &error.to_string()).into());
            }
        }
        Ok(())
    }
}
