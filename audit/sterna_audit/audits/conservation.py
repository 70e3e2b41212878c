"""The audit `conservation`: no message is lost, none appears from nowhere, none comes back."""

from collections.abc import Iterator, Sequence
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import balances, details, findings, flows, marks, messages
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import History, Interval
from sterna_audit.audits.naming import with_sources
from sterna_audit.audits.registry import Audit


def conservation(history: History) -> DataFrame:
    """Whether every message of every queue and subscription is accounted for, one by one.

    For each interval and each source: what was there at the cut before, and what arrived or was moved there, less what
    ended, is what is there at the cut after. What was sent or taken in a transaction counts from its commit on; what a
    transaction that is open holds is *in flight*. A queue or subscription that was deleted takes with it what it held.
    Sources are known by store and number, which no store gives twice.

    Taken for proof: the state at both cuts, and the events between, which the broker's log says and its queues do not
    make. Violated is what these contradict one another in: a message that is gone, that is there without having come,
    that came or ended twice, that is there although it ended, whose sequence is one that was not given yet, or whose
    record is not in the log or not as it was; and a queue or subscription that knows less than it did of the numbers
    that it gave, or of what it may have delivered.

    An interval with a gap is not provable: see the audit of counters, which goes on over it by count.

    What a broker neither wrote down nor counted, no snapshot can tell: see the audit of ledgers.
    """
    exact = [one for one in history.intervals if not one.has_gap]
    parts = [findings.frame(history.spark, _unproven(history))]
    if exact:
        parts.append(_exact(history, exact))
    return reduce(DataFrame.unionAll, parts)


AUDIT = Audit("conservation", "Each message of each queue and subscription is accounted for, one by one.", conservation)


def _unproven(history: History) -> Iterator[Finding]:
    for broker in history.brokers:
        say = partial(Finding, cluster=broker.place.cluster, broker=broker.place.broker)
        for why in broker.unproven:
            yield say("not provable", "warning", "no-interval", why)
        for interval in broker.intervals:
            if interval.has_gap:
                why = "events are missing between the two cuts: the audit of counters goes on over that by count"
                yield say("not provable", "warning", "gap", why, cut=interval.cut)


def _exact(history: History, intervals: Sequence[Interval]) -> DataFrame:
    all_flows = flows.flows(history, intervals)
    gone = flows.deleted(history, intervals)
    blocks = history.keep(balances.balances(balances.sums_of(all_flows), gone))
    chosen = blocks.filter("detail").select(*balances.KEY, "block", "deleted_at")
    looked_at = history.small(chosen, blocks.filter("detail").count())
    wrong = history.keep(details.wrong(reduce(DataFrame.unionAll, all_flows), looked_at))
    broken = history.keep(messages.wrong(history, intervals))
    above = history.keep(_above(history, intervals, blocks))
    fallen = history.keep(marks.wrong(history, intervals))
    runs = blocks.filter("block is null")
    faulty = reduce(DataFrame.unionAll, (rows.select("place", "cut") for rows in (wrong, broken, above, fallen, runs)))
    parts = [_figures(history, blocks, faulty.distinct())]
    # What there is nothing of needs no names.
    if not wrong.isEmpty():
        parts.append(details.findings_of(wrong, history))
    if not broken.isEmpty():
        parts.append(messages.findings_of(broken, history))
    if not fallen.isEmpty():
        parts.append(marks.findings_of(fallen, history))
    for rows, what in ((above, _ABOVE), (runs, _BROKEN_RUN)):
        if not rows.isEmpty():
            parts.append(_of_sources(history, rows, *what))
    return reduce(DataFrame.unionAll, parts)


_ABOVE = "sequence-not-given", "a sequence is in use that the source has not given yet: it would be given twice"
_BROKEN_RUN = (
    "broken-run",
    "records end runs of sequences that cannot be: below 0, backwards, or longer than any record holds",
)


def _above(history: History, intervals: Sequence[Interval], blocks: DataFrame) -> DataFrame:
    """Sources in which sequences are in use that were not given yet."""
    highest = blocks.groupBy(*balances.KEY).agg(F.max("highest").alias("highest"))
    after = history.after("sources", intervals).select(*balances.KEY, "next_sequence")
    return highest.join(after, list(balances.KEY)).filter("highest >= next_sequence")


def _of_sources(history: History, rows: DataFrame, what: str, why: str) -> DataFrame:
    facts = [name for name in ("source", "highest", "next_sequence") if name in rows.columns]
    return findings.select(
        history.placed(with_sources(rows, history)),
        verdict="violated",
        severity="error",
        what=what,
        why=why,
        object=F.col("source_name"),
        evidence=facts,
    )


def _figures(history: History, blocks: DataFrame, faulty: DataFrame) -> DataFrame:
    """Of each interval without a fault what its balance is, and what is in flight at its end."""
    went = F.when(F.col("deleted_at").isNotNull(), F.col("count")).otherwise(0)
    sums = blocks.groupBy("place", "cut").agg(
        *(F.sum(name).alias(name) for name in ("started", "came", "ended", "remained", "pending")),
        F.sum(went).alias("deleted"),
        F.countDistinct("source").alias("sources"),
    )
    sums = history.placed(sums)
    fine = sums.join(faulty, ["place", "cut"], "left_anti")
    why = F.format_string(
        "%d were there, %d came, %d ended, %d went with their queue: %d are there",
        *("started", "came", "ended", "deleted", "remained"),
    )
    facts = ["started", "came", "ended", "deleted", "remained", "sources"]
    balanced = findings.select(
        fine,
        verdict="ok",
        severity="info",
        what="balanced",
        why=why,
        messages=F.col("started") + F.col("came"),
        evidence=facts,
    )
    open_ = findings.select(
        sums.filter("pending > 0"),
        verdict="in flight",
        severity="info",
        what="open-transactions",
        why=F.format_string("%d were sent in transactions that are open at the cut", "pending"),
        messages=F.col("pending"),
    )
    return balanced.unionAll(open_)
