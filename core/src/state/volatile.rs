//! Messages that never touch the log: non-persistent and reliable ones, and persistent ones that nobody durable wants.
//!
//! They have positions of their own, with the top bit set, so that an entry tells by its position where its message is.
//! Messages lie in chunks in memory; when they exceed the budget, the oldest chunks move to a spill file, by a job that
//! the host runs on another thread. Spill files are never synced, and wiped at start: a stop loses all that is in here
//! (EMS-STORE-A01).
//!
//! A chunk's memory is one shared buffer and goes when its last message goes, or when the chunk is spilled.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::log::Position;

use super::spill::{SpillFiles, SpillPart, SpillRead, SpillReadDone, SpillWork, SpillWorkDone};

/// Set in the positions of this store.
pub const VOLATILE: u64 = 1 << 63;
const INDEX_BITS: u32 = 12;
const SLOTS_MAX: usize = 1 << INDEX_BITS;
const CHUNK_BYTES: usize = 256 * 1024;
/// Larger messages have memory of their own.
const SHARED_BYTES_MAX: usize = 64 * 1024;
/// Chunks that were read back from the spill file and may be asked for again, and their bytes: a large message is a chunk of
/// its own.
const FETCHED_MAX: usize = 16;
const FETCHED_BYTES_MAX: usize = FETCHED_MAX * CHUNK_BYTES;
/// For so many chunks that come after it a message counts as waited for; whoever asked may be gone.
const WANTED_CHUNKS: u64 = 64;
/// What is waited for stays beyond these, but not beyond this much more.
const WANTED_BYTES_MAX: usize = 32 << 20;

/// Whether a position is this store's.
#[must_use]
pub const fn is_volatile(position: Position) -> bool {
    position.0 & VOLATILE != 0
}

#[derive(Debug)]
struct Slot {
    // Head and payload; empty once gone or spilled.
    record: Bytes,
    head_bytes: u32,
    bytes: u32,
    references: u32,
    // Within the chunk's part of the spill file.
    offset: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Memory,
    Spilling,
    Spilled(SpillPart),
}

#[derive(Debug)]
struct Chunk {
    slots: Vec<Slot>,
    live: usize,
    bytes: usize,
    place: Place,
}

/// What asking for a message gives.
#[derive(Debug)]
pub enum VolatileRead {
    /// Head and payload.
    Ready(Bytes, Bytes),
    /// It is in the spill file; run this, complete it, and ask again.
    Spilled(SpillRead),
    /// Not here any more.
    Gone,
}

/// The store.
#[derive(Debug)]
pub struct VolatileStore {
    chunks: VecDeque<Chunk>,
    first_chunk: u64,
    buffer: BytesMut,
    memory_bytes: u64,
    budget_bytes: u64,
    messages: u64,
    files: SpillFiles,
    // Chunks before this one are spilled or gone.
    spill_from: u64,
    fetched: VecDeque<(u64, Bytes)>,
    /// Messages that somebody waits for, and how many chunks had been read when they were asked for.
    wanted: BTreeMap<u64, u64>,
    reads: u64,
}

impl VolatileStore {
    /// An empty store that spills beyond `budget_bytes` of memory.
    #[must_use]
    pub fn new(budget_bytes: u64, files: SpillFiles) -> Self {
        Self {
            chunks: VecDeque::new(),
            first_chunk: 1,
            buffer: BytesMut::new(),
            memory_bytes: 0,
            budget_bytes,
            messages: 0,
            files,
            spill_from: 1,
            fetched: VecDeque::new(),
            wanted: BTreeMap::new(),
            reads: 0,
        }
    }

