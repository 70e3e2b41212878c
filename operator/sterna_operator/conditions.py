"""Conditions: Ready, Reconciling and Stalled, in the sense of Kubernetes' kstatus.

`Ready` is true only when what runs is what this generation asks for. `Reconciling` says that something is being done or
awaited, `Stalled` that nothing will happen until somebody changes something. A condition's time is when its status last
changed, not when it was last written; so this module needs the conditions that stand.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"

MESSAGE_CHARACTERS_MAX = 1_024


@dataclass(frozen=True)
class Condition:
    """One condition as it is wanted. `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str
    message: str = ""
    generation: int | None = None
    """The generation that it is about, where that is not the object's present one."""


def ready(reason: str = "Applied", message: str = "") -> tuple[Condition, ...]:
    """All is as it should be."""
    return _three("True", reason, message, reconciling="False", stalled="False")


def reconciling(reason: str, message: str, *, is_ready: bool = False) -> tuple[Condition, ...]:
    """Something is being done or awaited; it will become ready by itself."""
    return _three("True" if is_ready else "False", reason, message, reconciling="True", stalled="False")


def stalled(reason: str, message: str, *, is_ready: bool = False) -> tuple[Condition, ...]:
    """Nothing will happen until somebody changes something. `is_ready`: what runs serves all the same."""
    return _three("True" if is_ready else "False", reason, message, reconciling="False", stalled="True")


def _three(ready: str, reason: str, message: str, *, reconciling: str, stalled: str) -> tuple[Condition, ...]:
    return (
        Condition(READY, ready, reason, message),
        Condition(RECONCILING, reconciling, reason, message if reconciling == "True" else ""),
        Condition(STALLED, stalled, reason, message if stalled == "True" else ""),
    )


def written(
    wanted: Iterable[Condition], standing: Iterable[Mapping[str, Any]], generation: int, now_ms: int
) -> list[dict[str, Any]]:
    """The wanted conditions as Kubernetes has them, times kept where the status has not changed."""
    by_type = {condition.get("type"): condition for condition in standing}
    result = []
    for condition in wanted:
        known = by_type.get(condition.type, {})
        same = known.get("status") == condition.status and known.get("lastTransitionTime")
        result.append(
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message[:MESSAGE_CHARACTERS_MAX],
                "observedGeneration": generation if condition.generation is None else condition.generation,
                "lastTransitionTime": known["lastTransitionTime"] if same else timestamp(now_ms),
            }
        )
    return result


def find(status: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """One condition of a status; empty when it has none such."""
    return next((one for one in status.get("conditions") or () if one.get("type") == name), {})


def standing(status: Mapping[str, Any], *names: str) -> tuple[Condition, ...]:
    """Those of these conditions that a status has, to be said again of the generation that they were about."""
    found = (find(status, name) for name in names)
    return tuple(
        Condition(one["type"], one["status"], one["reason"], one["message"], one.get("observedGeneration"))
        for one in found
        if one
    )


def timestamp(now_ms: int) -> str:
    """A time as Kubernetes writes it."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> int:
    """A time that Kubernetes took, in milliseconds.

    Raises:
        ValueError: it is none.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
