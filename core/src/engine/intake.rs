//! What comes in: batches are taken apart and each frame goes to who handles it.
//!
//! Frames that come once a message or once a batch (publish, acknowledge, credit, release) are read by hand; the rest is
//! decoded. A frame that fails is answered (`Reply` if it asked for one, else `Error`) and changes nothing else; bytes
//! that are no frame end the stream, because what follows them cannot be trusted.

use super::engine::Engine;
use super::errors::{Refused, over_limit, refuse};
use super::frames::{self, Frame, PublishFrame, RangesError};
use super::stream::Phase;
use crate::proto::client_frame::Frame as Body;
use crate::proto::reply::Result as Answered;
use crate::proto::{self, ErrorCode, server_frame};
use crate::wire::{Reader, WireError};

/// What became of a frame.
pub(super) enum Outcome {
    /// Done, with nothing to say but that.
    Done,
    /// Done, and this is the answer.
    Answer(Answered),
    /// Done, and this is the answer once what was appended is committed.
    AnswerCommitted(Answered),
    /// Done, and answered once there was room in the log to note it.
    Owed,
    /// Refused as what came before it, which was told; so is this where it is a request.
    RefusedBefore(Refused),
    /// It waits for a ticket and has to be handled again.
    Parked,
}

pub(super) type Handled = Result<Outcome, Refused>;

/// What one session may park beside its connection's credit; a client that is within its producers' stays below.
const PARKED_SLACK_BYTES: u64 = 2 << 20;

impl Engine {
    /// Opens a stream under a number that the host chose and never uses again. `internal` streams are the broker's own:
    /// no heartbeats.
    pub fn open_stream(&mut self, id: u64, peer: &str, internal: bool) {
        let stream = super::stream::Stream::new(
            peer,
            internal,
            self.now.monotonic_ms,
            u64::from(self.settings.heartbeat_ms),
        );
        self.streams.insert(id, stream);
        self.watch(self.now.monotonic_ms + self.settings.hello_ms);
    }

    /// Takes one `ClientBatch`. Never fails: what is wrong with it is answered on the stream.
    pub fn handle(&mut self, id: u64, batch: &[u8]) {
        let now_ms = self.now.monotonic_ms;
        let frame_bytes = self.settings.limits.frame_bytes;
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.heard_ms = now_ms;
        if batch.len() > frame_bytes as usize {
            let what = format!("A batch of {} bytes was sent", batch.len());
            self.fail_stream(id, over_limit("frame_bytes", u64::from(frame_bytes), &what));
            return;
        }
        let mut reader = Reader::new(batch);
        loop {
            let bytes = match reader.next_field() {
                Ok(None) => break,
                Ok(Some(field)) if field.number != 1 => continue,
                Ok(Some(field)) => field.bytes(),
                Err(error) => Err(error),
            };
            match bytes {
                Ok(bytes) => self.take_frame(id, bytes),
                Err(error) => self.malformed(id, "batch", &error),
            }
            if self
                .streams
                .get(&id)
                .is_none_or(|stream| stream.phase == Phase::Closing)
            {
                return;
            }
        }
        let over = self
            .streams
            .get(&id)
            .is_some_and(|stream| stream.outbox.control_bytes > super::output::CONTROL_BYTES_MAX);
        if over {
            self.cut_off(id, "Answers to its own requests were not read.");
        }
    }

    fn take_frame(&mut self, id: u64, bytes: &[u8]) {
        let frame = match Frame::parse(bytes) {
            Ok(frame) => frame,
            Err(error) => return self.malformed(id, "frame", &error),
        };
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        match stream.phase {
            Phase::Closing => {}
            Phase::Admitting => {
                let parked = stream.parked.push(bytes);
                self.bound_parked(id, parked);
            }
            Phase::Greeting => self.first_frame(id, &frame),
            Phase::Open => self.open_frame(id, &frame, bytes),
        }
    }

    fn first_frame(&mut self, id: u64, frame: &Frame<'_>) {
        if frame.kind != frames::HELLO {
            let refused = refuse(
                ErrorCode::ProtocolViolation,
                "hello",
                "The first frame of a stream has to be Hello.",
            );
            return self.fail_stream(id, refused);
        }
        match frame.decode() {
            Ok(Some(Body::Hello(hello))) => self.hello(id, hello),
            Ok(_) => {}
            Err(error) => self.undecodable(id, "hello", &error),
        }
    }

