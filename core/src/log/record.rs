//! The encoding of one record, the log's smallest piece. Written by appends, walked by recovery, reads and compaction.
//!
//! A record is a 32-byte header, a head (what the state layer reads at start) and a payload (what it reads when somebody
//! wants the message), padded to eight bytes. All numbers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | CRC32C over bytes 4..length |
//! | 4 | 4 | length: header, head and payload, without padding |
//! | 8 | 8 | position |
//! | 16 | 8 | epoch |
//! | 24 | 4 | length of the head; in a skip: the bytes of position space it stands for |
//! | 28 | 1 | kind |
//! | 29 | 1 | slack: eighths of the 0, 8, 16 or 24 bytes of padding that a rewrite with a shorter head left |
//! | 30 | 1 | 1: rewritten with another head, so the rolling hash cannot be computed over it |
//! | 31 | 1 | zero |
//!
//! The checksum covers position and epoch, so what a recycled segment held before is never taken for new.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::position::{Position, record_aligned};

/// The fixed part of a record.
pub const HEADER_BYTES: usize = 32;

/// Starts every group commit: its head is a [`super::commit::CommitHead`].
pub(crate) const KIND_COMMIT: u8 = 1;
/// A new epoch begins; the header says which.
pub(crate) const KIND_EPOCH: u8 = 2;
/// Stands for position space whose records a compaction dropped; written only by `append_log`.
pub(crate) const KIND_SKIP: u8 = 3;
/// Kinds below this one are the log's own.
pub const KIND_USER_MIN: u8 = 16;

/// The decoded fixed part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHeader {
    pub crc: u32,
    pub length: u32,
    pub position: Position,
    pub epoch: u64,
    pub head_length: u32,
    pub kind: u8,
    /// Padding beyond the eight bytes' alignment: what is dropped between two records is never less than a header.
    pub slack: u8,
    /// Its head is not the one it was appended with.
    pub rewritten: bool,
}

impl RecordHeader {
    /// Reads the fields and checks that the lengths make sense inside `room` bytes; the checksum is not looked at.
    pub fn decode(bytes: &[u8], room: u64) -> Result<Self, &'static str> {
        let fixed: &[u8; HEADER_BYTES] = bytes
            .get(..HEADER_BYTES)
            .and_then(|fixed| fixed.try_into().ok())
            .ok_or("header cut short")?;
        let header = Self {
            crc: u32_at(fixed, 0),
            length: u32_at(fixed, 4),
            position: Position(u64_at(fixed, 8)),
            epoch: u64_at(fixed, 16),
            head_length: u32_at(fixed, 24),
            kind: fixed[28],
            slack: fixed[29].wrapping_mul(8),
            rewritten: fixed[30] == 1,
        };
        if header.kind == 0 || fixed[29] > 3 || fixed[30] > 1 || fixed[31] != 0 {
            return Err("no record here");
        }
        let body = header
            .length
            .checked_sub(HEADER_BYTES as u32)
            .ok_or("length below the header's")?;
        let fits = match header.kind {
            KIND_SKIP => body == 0 && header.head_length >= HEADER_BYTES as u32,
            _ => header.head_length <= body,
        };
        if !fits || header.span() > room {
            return Err("lengths do not fit");
        }
        Ok(header)
    }

    /// How far the next record is, in position space.
    pub fn span(&self) -> u64 {
        if self.kind == KIND_SKIP {
            u64::from(self.head_length)
        } else {
            self.stored()
        }
    }

    /// How far the next record is in a compacted file, where nothing is skipped.
    pub fn stored(&self) -> u64 {
        record_aligned(u64::from(self.length)) + u64::from(self.slack)
    }

    /// The payload's length.
    pub fn payload_length(&self) -> u32 {
        if self.kind == KIND_SKIP {
            0
        } else {
            self.length - HEADER_BYTES as u32 - self.head_length
        }
    }

    /// Whether the rolling hash counts this record: framing does not.
    pub fn is_hashed(&self) -> bool {
        self.kind != KIND_COMMIT && self.kind != KIND_SKIP
    }
}

/// Decodes and verifies the record at the start of `bytes`: lengths, checksum, and that it is the one for `position`.
pub(crate) fn verify(bytes: &[u8], position: Position, room: u64) -> Result<RecordHeader, &'static str> {
    let header = RecordHeader::decode(bytes, room)?;
    if header.position != position {
        return Err("record of another position");
    }
    let covered = bytes.get(4..header.length as usize).ok_or("record cut short")?;
    if crc32c::crc32c(covered) != header.crc {
        return Err("checksum does not match");
    }
    Ok(header)
}

