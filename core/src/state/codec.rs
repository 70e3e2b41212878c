//! Reading and writing the parts of record heads. Used by the `records` modules alone.
//!
//! There are seven kinds of field, and each has one function that writes it and one that reads it, side by side below: a
//! byte, a flag, a number, a count, a checksum, bytes and text. A head's own `encode` and `decode` use nothing else, so that what one
//! writes as a byte the other cannot take for a number.
//!
//! A head comes from disk, where its checksum was verified, but maybe from a newer version of this program, so nothing
//! in it is trusted: every length is bounded by what is left, and every error says what was being read. What reading
//! refuses, writing refuses with the same error, before anything is logged.

use crate::log::AppendError;
use crate::wire::{Reader, put_varint};

use super::refusals::Ranges;

/// Why a head cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeadError {
    /// It ends inside a field, or a number has no end.
    #[error("{0} is cut short or malformed")]
    Field(&'static str),
    /// A version that this program does not know.
    #[error("{what} has version {version}, this program knows up to {known}")]
    Version {
        /// The record's kind.
        what: &'static str,
        /// Found.
        version: u8,
        /// The highest that is understood.
        known: u8,
    },
    /// A value outside of its range.
    #[error("{0} is out of range")]
    Range(&'static str),
    /// A flag that this program does not know: what it stands for would be lost.
    #[error("{field} has the flag {unknown}, which this program does not know")]
    Flag {
        /// What it is a flag of.
        field: &'static str,
        /// The bits.
        unknown: u8,
    },
    /// Bytes follow where the head should end.
    #[error("bytes after the end of {0}")]
    Trailing(&'static str),
    /// A kind of record that is not the state layer's.
    #[error("unknown record kind {0}")]
    Kind(u8),
}

impl From<HeadError> for AppendError {
    fn from(error: HeadError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// A cursor over a head.
pub struct Decoder<'a> {
    reader: Reader<'a>,
    head: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Begins at the first byte.
    pub fn new(head: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(head),
            head,
        }
    }

    /// A byte, as [`put_byte`] writes it.
    pub fn byte(&mut self, field: &'static str) -> Result<u8, HeadError> {
        self.reader.byte().map_err(|_| HeadError::Field(field))
    }

    /// A flag, as [`put_flag`] writes it.
    pub fn flag(&mut self, field: &'static str) -> Result<bool, HeadError> {
        Ok(self.byte(field)? != 0)
    }

    /// Flags in one byte, as [`put_byte`] writes them; one that is not `known` is refused.
    pub fn flags(&mut self, field: &'static str, known: u8) -> Result<u8, HeadError> {
        let flags = self.byte(field)?;
        match flags & !known {
            0 => Ok(flags),
            unknown => Err(HeadError::Flag { field, unknown }),
        }
    }

    /// A number, as [`put_number`] writes it.
    pub fn number(&mut self, field: &'static str) -> Result<u64, HeadError> {
        self.reader.varint().map_err(|_| HeadError::Field(field))
    }

    /// A number of things that each take a byte at least, so that a claim cannot exceed what is there; as [`put_count`]
    /// writes it.
    pub fn count(&mut self, field: &'static str, max: usize) -> Result<usize, HeadError> {
        let count = self.number(field)?;
        let left = self.head.len().saturating_sub(self.reader.position());
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= left && *count <= max)
            .ok_or(HeadError::Range(field))
    }

    /// At most `max` runs of numbers, first and last of each, ascending; as [`put_runs`] writes them.
    pub fn runs(&mut self, max: usize) -> Result<Vec<(u64, u64)>, HeadError> {
        let mut runs = Vec::new();
        let mut before: u64 = 0;
        for _ in 0..self.count("ranges", max)? {
            let mut add = |to: u64| {
                let more = self.number("a range")?;
                to.checked_add(more).ok_or(HeadError::Range("a range"))
            };
            let first = add(before)?;
            let last = add(first)?;
            runs.push((first, last));
            before = last;
        }
        Ok(runs)
    }

    /// A checksum of 128 bits, as [`put_checksum`] writes it.
    pub fn checksum(&mut self, field: &'static str) -> Result<u128, HeadError> {
        let mut half = || self.reader.eight_bytes().map_err(|_| HeadError::Field(field));
        let (high, low) = (half()?, half()?);
        Ok(u128::from(high) << 64 | u128::from(low))
    }

    /// Bytes with their length before them, as [`put_bytes`] writes them.
    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], HeadError> {
        self.reader.delimited().map_err(|_| HeadError::Field(field))
    }

    /// As many bytes as wanted, with their length before them.
    pub fn array<const BYTES: usize>(&mut self, field: &'static str) -> Result<[u8; BYTES], HeadError> {
        self.bytes(field)?.try_into().map_err(|_| HeadError::Range(field))
    }

    /// Text with its length before it, as [`put_text`] writes it.
    pub fn text(&mut self, field: &'static str) -> Result<&'a str, HeadError> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| HeadError::Range(field))
    }

    /// Ranges of refused numbers, as [`put_ranges`] writes them. Released code wrote more of them than it read: what is
    /// too much to keep says of the lowest that they cannot be told any more.
    pub fn ranges(&mut self) -> Result<Ranges, HeadError> {
        let mut ranges = Ranges::default();
        for _ in 0..self.count("refused ranges", usize::MAX)? {
            let (first, last) = (self.number("a refused range")?, self.number("a refused range")?);
            ranges.push(first, last);
        }
        Ok(ranges)
    }

    /// The version that begins every head.
    pub fn version(&mut self, what: &'static str, known: u8) -> Result<u8, HeadError> {
        let version = self.byte(what)?;
        if version == 0 || version > known {
            return Err(HeadError::Version { what, version, known });
        }
        Ok(version)
    }

    /// The head must end here.
    pub fn end(&self, what: &'static str) -> Result<(), HeadError> {
        if self.reader.is_at_end() {
            Ok(())
        } else {
            Err(HeadError::Trailing(what))
        }
    }

    /// Whether all is read.
    pub fn is_at_end(&self) -> bool {
        self.reader.is_at_end()
    }
}

