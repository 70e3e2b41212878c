"""What the status of a MessagingCluster says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sterna_operator import conditions
from sterna_operator.builders.blueprint import Blueprint
from sterna_operator.conditions import Condition
from sterna_operator.kinds.cluster_certificate import CERTIFICATE_VALID, Judged
from sterna_operator.kinds.cluster_rolling import Pod, Rolling
from sterna_operator.kinds.cluster_scaling import Members, Scaling
from sterna_operator.kinds.cluster_seen import Desired
from sterna_operator.kinds.cluster_taken import Late
from sterna_operator.kinds.holds import Pause
from sterna_operator.plans import Wanted
from sterna_operator.words import counted

_KEPT = (
    "replicas",
    "readyBrokers",
    "selector",
    "image",
    "operatorVersion",
    "etcd",
    "etcdImage",
    "etcdId",
    "etcdRevision",
    "url",
    "externalUrls",
    "connectionSecret",
    "certificateNotAfter",
    "brokers",
)


# So many brokers are named in a message.
_NAMED_MAX = 3
_MESSAGE_CHARACTERS_MAX = 1_024
# So long after it was to have ended a pod is still on its way: the kubelet looks now and then.
_GOING_MS = 15_000


@dataclass(frozen=True)
class Facts:
    """What it is made of."""

    blueprint: Blueprint
    pods: tuple[Pod, ...]
    members: Members
    scaling: Scaling
    rolling: Rolling
    serving: frozenset[str]
    missing_secrets: tuple[str, ...]
    pending: tuple[str, ...]
    put_back: tuple[str, ...]
    immutable: tuple[str, ...]
    late: Late
    lacks_cert_manager: bool
    operator_version: str
    refused_pods: Mapping[str, str]
    certificate: Judged | None
    maintenance: Mapping[str, Any] | None
    now_ms: int


def kept(status: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a status that stand while nothing new is known."""
    return {name: status[name] for name in _KEPT if name in status}


def paused(
    pause: Pause, desired: Desired, replicas: int | None, pods: Collection[Pod], serving: Collection[str]
) -> Wanted:
    """The status of a cluster that is paused: what was said, but for who serves, which goes on without the operator.

    `replicas`: how many brokers Kubernetes is to run; None: none were made.
    """
    note = f"{len(serving)} of {replicas or 0} brokers serve"
    is_well = replicas is not None and len(serving) >= replicas
    said = pause.said(desired.status, desired.generation, is_well=is_well, note=note)
    # As it was judged by the Secrets of before: those that the manifest names now may be others.
    said += conditions.standing(desired.status, CERTIFICATE_VALID)
    fields = kept(desired.status)
    if "readyBrokers" in fields:
        brokers = [{**one, "ready": one["name"] in serving} for one in fields.get("brokers") or ()]
        there = len([pod for pod in pods if not pod.is_going])
        fields |= {"replicas": there, "readyBrokers": len(serving), "brokers": brokers}
    return Wanted(said, fields)


def wanted(facts: Facts) -> tuple[Wanted, bool]:
    """The status, and whether all is settled."""
    said = _conditions(facts)
    settled = said[0].status == "True" and facts.members.fault is None
    if facts.certificate is not None:
        said = (*said, facts.certificate.condition())
    return Wanted(said, _fields(facts)), settled


def _conditions(facts: Facts) -> tuple[Condition, ...]:
    blueprint, rolling = facts.blueprint, facts.rolling
    brokers = blueprint.spec.brokers
    ready = sum(blueprint.broker(ordinal) in facts.serving for ordinal in range(brokers))
    serving = f"{ready} of {brokers} brokers serve"
    if facts.lacks_cert_manager:
        return conditions.stalled(
            "ReferenceMissing", "cert-manager is not installed: give tls.secretName, or install it"
        )
    if facts.missing_secrets:
        return conditions.reconciling("ReferenceMissing", f"waits for Secret {', '.join(facts.missing_secrets)}")
    if facts.certificate is not None and (fault := facts.certificate.fault):
        # Who serves with what it has read before goes on.
        is_ready = ready == brokers and not facts.certificate.has_expired
        text = "; ".join([serving, fault, *_named(facts)])
        return conditions.stalled("CertificateInvalid", text, is_ready=is_ready)
    if facts.scaling.waiting:
        broker, text = max(facts.scaling.waiting.items())
        reason = "DrainBlocked" if broker in facts.scaling.blocked else "Draining"
        return conditions.reconciling(reason, f"{serving}; broker {broker} {text}")
    if blueprint.replicas != brokers:
        return conditions.reconciling("Scaling", "; ".join([serving, *_named(facts)]))
    if rolling.outdated:
        waits = f"; waits for {rolling.waits_for}" if rolling.waits_for else ""
        text = f"{serving}; {rolling.outdated} are to be restarted{waits}"
        return conditions.reconciling("Rolling", "; ".join([text, *_named(facts)]))
    if ready < brokers:
        return conditions.reconciling("Starting", "; ".join([serving, *_named(facts)]))
    if facts.members.fault is not None:
        # Brokers go on with the configuration that they have.
        return conditions.reconciling(facts.members.fault[0], f"{serving}; {facts.members.fault[1]}", is_ready=True)
    if facts.pending:
        text = f"{serving}; no address yet: {', '.join(facts.pending[:3])}"
        return conditions.reconciling("AddressPending", text, is_ready=True)
    if late := facts.late.words():
        return conditions.reconciling("Updating", f"{serving}; {late}", is_ready=True)
    notes = [serving, *(_stranded(broker, count) for broker, count in facts.scaling.stranded.items())]
    if blueprint.spec.etcd.managed is not None:
        notes.append("etcd has one member, which is for trying things out")
    if blueprint.spec.insecure:
        notes.append("insecure: without TLS or users")
    if facts.certificate is not None and facts.certificate.note:
        notes.append(facts.certificate.note)
    if facts.put_back:
        others = ", ".join(facts.put_back[:3])
        notes.append(f"changed again by the API server or a webhook as soon as it is put right, and left so: {others}")
    if facts.immutable:
        notes.append(f"immutable, so that it cannot be put right unless it is deleted: Secret {facts.immutable[0]}")
    notes += sorted({warning for status in facts.members.statuses.values() for warning in status.warnings})[:3]
    return conditions.ready("Serving", "; ".join(notes))


