"""AuditJob: a CronJob that takes snapshots and audits them, and what its runs have found.

`plan` is a pure function from the manifest and what was observed to steps: the results of runs that have ended are kept
first, each as a ConfigMap of its own, since a run's pod goes with its Job; then those beyond the history limits go;
then what a run is told and the CronJob are put right. `audit_status` says what has become of it.

While the cluster's brokers are being restarted or taken away, and while something is missing that a run needs, the
CronJob is suspended (`cluster_interlock`). That follows from what is there at each look, and is nobody's duty to take
back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sterna_resources.audit_job import AuditJob

from sterna_operator import conditions
from sterna_operator.builders import audits, differences
from sterna_operator.builders.audits import AuditBlueprint
from sterna_operator.keys import Key
from sterna_operator.kinds import audit_runs, audit_status, cluster_interlock
from sterna_operator.kinds.audit_runs import Ended, Running
from sterna_operator.kinds.holds import pause_of
from sterna_operator.kinds.topology import ClusterSeen
from sterna_operator.kinds.upkeep import foreign_child, is_owned_by, put_job_right, put_right
from sterna_operator.plans import Announcement, ApplyObject, PatchObject, Plan, RemoveObject, RepairObject, Step, Wanted
from sterna_operator.reasons import Reason
from sterna_operator.schedules import Schedule, ScheduleError

# What is missing is told of by a watch; this is for one that broke.
_AGAIN_S = 15.0


@dataclass(frozen=True)
class Desired:
    """What the object in Kubernetes asks for."""

    key: Key
    uid: str
    generation: int
    resource: AuditJob
    created_ms: int
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
    """By kind and name: what carries the object's label, or has a name that a child is to have."""

    ended: tuple[Ended, ...] = ()
    """The runs whose Jobs have ended."""

    running: tuple[Running, ...] = ()
    results: Mapping[str, Ended] = field(default_factory=dict)
    """The runs whose results are kept, by name."""

    missing: tuple[str, ...] = ()
    """What a run needs and is not there, as people call it."""

    misfit: str = ""
    """Why brokers would not let a run in, whatever is there."""

    maintenance: Mapping[str, Any] | None = None
    """What the cluster is doing to its brokers."""

    put_back: Mapping[str, Any] = field(default_factory=dict)


def plan(desired: Desired, observed: Observed) -> Plan:
    """What is to be done for an AuditJob."""
    if desired.is_deleting:
        return Plan()
    spec = desired.resource.spec
    pause = pause_of(spec.paused, observed.now_ms)
    if pause is not None:
        # What its runs have found is still so.
        ready = pause.said(desired.status, desired.generation)
        found = conditions.standing(desired.status, audit_status.CLEAN, audit_status.STALE)
        return pause.plan(Wanted((*ready, *found), audit_status.kept(desired.status)))
    history = audit_status.History(
        all_runs={**{one.run: one for one in observed.ended}, **observed.results},
        now_ms=observed.now_ms,
        running=observed.running,
        good_max=spec.successful_jobs_history_limit,
        bad_max=spec.failed_jobs_history_limit,
        status=desired.status,
    )
    steps = _kept_results(observed, history)
    hold, schedule, wanted = _hold(desired, observed), None, list[dict[str, Any]]()
    try:
        schedule = Schedule(spec.schedule, spec.time_zone)
    except ScheduleError as error:
        # What stands goes on by the schedule that it has.
        hold = Hold("Invalid", str(error), is_stalled=True, is_buildable=False, suspends=False)
    if hold is None or hold.is_buildable:
        wanted = children(desired.resource, observed.blueprint, is_held=hold is not None) + _lasts(desired, observed)
    if (foreign := foreign_child(desired.uid, observed.children, [*wanted, *_manifests(steps)])) is not None:
        text = f"{foreign} exists already and is not this AuditJob's: rename one of them"
        return _told(desired, observed, history, [], Hold("NameClaimed", text, is_stalled=True), schedule)
    if hold is not None and not hold.is_buildable and hold.suspends:
        steps += _suspended(desired, observed)
    steps += _applied(observed, wanted)
    return _told(desired, observed, history, steps, hold, schedule)


