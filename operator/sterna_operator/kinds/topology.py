"""What the topology kinds have in common: a record in etcd, brokers that report, an object that says so.

`plan` decides what all of them share: whether the object may act at all (its cluster is there, allows it, can be
reached; it is not paused; the name is its own), the finalizer, the record, the deletion, and what the conditions say.
A kind adds which other objects it needs (`references`), and whether one broker has it or all of them do.

It is a pure function. What it is told (`Desired`, `Observed`) is all that it knows, and what it answers is a plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sterna_etcd.layout import Claim
from sterna_etcd.records import ConfigRecord, Deleting, ObjectStatus, Owner
from sterna_resources.topology import TopologyResource

from sterna_operator import conditions
from sterna_operator.keys import Key
from sterna_operator.kinds.holds import pause_of
from sterna_operator.mirror import Kept
from sterna_operator.plans import (
    FINALIZER,
    AddFinalizer,
    Announcement,
    Plan,
    PutConfig,
    RemoveConfig,
    RemoveFinalizer,
    Step,
    Wanted,
)
from sterna_operator.reasons import Reason
from sterna_operator.words import counted

RETAIN = "retain"
_KEPT_FIELDS = ("home", "credentials", "overlapUntil", "passwordVersion")


@dataclass(frozen=True)
class Desired:
    """What an object in Kubernetes asks for."""

    key: Key
    uid: str
    generation: int
    resource: TopologyResource
    is_deleting: bool = False
    has_finalizer: bool = False
    status: Mapping[str, Any] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()
    """Fields that only newer definitions know."""

    @property
    def claim(self) -> Claim:
        """The name that it claims, with its kind."""
        return Claim(self.key.kind, self.resource.claim)

    @property
    def owner(self) -> Owner:
        """How its records name it."""
        return Owner(by="operator", namespace=self.key.namespace, name=self.key.name, uid=self.uid)


@dataclass(frozen=True)
class ClusterSeen:
    """The cluster that the object names, as far as it concerns the object."""

    label: str
    is_there: bool = True
    is_going: bool = False
    allows: bool = True
    fault: tuple[str, str] | None = None
    """Reason and text, when its etcd cannot be used."""

    brokers: frozenset[str] = frozenset()
    """The brokers that live."""


@dataclass(frozen=True)
class Observed:
    """What is known of the world around one object."""

    now_ms: int
    cluster: ClusterSeen
    config: Kept[ConfigRecord] | None = None
    config_fault: str = ""
    """What is wrong with the record that stands there, when it cannot be read."""

    statuses: Mapping[str, ObjectStatus] = field(default_factory=dict)
    home: str | None = None
    left_by: Owner | None = None
    """Whose it was when it was left behind in the brokers; None: nobody's that is known."""

    missing: tuple[str, ...] = ()
    """The objects that it needs and that are not there."""

    holder_is_there: bool = True
    """Whether the object in Kubernetes that the record belongs to still exists."""

    namespace_is_going: bool = False


def plan(desired: Desired, observed: Observed, *, everywhere: bool = False) -> Plan:
    """What to do for one object. `everywhere`: every broker has it, not one home alone."""
    if desired.is_deleting:
        return _deletion(desired, observed)
    early = standing_back(desired, observed)
    if early is not None:
        return early
    config = observed.config
    if observed.config_fault:
        return _stalled(desired, Reason.Invalid, f"what stands in etcd cannot be read: {observed.config_fault}")
    if config is not None and not _is_ours(desired, config.record.owner):
        refusal = _conflict(desired, observed, config.record.owner)
        if refusal is not None:
            return refusal
    elif config is None and observed.home is not None and not _was_managed(desired, observed):
        refusal = _existing(desired, observed)
        if refusal is not None:
            return refusal
    if observed.missing:
        text = f"waits for {', '.join(observed.missing)}"
        again = Announcement(Reason.ReferenceMissing, text)
        return Plan(
            status=_wanted(desired, observed, conditions.reconciling("ReferenceMissing", text)), announcements=(again,)
        )
    return _upkeep(desired, observed, everywhere)


