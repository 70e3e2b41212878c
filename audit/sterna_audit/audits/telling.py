"""Rows of several kinds as findings, with names and ids looked up once for all of them."""

from collections.abc import Iterable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import findings, naming
from sterna_audit.audits.history import History

#: What a row may say besides the attributes of a finding; every other column of it is evidence.
_OWN = frozenset({"place", "source", "message", "copy"})


def said(verdict: Column | str, severity: Column | str, what: Column | str, why: Column | str) -> list[Column]:
    """What all rows of a kind say, or each for itself."""
    told = {"verdict": verdict, "severity": severity, "what": what, "why": why}
    return [(F.lit(value) if isinstance(value, str) else value).alias(name) for name, value in told.items()]


def named(history: History, parts: Iterable[DataFrame], *, with_messages: bool = True) -> DataFrame:
    """Rows as findings.

    Args:
        history: of which they are.
        parts: of each kind the rows: `place`, `verdict`, `severity`, `what`, `why`, and where they are about something
            `source`, `message` (position of its record) and `copy`, `messages`, `cut`. All other columns are evidence;
            they may differ from kind to kind.
        with_messages: whether any row names a message; to look up ids takes a look at all messages.
    """
    whole = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    for name in _OWN - set(whole.columns):
        whole = whole.withColumn(name, F.lit(None).cast("long"))
    facts = [name for name in whole.columns if name not in _OWN and name not in findings.SCHEMA.fieldNames()]
    # Whatever the lookups call their columns, none of the facts is called so.
    packed = whole.withColumn("facts", F.struct(*facts) if facts else F.lit(None)).drop(*facts)
    packed = naming.with_sources(packed.withColumn("copy", F.coalesce(F.col("copy").cast("int"), F.lit(0))), history)
    packed = packed.withColumn("source_name", F.when(F.col("source").isNotNull(), F.col("source_name")))
    if with_messages:
        packed = naming.with_messages(packed, history)
        packed = packed.withColumn("message_id", F.when(F.col("message").isNotNull(), F.col("message_id")))
    else:
        packed = packed.withColumn("message_id", F.lit(""))
    return findings.select(
        history.placed(packed),
        object=F.col("source_name"),
        message=F.col("message_id"),
        evidence=[F.col(f"facts.{name}").alias(name) for name in facts],
    )
