"""The audit `ledgers`: what clients wrote down themselves against what the broker says of itself."""

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, receipts
from sterna_audit.audits.findings import Finding
from sterna_audit.audits.history import History
from sterna_audit.audits.ledger_files import RANGE_MAX, Converted
from sterna_audit.audits.registry import Audit

_KEY = ("place", "producer", "number")
_DURABLE = 1

_VIOLATED: dict[str, tuple[findings.Severity, str]] = {
    "not-stored": ("critical", "its sender was told that it is on the disk, and the broker does not have it"),
    "altered": ("critical", "the broker has another size or checksum of it than its sender"),
    "refused-and-stored": ("error", "its sender was told that it was refused for good, and the broker has it"),
}
_UNPROVEN = {
    "in-a-gap": "they are not among the events, of which some are missing",
    "producer-forgotten": "the cut knows nothing of their producer any more",
    "perhaps-in-memory": "they were sent in a transaction, and the ledger does not say whether as persistent",
    "perhaps-unwanted": "they were sent again to a topic, and may have been wanted by nobody the first time",
}


def ledgers(history: History) -> DataFrame:
    """Whether the broker has what it confirmed to its clients, as they sent it, and kept to what they acknowledged.

    Each message that a ledger says was confirmed as being on the disk is among the stored ones, in the events or at the
    first cut, with the same size and checksum. None that was refused for good is. What was acknowledged, and the broker
    took that, is not handed to an application again without being flagged as redelivered.

    Taken for proof: ledgers, which clients write, against the snapshots. A message is known by the store, by its
    producer's incarnation and its number. Up to which number a producer's messages had arrived, each cut says: what
    came later is *in flight*, and what came before the first cut is left out. What was confirmed as being in memory
    alone is no promise. Not provable is what falls into a gap of the events, what was sent in a transaction and is not
    there (a ledger does not say whether it was persistent), and everything where there is no ledger.

    It says which share of what the broker stored a ledger vouches for: of the rest there is no witness but the broker.
    """
    spark, found = history.spark, history.ledgers
    if found is None or not found.files:
        return findings.frame(spark, _without(history))
    parts = [findings.frame(spark, _of_files(found))]
    judged = history.keep(_judged(history))
    parts += [_violations(history, judged), _counted(history, judged), _shares(history, judged)]
    parts.append(receipts.seen_again(history))
    return reduce(DataFrame.unionAll, parts)


AUDIT = Audit(
    "ledgers", "The broker has what it confirmed to its clients, unchanged, by the clients' own books.", ledgers
)


def _without(history: History) -> Iterator[Finding]:
    why = "there is no ledger: what the broker confirmed, nobody but itself can tell"
    for broker in history.brokers:
        yield Finding("not provable", "warning", "no-ledger", why, broker.place.cluster, broker.place.broker)


def _of_files(found: Converted) -> Iterator[Finding]:
    for file in found.files:
        if file.state == "damaged":
            yield Finding(
                *("not provable", "error", "damaged-ledger"),
                f"from where it is damaged on it cannot be read: {file.why}",
                object=file.path,
                evidence={"records": file.records, "client_id": file.client_id},
            )


_SENT = (
    "struct<at: bigint, ledger: int, session: bigint, transaction: bigint, destination: string, is_topic: boolean,"
    " message_id: string, bytes: bigint, checksum_high: bigint, checksum_low: bigint>"
)
_STORED = "struct<position: bigint, bytes: bigint, checksum_high: bigint, checksum_low: bigint, is_event: boolean>"


def _told(rows: DataFrame, number: Column, **columns: Column) -> DataFrame:
    """Rows about numbers of producers, of whichever table, with the columns that all of them have."""
    kinds = {"sent": _SENT, "stored": _STORED, "answer": "string", "at": "bigint", "durability": "int"}
    made = [columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()]
    return rows.select("place", "producer", number.alias("number"), *made)


def _sent(history: History) -> DataFrame:
    facts = ("at", "ledger", "session", "transaction", "destination", "is_topic", "message_id", "bytes")
    whole = F.struct(*facts, "checksum_high", "checksum_low")
    return _told(history.ledger("sent"), F.col("number"), sent=whole)


