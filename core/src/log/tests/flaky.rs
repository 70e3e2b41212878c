//! A file whose calls are interrupted, come short or fail: what is tried again, what is damage of a place, and what sticks.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::*;
use crate::log::disk::{Disk, DiskError, DiskFile, DiskLock, OpenFile, read_full, read_places, write_all, write_zeros};
use crate::log::guarded::GuardedDisk;

/// What the next call does: fail, or move at most so many bytes. Then everything goes well.
type Script = VecDeque<Result<usize, Errno>>;

#[derive(Default)]
struct Flaky {
    bytes: Mutex<Vec<u8>>,
    script: Mutex<Script>,
    /// A block that cannot be read.
    bad: Option<u64>,
}

impl Flaky {
    fn new(bytes: Vec<u8>, script: &[Result<usize, Errno>]) -> Self {
        Self {
            bytes: Mutex::new(bytes),
            script: Mutex::new(script.iter().copied().collect()),
            bad: None,
        }
    }

    fn next(&self) -> io::Result<usize> {
        let next = self.script.lock().unwrap().pop_front();
        next.unwrap_or(Ok(usize::MAX)).map_err(io::Error::from)
    }
}

impl DiskFile for Flaky {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let most = self.next()?;
        let touched = offset / BLOCK_BYTES..=(offset + buffer.len() as u64 - 1) / BLOCK_BYTES;
        if self.bad.is_some_and(|bad| touched.contains(&bad)) {
            return Err(Errno::IO.into());
        }
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let count = buffer.len().min(rest.len()).min(most);
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = self.next()?;
        let mut all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        all.truncate(most);
        let mut bytes = self.bytes.lock().unwrap();
        let end = offset as usize + all.len();
        if bytes.len() < end {
            bytes.resize(end, 1);
        }
        bytes[offset as usize..end].copy_from_slice(&all);
        Ok(all.len())
    }

    fn zero_at(&self, offset: u64, bytes: u64) -> io::Result<()> {
        write_zeros(self, offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.next().map(|_| ())
    }

    fn allocate(&self, _bytes: u64) -> io::Result<()> {
        self.next().map(|_| ())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn will_need(&self, _offset: u64, _bytes: u64) {}

    fn wont_need(&self, _offset: u64, _bytes: u64) {}
}

/// A folder with one file.
struct Folder(Arc<Flaky>);

impl Disk for Folder {
    fn open(&self, _name: &str, _how: OpenFile) -> Result<Arc<dyn DiskFile>, DiskError> {
        Ok(self.0.clone())
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn remove(&self, _name: &str) -> Result<(), DiskError> {
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        Ok(Vec::new())
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        Err(DiskError::new("lock", name, io::ErrorKind::WouldBlock.into()))
    }
}

fn numbered(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7) as u8).collect()
}

#[test]
fn what_is_interrupted_or_comes_short_goes_on() {
    let calls = [Err(Errno::INTR), Ok(5), Ok(4096), Err(Errno::INTR), Ok(1)];
    let wanted = numbered(10_000);
    let file = Flaky::new(wanted.clone(), &calls);
    let mut found = vec![0; 12_000];
    assert_eq!(read_full(&file, 0, &mut found).unwrap(), 10_000);
    assert_eq!(found[..10_000], wanted);
    let file = Flaky::new(wanted.clone(), &calls);
    assert_eq!(read_places(&file, 0, &mut found).unwrap(), (10_000, None));
    assert_eq!(found[..10_000], wanted);
    let file = Flaky::new(Vec::new(), &calls);
    let parts: Vec<&[u8]> = wanted.chunks(3).collect();
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    write_all(&file, 0, &mut slices).unwrap();
    assert_eq!(*file.bytes.lock().unwrap(), wanted);
    let file = Flaky::new(vec![7; 300_000], &calls);
    write_zeros(&file, 4096, 200_000).unwrap();
    let bytes = file.bytes.lock().unwrap();
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, byte)| (*byte == 0) == (4096..204_096).contains(&at))
    );
}

#[test]
fn only_what_a_disk_says_of_a_place_is_damage_of_that_place() {
    let wanted = numbered(5 * 4096 + 100);
    let mut found = vec![0; wanted.len() + 50];
    for bad in 0..6 {
        let mut file = Flaky::new(wanted.clone(), &[]);
        file.bad = Some(bad);
        let broken = bad * BLOCK_BYTES;
        assert_eq!(read_places(&file, 0, &mut found).unwrap(), (wanted.len(), Some(broken)));
        let stretch = broken as usize..(broken as usize + 4096).min(wanted.len());
        for (at, byte) in wanted.iter().enumerate() {
            assert_eq!(
                found[at],
                if stretch.contains(&at) { 0xee } else { *byte },
                "{bad}: {at}"
            );
        }
        // From within a block, too.
        if bad > 0 {
            let count = read_places(&file, 100, &mut found[..8000]).unwrap();
            assert_eq!(count, (8000, (bad < 2).then_some(broken)), "{bad}");
            assert_eq!(found[..3996], wanted[100..4096]);
        }
    }
    for call in [Errno::NOMEM, Errno::ACCESS] {
        let file = Flaky::new(wanted.clone(), &[Err(call)]);
        assert!(read_places(&file, 0, &mut found).is_err(), "{call}");
        // When it is seen block by block which one it is.
        let file = Flaky::new(wanted.clone(), &[Err(Errno::IO), Err(call)]);
        assert!(read_places(&file, 0, &mut found).is_err(), "{call}");
    }
}

