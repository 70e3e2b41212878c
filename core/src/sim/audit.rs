//! How an audit reads cuts and events, by a model of its own: what waits at one position, and what the events make of it.
//!
//! [`Found`] is what there is; [`Events::replay`] goes on from it as the tables of `docs/audits/schema.md` say. It knows
//! nothing of walks, slices and files.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int16Type, Int64Type};
use arrow_ipc::reader::StreamReader;

use crate::log::disk::Disk;
use crate::log::{Position, Sought};
use crate::snapshot::distiller::Distiller;
use crate::snapshot::pieces::{Header, Piece, Reader};
use crate::snapshot::tables;
use crate::state::{CutRow, CutTransaction, Standing, State};

/// A message in a source: its number there, and where it lies.
pub type Row = (u64, u64, u64, u8);

/// All rows, by their state: there, or sent in a transaction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// What is there for consumers, or with them.
    pub there: BTreeSet<Row>,
    /// What was sent in a transaction that is open.
    pub pending: BTreeSet<(u64, Row)>,
    /// What is prepared, and what ends with it.
    pub prepared: BTreeMap<u64, BTreeSet<(u64, u64)>>,
}

impl Found {
    /// What the tables hold now.
    #[must_use]
    pub fn in_tables(state: &State) -> Self {
        let (rows, transactions) = state.rows_now();
        Self::of_cut(&rows, &transactions)
    }

    /// What the rows of a cut say.
    ///
    /// # Panics
    /// They say something twice.
    #[must_use]
    pub fn of_cut(rows: &[CutRow], transactions: &[CutTransaction]) -> Self {
        let mut found = Self::default();
        for open in transactions.iter().filter(|open| open.prepared.is_some()) {
            let ends = open
                .ends
                .iter()
                .flat_map(|(source, first, last)| (*first..=*last).map(|sequence| (source.0, sequence)));
            found.prepared.insert(open.transaction, ends.collect());
        }
        for row in rows {
            let key = (row.source.0, row.sequence, row.position.0, row.copy);
            let is_new = match row.standing {
                Standing::Pending => found.pending.insert((row.transaction, key)),
                _ => found.there.insert(key),
            };
            assert!(is_new, "{row:?} twice");
        }
        found
    }

    /// Whether the third witness says the same of every source: what began and arrived there, less what ended, is there.
    ///
    /// # Errors
    /// Of which it does not.
    pub fn agrees_with<Name: AsRef<str>, Told: IntoIterator<Item = (Name, u64)>>(
        &self,
        counters: impl IntoIterator<Item = (u64, Told)>,
    ) -> Result<(), String> {
        let mut held: BTreeMap<u64, i64> = BTreeMap::new();
        for (source, told) in counters {
            let held = held.entry(source).or_default();
            for (name, value) in told {
                match name.as_ref() {
                    "began" | "arrived" => *held += value as i64,
                    "volatile" | "released" | "delivered" | "duplicates" | "unwanted" => {}
                    _ => *held -= value as i64,
                }
            }
        }
        for (source, ..) in &self.there {
            *held.entry(*source).or_default() -= 1;
        }
        held.retain(|_, held| *held != 0);
        if held.is_empty() {
            return Ok(());
        }
        Err(format!("by source, what was counted and is not there: {held:?}"))
    }

    /// What a file of a cut says.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn in_file(disk: &dyn Disk, cut: &Header) -> Result<Self, String> {
        let mut found = Self::default();
        let (mut positions, mut messages, mut doubled) = (Vec::new(), Vec::new(), Vec::new());
        let mut counted = Vec::new();
        read(disk, cut, |name, batch| match name {
            "deliverables" => {
                let column = |name| numbers(batch, name);
                let (states, transactions) = (column("state"), column("transaction"));
                let keys = column("source").into_iter().zip(column("sequence"));
                let places = column("position").into_iter().zip(column("copy"));
                for (row, ((source, sequence), (position, copy))) in keys.zip(places).enumerate() {
                    let key = (source as u64, sequence as u64, position as u64, copy as u8);
                    let is_new = if states[row] == 3 {
                        found.pending.insert((transactions[row] as u64, key))
                    } else {
                        found.there.insert(key)
                    };
                    doubled.extend(Some(key).filter(|_| !is_new));
                    positions.push(position);
                }
            }
            "messages" => messages.extend(numbers(batch, "position")),
            "transactions" => {
                let decisions = numbers(batch, "decision");
                for (transaction, decision) in numbers(batch, "transaction").into_iter().zip(decisions) {
                    if decision == 1 {
                        found.prepared.entry(transaction as u64).or_default();
                    }
                }
            }
            "taken" => {
                let sources = numbers(batch, "source");
                let (firsts, lasts) = (numbers(batch, "first"), numbers(batch, "last"));
                for (row, transaction) in numbers(batch, "transaction").into_iter().enumerate() {
                    let ends = found.prepared.entry(transaction as u64).or_default();
                    ends.extend((firsts[row]..=lasts[row]).map(|sequence| (sources[row] as u64, sequence as u64)));
                }
            }
            "counters" => counted.extend(
                numbers(batch, "source")
                    .into_iter()
                    .zip(texts(batch, "counter"))
                    .zip(numbers(batch, "value")),
            ),
            _ => {}
        })?;
        let one = |((source, name), value): &((i64, String), i64)| (*source as u64, [(name.clone(), *value as u64)]);
        found.agrees_with(counted.iter().map(one))?;
        positions.sort_unstable();
        positions.dedup();
        if !doubled.is_empty() {
            return Err(format!("rows that are there twice: {doubled:?}"));
        }
        if messages != positions {
            return Err(format!(
                "each message that waits has its row, once and in order: {messages:?} for {positions:?}"
            ));
        }
        Ok(found)
    }
}

