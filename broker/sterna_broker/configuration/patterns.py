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


class PatternIndex(Generic[Value]):
    """Values under patterns, found by a name that matches.

    Asking costs as much as there are patterns with the same first element.
    """

    def __init__(self, items: Iterable[tuple[str, Value]] = ()) -> None:
        self._by_first: dict[str, list[tuple[list[str], str, Value]]] = {}
        for pattern, value in items:
            elements = pattern.split(".")
            first = "" if elements[0] in ("*", ">") else elements[0]
            self._by_first.setdefault(first, []).append((elements, pattern, value))

    def matching(self, name: str) -> list[tuple[str, Value]]:
        """All that match, each with its pattern, in the order of the patterns' text."""
        names = name.split(".")
        candidates = [*self._by_first.get("", ()), *self._by_first.get(names[0], ())]
        found = [(pattern, value) for elements, pattern, value in candidates if _matches(elements, names)]
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
