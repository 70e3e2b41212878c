//! Checkpoints: the whole catalogue in one place of the log, so that what lies before can go.
//!
//! A checkpoint is a run of records with nothing between them, each a chunk of items. It says what exists, each source's
//! next sequence and watermark, and what is known of producers. It does not say what waits: messages say that themselves,
//! and are held. When its last chunk is durable, the log's floor rises to its first.
//!
//! Recovery takes each item on top of what it knows (an incomplete checkpoint does no harm), and at the last chunk of a
//! complete one drops what the checkpoint does not name: its end was told by records that are gone.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::log::{AppendError, HEADER_BYTES, Position, Purpose, Space};

use super::administration::head_of;
use super::catalogue_record::{DestinationHead, Origin, kinds};
use super::checkpoint_record::{ChunkHead, Item};
use super::codec::{Decoder, HeadError};
use super::facade::State;
use super::ids::{DestinationId, SourceId, UNLOGGED_ID};
use super::refusals::Key;
use super::tables::{Liveness, Tables};

/// What stands before the items of a chunk, at most.
const CHUNK_HEAD_BYTES: usize = 32;

/// A checkpoint that recovery is reading.
#[derive(Debug)]
pub(super) struct CheckpointReading {
    number: u64,
    chunk: u64,
    begin: Position,
    bytes: u64,
    named: FxHashSet<u64>,
    /// Producers, and whether they are in the young half.
    rows: FxHashMap<Key, bool>,
    forgotten_up_to: u64,
    refused: FxHashSet<Key>,
    /// Producers with names, and users whose names were forgotten; and whether it is everybody's.
    names: FxHashSet<Key>,
    names_forgotten: (BTreeSet<String>, bool),
}

impl CheckpointReading {
    fn forget(&mut self, user: Option<String>) {
        match user {
            Some(user) => self.names_forgotten.0.extend([user]),
            None => self.names_forgotten.1 = true,
        }
    }
}

impl State {
    /// Writes a checkpoint when enough was appended since the last.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), AppendError> {
        let due = self.checkpoint_owed
            || self.log.end().0.saturating_sub(self.checkpoint_end.0) >= self.checkpoint_bytes
            // On a full disk segments are only kept because no checkpoint is above them: one makes room.
            || (self.log.space() == Space::Full
                && (self.log.is_kept_by_floor() || self.log.is_kept_from_rewriting()));
        if !due || self.checkpoint_pending.is_some() || !self.tables.live {
            return Ok(());
        }
        match self.checkpoint() {
            // It is tried again when there is room.
            Err(AppendError::NoSpace) => Ok(()),
            result => result.map(|_| ()),
        }
    }

    /// Writes a checkpoint now; says where its first and its last record are.
    ///
    /// # Errors
    /// The log takes no records, or has no room for all of it: then none of it is written.
    pub fn checkpoint(&mut self) -> Result<(Position, Position), AppendError> {
        let undelivered = self.tables.sources.get(&super::ids::UNDELIVERED.source());
        let wildcard_holds = self.tables.catalogue.subscriptions().any(|subscription| {
            subscription.pattern.has_wildcard()
                && self
                    .tables
                    .sources
                    .get(&subscription.id)
                    .is_some_and(|source| source.statistics.messages > 0)
        });
        if !wildcard_holds && undelivered.is_none_or(|source| source.statistics.messages == 0) {
            self.tables.catalogue.forget_retired();
        }
        let (log, decided) = (&self.log, &mut self.tables.decided);
        decided.retain(|prepared, decided| log.may_exist(decided.position, *prepared));
        let number = self.log.end().0;
        let largest = self.record_bytes_max.saturating_sub(HEADER_BYTES + CHUNK_HEAD_BYTES);
        let chunks = self
            .tables
            .checkpoint_chunks(self.checkpoint_chunk_bytes.min(largest))?;
        let count = chunks.len();
        // A part of one is of no use, and would take of the reserve each time that it is tried.
        let lengths: Vec<u64> = chunks
            .iter()
            .map(|items| (CHUNK_HEAD_BYTES + items.len()) as u64)
            .collect();
        self.log.check_room(&lengths, Purpose::Upkeep)?;
        let mut begin = Position::ZERO;
        let mut end = Position::ZERO;
        for (index, items) in chunks.into_iter().enumerate() {
            self.head_buffer.clear();
            let head = ChunkHead {
                number,
                chunk: index as u64,
                is_last: index + 1 == count,
            };
            head.encode(&mut self.head_buffer);
            self.head_buffer.extend_from_slice(&items);
            end = self.append_event_for(kinds::CHECKPOINT, Purpose::Upkeep)?;
            if index == 0 {
                begin = end;
            }
        }
        self.log.keep_for_checkpoint(lengths.iter().sum());
        self.checkpoint_end = end;
        self.checkpoint_owed = false;
        self.checkpoint_pending = Some((begin, end));
        self.log.set_floor(begin, end);
        Ok((begin, end))
    }

    pub(super) fn note_checkpoint_durable(&mut self) {
        if let Some((begin, end)) = self.checkpoint_pending
            && end < self.tables.committed
        {
            self.checkpoint_pending = None;
            self.tables.checkpoint = begin;
        }
    }
}

