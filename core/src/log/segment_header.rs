//! The first block of a segment file, and the files' names. Written with the segment's first commit, checked at open.
//!
//! The header ties the file to its store, its number and its place in the log. A prepared segment has none yet, and a
//! recycled one has another file's, which the number gives away; so a header that verifies means: this file was begun.
//! Because a write job syncs the segment before it begins the next one, it also proves all earlier segments were synced.

use super::position::{BLOCK_BYTES, Position};
use super::record::{u32_at, u64_at};

/// Where the records begin.
pub(crate) const DATA_OFFSET: u64 = BLOCK_BYTES;
const MAGIC: &[u8; 8] = b"STERNASG";
const VERSION: u32 = 1;
const USED_BYTES: usize = 8 + 4 + 4 + 16 + 8 * 8 + 4;

/// The segment file with this number.
pub(crate) fn segment_name(id: u64) -> String {
    format!("{id:016x}.segment")
}

/// The footer of the segment with this number.
pub(crate) fn footer_name(id: u64) -> String {
    format!("{id:016x}.footer")
}

/// The number in a segment's or footer's name, and whether it is a segment's.
pub(crate) fn parse_name(name: &str) -> Option<(u64, bool)> {
    let (number, kind) = name.split_once('.')?;
    let id = u64::from_str_radix(number, 16).ok().filter(|_| number.len() == 16)?;
    match kind {
        "segment" => Some((id, true)),
        "footer" => Some((id, false)),
        _ => None,
    }
}

/// What the first block says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    pub store_id: [u8; 16],
    pub id: u64,
    /// Position of the first commit.
    pub base: Position,
    /// Where the segment before ended; below `base` only in a follower, where a compacted leader left a gap.
    pub previous_end: Position,
    pub epoch: u64,
    pub hash_before: u64,
    /// Of a compacted file: where the position space it covers ends. Otherwise zero.
    pub end: Position,
    /// Of a compacted file: the rolling hash and the epoch at `end`. Otherwise zero.
    pub hash_after: u64,
    pub epoch_after: u64,
    /// Records lie one after another whatever their positions, without the blocks of commits.
    pub compacted: bool,
}

impl SegmentHeader {
    /// The whole block.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES as usize);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.compacted).to_le_bytes());
        bytes.extend_from_slice(&self.store_id);
        let places = [
            self.id,
            self.base.0,
            self.previous_end.0,
            self.epoch,
            self.hash_before,
            self.end.0,
        ];
        for number in places.into_iter().chain([self.hash_after, self.epoch_after]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes.resize(BLOCK_BYTES as usize, 0);
        bytes
    }

    /// Reads a block; `None` if it is no header at all, or not one of this store and number.
    pub fn decode(bytes: &[u8], store_id: [u8; 16], id: u64) -> Option<Self> {
        Self::decode_any(bytes, id).filter(|header| header.store_id == store_id)
    }

    /// As [`SegmentHeader::decode`], of whatever store.
    pub fn decode_any(bytes: &[u8], id: u64) -> Option<Self> {
        Self::decode_raw(bytes).filter(|header| header.id == id)
    }

    /// As [`SegmentHeader::decode`], of whatever store and file: a recycled file still has that of its former life.
    pub fn decode_raw(bytes: &[u8]) -> Option<Self> {
        let used = bytes.get(..USED_BYTES)?;
        let intact = used[..8] == *MAGIC
            && u32_at(used, 8) == VERSION
            && crc32c::crc32c(&used[..USED_BYTES - 4]) == u32_at(used, USED_BYTES - 4);
        let number = |index: usize| u64_at(used, 32 + index * 8);
        if !intact {
            return None;
        }
        Some(Self {
            store_id: used[16..32].try_into().ok()?,
            id: number(0),
            base: Position(number(1)),
            previous_end: Position(number(2)),
            epoch: number(3),
            hash_before: number(4),
            end: Position(number(5)),
            hash_after: number(6),
            epoch_after: number(7),
            compacted: u32_at(used, 12) == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_only_good_for_its_store_and_number() {
        let header = SegmentHeader {
            store_id: [7; 16],
            id: 3,
            base: Position(4096),
            previous_end: Position(4096),
            epoch: 2,
            hash_before: 9,
            end: Position::ZERO,
            hash_after: 0,
            epoch_after: 0,
            compacted: false,
        };
        let mut block = header.encode();
        assert_eq!(SegmentHeader::decode(&block, [7; 16], 3), Some(header));
        assert_eq!(SegmentHeader::decode(&block, [7; 16], 4), None);
        assert_eq!(SegmentHeader::decode(&block, [8; 16], 3), None);
        block[40] ^= 1;
        assert_eq!(SegmentHeader::decode(&block, [7; 16], 3), None);
        assert_eq!(parse_name(&segment_name(258)), Some((258, true)));
        assert_eq!(parse_name(&footer_name(258)), Some((258, false)));
        assert_eq!(parse_name("12.segment"), None);
    }
}
