"""The audit `bridges`: each message that a bridge is to copy has exactly one copy of it at each target."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, selectors, sums, telling
from sterna_audit.audits.history import History
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.routes import routes
from sterna_audit.audits.unjudged import MEANINGS as OF_UNJUDGED
from sterna_audit.audits.unjudged import unjudged
from sterna_audit.spark import look

_ROUTE = ("place", "cut", "target")
#: Positions that are summed up together, as for the audit of fan-out.
_BLOCK_BITS = 26
#: More selectors than these are not looked at: a configuration has a few.
_SELECTORS_MAX = 1_000


def bridges(history: History) -> DataFrame:
    """Whether bridges made the copies that they should: for each stored message, at each target, one for each bridge.

    Which bridges there are is taken from the configuration at both cuts of an interval: one that is the same at both,
    in the same revision, is taken to have held in between; one without revisions, as in a broker of no cluster, if
    no configuration was handed to the engine in between. What a message was and which copies it has is in the log.
    Whether a selector accepts a message is judged by the engine's evaluator on the executors, and by Spark's own SQL
    wherever both read the selector alike, so that one bug cannot hide in both.

    Violated, at the message: a copy that is missing (`missing-copy`), more copies than bridges lead there, or one that
    every selector refuses (`surplus-copy`), and evaluators that contradict one another (`evaluators-differ`).

    Not provable, for each bridge that it holds of: a selector that asks for more than priority, time and mode of
    delivery, since snapshots have no properties (`unknown-selector`); no evaluator on the executors (`no-evaluator`),
    or one that cannot read it (`unread-selector`); a bridge that was changed, came or went within the interval
    (`changed-bridge`); no configuration in the snapshots (`no-configuration`); a copy at a target to which no bridge
    leads at either cut (`unexplained-copy`).

    Non-persistent messages and such as nobody wanted are in no record. Whether a copy came into its queue is for the
    audit of conservation to say.
    """
    ways = history.keep(routes(history))
    asked = [row["selector"] for row in ways.select("selector").distinct().limit(_SELECTORS_MAX).collect()]
    known = [one for one in asked if one and selectors.is_known(one)]
    executors = look(history.spark) if known else None
    judged = known if executors is not None and executors.has_selector else []
    ways = history.keep(_classified(ways, judged, known))
    wanted = history.keep(_wanted(history, ways, judged))
    made = _made(history)
    differing = _differing(wanted, made)
    wrong = _wrong(wanted, made, differing)
    parts = [_faults(wrong, ways), _unproven_ways(ways), _without_configuration(history)]
    if judged:
        parts += [_disagreements(wanted), _unread(wanted)]
    told = telling.named(history, parts)
    return reduce(
        DataFrame.unionAll, (findings.frame(history.spark, unjudged(history)), told, _figures(history, ways, wanted))
    )


AUDIT = Audit(
    "bridges",
    "Each message that a bridge is to copy has exactly one copy of it at each target.",
    bridges,
    {
        **OF_UNJUDGED,
        "missing-copy": Meaning(
            "A message should have crossed a bridge, and it has no copy at the target.",
            "Whoever reads the target did not get it: send it there again. Report it with the evidence shown here.",
        ),
        "surplus-copy": Meaning(
            "There are more copies of a message at a target than bridges should have made.",
            "Look whether whoever reads the target acted upon it twice, or should not have had it at all.",
        ),
        "evaluators-differ": Meaning(
            "Two evaluators read a selector differently: one of them is wrong.",
            "Report the selector and the message shown here.",
        ),
        "unknown-selector": Meaning(
            "The selector asks for properties or header fields that snapshots do not have.",
            "It can be proven for selectors over JMSPriority, JMSTimestamp and JMSDeliveryMode alone.",
        ),
        "unread-selector": Meaning(
            "The evaluator on the executors takes this for no selector: the broker's may be of another version.",
            "Install the `sterna-core` of the broker's version on them.",
        ),
        "no-evaluator": Meaning(
            "The executors do not have the engine's evaluator of selectors.", "Install `sterna-core` on them."
        ),
        "changed-bridge": Meaning(
            "The bridge came, went or was changed between the two cuts, and no record says when.",
            "Take a cut before and after such a change.",
        ),
        "no-configuration": Meaning("The snapshots hold no configuration: which bridges there were is not known."),
        "unexplained-copy": Meaning(
            "A copy is where no bridge leads at either cut. There may have been a bridge in between.",
            "Look into the history of the configuration.",
        ),
        "copied": Meaning("What should have crossed the bridges did, once."),
    },
)


def _classified(ways: DataFrame, judged: list[str], known: list[str]) -> DataFrame:
    """Bridges' ways with `doubt`: why it is not known whether a message crosses; null where it is."""
    is_judged = F.col("selector").isin(judged) if judged else F.lit(False)
    is_known = F.col("selector").isin(known) if known else F.lit(False)
    doubt = (
        F.when(~F.col("steady"), "changed-bridge")
        .when((F.col("selector") == "") | is_judged, None)
        .when(is_known, "no-evaluator")
        .otherwise("unknown-selector")
    )
    return ways.withColumn("doubt", doubt)


