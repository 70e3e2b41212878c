"""The volume claims of a cluster's pods. Kubernetes makes and keeps them; they grow, and go with the cluster or stay.

Pure functions from the claims as they are to patches, called by `messaging_cluster`, and for a cluster that cannot be
read by `cluster_observing`. A claim that belongs to the cluster is removed by Kubernetes with it; all others stay.
"""

from collections.abc import Mapping
from typing import Any

from sterna_operator.builders import brokers as broker_builder
from sterna_operator.builders import differences
from sterna_operator.builders.blueprint import Blueprint
from sterna_operator.plans import PatchObject

Claims = Mapping[str, Mapping[str, Any]]


def grown(blueprint: Blueprint, claims: Claims) -> list[PatchObject]:
    """A StatefulSet's claim template cannot change: volumes that are to be larger are so one by one."""
    wanted = blueprint.spec.storage.size
    steps = []
    for name, claim in sorted(claims.items()):
        if not name.startswith(f"{broker_builder.VOLUME}-{blueprint.brokers}-"):
            continue
        standing = claim["spec"]["resources"]["requests"]["storage"]
        more, less = differences.quantity(wanted), differences.quantity(standing)
        if more is not None and less is not None and more > less:
            summary = f"let volume claim {name} grow from {standing} to {wanted}"
            patch = {"spec": {"resources": {"requests": {"storage": wanted}}}}
            steps.append(_patch(summary, blueprint.namespace, name, claim, patch))
    return steps


def owned(blueprint: Blueprint, claims: Claims) -> list[PatchObject]:
    """Volumes that are to go with the cluster belong to it, and only those: then Kubernetes removes them with it.

    Those of onlyIfEmpty do not. Brokers may confirm another message after they were last asked, and Kubernetes removes
    what belongs to a cluster at once when it is deleted in the foreground, whatever finalizer it has.
    """
    if blueprint.spec.deletion_policy != "delete":
        return disowned(blueprint.namespace, blueprint.uid, claims)
    owner = {key: value for key, value in blueprint.owner.items() if key not in ("controller", "blockOwnerDeletion")}
    steps = []
    for name, claim in sorted(claims.items()):
        others = _others(claim, blueprint.uid)
        if len(others) == len(_owners(claim)) and "deletionTimestamp" not in claim["metadata"]:
            summary = f"have volume claim {name} go with the cluster"
            patch = {"metadata": {"ownerReferences": [*others, owner]}}
            steps.append(_patch(summary, blueprint.namespace, name, claim, patch))
    return steps


def disowned(namespace: str, uid: str, claims: Claims) -> list[PatchObject]:
    """Those that belong to the cluster with this uid do so no more, and stay when it goes."""
    steps = []
    for name, claim in sorted(claims.items()):
        others = _others(claim, uid)
        if len(others) < len(_owners(claim)) and "deletionTimestamp" not in claim["metadata"]:
            summary = f"have volume claim {name} outlive the cluster"
            steps.append(_patch(summary, namespace, name, claim, {"metadata": {"ownerReferences": others}}))
    return steps


def _owners(claim: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(claim["metadata"].get("ownerReferences") or ())


def _others(claim: Mapping[str, Any], uid: str) -> list[Mapping[str, Any]]:
    return [one for one in _owners(claim) if one.get("uid") != uid]


def _patch(summary: str, namespace: str, name: str, claim: Mapping[str, Any], patch: Mapping[str, Any]) -> PatchObject:
    version = claim["metadata"]["resourceVersion"]
    return PatchObject(summary, "v1", "PersistentVolumeClaim", namespace, name, patch, version)
