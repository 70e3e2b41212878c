"""Which awaits of the SDK the world has cut: a call that is cancelled there is what tests by hand do not reach.

A cut raises through all awaits of the call, from the innermost one of the SDK on: each of them has been cut then.
"""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import sterna

_SDK = Path(sterna.__file__).parent
#: Not simulated: the command line, what measures, and the threads of the blocking face.
_LEFT_OUT = ("cli", "_measuring", "blocking", "_proto")


def frames(task: asyncio.Task[Any]) -> list[tuple[Path, int]]:
    """Where a task waits: files and lines, the outermost first."""
    found = []
    coroutine: Any = task.get_coro()
    while coroutine is not None and hasattr(coroutine, "cr_frame"):
        if coroutine.cr_frame is not None:
            found.append((Path(coroutine.cr_frame.f_code.co_filename), coroutine.cr_frame.f_lineno))
        coroutine = coroutine.cr_await
    return found


def note(cuts: Counter[str], task: asyncio.Task[Any]) -> None:
    """Counts the awaits of the SDK in which a task waits, which is about to be cancelled."""
    for file, line in frames(task):
        if file.is_relative_to(_SDK) and (found := _await_of(file, line)) is not None:
            cuts[found] += 1


def never(cuts: Counter[str]) -> list[str]:
    """The awaits of the SDK that were not cut."""
    return [name for name in read() if name not in cuts]


@cache
def read() -> tuple[str, ...]:
    """All awaits of the SDK. Reads its files, once: before a run, and not within a step of its loop."""
    files = [one for one in sorted(_SDK.rglob("*.py")) if one.relative_to(_SDK).parts[0] not in _LEFT_OUT]
    return tuple(name for file in files for name, _, _ in _awaits(file))


def _await_of(file: Path, line: int) -> str | None:
    inside = [(last - first, name) for name, first, last in _awaits(file) if first <= line <= last]
    return min(inside)[1] if inside else None


@cache
def _awaits(file: Path) -> tuple[tuple[str, int, int], ...]:
    """Each with a name that outlives a change elsewhere in the file: the function, and what is awaited."""
    found = []
    source = file.read_text()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Await):
                    what = " ".join((ast.get_source_segment(source, node.value) or "").split())[:60]
                    name = f"{file.relative_to(_SDK)} {function.name}: {what}"
                    found.append((name, node.lineno, node.end_lineno or node.lineno))
    return tuple(dict.fromkeys(found))