def _wanted(history: History, ways: DataFrame, judged: list[str]) -> DataFrame:
    """Each stored message and way that leads from where it was sent: `sure` if it has to cross, `unsure` if it may."""
    facts = ("destination", "position", "priority", "time_ms")
    stored = history.events("stored", columns=facts).select(
        "place", "cut", "destination", "position", "priority", "time_ms", F.lit("PERSISTENT").alias("mode")
    )
    rows = stored.join(F.broadcast(ways), ["place", "cut", "destination"])
    is_plain = F.col("selector") == ""
    accepts: Column = is_plain
    differ: Column = F.lit(False)
    unread: Column = F.lit(False)
    if judged:
        asked = F.col("doubt").isNull() & ~is_plain
        evaluate: Any = selectors.by_engine()
        selector = F.when(asked, F.col("selector"))
        rows = rows.withColumn("by_engine", evaluate(selector, F.col("priority").cast("int"), "time_ms", "mode"))
        by_spark = F.when(asked, selectors.by_spark(judged, "selector"))
        accepts = is_plain | F.coalesce("by_engine", F.lit(False))
        unread = asked & F.col("by_engine").isNull()
        differ = by_spark.isNotNull() & ~unread & (by_spark != F.col("by_engine"))
    sure = F.col("doubt").isNull() & accepts
    return rows.select(
        *_ROUTE,
        *("position", "bridge", "selector"),
        sure.cast("int").alias("sure"),
        (F.col("doubt").isNotNull() | unread).cast("int").alias("unsure"),
        unread.alias("unread"),
        differ.alias("differ"),
    )


def _made(history: History) -> DataFrame:
    """The copies that bridges made."""
    copies = history.events("copies").filter("copy > 0")
    return copies.select("place", "cut", F.col("destination").alias("target"), "position")


def _sides(wanted: DataFrame, made: DataFrame) -> DataFrame:
    """What should be there and what is there, as rows of one kind."""
    zero = F.lit(0)
    return wanted.select(*_ROUTE, "position", "sure", "unsure", zero.alias("made")).unionAll(
        made.select(*_ROUTE, "position", zero.alias("sure"), zero.alias("unsure"), F.lit(1).alias("made"))
    )


def _differing(wanted: DataFrame, made: DataFrame) -> DataFrame:
    """The blocks of positions in which something may be wrong, by counts and sums of hashes."""
    sides = _sides(wanted, made)
    sign = F.col("sure") - F.col("made")
    hashed = F.xxhash64("position")
    blocks = sides.groupBy(*_ROUTE, F.shiftright("position", _BLOCK_BITS).alias("block")).agg(
        F.sum(sign).alias("count"),
        F.sum(sums.low(hashed) * sign).alias("low"),
        F.sum(sums.high(hashed) * sign).alias("high"),
        F.sum("unsure").alias("unsure"),
    )
    return blocks.filter("count != 0 OR low != 0 OR high != 0 OR unsure > 0").select(*_ROUTE, "block")


def _wrong(wanted: DataFrame, made: DataFrame, differing: DataFrame) -> DataFrame:
    """The messages of which there are too few copies, or too many."""
    rows = _sides(wanted, made).withColumn("block", F.shiftright("position", _BLOCK_BITS))
    rows = rows.join(F.broadcast(differing), [*_ROUTE, "block"], "left_semi")
    found = rows.groupBy(*_ROUTE, "position").agg(*(F.sum(name).alias(name) for name in ("sure", "unsure", "made")))
    return found.filter((F.col("made") < F.col("sure")) | (F.col("made") > F.col("sure") + F.col("unsure")))


