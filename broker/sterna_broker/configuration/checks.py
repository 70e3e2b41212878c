"""What must hold between objects: each manifest may be right by itself and wrong beside the others."""

from collections.abc import Callable, Iterable, Iterator

from sterna_resources import names
from sterna_resources.bridge import Bridge
from sterna_resources.broker import Broker
from sterna_resources.connection_factory import ConnectionFactory
from sterna_resources.destination import DestinationResource
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.problems import Problem
from sterna_resources.queue import Queue
from sterna_resources.store import SYSTEM_STORES, Store
from sterna_resources.yaml_documents import Path

from sterna_broker.configuration import lookups
from sterna_broker.configuration.objects import Entry, ObjectSet, kind_of
from sterna_broker.configuration.patterns import PatternIndex, overlap

# Checks a selector's text; raises ValueError (the engine's SelectorError is one) that says what is wrong and where.
SelectorCheck = Callable[[str], None]


def duplicates(entries: Iterable[Entry]) -> Iterator[Problem]:
    """Objects that stand twice, by their own name or by what they are known as."""
    by_key: dict[tuple[str, str], Entry] = {}
    by_identity: dict[tuple[str, ...], Entry] = {}
    for entry in entries:
        first = by_key.setdefault(entry.key, entry)
        if first is not entry:
            message = f"a {entry.resource.kind} of this name stands at {first.place} already"
            yield entry.manifest.problem(("metadata", "name"), message)
            continue
        identity, field, what = _identity(entry)
        first = by_identity.setdefault(identity, entry)
        if first is not entry:
            yield entry.manifest.problem(field, f"{what} is described at {first.place} already")


def _identity(entry: Entry) -> tuple[tuple[str, ...], Path, str]:
    resource = entry.resource
    if isinstance(resource, DestinationResource):
        return (resource.kind, resource.subject), ("spec", "name"), f"the {kind_of(resource)} '{resource.subject}'"
    if isinstance(resource, Store):
        return (resource.kind, resource.subject), ("spec", "name"), f"the store '{resource.subject}'"
    if isinstance(resource, ConnectionFactory):
        return (resource.kind, resource.subject), ("spec", "name"), f"the connection factory '{resource.subject}'"
    if isinstance(resource, DurableSubscription):
        client_id = resource.spec.client_id or ""
        identity = (resource.kind, client_id, resource.subscription_name)
        return identity, ("spec", "name"), f"the subscription '{resource.subscription_name}' of '{client_id}'"
    if isinstance(resource, Broker):
        return (resource.kind,), ("metadata", "name"), "the broker"
    return (resource.kind, resource.metadata.name), ("metadata", "name"), "the object"


def problems(objects: ObjectSet, selector_check: SelectorCheck) -> Iterator[Problem]:
    """Everything that is wrong between the objects of a set, selectors included."""
    yield from severe(objects, selector_check)
    yield from lookups.problems(objects)


def severe(objects: ObjectSet, selector_check: SelectorCheck) -> Iterator[Problem]:
    """The same but for names that are looked up: with these, what is wrong can be left out alone."""
    yield from duplicates(objects.entries.values())
    yield from _stores(objects)
    yield from lookups.too_many(objects)
    yield from _selectors(objects, selector_check)


def _stores(objects: ObjectSet) -> Iterator[Problem]:
    """Stores that do not exist, and entries that overlap with different stores (EMS-DEST-A43)."""
    broker = objects.broker
    of_broker = {store.name for store in (broker.spec.stores if broker else ())}
    known = {*SYSTEM_STORES, *of_broker, *(store.subject for store in objects.stores())}
    with_store: list[tuple[DestinationResource, Entry, str]] = []
    for entry in objects.entries.values():
        resource = entry.resource
        if isinstance(resource, Store) and resource.subject in of_broker:
            message = f"the store '{resource.subject}' stands in the Broker manifest already"
            yield entry.manifest.problem(("spec", "name"), message)
        if not isinstance(resource, DestinationResource) or resource.spec.store is None:
            continue
        if resource.spec.store not in known:
            message = f"no store '{resource.spec.store}': there are {', '.join(sorted(known))}"
            yield entry.manifest.problem(("spec", "store"), message)
        with_store.append((resource, entry, resource.spec.store))
    yield from _store_conflicts(with_store)


