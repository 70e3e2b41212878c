"""The audit of chains, and what every run of audits has: ranges, verdicts, what is written, exit status."""

import json
import shutil
from importlib.metadata import EntryPoint
from pathlib import Path
from threading import Barrier, Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from sterna_audit import main as command
from sterna_audit import schema
from sterna_audit.audits import chain, findings, registry, running
from sterna_audit.audits.findings import COLLECTED_MAX, Finding
from sterna_audit.audits.history import Bound, History, HistoryError, Interval, bound, open_history
from sterna_audit.audits.registry import Audit, AuditError
from sterna_audit.snapshots.stores import Directory, StoreError
from typer.testing import CliRunner

from tests.audit.golden.make import GOLDEN
from tests.audit.kept import SIGNER, VERIFIER, Kept
from tests.audit.story import PLACE
from tests.audit.test_verifying import ENDS, flipped, folder, replaced, rewritten

CHAIN = registry.audits(["chain"])
#: Another thread has come as far by then, or it never does.
_PATIENCE_S = 60


def history(spark: SparkSession, kept: Kept, start: int | None = None, end: int | None = None) -> History:
    bounds = [Bound(cut=number) if number else None for number in (start, end)]
    return open_history(spark, kept.store, VERIFIER, start=bounds[0], end=bounds[1])


def told(spark: SparkSession, kept: Kept, out: Path) -> list[tuple[str, str, int]]:
    """What the audit says: verdict, what, cut."""
    done = running.run(history(spark, kept), CHAIN, Directory(out))
    [result] = done.results
    assert result.error == ""
    assert done.verdict == result.verdict
    return [(one.verdict, one.what, one.cut) for one in result.findings]


GAP = ("not provable", "gap", 2)


def test_a_chain_in_order_is_ok_but_for_what_it_says_it_lacks(spark: SparkSession, kept: Kept, tmp_path: Path) -> None:
    kept.cuts(3)
    assert told(spark, kept, tmp_path / "out") == [GAP, ("ok", "verified", 0)]
    values = json.loads((tmp_path / "out" / running.JSON).read_bytes())
    assert values["verdict"] == "not provable"
    assert values["brokers"][0] | {"time_ms": {}} == {
        "cluster": PLACE.cluster,
        "broker": PLACE.broker,
        "first": 1,
        "last": 3,
        "intervals": 3,
        "unproven": [],
        "time_ms": {},
    }
    # From the second cut on its gap is no part of the range.
    done = running.run(history(spark, kept, 2, 3), CHAIN, Directory(tmp_path / "out"))
    assert [(one.verdict, one.what) for one in done.results[0].findings] == [("ok", "verified")]
    assert done.verdict == "ok"


