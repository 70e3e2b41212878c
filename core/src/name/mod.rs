//! Names of destinations, wildcard patterns, and the trie that finds the patterns a name matches.
//!
//! A name is elements separated by dots (`flights.JFK.UA`); a pattern may have `*` for exactly one element and end in `>`
//! for one or more. Whoever takes a name from outside parses it here once and passes the newtype on, so no other
//! module has to wonder whether a name is well-formed. Names carry no kind: a queue and a topic may share one.

mod destination;
mod elements;
mod error;
mod pattern;
mod trie;

pub use destination::{DestinationName, SYSTEM_PREFIX, TEMPORARY_PREFIX};
pub use elements::{ELEMENT_CHARACTERS_MAX, ELEMENTS_MAX, NAME_CHARACTERS_MAX, characters_max};
pub use error::NameError;
pub use pattern::{Pattern, TEMPORARY_SETTINGS};
pub use trie::Trie;
