"""Audits over a bucket for which Spark has no connector: Arrow reads on the executors, and finds what Spark finds."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it
from sterna_audit import arrow_source, schema
from sterna_audit import main as command
from sterna_audit.arrow_source import File
from sterna_audit.audits import registry, running
from sterna_audit.audits.history import History, open_history
from sterna_audit.audits.ledger_files import convert
from sterna_audit.audits.tables import ArrowReader, NativeReader
from sterna_audit.snapshots.stores import Bucket, Directory, Store, open_store
from sterna_audit.spark import Executors, SparkError, look
from typer.testing import CliRunner

from tests.audit.kept import PLAIN, VERIFIER
from tests.audit.lives import CUTS
from tests.audit.living import Living, manifests
from tests.audit.planted import altered, planted, rows_of, without
from tests.support.seeds import is_complete

pytestmark = pytest.mark.timeout(600)

#: Each of these reads other tables; `make test-all` has all of them.
AUDITS = () if is_complete() else ("conservation", "drift")


@pytest.fixture(scope="module")
def root(tier_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real history with a ledger, in a folder, and the same with faults."""
    folder = tmp_path_factory.mktemp("s3")
    living = Living(folder / "store", 71)
    living.manifests = manifests()
    snapshots = Directory(folder / "snapshots")
    book = living.write_down()
    for _ in range(CUTS):
        living.live(40)
        living.cut(snapshots, PLAIN)
    living.stop()
    book.keep(folder / "books" / "1.ledger")
    of = Path(snapshots.uri)
    # One that is still there at the last cut, so that it seems to have come from nowhere.
    due = {(row["source"], row["sequence"]) for row in rows_of(of, living.place, (CUTS, "state", "deliverables"))}
    arrivals = rows_of(of, living.place, (CUTS, "events", "arrivals"))
    arrival = next(row for row in arrivals if (row["source"], row["sequence"]) in due)
    stored = rows_of(of, living.place, (CUTS, "events", "stored"))[0]
    configured = rows_of(of, living.place, (CUTS, "state", "configuration"))[0]
    edits = {
        (CUTS, "events", "arrivals"): without(arrival),
        (CUTS, "events", "stored"): altered(stored, checksum_low=(stored["checksum_low"] or 0) ^ 1),
        (CUTS, "state", "configuration"): altered(configured, spec='{"maxMessages":1}'),
    }
    planted(of, living.place, "faulty", edits, CUTS)
    return folder


def copied(source: Path, target: Store, below: str) -> None:
    """Files go into a store."""
    for path in sorted(source.rglob("*")):
        if path.is_file():
            target.put(f"{below}/{path.relative_to(source)}".lstrip("/"), path.read_bytes())


def said(history: History, out: Store) -> dict[str, list[dict[str, Any]]]:
    """What audits say, the same whoever reads."""
    done = running.run(history, registry.audits(AUDITS), out)
    assert {result.name: result.error for result in done.results if result.error} == {}
    return {result.name: [asdict(one) for one in result.findings] for result in done.results}


def test_both_readers_find_the_same(spark: SparkSession, root: Path, bucket: str, tmp_path: Path) -> None:
    there = open_store(bucket)
    copied(root / "snapshots", there, "")
    far = open_history(spark, there, VERIFIER)
    near = open_history(spark, Directory(root / "snapshots"), VERIFIER)
    assert isinstance(far.reader, ArrowReader)
    assert isinstance(near.reader, NativeReader)
    # Ledgers become tables beside the findings, and are read there in the same way.
    out = open_store(bucket.replace("/snapshots", "/out"))
    far.ledgers = convert(Directory(root / "books"), out, "ledgers")
    near.ledgers = convert(Directory(root / "books"), Directory(tmp_path), "ledgers")
    found, expected = said(far, out), said(near, Directory(tmp_path / "out"))
    assert found == expected
    wrong = {(name, one["what"]) for name, of in found.items() for one in of if one["verdict"] == "violated"}
    assert ("conservation", "appeared") in wrong
    # The planted change has no revision of its own.
    assert ("drift", "same-revision") in {(name, one["what"]) for name, of in found.items() for one in of}
    # What was found is there, too: as JSON, and as Parquet files.
    with out.reading(running.JSON) as file:
        assert json.load(file)["verdict"] == "violated"
    assert any(entry.path.startswith("findings/drift/") for entry in out.files(""))


def test_audits_that_begin_to_read_at_the_same_time_ask_spark_one_after_the_other() -> None:
    """Of two that make the source known to a session for the first time Spark may refuse one, as it once did."""
    inside, alone = Barrier(2), list[bool]()

    class Session:
        """Spark, as far as `register` asks it; whoever is in there waits a while for somebody beside."""

        @property
        def dataSource(self) -> Any:  # noqa: N802 - as Spark calls it
            return self

        def register(self, _: type) -> None:
            try:
                inside.wait(0.2)
            except BrokenBarrierError:
                alone.append(True)

    session: Any = Session()
    with ThreadPoolExecutor(2) as threads:
        for one in [threads.submit(arrow_source.register, session) for _ in range(2)]:
            one.result()
    assert alone == [True, True]


