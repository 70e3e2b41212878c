"""User: a password in a Secret becomes a hash in etcd, with the old one taken for a while beside the new.

`plan` is pure: whether the Secret's password is the one that stands, and the hash of it if not, it is told. A record
without credentials lets nobody in; that is what a deletion writes first, and when every broker has applied that
revision the record goes, and then the object.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna_etcd.records import BrokerStatus, Credential, ObjectStatus, RecordError, UserRecord
from sterna_resources.user import User

from sterna_operator import conditions
from sterna_operator.keys import Key
from sterna_operator.kinds import topology
from sterna_operator.kinds.holds import noting
from sterna_operator.kinds.placed import holder_is_there, read, see_cluster
from sterna_operator.kinds.topology import ClusterSeen, Desired
from sterna_operator.mirror import Kept
from sterna_operator.passwords import PasswordFaultError, Passwords
from sterna_operator.plans import (
    AddFinalizer,
    Announcement,
    Plan,
    PutUser,
    RemoveFinalizer,
    RemoveUser,
    Step,
    Wanted,
)
from sterna_operator.reasons import Reason
from sterna_operator.view import Child, Decision, View

_CREDENTIALS_MAX = 8


@dataclass(frozen=True)
class PasswordSeen:
    """The Secret's password, without the password.

    `stands`: the standing credential that is of it, by position; None: none is, and `fresh_hash` is a new one's.
    """

    version: str
    """Which version of the Secret it is."""

    stands: int | None = None
    fresh_hash: str = field(default="", repr=False)


@dataclass(frozen=True)
class Observed:
    """What is known of the world around one user."""

    now_ms: int
    cluster: ClusterSeen
    record: Kept[UserRecord] | None = None
    password: PasswordSeen | None = None
    password_fault: tuple[str, str] | None = None
    """Reason and text, when there is no usable password."""

    statuses: Mapping[str, ObjectStatus] = field(default_factory=dict)
    brokers: Mapping[str, BrokerStatus] = field(default_factory=dict)
    """What the brokers that live say of themselves."""

    holder_is_there: bool = True
    namespace_is_going: bool = False


class UserKind:
    """The kind as the worker sees it."""

    name = "User"
    children: tuple[Child, ...] = ()

    def __init__(self) -> None:
        self._passwords = Passwords()

    async def decide(self, view: View, object: Mapping[str, Any]) -> Decision:
        """See view.Kind."""
        desired = read(object)
        if isinstance(desired, Plan):
            return Decision(desired)
        seen, store = await see_cluster(view, object)
        going = desired.is_deleting and desired.has_finalizer and await view.namespace_is_going(desired.key.namespace)
        if store is None:
            unseen = Observed(view.now_ms(), seen, namespace_is_going=going)
            return Decision(noting(plan(desired, unseen), desired.passed_over))
        mirror, record, fault = store.mirror, None, None
        try:
            record = mirror.user(desired.claim.name)
        except RecordError as error:
            fault = ("Invalid", f"what stands in etcd cannot be read: {error}")
        holder = True
        if record is not None and record.record.owner.by == "operator":
            owner = record.record.owner
            holder = await holder_is_there(view, Key("User", owner.namespace, owner.name))
        password = None
        if fault is None and not desired.is_deleting:
            try:
                password = await self._password(view, desired, record)
            except PasswordFaultError as error:
                fault = (error.reason, str(error))
        said = mirror.broker_statuses()
        observed = Observed(
            view.now_ms(),
            seen,
            record,
            password,
            fault,
            mirror.statuses(desired.claim),
            {name: said.get(name, BrokerStatus(applied_revision=0, state="starting")) for name in seen.brokers},
            holder,
            going,
        )
        return Decision(noting(plan(desired, observed), desired.passed_over), store)

    async def decide_gone(self, view: View, key: Key) -> list[Decision]:
        """See view.Kind."""
        decisions = []
        for store in view.clusters.all().values():
            for claim in store.mirror.owned(key):
                record = store.mirror.user(claim.name)
                if record is not None:
                    remove = RemoveUser(f"remove user '{claim.name}': the object is gone", claim.name, record.revision)
                    decisions.append(Decision(Plan((remove,)), store))
        return decisions

    async def _password(self, view: View, desired: Desired, record: Kept[UserRecord] | None) -> PasswordSeen:
        user = desired.resource
        assert isinstance(user, User)
        reference = user.spec.password_secret
        secret = await view.secrets.get(desired.key.namespace, reference.name)
        label = f"Secret {desired.key.namespace}/{reference.name}"
        if secret is None:
            raise PasswordFaultError("ReferenceMissing", f"waits for the {label}")
        try:
            text = secret.text(reference.key)
        except UnicodeDecodeError as error:
            raise PasswordFaultError("Invalid", f"{label}: {reference.key} is no UTF-8") from error
        if not text:
            raise PasswordFaultError("ReferenceMissing", f"waits for {reference.key} in the {label}")
        credentials = record.record.credentials if record else []
        known = desired.status.get("passwordVersion")
        for position, one in enumerate(credentials):
            if known == _mark(secret.version, one.argon2):
                # Compared before, by an operator before this one.
                return PasswordSeen(secret.version, position)
        stands, fresh = await self._passwords.look(desired.uid, secret.version, reference.key, text, credentials)
        return PasswordSeen(secret.version, stands, fresh)


def plan(desired: Desired, observed: Observed) -> Plan:
    """What to do for one user."""
    if desired.is_deleting:
        return _deletion(desired, observed)
    early = topology.standing_back(desired, topology.Observed(observed.now_ms, observed.cluster))
    if early is not None:
        return early
    refusal = _conflict(desired, observed)
    if refusal is not None:
        return refusal
    if observed.password_fault is not None:
        reason, text = observed.password_fault
        status = (
            conditions.reconciling(reason, text) if reason == "ReferenceMissing" else conditions.stalled(reason, text)
        )
        return Plan(status=_wanted(desired, status, observed), announcements=(Announcement(Reason[reason], text),))
    assert observed.password is not None  # without a fault there is one
    return _upkeep(desired, observed, observed.password)


def _conflict(desired: Desired, observed: Observed) -> Plan | None:
    record, name = observed.record, desired.claim.name
    if record is None:
        return None
    owner, adoption = record.record.owner, desired.resource.spec.adoption
    if owner.by == "operator":
        if (owner.namespace, owner.name) == (desired.key.namespace, desired.key.name):
            return None
        if not observed.holder_is_there:
            text = f"the user '{name}' was {owner.label}'s, which is gone; its record is being removed"
            return Plan(status=_wanted(desired, conditions.reconciling("NameClaimed", text), observed))
        text = f"the user '{name}' of {observed.cluster.label} belongs to {owner.label}"
    elif adoption == "adopt":
        return None
    else:
        text = f"the user '{name}' exists already and belongs to {owner.label}"
        if adoption == "observe":
            return Plan(status=_wanted(desired, conditions.ready("Observed", f"{text}; it is not changed"), observed))
        text += "; spec.adoption: adopt takes it over"
    status = _wanted(desired, conditions.stalled("NameClaimed", text), observed)
    return Plan(status=status, announcements=(Announcement(Reason.NameClaimed, text),))


def credentials(user: User, standing: list[Credential], password: PasswordSeen, now_ms: int) -> list[Credential]:
    """Which passwords are to be taken: the Secret's without an end, those before it until the overlap is over."""
    overlap_ms = 0 if user.spec.revoke_immediately else user.spec.overlap_seconds * 1000
    if password.stands is None:
        current = Credential(argon2=password.fresh_hash)
        others = standing
    else:
        current = standing[password.stands].model_copy(update={"not_after_ms": None})
        others = [one for index, one in enumerate(standing) if index != password.stands]
    kept = []
    for one in others:
        end = now_ms + overlap_ms if one.not_after_ms is None else one.not_after_ms
        if end > now_ms and not user.spec.revoke_immediately:
            kept.append(one.model_copy(update={"not_after_ms": end}))
    return [current, *kept[: _CREDENTIALS_MAX - 1]]


