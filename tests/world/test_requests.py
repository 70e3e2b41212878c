"""What becomes of questions and answers when one of both sides has gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
from sterna import DeliveryMode, errors
from sterna._link import Link

from tests.running import manifest
from tests.world.brokers import Broker
from tests.world.stage import Stage, staged


async def _asks(stage: Stage, broker: Broker) -> None:
    connection = await stage.connect(broker)
    await connection.request("questions", "?", timeout=3600, needs_responder=False)


@pytest.mark.covers("EMS-CLI-A28")
@staged
async def test_a_listener_answers_an_asker_that_has_gone_once(stage: Stage) -> None:
    broker = await stage.broker()
    asker, _ = stage.process("asker", _asks(stage, broker))
    await stage.until(lambda: any(row["name"] == "questions" for row in broker.listed("queue")))
    await asyncio.sleep(1)
    asker.kill()
    await stage.until(lambda: broker.connections() == [])
    connection = await stage.connect(broker)
    calls: list[sterna.Sent | None] = []
    failed: list[BaseException] = []
    connection.on_error(failed.append)

    async def answer(message: sterna.Message) -> None:
        calls.append(None)
        calls[-1] = await connection.reply(message, "!")

    await connection.consumer("questions", listener=answer)
    await asyncio.sleep(10)
    assert calls == [None]
    assert failed == []
    await connection.close()


@staged
async def test_a_reply_to_a_place_that_is_not_temporary_and_does_not_exist_is_an_error(stage: Stage) -> None:
    broker = await stage.broker()
    connection = await stage.connect(broker)
    await connection.send("questions", "?", reply_to=sterna.Queue("$sys.nowhere"))
    message = await (await connection.consumer("questions")).receive(5)
    assert message is not None
    with pytest.raises(errors.SternaError):
        await connection.reply(message, "!")
    await connection.close()


@staged
async def test_a_request_is_gone_when_its_asker_has_given_up(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    with pytest.raises(errors.RequestTimeoutError):
        await connection.request("questions", "?", timeout=2, needs_responder=False)
    await asyncio.sleep(1)
    await connection.send("questions", "last")
    consumer = await connection.consumer("questions")
    message = await consumer.receive(5)
    assert message is not None
    assert message.body == "last"
    waiting = asyncio.create_task(connection.request("other", "?", timeout=30, needs_responder=False))
    asked = await (await connection.consumer("other")).receive(5)
    assert asked is not None
    assert asked.delivery_mode is DeliveryMode.NON_PERSISTENT
    assert 0 < asked.expiration_ms - asked.timestamp_ms <= 30_000
    await connection.reply(asked, "!")
    assert (await waiting).body == "!"
    await connection.close()


@staged
async def test_a_request_to_nobody_is_told_so_at_once_and_is_not_kept(stage: Stage) -> None:
    broker = await stage.broker()
    asker, listener = await stage.connect(broker), await stage.connect(broker)
    began_s = stage.loop.time()
    for _ in range(2):
        with pytest.raises(errors.NoRespondersError) as told:
            await asker.request("questions", "?", timeout=30)
        assert told.value.retryable
        assert told.value.subject == "questions"
    with pytest.raises(errors.NoRespondersError):
        await asker.request(sterna.Topic("questions.topic"), "?", timeout=30)
    assert stage.loop.time() - began_s < 1
    # Who only looks answers nothing.
    async with asker.browser("questions") as browser:
        assert [message.body async for message in browser] == []

    async def answer(message: sterna.Message) -> None:
        await listener.reply(message, f"re {message.body}")

    for destination in (sterna.Queue("questions"), sterna.Topic("questions.topic")):
        consumer = await listener.consumer(destination, listener=answer)
        assert (await asker.request(destination, "1", timeout=5)).body == "re 1"
        await consumer.close()
        with pytest.raises(errors.NoRespondersError):
            await asker.request(destination, "2", timeout=30)
    await asker.close()
    await listener.close()


@staged
async def test_a_durable_subscription_answers_nothing_while_nobody_consumes_from_it(stage: Stage) -> None:
    broker = await stage.broker()
    asker, listener = await stage.connect(broker), await stage.connect(broker, client_id="listener")
    news = sterna.Topic("news")
    durable = await listener.consumer(news, durable="d")
    await durable.close()
    with pytest.raises(errors.NoRespondersError):
        await asker.request(news, "?", timeout=30)
    waiting = asyncio.create_task(asker.request(news, "?", timeout=30, needs_responder=False))
    await asyncio.sleep(1)
    message = await (await listener.consumer(news, durable="d")).receive(5)
    assert message is not None
    await listener.reply(message, "!")
    assert (await waiting).body == "!"
    await asker.close()
    await listener.close()


@staged
async def test_who_consumes_at_the_end_of_a_bridge_may_answer(stage: Stage) -> None:
    bridge = manifest("Bridge", "over", "source: {queue: asked}, targets: [{queue: answered}]")
    queues = [manifest("Queue", name) for name in ("asked", "answered")]
    broker = await stage.broker(config=stage.manifests(bridge, *queues))
    asker, listener = await stage.connect(broker), await stage.connect(broker)
    with pytest.raises(errors.NoRespondersError):
        await asker.request("asked", "?", timeout=30)

    async def answer(message: sterna.Message) -> None:
        await listener.reply(message, "!")

    await listener.consumer("answered", listener=answer)
    assert (await asker.request("asked", "?", timeout=5)).body == "!"
    await asker.close()
    await listener.close()


async def _answers(connection: sterna.Connection) -> None:
    """Answers all questions."""

    async def answer(message: sterna.Message) -> None:
        await connection.reply(message, f"re {message.body}")

    await connection.consumer("questions", listener=answer)


@pytest.mark.parametrize("what", ["open_consumer", "open_producer"])
def test_one_is_answered_after_a_break_that_the_place_for_replies_did_not_survive(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its consumer, or what asks, was refused when it was to be opened anew; all is made again, and nothing is left."""

    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        asker, other = await stage.connect(broker, client_id="asker"), await stage.connect(broker)
        await _answers(other)
        assert (await asker.request("questions", "1", timeout=5)).body == "re 1"
        asked = Link.request

        async def request(link: Link, number: int, name: str, *content: Any, **how: Any) -> Any:
            if name == what and link.welcome.client_id == "asker":
                raise errors.LimitExceededError("there are too many", subject="q")
            return await asked(link, number, name, *content, **how)

        monkeypatch.setattr(Link, "request", request)
        await stage.broken(asker)
        monkeypatch.undo()
        await stage.until(lambda: other.connected)
        for number in range(2):
            assert (await asker.request("questions", f"{number}", timeout=5)).body == f"re {number}"
        temporary = [row for row in broker.listed("queue") if row["origin"] == "temporary"]
        assert len(temporary) == 1
        await asker.close()
        await other.close()

    shown()


@staged
async def test_one_whose_id_was_used_before_is_answered_although_that_one_gives_up(stage: Stage) -> None:
    broker = await stage.broker()
    asker, other = await stage.connect(broker), await stage.connect(broker)
    consumer = await other.consumer("questions")
    first = asyncio.create_task(asker.request("questions", "1", correlation_id="mine", timeout=1))
    assert await consumer.receive(5) is not None
    second = asyncio.create_task(asker.request("questions", "2", correlation_id="mine", timeout=60))
    with pytest.raises(errors.RequestTimeoutError):
        await first
    message = await consumer.receive(5)
    assert message is not None
    await other.reply(message, "!")
    assert (await second).body == "!"
    await asker.close()
    await other.close()
