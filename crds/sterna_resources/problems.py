"""What can be wrong with manifests, said with file, line, column and field."""

from collections.abc import Iterable
from dataclasses import dataclass

# How many problems one error spells out; a file that is no manifest at all would otherwise fill the screen.
_SHOWN_MAX = 50


@dataclass(frozen=True)
class Place:
    """Where in a source something stands; line and column are counted from 1."""

    source: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `field` is a path such as `spec.targets[0].selector`; empty for the whole document."""

    place: Place
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.field}: {self.message}" if self.field else f"{self.place}: {self.message}"


class ManifestError(ValueError):
    """Manifests that cannot be used; `problems` has all that is wrong with all of them."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in self.problems[:_SHOWN_MAX]]
        if len(self.problems) > _SHOWN_MAX:
            lines.append(f"and {len(self.problems) - _SHOWN_MAX} more")
        super().__init__("\n".join(lines))
