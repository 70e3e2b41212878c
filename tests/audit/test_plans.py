"""What audits ask of Spark: no product of all with all, large tables once, few bytes a row between machines."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from sterna_audit.audits import balances, flows
from sterna_audit.audits.fanout import FanOut
from sterna_audit.audits.history import History
from sterna_audit.audits.sums import high, low, run_high, run_low

from tests.audit.lives import Life
from tests.audit.sessions import as_for_large

pytestmark = pytest.mark.timeout(600)

#: Of the audit of conservation, which brings only sums together: bytes of a block's row, whatever is in the block.
SHUFFLED_BYTES_A_ROW_MAX = 16
#: The tables that grow with the messages; the others are as many as there are queues, transactions and starts.
LARGE = ("stored", "arrivals", "ends", "moves", "transacted")


@pytest.fixture(autouse=True)
def plans_as_users_have_them(spark: SparkSession) -> Iterator[None]:
    """What the tests' own session spares itself counts here."""
    with as_for_large(spark):
        yield


def plan_of(rows: DataFrame) -> str:
    """The plan as Spark means to run it."""
    frame: Any = rows
    return str(frame._jdf.queryExecution().executedPlan().toString())


def scans(rows: DataFrame) -> Counter[str]:
    """How often each table of events is read."""
    frame: Any = rows
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    found: Counter[str] = Counter()
    for leaf in (leaves.apply(index) for index in range(leaves.size())):
        if leaf.getClass().getSimpleName() == "LogicalRelation":
            files = " ".join(leaf.relation().location().inputFiles())
            found.update(set(re.findall(r"/events/(\w+)-\d+\.parquet", files)))
    return found


def sums(history: History) -> DataFrame:
    """What conservation computes of all rows, before it looks at any one by one."""
    intervals = [one for one in history.intervals if not one.has_gap]
    return balances.sums_of(flows.flows(history, intervals))


def test_no_audit_multiplies_all_with_all_or_reads_large_tables_twice(spark: SparkSession, life: Life) -> None:
    history = life.history(spark)
    intervals = [one for one in history.intervals if not one.has_gap]
    try:
        ways = FanOut(history, intervals)
        conservation = sums(history)
        for rows in (conservation, ways.judged, ways.wrong()):
            plan = plan_of(rows)
            assert "CartesianProduct" not in plan
            assert "BroadcastNestedLoopJoin" not in plan
        # What a sum of all rows is made of is read once; rows one by one are another look, at few of them.
        for rows, tables in ((conservation, {"arrivals", "ends", "moves"}), (ways.sums(), {"stored", "arrivals"})):
            found = scans(rows)
            assert found.keys() >= tables
            assert {name: found[name] for name in LARGE if found[name] > 1} == {}
    finally:
        history.release()


def test_only_sums_go_between_machines(spark: SparkSession, tmp_path: Path) -> None:
    count = 400_000
    rows = spark.range(count).select(
        *(F.lit(0).alias("place"), F.lit(1).cast("long").alias("cut"), (F.col("id") % 20).alias("source")),
        *((F.col("id") / 20).cast("long").alias(name) for name in ("first", "last")),
        *(F.lit(flows.ARRIVED).alias("role"), (F.col("id") * 100).alias("message"), F.lit(0).alias("copy")),
        *(F.lit(0).alias("reason"), (F.col("id") * 100).alias("position")),
    )
    path = str(tmp_path / "rows")
    rows.coalesce(2).write.parquet(path)
    found = balances.sums_of([flows.parted(spark.read.parquet(path))])
    frame: Any = found
    assert found.groupBy().agg(F.sum("count")).collect()[0][0] == count
    found.collect()
    shuffled = _shuffled_bytes(frame)
    assert 0 < shuffled < count * SHUFFLED_BYTES_A_ROW_MAX, shuffled


def _shuffled_bytes(frame: Any) -> int:
    """What the exchanges of a plan that has run wrote."""
    nodes = [frame._jdf.queryExecution().executedPlan()]
    total = 0
    while nodes:
        node = nodes.pop()
        if node.nodeName() == "AdaptiveSparkPlan":
            nodes.append(node.executedPlan())
        if node.nodeName().endswith("QueryStage"):
            nodes.append(node.plan())
        if node.nodeName() == "Exchange":
            total += node.metrics().apply("shuffleBytesWritten").value()
        children = node.children()
        nodes += [children.apply(index) for index in range(children.size())]
    return total


def test_sums_of_ten_million_hashes_do_not_overflow(spark: SparkSession) -> None:
    number = F.col("id")
    rows = spark.range(10_000_000, numPartitions=2)
    hashed = F.xxhash64(number)
    one = rows.agg(
        *(F.sum(half(hashed)).alias(name) for name, half in (("low", low), ("high", high))),
        *(F.sum(run(number, number)).alias(name) for name, run in (("run_low", run_low), ("run_high", run_high))),
    ).collect()[0]
    # Numbers from 0 to 2³² are half of that on average.
    for name in ("low", "high"):
        assert abs(one[name] / 10_000_000 / (1 << 31) - 1) < 0.01
    # One run of all of them counts as each by itself.
    whole = spark.range(1).select(
        run_low(F.lit(0).cast("long"), F.lit(9_999_999).cast("long")).alias("low"),
        run_high(F.lit(0).cast("long"), F.lit(9_999_999).cast("long")).alias("high"),
    )
    assert tuple(whole.collect()[0]) == (one["run_low"], one["run_high"])
