//! Typed values, and the properties of a message read one by one.

use crate::wire::{Reader, WireError};

use super::error::{MessageError, excerpt};
use super::view::tags;

/// The value of a property: the scalar types of `sterna.v1.Value`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PropertyValue<'a> {
    /// Present and null.
    Null,
    /// A boolean.
    Bool(bool),
    /// Eight bits, signed.
    Byte(i8),
    /// Sixteen bits, signed.
    Short(i16),
    /// Thirty-two bits, signed.
    Int(i32),
    /// Sixty-four bits, signed.
    Long(i64),
    /// Single precision.
    Float(f32),
    /// Double precision.
    Double(f64),
    /// One UTF-16 code unit.
    Char(u16),
    /// Text.
    String(&'a str),
}

/// What one encoded `Value` holds: a scalar, or something that no property may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Decoded<'a> {
    Scalar(PropertyValue<'a>),
    Bytes,
    Map(&'a [u8]),
    Stream(&'a [u8]),
    Array(&'a [u8]),
}

impl Decoded<'_> {
    /// The type's name, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Scalar(PropertyValue::Null) => "null",
            Self::Scalar(PropertyValue::Bool(_)) => "boolean",
            Self::Scalar(PropertyValue::Byte(_)) => "byte",
            Self::Scalar(PropertyValue::Short(_)) => "short",
            Self::Scalar(PropertyValue::Int(_)) => "int",
            Self::Scalar(PropertyValue::Long(_)) => "long",
            Self::Scalar(PropertyValue::Float(_)) => "float",
            Self::Scalar(PropertyValue::Double(_)) => "double",
            Self::Scalar(PropertyValue::Char(_)) => "char",
            Self::Scalar(PropertyValue::String(_)) => "string",
            Self::Bytes => "bytes",
            Self::Map(_) => "map",
            Self::Stream(_) => "stream",
            Self::Array(_) => "array",
        }
    }
}

/// Why one encoded `Value` cannot be taken; the caller adds its name.
pub(super) enum ValueFault {
    Wire(WireError),
    Missing,
    OutOfRange(&'static str),
}

impl ValueFault {
    pub(super) fn named(self, name: &str) -> MessageError {
        match self {
            Self::Wire(error) => error.into(),
            Self::Missing => MessageError::ValueMissing(excerpt(name)),
            Self::OutOfRange(kind) => MessageError::ValueOutOfRange {
                name: excerpt(name),
                kind,
            },
        }
    }
}

impl From<WireError> for ValueFault {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

fn narrow<T: TryFrom<i64>>(value: i64, kind: &'static str) -> Result<T, ValueFault> {
    T::try_from(value).map_err(|_| ValueFault::OutOfRange(kind))
}

/// Decodes a `Value`. As protobuf has it, the last member of the `oneof` counts.
pub(super) fn decode(encoded: &[u8]) -> Result<Decoded<'_>, ValueFault> {
    let mut reader = Reader::new(encoded);
    let mut decoded = None;
    while let Some(field) = reader.next_field()? {
        let scalar = match field.number {
            1 => PropertyValue::Bool(field.bool()?),
            2 => PropertyValue::Byte(narrow(field.sint64()?, "byte")?),
            3 => PropertyValue::Short(narrow(field.sint64()?, "short")?),
            4 => PropertyValue::Int(narrow(field.sint64()?, "int")?),
            5 => PropertyValue::Long(field.sint64()?),
            6 => PropertyValue::Float(f32::from_bits(field.fixed32()?)),
            7 => PropertyValue::Double(f64::from_bits(field.fixed64()?)),
            8 => PropertyValue::String(field.str()?),
            9 => PropertyValue::Char(u16::try_from(field.varint()?).map_err(|_| ValueFault::OutOfRange("char"))?),
            11 => {
                field.varint()?;
                PropertyValue::Null
            }
            10 | 12..=14 => {
                let bytes = field.bytes()?;
                decoded = Some(match field.number {
                    10 => Decoded::Bytes,
                    12 => Decoded::Map(bytes),
                    13 => Decoded::Stream(bytes),
                    _ => Decoded::Array(bytes),
                });
                continue;
            }
            _ => continue,
        };
        decoded = Some(Decoded::Scalar(scalar));
    }
    decoded.ok_or(ValueFault::Missing)
}

/// The tags of `Property.name` and `Property.value`: fields 1 and 2, length-delimited.
const NAME_TAG: u8 = 0x0a;
const VALUE_TAG: u8 = 0x12;

/// One `Property`, its value not yet decoded.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
}

impl<'a> Entry<'a> {
    #[inline]
    pub(super) fn parse(encoded: &'a [u8]) -> Result<Self, WireError> {
        match Self::parse_usual(encoded) {
            Some(entry) => Ok(entry),
            None => Self::parse_any(encoded),
        }
    }

    /// The form in which every encoder writes a short property, name then value and no more: selectors look at each
    /// property of each message, and this costs half of a reader.
    #[inline]
    fn parse_usual(encoded: &'a [u8]) -> Option<Self> {
        let [NAME_TAG, length @ ..=0x7f, rest @ ..] = encoded else {
            return None;
        };
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        let [VALUE_TAG, length @ ..=0x7f, value @ ..] = rest else {
            return None;
        };
        (value.len() == usize::from(*length)).then_some(Self { name, value })
    }

    fn parse_any(encoded: &'a [u8]) -> Result<Self, WireError> {
        let mut entry = Entry { name: &[], value: &[] };
        let mut reader = Reader::new(encoded);
        while let Some(field) = reader.next_field()? {
            match field.number {
                1 => entry.name = field.bytes()?,
                2 => entry.value = field.bytes()?,
                _ => {}
            }
        }
        Ok(entry)
    }

    pub(super) fn name(&self, number: u32) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.name).map_err(|_| WireError::NotUtf8 { offset: 0, number })
    }
}

/// The properties of a message in the order in which they were set; a name may come up again.
#[derive(Debug, Clone)]
pub struct Properties<'a> {
    reader: Reader<'a>,
    left: usize,
}

impl<'a> Properties<'a> {
    /// `encoded` begins with the first property; `count` properties follow, other fields may lie between them.
    pub(super) fn new(encoded: &'a [u8], count: usize) -> Self {
        Self {
            reader: Reader::new(encoded),
            left: count,
        }
    }

    /// The next property, undecoded.
    #[inline]
    pub(super) fn next_entry(&mut self) -> Result<Option<Entry<'a>>, WireError> {
        while self.left > 0 {
            let Some(field) = self.reader.next_field()? else { break };
            if field.number == tags::PROPERTIES {
                self.left -= 1;
                return Entry::parse(field.bytes()?).map(Some);
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Properties<'a> {
    type Item = Result<(&'a str, PropertyValue<'a>), MessageError>;

    /// The next property with its value. After an error the iteration ends.
    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.next_entry() {
            Ok(entry) => entry?,
            Err(error) => {
                self.left = 0;
                return Some(Err(error.into()));
            }
        };
        let read = || {
            let name = entry.name(tags::PROPERTIES)?;
            match decode(entry.value).map_err(|fault| fault.named(name))? {
                Decoded::Scalar(value) => Ok((name, value)),
                other => Err(MessageError::PropertyKind {
                    name: excerpt(name),
                    kind: other.kind(),
                }),
            }
        };
        let property = read();
        if property.is_err() {
            self.left = 0;
        }
        Some(property)
    }
}
