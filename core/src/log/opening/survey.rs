//! What the segments themselves say of the log: for a forced start whose manifest is missing, unreadable, or an older one.
//!
//! Each segment's header says where it begins and what came before it, a footer or a compacted file's header where it ends.
//! So all of a manifest can be computed but one thing: whether a file is missing between two others, or was retired.

use std::collections::BTreeMap;

use crate::log::commit::{COMMIT_BYTES, CommitHead};
use crate::log::disk::{Disk, DiskError, OpenFile, read_places};
use crate::log::error::LogError;
use crate::log::footer::Footer;
use crate::log::manifest::{Entry, Manifest};
use crate::log::position::{BLOCK_BYTES, Position};
use crate::log::recovery;
use crate::log::scan::Cursor;
use crate::log::segment_header::{DATA_OFFSET, SegmentHeader, parse_name, segment_name};

/// What one segment file says of itself.
struct Witness {
    header: SegmentHeader,
    entry: Entry,
    /// The log's state at its end, where it is sealed.
    after: Option<Cursor>,
}

/// A manifest that fits the files.
pub(super) struct Survey {
    pub manifest: Manifest,
    /// Something in it was computed.
    pub changed: bool,
    /// Files that hold something, of which it cannot be said what.
    pub strange: Vec<String>,
    /// Stretches of which it cannot be told whether something is missing: between segments, where others were retired or
    /// are lost, and rewritten segments whose length nothing tells.
    pub gaps: Vec<(Position, Position)>,
}

/// What the beginning of a file says.
pub(super) enum Beginning {
    /// Nothing was ever written, or only in a former life under another number.
    Unused,
    Segment(SegmentHeader),
    /// Something is there, and the header does not verify.
    Strange,
}

/// Looks at a segment file's header and at the block behind it.
pub(super) fn beginning(disk: &dyn Disk, name: &str, id: u64) -> Result<Beginning, DiskError> {
    let mut blocks = vec![0; 2 * BLOCK_BYTES as usize];
    let file = disk.open(name, OpenFile::ReadOnly)?;
    let (count, _) = read_places(file.as_ref(), 0, &mut blocks).map_err(|error| DiskError::new("read", name, error))?;
    let blocks = &blocks[..count];
    Ok(match SegmentHeader::decode_raw(blocks) {
        Some(header) if header.id == id => Beginning::Segment(header),
        Some(_) => Beginning::Unused,
        None if blocks.iter().all(|&byte| byte == 0) => Beginning::Unused,
        None => Beginning::Strange,
    })
}

/// What can be told of where a segment that is listed as unsealed begins.
enum Begun {
    Nowhere,
    /// Nothing tells where: its header, its commits and its footer are lost.
    Somewhere,
    /// By its header or, where that is lost, as its footer or its commits tell.
    At(SegmentHeader),
}

impl Begun {
    /// What a file held in a former life lies below `from`, where all ends that is listed as sealed.
    fn of(disk: &dyn Disk, entry: &Entry, store_id: [u8; 16], from: Position) -> Result<Self, DiskError> {
        let name = segment_name(entry.id);
        let without = match beginning(disk, &name, entry.id)? {
            Beginning::Segment(header) if header.store_id == store_id => return Ok(Self::At(header)),
            Beginning::Segment(_) => return Ok(Self::Nowhere),
            Beginning::Unused => Self::Nowhere,
            Beginning::Strange => Self::Somewhere,
        };
        let lost = |base, hash_before| SegmentHeader {
            store_id,
            id: entry.id,
            base,
            previous_end: base,
            epoch: 0,
            hash_before,
            end: Position::ZERO,
            hash_after: 0,
            epoch_after: 0,
            compacted: false,
        };
        let footer = Footer::read_any(disk, store_id, entry.id)?.filter(|footer| footer.base >= from);
        if let Some(footer) = footer {
            return Ok(Self::At(lost(footer.base, footer.hash_before)));
        }
        let file = disk.open(&name, OpenFile::ReadOnly)?;
        let Some((base, _)) = recovery::find_base(file.as_ref(), &name, u64::from(entry.file_bytes), from)? else {
            return Ok(without);
        };
        let mut first = [0; COMMIT_BYTES];
        read_places(file.as_ref(), DATA_OFFSET, &mut first).map_err(|error| DiskError::new("read", &name, error))?;
        let hash_before = CommitHead::verify(&first, base, u64::MAX).map_or(0, |(_, commit)| commit.hash_before);
        Ok(Self::At(lost(base, hash_before)))
    }
}

