"""The processes of the world: whose step it is.

Each task, timer and callback of the loop carries the process that it belongs to in its context. One that was killed
takes no further step, and nothing of it is ever cleaned up, as after `kill -9`: its tasks are kept for ever,
since a coroutine that is collected would run its `finally` blocks.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

CURRENT: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


@dataclass(eq=False)
class Process:
    """One of them. `clock_ms` is how far its wall clock is off."""

    name: str
    random: Random
    clock_ms: int = 0
    is_dead: bool = False
    tasks: dict[asyncio.Task[Any], None] = field(default_factory=dict)
    on_death: list[Callable[[], None]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """What the loop was told went wrong in it: exceptions that nobody fetched."""

    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def __post_init__(self) -> None:
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return self.name

    def kill(self) -> None:
        """From now on nothing of it runs, and what it listened on and was connected to is gone."""
        if self.is_dead:
            return
        self.is_dead = True
        for task in self.tasks:
            # It is not a defect that it is never finished.
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        bury(list(self.tasks))
        for gone in self.on_death:
            gone()


async def over(process: Process, task: asyncio.Task[Any]) -> None:
    """Returns when a task of a process has ended, or the process is dead."""
    if process.is_dead:
        return
    ended = asyncio.Event()
    task.add_done_callback(lambda _: ended.set())
    process.on_death.append(ended.set)
    await ended.wait()


def bury(what: Any) -> None:
    """Keeps something for ever, also when the interpreter ends."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(what))


def current() -> Process:
    """Whose step it is."""
    return CURRENT.get()
