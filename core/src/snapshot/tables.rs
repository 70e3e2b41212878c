//! The tables of a snapshot and their rows, in Arrow's format.
//!
//! Every number is signed, so that Spark reads it as it is; what is unsigned in the log (start ids, halves of checksums)
//! keeps its bits. Columns are only ever added, at the end, and nullable.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int8Builder, Int16Builder, Int32Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

/// Rows that become a piece, at most.
pub const ROWS_MAX: usize = 65_536;
/// Bytes of texts from which on rows become a piece, however few they are: selectors may be long, and whoever reads a piece
/// has all of it in memory.
const TEXT_BYTES_MAX: usize = 8 << 20;

/// The version of all tables together.
pub const SCHEMA_VERSION: u32 = 1;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// 64 bits.
    Long,
    /// 32 bits.
    Int,
    /// 16 bits.
    Short,
    /// 8 bits.
    Byte,
    /// True or false.
    Flag,
    /// UTF-8.
    Text,
}

/// A column: its name, what it holds, and whether it may be null.
pub type Column = (&'static str, Type, bool);

/// What a table is.
#[derive(Debug)]
pub struct Spec {
    /// Its number in files, never given to another.
    pub number: u8,
    /// `state` or `events`.
    pub folder: &'static str,
    /// Its name.
    pub name: &'static str,
    /// In order.
    pub columns: &'static [Column],
}

const fn long(name: &'static str) -> Column {
    (name, Type::Long, false)
}

const fn short(name: &'static str) -> Column {
    (name, Type::Short, false)
}

const fn byte(name: &'static str) -> Column {
    (name, Type::Byte, false)
}

const fn flag(name: &'static str) -> Column {
    (name, Type::Flag, false)
}

const fn text(name: &'static str) -> Column {
    (name, Type::Text, false)
}

/// The same column, which may be null.
const fn perhaps((name, of, _): Column) -> Column {
    (name, of, true)
}

macro_rules! columns {
    ([$($column:expr),* $(,)?]) => { &[$($column),*] };
    ($columns:ident) => { $columns };
}

macro_rules! tables {
    ($($(#[$doc:meta])* $constant:ident = $number:literal $folder:literal $name:literal $columns:tt;)*) => {
        $($(#[$doc])* pub static $constant: Spec = Spec {
            number: $number, folder: $folder, name: $name, columns: columns!($columns),
        };)*

        /// All tables.
        pub static TABLES: &[&Spec] = &[$(&$constant),*];
    };
}

/// Copies have the same columns in the state and among events.
const COPY: &[Column] = &[
    long("position"),
    short("copy"),
    long("destination"),
    long("producer"),
    long("sequence"),
    perhaps(long("expiration_ms")),
];

tables! {
    /// What waits where.
    DELIVERABLES = 1 "state" "deliverables" [
        long("source"), long("sequence"), long("position"), short("copy"), byte("priority"), byte("state"), short("attempts"),
        long("bytes"), perhaps(long("move")), perhaps(byte("reason")), perhaps(long("origin")), perhaps(long("transaction")),
    ];
    /// The messages that something waits for.
    MESSAGES = 2 "state" "messages" [
        long("position"), long("epoch"), long("producer"), long("sequence"), long("destination"), long("arrived_ms"),
        long("time_to_live_ms"), long("delay_ms"), byte("priority"), byte("flags"), long("bytes"),
        perhaps(long("checksum_high")), perhaps(long("checksum_low")), perhaps(long("transaction")),
    ];
    /// Copies that bridges made, and such as their destination's expiration rules.
    STATE_COPIES = 3 "state" "copies" COPY;
    /// Queues and topics.
    DESTINATIONS = 4 "state" "destinations" [
        long("id"), byte("kind"), byte("origin"), long("generation"), text("name"),
    ];
    /// Durable subscriptions.
    SUBSCRIPTIONS = 5 "state" "subscriptions" [
        long("id"), text("client_id"), text("name"), text("pattern"), text("selector"), flag("shared"), flag("no_local"),
        flag("is_static"),
    ];
    /// How far each source's numbers are.
    SOURCES = 6 "state" "sources" [
        long("source"), long("next_sequence"), long("watermark"),
    ];
    /// How far each producer's numbers are.
    PRODUCERS = 7 "state" "producers" [
        long("producer"), long("destination"), long("sequence"), perhaps(text("user")), perhaps(text("name")),
    ];
    /// Transactions that are open or prepared.
    TRANSACTIONS = 8 "state" "transactions" [
        long("transaction"), byte("decision"), long("time_ms"), perhaps(text("xid")), long("messages"), long("taken"),
    ];
    /// Under which start ids the store was opened.
    STARTS = 9 "state" "starts" [long("epoch"), long("start")];
    /// What ends when a transaction that is prepared is committed.
    TAKEN = 10 "state" "taken" [long("transaction"), long("source"), long("first"), long("last")];
    /// What was counted apart from all this, since the epoch began.
    COUNTERS = 11 "state" "counters" [long("source"), text("counter"), long("value")];

    /// A message was stored.
    STORED = 32 "events" "stored" [
        long("position"), long("producer"), long("sequence"), long("destination"), long("time_ms"),
        ("bytes", Type::Int, false), byte("priority"), byte("flags"), perhaps(long("checksum_high")),
        perhaps(long("checksum_low")),
    ];
    /// How long it lives, and how long it is held back.
    LIVES = 33 "events" "lives" [long("position"), long("time_to_live_ms"), long("delay_ms")];
    /// As in the state.
    COPIES = 34 "events" "copies" COPY;
    /// It was stored in a transaction.
    TRANSACTED = 35 "events" "transacted" [long("position"), long("transaction")];
    /// It came into a source.
    ARRIVALS = 36 "events" "arrivals" [long("position"), short("copy"), long("source"), long("sequence")];
    /// References ended.
    ENDS = 37 "events" "ends" [
        long("position"), long("source"), long("first"), long("last"), long("time_ms"), byte("reason"), long("actor"),
        long("transaction"),
    ];
    /// A reference went from one source to another.
    MOVES = 38 "events" "moves" [
        long("position"), long("message"), short("copy"), long("from_source"), long("from_sequence"), long("to_source"),
        long("to_sequence"),
    ];
    /// A transaction was prepared or decided.
    DECISIONS = 39 "events" "decisions" [
        long("position"), long("transaction"), byte("decision"), long("time_ms"), long("xid"),
    ];
    /// A destination or durable subscription began or ended.
    CATALOGUE = 40 "events" "catalogue" [
        long("position"), byte("what"), long("id"), byte("kind"), byte("origin"), long("generation"), long("name"),
        long("actor"),
    ];
    /// Below this number what a source has may have been delivered.
    WATERMARKS = 41 "events" "watermarks" [long("position"), long("source"), long("below")];
    /// An epoch began.
    EPOCHS = 42 "events" "epochs" [long("position"), long("epoch"), perhaps(long("start"))];
    /// A producer without a name began.
    OPENED = 44 "events" "opened" [
        long("position"), long("producer"), long("user"), long("client_id"), long("time_ms"),
    ];
    /// The configuration was handed over.
    CONFIGURED = 45 "events" "configured" [long("position"), long("objects"), long("time_ms")];
    /// Records were lost.
    LOSSES = 46 "events" "losses" [
        long("position"), byte("what"), long("from"), long("bytes"), perhaps(long("records")), long("why"),
        long("time_ms"),
    ];
    /// What keys in other tables stand for.
    NAMES = 43 "events" "names" [
        long("key"), text("what"), text("text"), perhaps(text("client_id")), perhaps(text("pattern")),
        perhaps(text("selector")),
    ];
}

/// The table of a number.
#[must_use]
pub fn table(number: u8) -> Option<&'static Spec> {
    TABLES.iter().copied().find(|spec| spec.number == number)
}

impl Spec {
    /// In Arrow's terms.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        let field = |(name, of, nullable): &Column| Field::new(*name, of.arrow(), *nullable);
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// What a row takes before it is compressed, texts and nulls left out.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.columns.iter().map(|(_, of, _)| of.bytes()).sum()
    }
}

impl Type {
    const fn arrow(self) -> DataType {
        match self {
            Self::Long => DataType::Int64,
            Self::Int => DataType::Int32,
            Self::Short => DataType::Int16,
            Self::Byte => DataType::Int8,
            Self::Flag => DataType::Boolean,
            Self::Text => DataType::Utf8,
        }
    }

    /// As the audits' schema calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Long => "int64",
            Self::Int => "int32",
            Self::Short => "int16",
            Self::Byte => "int8",
            Self::Flag => "bool",
            Self::Text => "string",
        }
    }

    const fn bytes(self) -> usize {
        match self {
            Self::Long => 8,
            Self::Int => 4,
            Self::Short => 2,
            Self::Byte | Self::Flag => 1,
            Self::Text => 0,
        }
    }
}

