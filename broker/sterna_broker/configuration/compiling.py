"""The configuration as the engine takes it: every destination with the properties that hold, no inheritance left."""

import json
from typing import Any

from sterna_resources import names
from sterna_resources.broker import BrokerStore
from sterna_resources.store import SYSTEM_STORES

from sterna_broker.configuration.inheritance import Kind
from sterna_broker.configuration.objects import ObjectSet, kind_of

Rows = dict[str, list[dict[str, Any]]]
"""What the engine is to make so, by sort of object."""


def compiled(objects: ObjectSet) -> str:
    """The whole configuration as JSON text for `Engine.configure`."""
    return json.dumps(rows(objects))


def rows(objects: ObjectSet) -> Rows:
    """The whole configuration as rows."""
    result: Rows = {"queues": [], "topics": []}
    # Also when no manifest says anything of them (any more).
    kinds: tuple[Kind, Kind] = ("queue", "topic")
    settings = names.TEMPORARY_SETTINGS
    result["temporaries"] = [{"kind": kind, **objects.effective(kind, settings).values} for kind in kinds]
    for resource in objects.destinations():
        kind = kind_of(resource)
        if not resource.is_pattern:
            values = objects.effective(kind, resource.subject).values
            result[f"{kind}s"].append({"name": resource.subject, "static": True, **values})
    for kind, name in bridge_targets(objects):
        result[f"{kind}s"].append({"name": name, "static": True, **objects.effective(kind, name).values})
    result["bridges"] = [
        _bridge(bridge.metadata.name, bridge.spec)
        for key, bridge in objects.keyed_bridges()
        if key not in objects.parted
    ]
    result["durables"] = [_durable(durable) for durable in objects.durables()]
    result["stores"] = _stores(objects)
    return result


def inherited(objects: ObjectSet) -> str:
    """Everything that destinations without a manifest of their own get their properties from, as text to compare."""
    patterns = [resource.document() for resource in objects.destinations() if resource.is_pattern]
    settings = objects.broker.document() if objects.broker is not None else None
    return json.dumps([patterns, settings], sort_keys=True)


def bridge_targets(objects: ObjectSet) -> dict[tuple[Kind, str], str]:
    """Targets that no manifest describes, each with the name of a bridge that leads to it.

    They exist as long as a bridge leads to them: a copy has to have a place to go to, whoever else uses it and whether
    or not an entry allows it (EMS-DEST-E01).
    """
    return {key: bridge for key, bridge in objects.targets.items() if objects.destination(*key) is None}


def _bridge(name: str, spec: Any) -> dict[str, Any]:
    kind, source = spec.source.destination
    targets = []
    for target in spec.targets:
        target_kind, target_name = target.destination
        targets.append({"kind": target_kind, "name": target_name, "selector": target.selector})
    return {"name": name, "source": {"kind": kind, "name": source}, "targets": targets}


def _durable(durable: Any) -> dict[str, Any]:
    spec = durable.spec
    return {
        "name": durable.subscription_name,
        "client_id": spec.client_id or "",
        "topic": spec.topic,
        "selector": spec.selector,
        "no_local": spec.no_local,
        "shared": spec.shared,
    }


def _stores(objects: ObjectSet) -> list[dict[str, Any]]:
    stores = {name: BrokerStore(name=name) for name in SYSTEM_STORES}
    if objects.broker is not None:
        stores.update((store.name, store) for store in objects.broker.spec.stores)
    for store in objects.stores():
        spec = store.spec
        stores[store.subject] = BrokerStore(name=store.subject, mode=spec.mode, quota_bytes=spec.quota_bytes)
    return [
        {"name": store.name, "mode": store.effective_mode, "quota_bytes": store.quota_bytes}
        for store in stores.values()
    ]
