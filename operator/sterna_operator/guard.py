"""What the charts ask before something is uninstalled: `python -m sterna_operator.guard operator|cluster NAME`.

Of a cluster it looks at the volumes that would go, and at the destinations of its release, which brokers may delete
with their messages while they still run.

Status 0: go on. Status 1: uninstalling now would leave objects that nobody looks after, or destroy messages; what to do
instead is printed. It reads what Kubernetes says and changes nothing. `helm uninstall --no-hooks` goes on all the same.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sterna_resources import names
from sterna_resources.status import UNOBSERVED

from sterna_operator import conditions
from sterna_operator.kube import STERNA_API, Kube, NotFoundError, Ref, load_configuration
from sterna_operator.objects import CLUSTER
from sterna_operator.plans import FINALIZER
from sterna_operator.settings import own_namespace
from sterna_operator.words import counted

KINDS = (CLUSTER, "Queue", "Topic", "Bridge", "DurableSubscription", "Store", "ConnectionFactory", "User")
RETAIN = "retain"
# The kinds that hold messages.
HOLDING = ("Queue", "Topic", "DurableSubscription")
_NAMED_MAX = 20
# With one of these an object that has no home waits for none.
_SETTLED = (conditions.READY, conditions.STALLED)
_GO_ON = "`helm uninstall --no-hooks` goes on all the same"


def operator_objection(found: list[Mapping[str, Any]]) -> str | None:
    """Why the operator may not go; None: it may. `found`: all objects that it looks after."""
    clusters = [_label(one) for one in found if one["kind"] == CLUSTER]
    held = [_label(one) for one in found if one["metadata"].get("finalizers")]
    if clusters:
        return (
            f"there are clusters that only this operator looks after:\n{_listed(clusters)}\n"
            f"Uninstall or delete them first; {_GO_ON}, and leaves their brokers running as they are."
        )
    if held:
        return (
            f"the operator still has to carry out what happens when these are deleted:\n{_listed(held)}\n"
            f"Delete them first; {_GO_ON}, and then they cannot be deleted until an operator is installed again."
        )
    return None


def cluster_objection(cluster: Mapping[str, Any] | None, *, replicas: int | None) -> str | None:
    """Why a cluster may not go; None: it may. `replicas`: of the StatefulSet of its brokers; None: there is none."""
    if cluster is None:
        return None
    policy = cluster["spec"].get("deletionPolicy", RETAIN)
    if policy == RETAIN:
        return _not_kept_yet(cluster) if replicas is not None else None
    told = _told(cluster, replicas)
    label, messages = _label(cluster), sum(told.messages.values())
    remedy = (
        "Receive or purge them, or set spec.deletionPolicy to retain, with which the volumes stay and a cluster of the "
        f"same name takes them up again; {_GO_ON}."
    )
    if messages:
        what = "they would be lost" if policy == "delete" else "its deletion would wait for them"
        return f"{label} holds {counted(messages, 'message')}, and its deletion policy is {policy}: {what}.\n{remedy}"
    doubt = told.fault or told.missing()
    if not doubt:
        return None
    return (
        f"the deletion policy of {label} is {policy}, and whether messages would be lost cannot be told: "
        f"{doubt}\n{remedy}"
    )


def _not_kept_yet(cluster: Mapping[str, Any]) -> str | None:
    """What may still take the volumes of a cluster along whose policy is retain by now; None: nothing."""
    behind = _behind(cluster)
    # The operator takes it away when it has seen that the policy is retain. A cluster that is paused it leaves alone.
    if not behind and FINALIZER not in (cluster["metadata"].get("finalizers") or ()):
        return None
    return (
        f"{_label(cluster)} is to leave its volumes, and the operator may not have seen to that: "
        f"{behind or f'the finalizer {FINALIZER} of another policy is still there'}. "
        f"Try again once it has. Is the cluster paused, or no operator installed? {_GO_ON}."
    )


def destinations_objection(
    found: Iterable[Mapping[str, Any]], cluster: Mapping[str, Any] | None, *, replicas: int | None
) -> str | None:
    """Why the destinations of a release may not go with it, whatever the cluster's own policy says; None: they may.

    `found`: its queues, topics and durable subscriptions. Helm deletes one kind after the other and waits for none, so
    that brokers which still run may carry out `delete` before the cluster is gone.
    """
    if cluster is None or replicas is None:
        # Without brokers nothing is carried out: the operator lets such objects go.
        return None
    told = _told(cluster, replicas)
    held = [f"{_label(one)}: {why}" for one in found if (why := _held(one, told))]
    if not held:
        return None
    doubt = f"Of {_label(cluster)}: {told.fault}\n" if told.fault else ""
    return (
        "these go with the release, and while the brokers still run they carry out what each one's deletion policy "
        f"says:\n{_listed(held)}\n{doubt}"
        "What a broker says it holds are the messages of all destinations on it. Receive or purge them, or set "
        f"spec.deletionPolicy of these objects to retain, with which they stay in the brokers; {_GO_ON}."
    )


@dataclass(frozen=True)
class _Told:
    """What is known of the messages that a cluster's brokers hold."""

    messages: Mapping[str, int]
    """How many each broker holds, as far as any was heard of."""

    silent: tuple[str, ...]
    """The brokers that there should be and that do not say at present."""

    expected: int
    """How many brokers there should be."""

    fault: str = ""
    """Why none of it can be relied on."""

    def missing(self) -> str:
        """Who did not say; empty: all did."""
        if not self.silent:
            return ""
        more = len(self.silent) - _NAMED_MAX
        named = ", ".join([*self.silent[:_NAMED_MAX], *([f"and {more} more"] if more > 0 else [])])
        return f"{len(self.silent)} of {counted(self.expected, 'broker')} did not say: {named}."


