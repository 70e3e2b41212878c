"""Taking no more and finishing what is in hand; and listeners that have several messages at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import sterna
from sterna import AcknowledgeMode, blocking, errors

from tests.running import RunningBroker
from tests.sdk.conftest import Connect, drain
from tests.sdk.test_receiving import send
from tests.waiting import eventually, eventually_blocking


class Worker:
    """A loop over a consumer that stops in the middle of each message until it is let go on."""

    def __init__(self, consumer: sterna.Consumer) -> None:
        self.consumer = consumer
        self.begun: list[str] = []
        self.done: list[str] = []
        self.go_on = asyncio.Event()
        self.fails = False
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for message in self.consumer:
            await self.handle(message)

    async def handle(self, message: sterna.Message) -> None:
        self.begun.append(message.text)
        await self.go_on.wait()
        if self.fails:
            raise RuntimeError("on purpose")
        self.done.append(message.text)


async def _rest(connection: sterna.Connection, name: str) -> list[tuple[Any, bool]]:
    async with await connection.consumer(name) as consumer:
        found = []
        while (message := await consumer.receive(0.3)) is not None:
            found.append((message.body, message.redelivered))
        return found


async def test_a_drained_consumer_takes_no_more_and_its_loop_finishes(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 4)
    worker = Worker(await connection.consumer(name, prefetch=3))
    await eventually(lambda: worker.begun)
    draining = asyncio.create_task(worker.consumer.drain())
    await asyncio.wait([draining], timeout=0.1)
    assert not draining.done()
    worker.go_on.set()
    assert await asyncio.wait_for(draining, 5) is True
    await asyncio.wait_for(worker.task, 5)
    assert worker.done == ["0"]
    with pytest.raises(errors.ClosedError):
        await worker.consumer.receive(0)
    # What was only sent ahead is somebody else's, as if it had never been out.
    assert await _rest(connection, name) == [("1", False), ("2", False), ("3", False)]


async def test_what_is_in_hand_when_patience_ends_comes_again(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 2)
    worker = Worker(await connection.consumer(name))
    await eventually(lambda: worker.begun)
    assert await worker.consumer.drain(timeout=0.05) is False
    assert await _rest(connection, name) == [("0", True), ("1", False)]
    worker.go_on.set()
    await asyncio.wait_for(worker.task, 5)


async def test_draining_waits_for_nobody_who_has_failed(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    worker = Worker(await connection.consumer(name))
    worker.fails = True
    await eventually(lambda: worker.begun)
    draining = asyncio.create_task(worker.consumer.drain())
    worker.go_on.set()
    with pytest.raises(RuntimeError):
        await worker.task
    assert await asyncio.wait_for(draining, 5) is True
    assert await _rest(connection, name) == [("0", True)]


async def test_a_drained_listener_finishes_with_all_it_has(connect: Connect, name: str) -> None:
    connection = await connect()
    heard: list[str] = []
    go_on = asyncio.Event()

    async def listener(message: sterna.Message) -> None:
        heard.append(message.text)
        await go_on.wait()

    consumer = await connection.consumer(name, listener=listener, concurrency=2, prefetch=10)
    await send(connection, name, 4)
    await eventually(lambda: len(heard) == 2)
    draining = asyncio.create_task(consumer.drain())
    await asyncio.wait([draining], timeout=0.1)
    assert not draining.done()
    go_on.set()
    assert await asyncio.wait_for(draining, 5) is True
    assert heard == ["0", "1"]
    assert await _rest(connection, name) == [("2", False), ("3", False)]


@pytest.mark.parametrize("mode", [AcknowledgeMode.EXPLICIT_CLIENT, AcknowledgeMode.CLIENT])
async def test_what_the_application_acknowledges_it_does_after_draining(
    connect: Connect, name: str, mode: AcknowledgeMode
) -> None:
    connection = await connect()
    await send(connection, name, 2)
    consumer = await connection.consumer(name, acknowledge_mode=mode)
    message = await consumer.receive(5)
    assert message is not None
    assert await consumer.drain() is True
    assert await message.acknowledge() is True
    assert await _rest(connection, name) == [("1", False)]
    await consumer.close()
    with pytest.raises(errors.ClosedError):
        message.acknowledge()  # the session was made for the consumer


async def test_what_is_received_in_a_transaction_is_committed_after_draining(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 2)
    async with await connection.session(transacted=True) as session:
        consumer = await session.consumer(name)
        assert await consumer.receive(5) is not None
        await consumer.drain()
        await session.commit()
    assert await _rest(connection, name) == [("1", False)]


async def _drains(consumer: sterna.Consumer) -> asyncio.Task[bool]:
    """Somebody who drains it, and waits by now."""
    draining = asyncio.ensure_future(consumer.drain())
    await asyncio.wait([draining], timeout=0.1)
    assert not draining.done()
    return draining


async def test_others_get_at_once_what_was_only_sent_ahead_and_what_comes(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 2)
    worker = Worker(await connection.consumer(name, prefetch=10))
    await eventually(lambda: worker.begun)
    draining = await _drains(worker.consumer)
    await connection.send(name, "new")
    assert await _rest(await connect(), name) == [("1", False), ("new", False)]
    worker.go_on.set()
    assert await asyncio.wait_for(draining, 5) is True
    assert await _rest(connection, name) == []


async def test_several_may_drain_a_consumer(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    worker = Worker(await connection.consumer(name))
    await eventually(lambda: worker.begun)
    draining = [await _drains(worker.consumer) for _ in range(2)]
    worker.go_on.set()
    assert await asyncio.wait_for(asyncio.gather(*draining), 5) == [True, True]


async def test_who_drains_from_a_loop_is_done_with_its_message(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 2)
    consumer = await connection.consumer(name)
    async for _ in consumer:
        assert await asyncio.wait_for(consumer.drain(), 5) is True  # in a task of its own, before Python 3.12
    assert await _rest(connection, name) == [("1", False)]


async def test_who_closes_from_a_loop_is_done_with_its_message(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 2)
    consumer = await connection.consumer(name)
    async for _ in consumer:
        await asyncio.wait_for(consumer.close(), 5)
    assert await _rest(connection, name) == [("1", False)]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_listeners_may_drain_what_they_listen_to(connect: Connect, name: str, concurrency: int) -> None:
    connection = await connect()
    drained: list[bool] = []

    async def listener(_: sterna.Message) -> None:
        await go_on.wait()
        drained.append(await consumer.drain(5))

    go_on = asyncio.Event()
    consumer = await connection.consumer(name, listener=listener, concurrency=concurrency, prefetch=10)
    await send(connection, name, 4)
    go_on.set()
    await eventually(lambda: len(drained) == concurrency)
    assert drained == [True] * concurrency
    assert len(await _rest(connection, name)) == 4 - concurrency


@pytest.mark.parametrize("verb", ["acknowledge", "release"])
async def test_draining_waits_for_nobody_who_settles_by_himself(connect: Connect, name: str, verb: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    consumer = await connection.consumer(name)
    message = await anext(consumer)  # and this task does not come back for another
    draining = await asyncio.create_task(_drains(consumer))
    getattr(message, verb)()
    assert await asyncio.wait_for(draining, 5) is True


@pytest.mark.parametrize("closes", ["consumer", "connection"])
async def test_draining_ends_when_somebody_gives_back_what_is_in_hand(connect: Connect, name: str, closes: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    worker = Worker(await connection.consumer(name))
    await eventually(lambda: worker.begun)
    draining = await _drains(worker.consumer)
    await (worker.consumer if closes == "consumer" else connection).close()
    assert await asyncio.wait_for(draining, 5) is False
    worker.go_on.set()
    await worker.task
    assert await _rest(await connect(), name) == [("0", True)]


@pytest.mark.parametrize("mode", [None, AcknowledgeMode.AUTO])
async def test_draining_that_is_cancelled_gives_everything_back(
    connect: Connect, name: str, mode: AcknowledgeMode | None
) -> None:
    connection = await connect()
    await send(connection, name, 2)
    worker = Worker(await connection.consumer(name, acknowledge_mode=mode))
    await eventually(lambda: worker.begun)
    draining = await _drains(worker.consumer)
    draining.cancel()
    await asyncio.wait([draining])
    assert draining.cancelled()
    assert await _rest(await connect(), name) == [("0", True), ("1", False)]
    worker.go_on.set()
    await worker.task


async def test_draining_with_no_patience_finds_an_idle_listener_done(connect: Connect, name: str) -> None:
    consumer = await (await connect()).consumer(name, listener=lambda _: None)
    assert await consumer.drain(0) is True


async def test_a_break_hides_nobody_who_is_at_work(own_broker: RunningBroker, connect: Connect, name: str) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    restored: list[sterna.Restored] = []
    connection.on_restored(restored.append)
    await send(connection, name, 3)
    consumer = await connection.consumer(name)
    workers = [Worker(consumer), Worker(consumer)]
    await eventually(lambda: all(worker.begun for worker in workers))
    draining = await _drains(consumer)
    await asyncio.to_thread(own_broker.kill)
    await asyncio.to_thread(own_broker.start)
    await eventually(lambda: restored)
    workers[0].go_on.set()
    await workers[0].task
    await asyncio.wait([draining], timeout=0.1)
    assert not draining.done()
    workers[1].go_on.set()
    assert await asyncio.wait_for(draining, 5) is True
    await workers[1].task
    assert await _rest(connection, name) == [("0", True), ("1", True), ("2", True)]


def test_draining_waits_for_no_thread_that_has_ended(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        connection.send(name, "0")
        consumer = connection.consumer(name)
        thread = threading.Thread(target=lambda: next(iter(consumer)))
        thread.start()
        thread.join(10)
        assert consumer.drain(5) is True
        assert [one.body for one in connection.browser(name)] == ["0"]


def test_a_thread_finishes_what_it_has_when_another_drains(url: str, name: str) -> None:
    begun, go_on = threading.Event(), threading.Event()
    with blocking.connect(url) as connection:
        for number in range(2):
            connection.send(name, str(number))
        consumer = connection.consumer(name)

        def work() -> None:
            for _ in consumer:
                begun.set()
                assert go_on.wait(10)

        thread = threading.Thread(target=work)
        thread.start()
        assert begun.wait(10)
        outcomes: list[bool] = []
        other = threading.Thread(target=lambda: outcomes.append(consumer.drain(20)))
        other.start()
        eventually_blocking(lambda: consumer._twin.closed is not None)
        go_on.set()
        thread.join(10)
        other.join(10)
        assert outcomes == [True]
        assert [one.body for one in connection.browser(name)] == ["1"]


@pytest.mark.covers("EMS-CLI-A27")
async def test_a_listener_has_as_many_messages_at_once_as_it_is_said(connect: Connect, name: str) -> None:
    connection = await connect()
    reported: list[BaseException] = []
    connection.on_error(reported.append)
    at_once: list[int] = []
    busy = 0
    go_on = asyncio.Event()

    async def listener(message: sterna.Message) -> None:
        nonlocal busy
        busy += 1
        at_once.append(busy)
        await go_on.wait()
        busy -= 1
        if message.text == "1" and not message.redelivered:
            raise RuntimeError("on purpose")

    await connection.consumer(name, listener=listener, concurrency=3, prefetch=10)
    await send(connection, name, 5)
    await eventually(lambda: len(at_once) == 3)
    await asyncio.sleep(0)
    assert at_once == [1, 2, 3]
    go_on.set()
    # Each message is acknowledged by itself: the one that failed comes again, and no other.
    await eventually(lambda: len(at_once) == 6)
    assert max(at_once) == 3
    assert [str(error) for error in reported] == ["on purpose"]


async def test_all_of_a_listener_s_messages_end_with_its_consumer(connect: Connect, name: str) -> None:
    connection = await connect()
    begun, finished = [], []
    go_on = asyncio.Event()

    async def listener(message: sterna.Message) -> None:
        begun.append(message.text)
        await go_on.wait()
        finished.append(message.text)

    consumer = await connection.consumer(name, listener=listener, concurrency=4, prefetch=10)
    await send(connection, name, 4)
    await eventually(lambda: len(begun) == 4)
    await send(connection, name, 1)
    closing = asyncio.create_task(consumer.close())
    await asyncio.wait([closing], timeout=0.05)
    go_on.set()
    await asyncio.wait_for(closing, 5)
    assert finished == ["0", "1", "2", "3"]
    assert [message.body for message in await drain(await connection.consumer(name))] == ["0"]


@pytest.mark.parametrize(
    ("mode", "concurrency", "has_listener"),
    [
        (AcknowledgeMode.TRANSACTED, 2, True),
        (AcknowledgeMode.CLIENT, 2, True),
        (AcknowledgeMode.AUTO, 0, True),
        (AcknowledgeMode.AUTO, 2.5, True),
        (AcknowledgeMode.AUTO, 10**9, True),
        (AcknowledgeMode.AUTO, 2, False),
    ],
)
async def test_several_messages_at_once_are_for_listeners_that_settle_each_by_itself(
    connect: Connect, name: str, mode: AcknowledgeMode, concurrency: Any, has_listener: bool
) -> None:
    session = await (await connect()).session(mode)
    listener = (lambda _: None) if has_listener else None
    with pytest.raises(errors.InvalidArgumentError, match="concurrency"):
        await session.consumer(name, listener=listener, concurrency=concurrency)


async def test_a_listener_has_several_messages_at_once_without_a_prefetch(connect: Connect, name: str) -> None:
    connection = await connect()
    begun: list[str] = []
    go_on = asyncio.Event()

    async def listener(message: sterna.Message) -> None:
        begun.append(message.text)
        await go_on.wait()

    await connection.consumer(name, listener=listener, concurrency=3, prefetch=0)
    await send(connection, name, 4)
    await eventually(lambda: len(begun) == 3)
    go_on.set()
    await eventually(lambda: len(begun) == 4)


def test_threads_are_a_listener_s_messages(url: str, name: str) -> None:
    barrier = threading.Barrier(3)
    with blocking.connect(url) as connection:
        connection.consumer(name, listener=lambda _: barrier.wait(10), concurrency=2)
        for number in range(2):
            connection.send(name, str(number))
        barrier.wait(10)  # both are at it
