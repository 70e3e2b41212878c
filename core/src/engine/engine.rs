//! The engine: connections, sessions, producers and consumers over the state, handed frames and the time.
//!
//! The host (the Python face, or a simulation) owns the sockets, the clock and the threads:
//!
//! 1. `tick` with the time, then `handle` what came in, or `complete_*` what was done;
//! 2. `poll`: which streams have output, which tickets wait, when to come back;
//! 3. `take_output` for those streams, and `next_write`, `take_reads`, `maintenance` for the disk's work.
//!
//! Nothing here fails because of what a client sends: a bad frame becomes an error for the one who sent it. The parts
//! live in files of their own, each an `impl Engine` beside the noun it is about; all tables are flat maps by number, so
//! that a part can hold one of them while it uses another.

use super::confirms::Pending;
use super::connection::Connection;
use super::consumer::Consumer;
use super::errors::Refused;
use super::figures::Figures;
use super::frames::SetsFrame;
use super::kept_uploads::KeptUploads;
use super::limits::Settings;
use super::output::Item;
use super::owed::Owed;
use super::producer::Producer;
use super::receivers::Receivers;
use super::session::Session;
use super::stream::{Phase, Stream};
use super::tickets::{Ticket, TicketRequest};
use super::unused::Sweep;
use crate::log::{Position, WriteDone, WriteJob};
use crate::proto;
use crate::snapshot::keeper::{self, Keeper};
use crate::state::{
    DestinationId, Now, Properties, ReadJob, ReadJobDone, SourceId, State, StateError, Tx, UpkeepDone, UpkeepJob,
};
use rustc_hash::FxHashMap;

/// What `poll` found.
#[derive(Debug, Default)]
pub struct Polled {
    /// Streams that have output, each told once until it is taken.
    pub ready: Vec<u64>,
    /// Questions for the host, each told once.
    pub tickets: Vec<TicketRequest>,
    /// When `tick` is wanted at the latest; monotonic milliseconds.
    pub deadline_ms: Option<u64>,
}

/// See the module's documentation.
pub struct Engine {
    pub(super) state: State,
    pub(super) settings: Settings,
    pub(super) now: Now,
    pub(super) started: Now,
    pub(super) streams: FxHashMap<u64, Stream>,
    pub(super) connections: FxHashMap<u64, Connection>,
    pub(super) sessions: FxHashMap<u64, Session>,
    pub(super) producers: FxHashMap<u64, Producer>,
    /// Open producers that have a name.
    pub(super) named: FxHashMap<super::naming::Name, u64>,
    pub(super) consumers: FxHashMap<u64, Consumer>,
    pub(super) receivers: FxHashMap<SourceId, Receivers>,
    /// Connections by their tokens.
    pub(super) tokens: FxHashMap<[u8; 16], u64>,
    /// Connections by the client ids that they chose.
    pub(super) client_ids: FxHashMap<String, u64>,
    /// Why nothing is written any more.
    pub(super) failed: Option<String>,
    pub(super) tickets: FxHashMap<u64, Ticket>,
    /// Destinations that nothing may be sent to, and why.
    pub(super) closed: FxHashMap<DestinationId, Refused>,
    /// Destinations that live on another broker, although something of them is here, and how clients are told.
    pub(super) elsewhere: FxHashMap<DestinationId, Refused>,
    pub(super) asked: Vec<TicketRequest>,
    /// What temporary queues and topics get; none: nothing is configured.
    pub(super) temporary_properties: [Option<Properties>; 2],
    pub(super) pending: Pending,
    /// Everything below was handed to a write.
    pub(super) written: Position,
    /// Numbers connections, sessions, producers and tickets; never reused.
    pub(super) last_key: u64,
    /// When `check_liveness` may have something to do; never later than that.
    pub(super) liveness_at_ms: u64,
    /// When `end_overdue` may have something to do; never later than that.
    pub(super) overdue_at_ms: u64,
    /// After a stall: until when nobody is given up for his silence, and how often `poll` was called since.
    pub(super) catching_up: Option<(u64, u32)>,
    pub(super) figures: Figures,
    /// What came of bodies whose stream broke.
    pub(super) kept_uploads: KeptUploads,
    /// By incarnation the producer that has uploaded last.
    pub(super) uploading: FxHashMap<u64, u64>,
    /// Streams to tell of at the next `poll`.
    pub(super) ready: Vec<u64>,
    pub(super) dirty: Vec<SourceId>,
    /// Sessions that wait for room in the log.
    pub(super) stalled: Vec<u64>,
    /// Output that was taken made room for some of them.
    pub(super) made_room: bool,
    /// Transactions that are over for their sessions, and whose rollback waits for room in the log.
    pub(super) undoing: Vec<Tx>,
    /// Acknowledgements that wait for room in the log.
    pub(super) owed: Owed,
    /// Sources where a selector waits for a read.
    pub(super) selecting: Vec<SourceId>,
    /// Consumers whose opening is answered, and which are served, once a position is committed.
    pub(super) opening: std::collections::VecDeque<(Position, u64)>,
    /// How often it was tried to hand something to somebody.
    #[cfg(test)]
    pub(super) attempts: u64,
    /// Consumers whose output waits for a read.
    pub(super) reading: Vec<u64>,
    pub(super) sweep: Sweep,
    /// What is kept for audits; none: nothing is.
    pub(super) snapshots: Option<Keeper>,
    /// Memory that is used again: see where it is taken.
    pub(super) round: Vec<u64>,
    pub(super) items: Vec<Item>,
    pub(super) sets: SetsFrame,
}

