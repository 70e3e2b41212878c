"""A cluster of the world: an etcd, brokers that share it, and what an operator writes there."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from sterna_broker.cluster.member import Member
from sterna_broker.cluster.options import ClusterOptions
from sterna_etcd import Claim, EtcdError, EtcdSettings, Layout
from sterna_etcd import Etcd as Client
from sterna_etcd.records import BrokerRecord, BrokerStatus, ClaimRecord, ConfigRecord, DrainRecord, HomeRecord, Owner
from sterna_operator.kinds.cluster_scaling import Members
from sterna_operator.plans import PutDrain, RemoveBroker, RemoveDrain, Step

from tests.world.brokers import Broker
from tests.world.etcd_model import Etcd
from tests.world.loop import SimulatedLoop
from tests.world.network import Network

NAME = "c1"
LAYOUT = Layout(NAME)
OWNER = Owner(by="operator", namespace="shop", name="orders", uid="uid-1")


def document(kind: str, name: str, /, **spec: Any) -> dict[str, Any]:
    """A manifest as a document."""
    return {"apiVersion": "sterna.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _claim(kind: str, spec: dict[str, Any]) -> str:
    """What of its kind an object of this spec is; empty: what its name says."""
    named = str(spec.get("name", ""))
    client = spec.get("clientId", "") if kind == "DurableSubscription" else ""
    return f"{client}/{named}" if client and named else named


class Cluster:
    """See the module. Its client of etcd belongs to the process that made it."""

    def __init__(self, loop: SimulatedLoop, network: Network, seed: object, folder: Path, *, members: int = 1) -> None:
        self.brokers: dict[str, Broker] = {}
        self.etcd = Etcd(loop, network, Random(f"etcd {seed}"), members)
        self.etcd.start()
        self.client = Client(EtcdSettings.of_urls(self.etcd.urls))
        self._loop = loop
        self._network = network
        self._seed = seed
        self._folder = folder
        self._generation = 0
        self._homes: dict[str, str] = {}
        self._seen = 0
        self.etcd.on_written.append(self._written)

    def add(self, name: str, folder: str = "", owner: str | None = None, **options: Any) -> Broker:
        """One more broker, not started yet; `folder`: another data folder than the one of its name."""
        member = ClusterOptions(EtcdSettings.of_urls(self.etcd.urls), NAME, name, owner=owner)
        random = Random(f"broker {name}{folder} of {self._seed}")
        made = Broker(
            self._loop, self._network, random, name, self._folder / (folder or name), cluster=member, **options
        )
        self.brokers[folder or name] = made
        return made

    def cloned(self, name: str) -> Broker:
        """A second machine with a copy of a broker's data folder, as it is now; not started yet."""
        clone = self.add(name, f"{name}-clone")
        shutil.copytree(self._folder / name, self._folder / f"{name}-clone")
        clone.files.settled()
        clone.copy_disk_of(self.brokers[name])
        return clone

    def url(self, *names: str) -> str:
        """Where clients connect to."""
        return "sterna://" + "+".join(self.brokers[name].address for name in names or self.brokers)

    def member(self, name: str) -> Member:
        """A broker's part of the cluster, to look at."""
        node = self.brokers[name].node
        assert node is not None
        assert node.member is not None
        return node.member

    def _written(self) -> None:
        """A home that has changed has changed under all that wait."""
        first = LAYOUT.homes.encode()
        store = self.etcd.store
        for event in store.events(first, first[:-1] + bytes([first[-1] + 1]), self._seen + 1):
            broker = HomeRecord.decode("", event.kv.value).broker if event.kv.value else ""
            if self._homes.get(event.kv.key, broker) != broker:
                self._loop.moved()
            self._homes[event.kv.key] = broker
        self._seen = store.revision

    # --- What the operator does

    async def apply(self, kind: str, name: str, /, claim: str = "", **spec: Any) -> Claim:
        """Writes an object, as the operator does."""
        self._generation += 1
        found = Claim(kind, claim or _claim(kind, spec) or name)
        record = ConfigRecord(manifest=document(kind, name, **spec), generation=self._generation, owner=OWNER)
        await self.client.put(LAYOUT.config(found), record.encode())
        return found

    async def placed(self, queue: str, broker: str) -> None:
        """A queue that lives on this broker."""
        await self.apply("Queue", queue, broker=broker)
        await self.until_home("queue", queue, broker)

    async def claim(self, uid: str) -> None:
        """Claims the place in etcd for a MessagingCluster."""
        record = ClaimRecord(operator="sys/op", namespace="shop", name="orders", uid=uid)
        await self.client.put(LAYOUT.operator_claim, record.encode())

    async def allow_all(self) -> None:
        """Any queue and topic may be created, and every broker knows it."""
        for kind in ("Queue", "Topic"):
            await self.apply(kind, f"any-{kind.lower()}", name=">")
        members = [self.member(name) for name in self.brokers]
        await self.until(lambda: all(one.objects.allows(kind, "x") for one in members for kind in ("queue", "topic")))

    async def drain(self, broker: str, *, force: bool = False) -> None:
        """Has a broker emptied."""
        await self.client.put(LAYOUT.drain(broker), DrainRecord(force=force).encode())

    async def undrain(self, broker: str) -> None:
        """Takes that back."""
        await self.client.delete(LAYOUT.drain(broker))

    async def give(self, kind: str, name: str, broker: str) -> None:
        """Gives a name a home, whatever it holds where it was."""
        await self.client.put(LAYOUT.home(kind, name), HomeRecord(broker=broker).encode())

    def cut_off(self, broker: str) -> None:
        """The broker does not reach etcd any more, nor that the broker, until `Network.heal`."""
        lost = self.brokers[broker].process
        assert lost is not None
        for member in self.etcd.members:
            assert member.process is not None
            self._network.part(lost, member.process)

    async def give_up(self, broker: str, to: str) -> None:
        """Gives all that lives on a broker to another one without asking it: what is done when it is lost."""
        for pair in (await self.client.list_all(LAYOUT.homes)).values:
            record = HomeRecord.decode(pair.key, pair.value)
            if record.broker == broker:
                await self.client.put(pair.key, HomeRecord(broker=to, static=record.static).encode())

    async def members(self) -> Members:
        """What the operator knows of the brokers."""
        found = {
            prefix: {pair.key.removeprefix(prefix): pair for pair in (await self.client.list_all(prefix)).values}
            for prefix in (LAYOUT.brokers, LAYOUT.broker_statuses, LAYOUT.drains)
        }
        homes: Counter[str] = Counter()
        for pair in (await self.client.list_all(LAYOUT.homes)).values:
            homes[HomeRecord.decode(pair.key, pair.value).broker] += 1
        live, statuses, drains = found.values()
        return Members(
            {name: BrokerRecord.decode(pair.key, pair.value) for name, pair in live.items()},
            {name: BrokerStatus.decode(pair.key, pair.value) for name, pair in statuses.items()},
            {name: DrainRecord.decode(pair.key, pair.value) for name, pair in drains.items()},
            homes,
        )

    async def do(self, step: Step) -> None:
        """Carries out a step of the operator's."""
        match step:
            case PutDrain():
                await self.drain(step.broker, force=step.force)
            case RemoveDrain():
                await self.undrain(step.broker)
            case RemoveBroker():
                for key in (LAYOUT.broker_status(step.broker), LAYOUT.drain(step.broker)):
                    await self.client.delete(key)

    # --- What there is

    async def home(self, kind: str, name: str) -> str:
        """The broker that a destination lives on; empty: none."""
        found = (await self.client.get(LAYOUT.home(kind, name))).found
        return HomeRecord.decode(found.key, found.value).broker if found is not None else ""

    async def status(self, broker: str) -> BrokerStatus | None:
        """What a broker says of itself."""
        found = (await self.client.get(LAYOUT.broker_status(broker))).found
        return BrokerStatus.decode(found.key, found.value) if found is not None else None

    async def until(self, check: Callable[[], Any], *, timeout_s: float = 60.0) -> Any:
        """The first true answer of a coroutine function or function; AssertionError when there is none in time."""
        deadline_s = self._loop.time() + timeout_s
        while True:
            try:
                answer = check()
                if asyncio.iscoroutine(answer):
                    answer = await answer
            except EtcdError:
                answer = None
            if answer:
                return answer
            assert self._loop.time() < deadline_s, "it did not come true"
            await asyncio.sleep(0.05)

    async def until_live(self, *names: str) -> None:
        """Until all these brokers are registered, and each has heard of all."""
        wanted = sorted(names or self.brokers)
        await self.until(lambda: all(self.member(one).link.view.live == wanted for one in wanted))

    async def until_home(self, kind: str, name: str, broker: str) -> None:
        """Until a destination lives on a broker."""

        async def is_there() -> bool:
            return await self.home(kind, name) == broker

        await self.until(is_there)

    async def end(self) -> None:
        """Its client leaves; brokers are ended by whoever has them."""
        await self.client.close()
