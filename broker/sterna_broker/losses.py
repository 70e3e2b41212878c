"""Says aloud which messages are gone that nobody took, at a bounded rate.

The engine counts them by place and reason; every few seconds what has been added is logged, a line for each of the
places that lost most and one for the rest. A queue that destroys a million messages makes as many lines as one that
destroys three.
"""

import asyncio
import json
from collections.abc import Callable

import structlog

from sterna_broker.pump import Pump

_log = structlog.get_logger(part="losses")

#: Between two looks.
_PERIOD_S = 10.0
#: So many places are named each time.
_NAMED_MAX = 20


class Losses:
    """`start`, then `stop`, each once; `tell` may be called at any time between."""

    def __init__(self, pump: Pump, also: Callable[[], None] = lambda: None) -> None:
        """`also` is called at each look: for whoever has something to say as often."""
        self._pump = pump
        self._also = also
        self._told: dict[tuple[str, str], int] = {}
        self._told_elsewhere = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks every few seconds from now on."""
        self._task = asyncio.get_running_loop().create_task(self._work(), name="losses")

    def stop(self) -> None:
        """Looks no more."""
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(_PERIOD_S)
            self.tell()
            self._also()

    def tell(self) -> None:
        """Logs what was destroyed since the last time."""
        found = json.loads(self._pump.tick().destroyed())
        totals: dict[tuple[str, str], int] = {}
        for place in found["places"]:
            key = (place["name"], place["reason"])
            totals[key] = totals.get(key, 0) + place["messages"]
        news = {key: total - self._told.get(key, 0) for key, total in totals.items()}
        most = sorted((item for item in news.items() if item[1]), key=lambda item: (-item[1], item[0]))
        for (name, reason), messages in most[:_NAMED_MAX]:
            _log.warning("messages_destroyed", name=name, reason=reason.lower(), messages=messages)
        rest = sum(messages for _, messages in most[_NAMED_MAX:]) + found["elsewhere"] - self._told_elsewhere
        if rest:
            _log.warning("more_messages_destroyed", messages=rest)
        self._told, self._told_elsewhere = totals, found["elsewhere"]
