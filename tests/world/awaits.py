"""What happened to which await of the SDK, of the broker's server and cluster, and of etcd's client.

What tests by hand do not reach are the awaits times what can go wrong at each. Three things are counted for each await:
how often a task was *cut* there (cancelled: by the application, by a time limit, by the server whose client has gone),
how often it was *killed* there with its process, and how often it was *moved under*: the home of some destination
changed while it waited. What goes wrong raises through all awaits of a call, so that each of them counts.
"""

from __future__ import annotations

import ast
import asyncio
import gc
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import AsyncGeneratorType, CodeType, FrameType
from typing import Any, Final

import sterna
import sterna_broker
import sterna_etcd

#: What is looked at, and what of it is not simulated: the command line, what measures, the threads of the blocking
#: face, the program around the broker, and who is let in.
_ROOMS: Final = (
    (Path(sterna.__file__).parent, ("cli", "_measuring", "blocking", "_proto", "__main__.py", "tls.py", "_secrets.py")),
    (Path(sterna_broker.__file__).parent, ("main.py", "access", "monitor")),
    (Path(sterna_etcd.__file__).parent, ("proto",)),
)


_OF_GENERATORS: Final = ("async_generator_asend", "async_generator_athrow")

#: First and last line, first and last column.
_Place = tuple[int | None, int | None, int | None, int | None]


@dataclass
class Counts:
    """How often each, by the name of the await."""

    cut: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)

    def by_kind(self) -> dict[str, Counter[str]]:
        """What happened, and how often to which."""
        return dict(vars(self))

    def add(self, other: Counts) -> None:
        """Those of another run, too."""
        self.cut.update(other.cut)
        self.killed.update(other.killed)
        self.moved.update(other.moved)


def frames(task: asyncio.Task[Any]) -> list[tuple[Path, int]]:
    """Where a task waits: files and lines, the outermost first."""
    return [(Path(frame.f_code.co_filename), frame.f_lineno) for frame in _frames(task)]


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    found = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        if isinstance(waiting, AsyncGeneratorType):
            frame, waiting = waiting.ag_frame, waiting.ag_await
        elif hasattr(waiting, "cr_frame"):
            frame, waiting = waiting.cr_frame, waiting.cr_await
        elif type(waiting).__name__ in _OF_GENERATORS:
            # What asks a generator for its next item says of whom by what it refers to, and in no other way.
            referents = gc.get_referents(waiting)
            frame, waiting = None, next((one for one in referents if isinstance(one, AsyncGeneratorType)), None)
        else:
            break
        if frame is not None:
            found.append(frame)
    return found


def note(counts: Counter[str], tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Counts the awaits in which these tasks wait."""
    for task in tasks:
        if not task.done():
            for frame in _frames(task):
                if (found := _await_of(frame.f_code, frame.f_lasti)) is not None:
                    counts[found] += 1


def never(counts: Counter[str]) -> list[str]:
    """The awaits to which it has not happened."""
    return [name for name in read() if name not in counts]


@cache
def read() -> tuple[str, ...]:
    """All awaits, each once. Reads the files, once: before a run, and not within a step of its loop."""
    found: list[str] = []
    for room, _ in _ROOMS:
        for file in sorted(room.rglob("*.py")):
            found += _awaits(str(file)).values()
    return tuple(dict.fromkeys(found))


@cache
def _await_of(code: CodeType, instruction: int) -> str | None:
    """By where in its file the instruction is at which a frame waits: several awaits may stand in one line."""
    awaits = _awaits(code.co_filename)
    if not awaits:
        return None
    return awaits.get(next(itertools.islice(code.co_positions(), instruction // 2, None)))


@cache
def _awaits(path: str) -> dict[_Place, str]:
    """Each with a name that outlives a change elsewhere in the file: the function, and what is awaited."""
    file = Path(path)
    room, left_out = next(((one, left_out) for one, left_out in _ROOMS if file.is_relative_to(one)), (file, ()))
    if room == file or file.relative_to(room).parts[0] in left_out:
        return {}
    found: dict[_Place, str] = {}
    source = file.read_text()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.AsyncFunctionDef):
            # One that stands within another one comes later, and has its own.
            for node in ast.walk(function):
                if isinstance(node, ast.Await):
                    what = " ".join((ast.get_source_segment(source, node.value) or "").split())[:60]
                    place = node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
                    found[place] = f"{file.relative_to(room.parent)} {function.name}: {what}"
    return found
