//! The view itself: one pass over the fields of a message.

use crate::proto::DeliveryMode;
use crate::wire::{Field, Reader, WireError};

use super::body::{Body, BodyKind};
use super::error::{MessageError, excerpt};
use super::property::{Decoded, Properties, PropertyValue, decode};

/// What a message has that says nothing.
pub const DEFAULT_PRIORITY: u8 = 4;

/// The highest priority.
pub const PRIORITY_MAX: u8 = 9;

/// The longest correlation id, in bytes of UTF-8 (EMS-MSG-A05).
pub const CORRELATION_ID_BYTES_MAX: usize = 4096;

/// Field numbers of `sterna.v1.Message` (a test compares them with the generated types).
pub(super) mod tags {
    pub(in crate::message) const DELIVERY_MODE: u32 = 1;
    pub(in crate::message) const PRIORITY: u32 = 2;
    pub(in crate::message) const TIME_TO_LIVE_MS: u32 = 3;
    pub(in crate::message) const DELIVERY_DELAY_MS: u32 = 4;
    pub(in crate::message) const CORRELATION_ID: u32 = 5;
    pub(in crate::message) const REPLY_TO: u32 = 6;
    pub(in crate::message) const TYPE: u32 = 7;
    pub(in crate::message) const PROPERTIES: u32 = 8;
    pub(in crate::message) const BODY_FIRST: u32 = 9;
    pub(in crate::message) const BODY_LAST: u32 = 15;
    pub(in crate::message) const ENCODING: u32 = 16;
    pub(in crate::message) const COMPRESSION: u32 = 17;
}

/// An encoded message and where its parts are. Fields that the contract does not know are passed over and kept.
#[derive(Debug, Clone, Copy)]
pub struct MessageView<'a> {
    bytes: &'a [u8],
    delivery_mode: DeliveryMode,
    priority: u8,
    time_to_live_ms: u64,
    delivery_delay_ms: u64,
    correlation_id: Option<&'a str>,
    message_type: &'a str,
    reply_to: Option<&'a [u8]>,
    // From the first property's tag on; empty without properties.
    properties: &'a [u8],
    property_count: usize,
    body: Body<'a>,
    compressed: bool,
}

