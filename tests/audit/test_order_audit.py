"""The audit of order: what stands twice or in another order is found at the message, and clean histories are clean."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sterna_audit.audits import registry
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.lives import CUTS, Life, found
from tests.audit.planted import Edit, Row, Table, added, altered, planted, rows_of
from tests.audit.sessions import as_for_large

pytestmark = pytest.mark.timeout(600)

[ORDER] = registry.audits(["order"])
_FIGURES = ("gaps", "in-order", "events-missing")


def faults(findings: list[Finding]) -> list[Finding]:
    """What is said against a history."""
    return [one for one in findings if one.what not in _FIGURES]


def test_clean_histories_are_in_order(spark: SparkSession, lives: Life, tmp_path: Path) -> None:
    said = found(open_history(spark, Directory(lives.root), None), ORDER, tmp_path)
    assert faults(said) == []
    assert {one.broker for one in said if one.what == "in-order"} == {one.broker for one in said}
    assert sum(one.messages for one in said if one.what == "in-order") > 500
    gaps = [one for one in said if one.what == "gaps"]
    assert gaps
    assert all(one.verdict == "ok" and one.evidence["missing"] == one.messages for one in gaps)


def swapped(one: Row, other: Row, column: str) -> Edit:
    """Two rows have each other's value."""

    def edit(rows: list[Row]) -> list[Row]:
        return altered(one, **{column: other[column]})(altered(other, **{column: one[column]})(rows))

    return edit


def pair(rows: list[Row], *of: str) -> tuple[Row, Row]:
    """Two rows of one lane that do not follow one another."""
    lanes: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        if row.get("producer", 1):
            lanes.setdefault(tuple(row[name] for name in of), []).append(row)
    longest = max(lanes.values(), key=len)
    return longest[1], longest[6]


def test_each_fault_is_found_at_its_rows(spark: SparkSession, life: Life, tmp_path: Path) -> None:
    stored, came = (rows_of(life.root, life.place, (CUTS, "events", name)) for name in ("stored", "arrivals"))
    moved = rows_of(life.root, life.place, (CUTS, "events", "moves"))[-1]
    early, late = pair(stored, "producer", "destination")
    first, then = pair(came, "source")
    edits: dict[str, tuple[dict[Table, Edit], str, str, set[int]]] = {
        "stored-twice": (
            {(CUTS, "events", "stored"): altered(late, sequence=early["sequence"])},
            *("violated", "stored-twice", {late["position"]}),
        ),
        "stored-late": (
            {(CUTS, "events", "stored"): swapped(early, late, "sequence")},
            *("not provable", "stored-late", {late["position"]}),
        ),
        "out-of-order": (
            {(CUTS, "events", "arrivals"): swapped(first, then, "sequence")},
            *("violated", "out-of-order", {then["position"]}),
        ),
        "came-twice": (
            {(CUTS, "events", "arrivals"): added(**{**came[-1], "sequence": came[-1]["sequence"] + 1})},
            *("violated", "came-twice", {came[-1]["position"]}),
        ),
        "moved-twice": (
            {(CUTS, "events", "moves"): added(**{**moved, "to_sequence": moved["to_sequence"] + 1})},
            *("violated", "came-twice", {moved["position"]}),
        ),
    }
    root = tmp_path / "planted"
    (root / life.place.cluster).mkdir(parents=True)
    (root / str(life.place)).symlink_to(life.root / str(life.place))
    for name, (edit, *_) in edits.items():
        planted(root, life.place, name, edit, CUTS)
    places = [Place(life.place.cluster, name) for name in edits]
    said = faults(found(open_history(spark, Directory(root), None, places=places), ORDER, tmp_path / "out"))
    for name, (_, verdict, what, positions) in edits.items():
        wrong = [one for one in said if one.broker == name]
        assert {(one.verdict, one.what) for one in wrong} == {(verdict, what)}, (name, wrong)
        assert positions <= {one.evidence["position"] for one in wrong}, (name, wrong)
        assert all(one.message.startswith(f"ID:{name}.") for one in wrong), (name, wrong)


def test_no_product_of_tables_is_made(spark: SparkSession, life: Life) -> None:
    with as_for_large(spark):
        plan = ORDER.run(life.history(spark))._jdf.queryExecution().toString()
    assert "CartesianProduct" not in plan
    assert "BroadcastNestedLoopJoin" not in plan
