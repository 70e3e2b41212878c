//! A disk in memory that loses power.
//!
//! Every file has what was written and what was synced. A crash keeps of each unsynced write all sectors, none, or any
//! selection of them, so writes are lost, torn and reordered; unsynced names come or go one by one. Faults: writes that
//! take fewer bytes than given, a sync that fails and loses what it should have kept, a full disk, flipped bits. Every
//! operation that changes something is counted, so that a test can crash at each of them in turn.
//!
//! What Linux, ext4 and XFS do, with its sources, stands in `docs/log-format.md` ("What is assumed of the disk").
//!
//! A failed write-back is told as Linux tells it: once to each open file, to a later one only if nobody was told before;
//! what it lost still reads as written, and the next sync succeeds (`log/guarded.rs` names the sources).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::baton;
use super::inode::{Change, Inode};
use super::random::Random;
use crate::log::disk::{Disk, DiskError, DiskFile, DiskLock, OpenFile, write_zeros};

/// What a read that fails cannot give back.
const BLOCK_BYTES: usize = 4096;

/// What goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The changing operation at which power is lost, counted from the creation of the disk.
    pub crash_at: Option<u64>,
    /// The changing operation at which write-back fails with an I/O error if it is a sync, or else at the next sync.
    pub fail_sync_at: Option<u64>,
    /// For how many operations from there on write-back fails; none: once.
    pub fail_sync_for: u64,
    /// One write in so many takes only a part of what it is given; zero for never.
    pub short_write_one_in: u64,
    /// One open, and one write or reservation, in so many fails for want of descriptors, memory or space; zero for never.
    pub shortage_one_in: u64,
    /// The disk's size; `None` for endless.
    pub space_bytes: Option<u64>,
    /// No file can be removed.
    pub keeps_files: bool,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, usize),
    Unlink(String),
    Rename(String, String, usize),
}

struct World {
    random: Random,
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    synced_names: BTreeMap<String, usize>,
    pending_names: Vec<NameChange>,
    faults: Faults,
    operations: u64,
    /// Counts power losses: what was opened before one is of no use after it.
    life: u64,
    down: bool,
    locked: bool,
}

/// The disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    world: Arc<Mutex<World>>,
}

struct SimFile {
    world: Arc<Mutex<World>>,
    inode: usize,
    life: u64,
    writable: bool,
    /// The failures of write-back that need not be told here any more.
    seen: AtomicU64,
}

struct SimLock {
    world: Arc<Mutex<World>>,
    life: u64,
}

impl DiskLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut world = lock(&self.world);
        if world.life == self.life {
            world.locked = false;
        }
    }
}

fn lock(world: &Arc<Mutex<World>>) -> MutexGuard<'_, World> {
    baton::pass();
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

fn power_lost() -> io::Error {
    io::Error::other("simulated power loss")
}

impl World {
    /// Counts a changing operation; false when power is lost at it.
    fn count(&mut self) -> io::Result<()> {
        if self.down {
            return Err(power_lost());
        }
        self.operations += 1;
        if self.faults.crash_at.is_some_and(|at| self.operations >= at) {
            self.down = true;
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        if self.down { Err(power_lost()) } else { Ok(()) }
    }

    fn check_shortage(&mut self, of: &[Errno]) -> io::Result<()> {
        if self.random.one_in(self.faults.shortage_one_in) {
            let index = self.random.below(of.len() as u64) as usize;
            return Err(of[index].into());
        }
        Ok(())
    }

    fn used_bytes(&self) -> u64 {
        let live: BTreeSet<usize> = self.names.values().copied().collect();
        live.iter().map(|&inode| self.inodes[inode].current.len() as u64).sum()
    }

    fn check_space(&self, inode: usize, length: usize) -> io::Result<()> {
        let Some(space) = self.faults.space_bytes else {
            return Ok(());
        };
        let grows = length.saturating_sub(self.inodes[inode].current.len()) as u64;
        if grows > 0 && self.used_bytes() + grows > space {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }
}

impl SimDisk {
    /// An empty disk whose losses are drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let world = World {
            random: Random::new(seed),
            inodes: Vec::new(),
            names: BTreeMap::new(),
            synced_names: BTreeMap::new(),
            pending_names: Vec::new(),
            faults: Faults::default(),
            operations: 0,
            life: 0,
            down: false,
            locked: false,
        };
        Self {
            world: Arc::new(Mutex::new(world)),
        }
    }

