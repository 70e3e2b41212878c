"""The audit `counters`: what the engine counted adds up to what is there."""

from collections.abc import Iterator
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import Broker, History
from sterna_audit.audits.naming import with_sources
from sterna_audit.audits.registry import Audit

#: What came into a source, and what is counted besides; all others are reasons for which something ended.
_CAME = ("began", "arrived")
_BESIDES = ("volatile", "released", "delivered", "duplicates", "unwanted")
#: Of `state/deliverables`: sent in a transaction that is open, so that it has not come yet.
_PENDING = 3

_KEY = ("place", "cut", "source")


def counters(history: History) -> DataFrame:
    """Whether each queue and subscription holds as many messages as were counted.

    Whoever decides in the engine counts, apart from the tables that make the state and the records that make the
    events: what a source had when the broker's epoch began, and what arrived, less what ended, is to be what is there
    at a cut. Violated is a source of which it is not: messages went, or came, that nobody decided on.

    This needs no events. So it goes on where they are missing: an interval with a gap balances *by count* if the broker
    did not start within it, and cannot be proven before the start if it did. It is the count that is proven, and no
    single message: in a source that lost one and got one that was never sent the numbers agree.

    A broker of before there were counters has none: not provable.
    """
    there = (
        history.state("deliverables", ("source", "state"))
        .filter(F.col("state") != _PENDING)
        .groupBy(*_KEY)
        .agg(F.count("*").alias("there"))
    )
    came, is_end = F.col("counter").isin(*_CAME), ~F.col("counter").isin(*_CAME, *_BESIDES)
    counted = (
        history.state("counters")
        .groupBy(*_KEY)
        .agg(
            F.sum(F.when(came, F.col("value")).otherwise(0)).alias("came"),
            F.sum(F.when(is_end, F.col("value")).otherwise(0)).alias("ended"),
        )
    )
    silent = [(one.number, cut) for one in history.brokers for cut in one.snapshots if not _counts(one, cut)]
    rows = there.join(counted, list(_KEY), "full").na.fill(0)
    if silent:
        without = F.broadcast(history.spark.createDataFrame(silent, "place int, cut long"))
        rows = rows.join(without, ["place", "cut"], "left_anti")
    rows = history.keep(rows)
    wrong = with_sources(rows.filter("came - ended <> there"), history)
    violated = findings.select(
        history.placed(wrong),
        verdict="violated",
        severity="critical",
        what="count-differs",
        why=F.format_string("by count %d came and %d ended, so that %d are due, and %d are there", *_figures("there")),
        object=F.col("source_name"),
        messages=F.abs(F.col("came") - F.col("ended") - F.col("there")),
        evidence=["source", "came", "ended", "there"],
    )
    sums = rows.groupBy("place", "cut").agg(
        *(F.sum(name).alias(name) for name in ("came", "ended", "there")),
        F.count("*").alias("sources"),
        F.count(F.when(F.expr("came - ended <> there"), 1)).alias("wrong"),
    )
    balanced = findings.select(
        history.placed(sums.filter("wrong = 0")),
        verdict="ok",
        severity="info",
        what="balanced-by-count",
        why=F.format_string("by count %d came and %d ended since the epoch began: %d are there", *_figures()),
        messages=F.col("came"),
        evidence=["came", "ended", "there", "sources"],
    )
    return violated.unionAll(balanced).unionAll(findings.frame(history.spark, _told(history)))


AUDIT = Audit("counters", "Each queue and subscription holds as many messages as the engine counted.", counters)


def _figures(*more: str) -> list[Column | str]:
    return ["came", "ended", F.expr("came - ended"), *more]


def _counts(broker: Broker, cut: int) -> bool:
    """Whether there are counters, or nothing that they could be of."""
    manifest = broker.snapshots[cut]
    rows = {name: sum(manifest.files[path].rows for path in manifest.files_of("state", name)) for name in _COUNTED}
    return rows["counters"] > 0 or rows["deliverables"] == 0


_COUNTED = ("counters", "deliverables")


def _told(history: History) -> Iterator[Finding]:
    """Where there are no counters, and how far they reach over gaps."""
    for broker in history.brokers:
        say = partial(Finding, cluster=broker.place.cluster, broker=broker.place.broker)
        for cut in broker.snapshots:
            if not _counts(broker, cut):
                yield say("not provable", "warning", "no-counters", "the broker did not count", cut=cut)
        for interval in broker.intervals:
            if not interval.has_gap:
                continue
            before, after = broker.snapshots.get(interval.cut - 1), broker.snapshots[interval.cut]
            if before is not None and before.cut.epoch == after.cut.epoch:
                why = "events are missing, and what was counted from the cut before on reaches over the gap"
                yield say("ok", "info", "gap-by-count", why, cut=interval.cut)
            else:
                why = (
                    "events are missing, and the broker started anew within the interval: what happened before its "
                    "start nobody counted"
                )
                yield say("not provable", "warning", "gap-over-a-start", why, cut=interval.cut)
