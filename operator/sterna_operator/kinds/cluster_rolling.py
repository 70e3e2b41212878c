"""Which broker is restarted next: one at a time, each serving again before the next.

A pod is out of date when what it was made for is no longer what is wanted (its settings annotation). A pod that does
not serve anyway goes first, for nothing is lost with it; perhaps it is what the change is to repair. While any broker
is away for another reason nothing that serves is touched.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sterna_operator.builders.blueprint import FORM_ANNOTATION, SETTINGS_ANNOTATION
from sterna_operator.conditions import parse_timestamp
from sterna_operator.kinds import pod_words


@dataclass(frozen=True)
class Pod:
    """What matters of a broker's pod."""

    name: str
    uid: str
    ordinal: int
    settings: str
    image: str
    secrets: str
    host_ip: str | None
    is_ready: bool
    is_going: bool
    fault: str | None = None
    """Why it cannot run, as the kubelet, the scheduler or its own last words say it; None: nothing is known."""

    ended: str | None = None
    """How its last run ended, where it is being started anew."""

    going_since_ms: int | None = None
    """When it was to have ended; None: nobody has deleted it."""

    version: str = ""
    """Its resourceVersion when it was seen."""

    form: str = ""
    """By which defaults the hash of its settings was made; "": by those of before the first that changed."""


@dataclass(frozen=True)
class Rolling:
    """The decision: the pod to restart now (None: none), and how many are out of date altogether."""

    restart: Pod | None
    outdated: int
    waits_for: str | None = None


def read(manifest: Mapping[str, Any], secrets_annotation: str) -> Pod:
    """From the pod as the API server has it."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    annotations = metadata.get("annotations") or {}
    containers = manifest["spec"]["containers"]
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        ordinal=int(metadata["name"].rpartition("-")[2]),
        settings=annotations.get(SETTINGS_ANNOTATION, ""),
        image=containers[0]["image"],
        secrets=annotations.get(secrets_annotation, ""),
        host_ip=status.get("hostIP"),
        is_ready=ready,
        is_going="deletionTimestamp" in metadata,
        fault=pod_words.fault(status),
        ended=pod_words.ended(status),
        going_since_ms=parse_timestamp(metadata["deletionTimestamp"]) if "deletionTimestamp" in metadata else None,
        version=metadata["resourceVersion"],
        form=annotations.get(FORM_ANNOTATION, ""),
    )


def decide(
    pods: Iterable[Pod],
    replicas: int,
    wanted: str,
    serving: frozenset[str],
    former: Mapping[str, str] = MappingProxyType({}),
) -> Rolling:
    """`serving`: the brokers that clients can use now, by all that is known.

    `wanted`: the hash of the settings. `former`: by the forms of before, what pods of each have for the same settings.
    """
    there = sorted((pod for pod in pods if not pod.is_going), key=lambda pod: pod.ordinal)
    outdated = [pod for pod in there if pod.settings not in (wanted, former.get(pod.form)) and pod.ordinal < replicas]
    if not outdated:
        return Rolling(None, 0)
    away = replicas - sum(pod.name in serving and pod.ordinal < replicas for pod in there)
    broken = [pod for pod in outdated if pod.name not in serving]
    if away > len(broken):
        # One is being restarted. Who does not serve beside it may only have missed a probe, unless it cannot run.
        broken = [pod for pod in broken if pod.fault is not None]
    if broken:
        return Rolling(broken[-1], len(outdated))
    if away:
        missing = next((pod.name for pod in there if pod.name not in serving), "a broker that is being started")
        return Rolling(None, len(outdated), missing)
    return Rolling(outdated[-1], len(outdated))
