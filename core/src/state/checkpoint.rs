//! Checkpoints: the whole catalogue in one place of the log, so that what lies before can go.
//!
//! A checkpoint is a run of records with nothing between them, each a chunk of items. It says what exists, each source's
//! next sequence and watermark, and what is known of producers. It does not say what waits: messages say that themselves,
//! and are held. When its last chunk is durable, the log's floor rises to its first.
//!
//! Recovery takes each item on top of what it knows (an incomplete checkpoint does no harm), and at the last chunk of a
//! complete one drops what the checkpoint does not name: its end was told by records that are gone.

use rustc_hash::FxHashSet;

use crate::log::{AppendError, Position, Space};
use crate::name::DestinationName;
use crate::wire::put_varint;

use super::catalogue::Unwanted;
use super::catalogue_record::{DestinationHead, Origin, SubscriptionHead, kinds};
use super::codec::{Decoder, HeadError, put_bytes};
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId, UNLOGGED_ID};
use super::refusals::Ranges;
use super::tables::{Liveness, Tables};

const VERSION: u8 = 1;
/// A chunk is closed when it is this large.
const CHUNK_BYTES: usize = 128 * 1024;

const ITEM_COUNTERS: u8 = 1;
const ITEM_DESTINATION: u8 = 2;
const ITEM_SUBSCRIPTION: u8 = 3;
const ITEM_SOURCE: u8 = 4;
const ITEM_PRODUCER: u8 = 5;
const ITEM_RETIRED: u8 = 6;
const ITEM_REFUSED: u8 = 7;

/// A checkpoint that recovery is reading.
#[derive(Debug)]
pub(super) struct CheckpointReading {
    number: u64,
    chunk: u64,
    begin: Position,
    named: FxHashSet<u64>,
}

impl State {
    /// Writes a checkpoint when enough was appended since the last.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), AppendError> {
        let due = self.log.end().0.saturating_sub(self.checkpoint_end.0) >= self.checkpoint_bytes
            // On a full disk segments are only kept because no checkpoint is above them: one makes room.
            || (self.log.space() == Space::Full && self.log.is_kept_by_floor());
        if !due || self.checkpoint_pending.is_some() || !self.tables.live {
            return Ok(());
        }
        match self.checkpoint() {
            // It is tried again when there is room.
            Err(AppendError::NoSpace) => Ok(()),
            result => result,
        }
    }

    /// Writes a checkpoint now.
    ///
    /// # Errors
    /// The log takes no records: part of it may be written, which does no harm.
    pub fn checkpoint(&mut self) -> Result<(), AppendError> {
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
        let chunks = self.tables.checkpoint_chunks();
        let count = chunks.len();
        let mut begin = Position::ZERO;
        let mut end = Position::ZERO;
        for (index, items) in chunks.into_iter().enumerate() {
            self.head_buffer.clear();
            self.head_buffer.push(VERSION);
            put_varint(&mut self.head_buffer, number);
            put_varint(&mut self.head_buffer, index as u64);
            self.head_buffer.push(u8::from(index + 1 == count));
            self.head_buffer.extend_from_slice(&items);
            end = self.append_event(kinds::CHECKPOINT)?;
            if index == 0 {
                begin = end;
            }
        }
        self.checkpoint_end = end;
        self.checkpoint_pending = Some((begin, end));
        self.log.set_floor(begin, end);
        Ok(())
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
    done: Vec<Vec<u8>>,
    open: Vec<u8>,
}

impl Chunks {
    fn item(&mut self, tag: u8, write: impl FnOnce(&mut Vec<u8>)) {
        if self.open.len() >= CHUNK_BYTES {
            self.done.push(std::mem::take(&mut self.open));
        }
        self.open.push(tag);
        write(&mut self.open);
    }
}

impl Tables {
    fn checkpoint_chunks(&self) -> Vec<Vec<u8>> {
        let mut chunks = Chunks {
            done: Vec::new(),
            open: Vec::new(),
        };
        let catalogue = &self.catalogue;
        chunks.item(ITEM_COUNTERS, |out| {
            put_varint(out, catalogue.next_id);
            put_varint(out, catalogue.generations);
            put_varint(out, self.producers.forgotten_up_to());
        });
        for destination in catalogue.destinations() {
            if matches!(destination.origin, Origin::Static | Origin::Dynamic) {
                let head = DestinationHead {
                    deleted: false,
                    id: destination.id,
                    kind: destination.kind,
                    name: destination.name.as_str().to_owned(),
                    generation: destination.generation,
                    origin: destination.origin,
                    actor: String::new(),
                };
                chunks.item(ITEM_DESTINATION, |out| head.encode(out));
            }
        }
        for subscription in catalogue.subscriptions().filter(|subscription| subscription.durable) {
            let head = SubscriptionHead {
                deleted: false,
                id: subscription.id,
                client_id: subscription.client_id.clone(),
                name: subscription.name.clone(),
                pattern: subscription.pattern.as_str().to_owned(),
                selector: subscription.selector_text.clone(),
                shared: subscription.shared,
                no_local: subscription.unwanted != Unwanted::Nobody,
                is_static: subscription.is_static,
                actor: String::new(),
            };
            chunks.item(ITEM_SUBSCRIPTION, |out| head.encode(out));
        }
        for source in self.sources.values().filter(|source| source.logged && source.named) {
            chunks.item(ITEM_SOURCE, |out| {
                put_varint(out, source.id.0);
                put_varint(out, source.next_sequence);
                put_varint(out, source.watermark.logged);
            });
        }
        for (id, kind, name) in catalogue.retired().filter(|(id, _, _)| id.0 < UNLOGGED_ID) {
            chunks.item(ITEM_RETIRED, |out| {
                put_varint(out, id.0);
                out.push(u8::from(kind == Kind::Topic));
                put_bytes(out, name.as_str().as_bytes());
            });
        }
        self.put_producers(&mut chunks);
        chunks.done.push(chunks.open);
        chunks.done
    }

