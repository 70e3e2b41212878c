"""What the charts ask before something is uninstalled: `python -m sterna_operator.guard operator|cluster NAME`.

Status 0: go on. Status 1: uninstalling now would leave objects that nobody looks after, or destroy messages; what to do
instead is printed. It reads what Kubernetes says and changes nothing. `helm uninstall --no-hooks` goes on all the same.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from sterna_operator.kube import STERNA_API, Kube, NotFoundError, Ref, load_configuration
from sterna_operator.settings import own_namespace
from sterna_operator.words import counted

CLUSTER = "MessagingCluster"
KINDS = (CLUSTER, "Queue", "Topic", "Bridge", "DurableSubscription", "Store", "User")
_NAMED_MAX = 20
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


def cluster_objection(cluster: Mapping[str, Any] | None, *, has_brokers: bool) -> str | None:
    """Why a cluster may not go; None: it may. `has_brokers`: the StatefulSet of its brokers exists."""
    if cluster is None:
        return None
    policy = cluster["spec"].get("deletionPolicy", "retain")
    if policy == "retain":
        return None
    status = cluster.get("status") or {}
    brokers = status.get("brokers") or []
    messages = sum(int(broker.get("messages") or 0) for broker in brokers)
    label = _label(cluster)
    remedy = (
        "Receive or purge them, or set spec.deletionPolicy to retain, with which the volumes stay and a cluster of the "
        f"same name takes them up again; {_GO_ON}."
    )
    if messages:
        what = "they would be lost" if policy == "delete" else "its deletion would wait for them"
        return f"{label} holds {counted(messages, 'message')}, and its deletion policy is {policy}: {what}.\n{remedy}"
    if has_brokers and not brokers:
        return (
            f"the deletion policy of {label} is {policy}, and its status says nothing of its brokers, so that whether "
            f"messages would be lost cannot be told. Is an operator installed?\n{remedy}"
        )
    silent = [broker["name"] for broker in brokers if not broker.get("ready") or "messages" not in broker]
    if silent:
        return (
            f"the deletion policy of {label} is {policy}, and whether messages would be lost cannot be told: "
            f"{', '.join(silent)} did not say.\n{remedy}"
        )
    return None


def _label(object: Mapping[str, Any]) -> str:
    metadata = object["metadata"]
    return f"{object['kind']} {metadata['namespace']}/{metadata['name']}"


def _listed(labels: list[str]) -> str:
    shown = [f"  {label}" for label in sorted(labels)[:_NAMED_MAX]]
    more = len(labels) - len(shown)
    return "\n".join([*shown, *([f"  and {more} more"] if more else [])])


async def _objection(given: argparse.Namespace) -> str | None:
    kube = Kube(await load_configuration(None))
    try:
        if given.what == "cluster":
            namespace = own_namespace()
            brokers = await kube.get(Ref("apps/v1", "StatefulSet", namespace, f"{given.name}-broker"))
            cluster = await kube.get(Ref(STERNA_API, CLUSTER, namespace, given.name))
            return cluster_objection(cluster, has_brokers=brokers is not None)
        found: list[Mapping[str, Any]] = []
        namespaces = [name for name in given.namespaces.split(",") if name]
        for kind in KINDS:
            for namespace in namespaces or (None,):
                try:
                    found += await kube.list(STERNA_API, kind, namespace, only_metadata=True)
                except NotFoundError:
                    # The definitions are gone, and with them all objects.
                    continue
        return operator_objection(found)
    finally:
        await kube.close()


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser("sterna_operator.guard", description=__doc__.split("\n", 1)[0])
    asked = parser.add_subparsers(dest="what", required=True)
    asked.add_parser("operator").add_argument("--namespaces", default="", help="looked after by it, comma between")
    asked.add_parser("cluster").add_argument("name")
    objection = asyncio.run(_objection(parser.parse_args(arguments)))
    if objection is not None:
        print(f"refused: {objection}", file=sys.stderr)
    return 0 if objection is None else 1


if __name__ == "__main__":
    sys.exit(main())
