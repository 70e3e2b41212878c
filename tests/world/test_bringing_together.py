"""What bridges tie together and lives on several brokers comes together by itself, and nothing is lost by it."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
import sterna
from sterna import Queue, Topic, errors
from sterna_etcd import Claim, HomeKey
from sterna_etcd.records import ObjectStatus

from tests.support.refusing_etcd import SilentEtcd
from tests.world.clusters import LAYOUT, Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_groups import instead
from tests.world.test_homes import held
from tests.world.test_torn_groups import until_open

_ENDS = {"source": "b0", "target": "b1"}


async def apart(stage: Stage, ends: dict[str, str], *, brokers: int = 2) -> Cluster:
    """Queues that live on these brokers, which no manifest names any more."""
    cluster = await stage.cluster(*(f"b{number}" for number in range(brokers)))
    await cluster.allow_all()
    for name, broker in ends.items():
        await cluster.placed(name, broker)
    for name in ends:
        await cluster.apply("Queue", name)
    await cluster.until(lambda: {name: _holder(cluster, name) for name in ends} == ends)
    await asyncio.sleep(2)
    return cluster


def _holder(cluster: Cluster, name: str) -> str:
    return next((broker for broker in cluster.brokers if name in held(cluster, broker)), "")


async def bridge(cluster: Cluster, name: str, source: str, *targets: str) -> Claim:
    """A bridge between queues."""
    return await cluster.apply(
        "Bridge", name, source={"queue": source}, targets=[{"queue": target} for target in targets]
    )


async def says(cluster: Cluster, claim: Claim, state: str) -> str | None:
    """What a broker says of an object that is in this state, if one does."""
    for pair in (await cluster.client.list_all(LAYOUT.object_statuses_of(claim))).values:
        status = ObjectStatus.decode(pair.key, pair.value)
        if status.state == state:
            return status.message or state
    return None


async def homes(cluster: Cluster, *names: str) -> list[str]:
    """Where queues live."""
    return [await cluster.home("queue", name) for name in names]


@staged
async def test_the_target_comes_to_its_source_and_the_bridge_holds(stage: Stage) -> None:
    cluster = await apart(stage, _ENDS)
    connection = await stage.connect(cluster.brokers["b1"])
    producer = await connection.producer("target")  # which keeps nothing there
    claim = await bridge(cluster, "over", "source", "target")
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=5)
    assert await homes(cluster, "source", "target") == ["b0", "b0"]
    await connection.send("source", "copied")
    await producer.send("by itself")
    assert await drained(connection, "target") == ["copied", "by itself"]
    await connection.close()


@staged
async def test_what_holds_a_message_or_is_consumed_stays_open_and_says_so_until_that_is_over(stage: Stage) -> None:
    cluster = await apart(stage, _ENDS)
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send("target", "before")
    claim = await bridge(cluster, "over", "source", "target")
    told = await cluster.until(lambda: says(cluster, claim, "refused"))
    assert "queue 'target' on b1; what of that holds no message" in told
    await cluster.until(lambda: _warned(cluster, "b1", "queue 'target' is to live on b0", "holds 1 message here"))
    await asyncio.sleep(20)
    await connection.send("target", "meanwhile", timeout=2)
    consumer = await connection.consumer("target")
    for body in ("before", "meanwhile"):
        message = await consumer.receive(5)
        assert message is not None
        assert message.body == body
        await message.acknowledge()
    await cluster.until(lambda: _warned(cluster, "b1", "queue 'target'", "is being consumed here"))
    await asyncio.sleep(20)
    assert await homes(cluster, "source", "target") == ["b0", "b1"]
    await consumer.close()
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=5)
    assert not await _warned(cluster, "b1", "target")
    await connection.close()


async def _warned(cluster: Cluster, broker: str, *texts: str) -> bool:
    status = await cluster.status(broker)
    return status is not None and any(all(text in warning for text in texts) for warning in status.warnings)


@staged
async def test_ends_whose_manifests_name_two_brokers_stay_and_one_that_names_its_home_is_come_to(stage: Stage) -> None:
    cluster = await apart(stage, _ENDS)
    for name, broker in _ENDS.items():
        await cluster.apply("Queue", name, broker=broker)
    claim = await bridge(cluster, "over", "source", "target")
    await cluster.until(lambda: says(cluster, claim, "refused"))
    await asyncio.sleep(20)
    assert await homes(cluster, "source", "target") == ["b0", "b1"]
    await cluster.apply("Queue", "source")
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=5)
    assert await homes(cluster, "source", "target") == ["b1", "b1"]


@staged
async def test_topics_of_a_durable_subscription_come_together(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    for name, broker in (("news.a", "b0"), ("news.b", "b1")):
        await cluster.apply("Topic", name, broker=broker)
        await cluster.until_home("topic", name, broker)
        await cluster.apply("Topic", name)
    await asyncio.sleep(2)
    claim = await cluster.apply("DurableSubscription", "all", "reader/all", topic="news.*", clientId="reader")
    await cluster.until(lambda: says(cluster, claim, "applied"), timeout_s=10)
    assert [await cluster.home("topic", name) for name in ("news.a", "news.b")] == ["b0", "b0"]


@pytest.mark.parametrize("seed", range(12))
def test_bridges_that_share_ends_converge_wherever_these_are_and_nothing_goes_to_and_fro(seed: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        random = Random(f"bridges {seed}")
        names = [f"q{number}" for number in range(7)]
        cluster = await apart(stage, {name: f"b{random.randrange(3)}" for name in names}, brokers=3)
        claims = []
        for number in range(6):
            source, *targets = random.sample(names, random.randint(2, 3))
            claims.append(await bridge(cluster, f"bridge-{random.randrange(99)}-{number}", source, *targets))
            await asyncio.sleep(random.random() * 0.05)
        for claim in claims:
            await cluster.until(lambda: says(cluster, claim, "applied"))  # noqa: B023 - awaited here
        before = await homes(cluster, *names)
        revisions = [(await cluster.client.get(LAYOUT.home("queue", name))).found for name in names]
        await asyncio.sleep(30)
        assert await homes(cluster, *names) == before
        assert [(await cluster.client.get(LAYOUT.home("queue", name))).found for name in names] == revisions
        await until_open(cluster, *cluster.brokers)

    shown()


class _Senders:
    """Send to queues one message after the other; each that was confirmed is to be had, and each copy once."""

    def __init__(self, stage: Stage, cluster: Cluster, names: list[str]) -> None:
        self.confirmed: dict[str, list[str]] = {name: [] for name in names}
        self._stage = stage
        self._cluster = cluster
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for number, name in enumerate(self.confirmed):
            at = list(self._cluster.brokers.values())[number % len(self._cluster.brokers)]
            connection = await self._stage.connect(at)
            self._tasks.append(asyncio.create_task(self._send(connection, name)))

    async def _send(self, connection: sterna.Connection, name: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            try:
                await connection.send(name, f"{name} {number}", timeout=30)
            except errors.SternaError:
                continue
            self.confirmed[name].append(f"{name} {number}")
            await asyncio.sleep(self._stage.random.random() * 0.3)
        await connection.close()

    async def end(self) -> None:
        self._is_over = True
        await asyncio.gather(*self._tasks)


async def _emptied(connection: sterna.Connection, name: str) -> list[Any]:
    found = []
    async with asyncio.timeout(60):
        consumer = await connection.consumer(name)
        while (message := await consumer.receive(3)) is not None:
            found.append(message.body)
            await message.acknowledge()
        await consumer.close()
    return found
