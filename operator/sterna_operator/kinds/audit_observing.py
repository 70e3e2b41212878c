"""AuditJob and StoreSnapshot as the worker sees them: gathers what there is, and asks the kinds' pure functions.

What is made for them is listed by their label, a few requests each, and nothing of it is kept: they are few, and most
of what matters is in Jobs and pods, which come and go by themselves.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from sterna_resources.audit_job import AuditJob
from sterna_resources.audit_status import RunStatus
from sterna_resources.messaging_cluster import MessagingCluster
from sterna_resources.problems import ManifestError
from sterna_resources.store_snapshot import StoreSnapshot

from sterna_operator.builders import audits
from sterna_operator.builders.audits import AUDIT_LABEL, AuditBlueprint
from sterna_operator.conditions import parse_timestamp
from sterna_operator.keys import Key
from sterna_operator.kinds import audit_job, audit_runs, store_snapshot
from sterna_operator.kinds.audit_runs import Ended, Running
from sterna_operator.kinds.cluster_interlock import AuditSeen
from sterna_operator.kinds.holds import invalid, noting
from sterna_operator.kinds.placed import see_cluster
from sterna_operator.kinds.topology import ClusterSeen
from sterna_operator.kinds.upkeep import is_owned_by
from sterna_operator.kube import STERNA_API, ForbiddenError, Ref
from sterna_operator.objects import AUDIT_JOB, STORE_SNAPSHOT, cluster_of, key_of
from sterna_operator.plans import ApplyObject, Plan
from sterna_operator.resources import resource_of
from sterna_operator.view import Child, Decision, View

_CHILDREN = (
    Child("batch/v1", "CronJob"),
    Child("batch/v1", "Job"),
    Child("v1", "ConfigMap"),
)
_WATCHED = (*_CHILDREN, Child("v1", "Pod"))
# So many audits of a cluster are looked at at once.
_AT_ONCE = 16


class AuditJobKind:
    """See view.Kind."""

    name = AUDIT_JOB
    children: tuple[Child, ...] = _WATCHED

    async def decide(self, view: View, object: Mapping[str, Any]) -> Decision:
        """See view.Kind."""
        metadata = object["metadata"]
        try:
            resource, passed_over = resource_of(object)
        except ManifestError as error:
            return Decision(invalid(error))
        assert isinstance(resource, AuditJob)
        desired = audit_job.Desired(
            key=key_of(object),
            uid=metadata["uid"],
            generation=int(metadata.get("generation") or 0),
            resource=resource,
            created_ms=_created_ms(view, metadata),
            is_deleting="deletionTimestamp" in metadata,
            status=object.get("status") or {},
            passed_over=passed_over,
        )
        if desired.is_deleting:
            return Decision(Plan())
        around = await _around(view, object, resource)
        lasts = {job["metadata"]["name"] for job in around.jobs if _is_last(job)}
        runs = [
            _run(around, job, desired.status, prefix=desired.key.name)
            for job in around.jobs
            if job["metadata"]["name"] not in lasts
        ]
        observed = audit_job.Observed(
            now_ms=view.now_ms(),
            cluster=around.cluster,
            blueprint=around.blueprint,
            children=around.children,
            ended=tuple(one for one in runs if isinstance(one, Ended)),
            running=tuple(one for one in runs if isinstance(one, Running)),
            results=_results(around.children, desired.uid),
            missing=around.missing,
            misfit=around.misfit,
            maintenance=around.maintenance,
            put_back=view.put_back.all(),
        )
        planned = audit_job.plan(desired, observed)
        found = await _standing(view, around, planned)
        if found:
            planned = audit_job.plan(desired, replace(observed, children={**around.children, **found}))
        return Decision(noting(planned, passed_over))

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """Kubernetes removes what belonged to it; snapshots and reports stay where they are."""
        return []


class StoreSnapshotKind:
    """See view.Kind."""

    name = STORE_SNAPSHOT
    children: tuple[Child, ...] = _WATCHED

    async def decide(self, view: View, object: Mapping[str, Any]) -> Decision:
        """See view.Kind."""
        metadata = object["metadata"]
        try:
            resource, passed_over = resource_of(object)
        except ManifestError as error:
            return Decision(invalid(error))
        assert isinstance(resource, StoreSnapshot)
        desired = store_snapshot.Desired(
            key=key_of(object),
            uid=metadata["uid"],
            generation=int(metadata.get("generation") or 0),
            resource=resource,
            is_deleting="deletionTimestamp" in metadata,
            status=object.get("status") or {},
            passed_over=passed_over,
        )
        if desired.is_deleting:
            return Decision(Plan())
        around = await _around(view, object, resource)
        job = next((one for one in around.jobs if one["metadata"]["name"] == desired.key.name), None)
        observed = store_snapshot.Observed(
            now_ms=view.now_ms(),
            cluster=around.cluster,
            blueprint=around.blueprint,
            children=around.children,
            run=None if job is None else _run(around, job, desired.status, prefix=""),
            missing=around.missing,
            misfit=around.misfit,
            maintenance=around.maintenance,
            put_back=view.put_back.all(),
        )
        planned = store_snapshot.plan(desired, observed)
        found = await _standing(view, around, planned)
        if found:
            if (lost := found.get(("Job", desired.key.name))) is not None and is_owned_by(desired.uid, lost):
                # Somebody has taken its label away.
                observed = replace(observed, run=_run(around, lost, desired.status, prefix=""))
            planned = store_snapshot.plan(desired, replace(observed, children={**around.children, **found}))
        return Decision(noting(planned, passed_over))

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """Kubernetes removes what belonged to it; the snapshot stays where it is."""
        return []


async def audits_of(view: View, cluster: MessagingCluster, cluster_key: Key) -> tuple[AuditSeen, ...]:
    """The runs of a cluster's AuditJobs and StoreSnapshots, as far as they concern whoever touches its brokers.

    Two requests for each of them: asked only by who is about to touch a broker.
    """
    gate = asyncio.Semaphore(_AT_ONCE)

    async def seen(object: Mapping[str, Any]) -> AuditSeen:
        async with gate:
            return await _audit_seen(view, object)

    allowed = cluster.spec.allowed_namespaces
    concerned = [
        object
        for object in await _audit_objects(view, cluster_key)
        # Whom the cluster does not let in keeps nobody from anything.
        if allowed.allow(key_of(object).namespace, cluster_key.namespace)
        and "deletionTimestamp" not in object["metadata"]
        and (object.get("status") or {}).get("taken") is None
    ]
    return tuple(await asyncio.gather(*map(seen, concerned)))


async def _audit_seen(view: View, object: Mapping[str, Any]) -> AuditSeen:
    key, spec = key_of(object), object["spec"]
    selector = f"{AUDIT_LABEL}={audits.label(key.kind, key.name)}"
    jobs = await view.kube.list("batch/v1", "Job", key.namespace, labels=selector)
    runs = (job for job in jobs if not audit_runs.is_over(job) and not _is_last(job))
    running = tuple(sorted(job["metadata"]["name"] for job in runs))
    is_paused = _is_paused(view, object)
    # One that is suspended or paused by somebody takes no snapshots, and nobody waits for any.
    is_at_work = key.kind == AUDIT_JOB and not spec.get("suspend") and not is_paused
    ended = {job["metadata"]["name"]: audit_runs.is_well(job) for job in jobs if audit_runs.is_over(job)}
    # Of one that is paused the operator may not keep any run from beginning.
    begins_none = key.kind == STORE_SNAPSHOT or is_paused or await _is_suspended(view, key)
    return AuditSeen(str(key), begins_none, running, key.name if is_at_work else "", ended)


def _is_paused(view: View, object: Mapping[str, Any]) -> bool:
    """Whether an AuditJob is left alone now; one whose pause is over is not."""
    until = (object["spec"].get("paused") or {}).get("until")
    return object["spec"].get("paused") is not None and (not until or parse_timestamp(str(until)) > view.now_ms())


async def _audit_objects(view: View, cluster: Key) -> list[Mapping[str, Any]]:
    """The AuditJobs and StoreSnapshots of a cluster. Right after a start they may not be known yet: they are asked for.

    What was not seen would not be waited for.
    """
    found: list[Mapping[str, Any]] = []
    namespaces = view.settings.namespaces
    for kind in (AUDIT_JOB, STORE_SNAPSHOT):
        if view.objects.has_listed(kind, namespaces):
            known = (view.objects.get(key) for key in sorted(view.objects.of_cluster(cluster)) if key.kind == kind)
            found += [one for one in known if one is not None]
            continue
        for namespace in namespaces or (None,):
            listed = await view.kube.list(STERNA_API, kind, namespace)
            found += [one for one in listed if cluster_of(one) == cluster]
    return found


async def _is_suspended(view: View, key: Key) -> bool:
    """Whether no run of an AuditJob will begin by itself."""
    standing = await view.kube.get(Ref("batch/v1", "CronJob", key.namespace, key.name))
    return standing is None or bool(standing["spec"].get("suspend"))


# What there is


@dataclass(frozen=True)
class _Around:
    """All that is around an object, whichever of the two kinds it is of."""

    cluster: ClusterSeen
    blueprint: AuditBlueprint
    children: Mapping[tuple[str, str], Mapping[str, Any]]
    jobs: tuple[Mapping[str, Any], ...]
    pods: tuple[Mapping[str, Any], ...]
    refused: Mapping[str, str]
    missing: tuple[str, ...]
    misfit: str
    maintenance: Mapping[str, Any] | None


async def _around(view: View, object: Mapping[str, Any], resource: AuditJob | StoreSnapshot) -> _Around:
    seen, _ = await see_cluster(view, object)
    key, named = key_of(object), cluster_of(object)
    assert named is not None  # the definition wants it
    cluster_object = view.objects.get(named) if seen.is_there else None
    cluster = _cluster(cluster_object)
    blueprint = AuditBlueprint(
        resource=resource,
        namespace=key.namespace,
        uid=object["metadata"]["uid"],
        cluster_namespace=named.namespace,
        cluster=cluster,
        replicas=await _replicas(view, named, cluster) if cluster is not None else 0,
        image=resource.spec.image or view.settings.audit_image,
    )
    selector = f"{AUDIT_LABEL}={audits.label(key.kind, key.name)}"
    lists = await asyncio.gather(
        *(view.kube.list(one.api_version, one.kind, key.namespace, labels=selector) for one in _CHILDREN)
    )
    found = [one for objects in lists for one in objects]
    jobs = tuple(one for one in found if one["kind"] == "Job")
    # Pods are large, and say something only as long as there are Jobs.
    pods = await view.kube.list("v1", "Pod", key.namespace, labels=selector) if jobs else ()
    return _Around(
        cluster=seen,
        blueprint=blueprint,
        children={(one["kind"], one["metadata"]["name"]): one for one in found},
        jobs=jobs,
        pods=tuple(pods),
        refused=await _refused(view, jobs, pods),
        missing=await _missing(view, blueprint) if cluster is not None else (),
        misfit=_misfit(blueprint) if cluster is not None else "",
        maintenance=((cluster_object or {}).get("status") or {}).get("maintenance"),
    )


def _is_last(job: Mapping[str, Any]) -> bool:
    """Whether a Job takes the last snapshot of a broker that leaves, and is no run of an audit."""
    return audits.LAST_ANNOTATION in (job["metadata"].get("annotations") or {})


def _cluster(object: Mapping[str, Any] | None) -> MessagingCluster | None:
    if object is None:
        return None
    try:
        cluster, _ = resource_of(object)
    except ManifestError:
        return None
    assert isinstance(cluster, MessagingCluster)
    return cluster


async def _replicas(view: View, key: Key, cluster: MessagingCluster) -> int:
    """How many brokers there are: those that are being emptied are exported until they go."""
    standing = await view.kube.get(Ref("apps/v1", "StatefulSet", key.namespace, f"{key.name}-broker"))
    replicas = 0 if standing is None else int(standing["spec"].get("replicas", 1))
    return max(cluster.spec.brokers, replicas)


async def _refused(view: View, jobs: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Why Jobs have no pods, by their uids: admission (PodSecurity, quota, a webhook) says so in events alone."""
    owners = {one.get("uid") for pod in pods for one in pod["metadata"].get("ownerReferences") or ()}
    found: dict[str, str] = {}
    for job in jobs:
        metadata = job["metadata"]
        if metadata["uid"] in owners:
            continue
        selected = f"involvedObject.kind=Job,involvedObject.name={metadata['name']},reason=FailedCreate"
        try:
            events = await view.kube.list("v1", "Event", metadata["namespace"], fields=selected)
        except ForbiddenError:
            return found
        for event in sorted(events, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or "")):
            if event["involvedObject"].get("uid") == metadata["uid"]:
                found[metadata["uid"]] = f"FailedCreate: {event.get('message') or ''}"
    return found