impl Engine {
    /// An engine over a state that has been opened.
    #[must_use]
    pub fn new(state: State, settings: Settings, now: Now) -> Self {
        let written = state.end();
        Self {
            state,
            settings,
            now,
            started: now,
            streams: FxHashMap::default(),
            connections: FxHashMap::default(),
            sessions: FxHashMap::default(),
            producers: FxHashMap::default(),
            named: FxHashMap::default(),
            consumers: FxHashMap::default(),
            receivers: FxHashMap::default(),
            tokens: FxHashMap::default(),
            client_ids: FxHashMap::default(),
            failed: None,
            tickets: FxHashMap::default(),
            closed: FxHashMap::default(),
            elsewhere: FxHashMap::default(),
            asked: Vec::new(),
            temporary_properties: [None, None],
            pending: Pending::default(),
            written,
            last_key: 0,
            liveness_at_ms: u64::MAX,
            overdue_at_ms: u64::MAX,
            catching_up: None,
            ready: Vec::new(),
            dirty: Vec::new(),
            stalled: Vec::new(),
            made_room: false,
            figures: Figures::default(),
            kept_uploads: KeptUploads::default(),
            uploading: FxHashMap::default(),
            undoing: Vec::new(),
            owed: Owed::default(),
            opening: std::collections::VecDeque::new(),
            #[cfg(test)]
            attempts: 0,
            reading: Vec::new(),
            selecting: Vec::new(),
            sweep: Sweep::default(),
            snapshots: None,
            round: Vec::new(),
            items: Vec::new(),
            sets: SetsFrame::default(),
        }
    }

    /// A number for something new.
    pub(super) fn next_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    /// What the engine was made with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state, for administration.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The state, for the host: configuration, purges, deletions.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// The time as last told.
    #[must_use]
    pub fn now(&self) -> Now {
        self.now
    }

    /// When the engine was made.
    #[must_use]
    pub fn started(&self) -> Now {
        self.started
    }

    /// Takes the time, before anything else is done in it: expiry and delay, heartbeats, streams that are too slow.
    pub fn tick(&mut self, now: Now) {
        let unchanged = now.monotonic_ms == self.now.monotonic_ms && now.wall_ms == self.now.wall_ms;
        // What a start finds overdue has to go even while the clock stands still: nothing is handed out before.
        if unchanged && !self.state.is_overdue() {
            return;
        }
        self.now = now;
        self.state.tick(now);
        if now.monotonic_ms >= self.liveness_at_ms {
            self.check_liveness();
        }
        if now.monotonic_ms >= self.overdue_at_ms {
            self.end_overdue();
        }
        self.kept_uploads.expire(now.monotonic_ms);
        self.sweep_unused();
    }

    /// Hands messages out and tells what is ready.
    pub fn poll(&mut self) -> Polled {
        if let Some((_, polls)) = &mut self.catching_up {
            *polls = polls.saturating_add(1);
        }
        self.check_store();
        self.resume_undoing();
        self.resume_owed();
        self.resume_stalled();
        self.settle_commits();
        self.dispatch();
        self.ask_properties();
        Polled {
            ready: std::mem::take(&mut self.ready),
            tickets: std::mem::take(&mut self.asked),
            deadline_ms: self.next_deadline(),
        }
    }

    /// Whether somebody waits for room that was made by output since the last time that this was asked: a poll is due.
    pub fn takes_made_room(&mut self) -> bool {
        std::mem::take(&mut self.made_room)
    }

