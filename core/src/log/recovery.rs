//! What the files say at start: scanning the tail, and telling a torn tail from damage.
//!
//! A scan stops at the first commit that does not verify. That is the end of the log, unless something proves that bytes
//! from there on had been durable; then it is damage. The proofs: the watermark; a valid commit further on that was
//! written when they were durable already; a segment begun later, since that happens only after its predecessor's sync.
//!
//! What remains: after a power loss (not a killed process) the watermark may be a moment old. Damage to the very last
//! write job, with nothing written after it, then looks like a torn tail.

use std::collections::BTreeMap;

use super::commit::{COMMIT_BYTES, CommitHead};
use super::disk::{DiskError, DiskFile};
use super::error::LogError;
use super::footer::{Index, is_indexed};
use super::position::{BLOCK_BYTES, Position};
use super::record::{HEADER_BYTES, KIND_USER_MIN, RecordHeader};
use super::scan::{self, Cursor, Step, Window};
use super::segment_header::{DATA_OFFSET, SegmentHeader, segment_name};

/// One record as the visitor sees it at open. The payload is not read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recovered<'a> {
    /// Where it is.
    pub position: Position,
    /// The epoch it was appended in.
    pub epoch: u64,
    /// Its kind, as given to `append`.
    pub kind: u8,
    /// Its head.
    pub head: &'a [u8],
    /// How long its payload is.
    pub payload_length: u32,
}

/// Records that a forced start could not save, or a stretch in which it cannot tell whether there were any.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// The file it was in.
    pub file: String,
    /// Where in the file.
    pub offset: u64,
    /// Where in the log.
    pub position: Position,
    /// How long, in position space: nothing outside of it is meant.
    pub bytes: u64,
    /// How many records were lost there; `None`: that cannot be known.
    pub records: Option<u64>,
    /// What was wrong.
    pub why: String,
}

/// What a forced start keeps under a name of its own, since what named it is lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// The queue that has it now.
    pub name: String,
    /// How many messages.
    pub messages: u64,
}

/// What an open found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryReport {
    /// The log was made just now.
    pub created: bool,
    /// The last stop was a clean one.
    pub clean: bool,
    /// Segments that hold records.
    pub segments: u64,
    /// Sealed segments read by their footer.
    pub footers_read: u64,
    /// Sealed segments whose footer was missing or broken and was made again from the records.
    pub footers_rebuilt: u64,
    /// Records shown to the visitor.
    pub records: u64,
    /// Position space from the first segment to the end.
    pub bytes: u64,
    /// Bytes of group commits cut from the tail: they were never reported durable.
    pub torn_bytes_cut: u64,
    /// Neither copy of the watermark could be read, so that only the log itself told torn from damaged.
    pub watermark_lost: bool,
    /// A forced start computed the manifest, or a part of it, from the segments.
    pub manifest_computed: bool,
    /// What a forced start dropped.
    pub dropped: Vec<Dropped>,
    /// An earlier forced start did not come to its end: what it had to make durable may be missing.
    pub force_unfinished: bool,
    /// Nothing of this is lost but its names; told by the state layer.
    pub renamed: Vec<Renamed>,
    /// Where the log ends.
    pub end: Position,
    /// The epoch in force after the open.
    pub epoch: u64,
}

/// Where and why something cannot be read as what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Damage {
    pub file: String,
    pub offset: u64,
    pub position: Position,
    pub why: String,
}

impl From<Damage> for LogError {
    fn from(damage: Damage) -> Self {
        let Damage {
            file,
            offset,
            position,
            why,
        } = damage;
        LogError::Damaged {
            file,
            offset,
            position,
            why,
        }
    }
}

/// A segment, scanned as it was written.
pub(crate) struct Scanned {
    pub index: Index,
    /// Where the valid commits end.
    pub after: Cursor,
    /// What stopped the scan, if it was not the end of the segment.
    pub stop: Option<Damage>,
}

/// Verifies the commits of a segment from its base to the first that is not valid, or to `end`.
pub(crate) fn scan_written(file: &dyn DiskFile, header: &SegmentHeader, end: Position) -> Result<Scanned, DiskError> {
    let name = segment_name(header.id);
    let mut window = Window::new(file, &name, DATA_OFFSET + (end.0 - header.base.0));
    let mut after = Cursor {
        position: header.base,
        epoch: header.epoch,
        hash: header.hash_before,
    };
    let mut index = Index::default();
    loop {
        match scan::next_commit(&mut window, header.base, after)? {
            Step::Full => {
                return Ok(Scanned {
                    index,
                    after,
                    stop: None,
                });
            }
            Step::Broken { offset, position, why } => {
                let stop = Damage {
                    file: name.clone(),
                    offset,
                    position,
                    why: window.explain(why, offset),
                };
                return Ok(Scanned {
                    index,
                    after,
                    stop: Some(stop),
                });
            }
            Step::Commit(commit) => {
                for record in scan::records(commit.bytes, true) {
                    if is_indexed(record.header.kind, false) {
                        index.push(header.base, &record.header, record.head);
                    }
                }
                after = commit.after;
            }
        }
    }
}