@dataclass(frozen=True)
class Hold:
    """Why no run is to begin, whatever the schedule says."""

    reason: str
    text: str
    is_stalled: bool = False
    is_buildable: bool = True
    """Whether it is known what a run would be told: else what stands stays as it is, but for being suspended."""

    suspends: bool = True
    again_s: float | None = None


def children(job: AuditJob, blueprint: AuditBlueprint, *, is_held: bool) -> list[dict[str, Any]]:
    """What a run is told, and the CronJob."""
    built = [audits.settings(blueprint), audits.cron_job(blueprint, job, is_held=is_held)]
    return [differences.stamped(one) for one in built]


def _hold(desired: Desired, observed: Observed) -> Hold | None:
    cluster = observed.cluster
    if not cluster.is_there:
        return Hold("ReferenceMissing", f"there is no {cluster.label}", is_buildable=False)
    if not cluster.allows:
        text = f"{cluster.label} does not allow objects of namespace {desired.key.namespace} (spec.allowedNamespaces)"
        return Hold("NotAllowed", text, is_stalled=True, is_buildable=False)
    if cluster.is_going:
        return Hold("ReferenceMissing", f"{cluster.label} is being deleted", is_stalled=True, is_buildable=False)
    if observed.blueprint.cluster is None:
        return Hold("ReferenceMissing", f"{cluster.label} cannot be read", is_buildable=False)
    if observed.misfit:
        return Hold("Invalid", observed.misfit, is_stalled=True, is_buildable=False)
    if observed.missing:
        return Hold("ReferenceMissing", f"waits for {', '.join(observed.missing)}", again_s=_AGAIN_S)
    if why := cluster_interlock.holds(observed.maintenance, observed.now_ms):
        assert observed.maintenance is not None  # it is what holds
        left_s = (cluster_interlock.held_until_ms(observed.maintenance) - observed.now_ms) / 1000
        return Hold("Held", f"no run is begun while {cluster.label} is changed: {why}", again_s=left_s)
    return None


def _lasts(desired: Desired, observed: Observed) -> list[dict[str, Any]]:
    """The last snapshots of brokers that wait for it before they go."""
    leaving = tuple((observed.maintenance or {}).get("leaving") or ())
    if not leaving or observed.maintenance is None or desired.resource.spec.suspend or observed.misfit:
        return []
    blueprint = replace(observed.blueprint, leaving=leaving)
    since_ms = cluster_interlock.since_ms(observed.maintenance)
    return [differences.stamped(one) for one in (audits.settings(blueprint), audits.last_job(blueprint, since_ms))]


# Steps


def _kept_results(observed: Observed, history: audit_status.History) -> list[Step]:
    """Results that are to be kept and are not yet, and then those that are kept no longer."""
    steps: list[Step] = []
    for one in history.kept:
        name = audits.result_name(one.run)
        if one.run not in observed.results:
            manifest = differences.stamped(audits.result(observed.blueprint, one.run, one.status, one.told))
            steps.append(ApplyObject(f"keep the result of run {one.run}: {one.verdict}", manifest, is_new=True))
        elif not is_owned_by(observed.blueprint.uid, child := observed.children["ConfigMap", name]):
            steps.append(_owned(observed.blueprint, child))
    kept = {audits.result_name(one.run) for one in history.kept} | {observed.blueprint.settings}
    if (observed.maintenance or {}).get("leaving"):
        kept |= {audits.last_settings(observed.blueprint.name)}
        kept |= {audits.last_run(observed.blueprint.name, cluster_interlock.since_ms(observed.maintenance or {}))}
    for (kind, name), child in sorted(observed.children.items()):
        is_ours = is_owned_by(observed.blueprint.uid, child) and "deletionTimestamp" not in child["metadata"]
        is_last = kind == "Job" and audits.LAST_ANNOTATION in (child["metadata"].get("annotations") or {})
        if (kind == "ConfigMap" or is_last) and is_ours and name not in kept:
            where = (child["apiVersion"], kind, child["metadata"]["namespace"], name)
            metadata = child["metadata"]
            summary = f"remove {kind} {name}, which is kept no longer"
            steps.append(RemoveObject(summary, *where, metadata["uid"], metadata["resourceVersion"]))
    return steps