def standing_back(desired: Desired, observed: Observed) -> Plan | None:
    """The plan for an object that may not act at present, whatever its kind; None: it may."""
    cluster = observed.cluster
    pause = _pause(desired, observed)
    if pause is not None:
        return pause
    if not cluster.is_there:
        text = f"there is no {cluster.label}"
        status = _wanted(desired, observed, conditions.reconciling("ReferenceMissing", text))
        return Plan(status=status, announcements=(Announcement(Reason.ReferenceMissing, text),))
    if not cluster.allows:
        text = f"{cluster.label} does not allow objects of namespace {desired.key.namespace} (spec.allowedNamespaces)"
        return _stalled(desired, Reason.NotAllowed, text)
    if cluster.is_going:
        return _stalled(desired, Reason.ReferenceMissing, f"{cluster.label} is being deleted")
    if cluster.fault is not None:
        return _unreachable(desired, cluster.fault)
    return None


def _pause(desired: Desired, observed: Observed) -> Plan | None:
    """The plan of an object that is paused; None: it is not, or no more."""
    pause = pause_of(desired.resource.spec.paused, observed.now_ms)
    if pause is None:
        return None
    return pause.plan(Wanted(pause.said(desired.status, desired.generation), kept_fields(desired)))


def kept_fields(desired: Desired) -> dict[str, Any]:
    """The fields of the status that are not said anew: of a user, too, what was found of its password."""
    known = {name: desired.status[name] for name in _KEPT_FIELDS if name in desired.status}
    return {"claim": desired.resource.claim, **known}


def _unreachable(desired: Desired, fault: tuple[str, str]) -> Plan:
    """Etcd is away: an object that is as it should be stays so; brokers serve on without etcd, too."""
    reason, text = fault
    ready = conditions.find(desired.status, conditions.READY)
    if ready.get("status") == "True" and ready.get("observedGeneration") == desired.generation:
        return Plan()
    return Plan(status=Wanted(conditions.reconciling(reason, text), kept_fields(desired)))


def _is_ours(desired: Desired, owner: Owner) -> bool:
    """Whether a record belongs to this object, or to one of the same namespace and name that was there before it."""
    return owner.by == "operator" and (owner.namespace, owner.name) == (desired.key.namespace, desired.key.name)


def _was_managed(desired: Desired, observed: Observed) -> bool:
    """Whether what exists in the brokers is this object's, although its record is gone: it was deleted by somebody."""
    if any(status.uid == desired.uid for status in observed.statuses.values()):
        return True
    return bool(desired.status.get("home"))


def _has_left_it(desired: Desired, observed: Observed) -> bool:
    """Whether what brokers have was left behind by an object of the same namespace and name: deleted, applied again."""
    return observed.left_by is not None and _is_ours(desired, observed.left_by)


def _conflict(desired: Desired, observed: Observed, owner: Owner) -> Plan | None:
    """The name is somebody else's; None: it may be taken over."""
    claim = desired.claim
    adoption = desired.resource.spec.adoption
    if owner.by == "operator":
        if not observed.holder_is_there:
            # The other one is gone; its record goes first, and then this object is looked at again.
            text = f"the {claim.kind} '{claim.name}' was {owner.label}'s, which is gone; its record is being removed"
            return Plan(status=_wanted(desired, observed, conditions.reconciling("NameClaimed", text)))
        text = f"the {claim.kind} '{claim.name}' of {observed.cluster.label} belongs to {owner.label}"
        return _stalled(desired, Reason.NameClaimed, text)
    if adoption == "adopt":
        return None
    text = f"the {claim.kind} '{claim.name}' exists already and belongs to {owner.label}"
    if adoption == "observe":
        return _observing(desired, text)
    return _stalled(desired, Reason.NameClaimed, f"{text}; spec.adoption: adopt takes it over")


