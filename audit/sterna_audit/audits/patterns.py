"""Patterns of topics' names, as Spark compares names with them."""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it


def prefixes(name: Column) -> Column:
    """All beginnings of a topic's name that whole elements make, the name itself among them."""
    elements = F.split(name, r"\.")
    return F.transform(
        F.sequence(F.lit(0), F.size(elements)),
        lambda count: F.when(count == F.size(elements), name).otherwise(
            F.concat(F.array_join(F.slice(elements, 1, count), "."), F.when(count > 0, ".").otherwise(""))
        ),
    )


def literal(pattern: Column) -> Column:
    """What a pattern begins with before its first wildcard, in whole elements."""
    return F.regexp_extract(pattern, r"^((?:[^.*>]+(?:\.|$))*)", 1)


def regex(pattern: Column) -> Column:
    """A pattern as a regular expression: `*` is one element, a last `>` one or more."""
    parts = F.transform(
        F.split(pattern, r"\."),
        lambda element: (
            F.when(element == "*", r"[^.]+")
            .when(element == ">", r".+")
            .otherwise(F.concat(F.lit(r"\Q"), element, F.lit(r"\E")))
        ),
    )
    return F.concat(F.lit("^"), F.array_join(parts, r"\."), F.lit("$"))
