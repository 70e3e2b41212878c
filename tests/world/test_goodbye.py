"""What an application is handed while its connection is being closed comes again flagged, as all that it has seen."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import AcknowledgeMode, Message, errors

from tests.world.stage import Stage, staged

_COUNT = 400


@pytest.mark.covers("EMS-DEST-A23")
@staged
async def test_nothing_is_handed_out_behind_the_goodbye_of_a_connection_that_is_closed(stage: Stage) -> None:
    broker = await stage.broker()
    leaving, other = await stage.connect(broker), await stage.connect(broker)
    is_done = asyncio.Event()

    async def listener(_: Message) -> None:
        await is_done.wait()

    await leaving.consumer("busy", listener=listener)
    await other.send("busy", "x")
    for number in range(_COUNT):
        await other.send("orders", str(number))
    await asyncio.sleep(1)
    closing = asyncio.create_task(leaving.close())
    await asyncio.sleep(1)
    # Opened while the connection is being closed, which waits for the listener: nobody else closes this one.
    session = await leaving.session(AcknowledgeMode.INDIVIDUAL)
    consumer = await session.consumer("orders", prefetch=_COUNT)
    await asyncio.sleep(1)
    is_done.set()
    seen = await _taken_until_the_end(consumer)
    await closing
    assert 0 < len(seen) < _COUNT
    again = await other.consumer("orders", prefetch=_COUNT)
    flagged = [one.redelivered for one in [await again.receive(5) for _ in range(_COUNT)] if one]
    assert flagged == [True] * len(seen) + [False] * (_COUNT - len(seen))
    await other.close()


async def _taken_until_the_end(consumer: sterna.Consumer) -> list[Message]:
    """One after the other, often enough that some would be taken while the goodbye is on its way."""
    seen: list[Message] = []
    while True:
        await asyncio.sleep(0.0002)
        try:
            message = consumer.receive_nowait()
        except errors.SternaError:
            return seen
        if message is not None:
            seen.append(message)


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_what_is_being_opened_when_the_broker_stops_is_opened_when_it_is_back(kind: str) -> None:
    """Behind the Goodbye it is refused, as of a session that was closed; which it is to nobody but that broker."""

    @staged
    async def shown(stage: Stage) -> None:
        cluster = await stage.two("orders")
        broker = cluster.brokers["b0"]
        connection = await stage.connect(broker)
        session = await connection.session()
        for step in range(8):
            opening = []
            stopping = asyncio.create_task(broker.stop())
            for number in range(40):
                opening.append(asyncio.create_task(getattr(session, kind)(f"q{step}.{number}")))
                await asyncio.sleep(0.0001 * (step + 1))
            await stopping
            await broker.start()
            await asyncio.wait_for(asyncio.gather(*opening), 60)
        await connection.close()

    shown()
