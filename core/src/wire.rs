//! Protobuf's wire format, by hand: a reader over a borrowed slice and writers that append to a `Vec<u8>`.
//!
//! The hot path (publish, deliver, acknowledge) and the message view read frames with this instead of decoding them into
//! generated structs: nothing is allocated, nothing is copied, and a field nobody asks for costs only its header. The
//! generated types in [`crate::proto`] serve the frames that are rare.
//!
//! The input is hostile until shown otherwise. Every length is compared with what is really there before it is used, so
//! no claim in a frame can lead to a panic or an allocation, and every error says at which byte the trouble starts.
//!
//! Left out: groups (wire types 3 and 4), which no `.proto` of this project uses; meeting one is an error.

mod error;

pub use error::WireError;

/// The longest varint: ten groups of seven bits carry 64 bits.
pub const VARINT_BYTES_MAX: usize = 10;

/// The largest field number protobuf allows.
pub const FIELD_NUMBER_MAX: u32 = (1 << 29) - 1;

/// The payload of one field, still undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Wire type 0: integers, booleans, enums.
    Varint(u64),
    /// Wire type 1: `fixed64`, `sfixed64`, `double`, as the eight bytes read little-endian.
    Fixed64(u64),
    /// Wire type 2: strings, bytes, messages, packed lists.
    Bytes(&'a [u8]),
    /// Wire type 5: `fixed32`, `sfixed32`, `float`, as the four bytes read little-endian.
    Fixed32(u32),
}

/// One field of a message: its number, where its tag starts and its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The field's number in its `.proto`.
    pub number: u32,
    /// Where the tag starts, in bytes from the start of the reader's slice.
    pub offset: usize,
    /// What it carries.
    pub payload: Payload<'a>,
}

impl<'a> Field<'a> {
    fn unexpected(&self) -> WireError {
        WireError::UnexpectedWireType {
            offset: self.offset,
            number: self.number,
        }
    }

    /// The payload of a `uint64`, `uint32`, `bool` or enum field.
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not a varint.
    #[inline]
    pub fn varint(&self) -> Result<u64, WireError> {
        if let Payload::Varint(value) = self.payload {
            Ok(value)
        } else {
            Err(self.unexpected())
        }
    }

    /// The payload of a `bool` field.
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not a varint.
    #[inline]
    pub fn bool(&self) -> Result<bool, WireError> {
        self.varint().map(|value| value != 0)
    }

    /// The payload of an `int32` or `int64` field: two's complement, as protobuf writes negative ones in ten bytes.
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not a varint.
    #[inline]
    pub fn int64(&self) -> Result<i64, WireError> {
        self.varint().map(|value| value as i64)
    }

    /// The payload of a `sint32` or `sint64` field (zigzag).
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not a varint.
    #[inline]
    pub fn sint64(&self) -> Result<i64, WireError> {
        self.varint().map(zigzag_decode)
    }

    /// The payload of a `fixed64`, `sfixed64` or `double` field.
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not eight bytes wide.
    #[inline]
    pub fn fixed64(&self) -> Result<u64, WireError> {
        if let Payload::Fixed64(value) = self.payload {
            Ok(value)
        } else {
            Err(self.unexpected())
        }
    }

    /// The payload of a `fixed32`, `sfixed32` or `float` field.
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not four bytes wide.
    #[inline]
    pub fn fixed32(&self) -> Result<u32, WireError> {
        if let Payload::Fixed32(value) = self.payload {
            Ok(value)
        } else {
            Err(self.unexpected())
        }
    }

    /// The payload of a `bytes` or message field.
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not length-delimited.
    #[inline]
    pub fn bytes(&self) -> Result<&'a [u8], WireError> {
        if let Payload::Bytes(bytes) = self.payload {
            Ok(bytes)
        } else {
            Err(self.unexpected())
        }
    }

    /// The payload of a `string` field.
    ///
    /// # Errors
    /// [`WireError::UnexpectedWireType`] if the field is not length-delimited, [`WireError::NotUtf8`] if it is no text.
    #[inline]
    pub fn str(&self) -> Result<&'a str, WireError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| WireError::NotUtf8 {
            offset: self.offset,
            number: self.number,
        })
    }
}

