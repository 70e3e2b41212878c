"""The history that audits are measured with is one in which they find nothing."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from sterna_audit.audits import registry, running
from sterna_audit.audits.history import open_history
from sterna_audit.snapshots import chains
from sterna_audit.snapshots.stores import Directory

from bench.audit_history import PLACE, History
from tests.support.seeds import is_complete, seed

pytestmark = pytest.mark.timeout(1200)

COUNT = 20_000


async def made(root: Path, hot: float = 0.0) -> History:
    history = History(COUNT, seed=seed(), hot=hot)
    await history.write(Directory(root))
    return history


def rows(root: Path, cut: int, table: str) -> list[dict[str, int]]:
    """Of one table of a cut."""
    files = sorted((root / PLACE.cut(cut)).glob(f"{table}-*.parquet"))
    return list(pa.concat_tables([pq.read_table(file) for file in files]).to_pylist())


@pytest.mark.slow_callbacks(5_000)
@pytest.mark.parametrize("hot", [0.0, 0.9], ids=["even", "one queue has most"])
async def test_what_came_less_what_went_is_there(tmp_path: Path, hot: float) -> None:
    history = await made(tmp_path, hot)
    assert chains.verify(Directory(tmp_path), PLACE, None).findings == []
    # Each of its three parts ends with one message, of fifty deliverables at most.
    assert COUNT <= history.deliverables < COUNT + 3 * 50
    there: Counter[tuple[int, int]] = Counter()
    for cut in (1, 2):
        there.update((row["source"], row["sequence"]) for row in rows(tmp_path, cut, "events/arrivals"))
        there.update((row["to_source"], row["to_sequence"]) for row in rows(tmp_path, cut, "events/moves"))
        for row in rows(tmp_path, cut, "events/ends"):
            there.subtract((row["source"], sequence) for sequence in range(row["first"], row["last"] + 1))
        due = {(row["source"], row["sequence"]) for row in rows(tmp_path, cut, "state/deliverables")}
        assert due == {key for key, count in there.items() if count == 1}
        assert set(there.values()) <= {0, 1}
        positions = {row["position"] for row in rows(tmp_path, cut, "state/deliverables")}
        assert positions <= {row["position"] for row in rows(tmp_path, cut, "state/messages")}
    busiest = Counter(row["source"] for row in rows(tmp_path, 2, "events/arrivals")).most_common(1)[0][1]
    assert (busiest > COUNT * 0.7) == (hot > 0)


@pytest.mark.skipif(not is_complete(), reason="takes minutes, for make test-all")
@pytest.mark.slow_callbacks(5_000)
async def test_audits_find_nothing(spark: SparkSession, tmp_path: Path) -> None:
    await made(tmp_path / "snapshots")
    history = open_history(spark, Directory(tmp_path / "snapshots"), None)
    done = running.run(history, registry.audits(), Directory(tmp_path / "out"))
    verdicts = {result.name: (result.error, result.verdict) for result in done.results}
    unproven = {"chain", "ledgers"}  # nobody signed it, and nobody kept a ledger
    assert verdicts == {name: ("", "not provable" if name in unproven else "ok") for name in registry.names()}
