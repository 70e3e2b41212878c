"""MessagingCluster as the worker sees it: opens its etcd, gathers what there is, asks `messaging_cluster.plan`.

Children are listed by the cluster's label, a few requests for a cluster, and nothing of them is kept: clusters are few,
and what is old here would restart brokers. A child that is missing is asked for by name as well, since one of that name
may be somebody else's.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sterna_resources.messaging_cluster import MessagingCluster
from sterna_resources.problems import ManifestError

from sterna_operator.builders import brokers as broker_builder
from sterna_operator.builders import certificate, monitoring
from sterna_operator.builders.audits import AUDIT_LABEL
from sterna_operator.builders.blueprint import CLUSTER_LABEL, SECRETS_ANNOTATION, OperatorPods
from sterna_operator.keys import Key
from sterna_operator.kinds import cluster_claims, cluster_rolling
from sterna_operator.kinds.audit_observing import audits_of
from sterna_operator.kinds.cluster_scaling import Members
from sterna_operator.kinds.cluster_seen import Defaults, Desired, Observed
from sterna_operator.kinds.holds import invalid, let_go_unread, noting
from sterna_operator.kinds.messaging_cluster import plan, referenced_secrets, touches_brokers
from sterna_operator.kube import ForbiddenError, KubeError, Ref
from sterna_operator.objects import CLUSTER, key_of
from sterna_operator.plans import (
    FINALIZER,
    ApplyObject,
    ForgetLeft,
    Plan,
    PutDrain,
    RemoveBroker,
    RemoveDrain,
    Wanted,
)
from sterna_operator.resources import resource_of
from sterna_operator.settings import OperatorSettings
from sterna_operator.version import VERSION
from sterna_operator.view import Child, Decision, View, ensure_etcd

_REPLACED = "EtcdReplaced"
# A revision is noted in the status once it is so far ahead of the noted one: not each of them is worth a write.
_REVISIONS = 100
_COMPONENT = "app.kubernetes.io/component"
_IN_ETCD = (PutDrain, RemoveDrain, RemoveBroker, ForgetLeft)
# So many notes of what was left behind are removed in one go.
_FORGOTTEN_MAX = 100
_LISTED_S = 5.0

# What every cluster has, and is watched. Secrets are not: whoever may list one may read them all.
_CHILDREN = (
    Child("apps/v1", "StatefulSet"),
    Child("v1", "Service"),
    Child("v1", "ConfigMap"),
    Child("v1", "ServiceAccount"),
    Child("v1", "Pod"),
    Child("v1", "PersistentVolumeClaim"),
    Child("policy/v1", "PodDisruptionBudget"),
    Child("networking.k8s.io/v1", "NetworkPolicy"),
)
_CERTIFICATE = Child(certificate.API_VERSION, "Certificate")
_POD_MONITOR = Child(monitoring.API_VERSION, "PodMonitor")


class MessagingClusterKind:
    """See view.Kind."""

    name = CLUSTER
    children: tuple[Child, ...] = _CHILDREN

    async def decide(self, view: View, object: Mapping[str, Any]) -> Decision:
        """See view.Kind."""
        desired = read(object)
        if isinstance(desired, Plan):
            metadata = object["metadata"]
            is_held = "deletionTimestamp" in metadata and FINALIZER in (metadata.get("finalizers") or ())
            return Decision(await _let_go(view, object) if is_held else desired)
        if desired.is_deleting and not desired.has_finalizer:
            return Decision(Plan())
        key = key_of(object)
        status = desired.status
        if broker_builder.accepts_store(desired.cluster):
            # Whatever etcd says that it is, is right: nothing that was known of it counts.
            status = {name: value for name, value in status.items() if name not in ("etcdId", "etcdRevision")}
            if (view.clusters.fault(key) or ("", ""))[0] == _REPLACED:
                await view.clusters.drop(key)
        is_accepted = broker_builder.accepts_store(desired.cluster)
        await ensure_etcd(view, object, desired.cluster, status, takes_over=is_accepted)
        if "etcdId" not in status and desired.cluster.spec.etcd.endpoints is not None:
            await _until_listed(view, key)
        observed = await _observe(view, desired)
        if touches_brokers(desired, observed):
            observed = replace(observed, audits=await audits_of(view, desired.cluster, key))
        planned = plan(desired, observed)
        _follow(view, desired, observed)
        found = await _standing(view, desired, observed, planned)
        if found:
            planned = plan(desired, replace(observed, children={**observed.children, **found}))
        planned = replace(planned, steps=(*planned.steps, *_forgotten(view, desired)))
        needs_etcd = any(isinstance(step, _IN_ETCD) for step in planned.steps)
        told = noting(_with_identity(view, key, desired.status, planned), desired.passed_over)
        return Decision(told, view.clusters.get(key) if needs_etcd else None)

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """Kubernetes removes what belonged to it; its state in etcd stays, as its volumes do."""
        return []


def read(object: Mapping[str, Any]) -> Desired | Plan:
    """The object as the pure function takes it; the plan that says so when it is not what it should be."""
    metadata = object["metadata"]
    try:
        cluster, passed_over = resource_of(object)
    except ManifestError as error:
        return invalid(error)
    assert isinstance(cluster, MessagingCluster)
    finalizers = metadata.get("finalizers") or ()
    return Desired(
        cluster=cluster,
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        is_deleting="deletionTimestamp" in metadata,
        has_finalizer=FINALIZER in finalizers,
        is_dismantled="foregroundDeletion" in finalizers,
        status=object.get("status") or {},
        passed_over=passed_over,
    )


async def _until_listed(view: View, key: Key) -> None:
    """Waits a while for an etcd that was never used: its place there may be another's, whom its brokers would join."""
    store = view.clusters.get(key)
    if store is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LISTED_S):
                await store.listed.wait()


