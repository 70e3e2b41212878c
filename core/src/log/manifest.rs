//! Which files make up the log, in order. Without it a lost file could not be told from a retired one.
//!
//! Kept in two files written in turn (see [`super::slots`]), each reserved ahead of need. Read once at open; replaced by
//! maintenance when a segment is prepared, sealed, compacted or retired. Rolling over to a prepared segment does not touch
//! it: the segment's own header says where it continues.
//!
//! Invariants
//! - Files are numbered; a number is never used twice, and every number in use is below `next_id`.
//! - A segment is listed before a commit is written to it, and its file goes only after a manifest without it is durable.
//! - Listed are first the sealed segments in order of position, then the unsealed ones in order of use.

use std::io::ErrorKind;
use std::sync::Arc;

use super::disk::{Disk, DiskError, DiskFile, OpenFile, passes};
use super::position::{Position, block_aligned};
use super::record::{u32_at, u64_at};
use super::slots::{self, Slot};

pub(crate) const MANIFEST_FILES: [&str; 2] = ["manifest-0", "manifest-1"];
const MAGIC: &[u8; 8] = b"STERNAMF";
const VERSION: u32 = 1;
const FIXED_BYTES: usize = 4 + 16 + 8 + 8 * 3 + 4;
const ENTRY_BYTES: usize = 8 * 4 + 4 * 3;
/// What each file reserves at first: room for some 1,400 segments.
const RESERVED_BYTES: u64 = 64 * 1024;
/// A ceiling on what is read into memory: a million segments.
const CONTENT_MAX: u64 = 64 * 1024 * 1024;

/// What the manifest says of one segment file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    pub id: u64,
    /// Zero for an unsealed segment.
    pub base: Position,
    /// Zero for an unsealed segment.
    pub end: Position,
    /// The end of the log when the rewrite that made this file began; zero for a file never compacted.
    pub rewritten_at: Position,
    /// The file's length.
    pub file_bytes: u32,
    /// Checksum of the footer, so that an older footer is not taken for this one.
    pub footer_crc: u32,
    pub sealed: bool,
    pub compacted: bool,
}

/// The whole of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Manifest {
    pub version: u64,
    pub store_id: [u8; 16],
    pub next_id: u64,
    /// Where the newest sealed segment ended, with the rolling hash and epoch there: kept also when it is retired.
    pub sealed_end: Position,
    pub sealed_hash: u64,
    pub sealed_epoch: u64,
    pub entries: Vec<Entry>,
}

impl Manifest {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.entries.len() * ENTRY_BYTES);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.store_id);
        for number in [self.next_id, self.sealed_end.0, self.sealed_hash, self.sealed_epoch] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            for number in [entry.id, entry.base.0, entry.end.0, entry.rewritten_at.0] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            let flags = u32::from(entry.sealed) | u32::from(entry.compacted) << 1;
            for number in [entry.file_bytes, entry.footer_crc, flags] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        bytes
    }

    fn decode(version: u64, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < FIXED_BYTES || u32_at(bytes, 0) != VERSION {
            return None;
        }
        let store_id = bytes[4..20].try_into().ok()?;
        let number = |index: usize| u64_at(bytes, 20 + index * 8);
        let rest = &bytes[FIXED_BYTES..];
        if rest.len() != u32_at(bytes, 52) as usize * ENTRY_BYTES {
            return None;
        }
        let entries = rest
            .chunks_exact(ENTRY_BYTES)
            .map(|entry| Entry {
                id: u64_at(entry, 0),
                base: Position(u64_at(entry, 8)),
                end: Position(u64_at(entry, 16)),
                rewritten_at: Position(u64_at(entry, 24)),
                file_bytes: u32_at(entry, 32),
                footer_crc: u32_at(entry, 36),
                sealed: u32_at(entry, 40) & 1 != 0,
                compacted: u32_at(entry, 40) & 2 != 0,
            })
            .collect();
        Some(Self {
            version,
            store_id,
            next_id: number(0),
            sealed_end: Position(number(1)),
            sealed_hash: number(2),
            sealed_epoch: number(3),
            entries,
        })
    }
}

/// What the two files hold.
pub(crate) struct Found {
    pub newest: Option<Manifest>,
    pub missing: usize,
    /// Files in which something is that is no manifest.
    pub unreadable: usize,
}

/// The two open files.
#[derive(Clone)]
pub(crate) struct ManifestFiles {
    files: [Arc<dyn DiskFile>; 2],
}

impl ManifestFiles {
    /// Makes both files and writes the first manifest, all durable.
    pub fn create(disk: &dyn Disk, first: &Manifest) -> Result<Self, DiskError> {
        let make = |name: &str| -> Result<Arc<dyn DiskFile>, DiskError> {
            let file = disk.open(name, OpenFile::Fresh)?;
            file.allocate(RESERVED_BYTES)
                .map_err(|error| DiskError::new("allocate", name, error))?;
            file.sync_data().map_err(|error| DiskError::new("sync", name, error))?;
            Ok(file)
        };
        let made = Self {
            files: [make(MANIFEST_FILES[0])?, make(MANIFEST_FILES[1])?],
        };
        disk.sync_directory()?;
        made.write(first)?;
        Ok(made)
    }

