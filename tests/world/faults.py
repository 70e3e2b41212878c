"""What goes wrong: connections that break, stall or half vanish, processes that die, clocks that step."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any, Final

from sterna_broker.cluster.naming import NameTakenError
from sterna_etcd import EtcdError
from sterna_operator.kinds.cluster_scaling import decide

from tests.world.brokers import Broker
from tests.world.clusters import Cluster
from tests.world.loop import SimulatedLoop
from tests.world.network import Network
from tests.world.processes import Process

_HAND: contextvars.ContextVar[Random] = contextvars.ContextVar("hand")


class Faults:
    """Does so many things to the world, at moments that the seed chooses. `told` says what was done.

    Several hands may be at it at the same time, each with randomness of its own. What an operator does, one does at a
    time; and a broker that one hand has down is not touched by another.
    """

    def __init__(
        self, loop: SimulatedLoop, network: Network, random: Random, brokers: list[Broker], clients: list[Process]
    ) -> None:
        self.told: list[str] = []
        self.restarted = False
        self.given_up_s: float | None = None
        """When a home was first given away by force."""

        self.copied = False
        """Whether two brokers of one name have run side by side."""

        self.placed: list[str] = []
        """The topics that an operator has given a broker."""

        self.clock_steps: list[tuple[float, float]] = []

        self.cluster: Cluster | None = None
        self._loop = loop
        self._network = network
        self._first = random
        self._operator = asyncio.Lock()
        self._down: dict[Any, None] = {}
        self._brokers = brokers
        self._clients = clients

    @property
    def _random(self) -> Random:
        return _HAND.get()

    async def run(self, count: int, kinds: tuple[str, ...], random: Random | None = None) -> None:
        """Until all are done, by a hand of its own; `random`: that of another than the first, which takes its time."""
        _HAND.set(random or self._first)
        pauses_s = (0.005, 0.05, 0.5) if random is None else (0.05, 0.5, 5.0)
        if self.cluster is not None:
            kinds = (*kinds, *CLUSTER_KINDS)
        for _ in range(count):
            await asyncio.sleep(self._random.choice(pauses_s) * self._random.random())
            kind = self._random.choice(kinds)
            async with self._operator if kind in _OPERATORS else contextlib.nullcontext():
                self.told.append(f"{self._loop.time():.6f} {kind}")
                await getattr(self, f"_{kind}")()

    @contextlib.contextmanager
    def held(self, *what: Any) -> Iterator[None]:
        """No other hand touches these meanwhile."""
        self._down |= dict.fromkeys(what)
        try:
            yield
        finally:
            for one in what:
                self._down.pop(one, None)

    def is_up(self, broker: Broker) -> bool:
        """Whether it serves, and no hand is at it."""
        return broker.is_running and broker not in self._down

    async def _break_link(self) -> None:
        if links := self._network.links:
            late = (0.0, 0.0, 0.001, 0.05, None)
            self._random.choice(links).break_(
                client_after_s=self._random.choice(late), server_after_s=self._random.choice(late)
            )

    async def _stall_link(self) -> None:
        if links := self._network.links:
            self._random.choice(links).stall(self._random.choice((0.05, 1.0, 15.0)) * self._random.random())

    async def _kill_client(self) -> None:
        living = [one for one in self._clients if not one.is_dead]
        if len(living) > 1:
            self._loop.kill(self._random.choice(living))

    async def _kill_broker(self) -> None:
        await self._crash(power=False)

    async def _cut_power(self) -> None:
        await self._crash(power=True)

    async def _crash(self, *, power: bool) -> None:
        broker = self._random.choice(self._brokers)
        if self.is_up(broker):
            self.restarted = True
            with self.held(broker):
                broker.kill(power=power)
                await asyncio.sleep(self._random.choice((0.0, 0.1, 3.0)) * self._random.random())
                await broker.start()

    async def _stop_broker(self) -> None:
        broker = self._random.choice(self._brokers)
        if self.is_up(broker):
            self.restarted = True
            with self.held(broker):
                await broker.stop()
                await asyncio.sleep(self._random.choice((0.0, 0.1, 3.0)) * self._random.random())
                await broker.start()

    async def _part(self) -> None:
        living = [one for one in self._clients if not one.is_dead]
        broker = self._random.choice(self._brokers)
        if living and broker.process is not None:
            self._network.part(self._random.choice(living), broker.process)
            await asyncio.sleep(self._random.choice((0.1, 2.0, 60.0)) * self._random.random())
            self._network.heal()

    # --- Of a cluster alone

    async def _etcd_away(self) -> None:
        assert self.cluster is not None
        if self.cluster.etcd in self._down:
            return
        with self.held(self.cluster.etcd):
            self.cluster.etcd.kill()
            await asyncio.sleep(self._random.choice((0.1, 3.0, 30.0)) * self._random.random())
            self.cluster.etcd.start()

    async def _no_leader(self) -> None:
        assert self.cluster is not None
        if self.cluster.etcd in self._down:
            return
        self.cluster.etcd.has_leader = False
        self.cluster.etcd.written()
        await asyncio.sleep(self._random.choice((0.1, 3.0, 30.0)) * self._random.random())
        self.cluster.etcd.has_leader = True

    async def _lose_answers(self) -> None:
        assert self.cluster is not None
        self.cluster.etcd.lose_answers += self._random.randrange(1, 4)

    async def _compact(self) -> None:
        assert self.cluster is not None
        with contextlib.suppress(EtcdError):
            got = await self.cluster.client.get("/")
            await self.cluster.client.compact(got.revision)

    async def _drain(self) -> None:
        """A broker is emptied for a while; nobody insists."""
        assert self.cluster is not None
        name = self._random.choice(self._brokers).name
        with contextlib.suppress(EtcdError):
            await self.cluster.drain(name)
        await asyncio.sleep(self._random.choice((0.5, 5.0, 20.0)) * self._random.random())
        await self._surely(lambda: self.cluster.undrain(name))  # type: ignore[union-attr]

    async def _give_up(self) -> None:
        """All that lives on a broker is given to another by force."""
        assert self.cluster is not None
        one, other = self._random.sample([broker.name for broker in self._brokers], 2)
        self.given_up_s = self.given_up_s or self._loop.time()
        with contextlib.suppress(EtcdError):
            await self.cluster.give_up(one, other)

    async def _scale(self) -> None:
        """One broker fewer, for a while; when it says that it is empty its machine goes, and a new one comes later."""
        assert self.cluster is not None
        names = dict(enumerate(broker.name for broker in self._brokers))
        standing = len(names)
        last = self._brokers[-1]
        until_s = self._loop.time() + self._random.choice((1.0, 10.0, 40.0))
        while standing == len(names) and self._loop.time() < until_s:
            with contextlib.suppress(EtcdError):
                standing = await self._scaled(standing - 1, standing, names)
            await asyncio.sleep(0.5)
        if standing < len(names):
            self.restarted = True
            await self.cluster.until(lambda: last not in self._down)
            with self.held(last):
                await last.stop()
                last.replace_disk()
                await asyncio.sleep(self._random.choice((0.0, 3.0)) * self._random.random())
                await last.start()
        await self._surely(lambda: self._scaled(len(names), len(names), names))

    async def _scaled(self, wanted: int, standing: int, names: dict[int, str]) -> int:
        """As the operator does; how many there are to be now."""
        assert self.cluster is not None
        members = await self.cluster.members()
        pods = frozenset(broker.name for broker in self._brokers if broker.process is not None)
        decided = decide(wanted, standing, names, members, pods, force=False)
        for step in decided.steps:
            await self.cluster.do(step)
        return decided.replicas

    async def _place(self) -> None:
        """Topics get a broker, that may be about to be emptied, and durable subscriptions that everybody shall find."""
        assert self.cluster is not None
        broker = self._random.choice(self._brokers).name
        drains = self._random.random() < 0.7
        with contextlib.suppress(EtcdError):
            if drains:
                await self.cluster.drain(broker)
            for _ in range(self._random.randrange(4, 12)):
                name = f"placed.{len(self.placed)}"
                durable = name.replace(".", "-")
                await self.cluster.apply("Topic", name, broker=broker)
                await self.cluster.apply("DurableSubscription", durable, topic=name, clientId="placed", name=durable)
                self.placed.append(name)
                await asyncio.sleep(self._random.random() * 0.03)
                if self._random.random() < 0.2:
                    await self.cluster.undrain(broker)
        await self._surely(lambda: self.cluster.undrain(broker))  # type: ignore[union-attr]

    async def _clone(self) -> None:
        """A second machine with a copy of a broker's folder: one of both stops by itself."""
        assert self.cluster is not None
        number = self._random.randrange(len(self._brokers))
        first = self._brokers[number]
        if not self.is_up(first) or self.copied:
            return
        self.copied = self.restarted = True
        clone = self.cluster.cloned(first.name)
        with self.held(first, clone):
            await self._rival(number, first, clone)

    async def _rival(self, number: int, first: Broker, clone: Broker) -> None:
        assert self.cluster is not None
        self._brokers.append(clone)  # both are looked at
        with contextlib.suppress(NameTakenError):
            await clone.start()
        with contextlib.suppress(AssertionError):  # then they serve side by side, which is looked for
            await self.cluster.until(lambda: not (first.is_running and clone.is_running))
        left = next((one for one in (first, clone) if one.is_running), clone)
        beaten = clone if left is first else first
        await asyncio.sleep(5)  # it ends by itself
        beaten.end()
        self._brokers.remove(beaten)
        if left is clone:
            self._brokers.remove(clone)
            self._brokers.insert(number, clone)

    async def _surely(self, write: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await write()
            except EtcdError:
                await asyncio.sleep(1)
            else:
                return

    async def _step_clock(self) -> None:
        broker = self._random.choice(self._brokers)
        if broker.process is not None:
            step_ms = self._random.choice((-3_600_000, -60_000, -500, 500, 3_600_000))
            broker.process.clock_ms += step_ms
            if step_ms > 0:
                self.clock_steps.append((self._loop.time(), step_ms / 1000))


#: What an operator does, who does one thing at a time.
_OPERATORS: Final = ("drain", "give_up", "scale", "clone", "place")

CLUSTER_KINDS: Final = (
    "etcd_away",
    "no_leader",
    "lose_answers",
    "compact",
    "drain",
    "drain",
    "give_up",
    "scale",
    "clone",
    "place",
)

KINDS: Final = (
    "break_link",
    "break_link",
    "stall_link",
    "kill_client",
    "kill_broker",
    "cut_power",
    "stop_broker",
    "part",
    "step_clock",
)
