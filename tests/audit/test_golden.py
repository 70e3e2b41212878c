"""Snapshots of each version of the schema, as they were written once: whoever comes later reads them."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from sterna_audit import schema
from sterna_audit.audits import registry, running
from sterna_audit.audits.history import open_history
from sterna_audit.snapshots import chains, reading
from sterna_audit.snapshots.keys import read_verifier
from sterna_audit.snapshots.stores import Directory
from sterna_audit.spark import read_table, row_checksums

from tests.audit.golden.make import CUTS, GOLDEN, make
from tests.audit.story import PLACE
from tests.support.seeds import is_complete

# What wrote it: another Arrow may write other bytes for the same rows.
WRITTEN_BY = "26.0.1"
VERSIONS = sorted(path for path in GOLDEN.iterdir() if path.name.startswith("v"))
#: Each of the others takes some seconds more; `make test-all` has all of them.
AUDITS = registry.names() if is_complete() else ["chain", "conservation", "counters", "ledgers"]


@pytest.mark.parametrize("root", VERSIONS, ids=lambda path: str(path.name))
def test_each_version_is_read_and_found_in_order(root: Path) -> None:
    chain = chains.verify(Directory(root), PLACE, read_verifier([root / "key.pub.pem"]))
    assert chain.findings == []
    assert [one.number for one in chain.snapshots] == [1, 2]


async def test_the_newest_is_what_this_code_writes(tmp_path: Path) -> None:
    assert [path.name for path in VERSIONS][-1] == f"v{schema.VERSION}"
    await make(tmp_path)
    for number in range(1, CUTS + 1):
        old = reading.find(Directory(VERSIONS[-1]), PLACE, number).manifest
        new = reading.find(Directory(tmp_path), PLACE, number).manifest
        assert old is not None
        assert new is not None
        assert {path: (entry.rows, entry.row_checksum) for path, entry in new.files.items()} == {
            path: (entry.rows, entry.row_checksum) for path, entry in old.files.items()
        }
        if pa.__version__ == WRITTEN_BY:
            assert new.sha256 == old.sha256
    second = reading.find(Directory(VERSIONS[-1]), PLACE, 2).manifest
    assert second is not None
    # Nothing is without rows but what only a beginning has: or a reader could lose all of them and nobody would see.
    rows = {path: entry.rows for path, entry in second.files.items()}
    assert sorted(path for path, count in rows.items() if not count) == [
        "events/catalogue-000.parquet",
        "events/epochs-000.parquet",
    ]


@pytest.mark.parametrize("root", VERSIONS, ids=lambda path: str(path.name))
def test_spark_reads_the_same_rows(root: Path, spark: SparkSession) -> None:
    store = Directory(root)
    snapshots = [reading.find(store, PLACE, number) for number in (1, 2)]
    for table in schema.tables():
        frame = read_table(spark, store.uri, snapshots, table.folder, table.name)
        assert [field.name for field in frame.schema] == list(table.names)
        found = row_checksums(frame, table)
        for snapshot in snapshots:
            assert snapshot.manifest is not None
            for path in snapshot.manifest.files_of(table.folder, table.name):
                entry = snapshot.manifest.files[path]
                sums = [one for uri, one in found.items() if uri.endswith(f"{snapshot.path}/{path}")]
                # A file without rows is in no answer.
                expected = [(entry.rows, entry.row_checksum)] if entry.rows else []
                assert [(one.rows, one.total) for one in sums] == expected, path


@pytest.mark.timeout(600)
@pytest.mark.parametrize("root", VERSIONS, ids=lambda path: str(path.name))
def test_every_audit_runs_over_each_version(root: Path, spark: SparkSession, tmp_path: Path) -> None:
    history = open_history(spark, Directory(root), read_verifier([root / "key.pub.pem"]))
    results = running.run(history, registry.audits(AUDITS), Directory(tmp_path)).results
    # What it tells is made up: that it is read to its end is what counts.
    assert {one.name: one.error for one in results} == dict.fromkeys(AUDITS, "")
    assert [one.name for one in results if not one.findings] == []
