"""What a kind's `decide` may look at: the world as the operator knows it.

Reading is free; nothing may be written from there. Whatever is to be done is a step of the plan.
"""

import time  # noqa: TID251 - the operator as a process is not simulated
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sterna_etcd.records import ClaimRecord
from sterna_resources.messaging_cluster import MessagingCluster
from sterna_resources.problems import ManifestError

from sterna_operator.builders import etcd
from sterna_operator.clusters import Clusters, managed_etcd_urls
from sterna_operator.endpoints import same_place
from sterna_operator.keys import Key
from sterna_operator.kube import Kube, KubeError, Ref
from sterna_operator.named_watches import NamedWatches
from sterna_operator.objects import CLUSTER, Objects, key_of
from sterna_operator.own_writes import OwnWrites
from sterna_operator.plans import Plan
from sterna_operator.put_back import PutBack
from sterna_operator.resources import resource_of
from sterna_operator.secrets import Secrets
from sterna_operator.settings import OperatorSettings
from sterna_operator.store import ClusterStore


@dataclass(frozen=True)
class View:
    """Everything that may be asked."""

    settings: OperatorSettings
    kube: Kube
    objects: Objects
    clusters: Clusters
    secrets: Secrets
    put_back: PutBack = field(default_factory=PutBack)
    named: NamedWatches | None = None
    own_writes: OwnWrites = field(default_factory=OwnWrites)

    def now_ms(self) -> int:
        """The time, in milliseconds since 1970."""
        return int(time.time() * 1000)

    async def namespace_is_going(self, name: str) -> bool:
        """Whether a namespace is being deleted. One that we may not look at counts as staying."""
        try:
            namespace = await self.kube.get(Ref("v1", "Namespace", "", name))
        except KubeError as error:
            if error.code == 403:
                return False
            raise
        return namespace is None or "deletionTimestamp" in namespace["metadata"]


def rival(view: View, object: Mapping[str, Any], cluster: MessagingCluster) -> Key | None:
    """A cluster that has the place in etcd that this one asks for; None: nobody has.

    Who has it must not depend on who is looked at first: whoever has used an etcd already (its status says so) comes
    before all others, then whoever was made first. The etcd that the operator runs for a cluster is that one's in any
    case: nobody of another namespace can be there before it.
    """
    if cluster.spec.etcd.managed is not None:
        return None
    own, place = _claim_to_etcd(object), _place(object, cluster)
    for key in view.objects.keys(CLUSTER):
        other = view.objects.get(key)
        if other is None or key == key_of(object) or not (_is_managed(other) or _claim_to_etcd(other) <= own):
            continue
        try:
            its, _ = resource_of(other)
        except ManifestError:
            continue
        assert isinstance(its, MessagingCluster)
        if its.etcd_name == cluster.etcd_name and same_place(place, _place(other, its)):
            return key
    return None


def stands(objects: Objects, claim: ClaimRecord) -> bool:
    """Whether the MessagingCluster that a place in etcd is claimed for exists, where we look after its namespace."""
    found = objects.get(Key(CLUSTER, claim.namespace, claim.name))
    return found is not None and found["metadata"]["uid"] == claim.uid


def _place(object: Mapping[str, Any], cluster: MessagingCluster) -> Sequence[str]:
    """Where a cluster's etcd is."""
    metadata = object["metadata"]
    return cluster.spec.etcd.endpoints or managed_etcd_urls(metadata["namespace"], metadata["name"])


def _is_managed(object: Mapping[str, Any]) -> bool:
    etcd = (object.get("spec") or {}).get("etcd")
    return isinstance(etcd, Mapping) and etcd.get("managed") is not None


def _claim_to_etcd(object: Mapping[str, Any]) -> tuple[bool, str, str]:
    has_used = bool((object.get("status") or {}).get("etcdId"))
    return not has_used, str(object["metadata"].get("creationTimestamp") or "~"), str(key_of(object))


async def open_etcd(view: View, object: Mapping[str, Any]) -> None:
    """Opens the etcd of a MessagingCluster, unless it is open; one that cannot be read has none.

    Raises:
        KubeError: a Secret that is needed cannot be read.
    """
    key = key_of(object)
    try:
        resource, _ = resource_of(object)
    except ManifestError as error:
        await view.clusters.refuse(key, "; ".join(f"{one.field}: {one.message}" for one in error.problems))
        return
    assert isinstance(resource, MessagingCluster)
    await ensure_etcd(view, object, resource, object.get("status") or {})


async def ensure_etcd(
    view: View,
    object: Mapping[str, Any],
    cluster: MessagingCluster,
    status: Mapping[str, Any],
    *,
    takes_over: bool = False,
) -> None:
    """Opens the etcd of a cluster, as whoever the object is. `takes_over`: whoever had the place there before.

    Raises:
        KubeError: a Secret that is needed cannot be read.
    """
    rivals = rival(view, object, cluster)
    claimant = await _claimant(view, object)
    is_secured = await _is_etcd_secured(view, object, cluster)
    await view.clusters.ensure(
        key_of(object),
        cluster,
        view.secrets,
        status,
        rivals,
        claimant=claimant,
        takes_over=takes_over,
        is_secured=is_secured,
    )


async def _is_etcd_secured(view: View, object: Mapping[str, Any], cluster: MessagingCluster) -> bool:
    """Whether the etcd that the operator runs for the cluster speaks TLS."""
    managed, metadata = cluster.spec.etcd.managed, object["metadata"]
    if managed is None:
        return False
    ref = Ref("apps/v1", "StatefulSet", metadata["namespace"], f"{metadata['name']}-etcd")
    return etcd.is_secured(managed, await view.kube.get(ref) if managed.tls is None else None)


async def _claimant(view: View, object: Mapping[str, Any]) -> ClaimRecord:
    """How the cluster names itself in etcd."""
    metadata = object["metadata"]
    store = view.clusters.get(key_of(object))
    if store is not None and store.claimant is not None and store.claimant.uid == metadata["uid"]:
        return store.claimant
    kubernetes = ""
    try:
        namespace = await view.kube.get(Ref("v1", "Namespace", "", metadata["namespace"]))
        kubernetes = str(namespace["metadata"]["uid"]) if namespace is not None else ""
    except KubeError as error:
        if error.code != 403:
            raise
    return ClaimRecord(
        operator=view.settings.claim,
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        kubernetes=kubernetes,
    )


@dataclass(frozen=True)
class Decision:
    """A plan, and the etcd that its steps concern (None: it has no steps for etcd).

    `is_ahead`: that etcd is still being read, and what the plan rests on was read ahead of the rest.
    """

    plan: Plan
    store: ClusterStore | None = None
    is_ahead: bool = False


@dataclass(frozen=True)
class Child:
    """A kind of objects that the operator makes, and is to be told of. They carry `sterna.dev/cluster: <name>`."""

    api_version: str
    kind: str


class Kind(Protocol):
    """What the operator knows of one kind."""

    @property
    def name(self) -> str:
        """`Queue` and the like."""

    @property
    def children(self) -> tuple[Child, ...]:
        """Which objects are watched for it."""

    async def decide(self, view: View, object: Mapping[str, Any]) -> Decision:
        """Gathers what is observed and asks the kind's pure function.

        Raises:
            KubeError, StoreError: it cannot be told at present; tried again later.
        """

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """What is left to do for an object that is certainly no more."""