def _told(cluster: Mapping[str, Any], replicas: int | None) -> _Told:
    """The status lists brokers whose pods exist; one that has none may have a volume all the same.

    Without a StatefulSet there never were brokers, or somebody took them away: those that are listed count alone.
    """
    status = cluster.get("status") or {}
    listed = {one["name"]: one for one in status.get("brokers") or ()}
    wanted = 0 if replicas is None else max(int(cluster["spec"].get("brokers", 1)), replicas)
    names = [f"{cluster['metadata']['name']}-broker-{ordinal}" for ordinal in range(wanted)]
    names += sorted(listed.keys() - set(names))
    silent = tuple(
        name for name in names if not listed.get(name, {}).get("ready") or "messages" not in listed.get(name, {})
    )
    messages = {name: int(one.get("messages") or 0) for name, one in listed.items()}
    return _Told(messages, silent, len(names), _fault(cluster) if replicas is not None else "")


def _fault(cluster: Mapping[str, Any]) -> str:
    """Why the status of a cluster cannot be relied on; empty: it can."""
    if not (cluster.get("status") or {}).get("brokers"):
        return "its status says nothing of its brokers. Is an operator installed?"
    if behind := _behind(cluster):
        return f"{behind}. Try again once it has (status.observedGeneration tells). Is an operator installed?"
    stalled = _condition(cluster, conditions.STALLED)
    if stalled.get("status") == "True":
        # Somebody who paused it, say: what brokers hold is as it was found then.
        return f"its status may be old, since the operator says that it is stalled: {stalled.get('message', '')}."
    return ""


def _behind(found: Mapping[str, Any]) -> str:
    """That nobody has looked at an object since it was last changed; empty: somebody has."""
    seen = int((found.get("status") or {}).get("observedGeneration", UNOBSERVED))
    generation = int(found["metadata"].get("generation") or 0)
    if seen >= generation:
        return ""
    looked = f"its status is of generation {seen}" if seen != UNOBSERVED else "it has no status"
    return f"the operator has not looked at it since it was last changed ({looked}, and it has generation {generation})"


def _held(found: Mapping[str, Any], told: _Told) -> str:
    """What keeps one destination from going with its release; empty: nothing."""
    spec, status = found.get("spec") or {}, found.get("status") or {}
    policy = spec.get("deletionPolicy", RETAIN)
    waiting = int(status.get("messages") or 0)
    if policy == RETAIN or _is_pattern(found):
        return ""
    if waiting:
        # It is being deleted, and says itself what is in the way.
        return f"policy {policy}, and it holds {counted(waiting, 'message')}"
    if policy != "delete":
        # Brokers delete it when it is empty; otherwise it is let go as soon as its cluster is.
        return ""
    namespace = found["metadata"]["namespace"]
    if spec.get("clusterRef", {}).get("namespace", namespace) != namespace:
        return "policy delete, and its cluster is in another namespace, where it cannot be looked at"
    if not told.fault and not told.silent and not any(told.messages.values()):
        return ""
    if behind := _behind(found):
        return f"policy delete, and {behind}"
    return _held_at_home(found, status.get("home"), told)


