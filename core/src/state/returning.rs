//! What was delivered, came back, and waits for its queue's `redeliveryDelay` before it is delivered again (EMS-DEST-A32).
//!
//! Such a message stays in its place and is marked; the source keeps until when. Until then it is like one that its sender
//! delayed, but that it counts towards no limit (EMS-DEST-A33). The wait is decided when the message comes back, by what the
//! queue says then, and written as a record, so that a restart does not end it: the record has the time by the wall clock,
//! a running broker goes by the monotonic one. Where the disk has no room for the record, the wait ends with the process.
//!
//! What was out when the broker died has no record: nobody knows who saw it. It comes at once, flagged.

use crate::log::{Purpose, Space};

use super::catalogue_record::kinds;
use super::codec::{Decoder, HeadError, put_byte, put_number, put_runs};
use super::facade::State;
use super::ids::SourceId;
use super::queue::{DELAYED, Entry, IN_FLIGHT, RETURNED};
use super::source::{Returned, Source};
use super::tables::Tables;
use super::terminal_record::TERMINAL_MESSAGES_MAX;
use super::timers::{Timer, TimerKind};
use super::volatile::is_volatile;

const VERSION: u8 = 1;

/// The longest wait that somebody may ask for who gives a message back; a queue's is not longer either (EMS-DEST-A32).
const DELAY_MAX_MS: u64 = 8 * 60 * 60 * 1000;

/// Messages of a source wait until a time by the wall clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReturnHead {
    /// The queue.
    pub source: SourceId,
    /// Until when.
    pub until_ms: u64,
    /// First and last of each run, ascending.
    pub ranges: Vec<(u64, u64)>,
}

impl ReturnHead {
    /// Appends the encoded head.
    ///
    /// # Errors
    /// It could not be read: nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        put_byte(out, VERSION);
        self.encode_fields(out)
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("return record", VERSION)?;
        let found = Self::decode_fields(&mut decoder)?;
        decoder.end("return record")?;
        Ok(found)
    }

    /// Appends what stands in a checkpoint, too.
    ///
    /// # Errors
    /// As for [`ReturnHead::encode`].
    pub fn encode_fields(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        put_number(out, self.source.0);
        put_number(out, self.until_ms);
        put_runs(out, &self.ranges, TERMINAL_MESSAGES_MAX)?;
        self.check()
    }

    /// Reads what stands in a checkpoint, too.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode_fields(decoder: &mut Decoder<'_>) -> Result<Self, HeadError> {
        let found = Self {
            source: SourceId(decoder.number("source")?),
            until_ms: decoder.number("until_ms")?,
            ranges: decoder.runs(TERMINAL_MESSAGES_MAX)?,
        };
        found.check()?;
        Ok(found)
    }

    /// Each number is looked up, so there are no more of them than one record may name.
    fn check(&self) -> Result<(), HeadError> {
        let mut left = TERMINAL_MESSAGES_MAX as u64;
        for (first, last) in &self.ranges {
            let more = (last - first).checked_add(1).and_then(|count| left.checked_sub(count));
            left = more.ok_or(HeadError::Range("a range"))?;
        }
        Ok(())
    }
}

/// What came back at one time and has still to be logged.
#[derive(Debug)]
pub(super) struct Gathered {
    head: ReturnHead,
    count: usize,
}

impl Gathered {
    /// Whether one more is part of it: of the same source and time, behind the others, and not more than a record may name.
    fn add(&mut self, source: SourceId, sequence: u64, until_ms: u64) -> bool {
        let fits = self.head.source == source && self.head.until_ms == until_ms && self.count < TERMINAL_MESSAGES_MAX;
        match self.head.ranges.last_mut() {
            Some((_, last)) if fits && *last + 1 == sequence => *last = sequence,
            Some((_, last)) if fits && *last < sequence => self.head.ranges.push((sequence, sequence)),
            _ => return false,
        }
        self.count += 1;
        true
    }
}

impl State {
    /// A message that was delivered is in its place again: it waits there as long as its queue says, or whoever gave it
    /// back, whichever is longer.
    pub(super) fn hold_back(&mut self, id: SourceId, entry: &Entry, asked_ms: u64) {
        let Some(source) = self.tables.sources.get(&id) else {
            return;
        };
        let delay_ms = self.tables.redelivery_delay_ms(source).max(asked_ms.min(DELAY_MAX_MS));
        if delay_ms == 0 {
            return;
        }
        let logged = source.logged && !is_volatile(entry.position);
        let now = self.tables.now;
        let returned = Returned {
            until_ms: now.wall_ms.saturating_add(delay_ms),
            ready_ms: now.monotonic_ms.saturating_add(delay_ms),
        };
        if logged {
            self.gather_return(id, entry.sequence, returned.until_ms);
        }
        self.tables.hold_back(id, entry.sequence, returned);
    }

