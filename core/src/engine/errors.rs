//! The one registry of the errors that clients see: for each code what to do about it and whether trying again may help.
//!
//! Every refusal in the engine is made by [`refuse`], so that no code travels without a remedy and the same code says the
//! same thing everywhere. The layers below have errors of their own; they are mapped here and nowhere else.

use crate::log::AppendError;
use crate::proto::{Error, ErrorCode};
use crate::state::{PublishError, StateError};

/// Why a request, a session or a connection was refused, as the client will read it. Boxed, because a `Result` of the
/// hot path should not be as large as its rarest case.
pub type Refused = Box<Error>;

/// What the registry says about one code.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The code.
    pub code: ErrorCode,
    /// What the reader should do, in a sentence, where the place that refuses has nothing better to say.
    pub remedy: &'static str,
    /// Whether the same request may succeed later without a change.
    pub retryable: bool,
}

const fn entry(code: ErrorCode, retryable: bool, remedy: &'static str) -> Entry {
    Entry {
        code,
        remedy,
        retryable,
    }
}

/// All codes of the contract, in the order of their numbers.
pub const REGISTRY: &[Entry] = &[
    entry(ErrorCode::Unspecified, false, "Report this as a defect of the broker."),
    entry(
        ErrorCode::MalformedFrame,
        false,
        "Encode frames as proto/sterna/v1/messaging.proto describes them.",
    ),
    entry(
        ErrorCode::UnsupportedVersion,
        false,
        "Use a client that speaks a version named in the message.",
    ),
    entry(
        ErrorCode::ProtocolViolation,
        false,
        "Send frames in the order that the contract describes.",
    ),
    entry(
        ErrorCode::InvalidName,
        false,
        "Choose a name within the rules for names.",
    ),
    entry(
        ErrorCode::InvalidSelector,
        false,
        "Mend the selector at the character that is named.",
    ),
    entry(
        ErrorCode::InvalidMessage,
        false,
        "Mend the field that is named and send the message again.",
    ),
    entry(
        ErrorCode::InvalidArgument,
        false,
        "Mend the field that is named and send the request again.",
    ),
    entry(
        ErrorCode::LimitExceeded,
        false,
        "Stay below the limit that is named; Welcome tells its value.",
    ),
    entry(
        ErrorCode::NotAllowed,
        false,
        "Do this on a destination or in a session that permits it.",
    ),
    entry(ErrorCode::Unauthenticated, false, "Connect with valid credentials."),
    entry(
        ErrorCode::PermissionDenied,
        false,
        "Ask an administrator for the permission that is named.",
    ),
    entry(
        ErrorCode::NoSuchDestination,
        false,
        "Ask an administrator to create it, or a wildcard entry that covers its name.",
    ),
    entry(
        ErrorCode::NoSuchSubscription,
        false,
        "Check the name and the client id of the subscription.",
    ),
    entry(
        ErrorCode::NoSuchTransaction,
        false,
        "Check the transaction's number or xid; it may have ended before.",
    ),
    entry(
        ErrorCode::AlreadyExists,
        false,
        "Choose a number or name that is not in use.",
    ),
    entry(
        ErrorCode::InUse,
        true,
        "Close what uses it first; what only holds messages goes when asked for with its messages (--with-messages).",
    ),
    entry(
        ErrorCode::ClientIdInUse,
        true,
        "Close the connection that holds the client id, or choose another.",
    ),
    entry(ErrorCode::Moved, true, "Connect to one of the addresses."),
    entry(
        ErrorCode::UnknownProducer,
        false,
        "Open a new producer; decide whether to send the unconfirmed messages again.",
    ),
    entry(ErrorCode::Closed, false, "Open a new one."),
    entry(
        ErrorCode::Conflict,
        false,
        "Use the definition that exists, or end it first.",
    ),
    entry(ErrorCode::Owned, false, "Change it where its owner keeps it."),
    entry(
        ErrorCode::SpansHomes,
        false,
        "Give what works together one home, or use each broker's part by itself.",
    ),
    entry(
        ErrorCode::DestinationFull,
        true,
        "Consume messages or raise the destination's limits, then send again.",
    ),
    entry(
        ErrorCode::StoreFull,
        true,
        "Consume messages or free disk space, then send again.",
    ),
    entry(
        ErrorCode::StoreFailed,
        false,
        "Mend the disk and start the broker again.",
    ),
    entry(
        ErrorCode::MessageDamaged,
        false,
        "Restore the message from elsewhere; the broker cannot read it.",
    ),
    entry(ErrorCode::TransactionRolledBack, true, "Run the transaction again."),
    entry(ErrorCode::ShuttingDown, true, "Connect again later or elsewhere."),
    entry(ErrorCode::Unavailable, true, "Try again later."),
    entry(
        ErrorCode::SlowConsumer,
        true,
        "Read what was asked for, or grant less credit; then connect again.",
    ),
    entry(
        ErrorCode::Idle,
        true,
        "Send heartbeats within the agreed time; then connect again.",
    ),
    entry(
        ErrorCode::NoResponders,
        true,
        "Start what answers, then ask again; or let the request wait (needs_responder=False).",
    ),
    entry(ErrorCode::Internal, false, "Report this as a defect of the broker."),
];

