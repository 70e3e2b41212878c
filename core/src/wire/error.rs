//! What can be wrong with encoded protobuf.

use thiserror::Error;

/// What is wrong with a stretch of encoded protobuf. Offsets count bytes from the start of the slice being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WireError {
    /// The input ends inside a value.
    #[error("the input ends inside the value that starts at byte {offset}")]
    Truncated {
        /// Where the value starts.
        offset: usize,
    },
    /// A varint has more than 64 bits.
    #[error("the varint at byte {offset} does not fit in 64 bits")]
    VarintTooLong {
        /// Where the varint starts.
        offset: usize,
    },
    /// A length-delimited value claims more bytes than are left.
    #[error("the value at byte {offset} claims {claimed} bytes where {left} are left")]
    LengthBeyondInput {
        /// Where the length starts.
        offset: usize,
        /// The length that is claimed.
        claimed: u64,
        /// The bytes that are really there.
        left: usize,
    },
    /// A tag with field number zero, or one above the largest allowed.
    #[error("the tag at byte {offset} has no valid field number")]
    BadFieldNumber {
        /// Where the tag starts.
        offset: usize,
    },
    /// A wire type that does not exist, or a group.
    #[error("the tag at byte {offset} has the unsupported wire type {wire_type}")]
    BadWireType {
        /// Where the tag starts.
        offset: usize,
        /// The three bits found.
        wire_type: u8,
    },
    /// A known field came with another wire type than its declaration has.
    #[error("field {number} at byte {offset} has the wrong wire type")]
    UnexpectedWireType {
        /// Where the field's tag starts.
        offset: usize,
        /// The field's number.
        number: u32,
    },
    /// A string field holds bytes that are not UTF-8.
    #[error("field {number} at byte {offset} is not valid UTF-8")]
    NotUtf8 {
        /// Where the field's tag starts.
        offset: usize,
        /// The field's number.
        number: u32,
    },
}