    /// Says what goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.world).faults = faults;
    }

    /// Changing operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        lock(&self.world).operations
    }

    /// Whether power was lost.
    #[must_use]
    pub fn is_down(&self) -> bool {
        lock(&self.world).down
    }

    /// Loses power, if that has not happened, and comes up again without faults: what was not synced is partly gone.
    pub fn power_cycle(&self) {
        let mut world = lock(&self.world);
        let world = &mut *world;
        for inode in &mut world.inodes {
            inode.lose_power(&mut world.random);
        }
        let mut names = std::mem::take(&mut world.synced_names);
        for change in std::mem::take(&mut world.pending_names) {
            if world.random.one_in(2) {
                continue;
            }
            match change {
                NameChange::Link(name, inode) => {
                    names.insert(name, inode);
                }
                NameChange::Unlink(name) => {
                    names.remove(&name);
                }
                NameChange::Rename(from, to, inode) => {
                    names.remove(&from);
                    names.insert(to, inode);
                }
            }
        }
        world.names.clone_from(&names);
        world.synced_names = names;
        world.come_up();
    }

    /// The process dies and the machine stays up: nothing that was written is lost.
    pub fn kill_process(&self) {
        lock(&self.world).come_up();
    }

    /// Runs two jobs at once: before each operation of one of them the other may do some of its own, as this draws.
    pub fn interleave<A: Send, B: Send>(
        &self,
        first: impl FnOnce() -> A + Send,
        second: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        let random = Random::new(lock(&self.world).random.next_u64());
        baton::interleave(random, first, second)
    }

    /// A copy of the whole disk as it is now, with faults of its own.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let world = lock(&self.world);
        let fork = World {
            random: Random::new(seed),
            inodes: world.inodes.clone(),
            names: world.names.clone(),
            synced_names: world.synced_names.clone(),
            pending_names: world.pending_names.clone(),
            faults: Faults::default(),
            operations: 0,
            life: 0,
            down: false,
            locked: false,
        };
        Self {
            world: Arc::new(Mutex::new(fork)),
        }
    }

    /// The names of all files, sorted.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.world).names.keys().cloned().collect()
    }

    /// Its size, if it has one.
    #[must_use]
    pub fn space_bytes(&self) -> Option<u64> {
        lock(&self.world).faults.space_bytes
    }

    /// How many bytes all files have now.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        lock(&self.world).used_bytes()
    }

    /// The bytes of a file, if there is one.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let world = lock(&self.world);
        world.names.get(name).map(|&inode| world.inodes[inode].current.clone())
    }

    /// From now on the block at this offset of a file cannot be read, until somebody writes it.
    pub fn make_unreadable(&self, name: &str, offset: u64) {
        let mut world = lock(&self.world);
        if let Some(&inode) = world.names.get(name) {
            world.inodes[inode].unreadable.insert(offset as usize / BLOCK_BYTES);
        }
    }

    /// Changes a file behind everybody's back, durably.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut world = lock(&self.world);
        if let Some(&inode) = world.names.get(name) {
            let inode = &mut world.inodes[inode];
            change(&mut inode.current);
            inode.synced.clone_from(&inode.current);
            inode.pending.clear();
        }
    }
}

impl World {
    fn come_up(&mut self) {
        // Whoever starts again finds it no larger than it was.
        self.faults = Faults {
            space_bytes: self.faults.space_bytes,
            ..Faults::default()
        };
        self.life += 1;
        self.down = false;
        self.locked = false;
    }
}

