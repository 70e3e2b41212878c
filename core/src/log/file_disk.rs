//! The real disk: a folder of the file system.
//!
//! The lock is `fcntl`'s open-file-description lock where the system has it (through `flock`), non-blocking, held until
//! the log is dropped or the process ends, however it ends (EMS-STORE-A12).

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, FlockOperation};

use super::disk::{Disk, DiskError, DiskFile, DiskLock, OpenFile};

/// A folder that holds one log.
pub struct FileDisk {
    folder: PathBuf,
}

impl FileDisk {
    /// Uses `folder`, making it when it is missing.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(folder: &Path) -> Result<Self, DiskError> {
        let name = folder.display().to_string();
        fs::create_dir_all(folder).map_err(|error| DiskError::new("create folder", &name, error))?;
        if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // The folder's own name must survive a power loss as surely as what is in it.
            File::open(parent)
                .and_then(|parent| parent.sync_all())
                .map_err(|error| DiskError::new("sync parent of", &name, error))?;
        }
        Ok(Self {
            folder: folder.to_owned(),
        })
    }
}

struct FolderLock {
    // Holding the file open holds the lock.
    _file: File,
}

impl DiskLock for FolderLock {}

struct RealFile {
    file: File,
}

impl Disk for FileDisk {
    fn open(&self, name: &str, how: OpenFile) -> Result<Arc<dyn DiskFile>, DiskError> {
        let mut options = OpenOptions::new();
        options.read(true);
        match how {
            OpenFile::ReadOnly => &mut options,
            OpenFile::Existing => options.write(true),
            OpenFile::Fresh => options.write(true).create(true).truncate(true),
        };
        let file = options
            .open(self.folder.join(name))
            .map_err(|error| DiskError::new("open", name, error))?;
        Ok(Arc::new(RealFile { file }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        fs::rename(self.folder.join(from), self.folder.join(to)).map_err(|error| DiskError::new("rename", from, error))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(DiskError::new("remove", name, error)),
            _ => Ok(()),
        }
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        let read = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.folder)? {
                if let Ok(name) = entry?.file_name().into_string() {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        read().map_err(|error| DiskError::new("list", &self.folder.display().to_string(), error))
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|error| DiskError::new("sync folder", &self.folder.display().to_string(), error))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        let take = || -> io::Result<File> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(self.folder.join(name))?;
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        };
        let file = take().map_err(|error| DiskError::new("lock", name, error))?;
        Ok(Box::new(FolderLock { _file: file }))
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::pwritev(&self.file, parts, offset)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            // Some file systems cannot reserve; there the zero-filling that follows finds out what room there is.
            Err(rustix::io::Errno::OPNOTSUPP) => self.file.set_len(bytes),
            Err(error) => Err(error.into()),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn will_need(&self, offset: u64, bytes: u64) {
        // A hint that fails costs nothing but speed.
        let _ = rustix::fs::fadvise(&self.file, offset, std::num::NonZeroU64::new(bytes), Advice::WillNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: EMS-STORE-A12
    #[test]
    fn a_second_holder_of_the_lock_is_refused_at_once_and_a_later_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let first = FileDisk::new(folder.path()).unwrap();
        let second = FileDisk::new(folder.path()).unwrap();
        let held = first.lock("lock").unwrap();
        let refused = second.lock("lock").err().unwrap();
        assert_eq!(refused.source.kind(), io::ErrorKind::WouldBlock);
        drop(held);
        second.lock("lock").unwrap();
    }

    #[test]
    fn what_is_written_in_parts_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::new(&folder.path().join("deep/er")).unwrap();
        let file = disk.open("a", OpenFile::Fresh).unwrap();
        file.allocate(8192).unwrap();
        assert_eq!(file.length().unwrap(), 8192);
        let mut parts = [IoSlice::new(b"one"), IoSlice::new(b""), IoSlice::new(b"two")];
        super::super::disk::write_all(file.as_ref(), 4094, &mut parts).unwrap();
        file.sync_data().unwrap();
        let mut back = [0; 6];
        assert_eq!(
            super::super::disk::read_full(file.as_ref(), 4094, &mut back).unwrap(),
            6
        );
        assert_eq!(&back, b"onetwo");
        disk.rename("a", "b").unwrap();
        disk.remove("a").unwrap();
        disk.sync_directory().unwrap();
        assert_eq!(disk.list().unwrap(), ["b"]);
        assert_eq!(
            disk.open("a", OpenFile::ReadOnly).err().unwrap().source.kind(),
            io::ErrorKind::NotFound
        );
    }
}
