//! The engine of the Sterna broker.
//!
//! Everything that happens to a message happens here. The crate opens no socket and reads no clock: it is handed
//! frames, the time and I/O completions, and hands back frames. Layers, lowest first (each may use those above it in
//! this list, never those below):
//!
//! - [`wire`]: protobuf primitives without allocation; [`proto`]: the generated control frames
//! - [`name`]: destination names, patterns, the trie; [`selector`]: the SQL-92 subset; [`message`]: views of a message
//! - [`log`]: the one durable log: records, segments, group commit, recovery, compaction; knows nothing of queues
//! - [`state`]: what the log's records mean: queues, subscriptions, transactions, producers
//! - [`snapshot`]: what audits read: cuts of the state, and the events between them
//! - [`engine`]: connections, sessions, producers, consumers, credit, delivery
//! - [`host`]: an engine with the threads that run its jobs
//! - `python`: the Python face (feature `python`)

pub mod engine;
pub mod host;
pub mod log;
pub mod message;
pub mod name;
pub mod proto;
#[cfg(feature = "python")]
mod python;
pub mod selector;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
pub mod snapshot;
pub mod state;
pub mod wire;
