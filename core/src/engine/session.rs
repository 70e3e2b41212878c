//! A session: an ordered conversation inside a connection, to which acknowledgements and transactions belong.

use super::errors::Refused;
use super::stalling::HeldProducers;
use super::stream::Parked;
use super::transactions::Transactions;
use super::withdrawn::Withdrawn;
use crate::proto::AcknowledgeMode;
use crate::state::{DestinationId, SourceId};

/// How many bits of a holder number the consumers of one session; the rest is the session's key.
pub const CONSUMER_BITS: u32 = 24;

/// Consumers that a session may open in its life, and sessions that a broker may: their numbers stand side by side in a
/// holder, and one more would name another session's.
pub const CONSUMERS_MAX: u32 = (1 << CONSUMER_BITS) - 1;
/// See [`CONSUMERS_MAX`]. The last one's holders are the state's own.
pub const SESSION_KEY_MAX: u64 = (u64::MAX >> CONSUMER_BITS) - 1;

/// The key of a consumer, by which the state knows who holds a delivery.
#[must_use]
pub fn holder(session: u64, serial: u32) -> u64 {
    session << CONSUMER_BITS | u64::from(serial)
}

/// The session to which a holder belongs.
#[must_use]
pub fn session_of(holder: u64) -> u64 {
    holder >> CONSUMER_BITS
}

/// What a ticket's answer said about a destination, while the frames that waited for it are handled.
#[derive(Debug)]
pub struct Verdict {
    /// `DestinationKind` as on the wire.
    pub kind: i32,
    /// The destination's name.
    pub name: String,
    /// Why it may not be used.
    pub refused: Refused,
}

/// One session.
#[derive(Debug)]
pub struct Session {
    /// The number by which frames name it.
    pub number: u32,
    /// The key of its connection.
    pub connection: u64,
    /// The stream that it was opened on, and goes with.
    pub stream: u64,
    /// How its deliveries are acknowledged.
    pub mode: AcknowledgeMode,
    /// Deliveries pause.
    pub stopped: bool,
    /// Numbers the next consumer within the session.
    pub consumer_serial: u32,
    /// Keys of its open consumers.
    pub consumers: Vec<u64>,
    /// Keys of its open producers.
    pub producers: Vec<u64>,
    /// Sources of which it may hold deliveries.
    pub sources: Vec<SourceId>,
    /// Deliveries handed to it and not acknowledged.
    pub unacknowledged: u64,
    /// Transactions that have begun.
    pub transactions: Transactions,
    /// What a transacted one was sent and does not hold any more, though it may think so.
    pub withdrawn: Withdrawn,
    /// The ticket it waits for.
    pub ticket: Option<u64>,
    /// What came behind the frame that waits for the ticket, that frame first.
    pub parked: Parked,
    /// Its messages wait for room.
    pub stalled: bool,
    /// The destination whose flow control the first of them waits for.
    pub waits_for: Option<DestinationId>,
    /// What waits, in order.
    pub held: Parked,
    /// What of that ends and opens producers.
    pub held_producers: HeldProducers,
    /// The answer of the last ticket, if it was a refusal.
    pub verdict: Option<Verdict>,
    /// The pattern that the last ticket allowed.
    pub allowed_pattern: Option<String>,
}

impl Session {
    /// A session that has just been opened.
    #[must_use]
    pub fn new(number: u32, connection: u64, stream: u64, mode: AcknowledgeMode, stopped: bool) -> Self {
        Self {
            number,
            connection,
            stream,
            mode,
            stopped,
            consumer_serial: 0,
            consumers: Vec::new(),
            producers: Vec::new(),
            sources: Vec::new(),
            unacknowledged: 0,
            transactions: Transactions::default(),
            withdrawn: Withdrawn::default(),
            ticket: None,
            parked: Parked::default(),
            stalled: false,
            waits_for: None,
            held: Parked::default(),
            held_producers: HeldProducers::default(),
            verdict: None,
            allowed_pattern: None,
        }
    }
}
