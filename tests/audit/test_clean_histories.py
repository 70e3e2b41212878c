"""Fifty histories without a fault, by all audits at once: none raises an alarm. For `make test-all`.

Brokers restart and are killed, exporters end at any change and are begun again, also while the broker is killed. Every
other history is written down by its clients, too.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sterna_audit.audits import registry, running
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import open_history
from sterna_audit.audits.ledger_files import convert
from sterna_audit.snapshots.stores import Directory

from tests.audit.kept import PLAIN, VERIFIER
from tests.audit.living import Living
from tests.support.seeds import is_complete, seed

pytestmark = [
    pytest.mark.timeout(1800),
    # The exporter's loop serves nobody else: it writes and syncs its files there.
    pytest.mark.slow_callbacks(10_000),
    pytest.mark.skipif(not is_complete(), reason="takes minutes, for make test-all"),
]

BATCHES, BATCH = 5, 10
CUTS, STEPS = 4, 60
#: What an audit may leave open without a fault, and why.
DOUBTS = {
    # An engine alone has no configuration.
    "no-configuration",
    "unexplained-copy",
    # A subscription is replaced by one with another selector between two cuts.
    "choosy",
    # Every other history has no ledger.
    "no-ledger",
}


def lived(folder: Path, number: int) -> None:
    """A history is lived through and cut; its snapshots and ledgers are in the folder."""
    living = Living(folder / f"store-{number}", number)
    snapshots = Directory(folder / "snapshots")
    # A ledger tells of what was sent behind a cut.
    living.cut_with_ends(snapshots, PLAIN)
    for cut in range(CUTS):
        book = living.write_down() if number % 2 else None
        living.live(STEPS)
        living.book = None
        if book is not None:
            book.keep(folder / "books" / f"{number}-{cut}.ledger", number * CUTS + cut)
        living.cut_with_ends(snapshots, PLAIN)
    living.stop()


@pytest.mark.usefixtures("tier_spark")
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_audit_raises_an_alarm_over_a_clean_history(batch: int, spark: SparkSession, tmp_path: Path) -> None:
    first = 10_000 + seed() % 1_000 * 100 + batch * BATCH
    for number in range(first, first + BATCH):
        lived(tmp_path, number)
    history = open_history(spark, Directory(tmp_path / "snapshots"), VERIFIER)
    history.ledgers = convert(Directory(tmp_path / "books"), Directory(tmp_path / "out"), "tables")
    results = running.run(history, registry.audits(registry.names()), Directory(tmp_path / "out")).results
    assert [(one.name, one.error) for one in results if one.error] == []
    found: list[tuple[str, Finding]] = [(one.name, finding) for one in results for finding in one.findings]
    assert [one for one in found if one[1].verdict == "violated"] == []
    assert {one.what for _, one in found if one.verdict == "not provable"} <= DOUBTS
    brokers = {f"broker-{number}" for number in range(first, first + BATCH)}
    for name in ("chain", "conservation", "counters", "fan-out", "order", "endings"):
        assert {one.broker for audit, one in found if audit == name and one.verdict == "ok"} >= brokers, name
    assert any(audit == "ledgers" and one.verdict == "ok" for audit, one in found)
