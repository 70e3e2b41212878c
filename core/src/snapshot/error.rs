//! Why rows cannot be made of records, or cannot be written.

use arrow_schema::ArrowError;

use crate::log::disk::DiskError;
use crate::log::{LogError, Position};
use crate::state::HeadError;

use super::tables::Misfit;

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The disk's.
    #[error(transparent)]
    Disk(DiskError),
    /// The log's, but for its disk's.
    #[error(transparent)]
    Log(LogError),
    /// A record's head cannot be read.
    #[error("record at {0}: {1}")]
    Head(Position, HeadError),
    /// A row does not fit its table.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// Arrow's.
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

impl From<DiskError> for RowsError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

impl From<LogError> for RowsError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Disk(error) => Self::Disk(error),
            other => Self::Log(other),
        }
    }
}
