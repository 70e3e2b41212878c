"""The audit `fan-out`: what was sent to a queue or topic came into each source that has to have it.

Sums over ranges of the log are compared first (`sums` says why they are in halves); rows are brought together only
where they differ.
"""

from collections.abc import Sequence
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings
from sterna_audit.audits.history import History, Interval
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.naming import destinations, with_messages, with_sources
from sterna_audit.audits.patterns import literal, prefixes, regex
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.sums import high, low
from sterna_audit.audits.unjudged import MEANINGS as OF_UNJUDGED
from sterna_audit.audits.unjudged import unjudged

#: Bytes of the log, as a power of two, whose messages are summed up together: many of each destination, where hundreds
#: share a log.
_RANGE_BITS = 26
_QUEUE, _TOPIC = 1, 2
_SUBSCRIPTION_BEGINS, _SUBSCRIPTION_ENDS = 3, 4
_FOREVER = (1 << 63) - 1
_KEY = ["place", "cut", "source"]
_IDENTITY = ["position", "copy"]

#: Of the kinds of faults what each is.
WRONG = {
    "not-arrived": "it was stored for this queue, and never came into it",
    "not-fanned-out": "it was stored for a topic that this subscription has, and never came into it",
    "stray": "it came into a queue or subscription that it was not sent to",
    "arrived-twice": "it came into the same queue or subscription twice",
}


def fan_out(history: History) -> DataFrame:
    """Whether each stored message came into each queue and durable subscription that has to have it, and into no other.

    Each stored message, and each copy that a bridge made, is sent to one destination: to a queue, which has to have it,
    or to a topic, of which each durable subscription has to have it whose pattern matches the topic's name and which
    was there at the message's position.

    Taken for proof: events of stored messages and copies against arrivals; patterns from the state at both cuts, and
    from which position to which a subscription was there from the catalogue. Violated is a message that never came to
    its queue or subscription (`not-arrived`, `not-fanned-out`), that came where it was not sent (`stray`), or came to
    one place twice (`arrived-twice`).

    Not provable: for subscriptions with a selector, those that leave out what their own client sent, and those that
    were not the same at both cuts or were there at neither (`choosy`); and a message that a topic's subscription lacks,
    where the topic has limits, or the snapshot has no configuration that says so: a subscription that is full is passed
    over, and no record tells of it. Whether bridges made the copies that they should is not told here.
    """
    intervals = [one for one in history.intervals if not one.has_gap]
    parts = [findings.frame(history.spark, unjudged(history))]
    if intervals:
        ways = FanOut(history, intervals)
        wrong = history.keep(ways.wrong())
        parts += [_figures(history, ways.judged, wrong), _choosy(history, ways.choosy())]
        if not wrong.isEmpty():
            parts.append(_findings(wrong, history))
    return reduce(DataFrame.unionAll, parts)


_LOST = (
    "Keep the broker's data folder and its log as they are. It is a fault of the broker: report it with the evidence."
)
AUDIT = Audit(
    "fan-out",
    "What was sent came into each queue and subscription that has to have it, and into no other.",
    fan_out,
    {
        **OF_UNJUDGED,
        "came": Meaning("All that was stored came where it was sent."),
        "choosy": Meaning(
            "Which messages these subscriptions wanted depends on the messages themselves.",
            "Nothing; whether they have what their selectors accept is not told here.",
        ),
        "not-arrived": Meaning("A message was taken in for a queue, and nobody will get it.", _LOST),
        "not-fanned-out": Meaning("A message of a topic did not come into a subscription that has the topic.", _LOST),
        "stray": Meaning("Somebody has a message that was not meant for that queue or subscription.", _LOST),
        "arrived-twice": Meaning("A consumer will get the message twice.", _LOST),
    },
)


