"""Manifests from files: what the configuration of brokers is held against.

The models by which brokers, `sterna apply` and the operator read them read them here, too: what these refuse is refused
in the same words, and what a manifest does not say has the same default. Fields that are the operator's alone (which
cluster, what becomes of an object that is deleted) say nothing to a broker, and are not compared.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sterna_resources import reading
from sterna_resources.broker import Broker
from sterna_resources.kinds import KINDS, KUBERNETES_KINDS
from sterna_resources.messaging_cluster import MessagingCluster
from sterna_resources.problems import ManifestError, Problem
from sterna_resources.problems import Place as Line
from sterna_resources.reading import SUFFIXES, Manifest
from sterna_resources.resource import API_VERSION, GROUP, Resource
from sterna_resources.topology import OPERATOR_FIELDS, TopologyResource

from sterna_audit.broker_source import NO_CLUSTER
from sterna_audit.snapshots.layout import Place

ALL_KINDS: Mapping[str, type[Resource]] = {**KINDS, **KUBERNETES_KINDS}
#: Of these kinds snapshots have nothing.
UNTOLD = frozenset({"User", "MessagingCluster"})
#: A text that stands for the name of an object, where a snapshot knows it by another.
_NAMELESS = "nameless"
#: What names an item of a list, so that a field is found by more than its number.
_NAMES = ("queue", "topic", "name")
_VALUE_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is not what its manifest says.

    Attributes:
        field: its path, as `targets[queue mirror].selector`.
        manifest: what the manifest says, or its default; None: there is no such field.
        in_force: what the snapshot says, or its default.
    """

    field: str
    manifest: str | None
    in_force: str | None

    def __str__(self) -> str:
        return f"{self.field} is {_shown(self.in_force)}, not {_shown(self.manifest)}"

    def values(self) -> dict[str, str]:
        """As the evidence has it."""
        return {"field": self.field, "manifest": _shown(self.manifest), "in_force": _shown(self.in_force)}


class UnreadableError(Exception):
    """What a snapshot says of an object is none that these models know; the text says why."""


@dataclass(frozen=True)
class Declared:
    """A manifest.

    Attributes:
        resource: what it says.
        file: where it stands: path, line and column.
        cluster: under which name its cluster keeps snapshots; with a dot before it, in whichever namespace; empty: it
            names no cluster, and is for all.
    """

    resource: Resource
    file: str
    cluster: str = ""

    @property
    def kind(self) -> str:
        """Its kind."""
        return self.resource.kind

    @property
    def name(self) -> str:
        """The name that no other object of its kind has in its cluster."""
        return self.resource.claim

    @property
    def spec(self) -> str:
        """Its specification as a snapshot has it where it was applied as it is written."""
        return _text(self.resource.document().get("spec", {}))

    @property
    def applied_spec(self) -> str:
        """The same as a snapshot has it where the operator applied it."""
        if not isinstance(self.resource, TopologyResource):
            return self.spec
        return _text(self.resource.broker_document()["spec"])

    def concerns(self, place: Place) -> bool:
        """Whether this broker has to have it."""
        if isinstance(self.resource, Broker):
            return place.cluster == NO_CLUSTER and place.broker == self.resource.broker_name
        if self.kind in UNTOLD:
            return False
        if self.cluster.startswith("."):
            return f".{place.cluster}".endswith(self.cluster)
        return self.cluster in ("", place.cluster)

    def differences(self, spec: str) -> list[Difference]:
        """The fields that are otherwise in a snapshot's specification of it.

        Raises:
            UnreadableError: that is none.
        """
        wanted, found = _fields(self.resource), _fields_in_force(self.kind, spec)
        return [
            Difference(name, wanted.get(name), found.get(name))
            for name in sorted(wanted.keys() | found.keys())
            if wanted.get(name) != found.get(name)
        ]


@dataclass(frozen=True)
class Declarations:
    """All manifests of a run.

    Attributes:
        path: where they were read.
        manifests: in the order of their files.
        foreign: how many documents were passed over, since they are not Sterna's.
    """

    path: str
    manifests: Sequence[Declared]
    foreign: int = 0

    @cached_property
    def by_place(self) -> Mapping[tuple[str, str, str], Declared]:
        """Each by kind, name and where it stands."""
        return {(one.kind, one.name, one.file): one for one in self.manifests}

    def of(self, place: Place) -> Iterator[Declared]:
        """Those that a broker has to have."""
        return (one for one in self.manifests if one.concerns(place))