async def _missing(view: View, blueprint: AuditBlueprint) -> tuple[str, ...]:
    """What a pod would not start without."""
    found = []
    for name, keys in sorted(audits.needed_secrets(blueprint).items()):
        secret = await view.secrets.get(blueprint.namespace, name)
        if secret is None:
            found.append(f"Secret {name}")
        elif lacking := sorted(keys - secret.data.keys()):
            found.append(f"{lacking[0]} in Secret {name}")
    claim = blueprint.resource.spec.storage.volume_claim
    if claim is not None:
        ref = Ref("v1", "PersistentVolumeClaim", blueprint.namespace, claim)
        if await view.kube.get(ref) is None:
            found.append(f"PersistentVolumeClaim {claim}")
            if view.named is not None:
                view.named.watch(ref)
    return tuple(found)


def _misfit(blueprint: AuditBlueprint) -> str:
    """What of the spec does not fit its cluster; empty: all of it does."""
    cluster, resource = blueprint.audited, blueprint.resource
    connect, tls = resource.spec.connect, cluster.spec.tls
    if not blueprint.image:
        return "spec.image is missing, and the operator was given no image for audits (auditImage)"
    if cluster.spec.authentication.enabled and connect.user is None:
        return f"spec.connect.user is missing: {cluster.label} lets nobody in without a name"
    if tls is not None and audits.authority(blueprint) is None:
        return f"spec.connect.ca is missing: {cluster.label} speaks TLS, and its Secret is in another namespace"
    if tls is not None and tls.client_ca is not None and connect.certificate_secret is None:
        return f"spec.connect.certificateSecret is missing: {cluster.label} asks clients for a certificate"
    if isinstance(resource, StoreSnapshot):
        known = {f"{cluster.metadata.name}-broker-{ordinal}" for ordinal in range(blueprint.replicas)}
        if unknown := sorted(set(resource.spec.brokers) - known):
            return f"spec.brokers: {cluster.label} has no broker {unknown[0]}"
    return ""


