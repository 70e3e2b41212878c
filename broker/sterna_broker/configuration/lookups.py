"""What programs look up by name: connection factories, static queues and topics, by their own names and by aliases.

An alias leads to one thing alone: it is nobody else's alias or name. Own names may meet, since a factory, a queue and a
topic are of different kinds; then whoever asks has to say which (EMS has `$queues:` and `$topics:` for it).

Dynamic and temporary destinations are in no configuration and are not found (EMS-DEST-D03). The target of a bridge is
static, whether or not a manifest describes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sterna_resources import names
from sterna_resources.connection_factory import FACTORIES_MAX, ConnectionFactory
from sterna_resources.destination import DestinationResource
from sterna_resources.problems import Problem

from sterna_broker.configuration.inheritance import Kind
from sterna_broker.configuration.objects import Entry, ObjectSet, kind_of

Named = ConnectionFactory | DestinationResource


@dataclass(frozen=True)
class FoundDestination:
    """A static queue or topic."""

    kind: Kind
    name: str


Found = ConnectionFactory | FoundDestination


def find(objects: ObjectSet, name: str) -> list[Found]:
    """Everything that a name leads to, a factory first."""
    entry = objects.aliases.get(name)
    if entry is not None:
        return [_found(entry)]
    factory = objects.named("ConnectionFactory", name)
    found: list[Found] = [_found(factory)] if factory is not None else []
    if names.is_pattern(name):
        return found
    kinds: tuple[Kind, Kind] = ("queue", "topic")
    static = [kind for kind in kinds if objects.destination(kind, name) is not None or (kind, name) in objects.targets]
    return [*found, *(FoundDestination(kind, name) for kind in static)]


def _found(entry: Entry) -> Found:
    resource = entry.resource
    if isinstance(resource, ConnectionFactory):
        return resource
    assert isinstance(resource, DestinationResource)  # nothing else is looked up
    return FoundDestination(kind_of(resource), resource.subject)


def problems(objects: ObjectSet) -> Iterator[Problem]:
    """Aliases that lead to more than one thing, each said of what came later; and factories beyond their number."""
    own: dict[str, Entry] = {}
    aliases: dict[str, Entry] = {}
    factories = 0
    for entry in objects.entries.values():
        resource = entry.resource
        if not isinstance(resource, Named) or (isinstance(resource, DestinationResource) and resource.is_pattern):
            continue
        if isinstance(resource, ConnectionFactory):
            factories += 1
            if factories > FACTORIES_MAX:
                message = f"there may be {FACTORIES_MAX:,} connection factories, and this is one more"
                yield entry.manifest.problem(("metadata", "name"), message)
        other = aliases.get(resource.subject)
        if other is not None:
            yield _taken(entry, ("spec", "name"), resource.subject, "an alias", other)
        for number, alias in enumerate(resource.spec.aliases):
            path = ("spec", "aliases", number)
            if (other := aliases.setdefault(alias, entry)) is not entry:
                yield _taken(entry, path, alias, "an alias", other)
            elif alias in own:
                yield _taken(entry, path, alias, "the name", own[alias])
        own.setdefault(resource.subject, entry)


def _taken(entry: Entry, path: tuple[str | int, ...], name: str, what: str, other: Entry) -> Problem:
    return entry.manifest.problem(path, f"'{name}' is {what} of the {other.resource.label} at {other.place} already")
