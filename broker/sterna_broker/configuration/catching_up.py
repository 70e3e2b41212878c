"""Has the engine take what its log had no room for when it was given it.

Mostly room is being prepared at that moment, at the start of a broker too: what the configuration describes would be
missing until the next change, and what is sent to the source of a bridge that leads there would be refused till then.
"""

import asyncio
from collections.abc import Callable

import structlog
from sterna_core import EngineError

from sterna_broker.configuration.live import LiveConfiguration

_log = structlog.get_logger(part="configuration")

#: Between two tries: at first, and at most, while a disk is full.
_PAUSE_S, _PAUSE_MAX_S = 0.1, 5.0


class CatchingUp:
    """`start`, then `stop`, each once."""

    def __init__(self, live: LiveConfiguration, touch: Callable[[], None]) -> None:
        """`touch` is called when the engine was given something."""
        self._live = live
        self._touch = touch
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Gives again, from now on, whenever something was refused for want of room."""
        self._live.on_lack = self._begin
        if self._live.lacks_room:
            self._begin()

    def stop(self) -> None:
        """Gives no more."""
        self._live.on_lack = lambda: None
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name="catching up")

    async def _work(self) -> None:
        pause_s = _PAUSE_S
        while self._live.lacks_room:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            try:
                await self._live.restore()
            except EngineError as error:
                # It stops, or is failing: whoever drives it says so.
                _log.warning("configuration_not_given_again", error=str(error))
            self._touch()
