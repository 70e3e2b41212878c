//! A stretch of the log as it travels: commit records and records one after another, with or without gaps.
//!
//! Made by [`super::Log::read_log`], taken in by [`super::Log::append_log`], and read by a standby that applies the log
//! as it comes. Nothing in it is believed before its checksums were verified.

use bytes::Bytes;

use super::cache::{Record, cut};
use super::commit::COMMIT_BYTES;
use super::error::LogError;
use super::position::{BLOCK_BYTES, Position};
use super::record::{self, KIND_SKIP, KIND_USER_MIN, RecordHeader, u64_at};
use super::scan;
use super::tail::Part;

const FIXED_BYTES: usize = 24;

/// A stretch of the log on its way to another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogChunk {
    /// Where it begins: what the receiver asked for.
    pub from: Position,
    /// Where the next chunk begins.
    pub to: Position,
    /// The sender's rolling hash at `to`.
    pub hash_after: u64,
    /// Commit records and records, one after another.
    pub(crate) bytes: Bytes,
}

impl LogChunk {
    /// As bytes for a wire.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.bytes.len());
        bytes.extend_from_slice(&self.from.0.to_le_bytes());
        bytes.extend_from_slice(&self.to.0.to_le_bytes());
        bytes.extend_from_slice(&self.hash_after.to_le_bytes());
        bytes.extend_from_slice(&self.bytes);
        bytes
    }

    /// From a wire.
    ///
    /// # Errors
    /// [`LogError::Chunk`] when it is no chunk; its records are checked when they are used.
    pub fn decode(bytes: &Bytes) -> Result<Self, LogError> {
        if bytes.len() < FIXED_BYTES {
            return Err(LogError::Chunk("cut short".to_owned()));
        }
        let (from, to) = (Position(u64_at(bytes, 0)), Position(u64_at(bytes, 8)));
        if from > to || from.0 % BLOCK_BYTES != 0 || to.0 % BLOCK_BYTES != 0 {
            return Err(LogError::Chunk(format!(
                "from {from} to {to} is no stretch of whole blocks"
            )));
        }
        Ok(Self {
            from,
            to,
            hash_after: u64_at(bytes, 16),
            bytes: bytes.slice(FIXED_BYTES..),
        })
    }

    /// The state layer's records in it, verified one by one.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, LogError>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.bytes.len() {
                let header = match self.verify_at(at) {
                    Ok(header) => header,
                    Err(error) => {
                        at = self.bytes.len();
                        return Some(Err(error));
                    }
                };
                let from = at;
                at += header.stored() as usize;
                if header.kind >= KIND_USER_MIN {
                    return cut(&self.bytes, from, header.position).map(Ok);
                }
            }
            None
        })
    }

    pub(crate) fn verify_at(&self, at: usize) -> Result<RecordHeader, LogError> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let refuse = |why: &str| LogError::Chunk(format!("byte {at}: {why}"));
        let header = RecordHeader::decode(rest, u64::MAX).map_err(refuse)?;
        if header.stored() > rest.len() as u64 || header.position < self.from || header.position >= self.to {
            return Err(refuse("record out of place"));
        }
        record::verify(rest, header.position, u64::MAX).map_err(refuse)
    }
}

/// Puts records at their places behind a commit record: parts that mirror position space, with skips over the gaps.
pub(crate) fn lay_out(bytes: &Bytes, start: Position, epoch: u64, used: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut end = start.plus(COMMIT_BYTES as u64);
    // Where the run that is not yet a part begins in `bytes`.
    let (mut run, mut at) = (0, 0);
    let mut run_start = end;
    for stored in scan::records(bytes, false) {
        let position = stored.header.position;
        if position > end {
            if at > run {
                parts.push(Part {
                    start: run_start,
                    bytes: bytes.slice(run..at),
                });
            }
            let skip = record::encode_skip(end, epoch, (position.0 - end.0) as u32);
            parts.push(Part {
                start: end,
                bytes: Bytes::copy_from_slice(&skip),
            });
            (run, run_start) = (at, position);
        }
        at += stored.header.stored() as usize;
        end = position.plus(stored.header.span());
        if stored.header.kind == KIND_SKIP {
            parts.push(Part {
                start: run_start,
                bytes: bytes.slice(run..at),
            });
            (run, run_start) = (at, end);
        }
    }
    if at > run {
        parts.push(Part {
            start: run_start,
            bytes: bytes.slice(run..at),
        });
    }
    let used_end = start.plus(used);
    if end < used_end {
        let skip = record::encode_skip(end, epoch, (used_end.0 - end.0) as u32);
        parts.push(Part {
            start: end,
            bytes: Bytes::copy_from_slice(&skip),
        });
    }
    parts
}
