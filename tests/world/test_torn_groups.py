"""What belongs together and was parted, by two orders at once, by force or by a start in between, comes together."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna_broker.refusals import RefusedError
from sterna_etcd import HomeKey
from sterna_etcd.records import HomeRecord

from tests.support.refusing_etcd import RefusingEtcd
from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_groups import _PATTERN, _TOPIC, grouped, instead, read
from tests.world.test_homes import held

_SENDERS = 40
_TARGET = HomeKey("queue", "target")


async def until_open(cluster: Cluster, *brokers: str) -> None:
    """Until nothing is closed there any more."""
    drains = [cluster.member(name)._drain for name in brokers]
    await cluster.until(lambda: not any(drain is None or drain.has_closed for drain in drains))


@staged
async def test_a_torn_topic_is_opened_by_nobody_from_the_moment_on_at_which_it_is_known(stage: Stage) -> None:
    cluster = await grouped(stage)
    homes = cluster.member("b1").homes
    assert homes.epoch(_TOPIC) > 0
    homes.view.note_home(_PATTERN, HomeRecord(broker="b0"), homes.view.homes[_PATTERN].revision + 1)
    # In the same step of the loop: no round has looked at it.
    assert homes.epoch(_TOPIC) == 0
    with pytest.raises(RefusedError, match="about to follow a pattern"):
        await homes.of(_TOPIC)


@pytest.mark.parametrize("delay_ms", range(0, 20, 2))
def test_a_torn_topic_that_the_configuration_makes_is_shut_at_once(delay_ms: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await grouped(stage)
        connections = [await stage.connect(cluster.brokers["b0"]) for _ in range(_SENDERS)]
        await cluster.give("topic", "app.x", "b0")
        await asyncio.sleep(delay_ms / 1000)
        sending = []
        for number, one in enumerate(connections):
            sending.append(asyncio.create_task(one.send(sterna.Topic("app.x"), f"{number}", timeout=60)))
            await asyncio.sleep(0.001)
        await asyncio.gather(*sending)
        await cluster.until_home("topic", "app.x", "b1")
        assert sorted(await read(stage, cluster), key=int) == [f"{number}" for number in range(_SENDERS)]
        await until_open(cluster, "b0", "b1")
        for one in connections:
            await one.close()

    shown()


@pytest.mark.parametrize("delay_ms", range(0, 20, 2))
def test_a_topic_that_was_torn_while_its_broker_was_away_takes_nothing_there(delay_ms: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await grouped(stage)
        broker = cluster.brokers["b1"]
        connections = [await stage.connect(broker) for _ in range(_SENDERS)]
        broker.kill()
        await cluster.give("pattern", "app.*", "b0")
        sending = [
            asyncio.create_task(one.send(sterna.Topic("app.x"), f"{number}", timeout=60))
            for number, one in enumerate(connections)
        ]
        await asyncio.sleep(delay_ms / 1000)
        await broker.start()
        await asyncio.gather(*sending)
        await cluster.until_home("topic", "app.x", "b0")
        assert sorted(await read(stage, cluster), key=int) == [f"{number}" for number in range(_SENDERS)]
        for one in connections:
            await one.close()

    shown()


async def half_gone(stage: Stage, at: str, to: str, *, refuses: bool = True) -> tuple[Cluster, RefusingEtcd]:
    """A bridge's ends on a broker that is being emptied, the target on its way to another that cannot pass it on yet.

    What is returned says of either etcd when it has room. `refuses`: that this one says so; else it does not answer.
    """
    cluster = await stage.cluster("b0", "b1", "b2")
    await cluster.allow_all()
    for name in ("source", "target"):
        await cluster.placed(name, at)
    for name in ("one", "two", "three"):
        await cluster.placed(name, "b2")
    await cluster.apply("Bridge", "over", source={"queue": "source"}, targets=[{"queue": "target"}])
    await cluster.until(lambda: set(held(cluster, at)) == {"source", "target"})
    await asyncio.sleep(2)
    first = instead(cluster, _TARGET, refuses=False, broker=at)
    then = instead(cluster, _TARGET, refuses=refuses, broker=to)
    await cluster.drain(at)
    await cluster.until(lambda: cluster.member(at).homes.has_doubts)
    await cluster.drain(to)
    await cluster.until(lambda: set(cluster.member(at).link.view.drains) == {at, to})
    first.has_room = True
    return cluster, then


async def comes_over(connection: sterna.Connection, sending: asyncio.Task[object]) -> None:
    """What is sent to the source is copied to the target."""
    await sending
    assert await drained(connection, "target") == ["once"]
    assert await drained(connection, "source") == ["once"]
    await connection.close()


@pytest.mark.parametrize(("at", "to"), [("b1", "b0"), ("b0", "b1")])
def test_ends_of_a_bridge_on_two_brokers_that_are_emptied_meet_before_they_go_on(at: str, to: str) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster, etcd = await half_gone(stage, at, to)
        connection = await stage.connect(cluster.brokers[at])
        sending = asyncio.create_task(connection.send("source", "once", timeout=60))
        await cluster.until_home("queue", "target", to)
        await asyncio.sleep(5)
        assert not sending.done()
        assert await cluster.home("queue", "source") == "b0"
        etcd.has_room = True
        for name in ("target", "source"):
            await cluster.until_home("queue", name, "b2")
        await comes_over(connection, sending)

    shown()


@staged
async def test_what_is_not_to_leave_any_more_waits_for_what_comes_back_to_it(stage: Stage) -> None:
    cluster, etcd = await half_gone(stage, "b1", "b0")
    await cluster.undrain("b1")
    await cluster.until(lambda: set(cluster.member("b1").link.view.drains) == {"b0"})
    connection = await stage.connect(cluster.brokers["b1"])
    sending = asyncio.create_task(connection.send("source", "once", timeout=60))
    await cluster.until_home("queue", "target", "b0")
    await asyncio.sleep(5)
    assert await cluster.home("queue", "source") == "b1"
    assert not sending.done()
    etcd.has_room = True
    await cluster.until_home("queue", "target", "b1")
    await comes_over(connection, sending)
    await until_open(cluster, "b1")


@staged
async def test_a_torn_topic_follows_its_pattern_although_every_broker_is_being_emptied(stage: Stage) -> None:
    cluster = await grouped(stage)
    for name in ("b0", "b1"):
        await cluster.drain(name)
    await cluster.until(lambda: all(len(cluster.member(one).link.view.drains) == 2 for one in ("b0", "b1")))
    assert await cluster.home("topic", "app.x") == "b1"
    await cluster.give("pattern", "app.*", "b0")
    await asyncio.sleep(1)
    connection = await stage.connect(cluster.brokers["b1"])
    await connection.send(sterna.Topic("app.x"), "once", timeout=60)
    assert await cluster.home("topic", "app.x") == "b0"
    assert await read(stage, cluster) == ["once"]
    await connection.close()


@staged
async def test_who_has_a_durable_subscription_to_a_torn_topic_is_let_in_and_then_it_follows(stage: Stage) -> None:
    cluster = await stage.two()
    topic = sterna.Topic("app.x")
    reader = await stage.connect(cluster.brokers["b1"], client_id="mine")
    await reader.consumer(topic, durable="mine")
    await reader.consumer(sterna.Topic("app.*"))
    await reader.close()
    home = await cluster.home("topic", "app.x")
    away = next(name for name in cluster.brokers if name != home)
    await cluster.give("pattern", "app.*", away)
    # Whoever opens a dynamic topic once what it inherits has changed has the broker ask where it lives.
    await cluster.apply("Topic", "other", name="app.>")
    await asyncio.sleep(3)
    reader = await stage.connect(cluster.brokers[home], client_id="mine")
    consumer = await asyncio.wait_for(reader.consumer(topic, durable="mine"), 10)
    assert await cluster.home("topic", "app.x") == home
    await consumer.close()
    await reader.unsubscribe("mine")
    await cluster.until_home("topic", "app.x", away)
    await reader.send(topic, "after", timeout=30)
    await reader.close()


@staged
async def test_patterns_that_overlap_stay_together_so_that_what_both_match_has_a_home(stage: Stage) -> None:
    cluster = await stage.two()
    await cluster.apply("DurableSubscription", "all", "reader/all", topic="app.*", clientId="reader")
    await cluster.until(lambda: cluster.home("pattern", "app.*"))
    home = await cluster.home("pattern", "app.*")
    other = await stage.connect(cluster.brokers[home], client_id="other")
    await other.consumer(sterna.Topic("app.>"), durable="mine")
    await cluster.drain(home)
    await asyncio.sleep(5)
    assert [await cluster.home("pattern", name) for name in ("app.*", "app.>")] == [home, home]
    await other.send(sterna.Topic("app.x"), "once", timeout=10)
    await other.close()