/// Makes the index of a compacted segment again; the error is the first record that does not verify.
pub(crate) fn scan_compacted(
    file: &dyn DiskFile,
    header: &SegmentHeader,
    file_bytes: u64,
) -> Result<Result<Index, Damage>, DiskError> {
    let name = segment_name(header.id);
    let mut window = Window::new(file, &name, file_bytes);
    let (mut offset, mut from) = (DATA_OFFSET, header.base);
    let mut index = Index::default();
    while offset < file_bytes {
        match scan::next_stored(&mut window, offset, from, header.end)? {
            Ok((record, bytes)) => {
                if let Some(stored) = scan::records(bytes, false).next() {
                    index.push(header.base, &record, stored.head);
                }
                offset += record.stored();
                from = record.position.plus(1);
            }
            Err(why) => {
                return Ok(Err(Damage {
                    file: name.clone(),
                    offset,
                    position: from,
                    why: window.explain(why, offset),
                }));
            }
        }
    }
    Ok(Ok(index))
}

/// What lies behind the end of a scan in its segment.
pub(crate) struct Behind {
    /// Bytes of group commits that can be recognised there.
    pub torn_bytes: u64,
    /// Offset of a commit that proves the cut was durable.
    pub proof: Option<u64>,
}

/// Looks behind the end of the valid commits.
pub(crate) fn look_behind(
    file: &dyn DiskFile,
    header: &SegmentHeader,
    cut: Cursor,
    end: Position,
) -> Result<Behind, DiskError> {
    let name = segment_name(header.id);
    let limit = DATA_OFFSET + (end.0 - header.base.0);
    let mut window = Window::new(file, &name, limit);
    let mut behind = Behind {
        torn_bytes: 0,
        proof: None,
    };
    let mut offset = DATA_OFFSET + (cut.position.0 - header.base.0);
    while offset < limit {
        let position = header.base.plus(offset - DATA_OFFSET);
        let commit = CommitHead::verify(window.get(offset, COMMIT_BYTES)?, position, limit - offset);
        let mut step = BLOCK_BYTES;
        if let Ok((record, commit)) = commit
            && record.epoch >= cut.epoch
        {
            behind.torn_bytes += u64::from(commit.span);
            // Inside a commit's records there is no other commit.
            step = u64::from(commit.span);
            if commit.durable > cut.position && behind.proof.is_none() {
                behind.proof = Some(offset);
            }
        }
        offset += step;
    }
    Ok(behind)
}

/// Where a segment whose header is lost began, at `from` at the earliest: the first commit that verifies says so. Also the
/// highest position of which one of its commits says that it was durable.
pub(crate) fn find_base(
    file: &dyn DiskFile,
    name: &str,
    file_bytes: u64,
    from: Position,
) -> Result<Option<(Position, Position)>, DiskError> {
    let mut window = Window::new(file, name, file_bytes);
    let mut offset = DATA_OFFSET;
    let mut found: Option<(Position, Position)> = None;
    while offset < file_bytes {
        let bytes = window.get(offset, COMMIT_BYTES)?;
        if let Ok(header) = RecordHeader::decode(bytes, u64::MAX)
            && let Some(base) = header.position.0.checked_sub(offset - DATA_OFFSET).map(Position)
            && base >= from
            && found.is_none_or(|(known, _)| known == base)
            && let Ok((_, commit)) = CommitHead::verify(bytes, header.position, u64::MAX)
        {
            let durable = found.map_or(Position::ZERO, |(_, durable)| durable).max(commit.durable);
            found = Some((base, durable));
        }
        offset += BLOCK_BYTES;
    }
    Ok(found)
}

/// Records that the layer above could not read, in a forced start: where they are, how long, and why not.
pub(crate) type Unreadable = BTreeMap<Position, (u64, String)>;

/// What is reported of the unreadable records of one segment.
pub(crate) fn dropped_unreadable(unreadable: &Unreadable, file: &str, base: Position) -> Option<Dropped> {
    let (position, (_, why)) = unreadable.first_key_value()?;
    Some(Dropped {
        file: file.to_owned(),
        offset: DATA_OFFSET + (position.0 - base.0),
        position: *position,
        bytes: unreadable.values().map(|(bytes, _)| bytes).sum(),
        records: Some(unreadable.len() as u64),
        why: format!("what is stored there could not be read, the first of it: {why}"),
    })
}

/// Shows an index's records to the visitor. What it refuses ends the open, or is gathered in `unreadable` by a forced one.
pub(crate) fn visit(
    index: &Index,
    base: Position,
    report: &mut RecoveryReport,
    visitor: &mut dyn FnMut(Recovered<'_>) -> Result<(), String>,
    unreadable: Option<&mut Unreadable>,
) -> Result<(), LogError> {
    let mut unreadable = unreadable;
    for entry in index.entries(base).filter(|entry| entry.kind >= KIND_USER_MIN) {
        let super::footer::IndexEntry {
            position,
            epoch,
            kind,
            head,
            payload_length,
            ..
        } = entry;
        let shown = visitor(Recovered {
            position,
            epoch,
            kind,
            head,
            payload_length,
        });
        match (shown, &mut unreadable) {
            (Ok(()), _) => report.records += 1,
            (Err(why), Some(unreadable)) => {
                let bytes = HEADER_BYTES as u64 + head.len() as u64 + u64::from(payload_length);
                unreadable.insert(position, (bytes, why));
            }
            (Err(why), None) => return Err(LogError::Visitor { position, why }),
        }
    }
    Ok(())
}
