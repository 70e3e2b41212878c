"""What the blocking `send_soon` leaves for the loop's thread: in order, checked, bounded, and never lost silently."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import sterna
from sterna import blocking, errors
from sterna.blocking import _batches

from tests.waiting import eventually_blocking


def _slowed(producer: blocking.Producer, wait: Callable[[], Any]) -> list[Any]:
    """Has the loop's thread wait before each message that it takes; the bodies that it took."""
    taken: list[Any] = []
    send_soon = producer._twin.send_soon

    async def slow(body: Any = None, **options: Any) -> int:
        await wait()
        number = await send_soon(body, **options)
        taken.append(body)
        return number

    producer._twin.send_soon = slow  # type: ignore[method-assign]
    return taken


async def _a_moment() -> None:
    """Many turns of the loop, longer than a thread needs to go on."""
    for _ in range(3_000):
        await asyncio.sleep(0)


def test_messages_keep_their_order_their_numbers_and_their_content(url: str, name: str) -> None:
    with blocking.connect(url) as connection, connection.producer(name) as producer:
        body: dict[str, Any] = {"count": 0, "list": [0]}
        properties = {"count": 0}
        numbers = []
        for count in range(3_000):
            body["count"] = properties["count"] = body["list"][0] = count
            numbers.append(producer.send_soon(body, properties=properties))
        assert numbers == list(range(1, 3_001))
        assert producer.send("sent") is not None
        with pytest.raises(errors.InvalidMessageError):
            producer.send_soon("\ud800")
        with pytest.raises(errors.InvalidMessageError):
            producer.send_soon("x", priority=11)
        with pytest.raises(TypeError):
            producer.send_soon("x", colour="red")
        assert producer.send_soon("x" * 100_000) == 3_002
        assert producer.send_soon(b"last") == 3_003
        producer.flush()
        consumer = connection.consumer(name, prefetch=4_000)
        for count in range(3_000):
            message = consumer.receive(5)
            assert message is not None
            assert (message.body["count"], message.body["list"][0], message.properties["count"]) == (count,) * 3
        rest = [message.body for _ in range(3) if (message := consumer.receive(5)) is not None]
        assert rest == ["sent", "x" * 100_000, b"last"]


def test_threads_that_share_a_producer_keep_each_their_order(url: str, name: str) -> None:
    with blocking.connect(url) as connection, connection.producer(name) as producer:

        def send(which: int) -> None:
            for count in range(500):
                producer.send_soon(f"{which} {count}")

        threads = [threading.Thread(target=send, args=(which,)) for which in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert producer.send_soon("last") == 1_501
        producer.flush()
        assert producer.unconfirmed == 0
        consumer = connection.consumer(name, prefetch=2_000)
        found = [message.body.split() for _ in range(1_500) if (message := consumer.receive(5)) is not None]
        for which in range(3):
            assert [int(count) for one, count in found if one == str(which)] == list(range(500))


def test_what_a_thread_does_next_comes_behind_what_it_has_sent(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        connection.send(name, "work")
        session = connection.session(sterna.AcknowledgeMode.INDIVIDUAL)
        message = session.consumer(name).receive(5)
        assert message is not None
        producer = session.producer(f"{name}.results")
        taken = _slowed(producer, _a_moment)
        for body in "abc":
            producer.send_soon(body)
        # If the message went first and the process ended here, nothing would be left of the work.
        message.acknowledge(wait=False)
        assert taken == ["a", "b", "c"]
        # Another thread waits for nothing of this one's.
        slow = session.producer(f"{name}.results")
        goes = asyncio.Event()
        left = _slowed(slow, goes.wait)
        slow.send_soon("d")
        other = threading.Thread(target=lambda: connection.browser(f"{name}.empty").close())
        other.start()
        other.join()
        assert left == []
        connection._portal._loop.call_soon_threadsafe(goes.set)
        session.flush()
        assert left == ["d"]


def test_what_a_listener_sends_is_handed_over_before_its_message_is_done_with(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        producer = connection.producer(f"{name}.results")
        taken = _slowed(producer, _a_moment)
        before: list[int] = []

        def listener(message: blocking.Message) -> None:
            before.append(len(taken))
            producer.send_soon(message.body)

        for body in "ab":
            connection.send(name, body)
        connection.consumer(name, listener=listener)
        eventually_blocking(lambda: len(before) == 2)
        assert before == [0, 1]


def test_what_cannot_be_handed_over_is_told(url: str, name: str) -> None:
    with blocking.connect(url) as connection:
        producer = connection.producer(name)

        async def refused(body: Any = None, **_: Any) -> int:
            await _a_moment()
            raise errors.ClosedError("the producer was closed", subject="producer")

        send_soon = producer._twin.send_soon
        producer._twin.send_soon = refused  # type: ignore[method-assign]
        told: list[Any] = []
        producer.send_soon("a")
        producer.send_soon("b", on_completion=told.append)
        producer.send_soon("c")
        with pytest.raises(errors.FlushError) as failed:
            producer.flush()
        assert [str(error.cause) for _, error in failed.value.failures] == ["the producer was closed"] * 2
        eventually_blocking(lambda: [type(one) for one in told] == [errors.ClosedError])
        # It is raised once; and numbers are right again.
        producer._twin.send_soon = send_soon  # type: ignore[method-assign]
        producer.flush()
        producer.send_soon("d")
        producer.flush()
        assert producer.send_soon("e") == 2
        producer.close()
        with pytest.raises(errors.ClosedError):
            producer.send_soon("f")


@pytest.mark.parametrize("failed", [False, True])
def test_too_many_wait_and_a_close_does_not_wait_for_ever(url: str, name: str, failed: bool) -> None:
    connection = blocking.connect(url)
    producer = connection.producer(name)
    stuck = asyncio.Event()
    _slowed(producer, stuck.wait)
    sent = 0
    ended: list[BaseException] = []

    def flood() -> None:
        nonlocal sent
        try:
            while True:
                producer.send_soon("x")
                sent += 1
        except errors.SternaError as error:
            ended.append(error)

    flooding = threading.Thread(target=flood)
    flooding.start()
    eventually_blocking(lambda: producer._batch.pending == _batches._MESSAGES_MAX)
    began_s = time.monotonic()
    if failed:
        connection.close(failed=True)
    else:
        with pytest.raises(errors.FlushError):
            connection.close(timeout_s=1.0)
    assert time.monotonic() - began_s < 15
    flooding.join(10)
    assert [type(one) for one in ended] == [errors.ClosedError]
    assert producer._batch.pending == 0


def test_an_interruption_just_before_the_loop_is_told_holds_nobody_up(url: str, name: str) -> None:
    with blocking.connect(url) as connection, connection.producer(name) as producer:
        producer._batch._is_told = True  # as if Ctrl-C had come in between
        producer.send_soon("x")
        producer.flush()
        assert [message.body for message in connection.browser(name)] == ["x"]
