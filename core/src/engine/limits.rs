//! What the broker accepts, and the other figures an engine is made with.

use crate::proto;

/// The limits that Welcome tells every client. A refusal names the limit by its field's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// One batch of frames, encoded, in bytes.
    pub frame_bytes: u32,
    /// One message with its uploaded body, in bytes.
    pub message_bytes: u64,
    /// Sessions of a connection.
    pub sessions: u32,
    /// Producers of a connection.
    pub producers: u32,
    /// Consumers of a connection.
    pub consumers: u32,
    /// Bytes published and not yet confirmed, per connection.
    pub inflight_bytes: u64,
    /// Messages delivered and not yet acknowledged, per session.
    pub unacknowledged_messages: u32,
    /// Messages sent and acknowledged within one transaction.
    pub transaction_messages: u32,
    /// Transactions open at a time, of a session.
    pub transactions: u32,
    /// How long a transaction may be open, in milliseconds; 0: as long as its session.
    pub transaction_ms: u32,
    /// Bytes uploaded and not yet published, per connection.
    pub upload_bytes: u64,
    /// One selector's text, in bytes.
    pub selector_bytes: u32,
    /// Temporary destinations of a connection.
    pub temporaries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: 1 << 20,
            message_bytes: 16 << 20,
            sessions: 256,
            producers: 1024,
            consumers: 1024,
            inflight_bytes: 64 << 20,
            unacknowledged_messages: 262_144,
            transaction_messages: 262_144,
            transactions: 1024,
            transaction_ms: 0,
            upload_bytes: 64 << 20,
            selector_bytes: 256 << 10,
            temporaries: 1024,
        }
    }
}

impl Limits {
    /// The limits as Welcome carries them.
    #[must_use]
    pub fn to_proto(&self) -> proto::Limits {
        proto::Limits {
            frame_bytes: self.frame_bytes,
            message_bytes: self.message_bytes,
            sessions: self.sessions,
            producers: self.producers,
            consumers: self.consumers,
            inflight_bytes: self.inflight_bytes,
            unacknowledged_messages: self.unacknowledged_messages,
            transaction_messages: self.transaction_messages,
            transactions: self.transactions,
            transaction_ms: self.transaction_ms,
            upload_bytes: self.upload_bytes,
            selector_bytes: self.selector_bytes,
            temporaries: self.temporaries,
        }
    }
}

/// What an engine is made with, besides its state.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The broker's name: part of message ids and of temporary names.
    pub broker: String,
    /// The software version that Welcome tells.
    pub product: String,
    /// What is accepted.
    pub limits: Limits,
    /// The heartbeat of a client that asks for none.
    pub heartbeat_ms: u32,
    /// The shortest and longest heartbeat that is granted.
    pub heartbeat_ms_min: u32,
    /// See `heartbeat_ms_min`.
    pub heartbeat_ms_max: u32,
    /// How long a dynamic destination stays at most that nobody needs.
    pub dynamic_idle_ms: u32,
    /// How long output may wait to be taken before the stream is cut off.
    pub slow_consumer_ms: u64,
    /// Whether destinations' `flow_control_bytes` hold (EMS-DEST-A56).
    pub flow_control: bool,
    /// How long a stream may take to greet.
    pub hello_ms: u64,
    /// The cluster that the broker is a member of; empty: none. In one, the host is asked before a topic pattern is
    /// subscribed to, as it is about destinations.
    pub cluster: String,
    /// How long what came of a body is kept whose stream broke.
    pub upload_kept_ms: u64,
    /// Mixed into connection tokens; a host gives random bytes, a simulation its seed.
    pub secret: [u8; 32],
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            broker: "sterna".to_owned(),
            product: concat!("sterna ", env!("CARGO_PKG_VERSION")).to_owned(),
            limits: Limits::default(),
            heartbeat_ms: 30_000,
            heartbeat_ms_min: 1_000,
            heartbeat_ms_max: 600_000,
            // As long as a client may need to reconnect: the numbers of its producers are known until it is back.
            dynamic_idle_ms: 600_000,
            slow_consumer_ms: 30_000,
            flow_control: false,
            hello_ms: 10_000,
            cluster: String::new(),
            // Most clients are back within seconds.
            upload_kept_ms: 60_000,
            secret: [0; 32],
        }
    }
}