def _stranded(broker: str, count: int) -> str:
    return (
        f"{counted(count, 'destination')} cannot be reached, since the cluster has no broker {broker}: "
        'more brokers bring it back, sterna.dev/force-drain: "true" gives up what it holds'
    )


def _named(facts: Facts) -> list[str]:
    """Why brokers do not serve, of the first of them."""
    faults = {pod.name: fault for pod in facts.pods if (fault := _fault(facts, pod))} | dict(facts.refused_pods)
    return [f"{name}: {fault}" for name, fault in sorted(faults.items())[:_NAMED_MAX]]


def warnings(facts: Facts) -> list[str]:
    """What somebody has to see to before a broker can serve, each as an event says it."""
    seen = {
        pod.name: fault
        for pod in facts.pods
        if (fault := _overdue(facts, pod) or pod.fault or _unready(facts, pod) or _broken_off(pod))
    }
    return [f"{name} does not serve: {fault}" for name, fault in sorted((seen | dict(facts.refused_pods)).items())]


def _broken_off(pod: Pod) -> str | None:
    return None if pod.is_ready or pod.is_going else pod.ended


def _unready(facts: Facts, pod: Pod) -> str | None:
    return None if pod.name in facts.serving else _reasons(facts, pod)


def _reasons(facts: Facts, pod: Pod) -> str | None:
    """Why the broker itself says that it is not ready; None: it does not say."""
    record, status = facts.members.live.get(pod.name), facts.members.statuses.get(pod.name)
    if record is None or status is None or status.incarnation != record.incarnation or pod.is_going:
        return None
    return "; ".join(status.reasons) or None


def _overdue(facts: Facts, pod: Pod) -> str | None:
    """That a pod was deleted, and does not go: its node is away, say. None: it has its time still, or stays."""
    if pod.going_since_ms is None or facts.now_ms - pod.going_since_ms < _GOING_MS:
        return None
    since = conditions.timestamp(pod.going_since_ms)
    return (
        f"Terminating, and was to have ended at {since}: its node does not answer, perhaps. No other pod can take its "
        "place until it has; kubectl delete pod --force, once it is certain that it does not run any more"
    )


def _fault(facts: Facts, pod: Pod) -> str | None:
    """Why a pod does not serve, as far as that can be seen."""
    if (overdue := _overdue(facts, pod)) is not None:
        return overdue
    if pod.fault is None and pod.name not in facts.serving and (reasons := _reasons(facts, pod)):
        return reasons
    if pod.fault is None and not pod.is_ready and not pod.is_going and pod.ended is not None:
        return pod.ended
    if pod.fault is None and pod.is_ready and not pod.is_going and pod.name not in facts.serving:
        # Kubernetes takes a node that is gone for well for most of a minute.
        return (
            "it is ready, and not registered in etcd: it is cut off from etcd, and serves clients with what it knows, "
            "or its node is gone"
        )
    return pod.fault


def _fields(facts: Facts) -> dict[str, Any]:
    blueprint = facts.blueprint
    selector = ",".join(f"{key}={value}" for key, value in sorted(blueprint.selector("broker").items()))
    return {
        "replicas": len([pod for pod in facts.pods if not pod.is_going]),
        "readyBrokers": len(facts.serving),
        "selector": selector,
        "image": blueprint.image,
        "operatorVersion": facts.operator_version,
        "etcd": "managed" if blueprint.spec.etcd.managed is not None else "external",
        "etcdImage": blueprint.etcd_image if blueprint.spec.etcd.managed is not None else None,
        "url": blueprint.url,
        "externalUrls": list(blueprint.outside_urls),
        "connectionSecret": blueprint.connection_secret,
        "certificateNotAfter": _not_after(facts),
        "maintenance": facts.maintenance,
        "brokers": _brokers(facts),
    }


def _not_after(facts: Facts) -> str | None:
    end = facts.certificate.not_after_ms if facts.certificate is not None else None
    return None if end is None else conditions.timestamp(end)


def _brokers(facts: Facts) -> list[dict[str, Any]]:
    """Each broker that has a pod, or should have one and may not."""
    said = {pod.name: _broker(facts, pod) for pod in sorted(facts.pods, key=lambda pod: pod.ordinal)}
    refused = {
        name: {"name": name, "ready": False, "message": text[:_MESSAGE_CHARACTERS_MAX]}
        for name, text in sorted(facts.refused_pods.items())
        if name not in said
    }
    return [*said.values(), *refused.values()]


def _broker(facts: Facts, pod: Pod) -> dict[str, Any]:
    members = facts.members
    said: dict[str, Any] = {"name": pod.name, "ready": pod.name in facts.serving, "image": pod.image}
    if (record := members.live.get(pod.name)) is not None:
        said |= {"version": record.version, "addresses": list(record.addresses), "destinations": record.destinations}
    if (status := members.statuses.get(pod.name)) is not None:
        said["appliedRevision"] = status.applied_revision
        said["messages"] = status.messages if status.draining is None else status.draining.messages
    if pod.name in members.drains:
        said["draining"] = True
    if (fault := _fault(facts, pod)) is not None:
        said["message"] = fault[:_MESSAGE_CHARACTERS_MAX]
    return said
