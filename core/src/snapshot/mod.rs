//! What audits read: cuts of the store's state, and the events between them. `docs/audits/schema.md` describes the rows.
//!
//! [`tables`] are the rows and how they become Arrow; [`pieces`] the files in which they wait to be exported;
//! [`distiller`] makes events of the log's records, and [`distilling`] is that as a job; [`cutting`] writes down what there
//! is at one position; [`keeper`] says which of it is due, and claims the log for as long as it needs it
//! (`making`: its part in a cut; `giving_way`: what goes before it is exported; [`gaps`]: what no event tells of).
//!
//! Invariants
//! - Events are a pure function of the log's records: two copies of a log make the same rows in the same order.
//! - A file is valid only as a whole, and nothing of the log is given up before what replaces it is durable.
//! - A cut says what existed at its position, whatever happened while it was written down.
//! - None of this ever keeps the log from taking messages: it gives way, and says what is missing.

pub mod cutting;
pub mod distiller;
pub mod distilling;
pub mod error;
pub mod gaps;
mod giving_way;
pub mod keeper;
mod making;
pub mod pieces;
pub mod tables;