/// A value on its way into a row.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a> {
    /// A number of any width.
    Number(i64),
    /// True or false.
    Flag(bool),
    /// Text.
    Text(&'a str),
    /// Null.
    None,
}

impl From<u64> for Cell<'_> {
    /// Numbers of the log stay below 2⁶³; what does not (start ids, halves of checksums) keeps its bits.
    fn from(number: u64) -> Self {
        Self::Number(number as i64)
    }
}

macro_rules! number_cells {
    ($($of:ty),*) => {$(
        impl From<$of> for Cell<'_> {
            fn from(number: $of) -> Self {
                Self::Number(i64::from(number))
            }
        }
    )*};
}

number_cells!(i64, u32, u16, u8);

impl From<bool> for Cell<'_> {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<'a> From<&'a str> for Cell<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a, T: Into<Cell<'a>>> From<Option<T>> for Cell<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// A cell does not belong into its column: a defect of the program, found before anything is written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{table}.{column} cannot hold what was put into it")]
pub struct Misfit {
    table: &'static str,
    column: &'static str,
}

enum Builder {
    Long(Int64Builder),
    Int(Int32Builder),
    Short(Int16Builder),
    Byte(Int8Builder),
    Flag(BooleanBuilder),
    Text(StringBuilder),
}

impl Builder {
    fn new(of: Type) -> Self {
        match of {
            Type::Long => Self::Long(Int64Builder::new()),
            Type::Int => Self::Int(Int32Builder::new()),
            Type::Short => Self::Short(Int16Builder::new()),
            Type::Byte => Self::Byte(Int8Builder::new()),
            Type::Flag => Self::Flag(BooleanBuilder::new()),
            Type::Text => Self::Text(StringBuilder::new()),
        }
    }

