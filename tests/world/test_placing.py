"""Where a name comes to live that a client opens while the cluster has just heard of its configuration."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import Destination, Queue, Topic

from tests.world.clusters import LAYOUT, Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained

_COUNT = 40


async def _until_known(cluster: Cluster, kind: str, name: str) -> None:
    """Until the brokers have heard of an object: what is opened at one that has not lives anywhere."""
    members = [cluster.member(one) for one in cluster.brokers]
    async with asyncio.timeout(10):
        for member in members:
            while not member.objects.named(kind, name):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.0005)


async def _opened_soon(stage: Stage, cluster: Cluster, connection: sterna.Connection, target: Destination) -> None:
    """Opens it at some moment around that at which its home is settled."""
    await asyncio.sleep(stage.random.random() * 0.01)
    producer = await connection.producer(target)
    await producer.close()


@staged
async def test_the_ends_of_a_bridge_come_together_whoever_opens_one_of_them_first(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    connections = [await stage.connect(cluster.brokers[name]) for name in ("b1", "b2")]
    for number in range(_COUNT):
        source, target, other = f"from.{number}", f"to.{number}", f"also.{number}"
        ends = [{"queue": target}, {"topic": other}]
        await cluster.apply("Bridge", f"over-{number}", source={"queue": source}, targets=ends)
        await _until_known(cluster, "Bridge", f"over-{number}")
        opened = [Queue(source), Queue(target), Topic(other)][number % 3 :][:2]
        await asyncio.gather(*(_opened_soon(stage, cluster, *pair) for pair in zip(connections, opened, strict=False)))
    await asyncio.sleep(5)
    for number in range(_COUNT):
        named = [("queue", f"from.{number}"), ("queue", f"to.{number}"), ("topic", f"also.{number}")]
        homes = [await cluster.home(*end) for end in named]
        assert len(set(homes)) == 1, (number, homes)
        await connections[0].send(f"from.{number}", "x")
        assert await drained(connections[0], f"to.{number}") == ["x"]
    for connection in connections:
        await connection.close()


@staged
async def test_what_its_manifest_gives_a_broker_lives_there_whoever_opens_it_first(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    connection = await stage.connect(cluster.brokers["b1"])
    for number in range(_COUNT):
        await cluster.apply("Queue", f"q{number}", broker="b2")
        await _until_known(cluster, "Queue", f"q{number}")
        await connection.send(f"q{number}", "x")
        assert await cluster.home("queue", f"q{number}") == "b2"
    await connection.close()


@staged
async def test_many_ends_come_together_by_several_transactions(stage: Stage) -> None:
    """Etcd takes so many operations at a time."""
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    connection = await stage.connect(cluster.brokers["b2"])
    targets = [f"to.{number:03}" for number in range(150)]
    for number in range(0, 150, 30):
        ends = [{"queue": one} for one in targets[number : number + 30]]
        await cluster.apply("Bridge", f"wide-{number}", source={"queue": "from"}, targets=ends)
    await _until_known(cluster, "Bridge", "wide-120")
    opening = [asyncio.create_task(connection.producer(one)) for one in ("to.149", "to.007", "from")]
    await asyncio.wait(opening)
    await asyncio.sleep(5)
    homes = [await cluster.home("queue", one) for one in ("from", *targets)]
    assert (len(set(homes)), "" in homes) == (1, False)
    assert [one.exception() for one in opening] == [None] * 3
    await connection.close()


@pytest.mark.parametrize("kind", ["Bridge", "DurableSubscription"])
@pytest.mark.parametrize("rest", ["damaged", "no/such/key"])
def test_a_record_that_nobody_can_read_keeps_no_other_name_from_its_home(kind: str, rest: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders", at="b0")
        connection = await stage.connect(cluster.brokers["b0"])
        await cluster.client.put(f"{LAYOUT.configs_of(kind)}{rest}", b"{")
        for name in ("first", "second"):
            await asyncio.wait_for(connection.producer(Topic(name)), 3)
            await asyncio.wait_for(connection.producer(Queue(name)), 3)
        await connection.close()

    shown()
