"""What became of transactions within an interval, by the log's own rules.

What was sent or taken in a transaction counts from its commit on, or not at all. One that was never prepared ends with
the epoch in which it was begun, and no record says so: the broker that begins an epoch knows.
"""

from collections.abc import Sequence
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits.history import History, Interval

PREPARED, COMMITTED, ROLLED_BACK = 1, 2, 3
_KEY = ["place", "cut", "transaction"]


class Fates:
    """What became of the transactions of these intervals; what it needs to know of them is read once."""

    def __init__(self, history: History, intervals: Sequence[Interval]) -> None:
        self._history = history
        self._intervals = intervals

    @cached_property
    def _began(self) -> DataFrame:
        """The last epoch that began in each interval: `place`, `cut`, `epoch_began` (a position)."""
        rows = self._history.events("epochs", self._intervals)
        found = rows.groupBy("place", "cut").agg(F.max("position").alias("epoch_began"))
        return self._history.small(found, len(self._intervals))

    @cached_property
    def known(self) -> DataFrame:
        """Each transaction of which an interval says something: `place`, `cut`, `transaction`, `fate`.

        The fate is `committed`, `over` (rolled back, or gone with its epoch) or `open`.
        """
        history, intervals = self._history, self._intervals
        decided = history.events("decisions", intervals).select(*_KEY, "decision", F.lit(0).alias("is_open"))
        before = history.before("transactions", intervals).select(*_KEY, "decision", F.lit(0).alias("is_open"))
        after = history.after("transactions", intervals)
        after = after.select(*_KEY, F.lit(0).cast("byte").alias("decision"), F.lit(1).alias("is_open"))
        found = (
            decided.unionAll(before)
            .unionAll(after)
            .groupBy(*_KEY)
            .agg(F.max("decision").alias("decision"), F.max("is_open").alias("is_open"))
        )
        fate = (
            F.when(F.col("decision") == COMMITTED, "committed")
            .when(F.col("decision") == ROLLED_BACK, "over")
            .when((F.col("is_open") == 1) | (F.col("decision") == PREPARED), "open")
            # It was open at the cut before, and is not any more.
            .otherwise(F.when(F.col("epoch_began").isNotNull(), "over").otherwise("open"))
        )
        told = found.join(self._began, ["place", "cut"], "left").select(*_KEY, fate.alias("fate"))
        rows = history.rows("events", "decisions", intervals) + history.rows("state", "transactions", intervals)
        return history.small(told, 2 * rows)

    def of(self, rows: DataFrame) -> DataFrame:
        """Rows with `place`, `cut`, `position` and `transaction` (missing or 0: none), with the `fate` of that.

        It is `none` where there is no transaction.
        """
        joined = rows.join(self.known, _KEY, "left").join(self._began, ["place", "cut"], "left")
        # Of one that nothing else is known of: an epoch that began later ended it.
        otherwise = F.when(F.col("epoch_began") > F.col("position"), "over").otherwise("open")
        fate = F.when(F.coalesce("transaction", F.lit(0)) == 0, "none").otherwise(F.coalesce("fate", otherwise))
        return joined.withColumn("fate", fate).drop("epoch_began")

    @cached_property
    def without_effect(self) -> DataFrame:
        """Stored messages whose transaction has not taken effect: `place`, `cut`, `position`, `fate` (open or over)."""
        transacted = self.of(self._history.events("transacted", self._intervals))
        found = transacted.filter(F.col("fate").isin("open", "over")).select("place", "cut", "position", "fate")
        return self._history.small(found, self._history.rows("events", "transacted", self._intervals))
