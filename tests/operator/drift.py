"""Changes by hand to what an operator has made: each field changed, added and removed, as JSON patches.

Written for the tests of drift. What may be shared is left out, by a list of its own: the operator's is what is tested.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

# Kind, and where in it, `*` for the entries of a list: what Kubernetes gives out, or others have a right to.
OTHERS = {
    ("Service", "/spec/clusterIP"),
    ("Service", "/spec/clusterIPs"),
    ("Service", "/spec/ipFamilies"),
    ("Service", "/spec/ipFamilyPolicy"),
    ("Service", "/spec/ports/*/nodePort"),
    ("ServiceAccount", "/secrets"),
    ("ServiceAccount", "/imagePullSecrets"),
    # Nobody can change it.
    ("StatefulSet", "/spec/volumeClaimTemplates"),
    # Null in what the API server answers, and in nothing that it takes.
    ("StatefulSet", "/spec/template/metadata/creationTimestamp"),
}
_HEAD = ("apiVersion", "kind", "metadata", "status")
OURS = ("app.kubernetes.io/", "sterna.dev/")

Patch = list[dict[str, Any]]


def essence(object: dict[str, Any]) -> dict[str, Any]:
    """All of an object that is the operator's alone, to be compared."""
    found = {name: _without_others(object["kind"], value, f"/{name}") for name, value in object.items()}
    for name in _HEAD:
        found.pop(name, None)
    metadata = object["metadata"]
    for name in ("labels", "annotations"):
        values = metadata.get(name) or {}
        found[f"our {name}"] = {key: value for key, value in values.items() if key.startswith(OURS)}
    found["owners"] = [{key: one[key] for key in sorted(one)} for one in metadata.get("ownerReferences") or ()]
    return {name: value for name, value in found.items() if value is not None}


def _without_others(kind: str, value: Any, where: str) -> Any:
    if (kind, where) in OTHERS:
        return None
    if isinstance(value, dict):
        inner = {name: _without_others(kind, one, f"{where}/{name}") for name, one in value.items()}
        return {name: one for name, one in inner.items() if one is not None}
    if isinstance(value, list):
        return [_without_others(kind, one, f"{where}/*") for one in value]
    return value


def by_hand(object: dict[str, Any]) -> Iterator[Patch]:
    """Every change to an object's own fields, and to the operator's labels, annotations and owners."""
    for name in [name for name in object if name not in _HEAD]:
        yield from _changes(object["kind"], object[name], [name])
    for name in ("labels", "annotations"):
        for key in object["metadata"].get(name) or ():
            if key.startswith(OURS):
                yield [{"op": "remove", "path": _pointer(["metadata", name, key])}]
                yield [{"op": "replace", "path": _pointer(["metadata", name, key]), "value": "by-hand"}]
    yield [{"op": "remove", "path": "/metadata/ownerReferences"}]


def _changes(kind: str, value: Any, path: list[str]) -> Iterator[Patch]:
    place = "/" + "/".join("*" if part.isdigit() else part for part in path)
    if (kind, place) in OTHERS:
        return
    pointer = _pointer(path)
    yield [{"op": "remove", "path": pointer}]
    if isinstance(value, dict):
        yield [{"op": "add", "path": f"{pointer}/by-hand", "value": "by-hand"}]
        for name, one in value.items():
            yield from _changes(kind, one, [*path, name])
    elif isinstance(value, list):
        more = _another(value[-1]) if value else "by-hand"
        yield [{"op": "add", "path": f"{pointer}/-", "value": more}]
        for number, one in enumerate(value):
            yield from _changes(kind, one, [*path, str(number)])
    else:
        yield [{"op": "replace", "path": pointer, "value": _another(value)}]


def _another(value: Any) -> Any:
    """A value of the same sort that is another."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return f"{value}x"
        case dict():
            changed = copy.deepcopy(value)
            if "name" in changed:
                changed["name"] = f"{changed['name']}x"
            return changed
        case _:
            return value


def _pointer(path: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def applied(object: dict[str, Any], patch: Patch) -> dict[str, Any]:
    """The object after a patch, without an API server."""
    changed = copy.deepcopy(object)
    for operation in patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        at: Any = changed
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if operation["op"] == "remove":
            del at[int(last) if isinstance(at, list) else last]
        elif isinstance(at, list) and operation["op"] == "add":
            at.append(operation["value"])
        else:
            at[int(last) if isinstance(at, list) else last] = operation["value"]
    return changed


def told(patch: Patch) -> str:
    """A patch in one line."""
    return "; ".join(f"{one['op']} {one['path']} {json.dumps(one.get('value'))}" for one in patch)