    /// A frame on a stream that has greeted.
    pub(super) fn open_frame(&mut self, id: u64, frame: &Frame<'_>, bytes: &[u8]) {
        if frame.session == 0 {
            return self.connection_frame(id, frame);
        }
        let Some(connection) = self.streams.get(&id).and_then(|stream| stream.connection) else {
            return;
        };
        let Some(connection) = self.connections.get(&connection) else {
            return;
        };
        let Some(&key) = connection.sessions.get(&frame.session) else {
            if frame.kind == 19 {
                return self.connection_frame(id, frame);
            }
            let known = frame.session <= connection.session_highest;
            let refused = if known {
                refuse(
                    ErrorCode::Closed,
                    format!("session {}", frame.session),
                    "The session was closed before.",
                )
            } else {
                let message = "There is no such session; OpenSession opens one.";
                refuse(
                    ErrorCode::ProtocolViolation,
                    format!("session {}", frame.session),
                    message,
                )
            };
            return self.answer_frame(id, frame, Err(refused));
        };
        let Some(session) = self.sessions.get_mut(&key) else {
            return;
        };
        if session.stream != id {
            let message = "The session is served by another stream of the connection.";
            let refused = refuse(
                ErrorCode::ProtocolViolation,
                format!("session {}", frame.session),
                message,
            );
            return self.answer_frame(id, frame, Err(refused));
        }
        if session.ticket.is_some() {
            let parked = session.parked.push(bytes);
            return self.bound_parked(id, parked);
        }
        if let Some(held) = self.hold_back(key, frame, bytes) {
            return self.bound_parked(id, held);
        }
        if self.session_frame(id, key, frame) {
            self.park_again(key, bytes.to_vec());
        }
    }

    /// Handles a frame that had been parked.
    pub(super) fn handle_parked(&mut self, id: u64, key: u64, bytes: Vec<u8>) {
        // It was read once before it was parked.
        let Ok(frame) = Frame::parse(&bytes) else { return };
        if self.hold_back(key, &frame, &bytes).is_some() {
            return;
        }
        if self.session_frame(id, key, &frame) {
            self.park_again(key, bytes);
        }
    }

    fn park_again(&mut self, key: u64, bytes: Vec<u8>) {
        if let Some(session) = self.sessions.get_mut(&key) {
            let queue = if session.ticket.is_some() {
                &mut session.parked
            } else {
                &mut session.held
            };
            queue.push_front(bytes);
        }
    }

    fn bound_parked(&mut self, id: u64, parked: u64) {
        // Many producers have more credit altogether, since each has the least that it needs.
        let connection = self.streams.get(&id).and_then(|stream| stream.connection);
        let connection = connection.and_then(|connection| self.connections.get(&connection));
        let credit = connection.map_or(0, |connection| connection.window_bytes);
        let limit = self.settings.limits.inflight_bytes.max(credit);
        if parked > limit + PARKED_SLACK_BYTES {
            self.fail_stream(
                id,
                over_limit(
                    "inflight_bytes",
                    limit,
                    "Too much was sent while the broker had to decide",
                ),
            );
        }
    }

    /// A frame of an open session. Whether it has to wait for a ticket.
    pub(super) fn session_frame(&mut self, id: u64, key: u64, frame: &Frame<'_>) -> bool {
        let handled = match frame.kind {
            frames::PUBLISH => match PublishFrame::parse(frame.body) {
                Ok(publish) => self.publish(id, key, &publish),
                Err(error) => {
                    self.malformed(id, "publish", &error);
                    return false;
                }
            },
            frames::ACKNOWLEDGE => match self.with_sets(frame.body, |engine, sets| engine.acknowledge(key, sets)) {
                Ok(handled) => handled,
                Err(error) => {
                    self.bad_ranges(id, "acknowledge", error);
                    return false;
                }
            },
            frames::RELEASE => match self.with_sets(frame.body, |engine, sets| engine.release(key, sets)) {
                Ok(handled) => handled,
                Err(error) => {
                    self.bad_ranges(id, "release", error);
                    return false;
                }
            },
            frames::CREDIT => match prost::Message::decode(frame.body) {
                Ok(credit) => self.credit(key, &credit),
                Err(error) => {
                    self.undecodable(id, "credit", &error);
                    return false;
                }
            },
            _ => match frame.decode() {
                Ok(Some(body)) => self.rare_frame(id, key, body),
                Ok(None) => {
                    self.unknown(id);
                    return false;
                }
                Err(error) => {
                    self.undecodable(id, "frame", &error);
                    return false;
                }
            },
        };
        if matches!(handled, Ok(Outcome::Parked)) {
            return true;
        }
        self.answer_frame(id, frame, handled);
        false
    }

    fn with_sets(
        &mut self,
        body: &[u8],
        run: impl FnOnce(&mut Self, &frames::SetsFrame) -> Handled,
    ) -> Result<Handled, RangesError> {
        let mut sets = std::mem::take(&mut self.sets);
        let parsed = sets.parse(body);
        let handled = parsed.map(|()| run(self, &sets));
        self.sets = sets;
        handled
    }

