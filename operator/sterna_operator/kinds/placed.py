"""The topology kinds as the worker sees them: what is gathered for `topology.plan`, whatever the kind."""

from collections.abc import Mapping
from typing import Any

from sterna_etcd.layout import Claim
from sterna_etcd.records import RecordError
from sterna_resources.messaging_cluster import AllowedNamespaces
from sterna_resources.problems import ManifestError
from sterna_resources.topology import TopologyResource

from sterna_operator.keys import Key
from sterna_operator.kinds import topology
from sterna_operator.kinds.holds import invalid, let_go_unread, noting
from sterna_operator.kinds.references import Needs, missing
from sterna_operator.kinds.topology import ClusterSeen, Desired, Observed
from sterna_operator.kube import STERNA_API, Ref
from sterna_operator.objects import CLUSTER, cluster_of, key_of
from sterna_operator.plans import FINALIZER, Plan
from sterna_operator.resources import resource_of
from sterna_operator.store import ClusterStore
from sterna_operator.view import Child, Decision, View


class PlacedKind:
    """A kind whose whole effect is one record below `config/`. Subclasses say what it needs and where it lives."""

    name: str
    children: tuple[Child, ...] = ()

    def needs(self, resource: TopologyResource) -> Needs:
        """The other objects without which brokers would refuse this one."""
        return Needs()

    def is_everywhere(self, resource: TopologyResource) -> bool:
        """Whether every broker has it, not one home alone."""
        return False

    def home(self, store: ClusterStore, resource: TopologyResource) -> str | None:
        """The broker that has it, whether or not somebody configured it."""
        return None

    async def decide(self, view: View, object: Mapping[str, Any]) -> Decision:
        """See view.Kind."""
        desired = read(object)
        if isinstance(desired, Plan):
            return Decision(desired)
        seen, store = await see_cluster(view, object)
        observed = await self._observe(view, desired, seen, store)
        planned = topology.plan(desired, observed, everywhere=self.is_everywhere(desired.resource))
        return Decision(noting(planned, desired.passed_over), store)

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """See view.Kind."""
        decisions = []
        for store in view.clusters.all().values():
            for claim in store.mirror.owned(key):
                config = store.mirror.config(claim)
                if config is not None:
                    home = None if claim in store.freed else claims_home(store, claim)
                    decisions.append(Decision(topology.gone(claim, config, store.mirror.statuses(claim), home), store))
        return decisions

    async def _observe(self, view: View, desired: Desired, seen: ClusterSeen, store: ClusterStore | None) -> Observed:
        going = desired.is_deleting and desired.has_finalizer and await view.namespace_is_going(desired.key.namespace)
        now_ms = view.now_ms()
        if store is None:
            return Observed(now_ms, seen, namespace_is_going=going)
        mirror, claim, fault = store.mirror, desired.claim, ""
        config = None
        try:
            config = mirror.config(claim)
        except RecordError as error:
            fault = str(error)
        holder = True
        if config is not None and config.record.owner.by == "operator":
            holder = await holder_is_there(
                view, Key(claim.kind, config.record.owner.namespace, config.record.owner.name)
            )
        return Observed(
            now_ms,
            seen,
            config=config,
            config_fault=fault,
            statuses=mirror.statuses(claim),
            home=None if claim in store.freed else self.home(store, desired.resource),
            left_by=left.record.owner if (left := mirror.left(claim)) is not None else None,
            missing=missing(mirror, self.needs(desired.resource)),
            holder_is_there=holder,
            namespace_is_going=going,
        )


def read(object: Mapping[str, Any]) -> Desired | Plan:
    """The object as a pure function takes it; the plan that says so when it is not what it should be."""
    metadata = object["metadata"]
    has_finalizer = FINALIZER in (metadata.get("finalizers") or ())
    try:
        resource, passed_over = resource_of(object)
    except ManifestError as error:
        # Nothing in it can be relied on, its policy neither: what it stands for stays, and nobody manages it any more.
        return let_go_unread(key_of(object)) if "deletionTimestamp" in metadata and has_finalizer else invalid(error)
    assert isinstance(resource, TopologyResource)
    return Desired(
        key=key_of(object),
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        resource=resource,
        is_deleting="deletionTimestamp" in metadata,
        has_finalizer=has_finalizer,
        status=object.get("status") or {},
        passed_over=passed_over,
    )


async def see_cluster(view: View, object: Mapping[str, Any]) -> tuple[ClusterSeen, ClusterStore | None]:
    """The cluster that an object names, and its store if it can be used."""
    key = cluster_of(object)
    if key is None:
        return ClusterSeen("a MessagingCluster (spec.clusterRef is empty)", is_there=False), None
    label = f"MessagingCluster {key.namespace}/{key.name}"
    cluster = view.objects.get(key)
    if cluster is None and "deletionTimestamp" in object["metadata"]:
        # An object is let go because its cluster is gone: that is asked for, not believed.
        cluster = await view.kube.get(Ref(STERNA_API, CLUSTER, key.namespace, key.name))
    if cluster is None:
        return ClusterSeen(label, is_there=False), None
    own = object["metadata"]["namespace"]
    allowed = (cluster.get("spec") or {}).get("allowedNamespaces") or {}
    allows = AllowedNamespaces.model_validate(allowed).allow(own, key.namespace)
    is_going = _is_going(cluster)
    store = view.clusters.get(key)
    fault = view.clusters.fault(key)
    brokers = frozenset(store.mirror.brokers()) if store is not None else frozenset()
    seen = ClusterSeen(label, is_going=is_going, allows=allows, fault=fault, brokers=brokers)
    return seen, None if fault is not None else store


def _is_going(cluster: Mapping[str, Any]) -> bool:
    """Whether a cluster goes. One that goes when it is empty serves until then, which may take days."""
    metadata, spec = cluster["metadata"], cluster.get("spec") or {}
    waits = spec.get("deletionPolicy") == "onlyIfEmpty" and FINALIZER in (metadata.get("finalizers") or ())
    return "deletionTimestamp" in metadata and not waits


async def holder_is_there(view: View, key: Key) -> bool:
    """Whether the object that a record belongs to still exists. What our copy does not have is asked for."""
    if view.objects.get(key) is not None:
        return True
    namespaces = view.settings.namespaces
    if namespaces and key.namespace not in namespaces:
        # Another operator's, perhaps; it cannot be looked at from here.
        return True
    return await view.kube.get(Ref(STERNA_API, key.kind, key.namespace, key.name)) is not None


def claims_home(store: ClusterStore, claim: Claim) -> str | None:
    """The home of a queue or topic; nothing else has one."""
    return store.mirror.home(claim.kind.lower(), claim.name)
