"""Runs, as their Jobs and pods show them: one that goes on, or what came of one that has ended.

A run has ended when its Job says so. Its Job may have had several pods, of which one may have said a result; if none
has, how the last of them ended is why the run failed, and where there is none, what its Job says.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sterna_operator import schedules
from sterna_operator.conditions import parse_timestamp
from sterna_operator.kinds import audit_result, pod_words

_SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_WORDS_CHARACTERS_MAX = 300
_SUSPENDED = "somebody has suspended it (spec.suspend of the Job)"


@dataclass(frozen=True)
class Ended:
    """A run that has ended. `status`: as a status shows it; `told`: the result in the pod's own words, if any."""

    run: str
    status: Mapping[str, Any]
    told: str | None = None

    @property
    def ended_ms(self) -> int:
        """When it ended."""
        return parse_timestamp(str(self.status["endedAt"]))

    @property
    def verdict(self) -> str:
        """The worst of what was found, or `failed`."""
        return str(self.status["verdict"])

    @property
    def is_good(self) -> bool:
        """Whether it came to its end, and found nothing violated."""
        return self.verdict not in ("violated", "failed")

    @property
    def began_ms(self) -> int:
        """When it was due, or began."""
        begun = self.status.get("scheduledAt") or self.status.get("startedAt") or self.status["endedAt"]
        return parse_timestamp(str(begun))


@dataclass(frozen=True)
class Running:
    """A run that goes on. `fault`: what keeps its pod from running, if it does not."""

    run: str
    started_ms: int | None
    fault: str | None = None


def read(
    job: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    *,
    prefix: str,
    refused: str | None = None,
    known_fault: str | None = None,
    known: Mapping[str, Any] | None = None,
) -> Ended | Running:
    """One run. `prefix`: of the names that Kubernetes makes. `refused`: why no pod of it could be made.

    `known_fault`: what kept its pod from running when it was last looked at; a pod that waited in vain is gone when its
    time is over. `known`: what was said of it before, when it had ended; its pod, and what was kept of it, may be gone.
    """
    metadata, status = job["metadata"], job.get("status") or {}
    run = metadata["name"]
    of_it = sorted(
        (pod for pod in pods if _is_of(pod, metadata["uid"])), key=lambda pod: str(pod["metadata"]["creationTimestamp"])
    )
    over = _over(job)
    started_ms = parse_timestamp(str(status.get("startTime") or metadata["creationTimestamp"]))
    if over is None:
        if job["spec"].get("suspend"):
            return Running(run, started_ms, _SUSPENDED)
        earlier = None if known_fault == _SUSPENDED else known_fault
        return Running(run, started_ms, _waiting(of_it) if of_it else refused or earlier)
    scheduled_ms = _scheduled(metadata, prefix)
    over_ms = parse_timestamp(
        str(over.get("lastTransitionTime") or status.get("completionTime") or metadata["creationTimestamp"])
    )
    words = []
    for pod in reversed(of_it):
        text = _last_words(pod)
        if text is None:
            continue
        try:
            found = audit_result.read(text, run)
        except audit_result.ResultError as error:
            words.append(str(error))
            continue
        return Ended(run, audit_result.status(_within(found, started_ms, over_ms), run, scheduled_ms), text)
    if known is not None:
        return Ended(run, known)
    why = _why(of_it, over, words, refused or known_fault)
    return Ended(run, audit_result.failed(run, scheduled_ms, started_ms, over_ms, why))


def _within(result: audit_result.Result, began_ms: int, over_ms: int) -> audit_result.Result:
    """The result with times within its Job's: which run is the newest goes by one clock, not by that of each node."""
    over_ms = max(began_ms, over_ms)
    ended_ms = min(max(result.ended_ms, began_ms), over_ms)
    return result.model_copy(
        update={"started_ms": min(max(result.started_ms, began_ms), ended_ms), "ended_ms": ended_ms}
    )


def is_over(job: Mapping[str, Any]) -> bool:
    """Whether a run has ended, well or not."""
    return _over(job) is not None


def is_well(job: Mapping[str, Any]) -> bool:
    """Whether a Job has ended well."""
    over = _over(job)
    return over is not None and over["type"] == "Complete"


def _over(job: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a Job says of its end; None: it goes on."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one["type"] in ("Complete", "Failed") and one["status"] == "True":
            found: Mapping[str, Any] = one
            return found
    return None


def _is_of(pod: Mapping[str, Any], uid: str) -> bool:
    return any(one.get("uid") == uid for one in pod["metadata"].get("ownerReferences") or ())


def _scheduled(metadata: Mapping[str, Any], prefix: str) -> int | None:
    """When the run was due; None: somebody has begun it by hand."""
    text = (metadata.get("annotations") or {}).get(_SCHEDULED)
    if text:
        try:
            return parse_timestamp(str(text))
        except ValueError:
            return None
    return schedules.minute_of(metadata["name"], prefix)


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        if one["name"] == "audit":
            found: Mapping[str, Any] = one.get("state") or {}
            return found
    return {}


def _last_words(pod: Mapping[str, Any]) -> str | None:
    """A pod's termination message; None: it has not ended, or cannot have said any."""
    ended = _container(pod).get("terminated")
    return None if ended is None else str(ended.get("message") or "")


def _waiting(pods: Iterable[Mapping[str, Any]]) -> str | None:
    """Why the last pod of a run does not run."""
    last = list(pods)[-1:]
    if not last or _last_words(last[0]) is not None:
        return None
    return pod_words.fault(last[0].get("status") or {})


def _why(pods: list[Mapping[str, Any]], over: Mapping[str, Any], unreadable: list[str], earlier: str | None) -> str:
    """Why a run failed that has said no result."""
    said = f"{over.get('reason') or over['type']}: {over.get('message') or ''}".rstrip(": ")
    if over["type"] == "Complete":
        said = "its Job has completed"
    for pod in reversed(pods):
        status = pod.get("status") or {}
        fault = pod_words.fault(status)
        if fault is None and status.get("reason"):
            # Evicted, say: the kubelet, or who takes nodes away, speaks for the whole pod.
            fault = f"{status['reason']}: {status.get('message') or ''}".rstrip(": ")
        if fault is not None:
            none = f"; it said no result ({unreadable[0][:_WORDS_CHARACTERS_MAX]})" if unreadable else ""
            return f"pod {pod['metadata']['name']} {fault}{none}; {said}"
    return f"{earlier}; {said}" if earlier else f"no pod of it is left to say why; {said}"
