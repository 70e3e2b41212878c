"""Where the ends of bridges meet that live on several brokers. Pure: it looks at the view and names a broker.

Names are told to be apart by groups: all that bridges tie together, one to the other, and topics that a configured
durable subscription to a pattern without a home matches. A group meets

1. on the broker of those whose manifest names the broker they live on (`spec.broker`); where these name several, the
   group is kept apart, and nobody moves anything,
2. else where the source lives of its first bridge, by name: for a single bridge the targets go to their source,
3. else, where there are only durable subscriptions, where the first topic by name lives.

Every broker comes to the same, and what decides it does not move: so nothing goes to and fro, and what moves comes
nearer with each step. Where that broker is away, or is being emptied, nothing moves before it is back, or what decides
has left it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sterna_etcd import HomeKey
from sterna_resources import names
from sterna_resources.bridge import Bridge
from sterna_resources.resource import Resource

from sterna_broker.cluster.placement import Groups, wanted
from sterna_broker.cluster.view import View
from sterna_broker.configuration.objects import Key, ObjectSet


@dataclass(frozen=True)
class Apart:
    """A name here that is to live elsewhere."""

    key: HomeKey
    place: str
    homes: Mapping[HomeKey, str]
    """Where its whole group was when that was said."""

    def holds(self, view: View) -> bool:
        """Whether nothing has changed since, but that others have come to the place."""
        here = all(view.home(key.kind, key.name) in (home, self.place) for key, home in self.homes.items())
        return here and view.home(self.key.kind, self.key.name) == self.homes[self.key] and self.place in view.open


def apart(view: View, objects: ObjectSet, name: str) -> list[Apart]:
    """What lives on this broker and is to live on another one, by name; for a thread, with a copy of the view."""
    if name not in view.open or view.is_going:
        return []
    tying = ObjectSet({key: entry for key, entry in objects.entries.items() if not _has_pattern(entry.resource)})
    named, result = wanted(tying), list[Apart]()
    bridges = sorted(tying.keyed_bridges(), key=lambda one: one[0], reverse=True)
    firsts = {HomeKey(*bridge.spec.source.destination): key for key, bridge in bridges}
    for group in Groups(tying).all():
        homes = {key: home for key in group if (home := view.home(key.kind, key.name)) is not None}
        if len(set(homes.values())) > 1 and (place := _meets(homes, named, firsts)) in view.open:
            result += [Apart(key, place, homes) for key, home in homes.items() if home == name != place]
    return sorted(result, key=lambda one: (one.key.name, one.key.kind))


def _meets(homes: Mapping[HomeKey, str], named: Mapping[HomeKey, str], firsts: Mapping[HomeKey, Key]) -> str:
    """The broker where a group meets; empty: it is kept apart."""
    kept = {home for key, home in homes.items() if named.get(key) == home}
    if kept:
        return kept.pop() if len(kept) == 1 else ""
    return homes[min(homes, key=lambda one: (one not in firsts, firsts.get(one, ()), one.name, one.kind))]


def _has_pattern(resource: Resource) -> bool:
    """Whether this is a bridge from a pattern, which holds nowhere and brings nothing together."""
    return isinstance(resource, Bridge) and names.is_pattern(resource.spec.source.destination[1])
