"""Why a pod does not run, from its status: the scheduler's words, the kubelet's, and the broker's own last ones.

A broker that ends before it serves says why on stderr, in lines that begin with `sterna broker:`. The kubelet keeps the
end of what a container wrote with how it ended (`terminationMessagePolicy`, see builders/brokers.py); its own words for
that say no more than that it waits.
"""

import json
from collections.abc import Mapping
from typing import Any

_OWN = "sterna broker: "
_CHARACTERS_MAX = 500
# The kubelet's reasons that say what happened better than a status does.
_TOLD = ("OOMKilled", "ContainerCannotRun", "StartError", "DeadlineExceeded")
# The kubelet is at it, and nothing is wrong.
_ON_ITS_WAY = (None, "ContainerCreating", "PodInitializing")


def fault(status: Mapping[str, Any]) -> str | None:
    """Why a pod cannot run; None: nothing is known."""
    for container in status.get("containerStatuses") or ():
        state = container.get("state") or {}
        if "terminated" in state:
            return _end(state["terminated"])
        waiting = state.get("waiting") or {}
        if waiting.get("reason") not in _ON_ITS_WAY:
            last = (container.get("lastState") or {}).get("terminated")
            words = _end(last) if last is not None else waiting.get("message", "")
            return f"{waiting['reason']}: {words}".rstrip(": ")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"not scheduled: {condition.get('message', '')}".rstrip(": ")
    return None


def ended(status: Mapping[str, Any]) -> str | None:
    """How the last run of a container ended that is being started anew; None: it is its first, or it has come up."""
    for container in status.get("containerStatuses") or ():
        last = (container.get("lastState") or {}).get("terminated")
        if last is not None and "terminated" not in (container.get("state") or {}) and not container.get("ready"):
            return f"is being started anew: {_end(last)}"
    return None


def last_words(text: str) -> str:
    """What a broker said last, in one line, of the end of what it wrote."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if line.startswith(_OWN)]
    last = _of_log(lines[-1]) if lines else ""
    words = " ".join(lines[begins[-1] :]).removeprefix(_OWN) if begins else last
    return words if len(words) <= _CHARACTERS_MAX else f"{words[:_CHARACTERS_MAX]}…"


def _of_log(line: str) -> str:
    """A line of a log: of one in JSON what happened, and why."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    if not isinstance(record, dict):
        return line
    told = (record.get("event"), record.get("error") or record.get("exception"))
    return ": ".join(" ".join(str(one).split()) for one in told if one) or line


def _end(terminated: Mapping[str, Any]) -> str:
    """How a container ended."""
    reason, words = terminated.get("reason"), last_words(terminated.get("message") or "")
    how = f"ended with status {terminated.get('exitCode')}"
    if reason in _TOLD:
        how = f"{reason}, {how}"
    return f"{how}: {words}" if words else how
