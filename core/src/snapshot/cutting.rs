//! The file of a cut while it is written: rows as they are walked, then the messages that they refer to, then what the
//! checkpoint says. Each call is one bounded part, on whatever thread.

use std::sync::Arc;

use crate::log::disk::{Disk, DiskError};
use crate::log::{Head, Heads, HeadsRequest, LogError, Position};
use crate::state::heads::{Item, items, kinds};
use crate::state::{
    Counted, CutRow, CutTransaction, Kind, MessageHead, Origin, SourceId, UNDELIVERED, UNDELIVERED_NAME,
};

use super::distiller::{checksum_of, copies_of, flags_of, kind_code, xid_text};
use super::error::RowsError;
use super::pieces::{Header, Writer};
use super::tables::{self, Batch, Cell};

/// Heads that are looked at in one call; in tests so few that there are several calls.
const HEADS_MAX: usize = if cfg!(test) { 64 } else { 65_536 };

/// One part of the work.
pub enum Work {
    /// What was walked.
    Rows(Vec<CutRow>),
    /// The messages in one segment; a call may leave some of it for the next, which is [`Work::More`].
    Messages(HeadsRequest),
    /// More of what the last call began.
    More,
    /// The checkpoint that the cut began with.
    Checkpoint(HeadsRequest),
    /// What was known as it began; nothing comes after that but the end.
    Finish(Ending),
}

/// What a cut ends with.
#[derive(Debug, Default)]
pub struct Ending {
    /// The transactions that were open.
    pub transactions: Vec<CutTransaction>,
    /// What was counted for each source, in no order.
    pub counters: Vec<(SourceId, Counted)>,
}

/// What a part led to.
pub enum Cut {
    /// The file goes on; the last piece of work is done, or not.
    On(Box<Cutting>, bool),
    /// It is whole and durable.
    Done(Header),
    /// It is given up.
    Failed(RowsError),
}

/// See the module's documentation.
pub struct Cutting {
    disk: Arc<dyn Disk>,
    header: Header,
    writer: Writer,
    /// Where the messages lie, in the order in which they were walked, and from the first look on sorted.
    positions: Vec<u64>,
    sorted: bool,
    /// The lowest of them, for whoever asks before they are sorted.
    lowest: Option<u64>,
    /// Those before were looked for.
    next: usize,
    heads: Option<Heads>,
    message: MessageHead,
    batches: [Batch; 11],
}

const DELIVERABLES: usize = 0;
const MESSAGES: usize = 1;
const COPIES: usize = 2;
const DESTINATIONS: usize = 3;
const SUBSCRIPTIONS: usize = 4;
const SOURCES: usize = 5;
const PRODUCERS: usize = 6;
const TRANSACTIONS: usize = 7;
const STARTS: usize = 8;
const TAKEN: usize = 9;
const COUNTERS: usize = 10;

impl Cutting {
    /// Begins the file.
    ///
    /// # Errors
    /// The disk's.
    pub fn create(disk: Arc<dyn Disk>, header: Header) -> Result<Self, DiskError> {
        let writer = Writer::create(disk.as_ref(), header.kind, header.number)?;
        Ok(Self {
            disk,
            header,
            writer,
            positions: Vec::new(),
            sorted: false,
            lowest: None,
            next: 0,
            heads: None,
            message: MessageHead::default(),
            batches: [
                &tables::DELIVERABLES,
                &tables::MESSAGES,
                &tables::STATE_COPIES,
                &tables::DESTINATIONS,
                &tables::SUBSCRIPTIONS,
                &tables::SOURCES,
                &tables::PRODUCERS,
                &tables::TRANSACTIONS,
                &tables::STARTS,
                &tables::TAKEN,
                &tables::COUNTERS,
            ]
            .map(Batch::new),
        })
    }

    /// Where the next message lies that is to be told of; `None`: all were looked for. Asked for when all rows were walked.
    #[must_use]
    pub fn wanted(&self) -> Option<Position> {
        let next = if self.sorted {
            self.positions.get(self.next).copied()
        } else {
            self.lowest
        };
        next.map(Position)
    }

