"""The audit `order`: nothing stands twice, and what a producer sent stands in the order in which it numbered it."""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, lanes, telling
from sterna_audit.audits.history import History
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.unjudged import MEANINGS as OF_UNJUDGED
from sterna_audit.audits.unjudged import unjudged

_OF_PRODUCERS = ("place", "producer", "destination")
_OF_SOURCES = ("place", "source")


def order(history: History) -> DataFrame:
    """Whether anything is stored or due twice, and whether it stands in order.

    Two kinds of numbers rise with positions of the log, over all intervals of the range at once: a producer's own for
    its messages to one destination, and those that a queue or subscription gives to what comes into it.

    Violated, at the message: a producer's number that is stored twice (`stored-twice`), a message that came into one
    place twice (`came-twice`), a place's numbers that are given twice (`number-twice`) or not in the order in which it
    came (`out-of-order`), and a table of producers that knows less than was stored, so that a message sent again would
    be taken for new (`producer-behind`).

    Not provable: a message that is stored behind a higher number of its producer (`stored-late`). If it had been
    refused and was sent again, that is in order, and if it was taken in the wrong order it is not: records do not
    say. So with numbers that are not above what the broker knew at the first cut of the range (`known-before`).

    Numbers that are missing prove nothing: non-persistent messages, what nobody wanted, what was refused or passed over
    leaves them (`gaps`, a figure). Whether a confirmed message is among them only a ledger can tell. Messages of
    senders without a producer have no numbers.
    """
    stored = history.keep(lanes.blocks(_stored(history), _OF_PRODUCERS))
    came = history.keep(lanes.blocks(_came(history), _OF_SOURCES))
    told = (
        _of_stored(lanes.wrong(stored, _OF_PRODUCERS)),
        _of_sources(history, lanes.wrong(came, _OF_SOURCES)),
        _against_table(history, stored),
        _gaps(history, stored),
    )
    parts = (
        findings.frame(history.spark, unjudged(history)),
        telling.named(history, told),
        _figures(history, stored, came),
    )
    return reduce(DataFrame.unionAll, parts)


_TAKE = (
    "Take the message's id to its sender and its consumers: was it acted upon twice? It is a fault of the broker:"
    " report it with the evidence shown here."
)
AUDIT = Audit(
    "order",
    "Nothing stands twice, and messages stand in the order in which they were sent.",
    order,
    {
        **OF_UNJUDGED,
        "stored-twice": Meaning("A producer's message was stored twice, so that it is delivered twice.", _TAKE),
        "came-twice": Meaning("One message came into the same queue or subscription twice.", _TAKE),
        "number-twice": Meaning(
            "A queue or subscription gave one number to two messages, which it cannot tell apart.", _TAKE
        ),
        "out-of-order": Meaning(
            "A queue or subscription gave its numbers in another order than messages came in: consumers get them in"
            " that order.",
            "Look whether whoever consumes there relies upon order, and report it with the evidence shown here.",
        ),
        "producer-behind": Meaning(
            "The broker's table of producers knows less than its log: what is sent again may be stored twice.",
            "Report it with the evidence shown here, and look for `stored-twice` after the producer's next break.",
        ),
        "stored-late": Meaning(
            "A message is stored behind one that its producer sent later. That is in order if it had been refused"
            " before, as by a full queue, and was sent again; no record says so.",
            "Compare with the producer's ledger or its own log, whether it was refused.",
        ),
        "known-before": Meaning(
            "A message has a number that is not above what was known of its producer at the first cut. It had been"
            " refused before, or it was stored before: then it is there twice.",
            "Run the audit over a longer range, or compare with the producer's ledger.",
        ),
        "gaps": Meaning(
            "Numbers that producers gave and that are not stored: non-persistent messages, messages that nobody wanted,"
            " and such as were refused or passed over. What was confirmed is not among them if the audit of"
            " ledgers says so."
        ),
        "in-order": Meaning("Nothing stands twice, and all stands in the order in which it came."),
    },
)


def _stored(history: History) -> DataFrame:
    rows = history.events("stored", columns=("producer", "destination", "sequence", "position"))
    rows = rows.filter("producer != 0")
    return rows.select(*_OF_PRODUCERS, F.col("sequence").alias("number"), "position", F.lit(0).alias("copy"), "cut")


def _came(history: History) -> DataFrame:
    arrived = history.events("arrivals", columns=("source", "sequence", "position", "copy")).select(
        *_OF_SOURCES, F.col("sequence").alias("number"), "position", F.col("copy").cast("int"), "cut"
    )
    moved = history.events("moves").select(
        "place",
        F.col("to_source").alias("source"),
        F.col("to_sequence").alias("number"),
        "position",
        F.col("copy").cast("int"),
        "cut",
    )
    return arrived.unionAll(moved)


def _of_stored(rows: DataFrame) -> DataFrame:
    """Faults in what producers sent."""
    is_twice = F.col("what") == lanes.TWICE
    return (
        rows.select(
            "place",
            F.col("destination").alias("source"),
            F.col("position").alias("message"),
            "copy",
            *telling.said(
                F.when(is_twice, "violated").otherwise("not provable"),
                F.when(is_twice, "critical").otherwise("warning"),
                F.when(is_twice, "stored-twice").otherwise("stored-late"),
                F.when(is_twice, F.format_string("number %d of its producer is stored twice", "number")).otherwise(
                    F.format_string("number %d of its producer is stored behind a higher one", "number")
                ),
            ),
            F.lit(1).alias("messages"),
            "cut",
            F.struct(
                "position", F.col("other").alias("other_position"), "producer", F.col("number").alias("sequence")
            ).alias("stored"),
        )
        .select("*", "stored.*")
        .drop("stored")
    )


