"""Manifests from text and files: every problem of every document at once, each with its place.

`read_text` and `read_files` return what is good only if everything is; otherwise they raise ManifestError.
`examine_text` is for callers that answer for each document by itself; `from_object` for what Kubernetes hands out,
`from_newer` for the same from definitions that may be newer than this program.
`kinds` says which kinds are expected: a broker's, unless the caller says otherwise.
"""

import copy
import json
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from sterna_resources import names, yaml_documents
from sterna_resources.fields import STANDING
from sterna_resources.kinds import KINDS, KUBERNETES_KINDS, suggestion
from sterna_resources.problems import ManifestError, Place, Problem
from sterna_resources.resource import API_VERSION, Resource
from sterna_resources.yaml_documents import Document, Path, field_path

SUFFIXES = (".yaml", ".yml", ".json")
FILE_BYTES_MAX = 64 * 1024 * 1024

Kinds = Mapping[str, type[Resource]]
Foreign = Callable[[Any], bool]
"""Whether a document is somebody else's, and is passed over."""

# In place of pydantic's words where those speak of Python or leave out what to do.
_MESSAGES = {
    "missing": "is missing",
    "string_type": "must be a text: put it in quotes",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a set of fields",
    "model_type": "must be a set of fields",
    "model_attributes_type": "must be a set of fields",
}


@dataclass(frozen=True)
class Manifest:
    """A resource and where it was read."""

    resource: Resource
    place: Place
    document: Document | None = None

    def problem(self, field: Path, message: str) -> Problem:
        """A problem of one of its fields, at that field's place."""
        place = self.document.place(field) if self.document is not None else self.place
        return Problem(place, field_path(field), message)


@dataclass(frozen=True)
class Examined:
    """What one document is: a manifest, or what is wrong with it. `kind` and `name` as far as they can be told."""

    kind: str
    name: str
    manifest: Manifest | None
    problems: tuple[Problem, ...]


def read_text(text: str, source: str, kinds: Kinds = KINDS) -> list[Manifest]:
    """The manifests of a text; `source` stands for it in errors.

    Raises:
        ManifestError: with all that is wrong.
    """
    return _all_good(examine_text(text, source, kinds))


def read_files(
    files: Iterable[FilePath], kinds: Kinds = KINDS, is_foreign: Foreign = lambda _: False
) -> list[Manifest]:
    """The manifests of files, in order. `is_foreign`: which documents are passed over.

    Raises:
        ManifestError: with all that is wrong with all of them; a file that cannot be read is among it.
    """
    examined: list[Examined] = []
    for file in files:
        try:
            examined += examine_text(_file_text(file), str(file), kinds, is_foreign)
        except (OSError, UnicodeDecodeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problem = Problem(Place(str(file), 1), "", f"cannot be read: {reason}")
            examined.append(Examined("", "", None, (problem,)))
    return _all_good(examined)


def examine_text(text: str, source: str, kinds: Kinds = KINDS, is_foreign: Foreign = lambda _: False) -> list[Examined]:
    """Each document of a text that is not foreign, judged by itself."""
    quick = _from_json(text, source, kinds, is_foreign)
    if quick is not None:
        return quick
    documents = yaml_documents.documents(text, source)
    return [_examine(document, kinds) for document in documents if not is_foreign(document.value)]


def from_document(value: dict[str, Any], source: str, kinds: Kinds = KINDS, *, is_standing: bool = False) -> Resource:
    """The resource of a plain document, such as one kept as JSON. `is_standing`: as `fields.is_standing` has it.

    Raises:
        ManifestError: as read_text.
    """
    [manifest] = _all_good([_examine(Document(source, value, {}), kinds, is_standing=is_standing)])
    return manifest.resource


def from_object(value: Mapping[str, Any], kinds: Kinds = KUBERNETES_KINDS, *, is_standing: bool = False) -> Resource:
    """The resource of an object as Kubernetes' API hands it out: what only Kubernetes keeps in `metadata` is left out.

    `is_standing`: it was accepted there, perhaps before a rule was made that would refuse it (`fields.is_standing`).

    Raises:
        ManifestError: as read_text.
    """
    metadata = value.get("metadata") or {}
    kept = {field: metadata[field] for field in ("name", "namespace", "labels", "annotations") if metadata.get(field)}
    document = {field: value[field] for field in ("apiVersion", "kind", "spec") if field in value}
    source = f"{kept.get('namespace', '')}/{kept.get('name', '')}"
    return from_document({**document, "metadata": kept}, source, kinds, is_standing=is_standing)


def from_newer(value: Mapping[str, Any], kinds: Kinds = KUBERNETES_KINDS) -> tuple[Resource, tuple[str, ...]]:
    """As `from_object`, and the fields that are unknown here, which are passed over.

    An API server hands out no field that its definitions do not know. One that is unknown here, be it only a default
    that nobody asked for, is of definitions that are newer than this program. And it hands out what stands there since
    before a rule, as `is_standing` of `from_object`.

    Raises:
        ManifestError: as read_text, but for unknown fields.
    """
    try:
        return from_object(value, kinds, is_standing=True), ()
    except ManifestError:
        known, unknown = _known_part(value, kinds)
        if not unknown:
            raise
        return from_object(known, kinds, is_standing=True), unknown


def _known_part(value: Mapping[str, Any], kinds: Kinds) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """An object without what no field is known for, and what that was."""
    model = kinds.get(str(value.get("kind")))
    if model is None:
        return value, ()
    known = {**value, "spec": copy.deepcopy(value.get("spec"))}
    try:
        model.model_validate({field: known[field] for field in ("apiVersion", "kind", "spec")} | {"metadata": {}})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        found = [_path(detail["loc"]) for detail in details if detail["type"] == "extra_forbidden"]
        unknown = [path for path in found if path[:1] == ("spec",)]
        for path in unknown:
            _remove(known, path)
        return known, tuple(field_path(path) for path in unknown)
    return known, ()


def _remove(value: Any, path: Path) -> None:
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]


