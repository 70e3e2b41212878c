//! Where a record lies in the log, and the sizes that follow from it. Used by everything in `log` and above it.

use std::fmt;

/// What a group commit is aligned to: the unit a disk may tear, so that a torn write never touches an acknowledged record.
pub const BLOCK_BYTES: u64 = 4096;

/// A place in the log: the logical byte offset in append order.
///
/// Positions are never reused, survive compaction and are equal on all members of a pair. [`Position::ZERO`] is before
/// the first record: no record ever has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(pub u64);

impl Position {
    /// Before every record.
    pub const ZERO: Position = Position(0);
    /// Where the first group commit of a new log lies: one block in, so that zero can mean "before everything".
    pub const FIRST: Position = Position(BLOCK_BYTES);

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position `bytes` further on.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Position {
        Position(self.0 + bytes)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Rounds up to whole blocks.
#[must_use]
pub const fn block_aligned(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Rounds up to the eight bytes that records are aligned to.
#[must_use]
pub const fn record_aligned(bytes: u64) -> u64 {
    (bytes + 7) & !7
}
