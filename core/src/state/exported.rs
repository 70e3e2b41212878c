//! How far snapshots were exported: the chain of a store's cuts, as the log has it.
//!
//! The broker gives each cut its number and the hash of the manifest before it. That an exporter has all of a cut is a record,
//! so that two exporters cannot both go on from one cut, and nothing that waits to be exported goes sooner.

use crate::log::{Position, Purpose};

use super::catalogue_record::kinds;
use super::codec::{Decoder, HeadError, put_byte, put_bytes, put_number};
use super::error::StateError;
use super::facade::State;

const VERSION: u8 = 1;
/// Bytes of a manifest's SHA-256.
pub const MANIFEST_HASH_BYTES: usize = 32;

/// The last cut that was exported whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exported {
    /// Its number, from 1; 0: the chain is over, and nothing is kept for the next cut.
    pub number: u64,
    /// Its position: the next one's events begin there.
    pub position: Position,
    /// The SHA-256 of its manifest.
    pub manifest: [u8; MANIFEST_HASH_BYTES],
}

impl Exported {
    /// Appends the encoded head.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_byte(out, VERSION);
        self.encode_fields(out);
    }

    /// As in a record and in a checkpoint's item.
    pub(super) fn encode_fields(&self, out: &mut Vec<u8>) {
        put_number(out, self.number);
        put_number(out, self.position.0);
        put_bytes(out, &self.manifest);
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("export record", VERSION)?;
        let exported = Self::decode_fields(&mut decoder)?;
        decoder.end("export record")?;
        Ok(exported)
    }

    pub(super) fn decode_fields(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        Ok(Self {
            number: decoder.number("an exported cut")?,
            position: Position(decoder.number("an exported cut's position")?),
            manifest: decoder.array("an exported cut's manifest")?,
        })
    }
}

impl State {
    /// The last cut that was exported whole; none: there is no chain.
    #[must_use]
    pub fn exported(&self) -> Option<Exported> {
        self.tables.exported.filter(|exported| exported.number > 0)
    }

    /// Notes that a cut was exported whole (or, with the number 0, that the chain is over); says where the record is: before
    /// that is committed nothing may rest on it.
    ///
    /// # Errors
    /// The log takes no record.
    pub fn note_exported(&mut self, exported: Exported) -> Result<Position, StateError> {
        self.head_buffer.clear();
        exported.encode(&mut self.head_buffer);
        let position = self.append_event_for(kinds::EXPORTED, Purpose::Upkeep)?;
        self.tables.exported = Some(exported);
        Ok(position)
    }
}