/// Completes a manifest by the files that it cannot know, or makes one.
pub(super) fn survey(
    disk: &dyn Disk,
    known: Option<&Manifest>,
    store_id: Option<[u8; 16]>,
) -> Result<Survey, LogError> {
    let names = disk.list()?;
    let exists = |id: u64| names.binary_search(&segment_name(id)).is_ok();
    let newer = known.map_or(0, |manifest| manifest.next_id);
    let mut found: Vec<(String, SegmentHeader)> = Vec::new();
    let mut strange = Vec::new();
    for name in &names {
        let Some((id, true)) = parse_name(name) else { continue };
        let lists = |known: &Manifest| known.entries.iter().any(|entry| entry.id == id);
        if known.is_some_and(lists) {
            continue;
        }
        match beginning(disk, name, id)? {
            // The number of a copy is given when its rewrite begins, and any manifest may be written before its end. One
            // whose old file is gone was in force; others are leftovers.
            Beginning::Segment(header) if id < newer => {
                let stands_for = |entry: &Entry| entry.sealed && entry.base == header.base && !exists(entry.id);
                if header.compacted && known.is_some_and(|known| known.entries.iter().any(stands_for)) {
                    found.push((name.clone(), header));
                }
            }
            _ if id < newer => {}
            Beginning::Unused => {}
            Beginning::Segment(header) => found.push((name.clone(), header)),
            Beginning::Strange => strange.push(name.clone()),
        }
    }
    let store_id = store_id.unwrap_or_else(|| most_common_store(&found));
    let mut witnesses = Vec::new();
    for (name, header) in found {
        if header.store_id == store_id {
            witnesses.push(Witness::of(disk, &name, header)?);
        } else {
            strange.push(name);
        }
    }
    // Of a rewritten segment and its copy the older file has everything.
    witnesses.sort_by_key(|witness| (witness.header.base, witness.header.id));
    witnesses.dedup_by_key(|witness| witness.header.base);
    let mut survey = Survey {
        manifest: known.cloned().unwrap_or(Manifest {
            store_id,
            ..Manifest::default()
        }),
        changed: known.is_none(),
        strange,
        gaps: Vec::new(),
    };
    match known {
        Some(_) => survey.complete(disk, witnesses, exists)?,
        None => survey.make(disk, witnesses)?,
    }
    Ok(survey)
}

fn most_common_store(found: &[(String, SegmentHeader)]) -> [u8; 16] {
    let mut counts: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for (_, header) in found {
        *counts.entry(header.store_id).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|(_, count)| *count)
        .map_or([0; 16], |(store, _)| store)
}

impl Witness {
    fn of(disk: &dyn Disk, name: &str, header: SegmentHeader) -> Result<Self, LogError> {
        let length = disk
            .open(name, OpenFile::ReadOnly)?
            .length()
            .map_err(|error| DiskError::new("length of", name, error))?;
        let mut entry = Entry {
            id: header.id,
            file_bytes: u32::try_from(length).unwrap_or(u32::MAX),
            ..Entry::default()
        };
        let footer = Footer::read_any(disk, header.store_id, header.id)?.filter(|footer| footer.base == header.base);
        let mut after = None;
        if let Some(footer) = footer.filter(|footer| !header.compacted || footer.end == header.end) {
            entry.footer_crc = footer.encode().1;
            after = Some(Cursor {
                position: footer.end,
                epoch: footer.epoch,
                hash: footer.hash_after,
            });
        } else if header.compacted {
            after = Some(Cursor {
                position: header.end,
                epoch: header.epoch_after,
                hash: header.hash_after,
            });
        }
        let mut witness = Self { header, entry, after };
        witness.seal(header.compacted);
        Ok(witness)
    }