async def _let_go(view: View, object: Mapping[str, Any]) -> Plan:
    """Lets a cluster go that is being deleted and cannot be read.

    Its policy cannot be relied on either, so that nothing may be destroyed: its volumes stay, whatever was said before.
    """
    key, uid = key_of(object), object["metadata"]["uid"]
    selector = f"{CLUSTER_LABEL}={key.name}"
    listed = await view.kube.list("v1", "PersistentVolumeClaim", key.namespace, labels=selector)
    claims = {one["metadata"]["name"]: one for one in listed}
    return Plan((*cluster_claims.disowned(key.namespace, uid, claims), *let_go_unread(key).steps))


async def _observe(view: View, desired: Desired) -> Observed:
    name = desired.cluster.metadata.name
    # What is made for audits has the label, too, and is their own.
    selector = f"{CLUSTER_LABEL}={name},!{AUDIT_LABEL}"
    certificates, pod_monitors, *lists = await asyncio.gather(
        _listed_if_known(view, _CERTIFICATE, desired.namespace, selector),
        _listed_if_known(view, _POD_MONITOR, desired.namespace, selector),
        *(view.kube.list(one.api_version, one.kind, desired.namespace, labels=selector) for one in _CHILDREN),
    )
    found = [object for objects in (*lists, certificates or (), pod_monitors or ()) for object in objects]
    children = {
        (object["kind"], object["metadata"]["name"]): object
        for object in found
        if object["kind"] not in ("Pod", "PersistentVolumeClaim")
    }
    brokers = [
        cluster_rolling.read(object, SECRETS_ANNOTATION)
        for object in found
        if object["kind"] == "Pod" and object["metadata"]["labels"].get(_COMPONENT) == "broker"
    ]
    etcds = [
        cluster_rolling.read(object, SECRETS_ANNOTATION)
        for object in found
        if object["kind"] == "Pod" and object["metadata"]["labels"].get(_COMPONENT) == "etcd"
    ]
    refused = await _refused_pods(view, desired, children, {pod.name for pod in brokers})
    going = desired.is_deleting and await view.namespace_is_going(desired.namespace)
    settings = view.settings
    return Observed(
        defaults=Defaults(settings.broker_image, settings.etcd_image, VERSION, _own_pods(settings)),
        children=children,
        pods=tuple(brokers),
        etcd_pod=etcds[0] if etcds else None,
        refused_pods=refused,
        claims={one["metadata"]["name"]: one for one in found if one["kind"] == "PersistentVolumeClaim"},
        secrets=await _secrets(view, desired),
        put_back=view.put_back.all(),
        members=_members(view, Key(CLUSTER, desired.namespace, name)),
        has_pod_monitors=pod_monitors is not None,
        has_certificates=certificates is not None,
        namespace_is_going=going,
        now_ms=view.now_ms(),
    )


async def _refused_pods(
    view: View, desired: Desired, children: Mapping[tuple[str, str], Mapping[str, Any]], there: set[str]
) -> dict[str, str]:
    """Why pods are not there that the StatefulSet should have made: admission (PodSecurity, quota, a webhook) says so.

    Its controller posts that as events, and nowhere else; they are asked for only while a pod is missing.
    """
    name = f"{desired.cluster.metadata.name}-broker"
    brokers = children.get(("StatefulSet", name))
    if brokers is None or desired.is_deleting:
        return {}
    missing = {f"{name}-{ordinal}" for ordinal in range(int(brokers["spec"].get("replicas", 1)))} - there
    if not missing:
        return {}
    selected = f"involvedObject.kind=StatefulSet,involvedObject.name={name},reason=FailedCreate"
    try:
        events = await view.kube.list("v1", "Event", desired.namespace, fields=selected)
    except ForbiddenError:
        # An operator whose rights are from before: it does without.
        return {}
    found: dict[str, str] = {}
    for event in sorted(events, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or "")):
        text = str(event.get("message") or "")
        if event["involvedObject"].get("uid") == brokers["metadata"]["uid"]:
            found |= {pod: f"FailedCreate: {text}" for pod in missing if f"Pod {pod} " in text}
    return found


