//! Looking for damage before somebody needs the record: sealed segments read and verified one by one, at the host's pace.

use std::sync::Arc;

use super::disk::{Disk, OpenFile};
use super::error::LogError;
use super::position::Position;
use super::recovery;
use super::running::Log;
use super::segment_header::{SegmentHeader, segment_name};

/// A segment to be verified on any thread.
pub struct ScrubJob {
    disk: Arc<dyn Disk>,
    header: SegmentHeader,
    end: Position,
    file_bytes: u32,
}

/// What a [`ScrubJob`] found.
#[derive(Debug)]
pub struct Scrubbed {
    /// Where the next one begins: give it to [`Log::scrub`].
    pub next: Position,
    /// Records that verified.
    pub records: u64,
    /// The first damage met, or the disk's error.
    pub error: Option<LogError>,
}

impl Log {
    /// The first sealed segment that ends after `from`; `None` when all were verified.
    #[must_use]
    pub fn scrub(&self, from: Position) -> Option<ScrubJob> {
        let segment = self.segments.first_after(from).filter(|segment| segment.sealed)?;
        let header = SegmentHeader {
            compacted: segment.compacted,
            end: segment.end,
            ..segment.header(self.store_id)
        };
        Some(ScrubJob {
            disk: self.disk.clone(),
            header,
            end: segment.end,
            file_bytes: segment.file_bytes,
        })
    }
}

impl ScrubJob {
    /// Reads and verifies every record of the segment.
    #[must_use]
    pub fn run(&self) -> Scrubbed {
        let (records, error) = match self.verify() {
            Ok((records, None)) => (records, None),
            Ok((records, Some(damage))) => (records, Some(damage.into())),
            Err(error) => (0, Some(error)),
        };
        Scrubbed {
            next: self.end,
            records,
            error,
        }
    }

    fn verify(&self) -> Result<(u64, Option<recovery::Damage>), LogError> {
        let file = self.disk.open(&segment_name(self.header.id), OpenFile::ReadOnly)?;
        if self.header.compacted {
            let found = recovery::scan_compacted(file.as_ref(), &self.header, u64::from(self.file_bytes))?;
            return Ok(match found {
                Ok(index) => (index.user_records, None),
                Err(damage) => (0, Some(damage)),
            });
        }
        let scanned = recovery::scan_written(file.as_ref(), &self.header, self.end)?;
        Ok((scanned.index.user_records, scanned.stop))
    }
}