    /// Whether the cell fitted.
    fn push(&mut self, cell: Cell<'_>) -> bool {
        match (self, cell) {
            (Self::Long(builder), Cell::Number(number)) => builder.append_value(number),
            (Self::Int(builder), Cell::Number(number)) => match i32::try_from(number) {
                Ok(number) => builder.append_value(number),
                Err(_) => return false,
            },
            (Self::Short(builder), Cell::Number(number)) => match i16::try_from(number) {
                Ok(number) => builder.append_value(number),
                Err(_) => return false,
            },
            (Self::Byte(builder), Cell::Number(number)) => match i8::try_from(number) {
                Ok(number) => builder.append_value(number),
                Err(_) => return false,
            },
            (Self::Flag(builder), Cell::Flag(flag)) => builder.append_value(flag),
            (Self::Text(builder), Cell::Text(text)) => builder.append_value(text),
            (builder, Cell::None) => builder.push_null(),
            _ => return false,
        }
        true
    }

    fn push_null(&mut self) {
        match self {
            Self::Long(builder) => builder.append_null(),
            Self::Int(builder) => builder.append_null(),
            Self::Short(builder) => builder.append_null(),
            Self::Byte(builder) => builder.append_null(),
            Self::Flag(builder) => builder.append_null(),
            Self::Text(builder) => builder.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Long(builder) => Arc::new(builder.finish()),
            Self::Int(builder) => Arc::new(builder.finish()),
            Self::Short(builder) => Arc::new(builder.finish()),
            Self::Byte(builder) => Arc::new(builder.finish()),
            Self::Flag(builder) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Rows of one table on their way into a piece.
pub struct Batch {
    /// Which table.
    pub spec: &'static Spec,
    schema: SchemaRef,
    builders: Vec<Builder>,
    rows: usize,
    text_bytes: usize,
}

impl Batch {
    /// An empty one.
    #[must_use]
    pub fn new(spec: &'static Spec) -> Self {
        let builders = spec.columns.iter().map(|(_, of, _)| Builder::new(*of)).collect();
        Self {
            spec,
            schema: spec.schema(),
            builders,
            rows: 0,
            text_bytes: 0,
        }
    }

    /// How many rows it has.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Whether its rows are to become a piece.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.text_bytes >= TEXT_BYTES_MAX
    }

    /// Adds a row.
    ///
    /// # Errors
    /// A cell is not of its column's type or range, or there are more or fewer than columns. The batch is of no use then.
    pub fn push(&mut self, cells: &[Cell<'_>]) -> Result<(), Misfit> {
        let table = self.spec.name;
        for (index, (column, _, nullable)) in self.spec.columns.iter().enumerate() {
            let fits = match cells.get(index) {
                Some(Cell::None) if !nullable => false,
                Some(cell) => self.builders[index].push(*cell),
                None => false,
            };
            if !fits {
                return Err(Misfit { table, column });
            }
            if let Some(Cell::Text(text)) = cells.get(index) {
                self.text_bytes += text.len();
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// The rows as one Arrow IPC stream (schema, a batch, its end), compressed with LZ4; the batch is empty afterwards.
    ///
    /// # Errors
    /// Arrow's.
    pub fn take(&mut self) -> Result<Vec<u8>, ArrowError> {
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        (self.rows, self.text_bytes) = (0, 0);
        let batch = RecordBatch::try_new(self.schema.clone(), arrays)?;
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME))?;
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &self.schema, options)?;
        writer.write(&batch)?;
        writer.finish()?;
        writer.into_inner()
    }
}
