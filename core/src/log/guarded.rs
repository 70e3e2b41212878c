//! The layer over every disk that lets no failed sync or write be forgotten, and says which errors can pass.
//!
//! Linux reports that data could not be written back once for each open file description (`errseq_t`, since 4.13; before
//! that to one of them), and drops the data: the next sync of the same description succeeds. So every job that syncs has
//! a description of its own ([`super::segments::Segment::filler`]), and here a failure sticks to the file, whoever met it:
//! from then on each sync of it fails, also one that was on its way. Sources: `fsync(2)`, the kernel's
//! `Documentation/filesystems/vfs.rst` ("Handling errors during writeback"), `mm/filemap.c: file_check_and_advance_wb_err`.
//!
//! What the system lacks for the moment (space, descriptors, memory) is told by a call that did nothing, and can be tried
//! again. A sync is not such a call: whatever its error, data may be lost, so its error never counts as passing.

use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;

use super::disk::{Disk, DiskError, DiskFile, DiskLock, OpenFile, passes};

/// See the module's documentation.
pub(crate) struct GuardedDisk {
    disk: Arc<dyn Disk>,
    /// Of the files that were opened for writing and still exist, by their present names.
    files: Mutex<FxHashMap<String, Arc<Health>>>,
    /// Of the folder's names.
    folder: Health,
}

/// What went wrong with a file, once something has.
#[derive(Default)]
struct Health {
    failed: OnceLock<String>,
}

impl Health {
    fn check(&self) -> io::Result<()> {
        match self.failed.get() {
            // Not the system's error again: whatever its number says, it is final.
            Some(why) => Err(io::Error::other(why.clone())),
            None => Ok(()),
        }
    }

    fn fail(&self, error: &io::Error) -> io::Error {
        io::Error::other(self.failed.get_or_init(|| error.to_string()).clone())
    }

    fn note_write<T>(&self, result: io::Result<T>) -> io::Result<T> {
        match result {
            Err(error) if error.kind() != io::ErrorKind::Interrupted && !passes(&error) => Err(self.fail(&error)),
            result => result,
        }
    }

    fn note_sync(&self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) => Err(self.fail(&error)),
            // Another job may have failed while this one was on its way.
            Ok(()) => self.check(),
        }
    }
}

impl GuardedDisk {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            files: Mutex::default(),
            folder: Health::default(),
        }
    }

    fn files(&self) -> MutexGuard<'_, FxHashMap<String, Arc<Health>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for GuardedDisk {
    fn open(&self, name: &str, how: OpenFile) -> Result<Arc<dyn DiskFile>, DiskError> {
        let file = self.disk.open(name, how)?;
        if how == OpenFile::ReadOnly {
            return Ok(file);
        }
        let health = self.files().entry(name.to_owned()).or_default().clone();
        Ok(Arc::new(GuardedFile { file, health }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)?;
        let mut files = self.files();
        match files.remove(from) {
            Some(health) => files.insert(to.to_owned(), health),
            None => files.remove(to),
        };
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.disk.remove(name)?;
        self.files().remove(name);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.disk.list()
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        let wrap = |source| DiskError::new("sync", "folder", source);
        self.folder.check().map_err(wrap)?;
        let DiskError {
            operation,
            file,
            source,
        } = match self.disk.sync_directory() {
            Ok(()) => return self.folder.check().map_err(wrap),
            Err(error) => error,
        };
        Err(DiskError::new(operation, &file, self.folder.fail(&source)))
    }

    fn free_bytes(&self) -> Option<u64> {
        self.disk.free_bytes()
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        self.disk.lock(name)
    }
}

struct GuardedFile {
    file: Arc<dyn DiskFile>,
    health: Arc<Health>,
}

impl DiskFile for GuardedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.health.note_write(self.file.write_at(offset, parts))
    }

    fn zero_at(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.health.note_write(self.file.zero_at(offset, bytes))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.health.check()?;
        self.health.note_sync(self.file.sync_data())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.health.note_write(self.file.allocate(bytes))
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        self.file.will_need(offset, bytes);
    }

    fn wont_need(&self, offset: u64, bytes: u64) {
        self.file.wont_need(offset, bytes);
    }
}
