"""The ends of a bridge that were given to several brokers before the bridge was there come together by themselves."""

from __future__ import annotations

import pytest
import sterna
from sterna import Topic

from tests.cluster.conftest import Cluster, Connect, Operator, document, waited

pytestmark = pytest.mark.slow_callbacks(30_000)


async def _apart(operator: Operator) -> None:
    """A topic on b0 and a queue on b1, whose manifests name no broker any more."""
    for kind, name, broker in (("Topic", "news", "b0"), ("Queue", "letters", "b1")):
        await operator.until(await operator.put(document(kind, name, broker=broker)), "applied")
        await operator.until(await operator.put(document(kind, name), generation=2), "applied", generation=2)


@pytest.mark.covers("EMS-DEST-E01")
async def test_empty_ends_come_together_and_the_bridge_holds(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    await _apart(operator)
    connection = await connect(two.url("b1"))
    producer = await connection.producer("letters")
    bridge = document("Bridge", "brings", source={"topic": "news"}, targets=[{"queue": "letters"}])
    await operator.until(await operator.put(bridge), "applied")
    assert [await operator.home("topic", "news"), await operator.home("queue", "letters")] == ["b0", "b0"]
    await connection.send(Topic("news"), "it rains")
    await producer.send("by itself")
    assert await _read(connection, 2) == ["it rains", "by itself"]


@pytest.mark.covers("EMS-DEST-E01")
async def test_an_end_that_holds_a_message_stays_until_that_is_consumed(
    two: Cluster, operator: Operator, connect: Connect
) -> None:
    await _apart(operator)
    connection = await connect(two.url("b1"))
    await connection.send("letters", "kept")
    bridge = document("Bridge", "brings", source={"topic": "news"}, targets=[{"queue": "letters"}])
    claim = await operator.put(bridge)
    told = await operator.until(claim, "refused")
    assert "moves to the others by itself" in told.message
    wanted = "queue 'letters' is to live on b0 with what belongs to it, and holds 1 message here"

    async def is_warned() -> bool:
        return wanted in str(two.readiness("b1"))

    await waited(is_warned, 20, "the broker to say why it stays")
    await connection.send("letters", "open still")
    assert await operator.home("queue", "letters") == "b1"
    assert await _read(connection, 2) == ["kept", "open still"]
    await operator.until(claim, "applied")
    assert await operator.home("queue", "letters") == "b0"
    await connection.send(Topic("news"), "it rains")
    assert await _read(connection, 1) == ["it rains"]


async def _read(connection: sterna.Connection, count: int) -> list[str]:
    consumer = await connection.consumer("letters")
    found = []
    for _ in range(count):
        message = await consumer.receive(10)
        assert message is not None
        found.append(message.text)
        await message.acknowledge()
    await consumer.close()
    return found
