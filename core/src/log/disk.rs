//! What the log needs of a disk: the seam at which the simulator replaces the file system.
//!
//! A [`Disk`] is one flat directory. Everything is positional and synchronous; jobs call it from whatever thread the host
//! runs them on. The log assumes what POSIX promises and no more: data is durable after `sync_data` of its file, a name
//! after `sync_directory`, and a write may be short. It never retries a failed sync.

use std::io::{self, IoSlice};
use std::sync::Arc;

use rustix::io::Errno;

use super::position::BLOCK_BYTES;

/// A failed disk operation, with the file it was about.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {file}: {source}")]
pub struct DiskError {
    /// What was attempted, for example `sync`.
    pub operation: &'static str,
    /// The file's name inside the store's folder.
    pub file: String,
    /// The system's own error.
    pub source: io::Error,
}

impl DiskError {
    /// Names the operation and the file of an I/O error.
    pub fn new(operation: &'static str, file: &str, source: io::Error) -> Self {
        Self {
            operation,
            file: file.to_owned(),
            source,
        }
    }

    /// Whether the disk or the quota is full: back-pressure, not a failure.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        is_no_space(&self.source)
    }

    /// Whether the system lacked something that it may have again: nothing happened, and it can be tried again.
    #[must_use]
    pub fn passes(&self) -> bool {
        passes(&self.source)
    }

    /// Whether the place that was read is damaged, as it is when a checksum is wrong: a read that failed says nothing of
    /// the rest of the disk.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        is_unreadable(&self.source)
    }
}

fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn is_one_of(error: &io::Error, numbers: &[Errno]) -> bool {
    let number = error.raw_os_error();
    number.is_some_and(|number| numbers.iter().any(|known| known.raw_os_error() == number))
}

/// As [`DiskError::passes`]. A sync's error never does: [`super::guarded`] sees to that.
pub(crate) fn passes(error: &io::Error) -> bool {
    is_no_space(error) || is_one_of(error, &[Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN])
}

/// As [`DiskError::is_unreadable`]: what block layer and file systems say of a place that they cannot give back.
pub(crate) fn is_unreadable(error: &io::Error) -> bool {
    let places = [
        Errno::IO,
        Errno::UCLEAN,
        Errno::BADMSG,
        Errno::REMOTEIO,
        Errno::NODATA,
        Errno::ILSEQ,
    ];
    is_one_of(error, &places)
}

/// How [`Disk::open`] treats a file that is missing or present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenFile {
    /// Must exist; for reading and writing.
    Existing,
    /// Must exist; for reading alone.
    ReadOnly,
    /// Is made if missing, and emptied if present.
    Fresh,
}

/// Held for as long as the store is open; dropping it gives the store up.
pub trait DiskLock: Send {}

/// A folder of files.
pub trait Disk: Send + Sync {
    /// Opens one file.
    ///
    /// # Errors
    /// The system's error; `NotFound` when it must exist and does not.
    fn open(&self, name: &str, how: OpenFile) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Renames, replacing what was there. Durable after [`Disk::sync_directory`].
    ///
    /// # Errors
    /// The system's error.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file; a missing one is no error.
    ///
    /// # Errors
    /// The system's error.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// The names of all files, sorted.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self) -> Result<Vec<String>, DiskError>;

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// The system's error.
    fn sync_directory(&self) -> Result<(), DiskError>;

    /// How many bytes are free, as far as that can be told. Whether a file has room only [`DiskFile::allocate`] says.
    fn free_bytes(&self) -> Option<u64>;

