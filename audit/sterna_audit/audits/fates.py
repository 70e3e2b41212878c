"""What became of transactions within an interval, by the log's own rules.

What was sent or taken in a transaction counts from its commit on, or not at all. One that was never prepared ends with
the epoch in which it was begun, and no record says so: the broker that begins an epoch knows.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits.history import History, Interval

PREPARED, COMMITTED, ROLLED_BACK = 1, 2, 3

#: Fewer rows than this go to every executor; more are sorted to where they belong.
_EVERYWHERE_ROWS_MAX = 500_000


def fates(history: History, intervals: Sequence[Interval]) -> DataFrame:
    """Each transaction of which an interval says something: `place`, `cut`, `transaction`, `fate`.

    The fate is `committed`, `over` (rolled back, or gone with its epoch) or `open`. Of a transaction that is in none of
    these rows nothing is known but that messages name it: see `fate`.
    """
    key = ["place", "cut", "transaction"]
    decided = history.events("decisions", intervals).select(*key, "decision", F.lit(0).alias("is_open"))
    before = history.before("transactions", intervals).select(*key, F.col("decision"), F.lit(0).alias("is_open"))
    after = history.after("transactions", intervals).select(*key, F.lit(0).alias("decision"), F.lit(1).alias("is_open"))
    known = decided.unionAll(before).unionAll(after)
    found = known.groupBy(*key).agg(F.max("decision").alias("decision"), F.max("is_open").alias("is_open"))
    begun = history.events("epochs", intervals).groupBy("place", "cut").agg(F.max("position").alias("epoch_began"))
    fate = (
        F.when(F.col("decision") == COMMITTED, "committed")
        .when(F.col("decision") == ROLLED_BACK, "over")
        .when((F.col("is_open") == 1) | (F.col("decision") == PREPARED), "open")
        # It was open at the cut before, and is not any more.
        .otherwise(F.when(F.col("epoch_began").isNotNull(), "over").otherwise("open"))
    )
    return found.join(F.broadcast(begun), ["place", "cut"], "left").select(*key, fate.alias("fate"))


def with_fate(rows: DataFrame, history: History, intervals: Sequence[Interval]) -> DataFrame:
    """Rows with `transaction` (missing or 0: none), `place` and `cut`, with their `fate`: `none` without a transaction.

    Args:
        rows: with a column `position` as well.
        history: of which they are.
        intervals: of which they are.
    """
    known = fates(history, intervals)
    if rows_of(history, intervals, "decisions") <= _EVERYWHERE_ROWS_MAX:
        known = F.broadcast(known)
    begun = history.events("epochs", intervals).groupBy("place", "cut").agg(F.max("position").alias("epoch_began"))
    joined = rows.join(known, ["place", "cut", "transaction"], "left").join(
        F.broadcast(begun), ["place", "cut"], "left"
    )
    # Of one that nothing else is known of: an epoch that began later ended it.
    otherwise = F.when(F.col("epoch_began") > F.col("position"), "over").otherwise("open")
    fate = F.when(F.coalesce("transaction", F.lit(0)) == 0, "none").otherwise(F.coalesce("fate", otherwise))
    return joined.withColumn("fate", fate).drop("epoch_began")


def without_effect(history: History, intervals: Sequence[Interval]) -> DataFrame:
    """The stored messages whose transaction has not taken effect: `place`, `cut`, `position`, `fate` (open or over)."""
    transacted = with_fate(history.events("transacted", intervals), history, intervals)
    found = transacted.filter(F.col("fate").isin("open", "over")).select("place", "cut", "position", "fate")
    return F.broadcast(found) if rows_of(history, intervals, "transacted") <= _EVERYWHERE_ROWS_MAX else found


def rows_of(history: History, intervals: Sequence[Interval], name: str) -> int:
    """How many rows a table of events has in these intervals, as manifests say."""
    wanted = {(one.place, one.cut) for one in intervals}
    return sum(
        manifest.files[path].rows
        for broker in history.brokers
        for cut, manifest in broker.snapshots.items()
        if (broker.number, cut) in wanted
        for path in manifest.files_of("events", name)
    )
