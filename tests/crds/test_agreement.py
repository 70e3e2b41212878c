"""What no table can hold: every bound of every field, and names made up at random, put to both sides."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sterna_resources import ManifestError, from_object
from sterna_resources.bridge import TARGETS_MAX
from sterna_resources.cluster_access import BROKERS_MAX, LISTENERS_MAX
from sterna_resources.definitions import definitions, object_schema
from sterna_resources.kinds import KUBERNETES_KINDS
from sterna_resources.rules import KEYWORD

from tests.crds.cases import BRIDGE, CLUSTER, DURABLE, FACTORY, LEAST, REF
from tests.crds.conftest import Kinds, document

# A value of another type than the field's.
_WRONG = {"integer": "many", "string": 5, "boolean": "yes", "array": "one", "object": 5}
# Stands in a path for the only member of a list.
MEMBER = "[]"


# Texts on which two checks of a form may disagree: other blanks and letters, ends of lines, numbers, times.
_ODD = (
    *(
        "a b",
        "a\n",
        "a\t",
        "\u00a0",
        "a\u2028",
        "a\u200b",
        "é",
        "١",
        "A",
        "-a",
        "a-",
        "$x",
        "a.b",
        "a/b",
        "a:1",
        "[::1]:1",
    ),
    *("10Gi", "1.5Gi", ".5", "5.", "1e3", "00", "9" * 33, "https://a:1", "https://a:1/", "b{ordinal}.c"),
    *("2030-01-31T18:00:00Z", "2030-01-31t18:00:00z", "2030-02-30T18:00:00Z", "2030-01-31T18:00:00,5Z"),
    *("2030-01-31T18:00:00+25:00", "2030-01-31T24:00:00Z", "0000-01-01T00:00:00Z", "2030-01-31T18:00Z", "2030-01-31"),
)


def fields(node: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every field below a schema that is reached without going through a map; of a list of texts its only member."""
    for name, field in node.get("properties", {}).items():
        yield (*path, name), field
        if field.get("items", {}).get("type") == "string":
            yield (*path, name, MEMBER), field["items"]
        yield from fields(field, (*path, name))


def tries(field: dict[str, Any]) -> Iterator[Any]:
    """Values at and beyond the field's bounds, and of another type."""
    kind = field.get("type", "")
    if "minimum" in field:
        yield from (field["minimum"], field["minimum"] - 1, field["maximum"], field["maximum"] + 1)
    if kind == "string" and "maxLength" in field:
        yield from ("a" * field["maxLength"], "a" * (field["maxLength"] + 1), "")
    if {"pattern", "format", KEYWORD} & field.keys() and kind != "integer":
        yield from _ODD
    if "enum" in field:
        yield from (*field["enum"], "nonsense")
    if kind == "object" and "properties" in field:
        yield {"nonsense": 1}
    if field.get("x-kubernetes-int-or-string"):
        yield from (5, "10Gi", "none", -1, "x" * 33, 1.5, True, [])
    if kind in _WRONG:
        yield _WRONG[kind]