    /// The cut's number.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.header.number
    }

    /// How many bytes were written.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Does one part.
    #[must_use]
    pub fn run(mut self: Box<Self>, work: Work) -> Cut {
        let (disk, file) = (self.disk.clone(), self.header.file_name());
        let done = match self.work(work) {
            Ok(Some(ending)) => self.finish(ending).map(Cut::Done),
            Ok(None) => {
                let is_done = self.heads.is_none();
                Ok(Cut::On(self, is_done))
            }
            Err(error) => Err(error),
        };
        done.unwrap_or_else(|error| {
            // At once: after a failed sync the file reads as if it were whole, and the next start would believe it. What
            // cannot be removed now is the keeper's.
            let _ = disk.remove(&file);
            Cut::Failed(error)
        })
    }

    fn work(&mut self, work: Work) -> Result<Option<Ending>, RowsError> {
        match work {
            Work::Rows(rows) => rows.iter().try_for_each(|row| self.row(row))?,
            Work::Messages(request) => {
                if !self.sorted {
                    self.positions.sort_unstable();
                    self.positions.dedup();
                    self.sorted = true;
                }
                let end = request.to;
                match request.run() {
                    Ok(heads) => self.heads = Some(heads),
                    // These have no row: that is for the audit to say.
                    Err(LogError::Damaged { .. }) => self.pass(end),
                    Err(error) => return Err(error.into()),
                }
                self.messages()?;
            }
            Work::More => self.messages()?,
            Work::Checkpoint(request) => {
                let mut heads = request.run()?;
                while let Some(head) = heads.next_head() {
                    if head.kind == Some(kinds::CHECKPOINT) {
                        let found = items(head.head).map_err(|error| RowsError::Head(head.position, error))?;
                        found.iter().try_for_each(|item| self.item(item))?;
                    }
                }
            }
            Work::Finish(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }

    fn put(&mut self, table: usize, cells: &[Cell<'_>]) -> Result<(), RowsError> {
        self.batches[table].push(cells)?;
        if self.batches[table].is_full() {
            self.flush(table)?;
        }
        Ok(())
    }

    fn flush(&mut self, table: usize) -> Result<(), RowsError> {
        let batch = &mut self.batches[table];
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        if rows > 0 {
            let stream = batch.take()?;
            self.writer.add(batch.spec.number, rows, &stream)?;
        }
        Ok(())
    }

    fn row(&mut self, row: &CutRow) -> Result<(), RowsError> {
        self.positions.push(row.position.0);
        self.lowest = Some(self.lowest.map_or(row.position.0, |lowest| lowest.min(row.position.0)));
        let moved = row.moved;
        self.put(
            DELIVERABLES,
            &[
                row.source.0.into(),
                row.sequence.into(),
                row.position.0.into(),
                row.copy.into(),
                row.priority.into(),
                (row.standing as u8).into(),
                row.attempts.into(),
                row.bytes.into(),
                moved.map(|(record, _, _)| record.0).into(),
                moved.map(|(_, reason, _)| reason).into(),
                moved.map(|(_, _, origin)| origin).into(),
                Some(row.transaction).filter(|transaction| *transaction != 0).into(),
            ],
        )
    }

    /// Looks for the wanted messages among the heads at hand.
    fn messages(&mut self) -> Result<(), RowsError> {
        let Some(mut heads) = self.heads.take() else {
            return Ok(());
        };
        for _ in 0..HEADS_MAX {
            let Some(head) = heads.next_head() else {
                // What was not found there is nowhere: its row stays alone, which is for the audit to say.
                self.pass(heads.end());
                return Ok(());
            };
            let at = head.position.0;
            self.next += self.positions[self.next..]
                .iter()
                .take_while(|position| **position < at)
                .count();
            if head.kind == Some(kinds::MESSAGE) && self.positions.get(self.next) == Some(&at) {
                self.next += 1;
                self.message(&head)?;
            }
        }
        self.heads = Some(heads);
        Ok(())
    }

    /// What lies below was looked for.
    fn pass(&mut self, end: Position) {
        self.next += self.positions[self.next..].partition_point(|position| *position < end.0);
    }

    fn message(&mut self, record: &Head<'_>) -> Result<(), RowsError> {
        let mut head = std::mem::take(&mut self.message);
        head.decode(record.head)
            .map_err(|error| RowsError::Head(record.position, error))?;
        let destination = head.copies.first().map_or(0, |copy| copy.destination.0);
        let (high, low) = checksum_of(&head);
        self.put(
            MESSAGES,
            &[
                record.position.0.into(),
                record.epoch.into(),
                head.incarnation.into(),
                head.sequence.into(),
                destination.into(),
                head.arrived_ms.into(),
                head.time_to_live_ms.into(),
                head.delay_ms.into(),
                head.priority.into(),
                flags_of(&head).into(),
                record.payload_length.into(),
                high.into(),
                low.into(),
                Some(head.transaction).filter(|transaction| *transaction != 0).into(),
            ],
        )?;
        for row in copies_of(record.position, &head) {
            self.put(COPIES, &row)?;
        }
        self.message = head;
        Ok(())
    }

    fn item(&mut self, item: &Item) -> Result<(), RowsError> {
        match item {
            Item::Destination(head) => self.put(
                DESTINATIONS,
                &[
                    head.id.0.into(),
                    kind_code(head.kind).into(),
                    (head.origin as u8).into(),
                    head.generation.into(),
                    head.name.as_str().into(),
                ],
            ),
            Item::Subscription(head) => self.put(
                SUBSCRIPTIONS,
                &[
                    head.id.0.into(),
                    head.client_id.as_str().into(),
                    head.name.as_str().into(),
                    head.pattern.as_str().into(),
                    head.selector.as_str().into(),
                    head.shared.into(),
                    head.no_local.into(),
                    head.is_static.into(),
                ],
            ),
            Item::Source {
                source,
                next_sequence,
                watermark,
            } => self.put(
                SOURCES,
                &[source.0.into(), (*next_sequence).into(), (*watermark).into()],
            ),
            Item::Producer {
                incarnation,
                destination,
                sequence,
                ..
            } => self.put(
                PRODUCERS,
                &[
                    (*incarnation).into(),
                    destination.0.into(),
                    (*sequence).into(),
                    Cell::None,
                    Cell::None,
                ],
            ),
            Item::Name { head, sequence } => self.put(
                PRODUCERS,
                &[
                    head.incarnation.into(),
                    head.destination.0.into(),
                    (*sequence).into(),
                    head.user.as_str().into(),
                    head.name.as_str().into(),
                ],
            ),
            Item::Start { epoch, id } => self.put(STARTS, &[(*epoch).into(), (*id).into()]),
            // Counters of the store's own; and its secret, which leaves it in no way.
            Item::Counters { .. }
            | Item::Retired { .. }
            | Item::Refused { .. }
            | Item::RefusalsForgotten(_)
            | Item::Secret(_)
            | Item::NamesForgotten(_)
            | Item::Exported(_)
            | Item::Returning(_)
            | Item::Due(_) => Ok(()),
        }
    }

    /// The queue that is there without anybody having made it, so that no record names it.
    fn own_queue(&mut self) -> Result<(), RowsError> {
        let (kind, origin) = (kind_code(Kind::Queue), Origin::System as u8);
        let cells = [
            UNDELIVERED.0.into(),
            kind.into(),
            origin.into(),
            1_u64.into(),
            UNDELIVERED_NAME.into(),
        ];
        self.put(DESTINATIONS, &cells)
    }

    fn transactions(&mut self, transactions: &[CutTransaction]) -> Result<(), RowsError> {
        for open in transactions {
            let xid = open.prepared.as_ref().map(|(xid, _)| xid_text(xid));
            let prepared_ms = open.prepared.as_ref().map_or(0, |(_, time_ms)| *time_ms);
            let number = Cell::from(open.transaction);
            self.put(
                TRANSACTIONS,
                &[
                    number,
                    u8::from(xid.is_some()).into(),
                    prepared_ms.into(),
                    xid.as_deref().into(),
                    open.messages.into(),
                    open.taken.into(),
                ],
            )?;
            for (source, first, last) in &open.ends {
                self.put(TAKEN, &[number, source.0.into(), (*first).into(), (*last).into()])?;
            }
        }
        Ok(())
    }

    fn counters(&mut self, mut counters: Vec<(SourceId, Counted)>) -> Result<(), RowsError> {
        counters.sort_unstable_by_key(|(source, _)| *source);
        for (source, counted) in counters {
            for (name, value) in counted.told() {
                self.put(COUNTERS, &[source.0.into(), name.into(), value.into()])?;
            }
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: Ending) -> Result<Header, RowsError> {
        self.own_queue()?;
        self.transactions(&ending.transactions)?;
        self.counters(ending.counters)?;
        for table in 0..self.batches.len() {
            self.flush(table)?;
        }
        let Self {
            disk, header, writer, ..
        } = *self;
        Ok(writer.finish(disk.as_ref(), header)?)
    }
}
