"""The tables of snapshots: sound by themselves, as the document has them, and as the audits' contract wants them."""

import json
import re
from collections import Counter

import pyarrow as pa
import pytest
from sterna_audit import schema
from sterna_audit.describing import described
from sterna_core._core import cut_tables

from tools.fingerprints import ROOT

DOCUMENT = ROOT / "docs" / "audits" / "schema.md"


def test_the_document_has_exactly_these_tables() -> None:
    text = DOCUMENT.read_text()
    for title, section in described().items():
        assert f"{section}\n" in text, f"{title}: python -m sterna_audit.describing prints what belongs into {DOCUMENT}"
    assert re.findall(r"^### `(.+)`", text, re.MULTILINE) == [table.title for table in schema.tables()]
    assert f"Version {schema.VERSION}" in text


def test_tables_are_sound() -> None:
    for table in schema.tables():
        assert max(Counter(table.names).values()) == 1, table.title
        assert schema.table(table.folder, table.name) is table
        assert all(column.about and not column.about.endswith(".") for column in table.columns), table.title
        for column, field in zip(table.columns, table.schema, strict=True):
            assert column.packing == "delta" or field.type != pa.int64() or column.kind == "int64"
            # A reader that lacks the explaining column could not tell.
            assert column.person in (True, False) or column.person in table.names
    assert [len(list(schema.tables(folder))) for folder in schema.FOLDERS] == [12, 15]
    with pytest.raises(KeyError, match="has no table state/ends"):
        schema.table("state", "ends")


def test_brokers_tell_these_tables() -> None:
    """All but what is configured, which the engine does not know."""
    told = {(table["folder"], table["name"]): table["columns"] for table in json.loads(cut_tables())}
    kept = {
        (table.folder, table.name): [[column.name, column.kind, column.is_nullable] for column in table.columns]
        for table in schema.tables()
        if table.name != "configuration"
    }
    assert told == kept


def test_an_event_has_at_most_64_bytes() -> None:
    sizes = {table["name"]: table["row_bytes"] for table in json.loads(cut_tables()) if table["folder"] == "events"}
    assert len(sizes) == 15
    assert max(sizes.values()) <= 64, sizes
