//! What its senders delayed and that fell due while the broker was down (EMS-DEST-A64). It meets the limits at the start, as
//! it would have on a running broker, and what that decides is a record there.
//!
//! What came in when it was due has no record of its own, and meets no limit a second time: what waits is not given up for
//! that, though others came back to its queue since, or its limits are narrower. So a record says up to when all that was due
//! has met them. It is written when something came in, once for all of it; a checkpoint has the last one. A start goes by the
//! wall clock, as the log does: what was due later than that meets the limits now. Where no record says anything, as in
//! stores from before, all of it came in.

use super::catalogue_record::kinds;
use super::codec::{Decoder, HeadError, put_byte, put_number};
use super::facade::State;
use super::ids::SourceId;
use super::queue::{DELAYED, EXPIRES, RETURNED};
use super::tables::Tables;
use super::timers::TimerKind;
use super::transaction::PendingEntry;
use crate::log::{Purpose, Space};

const VERSION: u8 = 1;

/// All that was due has met the limits of its queue or topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueHead {
    /// Up to this time by the wall clock.
    pub until_ms: u64,
}

impl DueHead {
    /// Appends the encoded head.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_byte(out, VERSION);
        put_number(out, self.until_ms);
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("due record", VERSION)?;
        let until_ms = decoder.number("until_ms")?;
        decoder.end("due record")?;
        Ok(Self { until_ms })
    }
}

/// What is known of delays that are over.
#[derive(Debug)]
pub(super) struct Delays {
    /// What was due by then, by the wall clock, has met the limits; 0: no record says so.
    pub met_ms: u64,
    /// Something came in, and no record says so yet.
    pub owed: bool,
    /// While the log is read: what was due before that, with when.
    over: Option<Vec<(u64, SourceId, u64)>>,
}

impl Delays {
    /// For a log that is about to be read.
    pub const fn reading() -> Self {
        Self {
            met_ms: 0,
            owed: false,
            over: Some(Vec::new()),
        }
    }

    /// Whether the log is being read, so that what is over may have been so before, or not.
    pub const fn is_reading(&self) -> bool {
        self.over.is_some()
    }

    /// Takes what a record or a checkpoint says.
    pub fn met(&mut self, until_ms: u64) {
        self.met_ms = self.met_ms.max(until_ms);
    }
}

impl Tables {
    /// A message was read whose delay is over by now.
    pub fn note_over(&mut self, pending: &PendingEntry) {
        if pending.due_ms <= self.now.wall_ms
            && let Some(over) = &mut self.delays.over
        {
            over.push((pending.due_ms, pending.source, pending.entry.sequence));
        }
    }

    /// Whether what was delayed in a transaction was due when that was prepared or committed, at a time by the wall clock.
    pub fn was_due(&self, pending: &PendingEntry, time_ms: u64) -> bool {
        if self.delays.is_reading() {
            pending.due_ms <= time_ms
        } else {
            pending.ready_ms <= self.now.monotonic_ms
        }
    }

    /// The log was read: what had met the limits before is not delayed; the rest of what is due meets them at the first tick.
    /// `knows_all`: no record is lost.
    pub fn settle_delays(&mut self, knows_all: bool) {
        let over = self.delays.over.take().unwrap_or_default();
        if over.is_empty() {
            return;
        }
        let met_ms = match self.delays.met_ms {
            met_ms if met_ms > 0 && knows_all => met_ms,
            _ => u64::MAX,
        };
        for (_, id, sequence) in over.into_iter().filter(|(due_ms, _, _)| *due_ms <= met_ms) {
            self.come_in(id, sequence);
        }
        // Whatever let something in: the next start knows of it.
        self.delays.owed = true;
        let Self { timers, sources, .. } = self;
        timers.keep(|timer| {
            let found = sources
                .get(&timer.source)
                .and_then(|source| source.queue.get(timer.priority(), timer.sequence()));
            found.is_some_and(|entry| match timer.kind() {
                TimerKind::Expiry => entry.is(EXPIRES),
                TimerKind::Delay => entry.is(DELAYED),
            })
        });
    }

    fn come_in(&mut self, id: SourceId, sequence: u64) {
        let Some(source) = self.sources.get_mut(&id) else {
            return;
        };
        let found = source.queue.find(sequence);
        let Some((priority, before)) = found.filter(|(_, entry)| entry.is(DELAYED) && !entry.is(RETURNED)) else {
            return;
        };
        if let Some(entry) = source.queue.get_mut(priority, sequence) {
            entry.flags &= !DELAYED;
        }
        source.account_delayed(&before, false);
        source.delayed_to.remove(&sequence);
    }
}

impl State {
    /// Before the first delayed message of a store: by this what falls due while the broker is down is told from what came in
    /// before there were such records.
    pub(super) fn begin_delaying(&mut self, delay_ms: u64) {
        if delay_ms > 0 && self.tables.delays.met_ms == 0 {
            self.log_due();
        }
    }

    /// Logs that all that is due by now has met the limits. Without room for that it is tried again with the next tick.
    pub(super) fn log_due(&mut self) {
        if !self.tables.live {
            return;
        }
        let until_ms = self.tables.now.wall_ms;
        self.head_buffer.clear();
        DueHead { until_ms }.encode(&mut self.head_buffer);
        // It frees nothing, so on a full disk it takes nothing of what is kept for that.
        let purpose = if self.log.space() == Space::Full {
            Purpose::Fill
        } else {
            Purpose::Drain
        };
        self.tables.delays.owed = match self.append_event_for(kinds::DUE, purpose) {
            Ok(_) => {
                self.tables.delays.met(until_ms);
                false
            }
            Err(_) => true,
        };
    }
}