    /// A rewritten segment without its footer: the file may have been cut, and nothing would show it.
    fn doubt(&self) -> Option<(Position, Position)> {
        let doubtful = self.entry.compacted && self.entry.footer_crc == 0;
        doubtful.then_some((self.entry.base, self.entry.end))
    }

    fn seal(&mut self, compacted: bool) {
        if let Some(after) = self.after {
            let (base, end) = (self.header.base, after.position);
            self.entry = Entry {
                base,
                end,
                sealed: true,
                compacted,
                ..self.entry
            };
        }
    }

    /// The end of a segment as it was written, without a footer, that is followed by another.
    fn find_end(&mut self, disk: &dyn Disk, next: &SegmentHeader) -> Result<(), LogError> {
        let header = self.header;
        let name = segment_name(header.id);
        let file = disk.open(&name, OpenFile::ReadOnly)?;
        let room = u64::from(self.entry.file_bytes).saturating_sub(DATA_OFFSET);
        let limit = header.base.plus(room).min(next.base);
        let scanned = recovery::scan_written(file.as_ref(), &header, limit)?;
        let mut after = scanned.after;
        if next.previous_end > after.position && next.previous_end <= limit {
            // It reached further, so that the rest is damaged.
            after.position = next.previous_end;
        } else if scanned.stop.is_some() && recovery::look_behind(file.as_ref(), &header, after, limit)?.torn_bytes > 0
        {
            after.position = limit;
        }
        self.after = Some(after);
        self.seal(false);
        Ok(())
    }
}

impl Survey {
    /// Makes a manifest of nothing but the files.
    fn make(&mut self, disk: &dyn Disk, mut witnesses: Vec<Witness>) -> Result<(), LogError> {
        for index in 1..witnesses.len() {
            let next = witnesses[index].header;
            if witnesses[index - 1].after.is_none() {
                witnesses[index - 1].find_end(disk, &next)?;
            }
        }
        if let Some(first) = witnesses.first().filter(|first| first.header.base > Position::FIRST) {
            self.gaps.push((Position::FIRST, first.header.base));
        }
        for pair in witnesses.windows(2) {
            let end = pair[0].after.map_or(pair[0].header.base, |after| after.position);
            if end < pair[1].header.base {
                self.gaps.push((end, pair[1].header.base));
            }
        }
        self.gaps.extend(witnesses.iter().filter_map(Witness::doubt));
        let manifest = &mut self.manifest;
        manifest.entries = witnesses.iter().map(|witness| witness.entry).collect();
        let end = witnesses.last().map(|last| {
            last.after.unwrap_or(Cursor {
                position: last.header.previous_end,
                epoch: last.header.epoch,
                hash: last.header.hash_before,
            })
        });
        let end = end.unwrap_or(Cursor {
            position: Position::FIRST,
            epoch: 0,
            hash: 0,
        });
        (manifest.sealed_end, manifest.sealed_hash, manifest.sealed_epoch) = (end.position, end.hash, end.epoch);
        Ok(())
    }

