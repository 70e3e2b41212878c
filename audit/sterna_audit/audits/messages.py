"""The records of the messages that wait: each is there, and says what it said when it was stored."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, sums
from sterna_audit.audits.history import History, Interval
from sterna_audit.audits.naming import with_messages

_KEY = ("place", "cut", "position")
#: Positions whose messages are looked up together: those where nothing waits any more are passed over.
_RANGE_BITS = 20

_WRONG: dict[str, tuple[findings.Severity, str]] = {
    "record-missing": ("critical", "it waits somewhere, and its record is not in the log any more: it cannot be read"),
    "record-unknown": ("critical", "its record is there, and nothing says that it was ever stored"),
    "record-doubled": ("critical", "its record is there twice, or was stored twice at one place of the log"),
    "record-altered": (
        "critical",
        "its record does not say what it said before: sender, number, size, checksum, life or delay",
    ),
    "copies-altered": (
        "critical",
        "its record does not name the copies that it named before, or says otherwise of one",
    ),
}


def _facts(time: str) -> Column:
    """What a record says of its message, whichever table tells it."""
    return F.xxhash64(
        *("producer", "sequence", "destination", F.col(time), F.col("bytes").cast("long"), "priority", "flags"),
        *("checksum_high", "checksum_low"),
    )


def _life() -> Column:
    """How long a message lives and is held back; among events only those say it that do either."""
    return F.xxhash64(F.col("time_to_live_ms").cast("long"), F.col("delay_ms").cast("long"))


def _copy() -> Column:
    """What a record says of one copy of its message."""
    return F.xxhash64("copy", "destination", "producer", "sequence", "expiration_ms")


def _rows(table: DataFrame, *, waits: bool = False, **told: Column) -> DataFrame:
    """Rows of one kind. What a table tells is `now` at the cut after, `then` before: of records, `life` and `copy`."""
    names = ("now", "then", "life_now", "life_then", "copy_now", "copy_then")
    nothing = F.lit(None).cast("long")
    return table.select(*_KEY, F.lit(waits).alias("waits"), *(told.get(name, nothing).alias(name) for name in names))


def _told(history: History, intervals: Sequence[Interval]) -> DataFrame:
    """All that is said of the records of what waits at the cut after."""
    after, before = history.after("messages", intervals), history.before("messages", intervals)
    where = F.shiftright("position", _RANGE_BITS)
    ranges = F.broadcast(after.select("place", "cut", where.alias("range")).distinct())

    def events(name: str) -> DataFrame:
        rows = history.events(name, intervals).withColumn("range", where)
        return rows.join(ranges, ["place", "cut", "range"], "left_semi")

    return reduce(
        DataFrame.unionAll,
        (
            _rows(history.after("deliverables", intervals), waits=True),
            _rows(after, now=_facts("arrived_ms"), life_now=_life()),
            _rows(before, then=_facts("arrived_ms"), life_then=_life()),
            _rows(events("stored"), then=_facts("time_ms")),
            _rows(events("lives"), life_then=_life()),
            _rows(history.after("copies", intervals), copy_now=_copy()),
            _rows(history.before("copies", intervals), copy_then=_copy()),
            _rows(events("copies"), copy_then=_copy()),
        ),
    )


def wrong(history: History, intervals: Sequence[Interval]) -> DataFrame:
    """Messages of which something is wrong: `place`, `cut`, `message`, `copy`, `what`."""

    def of_copies(when: str) -> Column:
        each = F.col(f"copy_{when}")
        halves = (F.coalesce(F.sum(half), F.lit(0)) for half in (sums.low(each), sums.high(each)))
        return F.struct(F.count(each), *halves).alias(f"copies_{when}")

    found = (
        _told(history, intervals)
        .groupBy(*_KEY)
        .agg(
            F.max("waits").alias("waits"),
            F.max("now").alias("now"),
            F.min("then").alias("then"),
            F.max("then").alias("then_too"),
            F.greatest(F.count("now"), F.count("then")).alias("times"),
            F.max("life_now").alias("life_now"),
            F.max("life_then").alias("life_then"),
            *(of_copies(when) for when in ("now", "then")),
        )
    )
    now, then = F.col("now"), F.col("then")
    for_ever = F.xxhash64(F.lit(0).cast("long"), F.lit(0).cast("long"))
    lives_otherwise = F.col("life_now") != F.coalesce("life_then", for_ever)
    what = (
        F.when(F.col("waits") & now.isNull(), "record-missing")
        .when(now.isNotNull() & then.isNull(), "record-unknown")
        .when((now != then) | (now != F.col("then_too")) | lives_otherwise, "record-altered")
        .when(now.isNotNull() & (F.col("times") > 1), "record-doubled")
        .when(now.isNotNull() & (F.col("copies_now") != F.col("copies_then")), "copies-altered")
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