/// Reads the fields of one encoded message in order.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    input: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `input`.
    #[must_use]
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, position: 0 }
    }

    /// How many bytes have been read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Whether everything has been read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.position >= self.input.len()
    }

    /// The next field, or `None` at the end of the input.
    ///
    /// # Errors
    /// Any [`WireError`] but the two that depend on the field's declaration. After an error the reader stays where it
    /// was, so a caller that ignores one does not skip into the middle of a value.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<Field<'a>>, WireError> {
        if self.is_at_end() {
            return Ok(None);
        }
        let start = self.position;
        let field = self.field();
        if field.is_err() {
            self.position = start;
        }
        field.map(Some)
    }

    #[inline]
    fn field(&mut self) -> Result<Field<'a>, WireError> {
        let offset = self.position;
        let tag = self.varint()?;
        let number = match u32::try_from(tag >> 3) {
            Ok(number) if (1..=FIELD_NUMBER_MAX).contains(&number) => number,
            _ => return Err(WireError::BadFieldNumber { offset }),
        };
        let payload = match (tag & 7) as u8 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => Payload::Bytes(self.delimited()?),
            5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
            wire_type => return Err(WireError::BadWireType { offset, wire_type }),
        };
        Ok(Field {
            number,
            offset,
            payload,
        })
    }

    /// One varint.
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::VarintTooLong`].
    #[inline]
    pub fn varint(&mut self) -> Result<u64, WireError> {
        // Nearly every tag and length is below 128, so that case is worth its own line.
        match self.input.get(self.position) {
            Some(&byte) if byte < 0x80 => {
                self.position += 1;
                Ok(u64::from(byte))
            }
            _ => self.varint_of_several_bytes(),
        }
    }

    fn varint_of_several_bytes(&mut self) -> Result<u64, WireError> {
        let offset = self.position;
        let mut value = 0_u64;
        for index in 0..VARINT_BYTES_MAX {
            let byte = *self.input.get(offset + index).ok_or(WireError::Truncated { offset })?;
            // The tenth byte holds the 64th bit alone.
            if index == VARINT_BYTES_MAX - 1 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.position = offset + index + 1;
                return Ok(value);
            }
        }
        Err(WireError::VarintTooLong { offset })
    }

    /// One byte as it stands. No field of a protobuf message is written so; the heads of the log's records have such.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn byte(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    /// Eight bytes as they stand, read little-endian, without a tag: only heads of the log's records have such.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn eight_bytes(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length and that many bytes.
    ///
    /// # Errors
    /// As [`Reader::varint`], and [`WireError::LengthBeyondInput`].
    #[inline]
    pub fn delimited(&mut self) -> Result<&'a [u8], WireError> {
        let offset = self.position;
        let claimed = self.varint()?;
        let rest = self.input.get(self.position..).unwrap_or_default();
        let taken = usize::try_from(claimed).ok().and_then(|length| rest.get(..length));
        let Some(bytes) = taken else {
            return Err(WireError::LengthBeyondInput {
                offset,
                claimed,
                left: rest.len(),
            });
        };
        self.position += bytes.len();
        Ok(bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let offset = self.position;
        let rest = self.input.get(offset..).unwrap_or_default();
        let bytes = *rest.first_chunk::<N>().ok_or(WireError::Truncated { offset })?;
        self.position += N;
        Ok(bytes)
    }
}

/// Maps a signed number to an unsigned one with small magnitudes first (`sint32`, `sint64`).
#[must_use]
#[inline]
pub fn zigzag_encode(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag_encode`].
#[must_use]
#[inline]
pub fn zigzag_decode(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// How many bytes `value` takes as a varint.
#[must_use]
#[inline]
pub fn varint_size(value: u64) -> usize {
    // Seven bits a byte; `| 1` makes zero take one byte.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// How many bytes a length-delimited field of `length` payload bytes takes, tag and length included.
#[must_use]
#[inline]
pub fn bytes_field_size(number: u32, length: usize) -> usize {
    varint_size(u64::from(number) << 3) + varint_size(length as u64) + length
}

/// How many bytes a varint field takes, tag included.
#[must_use]
#[inline]
pub fn varint_field_size(number: u32, value: u64) -> usize {
    varint_size(u64::from(number) << 3) + varint_size(value)
}

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[inline]
fn put_tag(out: &mut Vec<u8>, number: u32, wire_type: u8) {
    put_varint(out, (u64::from(number) << 3) | u64::from(wire_type));
}

/// Appends a varint field, also when `value` is zero; callers that follow proto3 leave out zeroes themselves.
#[inline]
pub fn put_varint_field(out: &mut Vec<u8>, number: u32, value: u64) {
    put_tag(out, number, 0);
    put_varint(out, value);
}

/// Appends a `fixed64`, `sfixed64` or `double` field.
#[inline]
pub fn put_fixed64_field(out: &mut Vec<u8>, number: u32, value: u64) {
    put_tag(out, number, 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends a `fixed32`, `sfixed32` or `float` field.
#[inline]
pub fn put_fixed32_field(out: &mut Vec<u8>, number: u32, value: u32) {
    put_tag(out, number, 5);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends the tag and the length of a length-delimited field whose payload the caller appends next.
#[inline]
pub fn put_bytes_header(out: &mut Vec<u8>, number: u32, length: usize) {
    put_tag(out, number, 2);
    put_varint(out, length as u64);
}

/// Appends a `bytes`, `string` or message field.
#[inline]
pub fn put_bytes_field(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_bytes_header(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::{CASES, cases};
    use proptest::prelude::*;

    #[test]
    fn fields_of_every_wire_type_come_back_as_written() {
        let mut out = Vec::new();
        put_varint_field(&mut out, 1, 300);
        put_fixed64_field(&mut out, 2, 1.5_f64.to_bits());
        put_bytes_field(&mut out, 3, "héllo".as_bytes());
        put_fixed32_field(&mut out, 4000, 7);
        put_varint_field(&mut out, 5, zigzag_encode(-3));

        let mut reader = Reader::new(&out);
        assert_eq!(reader.next_field().unwrap().unwrap().varint(), Ok(300));
        assert_eq!(
            reader.next_field().unwrap().unwrap().fixed64().map(f64::from_bits),
            Ok(1.5)
        );
        assert_eq!(reader.next_field().unwrap().unwrap().str(), Ok("héllo"));
        let field = reader.next_field().unwrap().unwrap();
        assert_eq!((field.number, field.fixed32()), (4000, Ok(7)));
        assert_eq!(reader.next_field().unwrap().unwrap().sint64(), Ok(-3));
        assert_eq!(reader.next_field(), Ok(None));
    }

    #[test]
    fn a_length_beyond_the_input_is_refused_with_what_is_left() {
        let mut out = Vec::new();
        put_bytes_header(&mut out, 1, usize::MAX);
        out.push(0);
        let error = Reader::new(&out).next_field().unwrap_err();
        assert_eq!(
            error,
            WireError::LengthBeyondInput {
                offset: 1,
                claimed: u64::MAX,
                left: 1
            }
        );
    }

    #[test]
    fn each_malformed_input_names_its_fault_and_leaves_the_reader_in_place() {
        let cases: [(&[u8], WireError); 6] = [
            (&[0x08], WireError::Truncated { offset: 1 }),
            (&[0x80], WireError::Truncated { offset: 0 }),
            (&[0x09, 1, 2, 3], WireError::Truncated { offset: 1 }),
            (&[0x00, 0x01], WireError::BadFieldNumber { offset: 0 }),
            (
                &[0x0b],
                WireError::BadWireType {
                    offset: 0,
                    wire_type: 3,
                },
            ),
            (
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02],
                WireError::VarintTooLong { offset: 0 },
            ),
        ];
        for (input, expected) in cases {
            let mut reader = Reader::new(input);
            assert_eq!(reader.next_field(), Err(expected), "{input:?}");
            assert_eq!(reader.position(), 0);
        }
    }

    #[test]
    fn a_field_read_as_another_type_is_an_error() {
        let mut out = Vec::new();
        put_varint_field(&mut out, 1, 1);
        put_bytes_field(&mut out, 2, &[0xff]);
        let mut reader = Reader::new(&out);
        let number = reader.next_field().unwrap().unwrap();
        assert_eq!(
            number.bytes(),
            Err(WireError::UnexpectedWireType { offset: 0, number: 1 })
        );
        let bytes = reader.next_field().unwrap().unwrap();
        assert_eq!(bytes.str(), Err(WireError::NotUtf8 { offset: 2, number: 2 }));
        assert!(bytes.varint().is_err() && bytes.fixed32().is_err() && bytes.fixed64().is_err());
    }

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn varints_round_trip_and_their_size_is_known(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_size(value));
            prop_assert_eq!(Reader::new(&out).varint(), Ok(value));
        }

        #[test]
        fn zigzag_round_trips(value: i64) {
            prop_assert_eq!(zigzag_decode(zigzag_encode(value)), value);
        }

        #[test]
        fn arbitrary_bytes_end_in_fields_or_an_error(input in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut reader = Reader::new(&input);
            let mut position = 0;
            while let Ok(Some(_)) = reader.next_field() {
                prop_assert!(reader.position() > position && reader.position() <= input.len());
                position = reader.position();
            }
        }

        #[test]
        fn field_sizes_are_what_gets_written(number in 1..=FIELD_NUMBER_MAX, value: u64, length in 0_usize..300) {
            let mut out = Vec::new();
            put_varint_field(&mut out, number, value);
            prop_assert_eq!(out.len(), varint_field_size(number, value));
            out.clear();
            put_bytes_field(&mut out, number, &vec![0; length]);
            prop_assert_eq!(out.len(), bytes_field_size(number, length));
        }
    }
}
