"""The names of queues and subscriptions, and the ids of messages, for those few rows that become findings."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits.history import SMALL_ROWS_MAX, History, Interval

#: An incarnation is the epoch in which it was given out, and a number within it.
_INCARNATION_BITS = 32
#: Of `events/catalogue`: a destination began.
_BEGINS = 1


def names(history: History) -> DataFrame:
    """Every source and destination that snapshots name: `place`, `source`, `source_name`.

    A subscription is called by its client's id, if it has one, and its name.
    """
    subscription = F.concat_ws("/", F.nullif("client_id", F.lit("")), F.col("name"))
    told = history.events("names").select(
        *("place", "cut", F.col("key").alias("name")),
        F.concat_ws("/", F.nullif("client_id", F.lit("")), F.col("text")).alias("source_name"),
    )
    parts = [
        history.state("destinations").select("place", F.col("id").alias("source"), F.col("name").alias("source_name")),
        history.state("subscriptions").select("place", F.col("id").alias("source"), subscription.alias("source_name")),
        history.events("catalogue")
        .join(told, ["place", "cut", "name"], "inner")
        .select("place", F.col("id").alias("source"), "source_name"),
    ]
    known = reduce(DataFrame.unionAll, parts).groupBy("place", "source").agg(F.max("source_name").alias("source_name"))
    return history.small(
        known,
        history.rows("state", "destinations", history.intervals)
        + history.rows("events", "catalogue", history.intervals)
        + history.rows("state", "subscriptions", history.intervals),
    )


def destinations(history: History, intervals: Sequence[Interval] | None = None) -> DataFrame:
    """Queues and topics of each interval, also those within it alone: `place`, `cut`, `id`, `kind`, `name`."""
    begun = history.events("catalogue", intervals).filter(F.col("what") == _BEGINS)
    texts = history.events("names", intervals).select("place", "cut", F.col("key").alias("name"), "text")
    told = begun.join(texts, ["place", "cut", "name"]).drop("name").withColumnRenamed("text", "name")
    states = [history.before("destinations", intervals), history.after("destinations", intervals)]
    columns: list[str | Column] = ["place", "cut", "id", F.col("kind").cast("int").alias("kind"), "name"]
    return reduce(DataFrame.unionAll, (rows.select(*columns) for rows in (*states, told))).distinct()


def with_sources(rows: DataFrame, history: History) -> DataFrame:
    """Rows with `source_name` for their `source`; its number where no name is known."""
    named = rows.join(names(history), ["place", "source"], "left")
    return named.withColumn("source_name", F.coalesce("source_name", F.concat(F.lit("#"), F.col("source"))))


def with_messages(rows: DataFrame, history: History) -> DataFrame:
    """Rows with `message_id` for `message`, the position of a record, and `copy`; empty where it is not known.

    Mostly they are few, and go to all that read messages; of many each goes where its message is. They are computed
    once, and where none of them has a message, no message is read.
    """
    rows = history.keep(rows)
    count = rows.filter(F.col("message").isNotNull()).count()
    if not count:
        return rows.withColumn("message_id", F.lit(""))
    everywhere = F.broadcast if count <= SMALL_ROWS_MAX else _where_it_belongs
    wanted = everywhere(rows.select("place", "message").distinct())
    facts = ("position", "producer", "sequence")
    of_records = [
        table.select("place", F.col("position").alias("message"), "producer", "sequence")
        for table in (history.events("stored", columns=facts), history.state("messages", facts))
    ]
    of_copies = [
        table.select(
            *("place", F.col("position").alias("message"), F.col("copy").cast("int")),
            *(F.col("producer").alias("own_producer"), F.col("sequence").alias("own_number")),
        )
        for table in (history.events("copies"), history.state("copies"))
    ]
    stored = reduce(DataFrame.unionAll, (one.join(wanted, ["place", "message"]) for one in of_records))
    copied = reduce(DataFrame.unionAll, (one.join(wanted, ["place", "message"]) for one in of_copies))
    stored = stored.groupBy("place", "message").agg(_first("producer"), _first("number", "sequence"))
    copied = copied.groupBy("place", "message", "copy").agg(_first("own_producer"), _first("own_number"))
    found = rows.join(everywhere(stored), ["place", "message"], "left")
    found = found.join(everywhere(copied), ["place", "message", "copy"], "left")
    producer = F.coalesce("own_producer", "producer")
    numbered = F.coalesce("own_number", "number")
    return with_ids(found, history, producer, numbered).drop("own_producer", "own_number", "producer", "number")


def _where_it_belongs(rows: DataFrame) -> DataFrame:
    return rows


def _first(name: str, of: str = "") -> Column:
    return F.min(of or name).alias(name)


def with_ids(rows: DataFrame, history: History, producer: Column, number: Column) -> DataFrame:
    """Rows with `message_id`: broker, incarnation and start id in hexadecimal digits, and the producer's number."""
    starts = (
        history.state("starts").groupBy("place", F.col("epoch").alias("began_in")).agg(F.max("start").alias("start"))
    )
    known = rows.withColumn("began_in", F.shiftright(producer, _INCARNATION_BITS)).join(
        F.broadcast(starts), ["place", "began_in"], "left"
    )
    known = history.placed(known)
    start = F.when(F.col("start").isNotNull(), F.concat(F.lit("."), F.lpad(F.hex("start"), 16, "0")))
    id_ = F.concat(
        F.lit("ID:"), F.col("broker"), F.lit("."), F.hex(producer), F.coalesce(start, F.lit("")), F.lit(":"), number
    )
    return known.withColumn("message_id", F.coalesce(id_, F.lit(""))).drop("began_in", "start", "cluster", "broker")