def _upkeep(desired: Desired, observed: Observed, password: PasswordSeen) -> Plan:
    user = desired.resource
    assert isinstance(user, User)
    name, standing = desired.claim.name, observed.record
    steps: list[Step] = []
    said: list[Announcement] = []
    if user.spec.deletion_policy != topology.RETAIN and not desired.has_finalizer:
        steps.append(AddFinalizer(f"keep {desired.key} until its deletion is carried out"))
    before = standing.record.credentials if standing else []
    wanted = credentials(user, before, password, observed.now_ms)
    record = UserRecord(credentials=wanted, owner=desired.owner)
    if standing is None or standing.record != record:
        is_new = password.stands is None
        what = "create" if standing is None else "change the password of" if is_new else "update"
        steps.append(PutUser(f"{what} user '{name}'", name, record, standing.revision if standing else 0))
        if is_new and standing is not None:
            until = "ends at once" if len(wanted) == 1 else f"is taken for {user.spec.overlap_seconds} s more"
            said.append(
                Announcement(Reason.CredentialsChanged, f"user '{name}' has a new password; the old one {until}")
            )
        status = conditions.reconciling("Applying", "waits for the brokers to apply it")
    else:
        status, said = _verdict(desired, observed, standing.revision)
    if user.spec.deletion_policy == topology.RETAIN and desired.has_finalizer:
        steps.append(RemoveFinalizer(f"let {desired.key} be deleted at any time"))
    ends = [one.not_after_ms for one in wanted if one.not_after_ms is not None]
    again = (min(ends) - observed.now_ms) / 1000 + 0.05 if ends else None
    fields: dict[str, Any] = {
        "claim": name,
        "credentials": len(wanted),
        "passwordVersion": _mark(password.version, wanted[0].argon2),
    }
    if ends:
        fields["overlapUntil"] = conditions.timestamp(max(ends))
    return Plan(tuple(steps), Wanted(status, fields), tuple(said), again)


