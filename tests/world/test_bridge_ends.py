"""The ends of a bridge get one home, whoever opens which of them where as soon as it is made."""

from __future__ import annotations

import asyncio

import sterna
import sterna.admin
from sterna import Queue, Topic, errors
from sterna_etcd import Claim
from sterna_etcd.records import ObjectStatus

from tests.running import manifest
from tests.world.clusters import LAYOUT, Cluster
from tests.world.stage import Stage, staged

_BRIDGES = 30


async def _three(stage: Stage, *, slow: float) -> tuple[Cluster, list[sterna.Connection]]:
    """Brokers that hear of changes at times of their own, and a client at each."""
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    stage.network.slow = slow
    return cluster, [await stage.connect(one) for one in cluster.brokers.values()]


async def _check_together(
    cluster: Cluster, connections: list[sterna.Connection], kind: str, names: tuple[str, str]
) -> None:
    """That both of each pair of names have one home, which is the same."""
    await asyncio.sleep(5)
    homes = [[await cluster.home(kind, name.format(number)) for name in names] for number in range(_BRIDGES)]
    assert [(one, other) for one, other in homes if not one or one != other] == []
    for connection in connections:
        await connection.close()


@staged
async def test_ends_that_are_opened_at_several_brokers_while_their_bridge_is_made_live_together(stage: Stage) -> None:
    cluster, connections = await _three(stage, slow=0.4)
    async with sterna.admin.connect(cluster.url("b1")) as admin:
        for number in range(_BRIDGES):
            ends = [f"from.{number}", f"to.{number}"]
            spec = f"source: {{queue: {ends[0]}}}, targets: [{{queue: {ends[1]}}}]"
            [applied] = await admin.apply(manifest("Bridge", f"bridge-{number}", spec))
            assert applied.error is None
            # Nobody has given its ends a home yet, which each broker is about to hear of.
            places = [connections[number % 3], connections[(number + 1) % 3]]
            await asyncio.gather(*map(_opened, places, ends))
    await _check_together(cluster, connections, "queue", ("from.{}", "to.{}"))


async def _opened(connection: sterna.Connection, name: str) -> None:
    try:
        await connection.producer(Queue(name))
    except errors.NoSuchDestinationError:
        pass  # it is about to come with its bridge


@staged
async def test_ends_that_are_opened_where_nobody_has_heard_of_their_bridge_live_together(stage: Stage) -> None:
    """It is in etcd before anybody opens them, and each broker hears of it only afterwards."""
    cluster, connections = await _three(stage, slow=0.6)
    for number in range(_BRIDGES):
        ends = [f"from.{number}", f"to.{number}"]
        await cluster.apply("Bridge", f"bridge-{number}", source={"queue": ends[0]}, targets=[{"queue": ends[1]}])
        places = [connections[number % 3], connections[(number + 1) % 3]]
        await asyncio.gather(*map(_opened, places, ends))
    await _check_together(cluster, connections, "queue", ("from.{}", "to.{}"))


@staged
async def test_topics_that_are_opened_where_nobody_has_heard_of_their_subscription_live_together(stage: Stage) -> None:
    """A configured durable subscription to a pattern: as with a bridge, what it is to get has to be on one broker."""
    cluster, connections = await _three(stage, slow=0.6)
    for number in range(_BRIDGES):
        topics = [f"news.{number}.{end}" for end in ("one", "two")]
        spec = {"topic": f"news.{number}.>", "clientId": "c", "name": f"d{number}"}
        await cluster.apply("DurableSubscription", f"d{number}", **spec)
        places = [connections[number % 3], connections[(number + 1) % 3]]
        await asyncio.gather(*(at.producer(Topic(topic)) for at, topic in zip(places, topics, strict=True)))
    await _check_together(cluster, connections, "topic", ("news.{}.one", "news.{}.two"))


@staged
async def test_ends_on_several_brokers_come_together_as_the_bridges_state_says(stage: Stage) -> None:
    """What is empty is deleted with the bridge, and described again behind it: it then goes where the others are."""
    cluster, connections = await _three(stage, slow=0.0)
    bridge = manifest("Bridge", "brings", "source: {topic: news}, targets: [{queue: letters}]")
    async with sterna.admin.connect(cluster.url("b1")) as admin:
        await admin.apply(manifest("Topic", "news", "broker: b0"))
        await admin.apply(manifest("Queue", "letters", "broker: b1"))
        await cluster.until_home("topic", "news", "b0")
        await cluster.until_home("queue", "letters", "b1")
        await admin.apply(bridge)
        await cluster.until(
            lambda: _says(cluster, "refused", "topic 'news' on b0, queue 'letters' on b1; delete the bridge")
        )
        await admin.delete("Bridge", "brings")
        await admin.delete("Queue", "letters")
        await cluster.until_home("queue", "letters", "")
        await admin.apply(bridge)
        await admin.apply(manifest("Queue", "letters"))
        await cluster.until_home("queue", "letters", "b0")
        await cluster.until(lambda: _says(cluster, "applied", ""))
    await connections[1].send(Topic("news"), "it rains")
    message = await (await connections[2].consumer("letters")).receive(timeout=10)
    assert message is not None
    assert message.body == "it rains"
    for connection in connections:
        await connection.close()


async def _says(cluster: Cluster, state: str, what: str) -> bool:
    """Whether the bridge's status says so."""
    found = (await cluster.client.get(LAYOUT.object_status(Claim("Bridge", "brings"), "b0"))).found
    said = ObjectStatus.decode(found.key, found.value) if found is not None else None
    return said is not None and said.state == state and what in said.message