    /// Whether nothing more should be taken in: spilling does not keep up, or failed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.memory_bytes > self.budget_bytes.saturating_mul(2)
    }

    /// Bytes of messages in memory.
    #[must_use]
    pub const fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Whether a write to the spill file failed and was not tried again since.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.files.is_paused()
    }

    /// Failed writes to the spill file.
    #[must_use]
    pub const fn spill_failures(&self) -> u64 {
        self.files.failures()
    }

    /// Messages in memory or spilled.
    #[must_use]
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Keeps a message, without references yet: the caller holds it for each one.
    pub fn append(&mut self, head: &[u8], payload: &[u8]) -> Position {
        let bytes = head.len() + payload.len();
        let full = self.chunks.back().is_none_or(|chunk| {
            // Without slots it is one that was spilled and is done with: its number must not be used again.
            chunk.place != Place::Memory
                || chunk.slots.is_empty()
                || chunk.slots.len() >= SLOTS_MAX
                || chunk.bytes + bytes > CHUNK_BYTES
        });
        if full {
            self.close_last();
            self.chunks.push_back(Chunk {
                slots: Vec::new(),
                live: 0,
                bytes: 0,
                place: Place::Memory,
            });
            self.buffer = BytesMut::new();
        }
        let record = self.copy_in(head, payload);
        let number = self.first_chunk + self.chunks.len() as u64 - 1;
        let Some(chunk) = self.chunks.back_mut() else {
            return Position::ZERO;
        };
        let index = chunk.slots.len() as u64;
        chunk.slots.push(Slot {
            record,
            head_bytes: head.len() as u32,
            bytes: bytes as u32,
            references: 0,
            offset: 0,
        });
        chunk.live += 1;
        chunk.bytes += bytes;
        self.messages += 1;
        self.memory_bytes += bytes as u64;
        Position(VOLATILE | number << INDEX_BITS | index)
    }

    /// The last chunk gets no more messages; if it has none any more, it goes now.
    fn close_last(&mut self) {
        let Some(chunk) = self
            .chunks
            .back_mut()
            .filter(|chunk| chunk.live == 0 && chunk.place == Place::Memory)
        else {
            return;
        };
        chunk.slots = Vec::new();
        while self.chunks.front().is_some_and(|chunk| chunk.slots.is_empty()) {
            self.chunks.pop_front();
            self.first_chunk += 1;
        }
    }

    /// Tries failed writes again.
    pub fn resume(&mut self) {
        self.files.resume();
    }

    fn copy_in(&mut self, head: &[u8], payload: &[u8]) -> Bytes {
        let bytes = head.len() + payload.len();
        let buffer = &mut self.buffer;
        let mut own = BytesMut::new();
        let target = if bytes > SHARED_BYTES_MAX {
            own.reserve(bytes);
            &mut own
        } else {
            if buffer.capacity() < bytes {
                *buffer = BytesMut::with_capacity(CHUNK_BYTES / 4);
            }
            buffer
        };
        target.extend_from_slice(head);
        target.extend_from_slice(payload);
        target.split().freeze()
    }

    fn slot_mut(&mut self, position: Position) -> Option<(u64, &mut Chunk, usize)> {
        let number = (position.0 & !VOLATILE) >> INDEX_BITS;
        let index = position.0 as usize & (SLOTS_MAX - 1);
        let chunk = self
            .chunks
            .get_mut(usize::try_from(number.checked_sub(self.first_chunk)?).ok()?)?;
        (index < chunk.slots.len()).then_some((number, chunk, index))
    }

    /// One more reference.
    pub fn hold(&mut self, position: Position) {
        if let Some((_, chunk, index)) = self.slot_mut(position) {
            chunk.slots[index].references += 1;
        }
    }

    /// One reference less; the last one takes the message with it.
    pub fn release(&mut self, position: Position) {
        let Some((_, chunk, index)) = self.slot_mut(position) else {
            return;
        };
        let slot = &mut chunk.slots[index];
        slot.references = slot.references.saturating_sub(1);
        if slot.references > 0 || slot.bytes == 0 {
            return;
        }
        let bytes = std::mem::take(&mut slot.bytes);
        slot.record = Bytes::new();
        chunk.live -= 1;
        let in_memory = !matches!(chunk.place, Place::Spilled(_));
        let emptied = chunk.live == 0;
        self.messages -= 1;
        if in_memory {
            self.memory_bytes -= u64::from(bytes);
        }
        if emptied {
            self.drop_empty(position);
        }
    }

    /// A chunk without live messages gives its memory and its part of a spill file back.
    fn drop_empty(&mut self, position: Position) {
        let last = self.first_chunk + self.chunks.len() as u64 - 1;
        let Some((number, chunk, _)) = self.slot_mut(position) else {
            return;
        };
        let is_filling = number == last && chunk.place == Place::Memory;
        if is_filling || chunk.place == Place::Spilling {
            return;
        }
        if let Place::Spilled(part) = chunk.place {
            self.files.release(part.file);
        }
        let Some((_, chunk, _)) = self.slot_mut(position) else {
            return;
        };
        *chunk = Chunk {
            slots: Vec::new(),
            live: 0,
            bytes: 0,
            place: Place::Memory,
        };
        self.fetched.retain(|(fetched, _)| *fetched != number);
        while self.chunks.len() > 1 && self.chunks.front().is_some_and(|chunk| chunk.slots.is_empty()) {
            self.chunks.pop_front();
            self.first_chunk += 1;
        }
    }

    /// The message at a position.
    #[must_use]
    pub fn read(&mut self, position: Position) -> VolatileRead {
        let number = (position.0 & !VOLATILE) >> INDEX_BITS;
        let index = position.0 as usize & (SLOTS_MAX - 1);
        let chunk = number
            .checked_sub(self.first_chunk)
            .and_then(|index| usize::try_from(index).ok())
            .and_then(|index| self.chunks.get(index));
        let Some((chunk, slot)) = chunk.and_then(|chunk| Some((chunk, chunk.slots.get(index)?))) else {
            return VolatileRead::Gone;
        };
        if slot.bytes == 0 {
            return VolatileRead::Gone;
        }
        let head_bytes = slot.head_bytes as usize;
        let Place::Spilled(part) = chunk.place else {
            return VolatileRead::Ready(slot.record.slice(..head_bytes), slot.record.slice(head_bytes..));
        };
        if let Some((_, fetched)) = self.fetched.iter().find(|(fetched, _)| *fetched == number) {
            self.wanted.remove(&position.0);
            let start = slot.offset as usize;
            let end = start + slot.bytes as usize;
            if end <= fetched.len() {
                return VolatileRead::Ready(
                    fetched.slice(start..start + head_bytes),
                    fetched.slice(start + head_bytes..end),
                );
            }
            return VolatileRead::Gone;
        }
        match self.files.read(part, number) {
            Some(read) => {
                self.wanted.insert(position.0, self.reads);
                VolatileRead::Spilled(read)
            }
            None => VolatileRead::Gone,
        }
    }

    /// Takes what was read back. A failed read loses the chunk's messages, as a stop would.
    pub fn complete_read(&mut self, done: SpillReadDone) {
        let bytes = done.bytes.unwrap_or_default();
        if self.fetched.iter().any(|(number, _)| *number == done.chunk) {
            return;
        }
        self.fetched.push_back((done.chunk, bytes));
        self.reads += 1;
        let reads = self.reads;
        self.wanted.retain(|_, asked| reads - *asked <= WANTED_CHUNKS);
        self.evict_fetched();
    }

    /// Lets chunks go that were read back, the oldest first: those that nobody waits for, and beyond a further bound the
    /// others as well.
    fn evict_fetched(&mut self) {
        let mut count = self.fetched.len();
        let mut bytes: usize = self.fetched.iter().map(|(_, bytes)| bytes.len()).sum();
        let newest = self.fetched.back().map_or(0, |(number, _)| *number);
        let wanted = &self.wanted;
        self.fetched.retain(|(number, chunk)| {
            let over = count > FETCHED_MAX || bytes > FETCHED_BYTES_MAX;
            let first = VOLATILE | *number << INDEX_BITS;
            let is_wanted = wanted.range(first..first + SLOTS_MAX as u64).next().is_some();
            let may_stay = is_wanted && bytes <= FETCHED_BYTES_MAX + WANTED_BYTES_MAX;
            if !over || may_stay || *number == newest {
                return true;
            }
            (count, bytes) = (count - 1, bytes - chunk.len());
            false
        });
    }

    /// Chunks that were read back and are kept, and their bytes.
    #[cfg(test)]
    pub(super) fn fetched(&self) -> (usize, usize) {
        let bytes = self.fetched.iter().map(|(_, bytes)| bytes.len()).sum();
        (self.fetched.len(), bytes)
    }

    /// The next thing to do for the spill files, if memory is over its budget or a file is no longer needed.
    pub fn spill(&mut self) -> Option<SpillWork> {
        if let Some(removal) = self.files.next_removal() {
            return Some(removal);
        }
        while self.memory_bytes > self.budget_bytes {
            let index = usize::try_from(self.spill_from.saturating_sub(self.first_chunk)).ok()?;
            let number = self.first_chunk + index as u64;
            // The newest chunk is still being filled. It only goes when nothing more is taken in for its sake.
            let (newest, full) = (index + 1 == self.chunks.len(), self.is_full());
            let chunk = self.chunks.get_mut(index)?;
            if newest && chunk.place == Place::Memory && (chunk.live == 0 || !full) {
                return None;
            }
            if chunk.live == 0 || chunk.place != Place::Memory {
                self.spill_from = number + 1;
                continue;
            }
            let mut parts = Vec::with_capacity(chunk.live);
            let mut offset = 0;
            for slot in chunk.slots.iter_mut().filter(|slot| slot.bytes > 0) {
                slot.offset = offset;
                offset += slot.bytes;
                parts.push(slot.record.clone());
            }
            let work = self.files.write(number, parts)?;
            chunk.place = Place::Spilling;
            self.spill_from = number + 1;
            return Some(work);
        }
        None
    }

    /// Takes the result. A failed write leaves the chunk in memory.
    pub fn complete_spill(&mut self, done: SpillWorkDone) {
        let Some((number, written)) = self.files.complete(done) else {
            return;
        };
        let Some(index) = number
            .checked_sub(self.first_chunk)
            .and_then(|index| usize::try_from(index).ok())
        else {
            return;
        };
        let Some(chunk) = self.chunks.get_mut(index) else {
            return;
        };
        let Some(part) = written else {
            chunk.place = Place::Memory;
            self.spill_from = self.spill_from.min(number);
            return;
        };
        let mut freed = 0;
        for slot in &mut chunk.slots {
            slot.record = Bytes::new();
            freed += u64::from(slot.bytes);
        }
        chunk.place = Place::Spilled(part);
        self.memory_bytes -= freed;
        if chunk.live == 0 {
            self.drop_empty(Position(VOLATILE | number << INDEX_BITS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimDisk;

    #[test]
    fn memory_that_the_newest_chunk_fills_is_spilled_and_its_number_not_used_again() {
        let mut store = VolatileStore::new(1_000, SpillFiles::new(std::sync::Arc::new(SimDisk::new(1))));
        let keep = |store: &mut VolatileStore, bytes: usize| {
            let position = store.append(b"head", &vec![7; bytes]);
            store.hold(position);
            position
        };
        let first = keep(&mut store, 1_500);
        assert!(!store.is_full() && store.spill().is_none());
        let second = keep(&mut store, 1_500);
        let work = store.spill().expect("full memory is spilled");
        store.complete_spill(work.run());
        assert_eq!((store.is_full(), store.memory_bytes(), store.messages()), (false, 0, 2));
        let VolatileRead::Spilled(read) = store.read(second) else {
            panic!("it is in the file");
        };
        store.complete_read(read.run());
        assert!(
            matches!(store.read(second), VolatileRead::Ready(head, payload) if head == "head" && payload.len() == 1_500)
        );
        store.release(first);
        store.release(second);
        let third = keep(&mut store, 10);
        assert!(third > second && matches!(store.read(second), VolatileRead::Gone));
        assert!(matches!(store.read(third), VolatileRead::Ready(..)));
        assert_eq!((store.chunks.len(), store.messages()), (1, 1));
    }
}
