"""The tables of a snapshot: their columns, what each means, and how they are kept in Parquet.

This is the contract between broker, exporter and audits, for users written out in docs/audits/schema.md (a test holds
that both agree). Columns are only ever added, and at the end of a table: a reader takes those of an older snapshot as
missing values. A change of meaning would be another column.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from sterna_audit import tables_of_events, tables_of_state
from sterna_audit.columns import Column, Kind

#: What this code writes, and the newest that it reads.
VERSION = 1

Folder = Literal["state", "events"]
FOLDERS: tuple[Folder, Folder] = ("state", "events")

_ARROW: Mapping[Kind, pa.DataType] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "int16": pa.int16(),
    "int8": pa.int8(),
    "bool": pa.bool_(),
    "string": pa.string(),
}
_GROUP_ROWS = 65_536
_GROUP_ROWS_WITH_TEXTS = 8_192
_GROUP_ROWS_BY_TABLE = {("state", "configuration"): 512}


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a snapshot."""

    folder: Folder
    name: str
    about: str
    columns: tuple[Column, ...]

    @property
    def title(self) -> str:
        """As texts call it: folder and name."""
        return f"{self.folder}/{self.name}"

    @property
    def schema(self) -> pa.Schema:
        """As Arrow has it, columns in their order."""
        return pa.schema(
            [pa.field(column.name, _ARROW[column.kind], nullable=column.is_nullable) for column in self.columns]
        )

    @property
    def group_rows(self) -> int:
        """How many rows a row group of its files has, few enough to be held in memory.

        The same whoever writes, so that the same rows make the same files.
        """
        if (rows := _GROUP_ROWS_BY_TABLE.get((self.folder, self.name))) is not None:
            return rows
        has_texts = any(column.kind == "string" for column in self.columns)
        return _GROUP_ROWS_WITH_TEXTS if has_texts else _GROUP_ROWS

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)


TABLES: Mapping[tuple[Folder, str], Table] = {
    (table.folder, table.name): table
    for table in (
        *(Table("state", name, about, columns) for name, about, columns in tables_of_state.TABLES),
        *(Table("events", name, about, columns) for name, about, columns in tables_of_events.TABLES),
    )
}
"""Every table by folder and name."""


def table(folder: str, name: str) -> Table:
    """The table of this folder and name.

    Raises:
        KeyError: there is none; the text says so.
    """
    for found in TABLES.values():
        if (found.folder, found.name) == (folder, name):
            return found
    raise KeyError(f"schema {VERSION} has no table {folder}/{name}")


def tables(folder: Folder | None = None) -> Iterator[Table]:
    """All tables, or those of one folder, in the schema's order."""
    return (found for found in TABLES.values() if folder in (None, found.folder))


def tables_of(version: int) -> Iterator[Table]:
    """The tables that a snapshot of this version has, from 1 to `VERSION`; a later one adds its own here."""
    assert 1 <= version <= VERSION, version
    return tables()