def _store_conflicts(with_store: list[tuple[DestinationResource, Entry, str]]) -> Iterator[Problem]:
    patterns = [item for item in with_store if item[0].is_pattern]
    for number, (resource, entry, store) in enumerate(patterns):
        for other, other_entry, other_store in patterns[:number]:
            same_kind = other.kind == resource.kind
            if same_kind and store != other_store and overlap(resource.subject, other.subject):
                yield _store_problem(entry, resource, store, other_entry, other_store)
    for kind in ("Queue", "Topic"):
        index = PatternIndex((item[0].subject, item) for item in patterns if item[0].kind == kind)
        for resource, entry, store in with_store:
            if resource.kind != kind or resource.is_pattern:
                continue
            for _, (_, other_entry, other_store) in index.matching(resource.subject):
                if store != other_store:
                    yield _store_problem(entry, resource, store, other_entry, other_store)


def _store_problem(entry: Entry, resource: DestinationResource, store: str, other: Entry, other_store: str) -> Problem:
    message = (
        f"'{store}' conflicts with '{other_store}' of '{other.resource.subject}' at {other.place}, "
        f"which also covers '{resource.subject}': a destination has one store"
    )
    return entry.manifest.problem(("spec", "store"), message)


def _selectors(objects: ObjectSet, check: SelectorCheck) -> Iterator[Problem]:
    for entry in objects.entries.values():
        resource = entry.resource
        if isinstance(resource, DurableSubscription) and (fault := _selector_fault(resource.spec.selector, check)):
            yield entry.manifest.problem(("spec", "selector"), fault)
        if isinstance(resource, Bridge):
            for index, target in enumerate(resource.spec.targets):
                if fault := _selector_fault(target.selector, check):
                    yield entry.manifest.problem(("spec", "targets", index, "selector"), fault)


def _selector_fault(selector: str, check: SelectorCheck) -> str | None:
    if not selector:
        return None
    try:
        check(selector)
    except ValueError as error:
        # The engine's error carries (message, offset), counted from 0; clients are told of it in these words, from 1.
        message = str(error.args[0]) if error.args else str(error)
        offset = error.args[1] if len(error.args) > 1 else None
        return f"{message} (at character {offset + 1})" if offset is not None else message
    return None


def dangling(objects: ObjectSet, entries: Iterable[Entry]) -> Iterator[Problem]:
    """References of these entries to destinations that neither exist nor may be created.

    An error in what is being applied, and a warning in what exists. A bridge's targets are not among them: they are
    made (EMS-DEST-E01), and it is said that nobody has described them.
    """
    for entry in entries:
        resource = entry.resource
        if isinstance(resource, Bridge):
            places: list[tuple[Path, tuple[str, str]]] = [(("spec", "source"), resource.spec.source.destination)]
        elif isinstance(resource, Queue):
            dead_letters = resource.spec.dead_letter_queue
            if dead_letters is None or dead_letters == names.UNDELIVERED:
                continue
            places = [(("spec", "deadLetterQueue"), ("queue", dead_letters))]
        elif isinstance(resource, DurableSubscription):
            places = [(("spec", "topic"), ("topic", resource.spec.topic))]
        else:
            continue
        for path, (kind, name) in places:
            if not _reachable(objects, kind, name):
                known = "Queue" if kind == "queue" else "Topic"
                message = f"there is no {kind} '{name}', and no {known} entry with a wildcard lets it be created"
                yield entry.manifest.problem(path, message)


def _reachable(objects: ObjectSet, kind: str, name: str) -> bool:
    # A pattern stands for whatever there will be.
    if "*" in name.split(".") or name.split(".")[-1] == ">":
        return True
    return objects.allows("queue" if kind == "queue" else "topic", name)
