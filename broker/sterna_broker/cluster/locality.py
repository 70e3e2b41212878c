"""What of the cluster's configuration is this broker's: the part that its engine is told.

Destinations that live here, with the bridges and durable subscriptions that hang on them; wildcard entries and whatever
else has no home are everybody's.
"""

from collections.abc import Collection
from dataclasses import dataclass

from sterna_etcd import Claim, HomeKey
from sterna_resources import names
from sterna_resources.bridge import Bridge
from sterna_resources.destination import DestinationResource
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.queue import Queue
from sterna_resources.resource import Resource

from sterna_broker.cluster.placement import key_of_durable, keys_of_bridge, spanning
from sterna_broker.cluster.view import View
from sterna_broker.configuration.objects import Key, ObjectSet
from sterna_broker.configuration.patterns import matches

_NAMED_MAX = 5


def home_key(resource: Resource) -> HomeKey | None:
    """What decides where an object lives; None: it lives everywhere."""
    if isinstance(resource, Bridge):
        return HomeKey(*resource.spec.source.destination)
    if isinstance(resource, DurableSubscription):
        return key_of_durable(resource)
    if isinstance(resource, DestinationResource) and not resource.is_pattern:
        return HomeKey(resource.kind.lower(), resource.subject)
    return None


def home_of(view: View, resource: Resource) -> str | None:
    """The broker an object lives on; empty: on all of them; None: it has no home yet."""
    key = home_key(resource)
    return "" if key is None else view.home(key.kind, key.name)


def local(view: View, objects: ObjectSet, name: str, leaving: Collection[HomeKey]) -> ObjectSet:
    """The objects that this broker's engine is told of; of what is `leaving` nothing, wherever it is to go.

    A bridge that is parted from would have its target made again: it is left out as soon as one of its ends is leaving.
    """

    def is_torn(key: Key, bridge: Bridge) -> bool:
        is_leaving = key in objects.parted and any(one in leaving for one in keys_of_bridge(bridge))
        return is_leaving or bool(spanning(view, bridge))

    return ObjectSet(
        {
            key: entry
            for key, entry in objects.entries.items()
            if home_of(view, entry.resource) in ("", name)
            and home_key(entry.resource) not in leaving
            and not (isinstance(entry.resource, Bridge) and is_torn(key, entry.resource))
        },
        objects.parted,
    )


def dead_letters_elsewhere(view: View, resource: Resource, name: str) -> str:
    """What to know of a queue here whose deadLetterQueue is not: brokers pass nothing to each other. Empty: nothing."""
    named = resource.spec.dead_letter_queue if isinstance(resource, Queue) and not resource.is_pattern else None
    if not named or named == names.UNDELIVERED:
        return ""
    home = view.home("queue", named)
    if home == name:
        return ""
    where = f"lives on {home}" if home else "has no home yet"
    return (
        f"the deadLetterQueue '{named}' {where}: what cannot be delivered goes to '{names.UNDELIVERED}' of {name}; "
        "one spec.broker for both brings them together"
    )


def dead_letter_warnings(view: View, objects: ObjectSet, name: str) -> list[str]:
    """A line for each of the first few queues here whose deadLetterQueue is not."""
    found = [
        f"queue '{resource.subject}': {text}"
        for resource in objects.destinations()
        if (text := dead_letters_elsewhere(view, resource, name))
    ]
    more = len(found) - _NAMED_MAX
    return [*found[:_NAMED_MAX], *([f"{more} more queues have their deadLetterQueue elsewhere"] if more > 0 else [])]


@dataclass(frozen=True)
class HungOn:
    """The names that bridges and durable subscriptions hang on: what is sent to these has to find them."""

    names: frozenset[HomeKey] = frozenset()
    patterns: tuple[HomeKey, ...] = ()

    @classmethod
    def by(cls, objects: ObjectSet) -> "HungOn":
        """Those of a configuration."""
        keys = {key for one in (*objects.bridges(), *objects.durables()) if (key := home_key(one)) is not None}
        return cls(frozenset(keys), tuple(key for key in keys if key.kind == "pattern"))

    def at(self, key: HomeKey) -> list[HomeKey]:
        """Of these a destination itself, and for a topic the patterns that match it."""
        patterns = [one for one in self.patterns if key.kind == "topic" and matches(one.name, key.name)]
        return [key, *patterns] if key in self.names else patterns


def without(objects: ObjectSet, claims: set[Claim]) -> ObjectSet:
    """The set without the objects of these claims."""
    if not claims:
        return objects
    return ObjectSet({key: entry for key, entry in objects.entries.items() if Claim(*key) not in claims})