class FanOut:
    """What sources are fed, and what they got.

    Args:
        history: of which.
        intervals: whose events are whole.
    """

    def __init__(self, history: History, intervals: Sequence[Interval]) -> None:
        self._history = history
        self._intervals = intervals
        self._definitions = history.keep(self._durables())
        #: What was looked at: of each interval, source and range how many came, and whether that is not what should.
        self.judged = history.keep(self.sums())

    def sums(self) -> DataFrame:
        """Of each interval, source and range how many came, and whether sums say that others should have."""
        feeds = self._known_feeds
        wanted = _summed(self._sent(), ["place", "cut", "destination"]).join(feeds, ["place", "cut", "destination"])
        wanted = wanted.groupBy(*_KEY, "range").agg(*(F.sum(name).alias(name) for name in ("count", "low", "high")))
        got = _summed(self._arrived(), _KEY).join(feeds.select(*_KEY).distinct(), _KEY, "left_semi")
        both = _signed(wanted, 1).unionAll(_signed(got, -1)).groupBy(*_KEY, "range")
        differs = [F.sum(name) != 0 for name in ("count", "low", "high")]
        return both.agg(
            F.sum(F.when(F.col("sign") < 0, -F.col("count")).otherwise(0)).alias("came"),
            (differs[0] | differs[1] | differs[2]).alias("differs"),
        )

    @cached_property
    def _known_feeds(self) -> DataFrame:
        feeds = self._feeds()
        # A subscription of all topics has each of them: how many that are only counting tells.
        kept = self._history.keep(feeds)
        return self._history.counted(kept, kept.count())

    def wrong(self) -> DataFrame:
        """What did not come where it should, and what came where it should not: a row for each."""
        feeds, sent, arrived = self._known_feeds, self._sent(), self._arrived()
        ranges = self.judged.filter("differs").select(*_KEY, "range")
        chosen = self._history.small(ranges, ranges.count())
        # What feeds those ranges first: of a topic each row would be made as often as it has subscriptions.
        feeding = feeds.join(chosen, _KEY)
        feeding = self._history.small(feeding, feeding.count())
        due = sent.join(feeding, ["place", "cut", "destination", "range"])
        due = due.filter((F.col("position") >= F.col("begins")) & (F.col("position") < F.col("ends")))
        came = arrived.join(chosen, [*_KEY, "range"], "left_semi")
        nothing = F.lit(0)
        rows = due.select(*_KEY, *_IDENTITY, "is_queue", "is_limited", F.lit(1).alias("due"), nothing.alias("came"))
        other = came.select(
            *(*_KEY, *_IDENTITY),
            *(F.lit(None).cast("boolean").alias(name) for name in ("is_queue", "is_limited")),
            *(nothing.alias("due"), F.lit(1).alias("came")),
        )
        found = rows.unionAll(other).groupBy(*_KEY, *_IDENTITY)
        told = found.agg(
            *(F.max(name).alias(name) for name in ("is_queue", "is_limited")),
            *(F.sum(name).alias(name) for name in ("due", "came")),
        )
        what = (
            F.when(F.col("came") > 1, "arrived-twice")
            .when(F.col("due") == 0, "stray")
            .when((F.col("came") == 0) & F.col("is_queue"), "not-arrived")
            .when(F.col("came") == 0, "not-fanned-out")
        )
        told = told.withColumn("what", what).filter(F.col("what").isNotNull())
        return told.withColumnRenamed("position", "message")

    def choosy(self) -> DataFrame:
        """How many subscriptions of each interval want only some messages, or were not the same all along."""
        return (
            self._definitions.filter(~F.col("is_exact")).groupBy("place").agg(F.countDistinct("source").alias("count"))
        )

    def _sent(self) -> DataFrame:
        history, intervals = self._history, self._intervals
        stored = history.events("stored", intervals, ("destination", "position")).select(
            "place", "cut", "destination", "position", F.lit(0).alias("copy")
        )
        copies = history.events("copies", intervals).filter("copy > 0")
        told = stored.unionAll(
            copies.select("place", "cut", "destination", "position", F.col("copy").cast("int").alias("copy"))
        )
        return told.withColumn("range", F.shiftright("position", _RANGE_BITS))

    def _arrived(self) -> DataFrame:
        rows = self._history.events("arrivals", self._intervals, ("source", "position", "copy"))
        told = rows.select(*_KEY, "position", F.col("copy").cast("int").alias("copy"))
        return told.withColumn("range", F.shiftright("position", _RANGE_BITS))

    def _durables(self) -> DataFrame:
        """Durable subscriptions: pattern, and from which position to which each was there, where that can be judged."""
        history, intervals = self._history, self._intervals
        columns: list[str | Column] = [
            *("place", "cut"),
            F.col("id").alias("source"),
            "pattern",
            "selector",
            "no_local",
        ]
        before = history.before("subscriptions", intervals).select(*columns, F.lit(True).alias("was_there"))
        after = history.after("subscriptions", intervals).select(*columns, F.lit(False).alias("was_there"))
        told = (
            before.unionAll(after)
            .groupBy(*_KEY)
            .agg(
                F.max("was_there").alias("was_there"),
                F.max("pattern").alias("pattern"),
                F.countDistinct("pattern", "selector", "no_local").alias("definitions"),
                F.max((F.length("selector") > 0) | F.col("no_local")).alias("is_choosy"),
            )
        )
        events = history.events("catalogue", intervals).groupBy("place", "cut", F.col("id").alias("source"))
        changes = events.agg(
            F.min(F.when(F.col("what") == _SUBSCRIPTION_BEGINS, F.col("position"))).alias("began"),
            F.max(F.when(F.col("what") == _SUBSCRIPTION_ENDS, F.col("position"))).alias("ended"),
        )
        begins = F.when(F.col("was_there"), F.lit(0).cast("long")).otherwise(F.col("began"))
        exact = ~F.col("is_choosy") & (F.col("definitions") == 1) & begins.isNotNull()
        return told.join(changes, _KEY, "left").select(
            *(*_KEY, "pattern"),
            begins.alias("begins"),
            F.coalesce("ended", F.lit(_FOREVER)).alias("ends"),
            exact.alias("is_exact"),
        )

    def _feeds(self) -> DataFrame:
        """Which destination feeds which source: `is_queue`, `is_limited`, and from which position to which."""
        known = destinations(self._history, self._intervals).withColumnRenamed("id", "destination")
        queues = known.filter(F.col("kind") == _QUEUE).select(
            *("place", "cut", "destination", F.col("destination").alias("source")),
            *(F.lit(0).cast("long").alias("begins"), F.lit(_FOREVER).alias("ends")),
            *(F.lit(True).alias("is_queue"), F.lit(False).alias("is_limited")),
        )
        topics = self._with_limits(known.filter(F.col("kind") == _TOPIC))
        topics = topics.withColumn("prefix", F.explode(prefixes(F.col("name"))))
        durables = self._definitions.filter("is_exact").withColumn("prefix", literal(F.col("pattern")))
        fed = durables.join(topics, ["place", "cut", "prefix"]).filter(F.rlike(F.col("name"), regex(F.col("pattern"))))
        return queues.unionAll(
            fed.select(
                *("place", "cut", "destination", "source", "begins", "ends"),
                *(F.lit(False).alias("is_queue"), "is_limited"),
            )
        )

    def _with_limits(self, topics: DataFrame) -> DataFrame:
        """Topics with `is_limited`: whether a subscription of theirs may have been full, as far as one knows."""
        history, intervals = self._history, self._intervals
        rows = history.before("configuration", intervals).unionAll(history.after("configuration", intervals))
        limits = [F.get_json_object("spec", f"$.{name}").cast("long") > 0 for name in ("maxMessages", "maxBytes")]
        limited = F.coalesce(limits[0], F.lit(False)) | F.coalesce(limits[1], F.lit(False))
        # A broker by itself knows an object by the name of its manifest, which for a pattern is another.
        name = F.coalesce(F.get_json_object("spec", "$.name"), F.col("name"))
        told = rows.groupBy("place", "cut").agg(
            F.collect_set(F.when((F.col("kind") == "Topic") & limited, regex(name))).alias("limited")
        )
        joined = topics.join(history.small(told, len(intervals)), ["place", "cut"], "left")
        # Without any configuration in the snapshot nothing is known of limits.
        matches = F.exists("limited", lambda regex: F.rlike(F.col("name"), regex))
        return joined.withColumn("is_limited", F.coalesce(matches, F.lit(True))).drop("limited")