    fn rare_frame(&mut self, id: u64, key: u64, body: Body) -> Handled {
        match body {
            Body::CloseSession(frame) => self.close_session(key, &frame.seen),
            Body::OpenProducer(frame) => self.open_producer(key, &frame),
            Body::CloseProducer(frame) => self.close_producer(key, frame.producer),
            Body::OpenConsumer(frame) => self.open_consumer(key, &frame),
            Body::CloseConsumer(frame) => self.close_consumer(key, &frame),
            Body::Recover(frame) => self.recover(key, &frame.seen),
            Body::Transact(frame) => self.transact(key, &frame),
            Body::HandedOut(frame) => self.handed_out(key, &frame),
            Body::Unsubscribe(frame) => self.unsubscribe(key, &frame),
            Body::Upload(frame) => self.upload(key, frame),
            Body::Start(frame) => self.start_session(key, frame.stop),
            Body::Lookup(frame) => self.lookup(id, &frame),
            Body::CreateTemporary(frame) => self.create_temporary(id, frame.kind),
            Body::DeleteTemporary(frame) => self.delete_temporary(id, &frame),
            Body::OpenSession(_) => {
                let message = "A session of this number is open already.";
                Err(refuse(ErrorCode::AlreadyExists, "session", message))
            }
            Body::Hello(_) | Body::Goodbye(_) | Body::Heartbeat(_) => Err(refuse(
                ErrorCode::ProtocolViolation,
                "session",
                "This frame belongs to session 0, the connection.",
            )),
            Body::Publish(_) | Body::Acknowledge(_) | Body::Credit(_) | Body::Release(_) => Ok(Outcome::Done),
        }
    }

    /// A frame of session 0, or one that opens a session under a number of the client's.
    fn connection_frame(&mut self, id: u64, frame: &Frame<'_>) {
        let body = match frame.decode() {
            Ok(Some(body)) => body,
            Ok(None) if (frames::PUBLISH..=frames::RELEASE).contains(&frame.kind) => {
                let message = "Publish, Ack, Credit and Release belong to a session.";
                return self.answer_frame(
                    id,
                    frame,
                    Err(refuse(ErrorCode::ProtocolViolation, "session 0", message)),
                );
            }
            Ok(None) => return self.unknown(id),
            Err(error) => return self.undecodable(id, "frame", &error),
        };
        let handled = match body {
            Body::Heartbeat(_) => Ok(Outcome::Done),
            Body::Goodbye(goodbye) => return self.goodbye(id, frame, &goodbye.seen),
            Body::OpenSession(open) => self.open_session(id, frame.session, &open),
            Body::Start(start) => self.start_connection(id, start.stop),
            Body::Lookup(lookup) => self.lookup(id, &lookup),
            Body::CreateTemporary(create) => self.create_temporary(id, create.kind),
            Body::DeleteTemporary(delete) => self.delete_temporary(id, &delete),
            Body::Unsubscribe(unsubscribe) => self.unsubscribe_for(id, &unsubscribe.name),
            Body::Hello(_) => Err(refuse(
                ErrorCode::ProtocolViolation,
                "hello",
                "The stream has greeted already.",
            )),
            _ => Err(refuse(
                ErrorCode::ProtocolViolation,
                "session 0",
                "This frame belongs to a session.",
            )),
        };
        self.answer_frame(id, frame, handled);
    }

    /// Answers a frame: a request always, another one only if it failed.
    pub(super) fn answer_frame(&mut self, id: u64, frame: &Frame<'_>, handled: Handled) {
        let (result, committed) = match handled {
            Ok(Outcome::Parked) => return,
            Ok(Outcome::Owed) => return self.answer_when_logged(id, frame),
            Ok(Outcome::RefusedBefore(_)) if frame.request == 0 => return,
            Ok(Outcome::RefusedBefore(refused)) => (Answered::Error(*refused), false),
            Ok(Outcome::Done) => (Answered::Done(proto::Done {}), false),
            Ok(Outcome::Answer(result)) => (result, false),
            Ok(Outcome::AnswerCommitted(result)) => (result, true),
            Err(refused) if frame.request == 0 => {
                return self.send(id, frame.session, server_frame::Frame::Error(*refused));
            }
            Err(refused) => (Answered::Error(*refused), false),
        };
        if frame.request == 0 {
            return;
        }
        let reply = proto::Reply {
            request: frame.request,
            result: Some(result),
        };
        let told = server_frame::Frame::Reply(reply);
        self.note_refusal(id, &told);
        let encoded = super::output::encoded(frame.session, told);
        if committed {
            self.send_after_commit(id, encoded);
        } else {
            self.send_encoded(id, encoded);
        }
    }

    fn malformed(&mut self, id: u64, subject: &str, error: &WireError) {
        self.fail_stream(
            id,
            refuse(
                ErrorCode::MalformedFrame,
                subject,
                format!("The bytes cannot be read: {error}."),
            ),
        );
    }

    fn undecodable(&mut self, id: u64, subject: &str, error: &prost::DecodeError) {
        self.fail_stream(
            id,
            refuse(
                ErrorCode::MalformedFrame,
                subject,
                format!("The bytes cannot be read: {error}."),
            ),
        );
    }

    fn unknown(&mut self, id: u64) {
        let message = "The frame carries nothing that this broker knows.";
        self.fail_stream(id, refuse(ErrorCode::MalformedFrame, "frame", message));
    }

    fn bad_ranges(&mut self, id: u64, subject: &str, error: RangesError) {
        match error {
            RangesError::Wire(error) => self.malformed(id, subject, &error),
            RangesError::Range { first, last } => {
                let message = format!("The range from {first} to {last} names nothing.");
                self.fail_stream(id, refuse(ErrorCode::MalformedFrame, subject, message));
            }
        }
    }
}
