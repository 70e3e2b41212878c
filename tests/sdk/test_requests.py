"""Temporary destinations, and requests and replies over them (EMS-CLI-A28)."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import Queue, Topic, errors

from tests.sdk.conftest import Connect, drain


@pytest.mark.covers("EMS-CLI-A28")
async def test_a_request_gets_its_own_reply(connect: Connect, name: str) -> None:
    server, client = await connect(), await connect()

    async def answer(message: sterna.Message) -> None:
        await server.reply(message, f"re {message.body}")

    await server.consumer(name, listener=answer, prefetch=10)
    replies = await asyncio.gather(*(client.request(name, str(number), timeout=10) for number in range(20)))
    assert [one.body for one in replies] == [f"re {number}" for number in range(20)]


@pytest.mark.covers("EMS-CLI-A28", "FMQ-CLI-47")
async def test_replies_may_go_to_a_temporary_topic(connect: Connect, name: str) -> None:
    server, client = await connect(), await connect()
    answers = await client.temporary_topic()
    consumer = await client.consumer(answers)
    await client.send(name, "question", reply_to=answers, correlation_id="c")
    request = await (await server.consumer(name)).receive(5)
    assert request is not None
    assert isinstance(request.reply_to, Topic)
    await server.reply(request, "answer")
    reply = await consumer.receive(5)
    assert reply is not None
    assert (reply.body, reply.correlation_id) == ("answer", "c")


async def test_a_request_that_nobody_answers_times_out(connect: Connect, name: str) -> None:
    connection = await connect()
    with pytest.raises(errors.RequestTimeoutError):
        await connection.request(name, "x", timeout=0.2, needs_responder=False)
    with pytest.raises(TimeoutError):
        await connection.request(name, "x", timeout=0.2, needs_responder=False)


async def test_what_asks_for_no_reply_gets_none(connect: Connect, name: str) -> None:
    connection = await connect()
    await connection.send(name, "x")
    message = await (await connection.consumer(name)).receive(5)
    assert message is not None
    with pytest.raises(errors.InvalidArgumentError):
        await connection.reply(message, "y")


@pytest.mark.covers("EMS-DEST-A03")
async def test_only_its_connection_consumes_a_temporary_destination(connect: Connect) -> None:
    mine, other = await connect(), await connect()
    for made in (await mine.temporary_queue(), await mine.temporary_topic()):
        with pytest.raises(errors.NotAllowedError):
            await other.consumer(made)
        consumer = await mine.consumer(made)
        await other.send(made, "x")
        assert len(await drain(consumer, 1)) == 1
        await consumer.close()
    queue = await mine.temporary_queue()
    await mine.delete_temporary(queue)
    with pytest.raises(errors.SternaError):
        await other.send(queue, "x")


@pytest.mark.covers("EMS-DEST-A03")
async def test_temporary_destinations_go_with_their_connection(connect: Connect) -> None:
    mine, other = await connect(), await connect()
    queue = await mine.temporary_queue()
    assert isinstance(queue, Queue)
    await other.send(queue, "x")
    await mine.close()
    with pytest.raises(errors.SternaError):
        await other.send(queue, "x")
