"""What came into each queue and subscription, what went, and what there was at both ends: each as runs of sequences.

A flow is a row with `place`, `cut`, `source`, `first`, `last`, `role` and, where one message alone is meant, what it
is: `message` (the position of its record) and `copy`. `reason` and `position` tell of ends. It lies within one `block`
of sequences; where it is a run that cannot be, in none.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits.fates import Fates
from sterna_audit.audits.history import History, Interval

# Roles: what counts for one side of the balance, and what for the other.
STARTED, ARRIVED, MOVED, ENDED, REMAINED = range(5)
# Of what was sent in transactions that are open.
WAS_PENDING, SENT_PENDING, IS_PENDING = range(5, 8)

PLUS = (STARTED, ARRIVED, MOVED)
MINUS = (ENDED, REMAINED)
PENDING_PLUS = (WAS_PENDING, SENT_PENDING)

#: Of `state/deliverables`: sent in a transaction that is open.
_PENDING = 3

#: Sequences of a block.
BLOCK = 4_096
_BLOCK_BITS = BLOCK.bit_length() - 1
#: A record ends at most 4,096 messages; a longer run is none that the engine wrote.
RUN_MAX = 1 << 20

_IDENTITY = ("source", "sequence", "position", "copy")


def flows(history: History, intervals: Sequence[Interval]) -> list[DataFrame]:
    """All flows of intervals whose events are whole, by where they are told: their union has each once."""
    fates = Fates(history, intervals)
    return [
        _started(history, intervals, fates),
        _arrived(history, intervals, fates),
        _moved(history, intervals),
        _ended(history, intervals, fates),
        _taken(history, intervals, fates),
        _remained(history, intervals),
    ]


def _single(rows: DataFrame, role: Column, message: str = "position", **names: str) -> DataFrame:
    """Each row as the flow of one message."""
    sequence = F.col(names.get("sequence", "sequence"))
    return rows.select(
        "place",
        "cut",
        F.col(names.get("source", "source")).alias("source"),
        sequence.alias("first"),
        sequence.alias("last"),
        role.cast("int").alias("role"),
        F.col(message).alias("message"),
        F.col("copy").cast("int").alias("copy"),
        F.lit(0).alias("reason"),
        F.col("position"),
        # As `parted` would say, which costs as much as all else: nearly all flows are of one message.
        F.when(sequence >= 0, F.shiftright(sequence, _BLOCK_BITS)).alias("block"),
    )


def parted(runs: DataFrame) -> DataFrame:
    """Runs, each within one block: they are parted where a block ends. What is no run has no block."""
    first, last = F.col("first"), F.col("last")
    is_run = (first >= 0) & (last >= first) & (last - first < RUN_MAX)
    numbers = F.when(is_run, F.sequence(F.shiftright(first, _BLOCK_BITS), F.shiftright(last, _BLOCK_BITS)))
    rows = runs.withColumn("block", F.explode_outer(numbers))
    return rows.withColumn("first", F.greatest(first, F.col("block") * BLOCK)).withColumn(
        "last", F.least(last, F.col("block") * BLOCK + (BLOCK - 1))
    )


def _run(rows: DataFrame) -> DataFrame:
    """Each row as the end of a run."""
    runs = rows.select(
        "place",
        "cut",
        "source",
        "first",
        "last",
        F.lit(ENDED).alias("role"),
        F.lit(None).cast("long").alias("message"),
        F.lit(None).cast("int").alias("copy"),
        F.col("reason").cast("int").alias("reason"),
        F.col("position"),
    )
    return parted(runs)


def _started(history: History, intervals: Sequence[Interval], fates: Fates) -> DataFrame:
    rows = fates.of(history.before("deliverables", intervals, (*_IDENTITY, "state", "transaction")))
    was_pending = F.col("state") == _PENDING
    role = (
        F.when(~was_pending | (F.col("fate") == "committed"), STARTED)
        .when(F.col("fate") == "open", WAS_PENDING)
        .otherwise(-1)
    )
    return _single(rows, role).filter(F.col("role") >= 0)


def _arrived(history: History, intervals: Sequence[Interval], fates: Fates) -> DataFrame:
    rows = history.events("arrivals", intervals, _IDENTITY)
    joined = rows.join(fates.without_effect, ["place", "cut", "position"], "left")
    role = F.when(F.col("fate").isNull(), ARRIVED).when(F.col("fate") == "open", SENT_PENDING).otherwise(-1)
    return _single(joined, role).filter(F.col("role") >= 0)


def _moved(history: History, intervals: Sequence[Interval]) -> DataFrame:
    rows = history.events("moves", intervals)
    return _single(rows, F.lit(MOVED), "message", source="to_source", sequence="to_sequence")


def _ended(history: History, intervals: Sequence[Interval], fates: Fates) -> DataFrame:
    rows = fates.of(history.events("ends", intervals))
    return _run(rows.filter(F.col("fate").isin("none", "committed")))


def _taken(history: History, intervals: Sequence[Interval], fates: Fates) -> DataFrame:
    """What a transaction that was prepared before takes with it when it is committed; its own records are older.

    A source that was deleted meanwhile went with all that it held.
    """
    rows = history.before("taken", intervals).withColumn("position", F.lit(0).cast("long"))
    there = history.before("sources", intervals).select("place", "cut", "source")
    rows = rows.join(there, ["place", "cut", "source"], "left_semi")
    rows = fates.of(rows).filter(F.col("fate") == "committed")
    return _run(rows.withColumn("reason", F.lit(1)))


def _remained(history: History, intervals: Sequence[Interval]) -> DataFrame:
    role = F.when(F.col("state") == _PENDING, IS_PENDING).otherwise(REMAINED)
    return _single(history.after("deliverables", intervals, (*_IDENTITY, "state")), role)


def deleted(history: History, intervals: Sequence[Interval]) -> DataFrame:
    """Queues and subscriptions that ended, with all that they held: `place`, `cut`, `source`, `deleted_at`."""
    ended = history.events("catalogue", intervals).filter(F.col("what").isin(2, 4))
    found = ended.groupBy("place", "cut", F.col("id").alias("source")).agg(F.max("position").alias("deleted_at"))
    return history.small(found, history.rows("events", "catalogue", intervals))
