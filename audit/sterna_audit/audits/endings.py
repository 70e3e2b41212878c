"""The audit `endings`: what ended otherwise than by an acknowledgement, and whether its policy allows that."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, reasons, telling
from sterna_audit.audits.history import History
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.unjudged import MEANINGS as OF_UNJUDGED
from sterna_audit.audits.unjudged import unjudged

_KEY = ("place", "cut", "source")
_BLOCK_BITS = 12
#: A longer run is none that a record holds; it is left to the audit of conservation.
_RUN_MAX = 1 << 24


def endings(history: History) -> DataFrame:
    """What ended, by reason, and whether configuration and messages allow it.

    Violated, at the message: it ended as expired, and neither sender nor destination had given it an end of life
    when it arrived (`expired-without-life`), or its record was damaged, so that the broker gave it up (`damaged`). At
    the queue or topic: something was discarded to make room, and its manifest says `rejectIncoming` at both cuts
    (`discarded-against-policy`).

    Whether a life was over when a message expired is not judged: that would be by clocks. What was stored before the
    range and is not in the state at its first cut cannot be looked up; then nothing is said of it. Without
    `state/configuration`, and where a policy is inherited from patterns, discards are a figure.
    """
    ends = history.events("ends")
    counted = history.keep(
        ends.groupBy(*_KEY, "reason", "actor").agg(F.sum(F.col("last") - F.col("first") + 1).alias("count"))
    )
    told = telling.named(
        history, (_sums(counted), _purged(history, counted), _discarded(history, counted), _lifeless(history))
    )
    return reduce(
        DataFrame.unionAll, (findings.frame(history.spark, unjudged(history)), told, _figures(history, counted))
    )


AUDIT = Audit(
    "endings",
    "What expired, was discarded or purged, and whether its policy allows that.",
    endings,
    {
        **OF_UNJUDGED,
        "ended": Meaning("So many ended in the range, by reason."),
        "looked-at": Meaning("All that ended was looked at."),
        "expired-without-life": Meaning(
            "A message ended as expired, and nobody had given it an end of life.",
            "It was not delivered: take its id to its sender. Report it with the evidence shown here.",
        ),
        "damaged": Meaning(
            "The broker could not read a message's record any more, and gave it up.",
            "Look at the broker's disk and its log of that time. Ask the sender to send it again.",
        ),
        "discarded-against-policy": Meaning(
            "Messages were discarded to make room, although the manifest has new ones rejected instead.",
            "Report it with the evidence shown here, and take the figures to the senders.",
        ),
        "discarded": Meaning(
            "Messages were discarded to make room for newer ones.",
            "If that is not what is wanted: raise maxMessages or maxBytes, or set overflowPolicy to rejectIncoming.",
        ),
        "purged": Meaning(
            "Somebody emptied a queue or a subscription; `actor` says who.", "Ask them whether it was meant."
        ),
        "deleted": Meaning(
            "Somebody deleted a topic with what this durable subscription held of it; `actor` says who.",
            "Ask them whether it was meant.",
        ),
    },
)


def _of(reason: int) -> Column:
    return F.sum(F.when(F.col("reason") == reason, F.col("count")).otherwise(0))


def _sums(counted: DataFrame) -> DataFrame:
    """What ended in the range, by source."""
    names = {number: name.replace("-", "_") for number, name in reasons.NAMES.items()}
    sums = counted.groupBy("place", "source").agg(
        F.sum("count").alias("messages"), *(_of(number).alias(name) for number, name in names.items())
    )
    why = F.format_string("%d ended, %d of them by an acknowledgement", "messages", "acknowledged")
    return sums.select("place", "source", "messages", *telling.said("ok", "info", "ended", why), *names.values())


def _purged(history: History, counted: DataFrame) -> DataFrame:
    """What administrators took away, by emptying a source or by deleting the topic it is of."""
    names = history.events("names").groupBy("place", F.col("key").alias("actor")).agg(F.max("text").alias("actor_name"))
    rows = counted.filter(F.col("reason").isin(reasons.PURGED, reasons.DELETED))
    rows = rows.join(names, ["place", "actor"], "left")
    who = F.coalesce("actor_name", F.lit("nobody that is named"))
    is_purged = F.col("reason") == reasons.PURGED
    why = F.when(is_purged, F.format_string("%d were purged by %s", "count", who)).otherwise(
        F.format_string("%d went with their topic, which was deleted by %s", "count", who)
    )
    code = F.when(is_purged, "purged").otherwise("deleted")
    return rows.select(
        *_KEY, F.col("count").alias("messages"), *telling.said("ok", "warning", code, why), who.alias("actor_name")
    )


def _discarded(history: History, counted: DataFrame) -> DataFrame:
    rows = counted.filter(F.col("reason") == reasons.DISCARDED).groupBy(*_KEY).agg(F.sum("count").alias("count"))
    rejects = F.broadcast(_rejects(history))
    rows = rows.join(rejects, list(_KEY), "left")
    is_against = F.coalesce("rejects", F.lit(False))
    return rows.select(
        *_KEY,
        F.col("count").alias("messages"),
        *telling.said(
            F.when(is_against, "violated").otherwise("ok"),
            F.when(is_against, "critical").otherwise("warning"),
            F.when(is_against, "discarded-against-policy").otherwise("discarded"),
            F.when(
                is_against, F.format_string("%d were discarded, and its policy is rejectIncoming", "count")
            ).otherwise(F.format_string("%d were discarded to make room", "count")),
        ),
    )


def _rejects(history: History) -> DataFrame:
    """The destinations of each interval whose own manifests say at both cuts that what is too much is rejected."""
    ids = history.after("destinations").select("place", "cut", F.col("id").alias("source"), "kind", "name")

    def of(rows: DataFrame) -> DataFrame:
        kind = F.when(F.col("kind") == "Queue", 1).when(F.col("kind") == "Topic", 2)
        name = F.coalesce(F.get_json_object("spec", "$.name"), F.col("name"))
        policy = F.get_json_object("spec", "$.overflowPolicy")
        found = rows.select("place", "cut", kind.alias("kind"), name.alias("name"), policy.alias("policy"))
        return found.filter("policy = 'rejectIncoming'").drop("policy").distinct()

    key = ["place", "cut", "kind", "name"]
    at_both = of(history.after("configuration")).join(of(history.before("configuration")), key, "left_semi")
    return ids.join(at_both, key, "left_semi").select(*_KEY, F.lit(True).alias("rejects"))


def _lifeless(history: History) -> DataFrame:
    """Messages that expired although they had no end of life, and such as were given up for damage."""
    bad = history.events("ends").filter(F.col("reason").isin(reasons.EXPIRED, reasons.DAMAGED))
    bad = bad.filter(F.col("last").between(F.col("first"), F.col("first") + _RUN_MAX))
    bad = bad.select(*_KEY, "first", "last", "reason", F.col("position").alias("ended_at"))
    block = F.explode(F.sequence(F.shiftright("first", _BLOCK_BITS), F.shiftright("last", _BLOCK_BITS))).alias("block")
    blocks = bad.select("*", block)
    came = _deliverables(history).withColumn("block", F.shiftright("sequence", _BLOCK_BITS))
    rows = came.join(F.broadcast(blocks), [*_KEY, "block"]).filter(
        F.col("sequence").between(F.col("first"), F.col("last"))
    )
    lives = _lives(history, ("place", "message", "copy"))
    rows = rows.join(lives, ["place", "message", "copy"], "left")
    rows = rows.join(_lives(history, ("place", "message")), ["place", "message"], "left")
    life = F.coalesce("own_life", "life", F.lit(0))
    is_damaged = F.col("reason") == reasons.DAMAGED
    rows = rows.filter(is_damaged | (life == 0))
    return rows.select(
        *_KEY,
        *("message", "copy", "sequence"),
        F.lit(1).alias("messages"),
        *telling.said(
            "violated",
            "critical",
            F.when(is_damaged, "damaged").otherwise("expired-without-life"),
            F.when(is_damaged, "its record could not be read any more, and the broker gave it up").otherwise(
                "it ended as expired, and nobody had given it an end of life"
            ),
        ),
        F.col("ended_at").alias("position"),
    )


def _deliverables(history: History) -> DataFrame:
    """What was in sources in each interval: there at its beginning, arrived, or moved there."""
    before = history.before("deliverables")
    arrived = history.events("arrivals", columns=("source", "sequence", "position", "copy"))
    moved = history.events("moves")
    key = ("place", "cut")
    parts: Sequence[DataFrame] = (
        before.select(*key, "source", "sequence", F.col("position").alias("message"), F.col("copy").cast("int")),
        arrived.select(*key, "source", "sequence", F.col("position").alias("message"), F.col("copy").cast("int")),
        moved.select(
            *key,
            F.col("to_source").alias("source"),
            F.col("to_sequence").alias("sequence"),
            "message",
            F.col("copy").cast("int"),
        ),
    )
    return reduce(DataFrame.unionAll, parts)


def _lives(history: History, key: tuple[str, ...]) -> DataFrame:
    """How long messages live: by record (`life`), or by copy where a destination rules it (`own_life`)."""
    if "copy" in key:
        tables = (history.events("copies"), history.state("copies"))
        rows = [
            one.select("place", F.col("position").alias("message"), F.col("copy").cast("int"), "expiration_ms")
            for one in tables
        ]
        ruled = reduce(DataFrame.unionAll, rows).filter(F.col("expiration_ms").isNotNull())
        return ruled.groupBy(*key).agg(F.max("expiration_ms").alias("own_life"))
    parts = (
        history.events("lives").select("place", F.col("position").alias("message"), "time_to_live_ms"),
        history.state("messages").select("place", F.col("position").alias("message"), "time_to_live_ms"),
    )
    mortal = reduce(DataFrame.unionAll, parts).filter("time_to_live_ms > 0")
    return mortal.groupBy(*key).agg(F.max("time_to_live_ms").alias("life"))


def _figures(history: History, counted: DataFrame) -> DataFrame:
    sums = history.places.join(counted.groupBy("place").agg(F.sum("count").alias("ended")), "place", "left").fillna(0)
    judged = [one.number for one in history.brokers if one.intervals]
    return findings.select(
        sums.filter(F.col("place").isin(judged) if judged else F.lit(False)),
        verdict="ok",
        severity="info",
        what="looked-at",
        why=F.format_string("%d that ended were looked at", "ended"),
        messages=F.col("ended"),
    )
