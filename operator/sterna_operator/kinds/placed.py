"""The topology kinds as the worker sees them: what is gathered for `topology.plan`, whatever the kind."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sterna_etcd.records import RecordError
from sterna_resources.messaging_cluster import AllowedNamespaces
from sterna_resources.problems import ManifestError
from sterna_resources.topology import TopologyResource

from sterna_operator import conditions
from sterna_operator.keys import Key
from sterna_operator.kinds import topology
from sterna_operator.kinds.holds import invalid, let_go_unread, noting
from sterna_operator.kinds.references import Needs, missing
from sterna_operator.kinds.topology import ClusterSeen, Desired, Observed
from sterna_operator.kube import STERNA_API, Ref
from sterna_operator.objects import CLUSTER, cluster_of, key_of
from sterna_operator.plans import FINALIZER, Plan
from sterna_operator.resources import resource_of
from sterna_operator.store import ClusterStore, UnusableError
from sterna_operator.view import Child, Decision, View

# So soon an object is looked at again whose etcd is still being read.
_AHEAD_AGAIN_S = 0.25


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
        ahead = await self._read_ahead(view, object, desired)
        seen, store = await see_cluster(view, object, ahead)
        observed = await self._observe(view, desired, seen, store)
        planned = topology.plan(desired, observed, everywhere=self.is_everywhere(desired.resource))
        if ahead is not None and ahead.is_listing and not _is_ready(planned):
            # What brokers say of it nobody tells yet.
            planned = replace(planned, again_s=min(planned.again_s or _AHEAD_AGAIN_S, _AHEAD_AGAIN_S))
        return Decision(noting(planned, desired.passed_over), store, is_ahead=ahead is not None)

    async def _read_ahead(self, view: View, object: Mapping[str, Any], desired: Desired) -> ClusterStore | None:
        """The etcd of the object's cluster, if it is still being read, and all that concerns the object was read first.

        For tens of thousands of objects that takes longer than somebody who has just made one wants to wait. One that
        needs other destinations waits for all of them to be known, and so does a deletion.
        """
        needs, cluster = self.needs(desired.resource), cluster_of(object)
        store = view.clusters.get(cluster) if cluster is not None else None
        if store is None or not store.is_listing or desired.is_deleting or needs.destinations:
            return None
        try:
            # Whether it is the etcd that we know is found out first.
            await view.clusters.claimed(store)
            await store.read_ahead(desired.claim, with_stores=bool(needs.stores))
        except UnusableError:
            return None
        return store

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """See view.Kind."""
        decisions = []
        for store in view.clusters.all().values():
            for claim in store.mirror.owned(key):
                config = store.mirror.config(claim)
                if config is not None:
                    home = None if claim in store.freed else store.mirror.home_of(claim)
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


def _is_ready(plan: Plan) -> bool:
    said = plan.status.conditions if plan.status is not None else ()
    return any(one.type == conditions.READY and one.status == "True" for one in said)


async def see_cluster(
    view: View, object: Mapping[str, Any], ahead: ClusterStore | None = None
) -> tuple[ClusterSeen, ClusterStore | None]:
    """The cluster that an object names, and its store if it can be used. `ahead`: it can, although it is being read."""
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
    if store is not None and store is ahead and store.is_listing and store.claim_fault is None:
        fault = None
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