#[test]
fn a_write_that_failed_sticks_to_its_file_and_one_that_lacked_something_does_not() {
    for (error, sticks) in [
        (Errno::IO, true),
        (Errno::ROFS, true),
        (Errno::INTR, false),
        (Errno::NOSPC, false),
        (Errno::NOMEM, false),
    ] {
        for call in 0..3 {
            let inner = Arc::new(Flaky::new(vec![1; 8192], &[Err(error)]));
            let file = GuardedDisk::new(Arc::new(Folder(inner.clone())))
                .open("a", OpenFile::Existing)
                .unwrap();
            let failed = match call {
                0 => file.write_at(0, &[IoSlice::new(b"x")]).map(|_| ()),
                1 => file.allocate(4096),
                _ => file.zero_at(0, 4096),
            };
            // Filling with zeros goes on by itself when it is interrupted.
            assert_eq!(
                failed.is_ok(),
                error == Errno::INTR && call == 2,
                "{error}, call {call}"
            );
            assert_eq!(file.sync_data().is_err(), sticks, "{error}, call {call}");
        }
    }
    let inner = Arc::new(Flaky::new(vec![1; 8192], &[]));
    let file = GuardedDisk::new(Arc::new(Folder(inner.clone())))
        .open("a", OpenFile::Existing)
        .unwrap();
    file.zero_at(0, 4096).unwrap();
    assert!(inner.bytes.lock().unwrap()[..4096].iter().all(|byte| *byte == 0));
}

#[test]
fn sizes_that_do_not_fit_one_another_are_refused_at_their_bounds() {
    let accepted = |change: fn(&mut Options)| {
        let mut options = options();
        change(&mut options);
        options.check().is_ok()
    };
    assert!(accepted(|_| {}));
    assert!(accepted(|options| options.segment_bytes = 1024 * 1024 * 1024));
    assert!(!accepted(|options| options.segment_bytes = 1024 * 1024 * 1024 + 4096));
    assert!(!accepted(|options| options.segment_bytes = 64 * 1024 + 8));
    assert!(!accepted(|options| options.segment_bytes = 12 * 1024));
    assert!(accepted(|options| {
        (options.segment_bytes, options.record_bytes_max) = (16 * 1024, 8 * 1024);
    }));
    assert!(accepted(|options| options.commit_bytes_max = 4096));
    assert!(!accepted(|options| options.commit_bytes_max = 4095));
    assert!(!accepted(|options| options.fill_bytes = 0));
    assert!(!accepted(|options| options.fill_bytes += 8));
    assert!(!accepted(|options| options.fill_distance_bytes += 8));
    assert!(!accepted(|options| {
        options.fill_bytes += 8;
        options.fill_distance_bytes += 8;
    }));
    assert!(accepted(|options| options.ahead_count = 3));
    assert!(!accepted(|options| options.ahead_count = 2));
    assert!(accepted(|options| options.compact_below_percent = 90));
    assert!(!accepted(|options| options.compact_below_percent = 91));
}

#[test]
fn a_start_that_lacks_descriptors_or_memory_for_the_moment_loses_nothing() {
    let (refused, went) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    crate::sim::seeds::each_seed(60, |seed| {
        let (grown, appended, _) = forced::grown(seed);
        for force_start in [false, true] {
            for shortage_one_in in [3, 10, 30] {
                let disk = grown.fork(seed);
                let what = format!("seed {seed}, force {force_start}, one in {shortage_one_in}");
                disk.set_faults(crate::sim::Faults {
                    shortage_one_in,
                    ..Default::default()
                });
                let starting = Options {
                    force_start,
                    ..options()
                };
                match Host::open(&disk, starting) {
                    Ok(host) => {
                        forced::nothing_lacks(&host, &appended);
                        assert!(host.report.dropped.is_empty(), "{what}");
                        went.set(went.get() + 1);
                    }
                    Err(LogError::Damaged { why, .. }) => panic!("{what}: {why}"),
                    Err(_) => refused.set(refused.get() + 1),
                }
                disk.set_faults(Default::default());
                disk.kill_process();
                let host = Host::open(&disk, options()).unwrap_or_else(|error| panic!("{what}: then {error}"));
                forced::nothing_lacks(&host, &appended);
                assert!(host.report.dropped.is_empty(), "{what}");
            }
        }
    });
    assert!(refused.get() > 0 && went.get() > 0);
}
