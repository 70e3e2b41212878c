"""The ends of a bridge get one home, whoever opens which of them where as soon as it is made."""

from __future__ import annotations

import asyncio

import sterna
import sterna.admin
from sterna import Queue, Topic, errors

from tests.running import manifest
from tests.world.stage import Stage, staged

_BRIDGES = 30


@staged
async def test_ends_that_are_opened_at_several_brokers_while_their_bridge_is_made_live_together(stage: Stage) -> None:
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    stage.network.slow = 0.4
    connections = [await stage.connect(one) for one in cluster.brokers.values()]
    async with sterna.admin.connect(cluster.url("b1")) as admin:
        for number in range(_BRIDGES):
            ends = [f"from.{number}", f"to.{number}"]
            spec = f"source: {{queue: {ends[0]}}}, targets: [{{queue: {ends[1]}}}]"
            [applied] = await admin.apply(manifest("Bridge", f"bridge-{number}", spec))
            assert applied.error is None
            # Nobody has given its ends a home yet, which each broker is about to hear of.
            places = [connections[number % 3], connections[(number + 1) % 3]]
            await asyncio.gather(*map(_opened, places, ends))
    await asyncio.sleep(5)
    homes = [[await cluster.home("queue", f"{end}.{number}") for end in ("from", "to")] for number in range(_BRIDGES)]
    assert [(one, other) for one, other in homes if not one or one != other] == []
    for connection in connections:
        await connection.close()


async def _opened(connection: sterna.Connection, name: str) -> None:
    try:
        await connection.producer(Queue(name))
    except errors.NoSuchDestinationError:
        pass  # it is about to come with its bridge


@staged
async def test_ends_that_are_opened_where_nobody_has_heard_of_their_bridge_live_together(stage: Stage) -> None:
    """It is in etcd before anybody opens them, and each broker hears of it only afterwards."""
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    stage.network.slow = 0.6
    connections = [await stage.connect(one) for one in cluster.brokers.values()]
    for number in range(_BRIDGES):
        ends = [f"from.{number}", f"to.{number}"]
        await cluster.apply("Bridge", f"bridge-{number}", source={"queue": ends[0]}, targets=[{"queue": ends[1]}])
        places = [connections[number % 3], connections[(number + 1) % 3]]
        await asyncio.gather(*map(_opened, places, ends))
    await asyncio.sleep(5)
    homes = [[await cluster.home("queue", f"{end}.{number}") for end in ("from", "to")] for number in range(_BRIDGES)]
    assert [(one, other) for one, other in homes if not one or one != other] == []
    for connection in connections:
        await connection.close()


@staged
async def test_topics_that_are_opened_where_nobody_has_heard_of_their_subscription_live_together(stage: Stage) -> None:
    """A configured durable subscription to a pattern: as with a bridge, what it is to get has to be on one broker."""
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    stage.network.slow = 0.6
    connections = [await stage.connect(one) for one in cluster.brokers.values()]
    for number in range(_BRIDGES):
        topics = [f"news.{number}.{end}" for end in ("one", "two")]
        spec = {"topic": f"news.{number}.>", "clientId": "c", "name": f"d{number}"}
        await cluster.apply("DurableSubscription", f"d{number}", **spec)
        places = [connections[number % 3], connections[(number + 1) % 3]]
        await asyncio.gather(*(at.producer(Topic(topic)) for at, topic in zip(places, topics, strict=True)))
    await asyncio.sleep(5)
    homes = [[await cluster.home("topic", f"news.{one}.{end}") for end in ("one", "two")] for one in range(_BRIDGES)]
    assert [(one, other) for one, other in homes if not one or one != other] == []
    for connection in connections:
        await connection.close()
