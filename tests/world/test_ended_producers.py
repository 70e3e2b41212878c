"""Producers that are over: nothing is left of them, nothing is made for them any more, and nobody waits for them."""

from __future__ import annotations

import asyncio

import pytest
import sterna.admin
from sterna import DeliveryMode, Queue, errors
from sterna._parts import part_of

from tests.world.processes import current
from tests.world.stage import Stage, staged


@staged
async def test_a_queue_that_was_deleted_does_not_come_back_with_the_connection(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("gone")
    await producer.send("x")
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        await admin.delete("Queue", "gone", with_messages=True)
        with pytest.raises(errors.NoSuchDestinationError):
            await producer.send("y", timeout=20)
        await stage.broken(connection)
        assert "gone" not in [one.name for one in await admin.resources("Queue")]
    await connection.close()


@staged
async def test_a_producer_that_the_broker_has_ended_for_an_anonymous_one_leaves_nothing(stage: Stage) -> None:
    cluster = await stage.two()
    connection = await stage.connect(cluster.brokers["b0"])
    session = await connection.session()
    producer = await session.producer()
    async with sterna.admin.connect(cluster.url("b0")) as admin:
        for _ in range(3):
            await producer.send("x", destination=Queue("orders"))
            await producer.send("x", destination=Queue("orders"), delivery_mode=DeliveryMode.RELIABLE)
            await admin.delete("Queue", "orders", with_messages=True)
            await asyncio.sleep(1)
    await producer.send("x", destination=Queue("orders"))
    # The anonymous one, and the one that it has now.
    assert sum(len(part.producers) for part in part_of(session).parts) == 2
    await connection.close()


@staged
async def test_a_close_that_is_cut_short_does_not_wait_for_the_broker(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("q")
    assert broker.process is not None
    stage.network.part(current(), broker.process)
    outcomes: list[object] = []
    await producer.send_soon("x", on_completion=outcomes.append)
    before_s = stage.loop.time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await producer.close()
    assert stage.loop.time() - before_s < 2.5
    assert [type(one) for one in outcomes] == [errors.ClosedError]
    stage.network.heal()
    await connection.close()
