//! What has to happen from time to time: timers, writes, reads, and the upkeep of log and spill files. The host runs the
//! jobs; nothing here waits.

use crate::log::{
    AppendError, MaintenanceDone, MaintenanceJob, Position, ReadDone, ReadRequest, Space, WriteDone, WriteJob,
};

use super::catalogue_record::WatermarkHead;
use super::error::StateError;
use super::facade::State;
use super::ids::{DestinationId, Kind, SourceId};
use super::properties::OverflowPolicy;
use super::queue::{DELAYED, EXPIRED, Entry, GATED, IN_FLIGHT, RETURNED};
use super::room::{Room, room};
use super::spill::{SpillRead, SpillReadDone, SpillWork, SpillWorkDone};
use super::tables::Tables;
use super::terminal_record::{Reason, TERMINAL_MESSAGES_MAX};
use super::timers::{Timer, TimerKind};
use super::volatile::is_volatile;

/// Timers that one tick handles at most; while more are due, nothing that may be expired is handed out.
const TIMERS_MAX: usize = 65_536;
/// How soon what could not be done when it was due is tried again.
pub(super) const RETRY_MS: u64 = 1000;

/// Something to be read from disk, on any thread.
pub enum ReadJob {
    /// A record.
    Log(ReadRequest),
    /// A chunk of the spill file.
    Spill(SpillRead),
    /// Nothing: whoever waits asks again once it is done.
    Again,
}

/// The result of a [`ReadJob`].
pub enum ReadJobDone {
    /// A record.
    Log(Box<ReadDone>),
    /// A chunk of the spill file.
    Spill(SpillReadDone),
    /// Nothing.
    Again,
}

impl ReadJob {
    /// Reads.
    #[must_use]
    pub fn run(self) -> ReadJobDone {
        match self {
            Self::Log(request) => ReadJobDone::Log(Box::new(request.run())),
            Self::Spill(read) => ReadJobDone::Spill(read.run()),
            Self::Again => ReadJobDone::Again,
        }
    }
}

/// What becomes of a message whose delay is over.
enum AtDue {
    /// It is ready.
    Ready,
    /// It is put aside: kept, if its sender wants that (EMS-MSG-A08).
    Refused,
    /// A subscriber goes without it, as without any that comes while there is no room.
    PassedOver,
}

/// A piece of upkeep, to be run on any thread.
pub enum UpkeepJob {
    /// The log's.
    Log(Box<MaintenanceJob>),
    /// The spill files'.
    Spill(SpillWork),
}

/// The result of an [`UpkeepJob`].
pub enum UpkeepDone {
    /// The log's.
    Log(Box<MaintenanceDone>),
    /// The spill files'.
    Spill(SpillWorkDone),
}

impl UpkeepJob {
    /// Does it.
    #[must_use]
    pub fn run(self) -> UpkeepDone {
        match self {
            Self::Log(job) => UpkeepDone::Log(Box::new(job.run())),
            Self::Spill(work) => UpkeepDone::Spill(work.run()),
        }
    }
}