def _held_at_home(found: Mapping[str, Any], home: str | None, told: _Told) -> str:
    """What keeps a destination with policy delete, whose status can be relied on."""
    if home is None and any(_condition(found, one).get("status") == "True" for one in _SETTLED):
        # It has nothing of its own in the brokers: refused, a name that is somebody else's, or only observed.
        return ""
    if told.fault:
        return "policy delete, and what the brokers hold cannot be told"
    if home is None:
        return "policy delete, and it does not say where it lives"
    if home in told.silent or home not in told.messages:
        return f"policy delete, and broker {home}, where it lives, did not say what it holds"
    count = told.messages[home]
    return f"policy delete, and broker {home}, where it lives, holds {counted(count, 'message')}" if count else ""


def _is_pattern(found: Mapping[str, Any]) -> bool:
    """Whether this is a wildcard entry, which holds no messages itself."""
    name = (found.get("spec") or {}).get("name") or found["metadata"]["name"]
    return found["kind"] != "DurableSubscription" and names.is_pattern(name)


def _condition(found: Mapping[str, Any], type: str) -> Mapping[str, Any]:  # noqa: A002 - Kubernetes' word
    return conditions.find(found.get("status") or {}, type)


def _label(object: Mapping[str, Any]) -> str:
    metadata = object["metadata"]
    return f"{object['kind']} {metadata['namespace']}/{metadata['name']}"


def _listed(labels: list[str]) -> str:
    shown = [f"  {label}" for label in sorted(labels)[:_NAMED_MAX]]
    more = len(labels) - len(shown)
    return "\n".join([*shown, *([f"  and {more} more"] if more else [])])


async def objection_of(arguments: list[str] | None = None) -> str | None:
    """What the command of these arguments has against it; None: nothing."""
    given = _parsed(arguments)
    kube = Kube(await load_configuration(None))
    try:
        if given.what == "cluster":
            return await _of_cluster(kube, given.name, given.release)
        namespaces = [name for name in given.namespaces.split(",") if name]
        found: list[Mapping[str, Any]] = []
        for namespace in namespaces or (None,):
            found += await _all(kube, KINDS, namespace, only_metadata=True)
        return operator_objection(found)
    finally:
        await kube.close()


async def _of_cluster(kube: Kube, name: str, release: str) -> str | None:
    namespace = own_namespace()
    stateful_set = await kube.get(Ref("apps/v1", "StatefulSet", namespace, f"{name}-broker"))
    replicas = None if stateful_set is None else int(stateful_set["spec"].get("replicas", 1))
    labels = f"app.kubernetes.io/instance={release}"
    found = await _all(kube, HOLDING, namespace, labels=labels) if release else []
    cluster = await kube.get(Ref(STERNA_API, CLUSTER, namespace, name))
    objections = (
        cluster_objection(cluster, replicas=replicas),
        destinations_objection(found, cluster, replicas=replicas),
    )
    return "\n".join(one for one in objections if one is not None) or None


async def _all(kube: Kube, kinds: Iterable[str], namespace: str | None, **how: Any) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for kind in kinds:
        try:
            found += await kube.list(STERNA_API, kind, namespace, **how)
        except NotFoundError:
            # The definition is gone, and with it all objects.
            continue
    return found


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("sterna_operator.guard", description=__doc__.split("\n", 1)[0])
    asked = parser.add_subparsers(dest="what", required=True)
    asked.add_parser("operator").add_argument("--namespaces", default="", help="looked after by it, comma between")
    cluster = asked.add_parser("cluster")
    cluster.add_argument("name")
    cluster.add_argument("--release", default="", help="whose queues, topics and durable subscriptions go with it")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    objection = asyncio.run(objection_of(arguments))
    if objection is not None:
        print(f"refused: {objection}", file=sys.stderr)
    return 0 if objection is None else 1


if __name__ == "__main__":
    sys.exit(main())
