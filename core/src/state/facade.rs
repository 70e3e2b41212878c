//! The facade: one [`State`] is the tables, the log, and nothing else. The engine calls it; its methods are spread over
//! this folder by what they are about (`publishing`, `dispatching`, `acknowledging`, `transacting`, `administration`,
//! `upkeep`). A method decides, logs the decision as a record, and applies the record.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::log::disk::Disk;
use crate::log::{AppendError, Log, OpenMode, Options, Position, Purpose, RecoveryReport, Renamed};

use super::catalogue::{Catalogue, Destination, Subscription};
use super::catalogue_record::kinds;
use super::destroyed::Destroyed;
use super::error::StateError;
use super::ids::{DestinationId, EPOCH_END, Kind, Now, SourceId, within_epoch};
use super::names::Names;
use super::producers::{ProducerKnowledge, Producers};
use super::properties::Stores;
use super::publishing::Planning;
use super::records::check_appended;
use super::returning::Gathered;
use super::source::Source;
use super::spill::SpillFiles;
use super::starts::{Start, StartHead, Starts};
use super::tables::{Liveness, Recovering, Tables};
use super::upkeep::ReadJob;
use super::volatile::{VolatileStore, is_volatile};
use super::witness::Witness;

/// How a state is opened.
#[derive(Clone, Debug)]
pub struct StateOptions {
    /// The broker's name, as in message ids.
    pub broker: String,
    /// The log's.
    pub log: Options,
    /// Memory for messages that are not logged; beyond it they spill. Default 64 MiB.
    pub volatile_bytes: u64,
    /// Producers that are remembered, per destination. Default 100,000.
    pub producers_max: usize,
    /// Producers that are known by their names. Default 10,000.
    pub named_producers_max: usize,
    /// Producers of which refused numbers are remembered, per destination. Default 65,536.
    pub refusals_max: usize,
    /// Bits of an incarnation that count within an epoch, 32 at most. Default 32; stores from before began with 24, and what
    /// they gave out is below what later epochs give out.
    pub incarnation_bits: u32,
    /// How many sequences the redelivery watermark is raised by. Default 8,192.
    pub redelivery_reserve: u64,
    /// Memory for header parts of messages that selectors look at. Default 64 MiB.
    pub selector_cache_bytes: usize,
    /// What this start drew at random.
    pub start: Start,
    /// A checkpoint is written when so many bytes were appended since the last. Default: eight segments.
    pub checkpoint_bytes: Option<u64>,
    /// A record of a checkpoint is closed before it is larger than this, unless one item alone is. Default 128 KiB.
    pub checkpoint_chunk_bytes: usize,
}

impl Default for StateOptions {
    fn default() -> Self {
        Self {
            broker: "broker".to_owned(),
            log: Options::default(),
            volatile_bytes: 64 * 1024 * 1024,
            producers_max: 100_000,
            named_producers_max: 10_000,
            refusals_max: 65_536,
            incarnation_bits: 32,
            redelivery_reserve: 8192,
            selector_cache_bytes: 64 * 1024 * 1024,
            start: Start::default(),
            checkpoint_bytes: None,
            checkpoint_chunk_bytes: 128 * 1024,
        }
    }
}

/// Queues, subscriptions, transactions and producers over one log.
pub struct State {
    pub(super) log: Log,
    pub(super) tables: Tables,
    pub(super) broker: String,
    pub(super) redelivery_reserve: u64,
    pub(super) selector_cache_bytes: usize,
    pub(super) checkpoint_bytes: u64,
    pub(super) checkpoint_chunk_bytes: usize,
    pub(super) record_bytes_max: usize,
    pub(super) checkpoint_end: Position,
    pub(super) checkpoint_pending: Option<(Position, Position)>,
    pub(super) reads: Vec<ReadJob>,
    /// Chunks of spill files whose reads are under way.
    pub(super) reading_spilled: FxHashSet<u64>,
    /// Somebody waits for records that can be read when the system has descriptors and memory again.
    pub(super) later: bool,
    pub(super) planning: Planning,
    pub(super) head_buffer: Vec<u8>,
    pub(super) sequences: Vec<u64>,
    /// Lengths of records that have still to be logged for what has taken effect: others leave room for them.
    pub(super) promised: Vec<u64>,
    pub(super) incarnations: u64,
    pub(super) incarnation_bits: u32,
    pub(super) bridge_incarnation: u64,
    pub(super) bridged: u64,
    pub(super) overdue: bool,
    /// Sources whose redelivery watermark could not be raised: they have to be looked at again.
    pub(super) unreserved: Vec<SourceId>,
    /// Names that a forced start gave out, and that are not logged yet for want of room.
    pub(super) recovered: Vec<DestinationId>,
    /// A checkpoint that a forced start owes found no room.
    pub(super) checkpoint_owed: bool,
    /// A forced start is over once the log is durable up to here, and nothing is owed of it.
    pub(super) force_ends: Option<Position>,
    /// What came back to wait and is not logged yet.
    pub(super) gathered: Option<Gathered>,
    pub(super) totals: Totals,
    pub(super) witness: Witness,
}