def _existing(desired: Desired, observed: Observed) -> Plan | None:
    """Brokers have it, and nobody manages it; None: it may be taken over."""
    claim, adoption = desired.claim, desired.resource.spec.adoption
    if adoption == "adopt" or _has_left_it(desired, observed):
        return None
    text = f"the {claim.kind} '{claim.name}' exists already on broker {observed.home}, and nobody manages it"
    if adoption == "observe":
        return _observing(desired, text)
    return _stalled(desired, Reason.Exists, f"{text}; spec.adoption: adopt takes it over")


def _observing(desired: Desired, text: str) -> Plan:
    """Without a home in the status: that is how an object remembers that what exists is its own (`_was_managed`)."""
    said = conditions.ready("Observed", f"{text}; it is observed, not changed")
    return Plan(status=Wanted(said, {"claim": desired.resource.claim}))


def _upkeep(desired: Desired, observed: Observed, everywhere: bool) -> Plan:
    """The object may act: its finalizer, its record, and what brokers make of it."""
    steps: list[Step] = []
    announcements: list[Announcement] = []
    wants_finalizer = desired.resource.spec.deletion_policy != RETAIN
    if wants_finalizer and not desired.has_finalizer:
        steps.append(AddFinalizer(f"keep {desired.key} until its deletion is carried out ({FINALIZER})"))
    put = _put(desired, observed)
    if put is not None:
        steps.append(put[0])
        announcements += put[1]
    if not wants_finalizer and desired.has_finalizer:
        steps.append(RemoveFinalizer(f"let {desired.key} be deleted at any time"))
    if put is not None:
        status = conditions.reconciling("Applying", "waits for the brokers to apply it")
    else:
        status, more = verdict(desired, observed, everywhere)
        announcements += more
    return Plan(tuple(steps), _wanted(desired, observed, status), tuple(announcements))


def _put(desired: Desired, observed: Observed) -> tuple[PutConfig, list[Announcement]] | None:
    """The record that must be written, and what is said of it; None: it stands as it should.

    Of what is simply new there is no event: its status says all of it, and an event each would be a third of the writes
    of a thousand new queues.
    """
    manifest = desired.resource.broker_document()
    record = ConfigRecord(manifest=manifest, owner=desired.owner, generation=desired.generation)
    standing, claim = observed.config, desired.claim
    label = f"{claim.kind} '{claim.name}'"
    if standing is None:
        was_there = desired.status.get("observedGeneration", -1) == desired.generation and _was_managed(
            desired, observed
        )
        said = []
        if was_there:
            text = f"{label} had been deleted behind the operator's back, and is written again"
            said.append(Announcement(Reason.DriftRepaired, text))
        elif observed.home:
            again = "again" if _has_left_it(desired, observed) else "from now on"
            said.append(
                Announcement(Reason.Adopted, f"{label} existed on broker {observed.home}, and is managed {again}")
            )
        takes_back = observed.left_by is not None
        return PutConfig(f"create {label}", claim, record, 0, takes_back), said
    old = standing.record
    if old == record:
        return None
    if old.owner == record.owner and old.generation > record.generation:
        # Our copy of the object is behind; the watch will tell.
        return None
    changes = differences(old.manifest, manifest)
    if old.owner.by == "admin":
        reason, text = Reason.Adopted, f"{label} belonged to an administrator, and is managed from now on"
    elif old.generation == record.generation and old.owner == record.owner:
        reason, text = (
            Reason.DriftRepaired,
            f"{label} had been changed behind the operator's back: {'; '.join(changes)}",
        )
    else:
        reason, text = Reason.Updated, f"{label}: {'; '.join(changes) or 'nothing that concerns brokers'}"
    summary = f"update {label}: {'; '.join(changes) or f'generation {record.generation}'}"
    return PutConfig(summary, claim, record, standing.revision), [Announcement(reason, text)]