/// The registry's entry for a code.
#[must_use]
pub fn registered(code: ErrorCode) -> Entry {
    REGISTRY
        .iter()
        .copied()
        .find(|entry| entry.code == code)
        .unwrap_or(REGISTRY[0])
}

/// Makes a refusal: `subject` is the field, name or limit it is about, `message` says in a sentence what is wrong.
#[must_use]
pub fn refuse(code: ErrorCode, subject: impl Into<String>, message: impl Into<String>) -> Refused {
    let entry = registered(code);
    Box::new(Error {
        code: code.into(),
        subject: subject.into(),
        message: message.into(),
        remedy: entry.remedy.to_owned(),
        retryable: entry.retryable,
        addresses: Vec::new(),
        offset: 0,
    })
}

/// A refusal because of a limit, named as the field of `Limits` that holds its value.
#[must_use]
pub fn over_limit(limit: &str, value: u64, what: &str) -> Refused {
    refuse(
        ErrorCode::LimitExceeded,
        limit,
        format!("{what}; the limit {limit} is {value}."),
    )
}

/// What a failed operation of the state is to a client.
#[must_use]
pub fn of_state(error: &StateError) -> Refused {
    let text = format!("{error}.");
    match error {
        StateError::Append(error) => of_append(error),
        StateError::Log(_) | StateError::Disk(_) => refuse(ErrorCode::StoreFailed, "store", text),
        StateError::NoSuchDestination { name, .. } => refuse(ErrorCode::NoSuchDestination, name.clone(), text),
        StateError::NoSuchSource => refuse(ErrorCode::NoSuchSubscription, "source", text),
        StateError::NoSuchTransaction => refuse(ErrorCode::NoSuchTransaction, "transaction", text),
        StateError::TransactionExists => refuse(ErrorCode::AlreadyExists, "xid", text),
        StateError::RolledBack(_) => refuse(ErrorCode::TransactionRolledBack, "transaction", text),
        StateError::InUse { name, .. } => refuse(ErrorCode::InUse, name.clone(), text),
        StateError::Following => refuse(ErrorCode::Unavailable, "store", text),
        StateError::System(name) => refuse(ErrorCode::NotAllowed, name.clone(), text),
        StateError::Bridged { name, .. } => refuse(ErrorCode::InUse, name.clone(), text),
        StateError::Exhausted(what) => refuse(ErrorCode::Unavailable, *what, text),
        StateError::Configuration(_) => refuse(ErrorCode::InvalidArgument, "configuration", text),
    }
}

/// What a message that the state did not take is to its producer.
#[must_use]
pub fn of_publish(error: &PublishError) -> Refused {
    let text = format!("{error}.");
    match error {
        PublishError::NoSuchDestination { name, .. } => refuse(ErrorCode::NoSuchDestination, name.clone(), text),
        PublishError::DestinationFull { name, .. } => refuse(ErrorCode::DestinationFull, name.clone(), text),
        PublishError::StoreFull(name) => refuse(ErrorCode::StoreFull, name.clone(), text),
        PublishError::VolatileFull => refuse(ErrorCode::StoreFull, "memory", text),
        PublishError::Append(error) => of_append(error),
        PublishError::UnknownProducer => refuse(ErrorCode::UnknownProducer, "incarnation", text),
        PublishError::TooManyCopies(..) => refuse(ErrorCode::LimitExceeded, "bridges", text),
        PublishError::NoResponders { name, .. } => refuse(ErrorCode::NoResponders, name.clone(), text),
    }
}

fn of_append(error: &AppendError) -> Refused {
    let text = format!("{error}.");
    match error {
        AppendError::NoSpace => refuse(ErrorCode::StoreFull, "disk", text),
        AppendError::TooLarge { .. } => refuse(ErrorCode::LimitExceeded, "message_bytes", text),
        AppendError::Failed(_) => refuse(ErrorCode::StoreFailed, "store", text),
        AppendError::Kind(_) | AppendError::Unreadable(_) | AppendError::ReadOnly => {
            refuse(ErrorCode::Internal, "store", text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_contract_is_registered_once_with_a_remedy() {
        for number in 0..=63 {
            if let Ok(code) = ErrorCode::try_from(number) {
                let entries: Vec<_> = REGISTRY.iter().filter(|entry| entry.code == code).collect();
                assert_eq!(entries.len(), 1, "{code:?}");
                assert!(entries[0].remedy.ends_with('.'), "{code:?}");
            }
        }
    }

    #[test]
    fn a_refusal_by_a_limit_names_it_and_its_value() {
        let refused = over_limit("sessions", 256, "A connection may not open more sessions");
        assert_eq!(refused.code(), ErrorCode::LimitExceeded);
        assert_eq!(refused.subject, "sessions");
        assert!(refused.message.contains("256"));
    }
}