/// What the whole state did since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Messages taken in; bridged copies are not counted.
    pub published_total: u64,
    /// Deliveries.
    pub delivered_total: u64,
    /// Acknowledged deliveries.
    pub acknowledged_total: u64,
}

impl State {
    /// Opens or creates the store in a folder: locks it, reads its log, and begins a new epoch (or follows, as the log's
    /// options say).
    ///
    /// # Errors
    /// The folder or the log cannot be used: locked, damaged, or of a newer version.
    pub fn open(disk: Arc<dyn Disk>, options: StateOptions, now: Now) -> Result<(Self, RecoveryReport), StateError> {
        let follows = options.log.mode == OpenMode::Follower;
        if let OpenMode::Active { epoch } = options.log.mode {
            check_epoch(epoch)?;
        }
        let segment_bytes = u64::from(options.log.segment_bytes);
        let record_bytes_max = options.log.record_bytes_max as usize;
        let is_forced = options.log.force_start;
        // Made before the log is locked, wiped after: another process may be using these files.
        let mut recovering = Recovering::default();
        let spill = SpillFiles::new(Arc::clone(&disk));
        let mut tables = Tables::new(
            now,
            (
                Producers::new(options.producers_max, options.refusals_max),
                Names::new(options.named_producers_max),
            ),
            VolatileStore::new(options.volatile_bytes, spill),
            Starts::new(options.incarnation_bits.clamp(1, 32)),
        );
        let (mut log, mut report) = Log::open(Arc::clone(&disk), options.log, &mut |record| {
            tables
                .apply(
                    &mut recovering,
                    record.position,
                    record.epoch,
                    record.kind,
                    record.head,
                    record.payload_length,
                )
                .map_err(|error| error.to_string())
        })?;
        SpillFiles::wipe(&*disk)?;
        report.renamed = tables.recovered(&mut log, recovering, follows, is_forced || report.force_unfinished);
        log.keep_for_checkpoint(tables.checkpoint_bytes);
        tables.live = !follows;
        let witness = Witness::begin(&tables);
        let mut state = Self {
            log,
            checkpoint_end: tables.checkpoint,
            tables,
            broker: options.broker,
            redelivery_reserve: options.redelivery_reserve.max(2),
            selector_cache_bytes: options.selector_cache_bytes,
            checkpoint_bytes: options.checkpoint_bytes.unwrap_or(segment_bytes * 8),
            checkpoint_chunk_bytes: options.checkpoint_chunk_bytes,
            record_bytes_max,
            checkpoint_pending: None,
            reads: Vec::new(),
            reading_spilled: FxHashSet::default(),
            later: false,
            planning: Planning::default(),
            head_buffer: Vec::new(),
            sequences: Vec::new(),
            promised: Vec::new(),
            incarnations: 0,
            incarnation_bits: options.incarnation_bits.clamp(1, 32),
            bridge_incarnation: 0,
            bridged: 0,
            overdue: false,
            unreserved: Vec::new(),
            recovered: Vec::new(),
            checkpoint_owed: false,
            force_ends: None,
            totals: Totals::default(),
            gathered: None,
            witness,
        };
        state.begin(options.start, &report, is_forced)?;
        state.bridge_incarnation = state.next_incarnation()?;
        state.overdue = state.tables.timers.is_due(now.monotonic_ms);
        Ok((state, report))
    }

    /// The time, from now on. Everything that is due happens: messages expire, delays end.
    pub fn tick(&mut self, now: Now) {
        self.tables.now = now;
        self.retry_reserving();
        self.run_timers();
    }

    /// The time as last told.
    #[must_use]
    pub const fn now(&self) -> Now {
        self.tables.now
    }

