//! Bodies that are too large for one frame: kept chunk by chunk until a message publishes them.
//!
//! A chunk goes to the end of what there is, or repeats what is there already (a client that lost its connection sends
//! again from what Lookup told). Uploads belong to their producer and go with it. What they hold is bounded per
//! connection, and each by the size of a message; where a chunk goes beyond, the whole is gone, and the message that names
//! it is refused with that limit.

use super::arriving::Over;
use super::engine::Engine;
use super::errors::{Refused, over_limit, refuse};
use super::intake::{Handled, Outcome};
use super::output::is_uploaded;
use crate::message::MessageView;
use crate::proto::{self, ErrorCode};
use crate::wire::Reader;

/// The field of a message that names its upload.
const UPLOADED: u32 = 14;

impl Engine {
    pub(super) fn upload(&mut self, key: u64, chunk: proto::Upload) -> Handled {
        let limits = &self.settings.limits;
        let (message_bytes, upload_bytes) = (limits.message_bytes, limits.upload_bytes);
        let closed = || {
            refuse(
                ErrorCode::Closed,
                format!("producer {}", chunk.producer),
                "The session has no such producer.",
            )
        };
        let connection_key = self.connection_of(key).ok_or_else(closed)?;
        let connection = self.connections.get_mut(&connection_key).ok_or_else(closed)?;
        let producer_key = *connection.producers.get(&chunk.producer).ok_or_else(closed)?;
        let producer = self
            .producers
            .get_mut(&producer_key)
            .filter(|producer| producer.session == key)
            .ok_or_else(closed)?;
        let uploads = &mut producer.uploads;
        if chunk.offset == 0 {
            // It begins, perhaps anew; what may still come of a refused one does not count.
            uploads.forget_refused(chunk.upload_id, &mut connection.uploads_refused);
        } else if let Some(over) = uploads.refused(chunk.upload_id) {
            return Ok(Outcome::RefusedBefore(over.refusal()));
        }
        let have = uploads
            .bodies
            .get(&chunk.upload_id)
            .map_or(0, |body| body.len() as u64);
        if chunk.offset > have {
            let message = format!(
                "The chunk begins at {}, where the broker has {have} bytes.",
                chunk.offset
            );
            return Err(refuse(ErrorCode::InvalidArgument, "offset", message));
        }
        let end = chunk.offset.saturating_add(chunk.data.len() as u64);
        let more = end.saturating_sub(have);
        let over = if end > message_bytes {
            Some(Over::Message(message_bytes))
        } else if connection.upload_bytes + more > upload_bytes {
            Some(Over::Connection(upload_bytes))
        } else {
            None
        };
        if let Some(over) = over {
            // Its message may be on the way: it finds no body, rather than the beginning of one, and is told why.
            uploads.refuse(chunk.upload_id, over, &mut connection.uploads_refused);
            self.remove_upload(producer_key, connection_key, chunk.upload_id);
            return Err(over.refusal());
        }
        connection.upload_bytes += more;
        let body = uploads.bodies.entry(chunk.upload_id).or_default();
        // What overlaps was sent before and is the same.
        let new = usize::try_from(have - chunk.offset)
            .unwrap_or(usize::MAX)
            .min(chunk.data.len());
        body.extend_from_slice(&chunk.data[new..]);
        Ok(Outcome::Done)
    }

    /// The body that a message publishes; empty for messages that carry theirs. Refuses what is larger than a message may be.
    pub(super) fn take_upload(
        &mut self,
        producer: u64,
        connection: u64,
        view: &MessageView<'_>,
    ) -> Result<Vec<u8>, Refused> {
        let limit = self.settings.limits.message_bytes;
        if !is_uploaded(view) {
            // A frame may be larger than a message may be.
            if view.bytes().len() as u64 > limit {
                return Err(over_limit("message_bytes", limit, "The message is too large"));
            }
            return Ok(Vec::new());
        }
        let malformed = |error| {
            refuse(
                ErrorCode::InvalidMessage,
                "uploaded",
                format!("The bytes cannot be read: {error}."),
            )
        };
        let named: proto::UploadedBody = prost::Message::decode(view.body().bytes).map_err(malformed)?;
        let Some(body) = self.remove_upload(producer, connection, named.upload_id) else {
            return Err(self.without_upload(producer, connection, named.upload_id));
        };
        if (body.len() + view.bytes().len()) as u64 > limit {
            return Err(over_limit(
                "message_bytes",
                limit,
                "The message with its upload is too large",
            ));
        }
        if !view.is_compressed()
            && named.r#as() == proto::uploaded_body::As::Text
            && std::str::from_utf8(&body).is_err()
        {
            let message = "The uploaded text is no UTF-8.";
            return Err(refuse(ErrorCode::InvalidMessage, "uploaded", message));
        }
        Ok(body)
    }

    /// Gives the space of an upload back whose message is refused, however little of the message can be read.
    pub(super) fn drop_upload(&mut self, producer: u64, connection: u64, message: &[u8]) {
        if self
            .producers
            .get(&producer)
            .is_none_or(|producer| producer.uploads.is_empty())
        {
            return;
        }
        let mut reader = Reader::new(message);
        while let Ok(Some(field)) = reader.next_field() {
            if field.number == UPLOADED
                && let Ok(encoded) = field.bytes()
                && let Ok(named) = <proto::UploadedBody as prost::Message>::decode(encoded)
            {
                if self.remove_upload(producer, connection, named.upload_id).is_none() {
                    drop(self.without_upload(producer, connection, named.upload_id));
                }
            }
        }
    }

    /// What a message is refused with whose upload is not there; that it was refused is remembered no more.
    fn without_upload(&mut self, producer: u64, connection: u64, upload_id: u64) -> Refused {
        let counted = self.connections.get_mut(&connection).map(|one| &mut one.uploads_refused);
        let uploads = self.producers.get_mut(&producer).map(|one| &mut one.uploads);
        if let (Some(counted), Some(uploads)) = (counted, uploads)
            && let Some(over) = uploads.forget_refused(upload_id, counted)
        {
            return over.refusal();
        }
        let message = format!("There is no upload {upload_id} of this producer.");
        refuse(ErrorCode::InvalidMessage, "uploaded", message)
    }

    fn remove_upload(&mut self, producer: u64, connection: u64, upload_id: u64) -> Option<Vec<u8>> {
        let body = self.producers.get_mut(&producer)?.uploads.bodies.remove(&upload_id)?;
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.upload_bytes = connection.upload_bytes.saturating_sub(body.len() as u64);
        }
        Some(body)
    }
}
