//! What an identifier in a selector means: a header field or a property.

/// The header fields a selector may look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HeaderField {
    /// `JMSDeliveryMode`: the string `PERSISTENT`, `NON_PERSISTENT` or `RELIABLE`.
    DeliveryMode,
    /// `JMSPriority`.
    Priority,
    /// `JMSMessageID`.
    MessageId,
    /// `JMSTimestamp`, in milliseconds since 1970.
    Timestamp,
    /// `JMSCorrelationID`.
    CorrelationId,
    /// `JMSType`.
    Type,
    /// `JMSDestination`, as `Queue[name]` or `Topic[name]`, in [`Scope::Undelivered`] only.
    Destination,
}

/// Where a selector stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// Anywhere.
    #[default]
    Ordinary,
    /// On `$sys.undelivered`, where the original destination may be asked for.
    Undelivered,
}

/// What an identifier stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FieldName {
    Header(HeaderField),
    Property(Box<str>),
}

/// Header fields that JMS keeps out of selectors.
const FORBIDDEN: [&str; 4] = ["JMSExpiration", "JMSReplyTo", "JMSRedelivered", "JMSDeliveryTime"];

/// Sorts an identifier; the error is the message for it.
pub(super) fn classify(name: &str, scope: Scope) -> Result<FieldName, String> {
    let header = match name {
        "JMSDeliveryMode" => HeaderField::DeliveryMode,
        "JMSPriority" => HeaderField::Priority,
        "JMSMessageID" => HeaderField::MessageId,
        "JMSTimestamp" => HeaderField::Timestamp,
        "JMSCorrelationID" => HeaderField::CorrelationId,
        "JMSType" => HeaderField::Type,
        "JMSDestination" if scope == Scope::Undelivered => HeaderField::Destination,
        "JMSDestination" => {
            return Err("JMSDestination may only be used in selectors on $sys.undelivered".to_owned());
        }
        _ if FORBIDDEN.contains(&name) => return Err(format!("{name} may not be used in selectors")),
        // JMSX… and JMS_… are properties; everything else under JMS is reserved, so this is a misspelling.
        _ if name
            .strip_prefix("JMS")
            .is_some_and(|rest| !rest.starts_with(['X', '_'])) =>
        {
            return Err(format!(
                "there is no header field {}: JMSDeliveryMode, JMSPriority, JMSMessageID, JMSTimestamp, \
                 JMSCorrelationID and JMSType may be used",
                name.chars().take(64).collect::<String>()
            ));
        }
        _ => return Ok(FieldName::Property(name.into())),
    };
    Ok(FieldName::Header(header))
}