/// Appends a byte.
pub fn put_byte(out: &mut Vec<u8>, value: u8) {
    out.push(value);
}

/// Appends a flag.
pub fn put_flag(out: &mut Vec<u8>, set: bool) {
    out.push(u8::from(set));
}

/// Appends a number.
pub fn put_number(out: &mut Vec<u8>, value: u64) {
    put_varint(out, value);
}

/// Appends a count of at most `max`.
///
/// # Errors
/// There are more.
pub fn put_count(out: &mut Vec<u8>, field: &'static str, count: usize, max: usize) -> Result<(), HeadError> {
    if count > max {
        return Err(HeadError::Range(field));
    }
    put_varint(out, count as u64);
    Ok(())
}

/// Appends at most `max` runs of numbers, first and last of each: how far the first is from the last of the run before, and
/// how many more there are.
///
/// # Errors
/// There are more, or they do not ascend.
pub fn put_runs(out: &mut Vec<u8>, runs: &[(u64, u64)], max: usize) -> Result<(), HeadError> {
    put_count(out, "ranges", runs.len(), max)?;
    let mut before = 0;
    for (first, last) in runs {
        let (gap, more) = (first.checked_sub(before), last.checked_sub(*first));
        put_number(out, gap.ok_or(HeadError::Range("a range"))?);
        put_number(out, more.ok_or(HeadError::Range("a range"))?);
        before = *last;
    }
    Ok(())
}

/// Appends a checksum of 128 bits: its high half, then its low one, each as eight bytes, the lowest first.
pub fn put_checksum(out: &mut Vec<u8>, checksum: u128) {
    for half in [(checksum >> 64) as u64, checksum as u64] {
        out.extend_from_slice(&half.to_le_bytes());
    }
}

/// Appends bytes with their length before them.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends text with its length before it.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Appends ranges of refused numbers, of which there are never more than are read.
pub fn put_ranges(out: &mut Vec<u8>, ranges: &Ranges) {
    put_varint(out, ranges.as_slice().len() as u64);
    for (first, last) in ranges.as_slice() {
        put_varint(out, *first);
        put_varint(out, *last);
    }
}
