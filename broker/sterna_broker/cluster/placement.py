"""Which broker a name should live on. Pure: it looks at the view and names a broker; `homes` settles it in etcd.

What works together has to live together, since nothing reaches across brokers yet: the source and the targets of a
bridge, and topics with the patterns that somebody subscribes to. What cannot have one home is told to be so. So names
are placed in groups; a group goes

1. where one of it lives already,
2. else where the manifest says (`spec.broker`),
3. else to the live broker with the fewest homes, those being emptied left out.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sterna_etcd import HomeKey
from sterna_resources import names
from sterna_resources.bridge import Bridge
from sterna_resources.destination import DestinationResource
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.resource import Resource

from sterna_broker.cluster.view import View
from sterna_broker.configuration.objects import ObjectSet
from sterna_broker.configuration.patterns import PatternIndex, matches, overlap

_TOGETHER = (
    "delete the bridge and those of its ends that are empty; when they have no home any more (a minute or two), "
    "describe the bridge again and then them: they go where the others are"
)


@dataclass
class Plan:
    """Where what has no home yet should live, and which groups cannot be: by bridge name, with the reason."""

    homes: dict[HomeKey, str] = field(default_factory=dict)
    static: set[HomeKey] = field(default_factory=set)
    spanning: dict[str, str] = field(default_factory=dict)


class _Tied:
    """Sets of names, made by tying two at a time."""

    def __init__(self, pairs: Iterable[tuple[HomeKey, HomeKey]]) -> None:
        self._parents: dict[HomeKey, HomeKey] = {}
        for one, other in pairs:
            self._tie(one, other)
        self._members: dict[HomeKey, set[HomeKey]] = {}
        for key in self._parents:
            self._members.setdefault(self._first(key), set()).add(key)

    def of(self, key: HomeKey) -> set[HomeKey]:
        """All that has to live where `key` lives, itself among it."""
        return self._members[self._first(key)] if key in self._parents else {key}

    def _tie(self, one: HomeKey, other: HomeKey) -> None:
        self._parents.setdefault(one, one)
        self._parents.setdefault(other, other)
        self._parents[self._first(other)] = self._first(one)

    def _first(self, key: HomeKey) -> HomeKey:
        """The one that all of a group lead to; the way there is halved with each walk."""
        parents = self._parents
        while parents[key] != key:
            parents[key] = key = parents[parents[key]]
        return key


class Groups(_Tied):
    """Names that have to live together: the ends of bridges, and what configured durable subscriptions match."""

    def __init__(self, objects: ObjectSet) -> None:
        super().__init__((*_bridged(objects), *_matched(objects)))


def _bridged(objects: ObjectSet) -> Iterator[tuple[HomeKey, HomeKey]]:
    for bridge in objects.bridges():
        keys = keys_of_bridge(bridge)
        for key in keys[1:]:
            yield keys[0], key


def _subscribed(objects: ObjectSet) -> PatternIndex[HomeKey]:
    durables = dict.fromkeys(key_of_durable(one) for one in objects.durables())
    return PatternIndex((key.name, key) for key in durables if key.kind == "pattern")


def _matched(objects: ObjectSet) -> Iterator[tuple[HomeKey, HomeKey]]:
    patterns = _subscribed(objects)
    for topic in wanted(objects):
        for _, pattern in patterns.matching(topic.name) if topic.kind == "topic" else ():
            yield pattern, topic


class Wishes:
    """What the configuration says of where a name that somebody opens is to live, before anybody has planned it."""

    def __init__(self, objects: ObjectSet | None = None, revision: int = 0) -> None:
        """`revision` is etcd's at which the configuration was so; 0: none is known yet."""
        objects = objects or ObjectSet()
        self.revision = revision
        self._bridged = _Tied(_bridged(objects))
        self._patterns = _subscribed(objects)
        self._named = {key: named for key, named in wanted(objects).items() if named}

    def group(self, key: HomeKey) -> list[HomeKey]:
        """What bridges tie together, in an order that is everybody's; of most names themselves alone."""
        return sorted(self._bridged.of(key), key=lambda one: (one.kind, one.name))

    def patterns(self, key: HomeKey) -> list[HomeKey]:
        """The patterns of configured durable subscriptions that match a topic."""
        return [pattern for _, pattern in self._patterns.matching(key.name)] if key.kind == "topic" else []

    def broker(self, key: HomeKey) -> str:
        """The broker that the manifest names. Empty: none."""
        return self._named.get(key, "")


def keys_of_bridge(bridge: Bridge) -> list[HomeKey]:
    """Source and targets; a pattern as source is left out."""
    ends = [bridge.spec.source.destination, *(target.destination for target in bridge.spec.targets)]
    return [HomeKey(kind, name) for kind, name in ends if not names.is_pattern(name)]


def key_of_durable(durable: DurableSubscription) -> HomeKey:
    """What a static durable subscription lives with."""
    topic = durable.spec.topic
    return HomeKey("pattern" if names.is_pattern(topic) else "topic", topic)


def wanted(objects: ObjectSet) -> dict[HomeKey, str]:
    """Every name that the configuration needs a home for, with the broker that its manifest names, or nothing."""
    result: dict[HomeKey, str] = {}
    for entry in objects.entries.values():
        resource = entry.resource
        if isinstance(resource, Bridge):
            for key in keys_of_bridge(resource):
                result.setdefault(key, "")
        elif isinstance(resource, DurableSubscription):
            result.setdefault(key_of_durable(resource), "")
        elif isinstance(resource, DestinationResource) and not resource.is_pattern:
            kind = resource.kind.lower()
            result[HomeKey(kind, resource.subject)] = getattr(resource.spec, "broker", None) or ""
    return result


