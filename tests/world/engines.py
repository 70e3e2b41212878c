"""The engine on a simulated disk: what its threads would do happens at moments that the seed chooses."""

from __future__ import annotations

from random import Random
from typing import Any

from sterna_core import Engine
from sterna_core._core import SimulatedDisk

from tests.support.beside_the_loop import beside_the_loop
from tests.world.loop import SimulatedLoop

#: What a job of the disk takes: mostly a fast one, now and then a slow one.
_JOB_S = ((0.0001, 0.002),) * 9 + ((0.01, 0.2),)


class SteppedEngine:
    """An engine whose jobs are steps of the loop. Everything else is the engine's."""

    def __init__(self, loop: SimulatedLoop, random: Random, disk: SimulatedDisk, secret: bytes, *opening: Any) -> None:
        self._loop = loop
        self._random = random
        self._engine: Any = Engine.open_simulated(disk, secret, *opening)
        self._fd = self._engine.fileno()
        self._due: set[str] = set()
        self.is_stopped = False
        self._look()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def delete(self, kind: str, name: str, with_messages: bool, client_id: str = "", reason: str = "") -> int:
        """The engine's; here, so that a defect can stand in for it."""
        deleted: int = self._engine.delete(kind, name, with_messages, client_id, reason)
        return deleted

    def poll(self) -> Any:
        polled = self._engine.poll()
        self._look()
        return polled

    def take_output(self, stream: int, size: int) -> Any:
        output = self._engine.take_output(stream, size)
        self._look()
        return output

    def _look(self) -> None:
        for worker in self._engine.jobs():
            if worker not in self._due:
                self._due.add(worker)
                self._loop.call_later(self._random.uniform(*self._random.choice(_JOB_S)), self._step, worker)

    def _step(self, worker: str) -> None:
        self._due.discard(worker)
        if self._engine is not None and not self.is_stopped and worker in self._engine.jobs():
            with beside_the_loop():
                self._engine.run_job(worker)
            self._loop.wake_reader(self._fd)
            self._look()

    def stop(self) -> None:
        # Its threads have ended when it has, and do nothing any more.
        self.is_stopped = True
        self._engine.stop()

    def kill(self) -> None:
        """Nothing of it is written any more."""
        self._engine.kill()
        self._engine = None
