//! Events of the log's records: each record becomes the rows that its head alone says, so that two copies of a log make
//! the same rows in the same order.
//!
//! Decisions of transactions are rows of their own: what belongs to one counts from its commit on, or not at all.

use arrow_schema::ArrowError;
use hmac::{Hmac, KeyInit, Mac};
use rustc_hash::FxHashSet;
use sha2::Sha256;

use crate::log::{Head, Position};
use crate::state::heads::{
    DestinationHead, Event, MoveHead, Note, SubscriptionHead, TerminalHead, Told, TransactionHead,
};
use crate::state::{Kind, MessageHead, Xid};

use super::error::RowsError;
use super::tables::{self, Batch, Cell, ROWS_MAX, Spec};

/// The tables of events, in the order in which their pieces are written.
static EVENTS: [&Spec; 15] = [
    &tables::STORED,
    &tables::LIVES,
    &tables::COPIES,
    &tables::TRANSACTED,
    &tables::ARRIVALS,
    &tables::ENDS,
    &tables::MOVES,
    &tables::DECISIONS,
    &tables::CATALOGUE,
    &tables::WATERMARKS,
    &tables::EPOCHS,
    &tables::OPENED,
    &tables::CONFIGURED,
    &tables::LOSSES,
    &tables::NAMES,
];

const STORED: usize = 0;
const LIVES: usize = 1;
const COPIES: usize = 2;
const TRANSACTED: usize = 3;
const ARRIVALS: usize = 4;
const ENDS: usize = 5;
const MOVES: usize = 6;
const DECISIONS: usize = 7;
const CATALOGUE: usize = 8;
const WATERMARKS: usize = 9;
const EPOCHS: usize = 10;
const OPENED: usize = 11;
const CONFIGURED: usize = 12;
const LOSSES: usize = 13;
const NAMES: usize = 14;

/// What is in a message's flags.
const PRESERVES: u8 = 1;
const UPLOADED: u8 = 2;

/// See the module's documentation.
pub struct Distiller {
    batches: Vec<Batch>,
    rows: usize,
    /// Names that the file has told of.
    named: FxHashSet<i64>,
    /// Used again for every message.
    message: MessageHead,
    names: Names,
}

/// Makes keys of names: from a secret, since whoever sees a key may be one who must not find out the name.
struct Names(Option<Hmac<Sha256>>);

impl Distiller {
    /// For one file. `names_secret`: see `State::names_secret`.
    #[must_use]
    pub fn new(names_secret: &[u8]) -> Self {
        Self {
            names: Names(Hmac::new_from_slice(names_secret).ok()),
            batches: EVENTS.iter().map(|spec| Batch::new(spec)).collect(),
            rows: 0,
            named: FxHashSet::default(),
            message: MessageHead::default(),
        }
    }

