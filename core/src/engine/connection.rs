//! A connection: one client as the broker knows it. It owns the client id, the sessions, the numbers of producers and
//! consumers, and the temporary destinations; it may be served by several streams, and ends with the last of them.

use crate::state::DestinationId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What a client proves and says about itself.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The client id that holds: the one asked for, or one made up.
    pub client_id: String,
    /// Whether the client asked for it; durable subscriptions need that.
    pub client_id_chosen: bool,
    /// The user that the host admitted; empty: anonymous.
    pub user: Arc<str>,
    /// Program and library.
    pub product: String,
    /// The client's machine.
    pub host: String,
    /// Where its first stream comes from.
    pub peer: String,
}

/// One client.
#[derive(Debug)]
pub struct Connection {
    /// Who it is.
    pub identity: Identity,
    /// By which further streams join it.
    pub token: [u8; 16],
    /// Wall clock, milliseconds.
    pub connected_ms: u64,
    /// Streams that serve it now.
    pub streams: Vec<u64>,
    /// Session keys by the client's numbers.
    pub sessions: FxHashMap<u32, u64>,
    /// The highest session number that was ever open.
    pub session_highest: u32,
    /// Producer keys by the client's numbers.
    pub producers: FxHashMap<u32, u64>,
    /// Consumer keys by the client's numbers.
    pub consumers: FxHashMap<u32, u64>,
    /// The temporary destinations it made.
    pub temporaries: Vec<DestinationId>,
    /// Numbers the next temporary destination.
    pub temporary_next: u64,
    /// Deliveries of all sessions pause.
    pub stopped: bool,
    /// The sum of the windows granted to its producers.
    pub window_bytes: u64,
    /// Uploaded and not published.
    pub upload_bytes: u64,
    /// Refused uploads that are remembered until their messages come.
    pub uploads_refused: u32,
    /// Messages published since it connected.
    pub published_total: u64,
    /// Messages delivered since it connected.
    pub delivered_total: u64,
}

impl Connection {
    /// A connection that has just been admitted.
    #[must_use]
    pub fn new(identity: Identity, token: [u8; 16], connected_ms: u64) -> Self {
        Self {
            identity,
            token,
            connected_ms,
            streams: Vec::new(),
            sessions: FxHashMap::default(),
            session_highest: 0,
            producers: FxHashMap::default(),
            consumers: FxHashMap::default(),
            temporaries: Vec::new(),
            temporary_next: 0,
            stopped: false,
            window_bytes: 0,
            upload_bytes: 0,
            uploads_refused: 0,
            published_total: 0,
            delivered_total: 0,
        }
    }
}
