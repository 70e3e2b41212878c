"""What a run looks for in a broker's books is found when it is there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sterna import AcknowledgeMode, Queue, Topic

from tests.world import accounts
from tests.world.stage import Stage, staged


@staged
async def test_what_somebody_has_left_is_told_one_by_one_and_of_nobody_nothing(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker, client_id="shop")
    await connection.send("orders", "x")
    session = await connection.session(AcknowledgeMode.INDIVIDUAL)
    consumer = await session.consumer(Queue("orders"))
    assert await consumer.receive() is not None
    await session.consumer(Topic("news"), durable="desk")
    producer = await connection.producer("lines")
    name = (await connection.temporary_queue()).name
    told = "\n".join(accounts.left(broker))
    for expected in (
        "a connection is left: {'client_id': 'shop'",
        "of the queue orders {'consumers': 1, 'delivered_messages': 1} are left",
        "of the durable desk {'consumers': 1} are left",
        "of the queue lines {'producers': 1} are left",
        f"a temporary destination is left: {name}",
        "a call is left: rpc /sterna.v1.Messaging/Connect",
    ):
        assert expected in told
    assert list(accounts.disagreements(broker)) == []
    await producer.close()
    await connection.close()
    await asyncio.sleep(1)
    assert [*accounts.left(broker), *accounts.disagreements(broker)] == []


@staged
async def test_a_total_that_is_not_what_is_listed_is_told_and_so_is_a_metric(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    await connection.send("orders", "x")
    totals, metrics = broker.statistics, broker.metrics
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(broker, "statistics", lambda: {**totals(), "messages": 7})
        patching.setattr(broker, "metrics", lambda: {**metrics(), "sterna_sessions": 9.0})
        told: Any = list(accounts.disagreements(broker))
    assert [one for one in told if "lists" in one] == ["one says that it has 7 messages, and lists 1"]
    assert [one for one in told if "sterna" not in one and "9.0" in one] == [
        "one says that it has 1 sessions, and /metrics 9.0"
    ]
    await connection.close()