/// The pieces of a file, each whole.
///
/// # Errors
/// What is wrong with it, in words.
pub fn pieces(disk: &dyn Disk, header: &Header) -> Result<Vec<Piece>, String> {
    let opened = Reader::of(disk, header).map_err(|error| error.to_string())?;
    let mut reader = opened.ok_or_else(|| format!("{} is not there", header.file_name()))?;
    let mut pieces = Vec::new();
    while let Some(piece) = reader.next_piece().map_err(|error| error.to_string())? {
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Reads a file, batch by batch.
///
/// # Errors
/// What is wrong with it, in words.
pub fn read(disk: &dyn Disk, header: &Header, mut take: impl FnMut(&'static str, &RecordBatch)) -> Result<(), String> {
    for piece in pieces(disk, header)? {
        take_piece(&piece, &mut take)?;
    }
    Ok(())
}

fn take_piece(piece: &Piece, take: &mut impl FnMut(&'static str, &RecordBatch)) -> Result<(), String> {
    let spec = tables::table(piece.table).ok_or_else(|| format!("there is no table {}", piece.table))?;
    let mut rows = 0;
    for batch in StreamReader::try_new(&piece.stream[..], None).map_err(|error| error.to_string())? {
        let batch = batch.map_err(|error| error.to_string())?;
        rows += batch.num_rows();
        take(spec.name, &batch);
    }
    if rows == piece.rows as usize {
        Ok(())
    } else {
        Err(format!("{rows} rows of {} instead of {}", spec.name, piece.rows))
    }
}

/// A column of texts of a batch.
fn texts(batch: &RecordBatch, column: &str) -> Vec<String> {
    let column = batch.column_by_name(column).map(|column| column.as_string::<i32>());
    column.map_or_else(Vec::new, |texts| {
        texts.iter().map(|text| text.unwrap_or_default().to_owned()).collect()
    })
}

/// A column of a batch; what is missing is 0.
#[must_use]
pub fn numbers(batch: &RecordBatch, column: &str) -> Vec<i64> {
    let Some(column) = batch.column_by_name(column) else {
        return Vec::new();
    };
    if let Some(longs) = column.as_primitive_opt::<Int64Type>() {
        return longs.iter().map(Option::unwrap_or_default).collect();
    }
    if let Some(shorts) = column.as_primitive_opt::<Int16Type>() {
        return shorts.values().iter().map(|short| i64::from(*short)).collect();
    }
    column
        .as_primitive::<Int8Type>()
        .values()
        .iter()
        .map(|byte| i64::from(*byte))
        .collect()
}

/// The events from one position up to another: by position, what they say.
#[derive(Clone, Default, Debug)]
pub struct Events(BTreeMap<u64, Vec<(&'static str, Vec<u64>)>>);

impl Events {
    /// Distilled from the log as it is, settled or not, with the pieces that they become.
    ///
    /// # Errors
    /// A record cannot be told of.
    pub fn between(state: &State, from: Position, to: Position) -> Result<(Self, Vec<Piece>), String> {
        let (mut distiller, mut at, mut pieces) = (Distiller::new(&state.names_secret()), from, Vec::new());
        let mut flush = |distiller: &mut Distiller| {
            let taken = distiller.take().map_err(|error| error.to_string())?;
            pieces.extend(
                taken
                    .into_iter()
                    .map(|(table, rows, stream)| Piece { table, rows, stream }),
            );
            Ok::<(), String>(())
        };
        loop {
            let request = match state.log().heads(at, to) {
                Sought::Here(request) => request,
                Sought::Later => return Err("a segment is being sealed".to_owned()),
                Sought::Nowhere => break,
            };
            at = request.to;
            let mut heads = request.run().map_err(|error| error.to_string())?;
            while let Some(head) = heads.next_head() {
                distiller.add(&head).map_err(|error| error.to_string())?;
                if distiller.is_full() {
                    flush(&mut distiller)?;
                }
            }
        }
        flush(&mut distiller)?;
        let mut events = Self::default();
        for piece in &pieces {
            take_piece(piece, &mut |name, batch| events.take(name, batch))?;
        }
        Ok((events, pieces))
    }

    /// What a file of events says, too.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn add_file(&mut self, disk: &dyn Disk, header: &Header) -> Result<(), String> {
        read(disk, header, |name, batch| self.take(name, batch))
    }

    /// Only what lies at a position or above.
    #[must_use]
    pub fn from(mut self, position: Position) -> Self {
        Self(self.0.split_off(&position.0))
    }

    /// Adds rows of one table.
    pub fn take(&mut self, name: &'static str, batch: &RecordBatch) {
        let wanted: &[&str] = match name {
            "transacted" => &["transaction"],
            "arrivals" => &["source", "sequence", "copy"],
            "ends" => &["source", "first", "last", "transaction"],
            "moves" => &["message", "copy", "to_source", "to_sequence"],
            "decisions" => &["transaction", "decision"],
            "catalogue" => &["what", "id"],
            "epochs" => &["epoch"],
            _ => return,
        };
        let columns: Vec<Vec<i64>> = wanted.iter().map(|column| numbers(batch, column)).collect();
        for (row, position) in numbers(batch, "position").into_iter().enumerate() {
            let cells = columns.iter().map(|column| column[row] as u64).collect();
            self.0.entry(position as u64).or_default().push((name, cells));
        }
    }

    /// What there is after all of it, from what there was before.
    ///
    /// # Errors
    /// Something ends that is not there, or comes although it is.
    pub fn replay(&self, found: Found) -> Result<Found, String> {
        let there: BTreeSet<(u64, u64)> = found.there.iter().map(|row| (row.0, row.1)).collect();
        let taken = found.prepared.values().flatten();
        let mut replay = Replay {
            void: taken.filter(|end| !there.contains(end)).copied().collect(),
            found,
            open: BTreeMap::new(),
            wrong: Vec::new(),
        };
        for (position, told) in &self.0 {
            let of = told.iter().find(|(name, _)| *name == "transacted");
            let transaction = of.map(|(_, cells)| cells[0]);
            for (name, cells) in told {
                replay.event(*position, transaction, name, cells);
            }
        }
        if replay.wrong.is_empty() {
            Ok(replay.found)
        } else {
            Err(format!("events that cannot be: {:?}", replay.wrong))
        }
    }
}

struct Replay {
    found: Found,
    /// What ends with transactions that are not prepared.
    open: BTreeMap<u64, BTreeSet<(u64, u64)>>,
    /// What transactions took, and what went with its queue or subscription before they were decided: they end it no more.
    void: BTreeSet<(u64, u64)>,
    /// Events that name a source and a sequence that are not there, or are there already.
    wrong: Vec<(&'static str, u64, u64)>,
}

impl Replay {
    fn event(&mut self, position: u64, sent_in: Option<u64>, name: &str, cells: &[u64]) {
        let found = &mut self.found;
        match (name, cells) {
            ("arrivals", [source, sequence, copy]) => {
                let row = (*source, *sequence, position, *copy as u8);
                let is_new = match sent_in {
                    Some(transaction) => found.pending.insert((transaction, row)),
                    None => found.there.insert(row),
                };
                self.wrong.extend((!is_new).then_some(("arrives", *source, *sequence)));
            }
            ("ends", [source, first, last, 0]) => {
                self.end((*first..=*last).map(|sequence| (*source, sequence)).collect());
            }
            ("ends", [source, first, last, transaction]) => {
                let ends = (*first..=*last).map(|sequence| (*source, sequence));
                self.open.entry(*transaction).or_default().extend(ends);
            }
            ("moves", [message, copy, source, sequence]) => {
                let is_new = found.there.insert((*source, *sequence, *message, *copy as u8));
                self.wrong.extend((!is_new).then_some(("moves", *source, *sequence)));
            }
            ("decisions", [transaction, 1]) => {
                let ends = self.open.remove(transaction).unwrap_or_default();
                found.prepared.insert(*transaction, ends);
            }
            ("decisions", [transaction, decision]) => self.decide(*transaction, *decision == 2),
            ("catalogue", [2 | 4, id]) => {
                found.there.retain(|row| row.0 != *id);
                found.pending.retain(|(_, row)| row.0 != *id);
                let taken = found.prepared.values().chain(self.open.values()).flatten();
                self.void.extend(taken.filter(|(source, _)| source == id));
            }
            ("epochs", _) => {
                let prepared = &found.prepared;
                found
                    .pending
                    .retain(|(transaction, _)| prepared.contains_key(transaction));
                self.open.clear();
            }
            _ => {}
        }
    }

    fn end(&mut self, mut ends: BTreeSet<(u64, u64)>) {
        self.found.there.retain(|row| !ends.remove(&(row.0, row.1)));
        self.wrong
            .extend(ends.into_iter().map(|(source, sequence)| ("ends", source, sequence)));
    }

    fn decide(&mut self, transaction: u64, commits: bool) {
        let found = &mut self.found;
        let mut ends = found.prepared.remove(&transaction).unwrap_or_default();
        ends.extend(self.open.remove(&transaction).unwrap_or_default());
        ends.retain(|end| !self.void.contains(end));
        let all = std::mem::take(&mut found.pending);
        let (sent, others) = all.into_iter().partition(|(of, _)| *of == transaction);
        let sent: BTreeSet<(u64, Row)> = sent;
        found.pending = others;
        if commits {
            found.there.extend(sent.into_iter().map(|(_, row)| row));
            self.end(ends);
        }
    }
}
