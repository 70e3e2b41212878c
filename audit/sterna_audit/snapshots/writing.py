"""Writes a snapshot: rows of any tables in any order come in, Parquet files and at last a manifest are what is left.

Memory is bounded: of each table at most one row group waits (`schema.Table.group_rows`), and a file is closed after so
many rows; of the names that were told the keys are kept, 8 bytes each. What a file holds follows from a table's rows
and their order alone, not from how they were divided into batches, nor from what came between: the same rows make the
same files.

A run that is broken off leaves files without a manifest, which are no snapshot. The next run of the same cut removes
them and begins anew: rows come from the broker in one stream, so that there is nothing to be gained from going on.
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sterna_audit import checksums, schema, surroundings
from sterna_audit.checksums import RowChecksum
from sterna_audit.privacy import Privacy
from sterna_audit.schema import Table
from sterna_audit.snapshots import manifests
from sterna_audit.snapshots.keys import Signer
from sterna_audit.snapshots.layout import FILES_OF_A_TABLE_MAX, Place, file_name
from sterna_audit.snapshots.manifests import Cut, FileEntry
from sterna_audit.snapshots.stores import MissingFileError, Output, Store, StoreError

FILE_ROWS = 4_194_304
_RATE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([kMG]?)")
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_RATE_MIN = 100_000
_ZSTD_LEVEL = 3
# How soon whoever is held up sees that nothing more is wanted.
_WAIT_S = 0.2
_CREATED_BY_US = {"sterna.schema": str(schema.VERSION)}


class GivenUpError(Exception):
    """The writer was told to write no more."""


class RowsError(ValueError):
    """Rows came that the schema does not have; the text names table and column."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a writer is: rows taken in, bytes given to the store."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How a snapshot is written.

    Attributes:
        privacy: what becomes of principals and client ids.
        signer: who signs the manifest; None leaves it unsigned, which every reader says.
        bytes_per_second: at most so many go to the store; None: as fast as it takes them.
        file_rows: a table goes on in another file after so many rows; a multiple of 65,536.
        progress: is told after each row group, by the thread that writes.
    """

    privacy: Privacy
    signer: Signer | None
    bytes_per_second: float | None = None
    file_rows: int = FILE_ROWS
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        if self.bytes_per_second is not None and not self.bytes_per_second > 0:
            raise ValueError("bytes_per_second is above 0, or None for no limit")
        if self.file_rows < 1 or self.file_rows % 65_536:
            raise ValueError("file_rows is a multiple of 65,536")


def parse_rate(text: str) -> float | None:
    """Bytes a second, as people write it: `500k`, `20M`, `1G`; None for an empty text: no limit.

    Raises:
        ValueError: it is none, or so small that nothing would ever end.
    """
    if not text:
        return None
    found = _RATE.fullmatch(text)
    if found is None or float(found[1]) * _UNITS[found[2]] < _RATE_MIN:
        raise ValueError(f"{text[:40]!r} is no number of bytes from 100k on, as 500k, 20M or 1G")
    return float(found[1]) * _UNITS[found[2]]


class _Pace:
    """Holds whoever writes up, so that no more than so many bytes a second go on average."""

    def __init__(self, bytes_per_second: float | None) -> None:
        self._rate = bytes_per_second
        self._free_at = surroundings.monotonic_s()
        self.is_over = False

    def passed(self, count: int) -> None:
        """So many bytes were written."""
        if self._rate is None:
            return
        now = surroundings.monotonic_s()
        self._free_at = max(self._free_at, now) + count / self._rate
        while not self.is_over and (left := self._free_at - surroundings.monotonic_s()) > 0:
            surroundings.wait(min(left, _WAIT_S))


class _File:
    """One Parquet file under way, which Arrow writes into as into a file of Python."""

    def __init__(self, table: Table, path: str, output: Output, passed: Callable[[int], None]) -> None:
        self.path = path
        self.rows = 0
        self.closed = False
        self._is_abandoned = False
        self._output = output
        self._passed = passed
        self._sha256 = hashlib.sha256()
        self._bytes = 0
        self._checksum = RowChecksum()
        self._table = table
        packings = {column.name: column.packing for column in table.columns}
        self._parquet = pq.ParquetWriter(
            # Arrow asks for no more than what is here.
            cast("Any", self),
            table.schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=cast("Any", [name for name, packing in packings.items() if packing == "dictionary"]),
            column_encoding={name: "DELTA_BINARY_PACKED" for name, packing in packings.items() if packing == "delta"},
            write_statistics=True,
            version="2.6",
            data_page_version="1.0",
            store_schema=False,
        )
        self._parquet.add_key_value_metadata({**_CREATED_BY_US, "sterna.table": table.title})

    def write(self, data: bytes | memoryview) -> int:
        """What Arrow calls."""
        if self._is_abandoned:
            return len(data)
        piece = bytes(data)
        self._sha256.update(piece)
        self._bytes += len(piece)
        self._output.write(piece)
        self._passed(len(piece))
        return len(piece)

    def flush(self) -> None:
        """What Arrow calls; files are on the disk when they are finished."""

    def tell(self) -> int:
        """What Arrow may call."""
        return self._bytes

    def close(self) -> None:
        """What Arrow may call; `finish` ends the file."""

    def add(self, group: pa.Table) -> None:
        """Writes a row group."""
        self._parquet.write_table(group, row_group_size=group.num_rows)
        for batch in group.to_batches():
            self._checksum += checksums.of_batch(batch)
        self.rows += group.num_rows

    def finish(self) -> FileEntry:
        """Ends the file; what the manifest says of it."""
        self._parquet.close()
        self._output.finish()
        return FileEntry(self._sha256.hexdigest(), self._bytes, self.rows, self._table.name, self._checksum.total)

    def abandon(self) -> None:
        """Lets go of it. What Arrow still has to say, also when it is collected, goes nowhere."""
        self._is_abandoned = True
        self._output.abandon()
        self._parquet.close()


class _Rows:
    """The rows of one table that wait for their row group."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.waiting: deque[pa.RecordBatch] = deque()
        self.count = 0
        self.file: _File | None = None
        self.files = 0

    def take(self, rows: int) -> pa.Table:
        """So many of the rows that came first, in one piece."""
        taken: list[pa.RecordBatch] = []
        left = rows
        while left:
            batch = self.waiting.popleft()
            if batch.num_rows > left:
                self.waiting.appendleft(batch.slice(left))
                batch = batch.slice(0, left)
            taken.append(batch)
            left -= batch.num_rows
        self.count -= rows
        return pa.Table.from_batches(taken, self.table.schema).combine_chunks()


