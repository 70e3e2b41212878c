"""An audit of one's own: nothing that was stored is larger than the house allows, and urgent messages are few.

It reads what the other audits read, as DataFrames, and says what it finds in the same words.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from sterna_audit.audits import findings, telling
from sterna_audit.audits.history import History
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.unjudged import MEANINGS, unjudged

BYTES_MAX = 64 * 1024
URGENT = 9
URGENT_SHARE_MAX = 0.05


def house_rules(history: History) -> DataFrame:
    """Whether messages keep to the rules of the house.

    Violated, at the message: it has more than 64 KiB (`too-large`). A warning, for each destination: more than a
    twentieth of what was sent there in an interval has the highest priority (`all-urgent`).
    """
    stored = history.events("stored", columns=("position", "destination", "bytes", "priority"))
    large = stored.filter(F.col("bytes") > BYTES_MAX).select(
        "place",
        "cut",
        # Of these three names and ids are looked up.
        F.col("destination").alias("source"),
        F.col("position").alias("message"),
        F.lit(0).alias("copy"),
        F.lit("violated").alias("verdict"),
        F.lit("error").alias("severity"),
        F.lit("too-large").alias("what"),
        F.format_string("it has %d bytes, and %d are allowed", "bytes", F.lit(BYTES_MAX)).alias("why"),
        F.lit(1).alias("messages"),
        # Whatever else there is becomes evidence.
        "bytes",
        "position",
    )
    sent = stored.groupBy("place", "cut", F.col("destination").alias("source")).agg(
        F.count("*").alias("messages"), F.sum((F.col("priority") == URGENT).cast("long")).alias("urgent")
    )
    hasty = sent.filter(F.col("urgent") > F.col("messages") * URGENT_SHARE_MAX).select(
        "place",
        "cut",
        "source",
        F.lit("ok").alias("verdict"),
        F.lit("warning").alias("severity"),
        F.lit("all-urgent").alias("what"),
        F.format_string("%d of %d have the highest priority", "urgent", "messages").alias("why"),
        "messages",
        "urgent",
    )
    # Every audit says something of each broker, also where all is as it should be, and what it could not look at.
    counted = history.places.join(sent.groupBy("place").agg(F.sum("messages").alias("messages")), "place", "left")
    figures = findings.select(
        counted.fillna(0),
        verdict="ok",
        severity="info",
        what="looked-at",
        why=F.format_string("%d stored messages were looked at", "messages"),
    )
    parts = (findings.frame(history.spark, unjudged(history)), telling.named(history, (large, hasty)), figures)
    return reduce(DataFrame.unionAll, parts)


AUDIT = Audit(
    "house-rules",
    "Messages keep to the rules of the house.",
    house_rules,
    {
        **MEANINGS,
        "too-large": Meaning("A message is larger than the house allows.", "Ask its sender to put the body elsewhere."),
        "all-urgent": Meaning("What is always urgent is never urgent.", "Ask the senders for lower priorities."),
        "looked-at": Meaning("So many messages were looked at."),
    },
)
