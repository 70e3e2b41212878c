"""How a MessagingCluster goes: what its deletion waits for, what it destroys, and what becomes of its volumes.

Kubernetes removes whatever a cluster owns as soon as its finalizer is off. Which volumes it owns follows from the
deletion policy, and is put right before that: people change their mind about the policy until the last moment.
"""

from collections.abc import Sequence

from sterna_operator import conditions
from sterna_operator.kinds import cluster_status
from sterna_operator.kinds.cluster_scaling import Members
from sterna_operator.kinds.cluster_seen import Desired, Observed
from sterna_operator.plans import Announcement, Plan, PutDrain, RemoveDrain, RemoveFinalizer, Step, Wanted
from sterna_operator.reasons import Reason
from sterna_operator.words import counted

# Something is on its way that no watch tells of: a broker's report.
_AGAIN_S = 5.0
_AT_ONCE_S = 0.1


def decide(desired: Desired, observed: Observed, volumes: Sequence[Step], upkeep: Sequence[Step]) -> Plan:
    """The plan for a cluster that is being deleted and has our finalizer.

    `volumes`: what makes volumes belong to the cluster, or to it no more, as its policy says; before it goes, whatever
    it waited for. `upkeep`: what keeps it serving while it waits.

    Only onlyIfEmpty has something to wait for. While there are messages the brokers serve on. Once there are none they
    are closed to producers, and the cluster goes when they say that they are empty since then; if not, they are opened
    again. Brokers that somebody took away with their StatefulSet cannot be asked: what they hold is on the volumes,
    which stay.
    """
    go = (*volumes, RemoveFinalizer(f"let {desired.label} go"))
    policy = desired.cluster.spec.deletion_policy
    if policy == "retain" or observed.namespace_is_going:
        return Plan(go)
    if policy == "delete":
        return _destruction(desired, observed, go)
    if ("StatefulSet", f"{desired.cluster.metadata.name}-broker") not in observed.children:
        return Plan(go)
    waiting = _waiting(desired, observed, (*volumes, *upkeep))
    if waiting is not None:
        return waiting
    text = f"{desired.label} is empty, and goes; its volumes stay"
    return Plan(go, announcements=(Announcement(Reason.Deleted, text),))


def _waiting(desired: Desired, observed: Observed, steps: Sequence[Step]) -> Plan | None:
    """The plan while messages are left, or nobody has said that none are; None: the cluster is empty, and closed."""
    fields, members = cluster_status.kept(desired.status), observed.members
    if members.fault is not None:
        text = f"the deletion waits: whether messages are left cannot be told: {members.fault[1]}"
        return Plan(tuple(steps), Wanted(conditions.reconciling("DeletionBlocked", text), fields), again_s=_AGAIN_S)
    absent = sorted(name for name in members.statuses if name not in members.live and members.homes.get(name))
    messages = sum(_messages(name, members) for name in members.statuses)
    if messages or absent:
        unasked = f"broker {', '.join(absent)} is not there to be asked"
        left = f"it holds {counted(messages, 'message')}" if messages else unasked
        text = f"the deletion waits: {left}; spec.deletionPolicy: delete destroys what there is, retain keeps it"
        status = Wanted(conditions.reconciling("DeletionBlocked", text), fields)
        closed = [broker for broker, drain in sorted(members.drains.items()) if drain.closes_only]
        opened = [RemoveDrain(f"have broker {broker} take messages again", broker) for broker in closed]
        return Plan((*steps, *opened), status, (Announcement(Reason.DeletionBlocked, text),), _AGAIN_S)
    opened_ones = [name for name in sorted(members.live) if not _is_told(name, members)]
    unsure = [name for name in sorted(members.live) if not _is_closed(name, members)]
    if opened_ones or unsure:
        puts = [PutDrain(f"have broker {name} take no more messages", name, False, True) for name in opened_ones]
        text = f"waits for brokers to say that they take no more messages and hold none: {', '.join(unsure)}"
        return Plan((*steps, *puts), Wanted(conditions.reconciling("Closing", text), fields), again_s=_AGAIN_S)
    return None


def _is_told(broker: str, members: Members) -> bool:
    drain = members.drains.get(broker)
    return drain is not None and drain.closes_only


def _is_closed(broker: str, members: Members) -> bool:
    """Whether a broker has said that it takes no more messages. What it said before it was started anew is void."""
    status = members.statuses.get(broker)
    if status is None or status.draining is None or not status.draining.is_closed:
        return False
    return status.incarnation == members.live[broker].incarnation


def _messages(broker: str, members: Members) -> int:
    """How many a broker holds: it counts now and then, and once more after it has closed to producers."""
    status = members.statuses[broker]
    return max(status.messages, status.draining.messages if status.draining and status.draining.is_closed else 0)


def _destruction(desired: Desired, observed: Observed, go: Sequence[Step]) -> Plan:
    """First it is said what goes, in the status and as an event, then the cluster is let go; nothing is waited for."""
    if conditions.find(desired.status, conditions.READY).get("reason") == "Deleting":
        return Plan(tuple(go))
    members = observed.members
    brokers = counted(len(observed.pods), "broker")
    if members.fault is not None:
        text = f"{brokers} and their volumes are deleted; how many messages go with them cannot be told: "
        text += members.fault[1]
    else:
        messages = counted(sum(status.messages for status in members.statuses.values()), "message")
        destinations = counted(sum(members.homes.values()), "destination")
        text = f"{brokers} and their volumes are deleted, and with them {messages} in {destinations}, as last counted"
    status = Wanted(conditions.reconciling("Deleting", text), cluster_status.kept(desired.status))
    return Plan(status=status, announcements=(Announcement(Reason.Deleting, text),), again_s=_AT_ONCE_S)
