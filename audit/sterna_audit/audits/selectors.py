"""Selectors over what snapshots know of a message, by two evaluators that share nothing: the engine's, and Spark's SQL.

Snapshots have no properties, and of the header no type and no correlation id. A selector that asks for one of these
cannot be evaluated. Text of a selector reaches Spark only if each of its words is one that is known here.
"""

import re

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

#: What snapshots know, by the names that selectors use, and the columns of stored messages that they are.
HEADERS = {"JMSPriority": "priority", "JMSTimestamp": "time_ms", "JMSDeliveryMode": "mode"}
_NUMBERS = frozenset({"JMSPriority", "JMSTimestamp"})
_WORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "IS", "NULL", "TRUE", "FALSE"})
_TOKEN = re.compile(r"\s*(?:('(?:[^'])*')|([A-Za-z_$][A-Za-z0-9_$.]*)|([0-9]+)|(<>|<=|>=|[=<>(),]))")


def is_known(selector: str) -> bool:
    """Whether snapshots know all that a selector asks for."""
    without_texts = re.sub(r"'(?:[^']|'')*'", " ", selector)
    words = re.findall(r"[^\W\d][\w$.]*", without_texts)
    return all(word in HEADERS or word.upper() in _WORDS | {"ESCAPE"} for word in words)


def in_sql(selector: str) -> str | None:
    """The selector as a condition of Spark's SQL over the columns of `HEADERS`, as it is written.

    None: it is not one that both languages read in the same way, as with numbers that are compared with texts, with
    arithmetic, and with patterns and texts that have escapes.
    """
    if "''" in selector:
        return None
    tokens: list[str] = []
    kinds: set[str] = set()
    at = 0
    while selector[at:].strip():
        found = _TOKEN.match(selector, at)
        if found is None:
            return None
        text, word, number, sign = found.groups()
        at = found.end()
        if word is not None:
            if word.upper() not in _WORDS and word not in HEADERS:
                return None
            if word in HEADERS:
                kinds.add("number" if word in _NUMBERS else "text")
        elif text is not None:
            kinds.add("text")
            # A backslash is one to selectors, and the beginning of something else to Spark.
            if "\\" in text:
                return None
        elif number is not None:
            kinds.add("number")
            if len(number) > 18:
                return None
        tokens.append(HEADERS.get(word, word) if word is not None else str(text or number or sign))
    return None if len(kinds) > 1 else " ".join(tokens)


def by_engine() -> object:
    """Whether the engine selects a message, as a function of Spark: of selector, priority, time and mode."""
    known: dict[str, object] = {}

    # A function within one is sent as it is: executors need not have this package.
    def matches(selector: str | None, priority: int, time_ms: int, mode: str) -> bool | None:
        from sterna_core.selector import Selector, SelectorError

        # Spark asks for every row, whatever condition stands around it.
        if selector is None:
            return None
        if selector not in known:
            try:
                known[selector] = Selector(selector)
            except SelectorError:
                # Of a broker of another version: it cannot be judged here.
                known[selector] = None
        found = known[selector]
        if found is None:
            return None
        fields = {"JMSPriority": priority, "JMSTimestamp": time_ms, "JMSDeliveryMode": mode}
        return bool(found.matches(fields))  # type: ignore[attr-defined]

    return F.udf(matches, T.BooleanType(), useArrow=False)


def by_spark(selectors: list[str], column: str) -> Column:
    """Whether Spark's own SQL selects a message by the selector in a column; null where it cannot be asked."""
    found: Column = F.lit(None).cast("boolean")
    for selector in selectors:
        condition = in_sql(selector)
        if condition is not None:
            # What is unknown is not selected.
            selects = F.coalesce(F.expr(condition), F.lit(False))
            found = F.when(F.col(column) == selector, selects).otherwise(found)
    return found
