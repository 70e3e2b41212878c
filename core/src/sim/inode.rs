//! What a simulated file holds: what was written, what was synced, and what lies between the two.

use std::collections::BTreeSet;

use super::random::Random;

/// What a power loss may tear.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub current: Vec<u8>,
    pub synced: Vec<u8>,
    pub pending: Vec<Change>,
    /// How often write-back failed, and which of these failures somebody was told of.
    pub errors: u64,
    pub told: u64,
    /// Blocks that cannot be read until they are written.
    pub unreadable: BTreeSet<usize>,
}

impl Inode {
    pub fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Write { offset, bytes: written } => {
                let end = offset + written.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset..end].copy_from_slice(written);
            }
            Change::Length(length) => bytes.resize(*length, 0),
        }
    }

    pub fn lose_power(&mut self, random: &mut Random) {
        let mut kept = std::mem::take(&mut self.synced);
        for change in std::mem::take(&mut self.pending) {
            match (random.below(3), &change) {
                (0, _) => {}
                (1, _) | (_, Change::Length(_)) => Self::apply(&mut kept, &change),
                (_, Change::Write { offset, bytes }) => {
                    // Sectors are those of the disk, not of the write.
                    let mut at = 0;
                    while at < bytes.len() {
                        let sector_end = (offset + at) / SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES - offset;
                        let end = sector_end.min(bytes.len());
                        if random.one_in(2) {
                            let part = Change::Write {
                                offset: offset + at,
                                bytes: bytes[at..end].to_vec(),
                            };
                            Self::apply(&mut kept, &part);
                        }
                        at = end;
                    }
                }
            }
        }
        self.current.clone_from(&kept);
        self.synced = kept;
    }
}
