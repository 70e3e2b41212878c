"""Brings clients' ledgers into tables that Spark reads: their records in bounded batches, as Parquet files.

A ledger's format is its own, so it is read here, by the SDK's reader; what stands in it is joined with snapshots by
Spark. What a damaged ledger says before the damage counts.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from sterna import ledger
from sterna.errors import LedgerDamagedError, LedgerError

from sterna_audit import arrow_source
from sterna_audit.snapshots.stores import Store, chunks

_BATCH_ROWS = 65_536
#: No record means a longer range of numbers.
RANGE_MAX = 1 << 22
_FILE_BITS = 32
_FILES_MAX = 1 << 30
_LONG_END = 1 << 63
_FILE = "part-0.parquet"

_LONG, _INT, _TEXT, _FLAG = pa.int64(), pa.int32(), pa.string(), pa.bool_()
_WHO: dict[str, pa.DataType] = {"store": _TEXT, "producer": _LONG}
_WHERE: dict[str, pa.DataType] = {"ledger": _INT, "at": _LONG}
_IN_TRANSACTION: dict[str, pa.DataType] = {"session": _LONG, "transaction": _LONG}

_COLUMNS: Mapping[str, dict[str, pa.DataType]] = {
    "sent": {
        **_WHO,
        "number": _LONG,
        **_WHERE,
        "destination": _TEXT,
        "is_topic": _FLAG,
        "message_id": _TEXT,
        **_IN_TRANSACTION,
        "time_ms": _LONG,
        "bytes": _LONG,
        "checksum_high": _LONG,
        "checksum_low": _LONG,
    },
    # What was answered, and what was sent again, by ranges of numbers.
    "answers": {**_WHO, "first": _LONG, "last": _LONG, "at": _LONG, "answer": _TEXT, "durability": _INT},
    "transactions": {"store": _TEXT, **_WHERE, **_IN_TRANSACTION, "outcome": _TEXT, "durability": _INT},
    "received": {
        "store": _TEXT,
        "source": _LONG,
        "sequence": _LONG,
        "message_id": _TEXT,
        "is_redelivered": _FLAG,
        "time_ms": _LONG,
        **_WHERE,
    },
    "acknowledging": {
        "store": _TEXT,
        "source": _LONG,
        "first": _LONG,
        "last": _LONG,
        **_IN_TRANSACTION,
        "number": _LONG,
        "time_ms": _LONG,
        **_WHERE,
    },
    "acknowledged": {"ledger": _INT, "number": _LONG, "outcome": _TEXT},
}

#: The tables that ledgers become, and their columns. `at` orders the records of one ledger: its file, and place in it.
TABLES: Mapping[str, pa.Schema] = {name: pa.schema(list(columns.items())) for name, columns in _COLUMNS.items()}


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """What was found of one file.

    Attributes:
        path: below the root.
        ledger: its identity; the files of one process's connection share it.
        client_id: whose.
        state: `closed`, `open` (or left so by a process that was killed), `torn` or `damaged`.
        why: of a damaged one what is wrong.
        records: how many were read.
    """

    path: str
    ledger: str
    client_id: str
    state: str
    why: str = ""
    records: int = 0


@dataclass(frozen=True)
class Converted:
    """Ledgers as tables.

    Attributes:
        store: where they are, each table a file in a folder of its own.
        folder: in which those are.
        rows: how many each has.
        files: which were read.
    """

    store: Store
    folder: str
    rows: Mapping[str, int]
    files: Sequence[LedgerFile] = field(default=())

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """The rows of a table of `TABLES`."""
        if arrow_source.is_needed(self.store, spark):
            file = arrow_source.File(f"{self.folder}/{name}/{_FILE}", self.rows[name])
            columns = spark.createDataFrame(TABLES[name].empty_table()).schema
            return arrow_source.read(spark, self.store, name, [file], columns)
        return spark.read.parquet(f"{self.store.uri.rstrip('/')}/{self.folder}/{name}")


def convert(source: Store, target: Store, folder: str, progress: Callable[[str], None] = lambda _: None) -> Converted:
    """Reads all ledgers below a root, at any depth, and writes their tables where executors can read them.

    Args:
        source: where the ledgers are.
        target: where to the tables go.
        folder: of it.
        progress: is told of each file.

    Raises:
        StoreError: one of the stores does not answer.
    """
    with closing(_Writers(target, folder)) as writers:
        numbers: dict[str, int] = {}
        found = []
        for entry in source.files(""):
            if entry.path.endswith(ledger.SUFFIX):
                progress(f"reading {entry.path}")
                found.append(_convert_file(source, entry.path, writers, numbers))
    return Converted(target, folder, writers.written, tuple(found))


def _convert_file(source: Store, path: str, writers: "_Writers", numbers: dict[str, int]) -> LedgerFile:
    with tempfile.NamedTemporaryFile(prefix="sterna-ledger-", suffix=ledger.SUFFIX) as local:
        with source.reading(path) as remote:
            for piece in chunks(remote):
                local.write(piece)
        local.flush()
        records, head, state, why = 0, {}, "damaged", ""
        try:
            reading = ledger.read(Path(local.name))
            head = _checked(reading.head)
            known = numbers.setdefault(str(head.get("ledger", path)), len(numbers))
            base = head.get("file", 0) << _FILE_BITS
            for record in reading:
                records += 1
                _add(writers, known, base + records, record)
            state = reading.state
        except LedgerDamagedError as error:
            why = error.cause
        except (LedgerError, _ContentError) as error:
            why = str(error)
    return LedgerFile(path, str(head.get("ledger", "")), str(head.get("client_id", "")), state, why, records)


class _ContentError(Exception):
    """What no client writes stands in a ledger, though all checksums are right; the text says what."""


def _checked(head: Any) -> dict[str, Any]:
    """A file's head, of which nothing is known but that it is JSON."""
    file = head.get("file", 0) if isinstance(head, dict) else None
    if type(file) is not int or not 0 <= file < _FILES_MAX:
        raise _ContentError("its head does not say which file of its ledger it is")
    return dict(head)