def test_rows_are_the_same_column_by_column(spark: SparkSession, root: Path, bucket: str) -> None:
    there = open_store(bucket)
    assert isinstance(there, Bucket)
    copied(root / "snapshots", there, "")
    far = open_history(spark, there, VERIFIER)
    near = open_history(spark, Directory(root / "snapshots"), VERIFIER)
    cuts = [(one.number, cut) for one in far.brokers for cut in one.snapshots]
    for folder, name in (("state", "configuration"), ("state", "deliverables"), ("events", "stored")):
        table = schema.table(folder, name)
        rows = far.read(table.folder, name, cuts)
        assert rows.dtypes == near.read(table.folder, name, cuts).dtypes
        expected = sorted(map(tuple, near.read(table.folder, name, cuts).collect()), key=str)
        assert sorted(map(tuple, rows.collect()), key=str) == expected
        assert len(expected) > 10
    # Of the columns those alone that are asked for.
    some = far.read("events", "stored", cuts, ("bytes", "position"))
    assert some.columns == ["bytes", "position", "place", "cut", "file"]
    assert some.agg({"bytes": "sum"}).collect() == near.read("events", "stored", cuts).agg({"bytes": "sum"}).collect()
    assert far.read("events", "stored", []).count() == 0


def test_large_files_are_read_by_several_tasks_and_what_a_file_lacks_has_no_value(
    spark: SparkSession, root: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = open_store(bucket)
    assert isinstance(there, Bucket)
    copied(root / "snapshots", there, "")
    snapshots = [one for broker in open_history(spark, there, VERIFIER).brokers for one in broker.chain.snapshots]
    snapshot = snapshots[-1]
    assert snapshot.manifest is not None
    name = "state/configuration-000.parquet"
    # Whatever a manifest says of rows, each is read once.
    monkeypatch.setattr(arrow_source, "_TASK_ROWS", 3)
    arrow_source._source.cache_clear()
    columns = T.StructType().add("kind", T.StringType()).add("newer", T.LongType()).add("which", T.IntegerType())
    files = [File(f"{snapshot.path}/{name}", rows, {"which": which}) for which, rows in enumerate((1, 10, 0))]
    rows = arrow_source.read(spark, there, "configuration", files, columns)
    assert rows.rdd.getNumPartitions() == 3
    found = [tuple(row) for row in rows.collect()]
    count = snapshot.manifest.files[name].rows
    assert {which: [row[2] for row in found].count(which) for which in range(3)} == dict.fromkeys(range(3), count)
    assert {row[1] for row in found} == {None}
    assert {row[0] for row in found} == {"Queue", "Topic", "Bridge"}
    arrow_source._source.cache_clear()


def test_what_executors_lack_is_said_before_anything_is_read(
    spark: SparkSession, root: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(root / "snapshots", open_store(bucket), "")
    # Executors of a Python that has nothing installed.
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    found = look(spark)
    assert (found.why, found.has_pyarrow, found.has_selector) == ("", False, False)
    assert "no pyarrow" in str(found)
    assert "no evaluator of selectors" in str(found)
    with pytest.raises(SparkError, match=r"has no connector for s3://, and .* has no pyarrow\. Install"):
        open_history(spark, open_store(bucket), VERIFIER)
    run = ["run", "--snapshots", bucket, "--out", str(tmp_path / "out"), "--unsigned", "--jobs", "chain"]
    result = CliRunner().invoke(command.app, run)
    assert result.exit_code == command.Exit.ERROR
    assert "no pyarrow" in result.output
    assert "Install pyarrow there" in result.output
    # A folder is read without any of it.
    assert isinstance(open_history(spark, Directory(root / "snapshots"), VERIFIER).reader, NativeReader)


def test_the_command_audits_a_bucket_and_leaves_its_report_there(
    spark: SparkSession, root: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(root / "snapshots", open_store(bucket), "")
    out = bucket.replace("/snapshots", "/report")
    run = ["run", "--snapshots", bucket, "--ledgers", str(root / "books"), "--unsigned", "--broker", "broker-71"]
    result = CliRunner().invoke(command.app, [*run, "--out", out, "--jobs", "ledgers"])
    assert result.exit_code == command.Exit.OK, result.output
    written = {entry.path.split("/")[0] for entry in open_store(out).files("")}
    assert written == {"report.html", "findings.json", "findings"}
    # On a cluster nobody would find what executors write on their own disks.
    monkeypatch.setattr(spark.sparkContext, "master", "spark://far:7077")
    result = CliRunner().invoke(command.app, [*run, "--out", out])
    assert result.exit_code == command.Exit.USAGE
    assert "--out: Spark has no connector for s3://" in result.output


def test_executors_that_run_no_python_are_said(
    bucket: str, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Executors(has_pyarrow=False, has_selector=False, why="no such program")
    monkeypatch.setattr(arrow_source, "look", lambda _: gone)
    with pytest.raises(SparkError, match="cannot do without one: no such program"):
        arrow_source.is_needed(open_store(bucket), spark)
