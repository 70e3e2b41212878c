"""StoreSnapshot: a Job that takes one snapshot, once.

`plan` is a pure function. What has become of it stands in the status and is final: the object cannot be changed, and
one that failed is made again under another name. Until then a Job that somebody took away is made again: it goes by the
same name, so that brokers whose snapshots are there already are left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna_resources.store_snapshot import StoreSnapshot

from sterna_operator import conditions
from sterna_operator.builders import audits, differences
from sterna_operator.builders.audits import AuditBlueprint
from sterna_operator.keys import Key
from sterna_operator.kinds import cluster_interlock
from sterna_operator.kinds.audit_runs import Ended, Running
from sterna_operator.kinds.holds import pause_of
from sterna_operator.kinds.topology import ClusterSeen
from sterna_operator.kinds.upkeep import has_lost_its_owner, is_owned_by, put_job_right, put_right
from sterna_operator.plans import Announcement, ApplyObject, Plan, RepairObject, Step, Wanted
from sterna_operator.reasons import Reason

# What is missing is told of by a watch; this is for one that broke.
_AGAIN_S = 15.0
_NAMED_MAX = 8


@dataclass(frozen=True)
class Desired:
    """What the object in Kubernetes asks for."""

    key: Key
    uid: str
    generation: int
    resource: StoreSnapshot
    is_deleting: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observed:
    """What there is."""

    now_ms: int
    cluster: ClusterSeen
    blueprint: AuditBlueprint
    children: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """By kind and name: Job and ConfigMap."""

    run: Ended | Running | None = None
    """How the Job stands; None: there is none."""

    missing: tuple[str, ...] = ()
    misfit: str = ""
    maintenance: Mapping[str, Any] | None = None
    put_back: Mapping[str, Any] = field(default_factory=dict)


def plan(desired: Desired, observed: Observed) -> Plan:
    """What is to be done for a StoreSnapshot."""
    if desired.is_deleting:
        return Plan()
    if (taken := desired.status.get("taken")) is not None:
        return Plan(status=Wanted(_verdict(taken), {"claim": desired.resource.claim, "taken": taken}))
    if isinstance(observed.run, Ended):
        taken = dict(observed.run.status)
        said = _verdict(taken)
        reason = Reason.SnapshotTaken if said[0].status == "True" else Reason.SnapshotFailed
        status = Wanted(said, {"claim": desired.resource.claim, "taken": taken})
        return Plan(status=status, announcements=(Announcement(reason, said[0].message),))
    pause = pause_of(desired.resource.spec.paused, observed.now_ms)
    if observed.run is None and pause is not None:
        # One that has begun goes on: brokers hold what it exports, and nobody would tell what has become of it.
        return pause.plan(Wanted(pause.said(desired.status, desired.generation), {"claim": desired.resource.claim}))
    if observed.run is None and (waiting := _waiting(observed)) is not None:
        return waiting
    if observed.run is None and (foreign := _foreign(desired, observed)) is not None:
        return _stalled(Reason.NameClaimed, f"{foreign} exists already and is not this StoreSnapshot's: rename one")
    text = "its Job is being made" if observed.run is None else f"its Job {observed.run.run} goes on"
    fields: dict[str, Any] = {"claim": desired.resource.claim}
    if observed.run is not None:
        text = text if observed.run.fault is None else f"its Job cannot go on: {observed.run.fault}"
        fields["running"] = {"run": observed.run.run}
        if observed.run.started_ms is not None:
            fields["running"]["startedAt"] = conditions.timestamp(observed.run.started_ms)
        if observed.run.fault is not None:
            fields["running"]["message"] = observed.run.fault[:1_024]
    steps = _steps(observed)
    repaired = [step.summary for step in steps if isinstance(step, RepairObject)]
    repaired += [step.summary for step in steps if isinstance(step, ApplyObject) and step.is_drift]
    announced = tuple(Announcement(Reason.DriftRepaired, summary) for summary in repaired)
    return Plan(tuple(steps), Wanted(conditions.reconciling("Taking", text), fields), announced)


def _waiting(observed: Observed) -> Plan | None:
    """Why the Job is not made yet, or never will be; None: it can be."""
    cluster, blueprint = observed.cluster, observed.blueprint
    if not cluster.is_there or blueprint.cluster is None:
        return _reconciling("ReferenceMissing", f"there is no {cluster.label}")
    if not cluster.allows:
        text = f"{cluster.label} does not allow objects of namespace {blueprint.namespace} (spec.allowedNamespaces)"
        return _stalled(Reason.NotAllowed, text)
    if cluster.is_going:
        return _stalled(Reason.ReferenceMissing, f"{cluster.label} is being deleted")
    if observed.misfit:
        return _stalled(Reason.Invalid, observed.misfit)
    if observed.missing:
        return _reconciling("ReferenceMissing", f"waits for {', '.join(observed.missing)}", _AGAIN_S)
    if why := cluster_interlock.holds(observed.maintenance, observed.now_ms):
        assert observed.maintenance is not None  # it is what holds
        left_s = (cluster_interlock.held_until_ms(observed.maintenance) - observed.now_ms) / 1000
        return _reconciling("Held", f"waits while {cluster.label} is changed: {why}", left_s)
    return None


def _steps(observed: Observed) -> list[Step]:
    """What is to be made, or put right."""
    if observed.blueprint.cluster is None:
        return []
    steps: list[Step] = []
    for built in (audits.settings(observed.blueprint), audits.job(observed.blueprint)):
        manifest = differences.stamped(built)
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        standing = observed.children.get((kind, name))
        if standing is None:
            steps.append(ApplyObject(f"create {kind} {name}", manifest, is_new=True))
            continue
        left = observed.put_back.get(standing["metadata"]["uid"], ())
        if kind == "Job":
            step: Step | None = put_job_right(manifest, standing, left)
        else:
            step = put_right(manifest, standing, left) if _may_change(observed, manifest, standing) else None
        steps += [step] if step is not None else []
    return steps


def _may_change(observed: Observed, manifest: Mapping[str, Any], standing: Mapping[str, Any]) -> bool:
    """Whether the ConfigMap may be written: what a run was told it is told again, whatever the cluster has become.

    A pod that follows another one reads it anew.
    """
    is_same = standing.get("data") == manifest["data"]
    return observed.run is None or is_same or differences.is_of(manifest, standing)


def _foreign(desired: Desired, observed: Observed) -> str | None:
    labels = {"metadata": {"labels": observed.blueprint.labels}}
    for (kind, name), standing in sorted(observed.children.items()):
        is_ours = is_owned_by(desired.uid, standing) or has_lost_its_owner(labels, standing)
        if name in (observed.blueprint.name, observed.blueprint.settings) and not is_ours:
            return f"{kind} {name}"
    return None


def _verdict(taken: Mapping[str, Any]) -> tuple[conditions.Condition, ...]:
    """Whether each broker's snapshot was taken, with their cuts."""
    snapshots = taken.get("snapshots") or ()
    lost = [f"{one['broker']}: {one.get('error') or 'no snapshot'}" for one in snapshots if one["state"] == "failed"]
    if taken["verdict"] == "failed" or lost or not snapshots:
        why = "; ".join([*lost[:_NAMED_MAX], *([taken["error"]] if taken.get("error") else [])])
        return conditions.stalled("Failed", f"not all of it was taken: {why or 'nothing was said of any broker'}")
    cuts = ", ".join(f"{one['broker']} cut {one.get('cut', '?')}" for one in snapshots[:_NAMED_MAX])
    more = len(snapshots) - _NAMED_MAX
    return conditions.ready("Taken", f"{cuts}{f' and {more} more' if more > 0 else ''}")


def _reconciling(reason: str, text: str, again_s: float | None = None) -> Plan:
    announced = (Announcement(Reason[reason], text),) if reason in Reason.__members__ else ()
    return Plan(status=Wanted(conditions.reconciling(reason, text)), announcements=announced, again_s=again_s)


def _stalled(reason: Reason, text: str) -> Plan:
    return Plan(status=Wanted(conditions.stalled(reason.name, text)), announcements=(Announcement(reason, text),))
