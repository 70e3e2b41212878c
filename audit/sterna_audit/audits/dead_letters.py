"""The audit `dead-letters`: what could not be delivered, why, from where, and who sent it."""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, reasons, telling
from sterna_audit.audits.history import History
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.unjudged import MEANINGS as OF_UNJUDGED
from sterna_audit.audits.unjudged import unjudged

_CAUSE = ("place", "source", "reason", "origin", "user", "client")


def dead_letters(history: History) -> DataFrame:
    """Dead letters at the last cut by cause, origin and sender, and what went aside in the range.

    A dead letter is a deliverable that was moved for a reason: it expired, came back too often, or had to make room.
    Taken from the state at the last cut (`put-aside`), and from moves whose ends have such a reason (`went-aside`).
    Each group names its oldest message. Nothing is violated: that a letter is dead is what its queue's policy wanted.

    Senders are known as far as the broker's table of producers names them; it forgets those that sent long ago, and has
    no names of such as never gave one. Then the producer's number stands in the message's id.
    """
    parts = [_put_aside(history), _went_aside(history)]
    told = telling.named(history, parts)
    kept = history.keep(told)
    quiet = findings.select(
        history.places.join(kept.select("cluster", "broker").distinct(), ["cluster", "broker"], "left_anti"),
        verdict="ok",
        severity="info",
        what="none",
        why="there are no dead letters, and nothing went aside",
    )
    return reduce(DataFrame.unionAll, (findings.frame(history.spark, unjudged(history)), kept, quiet))


AUDIT = Audit(
    "dead-letters",
    "What could not be delivered, by cause, origin and sender.",
    dead_letters,
    {
        **OF_UNJUDGED,
        "put-aside": Meaning(
            "Messages wait among dead letters. `origin` is where they were sent, `cause` why they were put aside.",
            "Look at the message shown, mend what keeps it from being consumed, and redrive it, or purge it.",
        ),
        "went-aside": Meaning("So many were put aside in the range, whether or not they are still there."),
        "none": Meaning("There are none."),
    },
)


def _put_aside(history: History) -> DataFrame:
    dead = history.newest("deliverables").filter(F.col("reason").isNotNull())
    dead = dead.select("place", "cut", "source", "position", "copy", "reason", "origin", "bytes")
    wanted = history.newest("messages").select("place", "position", "producer", "arrived_ms")
    senders = (
        history.newest("producers")
        .groupBy("place", "producer")
        .agg(F.max("user").alias("user"), F.max("name").alias("client"))
    )
    rows = dead.join(wanted, ["place", "position"], "left").join(senders, ["place", "producer"], "left")
    groups = rows.groupBy(*_CAUSE).agg(
        F.count("*").alias("messages"),
        F.sum("bytes").alias("bytes"),
        F.min(F.struct("position", "copy", "arrived_ms")).alias("oldest"),
        F.max("cut").alias("cut"),
    )
    groups = _with_origin(history, groups)
    sender = F.coalesce("user", "client", F.lit("somebody who is not known any more"))
    cause = reasons.name(F.col("reason"))
    return groups.select(
        *("place", "cut", "source", "messages", "bytes", "user", "client", "origin_name"),
        *telling.said(
            "ok",
            "warning",
            "put-aside",
            F.format_string("%d sent by %s to %s: %s", "messages", sender, F.col("origin_name"), cause),
        ),
        F.col("oldest.position").alias("message"),
        F.col("oldest.copy").cast("int").alias("copy"),
        cause.alias("cause"),
        F.col("oldest.arrived_ms").alias("oldest_arrived_ms"),
    )


def _with_origin(history: History, rows: DataFrame) -> DataFrame:
    """Rows with `origin_name`, the destination that `origin` numbers."""
    destinations = history.newest("destinations").select(
        "place", F.col("id").alias("origin"), F.col("name").alias("origin_name")
    )
    named = rows.join(destinations, ["place", "origin"], "left")
    unnamed = F.concat(F.lit("#"), F.coalesce(F.col("origin").cast("string"), F.lit("?")))
    return named.withColumn("origin_name", F.coalesce("origin_name", unnamed))


def _went_aside(history: History) -> DataFrame:
    moves = history.events("moves").select(
        "place", "cut", "position", F.col("to_source").alias("source"), "from_source"
    )
    causes = (reasons.EXPIRED, reasons.DISCARDED, reasons.MAX_REDELIVERY, reasons.DEAD)
    ends = history.events("ends").filter(F.col("reason").isin(*causes)).select("place", "cut", "position", "reason")
    rows = moves.join(ends.dropDuplicates(["place", "cut", "position"]), ["place", "cut", "position"])
    groups = rows.groupBy("place", "source", "from_source", "reason").agg(F.count("*").alias("messages"))
    groups = _with_origin(history, groups.withColumnRenamed("from_source", "origin"))
    cause = reasons.name(F.col("reason"))
    return groups.select(
        *("place", "source", "messages"),
        *telling.said(
            "ok", "info", "went-aside", F.format_string("%d came from %s: %s", "messages", "origin_name", cause)
        ),
        F.col("origin_name").alias("from"),
        cause.alias("cause"),
    )