class _Names:
    """Of names, which each of the broker's files of events tells anew, lets those through that were not told yet."""

    def __init__(self) -> None:
        self._known: pa.Array[Any] = pa.array([], pa.int64())

    def new(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        batch = batch.filter(pc.invert(pc.is_in(batch.column("key"), value_set=self._known)))
        first = dict[int | None, int]()
        for row, key in enumerate(batch.column("key").to_pylist()):
            first.setdefault(key, row)
        if len(first) < batch.num_rows:
            batch = batch.take(pa.array(first.values(), pa.int64()))
        self._known = pa.concat_arrays([self._known, batch.column("key")])
        return batch


class SnapshotWriter:
    """Writes one cut's snapshot. Used by one thread at a time.

    `begin` removes what an earlier run left, `add` takes rows, `finish` writes the manifest; `abandon` lets go at any
    time. After an error nothing but `abandon` may follow. `give_up` alone may be called beside all of these.
    """

    def __init__(self, store: Store, place: Place, number: int, options: WriterOptions) -> None:
        self._store = store
        self._folder = place.cut(number)
        self._place = place
        self._number = number
        self._options = options
        self._pace = _Pace(options.bytes_per_second)
        self._rows = {key: _Rows(table) for key, table in schema.TABLES.items()}
        self._names = _Names()
        self._files: dict[str, FileEntry] = {}
        self._taken = 0
        self._written = 0

    def begin(self) -> None:
        """Removes what an earlier run left of this cut.

        Raises:
            StoreError: there is a manifest, so that it is a snapshot, which is never replaced.
        """
        self._check_new()
        if self._store.files(self._folder):
            self._store.remove_folder(self._folder)

    def _check_new(self) -> None:
        with suppress(MissingFileError):
            self._store.size(self._place.manifest(self._number))
            raise StoreError(f"{self._folder} is a snapshot already")

    def add(self, folder: str, name: str, batch: pa.RecordBatch) -> None:
        """Takes rows of one table.

        Raises:
            RowsError: they are not of this schema.
            StoreError: the store takes no more.
        """
        try:
            table = schema.table(folder, name)
        except KeyError as error:
            raise RowsError(str(error.args[0])) from error
        rows = self._rows[table.folder, table.name]
        batch = conformed(table, batch)
        self._taken += batch.num_rows
        if (table.folder, table.name) == ("events", "names"):
            batch = self._names.new(batch)
        batch = self._options.privacy.applied(table, batch)
        if batch.num_rows:
            rows.waiting.append(batch)
            rows.count += batch.num_rows
        while rows.count >= table.group_rows:
            self._write_group(rows, table.group_rows)

    def _write_group(self, rows: _Rows, count: int) -> None:
        if rows.file is None:
            rows.file = self._open(rows)
        rows.file.add(rows.take(count))
        if rows.file.rows >= self._options.file_rows:
            self._close(rows)
        if self._options.progress is not None:
            self._options.progress(Progress(self._taken, self._written))

    def _open(self, rows: _Rows) -> _File:
        if rows.files >= FILES_OF_A_TABLE_MAX:
            raise RowsError(f"{rows.table.title} has more rows than {FILES_OF_A_TABLE_MAX} files hold")
        path = file_name(rows.table.folder, rows.table.name, rows.files)
        rows.files += 1
        output = self._store.create(f"{self._folder}/{path}")
        try:
            return _File(rows.table, path, output, self._passed)
        except BaseException:
            # Its first bytes were written already.
            output.abandon()
            raise

    def _passed(self, count: int) -> None:
        self._written += count
        self._pace.passed(count)

    def _close(self, rows: _Rows) -> None:
        assert rows.file is not None
        self._files[rows.file.path] = rows.file.finish()
        rows.file = None

    def finish(self, cut: Cut, extra_options: Mapping[str, Any] | None = None) -> bytes:
        """Writes what waits, then the manifest: from there on it is a snapshot. The manifest's bytes.

        Each table has a file, if need be one without rows: a table without files is one that somebody removed.

        Raises:
            RowsError: the manifest would be larger than any reader takes.
            StoreError: the store does not take it. If it was the manifest, whether it is there is not known.
            GivenUpError: `give_up` came before the manifest.
        """
        # This process may have stood still for so long that another was given the cut, and has kept it.
        self._check_new()
        for rows in self._rows.values():
            if rows.count:
                self._write_group(rows, rows.count)
            if not rows.files:
                rows.file = self._open(rows)
            if rows.file is not None:
                self._close(rows)
        options = {**(extra_options or {}), **self._options.privacy.options}
        data = manifests.encoded(cut, self._files, options, self._options.signer)
        if len(data) > manifests.MANIFEST_BYTES_MAX:
            raise RowsError(f"the manifest has {len(data)} bytes, at most {manifests.MANIFEST_BYTES_MAX} are read")
        # What no reader would take is not written.
        manifests.decoded(data)
        if self._pace.is_over:
            raise GivenUpError
        self._check_there()
        self._check_new()
        self._store.put(self._place.manifest(self._number), data)
        if self._options.progress is not None:
            self._options.progress(Progress(self._taken, self._written))
        return data

    def _check_there(self) -> None:
        """Looks whether all that was written is there still: of a manifest the broker hears, and forgets the cut."""
        sizes = {entry.path: entry.size for entry in self._store.files(self._folder)}
        for path, entry in self._files.items():
            if sizes.get(f"{self._folder}/{path}") != entry.bytes:
                raise StoreError(f"{self._folder}/{path} was written, and is not there any more as it was")

    def give_up(self) -> None:
        """Has whatever another thread does here end soon, and without a manifest unless that is being written."""
        self._pace.is_over = True

    def abandon(self) -> None:
        """Lets go of what is open. What was written stays, without a manifest, for the next run to remove."""
        for rows in self._rows.values():
            file, rows.file = rows.file, None
            if file is not None:
                file.abandon()


def conformed(table: Table, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with exactly the table's columns.

    Raises:
        RowsError: it has others, other types, or no value where there has to be one.
    """
    if tuple(batch.schema.names) != table.names:
        raise RowsError(f"{table.title} has the columns {', '.join(table.names)}, not {', '.join(batch.schema.names)}")
    for field, column in zip(table.schema, batch.columns, strict=True):
        if column.type != field.type:
            raise RowsError(f"{table.title}.{field.name} is {field.type}, not {column.type}")
        if column.null_count and not field.nullable:
            raise RowsError(f"{table.title}.{field.name} has {column.null_count} rows without a value")
    return pa.RecordBatch.from_arrays(batch.columns, schema=table.schema)
