//! The heads of the records that end references: terminal records (acknowledged, expired, discarded, purged, …) and moves.
//!
//! Decisions are logged, never recomputed: what happened to a message, when, why and by whom, can be read off the log.
//! A terminal names its targets twice: by source and sequence, which is what recovery applies, and by the blocks of the
//! log in which the messages lie, so that compaction knows for how long the terminal must be kept.

use crate::log::Position;

use super::codec::{Decoder, HeadError, put_byte, put_count, put_number, put_runs, put_text};
use super::ids::{DestinationId, SourceId};

const VERSION: u8 = 1;
const BLOCK_BITS: u32 = 12;
/// The longest actor that is kept.
pub const ACTOR_BYTES_MAX: usize = 256;
/// How many messages one terminal record ends at most; more are spread over several.
pub const TERMINAL_MESSAGES_MAX: usize = 4096;
/// A message's own record, and the move that brought it.
const TARGETS_MAX: usize = 2 * TERMINAL_MESSAGES_MAX;
/// Records begin at multiples of this.
const RECORD_ALIGN: u64 = 8;

/// Why a reference ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// A consumer acknowledged it.
    Acknowledged = 1,
    /// Its time to live, or the destination's, was over.
    Expired = 2,
    /// Dropped by `overflowPolicy: discardOld`, or because the destination was full when its delay was over.
    Discarded = 3,
    /// An administrator emptied the queue or subscription.
    Purged = 4,
    /// Delivered as often as `maxRedelivery` allows.
    MaxRedelivery = 5,
    /// An administrator moved it.
    Moved = 6,
    /// It could not be processed and was set aside.
    Dead = 7,
    /// Its record fails its checksum.
    Damaged = 8,
    /// Its topic was deleted with its messages; the durable subscription that held it stays.
    Deleted = 9,
}

impl Reason {
    /// The name in deliveries and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Acknowledged => "ACKNOWLEDGED",
            Self::Expired => "EXPIRED",
            Self::Discarded => "DISCARDED",
            Self::Purged => "PURGED",
            Self::MaxRedelivery => "MAX_REDELIVERY",
            Self::Moved => "MOVED",
            Self::Dead => "DEAD",
            Self::Damaged => "DAMAGED",
            Self::Deleted => "DELETED",
        }
    }

    /// Whether a message that ends for this reason is gone without anybody having taken it.
    #[must_use]
    pub const fn destroys(self) -> bool {
        !matches!(self, Self::Acknowledged | Self::Moved)
    }

    fn decode(value: u8) -> Result<Self, HeadError> {
        Ok(match value {
            1 => Self::Acknowledged,
            2 => Self::Expired,
            3 => Self::Discarded,
            4 => Self::Purged,
            5 => Self::MaxRedelivery,
            6 => Self::Moved,
            7 => Self::Dead,
            8 => Self::Damaged,
            9 => Self::Deleted,
            _ => return Err(HeadError::Range("reason")),
        })
    }
}

/// The block of the log that a message lies in. Segments begin with a block, so two positions of one block are always
/// in one segment.
const fn block_of(position: Position) -> u64 {
    position.0 >> BLOCK_BITS
}

/// The head of a terminal record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TerminalHead {
    /// Why.
    pub reason: Reason,
    /// The queue or subscription.
    pub source: SourceId,
    /// When, by the wall clock.
    pub time_ms: u64,
    /// Who: an administrator's or client's name; empty where nobody asked for it.
    pub actor: String,
    /// The transaction with which it takes effect; 0: none, at once.
    pub transaction: u64,
    /// First and last of each run, ascending.
    pub ranges: Vec<(u64, u64)>,
    /// A position in each block of the log that holds one of the messages, ascending.
    pub targets: Vec<Position>,
}

impl TerminalHead {
    /// An empty one, to be filled by [`TerminalHead::add`].
    #[must_use]
    pub fn new(reason: Reason, source: SourceId, time_ms: u64, actor: &str) -> Self {
        let mut end = actor.len().min(ACTOR_BYTES_MAX);
        while !actor.is_char_boundary(end) {
            end -= 1;
        }
        Self {
            reason,
            source,
            time_ms,
            actor: actor[..end].to_owned(),
            transaction: 0,
            ranges: Vec::new(),
            targets: Vec::new(),
        }
    }

    /// How long the head of one that ends so many messages is at most, with no actor.
    #[must_use]
    pub const fn bytes_max(messages: u64) -> u64 {
        // A range and two targets each, and the numbers before them.
        64 + messages * 4 * crate::wire::VARINT_BYTES_MAX as u64
    }

    /// Adds one message; sequences come in ascending order.
    pub fn add(&mut self, sequence: u64, position: Position) {
        match self.ranges.last_mut() {
            Some((_, last)) if *last + 1 == sequence => *last = sequence,
            _ => self.ranges.push((sequence, sequence)),
        }
        // Mostly ascending; what is not is sorted out when the head is written.
        if self
            .targets
            .last()
            .is_none_or(|last| block_of(*last) != block_of(position))
        {
            self.targets.push(position);
        }
    }

    /// Adds a record that must not outlive this one: the move that brought a message to the source.
    pub fn add_target(&mut self, position: Position) {
        self.targets.push(position);
    }

    /// How many messages it ends.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Sorts the targets and leaves one for each block. To be called once, before writing.
    pub fn finish(&mut self) {
        self.targets.sort_unstable();
        self.targets.dedup_by_key(|position| block_of(*position));
    }