    /// Whether there are rows enough for pieces.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.batches[NAMES].is_full()
    }

    /// All rows as pieces: table, number of rows, stream.
    ///
    /// # Errors
    /// Arrow's.
    pub fn take(&mut self) -> Result<Vec<(u8, u32, Vec<u8>)>, ArrowError> {
        self.rows = 0;
        let filled = self.batches.iter_mut().filter(|batch| batch.rows() > 0);
        filled
            .map(|batch| {
                let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
                Ok((batch.spec.number, rows, batch.take()?))
            })
            .collect()
    }

    /// Tells of one record.
    ///
    /// # Errors
    /// It cannot be told of: nothing that was told before is of use without it.
    pub fn add(&mut self, record: &Head<'_>) -> Result<(), RowsError> {
        let position = record.position;
        let Some(kind) = record.kind else {
            return self.row(EPOCHS, &[position.0.into(), record.epoch.into(), Cell::None]);
        };
        let mut message = std::mem::take(&mut self.message);
        let event = Event::decode(kind, record.head, &mut message);
        let told = match event.map_err(|error| RowsError::Head(position, error))? {
            Event::Message => self.message(position, record.payload_length, &message),
            Event::Terminal(head) => self.terminal(position, &head),
            Event::Move(head) => self.moved(position, &head),
            Event::Destination(head) => self.destination(position, &head),
            Event::Subscription(head) => self.subscription(position, &head),
            Event::Watermark(head) => self.row(
                WATERMARKS,
                &[position.0.into(), head.source.0.into(), head.below.into()],
            ),
            Event::Transaction(head) => self.transaction(position, &head),
            Event::Start(id) => self.row(EPOCHS, &[position.0.into(), record.epoch.into(), id.into()]),
            Event::Note(note) => self.note(position, &note),
            // What exists and who is known stands in the cut, which is made with a checkpoint, and so does what is delayed.
            Event::Checkpoint | Event::ProducerName | Event::Exported | Event::Return | Event::Due => Ok(()),
        };
        self.message = message;
        told
    }

    fn row(&mut self, table: usize, cells: &[Cell<'_>]) -> Result<(), RowsError> {
        self.rows += 1;
        Ok(self.batches[table].push(cells)?)
    }

    fn message(&mut self, position: Position, payload_bytes: u32, head: &MessageHead) -> Result<(), RowsError> {
        let at = Cell::from(position.0);
        let destination = head.copies.first().map_or(0, |copy| copy.destination.0);
        let (high, low) = checksum_of(head);
        self.row(
            STORED,
            &[
                at,
                head.incarnation.into(),
                head.sequence.into(),
                destination.into(),
                head.arrived_ms.into(),
                payload_bytes.into(),
                head.priority.into(),
                flags_of(head).into(),
                high.into(),
                low.into(),
            ],
        )?;
        if head.time_to_live_ms != 0 || head.delay_ms != 0 {
            self.row(LIVES, &[at, head.time_to_live_ms.into(), head.delay_ms.into()])?;
        }
        for row in copies_of(position, head) {
            self.row(COPIES, &row)?;
        }
        if head.transaction != 0 {
            self.row(TRANSACTED, &[at, head.transaction.into()])?;
        }
        for reference in &head.references {
            let cells = [
                at,
                reference.copy.into(),
                reference.source.0.into(),
                reference.sequence.into(),
            ];
            self.row(ARRIVALS, &cells)?;
        }
        Ok(())
    }

    fn terminal(&mut self, position: Position, head: &TerminalHead) -> Result<(), RowsError> {
        let actor = self.name("actor", &head.actor, [None; 3])?;
        for (first, last) in &head.ranges {
            self.row(
                ENDS,
                &[
                    position.0.into(),
                    head.source.0.into(),
                    (*first).into(),
                    (*last).into(),
                    head.time_ms.into(),
                    (head.reason as u8).into(),
                    actor,
                    head.transaction.into(),
                ],
            )?;
        }
        Ok(())
    }

    fn moved(&mut self, position: Position, head: &MoveHead) -> Result<(), RowsError> {
        let actor = self.name("actor", &head.actor, [None; 3])?;
        let (source, sequence) = head.from;
        // What a non-durable subscription had never arrived by a record, and does not end by one.
        if source.is_kept() {
            self.row(
                ENDS,
                &[
                    position.0.into(),
                    source.0.into(),
                    sequence.into(),
                    sequence.into(),
                    head.time_ms.into(),
                    (head.reason as u8).into(),
                    actor,
                    0_u64.into(),
                ],
            )?;
        }
        self.row(
            MOVES,
            &[
                position.0.into(),
                head.position.0.into(),
                head.copy.into(),
                source.0.into(),
                sequence.into(),
                head.to.0.0.into(),
                head.to.1.into(),
            ],
        )
    }

    fn destination(&mut self, position: Position, head: &DestinationHead) -> Result<(), RowsError> {
        let name = self.name("destination", &head.name, [None; 3])?;
        let actor = self.name("actor", &head.actor, [None; 3])?;
        let what: u8 = if head.deleted { 2 } else { 1 };
        self.row(
            CATALOGUE,
            &[
                position.0.into(),
                what.into(),
                head.id.0.into(),
                kind_code(head.kind).into(),
                (head.origin as u8).into(),
                head.generation.into(),
                name,
                actor,
            ],
        )
    }

    fn subscription(&mut self, position: Position, head: &SubscriptionHead) -> Result<(), RowsError> {
        let more = [&head.client_id, &head.pattern, &head.selector].map(|text| Some(text.as_str()));
        let name = self.name("subscription", &head.name, more)?;
        let actor = self.name("actor", &head.actor, [None; 3])?;
        let (what, origin) = (
            if head.deleted { 4_u8 } else { 3 },
            if head.is_static { 1_u8 } else { 2 },
        );
        self.row(
            CATALOGUE,
            &[
                position.0.into(),
                what.into(),
                head.id.0.into(),
                SUBSCRIPTION.into(),
                origin.into(),
                0_u64.into(),
                name,
                actor,
            ],
        )
    }

    fn transaction(&mut self, position: Position, head: &TransactionHead) -> Result<(), RowsError> {
        let xid = head.xid.as_ref().map_or(String::new(), xid_text);
        let xid = self.name("xid", &xid, [None; 3])?;
        self.row(
            DECISIONS,
            &[
                position.0.into(),
                head.transaction.into(),
                (head.decision as u8).into(),
                head.time_ms.into(),
                xid,
            ],
        )
    }

    fn note(&mut self, position: Position, note: &Note) -> Result<(), RowsError> {
        let (at, time_ms) = (position.0.into(), note.time_ms.into());
        match &note.told {
            Told::Opened {
                incarnation,
                user,
                client_id,
            } => {
                let user = self.name("user", user, [None; 3])?;
                let client_id = self.name("client id", client_id, [None; 3])?;
                self.row(OPENED, &[at, (*incarnation).into(), user, client_id, time_ms])
            }
            Told::Configured { objects } => self.row(CONFIGURED, &[at, (*objects).into(), time_ms]),
            Told::Lost {
                loss,
                from,
                bytes,
                records,
                why,
            } => {
                let why = self.name("reason", why, [None; 3])?;
                let what = (*loss as u8).into();
                let lost = [from.0.into(), (*bytes).into(), (*records).into()];
                self.row(LOSSES, &[at, what, lost[0], lost[1], lost[2], why, time_ms])
            }
        }
    }

    /// The key of a name, which is told once in a file; 0 where there is none.
    fn name(&mut self, what: &str, text: &str, more: [Option<&str>; 3]) -> Result<Cell<'static>, RowsError> {
        if text.is_empty() && more.iter().all(Option::is_none) {
            return Ok(0_u64.into());
        }
        let key = self.names.key_of(what, text, more);
        if self.named.insert(key) {
            let [client_id, pattern, selector] = more;
            let cells = [
                key.into(),
                what.into(),
                text.into(),
                client_id.into(),
                pattern.into(),
                selector.into(),
            ];
            self.row(NAMES, &cells)?;
        }
        Ok(key.into())
    }
}

