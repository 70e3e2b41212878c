"""The records of the messages that wait: each is there, and says what it said when it was stored."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings
from sterna_audit.audits.history import History, Interval
from sterna_audit.audits.naming import with_messages

_KEY = ("place", "cut", "position")
#: Positions whose messages are looked up together: those where nothing waits any more are passed over.
_RANGE_BITS = 20

_WRONG: dict[str, tuple[findings.Severity, str]] = {
    "record-missing": ("critical", "it waits somewhere, and its record is not in the log any more: it cannot be read"),
    "record-unknown": ("critical", "its record is there, and nothing says that it was ever stored"),
    "record-altered": ("critical", "its record does not say what it said before: sender, number, size or checksum"),
}


def _facts(time: str) -> Column:
    """What a record says of its message, whichever table tells it."""
    return F.xxhash64(
        *("producer", "sequence", "destination", F.col(time), F.col("bytes").cast("long"), "priority", "flags"),
        *("checksum_high", "checksum_low"),
    )


def _rows(table: DataFrame, *, waits: bool = False, now: Column | None = None, then: Column | None = None) -> DataFrame:
    nothing = F.lit(None).cast("long")
    return table.select(
        *_KEY,
        F.lit(waits).alias("waits"),
        (nothing if now is None else now).alias("now"),
        (nothing if then is None else then).alias("then"),
    )


def wrong(history: History, intervals: Sequence[Interval]) -> DataFrame:
    """Messages of which something is wrong: `place`, `cut`, `message`, `copy`, `what`."""
    after = history.after("messages", intervals)
    where = F.shiftright("position", _RANGE_BITS)
    ranges = after.select("place", "cut", where.alias("range")).distinct()
    stored = history.events("stored", intervals).withColumn("range", where)
    stored = stored.join(F.broadcast(ranges), ["place", "cut", "range"], "left_semi")
    told = reduce(
        DataFrame.unionAll,
        (
            _rows(history.after("deliverables", intervals), waits=True),
            _rows(after, now=_facts("arrived_ms")),
            _rows(history.before("messages", intervals), then=_facts("arrived_ms")),
            _rows(stored, then=_facts("time_ms")),
        ),
    )
    found = told.groupBy(*_KEY).agg(
        F.max("waits").alias("waits"),
        F.max("now").alias("now"),
        F.min("then").alias("then"),
        F.max("then").alias("then_too"),
    )
    now, then = F.col("now"), F.col("then")
    what = (
        F.when(F.col("waits") & now.isNull(), "record-missing")
        .when(now.isNotNull() & then.isNull(), "record-unknown")
        .when((now != then) | (now != F.col("then_too")), "record-altered")
    )
    return (
        found.withColumn("what", what)
        .filter(F.col("what").isNotNull())
        .select("place", "cut", F.col("position").alias("message"), F.lit(0).alias("copy"), "what")
    )


def findings_of(rows: DataFrame, history: History) -> DataFrame:
    """What is wrong as findings."""
    named = history.placed(with_messages(rows, history))
    return findings.select(
        named,
        verdict="violated",
        **findings.graded(_WRONG),
        message=F.col("message_id"),
        messages=1,
        evidence=[F.col("message").alias("position")],
    )
