"""A connection's hidden connections to other brokers end with it."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import errors

from tests.world.clusters import Cluster
from tests.world.stage import Stage, staged

#: Moments after a call that has to dial another broker was made.
_DELAYS_S = (0.0, 0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.0025, 0.003, 0.004, 0.006, 0.01)


async def _two(stage: Stage) -> Cluster:
    """Queues on either of two brokers."""
    cluster = await stage.cluster("b0", "b1")
    await cluster.allow_all()
    for broker in ("b0", "b1"):
        await cluster.apply("Queue", f"on-{broker}", broker=broker)
        await cluster.until_home("queue", f"on-{broker}", broker)
    return cluster


def _clients(cluster: Cluster) -> list[str]:
    """Who is connected to any of both, as a client."""
    rows = [row for broker in cluster.brokers.values() for row in broker.connections()]
    return [str(row["peer"]) for row in rows if not str(row["peer"]).startswith("internal:")]


@staged
async def test_what_is_dialled_while_the_connection_is_closed_is_closed_too(stage: Stage) -> None:
    cluster = await _two(stage)
    caught = 0
    for delay_s in _DELAYS_S:
        connection = await stage.connect(cluster.brokers["b0"])
        sending = asyncio.create_task(connection.send("on-b1", "x"))
        await asyncio.sleep(delay_s)
        await connection.close()
        await asyncio.wait((sending,), timeout=60)
        assert sending.done(), delay_s
        caught += isinstance(sending.exception(), errors.SternaError)
        await asyncio.sleep(1)
        assert _clients(cluster) == [], delay_s
    # Some came in between, some were done before.
    assert 1 < caught < len(_DELAYS_S)


@staged
async def test_a_close_that_is_cancelled_leaves_no_connection_open(stage: Stage) -> None:
    cluster = await _two(stage)
    for delay_s in _DELAYS_S:
        connection = await stage.connect(cluster.brokers["b0"])
        for broker in ("b0", "b1"):
            await connection.send(f"on-{broker}", "x")
        closing = asyncio.create_task(connection.close())
        await asyncio.sleep(delay_s)
        closing.cancel()
        await asyncio.wait((closing,))
        await asyncio.sleep(1)
        assert connection.closed is not None, delay_s
        assert _clients(cluster) == [], delay_s


@staged
async def test_what_failed_on_another_broker_leaves_no_connection_open(stage: Stage) -> None:
    cluster = await _two(stage)
    await cluster.apply("Queue", "on-b1", broker="b1", maxMessages=1)
    await asyncio.sleep(2)
    connection = await stage.connect(cluster.brokers["b0"])
    await connection.send("on-b0", "x")
    producer = await connection.producer(sterna.Queue("on-b1"))
    for body in "abc":
        await producer.send_soon(body)
    with pytest.raises(errors.FlushError):
        await connection.close()
    await asyncio.sleep(1)
    assert connection.closed is not None
    assert _clients(cluster) == []