def test_rows_that_are_not_those_of_the_manifest_are_found_in_their_file(
    spark: SparkSession, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.cuts(3)
    path = folder(kept, 2) / ENDS
    rows = pq.read_table(path)
    position = rows.schema.get_field_index("position")
    changed = rows.set_column(position, rows.schema.field(position), pa.array([7, *rows["position"].to_pylist()[1:]]))
    replaced(kept, changed)
    # The manifest is another now, and its successor does not name it.
    assert told(spark, kept, tmp_path) == [("violated", "wrong-rows", 2), ("violated", "broken-chain", 3), GAP]
    # Many rows are read by Spark, and then it is the same.
    with monkeypatch.context() as patch:
        patch.setattr(chain, "HERE_ROWS_MAX", 0)
        assert told(spark, kept, tmp_path) == [("violated", "wrong-rows", 2), ("violated", "broken-chain", 3), GAP]
    flipped(path, 30)
    assert told(spark, kept, tmp_path) == [("violated", "altered-file", 2), ("violated", "broken-chain", 3)]


def test_broken_input_is_a_finding_and_what_it_bounds_is_not_judged(
    spark: SparkSession, kept: Kept, tmp_path: Path
) -> None:
    kept.cuts(3)
    replaced(kept, pa.table({"foreign": [1]}))
    found = history(spark, kept)
    assert [sorted(broker.snapshots) for broker in found.brokers] == [[1, 3]]
    assert found.intervals == [Interval(0, 1, has_gap=False, begins_empty=True)]
    assert [len(broker.unproven) for broker in found.brokers] == [2]
    # What is not judged is not read: neither as events nor as the state at either end.
    assert {row["cut"] for row in found.events("stored").select("cut").distinct().collect()} == {1}
    assert told(spark, kept, tmp_path)[0] == ("violated", "missing-column", 2)
    (folder(kept, 2) / ENDS).unlink()
    assert told(spark, kept, tmp_path)[0] == ("violated", "missing-file", 2)
    shutil.rmtree(folder(kept, 2))
    assert ("violated", "missing-cut", 2) in [(one[0], one[1], 2) for one in told(spark, kept, tmp_path)]


def test_who_signed_matters_and_that_nobody_did_is_said(spark: SparkSession, kept: Kept, tmp_path: Path) -> None:
    kept.cuts(2)
    rewritten(kept, 2, None)
    assert ("violated", "unsigned", 2) in told(spark, kept, tmp_path)
    found = open_history(spark, kept.store, None, start=Bound(cut=1))
    [result] = running.run(found, CHAIN, Directory(tmp_path)).results
    assert ("not provable", "unsigned") in [(one.verdict, one.what) for one in result.findings]
    rewritten(kept, 2, SIGNER)
    assert history(spark, kept).brokers[0].unproven == ()


def test_rows_say_whose_they_are_and_of_which_cut(spark: SparkSession, kept: Kept) -> None:
    kept.cuts(3)
    shutil.copytree(Path(kept.store.uri) / "bank", Path(kept.store.uri) / "bank-2")
    both = open_history(spark, kept.store, None)
    places = {row["place"]: (row["cluster"], row["broker"]) for row in both.places.collect()}
    # What stands where another's should is not read.
    assert both.brokers[1].snapshots == {}
    assert set(places.values()) == {("bank", "broker-0"), ("bank-2", "broker-0")}
    rows = both.events("stored")
    counted = {(row["place"], row["cut"]): row["count"] for row in rows.groupBy("place", "cut").count().collect()}
    for number, manifest in both.brokers[0].snapshots.items():
        assert counted[0, number] == manifest.files["events/stored-000.parquet"].rows
    before = both.before("deliverables").select("cut", "file").distinct().collect()
    assert {tuple(row) for row in before} == {(cut, "state/deliverables-000.parquet") for cut in (2, 3)}
    after = both.after("deliverables").select("cut").distinct().collect()
    assert {row["cut"] for row in after} == {1, 2, 3}


def test_a_bound_is_a_cut_or_a_time_that_each_broker_resolves(spark: SparkSession, kept: Kept) -> None:
    kept.cuts(3)
    assert bound("12") == Bound(cut=12)
    assert bound("2026-11-23T06:00") == bound("2026-11-23T07:00+01:00") == bound("2026-11-23T06:00Z")
    for text in ("0", "yesterday", "-3"):
        with pytest.raises(ValueError, match=r"cut"):
            bound(text)
    times = [one.cut.time_ms for one in history(spark, kept).brokers[0].snapshots.values()]
    found = open_history(
        spark, kept.store, VERIFIER, start=Bound(time_ms=times[1]), end=Bound(time_ms=times[2] - 1)
    ).brokers[0]
    assert (found.first, found.last, found.unproven) == (
        2,
        2,
        ("there is one cut alone, and what happened is between two",),
    )
    # A time before all cuts is no reason to judge them all, and a range that ends before it begins has nothing.
    for start, end in (
        (None, Bound(time_ms=times[0] - 1)),
        (Bound(cut=3), Bound(cut=1)),
        (Bound(cut=3), Bound(time_ms=times[0])),
        (Bound(cut=9), None),
    ):
        with pytest.raises(HistoryError, match="of that range"):
            open_history(spark, kept.store, VERIFIER, start=start, end=end)
    with pytest.raises(HistoryError, match="no snapshots in"):
        open_history(spark, Directory(Path(kept.store.uri) / "nowhere"), VERIFIER)


def test_a_cut_that_is_being_written_is_not_there_yet(spark: SparkSession, kept: Kept, tmp_path: Path) -> None:
    kept.cuts(2)
    (folder(kept, 2) / "manifest.json").unlink()
    found = history(spark, kept)
    assert [(one.first, one.last, one.unproven) for one in found.brokers] == [(1, 1, ())]
    assert told(spark, kept, tmp_path) == [("ok", "verified", 0)]
    # One that has to be there is missed, and where nothing is whole there is nothing to say.
    named = open_history(spark, kept.store, VERIFIER, end=Bound(cut=2))
    assert [one.what for one in named.brokers[0].chain.findings] == ["no-manifest"]
    (folder(kept, 1) / "manifest.json").unlink()
    shutil.rmtree(folder(kept, 2))
    with pytest.raises(HistoryError, match="of that range"):
        history(spark, kept)


def test_many_findings_are_counted_and_kept_and_the_worst_come_to_the_driver(
    spark: SparkSession, kept: Kept, tmp_path: Path
) -> None:
    kept.cuts(1)

    def many(found: History) -> DataFrame:
        rows = found.spark.range(COLLECTED_MAX + 500).withColumn("object", F.col("id").cast("string"))
        bad = F.col("id") == COLLECTED_MAX + 499
        return findings.select(
            rows,
            verdict=F.when(bad, "violated").otherwise("in flight"),
            severity="info",
            what="many",
            why="there are many",
            evidence=[F.col("id"), F.lit(None).cast("int").alias("nothing")],
        )

    done = running.run(history(spark, kept), [Audit("many", "", many)], Directory(tmp_path))
    [result] = done.results
    assert result.counts == {"violated": 1, "not provable": 0, "in flight": COLLECTED_MAX + 499, "ok": 0}
    assert len(result.findings) == COLLECTED_MAX
    expected = Finding(
        "violated", "info", "many", "there are many", object="1499", evidence={"id": COLLECTED_MAX + 499}
    )
    assert result.findings[0] == expected
    assert spark.read.parquet(str(tmp_path / "findings" / "many")).count() == COLLECTED_MAX + 500


def test_an_audit_that_fails_is_no_stack_trace_and_nobody_takes_it_for_a_verdict(
    spark: SparkSession, kept: Kept, tmp_path: Path
) -> None:
    kept.cuts(1)

    def broken(found: History) -> DataFrame:
        return found.spark.range(1).select(F.raise_error(F.lit("it went wrong")).cast("string").alias("what"))

    def silent(found: History) -> DataFrame:
        return findings.frame(found.spark, [])

    audits = [Audit("broken", "", broken), Audit("silent", "", silent)]
    done = running.run(history(spark, kept), audits, Directory(tmp_path))
    assert [(one.name, one.verdict, bool(one.error)) for one in done.results] == [
        ("broken", "not provable", True),
        ("silent", "not provable", False),
    ]
    assert done.has_failed


def test_two_audits_run_at_a_time_and_each_keeps_rows_of_its_own(
    spark: SparkSession, kept: Kept, tmp_path: Path
) -> None:
    kept.cuts(1)
    both, first_has_ended = Barrier(2), Event()
    rows: list[DataFrame] = []

    def first(found: History) -> DataFrame:
        both.wait(_PATIENCE_S)
        found.keep(found.spark.range(1)).count()
        return findings.frame(found.spark, [])

    def second(found: History) -> DataFrame:
        mine = found.keep(found.spark.range(2))
        mine.count()
        rows.append(mine)
        both.wait(_PATIENCE_S)
        assert first_has_ended.wait(_PATIENCE_S)
        assert mine.is_cached
        return findings.frame(found.spark, [])

    def tell(text: str) -> None:
        if text.startswith("first: "):
            first_has_ended.set()

    audits = [Audit("first", "", first), Audit("second", "", second)]
    done = running.run(history(spark, kept), audits, Directory(tmp_path), tell)
    assert [(one.name, one.error) for one in done.results] == [("first", ""), ("second", "")]
    assert not rows[0].is_cached
    assert max(one.seconds for one in done.results) <= done.seconds


def test_where_findings_cannot_be_written_no_further_audit_begins(
    spark: SparkSession, kept: Kept, tmp_path: Path
) -> None:
    kept.cuts(1)
    begun: list[str] = []

    class Full(Directory):
        def remove_folder(self, folder: str) -> None:
            begun.append(folder)
            raise StoreError(f"{folder}: no space left")

    audits = [Audit(f"a{one}", "", lambda found: found.spark.range(1)) for one in range(2 * running.AT_ONCE)]
    with pytest.raises(StoreError, match="no space left"):
        running.run(history(spark, kept), audits, Full(tmp_path))
    assert len(begun) <= running.AT_ONCE


def test_packages_bring_audits_by_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "tests.audit.test_chain_audit"
    theirs = [
        EntryPoint("theirs", f"{module}:THEIRS", registry.GROUP),
        EntryPoint("chain", f"{module}:THEIRS", registry.GROUP),
        EntryPoint("other", f"{module}:THEIRS", registry.GROUP),
        EntryPoint("gone", "nowhere.at.all:AUDIT", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: [one for one in theirs if one.group == group])
    assert registry.audits(["theirs"])[0].name == "theirs"
    # Ours cannot be replaced.
    assert registry.audits(["chain"]) == CHAIN
    for name, why in (("other", "no audit of that name"), ("gone", "cannot be imported"), ("none", "no audit 'none'")):
        with pytest.raises(AuditError, match=why):
            registry.audits([name])
    with pytest.raises(AuditError, match="small letters"):
        Audit("Upper case", "", lambda found: found.places)


THEIRS = Audit("theirs", "a plug-in", lambda found: findings.frame(found.spark, []))


@pytest.mark.usefixtures("spark")
def test_the_command_says_the_verdict_by_its_exit_status(kept: Kept, tmp_path: Path) -> None:
    root = GOLDEN / f"v{schema.VERSION}"
    key = ["--key", str(root / "key.pub.pem")]

    def called(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(command.app, list(arguments))
        assert "Traceback" not in result.output
        return result.exit_code, result.output

    run = ["run", "--out", str(tmp_path / "out"), "--master", "local[2]", "--jobs", "chain", "--snapshots"]
    code, output = called(*run, str(root), *key)
    assert (code, output.splitlines()[-1]) == (command.Exit.OK, "verdict: not provable")
    assert "executors have Python" in output
    assert called(*run, str(root), "--strict", "--quiet", *key) == (command.Exit.WARNING, "verdict: not provable\n")
    kept.cuts(2)
    (folder(kept, 2) / ENDS).unlink()
    code, output = called(*run, kept.store.uri, "--unsigned")
    assert (code, output.splitlines()[-1]) == (command.Exit.VIOLATED, "verdict: violated")
    assert f"missing-file: bank/broker-0 {PLACE.cut(2)}/{ENDS}" in output
    for arguments, wanted, said in (
        ([*run, str(tmp_path / "nowhere"), "--unsigned"], command.Exit.NOT_FOUND, "there are no snapshots in"),
        ([*run, str(root), "--cluster", "other", *key], command.Exit.NOT_FOUND, "there are no snapshots of other"),
        ([*run, str(root)], command.Exit.USAGE, "whose signatures count?"),
        ([*run, str(root), *key, "--unsigned"], command.Exit.USAGE, "contradict"),
        ([*run, str(root), *key, "--from", "soon"], command.Exit.USAGE, "--from: 'soon' is neither"),
        ([*run, str(root), *key, "--from", "2", "--to", "1"], command.Exit.USAGE, "--from is after --to"),
        ([*run, str(root), *key, "--to", "1999-12-31"], command.Exit.NOT_FOUND, "no snapshots of that range"),
        ([*run, str(root), *key, "--conf", "cores=3"], command.Exit.USAGE, "--conf: 'cores=3'"),
        ([*run, str(root), *key, "--jobs", "chains"], command.Exit.USAGE, "there is no audit 'chains'"),
        ([*run, "ftp://there", "--unsigned"], command.Exit.USAGE, "--snapshots: ftp:// is not known"),
    ):
        code, output = called(*arguments)
        assert (code, said in output) == (wanted, True), output
        # What is wrong is known before Spark has been asked for anything.
        assert "executors have Python" not in output
    assert "chain" in called("list")[1]
