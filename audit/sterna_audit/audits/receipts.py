"""What clients were handed again after they had acknowledged it, and the broker had taken that."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings
from sterna_audit.audits.history import History
from sterna_audit.audits.ledger_files import RANGE_MAX
from sterna_audit.audits.naming import with_sources

_KEY = ("place", "source", "sequence")


def seen_again(history: History) -> DataFrame:
    """Messages that came unflagged although they had been acknowledged.

    It is one where a ledger has an unflagged receipt behind the acknowledgement, or two ledgers have an unflagged
    receipt each of what one of them has acknowledged: whoever got it second should have been told.
    """
    receipts = history.ledger("received").select(
        *(*_KEY, "message_id", "ledger", "at"),
        F.col("is_redelivered").alias("is_flagged"),
    )
    acknowledged = _named(_acknowledged(history), receipts)
    unflagged = F.when(~F.col("is_flagged"), F.col("at"))
    # Within a ledger the order of its records tells what was first.
    behind = (
        unflagged.isNotNull() & (F.col("ledger") == F.col("acknowledged_by")) & (F.col("at") > F.col("acknowledged_at"))
    )
    again = (
        receipts.join(acknowledged, [*_KEY, "message_id"])
        .groupBy(*_KEY, "message_id")
        .agg(
            F.countDistinct(F.when(unflagged.isNotNull(), F.struct("ledger", "at"))).alias("unflagged"),
            F.max(behind.cast("int")).alias("is_behind"),
        )
        .filter((F.col("unflagged") > 1) | (F.col("is_behind") == 1))
    )
    return findings.select(
        history.placed(with_sources(again, history)),
        verdict="violated",
        severity="critical",
        what="seen-again",
        why="it was acknowledged, the broker took that, and it came again without being flagged as redelivered",
        object=F.col("source_name"),
        message=F.col("message_id"),
        messages=1,
        evidence=["source", "sequence", F.col("unflagged").alias("unflagged_receipts")],
    )


def _named(acknowledged: DataFrame, receipts: DataFrame) -> DataFrame:
    """What was acknowledged, with its message: the last one that this ledger had received by that number before.

    A number alone is not enough. Of messages that are not on the disk a broker that was killed remembers nothing, and
    gives their numbers to others.
    """
    known = receipts.select(*_KEY, "message_id", F.col("ledger").alias("acknowledged_by"), F.col("at").alias("came_at"))
    keys = [*_KEY, "acknowledged_by"]
    return (
        acknowledged.join(known, keys)
        .filter(F.col("came_at") < F.col("acknowledged_at"))
        .groupBy(*keys, "acknowledged_at")
        .agg(F.max_by("message_id", "came_at").alias("message_id"))
    )


def _acknowledged(history: History) -> DataFrame:
    """What was acknowledged for good: source, sequence, by which ledger and where in it."""
    asked = history.ledger("acknowledging").filter(F.col("last") - F.col("first") < RANGE_MAX)
    answers = history.ledger("acknowledged").withColumnRenamed("outcome", "answer")
    keys = ["place", "ledger", "session", "transaction"]
    outcomes = history.ledger("transactions").groupBy(*keys).agg(F.max_by("outcome", "at").alias("outcome"))
    told = asked.join(answers, ["ledger", "number"], "left").join(outcomes, keys, "left")
    taken = F.when(F.col("transaction") == 0, F.col("answer") == "taken").otherwise(F.col("outcome") == "taken")
    return told.filter(taken).select(
        *("place", "source", F.explode(F.sequence("first", "last")).alias("sequence")),
        F.col("ledger").alias("acknowledged_by"),
        F.col("at").alias("acknowledged_at"),
    )
