"""What stands in Kubernetes beside what is wanted, and what it is to become.

What a child's manifest says has to stand. What it does not say must not, unless `shared` names it: a label more in a
Service's selector and nobody connects, a container more in a pod and brokers do not come back. Metadata is shared.

Each child carries a digest of its manifest (`stamped`). Where that is the one of today and something is different all
the same, somebody has changed it; otherwise the manifest has changed. The latter is applied server-side, which takes
away what we said before; what others have put in, that would leave.

`left` are differences that the API server, or an admission webhook, put back as soon as they had been taken away
(`put_back`): to try that again would change nothing.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from typing import Any

from sterna_resources.fields import amount

from sterna_operator.builders.shared import SHARED, Left, Rules

# What says which object it is, or is not ours to say.
_NOT_OURS = frozenset({"apiVersion", "kind", "metadata", "status"})
_ABSENT = object()
_SHOWN_CHARACTERS = 60
_NAMED_MAX = 3

STAMP = "sterna.dev/manifest"
"""On children, an annotation: a digest of the manifest that they were made from."""


def stamped(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with its digest among its annotations."""
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True, default=str).encode()).hexdigest()[:16]
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), STAMP: digest}}}


def is_of(manifest: Mapping[str, Any], standing: Mapping[str, Any]) -> bool:
    """Whether what stands was made from this very manifest."""
    annotations = standing["metadata"].get("annotations") or {}
    return bool(annotations.get(STAMP) == manifest["metadata"]["annotations"][STAMP])


def quantity(value: Any) -> Decimal | None:
    """An amount as a number; None: it is none."""
    try:
        return amount(str(value))
    except ValueError:
        return None


def corrected(
    wanted: Mapping[str, Any], standing: Mapping[str, Any], left: Collection[str] = frozenset()
) -> dict[str, Any]:
    """The standing object as it should be: equal to it when nothing is to be done."""
    rules = SHARED.get(wanted["kind"], {})
    ours = _body(wanted)
    body = _body(standing)
    same = {name: standing[name] for name in _NOT_OURS if name in standing}
    whole = _Correction(frozenset(left)).mapping(ours, body, rules, "")
    return {**same, "metadata": _metadata(wanted["metadata"], standing["metadata"]), **whole}


def remaining(
    wanted: Mapping[str, Any],
    standing: Mapping[str, Any],
    left: Collection[str] = frozenset(),
    *,
    also_more: bool = True,
) -> dict[str, str]:
    """What is not as it should be: each difference, as `left` takes it, and in words.

    `also_more`: what stands beside what is wanted, too, and not only what is another.
    """
    return {
        _mark(path, value): f"{path}: {_shown(value)} -> {_shown(after)}"
        for path, value, after in _changes(_body(standing), _body(corrected(wanted, standing, left)), "")
        if also_more or not (after is _ABSENT or _takes_away(value, after))
    }


def repair(standing: Mapping[str, Any], becoming: Mapping[str, Any]) -> dict[str, Any] | None:
    """The merge patch that makes the one into the other; None: nothing but metadata differs.

    Server-side apply is no way back: it leaves what others have put in, and what they have put into a list beside ours.
    """
    return _merge_patch(_body(standing), _body(becoming)) or None


def _merge_patch(standing: Any, becoming: Any) -> dict[str, Any]:
    patch: dict[str, Any] = {name: None for name in standing if name not in becoming}
    for name, value in becoming.items():
        before = standing.get(name, _ABSENT)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := _merge_patch(before, value):
                patch[name] = inner
        elif before is _ABSENT or before != value:
            patch[name] = value
    return patch


def changes(standing: Mapping[str, Any], becoming: Mapping[str, Any]) -> str:
    """In words: the first of what is to be another."""
    found = [f"{path}: {_shown(before)} -> {_shown(after)}" for path, before, after in _changes(standing, becoming, "")]
    more = [f"and {len(found) - _NAMED_MAX} more"] if len(found) > _NAMED_MAX else []
    return "; ".join([*found[:_NAMED_MAX], *more])


def _takes_away(standing: Any, becoming: Any) -> bool:
    """Whether something that stands is to be there no more: server-side apply leaves what others have put in."""
    if isinstance(standing, Mapping) and isinstance(becoming, Mapping):
        return any(name not in becoming or _takes_away(value, becoming[name]) for name, value in standing.items())
    if isinstance(standing, list) and isinstance(becoming, list):
        if len(standing) != len(becoming):
            return len(standing) > len(becoming)
        return any(map(_takes_away, standing, becoming))
    return False


def _body(object: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in object.items() if name not in _NOT_OURS}


