//! The wire between a client and the broker: batches on their way in both directions, until it is cut.

use crate::proto::{self, ServerBatch, client_frame};
use crate::sim::history::DeliveryId;
use std::collections::VecDeque;

/// A batch on its way to the client, with the deliveries in it in order; `None`: bytes that are no known message.
pub struct Down {
    /// What was put out.
    pub batch: ServerBatch,
    /// Its deliveries.
    pub deliveries: VecDeque<Option<DeliveryId>>,
}

/// One stream.
pub struct Link {
    /// Its number for the engine.
    pub stream: u64,
    /// Encoded batches on their way to the broker.
    pub up: VecDeque<Vec<u8>>,
    /// Batches on their way to the client.
    pub down: VecDeque<Down>,
    /// The client does not read for a while.
    pub slow: bool,
    /// The broker has given it up, of which the client has not heard.
    pub given_up: bool,
}

impl Link {
    /// A stream with nothing on its way.
    #[must_use]
    pub fn new(stream: u64) -> Self {
        Self {
            stream,
            up: VecDeque::new(),
            down: VecDeque::new(),
            slow: false,
            given_up: false,
        }
    }
}

/// A batch in words, without message bytes.
pub fn words(batch: &proto::ClientBatch) -> String {
    let frames = batch.frames.iter().map(|frame| match &frame.frame {
        Some(client_frame::Frame::Publish(publish)) => {
            let (first, count) = (publish.first_sequence, publish.messages.len());
            format!(
                "publish {count} from {first} by {} in {}",
                publish.producer, publish.transaction
            )
        }
        other => format!("{other:?}"),
    });
    frames.collect::<Vec<_>>().join("; ")
}
