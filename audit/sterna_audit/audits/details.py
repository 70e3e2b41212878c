"""The rows of blocks that have to be looked at one by one: what is wrong with which message."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings
from sterna_audit.audits.balances import KEY
from sterna_audit.audits.flows import ENDED, IS_PENDING, PENDING_PLUS, PLUS, REMAINED
from sterna_audit.audits.history import History
from sterna_audit.audits.naming import with_messages, with_sources

#: What may be wrong: the word, how bad it is, and the sentence.
_WRONG: dict[str, tuple[findings.Severity, str]] = {
    "lost": ("critical", "it was there, no record ended it, and it is gone"),
    "appeared": ("critical", "it is there, and no record says that it came"),
    "ended-and-there": ("critical", "a record ended it, and it is there all the same: it would be delivered again"),
    "doubled": ("critical", "its sequence was given twice"),
    "altered": ("critical", "what is there under its sequence is not the message that came"),
    "outlived": ("error", "it is there although its queue or subscription was deleted"),
    "ended-unknown": ("error", "a record ended it, and nothing says that it ever was there"),
    "ended-twice": ("error", "two records ended it"),
    "pending-lost": ("critical", "it was sent in a transaction that is still open, and is gone"),
    "pending-appeared": ("critical", "it waits for a transaction, and no record says that it was sent"),
}


def _count(*roles: int) -> Column:
    return F.count(F.when(F.col("role").isin(*roles), 1))


def _least(column: str, *roles: int) -> Column:
    return F.min(F.when(F.col("role").isin(*roles), F.col(column)))


def _most(column: str, *roles: int) -> Column:
    return F.max(F.when(F.col("role").isin(*roles), F.col(column)))


def wrong(flows: DataFrame, blocks: DataFrame) -> DataFrame:
    """What is wrong, a row for each: `place`, `cut`, `source`, `sequence`, `what`, and what is known of the message.

    Args:
        flows: all of them.
        blocks: those of them that are looked at, with `deleted_at`.
    """
    chosen = flows.join(blocks, [*KEY, "block"], "inner")
    rows = chosen.withColumn("sequence", F.explode(F.sequence("first", "last")))
    came, was_sent = _count(*PLUS), _count(*PENDING_PLUS)
    messages = rows.groupBy(*KEY, "sequence").agg(
        came.alias("came"),
        _count(ENDED).alias("ended"),
        _count(REMAINED).alias("remained"),
        was_sent.alias("was_sent"),
        _count(IS_PENDING).alias("pending"),
        F.max("deleted_at").alias("deleted_at"),
        F.coalesce(_least("message", *PLUS), _least("message", *PENDING_PLUS)).alias("message"),
        F.coalesce(_least("copy", *PLUS), _least("copy", *PENDING_PLUS)).alias("copy"),
        _most("message", REMAINED, IS_PENDING).alias("message_there"),
        _most("copy", REMAINED, IS_PENDING).alias("copy_there"),
        _least("position", ENDED).alias("ended_at"),
        _most("position", ENDED).alias("ended_again_at"),
        _most("reason", ENDED).alias("reason"),
    )
    found = messages.withColumn("what", _what()).filter(F.col("what").isNotNull())
    return found.withColumn("message", F.coalesce("message", "message_there")).withColumn(
        "copy", F.coalesce("copy", "copy_there")
    )


def _what() -> Column:
    """The word for what is wrong with a message; null: nothing."""
    came, ended, remained = F.col("came"), F.col("ended"), F.col("remained")
    gone = F.col("deleted_at").isNotNull()
    altered = (F.col("message") != F.col("message_there")) | (F.col("copy") != F.col("copy_there"))
    return (
        F.when((came > 1) | (remained > 1) | (F.col("was_sent") > 1) | (F.col("pending") > 1), "doubled")
        .when(gone & (remained > 0), "outlived")
        .when((came == 0) & (ended > 0), "ended-unknown")
        .when((came == 0) & (remained > 0), "appeared")
        .when((ended > 0) & (remained > 0), "ended-and-there")
        .when(ended > 1, "ended-twice")
        .when(~gone & (came == 1) & (ended == 0) & (remained == 0), "lost")
        .when(~gone & (F.col("was_sent") == 1) & (F.col("pending") == 0), "pending-lost")
        .when((F.col("was_sent") == 0) & (F.col("pending") == 1), "pending-appeared")
        .when((came == 1) & (remained == 1) & altered, "altered")
    )


def findings_of(rows: DataFrame, history: History) -> DataFrame:
    """What is wrong as findings, each with its message's id where one is known."""
    named = with_sources(with_messages(rows, history), history)
    return findings.select(
        history.placed(named),
        verdict="violated",
        **findings.graded(_WRONG),
        object=F.col("source_name"),
        message=F.col("message_id"),
        messages=1,
        evidence=[
            *("source", "sequence", F.col("message").alias("position"), "copy", "ended_at", "reason", "deleted_at"),
            F.when(F.col("ended") > 1, F.col("ended_again_at")).alias("ended_again_at"),
            F.when(F.col("what") == "altered", F.col("message_there")).alias("position_there"),
            F.when(F.col("what") == "altered", F.col("copy_there")).alias("copy_there"),
        ],
    )
