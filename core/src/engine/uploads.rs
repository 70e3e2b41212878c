//! Bodies that are too large for one frame: kept chunk by chunk until a message publishes them.
//!
//! A chunk begins the body (offset 0), goes to the end of what there is, or repeats what is there already. Uploads belong to
//! their producer and go with it. What they hold is bounded per connection, and each by the size of a message; where a chunk
//! goes beyond, the whole is gone, and the message that names it is refused with that limit.
//!
//! When a stream breaks, what came of bodies whose size was told is kept for a while ([`super::kept_uploads`]). The producer
//! that comes back by its incarnation and token asks for it, and goes on from there. It may come before the broker has
//! noticed that its stream is gone: then the producer that it was is expelled, so that nothing of the old stream passes what
//! comes again.

use super::arriving::{Body, Over};
use super::engine::Engine;
use super::errors::{Refused, over_limit, refuse};
use super::intake::{Handled, Outcome};
use super::kept_uploads::KEPT_BYTES_MIN;
use super::output::is_uploaded;
use crate::message::MessageView;
use crate::proto::{self, AcknowledgeMode, ErrorCode};
use crate::wire::Reader;

/// The field of a message that names its upload.
const UPLOADED: u32 = 14;

impl Engine {
    pub(super) fn upload(&mut self, key: u64, chunk: proto::Upload) -> Handled {
        let (message_bytes, upload_bytes) = (self.settings.limits.message_bytes, self.settings.limits.upload_bytes);
        self.figures.uploaded_bytes += chunk.data.len() as u64;
        let closed = || super::publishing::no_such_producer(chunk.producer);
        let connection_key = self.connection_of(key).ok_or_else(closed)?;
        let producer_key = self.producer_key(key, chunk.producer).ok_or_else(closed)?;
        if chunk.offset == 0 {
            // It begins, perhaps anew; what may still come of a refused one does not count.
            self.forget_upload(producer_key, connection_key, chunk.upload_id);
        }
        let connection = self.connections.get_mut(&connection_key).ok_or_else(closed)?;
        let producer = self.producers.get_mut(&producer_key).ok_or_else(closed)?;
        let uploads = &mut producer.uploads;
        if let Some(over) = uploads.refused(chunk.upload_id) {
            return Ok(Outcome::RefusedBefore(over.refusal()));
        }
        let more = match follows_on(uploads.bodies.get(&chunk.upload_id), &chunk) {
            Ok(more) => more,
            Err(refused) => {
                self.remove_upload(producer_key, connection_key, chunk.upload_id);
                return Err(refused);
            }
        };
        let end = chunk.offset.saturating_add(chunk.data.len() as u64);
        let over = if end.max(chunk.body_bytes) > message_bytes {
            Some(Over::Message(message_bytes))
        } else if (connection.upload_bytes + more).max(chunk.body_bytes) > upload_bytes
            || uploads.is_full_for(chunk.upload_id)
        {
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
        // What is kept gives way to what is sent.
        let left = upload_bytes - connection.upload_bytes;
        self.kept_uploads.make_room(&connection.identity.user, left);
        if chunk.body_bytes != 0 {
            self.uploading.insert(producer.incarnation, producer_key);
        }
        let body = uploads
            .bodies
            .entry(chunk.upload_id)
            .or_insert_with(|| Body::new(chunk.body_bytes));
        let new = chunk.data.len() - usize::try_from(more).unwrap_or_default();
        body.add(&chunk.data[new..]);
        Ok(Outcome::Done)
    }

    /// Keeps what came of bodies in a session whose stream broke.
    pub(super) fn keep_uploads(&mut self, key: u64) {
        let producers = self.sessions.get(&key).map(|session| session.producers.clone());
        for producer in producers.unwrap_or_default() {
            self.keep_uploads_of(producer);
        }
    }

    /// Keeps what came of a producer's bodies, as far as its client may come back for them. What is sent in transactions is
    /// lost with them.
    pub(super) fn keep_uploads_of(&mut self, key: u64) {
        let Some(producer) = self.producers.get_mut(&key).filter(|one| one.expelled.is_none()) else {
            return;
        };
        let session = self.sessions.get(&producer.session);
        let Some(session) = session.filter(|session| session.mode != AcknowledgeMode::Transacted) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&session.connection) else {
            return;
        };
        let most = self.settings.limits.upload_bytes;
        let until_ms = self.now.monotonic_ms + self.settings.upload_kept_ms;
        for (upload_id, body) in producer.uploads.take_resumable(KEPT_BYTES_MIN) {
            connection.upload_bytes = connection.upload_bytes.saturating_sub(body.bytes.len() as u64);
            let place = (producer.incarnation, upload_id);
            self.kept_uploads
                .keep(&connection.identity.user, place, body, until_ms, most);
        }
    }

