"""The engine over steps of the world's loop: what its threads do happens at moments that the seed chooses."""

from __future__ import annotations

import itertools
import select
from typing import Any

from sterna_core import Engine

from tests.world.loop import SimulatedLoop

_numbers = itertools.count(1_000_000)

#: How long the engine's threads may take in truth.
_REAL_S = 20.0


class SteppedEngine:
    """An engine whose results come when the loop says so. Everything else is the engine's."""

    def __init__(self, loop: SimulatedLoop, folder: str, settings: str, wall_ms: int, monotonic_ms: int) -> None:
        self._loop = loop
        self._engine: Any = Engine.open(folder, settings, wall_ms, monotonic_ms)
        self._number = next(_numbers)
        self._is_due = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def fileno(self) -> int:
        return self._number

    def poll(self) -> Any:
        polled = self._engine.poll()
        self._look()
        return polled

    def take_output(self, stream: int, size: int) -> Any:
        output = self._engine.take_output(stream, size)
        self._look()
        return output

    def _look(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_later(self._loop.random.uniform(0.0002, 0.004), self._step)

    def _step(self) -> None:
        self._is_due = False
        if self._engine is None:
            return
        end, durable, failed = self._engine.log_progress()
        waits = end > durable and failed is None
        readable, _, _ = select.select([self._engine.fileno()], [], [], 0.05 if waits else 0.002)
        if readable:
            self._loop.wake_reader(self._number)
        if waits:
            self._look()

    def drop(self) -> None:
        """The process is dead: nothing of it is written any more."""
        self._engine = None
