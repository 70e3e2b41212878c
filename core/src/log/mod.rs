//! The one durable log: records in one order, one writer, group commit, recovery, compaction. It knows nothing of queues.
//!
//! The state layer appends records (a kind, a head it will read at start, a payload it will read when somebody wants it)
//! and is told what is durable. The log has no thread and reads no clock: it hands out jobs ([`WriteJob`], [`ReadRequest`],
//! [`MaintenanceJob`]) that a host runs wherever it likes and hands back.
//!
//! Invariants
//! - A position, once given, means one record for ever, or nothing.
//! - What was reported durable is there after any crash, byte for byte, or the open says where it is damaged.
//! - A record's bytes are delivered only if their checksum over position, epoch, head and payload holds.
//! - After a failed write or sync nothing more is reported durable.
//! - A crash between any two disk operations of upkeep leaves the old files or the new ones in force, never both or none.
//!
//! The files are described in `docs/log-format.md`. Smallest first: [`position`], [`record`], [`commit`], [`scan`];
//! [`disk`] is the seam to the file system; [`slots`], [`watermark`], [`manifest`], [`footer`], [`segment_header`] are the
//! other durable pieces; [`tail`], [`writing`], [`cache`], [`reading`], [`segments`] are the running log; [`opening`] and
//! [`recovery`] bring it up; [`growing`], [`maintenance`] and [`compaction`] keep it small; [`shipping`] copies it.

mod appending;
mod cache;
mod chunk;
mod commit;
mod compaction;
mod damage;
pub mod disk;
mod error;
pub mod file_disk;
mod filling;
mod footer;
mod growing;
mod guarded;
mod heads;
mod liveness;
mod losses;
mod maintenance;
mod manifest;
mod opening;
mod options;
mod position;
mod reading;
mod record;
mod recovery;
mod reserve;
mod rewriting;
mod running;
mod salvage;
mod scan;
mod scrubbing;
mod segment_header;
mod segments;
mod shipping;
mod slots;
mod steps;
mod tail;
mod watermark;
mod writing;

pub use cache::Record;
pub use chunk::LogChunk;
pub use compaction::{KeepAll, Presence, Rewritable, Rewrite, Rewriter};
pub use damage::DamagedPlace;
pub use error::{AppendError, LogError};
pub use file_disk::FileDisk;
pub use heads::{Head, Heads, HeadsRequest, Sought};
pub use liveness::LostReader;
pub use maintenance::{MaintenanceDone, MaintenanceJob};
pub use options::{OpenMode, Options};
pub use position::{BLOCK_BYTES, Position};
pub use reading::{Read, ReadDone, ReadRequest};
pub use record::{HEADER_BYTES, KIND_USER_MIN};
pub use recovery::{Dropped, Recovered, RecoveryReport, Renamed};
pub use reserve::Purpose;
pub use running::{Log, RollingHash, Space};
pub use shipping::ShipRequest;
pub use writing::{WriteDone, WriteJob};

#[cfg(test)]
mod tests;
