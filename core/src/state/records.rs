//! Every kind of record there is, and whether a head of it can be taken. What is appended has been read before: always in
//! debug builds, and otherwise where it is rare. A record that nobody can read makes its store one that nobody can open.

use super::catalogue_record::{DestinationHead, SubscriptionHead, TransactionHead, WatermarkHead, kinds};
use super::checkpoint_record;
use super::codec::HeadError;
use super::due::DueHead;
use super::exported::Exported;
use super::message_record::MessageHead;
use super::names::NameHead;
use super::note::Note;
use super::returning::ReturnHead;
use super::starts::StartHead;
use super::terminal_record::{MoveHead, TerminalHead};

/// Whether a head can be read, and says what `apply` takes.
///
/// # Errors
/// What is wrong with it.
pub fn check(kind: u8, head: &[u8]) -> Result<(), HeadError> {
    match kind {
        kinds::MESSAGE => MessageHead::default().decode(head),
        kinds::TERMINAL => TerminalHead::decode(head).map(|_| ()),
        kinds::MOVE => MoveHead::decode(head).map(|_| ()),
        kinds::DESTINATION => DestinationHead::decode(head).map(|_| ()),
        kinds::SUBSCRIPTION => SubscriptionHead::decode(head).map(|_| ()),
        kinds::WATERMARK => WatermarkHead::decode(head).map(|_| ()),
        kinds::TRANSACTION => TransactionHead::decode(head).map(|_| ()),
        kinds::START => StartHead::decode(head).map(|_| ()),
        kinds::PRODUCER_NAME => NameHead::decode(head).map(|_| ()),
        kinds::EXPORTED => Exported::decode(head).map(|_| ()),
        kinds::NOTE => Note::decode(head).map(|_| ()),
        kinds::RETURN => ReturnHead::decode(head).map(|_| ()),
        kinds::DUE => DueHead::decode(head).map(|_| ()),
        kinds::CHECKPOINT => checkpoint_record::check(head),
        _ => Err(HeadError::Kind(kind)),
    }
}

/// As [`check`] for what is about to be appended. What comes with every message or acknowledgement is checked in debug
/// builds only: there its writer's own checks have to do.
///
/// # Errors
/// What is wrong with it.
pub fn check_appended(kind: u8, head: &[u8]) -> Result<(), HeadError> {
    let is_frequent = matches!(
        kind,
        kinds::MESSAGE | kinds::TERMINAL | kinds::WATERMARK | kinds::RETURN
    );
    if is_frequent && !cfg!(debug_assertions) {
        return Ok(());
    }
    check(kind, head)
}
