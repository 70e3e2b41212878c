"""A producer that is closed inside a transaction: what it has sent belongs to that, and its commit says what became."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import Queue, errors
from sterna.producers import _BOUND_MAX

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged
from tests.world.test_homes import held


async def _alone(stage: Stage) -> tuple[Cluster, sterna.Session]:
    cluster = await stage.cluster("b0")
    await cluster.allow_all()
    await cluster.apply("Queue", "small", maxMessages=1, overflowPolicy="rejectIncoming")
    await asyncio.sleep(2)
    connection = await stage.connect(cluster.brokers["b0"])
    return cluster, await connection.session(transacted=True)


@staged
async def test_what_a_producer_has_sent_is_committed_although_it_is_closed_by_then(stage: Stage) -> None:
    cluster, session = await _alone(stage)
    async with session.transaction(), await session.producer("orders") as producer:
        await producer.send("first")
        await producer.send(bytes(900_000))
    producer = await session.producer("orders")
    await producer.send("never")
    await producer.close()
    await session.rollback()
    await (await session.producer("orders")).send("last")
    await session.commit()
    assert held(cluster, "b0")["orders"] == 3


@pytest.mark.parametrize("is_awaited", [True, False])
def test_what_was_refused_of_a_closed_producer_undoes_the_transaction(is_awaited: bool) -> None:
    @staged
    async def shown(stage: Stage) -> None:
        cluster, session = await _alone(stage)
        other = await session.producer("orders")
        await other.send("with it")
        producer = await session.producer("small")
        for number in range(3):
            await producer.send(f"{number}")
        closing = asyncio.create_task(producer.close())
        await (closing if is_awaited else asyncio.sleep(0))
        with pytest.raises(errors.TransactionRolledBackError):
            await session.commit()
        await closing
        await other.send("after")
        await session.commit()
        found = held(cluster, "b0")
        assert (found["orders"], found.get("small", 0)) == (1, 0)

    shown()


@staged
async def test_a_transaction_may_have_more_destinations_than_are_kept_open(stage: Stage) -> None:
    cluster, session = await _alone(stage)
    producer, count = await session.producer(), _BOUND_MAX + 10
    for _ in range(2):
        for number in range(count):
            await producer.send_soon("x", destination=Queue(f"q{number}"))
        await session.commit()
    found = held(cluster, "b0")
    assert [found[f"q{number}"] for number in range(count)] == [2] * count
