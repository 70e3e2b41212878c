//! A stream: one gRPC call, and what stands between it and its connection: the greeting, liveness, output.

use super::errors::Refused;
use super::output::Outbox;
use std::collections::VecDeque;

/// How far a stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was heard yet; the first frame has to be Hello.
    Greeting,
    /// Hello was heard and its ticket is not answered: what follows is parked.
    Admitting,
    /// It belongs to a connection.
    Open,
    /// Only what is in its outbox goes out, then the call ends. Nothing is read any more.
    Closing,
}

/// Encoded frames that wait for a ticket's answer, with their bytes counted.
#[derive(Debug, Default)]
pub struct Parked {
    frames: VecDeque<Vec<u8>>,
    bytes: u64,
}

impl Parked {
    /// How many bytes wait.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a frame behind the others; the new number of bytes.
    pub fn push(&mut self, frame: &[u8]) -> u64 {
        self.bytes += frame.len() as u64;
        self.frames.push_back(frame.to_vec());
        self.bytes
    }

    /// Puts a frame that could not be handled yet back in front.
    pub fn push_front(&mut self, frame: Vec<u8>) {
        self.bytes += frame.len() as u64;
        self.frames.push_front(frame);
    }

    /// Keeps the frames for which `keep` says so, in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8]) -> bool) {
        self.frames.retain(|frame| keep(frame));
        self.bytes = self.frames.iter().map(|frame| frame.len() as u64).sum();
    }

    /// The frames, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.frames.iter().map(Vec::as_slice)
    }

    /// The oldest frame.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len() as u64;
        Some(frame)
    }
}

/// One call of `Connect`.
#[derive(Debug)]
pub struct Stream {
    /// Where it comes from, for people.
    pub peer: String,
    /// Opened by the broker itself, for unary calls and the administration: no heartbeats.
    pub internal: bool,
    /// How far it has come.
    pub phase: Phase,
    /// The connection it belongs to, once it has greeted.
    pub connection: Option<u64>,
    /// Frames behind an unanswered Hello.
    pub parked: Parked,
    /// What goes out.
    pub outbox: Outbox,
    /// When it was opened; monotonic.
    pub opened_ms: u64,
    /// When the client was last heard; monotonic.
    pub heard_ms: u64,
    /// When something was last put out; monotonic.
    pub sent_ms: u64,
    /// Since when output has been waiting without being taken; monotonic.
    pub waiting_since_ms: Option<u64>,
    /// The heartbeat that was agreed on.
    pub heartbeat_ms: u64,
    /// Whether `poll` has to tell that there is output.
    pub announced: bool,
    /// What the engine ended it for, if it did.
    pub ended_for: Option<Refused>,
}

impl Stream {
    /// A stream that has just been opened.
    #[must_use]
    pub fn new(peer: &str, internal: bool, now_ms: u64, heartbeat_ms: u64) -> Self {
        Self {
            peer: peer.to_owned(),
            internal,
            phase: Phase::Greeting,
            connection: None,
            parked: Parked::default(),
            outbox: Outbox::default(),
            opened_ms: now_ms,
            heard_ms: now_ms,
            sent_ms: now_ms,
            waiting_since_ms: None,
            heartbeat_ms,
            announced: false,
            ended_for: None,
        }
    }
}
