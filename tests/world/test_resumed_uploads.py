"""A large body whose link is cut after each of its chunks: it goes on where it was, and arrives whole and once."""

from __future__ import annotations

import asyncio
from typing import Final

import sterna

from tests.world.brokers import Broker
from tests.world.stage import Stage, staged

_CHUNK: Final = 192 * 1024
#: The last chunk is not full; a broker of the world takes a mebibyte.
_BODY: Final = b"".join(number.to_bytes(4) for number in range(5 * _CHUNK // 4))[:-1_000]


def _uploaded(broker: Broker) -> int:
    return int(broker.statistics()["uploaded_bytes_total"])


async def _until_uploaded(stage: Stage, broker: Broker, bytes_: int) -> None:
    """Looks more often than chunks come."""
    has_come = asyncio.Event()

    def look() -> None:
        if _uploaded(broker) >= bytes_:
            has_come.set()
        else:
            stage.loop.call_later(0.000_02, look)

    look()
    async with asyncio.timeout(5):
        await has_come.wait()


async def _received(connection: sterna.Connection, count: int) -> list[bytes]:
    consumer = await connection.consumer("orders")
    found = []
    for _ in range(count):
        message = await consumer.receive(10)
        assert message is not None
        found.append(message.body)
        await message.acknowledge()
    assert await consumer.receive(0.5) is None
    return found


@staged
async def test_a_body_goes_on_whichever_of_its_chunks_the_link_breaks_behind(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("orders")
    for chunks in range(1, 5):
        before = _uploaded(broker)
        sending = asyncio.create_task(producer.send(_BODY))
        await _until_uploaded(stage, broker, before + chunks * _CHUNK)
        await stage.broken(connection)
        await sending
        assert _uploaded(broker) - before == len(_BODY), f"cut behind chunk {chunks}"
    totals = broker.statistics()
    assert (totals["uploads_resumed_total"], totals["uploads_kept_bytes"]) == (4, 0)
    assert await _received(connection, 4) == [_BODY] * 4


@staged
async def test_a_body_whose_link_breaks_behind_each_of_its_chunks_is_sent_once_as_a_whole(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("orders")
    sending = asyncio.create_task(producer.send(_BODY))
    for chunks in range(1, 5):
        await _until_uploaded(stage, broker, chunks * _CHUNK)
        await stage.broken(connection)
    await sending
    assert _uploaded(broker) == len(_BODY)
    assert await _received(connection, 1) == [_BODY]


@staged
async def test_a_body_goes_on_before_the_broker_has_noticed_that_its_link_is_gone(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("orders")
    sending = asyncio.create_task(producer.send(_BODY))
    await _until_uploaded(stage, broker, 2 * _CHUNK)
    for link in stage.network.links:
        link.break_(server_after_s=None)
    await sending
    assert (_uploaded(broker), broker.statistics()["uploads_resumed_total"]) == (len(_BODY), 1)
    await asyncio.sleep(120)
    assert broker.statistics()["uploads_kept_bytes"] == 0
    assert await _received(connection, 1) == [_BODY]


@staged
async def test_a_body_is_sent_from_its_beginning_to_a_broker_that_has_forgotten_it(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    producer = await connection.producer("orders")
    sending = asyncio.create_task(producer.send(_BODY))
    await _until_uploaded(stage, broker, 3 * _CHUNK)
    broker.kill()
    await broker.start()
    await sending
    assert (_uploaded(broker), broker.statistics()["uploads_resumed_total"]) == (len(_BODY), 0)
    assert await _received(connection, 1) == [_BODY]
