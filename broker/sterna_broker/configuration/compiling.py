"""The configuration as the engine takes it: every destination with the properties that hold, no inheritance left."""

import json
from typing import Any

from sterna_resources import names
from sterna_resources.broker import SYSTEM_STORES, Store

from sterna_broker.configuration.objects import ObjectSet, kind_of


def compiled(objects: ObjectSet) -> str:
    """The whole configuration as JSON text for `Engine.configure`."""
    result: dict[str, list[dict[str, Any]]] = {"queues": [], "topics": [], "temporaries": []}
    for resource in objects.destinations():
        kind = kind_of(resource)
        values = objects.effective(kind, resource.subject).values
        if resource.subject == names.TEMPORARY_SETTINGS:
            result["temporaries"].append({"kind": kind, **values})
        elif not resource.is_pattern:
            result[f"{kind}s"].append({"name": resource.subject, "static": True, **values})
    result["bridges"] = [_bridge(bridge.metadata.name, bridge.spec) for bridge in objects.bridges()]
    result["durables"] = [_durable(durable) for durable in objects.durables()]
    result["stores"] = _stores(objects)
    return json.dumps(result)


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
    stores = {name: Store(name=name) for name in SYSTEM_STORES}
    if objects.broker is not None:
        stores.update((store.name, store) for store in objects.broker.spec.stores)
    return [
        {"name": store.name, "mode": store.effective_mode, "quota_bytes": store.quota_bytes}
        for store in stores.values()
    ]
