//! The names that the state layer's parts give each other: small numbers with a type of their own.

use std::fmt;

/// A queue or a subscription: what messages wait in and consumers take from. On the wire: `source`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SourceId(pub u64);

impl SourceId {
    /// Whether it outlives the process, so that cuts and events tell of it.
    #[must_use]
    pub const fn is_kept(self) -> bool {
        self.0 < UNLOGGED_ID
    }
}

/// A queue or a topic. A queue's source has the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DestinationId(pub u64);

impl DestinationId {
    /// No destination: of a message that was refused before it could be said where it goes.
    pub const ANYWHERE: Self = Self(0);

    /// The source of the queue with this number.
    #[must_use]
    pub const fn source(self) -> SourceId {
        SourceId(self.0)
    }
}

/// Ids with this bit belong to what no record names (temporary destinations, non-durable subscriptions) and live as long
/// as the process.
pub const UNLOGGED_ID: u64 = 1 << 62;

/// `$sys.undelivered`, which is always there.
pub const UNDELIVERED: DestinationId = DestinationId(1);

/// Stands for what several sources hold together, to whoever looks at that: no source has this number.
pub const VIEWED: SourceId = SourceId(2);

/// The first number that the catalogue gives out; those below are for system destinations.
pub const FIRST_ID: u64 = 16;

/// Whether a destination hands each message to one consumer or to every subscription.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Each message for one consumer.
    Queue,
    /// Each message for every subscription.
    Topic,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Queue => "queue",
            Self::Topic => "topic",
        })
    }
}

/// The time as the host's clocks have it. The wall clock dates messages and bridges restarts; the monotonic one times
/// everything that happens while the process runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// Milliseconds since 1970.
    pub wall_ms: u64,
    /// Milliseconds of a clock that never jumps.
    pub monotonic_ms: u64,
}

/// A local transaction as its owner knows it: numbers are the client's, unique in its session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tx {
    /// The engine's key of the session.
    pub owner: u64,
    /// The client's number, not 0.
    pub number: u64,
}

/// The global name of a prepared transaction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Xid {
    /// What kind of identifier it is; the broker does not look at it.
    pub format: i32,
    /// The transaction's global part, 64 bytes at most.
    pub global: Vec<u8>,
    /// The branch, 64 bytes at most.
    pub branch: Vec<u8>,
}

/// Numbers that are unique over all starts of a store because each epoch begins its own: a counter below, the epoch above
/// it. None when either has no room left: the next one would be another epoch's, given a second time.
#[must_use]
pub const fn within_epoch(epoch: u64, counter: u64, counter_bits: u32) -> Option<u64> {
    if epoch >> (u64::BITS - counter_bits) != 0 || counter >> counter_bits != 0 {
        return None;
    }
    Some(epoch << counter_bits | counter)
}

/// Epochs that such numbers have room for.
pub const EPOCH_END: u64 = 1 << 32;

/// The longest part of an [`Xid`].
pub const XID_PART_BYTES_MAX: usize = 64;
