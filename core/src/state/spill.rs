//! The spill files of the volatile store: written once, read back in chunks, removed when nothing in them is wanted, wiped
//! at start. All I/O is in jobs that the host runs; nothing here is ever synced.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use crate::log::disk::{Disk, DiskError, DiskFile, OpenFile, read_full, write_all};

const SUFFIX: &str = ".spill";
const FILE_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug)]
struct SpillFile {
    chunks: usize,
    end: u64,
}

/// The files, their fill and their open handles.
pub struct SpillFiles {
    disk: Arc<dyn Disk>,
    files: BTreeMap<u64, SpillFile>,
    handles: BTreeMap<u64, Arc<dyn DiskFile>>,
    current: u64,
    removals: VecDeque<u64>,
    writing: bool,
    paused: bool,
    failures: u64,
}

impl fmt::Debug for SpillFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SpillFiles")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

fn file_name(number: u64) -> String {
    format!("volatile-{number:08x}{SUFFIX}")
}

/// A job on the spill files.
pub enum SpillWork {
    /// Writes one chunk.
    Write {
        /// The folder.
        disk: Arc<dyn Disk>,
        /// The open file, if it is open already.
        handle: Option<Arc<dyn DiskFile>>,
        /// Number of the file.
        file: u64,
        /// Where in it.
        offset: u64,
        /// The chunk.
        chunk: u64,
        /// Its messages.
        parts: Vec<Bytes>,
    },
    /// Removes a file that nothing needs.
    Remove {
        /// The folder.
        disk: Arc<dyn Disk>,
        /// Number of the file.
        file: u64,
    },
}

/// The result of a [`SpillWork`].
pub struct SpillWorkDone {
    written: Option<Written>,
}

struct Written {
    chunk: u64,
    part: SpillPart,
    result: Result<Arc<dyn DiskFile>, DiskError>,
}

/// A chunk's place in the spill files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpillPart {
    pub file: u64,
    pub offset: u64,
    pub bytes: u32,
}

impl SpillWork {
    /// Does it, on any thread.
    #[must_use]
    pub fn run(self) -> SpillWorkDone {
        match self {
            Self::Write {
                disk,
                handle,
                file,
                offset,
                chunk,
                parts,
            } => {
                let bytes = parts.iter().map(Bytes::len).sum::<usize>() as u32;
                let result = write(&*disk, handle, file, offset, &parts);
                SpillWorkDone {
                    written: Some(Written {
                        chunk,
                        part: SpillPart { file, offset, bytes },
                        result,
                    }),
                }
            }
            Self::Remove { disk, file } => {
                // What cannot be removed now is wiped at the next start.
                let _ = disk.remove(&file_name(file));
                SpillWorkDone { written: None }
            }
        }
    }
}

fn write(
    disk: &dyn Disk,
    handle: Option<Arc<dyn DiskFile>>,
    file: u64,
    offset: u64,
    parts: &[Bytes],
) -> Result<Arc<dyn DiskFile>, DiskError> {
    let name = file_name(file);
    let handle = match handle {
        Some(handle) => handle,
        None => disk.open(&name, OpenFile::Fresh)?,
    };
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    write_all(&*handle, offset, &mut slices).map_err(|error| DiskError::new("write", &name, error))?;
    Ok(handle)
}

/// A chunk to be read back.
pub struct SpillRead {
    handle: Arc<dyn DiskFile>,
    offset: u64,
    bytes: u32,
    chunk: u64,
}

impl fmt::Debug for SpillRead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SpillRead")
            .field("chunk", &self.chunk)
            .finish_non_exhaustive()
    }
}

/// What was read back.
pub struct SpillReadDone {
    pub(super) chunk: u64,
    pub(super) bytes: Option<Bytes>,
}

impl SpillRead {
    /// Which chunk: one read serves all of it.
    #[must_use]
    pub const fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Reads, on any thread.
    #[must_use]
    pub fn run(self) -> SpillReadDone {
        let mut buffer = vec![0; self.bytes as usize];
        let whole = read_full(&*self.handle, self.offset, &mut buffer).is_ok_and(|count| count == buffer.len());
        SpillReadDone {
            chunk: self.chunk,
            bytes: whole.then(|| Bytes::from(buffer)),
        }
    }
}

impl SpillFiles {
    /// No files yet.
    #[must_use]
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self {
            disk,
            files: BTreeMap::new(),
            handles: BTreeMap::new(),
            current: 0,
            removals: VecDeque::new(),
            writing: false,
            paused: false,
            failures: 0,
        }
    }

    /// Removes what an earlier process left behind. To be called when the store is locked.
    ///
    /// # Errors
    /// The folder cannot be listed or a file not removed.
    pub fn wipe(disk: &dyn Disk) -> Result<(), DiskError> {
        for name in disk.list()?.iter().filter(|name| name.ends_with(SUFFIX)) {
            disk.remove(name)?;
        }
        Ok(())
    }

    /// How many writes failed.
    #[must_use]
    pub const fn failures(&self) -> u64 {
        self.failures
    }

    pub(super) const fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn write(&mut self, chunk: u64, parts: Vec<Bytes>) -> Option<SpillWork> {
        if self.writing || self.paused {
            return None;
        }
        if self.files.get(&self.current).is_none_or(|file| file.end >= FILE_BYTES) {
            self.retire_current();
            self.current += 1;
            self.files.insert(self.current, SpillFile { chunks: 0, end: 0 });
        }
        let file = self.files.get_mut(&self.current)?;
        let offset = file.end;
        file.chunks += 1;
        file.end += parts.iter().map(|part| part.len() as u64).sum::<u64>();
        self.writing = true;
        Some(SpillWork::Write {
            disk: Arc::clone(&self.disk),
            handle: self.handles.get(&self.current).map(Arc::clone),
            file: self.current,
            offset,
            chunk,
            parts,
        })
    }

    /// Takes a result and says for which chunk, and if it was written where.
    pub(super) fn complete(&mut self, done: SpillWorkDone) -> Option<(u64, Option<SpillPart>)> {
        let Written { chunk, part, result } = done.written?;
        self.writing = false;
        match result {
            Ok(handle) => {
                self.handles.insert(part.file, handle);
                Some((chunk, Some(part)))
            }
            Err(_) => {
                self.failures += 1;
                self.paused = true;
                self.release(part.file);
                Some((chunk, None))
            }
        }
    }

    pub(super) fn read(&self, part: SpillPart, chunk: u64) -> Option<SpillRead> {
        let handle = Arc::clone(self.handles.get(&part.file)?);
        Some(SpillRead {
            handle,
            offset: part.offset,
            bytes: part.bytes,
            chunk,
        })
    }

    /// A failed write is tried again, but not at once.
    pub(super) fn resume(&mut self) {
        self.paused = false;
    }

    /// One chunk of a file is not needed any more.
    pub(super) fn release(&mut self, number: u64) {
        let Some(file) = self.files.get_mut(&number) else {
            return;
        };
        file.chunks = file.chunks.saturating_sub(1);
        if file.chunks == 0 && number != self.current {
            self.remove(number);
        }
    }

    fn retire_current(&mut self) {
        if self.files.get(&self.current).is_some_and(|file| file.chunks == 0) {
            self.remove(self.current);
        }
    }

    fn remove(&mut self, number: u64) {
        self.files.remove(&number);
        self.handles.remove(&number);
        self.removals.push_back(number);
    }

    pub(super) fn next_removal(&mut self) -> Option<SpillWork> {
        let file = self.removals.pop_front()?;
        Some(SpillWork::Remove {
            disk: Arc::clone(&self.disk),
            file,
        })
    }
}
