//! Who is connected, for people.

use super::engine::Engine;
use super::transactions::Sent;

/// One connection as the list of connections shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionRow {
    /// Names it to `close_connection`.
    pub id: u64,
    /// The client id that holds.
    pub client_id: String,
    /// Empty: anonymous.
    pub user: String,
    /// Program and library.
    pub product: String,
    /// The client's machine, as it says.
    pub host: String,
    /// Where its first stream came from.
    pub peer: String,
    /// Wall clock, milliseconds.
    pub connected_ms: u64,
    /// How many streams serve it.
    pub streams: usize,
    /// How many sessions it has.
    pub sessions: usize,
    /// How many producers it has.
    pub producers: usize,
    /// How many consumers it has.
    pub consumers: usize,
    /// Delivered to it and not acknowledged.
    pub unacknowledged_messages: u64,
    /// Sent in transactions that it has open.
    pub uncommitted: Sent,
    /// Published since it connected.
    pub published_total: u64,
    /// Delivered since it connected.
    pub delivered_total: u64,
}

/// How many of everything there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Connections.
    pub connections: usize,
    /// Sessions of all connections.
    pub sessions: usize,
    /// Producers of all sessions.
    pub producers: usize,
    /// Consumers and browsers of all sessions.
    pub consumers: usize,
}

impl Engine {
    /// All connections, in the order in which they came.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionRow> {
        let mut rows: Vec<ConnectionRow> = self
            .connections
            .iter()
            .map(|(&id, connection)| {
                let held = |key| self.sessions.get(key).map_or(0, |session| session.unacknowledged);
                let sent = |key| {
                    self.sessions
                        .get(key)
                        .map_or_else(Sent::default, |session| session.transactions.sent())
                };
                ConnectionRow {
                    id,
                    client_id: connection.identity.client_id.clone(),
                    user: connection.identity.user.to_string(),
                    product: connection.identity.product.clone(),
                    host: connection.identity.host.clone(),
                    peer: connection.identity.peer.clone(),
                    connected_ms: connection.connected_ms,
                    streams: connection.streams.len(),
                    sessions: connection.sessions.len(),
                    producers: connection.producers.len(),
                    consumers: connection.consumers.len(),
                    unacknowledged_messages: connection.sessions.values().map(held).sum(),
                    uncommitted: connection.sessions.values().map(sent).sum(),
                    published_total: connection.published_total,
                    delivered_total: connection.delivered_total,
                }
            })
            .collect();
        rows.sort_unstable_by_key(|row| row.id);
        rows
    }

    /// How many of everything there are.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            connections: self.connections.len(),
            sessions: self.sessions.len(),
            producers: self.producers.len(),
            consumers: self.consumers.len(),
        }
    }

    /// How many consumers, browsers not counted, a source has.
    #[must_use]
    pub fn consumers_of(&self, source: crate::state::SourceId) -> usize {
        self.receivers
            .get(&source)
            .map_or(0, |receivers| receivers.consumers.len())
    }
}
