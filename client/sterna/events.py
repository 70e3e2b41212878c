"""What a connection tells about itself, beside the calls that return and raise."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sterna.destinations import Destination
from sterna.errors import SternaError

logger = logging.getLogger("sterna")


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The stream to the broker broke; the connection tries to restore itself. Sends wait meanwhile."""

    address: str
    error: SternaError


@dataclass(frozen=True, slots=True)
class Restored:
    """Sessions, producers and consumers are back, and what was unconfirmed was sent again.

    `epoch` grew when the broker was started again; `attempts` counts dials, `duration_s` the whole interruption.
    `in_doubt` counts messages of which nobody can tell whether they had arrived, since the broker has forgotten their
    producers, or its store is another one or an older copy: their sends have failed with UnknownProducerError.
    """

    address: str
    epoch: int
    attempts: int
    duration_s: float
    in_doubt: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over; `error` says why it was not the application's doing, and is None when it was."""

    error: SternaError | None


@dataclass(frozen=True, slots=True)
class TemporaryReplaced:
    """A temporary destination went with the broken connection, and a new one took its place."""

    old: Destination
    new: Destination


Event = TypeVar("Event")


class Hook(Generic[Event]):
    """Call it with a function or coroutine function to have that called with each event; usable as a decorator."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._callbacks: list[Callable[[Event], Any]] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __call__(self, callback: Callable[[Event], Any]) -> Callable[[Event], Any]:
        """Registers `callback`, and returns it."""
        self._callbacks.append(callback)
        return callback

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def emit(self, event: Event) -> None:
        """Calls everybody; whoever raises is logged and disturbs nobody else."""
        for callback in self._callbacks:
            try:
                outcome = callback(event)
            except Exception:
                logger.exception("a callback for %s failed", self._name)
                continue
            if inspect.iscoroutine(outcome):
                task = asyncio.ensure_future(self._guard(outcome))
                self._tasks[task] = None
                task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _guard(self, outcome: Any) -> None:
        try:
            await outcome
        except Exception:
            logger.exception("a callback for %s failed", self._name)
