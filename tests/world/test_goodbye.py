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
