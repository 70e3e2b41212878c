//! Which blocks upkeep fills with zeros next, ahead of the writer: that halves the time of its syncs.

use super::maintenance::Task;
use super::position::BLOCK_BYTES;
use super::running::Log;

impl Log {
    /// The segment being written first, then the one after it.
    pub(super) fn fill_next(&mut self) -> Option<Task> {
        if !self.options.zero_fill {
            return None;
        }
        let current = self.current()?;
        let written = current.offset_of(self.end());
        let used_quarter = written > u64::from(current.file_bytes) / 4;
        let from = current
            .zeroed_to
            .max(written.next_multiple_of(BLOCK_BYTES) + u64::from(self.options.fill_distance_bytes));
        let segment = if from < u64::from(current.file_bytes) {
            (current.id, current.filler.clone()?, from, u64::from(current.file_bytes))
        } else {
            let next = self.ahead.front().filter(|_| used_quarter)?;
            (
                next.id,
                next.filler.clone()?,
                next.zeroed_to,
                u64::from(next.file_bytes),
            )
        };
        let (id, file, from, limit) = segment;
        let to = (from + u64::from(self.options.fill_bytes)).min(limit);
        if from >= to {
            return None;
        }
        self.upkeep.filling = Some((id, from, to));
        Some(Task::Fill { id, file, from, to })
    }
}
