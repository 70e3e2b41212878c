"""Faults in snapshots: rows of a table are changed, and manifests say that it is so, as whoever lies would have it.

What is planted can be found by what the tables say alone: files, links and signatures (there are none) are in order.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sterna_audit import schema
from sterna_audit.snapshots import signed_json
from sterna_audit.snapshots.layout import Place

Row = dict[str, Any]


def rows_of(root: Path, place: Place, cut: int, table: str) -> list[Row]:
    """A table's rows."""
    found: list[Row] = pq.read_table(root / place.cut(cut) / f"{table}-000.parquet").to_pylist()
    return found


def plant(root: Path, place: Place, cut: int, table: str, change: Callable[[list[Row]], list[Row]]) -> None:
    """Changes a table's rows in a cut, and all manifests from there on."""
    folder, name = table.split("/")
    path = root / place.cut(cut) / f"{table}-000.parquet"
    rows = change(rows_of(root, place, cut, table))
    pq.write_table(pa.Table.from_pylist(rows, schema.table(folder, name).schema), path)
    data = path.read_bytes()
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "rows": len(rows)}
    previous = ""
    for number in sorted(int(one.name) for one in (root / str(place)).iterdir() if one.is_dir()):
        manifest = root / place.cut(number) / "manifest.json"
        values = json.loads(manifest.read_bytes())
        del values["signature"]
        if previous:
            values["previous"] = previous
        if number == cut:
            values["files"][f"{table}-000.parquet"] |= entry
        manifest.write_bytes(signed_json.signed(values, None))
        previous = hashlib.sha256(manifest.read_bytes()).hexdigest()


def changed(rows: list[Row], at: int, **values: Any) -> list[Row]:
    """The rows, one of them with other values."""
    return [*rows[:at], {**rows[at], **values}, *rows[at + 1 :]]


def swapped(rows: list[Row], one: int, other: int, column: str) -> list[Row]:
    """The rows, two of them with one another's value."""
    values = rows[one][column], rows[other][column]
    return changed(changed(rows, one, **{column: values[1]}), other, **{column: values[0]})