def with_value(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The spec with one field set, groups around it made."""
    if path[-1] == MEMBER:
        return with_value(spec, path[:-1], [value])
    result = copy.deepcopy(spec)
    at = result
    for part in path[:-1]:
        at = at.setdefault(part, {})
    at[path[-1]] = value
    return result


def takes(kind: str, name: str, spec: Any) -> str:
    """What our models say: nothing, or what is wrong."""
    try:
        from_object(document(kind, name, spec), KUBERNETES_KINDS)
    except ManifestError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", list(LEAST))
def test_every_bound_is_the_same(kinds: Kinds, kind: str) -> None:
    schema = object_schema(kind)["properties"]["spec"]
    tried, differing = 0, []
    for path, field in fields(schema, ()):
        for value in tries(field):
            spec = with_value(LEAST[kind], path, value)
            answer, said = kinds.create(kind, "thing", spec), takes(kind, "thing", spec)
            tried += 1
            if answer.ok != (said == ""):
                differing.append(f"{'.'.join(path)}={str(value)[:40]!r}: Kubernetes {answer.message!r}, here {said!r}")
    assert tried > 20
    assert not differing, "\n".join(differing)


_ELEMENTS = st.one_of(
    st.sampled_from(["a", "*", ">", "", "$sys", "TMP", "a*", "x" * 127, "x" * 128, "é"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=4),
)
_NAMES = st.lists(_ELEMENTS, min_size=1, max_size=66).map(".".join) | st.integers(180, 252).map(
    lambda length: ".".join("ab" * length)[:length]
)


@given(name=_NAMES)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_names_are_judged_alike(kinds: Kinds, name: str) -> None:
    for kind, spec in (
        ("Queue", {**REF, "name": name}),
        ("Bridge", {**BRIDGE, "source": {"topic": name}}),
        ("Bridge", {**BRIDGE, "targets": [{"topic": name}]}),
    ):
        answer, said = kinds.create(kind, "thing", spec), takes(kind, "thing", spec)
        assert answer.ok == (said == ""), f"Kubernetes: {answer.message}; here: {said}"


@pytest.mark.parametrize("kind", list(LEAST))
def test_defaults_are_the_same(kinds: Kinds, kind: str) -> None:
    answer = kinds.create(kind, "thing", LEAST[kind])
    assert answer.ok, answer.message
    filled = from_object(answer.body, KUBERNETES_KINDS)
    plain = from_object(document(kind, "thing", LEAST[kind]), KUBERNETES_KINDS)
    assert filled.model_dump() == plain.model_dump()


def test_the_largest_objects_cost_no_more_than_they_may(kinds: Kinds) -> None:
    """A rule whose cost is too high refuses an object that is right, and only when somebody has such a large one."""
    names = [f"{'x' * 121}.{'y' * 121}{number:04}" for number in range(TARGETS_MAX)]
    ports = [
        {"name": f"n{number}", "type": "nodePort", "nodePorts": list(range(30_000, 30_064))} for number in range(4)
    ]
    hosts = [f"{'h' * 290}{number}:7222" for number in range(BROKERS_MAX)]
    given = [{"name": f"g{number}", "type": "addresses", "addresses": hosts} for number in range(LISTENERS_MAX - 4)]
    namespaces = {"policy": "named", "names": [f"{'n' * 59}{number:04}" for number in range(256)]}
    largest = [
        ("Bridge", {**BRIDGE, "targets": [{"queue": name} for name in names]}),
        ("Bridge", {**BRIDGE, "targets": [{"topic": name, "selector": "s" * 5_000} for name in names]}),
        (
            "ConnectionFactory",
            {**FACTORY, "url": "sterna://" + "a" * 991, "aliases": [f"{'x' * 252}{n}" for n in range(16)]},
        ),
        ("Queue", {**REF, "aliases": [f"{'x' * 252}{n}" for n in range(16)]}),
        ("DurableSubscription", {**DURABLE, "selector": "s" * 65_536, "topic": ".".join("t" * 64)}),
        (
            "MessagingCluster",
            {**CLUSTER, "brokers": BROKERS_MAX, "listeners": [*ports, *given], "allowedNamespaces": namespaces},
        ),
    ]
    for kind, spec in largest:
        answer = kinds.create(kind, "large", spec)
        assert answer.ok, answer.message
        assert takes(kind, "large", spec) == ""


def test_nothing_is_without_bounds() -> None:
    """Every text, list and map has one: they bound the rules' cost, and what an object can weigh."""
    unbounded: list[str] = []

    def look(node: dict[str, Any], path: str) -> None:
        kind = node.get("type")
        if kind == "string" and not {"maxLength", "enum", "format"} & node.keys():
            unbounded.append(path)
        if kind == "array" and "maxItems" not in node:
            unbounded.append(path)
        if "additionalProperties" in node and "maxProperties" not in node:
            unbounded.append(path)
        if kind == "integer" and "minimum" not in node:
            unbounded.append(path)
        for name, field in node.get("properties", {}).items():
            look(field, f"{path}.{name}")
        for word in ("items", "additionalProperties"):
            if isinstance(node.get(word), dict):
                look(node[word], f"{path}[]")

    for kind in definitions():
        schema = object_schema(kind)["properties"]
        look(schema["spec"], f"{kind}.spec")
        look(schema["status"], f"{kind}.status")
    assert not unbounded