def _mark(version: str, argon2: str) -> str:
    """That this version of the Secret was found to be the password of this hash."""
    return f"{version}#{hashlib.sha256(argon2.encode()).hexdigest()[:16]}"


def _verdict(
    desired: Desired, observed: Observed, revision: int
) -> tuple[tuple[conditions.Condition, ...], list[Announcement]]:
    for broker, one in sorted(observed.statuses.items()):
        if one.state == "refused" and broker in observed.brokers:
            text = f"broker {broker}: {one.message or one.reason}"
            return conditions.stalled("Refused", text), [Announcement(Reason.Refused, text)]
    if not observed.brokers:
        return conditions.reconciling("NoBrokers", "no broker of the cluster is there to apply it"), []
    waited = sorted(name for name, said in observed.brokers.items() if said.applied_revision < revision)
    if waited:
        return conditions.reconciling("Applying", f"waits for {', '.join(waited[:5])}"), []
    return conditions.ready("Applied", f"applied by {len(observed.brokers)} brokers"), []


def _deletion(desired: Desired, observed: Observed) -> Plan:
    if not desired.has_finalizer:
        return Plan()
    name, cluster, record = desired.claim.name, observed.cluster, observed.record
    release = RemoveFinalizer(f"let {desired.key} go")
    if not cluster.is_there or cluster.is_going or not cluster.allows:
        return Plan((release,))
    if cluster.fault is not None:
        status = conditions.reconciling(cluster.fault[0], f"cannot be deleted yet: {cluster.fault[1]}")
        return Plan((release,) if observed.namespace_is_going else (), _wanted(desired, status, observed))
    owner = record.record.owner if record else None
    is_ours = owner is not None and (owner.namespace, owner.name) == (desired.key.namespace, desired.key.name)
    if record is None or not is_ours:
        return Plan((release,))
    remove = RemoveUser(f"remove user '{name}'", name, record.revision)
    if observed.namespace_is_going or desired.resource.spec.deletion_policy == topology.RETAIN:
        return Plan((remove, release))
    if record.record.credentials:
        empty = UserRecord(credentials=[], owner=desired.owner)
        shut = PutUser(f"let user '{name}' in no more", name, empty, record.revision)
        status = conditions.reconciling("Deleting", "waits for the brokers to let it in no more")
        return Plan((shut,), _wanted(desired, status, observed))
    waited = sorted(broker for broker, said in observed.brokers.items() if said.applied_revision < record.revision)
    if waited:
        status = conditions.reconciling("Deleting", f"waits for {', '.join(waited[:5])} to let it in no more")
        return Plan(status=_wanted(desired, status, observed))
    return Plan((remove, release), announcements=(Announcement(Reason.Deleted, f"user '{name}' is deleted"),))


def _wanted(desired: Desired, status: tuple[conditions.Condition, ...], observed: Observed) -> Wanted:
    kept = {name: desired.status[name] for name in ("credentials", "passwordVersion") if name in desired.status}
    return Wanted(status, {"claim": desired.resource.claim, **kept})
