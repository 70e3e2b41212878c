"""What a run says last, as its pod's termination message: read, and never believed further than it can be read.

It comes from a pod, through the kubelet, which cuts it at 4,096 bytes. What is not what a result has to be is a run
that has failed, and what was said instead is said.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sterna_resources.audit_status import (
    SNAPSHOTS_MAX,
    WORST_MAX,
    RunStatus,
    SnapshotTaken,
    Verdict,
    VerdictCounts,
    WorstFinding,
)

from sterna_operator import conditions

_MS_MAX = 4_102_444_800_000  # the year 2100
_Ms = Annotated[int, Field(ge=0, le=_MS_MAX)]
_Count = Annotated[int, Field(ge=0, le=2**53 - 1)]


class _Part(BaseModel):
    # What a newer program says besides is passed over; what it says otherwise is not.
    model_config = ConfigDict(extra="ignore", strict=True)


class _Snapshot(_Part):
    broker: Annotated[str, Field(min_length=1, max_length=64)]
    cut: _Count | None = None
    state: Annotated[str, Field(pattern="^(new|there already|failed)$")]
    error: str | None = None


class _Worst(_Part):
    audit: str = ""
    what: str = ""
    object: str = ""
    message: str = ""


class Result(_Part):
    """A result, as the program that makes it says it."""

    run: str
    verdict: Verdict
    started_ms: _Ms
    ended_ms: _Ms
    snapshots: list[_Snapshot] = Field(default_factory=list)
    counts: dict[str, _Count] = Field(default_factory=dict)
    worst: list[_Worst] = Field(default_factory=list)
    report: str | None = None
    error: str | None = None


class ResultError(ValueError):
    """It is no result; the text says why."""


def read(text: str, run: str) -> Result:
    """A result of this run.

    Raises:
        ResultError: it is none, or of another run.
    """
    try:
        found = Result.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ResultError(f"{place}: {first['msg']}" if place else first["msg"]) from error
    if found.run != run:
        raise ResultError(f"it is of run '{found.run[:64]}'")
    return found


def status(result: Result, run: str, scheduled_ms: int | None) -> dict[str, Any]:
    """The run as a status shows it; texts and lists are cut to what a status may hold."""
    counts = {name.replace(" ", "_"): count for name, count in result.counts.items()}
    said = RunStatus(
        run=run,
        scheduled_at=None if scheduled_ms is None else conditions.timestamp(scheduled_ms),
        started_at=conditions.timestamp(result.started_ms),
        ended_at=conditions.timestamp(result.ended_ms),
        verdict=result.verdict,
        counts=VerdictCounts.model_validate(counts) if counts else None,
        worst=[
            WorstFinding(audit=one.audit[:64], what=one.what[:128], object=one.object[:512], message=one.message[:512])
            for one in result.worst[:WORST_MAX]
        ],
        snapshots=[
            SnapshotTaken.model_validate(
                {"broker": one.broker, "cut": one.cut, "state": one.state, "error": _cut(one.error, 512)}
            )
            for one in result.snapshots[:SNAPSHOTS_MAX]
        ],
        report=_cut(result.report, 1_024),
        error=_cut(result.error, 1_024),
    )
    return said.values()


def failed(run: str, scheduled_ms: int | None, started_ms: int | None, ended_ms: int, error: str) -> dict[str, Any]:
    """A run that has said no result, and why, as a status shows it."""
    said = RunStatus(
        run=run,
        scheduled_at=None if scheduled_ms is None else conditions.timestamp(scheduled_ms),
        started_at=None if started_ms is None else conditions.timestamp(started_ms),
        ended_at=conditions.timestamp(ended_ms),
        verdict="failed",
        error=_cut(error, 1_024),
    )
    return said.values()


def _cut(text: str | None, characters_max: int) -> str | None:
    return None if not text else text if len(text) <= characters_max else f"{text[: characters_max - 1]}…"
