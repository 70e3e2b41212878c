"""Resources with what they hold: the configuration's objects and the engine's rows put side by side.

The engine knows every destination that exists, but no wildcard entries; the configuration knows what was written, but
nothing of dynamic destinations. Both are in the order of their names, so that a page is merged from a page of each.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from sterna_resources import names
from sterna_resources.durable_subscription import DurableSubscription
from sterna_resources.resource import API_VERSION

from sterna_broker.configuration.compiling import bridge_targets
from sterna_broker.configuration.inheritance import Kind
from sterna_broker.configuration.live import LiveConfiguration
from sterna_broker.configuration.objects import Entry
from sterna_broker.configuration.patterns import matches
from sterna_broker.contract import admin
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.server.rows import fill

PAGE_SIZE_DEFAULT = 1_000
PAGE_SIZE_MAX = 10_000

_ORIGINS = {
    "static": admin.STATIC,
    "dynamic": admin.DYNAMIC,
    "temporary": admin.TEMPORARY,
    "system": admin.SYSTEM,
}
# The kinds that the engine knows, in its words.
ENGINE_KINDS = {"Queue": "queue", "Topic": "topic", "DurableSubscription": "durable"}
# Who owns what no manifest describes. Static without one: it was taken out of the configuration and still holds
# messages.
_OWNERS = {"static": "removed", "dynamic": "client", "temporary": "client", "system": "broker"}

# The other broker of a cluster on which something lives, by kind, listed name and manifest; empty: none.
OtherHome = Callable[[str, str, Entry | None], str]


class Listing:
    """Answers List and Get."""

    def __init__(self, pump: Pump, live: LiveConfiguration, other_home: OtherHome) -> None:
        self._pump = pump
        self._live = live
        self._other_home = other_home

    def page(self, request: admin.ListRequest, kind: str) -> admin.ListResponse:
        """One page.

        Raises:
            RefusedError: pattern or page size are out of bounds.
        """
        size = request.page_size or PAGE_SIZE_DEFAULT
        if size > PAGE_SIZE_MAX:
            message = f"page_size is {size}, at most {PAGE_SIZE_MAX} is allowed."
            raise RefusedError("INVALID_ARGUMENT", "page_size", message, "Ask for less and follow next_page_token.")
        if request.pattern and (fault := names.pattern_fault(request.pattern)):
            raise RefusedError("INVALID_NAME", "pattern", f"Not a pattern: {fault}.", "Write a name, `*` or `>`.")
        found: dict[str, admin.Resource] = {}
        rows = self._rows(kind, request, size)
        stores = self._stores(kind)
        for name, entry in self._entries(kind, request.pattern):
            if name > request.page_token:
                found[name] = self._resource(kind, name, entry, stores.get(name))
        for row in rows:
            name = listed_name(kind, row)
            found[name] = self._resource(kind, name, self._live.objects.named(kind, name), row)
        ordered = sorted(found)
        page = ordered[:size]
        more = len(ordered) > size or len(rows) == size
        token = page[-1] if page and more else ""
        return admin.ListResponse(resources=[found[name] for name in page], next_page_token=token)

    def one(self, kind: str, name: str) -> admin.Resource | None:
        """One resource, or None."""
        return self.of(kind, name, self._live.objects.named(kind, name), self.row(kind, name))

    def of(self, kind: str, name: str, entry: Entry | None, row: dict[str, Any] | None) -> admin.Resource | None:
        """As `one`, of what has been found: to look for a durable subscription is to walk through all of them."""
        if entry is not None:
            row = row or self._stores(kind).get(entry.resource.subject)
        return self._resource(kind, name, entry, row) if entry is not None or row is not None else None

    def row(self, kind: str, name: str) -> dict[str, Any] | None:
        """What the engine knows of it."""
        if kind not in ENGINE_KINDS or (kind != "DurableSubscription" and names.name_fault(name)):
            return None
        entry = self._live.objects.named(kind, name)
        if kind == "DurableSubscription":
            wanted = entry.resource.claim if entry and isinstance(entry.resource, DurableSubscription) else name
            return next((row for row in self._all_durables() if listed_name(kind, row) == wanted), None)
        rows = json.loads(self._pump.tick().list(ENGINE_KINDS[kind], name, "", 1))
        return next((row for row in rows if row["name"] == name), None)

    def _all_durables(self) -> Iterator[dict[str, Any]]:
        """However many there are: one that is overlooked could be neither shown nor deleted."""
        after = ""
        while batch := json.loads(self._pump.tick().list("durable", "", after, PAGE_SIZE_MAX)):
            yield from batch
            after = listed_name("DurableSubscription", batch[-1])

    def _stores(self, kind: str) -> dict[str, dict[str, Any]]:
        """What the engine counts for stores, each as a row, if that is what is asked for."""
        if kind != "Store":
            return {}
        rows = json.loads(self._pump.tick().statistics())["stores"]
        return {row["name"]: {"origin": "static", "statistics": row} for row in rows}

    def _rows(self, kind: str, request: admin.ListRequest, size: int) -> list[dict[str, Any]]:
        """The engine's rows behind the page's beginning; those nobody asked for are skipped, not counted."""
        if kind not in ENGINE_KINDS:
            return []
        rows: list[dict[str, Any]] = []
        after = request.page_token
        while len(rows) < size:
            batch = json.loads(self._pump.tick().list(ENGINE_KINDS[kind], request.pattern, after, size))
            rows += [row for row in batch if _asked_for(listed_name(kind, row), request)]
            if len(batch) < size:
                break
            after = listed_name(kind, batch[-1])
        return rows[:size]

    def _entries(self, kind: str, pattern: str) -> list[tuple[str, Entry]]:
        result = []
        for entry in self._live.objects.entries.values():
            resource = entry.resource
            if resource.kind != kind:
                continue
            name = resource.claim if isinstance(resource, DurableSubscription) else resource.subject
            if not pattern or matches(pattern, resource.subject) or pattern in (name, resource.subject):
                result.append((name, entry))
        return result

    def _owner(self, kind: str, name: str, row: dict[str, Any]) -> str:
        """Who owns what no manifest describes."""
        which: Kind = "queue" if kind == "Queue" else "topic"
        bridge = bridge_targets(self._live.objects).get((which, name)) if row["origin"] == "static" else None
        entry = self._live.objects.named("Bridge", bridge) if bridge else None
        return entry.owner if entry else _OWNERS[str(row["origin"])]

    def _resource(self, kind: str, name: str, entry: Entry | None, row: dict[str, Any] | None) -> admin.Resource:
        resource = admin.Resource(kind=kind, name=entry.resource.subject if entry else name)
        if row is not None:
            resource.generation = row.get("generation", 0)
            resource.origin = _ORIGINS.get(str(row["origin"]), admin.ORIGIN_UNSPECIFIED)
            fill(resource.statistics, row["statistics"])
        if entry is not None:
            resource.origin = admin.STATIC
            resource.owner = entry.owner
            resource.manifest = json.dumps(entry.resource.document(), ensure_ascii=False)
        elif row is not None:
            resource.owner = self._owner(kind, name, row)
            resource.manifest = json.dumps(_described(kind, name, row), ensure_ascii=False)
        if kind in ENGINE_KINDS:
            resource.home = self._other_home(kind, name, entry)
        if kind in ("Queue", "Topic"):
            which: Kind = "queue" if kind == "Queue" else "topic"
            explained = self._live.objects.effective(which, entry.resource.subject if entry else name).explained()
            resource.effective = json.dumps(explained, ensure_ascii=False)
        elif kind == "Bridge" and entry and (said := self._live.dangling_bridges.get(entry.resource.metadata.name)):
            resource.effective = json.dumps({"dangling": said}, ensure_ascii=False)
        elif kind == "Broker" and entry and (due := self._live.restart_due):
            resource.effective = json.dumps({"fromNextStart": due}, ensure_ascii=False)
        return resource


def listed_name(kind: str, row: dict[str, Any]) -> str:
    """The name of a row in listings, which is also the order of the engine's rows."""
    return f"{row['client_id']}/{row['name']}" if kind == "DurableSubscription" else str(row["name"])


def _asked_for(name: str, request: admin.ListRequest) -> bool:
    if name.startswith(names.SYSTEM_PREFIX):
        return bool(request.system)
    return bool(request.temporaries) or not name.startswith(names.TEMPORARY_PREFIX)


def _described(kind: str, name: str, row: dict[str, Any]) -> dict[str, Any]:
    """A manifest that would make a dynamic resource static; its object's name may be chosen anew."""
    spec: dict[str, Any] = {"name": name}
    if kind == "DurableSubscription":
        spec = {"topic": row.get("topic", ""), "name": row["name"]}
        for field, key in (("client_id", "clientId"), ("selector", "selector")):
            if row.get(field):
                spec[key] = row[field]
        for field, key in (("no_local", "noLocal"), ("shared", "shared")):
            if row.get(field):
                spec[key] = True
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": _object_name(name)}, "spec": spec}


def _object_name(name: str) -> str:
    """An object name made of a destination's: what Kubernetes would not take becomes a dash."""
    kept = "".join(character if character.isascii() and character.isalnum() else "-" for character in name.lower())
    return kept.strip("-")[: names.OBJECT_NAME_CHARACTERS_MAX] or "unnamed"