def _own_pods(settings: OperatorSettings) -> OperatorPods:
    return OperatorPods(settings.pod_namespace, settings.labels())


async def _secrets(view: View, desired: Desired) -> dict[str, Mapping[str, bytes] | None]:
    names = sorted(referenced_secrets(desired.cluster))
    found = await asyncio.gather(*(view.secrets.get(desired.namespace, name) for name in names))
    return {name: None if one is None else one.data for name, one in zip(names, found, strict=True)}


def _members(view: View, key: Key) -> Members:
    fault, store = view.clusters.fault(key), view.clusters.get(key)
    if fault is not None or store is None:
        return Members(fault=fault or ("EtcdUnavailable", "the cluster is being set up"))
    mirror = store.mirror
    homes = Counter(record.broker for record in mirror.homes().values())
    return Members(mirror.brokers(), mirror.broker_statuses(), mirror.drains(), dict(homes))


def _follow(view: View, desired: Desired, observed: Observed) -> None:
    """Has what no watch of all clusters tells of watched by its name: the Secret, and kinds that may not be known."""
    if view.named is None:
        return
    name, spec = desired.cluster.metadata.name, desired.cluster.spec
    names = [("v1", "Secret", spec.connection_secret or f"{name}-connection")]
    if observed.has_certificates and spec.tls is not None and spec.tls.cert_manager is not None:
        names.append((_CERTIFICATE.api_version, _CERTIFICATE.kind, f"{name}-tls"))
    if observed.has_pod_monitors and spec.monitoring.pod_monitor:
        names.append((_POD_MONITOR.api_version, _POD_MONITOR.kind, f"{name}-broker"))
    for api_version, kind, child in names:
        view.named.watch(Ref(api_version, kind, desired.namespace, child))


def _forgotten(view: View, desired: Desired) -> list[ForgetLeft]:
    """Notes of who left what behind that say nothing any more: brokers have it no more, or somebody manages it."""
    key = Key(CLUSTER, desired.namespace, desired.cluster.metadata.name)
    store = view.clusters.get(key)
    if store is None or view.clusters.fault(key) is not None or desired.is_deleting or desired.cluster.spec.paused:
        return []
    mirror = store.mirror
    stale = [
        ForgetLeft(f"forget who left {claim.kind} '{claim.name}' behind", claim, revision)
        for claim, revision in mirror.lefts().items()
        if mirror.home(claim.kind.lower(), claim.name) is None or mirror.has_config(claim)
    ]
    return stale[:_FORGOTTEN_MAX]


async def _standing(
    view: View, desired: Desired, observed: Observed, planned: Plan
) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Objects of the names that are about to be made: the cluster's own Secret, which is not listed, or others'."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for step in planned.steps:
        if isinstance(step, ApplyObject):
            kind, name = step.manifest["kind"], step.manifest["metadata"]["name"]
            if (kind, name) not in observed.children:
                object = await view.kube.get(Ref(step.manifest["apiVersion"], kind, desired.namespace, name))
                if object is not None:
                    found[kind, name] = object
    return found


async def _listed_if_known(view: View, child: Child, namespace: str, selector: str) -> list[dict[str, Any]] | None:
    """The objects of a kind that not every Kubernetes has; None: this one has not, or not for us."""
    try:
        return await view.kube.list(child.api_version, child.kind, namespace, labels=selector)
    except KubeError as error:
        if error.code in (403, 404):
            return None
        raise


def _with_identity(view: View, key: Key, status: Mapping[str, Any], planned: Plan) -> Plan:
    """Notes which etcd the cluster has, and how far it has come.

    Another one under the same address, and an old copy of it, are so noticed after a restart of the operator, too.
    """
    store = view.clusters.get(key)
    if planned.status is None or store is None or store.identity.known is None:
        return planned
    known = store.identity.known
    noted = int(status.get("etcdRevision") or 0) if status.get("etcdId") == known.id else 0
    # Less than what is noted it is only where somebody has said that this etcd is the right one.
    revision = noted if noted <= known.revision < noted + _REVISIONS else known.revision
    fields = {**planned.status.fields, "etcdId": known.id, "etcdRevision": revision}
    return replace(planned, status=Wanted(planned.status.conditions, fields))
