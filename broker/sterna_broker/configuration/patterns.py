"""Which patterns match a name. The engine has its own trie for messages; this one answers when something is created."""

from collections.abc import Iterable
from typing import Generic, TypeVar

Value = TypeVar("Value")


def matches(pattern: str, name: str) -> bool:
    """Whether `name`, without wildcards, is one of the names that `pattern` stands for (EMS-DEST-A42)."""
    return _matches(pattern.split("."), name.split("."))


def covers(pattern: str, other: str) -> bool:
    """Whether every name that the pattern `other` matches is matched by `pattern`, too."""
    others = other.split(".")
    for index, element in enumerate(pattern.split(".")):
        if index >= len(others):
            return False
        if element == ">":
            return True
        if others[index] == ">" or element not in ("*", others[index]):
            return False
    return len(others) == len(pattern.split("."))


def overlap(one: str, other: str) -> bool:
    """Whether some name is matched by both patterns."""
    ours, theirs = one.split("."), other.split(".")
    for a, b in zip(ours, theirs, strict=False):
        if ">" in (a, b):
            return True
        if a != b and "*" not in (a, b):
            return False
    return len(ours) == len(theirs)


class _Branch(Generic[Value]):
    """The patterns that begin with the same elements."""

    __slots__ = ("below", "here", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Branch[Value]] = {}
        self.here: list[tuple[str, Value]] = []
        self.rest: list[tuple[str, Value]] = []
        """Those that go on with ">", whatever is behind it."""


class PatternIndex(Generic[Value]):
    """Values under patterns, found by a name that matches.

    Asking costs as much as there are patterns that a name can lead to, however many others there are.
    """

    def __init__(self, items: Iterable[tuple[str, Value]] = ()) -> None:
        self._root = _Branch[Value]()
        for pattern, value in items:
            self._add(pattern, value)

    def _add(self, pattern: str, value: Value) -> None:
        branch = self._root
        for element in pattern.split("."):
            if element == ">":
                branch.rest.append((pattern, value))
                return
            branch = branch.below.setdefault(element, _Branch())
        branch.here.append((pattern, value))

    def matching(self, name: str) -> list[tuple[str, Value]]:
        """All that match, each with its pattern, in the order of the patterns' text."""
        branches, found = [self._root], list[tuple[str, Value]]()
        for element in name.split("."):
            found += [item for branch in branches for item in branch.rest]
            wanted = ("*",) if element == "*" else (element, "*")
            branches = [branch.below[one] for branch in branches for one in wanted if one in branch.below]
        found += [item for branch in branches for item in branch.here]
        return sorted(found, key=lambda item: item[0])


def _matches(pattern: list[str], names: list[str]) -> bool:
    for index, element in enumerate(pattern):
        if index >= len(names):
            return False
        if element == ">":
            return True
        if element not in ("*", names[index]):
            return False
    return len(pattern) == len(names)
