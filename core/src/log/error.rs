//! What can go wrong, one leaf for each thing a caller can react to.
//!
//! ```text
//! LogError     opening, reading, completing: locked, damaged, disk, options, visitor, epoch, gone, failed, chunk
//! AppendError  appending: no space (retry later), too large, failed (final), kind, unreadable, read-only
//! ```

use super::disk::DiskError;
use super::position::Position;

/// Why the log cannot do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the store open (EMS-STORE-A12).
    #[error("the store is in use by another process ({file}): {source}")]
    Locked {
        /// The lock file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Bytes that were durable cannot be read as what they were (EMS-STORE-A13).
    #[error("{file} is damaged at offset {offset} (position {position}): {why}")]
    Damaged {
        /// The file's name in the store's folder.
        file: String,
        /// Where in the file.
        offset: u64,
        /// Where in the log.
        position: Position,
        /// What is wrong with it.
        why: String,
    },
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The options contradict each other or the store.
    #[error("log options: {0}")]
    Options(String),
    /// The visitor at recovery refused a record.
    #[error("record at position {position} was refused: {why}")]
    Visitor {
        /// Which record.
        position: Position,
        /// The visitor's words.
        why: String,
    },
    /// An epoch must be above all earlier ones.
    #[error("epoch {given} is not above {last}")]
    Epoch {
        /// The epoch asked for.
        given: u64,
        /// The highest one in the log.
        last: u64,
    },
    /// The position is not, or no longer, in the log.
    #[error("nothing is stored at position {0}")]
    Gone(Position),
    /// A write or sync failed earlier; the log is finished for this process.
    #[error("the log stopped: {0}")]
    Failed(String),
    /// A follower has no room for now: run maintenance, then go on from the log's end.
    #[error("no space in the log for now")]
    NoSpace,
    /// A shipped chunk does not continue this log.
    #[error("chunk refused: {0}")]
    Chunk(String),
}

/// Why a record was not appended. Nothing has changed then.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No room for now: [`super::Log::space`] says whether the disk is full or segments are still being prepared.
    #[error("no space in the log for now")]
    NoSpace,
    /// The record exceeds the limit.
    #[error("a record of {bytes} bytes exceeds the limit of {max}")]
    TooLarge {
        /// The record's size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// A write or sync failed earlier; nothing more will be confirmed.
    #[error("the log stopped: {0}")]
    Failed(String),
    /// Kinds below [`super::KIND_USER_MIN`] are the log's own.
    #[error("record kind {0} is reserved")]
    Kind(u8),
    /// The layer above could not read the record again, so it is not written.
    #[error("a record that could not be read again is not written: {0}")]
    Unreadable(String),
    /// A follower takes whole chunks only.
    #[error("a follower's log takes records from its leader only")]
    ReadOnly,
}
