"""The audit `backlog`: what waits where and for how long, and who does not read it."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, reasons, telling
from sterna_audit.audits.history import History
from sterna_audit.audits.meanings import Meaning
from sterna_audit.audits.registry import Audit
from sterna_audit.audits.unjudged import MEANINGS as OF_UNJUDGED
from sterna_audit.audits.unjudged import unjudged

_KEY = ("place", "cut", "source")
_IN_FLIGHT, _DELAYED = 2, 1
#: A message that was delivered so often is one that consumers cannot deal with.
OFTEN = 5
#: A backlog that has grown in so many intervals, the last among them, has consumers that are too slow.
GREW_IN = 2


def backlog(history: History) -> DataFrame:
    """What waits at the last cut, how old the oldest is, and who does not read, or does not acknowledge.

    Nothing here is violated: no rule says how long a message may wait. What somebody should look at is a warning,
    judged by positions and cuts, while times and ages are shown.

    - `unread`: a queue or subscription holds messages and, in the last interval, nothing of it was acknowledged and its
      watermark was not raised, so that nothing can have been delivered for the first time. A subscription says so as
      `durable-unread`. `since_cut` is the cut from which on that is so, within the range.
    - `unacknowledged`: its watermark was raised, or messages are in flight, and nothing was acknowledged.
    - `growing`: it held more at each of the last cuts than at the one before, although something was acknowledged.
    - `held-long`: messages that were in flight at both ends of the last interval: somebody has them, and has not
      acknowledged them. It may be that they came back and were delivered again.
    - `comes-back`: messages that were delivered five times or more.

    Deliveries are in no record: that a message was delivered and came back between two cuts can be seen by its count of
    attempts alone, which may restart with the broker.
    """
    at_cuts = history.keep(_at_cuts(history))
    moved = history.keep(_progress(history))
    last = [(one.number, max(one.snapshots)) for one in history.brokers if one.snapshots]
    now = at_cuts.filter(_is_any(last, "place", "cut")) if last else at_cuts.limit(0)
    parts = [
        _waiting(history, now),
        _comes_back(now),
        _unread(history, now, moved),
        _growing(at_cuts, moved, now),
        _held(history),
    ]
    of_nobody = history.places.join(now.select("place").distinct(), "place", "left_anti")
    nothing = findings.select(
        of_nobody, verdict="ok", severity="info", what="nothing-waits", why="nothing waits at the last cut"
    )
    told = telling.named(history, parts)
    return reduce(DataFrame.unionAll, (findings.frame(history.spark, unjudged(history)), told, nothing))


_LOOK = (
    "Look whether its consumers run, are connected, and have permission; see its consumers by `sterna` or the console."
)
AUDIT = Audit(
    "backlog",
    "What waits and for how long; who does not read, or does not acknowledge.",
    backlog,
    {
        **OF_UNJUDGED,
        "waiting": Meaning("So many messages waited at the last cut. Age is shown by the broker's clock."),
        "nothing-waits": Meaning("Nothing waits."),
        "unread": Meaning("Messages wait, and nobody reads them.", _LOOK),
        "durable-unread": Meaning(
            "A durable subscription keeps messages that nobody reads. It grows for as long as its topic is used.",
            "Start its consumer again, or delete the subscription if nobody needs it any more.",
        ),
        "unacknowledged": Meaning(
            "Messages are delivered, and none is acknowledged: consumers hang, fail again and again, or forget to.",
            "Look into the consumers' own logs.",
        ),
        "growing": Meaning(
            "More comes than is acknowledged, cut after cut.", "Add consumers, or find out what slows them down."
        ),
        "held-long": Meaning(
            "Consumers hold messages from one cut to the next without acknowledging them.",
            "Look whether that takes so long by intention; a lower prefetch leaves more to others.",
        ),
        "comes-back": Meaning(
            "Messages are delivered again and again, and never acknowledged.",
            "Look at the message shown: consumers fail with it. maxRedelivery and a deadLetterQueue put such aside.",
        ),
    },
)


def _is_any(pairs: list[tuple[int, int]], place: str, cut: str) -> Column:
    """Whether place and cut are one of these."""
    return reduce(
        lambda one, other: one | other, ((F.col(place) == at) & (F.col(cut) == number) for at, number in pairs)
    )


def _at_cuts(history: History) -> DataFrame:
    """What each source holds at each cut of the range."""
    rows = history.state("deliverables", ("source", "bytes", "state", "position", "copy", "attempts"))
    return rows.groupBy(*_KEY).agg(
        F.count("*").alias("count"),
        F.sum("bytes").alias("bytes"),
        F.sum((F.col("state") == _IN_FLIGHT).cast("long")).alias("in_flight"),
        F.sum((F.col("state") == _DELAYED).cast("long")).alias("delayed"),
        F.min(F.struct("position", "copy")).alias("oldest"),
        F.sum((F.col("attempts") >= OFTEN).cast("long")).alias("often"),
        F.max(F.struct("attempts", "position", "copy")).alias("most_often"),
    )


def _progress(history: History) -> DataFrame:
    """Of each source and interval how much was acknowledged, and by how much its watermark was raised."""
    ended = history.events("ends").filter(F.col("reason") == reasons.ACKNOWLEDGED)
    acknowledged = ended.groupBy(*_KEY).agg(F.sum(F.col("last") - F.col("first") + 1).alias("acknowledged"))
    before = history.before("sources").select(*_KEY, F.col("watermark").alias("watermark_before"))
    after = history.after("sources").select(*_KEY, "watermark")
    found = after.join(before, list(_KEY), "left").join(acknowledged, list(_KEY), "left")
    raised = F.greatest(F.col("watermark") - F.coalesce("watermark_before", F.lit(0)), F.lit(0))
    return found.select(*_KEY, F.coalesce("acknowledged", F.lit(0)).alias("acknowledged"), raised.alias("raised"))


def _waiting(history: History, now: DataFrame) -> DataFrame:
    """What waits at the last cut, and since when the oldest has."""
    times = [
        (one.number, cut, manifest.cut.time_ms) for one in history.brokers for cut, manifest in one.snapshots.items()
    ]
    cuts = F.broadcast(history.spark.createDataFrame(times, "place int, cut long, cut_ms long"))
    oldest = F.broadcast(now.select("place", "cut", F.col("oldest.position").alias("position")).distinct())
    arrived = history.newest("messages").join(oldest, ["place", "cut", "position"], "left_semi")
    arrived = arrived.select("place", "cut", F.col("position").alias("message"), "arrived_ms")
    rows = now.select("*", F.col("oldest.position").alias("message")).join(cuts, ["place", "cut"])
    rows = rows.join(arrived, ["place", "cut", "message"], "left")
    age_s = F.greatest((F.col("cut_ms") - F.col("arrived_ms")) / 1_000, F.lit(0)).cast("long")
    return rows.select(
        *_KEY,
        *telling.said("ok", "info", "waiting", F.format_string("%d wait, %d of them in flight", "count", "in_flight")),
        "message",
        F.col("oldest.copy").cast("int").alias("copy"),
        F.col("count").alias("messages"),
        *("bytes", "in_flight", "delayed"),
        F.col("arrived_ms").alias("oldest_arrived_ms"),
        age_s.alias("oldest_age_s"),
    )


def _comes_back(now: DataFrame) -> DataFrame:
    why = F.format_string(
        "%d were delivered %d times or more, this one %d times", "often", F.lit(OFTEN), "most_often.attempts"
    )
    return now.filter("often > 0").select(
        *_KEY,
        *telling.said("ok", "warning", "comes-back", why),
        F.col("most_often.position").alias("message"),
        F.col("most_often.copy").cast("int").alias("copy"),
        F.col("often").alias("messages"),
        F.col("most_often.attempts").alias("attempts"),
    )


def _unread(history: History, now: DataFrame, moved: DataFrame) -> DataFrame:
    """Sources that hold something of which nothing was acknowledged in the last interval."""
    came = F.max(F.when((F.col("acknowledged") > 0) | (F.col("raised") > 0), F.col("cut"))).alias("moved_at")
    sure = F.max(F.when(F.col("acknowledged") > 0, F.col("cut"))).alias("acknowledged_at")
    since = moved.groupBy("place", "source").agg(came, sure, F.min("cut").alias("first_cut"))
    durables = history.newest("subscriptions").select(
        "place", F.col("id").alias("source"), F.lit(True).alias("durable")
    )
    # It was there at the cut before, too: what has just come may be read any moment.
    before = history.before("deliverables", columns=("source",)).select(*_KEY).distinct()
    rows = now.join(before, list(_KEY), "left_semi").join(since, ["place", "source"])
    rows = rows.join(durables, ["place", "source"], "left")
    rows = rows.filter(F.coalesce("acknowledged_at", F.lit(0)) < F.col("cut"))
    is_read = (F.coalesce("moved_at", F.lit(0)) == F.col("cut")) | (F.col("in_flight") > 0)
    since_cut = F.coalesce(
        F.when(is_read, F.col("acknowledged_at")).otherwise(F.col("moved_at")), F.col("first_cut") - 1
    )
    what = F.when(is_read, "unacknowledged").when(F.col("durable"), "durable-unread").otherwise("unread")
    why = F.when(
        is_read, F.format_string("%d are there, and none was acknowledged since cut %d", "count", since_cut)
    ).otherwise(F.format_string("%d are there, and none was delivered since cut %d", "count", since_cut))
    return rows.select(
        *_KEY,
        *telling.said("ok", "warning", what, why),
        F.col("oldest.position").alias("message"),
        F.col("oldest.copy").cast("int").alias("copy"),
        F.col("count").alias("messages"),
        since_cut.alias("since_cut"),
        "in_flight",
    )


def _growing(at_cuts: DataFrame, moved: DataFrame, now: DataFrame) -> DataFrame:
    """Sources that held more at each of the last cuts than before, although something was acknowledged."""
    in_order = Window.partitionBy("place", "source").orderBy("cut")
    grown = at_cuts.select(*_KEY, "count")
    for back in range(1, GREW_IN + 1):
        grown = grown.withColumn(f"count_{back}", F.lag("count", back).over(in_order))
        grown = grown.withColumn(f"cut_{back}", F.lag("cut", back).over(in_order))
    grew = (F.col("count") > F.col("count_1")) & (F.col("count_1") > F.col("count_2"))
    rows = grown.filter(grew & (F.col("cut_2") == F.col("cut") - GREW_IN))
    rows = rows.join(now.select(*_KEY), list(_KEY), "left_semi").join(moved, list(_KEY)).filter("acknowledged > 0")
    return rows.select(
        *_KEY,
        *telling.said(
            "ok", "warning", "growing", F.format_string("%d, then %d, now %d", "count_2", "count_1", "count")
        ),
        F.col("count").alias("messages"),
        "acknowledged",
    )


def _held(history: History) -> DataFrame:
    """Messages in flight at both ends of the last interval."""
    last = {one.number: max(one.snapshots) for one in history.brokers if one.snapshots}
    intervals = [one for one in history.intervals if last.get(one.place) == one.cut]
    key = [*_KEY, "sequence"]
    before, after = (
        rows.filter(F.col("state") == _IN_FLIGHT)
        for rows in (history.before("deliverables", intervals), history.after("deliverables", intervals))
    )
    rows = (
        after.join(before.select(*key), key, "left_semi")
        .groupBy(*_KEY)
        .agg(F.count("*").alias("messages"), F.min(F.struct("position", "copy", "sequence")).alias("oldest"))
    )
    return rows.select(
        *_KEY,
        *telling.said("ok", "warning", "held-long", F.format_string("%d were in flight at both cuts", "messages")),
        F.col("oldest.position").alias("message"),
        F.col("oldest.copy").cast("int").alias("copy"),
        "messages",
        F.col("oldest.sequence").alias("sequence"),
    )