/// Appends one record to `buffer` with its checksum and padding and returns the checksum. The caller has checked the lengths.
pub(crate) fn encode(
    buffer: &mut impl bytes::BufMut,
    position: Position,
    epoch: u64,
    kind: u8,
    head: &[u8],
    payload: &[u8],
) -> u32 {
    let mut fixed = [0; HEADER_BYTES];
    encode_fixed(buffer, &mut fixed, 0, (position, epoch, kind), head, payload)
}

/// A record again, with another head and `slack` bytes (0, 8, 16 or 24) of padding more.
pub(crate) fn encode_rewritten(
    buffer: &mut impl bytes::BufMut,
    old: &RecordHeader,
    slack: u8,
    head: &[u8],
    payload: &[u8],
) -> u32 {
    let mut fixed = [0; HEADER_BYTES];
    (fixed[29], fixed[30]) = (slack / 8, 1);
    encode_fixed(
        buffer,
        &mut fixed,
        slack,
        (old.position, old.epoch, old.kind),
        head,
        payload,
    )
}

fn encode_fixed(
    buffer: &mut impl bytes::BufMut,
    fixed: &mut [u8; HEADER_BYTES],
    slack: u8,
    (position, epoch, kind): (Position, u64, u8),
    head: &[u8],
    payload: &[u8],
) -> u32 {
    let length = HEADER_BYTES + head.len() + payload.len();
    let plain = fixed_part(position, epoch, kind, length as u32, head.len() as u32);
    fixed[..29].copy_from_slice(&plain[..29]);
    let mut crc = crc32c::crc32c(&fixed[4..]);
    crc = crc32c::crc32c_append(crc, head);
    crc = crc32c::crc32c_append(crc, payload);
    buffer.put_slice(&crc.to_le_bytes());
    buffer.put_slice(&fixed[4..]);
    buffer.put_slice(head);
    buffer.put_slice(payload);
    let padding = record_aligned(length as u64) as usize - length + slack as usize;
    buffer.put_slice(&[0; 31][..padding]);
    crc
}

/// A skip record: 32 bytes that stand for `span` bytes of position space.
pub(crate) fn encode_skip(position: Position, epoch: u64, span: u32) -> [u8; HEADER_BYTES] {
    let mut fixed = fixed_part(position, epoch, KIND_SKIP, HEADER_BYTES as u32, span);
    let crc = crc32c::crc32c(&fixed[4..]);
    fixed[..4].copy_from_slice(&crc.to_le_bytes());
    fixed
}

fn fixed_part(position: Position, epoch: u64, kind: u8, length: u32, head_length: u32) -> [u8; HEADER_BYTES] {
    let mut fixed = [0; HEADER_BYTES];
    fixed[4..8].copy_from_slice(&length.to_le_bytes());
    fixed[8..16].copy_from_slice(&position.0.to_le_bytes());
    fixed[16..24].copy_from_slice(&epoch.to_le_bytes());
    fixed[24..28].copy_from_slice(&head_length.to_le_bytes());
    fixed[28] = kind;
    fixed
}

/// One step of the rolling hash: a chain over the records' checksums in append order.
#[inline]
pub(crate) fn chain(hash: u64, crc: u32) -> u64 {
    xxh3_64_with_seed(&crc.to_le_bytes(), hash)
}

/// Reads a little-endian number; the caller has checked that it is there.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

/// Reads a little-endian number; the caller has checked that it is there.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::{CASES, cases};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn a_record_comes_back_and_any_flipped_bit_shows(
            position in 1u64..1 << 60, epoch in any::<u64>(), kind in KIND_USER_MIN..,
            head in prop::collection::vec(any::<u8>(), 0..100), payload in prop::collection::vec(any::<u8>(), 0..300),
            flip in any::<prop::sample::Index>(),
        ) {
            let position = Position(position & !7);
            let mut bytes = Vec::new();
            encode(&mut bytes, position, epoch, kind, &head, &payload);
            let room = bytes.len() as u64;
            let header = verify(&bytes, position, room).unwrap();
            prop_assert_eq!(header.span(), room);
            prop_assert_eq!((header.epoch, header.kind), (epoch, kind));
            prop_assert_eq!(header.payload_length() as usize, payload.len());
            prop_assert!(verify(&bytes, position.plus(8), room).is_err());
            let bit = flip.index(header.length as usize * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(verify(&bytes, position, room).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = verify(&bytes, Position(0), bytes.len() as u64);
        }
    }

    #[test]
    fn a_skip_stands_for_more_than_it_takes() {
        let bytes = encode_skip(Position(64), 3, 4000);
        let header = verify(&bytes, Position(64), 4000).unwrap();
        assert_eq!((header.span(), header.stored(), header.payload_length()), (4000, 32, 0));
        assert!(verify(&bytes, Position(64), 3999).is_err());
    }
}
