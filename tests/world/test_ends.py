"""The end of a connection, which comes once, whoever wants it and whatever happens meanwhile."""

from __future__ import annotations

import asyncio

import sterna
from sterna import errors

from tests.world.stage import Stage, staged


@staged
async def test_a_connection_that_two_tasks_close_is_closed_once_and_for_both(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    told: list[object] = []
    connection.on_closed(told.append)
    await connection.send("q", "x")
    async with asyncio.timeout(20):
        await asyncio.gather(connection.close(), connection.close())
    assert told == [sterna.Closed(None)]
    assert isinstance(connection.closed, errors.ClosedError)


@staged
async def test_a_connection_that_is_given_up_while_it_is_closed_says_why_and_says_it_once(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker, reconnect=sterna.Reconnect(give_up_after_s=2.0))
    told: list[sterna.Closed] = []
    connection.on_closed(told.append)
    await connection.send("q", "what opens the producer")
    await broker.stop()
    sending = asyncio.create_task(connection.send("q", "x"))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(60):
        await connection.close(failed=True)
    await asyncio.gather(sending, return_exceptions=True)
    assert [type(one.error) for one in told] == [errors.ConnectionLostError]
