//! What records say, for whoever reads the log to tell of it and not to apply it: audits.

use super::checkpoint_record::ChunkHead;
use super::codec::{Decoder, HeadError};
use super::due::DueHead;
use super::exported::Exported;
use super::names::NameHead;
use super::starts::StartHead;

pub use super::catalogue_record::{Decision, DestinationHead, SubscriptionHead, TransactionHead, WatermarkHead, kinds};
pub use super::checkpoint_record::Item;
pub use super::message_record::MessageHead;
pub use super::note::{Note, Told};
pub use super::returning::ReturnHead;
pub use super::terminal_record::{MoveHead, TerminalHead};

/// A record's head, decoded.
#[derive(Debug)]
pub enum Event {
    /// A message; its head is where the caller wanted it.
    Message,
    /// References end.
    Terminal(TerminalHead),
    /// A reference goes to another source.
    Move(MoveHead),
    /// A destination begins or ends.
    Destination(DestinationHead),
    /// A durable subscription begins or ends.
    Subscription(SubscriptionHead),
    /// What may have been delivered.
    Watermark(WatermarkHead),
    /// A transaction is prepared or decided.
    Transaction(TransactionHead),
    /// The store was opened under this start id.
    Start(u64),
    /// A part of what the tables say.
    Checkpoint,
    /// A producer was opened by its name.
    ProducerName,
    /// A cut was exported whole.
    Exported,
    /// Something for audits.
    Note(Note),
    /// What came back waits.
    Return,
    /// What was due has met the limits.
    Due,
}

impl Event {
    /// Reads a head; a message's goes into `message`, whose room is used again.
    ///
    /// # Errors
    /// What is wrong with it, or a kind that this program does not know.
    pub fn decode(kind: u8, head: &[u8], message: &mut MessageHead) -> Result<Self, HeadError> {
        Ok(match kind {
            kinds::MESSAGE => {
                message.decode(head)?;
                Self::Message
            }
            kinds::TERMINAL => Self::Terminal(TerminalHead::decode(head)?),
            kinds::MOVE => Self::Move(MoveHead::decode(head)?),
            kinds::DESTINATION => Self::Destination(DestinationHead::decode(head)?),
            kinds::SUBSCRIPTION => Self::Subscription(SubscriptionHead::decode(head)?),
            kinds::WATERMARK => Self::Watermark(WatermarkHead::decode(head)?),
            kinds::TRANSACTION => Self::Transaction(TransactionHead::decode(head)?),
            kinds::START => Self::Start(StartHead::decode(head)?.id),
            kinds::CHECKPOINT => Self::Checkpoint,
            kinds::PRODUCER_NAME => {
                NameHead::decode(head)?;
                Self::ProducerName
            }
            kinds::NOTE => Self::Note(Note::decode(head)?),
            kinds::RETURN => {
                ReturnHead::decode(head)?;
                Self::Return
            }
            kinds::DUE => {
                DueHead::decode(head)?;
                Self::Due
            }
            kinds::EXPORTED => {
                Exported::decode(head)?;
                Self::Exported
            }
            _ => return Err(HeadError::Kind(kind)),
        })
    }
}

/// What one chunk of a checkpoint says.
///
/// # Errors
/// What is wrong with it.
pub fn items(head: &[u8]) -> Result<Vec<Item>, HeadError> {
    let mut decoder = Decoder::new(head);
    ChunkHead::decode(&mut decoder)?;
    let mut items = Vec::new();
    while !decoder.is_at_end() {
        items.push(Item::decode(&mut decoder)?);
    }
    Ok(items)
}