def read(path: Path) -> Declarations:
    """The manifests of a file, or of the files of a folder (*.yaml, *.yml, *.json, not those below it).

    Documents of other groups than Sterna's, such as a Secret, are passed over.

    Raises:
        ManifestError: with all that is wrong, each with file, line and field; also where there is no manifest at all,
            or two describe the same object.
    """
    foreign = 0

    def is_foreign(value: Any) -> bool:
        nonlocal foreign
        version, kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else (None, None)
        found = isinstance(version, str) and version.partition("/")[0] != GROUP and kind not in (*ALL_KINDS, "List")
        foreign += found
        return found

    found = reading.read_files(_files(path), ALL_KINDS, is_foreign)
    if not found:
        raise _error(str(path), "holds no manifests of Sterna")
    names = {
        (one.resource.metadata.namespace, one.resource.metadata.name): one.resource.etcd_name
        for one in found
        if isinstance(one.resource, MessagingCluster)
        and (one.resource.metadata.namespace or one.resource.spec.etcd.cluster_name)
    }
    declared = [Declared(one.resource, str(one.place), _cluster(one.resource, names)) for one in found]
    _refuse_doubles(found, declared)
    return Declarations(str(path), declared, foreign)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        files = sorted(one for one in path.iterdir() if one.suffix in SUFFIXES and not one.name.startswith("."))
    except OSError as error:
        raise _error(str(path), f"cannot be read: {error.strerror}") from error
    if not files:
        raise _error(str(path), f"holds no manifests: their files end in {', '.join(SUFFIXES)}")
    return [one for one in files if not one.is_dir()]


def _error(source: str, why: str) -> ManifestError:
    return ManifestError([Problem(Line(source, 1), "", why)])


def _refuse_doubles(found: Sequence[Manifest], declared: Sequence[Declared]) -> None:
    """ManifestError where two manifests describe the same object: which of them is meant, nobody knows."""
    first: dict[tuple[str, str, str], str] = {}
    problems = []
    for manifest, one in zip(found, declared, strict=True):
        key = one.kind, one.name, one.cluster
        if (other := first.setdefault(key, one.file)) != one.file:
            label = f"{one.kind} {one.name}"
            problems.append(manifest.problem(("metadata", "name"), f"{label} is described in {other} already"))
    if problems:
        raise ManifestError(problems)


def _cluster(resource: Resource, names: Mapping[tuple[str | None, str], str]) -> str:
    """How a manifest's cluster is called in snapshots: as it keeps its state in etcd."""
    reference = resource.spec.cluster_ref if isinstance(resource, TopologyResource) else None
    if reference is None:
        return ""
    namespace = reference.namespace or resource.metadata.namespace
    if (known := names.get((namespace, reference.name))) is not None:
        return known
    # A manifest that says no namespace is for the one that kubectl is told.
    return f"{namespace or ''}.{reference.name}"


def _shown(value: str | None) -> str:
    return "nothing" if value is None else value[:_VALUE_CHARACTERS_MAX]


def _text(spec: Mapping[str, Any]) -> str:
    return json.dumps(spec, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _fields_in_force(kind: str, spec: str) -> dict[str, str]:
    """What a specification says to a broker, by field, with defaults."""
    try:
        value = json.loads(spec)
    except ValueError:
        raise UnreadableError("its specification is no JSON") from None
    document = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": _NAMELESS}, "spec": value}
    try:
        resource, unknown = reading.from_newer(document, ALL_KINDS)
    except ManifestError as error:
        raise UnreadableError("; ".join(problem.message for problem in error.problems)[:300]) from None
    # A field that only a newer broker knows has been written by somebody: no manifest that is read here says it.
    return _fields(resource) | {name.removeprefix("spec."): "(unknown here)" for name in unknown}


def _fields(resource: Resource) -> dict[str, str]:
    values = resource.model_dump(by_alias=True, mode="json", exclude={"spec": {"name", *OPERATOR_FIELDS}})
    return dict(_flat(values["spec"], ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Each value that is said, as JSON, with its path."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _flat(part, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _flat(part, f"{path}[{_label(part, number)}]")
    elif value is not None:
        yield path, json.dumps(value, ensure_ascii=False)


def _label(item: Any, number: int) -> str:
    """What an item of a list is called: by what names it, so that the order of lists does not matter."""
    if isinstance(item, dict):
        for name in _NAMES:
            if item.get(name) is not None:
                return f"{name} {item[name]}"
    return str(number)
