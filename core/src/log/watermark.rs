//! What is known to be durable, kept outside the log's tail: the witness that tells a torn tail from damage.
//!
//! Two slots in one file, a block each, written in turn after every sync of the log, without a sync of their own (that
//! would double the cost of a commit). So it survives a killed process exactly, and a power loss as of the last upkeep.
//! It only ever claims what a finished sync has made true; it may lag, and then commits themselves are the witness (see
//! [`super::commit`]).

use std::sync::Arc;

use super::disk::{Disk, DiskError, DiskFile, OpenFile};
use super::position::{BLOCK_BYTES, Position};
use super::record::u64_at;
use super::slots::{self, Slot};

pub(crate) const WATERMARK_FILE: &str = "watermark";
const MAGIC: &[u8; 8] = b"STERNAWM";
const CONTENT_BYTES: usize = 16 + 8 * 4 + 8;

/// What was durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Watermark {
    pub store_id: [u8; 16],
    pub durable: Position,
    pub epoch: u64,
    pub hash: u64,
    /// The manifest that was in force, or an earlier one.
    pub manifest: u64,
    /// Written by a clean stop.
    pub clean: bool,
}

impl Watermark {
    fn encode(&self) -> [u8; CONTENT_BYTES] {
        let mut bytes = [0; CONTENT_BYTES];
        bytes[..16].copy_from_slice(&self.store_id);
        let numbers = [
            self.durable.0,
            self.epoch,
            self.hash,
            self.manifest,
            u64::from(self.clean),
        ];
        for (index, number) in numbers.iter().enumerate() {
            bytes[16 + index * 8..24 + index * 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn decode(content: &[u8]) -> Option<Self> {
        let store_id = content.get(..16)?.try_into().ok()?;
        if content.len() != CONTENT_BYTES {
            return None;
        }
        Some(Self {
            store_id,
            durable: Position(u64_at(content, 16)),
            epoch: u64_at(content, 24),
            hash: u64_at(content, 32),
            manifest: u64_at(content, 40),
            clean: u64_at(content, 48) == 1,
        })
    }
}

/// The open file and whose turn it is.
#[derive(Clone)]
pub(crate) struct WatermarkFile {
    file: Arc<dyn DiskFile>,
    sequence: u64,
}

impl WatermarkFile {
    /// Makes the file with its first value, synced.
    pub fn create(disk: &dyn Disk, first: &Watermark) -> Result<Self, DiskError> {
        let wrap = |error| DiskError::new("create", WATERMARK_FILE, error);
        let file = disk.open(WATERMARK_FILE, OpenFile::Fresh)?;
        file.allocate(2 * BLOCK_BYTES).map_err(wrap)?;
        let mut made = Self { file, sequence: 0 };
        made.next(first).run()?;
        made.sync()?;
        Ok(made)
    }

    /// Opens the file for writing alone; one that is missing is made, empty. For values from nowhere in the file.
    pub fn renew(disk: &dyn Disk) -> Result<Self, DiskError> {
        let wrap = |error| DiskError::new("create", WATERMARK_FILE, error);
        let file = disk.open(WATERMARK_FILE, OpenFile::Fresh)?;
        file.allocate(2 * BLOCK_BYTES).map_err(wrap)?;
        Ok(Self { file, sequence: 0 })
    }

    /// Opens the file and reads the newest value: none when neither slot can be read. The third is whether a slot cannot:
    /// it may have been the newest.
    pub fn open(disk: &dyn Disk) -> Result<(Self, Option<Watermark>, bool), DiskError> {
        let file = disk.open(WATERMARK_FILE, OpenFile::Existing)?;
        let mut newest: Option<(u64, Watermark)> = None;
        let length = file
            .length()
            .map_err(|error| DiskError::new("length of", WATERMARK_FILE, error))?;
        let mut unreadable = length < 2 * BLOCK_BYTES;
        for offset in [0, BLOCK_BYTES] {
            let slot = slots::read(file.as_ref(), offset, CONTENT_BYTES as u64, MAGIC)
                .map_err(|error| DiskError::new("read", WATERMARK_FILE, error))?;
            // Only before its first writes is a slot empty.
            unreadable |= !matches!(slot, Slot::Present { .. });
            if let Slot::Present { sequence, content } = slot
                && let Some(value) = Watermark::decode(&content)
                && newest.is_none_or(|(known, _)| known < sequence)
            {
                newest = Some((sequence, value));
            }
        }
        let sequence = newest.map_or(0, |(sequence, _)| sequence);
        Ok((Self { file, sequence }, newest.map(|(_, value)| value), unreadable))
    }

    /// The write of the next value, to be run anywhere, in order.
    pub fn next(&mut self, value: &Watermark) -> WatermarkWrite {
        self.sequence += 1;
        WatermarkWrite {
            file: self.file.clone(),
            offset: (self.sequence % 2) * BLOCK_BYTES,
            bytes: slots::encode(MAGIC, self.sequence, &value.encode()),
        }
    }

    /// The last value was not written for certain: the next one goes to the same slot, so that the other stays good.
    pub fn take_back(&mut self) {
        self.sequence = self.sequence.saturating_sub(1);
    }

    /// Makes the newest value durable.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.file
            .sync_data()
            .map_err(|error| DiskError::new("sync", WATERMARK_FILE, error))
    }
}

/// One value on its way into its slot.
pub(crate) struct WatermarkWrite {
    file: Arc<dyn DiskFile>,
    offset: u64,
    bytes: Vec<u8>,
}

impl WatermarkWrite {
    pub fn run(&self) -> Result<(), DiskError> {
        slots::write(self.file.as_ref(), self.offset, &self.bytes)
            .map_err(|error| DiskError::new("write", WATERMARK_FILE, error))
    }
}
