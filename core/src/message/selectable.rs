//! A message as selectors see it: what the producer wrote, and what the broker knows.

use crate::proto::DeliveryMode;
use crate::selector::{Fields, HeaderField, Value};

use super::property::PropertyValue;
use super::view::MessageView;

/// The property in which the broker tells how often a message was delivered.
const DELIVERY_COUNT: &str = "JMSXDeliveryCount";

/// The properties in which the broker tells who sent a message, where its destination asks for that: ours, and EMS's.
const SENDER: [&str; 2] = ["JMS_STERNA_SENDER", "JMS_TIBCO_SENDER"];

/// A view and the broker's own header fields. Texts that cost something to make up may be left empty when
/// [`crate::selector::Selector::uses`] says that nobody asks for them.
#[derive(Debug, Clone, Copy)]
pub struct Selectable<'a> {
    /// What the producer wrote.
    pub view: &'a MessageView<'a>,
    /// When it arrived, in milliseconds since 1970; 0: not known.
    pub timestamp_ms: u64,
    /// JMSMessageID; empty: none.
    pub message_id: &'a str,
    /// The destination as `Queue[name]` or `Topic[name]`; empty: none.
    pub destination: &'a str,
    /// The user who sent it; empty: the destination does not ask for that, the property is absent.
    pub sender: &'a str,
    /// How often it was delivered, this time included; 0: none, the property is absent.
    pub delivery_count: u32,
}

impl<'a> Selectable<'a> {
    /// A message of which the broker knows nothing but when it arrived.
    #[must_use]
    pub fn new(view: &'a MessageView<'a>, timestamp_ms: u64) -> Self {
        Self {
            view,
            timestamp_ms,
            message_id: "",
            destination: "",
            sender: "",
            delivery_count: 0,
        }
    }
}

/// The name of a delivery mode, as selectors compare it.
fn delivery_mode_name(mode: DeliveryMode) -> &'static str {
    match mode {
        DeliveryMode::Persistent => "PERSISTENT",
        DeliveryMode::NonPersistent => "NON_PERSISTENT",
        DeliveryMode::Reliable => "RELIABLE",
    }
}

fn present(text: &str) -> Option<Value<'_>> {
    (!text.is_empty()).then_some(Value::Text(text))
}

fn selectable(value: PropertyValue<'_>) -> Value<'_> {
    match value {
        PropertyValue::Null => Value::Null,
        PropertyValue::Bool(value) => Value::Bool(value),
        PropertyValue::Byte(value) => Value::Int(value.into()),
        PropertyValue::Short(value) => Value::Int(value.into()),
        PropertyValue::Int(value) => Value::Int(value),
        PropertyValue::Long(value) => Value::Long(value),
        PropertyValue::Float(value) => Value::Float(value),
        PropertyValue::Double(value) => Value::Double(value),
        // Half of a surrogate pair is no character by itself.
        PropertyValue::Char(unit) => Value::Char(char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER)),
        PropertyValue::String(text) => Value::Text(text),
    }
}

impl Fields for Selectable<'_> {
    fn header(&self, field: HeaderField) -> Option<Value<'_>> {
        match field {
            HeaderField::DeliveryMode => Some(Value::Text(delivery_mode_name(self.view.delivery_mode()))),
            HeaderField::Priority => Some(Value::Int(self.view.priority().into())),
            HeaderField::MessageId => present(self.message_id),
            // Milliseconds since 1970 fit a long for 292 million years.
            HeaderField::Timestamp if self.timestamp_ms > 0 => Some(Value::Long(self.timestamp_ms as i64)),
            HeaderField::Timestamp => None,
            HeaderField::CorrelationId => self.view.correlation_id().map(Value::Text),
            HeaderField::Type => present(self.view.message_type()),
            HeaderField::Destination => present(self.destination),
        }
    }

    fn property(&self, name: &str) -> Option<Value<'_>> {
        // Set by the broker, so that nothing in a message can forge it.
        if name == DELIVERY_COUNT {
            return (self.delivery_count > 0).then(|| Value::Int(self.delivery_count.try_into().unwrap_or(i32::MAX)));
        }
        if SENDER.contains(&name) {
            return present(self.sender);
        }
        self.view.property(name).map(selectable)
    }
}