_OF_CAME = {
    lanes.TWICE: ("critical", "number-twice", "its number there was given twice"),
    lanes.AGAIN: ("critical", "came-twice", "it came there twice, under two numbers"),
    lanes.LATE: ("error", "out-of-order", "its number there is lower than that of what came before it"),
}


def _of_sources(history: History, rows: DataFrame) -> DataFrame:
    """Faults in what came into queues and subscriptions."""
    moves = history.events("moves").select(
        "place", "position", F.col("copy").cast("int").alias("copy"), F.col("message").alias("moved")
    )
    rows = rows.join(moves.dropDuplicates(["place", "position", "copy"]), ["place", "position", "copy"], "left")

    def told(part: int) -> Column:
        return findings.by_kind({number: facts[part] for number, facts in _OF_CAME.items()})

    return rows.select(
        "place",
        "source",
        F.coalesce("moved", "position").alias("message"),
        "copy",
        *telling.said("violated", told(0), told(1), told(2)),
        F.lit(1).alias("messages"),
        "cut",
        F.col("number").alias("sequence"),
        "position",
        F.col("other").alias("other_position"),
    )


def _spans(stored: DataFrame) -> DataFrame:
    """Of each producer and destination how much is stored, and between which numbers."""
    return stored.groupBy(*_OF_PRODUCERS).agg(
        F.sum("count").alias("count"), F.min("least").alias("least"), F.max("most").alias("most")
    )


def _against_table(history: History, stored: DataFrame) -> DataFrame:
    """What is stored against what the broker's own table knew, at both ends of the range."""
    knew = {
        "known": [(one.number, one.first) for one in history.brokers if one.first in one.snapshots and one.intervals],
        "knows": [(one.number, max(one.snapshots)) for one in history.brokers if one.snapshots],
    }
    spans = _spans(stored)
    for name, cuts in knew.items():
        table = history.read("state", "producers", cuts).groupBy(*_OF_PRODUCERS).agg(F.max("sequence").alias(name))
        spans = spans.join(table, list(_OF_PRODUCERS), "left")
    begins = {(one.place, one.cut) for one in history.intervals if one.begins_empty}
    # A range that begins with the log has no cut before it: the first one's table knows what it tells.
    from_nothing = [place for place, _ in begins]
    before = (
        F.when(F.col("place").isin(from_nothing), None).otherwise(F.col("known")) if from_nothing else F.col("known")
    )
    is_behind = F.col("knows") < F.col("most")
    rows = spans.withColumn("known", before).filter(is_behind | (F.col("known") >= F.col("least")))
    why = F.when(
        is_behind, F.format_string("%d is stored, and the table of producers knows %d as the last", "most", "knows")
    ).otherwise(F.format_string("%d is stored, and at the first cut %d was known already", "least", "known"))
    return rows.select(
        "place",
        F.col("destination").alias("source"),
        *telling.said(
            F.when(is_behind, "violated").otherwise("not provable"),
            F.when(is_behind, "error").otherwise("warning"),
            F.when(is_behind, "producer-behind").otherwise("known-before"),
            why,
        ),
        *("producer", "least", "most", "known", "knows"),
    )


#: Of the counters, those that tell of numbers without a record.
_UNLOGGED = ("volatile", "unwanted", "duplicates")


def _gaps(history: History, stored: DataFrame) -> DataFrame:
    """How many numbers are missing, by destination."""
    missing = F.col("most") - F.col("least") + 1 - F.col("count")
    rows = (
        _spans(stored)
        .groupBy("place", F.col("destination").alias("source"))
        .agg(
            F.sum(F.greatest(missing, F.lit(0))).alias("missing"),
            F.sum("count").alias("stored"),
            F.count("*").alias("producers"),
        )
    )
    counted = (
        history.newest("counters")
        .groupBy("place", "source")
        .agg(*(F.max(F.when(F.col("counter") == name, F.col("value"))).alias(f"counted_{name}") for name in _UNLOGGED))
    )
    rows = rows.filter("missing > 0").join(counted, ["place", "source"], "left")
    return rows.select(
        "place",
        "source",
        *telling.said(
            "ok",
            "info",
            "gaps",
            F.format_string("%d numbers of its producers are not stored, between %d that are", "missing", "stored"),
        ),
        F.col("missing").alias("messages"),
        *("missing", "stored", "producers", *(f"counted_{name}" for name in _UNLOGGED)),
    )


def _figures(history: History, stored: DataFrame, came: DataFrame) -> DataFrame:
    """Of each broker in which nothing is wrong by itself, how much was looked at."""
    of_lanes = [
        table.groupBy("place").agg(
            F.sum("count").alias(name), F.max(F.col("is_wrong").cast("int")).alias(f"wrong_{name}")
        )
        for table, name in ((stored, "stored"), (came, "came"))
    ]
    places = history.places.join(of_lanes[0], "place", "left").join(of_lanes[1], "place", "left").fillna(0)
    judged = [one.number for one in history.brokers if one.intervals]
    fine = places.filter(F.col("place").isin(judged) if judged else F.lit(False)).filter(
        "wrong_stored + wrong_came = 0"
    )
    return findings.select(
        fine,
        verdict="ok",
        severity="info",
        what="in-order",
        why=F.format_string("%d were stored and %d came into queues and subscriptions, in order", "stored", "came"),
        messages=F.col("stored"),
        evidence=["stored", "came"],
    )
