"""What comes back to a broker that has it still is served there once what hangs on it holds again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
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