def _faults(wrong: DataFrame, ways: DataFrame) -> DataFrame:
    """Messages with too few or too many copies."""
    # Which bridges lead there, from wherever: few.
    leading = ways.groupBy(*_ROUTE).agg(F.array_sort(F.collect_set("bridge")).alias("bridges"))
    rows = wrong.join(F.broadcast(leading), list(_ROUTE), "left")
    is_missing, is_led = F.col("made") < F.col("sure"), F.col("bridges").isNotNull()
    return rows.select(
        "place",
        "cut",
        F.col("target").alias("source"),
        F.col("position").alias("message"),
        F.lit(0).alias("copy"),
        F.lit(1).alias("messages"),
        *telling.said(
            F.when(is_missing | is_led, "violated").otherwise("not provable"),
            F.when(is_missing | is_led, "critical").otherwise("warning"),
            F.when(is_missing, "missing-copy").when(is_led, "surplus-copy").otherwise("unexplained-copy"),
            F.format_string("%d copies are there, and bridges should have made %d", "made", "sure"),
        ),
        F.array_join("bridges", ", ").alias("bridges"),
        "position",
        F.col("sure").alias("wanted"),
        "made",
    )


def _unproven_ways(ways: DataFrame) -> DataFrame:
    """Bridges of which it cannot be told what should have crossed."""
    rows = ways.filter(F.col("doubt").isNotNull())
    rows = rows.groupBy(*_ROUTE, "bridge", "selector", "doubt").agg(F.count("*").alias("sources"))
    return rows.select(
        "place",
        "cut",
        F.col("target").alias("source"),
        *telling.said(
            "not provable",
            "warning",
            F.col("doubt"),
            F.when(
                F.col("doubt") == "changed-bridge", F.format_string("bridge %s is not the same at both cuts", "bridge")
            ).otherwise(F.format_string("bridge %s has the selector %s", "bridge", "selector")),
        ),
        "bridge",
        "selector",
        "sources",
    )


def _without_configuration(history: History) -> DataFrame:
    """Intervals whose snapshots hold no configuration."""
    pairs: Sequence[tuple[int, int]] = [(one.place, one.cut) for one in history.intervals]
    intervals = history.spark.createDataFrame(pairs, "place int, cut long")
    configured = history.after("configuration").select("place", "cut").distinct()
    return intervals.join(configured, ["place", "cut"], "left_anti").select(
        "place",
        "cut",
        *telling.said(
            "not provable",
            "warning",
            "no-configuration",
            "the snapshot holds no configuration, so that no bridge is known",
        ),
    )


def _disagreements(wanted: DataFrame) -> DataFrame:
    rows = (
        wanted.filter("differ")
        .groupBy(*_ROUTE, "bridge", "selector")
        .agg(F.count("*").alias("messages"), F.min("position").alias("message"))
    )
    return rows.select(
        "place",
        "cut",
        F.col("target").alias("source"),
        "message",
        "messages",
        *telling.said(
            "violated",
            "error",
            "evaluators-differ",
            F.format_string("of the selector %s the engine says one thing, and Spark another", "selector"),
        ),
        "bridge",
        "selector",
    )


def _unread(wanted: DataFrame) -> DataFrame:
    rows = wanted.filter("unread").groupBy(*_ROUTE, "bridge", "selector").agg(F.count("*").alias("messages"))
    return rows.select(
        "place",
        "cut",
        F.col("target").alias("source"),
        "messages",
        *telling.said(
            "not provable",
            "warning",
            "unread-selector",
            F.format_string("the evaluator on the executors cannot read the selector %s", "selector"),
        ),
        "bridge",
        "selector",
    )


def _figures(history: History, ways: DataFrame, wanted: DataFrame) -> DataFrame:
    """Of each broker how many ways were proven, and how many copies were due by them."""
    proven = ways.filter(F.col("doubt").isNull()).groupBy("place").agg(F.countDistinct("bridge").alias("bridges"))
    due = wanted.groupBy("place").agg(F.sum("sure").alias("due"))
    rows = history.places.join(proven, "place", "left").join(due, "place", "left").fillna(0)
    judged = [one.number for one in history.brokers if one.intervals]
    return findings.select(
        rows.filter(F.col("place").isin(judged) if judged else F.lit(False)),
        verdict="ok",
        severity="info",
        what="copied",
        why=F.format_string("%d copies were due by %d bridges, and were looked at one by one", "due", "bridges"),
        messages=F.col("due"),
        evidence=["bridges", "due"],
    )
