"""What comes back to a broker that has it still is served there once what hangs on it holds again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sterna
from sterna_broker.cluster.configuration import ClusterConfiguration
from sterna_broker.configuration.objects import ObjectSet

from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained
from tests.world.test_homes import held


@pytest.mark.parametrize("is_described", [True, False])
def test_a_source_that_is_given_back_is_served_once_its_bridge_is_there(is_described: bool) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two()
        if is_described:
            await cluster.apply("Queue", "source")
        await cluster.apply("Bridge", "over", source={"queue": "source"}, targets=[{"queue": "target"}])
        await cluster.until(lambda: cluster.home("queue", "source"))
        home = await cluster.home("queue", "source")
        connection = await stage.connect(cluster.brokers[home])
        await connection.send("source", "stays")
        assert await drained(connection, "target") == ["stays"]
        away = next(name for name in cluster.brokers if name != home)
        for name, to in (("target", away), ("source", away), ("target", home)):
            await cluster.give("queue", name, to)
            await asyncio.sleep(2)
        assert held(cluster, home)["source"] == 1
        configuration = cluster.member(home)._configuration
        assert isinstance(configuration, ClusterConfiguration)
        hand_over, early = configuration.hand_over, list[bool]()
        newcomer = await stage.connect(cluster.brokers[home])
        sending: list[asyncio.Task[object]] = []

        async def late(objects: ObjectSet, before: Callable[[], None]) -> list[dict[str, Any]] | None:
            if not sending:
                sending.append(asyncio.create_task(newcomer.send("source", "early", timeout=60)))
                await asyncio.sleep(25)  # longer than who opens it waits for that
                early.append(sending[0].done())
            return await hand_over(objects, before)

        configuration.hand_over = late  # type: ignore[method-assign]
        await cluster.give("queue", "source", home)
        await cluster.until(lambda: early and sending[0].done())
        assert await drained(connection, "source") == ["stays", "early"]
        assert await drained(connection, "target") == ["early"]
        assert early == [False]
        await newcomer.close()
        await connection.close()

    shown()


@staged
async def test_users_of_a_topic_that_is_given_back_wait_for_its_hand_over_and_are_not_sent_to_and_fro(
    stage: Stage,
) -> None:
    cluster, topic = await stage.two(), sterna.Topic("news")
    first = await stage.connect(cluster.brokers["b0"], client_id="mine")
    await first.consumer(topic, durable="mine")
    home = await cluster.home("topic", "news")
    away = next(name for name in cluster.brokers if name != home)
    await first.close()
    old = await stage.connect(cluster.brokers[home])
    producer = await old.producer(topic)
    await producer.send("stays")
    await cluster.give("topic", "news", away)
    await asyncio.sleep(3)
    assert held(cluster, home, "topic") == {"news": 1}
    await producer.send("elsewhere")
    newcomer = await stage.connect(cluster.brokers[away])
    following = await newcomer.consumer(topic)
    configuration = cluster.member(home)._configuration
    assert isinstance(configuration, ClusterConfiguration)
    hand_over, early = configuration.hand_over, list[bool]()
    sending: list[asyncio.Task[object]] = []

    async def late(objects: ObjectSet, before: Callable[[], None]) -> list[dict[str, Any]] | None:
        if not sending:
            sending.append(asyncio.create_task(producer.send("again", timeout=60)))
            sending.append(asyncio.create_task(newcomer.send(topic, "new", timeout=60)))
            await asyncio.sleep(25)  # longer than anybody is sent to and fro
            early.extend(one.done() for one in sending)
        return await hand_over(objects, before)

    configuration.hand_over = late  # type: ignore[method-assign]
    await cluster.give("topic", "news", home)
    await cluster.until(lambda: early and all(one.done() for one in sending))
    assert early == [False, False]
    await asyncio.gather(*sending)
    await asyncio.sleep(5)  # who is not durable misses what is sent before he has come
    await producer.send("after")
    while (message := await following.receive(5)) is not None and message.body != "after":
        pass
    assert message is not None
    reader = await stage.connect(cluster.brokers[away], client_id="mine")
    durable = await reader.consumer(topic, durable="mine")
    found = [message.body for _ in range(4) if (message := await durable.receive(5)) is not None]
    assert sorted(found) == ["after", "again", "new", "stays"]
    for one in (reader, newcomer, old):
        await one.close()