def _answered(history: History) -> DataFrame:
    rows = history.ledger("answers").filter(F.col("last") - F.col("first") < RANGE_MAX)
    columns = {name: F.col(name) for name in ("answer", "at", "durability")}
    return _told(rows, F.explode(F.sequence("first", "last")), **columns)


def _stored(history: History) -> DataFrame:
    def told(rows: DataFrame, *, is_event: bool) -> DataFrame:
        facts = ("position", F.col("bytes").cast("long").alias("bytes"), "checksum_high", "checksum_low")
        whole = F.struct(*facts, F.lit(is_event).alias("is_event"))
        return _told(rows, F.col("sequence"), stored=whole)

    return told(history.events("stored"), is_event=True).unionAll(told(history.state("messages"), is_event=False))


def _judged(history: History) -> DataFrame:
    """Each message of ledgers and broker: what either says of it, and in `what` how that fits together."""
    rows = _sent(history).unionAll(_answered(history)).unionAll(_stored(history))
    answers = ("confirmed", "refused", "postponed", "again")
    messages = rows.groupBy(*_KEY).agg(
        F.max("sent").alias("sent"),
        # The events' row, where both tell of it.
        F.max_by("stored", F.col("stored.is_event").cast("int")).alias("stored"),
        *(F.max(F.when(F.col("answer") == answer, F.col("at"))).alias(answer) for answer in answers),
        F.max(F.when(F.col("answer") == "confirmed", F.col("durability"))).alias("durability"),
    )
    keys = ["place", "ledger", "session", "transaction"]
    outcomes = history.ledger("transactions").groupBy(*keys)
    told = outcomes.agg(F.max_by("outcome", "at").alias("outcome"), F.max("durability").alias("outcome_durability"))
    for name in ("ledger", "session", "transaction"):
        messages = messages.withColumn(name, F.col(f"sent.{name}"))
    messages = messages.join(told, keys, "left")
    messages = messages.join(_known(history), ["place", "producer"], "left").join(_ranges(history), "place", "left")
    return messages.withColumn("is_promised", _is_promised()).withColumn("what", _what())


def _known(history: History) -> DataFrame:
    """Of each producer the last number that had arrived at the first cut and at the last one."""

    def of(name: str, cut: str) -> DataFrame:
        ends = {one.number: (min if cut == "first" else max)(one.snapshots) for one in history.brokers if one.snapshots}
        begins_empty = {one.place for one in history.intervals if one.begins_empty}
        chosen = [(place, number) for place, number in ends.items() if cut == "last" or place not in begins_empty]
        rows = history.read("state", "producers", chosen)
        return rows.groupBy("place", "producer").agg(F.max("sequence").alias(name))

    known = of("known_first", "first").join(of("known_last", "last"), ["place", "producer"], "full")
    return history.keep(known)


def _ranges(history: History) -> DataFrame:
    """Of each broker whether all its intervals are whole, and the newest producer that the last cut knows."""
    rows = [
        (one.number, not one.unproven and not any(interval.has_gap for interval in one.intervals))
        for one in history.brokers
    ]
    whole = F.broadcast(history.spark.createDataFrame(rows, "place int, is_whole boolean"))
    newest = _known(history).filter("known_last is not null").groupBy("place").agg(F.max("producer").alias("newest"))
    return F.broadcast(newest.join(whole, "place", "right"))


def _is_promised() -> Column:
    """Whether its sender was told that it is on the disk."""
    # Who was refused for now is asked again, and the answer to that counts.
    postponed = F.col("postponed").isNotNull() & ~F.coalesce(
        (F.col("again") > F.col("postponed")) & (F.col("confirmed") > F.col("again")), F.lit(False)
    )
    alone = F.col("confirmed").isNotNull() & F.col("refused").isNull() & ~postponed & (F.col("durability") >= _DURABLE)
    together = (F.col("outcome") == "taken") & (F.col("outcome_durability") >= _DURABLE) & F.col("refused").isNull()
    return F.coalesce(F.when(F.col("transaction") == 0, alone).otherwise(together), F.lit(False))