def verdict(
    desired: Desired, observed: Observed, everywhere: bool
) -> tuple[tuple[conditions.Condition, ...], list[Announcement]]:
    """What the brokers' reports on this generation amount to."""
    current = {
        broker: status
        for broker, status in observed.statuses.items()
        if status.uid == desired.uid and status.generation == desired.generation
    }
    brokers = observed.cluster.brokers
    for broker, status in sorted(current.items()):
        if status.state == "refused" and broker in brokers:
            text = f"broker {broker}: {status.message or status.reason or 'refused without a word'}"
            return conditions.stalled("Refused", text), [Announcement(Reason.Refused, text)]
    applied = {broker for broker, status in current.items() if status.state == "applied"}
    if everywhere:
        waited = brokers - applied
        if brokers and not waited:
            return conditions.ready("Applied", f"applied by {len(applied)} of {len(brokers)} brokers"), []
        if brokers:
            text = f"applied by {len(brokers) - len(waited)} of {len(brokers)} brokers"
            return conditions.reconciling("Applying", f"{text}; waits for {', '.join(sorted(waited)[:5])}"), []
    elif applied:
        return conditions.ready("Applied", _where(desired, sorted(applied)[0])), []
    if not brokers:
        return conditions.reconciling("NoBrokers", "no broker of the cluster is there to apply it"), []
    return conditions.reconciling("Applying", "waits for the brokers to apply it"), []


def _where(desired: Desired, home: str) -> str:
    """Where an object lives; and that it is not where its manifest says, when that was said too late."""
    named = getattr(desired.resource.spec, "broker", None)
    if named in (None, home):
        return f"lives on broker {home}"
    return (
        f"lives on broker {home}; spec.broker names {named}, which counts when a home is chosen and moves nothing: "
        f"delete it and make it anew, or empty {home}"
    )


# Deletion


def _deletion(desired: Desired, observed: Observed) -> Plan:
    """The object is being deleted. Without our finalizer it goes by itself, and what is left is removed afterwards."""
    if not desired.has_finalizer:
        return Plan()
    release = RemoveFinalizer(f"let {desired.key} go")
    cluster, config = observed.cluster, observed.config
    if not cluster.is_there or cluster.is_going or not cluster.allows:
        return Plan((release,))
    if cluster.fault is not None:
        status = conditions.reconciling(cluster.fault[0], f"cannot be deleted yet: {cluster.fault[1]}")
        return Plan((release,) if observed.namespace_is_going else (), _wanted(desired, observed, status))
    if config is None or observed.config_fault or not _is_ours(desired, config.record.owner):
        return Plan((release,))
    return _deletion_of_record(desired, observed, config, release)


def _deletion_of_record(
    desired: Desired, observed: Observed, config: Kept[ConfigRecord], release: RemoveFinalizer
) -> Plan:
    policy, claim = desired.resource.spec.deletion_policy, desired.claim
    label = f"{claim.kind} '{claim.name}'"
    left_by = desired.owner if observed.home is not None else None
    remove = RemoveConfig(f"remove the record of {label}", claim, config.revision, left_by=left_by)
    if policy == RETAIN:
        return Plan((remove, release), announcements=(Announcement(Reason.Deleted, f"{label} stays in the brokers"),))
    deleting = Deleting(policy=policy, uid=desired.uid)
    steps: list[Step] = []
    words = f"with {_held(desired, observed)}" if policy == "delete" else "as soon as it is empty"
    if config.record.deleting != deleting:
        record = config.record.model_copy(update={"deleting": deleting, "owner": desired.owner})
        steps.append(PutConfig(f"have the brokers delete {label} {words}", claim, record, config.revision))
        said = [Announcement(Reason.Deleting, f"the brokers are to delete {label} {words}")]
        if observed.namespace_is_going and policy == "delete":
            steps.append(release)
        status = conditions.reconciling("Deleting", f"waits for the brokers to delete {label} {words}")
        return Plan(tuple(steps), _wanted(desired, observed, status), tuple(said))
    reports = {broker: one for broker, one in observed.statuses.items() if one.uid == desired.uid}
    live = observed.cluster.brokers
    blocked = {broker: one for broker, one in reports.items() if one.state == "blocked" and broker in live}
    if not blocked and any(one.state == "deleted" for one in reports.values()):
        remove = replace(remove, is_deleted=True, left_by=None)
        went = sum(one.messages for one in reports.values() if one.state == "deleted")
        text = f"{label} is deleted" + (f", and with it {counted(went, 'message')}" if went else "")
        return Plan((remove, release), announcements=(Announcement(Reason.Deleted, text),))
    if observed.namespace_is_going:
        return _leave_with_namespace(desired, remove, release)
    if blocked:
        return _blocked(desired, observed, blocked)
    status = conditions.reconciling("Deleting", f"waits for the brokers to delete {label} {words}")
    return Plan(status=_wanted(desired, observed, status))


