"""What programs look up by name: connection factories, static queues and topics, by their own names and by aliases.

An alias leads to one thing alone: it is nobody else's alias or name, nor where a bridge leads. Own names may meet,
since a factory, a queue and a topic are of different kinds; then whoever asks has to say which (EMS has `$queues:` and
`$topics:` for it).

Dynamic and temporary destinations are in no configuration and are not found (EMS-DEST-D03). The target of a bridge is
static, whether or not a manifest describes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sterna_resources import names
from sterna_resources.bridge import Bridge
from sterna_resources.connection_factory import FACTORIES_MAX, ConnectionFactory
from sterna_resources.destination import DestinationResource
from sterna_resources.problems import Problem
from sterna_resources.yaml_documents import Path

from sterna_broker.configuration.inheritance import Kind
from sterna_broker.configuration.objects import Entry, Key, ObjectSet, kind_of

Named = ConnectionFactory | DestinationResource
# What a name is of something, in words, and whose it is.
_Owner = tuple[str, Entry]


@dataclass(frozen=True)
class FoundDestination:
    """A static queue or topic."""

    kind: Kind
    name: str


Found = ConnectionFactory | FoundDestination


def find(objects: ObjectSet, name: str) -> list[Found]:
    """Everything that a name leads to: what has it as an alias, then a factory, a queue and a topic that are called so.

    An alias is nobody else's name, but where many write at the same time it may have become one. Then it comes first.
    """
    entry = objects.aliases.get(name)
    factory = objects.named("ConnectionFactory", name)
    found: list[Found] = [_found(one) for one in (entry, factory) if one is not None]
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
    """Aliases that lead to more than one thing, each said of what came later."""
    return (problem for problem, _, _ in _collisions(objects))


def _collisions(objects: ObjectSet) -> Iterator[tuple[Problem, Entry, str]]:
    """Each with whose it is, and the name that leads elsewhere."""
    own: dict[str, _Owner] = {}
    aliases: dict[str, _Owner] = {}
    for entry in objects.entries.values():
        for path, name, what in _own_names(entry):
            if (other := aliases.get(name)) is not None:
                yield _taken(entry, path, name, other), entry, name
            own.setdefault(name, (what, entry))
        for path, alias in _aliases(entry):
            other = own.get(alias) or aliases.setdefault(alias, ("an alias", entry))
            if other[1] is not entry:
                yield _taken(entry, path, alias, other), entry, alias


def too_many(objects: ObjectSet) -> Iterator[Problem]:
    """The factories beyond their number."""
    factories = [entry for entry in objects.entries.values() if isinstance(entry.resource, ConnectionFactory)]
    for entry in factories[FACTORIES_MAX:]:
        message = f"there may be {FACTORIES_MAX:,} connection factories, and this is one more"
        yield entry.manifest.problem(("metadata", "name"), message)


def without_taken(objects: ObjectSet) -> tuple[ObjectSet, dict[Key, list[Problem]]]:
    """The set without aliases that are another's; and what is wrong with whom, as `problems` has it.

    For configurations to which many write, each for himself: who takes an alias that is another's, or that another is
    called, must not take the other itself away by that. What is called as an older alias leads elsewhere stays, too.
    """
    wrong: dict[Key, list[Problem]] = {}
    lost: dict[Key, set[str]] = {}
    for problem, entry, alias in _collisions(objects):
        wrong.setdefault(entry.key, []).append(problem)
        lost.setdefault(entry.key, set()).add(alias)
    return objects.replaced(_without(objects.entries[key], aliases) for key, aliases in lost.items()), wrong


def _own_names(entry: Entry) -> Iterator[tuple[Path, str, str]]:
    """The names of what a manifest makes static, each with its field and what it is, in words."""
    resource = entry.resource
    if isinstance(resource, Bridge):
        for number, target in enumerate(resource.spec.targets):
            yield ("spec", "targets", number), target.destination[1], "a target"
    elif isinstance(resource, Named) and not (isinstance(resource, DestinationResource) and resource.is_pattern):
        yield ("spec", "name"), resource.subject, "the name"


def _aliases(entry: Entry) -> Iterator[tuple[Path, str]]:
    if isinstance(entry.resource, Named):
        for number, alias in enumerate(entry.resource.spec.aliases):
            yield ("spec", "aliases", number), alias


def _without(entry: Entry, aliases: set[str]) -> Entry:
    resource = entry.resource
    if not isinstance(resource, Named):
        return entry
    kept = [alias for alias in resource.spec.aliases if alias not in aliases]
    changed = resource.model_copy(update={"spec": resource.spec.model_copy(update={"aliases": kept})})
    return replace(entry, manifest=replace(entry.manifest, resource=changed))


def _taken(entry: Entry, path: Path, name: str, owner: _Owner) -> Problem:
    what, other = owner
    return entry.manifest.problem(path, f"'{name}' is {what} of the {other.resource.label} at {other.place} already")
