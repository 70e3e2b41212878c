"""The marks of sources: which number comes next, and up to where messages may have been delivered.

Numbers only rise. Below a watermark there is room reserved, and a clean stop writes a lower one that gives back what of
it was not used: of the records between two cuts the last one counts.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from sterna_audit.audits import balances, findings
from sterna_audit.audits.history import History, Interval
from sterna_audit.audits.naming import with_sources

_WRONG: dict[str, tuple[findings.Severity, str]] = {
    "sequences-again": ("error", "it had given higher numbers at the cut before: it would give them again"),
    "watermark-behind": (
        "error",
        "its watermark is lower than it was: what may have been delivered would come again without being flagged",
    ),
}


def wrong(history: History, intervals: Sequence[Interval]) -> DataFrame:
    """Sources whose marks fell: `place`, `cut`, `source`, `what`, and the marks."""
    key = list(balances.KEY)
    after = history.after("sources", intervals).select(*key, "next_sequence", "watermark")
    before = history.before("sources", intervals).select(
        *key, F.col("next_sequence").alias("next_before"), F.col("watermark").alias("watermark_before")
    )
    told = history.events("watermarks", intervals).groupBy(*key).agg(F.max_by("below", "position").alias("raised_to"))
    rows = after.join(before, key, "left").join(told, key, "left")
    known = F.coalesce("raised_to", "watermark_before", F.lit(0))
    what = F.when(F.col("next_sequence") < F.col("next_before"), "sequences-again").when(
        F.col("watermark") < known, "watermark-behind"
    )
    return rows.withColumn("what", what).filter(F.col("what").isNotNull())


def findings_of(rows: DataFrame, history: History) -> DataFrame:
    """What is wrong as findings."""
    return findings.select(
        history.placed(with_sources(rows, history)),
        verdict="violated",
        **findings.graded(_WRONG),
        object=F.col("source_name"),
        evidence=["source", "next_sequence", "next_before", "watermark", "watermark_before", "raised_to"],
    )
