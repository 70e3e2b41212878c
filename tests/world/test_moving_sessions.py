"""A transacted session goes as a whole to where its first destination lives."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import sterna

from tests.world.stage import Stage, staged
from tests.world.test_clusters import drained


@pytest.mark.parametrize("after_ms", range(1, 13))
def test_whoever_waits_for_it_gives_up_and_it_can_be_used_all_the_same(after_ms: int) -> None:
    """It is where it was, or where it went; never in a session of another's there that has its number."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        connection = await stage.connect(cluster.brokers["b0"])
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(after_ms / 1000):
                await session.producer("orders")
        producer = await asyncio.wait_for(session.producer("orders"), 20)
        await producer.send("x")
        await session.rollback()
        await producer.send("y")
        await session.commit()
        assert await drained(connection, "orders") == ["y"]
        await asyncio.wait_for(session.close(), 20)
        await connection.close()

    shown()


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_opened_at_the_same_time_takes_it_there_once(count: int) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two()
        names = [f"orders{number}" for number in range(count)]
        for name in names:
            await cluster.placed(name, "b1")
        connection = await stage.connect(cluster.brokers["b0"])
        session = await connection.session(sterna.AcknowledgeMode.TRANSACTED)
        for producer in await asyncio.gather(*(session.producer(name) for name in names)):
            await producer.send("x")
        await session.commit()
        for name in names:
            assert await drained(connection, name) == ["x"]
        await connection.close()

    shown()
