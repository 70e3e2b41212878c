//! Reading and writing the parts of record heads: varints and bounded byte strings. Used by the `records` modules alone.
//!
//! A head comes from disk, where its checksum was verified, but maybe from a newer version of this program, so nothing
//! in it is trusted: every length is bounded by what is left, and every error says what was being read.

use crate::wire::{Reader, put_varint};

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
    /// Bytes follow where the head should end.
    #[error("bytes after the end of {0}")]
    Trailing(&'static str),
    /// A kind of record that is not the state layer's.
    #[error("unknown record kind {0}")]
    Kind(u8),
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

    /// A number.
    pub fn number(&mut self, field: &'static str) -> Result<u64, HeadError> {
        self.reader.varint().map_err(|_| HeadError::Field(field))
    }

    /// A number that fits one byte.
    pub fn byte(&mut self, field: &'static str) -> Result<u8, HeadError> {
        u8::try_from(self.number(field)?).map_err(|_| HeadError::Range(field))
    }

    /// A number of things that each take a byte at least, so that a claim cannot exceed what is there.
    pub fn count(&mut self, field: &'static str) -> Result<usize, HeadError> {
        let count = self.number(field)?;
        let left = self.head.len().saturating_sub(self.reader.position());
        usize::try_from(count)
            .ok()
            .filter(|count| *count <= left)
            .ok_or(HeadError::Range(field))
    }

    /// Bytes with their length before them.
    pub fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], HeadError> {
        self.reader.delimited().map_err(|_| HeadError::Field(field))
    }

    /// Text with its length before it.
    pub fn text(&mut self, field: &'static str) -> Result<&'a str, HeadError> {
        std::str::from_utf8(self.bytes(field)?).map_err(|_| HeadError::Range(field))
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

/// Appends bytes with their length before them.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
