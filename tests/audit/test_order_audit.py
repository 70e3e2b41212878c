"""The audit of order: what stands twice or in another order is found at the message, and clean histories are clean."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sterna_audit.audits import registry
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.snapshots.stores import Directory

from tests.audit.lives import Life, found
from tests.audit.planted import Row, changed, plant, rows_of, swapped

[ORDER] = registry.audits(["order"])


def faults(findings: list[Finding]) -> list[tuple[str, str, str]]:
    """What is said against a history: verdict, kind, message."""
    return [(one.verdict, one.what, one.message) for one in findings if one.what not in ("gaps", "in-order", "events-missing")]


def test_clean_histories_are_in_order(spark: SparkSession, lives: Life, tmp_path: Path) -> None:
    said = found(open_history(spark, Directory(lives.root), None), ORDER, tmp_path)
    assert faults(said) == []
    assert {one.broker for one in said if one.what == "in-order"} == {one.broker for one in said}
    assert sum(one.messages for one in said if one.what == "in-order") > 500
    gaps = [one for one in said if one.what == "gaps"]
    assert gaps
    assert all(one.verdict == "ok" and one.evidence["missing"] == one.messages for one in gaps)


def id_of(life: Life, row: Row) -> str:
    [start] = [one["start"] for one in rows_of(life.root, life.place, 3, "state/starts") if one["epoch"] == row["producer"] >> 32]
    return f"ID:{life.place.broker}.{row['producer']:X}.{start & (1 << 64) - 1:016X}:{row['sequence']}"


def test_a_number_that_a_producer_s_message_has_twice_is_found(spark: SparkSession, life: Life, tmp_path: Path) -> None:
    one = life.copied(tmp_path / "one")
    rows = rows_of(one.root, one.place, 3, "events/stored")
    at = next(at for at, row in enumerate(rows) if at > 20 and rows[at - 1]["producer"] == row["producer"] != 0 and rows[at - 1]["destination"] == row["destination"])
    # The second message has the first one's number: as if it had been taken twice.
    plant(one.root, one.place, 3, "events/stored", lambda rows: changed(rows, at, sequence=rows[at - 1]["sequence"]))
    said = found(one.history(spark), ORDER, tmp_path / "out")
    assert faults(said) == [("violated", "stored-twice", id_of(one, rows[at - 1]))]
    [fault] = [finding for finding in said if finding.verdict == "violated"]
    assert fault.evidence["position"] == rows[at]["position"]
    assert fault.evidence["other_position"] == rows[at - 1]["position"]
    assert "in-order" not in {finding.what for finding in said}


def test_messages_that_changed_places_are_found(spark: SparkSession, life: Life, tmp_path: Path) -> None:
    one = life.copied(tmp_path / "one")
    rows = rows_of(one.root, one.place, 3, "events/arrivals")
    by_source: dict[int, list[int]] = {}
    for at, row in enumerate(rows):
        by_source.setdefault(row["source"], []).append(at)
    longest = max(by_source.values(), key=len)
    early, late = longest[4], longest[9]
    plant(one.root, one.place, 3, "events/arrivals", lambda rows: swapped(rows, early, late, "sequence"))
    said = found(one.history(spark), ORDER, tmp_path / "out")
    assert {(finding.verdict, finding.what) for finding in said if finding.severity != "info" and finding.what != "events-missing"} == {("violated", "out-of-order")}
    assert {finding.evidence["position"] for finding in said if finding.verdict == "violated"} == {
        rows[early]["position"],
        rows[late]["position"],
    }


@pytest.mark.parametrize("table", ["events/arrivals", "events/moves"])
def test_a_message_that_came_twice_is_found(table: str, spark: SparkSession, life: Life, tmp_path: Path) -> None:
    one = life.copied(tmp_path / "one")
    number = "sequence" if table == "events/arrivals" else "to_sequence"
    rows = rows_of(one.root, one.place, 3, table)
    again = {**rows[-1], number: rows[-1][number] + 1}
    plant(one.root, one.place, 3, table, lambda rows: [*rows, again])
    said = faults(found(one.history(spark), ORDER, tmp_path / "out"))
    assert [fault[:2] for fault in said] == [("violated", "came-twice")]
    assert said[0][2].startswith(f"ID:{one.place.broker}.")
    plant(one.root, one.place, 3, table, lambda rows: changed(rows, len(rows) - 1, **{number: rows[-2][number]}))
    said = faults(found(one.history(spark), ORDER, tmp_path / "out"))
    assert [fault[:2] for fault in said] == [("violated", "number-twice")]


def test_what_a_producer_sent_late_is_not_provable_and_named(spark: SparkSession, life: Life, tmp_path: Path) -> None:
    one = life.copied(tmp_path / "one")
    rows = rows_of(one.root, one.place, 3, "events/stored")
    lanes: dict[tuple[int, int], list[int]] = {}
    for at, row in enumerate(rows):
        if row["producer"]:
            lanes.setdefault((row["producer"], row["destination"]), []).append(at)
    longest = max(lanes.values(), key=len)
    early, late = longest[2], longest[7]
    plant(one.root, one.place, 3, "events/stored", lambda rows: swapped(rows, early, late, "sequence"))
    said = faults(found(one.history(spark), ORDER, tmp_path / "out"))
    assert {fault[:2] for fault in said} == {("not provable", "stored-late")}
    assert {fault[2] for fault in said} == {id_of(one, rows[early]), id_of(one, rows[late])}


def test_a_table_of_producers_that_knows_too_little_or_too_much_is_found(spark: SparkSession, life: Life, tmp_path: Path) -> None:
    one = life.copied(tmp_path / "one")
    stored = {(row["producer"], row["destination"]) for row in rows_of(one.root, one.place, 3, "events/stored")}
    table = rows_of(one.root, one.place, 3, "state/producers")
    at = next(at for at, row in enumerate(table) if (row["producer"], row["destination"]) in stored)
    plant(one.root, one.place, 3, "state/producers", lambda rows: changed(rows, at, sequence=0))
    said = faults(found(one.history(spark), ORDER, tmp_path / "out"))
    assert said == [("violated", "producer-behind", "")]
    other = life.copied(tmp_path / "other")
    row = {**table[at], "sequence": table[at]["sequence"]}
    plant(other.root, other.place, 1, "state/producers", lambda rows: [*rows, row])
    said = faults(found(other.history(spark, 1), ORDER, tmp_path / "out"))
    assert ("not provable", "known-before", "") in said


def test_blocks_of_numbers_are_held_together(spark: SparkSession, life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sterna_audit.audits import lanes

    # Blocks of two numbers: nearly every fault is one between blocks.
    monkeypatch.setattr(lanes, "_BLOCK_BITS", 1)
    assert faults(found(life.history(spark), ORDER, tmp_path / "clean")) == []
    one = life.copied(tmp_path / "one")
    rows = rows_of(one.root, one.place, 3, "events/arrivals")
    last = rows[-1]
    for more in (1, 2):
        again = {**last, "sequence": last["sequence"] + more}
        plant(one.root, one.place, 3, "events/arrivals", lambda rows, again=again: [*rows, again])  # type: ignore[misc]
    said = faults(found(one.history(spark), ORDER, tmp_path / "out"))
    assert [fault[:2] for fault in said] == [("violated", "came-twice")] * 2


def test_one_pass_over_events_and_no_product(spark: SparkSession, life: Life) -> None:
    plan = ORDER.run(life.history(spark))._jdf.queryExecution().toString()
    assert "CartesianProduct" not in plan
    assert "BroadcastNestedLoopJoin" not in plan
