"""Balances of blocks: what hides behind what went with a queue that was deleted."""

import pytest
from pyspark.sql import SparkSession
from sterna_audit.audits import balances, details, flows

pytestmark = pytest.mark.timeout(600)

_FLOWS = (
    "place int, cut bigint, source bigint, first bigint, last bigint, role int, message bigint, copy int, reason int,"
    " position bigint"
)


def flow(source: int, sequence: int, role: int) -> tuple[object, ...]:
    """One message that comes into a source, or the end of one."""
    is_end = role == flows.ENDED
    message = None if is_end else 1_000 + sequence
    return 0, 1, source, sequence, sequence, role, message, None if is_end else 0, int(is_end), 5_000 + sequence


def test_an_end_of_nothing_does_not_hide_in_a_queue_that_was_deleted(spark: SparkSession) -> None:
    came = [flow(source, sequence, flows.ARRIVED) for source in (1, 2) for sequence in (1, 2, 3)]
    # The first took with it what it held; a record ended something in the second that it never had.
    ends = [flow(1, 1, flows.ENDED), flow(2, 9, flows.ENDED)]
    rows = flows.parted(spark.createDataFrame([*came, *ends], _FLOWS))
    gone = spark.createDataFrame(
        [(0, 1, 1, 9_000), (0, 1, 2, 9_000)], "place int, cut bigint, source bigint, deleted_at bigint"
    )
    blocks = balances.balances(balances.sums_of([rows]), gone)
    chosen = blocks.filter("detail").select(*balances.KEY, "block", "deleted_at")
    wrong = details.wrong(rows, chosen).select("source", "sequence", "what").collect()
    assert [tuple(row) for row in wrong] == [(2, 9, "ended-unknown")]