class _Correction:
    """Makes values into what they should be. `left` as in the module."""

    def __init__(self, left: frozenset[str]) -> None:
        self._left = left

    def mapping(self, wanted: Mapping[str, Any], standing: Mapping[str, Any], rules: Rules, path: str) -> Any:
        result = {}
        for name, value in standing.items():
            here = f"{path}.{name}" if path else name
            if name in wanted:
                result[name] = self._value(wanted[name], value, _below(rules, name), here)
            elif self._stays(value, rules.get(name, rules.get("*")), here):
                result[name] = value
        missing = {name: value for name, value in wanted.items() if name not in standing}
        missing = {name: value for name, value in missing.items() if not self._is_left(path, name)}
        # What is said to be empty the API server may leave out. If that is all, nothing is to be done.
        if result != standing or any(value not in ({}, []) for value in missing.values()):
            result |= missing
        return result

    def _is_left(self, path: str, name: str) -> bool:
        return _mark(f"{path}.{name}" if path else name, _ABSENT) in self._left

    def _value(self, wanted: Any, standing: Any, rules: Rules, path: str) -> Any:
        if standing is None and wanted in ({}, []):
            return standing
        if isinstance(wanted, Mapping):
            return self.mapping(wanted, standing if isinstance(standing, Mapping) else {}, rules, path)
        if isinstance(wanted, list | tuple):
            return self._list(list(wanted), standing if isinstance(standing, list) else [], rules, path)
        if wanted == standing or _mark(path, standing) in self._left:
            return standing
        # The API server writes amounts in a form of its own: 1024Mi comes back as 1Gi.
        number = quantity(wanted)
        return standing if number is not None and number == quantity(standing) else wanted

    def _list(self, wanted: list[Any], standing: list[Any], rules: Rules, path: str) -> list[Any]:
        if _mark(path, standing) in self._left:
            return standing
        result = []
        named = {one["name"]: one for one in standing if isinstance(one, Mapping) and "name" in one}
        names = {one["name"] for one in wanted if isinstance(one, Mapping) and "name" in one}
        for number, one in enumerate(wanted):
            if isinstance(one, Mapping) and "name" in one:
                here, known = f"{path}[{one['name']}]", named.get(one["name"])
                if known is None and number < len(standing):
                    known = _renamed(standing[number], names)
            else:
                here, known = f"{path}[{number}]", standing[number] if number < len(standing) else None
            result.append(one if known is None else self._value(one, known, rules, here))
        return result

    def _stays(self, value: Any, rule: Left | Rules | None, path: str) -> bool:
        if isinstance(rule, Left) and rule.covers(value):
            return True
        return _mark(path, value) in self._left


def _renamed(standing: Any, names: Collection[str]) -> Mapping[str, Any] | None:
    """What stands in an entry's place, if no other entry has its name: the same under another name, or under none.

    A port whose name somebody takes away keeps the node port by which clients know it.
    """
    return standing if isinstance(standing, Mapping) and standing.get("name") not in names else None


def _below(rules: Rules, name: str) -> Rules:
    rule = rules.get(name, {})
    return {} if isinstance(rule, Left) else rule


def _metadata(wanted: Mapping[str, Any], standing: Mapping[str, Any]) -> dict[str, Any]:
    """Ours has to stand; the rest is others'."""
    result = dict(standing)
    for name in ("labels", "annotations"):
        if ours := wanted.get(name):
            result[name] = {**(standing.get(name) or {}), **ours}
    owners = [dict(one) for one in standing.get("ownerReferences") or ()]
    for owner in wanted.get("ownerReferences") or ():
        known = next((one for one in owners if one.get("uid") == owner["uid"]), None)
        if known is None:
            owners.append(dict(owner))
        else:
            known.update(owner)
    if owners:
        result["ownerReferences"] = owners
    return result


def _changes(standing: Any, becoming: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Each smallest part that is another in the second: where, and both values."""
    if isinstance(standing, Mapping) and isinstance(becoming, Mapping):
        for name in [*standing, *(name for name in becoming if name not in standing)]:
            here = f"{path}.{name}" if path else name
            yield from _changes(standing.get(name, _ABSENT), becoming.get(name, _ABSENT), here)
    elif isinstance(standing, list) and isinstance(becoming, list) and len(standing) == len(becoming):
        for number, (one, other) in enumerate(zip(standing, becoming, strict=True)):
            name = other["name"] if isinstance(other, Mapping) and "name" in other else number
            yield from _changes(one, other, f"{path}[{name}]")
    elif standing != becoming:
        yield path, standing, becoming


def _mark(path: str, value: Any) -> str:
    return f"{path}={_text(value)}"


def _text(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, sort_keys=True, default=str)


def _shown(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