def _check_run(first: int, last: int) -> None:
    if not 0 <= last - first < RANGE_MAX:
        raise _ContentError(f"a record is about numbers from {first} to {last}")


def _signed(half: bytes) -> int:
    return int.from_bytes(half, "big", signed=True)


def _long(number: int) -> int:
    """Numbers of 64 bits keep their bits, as in snapshots."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _add(writers: "_Writers", known: int, at: int, record: ledger.Record) -> None:
    match record:
        case ledger.SentRecord(producer=producer):
            writers.add(
                "sent",
                (producer.link.store, _long(producer.incarnation), record.number, known, at),
                (record.destination, record.destination_kind == "topic", record.message_id, producer.session),
                (record.transaction, record.time_ms, record.size),
                (_signed(record.checksum[:8]), _signed(record.checksum[8:])),
            )
        case ledger.Confirmed() | ledger.Refused() | ledger.InDoubt() | ledger.GivenUp() | ledger.Again():
            answer = record.kind
            if isinstance(record, ledger.Refused):
                answer = "refused" if record.is_final else "postponed"
            durability = record.durability if isinstance(record, ledger.Confirmed) else 0
            _check_run(record.first, record.last)
            who = record.producer.link.store, _long(record.producer.incarnation)
            writers.add("answers", who, (record.first, record.last, at, answer, durability))
        case ledger.TransactionRecord():
            where = record.link.store, known, at, record.session, record.transaction
            writers.add("transactions", where, (record.outcome, record.durability))
        case ledger.Received(consumer=consumer):
            what = record.sequence, record.message_id, record.is_redelivered
            writers.add("received", (consumer.link.store, consumer.source), what, (record.time_ms, known, at))
        case ledger.Acknowledging():
            _check_run(record.first, record.last)
            writers.add(
                "acknowledging",
                (record.link.store, record.source, record.first, record.last, record.session, record.transaction),
                (record.number, record.time_ms, known, at),
            )
        case ledger.Acknowledged():
            writers.add("acknowledged", (known, record.number, record.outcome))


class _Writers:
    """The files of all tables, each written in batches."""

    def __init__(self, target: Store, folder: str) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        self.written = dict.fromkeys(TABLES, 0)
        self._outputs = {name: target.create(f"{folder}/{name}/{_FILE}") for name in TABLES}
        self._writers = {
            name: pq.ParquetWriter(cast("Any", _Sink(self._outputs[name])), schema, compression="zstd")
            for name, schema in TABLES.items()
        }

    def add(self, name: str, *parts: tuple[Any, ...]) -> None:
        """A row of a table, in parts."""
        rows = self._rows[name]
        row = tuple(value for part in parts for value in part)
        if any(type(value) is int and not -_LONG_END <= value < _LONG_END for value in row):
            raise _ContentError(f"a record of {name} has a number that is too large")
        rows.append(row)
        if len(rows) >= _BATCH_ROWS:
            self._flush(name)

    def _flush(self, name: str) -> None:
        rows, self._rows[name] = self._rows[name], []
        self.written[name] += len(rows)
        if rows:
            columns = zip(*rows, strict=True)
            schema = TABLES[name]
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
            self._writers[name].write_table(pa.Table.from_arrays(arrays, schema=schema))

    def close(self) -> None:
        """Writes what waits; the files are whole then."""
        for name, writer in self._writers.items():
            self._flush(name)
            writer.close()
            self._outputs[name].finish()


class _Sink:
    """An output of a store as a file that Arrow writes into."""

    closed = False

    def __init__(self, output: Any) -> None:
        self._output = output

    def write(self, data: bytes | memoryview) -> int:
        """What Arrow calls."""
        return int(self._output.write(bytes(data)))

    def flush(self) -> None:
        """What Arrow calls; files are on the disk when they are finished."""

    def close(self) -> None:
        """What Arrow may call; the output is finished by its owner."""
