"""Numbers that rise with positions: where they do not, and where one stands twice.

A *lane* is what numbers rise in: the messages of one producer for one destination, or what comes into one queue or
subscription. Rows of a lane are brought together in blocks of its numbers, sorted there, and looked through once; only
blocks in which something is wrong are taken apart.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

#: So many numbers are a block: few enough to be sorted in memory, many enough to leave few blocks.
_BLOCK_BITS = 12
_TAG_BITS = 8

TWICE = "twice"
AGAIN = "again"
LATE = "late"
"""Kinds: a number that stands twice; a record that stands twice, under two numbers; and one that came after a higher
number."""


def blocks(rows: DataFrame, lane: Sequence[str]) -> DataFrame:
    """The blocks of each lane.

    Args:
        rows: with the lane's columns, `number`, `position`, `copy` and `cut`.
        lane: the columns that tell one lane from another.

    Returns:
        The lane's columns, `block`, `count`, `least` and `most` (numbers), `items` (sorted), `is_wrong`.
    """
    tag = F.shiftleft(F.col("cut").cast("long"), _TAG_BITS) + F.col("copy")
    item = F.struct("number", "position", tag.alias("tag"))
    found = rows.groupBy(*lane, F.shiftright("number", _BLOCK_BITS).alias("block")).agg(
        F.sort_array(F.collect_list(item)).alias("items")
    )
    following = F.slice("items", 2, F.greatest(F.size("items") - 1, F.lit(0)))
    pairs = F.zip_with("items", following, _fault)
    return found.select(
        *lane,
        "block",
        F.size("items").alias("count"),
        F.element_at("items", 1)["number"].alias("least"),
        F.element_at("items", -1)["number"].alias("most"),
        "items",
        F.exists(pairs, lambda fault: fault.isNotNull()).alias("is_wrong"),
    )


def _fault(one: Column, following: Column) -> Column:
    same = (following["position"] == one["position"]) & (_copy(following["tag"]) == _copy(one["tag"]))
    return (
        F.when(following["number"] == one["number"], TWICE)
        .when(following["position"] < one["position"], LATE)
        .when(same, AGAIN)
    )


def _copy(tag: Column) -> Column:
    return tag.bitwiseAND(F.lit((1 << _TAG_BITS) - 1).cast("long"))


def wrong(of_blocks: DataFrame, lane: Sequence[str]) -> DataFrame:
    """The rows that are wrong.

    Returns:
        The lane's columns, `number`, `position`, `copy`, `cut`, `what`, and `other`: the position that it contradicts.
    """
    return _within(of_blocks, lane).unionAll(_between(of_blocks, lane))


def _within(of_blocks: DataFrame, lane: Sequence[str]) -> DataFrame:
    rows = of_blocks.filter("is_wrong").select(*lane, "block", F.posexplode("items").alias("at", "item"))
    rows = rows.select(*lane, "block", "at", "item.number", "item.position", "item.tag")
    in_order = Window.partitionBy(*lane, "block").orderBy("at")
    before, after = (F.lag("position", back).over(in_order) for back in (1, -1))
    rows = rows.select(
        "*",
        before.alias("before"),
        after.alias("after"),
        F.lag("position", 2).over(in_order).alias("before_that"),
        F.lag("number").over(in_order).alias("lower"),
        F.lead("number").over(in_order).alias("higher"),
        F.lag("tag").over(in_order).alias("tag_before"),
    )
    twice = F.col("lower") == F.col("number")
    again = (F.col("before") == F.col("position")) & (_copy(F.col("tag_before")) == _copy(F.col("tag")))
    # Of two in the wrong order that one came late without which the others are in order.
    fits = F.coalesce(F.col("before") < F.col("after"), F.lit(True))
    is_late = (F.col("position") > F.col("after")) & (F.col("higher") != F.col("number")) & fits
    fitted = F.coalesce(F.col("before_that") < F.col("position"), F.lit(True))
    was_early = (F.col("position") < F.col("before")) & ~twice & ~fitted
    what = F.when(twice, TWICE).when(again, AGAIN).when(is_late | was_early, LATE)
    other = F.when(is_late & ~twice, F.col("after")).otherwise(F.col("before"))
    return _told(rows.withColumn("what", what).withColumn("other", other).filter(F.col("what").isNotNull()), lane)


def _between(of_blocks: DataFrame, lane: Sequence[str]) -> DataFrame:
    """The last of a block that came after the first of the next."""
    in_order = Window.partitionBy(*lane).orderBy("block")
    last = F.element_at("items", -1)
    ends = of_blocks.select(*lane, "block", F.element_at("items", 1).alias("first"), last.alias("last"))
    ends = ends.withColumn("next", F.lead("first").over(in_order))
    copies = _copy(F.col("last.tag")) == _copy(F.col("next.tag"))
    what = F.when(F.col("last.position") > F.col("next.position"), LATE).when(
        (F.col("last.position") == F.col("next.position")) & copies, AGAIN
    )
    rows = ends.withColumn("what", what).filter(F.col("what").isNotNull())
    return _told(
        rows.select(*lane, "last.number", "last.position", "last.tag", "what", F.col("next.position").alias("other")),
        lane,
    )


def _told(rows: DataFrame, lane: Sequence[str]) -> DataFrame:
    return rows.select(
        *lane,
        "number",
        "position",
        _copy(F.col("tag")).cast("int").alias("copy"),
        F.shiftright("tag", _TAG_BITS).alias("cut"),
        "what",
        "other",
    )
