//! How streams come and go: hello, joining a connection, goodbye, silence, and being cut off.

use super::connection::{Connection, Identity};
use super::engine::Engine;
use super::errors::{Refused, refuse};
use super::frames::Frame;
use super::intake::{Handled, Outcome};
use super::output::encoded;
use super::seen::Seen;
use super::stream::Phase;
use crate::proto::{self, ErrorCode, Hello, SeenSet, server_frame};

/// The one version of the protocol.
pub const PROTOCOL_VERSION: u32 = 1;
/// Longest client id, and longest of the texts that are only for people; in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// So much later than asked for the host comes while it is busy; what is later is a stall.
const LATE_MS: u64 = 500;

/// How long after a stall clients are heard before it is judged who has been silent.
const CATCH_UP_MS: u64 = 2_000;

/// How often the host has to come by in that time: between two polls it reads.
const CATCH_UP_POLLS: u32 = 2;

impl Engine {
    pub(super) fn hello(&mut self, id: u64, mut hello: Hello) {
        if hello.protocol_version != PROTOCOL_VERSION {
            let message = format!(
                "The broker speaks version {PROTOCOL_VERSION} of the protocol, and was greeted in version {}.",
                hello.protocol_version
            );
            return self.fail_stream(id, refuse(ErrorCode::UnsupportedVersion, "protocol_version", message));
        }
        if hello.client_id.len() > TEXT_BYTES_MAX || hello.client_id.chars().any(char::is_control) {
            let message = format!("A client id has at most {TEXT_BYTES_MAX} bytes and no control characters.");
            return self.fail_stream(id, refuse(ErrorCode::InvalidName, "client_id", message));
        }
        if let Some(refused) = self.store_failure()
            && self.streams.get(&id).is_some_and(|stream| !stream.internal)
        {
            return self.fail_stream(id, refused);
        }
        truncate(&mut hello.product);
        truncate(&mut hello.host);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Admitting;
        }
        self.ask_hello(id, hello);
    }

    /// Goes on with a greeting that the host has admitted.
    pub(super) fn admit(&mut self, id: u64, hello: Hello, user: String) {
        if self
            .streams
            .get(&id)
            .is_none_or(|stream| stream.phase != Phase::Admitting)
        {
            return;
        }
        // Where nobody has to show who they are a client may claim any name, and messages may carry it.
        if user.len() > TEXT_BYTES_MAX || user.chars().any(char::is_control) {
            let message = format!("The name of a user has at most {TEXT_BYTES_MAX} bytes and no control characters.");
            return self.fail_stream(id, refuse(ErrorCode::InvalidName, "user", message));
        }
        let joined = match self.find_connection(&hello, &user) {
            Ok(joined) => joined,
            Err(refused) => return self.fail_stream(id, refused),
        };
        let key = match joined {
            Some(key) => key,
            None => match self.new_connection(id, &hello, user) {
                Ok(key) => key,
                Err(refused) => return self.fail_stream(id, refused),
            },
        };
        let heartbeat_ms = match hello.heartbeat_ms {
            0 => self.settings.heartbeat_ms,
            asked => asked.clamp(self.settings.heartbeat_ms_min, self.settings.heartbeat_ms_max),
        };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Open;
            stream.connection = Some(key);
            stream.heartbeat_ms = u64::from(heartbeat_ms);
        }
        self.watch(self.now.monotonic_ms + u64::from(heartbeat_ms) / 3);
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        connection.streams.push(id);
        let welcome = proto::Welcome {
            protocol_version: PROTOCOL_VERSION,
            broker: self.settings.broker.clone(),
            store_id: hexadecimal(&self.state.store_id()),
            epoch: self.state.epoch(),
            start_id: self.state.start_id(),
            connection_token: connection.token.to_vec(),
            heartbeat_ms,
            limits: Some(self.settings.limits.to_proto()),
            client_id: connection.identity.client_id.clone(),
            product: self.settings.product.clone(),
            time_ms: self.now.wall_ms,
            cluster: self.settings.cluster.clone(),
        };
        self.send(id, 0, server_frame::Frame::Welcome(welcome));
        while let Some(stream) = self.streams.get_mut(&id) {
            if stream.phase != Phase::Open {
                break;
            }
            let Some(bytes) = stream.parked.pop() else { break };
            // It was read once before it was parked.
            if let Ok(frame) = Frame::parse(&bytes) {
                self.open_frame(id, &frame, &bytes);
            }
        }
    }

    /// The connection that a greeting joins by its token, if it names one that is still here.
    fn find_connection(&self, hello: &Hello, user: &str) -> Result<Option<u64>, Refused> {
        let Ok(token) = <[u8; 16]>::try_from(hello.connection_token.as_slice()) else {
            return Ok(None);
        };
        let Some(&key) = self.tokens.get(&token) else {
            return Ok(None);
        };
        let Some(connection) = self.connections.get(&key) else {
            return Ok(None);
        };
        if *connection.identity.user != *user {
            let message = "The connection belongs to another user.";
            return Err(refuse(ErrorCode::PermissionDenied, "connection_token", message));
        }
        if !hello.client_id.is_empty() && hello.client_id != connection.identity.client_id {
            let message = "The connection of this token has another client id.";
            return Err(refuse(ErrorCode::Conflict, "client_id", message));
        }
        Ok(Some(key))
    }

    fn new_connection(&mut self, id: u64, hello: &Hello, user: String) -> Result<u64, Refused> {
        let named = !hello.client_id.is_empty();
        // The broker's own streams act for a client id (to look at its durable subscription, say) beside the client itself.
        let internal = self.streams.get(&id).is_some_and(|stream| stream.internal);
        let chosen = named && !internal;
        if chosen && self.client_ids.contains_key(&hello.client_id) {
            let message = format!("Another connection holds the client id {}.", hello.client_id);
            return Err(refuse(ErrorCode::ClientIdInUse, "client_id", message));
        }
        let key = self.next_key();
        let token = self.token(key);
        if chosen {
            self.client_ids.insert(hello.client_id.clone(), key);
        }
        let client_id = if named {
            hello.client_id.clone()
        } else {
            format!("{}-{}-{key}", self.settings.broker, self.state.epoch())
        };
        let identity = Identity {
            client_id,
            client_id_chosen: named,
            user: user.into(),
            product: hello.product.clone(),
            host: hello.host.clone(),
            peer: self
                .streams
                .get(&id)
                .map(|stream| stream.peer.clone())
                .unwrap_or_default(),
        };
        self.tokens.insert(token, key);
        self.connections
            .insert(key, Connection::new(identity, token, self.now.wall_ms));
        Ok(key)
    }

    /// A token that nobody can guess who does not know the secret.
    fn token(&self, key: u64) -> [u8; 16] {
        let mut seed = self.settings.secret.to_vec();
        seed.extend_from_slice(&self.state.epoch().to_le_bytes());
        seed.extend_from_slice(&key.to_le_bytes());
        seed.extend_from_slice(&self.settings.secret);
        xxhash_rust::xxh3::xxh3_128_with_seed(&seed, self.now.wall_ms).to_le_bytes()
    }

    pub(super) fn open_session(&mut self, id: u64, number: u32, open: &proto::OpenSession) -> Handled {
        let Some(key) = self.streams.get(&id).and_then(|stream| stream.connection) else {
            return Ok(Outcome::Done);
        };
        let mode = proto::AcknowledgeMode::try_from(open.acknowledge_mode).map_err(|_| {
            refuse(
                ErrorCode::InvalidArgument,
                "acknowledge_mode",
                "There is no acknowledge mode of this number.",
            )
        })?;
        let limit = self.settings.limits.sessions;
        let session_key = self.next_key();
        if session_key > super::session::SESSION_KEY_MAX {
            let message = "All sessions that this start of the broker has are given out.";
            return Err(refuse(ErrorCode::Unavailable, "session", message));
        }
        let Some(connection) = self.connections.get_mut(&key) else {
            return Ok(Outcome::Done);
        };
        if connection.sessions.len() >= limit as usize {
            return Err(super::errors::over_limit(
                "sessions",
                u64::from(limit),
                "A connection may not open more sessions",
            ));
        }
        let number = match number {
            0 => {
                let mut free = connection.session_highest.wrapping_add(1).max(1);
                while connection.sessions.contains_key(&free) {
                    free = free.wrapping_add(1).max(1);
                }
                free
            }
            chosen => chosen,
        };
        if connection.sessions.contains_key(&number) {
            let message = "A session of this number is open already.";
            return Err(refuse(ErrorCode::AlreadyExists, "session", message));
        }
        connection.session_highest = connection.session_highest.max(number);
        connection.sessions.insert(number, session_key);
        self.sessions.insert(
            session_key,
            super::session::Session::new(number, key, id, mode, open.stopped),
        );
        Ok(Outcome::Answer(proto::reply::Result::SessionOpened(
            proto::SessionOpened { session: number },
        )))
    }

    pub(super) fn start_connection(&mut self, id: u64, stop: bool) -> Handled {
        let Some(key) = self.streams.get(&id).and_then(|stream| stream.connection) else {
            return Ok(Outcome::Done);
        };
        let Some(connection) = self.connections.get_mut(&key) else {
            return Ok(Outcome::Done);
        };
        connection.stopped = stop;
        let sessions: Vec<u64> = connection.sessions.values().copied().collect();
        for session in sessions {
            self.wake_session(session);
        }
        Ok(Outcome::Done)
    }

    pub(super) fn start_session(&mut self, key: u64, stop: bool) -> Handled {
        if let Some(session) = self.sessions.get_mut(&key) {
            session.stopped = stop;
        }
        self.wake_session(key);
        Ok(Outcome::Done)
    }

    /// A clean end of the whole connection, whatever streams it has; `seen` by the application in any of its sessions.
    pub(super) fn goodbye(&mut self, id: u64, frame: &Frame<'_>, seen: &[SeenSet]) {
        let Some(key) = self.streams.get(&id).and_then(|stream| stream.connection) else {
            return;
        };
        let streams = self
            .connections
            .get(&key)
            .map(|connection| connection.streams.clone())
            .unwrap_or_default();
        self.end_connection(key, Some(&Seen::of(seen)));
        // Last: what was refused with it is told before.
        self.answer_frame(id, frame, Ok(Outcome::Done));
        for stream in streams {
            self.let_go(stream);
        }
    }

    /// The stream reads nothing any more; the host ends the call when its outbox is empty.
    fn let_go(&mut self, id: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.phase = Phase::Closing;
            stream.connection = None;
            stream.outbox.confirming.clear();
            stream.outbox.delivering.clear();
        }
        self.announce(id);
    }

    /// The call is gone. Without a Goodbye before it the client counts as crashed.
    pub fn close_stream(&mut self, id: u64) {
        let connection = self.streams.remove(&id).and_then(|stream| stream.connection);
        if let Some(key) = connection {
            self.stream_lost(key, id);
        }
    }

    /// Tells a stream why it ends and lets it go; for its connection it is as good as gone.
    pub(super) fn fail_stream(&mut self, id: u64, refused: Refused) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.phase == Phase::Closing {
            return;
        }
        let connection = stream.connection.take();
        stream.ended_for = Some(refused.clone());
        self.figures.note_cut(&refused);
        self.send_encoded(id, encoded(0, server_frame::Frame::Error(*refused)));
        self.let_go(id);
        if let Some(key) = connection {
            self.stream_lost(key, id);
        }
    }

    /// Ends a stream whose client does not read. What waits for it is dropped: nobody will take it.
    pub(super) fn cut_off(&mut self, id: u64, why: &str) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.outbox.control.clear();
            stream.outbox.control_bytes = 0;
        }
        self.fail_stream(id, refuse(ErrorCode::SlowConsumer, "stream", why));
    }

    /// A stream's sessions end with it: what they had not acknowledged goes to others at once. Those of the connection's
    /// other streams go on, and with the last stream the connection ends.
    fn stream_lost(&mut self, key: u64, id: u64) {
        let Some(connection) = self.connections.get_mut(&key) else {
            return;
        };
        connection.streams.retain(|&other| other != id);
        let is_over = connection.streams.is_empty();
        let mut sessions: Vec<u64> = connection.sessions.values().copied().collect();
        sessions.retain(|session| self.sessions.get(session).is_some_and(|session| session.stream == id));
        sessions.sort_unstable();
        for &session in &sessions {
            self.keep_uploads(session);
        }
        if is_over {
            return self.end_connection(key, None);
        }
        for session in sessions {
            self.end_session(session, None);
        }
    }

    /// Ends a connection: its sessions, its temporary destinations, its client id.
    pub(super) fn end_connection(&mut self, key: u64, seen: Option<&Seen>) {
        let Some(connection) = self.connections.get(&key) else {
            return;
        };
        let mut sessions: Vec<u64> = connection.sessions.values().copied().collect();
        sessions.sort_unstable();
        for session in sessions {
            self.end_session(session, seen);
        }
        self.end_temporaries(key);
        if let Some(connection) = self.connections.remove(&key) {
            self.tokens.remove(&connection.token);
            if self.client_ids.get(&connection.identity.client_id) == Some(&key) {
                self.client_ids.remove(&connection.identity.client_id);
            }
        }
    }

    /// Ends a connection on an administrator's word. Whether there was one.
    pub fn close_connection(&mut self, key: u64, reason: &str) -> bool {
        let Some(connection) = self.connections.get(&key) else {
            return false;
        };
        let streams = connection.streams.clone();
        self.end_connection(key, None);
        for stream in streams {
            self.fail_stream(stream, refuse(ErrorCode::Closed, "connection", reason));
        }
        true
    }

    /// Tells every client that the broker is about to stop serving, and where to go.
    pub fn go_away(&mut self, code: ErrorCode, addresses: &[String], grace_ms: u32) {
        let reason = refuse(code, "broker", "The broker is about to stop serving.");
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        for id in streams {
            if self.streams.get(&id).is_some_and(|stream| stream.phase == Phase::Open) {
                let frame = proto::GoAway {
                    destination: None,
                    addresses: addresses.to_vec(),
                    reason: Some((*reason).clone()),
                    grace_ms,
                };
                self.send(id, 0, server_frame::Frame::GoAway(frame));
            }
        }
    }

    /// Heartbeats, silence, output that nobody takes, greetings that do not come.
    pub(super) fn check_liveness(&mut self) {
        let now_ms = self.now.monotonic_ms;
        if now_ms > self.liveness_at_ms.saturating_add(LATE_MS) {
            // Nobody came at the time that was asked for: the process stood still, and what its clients said meanwhile is
            // still to be read. It is judged when that has been done, also by a host that is late every time.
            self.catching_up.get_or_insert((now_ms + CATCH_UP_MS, 0));
        }
        let judges = self
            .catching_up
            .is_none_or(|(until_ms, polls)| now_ms >= until_ms && polls >= CATCH_UP_POLLS);
        if judges {
            self.catching_up = None;
        }
        let mut verdicts = Vec::new();
        for (&id, stream) in &self.streams {
            if stream.phase == Phase::Closing {
                continue;
            }
            let is_slow = stream
                .waiting_since_ms
                .is_some_and(|since| now_ms >= since + self.settings.slow_consumer_ms);
            let is_silent = match stream.phase {
                Phase::Greeting => now_ms >= stream.opened_ms + self.settings.hello_ms,
                Phase::Open => !stream.internal && now_ms >= stream.heard_ms + stream.heartbeat_ms,
                _ => false,
            };
            let owes_heartbeat = !stream.internal
                && stream.phase == Phase::Open
                && now_ms >= stream.sent_ms + stream.heartbeat_ms / 3
                && stream.outbox.is_empty();
            match (judges, is_slow, is_silent, owes_heartbeat) {
                (true, true, ..) => verdicts.push((id, Some(ErrorCode::SlowConsumer))),
                (true, _, true, _) => verdicts.push((id, Some(ErrorCode::Idle))),
                (.., true) => verdicts.push((id, None)),
                _ => {}
            }
        }
        for (id, verdict) in verdicts {
            match verdict {
                None => self.send(id, 0, server_frame::Frame::Heartbeat(proto::Heartbeat {})),
                Some(ErrorCode::SlowConsumer) => {
                    self.cut_off(id, "What the broker had to send was not read for too long.");
                }
                Some(code) => self.fail_stream(id, refuse(code, "stream", "Nothing was heard for too long.")),
            }
        }
        self.liveness_at_ms = self.liveness_deadline().max(
            self.catching_up
                .map_or(0, |(until_ms, _)| until_ms.max(now_ms + LATE_MS)),
        );
    }

    /// Makes sure that `check_liveness` runs at `at_ms`.
    pub(super) fn watch(&mut self, at_ms: u64) {
        self.liveness_at_ms = self.liveness_at_ms.min(at_ms);
    }

    /// When `check_liveness` has something to do next, as things stand.
    fn liveness_deadline(&self) -> u64 {
        let mut deadline = u64::MAX;
        for stream in self.streams.values().filter(|stream| stream.phase != Phase::Closing) {
            if let Some(since) = stream.waiting_since_ms {
                deadline = deadline.min(since + self.settings.slow_consumer_ms);
            }
            match stream.phase {
                Phase::Greeting => deadline = deadline.min(stream.opened_ms + self.settings.hello_ms),
                Phase::Open if !stream.internal => {
                    deadline = deadline.min(stream.heard_ms + stream.heartbeat_ms);
                    if stream.outbox.is_empty() {
                        deadline = deadline.min(stream.sent_ms + stream.heartbeat_ms / 3);
                    }
                }
                _ => {}
            }
        }
        deadline
    }
}

fn truncate(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let mut end = TEXT_BYTES_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

/// Bytes in hexadecimal, as people read identities.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            // Writing into a string cannot fail.
            let _ = write!(out, "{byte:02x}");
            out
        })
}