    /// Gives a producer that came back what is kept of the uploads that its client asks for; the rest goes.
    pub(super) fn claim_uploads(&mut self, producer_key: u64, open: &proto::OpenProducer) -> Vec<proto::PartialUpload> {
        let mut claimed = Vec::new();
        let Some(producer) = self.producers.get(&producer_key).filter(|_| open.incarnation != 0) else {
            return claimed;
        };
        let (incarnation, session) = (producer.incarnation, producer.session);
        let Some(connection_key) = self.connection_of(session) else {
            return claimed;
        };
        let Some(connection) = self.connections.get(&connection_key) else {
            return claimed;
        };
        let user = connection.identity.user.clone();
        if !open.uploads.is_empty() {
            self.expel_before(producer_key, incarnation, &user);
        }
        for &upload_id in &open.uploads {
            let is_there = |engine: &Self| {
                let producer = engine.producers.get(&producer_key);
                producer.is_some_and(|producer| producer.uploads.bodies.contains_key(&upload_id))
            };
            if is_there(self) {
                continue; // asked for twice
            }
            let Some(body) = self.kept_uploads.claim(&user, (incarnation, upload_id)) else {
                continue;
            };
            let Some(connection) = self.connections.get_mut(&connection_key) else {
                continue;
            };
            let bytes = body.bytes.len() as u64;
            if connection.upload_bytes + bytes > self.settings.limits.upload_bytes {
                continue;
            }
            connection.upload_bytes += bytes;
            self.figures.uploads_resumed += 1;
            claimed.push(proto::PartialUpload {
                upload_id,
                bytes,
                crc32: body.sum,
            });
            self.uploading.insert(incarnation, producer_key);
            if let Some(producer) = self.producers.get_mut(&producer_key) {
                producer.uploads.bodies.insert(upload_id, body);
            }
        }
        self.kept_uploads.drop_all_of(incarnation);
        claimed
    }

    /// Ends the producer that the one that came back was, where its stream is not known to be broken yet, and keeps its bodies.
    fn expel_before(&mut self, key: u64, incarnation: u64, user: &str) {
        let before = self.uploading.get(&incarnation).copied();
        let Some(before) = before.filter(|&before| before != key) else {
            return;
        };
        let session = self.producers.get(&before).map(|producer| producer.session);
        let owner = session.and_then(|session| self.connection_of(session));
        let owner = owner.and_then(|owner| self.connections.get(&owner));
        if owner.is_some_and(|owner| *owner.identity.user == *user) {
            self.keep_uploads_of(before);
            let message = "The producer came back over another stream, and goes on there.";
            self.expel_producer(before, refuse(ErrorCode::Conflict, "incarnation", message));
        }
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
        if body.is_partial() {
            let message = format!(
                "Of upload {} only {} of {} bytes have come.",
                named.upload_id,
                body.bytes.len(),
                body.whole
            );
            return Err(refuse(ErrorCode::InvalidMessage, "uploaded", message));
        }
        let body = body.bytes;
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
                self.forget_upload(producer, connection, named.upload_id);
            }
        }
    }

    /// What a message is refused with whose upload is not there; that it was refused is remembered no more.
    fn without_upload(&mut self, producer: u64, connection: u64, upload_id: u64) -> Refused {
        let counted = self
            .connections
            .get_mut(&connection)
            .map(|one| &mut one.uploads_refused);
        let uploads = self.producers.get_mut(&producer).map(|one| &mut one.uploads);
        if let (Some(counted), Some(uploads)) = (counted, uploads)
            && let Some(over) = uploads.forget_refused(upload_id, counted)
        {
            return over.refusal();
        }
        let message = format!("There is no upload {upload_id} of this producer.");
        refuse(ErrorCode::InvalidMessage, "uploaded", message)
    }

    /// Forgets what came of an upload, and that it was refused.
    fn forget_upload(&mut self, producer: u64, connection: u64, upload_id: u64) {
        if self.remove_upload(producer, connection, upload_id).is_none() {
            drop(self.without_upload(producer, connection, upload_id));
        }
    }

    fn remove_upload(&mut self, producer: u64, connection: u64, upload_id: u64) -> Option<Body> {
        let body = self.producers.get_mut(&producer)?.uploads.bodies.remove(&upload_id)?;
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.upload_bytes = connection.upload_bytes.saturating_sub(body.bytes.len() as u64);
        }
        Some(body)
    }
}

/// How many bytes a chunk has beyond what there is of its body. What does not follow on is no part of it.
fn follows_on(body: Option<&Body>, chunk: &proto::Upload) -> Result<u64, Refused> {
    let have = body.map_or(0, |body| body.bytes.len() as u64);
    if chunk.offset > have {
        let message = format!(
            "The chunk begins at {}, where the broker has {have} bytes.",
            chunk.offset
        );
        return Err(refuse(ErrorCode::InvalidArgument, "offset", message));
    }
    let end = chunk.offset.saturating_add(chunk.data.len() as u64);
    let whole = body.map_or(chunk.body_bytes, |body| body.whole);
    if chunk.body_bytes != whole || (whole != 0 && end > whole) {
        let message = format!(
            "A chunk of a body of {} bytes ends at {end}; before it was told that these are {whole}.",
            chunk.body_bytes
        );
        return Err(refuse(ErrorCode::InvalidArgument, "body_bytes", message));
    }
    if let Some(body) = body {
        let from = usize::try_from(chunk.offset).unwrap_or(usize::MAX);
        let there = body.bytes.get(from..).unwrap_or_default();
        let common = there.len().min(chunk.data.len());
        if there[..common] != chunk.data[..common] {
            let message = "The chunk repeats what is there with other bytes.";
            return Err(refuse(ErrorCode::InvalidArgument, "data", message));
        }
    }
    Ok(end.saturating_sub(have))
}
