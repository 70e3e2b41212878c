"""Faults in the files of real histories: single rows dropped, doubled, altered, with everything else made right.

A history is written anew under another broker's name, by the exporter's own writer: only what the rows say is wrong,
and no checksum, manifest or link tells of it.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sterna_audit import schema
from sterna_audit.snapshots import reading
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Gap, decoded
from sterna_audit.snapshots.stores import Directory
from sterna_audit.snapshots.writing import SnapshotWriter

from tests.audit.kept import PLAIN

Row = dict[str, Any]
Table = tuple[int, str, str]
Edit = Callable[[list[Row]], list[Row]]


def rows_of(root: Path, place: Place, table: Table) -> list[Row]:
    """A table's rows, by cut, folder and name."""
    cut, folder, name = table
    files = sorted((root / place.cut(cut)).glob(f"{folder}/{name}-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def planted(root: Path, place: Place, broker: str, edits: Mapping[Table, Edit], last: int, gap_in: int = 0) -> Place:
    """The same history up to a cut, under another broker's name, with some tables' rows edited.

    Args:
        root: of the store.
        place: whose history.
        broker: the other name.
        edits: by cut, folder and table.
        last: the cut.
        gap_in: a cut that has no events, and says so.
    """
    other = Place(place.cluster, broker)
    store, previous = Directory(root), None
    for number in range(1, last + 1):
        manifest = reading.find(store, place, number).manifest
        assert manifest is not None
        writer = SnapshotWriter(store, other, number, PLAIN)
        writer.begin()
        for table in schema.tables():
            rows = rows_of(root, place, (number, table.folder, table.name))
            edit = edits.get((number, table.folder, table.name))
            if edit is not None:
                before = [dict(row) for row in rows]
                rows = edit(rows)
                assert rows != before, f"{broker}: nothing was planted"
            if number == gap_in and table.folder == "events":
                rows = []
            writer.add(table.folder, table.name, pa.RecordBatch.from_pylist(rows, schema=table.schema))
        cut = dataclasses.replace(manifest.cut, place=other, previous=previous)
        if number == gap_in:
            cut = dataclasses.replace(cut, events=(), gaps=(Gap(cut.previous_position, cut.position, "planted"),))
        previous = decoded(writer.finish(cut)).sha256
    return other


def without(chosen: Row) -> Edit:
    """One row is dropped."""
    return lambda rows: [row for row in rows if row != chosen]


def doubled(chosen: Row) -> Edit:
    """One row is there twice."""
    return lambda rows: [*rows, chosen]


def altered(chosen: Row, **values: Any) -> Edit:
    """One row says something else."""
    return lambda rows: [{**row, **values} if row == chosen else row for row in rows]


def added(**values: Any) -> Edit:
    """A row like the first one, but for some values, is invented."""
    return lambda rows: [*rows, {**rows[0], **values}]
