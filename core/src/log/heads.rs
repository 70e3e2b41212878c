//! The heads of the records of one segment, in order, for whoever needs no payloads: audits.
//!
//! A sealed segment has them in its footer, one that is still written in memory. So nobody who wants heads reads messages.

use std::sync::Arc;

use super::disk::Disk;
use super::error::LogError;
use super::footer::{Footer, Index};
use super::position::Position;
use super::record::{KIND_EPOCH, KIND_USER_MIN};
use super::running::Log;
use super::segment_header::footer_name;

/// What came of looking for heads.
pub enum Sought {
    /// These are to be read.
    Here(HeadsRequest),
    /// Their segment is being sealed: they can be asked for again when that piece of upkeep is done.
    Later,
    /// No record lies there.
    Nowhere,
}

impl Sought {
    /// What is to be read now, if anything is.
    #[must_use]
    pub fn here(self) -> Option<HeadsRequest> {
        match self {
            Self::Here(request) => Some(request),
            Self::Later | Self::Nowhere => None,
        }
    }
}

/// A request for heads, to be run on any thread.
pub struct HeadsRequest {
    /// Where the first of them lies at the earliest.
    pub from: Position,
    /// Below this.
    pub to: Position,
    base: Position,
    source: Source,
}

enum Source {
    /// A footer.
    Sealed {
        disk: Arc<dyn Disk>,
        store_id: [u8; 16],
        id: u64,
        footer_crc: u32,
    },
    /// A copy of what is in memory.
    Memory(Index),
}

/// Heads of one segment, read one after the other.
pub struct Heads {
    index: Index,
    base: Position,
    from: Position,
    to: Position,
    at: usize,
}

/// A record without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head<'a> {
    /// Where it is.
    pub position: Position,
    /// The epoch it was appended in.
    pub epoch: u64,
    /// Its kind; `None`: the log's own word that its epoch begins.
    pub kind: Option<u8>,
    /// Its head.
    pub head: &'a [u8],
    /// How long its payload is.
    pub payload_length: u32,
}

impl Log {
    /// The heads from `from` on, up to `to` or to where their segment ends. What lies at or above [`Log::settled`] is the
    /// caller's not to ask for. Of a rewritten segment there is only what was kept.
    #[must_use]
    pub fn heads(&self, from: Position, to: Position) -> Sought {
        let found = self.segments.first_after(from);
        let Some(segment) = found.filter(|segment| from < to && segment.base < to) else {
            return Sought::Nowhere;
        };
        if self.upkeep.is_sealing(segment.id) {
            return Sought::Later;
        }
        let source = if segment.sealed {
            Source::Sealed {
                disk: self.disk.clone(),
                store_id: self.store_id,
                id: segment.id,
                footer_crc: segment.footer_crc,
            }
        } else {
            Source::Memory(segment.index.from(segment.base, from))
        };
        Sought::Here(HeadsRequest {
            from,
            to: to.min(segment.end),
            base: segment.base,
            source,
        })
    }

    /// Where the oldest sealed segment ends that reaches above a position, if all of it is settled.
    #[must_use]
    pub fn sealed_after(&self, position: Position) -> Option<Position> {
        let segment = self.segments.first_after(position)?;
        (segment.sealed && segment.end <= self.settled()).then_some(segment.end)
    }
}

impl HeadsRequest {
    /// Reads them.
    ///
    /// # Errors
    /// The disk's; [`LogError::Damaged`] when the footer is not there or does not verify.
    pub fn run(self) -> Result<Heads, LogError> {
        let index = match self.source {
            Source::Memory(index) => index,
            Source::Sealed {
                disk,
                store_id,
                id,
                footer_crc,
            } => match Footer::read(disk.as_ref(), store_id, id, footer_crc)? {
                Some(footer) => footer.index,
                None => {
                    return Err(LogError::Damaged {
                        file: footer_name(id),
                        offset: 0,
                        position: self.base,
                        why: "the footer cannot be read, or does not verify".to_owned(),
                    });
                }
            },
        };
        Ok(Heads {
            index,
            base: self.base,
            from: self.from,
            to: self.to,
            at: 0,
        })
    }
}

impl Heads {
    /// Below this they are all of what lies there.
    #[must_use]
    pub const fn end(&self) -> Position {
        self.to
    }

    /// The next one.
    pub fn next_head(&mut self) -> Option<Head<'_>> {
        // Looked for first and read again then: what was passed over may not be lent out in a loop.
        let mut found = None;
        while let Some((entry, next)) = self.index.entry_at(self.base, self.at) {
            if entry.position >= self.to {
                break;
            }
            let at = std::mem::replace(&mut self.at, next);
            if entry.position >= self.from && (entry.kind >= KIND_USER_MIN || entry.kind == KIND_EPOCH) {
                found = Some(at);
                break;
            }
        }
        let (entry, _) = self.index.entry_at(self.base, found?)?;
        Some(Head {
            position: entry.position,
            epoch: entry.epoch,
            kind: (entry.kind >= KIND_USER_MIN).then_some(entry.kind),
            head: entry.head,
            payload_length: entry.payload_length,
        })
    }
}