impl<'a> MessageView<'a> {
    /// Finds the parts of `bytes` and checks the header fields. Properties and body are found, but not looked into.
    ///
    /// # Errors
    /// A [`MessageError`] that names the field; the message is to be refused with INVALID_MESSAGE.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let mut view = Self {
            bytes,
            delivery_mode: DeliveryMode::Persistent,
            priority: DEFAULT_PRIORITY,
            time_to_live_ms: 0,
            delivery_delay_ms: 0,
            correlation_id: None,
            message_type: "",
            reply_to: None,
            properties: &[],
            property_count: 0,
            body: Body {
                kind: BodyKind::None,
                bytes: &[],
            },
            compressed: false,
        };
        let mut reader = Reader::new(bytes);
        while let Some(field) = reader.next_field()? {
            match field.number {
                tags::PROPERTIES => {
                    field.bytes()?;
                    if view.property_count == 0 {
                        view.properties = bytes.get(field.offset..).unwrap_or_default();
                    }
                    view.property_count += 1;
                }
                tags::DELIVERY_MODE => view.delivery_mode = delivery_mode(field.varint()?)?,
                tags::PRIORITY => view.priority = priority(field.varint()?)?,
                tags::TIME_TO_LIVE_MS => view.time_to_live_ms = field.varint()?,
                tags::DELIVERY_DELAY_MS => view.delivery_delay_ms = field.varint()?,
                tags::CORRELATION_ID => {
                    view.correlation_id = Some(correlation_id(text_of(&field, "correlation_id")?)?);
                }
                tags::REPLY_TO if view.reply_to.is_some() => return Err(MessageError::SeveralReplyTo),
                tags::REPLY_TO => view.reply_to = Some(field.bytes()?),
                tags::TYPE => view.message_type = text_of(&field, "type")?,
                tags::ENCODING => drop(text_of(&field, "encoding")?),
                tags::COMPRESSION => view.compressed = !text_of(&field, "compression")?.is_empty(),
                tags::BODY_FIRST..=tags::BODY_LAST => {
                    if view.body.kind != BodyKind::None {
                        return Err(MessageError::SeveralBodies);
                    }
                    view.body = Body {
                        kind: BodyKind::of(field.number),
                        bytes: field.bytes()?,
                    };
                }
                _ => {}
            }
        }
        Ok(view)
    }

    /// The message as the producer encoded it.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// How hard the broker is to hold on to it.
    #[must_use]
    pub fn delivery_mode(&self) -> DeliveryMode {
        self.delivery_mode
    }

    /// 0 to 9.
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// How long it may live from its arrival on; 0: for ever.
    #[must_use]
    pub fn time_to_live_ms(&self) -> u64 {
        self.time_to_live_ms
    }

    /// How long it is to be held back from its arrival on.
    #[must_use]
    pub fn delivery_delay_ms(&self) -> u64 {
        self.delivery_delay_ms
    }

    /// What links a reply to its request. An empty one is one, too (EMS-MSG-A02).
    #[must_use]
    pub fn correlation_id(&self) -> Option<&'a str> {
        self.correlation_id
    }

    /// The header field JMSType; empty when there is none.
    #[must_use]
    pub fn message_type(&self) -> &'a str {
        self.message_type
    }

    /// Where replies are wanted: an encoded `sterna.v1.Destination`.
    #[must_use]
    pub fn reply_to(&self) -> Option<&'a [u8]> {
        self.reply_to
    }

    /// What the message carries.
    #[must_use]
    pub fn body(&self) -> Body<'a> {
        self.body
    }

    /// Whether the body is what the producer's compression made of it.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compressed
    }

    /// How many properties there are.
    #[must_use]
    pub fn property_count(&self) -> usize {
        self.property_count
    }

    /// The properties in order.
    #[must_use]
    pub fn properties(&self) -> Properties<'a> {
        Properties::new(self.properties, self.property_count)
    }

    /// The value of the last property called `name`. A value that [`MessageView::check_properties`] would refuse counts
    /// as absent, so that selectors see NULL.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<PropertyValue<'a>> {
        let mut properties = self.properties();
        let mut found = None;
        while let Ok(Some(entry)) = properties.next_entry() {
            if entry.name == name.as_bytes() {
                found = Some(entry.value);
            }
        }
        match decode(found?) {
            Ok(Decoded::Scalar(value)) => Some(value),
            _ => None,
        }
    }

    /// Whether the last property called `name` is the boolean true. The string "true" is not.
    #[must_use]
    pub fn has_flag(&self, name: &str) -> bool {
        self.property(name) == Some(PropertyValue::Bool(true))
    }

    /// Checks that receivers can decode all of it. What [`MessageView::parse`] refuses they could not read either.
    ///
    /// # Errors
    /// A [`MessageError`] that names the field; the message is to be refused with INVALID_MESSAGE.
    pub fn check(&self) -> Result<(), MessageError> {
        self.check_reply_to()?;
        self.check_properties().map_err(|error| error.within("properties"))?;
        self.check_body().map_err(|error| error.within("body"))
    }

    fn check_reply_to(&self) -> Result<(), MessageError> {
        let mut reader = Reader::new(self.reply_to.unwrap_or_default());
        let mut read = || -> Result<(), WireError> {
            while let Some(field) = reader.next_field()? {
                match field.number {
                    1 => drop(field.varint()?),
                    2 => drop(field.str()?),
                    _ => {}
                }
            }
            Ok(())
        };
        read().map_err(|error| MessageError::from(error).within("reply_to"))
    }

    /// Checks every property: it has a name that is not reserved, and a scalar value in the range of its type.
    ///
    /// # Errors
    /// A [`MessageError`] that names the property.
    pub fn check_properties(&self) -> Result<(), MessageError> {
        for (index, property) in self.properties().enumerate() {
            let (name, _) = property?;
            if name.is_empty() {
                return Err(MessageError::NameMissing {
                    subject: "properties",
                    index,
                });
            }
            if name
                .strip_prefix("JMS")
                .is_some_and(|rest| !rest.starts_with(['X', '_']))
            {
                return Err(MessageError::ReservedName(excerpt(name)));
            }
        }
        Ok(())
    }

    /// Checks that receivers can decode the body: text is UTF-8, nested values have types and names, depth is bounded.
    ///
    /// # Errors
    /// A [`MessageError`] that says what is wrong.
    pub fn check_body(&self) -> Result<(), MessageError> {
        self.body.check()
    }
}

fn text_of<'a>(field: &Field<'a>, name: &'static str) -> Result<&'a str, MessageError> {
    field.str().map_err(|error| MessageError::from(error).within(name))
}

fn delivery_mode(value: u64) -> Result<DeliveryMode, MessageError> {
    match value {
        0 => Ok(DeliveryMode::Persistent),
        1 => Ok(DeliveryMode::NonPersistent),
        2 => Ok(DeliveryMode::Reliable),
        _ => Err(MessageError::DeliveryMode(value)),
    }
}

fn priority(value: u64) -> Result<u8, MessageError> {
    match u8::try_from(value) {
        Ok(priority) if priority <= PRIORITY_MAX => Ok(priority),
        _ => Err(MessageError::Priority(value)),
    }
}

fn correlation_id(text: &str) -> Result<&str, MessageError> {
    if text.len() > CORRELATION_ID_BYTES_MAX {
        return Err(MessageError::CorrelationIdTooLong {
            bytes: text.len(),
            limit: CORRELATION_ID_BYTES_MAX,
        });
    }
    Ok(text)
}

/// The text of a `string` body.
pub(super) fn text(bytes: &[u8]) -> Result<&str, WireError> {
    std::str::from_utf8(bytes).map_err(|_| WireError::NotUtf8 {
        offset: 0,
        number: tags::BODY_FIRST,
    })
}