/// Items, cut into chunks.
struct Chunks {
    bytes_max: usize,
    done: Vec<Vec<u8>>,
    open: Vec<u8>,
}

impl Chunks {
    fn item(&mut self, item: &Item) -> Result<(), HeadError> {
        let before = self.open.len();
        item.encode(&mut self.open)?;
        if self.open.len() > self.bytes_max && before > 0 {
            let last = self.open.split_off(before);
            self.done.push(std::mem::replace(&mut self.open, last));
        }
        Ok(())
    }
}

impl Tables {
    /// All items, in chunks of so many bytes at most.
    fn checkpoint_chunks(&self, bytes_max: usize) -> Result<Vec<Vec<u8>>, HeadError> {
        let mut chunks = Chunks {
            bytes_max,
            done: Vec::new(),
            open: Vec::new(),
        };
        let catalogue = &self.catalogue;
        chunks.item(&Item::Counters {
            next_id: catalogue.next_id,
            generations: catalogue.generations,
            forgotten_up_to: self.producers.forgotten_up_to(),
        })?;
        for destination in catalogue.destinations() {
            if matches!(destination.origin, Origin::Static | Origin::Dynamic) {
                chunks.item(&Item::Destination(DestinationHead {
                    deleted: false,
                    id: destination.id,
                    kind: destination.kind,
                    name: destination.name.as_str().to_owned(),
                    generation: destination.generation,
                    origin: destination.origin,
                    actor: String::new(),
                }))?;
            }
        }
        for subscription in catalogue.subscriptions().filter(|subscription| subscription.durable) {
            chunks.item(&Item::Subscription(head_of(subscription, false, "")))?;
        }
        for source in self.sources.values().filter(|source| source.logged && source.named) {
            chunks.item(&Item::Source {
                source: source.id,
                next_sequence: source.next_sequence,
                watermark: source.watermark.logged,
            })?;
        }
        for (id, kind, name) in catalogue.retired().filter(|(id, _, _)| id.0 < UNLOGGED_ID) {
            let name = name.clone();
            chunks.item(&Item::Retired { id, kind, name })?;
        }
        self.put_producers(&mut chunks)?;
        for (epoch, id) in self.starts.iter() {
            chunks.item(&Item::Start { epoch, id })?;
        }
        if let Some(secret) = self.starts.secret() {
            chunks.item(&Item::Secret(secret))?;
        }
        if let Some(exported) = self.exported {
            chunks.item(&Item::Exported(exported))?;
        }
        for head in self.returning_heads() {
            chunks.item(&Item::Returning(head))?;
        }
        if self.delays.met_ms > 0 {
            chunks.item(&Item::Due(self.delays.met_ms))?;
        }
        chunks.done.push(chunks.open);
        Ok(chunks.done)
    }

    fn put_producers(&self, chunks: &mut Chunks) -> Result<(), HeadError> {
        for (young, rows) in [false, true].into_iter().zip(self.producers.snapshot()) {
            for (incarnation, destination, sequence) in rows {
                chunks.item(&Item::Producer {
                    young,
                    incarnation,
                    destination,
                    sequence,
                })?;
            }
        }
        for head in self.names.iter() {
            let last = self.producers.kept_sequence((head.incarnation, head.destination));
            chunks.item(&Item::Name { head, sequence: last })?;
        }
        let (users, of_all) = self.names.marks();
        for user in users.map(|user| Some(user.to_owned())).chain(of_all.then_some(None)) {
            chunks.item(&Item::NamesForgotten(user))?;
        }
        for ((incarnation, destination), ranges) in self.producers.refused_snapshot() {
            chunks.item(&Item::Refused {
                incarnation,
                destination,
                ranges,
            })?;
        }
        match self.producers.refusals_forgotten_up_to() {
            [0, 0] => Ok(()),
            incarnations => chunks.item(&Item::RefusalsForgotten(incarnations)),
        }
    }