    /// Takes the exclusive lock without waiting (EMS-STORE-A12).
    ///
    /// # Errors
    /// `WouldBlock` when someone else holds it.
    fn lock(&self, name: &str) -> Result<Box<dyn DiskLock>, DiskError>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Reads what is there, at most the buffer; zero at the end of the file.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes some of the parts one after another and says how many bytes: it may be fewer than all.
    ///
    /// # Errors
    /// The system's error.
    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Fills a stretch of whole blocks with zeros. Nobody else writes there meanwhile.
    ///
    /// # Errors
    /// The system's error.
    fn zero_at(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Makes the data (and the length needed to read it) durable.
    ///
    /// # Errors
    /// The system's error. After one, nothing is known about what was written since the last success.
    fn sync_data(&self) -> io::Result<()>;

    /// Reserves space so that later writes within `bytes` cannot run out of it, and grows the file to that length.
    ///
    /// # Errors
    /// The system's error; `StorageFull` when there is not enough.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn length(&self) -> io::Result<u64>;

    /// Says that `bytes` from `offset` will be read soon. A hint.
    fn will_need(&self, offset: u64, bytes: u64);

    /// Says that nobody wants `bytes` from `offset` in memory: the next read asks the disk. A hint.
    fn wont_need(&self, offset: u64, bytes: u64);
}

/// Fills with zeros by plain writes.
///
/// # Errors
/// As [`write_all`].
pub fn write_zeros(file: &dyn DiskFile, offset: u64, bytes: u64) -> io::Result<()> {
    const PIECE_BYTES: usize = 64 * 1024;
    static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
    let to = offset + bytes;
    let mut at = offset;
    while at < to {
        let piece = (to - at).min(PIECE_BYTES as u64) as usize;
        write_all(file, at, &mut [IoSlice::new(&ZEROS[..piece])])?;
        at += piece as u64;
    }
    Ok(())
}

/// Writes all parts, however many calls it takes.
///
/// # Errors
/// The system's error, or `WriteZero` when the disk takes nothing more.
pub fn write_all(file: &dyn DiskFile, mut offset: u64, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    // The system takes at most this many parts in one call.
    const PARTS_MAX: usize = 1024;
    IoSlice::advance_slices(&mut parts, 0);
    while !parts.is_empty() {
        let taken = parts.len().min(PARTS_MAX);
        match file.write_at(offset, &parts[..taken]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut parts, written);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What stands for a block that cannot be read: neither zeros, which mean that nothing was written, nor anything valid.
const UNREADABLE: u8 = 0xee;

/// As [`read_full`], but a block that cannot be read is filled with bytes that verify as nothing. So it is damage of that
/// place, for whoever checks it; the second number says where the first one is.
///
/// # Errors
/// The system's error, if it is not about a place on the disk.
pub(crate) fn read_places(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<(usize, Option<u64>)> {
    let (mut filled, mut broken) = (0, None);
    let mut length = None;
    while filled < buffer.len() {
        let at = offset + filled as u64;
        match file.read_at(at, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_unreadable(&error) => {
                // The system reads ahead, and may blame all of it: block by block it is seen which one it is.
                let length = match length {
                    Some(length) => length,
                    None => *length.insert(file.length()?),
                };
                let rest = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(length).saturating_sub(at);
                let block = (rest as usize).min(buffer.len() - filled);
                if block == 0 {
                    break;
                }
                let part = &mut buffer[filled..filled + block];
                match read_full(file, at, part) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if is_unreadable(&error) => {
                        part.fill(UNREADABLE);
                        broken.get_or_insert(at);
                        filled += block;
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok((filled, broken))
}

/// Fills the buffer as far as the file goes and says how far that was.
///
/// # Errors
/// The system's error.
pub fn read_full(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(offset + filled as u64, &mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_lacks_for_a_while_passes_and_a_bad_place_does_not() {
        let of = |number: Errno| io::Error::from(number);
        for number in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::AGAIN,
            Errno::NOSPC,
            Errno::DQUOT,
        ] {
            assert!(passes(&of(number)) && !is_unreadable(&of(number)), "{number}");
        }
        for number in [
            Errno::IO,
            Errno::UCLEAN,
            Errno::BADMSG,
            Errno::REMOTEIO,
            Errno::NODATA,
            Errno::ILSEQ,
        ] {
            assert!(is_unreadable(&of(number)) && !passes(&of(number)), "{number}");
        }
        for error in [of(Errno::ROFS), io::Error::other("of no number")] {
            assert!(!passes(&error) && !is_unreadable(&error), "{error}");
        }
    }

    #[test]
    fn of_what_cannot_be_read_one_block_alone_is_left_out() {
        use crate::sim::SimDisk;
        const BLOCK: usize = BLOCK_BYTES as usize;
        let disk = SimDisk::new(1);
        let file = disk.open("file", OpenFile::Fresh).unwrap();
        let bytes: Vec<u8> = (0..4 * BLOCK + 100).map(|at| (at % 200) as u8).collect();
        write_all(file.as_ref(), 0, &mut [IoSlice::new(&bytes)]).unwrap();
        disk.make_unreadable("file", BLOCK_BYTES);
        for from in [0, 100, BLOCK, BLOCK + 7] {
            let mut expected = bytes[from..].to_vec();
            let bad = from.max(BLOCK);
            expected[bad - from..2 * BLOCK - from].fill(UNREADABLE);
            let mut buffer = vec![1; 5 * BLOCK];
            let (filled, broken) = read_places(file.as_ref(), from as u64, &mut buffer).unwrap();
            assert_eq!((filled, broken), (expected.len(), Some(bad as u64)));
            assert!(buffer[..filled] == expected, "from {from}");
        }
    }
}
