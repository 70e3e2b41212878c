"""JSON schemas of the kinds, self-contained and in the form that Kubernetes calls structural.

Structural means: no references, one type a field, unions only where Kubernetes has a word for them. Pydantic's own
schemas refer to definitions and write an optional field as a union with null; both are resolved here, so that the
custom resource definitions can be made from the same text.
"""

from typing import Any

from pydantic import BaseModel

from sterna_resources.kinds import KINDS
from sterna_resources.rules import KEYWORD

_DROPPED = {"title", "$defs", "additionalProperties", "propertyNames"}

# What only Kubernetes needs to know, and an editor would not understand.
_FOR_KUBERNETES = {
    KEYWORD,
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-sterna-required",
    "x-sterna-section",
}


def schema(kind: str) -> dict[str, Any]:
    """The schema of one kind's manifests, as a broker takes them.

    Raises:
        KeyError: there is no such kind.
    """
    result: dict[str, Any] = _without(described(KINDS[kind]), _FOR_KUBERNETES)
    required = result.setdefault("required", [])
    result["required"] = [*(name for name in ("apiVersion", "kind") if name not in required), *required]
    return result


def part_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a part of a manifest, self-contained."""
    result: dict[str, Any] = _without(described(model), _FOR_KUBERNETES)
    return result


def described(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of any model, self-contained, with all that Kubernetes is to know besides."""
    raw = model.model_json_schema(by_alias=True)
    result: dict[str, Any] = _resolved(raw, raw.get("$defs", {}))
    return result


def schemas() -> dict[str, Any]:
    """One schema for any manifest, for editors: the kind decides."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Sterna manifests",
        "oneOf": [{"title": kind, **schema(kind)} for kind in KINDS],
    }


def _without(node: Any, keywords: set[str]) -> Any:
    """A schema without some keywords. The fields below `properties` are no keywords, whatever they are called."""
    if isinstance(node, list):
        return [_without(item, keywords) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: {name: _without(field, keywords) for name, field in value.items()}
        if key == "properties"
        else _without(value, keywords)
        for key, value in node.items()
        if key not in keywords
    }


def _resolved(node: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_resolved(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if "anyOf" in node and "x-kubernetes-int-or-string" not in node:
        branches = [branch for branch in node["anyOf"] if branch.get("type") != "null"]
        if len(branches) == 1:
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            return _resolved({**branches[0], **rest}, definitions)
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key == "properties":
            result[key] = {name: _resolved(field, definitions) for name, field in value.items()}
        elif key == "const":
            result["type"], result["enum"] = "string", [value]
        elif key == "additionalProperties" and isinstance(value, dict):
            result[key] = _resolved(value, definitions)
        elif key == "description":
            result[key] = " ".join(value.split())
        elif key == "default" and (value in (None, {}, []) or "const" in node):
            continue
        elif key not in _DROPPED:
            result[key] = _resolved(value, definitions)
    return result
