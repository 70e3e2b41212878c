//! What the log's records mean: destinations, subscriptions, the messages that wait, transactions, producers.
//!
//! The engine calls one [`State`]. It has no thread, reads no clock and does no I/O of its own: the host runs the jobs that
//! it hands out. Its tables are a pure function of the log's records: what happens live, at recovery and on a standby goes
//! through the same `apply`, and whatever had to be decided (which subscriptions, which limit, that it expired) is in the
//! records, never computed again. The records are described in `docs/records.md`.
//!
//! Smallest first: [`ids`], `codec`; the record heads `message_record`, `terminal_record`, `catalogue_record`,
//! `checkpoint_record`, all of them in `records`; `queue`
//! (entries), `source`, `timers`, `producers`, `refusals`, `names`, `starts`, `volatile` with `spill`; `properties`, `bridge`, `catalogue`, `destroyed`; `transaction`;
//! `tables` with `apply`, `deciding`, `checkpoint`, `rewriting`; and the `facade` with `publishing`, `ending`, `dispatching`,
//! `acknowledging`, `transacting`, `due_at_commit`, `due`, `administration`, `looking`, `browsing`, `returning`, `upkeep`, `recovered`, `dump`.
//!
//! Invariants
//! - A reference is logged before anybody is told of it, and delivered only when its record is committed.
//! - Nothing at or above a source's durable redelivery watermark is delivered, so a restart flags all that was.
//! - A record that ends references stays for as long as what it ends is on disk.
//! - A refused message leaves no trace, and a transaction is all or nothing.

mod acknowledging;
mod administration;
mod apply;
mod asking;
mod bridge;
mod browsing;
mod catalogue;
mod catalogue_record;
mod checkpoint;
mod checkpoint_record;
mod codec;
mod cut;
mod deciding;
mod deleting;
mod destroyed;
mod dispatching;
mod due;
mod due_at_commit;
mod dump;
mod ending;
mod error;
mod exported;
mod facade;
pub mod heads;
pub mod ids;
mod knowing;
mod looking;
mod message_record;
mod names;
mod note;
mod planted;
mod producers;
mod properties;
mod publishing;
mod queue;
pub mod ranges;
mod records;
mod recovered;
mod refusals;
mod returning;
mod rewriting;
mod room;
mod selecting;
mod shipping;
mod source;
mod spill;
mod starts;
mod tables;
mod terminal_record;
mod timers;
mod transacting;
mod transaction;
mod upkeep;
mod volatile;
mod witness;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;

pub use acknowledging::Acknowledged;
pub use administration::{Subscribed, SubscriptionDefinition};
pub use bridge::{Bridge, BridgeTarget};
pub use browsing::{BrowseCursor, BrowseNext, RETURNING_NAME, View, Viewed};
pub use catalogue::{Catalogue, Destination, Subscription, UNDELIVERED_NAME, Unwanted};
pub use catalogue_record::Origin;
pub use codec::HeadError;
pub use cut::{CutBegun, CutRow, CutTransaction, Standing, Walked};
pub use destroyed::{DELETED, Destroyed, Lost};
pub use dispatching::{Browsed, Delivered, Next, Payload, Released, StoredMessage};
pub use error::{PublishError, StateError};
pub use exported::{Exported, MANIFEST_HASH_BYTES};
pub use facade::{State, StateOptions, Totals};
pub use ids::{DestinationId, Kind, Now, SourceId, Tx, UNDELIVERED, VIEWED, XID_PART_BYTES_MAX, Xid};
pub use message_record::{MessageCopy, MessageHead, Reference};
pub use names::{NameError, Named, PRODUCER_NAME_CHARS_MAX};
pub use note::{Loss, Note, Told};
pub use producers::ProducerKnowledge;
pub use properties::{OverflowPolicy, Properties, Store, StoreDefinition, StoreIndex, Stores};
pub use publishing::{Accepted, Durability, Incoming};
#[cfg(test)]
pub use queue::LOOKED_AT;
pub use selecting::message_id_prefix;
pub use source::{Cursor, Moved, Source, SourceStatistics, Watermark};
pub use spill::{SpillRead, SpillReadDone, SpillWork, SpillWorkDone};
pub use starts::{SECRET_BYTES, Start, TOKEN_BYTES};
pub use terminal_record::Reason;
pub use transacting::Committed;
pub use upkeep::{ReadJob, ReadJobDone, UpkeepDone, UpkeepJob};
pub use witness::Counted;
