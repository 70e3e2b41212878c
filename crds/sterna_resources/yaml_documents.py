"""YAML and JSON text to plain values that remember where they stood.

Manifests need less than YAML offers, and people need to be told where they went wrong. So a text is composed into
nodes, which carry their place, and the nodes are turned into plain values here: no tags, no merge keys, no duplicate
keys, bounds on depth and size (an alias repeated in an alias would otherwise grow without end). JSON is read by the
same code, since it is YAML; only a large JSON text is worth the shortcut that `reading` takes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scanner import Scanner, ScannerError

from sterna_resources.problems import Place, Problem

DEPTH_MAX = 32
# What is a little too deep is still composed: it is told of by its field, and the documents after it are judged, too.
_SCANNED_DEPTH_MAX = 2 * DEPTH_MAX
# Each node takes at least a character, so a text with more nodes than this can only repeat itself by aliases.
NODES_MIN = 10_000

Path = tuple[str | int, ...]

_PREFIX = "tag:yaml.org,2002:"
_NOT_A_NUMBER = {".inf", "-.inf", "+.inf", ".nan"}


@dataclass
class Document:
    """One document of a text: its value, and the place of each of its parts by path."""

    source: str
    value: Any
    places: dict[Path, Place]
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path) -> Place:
        """Where the part at `path` stands, or the nearest part around it."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, Place(self.source, 1))


def documents(text: str, source: str) -> Iterator[Document]:
    """The documents of a text, empty ones left out. A text that is not YAML yields a last document with the problem."""
    composer = YAML(typ="safe", pure=True)
    composer.Scanner = _BoundedScanner
    nodes = composer.compose_all(text)
    while True:
        try:
            node = next(nodes, None)
        except (YAMLError, ValueError) as error:
            yield Document(source, None, {}, [_syntax_problem(error, source)])
            return
        if node is None:
            return
        document = _Builder(source, max(NODES_MIN, len(text))).document(node)
        if document.value is not None or document.problems:
            yield document


def _syntax_problem(error: Exception, source: str) -> Problem:
    mark = None
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "cannot be read"
    else:
        what = str(error).partition("\n")[0]
    place = Place(source, mark.line + 1, mark.column + 1) if mark is not None else Place(source, 1)
    return Problem(place, "", f"not valid YAML: {what}")


class _BoundedScanner(Scanner):
    """Refuses what is nested far too deeply at the character where it gets so.

    Of many open brackets each may begin a key: the scanner reads on for each of them, over all those that are open,
    before the parser hears of the first. A composer that counts is asked too late.
    """

    def fetch_flow_collection_start(self, token_class: Any, to_push: str) -> None:
        """Begins a collection in brackets."""
        self._check_depth()
        super().fetch_flow_collection_start(token_class, to_push)

    def add_indent(self, column: int) -> bool:
        """Begins one by indentation, if it is one."""
        is_deeper = super().add_indent(column)
        if is_deeper:
            self._check_depth()
        return is_deeper

    def _check_depth(self) -> None:
        if len(self.indents) + self.flow_level > _SCANNED_DEPTH_MAX:
            raise ScannerError(None, None, f"is nested deeper than {DEPTH_MAX} levels", self.reader.get_mark())


class _Builder:
    """Turns the nodes of one document into values."""

    def __init__(self, source: str, nodes_max: int) -> None:
        self._source = source
        self._nodes_max = nodes_max
        self._places: dict[Path, Place] = {}
        self._problems: list[Problem] = []
        self._nodes = 0

    def document(self, node: Node) -> Document:
        value = self._value(node, ())
        return Document(self._source, value, self._places, self._problems)

    def _value(self, node: Node, path: Path) -> Any:
        self._nodes += 1
        place = self._place(node)
        self._places.setdefault(path, place)
        if len(path) > DEPTH_MAX or self._nodes > self._nodes_max:
            bound = f"nested deeper than {DEPTH_MAX} levels" if len(path) > DEPTH_MAX else "too large"
            if not self._problems:
                self._refuse(place, path, f"is {bound}")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place = self._place(key_node)
            if not isinstance(key_node, ScalarNode) or key_node.tag == f"{_PREFIX}merge":
                self._refuse(place, path, "a name of a field must be a plain word (merge keys are not supported)")
                continue
            key = str(key_node.value)
            if key in result:
                self._refuse(place, (*path, key), f"stands twice, first in line {self._places[(*path, key)].line}")
                continue
            self._places[(*path, key)] = place
            result[key] = self._value(value_node, (*path, key))
        return result

    def _scalar(self, node: Node) -> Any:
        tag, text = str(node.tag).removeprefix(_PREFIX), str(node.value)
        if tag == "null":
            return None
        if tag == "bool":
            return text.lower() == "true"
        try:
            if tag == "int":
                return int(text.replace("_", ""), 0 if text.lower().lstrip("+-").startswith(("0x", "0o", "0b")) else 10)
            if tag == "float" and text.lower() not in _NOT_A_NUMBER:
                number = float(text.replace("_", ""))
                return int(number) if number.is_integer() and "." not in text else number
        except ValueError:
            return text
        # Dates and the like are texts here; a tag of the writer's own makes no other value either.
        return text

    def _place(self, node: Node) -> Place:
        mark = node.start_mark
        return Place(self._source, mark.line + 1, mark.column + 1)

    def _refuse(self, place: Place, path: Path, message: str) -> None:
        self._problems.append(Problem(place, field_path(path), message))


def field_path(path: Path) -> str:
    """A path as people write it: `spec.targets[0].queue`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