impl Disk for SimDisk {
    fn open(&self, name: &str, how: OpenFile) -> Result<Arc<dyn DiskFile>, DiskError> {
        let wrap = |error| DiskError::new("open", name, error);
        let mut world = lock(&self.world);
        world.check().map_err(wrap)?;
        world
            .check_shortage(&[Errno::MFILE, Errno::NFILE, Errno::NOMEM])
            .map_err(wrap)?;
        let found = world.names.get(name).copied();
        let inode = match (how, found) {
            (OpenFile::Existing | OpenFile::ReadOnly, None) => return Err(wrap(io::ErrorKind::NotFound.into())),
            (OpenFile::Existing | OpenFile::ReadOnly, Some(inode)) => inode,
            (OpenFile::Fresh, Some(inode)) => {
                world.count().map_err(wrap)?;
                world.inodes[inode].current.clear();
                world.inodes[inode].pending.push(Change::Length(0));
                inode
            }
            (OpenFile::Fresh, None) => {
                world.count().map_err(wrap)?;
                let inode = world.inodes.len();
                world.inodes.push(Inode::default());
                world.names.insert(name.to_owned(), inode);
                world.pending_names.push(NameChange::Link(name.to_owned(), inode));
                inode
            }
        };
        let (life, writable) = (world.life, how != OpenFile::ReadOnly);
        // What nobody was told of yet is told to whoever opens the file later.
        let seen = AtomicU64::new(world.inodes[inode].told);
        Ok(Arc::new(SimFile {
            world: self.world.clone(),
            inode,
            life,
            writable,
            seen,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let wrap = |error| DiskError::new("rename", from, error);
        let mut world = lock(&self.world);
        world.count().map_err(wrap)?;
        let Some(inode) = world.names.remove(from) else {
            return Err(wrap(io::ErrorKind::NotFound.into()));
        };
        world.names.insert(to.to_owned(), inode);
        world
            .pending_names
            .push(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut world = lock(&self.world);
        world.count().map_err(|error| DiskError::new("remove", name, error))?;
        if world.faults.keeps_files {
            return Err(DiskError::new("remove", name, Errno::PERM.into()));
        }
        if world.names.remove(name).is_some() {
            world.pending_names.push(NameChange::Unlink(name.to_owned()));
        }
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>, DiskError> {
        let world = lock(&self.world);
        world.check().map_err(|error| DiskError::new("list", "", error))?;
        Ok(world.names.keys().cloned().collect())
    }

    fn sync_directory(&self) -> Result<(), DiskError> {
        let mut world = lock(&self.world);
        world
            .count()
            .map_err(|error| DiskError::new("sync folder", "", error))?;
        if world.down {
            return Err(DiskError::new("sync folder", "", power_lost()));
        }
        let names = world.names.clone();
        world.synced_names = names;
        world.pending_names.clear();
        Ok(())
    }

    fn free_bytes(&self) -> Option<u64> {
        let world = lock(&self.world);
        let space = world.faults.space_bytes?;
        Some(space.saturating_sub(world.used_bytes()))
    }

    fn lock(&self, name: &str) -> Result<Box<dyn DiskLock>, DiskError> {
        let mut world = lock(&self.world);
        let wrap = |error| DiskError::new("lock", name, error);
        world.check().map_err(wrap)?;
        if world.locked {
            return Err(wrap(io::ErrorKind::WouldBlock.into()));
        }
        world.locked = true;
        Ok(Box::new(SimLock {
            world: self.world.clone(),
            life: world.life,
        }))
    }
}

impl SimFile {
    fn world(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = lock(&self.world);
        if world.life == self.life {
            Ok(world)
        } else {
            Err(power_lost())
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut world = self.world()?;
        world.check()?;
        let short = world.random.one_in(16);
        let Inode {
            current: bytes,
            unreadable,
            ..
        } = &world.inodes[self.inode];
        let from = (offset as usize).min(bytes.len());
        let mut count = buffer.len().min(bytes.len() - from);
        if let Some(block) = unreadable.range(from / BLOCK_BYTES..).next().filter(|_| count > 0) {
            // What comes before it is read; asked for the block itself, the system has nothing.
            count = count.min((block * BLOCK_BYTES).saturating_sub(from));
            if count == 0 {
                return Err(Errno::IO.into());
            }
        }
        if short && count > 1 {
            count /= 2;
        }
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut world = self.world()?;
        world.count()?;
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        let short = world.faults.short_write_one_in;
        if bytes.len() > 1 && world.random.one_in(short) {
            let keep = 1 + world.random.below(bytes.len() as u64 - 1) as usize;
            bytes.truncate(keep);
        }
        let (offset, count) = (offset as usize, bytes.len());
        world.check_shortage(&[Errno::NOSPC, Errno::NOMEM])?;
        world.check_space(self.inode, offset + count)?;
        let change = Change::Write { offset, bytes };
        let inode = &mut world.inodes[self.inode];
        inode
            .unreadable
            .retain(|block| !(offset..offset + count).contains(&(block * BLOCK_BYTES)));
        Inode::apply(&mut inode.current, &change);
        inode.pending.push(change);
        world.check()?;
        Ok(count)
    }

    fn zero_at(&self, offset: u64, bytes: u64) -> io::Result<()> {
        write_zeros(self, offset, bytes)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut world = self.world()?;
        world.count()?;
        world.check()?;
        let (operations, lasting) = (world.operations, world.faults.fail_sync_for);
        let fails = world.faults.fail_sync_at.is_some_and(|at| operations >= at);
        if fails
            && world
                .faults
                .fail_sync_at
                .is_some_and(|at| operations >= at.saturating_add(lasting))
        {
            world.faults.fail_sync_at = None;
        }
        let inode = &mut world.inodes[self.inode];
        if fails {
            // What could not be written is gone, though reading still shows it: the next sync must not be believed.
            inode.pending.clear();
            inode.errors += 1;
        }
        if self.seen.swap(inode.errors, Ordering::Relaxed) < inode.errors {
            // Each open file is told once.
            inode.told = inode.errors;
            return Err(Errno::IO.into());
        }
        for change in std::mem::take(&mut inode.pending) {
            Inode::apply(&mut inode.synced, &change);
        }
        Ok(())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        let mut world = self.world()?;
        world.count()?;
        world.check_shortage(&[Errno::NOSPC])?;
        world.check_space(self.inode, bytes as usize)?;
        let inode = &mut world.inodes[self.inode];
        let length = inode.current.len().max(bytes as usize);
        inode.current.resize(length, 0);
        inode.pending.push(Change::Length(length));
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        let world = self.world()?;
        world.check()?;
        Ok(world.inodes[self.inode].current.len() as u64)
    }

    fn will_need(&self, _offset: u64, _bytes: u64) {}

    fn wont_need(&self, _offset: u64, _bytes: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_synced_survives_and_the_rest_is_kept_in_part() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let disk = SimDisk::new(seed);
            let file = disk.open("a", OpenFile::Fresh).unwrap();
            file.write_at(0, &[IoSlice::new(&[1; 1024])]).unwrap();
            file.sync_data().unwrap();
            disk.sync_directory().unwrap();
            file.write_at(0, &[IoSlice::new(&[2; 1024])]).unwrap();
            disk.power_cycle();
            assert!(file.sync_data().is_err(), "a file opened before the loss is of no use");
            let bytes = disk.contents("a").unwrap();
            outcomes.insert((bytes[0], bytes[600]));
        }
        assert_eq!(
            outcomes.into_iter().collect::<Vec<_>>(),
            [(1, 1), (1, 2), (2, 1), (2, 2)]
        );
    }

    #[test]
    fn a_name_that_was_not_synced_may_be_lost() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let disk = SimDisk::new(seed);
            disk.open("a", OpenFile::Fresh).unwrap().sync_data().unwrap();
            disk.power_cycle();
            outcomes.insert(disk.contents("a").is_some());
        }
        assert_eq!(outcomes.len(), 2);
    }
}