    /// Notes what has to be logged: what comes back together, as at the end of a session, is one record.
    fn gather_return(&mut self, source: SourceId, sequence: u64, until_ms: u64) {
        let fits = self
            .gathered
            .as_mut()
            .is_some_and(|gathered| gathered.add(source, sequence, until_ms));
        if !fits {
            self.log_returns();
            let ranges = vec![(sequence, sequence)];
            let head = ReturnHead {
                source,
                until_ms,
                ranges,
            };
            self.gathered = Some(Gathered { head, count: 1 });
        }
    }

    /// Logs what has come back to wait. To be called before what is appended is written, and before somebody is promised an
    /// answer once all that has happened is durable.
    pub fn log_returns(&mut self) {
        let Some(gathered) = self.gathered.take() else { return };
        self.head_buffer.clear();
        if gathered.head.encode(&mut self.head_buffer).is_ok() {
            // It frees nothing, so on a full disk it takes nothing of what is kept for that: the wait is in memory only.
            let purpose = if self.log.space() == Space::Full {
                Purpose::Fill
            } else {
                Purpose::Drain
            };
            let _ = self.append_event_for(kinds::RETURN, purpose);
        }
    }
}

impl Tables {
    /// How long what comes back to a source waits.
    pub fn redelivery_delay_ms(&self, source: &Source) -> u64 {
        source
            .destination
            .and_then(|id| self.catalogue.destination(id))
            .map_or(0, |destination| destination.properties.redelivery_delay_ms)
    }

    /// Messages wait, if their time has not come while nobody ran.
    pub fn apply_return(&mut self, head: &ReturnHead) {
        if head.until_ms <= self.now.wall_ms {
            return;
        }
        let returned = Returned {
            until_ms: head.until_ms,
            ready_ms: self.monotonic_of(head.until_ms),
        };
        for sequence in head.ranges.iter().flat_map(|(first, last)| *first..=*last) {
            self.hold_back(head.source, sequence, returned);
        }
    }

    fn hold_back(&mut self, id: SourceId, sequence: u64, returned: Returned) {
        let Some(source) = self.sources.get_mut(&id) else {
            return;
        };
        let Some((priority, before)) = source.queue.find(sequence).filter(|(_, entry)| !entry.is(IN_FLIGHT)) else {
            return;
        };
        if source.returning.insert(sequence, returned) == Some(returned) {
            return;
        }
        source.account_delayed(&before, false);
        if let Some(entry) = source.queue.get_mut(priority, sequence) {
            entry.flags |= DELAYED | RETURNED;
            let after = *entry;
            source.account_delayed(&after, true);
        }
        self.timers
            .add(Timer::new(returned.ready_ms, id, priority, sequence, TimerKind::Delay));
    }

    /// What waits for its redelivery, as few heads as there are times: for a checkpoint.
    pub fn returning_heads(&self) -> Vec<ReturnHead> {
        let mut heads = Vec::new();
        for source in self.sources.values().filter(|source| source.logged) {
            let mut waiting: Vec<(u64, u64)> = source
                .returning
                .iter()
                .filter(|(sequence, _)| {
                    let found = source.queue.find(**sequence);
                    found.is_some_and(|(_, entry)| !is_volatile(entry.position))
                })
                .map(|(sequence, returned)| (returned.until_ms, *sequence))
                .collect();
            waiting.sort_unstable();
            for group in waiting.chunk_by(|left, right| left.0 == right.0) {
                for part in group.chunks(TERMINAL_MESSAGES_MAX) {
                    let mut ranges: Vec<(u64, u64)> = Vec::new();
                    for (_, sequence) in part {
                        match ranges.last_mut() {
                            Some((_, last)) if *last + 1 == *sequence => *last = *sequence,
                            _ => ranges.push((*sequence, *sequence)),
                        }
                    }
                    heads.push(ReturnHead {
                        source: source.id,
                        until_ms: part.first().map_or(0, |(until_ms, _)| *until_ms),
                        ranges,
                    });
                }
            }
        }
        heads
    }
}