def _run(around: _Around, job: Mapping[str, Any], status: Mapping[str, Any], *, prefix: str) -> Ended | Running:
    before = status.get("running") or {}
    known = before.get("message") if before.get("run") == job["metadata"]["name"] else None
    refused = around.refused.get(job["metadata"]["uid"])
    said = (status.get(name) or {} for name in ("lastRun", "lastVerdict"))
    ended = next((one for one in said if one.get("run") == job["metadata"]["name"]), None)
    return audit_runs.read(job, around.pods, prefix=prefix, refused=refused, known_fault=known, known=ended)


def _results(children: Mapping[tuple[str, str], Mapping[str, Any]], uid: str) -> dict[str, Ended]:
    """The results that are kept, by run. One that cannot be read is none, and is made anew."""
    found = {}
    for (kind, _), child in children.items():
        owners = child["metadata"].get("ownerReferences") or ()
        text = (child.get("data") or {}).get(audits.STATUS_FILE) if kind == "ConfigMap" else None
        # One whose owner somebody took away is still ours by its label.
        if text is None or (owners and not any(one.get("uid") == uid for one in owners)):
            continue
        try:
            status = RunStatus.model_validate_json(text).values()
        except ValidationError:
            continue
        if status.get("endedAt") and child["metadata"]["name"] == audits.result_name(status["run"]):
            told = child["data"].get(audits.RESULT_FILE)
            found[status["run"]] = Ended(status["run"], status, told)
    return found


async def _standing(view: View, around: _Around, planned: Plan) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Objects of the names that are about to be made, which do not carry the label: others'."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for step in planned.steps:
        if not isinstance(step, ApplyObject):
            continue
        kind, name = step.manifest["kind"], step.manifest["metadata"]["name"]
        if (kind, name) not in around.children:
            ref = Ref(step.manifest["apiVersion"], kind, around.blueprint.namespace, name)
            standing = await view.kube.get(ref)
            if standing is not None:
                found[kind, name] = standing
    return found


def _created_ms(view: View, metadata: Mapping[str, Any]) -> int:
    """When the object was made; one that is only planned is made now."""
    created = metadata.get("creationTimestamp")
    return parse_timestamp(str(created)) if created else view.now_ms()
