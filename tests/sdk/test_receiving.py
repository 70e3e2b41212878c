"""Receiving: by call, by iteration, by listener; prefetch, and what becomes of what was only sent ahead."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import AcknowledgeMode, errors

from tests.sdk.conftest import Connect, drain
from tests.waiting import eventually


async def send(connection: sterna.Connection, name: str, count: int) -> None:
    async with await connection.producer(name) as producer:
        for number in range(count):
            await producer.send_soon(str(number))


@pytest.mark.covers("EMS-CLI-A26")
async def test_receive_waits_until_a_message_comes(connect: Connect, name: str) -> None:
    connection = await connect()
    consumer = await connection.consumer(name)
    receiving = asyncio.create_task(consumer.receive())
    await asyncio.wait([receiving], timeout=0.1)
    assert not receiving.done()
    await connection.send(name, "x")
    message = await asyncio.wait_for(receiving, 5)
    assert message is not None
    assert message.body == "x"


@pytest.mark.covers("EMS-CLI-A26")
async def test_receive_gives_up_after_its_time(connect: Connect, name: str) -> None:
    connection = await connect()
    consumer = await connection.consumer(name)
    assert await consumer.receive(0.05) is None
    assert await consumer.receive(0) is None


@pytest.mark.covers("EMS-CLI-A26", "EMS-DEST-A28")
async def test_receive_nowait_takes_what_is_here(connect: Connect, name: str) -> None:
    connection = await connect()
    consumer = await connection.consumer(name, prefetch=5)
    assert consumer.receive_nowait() is None
    await send(connection, name, 2)
    message = await eventually(consumer.receive_nowait)
    assert message is not None
    assert message.body == "0"
    without = await connection.consumer(name, prefetch=0)
    with pytest.raises(errors.NotAllowedError):
        without.receive_nowait()


@pytest.mark.covers("EMS-CLI-A27")
async def test_a_listener_is_called_for_each_message(connect: Connect, name: str) -> None:
    connection = await connect()
    heard: list[str] = []

    async def listener(message: sterna.Message) -> None:
        heard.append(message.text)

    consumer = await connection.consumer(name, listener=listener)
    await send(connection, name, 20)
    await eventually(lambda: len(heard) == 20)
    assert heard == [str(number) for number in range(20)]
    with pytest.raises(errors.NotAllowedError):
        await consumer.receive(1)
    await consumer.close()
    assert await drain(await connection.consumer(name)) == []


@pytest.mark.covers("EMS-CLI-A27", "EMS-CLI-A05")
async def test_a_message_whose_listener_fails_comes_again(connect: Connect, name: str) -> None:
    connection = await connect()
    reported: list[BaseException] = []
    connection.on_error(reported.append)
    heard: list[tuple[str, bool]] = []

    def listener(message: sterna.Message) -> None:
        heard.append((message.text, message.redelivered))
        if len(heard) == 1:
            raise RuntimeError("not today")

    await connection.consumer(name, listener=listener)
    await connection.send(name, "x")
    await eventually(lambda: len(heard) == 2)
    assert heard == [("x", False), ("x", True)]
    assert [str(one) for one in reported] == ["not today"]


@pytest.mark.covers("EMS-DEST-A26")
async def test_no_more_is_sent_ahead_than_the_prefetch(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 30)
    first = await connection.consumer(name, prefetch=7, acknowledge_mode=AcknowledgeMode.CLIENT)
    await eventually(lambda: len(first._state.buffer) == 7)
    # Everything else is there for others at once; only what the first was sent is not.
    others = await drain(await connection.consumer(name, prefetch=30), 23)
    assert [one.body for one in others] == [str(number) for number in range(7, 30)]
    assert len(first._state.buffer) == 7
    assert [one.body for one in await drain(first, 7)] == [str(number) for number in range(7)]


@pytest.mark.covers("EMS-DEST-A26", "EMS-DEST-A29")
async def test_without_prefetch_a_message_is_fetched_by_receive_alone(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 3)
    consumer = await connection.consumer(name, prefetch=0)
    async with await connection.consumer(name, prefetch=1) as other:
        assert [one.body for one in await drain(other, 3)] == ["0", "1", "2"]
    assert await consumer.receive(0.05) is None  # this one has asked now, and may hold one
    await send(connection, name, 2)
    await eventually(lambda: len(consumer._state.buffer) == 1)
    assert [one.body for one in await drain(await connection.consumer(name), 1)] == ["1"]
    held = await consumer.receive(5)
    assert held is not None
    assert held.body == "0"


@pytest.mark.covers("EMS-DEST-A23")
async def test_closing_gives_back_what_was_only_sent_ahead(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 10)
    consumer = await connection.consumer(name, prefetch=10)
    assert (await anext(consumer)).body == "0"
    await consumer.close()
    found = await drain(await connection.consumer(name, prefetch=10), 9)
    assert [(one.body, one.redelivered, one.delivery_count) for one in found] == [
        (str(number), False, 1) for number in range(1, 10)
    ]


@pytest.mark.covers("EMS-CLI-A05")
async def test_a_message_in_whose_loop_the_application_died_comes_again(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 3)
    with pytest.raises(RuntimeError):
        async with await connection.consumer(name, prefetch=3) as consumer:
            async for message in consumer:
                if message.body == "1":
                    raise RuntimeError("died")
    found = await drain(await connection.consumer(name), 2)
    assert [(one.body, one.redelivered) for one in found] == [("1", True), ("2", False)]


async def test_several_tasks_may_receive_from_one_consumer(connect: Connect, name: str) -> None:
    connection = await connect()
    consumer = await connection.consumer(name, prefetch=10)
    receiving = [asyncio.create_task(consumer.receive(5)) for _ in range(10)]
    await send(connection, name, 10)
    found = [one.body for one in await asyncio.gather(*receiving) if one is not None]
    assert sorted(found) == [str(number) for number in range(10)]


async def test_a_cancelled_receive_loses_nothing(connect: Connect, name: str) -> None:
    connection = await connect()
    consumer = await connection.consumer(name, prefetch=2)
    first, second = (asyncio.create_task(consumer.receive(5)) for _ in range(2))
    await eventually(lambda: len(consumer._feed.waiters) == 2)
    first.cancel()
    await connection.send(name, "x")
    message = await second
    assert message is not None
    assert message.body == "x"


@pytest.mark.covers("EMS-CLI-A10")
async def test_a_selector_chooses(connect: Connect, name: str) -> None:
    connection = await connect()
    for number in range(6):
        await connection.send(name, str(number), properties={"even": number % 2 == 0, "number": number})
    odd = await connection.consumer(name, selector="even = FALSE AND number > 1")
    assert [one.body for one in await drain(odd, 2)] == ["3", "5"]
    with pytest.raises(errors.InvalidSelectorError) as caught:
        await connection.consumer(name, selector="number >")
    assert caught.value.offset == 8


async def test_a_browser_looks_without_taking(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 600)
    assert [one.body async for one in connection.browser(name)] == [str(number) for number in range(600)]
    assert [one.body async for one in connection.browser(name, selector="JMSPriority > 4")] == []
    assert len(await drain(await connection.consumer(name, prefetch=100), 600)) == 600


async def test_an_empty_queue_is_browsed_at_once(connect: Connect, name: str) -> None:
    connection = await connect()
    assert [one async for one in connection.browser(name)] == []


async def test_a_stopped_session_hands_out_nothing(connect: Connect, name: str) -> None:
    connection = await connect()
    await connection.send(name, "x")
    async with await connection.session(stopped=True) as session:
        consumer = await session.consumer(name)
        assert await consumer.receive(0.2) is None
        await session.start()
        assert await consumer.receive(5) is not None


async def test_whoever_waits_hears_of_the_close(connect: Connect, name: str) -> None:
    connection = await connect()
    consumer = await connection.consumer(name)
    receiving = asyncio.create_task(consumer.receive())
    iterating = asyncio.create_task(anext(consumer, None))
    await eventually(lambda: len(consumer._feed.waiters) == 2)
    await connection.close()
    with pytest.raises(errors.ClosedError):
        await receiving
    assert await iterating is None
    with pytest.raises(errors.ClosedError):
        await consumer.receive()


async def test_what_is_never_looked_at_is_never_decoded(connect: Connect, name: str) -> None:
    connection = await connect()
    await connection.send(name, {"a": 1}, properties={"b": 2})
    message = await (await connection.consumer(name)).receive(5)
    assert message is not None
    await message.acknowledge()
    assert message._parsed is None
    assert message.body == {"a": 1}
    assert message.body is message.body


@pytest.mark.covers("EMS-MSG-A04", "EMS-MSG-A08")
async def test_what_expires_while_it_waits_here_is_not_handed_out(connect: Connect, name: str) -> None:
    connection = await connect()
    dead = await connection.consumer("$sys.undelivered", prefetch=0)
    consumer = await connection.consumer(name, prefetch=5)
    keep = {"JMS_STERNA_PRESERVE_UNDELIVERED": True}
    await connection.send(name, "short-lived", properties=keep, time_to_live_ms=300)
    await connection.send(name, "lasting")
    await eventually(lambda: len(consumer._state.buffer) == 2, what="both sent ahead")
    expires_ms = consumer._state.buffer[0].expiration_ms
    await eventually(lambda: connection._lifeline.broker_time_ms() > expires_ms, what="the first one's end")
    message = consumer.receive_nowait()
    assert message is not None
    assert message.body == "lasting"
    undelivered = await dead.receive(10)
    assert undelivered is not None
    assert undelivered.body == "short-lived"
    # Its place in the window is free again.
    for number in range(10):
        await connection.send(name, str(number))
    assert [one.body for one in await drain(consumer, 10)] == [str(number) for number in range(10)]