def loads(view: View, planned: Iterable[str] = ()) -> dict[str, int]:
    """How many homes each broker that may take more has."""
    counts = dict.fromkeys(view.open, 0)
    for broker in [*(stored.record.broker for stored in view.homes.values()), *planned]:
        if broker in counts:
            counts[broker] += 1
    return counts


def least_loaded(counts: dict[str, int], preferred: str = "") -> str | None:
    """The broker with the fewest; among equals `preferred`, else the first by name. None: there is none."""
    if not counts:
        return None
    return min(counts, key=lambda name: (counts[name], name != preferred, name))


def bound_to(view: View, key: HomeKey) -> set[str]:
    """The brokers that a topic or pattern has to live on because of patterns, or topics, that match."""
    if key.kind == "queue":
        return set()
    if key.kind == "topic":
        return {broker for _, broker in view.pattern_index.matching(key.name)}
    found = {broker for pattern, broker in view.patterns if pattern != key.name and overlap(key.name, pattern)}
    topics = (other for other in view.homes if other.kind == "topic" and matches(key.name, other.name))
    return found | {view.homes[topic].record.broker for topic in topics}


def led_away(view: View, name: str) -> list[HomeKey]:
    """The topics on a broker of which a pattern lives on another one; for a thread, with a copy of the view."""
    if not any(broker != name for _, broker in view.patterns):
        return []
    topics, patterns = (key for key in view.homes_on(name) if key.kind == "topic"), view.pattern_index
    return [key for key in topics if any(broker != name for _, broker in patterns.matching(key.name))]


def plan(view: View, objects: ObjectSet) -> Plan:
    """Homes for all that the configuration needs one for and that has none."""
    result = Plan()
    needed, groups = wanted(objects), Groups(objects)
    counts = loads(view)
    for key, named in needed.items():
        if view.home(key.kind, key.name) is not None or key in result.homes:
            continue
        group = sorted(groups.of(key), key=lambda one: (one.kind, one.name))
        brokers = {home for one in group if (home := view.home(one.kind, one.name)) is not None}
        for one in group:
            brokers |= bound_to(view, one)
        asked = {needed[one] for one in group if needed.get(one)}
        if not asked <= view.addresses.keys():
            # A broker that never was there: to come, or mistyped. A home there would say nothing, and stay.
            continue
        chosen = named if named else next(iter(sorted(brokers)), None) or next(iter(sorted(asked)), None)
        chosen = chosen or least_loaded(counts)
        if chosen is None:
            continue
        for one in group:
            home = needed.get(one) or chosen
            # What would have to be on two brokers has no home, and is told to be so: see `torn`.
            if view.home(one.kind, one.name) is None and not bound_to(view, one) - {home}:
                result.homes[one] = home
                if chosen in counts:
                    counts[chosen] += 1
                if objects.destination("queue" if one.kind == "queue" else "topic", one.name) is not None:
                    result.static.add(one)
    return result


def unknown_broker(view: View, wishes: Wishes, key: HomeKey) -> str:
    """Why a name without a home gets none for now: a manifest names a broker that never was there. Empty: it gets one.

    It may be the manifest of what has to live with it.
    """
    for one in wishes.group(key):
        named = wishes.broker(one)
        if named and named not in view.addresses and view.home(one.kind, one.name) is None:
            whose = "" if one == key else f"'{key.name}' lives with the {one.kind} '{one.name}', whose "
            return f"{whose}spec.broker names '{named}', and no broker of this name was ever in the cluster"
    return ""


def torn(view: View, objects: ObjectSet, resource: Resource) -> str:
    """Why a topic or durable subscription without a home gets none: it would be on several brokers. Empty: it may."""
    if isinstance(resource, DurableSubscription):
        key = key_of_durable(resource)
    elif isinstance(resource, DestinationResource) and resource.kind == "Topic" and not resource.is_pattern:
        key = HomeKey("topic", resource.subject)
    else:
        return ""
    topic = objects.destination("topic", key.name) if key.kind == "topic" else None
    named = getattr(topic.spec, "broker", None) or "" if topic is not None else ""
    bound = bound_to(view, key)
    if len(bound | ({named} if named else bound)) <= 1:
        return ""
    matched = "what it matches lives" if key.kind == "pattern" else "who subscribes to patterns that match it is"
    also = f", and spec.broker names {named}" if named else ""
    return f"'{key.name}' cannot have a home: {matched} on {', '.join(sorted(bound))}{also}"


def spanning(view: View, bridge: Bridge) -> str:
    """Why a bridge cannot be: it leads over brokers. Empty: it can."""
    source = bridge.spec.source.destination
    if names.is_pattern(source[1]):
        return f"its source '{source[1]}' is a pattern, whose destinations may live on several brokers"
    places = {key: _brokers_of(view, key) for key in keys_of_bridge(bridge)}
    if len(set().union(*places.values())) <= 1:
        return ""
    where = ", ".join(
        f"{key.kind} '{key.name}' on {', '.join(sorted(brokers)) or 'none yet'}" for key, brokers in places.items()
    )
    return f"it leads over several brokers: {where}; {_TOGETHER}"


def _brokers_of(view: View, key: HomeKey) -> set[str]:
    """Where a name lives, or has to live as long as it has no home."""
    home = view.home(key.kind, key.name)
    return bound_to(view, key) if home is None else {home}
