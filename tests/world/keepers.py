"""Who keeps brokers: tells them to stop, to start and to read their configuration again, and does not wait for that.

A start may be told to stop at any of its awaits, a stop told again, both killed or left without power; a reload may be
asked for twice, and overtaken by the end of the process. Seeds have a keeper or have not (`Scene.deeds`), so that the
others are the runs that they were.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.running import ANYTHING, manifest
from tests.world.brokers import Broker
from tests.world.faults import Faults
from tests.world.processes import over

_PAUSES_S: Final = (0.05, 0.5, 5.0)

#: A start takes some tens of milliseconds, a stop as long as its clients, at most two seconds and a bit.
_STARTS_S: Final = (0.002, 0.02, 0.1, 1.0)
_STOPS_S: Final = (0.002, 0.02, 0.2, 3.0)
_ENDS_S: Final = (0.002, 0.02)
_RELOADS_S: Final = (0.002, 0.01)

#: What nobody may wait for longer than, once it was told to make haste.
_HURRIED_S: Final = 60.0

#: Described by the folder of a broker by itself, and used by nobody.
_CHANGED: Final = "changed"


class Keeper:
    """See the module. `configuration` is the folder of a broker by itself, where there is one."""

    def __init__(self, random: Random, faults: Faults, brokers: list[Broker]) -> None:
        self.configuration: Path | None = None
        self._limit = 0
        self._random = random
        self._faults = faults
        self._brokers = brokers

    def describe(self, folder: Path, *others: str) -> None:
        """Makes the folder of a broker by itself."""
        self.configuration = folder
        self._others = others
        self._write()

    def _write(self) -> None:
        """As an administrator does who changes a file."""
        if self.configuration is not None:
            self._limit += 1
            changed = manifest("Queue", _CHANGED, f"maxMessages: {self._limit}")
            (self.configuration / "all.yaml").write_text("---\n".join((*ANYTHING, *self._others, changed)))

    async def run(self, count: int) -> None:
        """So many deeds."""
        for _ in range(count):
            await asyncio.sleep(self._some(_PAUSES_S))
            broker = self._random.choice(self._brokers)
            deed = self._random.choice((self._cut_start, self._cut_stop, self._reload))
            if self._faults.is_up(broker):
                self._faults.told.append(f"{asyncio.get_running_loop().time():.6f} {deed.__name__.strip('_')}")
                await deed(broker)

    def found(self, broker: Broker) -> list[str]:
        """What is wrong with what a broker by itself has of its folder, once nobody is at it any more."""
        if self.configuration is None or broker.node is None:
            return []
        described: Any = broker.node.live.objects.destination("queue", _CHANGED)
        rows = [row for row in broker.listed("queue") if row["name"] == _CHANGED]
        kept = [row["properties"]["maxMessages"] for row in rows]
        if described.spec.max_messages == self._limit and kept == [self._limit]:
            return []
        return [f"the folder says {self._limit}, the broker {described.spec.max_messages}, and its engine {kept}"]

    def _some(self, times_s: tuple[float, ...]) -> float:
        return self._random.choice(times_s) * self._random.random()

    def _kill(self, broker: Broker) -> None:
        broker.kill(power=self._random.random() < 0.4)

    async def _cut_start(self, broker: Broker) -> None:
        """It is down, and its next starts end in their middle."""
        self._faults.restarted = True
        with self._faults.held(broker):
            self._kill(broker)
            for _ in range(self._random.randrange(1, 4)):
                starting = broker.begin()
                await asyncio.sleep(self._some(_STARTS_S))
                if self._random.random() < 0.5:
                    await self._told(broker, starting)
                self._kill(broker)
            await broker.start()

    async def _told(self, broker: Broker, starting: asyncio.Task[None]) -> None:
        """It is told to stop while it starts: nothing of it may be left when it has."""
        assert broker.process is not None
        if not starting.done():
            starting.cancel()
            async with asyncio.timeout(_HURRIED_S):
                await over(broker.process, starting)
        if not starting.cancelled():
            starting.result()
            await broker.stop()
            return
        await asyncio.sleep(1)
        assert broker.left() == [], f"a start that was told to stop leaves {broker.left()}"
        assert not broker.listens, "a start that was told to stop leaves its port open"

    async def _cut_stop(self, broker: Broker) -> None:
        """It is told to stop, and is not waited for."""
        self._faults.restarted = True
        node, process = broker.node, broker.process
        assert node is not None
        assert process is not None
        with self._faults.held(broker):
            stopping = broker.at_work(node.stop())
            await asyncio.sleep(self._some(_STOPS_S))
            if self._random.random() < 0.5:
                node.hurry()
                if self._random.random() < 0.5:
                    # What is left of a stop then takes some milliseconds.
                    await asyncio.sleep(self._some(_ENDS_S))
                else:
                    async with asyncio.timeout(_HURRIED_S):
                        await over(process, stopping)
            if stopping.done():
                stopping.result()
            self._kill(broker)
            await asyncio.sleep(self._some((0.0, 0.1, 3.0)))
            await broker.start()

    async def _reload(self, broker: Broker) -> None:
        """It is told to read its configuration again, once or twice, and may end before it has."""
        node, process = broker.node, broker.process
        assert node is not None
        assert process is not None
        reloads = []
        for _ in range(self._random.choice((1, 1, 2))):
            self._write()
            reloads.append(broker.at_work(node.told_to_reload()))
            await asyncio.sleep(self._some(_RELOADS_S))
        if self._random.random() < 0.4 and self._faults.is_up(broker):
            self._faults.restarted = True
            with self._faults.held(broker):
                if self._random.random() < 0.5:
                    await broker.stop()
                self._kill(broker)
                await broker.start()
            return
        async with asyncio.timeout(_HURRIED_S):
            for one in reloads:
                await over(process, one)
        if broker.node is not node or process.is_dead:
            await self._tell_the_next(broker)
        elif self._faults.is_up(broker):
            assert not self.found(broker), self.found(broker)

    async def _tell_the_next(self, broker: Broker) -> None:
        """Another hand has ended the process that was told; its successor may have read the folder as it was before."""
        told = False
        while not told:
            if not self._faults.is_up(broker):
                await asyncio.sleep(0.1)
                continue
            node, process = broker.node, broker.process
            assert node is not None
            assert process is not None
            await over(process, broker.at_work(node.told_to_reload()))
            told = broker.node is node and not process.is_dead
