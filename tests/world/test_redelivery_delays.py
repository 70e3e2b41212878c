"""What comes back waits: with the SDK, over the ways in which it comes back, in simulated time."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import AcknowledgeMode

from tests.running import manifest
from tests.world.brokers import Broker
from tests.world.stage import Stage, staged

DELAY_S = 15.0
RETURNING = "$sys.redelivery.delay"


async def _broker(stage: Stage) -> tuple[Broker, sterna.Connection]:
    orders = manifest("Queue", "orders", "name: 'orders.>', redeliveryDelayMs: 15000, maxMessages: 1")
    broker = await stage.broker(config=stage.manifests(orders))
    connection = await stage.connect(broker)
    await connection.send("orders.1", "a")
    return broker, connection


async def _seen(connection: sterna.Connection, queue: str) -> list[tuple[object, str]]:
    async with connection.browser(queue) as browser:
        return [(message.body, message.destination.name) async for message in browser]


async def _comes_again(stage: Stage, connection: sterna.Connection) -> None:
    """It waits, seen in one place, and comes when its time is there."""
    assert await _seen(connection, RETURNING) == [("a", "orders.1")]
    assert await _seen(connection, "orders.1") == []
    before = stage.loop.time()
    async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
        consumer = await session.consumer("orders.1")
        message = await consumer.receive(2 * DELAY_S)
        assert message is not None
        assert (message.body, message.redelivered) == ("a", True)
        assert DELAY_S - 2 < stage.loop.time() - before < DELAY_S + 2
        await message.acknowledge()
    assert await _seen(connection, RETURNING) == []


@pytest.mark.covers("EMS-DEST-A32", "EMS-DEST-A33", "EMS-TX-A05")
@staged
async def test_recovered_rolled_back_released_and_left_behind_messages_wait(stage: Stage) -> None:
    _, connection = await _broker(stage)

    async def recovers() -> None:
        async with await connection.session(AcknowledgeMode.CLIENT) as session:
            assert await (await session.consumer("orders.1")).receive(1) is not None
            await session.recover()

    async def rolls_back() -> None:
        async with await connection.session(AcknowledgeMode.TRANSACTED) as session:
            assert await (await session.consumer("orders.1")).receive(1) is not None
            await session.rollback()

    async def releases() -> None:
        async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
            message = await (await session.consumer("orders.1")).receive(1)
            assert message is not None
            message.release()
            await session.flush()

    async def leaves() -> None:
        async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
            assert await (await session.consumer("orders.1")).receive(1) is not None

    for way in (recovers, rolls_back, releases, leaves):
        await way()
        await _comes_again(stage, connection)
        await connection.send("orders.1", "a")
    await connection.close()


@pytest.mark.covers("EMS-DEST-A32", "EMS-DEST-A33")
@staged
async def test_a_wait_goes_on_over_a_restart_and_leaves_room_for_others(stage: Stage) -> None:
    broker, connection = await _broker(stage)
    async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
        assert await (await session.consumer("orders.1")).receive(1) is not None
    await connection.send("orders.1", "b")
    await connection.close()
    broker.kill()
    await asyncio.sleep(5)
    await broker.start()
    connection = await stage.connect(broker)
    assert await _seen(connection, RETURNING) == [("a", "orders.1")]
    assert await _seen(connection, "orders.1") == [("b", "orders.1")]
    await asyncio.sleep(DELAY_S - 4)
    assert await _seen(connection, "orders.1") == [("a", "orders.1"), ("b", "orders.1")]
    await connection.close()


@pytest.mark.covers("EMS-DEST-A33", "EMS-DEST-A63")
@staged
async def test_what_waits_is_looked_at_and_neither_sent_to_nor_taken_from(stage: Stage) -> None:
    _, connection = await _broker(stage)
    await connection.send("orders.2", "later", delivery_delay_ms=60_000)
    assert await _seen(connection, "$sys.delayed.q.orders.2") == [("later", "orders.2")]
    for name in (RETURNING, "$sys.delayed.q.orders.2"):
        with pytest.raises(sterna.errors.NotAllowedError):
            await connection.send(name, "x")
        with pytest.raises(sterna.errors.NotAllowedError):
            async with await connection.session() as session:
                await session.consumer(name)
    await connection.close()