    /// The log's epoch: one for each start, or won election.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.log.epoch()
    }

    /// The store's identity.
    #[must_use]
    pub fn store_id(&self) -> [u8; 16] {
        self.log.store_id()
    }

    /// The log, to look at.
    #[must_use]
    pub const fn log(&self) -> &Log {
        &self.log
    }

    /// What exists.
    #[must_use]
    pub const fn catalogue(&self) -> &Catalogue {
        &self.tables.catalogue
    }

    /// The stores and their accounts.
    #[must_use]
    pub const fn stores(&self) -> &Stores {
        &self.tables.stores
    }

    /// What went without being taken, since the start.
    #[must_use]
    pub const fn destroyed(&self) -> &Destroyed {
        &self.tables.destroyed
    }

    /// Totals since the start.
    #[must_use]
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// A destination by name.
    #[must_use]
    pub fn destination(&self, kind: Kind, name: &str) -> Option<&Destination> {
        self.tables
            .catalogue
            .destination(self.tables.catalogue.id_of(kind, name)?)
    }

    /// A destination by number.
    #[must_use]
    pub fn destination_by_id(&self, id: DestinationId) -> Option<&Destination> {
        self.tables.catalogue.destination(id)
    }

    /// Kind and name of a destination, also of a deleted one that left messages behind.
    #[must_use]
    pub fn destination_name(&self, id: DestinationId) -> Option<(Kind, &str)> {
        self.tables
            .catalogue
            .name_of(id)
            .map(|(kind, name)| (kind, name.as_str()))
    }

    /// A named subscription.
    #[must_use]
    pub fn subscription(&self, client_id: &str, name: &str) -> Option<&Subscription> {
        self.tables.catalogue.subscription_named(client_id, name)
    }

    /// A queue or subscription.
    #[must_use]
    pub fn source(&self, id: SourceId) -> Option<&Source> {
        self.tables.sources.get(&id)
    }

    /// A number for a new producer, never given before on this store.
    ///
    /// # Errors
    /// This epoch has given out all that it has: one more would be the next one's.
    pub fn next_incarnation(&mut self) -> Result<u64, StateError> {
        let next = self.incarnations + 1;
        let incarnation = within_epoch(self.log.epoch(), next, self.incarnation_bits)
            .ok_or(StateError::Exhausted("identities of producers"))?;
        self.incarnations = next;
        Ok(incarnation)
    }

    /// What is known of an incarnation at a destination, for a producer that comes back.
    #[must_use]
    pub fn producer_knowledge(&self, incarnation: u64, destination: DestinationId) -> ProducerKnowledge {
        self.tables.producers.knowledge(incarnation, destination)
    }

    /// Whether numbers of an incarnation may be forgotten, at whatever destination.
    #[must_use]
    pub const fn may_have_forgotten(&self, incarnation: u64) -> bool {
        self.tables.producers.may_have_forgotten(incarnation)
    }

    /// The stamp that messages get now.
    #[must_use]
    pub const fn arrived_ms(&self) -> u64 {
        self.tables.now.wall_ms
    }

    /// Everything below is durable.
    #[must_use]
    pub const fn committed(&self) -> Position {
        self.tables.committed
    }

    /// Deliveries and confirmations may go on up to here. Called with what the log reports, or later with what all members
    /// of a pair have.
    pub fn advance_commit(&mut self, position: Position) {
        self.tables.advance_commit(position);
        self.log.set_committed(self.tables.committed);
        self.note_checkpoint_durable();
    }

    /// Why the log is finished for this process, if it is.
    #[must_use]
    pub fn failed(&self) -> Option<&str> {
        self.log.failed()
    }

    /// Makes a follower active: it begins an epoch of its own and flags what its leader may have delivered.
    ///
    /// # Errors
    /// The epoch is not above the log's last, or above all that there are.
    pub fn begin_epoch(&mut self, epoch: u64, start: Start) -> Result<(), StateError> {
        check_epoch(Some(epoch))?;
        self.log.begin_epoch(epoch)?;
        // Not before: where it is refused the present epoch goes on counting.
        self.incarnations = 0;
        self.tables.begin_epoch(&mut self.log, epoch);
        self.tables.drop_unnamed(&mut self.log);
        self.tables.inherit_watermarks();
        self.tables.live = true;
        self.witness = Witness::begin(&self.tables);
        self.log_start(start)?;
        self.bridge_incarnation = self.next_incarnation()?;
        Ok(())
    }

    /// The first records of a start; who follows another writes none.
    fn begin(&mut self, start: Start, report: &RecoveryReport, is_forced: bool) -> Result<(), StateError> {
        if self.tables.live {
            self.log_start(start)?;
        }
        self.note_losses(report);
        self.settle_forced(report, is_forced)
    }

    /// Logs this start before anything that could rest on it.
    fn log_start(&mut self, start: Start) -> Result<(), StateError> {
        if start.id == 0 {
            return Ok(());
        }
        let secret = self.tables.starts.secret().is_none().then_some(start.secret);
        let head = StartHead { id: start.id, secret };
        self.head_buffer.clear();
        head.encode(&mut self.head_buffer);
        match self.append_event_for(kinds::START, Purpose::Upkeep) {
            Ok(_) => {
                self.tables.apply_start(self.log.epoch(), &head);
                Ok(())
            }
            // A full disk does not keep a broker from starting. Producers of this start are unknown to the next one.
            Err(AppendError::NoSpace) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Appends a record and says where it is.
    pub(super) fn append_event(&mut self, kind: u8) -> Result<Position, AppendError> {
        self.append_event_for(kind, Purpose::Drain)
    }

    /// As [`State::append_event`], with the room that is for this purpose.
    pub(super) fn append_event_for(&mut self, kind: u8, purpose: Purpose) -> Result<Position, AppendError> {
        check_appended(kind, &self.head_buffer)?;
        if !self.promised.is_empty() {
            let mut lengths = vec![self.head_buffer.len() as u64];
            lengths.extend(&self.promised);
            self.log.check_room(&lengths, Purpose::Drain)?;
        }
        match purpose {
            Purpose::Fill => self.log.append(kind, &self.head_buffer, &[]),
            Purpose::Drain => self.log.append_reserved(kind, &self.head_buffer, &[]),
            Purpose::Upkeep => self.log.append_kept(kind, &self.head_buffer, &[]),
        }
    }

    /// Messages that are not logged: how many, how many bytes of them are in memory, and how many writes to the spill file
    /// failed.
    #[must_use]
    pub fn volatile_use(&self) -> (u64, u64, u64) {
        (
            self.tables.volatile.messages(),
            self.tables.volatile.memory_bytes(),
            self.tables.volatile.spill_failures(),
        )
    }

    /// Memory of the entries of all sources and of what is in flight, payloads not included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.tables
            .sources
            .values()
            .map(|source| source.queue.memory_bytes())
            .sum()
    }

    /// Whether a position is in memory only.
    #[must_use]
    pub const fn is_volatile(position: Position) -> bool {
        is_volatile(position)
    }
}