def _path(location: tuple[str | int, ...]) -> Path:
    """A place in a manifest: without the branches of unions, which pydantic names and a manifest has not."""
    return tuple(part for part in location if not _is_branch(part))


def _file_text(file: FilePath) -> str:
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        # A pipe is waited for until somebody writes there.
        raise ValueError("is no file")
    if found.st_size > FILE_BYTES_MAX:
        raise ValueError(f"is larger than {FILE_BYTES_MAX} bytes")
    return file.read_text("utf-8")


def _all_good(examined: list[Examined]) -> list[Manifest]:
    problems = [problem for one in examined for problem in one.problems]
    if problems:
        raise ManifestError(problems)
    return [one.manifest for one in examined if one.manifest is not None]


def _from_json(text: str, source: str, kinds: Kinds, is_foreign: Foreign) -> list[Examined] | None:
    """A text that is one JSON document or a list of them, if there is nothing to complain about: many times faster."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError):
        return None
    values = value if isinstance(value, list) else [value]
    sources = [source if len(values) == 1 else f"{source}[{index}]" for index in range(len(values))]
    documents = [Document(one_source, one, {}) for one_source, one in zip(sources, values, strict=True)]
    examined = [_examine(document, kinds) for document in documents if not is_foreign(document.value)]
    return None if any(one.problems for one in examined) else examined


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a field stands twice")
    return result


def _examine(document: Document, kinds: Kinds, *, is_standing: bool = False) -> Examined:
    value = document.value
    if document.problems:
        return Examined(*_identity(value), None, tuple(document.problems))
    if isinstance(value, list):
        problem = Problem(document.place(()), "", "must be a set of fields; separate several manifests by a line ---")
        return Examined("", "", None, (problem,))
    if not isinstance(value, dict):
        return Examined("", "", None, (Problem(document.place(()), "", "must be a set of fields"),))
    kind, name = _identity(value)
    if problems := _envelope_problems(document, value, kinds):
        return Examined(kind, name, None, tuple(problems))
    try:
        resource = kinds[kind].model_validate(value, context=STANDING if is_standing else None)
    except ValidationError as error:
        return Examined(kind, name, None, tuple(_problems(document, kinds[kind], error)))
    return Examined(kind, resource.subject, Manifest(resource, document.place(()), document), ())


def _identity(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict):
        return "", ""
    kind, metadata, spec = value.get("kind"), value.get("metadata"), value.get("spec")
    candidates = [part.get("name") for part in (spec, metadata) if isinstance(part, dict)]
    if kind in ("DurableSubscription", "Broker"):
        candidates.reverse()
    name = next((candidate for candidate in candidates if isinstance(candidate, str)), "")
    return kind if isinstance(kind, str) else "", name[: names.OBJECT_NAME_CHARACTERS_MAX]


def _envelope_problems(document: Document, value: dict[str, Any], kinds: Kinds) -> list[Problem]:
    """What is wrong with apiVersion and kind: without these nothing else can be judged."""
    problems = []
    version, kind = value.get("apiVersion"), value.get("kind")
    if version is None:
        problems.append(Problem(document.place(()), "apiVersion", f"is missing: write `apiVersion: {API_VERSION}`"))
    elif version != API_VERSION:
        message = f"is '{version}', this broker knows {API_VERSION} alone"
        problems.append(Problem(document.place(("apiVersion",)), "apiVersion", message))
    if kind is None:
        message = f"is missing: one of {', '.join(kinds)}"
        problems.append(Problem(document.place(()), "kind", message))
    elif not isinstance(kind, str) or kind not in kinds:
        message = f"unknown kind '{kind}'{suggestion(str(kind), list(kinds))} (known: {', '.join(kinds)})"
        if kind in KUBERNETES_KINDS:
            message = f"a {kind} is for Kubernetes: a broker takes {', '.join(kinds)}"
        problems.append(Problem(document.place(("kind",)), "kind", message))
    return problems


def _problems(document: Document, model: type[BaseModel], error: ValidationError) -> list[Problem]:
    result = []
    for detail in error.errors(include_url=False, include_input=False):
        path = _path(detail["loc"])
        kind, message = detail["type"], detail["msg"]
        if kind == "extra_forbidden":
            known = _fields_at(model, path[:-1])
            hint = suggestion(str(path[-1]), known)
            message = f"unknown field{hint}" if hint else f"unknown field (known: {', '.join(known)})"
        elif kind in _MESSAGES:
            message = _MESSAGES[kind]
        else:
            message = message[:1].lower() + message[1:]
        result.append(Problem(document.place(path), field_path(path), message))
    return sorted(result, key=lambda problem: (problem.place.line, problem.place.column))


def _is_branch(part: str | int) -> bool:
    return isinstance(part, str) and (part in ("int", "str", "[key]") or part.startswith(("literal[", "function-")))


def _fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """The names of the fields that may stand at `path`."""
    current: type[BaseModel] | None = model
    for part in path:
        if current is None:
            return []
        if isinstance(part, str):
            fields = {field.alias or name: field for name, field in current.model_fields.items()}
            current = _model_in(fields[part].annotation) if part in fields else None
    return [field.alias or name for name, field in current.model_fields.items()] if current else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for argument in get_args(annotation) if (found := _model_in(argument))), None)
