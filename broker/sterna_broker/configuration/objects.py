"""The configuration as one immutable set of objects, and what can be asked of it.

A set is built whole from manifests and replaced whole; nothing in it changes. So a request that is being answered
never sees half of a change, and a change that turns out to be impossible is dropped by not taking the new set.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sterna_resources import names
from sterna_resources.bridge import Bridge
from sterna_resources.broker import Broker
from sterna_resources.connection_factory import ConnectionFactory
from sterna_resources.destination import DestinationResource
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.problems import Place
from sterna_resources.queue import Queue
from sterna_resources.reading import Manifest
from sterna_resources.resource import Resource
from sterna_resources.store import Store
from sterna_resources.topic import Topic

from sterna_broker.configuration.inheritance import Effective, Kind, Parents, effective
from sterna_broker.configuration.patterns import PatternIndex, covers

#: Said wherever somebody asks for permissions to be checked.
NO_PERMISSIONS = "spec.secure is kept and inherited, and protects nothing: this version has no permissions"
_NAMES_TOLD = 3

# Kind and metadata.name: what makes two manifests the same object.
Key = tuple[str, str]


@dataclass(frozen=True)
class Entry:
    """One object: its manifest and who put it there ("folder", "admin" or "operator")."""

    manifest: Manifest
    owner: str
    name: str | None = None
    """What it is known by among the objects of its kind, where that is not its own name."""

    @property
    def resource(self) -> Resource:
        """The manifest's content."""
        return self.manifest.resource

    @property
    def key(self) -> Key:
        """What it is the manifest of."""
        kind, name = key_of(self.resource)
        return kind, self.name or name

    @property
    def place(self) -> Place:
        """Where it was read."""
        return self.manifest.place


def key_of(resource: Resource) -> Key:
    """Kind and object name."""
    return resource.kind, resource.metadata.name


def kind_of(resource: Resource) -> Kind:
    """A destination's kind in the engine's words."""
    return "queue" if isinstance(resource, Queue) else "topic"


