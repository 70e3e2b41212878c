"""Tests that play in the world: a few brokers and clients, and what happens to them, written down step by step.

    @staged
    async def test_something(stage: Stage) -> None:
        broker = await stage.broker()
        connection = await stage.connect(broker)

Everything runs in simulated time, so that a minute of waiting costs nothing, and from one seed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import grpc.aio  # noqa: F401 - the SDK imports it in a thread, if nobody has before
import sterna

from tests.world import awaits
from tests.world.brokers import Broker
from tests.world.clusters import Cluster
from tests.world.loop import SimulatedLoop
from tests.world.network import Network
from tests.world.processes import Process
from tests.world.surroundings import installed

T = TypeVar("T")


class Stage:
    """What a test has to play with. It runs in a process of its own, `here`."""

    def __init__(self, seed: int, folder: Path) -> None:
        awaits.read()  # not within a step of the loop
        self.random = Random(seed)
        self.loop = SimulatedLoop(Random(f"loop {seed}"))
        self.network = Network(self.loop, Random(f"network {seed}"))
        self.here = Process("test", Random(f"test {seed}"))
        self.brokers: list[Broker] = []
        self._others: list[Process] = []
        self._cluster: Cluster | None = None
        self._folder = folder

    async def broker(self, name: str = "one", **options: Any) -> Broker:
        """A broker that serves; `options` are those of BrokerOptions."""
        made = Broker(self.loop, self.network, Random(f"broker {name}"), name, self._folder / name, **options)
        self.brokers.append(made)
        await made.start()
        return made

    def manifests(self, *documents: str) -> Path:
        """A folder with these, for a broker's `config`."""
        folder = self._folder / f"config.{len(self.brokers)}"
        folder.mkdir()
        (folder / "all.yaml").write_text("---\n".join(documents))
        return folder

    async def cluster(self, *names: str, members: int = 1, **options: Any) -> Cluster:
        """An etcd with brokers of these names that serve and know each other; `options` are those of BrokerOptions."""
        made = self._cluster = Cluster(self.loop, self.network, 1, self._folder, members=members)
        for name in names:
            await self.start(made.add(name, **options))
        await made.until_live()
        return made

    async def two(self, queue: str = "", at: str = "b1") -> Cluster:
        """Two brokers, b0 and b1, where any queue and topic may be created; with a queue that lives on one of them."""
        made = await self.cluster("b0", "b1")
        await made.allow_all()
        if queue:
            await made.placed(queue, at)
        return made

    async def start(self, broker: Broker) -> Broker:
        """Starts a broker of a cluster."""
        if broker not in self.brokers:
            self.brokers.append(broker)
        await broker.start()
        return broker

    async def connect(self, broker: Broker, **options: Any) -> sterna.Connection:
        """A connection of this process."""
        return await sterna.connect(f"sterna://{broker.address}", **options)

    def process(self, name: str, work: Coroutine[Any, Any, T]) -> tuple[Process, asyncio.Task[T]]:
        """Another process, that does something; it can be killed."""
        process = Process(name, Random(f"process {name}"))
        self._others.append(process)
        return process, self.loop.spawn(process, work, name)

    async def until(self, check: Callable[[], Any], *, timeout_s: float = 60.0) -> Any:
        """The first true answer; AssertionError when there is none in this time, which costs nothing."""
        deadline_s = self.loop.time() + timeout_s
        while not (answer := check()):
            assert self.loop.time() < deadline_s, "it did not come true"
            await asyncio.sleep(0.01)
        return answer

    def faults(self) -> list[str]:
        """What went wrong in any process where nobody caught it."""
        return [fault for process in self._all() for fault in process.faults]

    async def leave(self) -> None:
        """Everybody ends as one should."""
        for broker in self.brokers:
            await broker.stop()
        if self._cluster is not None:
            await self._cluster.end()

    def end(self) -> None:
        """Everybody is gone, without a word."""
        if self._cluster is not None:
            self._cluster.etcd.kill()
        for broker in self.brokers:
            broker.end()
        for process in self._all():
            process.kill()
        self.loop.close()

    def _all(self) -> list[Process]:
        brokers = [one.process for one in self.brokers if one.process is not None]
        return [self.here, *self._others, *brokers]

    def break_links(self) -> None:
        """All connections break, and both sides notice."""
        for link in self.network.links:
            link.break_()

    async def broken(self, connection: sterna.Connection) -> None:
        """Breaks all connections; returns when this one is restored."""
        restored = asyncio.Event()
        connection.on_restored(lambda _: restored.set())
        self.break_links()
        await restored.wait()


def staged(test: Callable[[Stage], Awaitable[None]]) -> Callable[[], None]:
    """Makes a test of it."""

    @functools.wraps(test)
    def play() -> None:
        with TemporaryDirectory(prefix="stage") as folder:
            stage = Stage(1, Path(folder))

            async def acts() -> None:
                await test(stage)
                await stage.leave()

            try:
                with installed(stage.loop, stage.network):
                    task = stage.loop.spawn(stage.here, acts())
                    stage.here.context.copy().run(stage.loop.run_until_complete, task)
            finally:
                stage.end()
            assert stage.faults() == []

    # pytest would take the arguments of what is wrapped for fixtures.
    del play.__wrapped__
    return play
