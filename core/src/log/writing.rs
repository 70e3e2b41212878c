//! The job that makes group commits durable. Made by [`super::Log::next_write`], run on any thread, one at a time.
//!
//! Order is what recovery relies on: a segment is synced before anything is written to the next one, and the watermark is
//! written when all of it is synced.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use super::disk::{DiskError, DiskFile, write_all};
use super::position::BLOCK_BYTES;
use super::segment_header::segment_name;
use super::watermark::WatermarkWrite;

static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// Bytes that lie together in a file.
struct Run {
    offset: u64,
    end: u64,
    parts: Vec<Bytes>,
}

/// What goes into one segment.
pub(crate) struct SegmentWrite {
    id: u64,
    file: Arc<dyn DiskFile>,
    runs: Vec<Run>,
}

impl SegmentWrite {
    pub fn new(id: u64, file: Arc<dyn DiskFile>) -> Self {
        Self {
            id,
            file,
            runs: Vec::new(),
        }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn add(&mut self, offset: u64, bytes: Bytes) {
        let length = bytes.len() as u64;
        match self.runs.last_mut() {
            Some(run) if run.end == offset => {
                run.end += length;
                run.parts.push(bytes);
            }
            _ => self.runs.push(Run {
                offset,
                end: offset + length,
                parts: vec![bytes],
            }),
        }
    }

    /// Fills the last block with zeros: a partly written page would have to be read first.
    pub fn fill_block(&mut self) {
        if let Some(run) = self.runs.last() {
            let fill = run.end.next_multiple_of(BLOCK_BYTES) - run.end;
            let end = run.end;
            if fill > 0 {
                self.add(end, Bytes::from_static(&ZEROS[..fill as usize]));
            }
        }
    }

    /// The furthest file offset written.
    pub fn end(&self) -> u64 {
        self.runs.iter().map(|run| run.end).max().unwrap_or(0)
    }

    fn run(&self) -> Result<(), DiskError> {
        let write = || {
            for run in &self.runs {
                let mut parts: Vec<IoSlice<'_>> = run.parts.iter().map(|part| IoSlice::new(part)).collect();
                write_all(self.file.as_ref(), run.offset, &mut parts)?;
            }
            Ok(())
        };
        write().map_err(|error| DiskError::new("write", &segment_name(self.id), error))?;
        self.file
            .sync_data()
            .map_err(|error| DiskError::new("sync", &segment_name(self.id), error))
    }
}

/// Everything that was pending, to be written and synced.
pub struct WriteJob {
    pub(crate) segments: Vec<SegmentWrite>,
    pub(crate) watermark: WatermarkWrite,
}

/// What became of a [`WriteJob`].
pub struct WriteDone {
    pub(crate) result: Result<(), DiskError>,
}

impl WriteJob {
    /// Writes and syncs. To be run once; the result goes to [`super::Log::complete_write`] whatever it is.
    #[must_use]
    pub fn run(&self) -> WriteDone {
        let all = || {
            for segment in &self.segments {
                segment.run()?;
            }
            self.watermark.run()
        };
        WriteDone { result: all() }
    }

    /// How many bytes the job writes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments
            .iter()
            .flat_map(|segment| &segment.runs)
            .map(|run| run.end - run.offset)
            .sum()
    }
}
