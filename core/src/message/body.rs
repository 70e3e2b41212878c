//! The body of a message: what kind, where, and whether receivers could decode it.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_128;

use crate::wire::{Reader, WireError};

use super::error::{MessageError, excerpt};
use super::property::{Decoded, Entry, PropertyValue, decode};
use super::view::{tags, text};

/// How deep maps and streams may be nested. Every level is three messages on the wire, and protobuf libraries stop at a
/// hundred: a deeper message could be stored and never read.
pub const NESTING_MAX: usize = 32;

/// The kinds of body in `sterna.v1.Message`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// No body: an event.
    None,
    /// Text.
    Text,
    /// Opaque bytes.
    Bytes,
    /// Names to values.
    Map,
    /// Values in order.
    Stream,
    /// A serialised object.
    Object,
    /// A body that was uploaded beforehand.
    Uploaded,
    /// A foreign protocol's body.
    Foreign,
}

impl BodyKind {
    /// The kind behind a field number of the `oneof`.
    pub(super) fn of(number: u32) -> Self {
        match number {
            9 => Self::Text,
            10 => Self::Bytes,
            11 => Self::Map,
            12 => Self::Stream,
            13 => Self::Object,
            14 => Self::Uploaded,
            15 => Self::Foreign,
            _ => Self::None,
        }
    }
}

/// A body where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<'a> {
    /// What it is.
    pub kind: BodyKind,
    /// The field's payload: the text or bytes themselves, or the encoded message of the other kinds.
    pub bytes: &'a [u8],
}

impl Body<'_> {
    /// How many bytes the body has as encoded: for text and bytes the data alone.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// XXH3-128 (seed 0) of the body as it stands on the wire: of a text its UTF-8 bytes, of bytes these, of every other
    /// kind the encoded submessage; of an uploaded body not the reference to it but `uploaded`, the bytes it was put
    /// together from; without a body of nothing. What is compressed is not inflated. `tests/vectors/body_checksums.json`
    /// says what comes out, for whoever makes the sum elsewhere.
    #[must_use]
    pub fn checksum(&self, uploaded: &[u8]) -> u128 {
        xxh3_128(match self.kind {
            BodyKind::Uploaded => uploaded,
            _ => self.bytes,
        })
    }

    /// The text of a text body, `None` for every other kind.
    ///
    /// # Errors
    /// [`WireError::NotUtf8`].
    pub fn text(&self) -> Result<Option<&str>, WireError> {
        if self.kind == BodyKind::Text {
            text(self.bytes).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn check(&self) -> Result<(), MessageError> {
        match self.kind {
            BodyKind::None | BodyKind::Bytes => Ok(()),
            BodyKind::Text => text(self.bytes).map(drop).map_err(Into::into),
            BodyKind::Map => check_map(self.bytes, 1),
            BodyKind::Stream => check_stream(self.bytes, 1),
            BodyKind::Object => check_fields(self.bytes, &[1], &[2]),
            BodyKind::Foreign => check_fields(self.bytes, &[2], &[1]),
            BodyKind::Uploaded => check_uploaded(self.bytes),
        }
    }
}

/// Fields that hold bytes, and fields that hold text.
fn check_fields(encoded: &[u8], bytes: &[u32], texts: &[u32]) -> Result<(), MessageError> {
    let mut reader = Reader::new(encoded);
    while let Some(field) = reader.next_field()? {
        if bytes.contains(&field.number) {
            field.bytes()?;
        } else if texts.contains(&field.number) {
            field.str()?;
        }
    }
    Ok(())
}

fn check_uploaded(encoded: &[u8]) -> Result<(), MessageError> {
    let mut reader = Reader::new(encoded);
    while let Some(field) = reader.next_field()? {
        match field.number {
            1 => drop(field.fixed64()?),
            2 => drop(field.varint()?),
            3 => drop(field.str()?),
            _ => {}
        }
    }
    Ok(())
}

fn check_map(encoded: &[u8], depth: usize) -> Result<(), MessageError> {
    let mut names = HashSet::new();
    let mut reader = Reader::new(encoded);
    while let Some(field) = reader.next_field()? {
        if field.number != 1 {
            continue;
        }
        let entry = Entry::parse(field.bytes()?)?;
        let name = entry.name(tags::BODY_FIRST)?;
        if name.is_empty() {
            return Err(MessageError::NameMissing {
                subject: "map",
                index: names.len(),
            });
        }
        if !names.insert(name) {
            return Err(MessageError::EntryTwice(excerpt(name)));
        }
        check_value(entry.value, name, depth)?;
    }
    Ok(())
}

fn check_stream(encoded: &[u8], depth: usize) -> Result<(), MessageError> {
    let mut reader = Reader::new(encoded);
    while let Some(field) = reader.next_field()? {
        if field.number == 1 {
            check_value(field.bytes()?, "item of a stream", depth)?;
        }
    }
    Ok(())
}

// Recursion through maps and streams is bounded by NESTING_MAX.
fn check_value(encoded: &[u8], name: &str, depth: usize) -> Result<(), MessageError> {
    let nested = match decode(encoded).map_err(|fault| fault.named(name))? {
        Decoded::Scalar(_) | Decoded::Bytes => return Ok(()),
        Decoded::Array(items) => return check_array(items, name),
        nested => nested,
    };
    if depth >= NESTING_MAX {
        return Err(MessageError::NestedTooDeep(NESTING_MAX));
    }
    match nested {
        Decoded::Map(entries) => check_map(entries, depth + 1),
        Decoded::Stream(items) => check_stream(items, depth + 1),
        _ => Ok(()),
    }
}

fn check_array(encoded: &[u8], name: &str) -> Result<(), MessageError> {
    let mut first = None;
    let mut reader = Reader::new(encoded);
    while let Some(field) = reader.next_field()? {
        if field.number != 1 {
            continue;
        }
        let item = decode(field.bytes()?).map_err(|fault| fault.named(name))?;
        let is_scalar = matches!(item, Decoded::Scalar(value) if value != PropertyValue::Null);
        if !is_scalar || *first.get_or_insert(item.kind()) != item.kind() {
            return Err(MessageError::MixedArray);
        }
    }
    Ok(())
}
