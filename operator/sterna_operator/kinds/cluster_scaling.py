"""How many brokers a cluster has, and how it comes to have fewer.

A broker that is to go is first emptied: it closes its queues to producers and gives whatever is empty a new home. Only
when it says that nothing is left does its pod go, the highest number first, since that is the one a StatefulSet takes.
Until then the cluster is larger than its spec says, and its status says what is waited for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sterna_etcd.records import BrokerRecord, BrokerStatus, DrainRecord

from sterna_operator.plans import PutDrain, RemoveBroker, RemoveDrain, Step
from sterna_operator.words import counted


@dataclass(frozen=True)
class Members:
    """What etcd tells of the brokers; `fault`: reason and text when it tells nothing at present."""

    live: Mapping[str, BrokerRecord] = field(default_factory=dict)
    statuses: Mapping[str, BrokerStatus] = field(default_factory=dict)
    drains: Mapping[str, DrainRecord] = field(default_factory=dict)
    homes: Mapping[str, int] = field(default_factory=dict)
    """How many destinations live on each broker."""

    fault: tuple[str, str] | None = None


@dataclass(frozen=True)
class Scaling:
    """The decision. `waiting`: what each broker that is to go still has, in words."""

    replicas: int
    steps: tuple[Step, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    blocked: frozenset[str] = frozenset()
    """Those of them that do not get on by themselves: somebody has to receive messages, or to do what is waited for."""

    stranded: Mapping[str, int] = field(default_factory=dict)
    """How many destinations live on brokers that the cluster does not have: its state in etcd may be older."""


def decide(
    wanted: int,
    standing: int | None,
    names: Mapping[int, str],
    members: Members,
    pods: frozenset[str],
    *,
    force: bool,
    held: str = "",
) -> Scaling:
    """How many pods there are to be now.

    `standing`: how many the StatefulSet has (None: there is none yet). `names`: the brokers' names by their numbers, at
    least up to `standing`. `pods`: the pods that exist. `force`: brokers go whatever they still have. `held`: why no
    pod may go now, though its broker is empty; empty: nothing is in the way.
    """
    if standing is None:
        # A cluster of this name was closed, and went; its state in etcd stayed.
        closed = sorted(broker for broker, drain in members.drains.items() if drain.closes_only)
        return Scaling(wanted, tuple(RemoveDrain(f"have broker {one} take messages again", one) for one in closed))
    if members.fault is not None:
        # Nobody can be emptied without etcd; more brokers may come.
        leaving = {names[ordinal]: f"cannot be emptied: {members.fault[1]}" for ordinal in range(wanted, standing)}
        return Scaling(max(wanted, standing), (), leaving)
    steps: list[Step] = []
    for ordinal in range(wanted, standing):
        if not _is_ordered(names[ordinal], members, force=force):
            how = ", whatever it holds" if force else ""
            steps.append(PutDrain(f"have broker {names[ordinal]} emptied{how}", names[ordinal], force))
    replicas = standing
    while not held and replicas > wanted and _is_empty(names[replicas - 1], members, force=force):
        replicas -= 1
    waiting = {names[n]: _words(names[n], members, held) for n in range(wanted, replicas)}
    blocked = frozenset(broker for broker in waiting if _is_blocked(broker, members))
    stranded = _stranded(names, max(wanted, replicas), members, pods)
    steps += _forgotten(max(wanted, replicas), wanted, names, members, pods, stranded if force else {})
    return Scaling(max(wanted, replicas), tuple(steps), waiting, blocked, {} if force else stranded)


def _is_ordered(broker: str, members: Members, *, force: bool) -> bool:
    """Whether a broker has been told to be emptied, in just this way."""
    drain = members.drains.get(broker)
    return drain is not None and drain.force == force and not drain.closes_only


def _is_empty(broker: str, members: Members, *, force: bool) -> bool:
    status = members.statuses.get(broker)
    if not _is_ordered(broker, members, force=force):
        return False
    if broker not in members.live:
        # It cannot be asked. One that never served has nothing; of any other only force lets go.
        return force or (status is None and not members.homes.get(broker))
    if status is None or status.draining is None or members.homes.get(broker):
        return False
    return status.draining.destinations == 0 and (force or status.draining.messages == 0)


def _words(broker: str, members: Members, held: str) -> str:
    status = members.statuses.get(broker)
    if broker not in members.live:
        return 'is not there to be emptied; sterna.dev/force-drain: "true" gives up what it holds'
    if status is None or status.draining is None:
        return "begins to be emptied"
    left = status.draining
    destinations = counted(left.destinations, "destination")
    if left.messages:
        text = f"still has {counted(left.messages, 'message')} in {destinations}"
    elif left.destinations:
        text = f"still has {destinations} without messages"
    elif held:
        text = f"has nothing left, and {held}"
    else:
        text = "has nothing left, and is looked at once more"
    return f"{text}: {left.waits_for}" if left.waits_for else text


def _is_blocked(broker: str, members: Members) -> bool:
    status = members.statuses.get(broker)
    left = status.draining if status is not None and broker in members.live else None
    return left is not None and bool(left.messages or left.waits_for)


def _stranded(names: Mapping[int, str], kept: int, members: Members, pods: frozenset[str]) -> dict[str, int]:
    """Destinations on brokers of this cluster's names that it does not have, nor is about to have."""
    own = names[0].removesuffix("0")
    there = {names[ordinal] for ordinal in range(kept)} | pods | members.live.keys()
    return {
        broker: count
        for broker, count in sorted(members.homes.items())
        if count and broker not in there and broker.startswith(own) and broker.removeprefix(own).isdigit()
    }


def _forgotten(
    kept: int,
    wanted: int,
    names: Mapping[int, str],
    members: Members,
    pods: frozenset[str],
    given_up: Mapping[str, int],
) -> list[Step]:
    """Brokers that are needed again lose their order to go; of those that are gone for good nothing is kept.

    One that was forced to go while nobody could ask it still has its destinations: nobody else could have them.
    `given_up`: others of which that is to be so.
    """
    needed = {names[ordinal] for ordinal in range(wanted)}
    staying = {names[ordinal] for ordinal in range(kept)}
    steps: list[Step] = [
        RemoveDrain(f"broker {broker} stays: take its drain back", broker)
        for broker in sorted(needed & members.drains.keys())
    ]
    known = members.statuses.keys() | members.drains.keys() | given_up.keys()
    gone = known - staying - pods - members.live.keys()
    return steps + [_forget(broker, members, is_given_up=broker in given_up) for broker in sorted(gone)]


def _forget(broker: str, members: Members, *, is_given_up: bool) -> RemoveBroker:
    drain, homes = members.drains.get(broker), members.homes.get(broker, 0)
    if not homes or not (is_given_up or (drain is not None and drain.force)):
        return RemoveBroker(f"forget broker {broker}: it is gone for good", broker)
    text = f"give up the {counted(homes, 'destination')} of broker {broker}, which is gone for good, and forget it"
    return RemoveBroker(text, broker, gives_up_homes=True)


def loss(broker: str, members: Members) -> str:
    """What giving up a broker's destinations means, for people."""
    status = members.statuses.get(broker)
    held = counted(status.messages, "message") if status is not None else "an unknown number of messages"
    return (
        f"broker {broker} was given up by force: its {counted(members.homes.get(broker, 0), 'destination')} may live "
        f"on other brokers now, empty; what it last held ({held}) is on its volume, and nobody is given it"
    )