    /// Adds to an older manifest what a newer one must have listed.
    fn complete(
        &mut self,
        disk: &dyn Disk,
        witnesses: Vec<Witness>,
        exists: impl Fn(u64) -> bool,
    ) -> Result<(), LogError> {
        let (store_id, from) = (self.manifest.store_id, self.manifest.sealed_end);
        let mut begun = BTreeMap::new();
        for entry in self
            .manifest
            .entries
            .iter()
            .filter(|entry| !entry.sealed && exists(entry.id))
        {
            begun.insert(entry.id, Begun::of(disk, entry, store_id, from)?);
        }
        for mut witness in witnesses {
            let base = witness.header.base;
            let entries = &mut self.manifest.entries;
            let listed = entries.iter().position(|entry| entry.sealed && entry.base == base);
            match listed {
                // The copy of a rewritten segment, whose old file is gone.
                Some(index) if witness.entry.sealed && !exists(entries[index].id) => {
                    entries[index] = witness.entry;
                    self.gaps.extend(witness.doubt());
                }
                Some(_) => continue,
                // A copy of what is listed as not sealed, or as nothing.
                None if witness.header.compacted => {
                    let overlaps = entries
                        .iter()
                        .any(|entry| entry.sealed && entry.base < witness.header.end && base < entry.end);
                    if overlaps || base < self.manifest.sealed_end {
                        continue;
                    }
                    if !seal_before(disk, entries, &witness.header, &begun)? {
                        continue;
                    }
                    // All that is sealed lies below it. What is not may be missing here, and stand anywhere.
                    let sealed = entries.iter().rposition(|entry| entry.sealed);
                    entries.insert(sealed.map_or(0, |last| last + 1), witness.entry);
                    self.gaps.extend(witness.doubt());
                }
                None => {
                    // Listed as unsealed, it is looked at record by record.
                    witness.after = None;
                    let (id, file_bytes) = (witness.entry.id, witness.entry.file_bytes);
                    let entry = Entry {
                        id,
                        file_bytes,
                        ..Entry::default()
                    };
                    // Behind what is sealed and the begun ones that come before it, in front of what is only prepared. What was
                    // begun, wherever, was so before what is not even listed.
                    let before = entries.iter().rposition(|entry| match begun.get(&entry.id) {
                        _ if entry.sealed => true,
                        Some(Begun::At(header)) => header.base < base,
                        Some(Begun::Somewhere) => true,
                        Some(Begun::Nowhere) | None => false,
                    });
                    let at = before.map_or(0, |last| last + 1);
                    begun.insert(id, Begun::At(witness.header));
                    entries.insert(at, entry);
                }
            }
            self.changed = true;
        }
        if self.changed {
            self.put_aside(&begun);
        }
        Ok(())
    }

    /// Where something is missing below what was added, it may be what a file held that does not say so any more: it is never
    /// taken for an unused one.
    fn put_aside(&mut self, begun: &BTreeMap<u64, Begun>) {
        let known = self.gaps.len();
        let mut at = self.manifest.sealed_end;
        for entry in self.manifest.entries.iter().filter(|entry| entry.sealed) {
            if at < entry.base {
                self.gaps.push((at, entry.base));
            }
            at = at.max(entry.end);
        }
        if self.gaps.len() == known {
            return;
        }
        let strange = &mut self.strange;
        self.manifest.entries.retain(|entry| {
            let somewhere = !entry.sealed && matches!(begun.get(&entry.id), Some(Begun::Somewhere));
            if somewhere {
                strange.push(segment_name(entry.id));
            }
            !somewhere
        });
    }
}

/// Lists as sealed what was begun before a rewritten segment: it was sealed before that was rewritten. Left unsealed, it
/// would be looked for behind the copy. False, and nothing is done, where the file that was rewritten is there: it has
/// everything, and of a copy it is not known whether it came into force.
fn seal_before(
    disk: &dyn Disk,
    entries: &mut [Entry],
    copy: &SegmentHeader,
    begun: &BTreeMap<u64, Begun>,
) -> Result<bool, LogError> {
    let mut before = Vec::new();
    for entry in entries.iter_mut().filter(|entry| !entry.sealed) {
        match begun.get(&entry.id) {
            Some(Begun::At(header)) if header.base == copy.base => return Ok(false),
            Some(Begun::At(header)) if header.base < copy.base => {
                let name = segment_name(entry.id);
                before.push((entry, Witness::of(disk, &name, *header)?));
            }
            _ => {}
        }
    }
    let mut next = *copy;
    for (entry, mut witness) in before.into_iter().rev() {
        if witness.after.is_none() {
            witness.find_end(disk, &next)?;
        }
        next = witness.header;
        *entry = witness.entry;
    }
    Ok(true)
}