/// What stands for a durable subscription where queues have 1 and topics 2.
const SUBSCRIPTION: u8 = 0;

pub(super) const fn kind_code(kind: Kind) -> u8 {
    match kind {
        Kind::Queue => 1,
        Kind::Topic => 2,
    }
}

/// Both halves of the body's checksum; records of before it was made have none.
pub(super) fn checksum_of(head: &MessageHead) -> (Option<u64>, Option<u64>) {
    let halves = head.checksum.map(|sum| ((sum >> 64) as u64, sum as u64));
    halves.unzip()
}

pub(super) fn flags_of(head: &MessageHead) -> u8 {
    let preserves = if head.preserve { PRESERVES } else { 0 };
    let uploaded = if head.message_bytes > 0 { UPLOADED } else { 0 };
    preserves | uploaded
}

/// The rows of copies: those that bridges made, and such as have an expiration of their own.
pub(super) fn copies_of(position: Position, head: &MessageHead) -> impl Iterator<Item = [Cell<'static>; 6]> + '_ {
    let told = |(index, copy): &(usize, &crate::state::MessageCopy)| *index > 0 || copy.expiration_ms.is_some();
    head.copies.iter().enumerate().filter(told).map(move |(index, copy)| {
        let (producer, sequence) = copy.own_id.unwrap_or((head.incarnation, head.sequence));
        [
            position.0.into(),
            u8::try_from(index).unwrap_or(u8::MAX).into(),
            copy.destination.0.into(),
            producer.into(),
            sequence.into(),
            copy.expiration_ms.into(),
        ]
    })
}

impl Names {
    /// A name's key: a hash of all of it, above 0.
    fn key_of(&self, what: &str, text: &str, more: [Option<&str>; 3]) -> i64 {
        let Some(mut mac) = self.0.clone() else {
            return 1;
        };
        for part in [Some(what), Some(text)].into_iter().chain(more).flatten() {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part.as_bytes());
        }
        let hash = mac.finalize().into_bytes();
        let first: [u8; 8] = std::array::from_fn(|index| hash[index]);
        (u64::from_le_bytes(first) >> 1).max(1) as i64
    }
}

/// `format:global:branch`, both in hexadecimal.
pub(super) fn xid_text(xid: &Xid) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}:{}:{}", xid.format, hex(&xid.global), hex(&xid.branch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_nothing_of_its_name_to_whoever_lacks_the_secret() {
        let key = |secret: &[u8], text| Names(Hmac::new_from_slice(secret).ok()).key_of("user", text, [None; 3]);
        assert_eq!(key(b"one", "alice"), key(b"one", "alice"));
        assert_ne!(key(b"one", "alice"), key(b"one", "bob"));
        assert_ne!(key(b"one", "alice"), key(b"two", "alice"));
        assert!(key(b"one", "alice") > 0);
    }
}