/// Numbers of producers and transactions are composed of the epoch and a counter: it must leave room for that.
fn check_epoch(epoch: Option<u64>) -> Result<(), StateError> {
    match epoch {
        Some(EPOCH_END..) => Err(StateError::Exhausted("epochs")),
        _ => Ok(()),
    }
}

impl Tables {
    /// All records were applied: what follows from there being no more of them. `is_forced`: what names a source may be lost,
    /// and it is given a name; which these are.
    fn recovered(&mut self, log: &mut Log, mut recovering: Recovering, follows: bool, is_forced: bool) -> Vec<Renamed> {
        self.begin_epoch(&mut recovering, log.epoch());
        self.settle_delays(!is_forced);
        let renamed = if is_forced && !follows {
            self.name_unnamed()
        } else {
            Vec::new()
        };
        // A follower may not have got as far as to what names them; when it takes over it has.
        if !follows {
            self.drop_unnamed(&mut recovering);
        }
        self.committed = log.durable();
        self.inherit_watermarks();
        self.hold_all(log);
        for (holder, target) in recovering.dependencies {
            Liveness::depend(log, holder, target);
        }
        // Without a checkpoint yet, nothing is below it.
        log.set_floor(self.checkpoint.max(Position(1)), Position::ZERO);
        log.set_committed(self.committed);
        renamed
    }

    /// Sources that no record and no checkpoint names were deleted, by records that are no longer needed.
    fn drop_unnamed(&mut self, liveness: &mut impl Liveness) {
        let unnamed: Vec<SourceId> = self
            .sources
            .values()
            .filter(|source| !source.named)
            .map(|source| source.id)
            .collect();
        for id in unnamed {
            self.remove_source(liveness, id);
        }
    }

    /// What may have been delivered before comes flagged from now on.
    fn inherit_watermarks(&mut self) {
        for source in self.sources.values_mut() {
            // What the records tell of happened before.
            source.statistics.begin();
            // What comes from now on cannot have been delivered before, although the watermark was reserved beyond it.
            source.watermark.inherited = source.watermark.logged.min(source.next_sequence);
            source.watermark.durable = source.watermark.logged;
            source.delivered_below = source.watermark.inherited;
        }
    }

    /// Holds every record that recovery found to be needed.
    fn hold_all(&mut self, log: &mut Log) {
        for source in self.sources.values() {
            source.queue.iter().for_each(|(_, entry)| log.hold(entry.position));
            source.moved.values().for_each(|moved| log.hold(moved.record));
        }
        for id in self.transactions.ids() {
            let Some(transaction) = self.transactions.get(id) else {
                continue;
            };
            transaction
                .entries
                .iter()
                .for_each(|pending| log.hold(pending.entry.position));
            transaction.terminals.iter().for_each(|(record, _)| log.hold(*record));
            if let Some(record) = transaction.prepared {
                log.hold(record);
            }
        }
    }
}