impl State {
    /// When [`State::tick`] has something to do, in milliseconds of the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        if self.overdue {
            return Some(self.tables.now.monotonic_ms);
        }
        self.tables.timers.next_deadline_ms()
    }

    /// Whether something was due before the time that was last told, and still has to be done.
    #[must_use]
    pub const fn is_overdue(&self) -> bool {
        self.overdue
    }

    /// Looks again at sources whose watermark found no space.
    pub(super) fn retry_reserving(&mut self) {
        for id in std::mem::take(&mut self.unreserved) {
            self.tables.mark_dirty(id);
        }
    }

    pub(super) fn run_timers(&mut self) {
        let now_ms = self.tables.now.monotonic_ms;
        let mut expired: Vec<(SourceId, u8, Entry)> = Vec::new();
        let mut due = Vec::new();
        let mut handled = 0;
        while handled < TIMERS_MAX
            && let Some(timer) = self.tables.timers.pop_due(now_ms)
        {
            handled += 1;
            match timer.kind() {
                TimerKind::Expiry => expired.extend(self.tables.expire(&timer)),
                TimerKind::Delay => due.push(timer),
            }
        }
        expired.sort_unstable_by_key(|(source, _, entry)| (*source, entry.sequence));
        for group in expired.chunk_by(|a, b| a.0 == b.0) {
            self.expire_group(group);
        }
        // Behind these: room is made for what is due, and what has expired must not be ended a second time for that.
        let mut came_in = false;
        for timer in &due {
            came_in |= self.end_delay(timer);
        }
        let was_overdue = self.overdue;
        self.overdue = self
            .tables
            .timers
            .next_deadline_ms()
            .is_some_and(|deadline_ms| deadline_ms <= now_ms);
        self.tables.delays.owed |= came_in;
        // While more is due nothing is handed out, and not all of it has met the limits.
        if self.tables.delays.owed && !self.overdue {
            self.log_due();
        }
        if was_overdue && !self.overdue {
            // Whoever was told meanwhile that there is nothing has to look again.
            let ids: Vec<SourceId> = self.tables.sources.keys().copied().collect();
            ids.into_iter().for_each(|id| self.tables.mark_dirty(id));
        }
        let Tables { timers, sources, .. } = &mut self.tables;
        timers.sweep(|timer| {
            sources
                .get(&timer.source)
                .is_some_and(|source| source.queue.get(timer.priority(), timer.sequence()).is_some())
        });
    }

    fn expire_group(&mut self, group: &[(SourceId, u8, Entry)]) {
        let Some((id, _, _)) = group.first().copied() else {
            return;
        };
        if let Some(destination) = self.tables.awaits_properties(id) {
            for (_, priority, entry) in group {
                self.park(destination, TimerKind::Expiry, id, *priority, entry.sequence);
            }
            return;
        }
        let (kept, dropped): (Vec<_>, Vec<_>) = group
            .iter()
            .map(|(_, priority, entry)| (*priority, *entry))
            .partition(|(_, entry)| self.tables.aside(id, entry).is_some());
        let mut failed = Vec::new();
        // A record at a time: as many as there is room for go.
        for part in dropped.chunks(TERMINAL_MESSAGES_MAX) {
            if self.end_entries(id, part, Reason::Expired, "").is_err() {
                failed.extend_from_slice(part);
            }
        }
        for (priority, entry) in kept {
            if self.put_aside(id, priority, &entry, Reason::Expired).is_err() {
                failed.push((priority, entry));
            }
        }
        // Without room for the record they stay, undeliverable, and are tried again.
        for (priority, entry) in failed {
            self.retry_later(TimerKind::Expiry, id, priority, entry.sequence);
        }
    }

    /// What is due now is done once the destination's properties are known.
    pub(super) fn park(
        &mut self,
        destination: DestinationId,
        kind: TimerKind,
        id: SourceId,
        priority: u8,
        sequence: u64,
    ) {
        let timer = Timer::new(self.tables.now.monotonic_ms, id, priority, sequence, kind);
        self.tables.timers.park(destination, timer);
    }

    /// What is due now cannot be done now: it is tried again when a piece of upkeep may have made room, and once a second.
    pub(super) fn retry_later(&mut self, kind: TimerKind, id: SourceId, priority: u8, sequence: u64) {
        let retry_ms = self.tables.now.monotonic_ms + RETRY_MS;
        self.tables
            .timers
            .postpone(Timer::new(retry_ms, id, priority, sequence, kind));
    }

    /// A delay is over: the message is ready, unless there is no room for it (EMS-MSG-A08, EMS-DEST-A64). Whether it came in by
    /// that, and a start has to be told.
    fn end_delay(&mut self, timer: &Timer) -> bool {
        let (id, priority, sequence) = (timer.source, timer.priority(), timer.sequence());
        let found = self.tables.sources.get(&id);
        let destination = found.and_then(|source| source.delayed_to(sequence));
        if let Some(destination) = destination.filter(|id| self.tables.want_properties(*id)) {
            self.tables.timers.park(destination, *timer);
            return false;
        }
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return false;
        };
        let now_ms = self.tables.now.monotonic_ms;
        if source
            .returning
            .get(&sequence)
            .is_some_and(|returned| returned.ready_ms > now_ms)
        {
            // It came back, and there is another timer for that.
            return false;
        }
        let Some(before) = source
            .queue
            .get(priority, sequence)
            .copied()
            // One whose life was over first is being taken out.
            .filter(|entry| entry.is(DELAYED) && !entry.is(EXPIRED))
        else {
            return false;
        };
        // What was in the queue before finds its place there again, whatever came meanwhile.
        let due = match destination {
            Some(destination) if !before.is(RETURNED | IN_FLIGHT) => self.room_at_due(id, destination, &before),
            _ => AtDue::Ready,
        };
        let Some(source) = self.tables.sources.get_mut(&id) else {
            return false;
        };
        let Some(entry) = source.queue.get_mut(priority, sequence) else {
            return false;
        };
        entry.flags &= !(DELAYED | RETURNED);
        let entry = *entry;
        source.account_delayed(&before, false);
        source.returning.remove(&sequence);
        source.delayed_to.remove(&sequence);
        let gone = match due {
            AtDue::Ready => false,
            AtDue::Refused => self.put_aside(id, priority, &entry, Reason::Discarded).is_ok(),
            AtDue::PassedOver => self
                .end_entries(id, &[(priority, entry)], Reason::Discarded, "")
                .is_ok(),
        };
        if gone {
            return false;
        }
        let mut is_logged = false;
        if let Some(source) = self.tables.sources.get_mut(&id) {
            source.note_return(priority, sequence);
            is_logged = source.logged && !is_volatile(entry.position);
        }
        self.tables.mark_dirty(id);
        is_logged && !before.is(RETURNED)
    }

    /// What the limits of a queue, or of the topic that a message was sent to, make of it when it is due. Where what is oldest
    /// is to be discarded that is done here, as for any message that comes: what is handed out stays, and so does everything
    /// while the log has no room (EMS-DEST-A24).
    fn room_at_due(&mut self, id: SourceId, by: DestinationId, entry: &Entry) -> AtDue {
        let (Some(source), Some(destination)) = (self.tables.sources.get(&id), self.tables.catalogue.destination(by))
        else {
            return AtDue::Ready;
        };
        let (kind, properties) = (destination.kind, &destination.properties);
        match (kind, properties.overflow) {
            (Kind::Queue, OverflowPolicy::Default) => AtDue::Ready,
            (Kind::Queue, OverflowPolicy::DiscardOld) => {
                let _ = self.make_room(id, by, entry.bytes.into());
                AtDue::Ready
            }
            (Kind::Queue, OverflowPolicy::RejectIncoming) => {
                let (messages_max, waiting) = (properties.messages_max, source.statistics.counted().0);
                if messages_max > 0 && waiting >= messages_max {
                    AtDue::Refused
                } else {
                    AtDue::Ready
                }
            }
            // The others have it: what one subscriber has no room for is refused to that one.
            (Kind::Topic, overflow) => match room(source, properties, (entry.bytes.into(), 0), false) {
                Room::Enough => AtDue::Ready,
                Room::AfterDiscarding => {
                    let _ = self.make_room(id, by, entry.bytes.into());
                    AtDue::Ready
                }
                Room::Full(_) if overflow == OverflowPolicy::RejectIncoming => AtDue::Refused,
                Room::Full(_) => AtDue::PassedOver,
            },
        }
    }

    /// Sources that may have something newly ready for their consumers, each once.
    pub fn take_dirty(&mut self) -> Vec<SourceId> {
        let dirty = std::mem::take(&mut self.tables.dirty);
        for id in &dirty {
            if let Some(source) = self.tables.sources.get_mut(id) {
                source.dirty = false;
            }
        }
        dirty
    }

    /// Everything appended and not yet written, as one job. None while one is running.
    ///
    /// # Errors
    /// The log has failed.
    pub fn next_write(&mut self) -> Result<Option<WriteJob>, StateError> {
        self.log_returns();
        Ok(self.log.next_write()?)
    }

    /// Takes the job back; what is durable now counts as committed.
    ///
    /// # Errors
    /// The write failed: the log is finished for this process.
    pub fn complete_write(&mut self, done: WriteDone) -> Result<Position, StateError> {
        let durable = self.complete_write_only(done)?;
        self.advance_commit(durable);
        Ok(durable)
    }

    /// As [`State::complete_write`] for a host that decides itself what is committed: the caller goes on to
    /// [`State::advance_commit`].
    ///
    /// # Errors
    /// The write failed: the log is finished for this process.
    pub fn complete_write_only(&mut self, done: WriteDone) -> Result<Position, StateError> {
        Ok(self.log.complete_write(done)?)
    }

    /// Reads that deliveries and selectors wait for.
    pub fn take_reads(&mut self) -> Vec<ReadJob> {
        std::mem::take(&mut self.reads)
    }

    /// Takes a read back; whoever waited asks again.
    pub fn complete_read(&mut self, done: ReadJobDone) {
        match done {
            ReadJobDone::Log(done) => self.log.complete_read(*done),
            ReadJobDone::Spill(done) => {
                self.reading_spilled.remove(&done.chunk);
                self.tables.volatile.complete_read(done);
            }
            ReadJobDone::Again => {}
        }
    }

    /// The next piece of upkeep; writes a checkpoint first if one is due.
    ///
    /// # Errors
    /// The log has failed.
    pub fn maintenance(&mut self) -> Result<Option<UpkeepJob>, StateError> {
        if let Some(work) = self.tables.volatile.spill() {
            return Ok(Some(UpkeepJob::Spill(work)));
        }
        self.settle_owed()?;
        let Self { log, tables, .. } = self;
        Ok(log.maintenance(&*tables).map(|job| UpkeepJob::Log(Box::new(job))))
    }

    /// Takes a piece of upkeep back.
    ///
    /// # Errors
    /// It failed in a way that is final for the log.
    pub fn complete_maintenance(&mut self, done: UpkeepDone) -> Result<(), StateError> {
        self.retry_reserving();
        match done {
            UpkeepDone::Log(done) => self.log.complete_maintenance(*done)?,
            UpkeepDone::Spill(done) => self.tables.volatile.complete_spill(done),
        }
        // On a full disk a piece of upkeep seldom makes room: the clock is asked there.
        if self.log.space() != Space::Full {
            self.tables.timers.retry_postponed(self.tables.now.monotonic_ms);
        }
        Ok(())
    }

    /// Asks that what is known to be durable be noted on disk, and that what failed for want of space be tried again; about
    /// once a second.
    pub fn request_watermark_sync(&mut self) {
        self.tables.volatile.resume();
        self.log.request_watermark_sync();
        // Asking here in the place of those who wait would not do: what they wait for may be in memory by now, or gone, and
        // then no read would come to its end and wake them.
        if std::mem::take(&mut self.later) {
            self.reads.push(ReadJob::Again);
        }
    }

    /// Whether the log takes no messages now: no space on disk, or segments not prepared yet. Acknowledgements go on.
    #[must_use]
    pub fn out_of_space(&self) -> bool {
        self.log.space() != Space::Ok
    }

    /// A clean stop: what is appended is written, and redelivery watermarks are lowered to what was really delivered.
    ///
    /// # Errors
    /// The last write failed.
    pub fn stop(mut self) -> Result<(), StateError> {
        self.log_returns();
        self.lower_watermarks()?;
        Ok(self.log.close()?)
    }

    /// After a clean stop only what was really handed out comes flagged.
    fn lower_watermarks(&mut self) -> Result<(), StateError> {
        let lowered: Vec<(SourceId, u64)> = self
            .tables
            .sources
            .values()
            .filter(|source| source.logged && source.watermark.logged > source.delivered_below)
            .map(|source| (source.id, source.delivered_below))
            .collect();
        for (id, below) in lowered {
            match self.append_watermark(WatermarkHead { source: id, below }) {
                Ok(()) => {}
                // More will be flagged than need be; that is allowed.
                Err(AppendError::NoSpace) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Tables {
    /// The message of a timer, if it is to be taken out now. One that is in flight is taken out when it comes back.
    fn expire(&mut self, timer: &Timer) -> Option<(SourceId, u8, Entry)> {
        let source = self.sources.get_mut(&timer.source)?;
        let entry = source.queue.get_mut(timer.priority(), timer.sequence())?;
        entry.flags |= EXPIRED;
        if entry.is(GATED) {
            let retry = Timer::new(
                self.now.monotonic_ms + 1,
                timer.source,
                timer.priority(),
                timer.sequence(),
                TimerKind::Expiry,
            );
            self.timers.add(retry);
            return None;
        }
        (!entry.is(IN_FLIGHT)).then_some((timer.source, timer.priority(), *entry))
    }
}
