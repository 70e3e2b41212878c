//! Two small files' worth of bookkeeping that must survive any crash: checksummed slots written in turn.
//!
//! A slot is overwritten only while the other one holds the last good value, so a torn write costs the newer value at
//! most. Nothing is renamed and no space is needed after the first write: a full disk can still retire segments.
//! Reading has three outcomes: empty (never written), present, unreadable (something is there and no slot verifies).
//!
//! A slot is: magic (8), sequence (8), length (4), CRC32C of magic, sequence, length and content (4), content.

use std::io::{self, IoSlice};

use super::disk::{DiskFile, read_places, write_all};
use super::record::{u32_at, u64_at};

const FIXED_BYTES: usize = 24;

/// What was found in a slot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Empty,
    Present { sequence: u64, content: Vec<u8> },
    Unreadable,
}

/// The bytes of a slot.
pub(crate) fn encode(magic: &[u8; 8], sequence: u64, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIXED_BYTES + content.len());
    bytes.extend_from_slice(magic);
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), content);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes.extend_from_slice(content);
    bytes
}

/// Reads the slot at `offset`, whose content is at most `content_max` bytes.
pub(crate) fn read(file: &dyn DiskFile, offset: u64, content_max: u64, magic: &[u8; 8]) -> io::Result<Slot> {
    let mut fixed = [0; FIXED_BYTES];
    // What cannot be read is unreadable like what does not verify.
    let (count, _) = read_places(file, offset, &mut fixed)?;
    if fixed[..count].iter().all(|&byte| byte == 0) {
        return Ok(Slot::Empty);
    }
    let length = u32_at(&fixed, 16);
    // The limit comes before the allocation: a flipped bit must not cost gigabytes.
    if count < FIXED_BYTES || fixed[..8] != *magic || u64::from(length) > content_max {
        return Ok(Slot::Unreadable);
    }
    let mut content = vec![0; length as usize];
    let (filled, _) = read_places(file, offset + FIXED_BYTES as u64, &mut content)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&fixed[..20]), &content);
    if filled < content.len() || crc != u32_at(&fixed, 20) {
        return Ok(Slot::Unreadable);
    }
    Ok(Slot::Present {
        sequence: u64_at(&fixed, 8),
        content,
    })
}

/// Whether the file begins with these bytes.
pub(crate) fn holds(file: &dyn DiskFile, bytes: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; bytes.len()];
    let (count, _) = read_places(file, 0, &mut found)?;
    Ok(count == bytes.len() && found == bytes)
}

/// Writes a slot, without syncing.
pub(crate) fn write(file: &dyn DiskFile, offset: u64, bytes: &[u8]) -> io::Result<()> {
    write_all(file, offset, &mut [IoSlice::new(bytes)])
}