    /// Appends the encoded head.
    ///
    /// # Errors
    /// It could not be read: ranges or targets do not ascend, a target is not where a record can be, or it ends more than
    /// one record may. Nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        put_byte(out, VERSION);
        put_byte(out, self.reason as u8);
        put_number(out, self.source.0);
        put_number(out, self.time_ms);
        put_text(out, &self.actor);
        put_number(out, self.transaction);
        put_runs(out, &self.ranges, TERMINAL_MESSAGES_MAX)?;
        put_count(out, "targets", self.targets.len(), TARGETS_MAX)?;
        let mut before = 0;
        for target in &self.targets {
            // Records are eight-byte aligned.
            let step = target.0.checked_sub(before).filter(|step| step % RECORD_ALIGN == 0);
            put_number(out, step.ok_or(HeadError::Range("a target"))? / RECORD_ALIGN);
            before = target.0;
        }
        Ok(())
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("terminal record", VERSION)?;
        let mut terminal = Self {
            reason: Reason::decode(decoder.byte("reason")?)?,
            source: SourceId(decoder.number("source")?),
            time_ms: decoder.number("time_ms")?,
            actor: decoder.text("actor")?.to_owned(),
            transaction: decoder.number("transaction")?,
            ranges: decoder.runs(TERMINAL_MESSAGES_MAX)?,
            targets: Vec::new(),
        };
        let mut before: u64 = 0;
        for _ in 0..decoder.count("targets", TARGETS_MAX)? {
            let step = decoder
                .number("a target")?
                .checked_mul(RECORD_ALIGN)
                .ok_or(HeadError::Range("a target"))?;
            before = before.checked_add(step).ok_or(HeadError::Range("a target"))?;
            terminal.targets.push(Position(before));
        }
        decoder.end("terminal record")?;
        Ok(terminal)
    }
}

/// The head of a move: the reference `from` ends, the reference `to` begins, and the message stays where it is. It says
/// all that recovery needs to know of the message, whose own record may by then have lost its references.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveHead {
    /// Why.
    pub reason: Reason,
    /// When, by the wall clock.
    pub time_ms: u64,
    /// Who; empty where nobody asked for it.
    pub actor: String,
    /// Out of here.
    pub from: (SourceId, u64),
    /// To there.
    pub to: (SourceId, u64),
    /// Where the message is.
    pub position: Position,
    /// Its size.
    pub bytes: u32,
    /// 0 to 9.
    pub priority: u8,
    /// Which copy of the message.
    pub copy: u8,
    /// Where that copy was sent.
    pub origin: DestinationId,
    /// The move that brought it to `from`; [`Position::ZERO`] if it was sent there.
    pub previous: Position,
}

impl MoveHead {
    fn check(&self) -> Result<(), HeadError> {
        if self.priority > 9 {
            return Err(HeadError::Range("priority"));
        }
        Ok(())
    }

    /// Appends the encoded head.
    ///
    /// # Errors
    /// It could not be read: nothing of it may be logged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), HeadError> {
        self.check()?;
        for byte in [VERSION, self.reason as u8, self.priority, self.copy] {
            put_byte(out, byte);
        }
        for number in [
            self.time_ms,
            self.from.0.0,
            self.from.1,
            self.to.0.0,
            self.to.1,
            self.position.0,
            u64::from(self.bytes),
            self.origin.0,
            self.previous.0,
        ] {
            put_number(out, number);
        }
        put_text(out, &self.actor);
        Ok(())
    }

    /// Reads a head.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(head: &[u8]) -> Result<Self, HeadError> {
        let mut decoder = Decoder::new(head);
        decoder.version("move record", VERSION)?;
        let reason = Reason::decode(decoder.byte("reason")?)?;
        let priority = decoder.byte("priority")?;
        let copy = decoder.byte("copy")?;
        let moved = Self {
            reason,
            priority,
            copy,
            time_ms: decoder.number("time_ms")?,
            from: (SourceId(decoder.number("from")?), decoder.number("from")?),
            to: (SourceId(decoder.number("to")?), decoder.number("to")?),
            position: Position(decoder.number("position")?),
            bytes: u32::try_from(decoder.number("bytes")?).map_err(|_| HeadError::Range("bytes"))?,
            origin: DestinationId(decoder.number("origin")?),
            previous: Position(decoder.number("previous")?),
            actor: decoder.text("actor")?.to_owned(),
        };
        moved.check()?;
        decoder.end("move record")?;
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seeds::{CASES, cases};
    use proptest::prelude::*;

    #[test]
    fn runs_and_blocks_are_merged() {
        let mut head = TerminalHead::new(Reason::Acknowledged, SourceId(20), 1_700_000_000_000, "");
        for sequence in [1, 2, 3, 7, 8, 20] {
            head.add(sequence, Position(4096 + sequence * 1024));
        }
        head.add(21, Position(4096 + 1024));
        head.finish();
        assert_eq!(head.ranges, [(1, 3), (7, 8), (20, 21)]);
        assert_eq!(head.targets.len(), 4, "one for each block: {:?}", head.targets);
        let mut bytes = Vec::new();
        head.encode(&mut bytes).unwrap();
        assert_eq!(TerminalHead::decode(&bytes), Ok(head));
    }

    #[test]
    fn a_move_reads_back_as_it_was_written() {
        let moved = MoveHead {
            reason: Reason::MaxRedelivery,
            time_ms: 5,
            actor: "admin".to_owned(),
            from: (SourceId(20), 3),
            to: (SourceId(1), 9),
            position: Position(65_536),
            bytes: 1_000,
            priority: 9,
            copy: 2,
            origin: DestinationId(20),
            previous: Position(8),
        };
        let mut bytes = Vec::new();
        moved.encode(&mut bytes).unwrap();
        assert_eq!(MoveHead::decode(&bytes), Ok(moved));
    }

    proptest! {
        #![proptest_config(cases(CASES))]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TerminalHead::decode(&bytes);
            let _ = MoveHead::decode(&bytes);
        }
    }
}