    /// Takes one chunk.
    pub fn apply_checkpoint(
        &mut self,
        liveness: &mut impl Liveness,
        position: Position,
        head: &[u8],
    ) -> Result<(), HeadError> {
        let mut decoder = Decoder::new(head);
        let ChunkHead { number, chunk, is_last } = ChunkHead::decode(&mut decoder)?;
        let mut reading = match self.reading.take() {
            Some(reading) if reading.number == number && reading.chunk + 1 == chunk => Some(reading),
            _ if chunk == 0 => Some(CheckpointReading {
                number,
                chunk: 0,
                begin: position,
                bytes: 0,
                named: FxHashSet::default(),
                rows: FxHashMap::default(),
                forgotten_up_to: 0,
                refused: FxHashSet::default(),
                names: FxHashSet::default(),
                names_forgotten: (BTreeSet::new(), false),
            }),
            // The beginning is missing: what it says still holds, what it does not say means nothing.
            _ => None,
        };
        while !decoder.is_at_end() {
            self.apply_item(liveness, Item::decode(&mut decoder)?, reading.as_mut())?;
        }
        let Some(mut reading) = reading else { return Ok(()) };
        reading.chunk = chunk;
        reading.bytes += head.len() as u64;
        if is_last {
            self.checkpoint = reading.begin;
            self.checkpoint_bytes = reading.bytes;
            self.drop_unlisted(liveness, &reading.named);
            let (users, of_all) = reading.names_forgotten;
            self.keep_names(&reading.names, users, of_all);
            self.producers.keep_rows(&reading.rows, reading.forgotten_up_to);
            self.producers.keep_refused(&reading.refused);
            self.bound_names();
        } else {
            self.reading = Some(reading);
        }
        Ok(())
    }

    /// Takes one item, and notes what the checkpoint that is read names.
    fn apply_item(
        &mut self,
        liveness: &mut impl Liveness,
        item: Item,
        reading: Option<&mut CheckpointReading>,
    ) -> Result<(), HeadError> {
        match item {
            Item::Counters {
                next_id,
                generations,
                forgotten_up_to,
            } => {
                self.catalogue.next_id = self.catalogue.next_id.max(next_id);
                self.catalogue.generations = self.catalogue.generations.max(generations);
                self.producers.restore_forgotten(forgotten_up_to);
                if let Some(reading) = reading {
                    reading.forgotten_up_to = forgotten_up_to;
                }
            }
            Item::Destination(head) => {
                self.recover_destination(liveness, &head)?;
                reading.map(|reading| reading.named.insert(head.id.0));
            }
            Item::Subscription(head) => {
                if self.catalogue.subscription(head.id).is_none() {
                    self.recover_subscription(liveness, &head)?;
                }
                reading.map(|reading| reading.named.insert(head.id.0));
            }
            Item::Source {
                source: id,
                next_sequence,
                watermark: below,
            } => {
                let source = self.source_or_placeholder(id);
                source.next_sequence = source.next_sequence.max(next_sequence);
                source.watermark.logged = below;
                source.watermark.durable = below;
            }
            Item::Producer {
                young,
                incarnation,
                destination,
                sequence,
            } => {
                self.producers.restore(young, incarnation, destination, sequence);
                reading.map(|reading| reading.rows.insert((incarnation, destination), young));
            }
            Item::Refused {
                incarnation,
                destination,
                ranges,
            } => {
                self.producers.restore_refused(incarnation, destination, &ranges);
                reading.map(|reading| reading.refused.insert((incarnation, destination)));
            }
            Item::RefusalsForgotten(incarnations) => self.producers.restore_refusals_forgotten(incarnations),
            Item::Retired { id, kind, name } => self.catalogue.retire(id, kind, name),
            Item::Start { epoch, id } => self.starts.note(epoch, id),
            Item::Secret(secret) => self.starts.keep(secret),
            Item::Exported(exported) => self.exported = Some(exported),
            Item::Returning(head) => self.apply_return(&head),
            Item::Due(until_ms) => self.delays.met(until_ms),
            Item::Name { head, sequence } => {
                self.restore_name(&head, sequence);
                reading.map(|reading| reading.names.insert((head.incarnation, head.destination)));
            }
            Item::NamesForgotten(user) => {
                self.names.mark(user.as_deref());
                if let Some(reading) = reading {
                    reading.forget(user);
                }
            }
        }
        Ok(())
    }

    fn drop_unlisted(&mut self, liveness: &mut impl Liveness, named: &FxHashSet<u64>) {
        let destinations: Vec<DestinationId> = self
            .catalogue
            .destinations()
            .filter(|destination| destination.origin != Origin::System && !named.contains(&destination.id.0))
            .map(|destination| destination.id)
            .collect();
        let subscriptions: Vec<SourceId> = self
            .catalogue
            .subscriptions()
            .filter(|subscription| !named.contains(&subscription.id.0))
            .map(|subscription| subscription.id)
            .collect();
        for id in destinations {
            self.drop_destination(liveness, id);
        }
        for id in subscriptions {
            self.drop_subscription(liveness, id);
        }
        // What records before it referred to, and none names any more, was deleted as well.
        let unnamed = self.sources.values().filter(|source| !source.named);
        let unnamed: Vec<SourceId> = unnamed.map(|source| source.id).collect();
        for id in unnamed {
            self.remove_source(liveness, id);
        }
    }
}