@dataclass(frozen=True)
class ObjectSet:
    """All objects, by key, in the order in which they were read."""

    entries: dict[Key, Entry] = field(default_factory=dict)
    parted: frozenset[Key] = frozenset()
    """Bridges that copy nothing for now, although their targets are there: their ends are about to move."""

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> "ObjectSet":
        """A set of these; a later one takes the place of an earlier one with its key."""
        return cls({entry.key: entry for entry in entries})

    def replaced(self, entries: Iterable[Entry]) -> "ObjectSet":
        """This set with some objects added or exchanged."""
        return ObjectSet({**self.entries, **{entry.key: entry for entry in entries}})

    def without(self, key: Key) -> "ObjectSet":
        """This set without one object."""
        return ObjectSet({other: entry for other, entry in self.entries.items() if other != key})

    def destinations(self) -> Iterator[DestinationResource]:
        """The queues and topics, wildcard entries among them."""
        for entry in self.entries.values():
            if isinstance(entry.resource, Queue | Topic):
                yield entry.resource

    def bridges(self) -> Iterator[Bridge]:
        """The bridges."""
        for _, bridge in self.keyed_bridges():
            yield bridge

    def keyed_bridges(self) -> Iterator[tuple[Key, Bridge]]:
        """The bridges, each with its key."""
        for key, entry in self.entries.items():
            if isinstance(entry.resource, Bridge):
                yield key, entry.resource

    def durables(self) -> Iterator[DurableSubscription]:
        """The static durable subscriptions."""
        for entry in self.entries.values():
            if isinstance(entry.resource, DurableSubscription):
                yield entry.resource

    def stores(self) -> Iterator[Store]:
        """The stores that are manifests of their own."""
        for entry in self.entries.values():
            if isinstance(entry.resource, Store):
                yield entry.resource

    @property
    def broker(self) -> Broker | None:
        """The broker's own settings, if there are any."""
        resources = (entry.resource for entry in self.entries.values())
        return next((resource for resource in resources if isinstance(resource, Broker)), None)

    def named(self, kind: str, subject: str) -> Entry | None:
        """The object of a kind that is known by a name (a destination's own name, otherwise the object's).

        A durable subscription is known by `client/name` as well, as listings name it; no object's name has a slash.
        """
        return self._by_subject.get((kind, subject))

    def destination(self, kind: Kind, name: str) -> DestinationResource | None:
        """The queue or topic, or wildcard entry, of exactly this name."""
        entry = self.named("Queue" if kind == "queue" else "Topic", name)
        return entry.resource if entry and isinstance(entry.resource, Queue | Topic) else None

    def parents(self, kind: Kind, name: str) -> Parents:
        """The wildcard entries that a destination inherits from; a pattern inherits from wider patterns."""
        if name == names.TEMPORARY_SETTINGS or name.startswith("$"):
            return ()
        if names.is_pattern(name):
            wider = ((pattern, given) for pattern, given in self._wildcards[kind] if pattern != name)
            return sorted((item for item in wider if covers(item[0], name)), key=lambda item: item[0])
        return self._index[kind].matching(name)

    def effective(self, kind: Kind, name: str) -> Effective:
        """What holds for a destination of this name, whether it is written down or not."""
        resource = self.destination(kind, name)
        parents = self.parents(kind, name)
        if name.startswith(names.TEMPORARY_PREFIX):
            # It allows nobody to have such a name, so it is no parent otherwise.
            settings = self.destination(kind, names.TEMPORARY_SETTINGS)
            parents = [(settings.subject, settings.spec.given())] if settings else ()
        return effective(kind, resource.spec.given() if resource else {}, parents)

    def allows(self, kind: Kind, name: str) -> bool:
        """Whether a client may have a destination of this name.

        It may, if the destination is written down, an entry lets it be created, or a bridge leads there: such a target
        is there whoever described it (EMS-DEST-E01).
        """
        return self.describes(kind, name) or (kind, name) in self.targets

    def describes(self, kind: Kind, name: str) -> bool:
        """Whether a manifest of its own, or a wildcard entry, stands for a destination of this name."""
        return self.destination(kind, name) is not None or bool(self.parents(kind, name))

    @cached_property
    def targets(self) -> dict[tuple[Kind, str], str]:
        """Where bridges lead to, each with the name of one that does."""
        found: dict[tuple[Kind, str], str] = {}
        for bridge in self.bridges():
            for target in bridge.spec.targets:
                word, name = target.destination
                found.setdefault(("queue" if word == "queue" else "topic", name), bridge.metadata.name)
        return found

    @cached_property
    def aliases(self) -> dict[str, Entry]:
        """What each alias leads to."""
        return {
            alias: entry
            for entry in self.entries.values()
            if isinstance(entry.resource, ConnectionFactory | DestinationResource)
            for alias in entry.resource.spec.aliases
        }

    @cached_property
    def dangling_bridges(self) -> dict[str, list[str]]:
        """By bridge, which of its ends nobody has described, in words."""
        found: dict[str, list[str]] = {}
        for bridge in self.bridges():
            kind, name = bridge.spec.source.destination
            if not names.is_pattern(name) and not self.allows("queue" if kind == "queue" else "topic", name):
                found.setdefault(bridge.metadata.name, []).append(f"there is no {kind} '{name}' to take from")
            for target in bridge.spec.targets:
                kind, name = target.destination
                if not self.describes("queue" if kind == "queue" else "topic", name):
                    text = f"no manifest describes the {kind} '{name}': it exists because the bridge leads there"
                    found.setdefault(bridge.metadata.name, []).append(text)
        return found

    @property
    def bridge_warnings(self) -> list[str]:
        """What people should know of bridges that dangle, a line each."""
        return [f"bridge '{name}': {text}" for name, texts in self.dangling_bridges.items() for text in texts]

    @cached_property
    def warnings(self) -> list[str]:
        """What people should know of what is described, although it holds, a line each."""
        secure = sorted(resource.subject for resource in self.destinations() if resource.spec.secure)
        return [*self.bridge_warnings, *([f"{NO_PERMISSIONS} ({_some(secure)})"] if secure else [])]

    @cached_property
    def _by_subject(self) -> dict[tuple[str, str], Entry]:
        found: dict[tuple[str, str], Entry] = {}
        for entry in self.entries.values():
            found[entry.resource.kind, entry.resource.subject] = entry
            if isinstance(entry.resource, DurableSubscription):
                found[entry.resource.kind, entry.resource.claim] = entry
        return found

    @cached_property
    def _wildcards(self) -> dict[Kind, list[tuple[str, dict[str, Any]]]]:
        result: dict[Kind, list[tuple[str, dict[str, Any]]]] = {"queue": [], "topic": []}
        for resource in self.destinations():
            # The settings of temporary destinations are handed on to nobody else (EMS-DEST-A40).
            if resource.is_pattern and resource.subject != names.TEMPORARY_SETTINGS:
                result[kind_of(resource)].append((resource.subject, resource.spec.given()))
        return result

    @cached_property
    def _index(self) -> dict[Kind, PatternIndex[dict[str, Any]]]:
        return {kind: PatternIndex(items) for kind, items in self._wildcards.items()}


def _some(subjects: list[str]) -> str:
    more = len(subjects) - _NAMES_TOLD
    return ", ".join(subjects[:_NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