def _owned(blueprint: AuditBlueprint, child: Mapping[str, Any]) -> PatchObject:
    """A result whose owner somebody took away would stay for ever."""
    metadata = child["metadata"]
    owners = blueprint.object("v1", "ConfigMap", metadata["name"])["metadata"]["ownerReferences"]
    where = ("v1", "ConfigMap", blueprint.namespace, metadata["name"])
    patch = {"metadata": {"ownerReferences": owners}}
    return PatchObject(f"take ConfigMap {metadata['name']} back", *where, patch, metadata["resourceVersion"])


def _applied(observed: Observed, wanted: Iterable[Mapping[str, Any]]) -> list[Step]:
    steps: list[Step] = []
    for manifest in wanted:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        standing = observed.children.get((kind, name))
        if standing is None:
            steps.append(ApplyObject(f"create {kind} {name}", manifest, is_new=True))
            continue
        left = observed.put_back.get(standing["metadata"]["uid"], ())
        if kind != "Job":
            step: Step | None = put_right(manifest, standing, left)
        else:
            step = None if audit_runs.is_over(standing) else put_job_right(manifest, standing, left)
        steps += [step] if step is not None else []
    return steps


def _suspended(desired: Desired, observed: Observed) -> list[Step]:
    """A CronJob whose runs would find no brokers, or none that are theirs, begins none."""
    standing = observed.children.get(("CronJob", desired.key.name))
    if standing is None or standing["spec"].get("suspend") or not is_owned_by(desired.uid, standing):
        return []
    metadata, patch = standing["metadata"], {"spec": {"suspend": True}}
    where = ("batch/v1", "CronJob", desired.key.namespace, desired.key.name)
    return [PatchObject(f"suspend CronJob {desired.key.name}", *where, patch, metadata["resourceVersion"])]


def _manifests(steps: Iterable[Step]) -> list[Mapping[str, Any]]:
    return [step.manifest for step in steps if isinstance(step, ApplyObject)]


# Saying it


def _told(
    desired: Desired,
    observed: Observed,
    history: audit_status.History,
    steps: list[Step],
    hold: Hold | None,
    schedule: Schedule | None,
) -> Plan:
    facts = audit_status.Facts(
        desired.resource, desired.created_ms, history, schedule, hold.text if hold else "", observed.now_ms
    )
    ready = _ready(desired, facts, hold)
    wanted = Wanted((*ready, *audit_status.judged(facts)), audit_status.fields(facts))
    again = [one for one in (hold.again_s if hold else None, audit_status.again_s(facts)) if one is not None]
    announced = (*_announcements(desired, steps, hold), *audit_status.announcements(facts))
    return Plan(tuple(steps), wanted, announced, min(again) if again else None)


def _ready(desired: Desired, facts: audit_status.Facts, hold: Hold | None) -> tuple[conditions.Condition, ...]:
    if hold is None:
        reason = "Suspended" if desired.resource.spec.suspend else "Scheduled"
        return conditions.ready(reason, audit_status.words(facts))
    if hold.is_stalled:
        return conditions.stalled(hold.reason, hold.text)
    return conditions.reconciling(hold.reason, hold.text, is_ready=hold.reason == "Held")


def _announcements(desired: Desired, steps: Iterable[Step], hold: Hold | None) -> list[Announcement]:
    said = [
        Announcement(Reason.DriftRepaired, step.summary)
        for step in steps
        if isinstance(step, RepairObject) or (isinstance(step, ApplyObject) and step.is_drift)
    ]
    if hold is not None and hold.reason in Reason.__members__:
        said.append(Announcement(Reason[hold.reason], hold.text))
    return said
