//! What can be wrong with an encoded message.

use thiserror::Error;

use crate::wire::WireError;

/// How much of a name an error repeats, in characters.
const EXCERPT_CHARACTERS: usize = 64;

/// Why a message is refused. Each variant belongs to one field of `sterna.v1.Message`: see [`MessageError::subject`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MessageError {
    /// The bytes are no protobuf, or a field has another type than the contract says.
    #[error("the message is no valid encoding: {0}")]
    Wire(#[from] WireError),
    /// A field that holds something which its readers cannot decode.
    #[error("the field {subject} cannot be read: {error}")]
    Field {
        /// Which one.
        subject: &'static str,
        /// What is wrong.
        error: WireError,
    },
    /// A delivery mode that does not exist.
    #[error("the delivery mode {0} does not exist: 0 is persistent, 1 non-persistent, 2 reliable")]
    DeliveryMode(u64),
    /// A priority above 9.
    #[error("the priority {0} is above 9")]
    Priority(u64),
    /// A correlation id above 4 KiB.
    #[error("the correlation id has {bytes} bytes, at most {limit} are allowed")]
    CorrelationIdTooLong {
        /// Its length.
        bytes: usize,
        /// The longest allowed.
        limit: usize,
    },
    /// More than one body, or one body twice.
    #[error("the message has more than one body")]
    SeveralBodies,
    /// Two `reply_to`.
    #[error("the message says twice where replies go")]
    SeveralReplyTo,
    /// A property or map entry without a name.
    #[error("{subject} {index} has no name")]
    NameMissing {
        /// "properties" or "map".
        subject: &'static str,
        /// Which one, counted from 0.
        index: usize,
    },
    /// A property named like a header field.
    #[error("the property name '{0}' is reserved: names that begin with JMS go on with 'X' or '_'")]
    ReservedName(String),
    /// A property of a type that properties cannot have.
    #[error("the property '{name}' is of type {kind}: properties are booleans, numbers, characters and strings")]
    PropertyKind {
        /// The property's name.
        name: String,
        /// The type found.
        kind: &'static str,
    },
    /// A value without content, or of a type this broker does not know.
    #[error("the value '{0}' has no content")]
    ValueMissing(String),
    /// A value outside the range of its declared type.
    #[error("the value '{name}' is out of range for the type {kind}")]
    ValueOutOfRange {
        /// The value's name, or its place in an array or stream.
        name: String,
        /// The declared type.
        kind: &'static str,
    },
    /// A name that stands twice in a map.
    #[error("the map has two entries named '{0}'")]
    EntryTwice(String),
    /// Values of more than one type in an array, or values that are no scalars.
    #[error("an array holds scalar values of one type only")]
    MixedArray,
    /// Maps, streams and arrays inside one another beyond the limit.
    #[error("maps and streams are nested more than {0} deep")]
    NestedTooDeep(usize),
}

impl MessageError {
    /// The field of the message that is wrong, by its name in the contract; empty for the message as a whole.
    #[must_use]
    pub fn subject(&self) -> &'static str {
        match self {
            Self::Wire(_) => "",
            Self::DeliveryMode(_) => "delivery_mode",
            Self::Priority(_) => "priority",
            Self::CorrelationIdTooLong { .. } => "correlation_id",
            Self::SeveralReplyTo => "reply_to",
            Self::NameMissing { subject, .. } | Self::Field { subject, .. } => subject,
            Self::ReservedName(_) | Self::PropertyKind { .. } => "properties",
            Self::ValueMissing(_) | Self::ValueOutOfRange { .. } => "value",
            Self::SeveralBodies | Self::EntryTwice(_) | Self::MixedArray | Self::NestedTooDeep(_) => "body",
        }
    }
}

impl MessageError {
    /// The same, told of the field in which it was found.
    pub(super) fn within(self, subject: &'static str) -> Self {
        match self {
            Self::Wire(error) => Self::Field { subject, error },
            other => other,
        }
    }
}

/// The part of a name that is worth repeating in an error.
pub(super) fn excerpt(name: &str) -> String {
    name.chars().take(EXCERPT_CHARACTERS).collect()
}
