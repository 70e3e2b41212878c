//! The real disk: a folder of the file system.
//!
//! The lock is `fcntl`'s open-file-description lock where the system has it (through `flock`), non-blocking, held until
//! the log is dropped or the process ends, however it ends (EMS-STORE-A12).

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};

use super::disk::{Disk, DiskError, DiskFile, DiskLock, OpenFile, write_zeros};

/// A folder that holds one log.
pub struct FileDisk {
    folder: PathBuf,
    /// Open for as long as the store is, so that its names can be synced without a new descriptor.
    names: File,
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
        let names = File::open(folder).map_err(|error| DiskError::new("open folder", &name, error))?;
        Ok(Self {
            folder: folder.to_owned(),
            names,
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
    /// The file once more, past the page cache; opened when it is first needed, nothing where the system refuses.
    direct: OnceLock<Option<File>>,
}

/// Zeros for direct writes, which want their memory aligned.
#[repr(align(4096))]
struct Zeros([u8; Zeros::BYTES]);

impl Zeros {
    const BYTES: usize = 256 * 1024;
}

static ZEROS: Zeros = Zeros([0; Zeros::BYTES]);

impl RealFile {
    fn new(file: File) -> Self {
        Self {
            file,
            direct: OnceLock::new(),
        }
    }

    /// The same file for direct writes. By its descriptor, since its name may have changed.
    fn direct(&self) -> Option<&File> {
        let open = || {
            let name = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
            rustix::fs::open(name, flags, Mode::empty()).ok().map(File::from)
        };
        self.direct.get_or_init(open).as_ref()
    }

    /// Writes zeros without a copy through the page cache, which would cost more than the messages' own write. Returns
    /// how far it came: a file system that takes no direct writes takes none of it.
    fn zero_directly(&self, offset: u64, to: u64) -> io::Result<u64> {
        let Some(direct) = self.direct() else { return Ok(offset) };
        let mut at = offset;
        while at < to {
            let piece = (to - at).min(Zeros::BYTES as u64) as usize;
            match direct.write_at(&ZEROS.0[..piece], at) {
                Ok(written) if written > 0 => at += written as u64,
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It takes none, or not here. Any other error is one of the disk: that a plain write after it goes well, into
                // the page cache, says nothing.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(error),
            }
        }
        Ok(at)
    }
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
        Ok(Arc::new(RealFile::new(file)))
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
        self.names
            .sync_all()
            .map_err(|error| DiskError::new("sync folder", &self.folder.display().to_string(), error))
    }

    fn free_bytes(&self) -> Option<u64> {
        let system = rustix::fs::fstatvfs(&self.names).ok()?;
        // Some file systems of users' own programs do not know their size.
        (system.f_blocks > 0).then(|| system.f_bavail.saturating_mul(system.f_frsize))
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

    fn zero_at(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let to = offset + bytes;
        let at = self.zero_directly(offset, to)?;
        write_zeros(self, at, to - at)
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

    fn wont_need(&self, offset: u64, bytes: u64) {
        // A hint again: what stays in memory is read from there.
        let _ = rustix::fs::fadvise(&self.file, offset, std::num::NonZeroU64::new(bytes), Advice::DontNeed);
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
    fn zeros_replace_what_a_file_held_and_nothing_beside_them() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FileDisk::new(folder.path()).unwrap();
        let file = disk.open("a", OpenFile::Fresh).unwrap();
        let bytes = 5 * Zeros::BYTES;
        file.allocate(bytes as u64).unwrap();
        let ones = vec![1; bytes];
        super::super::disk::write_all(file.as_ref(), 0, &mut [IoSlice::new(&ones)]).unwrap();
        file.zero_at(4096, 3 * Zeros::BYTES as u64 + 4096).unwrap();
        file.sync_data().unwrap();
        let mut back = vec![2; bytes];
        super::super::disk::read_full(file.as_ref(), 0, &mut back).unwrap();
        let end = 3 * Zeros::BYTES + 2 * 4096;
        assert!(back[4096..end].iter().all(|&byte| byte == 0));
        assert!(back[..4096].iter().chain(&back[end..]).all(|&byte| byte == 1));
    }

    #[test]
    fn what_takes_no_direct_writes_gets_its_zeros_otherwise_and_an_error_of_the_disk_is_one() {
        let at = |direct: &str| RealFile {
            file: File::open("/dev/null").unwrap(),
            direct: OnceLock::from(Some(OpenOptions::new().write(true).open(direct).unwrap())),
        };
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("a");
        fs::write(&name, b"").unwrap();
        // No file has such an offset: the system takes it for an argument that makes no sense, as a direct write where
        // there are none.
        let from = 1 << 63;
        let reached = at(name.to_str().unwrap()).zero_directly(from, from + 4096);
        assert_eq!(reached.unwrap(), from);
        let full = at("/dev/full").zero_directly(0, 4096).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
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