    fn next_deadline(&self) -> Option<u64> {
        let liveness = self.liveness_at_ms.min(self.stalled_deadline());
        let liveness = liveness.min(self.overdue_at_ms).min(self.kept_uploads.next_end_ms());
        let deadline = self
            .state
            .next_deadline()
            .map_or(liveness, |deadline| deadline.min(liveness));
        (deadline != u64::MAX).then_some(deadline)
    }

    /// The next write for the disk, if something is to be written and no write is under way.
    ///
    /// # Errors
    /// The log is finished; nothing will be confirmed any more.
    pub fn next_write(&mut self) -> Result<Option<WriteJob>, StateError> {
        let job = self.state.next_write()?;
        if job.is_some() {
            self.written = self.state.end();
        }
        Ok(job)
    }

    /// Takes a write's result: what it made durable is confirmed and delivered from the next `poll` on.
    ///
    /// # Errors
    /// The write failed, which is final: nothing will be confirmed any more.
    pub fn complete_write(&mut self, done: WriteDone) -> Result<(), StateError> {
        self.state.complete_write(done).map(|_| ())
    }

    /// Reads that deliveries wait for.
    pub fn take_reads(&mut self) -> Vec<ReadJob> {
        self.state.take_reads()
    }

    /// Takes a read's result; the consumers that waited go on.
    pub fn complete_read(&mut self, done: ReadJobDone) {
        self.state.complete_read(done);
        let mut waiting = std::mem::take(&mut self.reading);
        for key in waiting.drain(..) {
            let Some(consumer) = self.consumers.get_mut(&key) else {
                continue;
            };
            consumer.reading = false;
            if let Some(stream) = self.sessions.get(&consumer.session).map(|session| session.stream) {
                self.queue_consumer(stream, key);
            }
        }
        if self.reading.is_empty() {
            self.reading = waiting;
        }
        for source in std::mem::take(&mut self.selecting) {
            self.mark_dirty(source);
        }
    }

    /// The next piece of the log's upkeep.
    ///
    /// # Errors
    /// The log is finished.
    pub fn maintenance(&mut self) -> Result<Option<UpkeepJob>, StateError> {
        self.state.maintenance()
    }

    /// Takes the result of a piece of upkeep.
    ///
    /// # Errors
    /// It failed in a way that is final for the log.
    pub fn complete_maintenance(&mut self, done: UpkeepDone) -> Result<(), StateError> {
        self.state.complete_maintenance(done)
    }

    /// Keeps cuts and events for audits from now on.
    #[must_use]
    pub fn with_snapshots(mut self, keeper: Keeper) -> Self {
        self.snapshots = Some(keeper);
        self
    }

    /// What is kept for audits, with the state that it is of.
    pub fn snapshots(&mut self) -> Option<(&mut Keeper, &mut State)> {
        self.snapshots.as_mut().map(|keeper| (keeper, &mut self.state))
    }

    /// When work for audits is tried again; monotonic milliseconds.
    #[must_use]
    pub fn snapshot_retry_ms(&self) -> Option<u64> {
        self.snapshots.as_ref()?.retry_at_ms(&self.state)
    }

    /// The next piece of work for audits. One is out at a time.
    pub fn snapshot_job(&mut self) -> Option<keeper::Job> {
        let (keeper, state) = self.snapshots()?;
        keeper.next_job(state)
    }

    /// Takes what became of a piece of work for audits.
    pub fn complete_snapshot(&mut self, done: keeper::JobDone) {
        if let Some((keeper, state)) = self.snapshots() {
            keeper.complete(state, done);
        }
    }

    /// Whether the host should end the call: nothing more will go out on it.
    #[must_use]
    pub fn is_closing(&self, stream: u64) -> bool {
        self.streams
            .get(&stream)
            .is_none_or(|stream| stream.phase == Phase::Closing && stream.outbox.is_empty())
    }

    /// What a stream was ended for, however much of its output is still to be taken; `None`: it goes on, or its client has
    /// ended it.
    #[must_use]
    pub fn ended_for(&self, stream: u64) -> Option<&proto::Error> {
        self.streams.get(&stream)?.ended_for.as_deref()
    }

    /// Whether nothing is read of a call any more, so that its consumers are gone unless another call has its connection.
    #[cfg(any(test, feature = "sim"))]
    #[must_use]
    pub fn has_given_up(&self, stream: u64) -> bool {
        let found = self.streams.get(&stream);
        found.is_none_or(|stream| stream.phase == Phase::Closing)
    }

    /// Stops: what is appended becomes durable and the log is marked as cleanly closed.
    ///
    /// # Errors
    /// The last write failed.
    pub fn stop(self) -> Result<(), StateError> {
        self.state.stop()
    }
}