    /// Looks what there is, and changes nothing.
    pub fn find(disk: &dyn Disk) -> Result<Found, DiskError> {
        let mut found = Found {
            newest: None,
            missing: 0,
            unreadable: 0,
        };
        for name in MANIFEST_FILES {
            let file = match disk.open(name, OpenFile::ReadOnly) {
                Ok(file) => file,
                Err(error) if error.source.kind() == ErrorKind::NotFound => {
                    found.missing += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let slot = slots::read(file.as_ref(), 0, CONTENT_MAX, MAGIC)
                .map_err(|error| DiskError::new("read", name, error))?;
            let manifest = match slot {
                Slot::Empty => continue,
                Slot::Unreadable => None,
                Slot::Present { sequence, content } => Manifest::decode(sequence, &content),
            };
            match manifest {
                None => found.unreadable += 1,
                Some(known)
                    if found
                        .newest
                        .as_ref()
                        .is_none_or(|newest| newest.version < known.version) =>
                {
                    found.newest = Some(known);
                }
                Some(_) => {}
            }
        }
        Ok(found)
    }

    /// Opens both files; one that is missing is made, empty.
    pub fn open(disk: &dyn Disk) -> Result<Self, DiskError> {
        let open = |name: &str| match disk.open(name, OpenFile::Existing) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => disk.open(name, OpenFile::Fresh),
            result => result,
        };
        Ok(Self {
            files: [open(MANIFEST_FILES[0])?, open(MANIFEST_FILES[1])?],
        })
    }

    /// Writes a manifest over the older of the two and syncs it.
    ///
    /// # Errors
    /// The disk's; the other file still holds the previous manifest then. When what it lacked may pass, this one is in force
    /// on no account.
    pub fn write(&self, manifest: &Manifest) -> Result<(), DiskError> {
        let turn = (manifest.version % 2) as usize;
        let (file, name) = (&self.files[turn], MANIFEST_FILES[turn]);
        let bytes = slots::encode(MAGIC, manifest.version, &manifest.encode());
        let write = || {
            if bytes.len() as u64 > file.length()? {
                file.allocate(block_aligned(bytes.len() as u64 * 2))?;
            }
            match slots::write(file.as_ref(), 0, &bytes) {
                // The system took a part and lacked something for the rest. Where the rest was there already, the manifest
                // is in force all the same, and whoever took it for refused would remove what it lists.
                Err(error) if passes(&error) && slots::holds(file.as_ref(), &bytes)? => {}
                result => result?,
            }
            file.sync_data()
        };
        write().map_err(|error| DiskError::new("write", name, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::each_seed;
    use crate::sim::{Faults, SimDisk};

    #[test]
    fn a_manifest_whose_write_was_refused_half_way_is_not_in_force() {
        let refused = std::cell::Cell::new(0);
        each_seed(400, |seed| {
            let disk = SimDisk::new(seed);
            let at = |version| Manifest {
                version,
                entries: vec![Entry {
                    id: version,
                    file_bytes: 65536,
                    ..Entry::default()
                }],
                ..Manifest::default()
            };
            let files = ManifestFiles::create(&disk, &at(1)).unwrap();
            files.write(&at(2)).unwrap();
            disk.set_faults(Faults {
                short_write_one_in: 1,
                shortage_one_in: 3,
                ..Faults::default()
            });
            let written = files.write(&at(3));
            disk.set_faults(Faults::default());
            let newest = ManifestFiles::find(&disk).unwrap().newest.unwrap().version;
            match written {
                Ok(()) => assert_eq!(newest, 3),
                Err(error) => {
                    assert!(error.passes());
                    assert_eq!(newest, 2, "what it lists would be removed");
                    refused.set(refused.get() + 1);
                }
            }
        });
        assert!(refused.get() > 0 || std::env::var_os("SEEDS").is_some());
    }

    #[test]
    fn a_manifest_comes_back_as_it_was() {
        let entry = Entry {
            id: 7,
            base: Position(4096),
            end: Position(8192),
            sealed: true,
            ..Entry::default()
        };
        let other = Entry {
            id: 9,
            file_bytes: 65536,
            compacted: true,
            footer_crc: 5,
            ..Entry::default()
        };
        let manifest = Manifest {
            version: 3,
            next_id: 10,
            entries: vec![entry, other],
            ..Manifest::default()
        };
        assert_eq!(Manifest::decode(3, &manifest.encode()), Some(manifest.clone()));
        assert_eq!(Manifest::decode(3, &manifest.encode()[1..]), None);
        let empty = Manifest {
            entries: Vec::new(),
            ..manifest
        };
        assert_eq!(
            Manifest::decode(3, &empty.encode()),
            Some(empty),
            "of a log without a segment"
        );
    }
}
