"""What an audit says: findings, as rows of a DataFrame and as values.

Every audit says something of each broker, also where all is as it should be: what nobody looked at is never `ok`.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

Verdict = Literal["violated", "not provable", "in flight", "ok"]
VERDICTS: tuple[Verdict, ...] = ("violated", "not provable", "in flight", "ok")
"""From the worst to the best: a run is as good as the worst that it found.

`violated`: two witnesses contradict one another, or a rule was broken. `not provable`: what it would take is not there;
`why` says what. `in flight`: it is decided only after the cut. `ok`: it was looked at, and is as it should be.
"""

Severity = Literal["critical", "error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "error", "warning", "info")
"""`critical`: messages are lost, doubled or altered. `error`: records contradict one another. `warning`: somebody
should look. `info`: a figure."""

#: At most so many findings of an audit come to the driver; the rest are counted, and in the Parquet files.
COLLECTED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an audit says.

    Attributes:
        verdict: see `VERDICTS`.
        severity: see `SEVERITIES`.
        what: a short word for the kind, for programs: it does not change its meaning.
        why: a sentence for people.
        cluster: whose; empty: of no cluster alone.
        broker: whose; empty: of no broker alone.
        cut: at the end of whose interval; 0: of none.
        object: the queue, subscription, producer or file that it is about, by its name; may be empty.
        message: the message's id where it is about one; else empty.
        messages: how many messages it is about.
        evidence: positions, sequences and figures by which somebody can look it up; JSON's types only.
    """

    verdict: Verdict
    severity: Severity
    what: str
    why: str
    cluster: str = ""
    broker: str = ""
    cut: int = 0
    object: str = ""
    message: str = ""
    messages: int = 0
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> tuple[Any, ...]:
        """As a row of `SCHEMA`."""
        values = asdict(self)
        values["evidence"] = json.dumps(dict(self.evidence), sort_keys=True, ensure_ascii=False)
        return tuple(values[name] for name in SCHEMA.fieldNames())


SCHEMA = T.StructType(
    [
        T.StructField(name, T.LongType() if name in ("cut", "messages") else T.StringType(), nullable=False)
        for name in Finding.__dataclass_fields__
    ]
)
"""The columns of findings as a DataFrame: those of `Finding`, `evidence` as JSON."""

_DEFAULTS: Mapping[str, Any] = {"cluster": "", "broker": "", "cut": 0, "object": "", "message": "", "messages": 0}


def frame(spark: SparkSession, findings: Iterable[Finding]) -> DataFrame:
    """Findings that the driver made, as a DataFrame."""
    return spark.createDataFrame([one.row() for one in findings], SCHEMA)


def select(rows: DataFrame, *, evidence: Iterable[str | Column] = (), **columns: Column | str | int) -> DataFrame:
    """Each row as a finding.

    Args:
        rows: one for each finding.
        evidence: columns of it that become the evidence; what is null is left out.
        columns: by the finding's attributes what they are: an expression, or a constant.

    A column of `rows` that is called as an attribute is taken where nothing is said of it.
    """
    facts = list(evidence)
    made: list[Column] = []
    for name in SCHEMA.fieldNames():
        kind = SCHEMA[name].dataType
        if name == "evidence":
            # Empty structs have no JSON in Spark.
            told = F.to_json(F.struct(*facts), {"ignoreNullFields": "true"}) if facts else F.lit("{}")
            made.append(F.coalesce(told, F.lit("{}")).alias(name))
            continue
        chosen = columns.get(name, F.col(name) if name in rows.columns else _DEFAULTS.get(name))
        if chosen is None:
            raise TypeError(f"a finding has no {name}")
        value = chosen if isinstance(chosen, Column) else F.lit(chosen)
        made.append(F.coalesce(value.cast(kind), F.lit(_DEFAULTS.get(name, "")).cast(kind)).alias(name))
    return rows.select(*made)


def by_kind(values: Mapping[Any, str], kind: str = "what", otherwise: str = "") -> Column:
    """What stands for each value of a column in a table, such as the sentence for each kind of finding."""
    found = F.lit(otherwise)
    for value, text in values.items():
        found = F.when(F.col(kind) == value, text).otherwise(found)
    return found


def graded(kinds: Mapping[str, tuple[Severity, str]]) -> dict[str, Column]:
    """`severity` and `why`, by `what`, for `select`."""
    return {
        "severity": by_kind({what: severity for what, (severity, _) in kinds.items()}),
        "why": by_kind({what: why for what, (_, why) in kinds.items()}),
    }


def order() -> list[Column]:
    """Worst first, and always the same."""
    ranks = [
        F.array_position(F.array(*(F.lit(value) for value in values)), F.col(name))
        for name, values in (("verdict", VERDICTS), ("severity", SEVERITIES))
    ]
    return [*ranks, *(F.col(name) for name in ("cluster", "broker", "cut", "what", "object", "message", "evidence"))]


def finding_of(row: Mapping[str, Any]) -> Finding:
    """A row of a DataFrame of findings as a value."""
    values = dict(row)
    values["evidence"] = json.loads(values["evidence"])
    return Finding(**values)
