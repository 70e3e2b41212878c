"""Sending: delivery modes, waiting or not, and what is never said.

Rows EMS-MSG-A16 to A19, EMS-CLI-A21 to A24, D12 to D15.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    PERSISTENT,
    RELIABLE,
    Destination,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, session_of
from tests.waiting import eventually


@pytest.mark.covers("EMS-CLI-A21", "EMS-MSG-A17")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT])
async def test_a_send_returns_when_the_message_is_with_the_server(
    provider: Provider, session: Session, queue: Queue, mode: str
) -> None:
    sent = await session.send(queue, "x", delivery_mode=mode)
    [message] = await provider.browse(queue)
    assert (message.message_id, message.timestamp_ms) == (sent.message_id, sent.timestamp_ms)


@pytest.mark.covers("EMS-MSG-A19")
async def test_a_reliable_send_never_fails_whatever_the_server_thinks_of_it(
    provider: Provider, session: Session, kind: type[Destination], word: str
) -> None:
    await session.send(kind(f"{word}.never.there"), "dropped", delivery_mode=RELIABLE)
    # The same without RELIABLE is refused.
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await session.send(kind(f"{word}.never.there"), "refused", delivery_mode=NON_PERSISTENT)


@pytest.mark.covers("EMS-MSG-A19")
async def test_reliable_messages_arrive_in_order_among_the_others(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    producer = await session.producer(queue)
    for number in range(9):
        await producer.send(str(number), delivery_mode=[RELIABLE, PERSISTENT, NON_PERSISTENT][number % 3])
    assert await bodies(consumer, 9) == [str(number) for number in range(9)]


@pytest.mark.covers("EMS-CLI-A22", "EMS-CLI-D15")
async def test_completion_listeners_hear_of_each_message_in_order(
    provider: Provider, session: Session, queue: Queue
) -> None:
    heard: list[Any] = []
    producer = await session.producer(queue)
    for number in range(50):
        await producer.send_soon(str(number), on_completion=heard.append)
    await eventually(lambda: len(heard) == 50)
    found = await provider.browse(queue)
    assert [one.message_id for one in heard] == [one.message_id for one in found]
    assert [one.body for one in found] == [str(number) for number in range(50)]


@pytest.mark.covers("EMS-CLI-A22", "EMS-CLI-D15", "UM-CLI-B31")
async def test_completion_listeners_hear_why_a_message_was_refused(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, maxmsgs=2)
    heard: dict[str, Any] = {}
    producer = await session.producer(queue)
    for body in "abcd":

        def listen(outcome: Any, body: str = body) -> None:
            heard[body] = provider.refusal_of(outcome) if isinstance(outcome, BaseException) else None

        await producer.send_soon(body, on_completion=listen)
    await eventually(lambda: len(heard) == 4)
    assert heard == {"a": None, "b": None, "c": Refusal.FULL, "d": Refusal.FULL}


@pytest.mark.covers("EMS-CLI-A22", "EMS-CLI-D15")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT])
async def test_asynchronous_sends_of_any_mode_complete(
    provider: Provider, session: Session, topic: Topic, mode: str
) -> None:
    heard: list[Any] = []
    consumer = await session.consumer(topic)
    producer = await session.producer(topic, delivery_mode=mode)
    await producer.send_soon("x", on_completion=heard.append)
    assert await bodies(consumer, 1) == ["x"]
    await eventually(lambda: len(heard) == 1)


@pytest.mark.covers("EMS-CLI-D12", "EMS-CLI-D13")
async def test_a_producer_without_destination_needs_one_with_each_send_and_a_bound_one_takes_none(
    provider: Provider, session: Session, word: str
) -> None:
    first, second = Queue(f"any.{word}.a"), Topic(f"any.{word}.b")
    consumers = [await session.consumer(first), await session.consumer(second)]
    anonymous = await session.producer()
    await anonymous.send("to a", destination=first)
    await anonymous.send("to b", destination=second)
    assert await bodies(consumers[0], 1) == ["to a"]
    assert await bodies(consumers[1], 1) == ["to b"]
    with refused(provider, Refusal.INVALID_VALUE, Refusal.NOT_ALLOWED):
        await anonymous.send("nowhere")
    bound = await session.producer(first)
    with refused(provider, Refusal.INVALID_VALUE, Refusal.NOT_ALLOWED):
        await bound.send("elsewhere", destination=second)


@pytest.mark.covers("EMS-MSG-D03")
async def test_a_closed_producer_sends_nothing(provider: Provider, session: Session, queue: Queue) -> None:
    producer = await session.producer(queue)
    await producer.close()
    with refused(provider, Refusal.CLOSED):
        await producer.send("x")


@pytest.mark.covers("EMS-DEST-D04", "EMS-DEST-A01")
async def test_consumers_may_come_before_or_after_what_is_sent(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await session.send(queue, "before")
    consumer = await (await session_of(provider)).consumer(queue)
    await session.send(queue, "after")
    assert await bodies(consumer, 2) == ["before", "after"]


@pytest.mark.covers("EMS-MSG-A14")
@pytest.mark.parametrize("size", [600_000, 3_000_000])
async def test_a_body_larger_than_a_frame_arrives_whole(session: Session, queue: Queue, size: int) -> None:
    consumer = await session.consumer(queue)
    body = bytes(range(256)) * (size // 256)
    await session.send(queue, body)
    assert (await consumer.receive()).body == body


@pytest.mark.covers("FMQ-MSG-19", "EMS-MSG-A24")
async def test_a_body_that_is_compressed_is_kept_so_and_read_as_it_was_and_the_rest_stays_readable(
    provider: Provider, session: Session, word: str
) -> None:
    plain, small = Queue(f"any.{word}.plain"), Queue(f"any.{word}.small")
    body = "a body of which much is said again and again. " * 1_000
    await session.send(plain, body, properties={"n": 1}, type="order")
    await session.send(small, body, properties={"n": 1}, type="order", compress=True)
    stored = (await provider.held(plain)).bytes, (await provider.held(small)).bytes
    assert stored[1] < stored[0] / 10
    # The server sees header and properties, and the receiver the body as it was.
    message = await (await session.consumer(small, selector="n = 1 AND JMSType = 'order'")).receive()
    assert (message.body, message.type, message.properties["n"]) == (body, "order", 1)


async def test_what_is_changed_after_an_asynchronous_send_changes_nothing_of_what_was_sent(
    session: Session, queue: Queue
) -> None:
    heard: list[Any] = []
    body, properties = {"a": 1}, {"n": 1}
    producer = await session.producer(queue)
    await producer.send_soon(body, properties=properties, on_completion=heard.append)
    body["a"] = properties["n"] = 2
    await eventually(lambda: len(heard) == 1)
    message = await (await session.consumer(queue)).receive()
    assert (dict(message.body), message.properties["n"]) == ({"a": 1}, 1)
    assert heard[0].message_id == message.message_id