    fn put_producers(&self, chunks: &mut Chunks) {
        for (young, rows) in [false, true].into_iter().zip(self.producers.snapshot()) {
            for (incarnation, destination, sequence) in rows {
                chunks.item(ITEM_PRODUCER, |out| {
                    out.push(u8::from(young));
                    put_varint(out, incarnation);
                    put_varint(out, destination.0);
                    put_varint(out, sequence);
                });
            }
        }
        for (incarnation, destination, ranges) in self.producers.refusals.snapshot() {
            chunks.item(ITEM_REFUSED, |out| {
                put_varint(out, incarnation);
                put_varint(out, destination.0);
                put_varint(out, ranges.len() as u64);
                for (first, last) in ranges {
                    put_varint(out, first);
                    put_varint(out, last);
                }
            });
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
        decoder.version("checkpoint", VERSION)?;
        let number = decoder.number("number")?;
        let chunk = decoder.number("chunk")?;
        let is_last = decoder.byte("last")? != 0;
        let mut reading = match self.reading.take() {
            Some(reading) if reading.number == number && reading.chunk + 1 == chunk => Some(reading),
            _ if chunk == 0 => Some(CheckpointReading {
                number,
                chunk: 0,
                begin: position,
                named: FxHashSet::default(),
            }),
            // The beginning is missing: what it says still holds, what it does not say means nothing.
            _ => None,
        };
        while !decoder.is_at_end() {
            let named = self.apply_item(liveness, &mut decoder)?;
            if let (Some(reading), Some(id)) = (&mut reading, named) {
                reading.named.insert(id);
            }
        }
        let Some(mut reading) = reading else { return Ok(()) };
        reading.chunk = chunk;
        if is_last {
            self.checkpoint = reading.begin;
            self.drop_unlisted(liveness, &reading.named);
        } else {
            self.reading = Some(reading);
        }
        Ok(())
    }

    /// Takes one item; says which destination or subscription it names.
    fn apply_item(&mut self, _: &mut impl Liveness, decoder: &mut Decoder<'_>) -> Result<Option<u64>, HeadError> {
        match decoder.byte("an item")? {
            ITEM_COUNTERS => {
                self.catalogue.next_id = self.catalogue.next_id.max(decoder.number("next_id")?);
                self.catalogue.generations = self.catalogue.generations.max(decoder.number("generations")?);
                self.producers.restore_forgotten(decoder.number("forgotten_up_to")?);
                Ok(None)
            }
            ITEM_DESTINATION => {
                let head = DestinationHead::decode_from(decoder)?;
                let name = DestinationName::parse(&head.name).map_err(|_| HeadError::Range("destination name"))?;
                self.create_destination(head.id, head.kind, name, head.generation, head.origin);
                Ok(Some(head.id.0))
            }
            ITEM_SUBSCRIPTION => {
                let head = SubscriptionHead::decode_from(decoder)?;
                let id = head.id;
                if self.catalogue.subscription(id).is_none() {
                    self.recover_subscription(&head)?;
                }
                Ok(Some(id.0))
            }
            ITEM_SOURCE => {
                let id = SourceId(decoder.number("source")?);
                let (next, below) = (decoder.number("next_sequence")?, decoder.number("watermark")?);
                let source = self.source_or_placeholder(id);
                source.next_sequence = source.next_sequence.max(next);
                source.watermark.logged = below;
                source.watermark.durable = below;
                Ok(None)
            }
            ITEM_PRODUCER => {
                let young = decoder.byte("a producer")? != 0;
                let incarnation = decoder.number("a producer")?;
                let destination = DestinationId(decoder.number("a producer")?);
                self.producers
                    .restore(young, incarnation, destination, decoder.number("a producer")?);
                Ok(None)
            }
            ITEM_REFUSED => {
                let incarnation = decoder.number("a refusal's producer")?;
                let destination = DestinationId(decoder.number("a refusal's destination")?);
                let mut ranges = Ranges::new();
                for _ in 0..decoder.count("refused ranges")? {
                    ranges.push((decoder.number("a refused range")?, decoder.number("a refused range")?));
                }
                self.producers.refusals.set(incarnation, destination, &ranges);
                Ok(None)
            }
            ITEM_RETIRED => {
                let id = DestinationId(decoder.number("a retired name")?);
                let kind = if decoder.byte("a retired name")? == 1 {
                    Kind::Topic
                } else {
                    Kind::Queue
                };
                let name = decoder.text("a retired name")?;
                let name = DestinationName::parse(name).map_err(|_| HeadError::Range("a retired name"))?;
                self.catalogue.retire(id, kind, name);
                Ok(None)
            }
            _ => Err(HeadError::Range("an item")),
        }
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
    }
}
