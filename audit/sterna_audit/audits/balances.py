"""The balance of each source, block by block of its sequences: what came in, less what went, is what there is.

Only counts and sums leave the machine that read the rows (`sums`); the rows of a block are looked at one by one where
its sums differ, or where some of a block ended and some stayed, so that its sums cannot tell whether what stayed is
what came.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits.flows import (
    ARRIVED,
    ENDED,
    IS_PENDING,
    MINUS,
    MOVED,
    PENDING_PLUS,
    PLUS,
    REMAINED,
    STARTED,
)
from sterna_audit.audits.sums import high, low, run_high, run_low

KEY = ("place", "cut", "source")


def sums_of(flows: Sequence[DataFrame]) -> DataFrame:
    """Of each block and role how many, and the sums; with the highest sequence. A block may have several such rows.

    Args:
        flows: each within one block, as `flows.flows` has them. Those of one table are summed up before they come
            together with others: so its rows are never made, but counted as they are read.
    """
    return reduce(DataFrame.unionAll, (_summed(rows) for rows in flows))


def _summed(rows: DataFrame) -> DataFrame:
    first, last = F.col("first"), F.col("last")
    # What a message is, where a flow says so.
    identity = F.when(F.col("message").isNotNull(), F.xxhash64("first", "message", "copy")).otherwise(F.lit(0))
    return rows.groupBy(*KEY, "block", "role").agg(
        F.sum(last - first + 1).alias("count"),
        F.sum(run_low(first, last)).alias("low"),
        F.sum(run_high(first, last)).alias("high"),
        F.sum(low(identity)).alias("identity_low"),
        F.sum(high(identity)).alias("identity_high"),
        F.max("last").alias("highest"),
    )


def _signed(column: str, plus: tuple[int, ...], minus: tuple[int, ...]) -> Column:
    sign = F.when(F.col("role").isin(*plus), 1).when(F.col("role").isin(*minus), -1).otherwise(0)
    return F.sum(sign * F.col(column))


def _count(*roles: int) -> Column:
    return F.sum(F.when(F.col("role").isin(*roles), F.col("count")).otherwise(0))


def balances(sums: DataFrame, deleted: DataFrame) -> DataFrame:
    """Of each block what came and went, and `detail`: whether its rows have to be looked at one by one.

    Args:
        sums: of `sums_of`.
        deleted: sources that ended, as `flows.deleted` tells.
    """
    blocks = sums.groupBy(*KEY, "block").agg(
        *(_signed(name, PLUS, MINUS).alias(name) for name in ("count", "low", "high")),
        *(_signed(name, PENDING_PLUS, (IS_PENDING,)).alias(f"pending_{name}") for name in ("count", "low", "high")),
        *(_signed(name, PLUS, (REMAINED,)).alias(name) for name in ("identity_low", "identity_high")),
        _count(STARTED).alias("started"),
        _count(ARRIVED, MOVED).alias("came"),
        _count(ENDED).alias("ended"),
        _count(REMAINED).alias("remained"),
        _count(IS_PENDING).alias("pending"),
        F.max("highest").alias("highest"),
    )
    gone = F.col("deleted_at").isNotNull()
    differs = (F.col("count") != 0) | (F.col("low") != 0) | (F.col("high") != 0)
    pending = (F.col("pending_count") != 0) | (F.col("pending_low") != 0) | (F.col("pending_high") != 0)
    altered = (F.col("identity_low") != 0) | (F.col("identity_high") != 0)
    detail = (
        # What is left over went with it; that more ended than came may hide behind that.
        F.when(gone, (F.col("remained") > 0) | (F.col("pending") > 0) | ((F.col("ended") > 0) & differs))
        .when(differs | pending, True)
        .when(F.col("ended") == 0, altered)
        .otherwise(F.col("remained") > 0)
    )
    detail = detail & F.col("block").isNotNull()
    return blocks.join(deleted, list(KEY), "left").withColumn("detail", detail)