def _summed(rows: DataFrame, key: list[str]) -> DataFrame:
    hashed = F.xxhash64(*_IDENTITY)
    return rows.groupBy(*key, "range").agg(
        F.count("*").alias("count"), F.sum(low(hashed)).alias("low"), F.sum(high(hashed)).alias("high")
    )


def _signed(sums: DataFrame, sign: int) -> DataFrame:
    signed = ((F.col(name) * sign).alias(name) for name in ("count", "low", "high"))
    return sums.select(*_KEY, "range", *signed, F.lit(sign).alias("sign"))


def _figures(history: History, judged: DataFrame, wrong: DataFrame) -> DataFrame:
    """Of each interval without a fault how much came."""
    sums = judged.groupBy("place", "cut").agg(F.sum("came").alias("came"), F.countDistinct("source").alias("sources"))
    fine = sums.join(wrong.select("place", "cut").distinct(), ["place", "cut"], "left_anti")
    return findings.select(
        history.placed(fine),
        verdict="ok",
        severity="info",
        what="came",
        why=F.format_string("%d came into %d queues and subscriptions, as they were sent", "came", "sources"),
        messages=F.col("came"),
        evidence=["came", "sources"],
    )


def _choosy(history: History, rows: DataFrame) -> DataFrame:
    return findings.select(
        history.placed(rows),
        verdict="not provable",
        severity="info",
        what="choosy",
        why=F.format_string(
            "%d subscriptions have a selector, leave out what their own client sends, or were not the same all along",
            "count",
        ),
        evidence=[F.col("count").alias("subscriptions")],
    )


def _findings(rows: DataFrame, history: History) -> DataFrame:
    """What is wrong as findings."""
    why = findings.by_kind(WRONG)
    # A topic with limits passes over a subscription that is full, and no record says so.
    excused = (F.col("what") == "not-fanned-out") & F.col("is_limited")
    named = history.placed(with_sources(with_messages(rows, history), history))
    return findings.select(
        named,
        verdict=F.when(excused, "not provable").otherwise("violated"),
        severity=F.when(excused, "warning").otherwise("critical"),
        why=F.when(
            excused, F.concat(why, F.lit("; the topic has limits, or nobody knows, and it may have been full"))
        ).otherwise(why),
        object=F.col("source_name"),
        message=F.col("message_id"),
        messages=1,
        evidence=["source", F.col("message").alias("position"), "copy"],
    )