def _what() -> Column:
    """How what ledger and broker say fits together; null: nobody promised anything, or all is well."""
    missing, sent = F.col("stored").isNull(), F.col("sent").isNotNull()
    sums = [F.col(f"sent.{half}") != F.col(f"stored.{half}") for half in ("checksum_high", "checksum_low")]
    differs = F.coalesce(sums[0] | sums[1], F.lit(False)) | (F.col("sent.bytes") != F.col("stored.bytes"))
    later = (F.col("number") > F.col("known_last")) | (
        F.col("known_last").isNull() & (F.col("producer") > F.col("newest"))
    )
    alone = F.col("transaction") == 0
    return (
        F.when(sent & ~missing & differs, "altered")
        .when(sent & ~missing & alone & F.col("refused").isNotNull(), "refused-and-stored")
        .when(~F.col("is_promised") | ~missing, None)
        .when(F.coalesce(later, F.lit(False)), "after-the-cut")
        .when(F.coalesce(F.col("number") <= F.col("known_first"), F.lit(False)), "before-the-first-cut")
        .when(~F.col("is_whole"), "in-a-gap")
        .when(F.col("known_last").isNull(), "producer-forgotten")
        .when(~alone, "perhaps-in-memory")
        .when(F.col("sent.is_topic") & F.col("again").isNotNull(), "perhaps-unwanted")
        .otherwise("not-stored")
    )


def _violations(history: History, judged: DataFrame) -> DataFrame:
    rows = judged.filter(F.col("what").isin(*_VIOLATED))
    return findings.select(
        history.placed(rows),
        verdict="violated",
        **findings.graded(_VIOLATED),
        object=F.col("sent.destination"),
        message=F.col("sent.message_id"),
        messages=1,
        evidence=[
            *("producer", "number", F.col("stored.position").alias("position")),
            *(F.col("sent.bytes").alias("sent_bytes"), F.col("stored.bytes").alias("stored_bytes")),
        ],
    )


def _counted(history: History, judged: DataFrame) -> DataFrame:
    """What cannot be told, and what is not decided yet: how many of each, and one for an example."""
    rows = judged.filter(F.col("what").isin("after-the-cut", *_UNPROVEN)).groupBy("place", "what")
    counted = rows.agg(F.count("*").alias("messages"), F.min("sent.message_id").alias("message"))
    later = F.col("what") == "after-the-cut"
    return findings.select(
        history.placed(counted),
        verdict=F.when(later, "in flight").otherwise("not provable"),
        severity=F.when(later, "info").otherwise("warning"),
        why=findings.by_kind(_UNPROVEN, otherwise="they were confirmed after the last cut"),
        message="",
        evidence=[F.col("message").alias("example")],
    )


def _shares(history: History, judged: DataFrame) -> DataFrame:
    """Of each broker how much of what it stored ledgers vouch for."""
    outside = F.coalesce("what", F.lit("")).isin("before-the-first-cut", "after-the-cut")
    promised = F.col("is_promised") & ~outside
    in_events = F.coalesce(F.col("stored.is_event"), F.lit(False))
    sums = judged.groupBy("place").agg(
        F.count(F.when(promised, 1)).alias("promised"),
        F.count(F.when(promised & F.col("stored").isNotNull(), 1)).alias("found"),
        F.count(F.when(in_events, 1)).alias("stored"),
        F.count(F.when(in_events & F.col("is_promised"), 1)).alias("vouched"),
        F.count(F.when(F.col("what").isin(*_VIOLATED), 1)).alias("violated"),
    )
    rows = history.placed(history.places.select("place").join(sums, "place", "left").na.fill(0))
    share = F.when(F.col("stored") > 0, F.round(F.col("vouched") / F.col("stored"), 4))
    none = F.col("promised") == 0
    fine = findings.select(
        rows.filter("violated = 0"),
        verdict=F.when(none, "not provable").otherwise("ok"),
        severity=F.when(none, "warning").otherwise("info"),
        what=F.when(none, "no-ledger").otherwise("vouched"),
        why=F.when(none, "no ledger tells of a message that this broker confirmed as being on the disk").otherwise(
            F.format_string("%d of %d stored messages are vouched for by ledgers", "vouched", "stored")
        ),
        messages=F.col("found"),
        evidence=["promised", "found", "stored", "vouched", share.alias("share")],
    )
    faulty = findings.select(
        rows.filter("violated > 0"),
        verdict="violated",
        severity="error",
        what="vouched",
        why=F.format_string("%d messages are not as their clients' ledgers say", "violated"),
        messages=F.col("violated"),
        evidence=["promised", "found", "stored", "vouched", share.alias("share")],
    )
    return fine.unionAll(faulty)
