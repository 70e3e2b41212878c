//! What can go wrong in the state layer. The engine maps each case to an error code of the contract.

use crate::log::disk::DiskError;
use crate::log::{AppendError, LogError};

use super::ids::Kind;

/// A failed operation.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The log could not be opened or used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record could not be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The folder could not be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// No destination of this name.
    #[error("there is no {kind} {name}")]
    NoSuchDestination {
        /// Queue or topic.
        kind: Kind,
        /// The name.
        name: String,
    },
    /// No source of this number.
    #[error("there is no such queue or subscription")]
    NoSuchSource,
    /// The transaction was never begun, or is decided.
    #[error("there is no such transaction")]
    NoSuchTransaction,
    /// A prepared transaction of this name exists.
    #[error("a prepared transaction of this name exists")]
    TransactionExists,
    /// The transaction can only be rolled back.
    #[error("the transaction was rolled back: {0}")]
    RolledBack(String),
    /// It still holds messages.
    #[error("{name} still holds {messages} messages")]
    InUse {
        /// What.
        name: String,
        /// How many.
        messages: u64,
    },
    /// The system's own.
    #[error("{0} belongs to the broker and cannot be changed")]
    System(String),
    /// A bridge has it as its source (EMS-DEST-A53).
    #[error("{name} is the source of bridge {bridge}")]
    Bridged {
        /// The destination.
        name: String,
        /// The bridge.
        bridge: String,
    },
    /// Numbers that must never be given twice are used up; a start begins new ones.
    #[error("all {0} that this start of the broker has are given out")]
    Exhausted(&'static str),
    /// The configuration asks for what cannot be.
    #[error("{0}")]
    Configuration(String),
    /// Its leader decides what is logged.
    #[error("this broker follows another one")]
    Following,
}

/// A refused message.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Where it was sent, or where a bridge would copy it, does not exist.
    #[error("there is no {kind} {name}")]
    NoSuchDestination {
        /// Queue or topic.
        kind: Kind,
        /// The name.
        name: String,
    },
    /// A limit of the destination, or of one of its subscriptions, is reached.
    #[error("{name} is full: {limit}")]
    DestinationFull {
        /// The destination.
        name: String,
        /// `maxMessages` or `maxBytes`.
        limit: &'static str,
    },
    /// The store's quota is reached.
    #[error("store {0} is full")]
    StoreFull(String),
    /// Memory and spill file are full.
    #[error("there is no room for more messages that are not on disk")]
    VolatileFull,
    /// The log has no room now, or has failed.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Too many numbers of this producer were refused to tell whether this one arrived.
    #[error("whether this message arrived before cannot be told any more")]
    UnknownProducer,
    /// It wants an answer, and nobody consumes where it would come to.
    #[error("nobody consumes from {kind} {name} who could answer")]
    NoResponders {
        /// Queue or topic.
        kind: Kind,
        /// The name.
        name: String,
    },
    /// More bridges than a message can have copies.
    #[error("more than {0} bridges copy from {1}")]
    TooManyCopies(usize, String),
}