def _held(desired: Desired, observed: Observed) -> str:
    """What a deletion would destroy, as far as brokers have said it: they count now and then."""
    if desired.claim.kind == "Topic":
        # Brokers count for it what others hold of it, too.
        return "the messages that durable subscriptions to it hold"
    said = [one.messages for one in observed.statuses.values() if one.uid == desired.uid and one.state == "applied"]
    if not said:
        return "its messages"
    return f"its messages ({counted(sum(said), 'message')} when they were last counted)"


def _leave_with_namespace(desired: Desired, remove: RemoveConfig, release: RemoveFinalizer) -> Plan:
    """The namespace is being deleted: nothing may hold it up.

    The brokers have been told to delete; where they only may when it is empty, it stays in them.
    """
    if desired.resource.spec.deletion_policy == "delete":
        return Plan((release,))
    return Plan((remove, release))


def _blocked(desired: Desired, observed: Observed, blocked: Mapping[str, ObjectStatus]) -> Plan:
    claim = desired.claim
    messages = sum(one.messages for one in blocked.values())
    where = ", ".join(sorted(blocked))
    text = (
        f"the deletion of {claim.kind} '{claim.name}' waits: broker {where} has {counted(messages, 'message')} in it; "
        "spec.deletionPolicy: delete destroys them"
    )
    if not messages:
        text = (
            f"the deletion of {claim.kind} '{claim.name}' waits: {'; '.join(one.message for one in blocked.values())}"
        )
    status = _wanted(desired, observed, conditions.reconciling("DeletionBlocked", text))
    if messages:
        status = Wanted(status.conditions, {**status.fields, "messages": messages})
    return Plan(status=status, announcements=(Announcement(Reason.DeletionBlocked, text),))


def gone(
    claim: Claim, config: Kept[ConfigRecord], observed_statuses: Mapping[str, ObjectStatus], home: str | None = None
) -> Plan:
    """What to do with the record of an object that is no more in Kubernetes. `home`: the broker that has it.

    Without a deletion order its policy was to retain, or it was torn away by force: the record goes, and brokers keep
    what has messages. With one (its namespace went faster than the brokers) the order is waited for.
    """
    remove = RemoveConfig(
        f"remove the record of {claim.kind} '{claim.name}': the object is gone", claim, config.revision
    )
    if any(one.state == "deleted" for one in observed_statuses.values()):
        return Plan((remove,))
    if config.record.deleting is None:
        return Plan((replace(remove, left_by=config.record.owner if home is not None else None),))
    return Plan()


# Saying it


def _stalled(desired: Desired, reason: Reason, text: str) -> Plan:
    status = Wanted(conditions.stalled(reason.name, text), kept_fields(desired))
    return Plan(status=status, announcements=(Announcement(reason, text),))


def _wanted(desired: Desired, observed: Observed, status: tuple[conditions.Condition, ...]) -> Wanted:
    fields: dict[str, Any] = {"claim": desired.resource.claim}
    homes = [one.home for one in observed.statuses.values() if one.home and one.state in ("applied", "blocked")]
    home = observed.home or next(iter(sorted(homes)), None) or desired.status.get("home")
    if home:
        fields["home"] = home
    return Wanted(status, fields)


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "") -> list[str]:
    """Field by field, what is another in the second: `spec.maxMessages: 10 -> 20`."""
    found = []
    for name in [*old, *(name for name in new if name not in old)]:
        here = f"{path}.{name}" if path else name
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            found += differences(before, after, here)
        elif before != after:
            found.append(f"{here}: {_shown(before)} -> {_shown(after)}")
    return found


def _shown(value: Any) -> str:
    text = "absent" if value is None else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
