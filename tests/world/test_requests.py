"""What becomes of questions and answers when one of both sides has gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
import sterna.admin
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


@pytest.mark.covers("EMS-CLI-A28")
@staged
async def test_a_request_fails_when_its_connection_breaks_though_it_was_not_confirmed(stage: Stage) -> None:
    """It may be confirmed on the next connection, which may never come; a reply never will."""
    broker = await stage.broker()
    asker, other = await stage.connect(broker), await stage.connect(broker)
    await other.consumer("questions", listener=lambda _: None)
    with pytest.raises(errors.RequestTimeoutError):
        await asker.request("questions", "?", timeout=1)
    for link in stage.network.links:
        link.stall(1)
    asking = asyncio.create_task(asker.request("questions", "?", timeout=None))
    await asyncio.sleep(0.1)
    broker.kill()
    await asyncio.wait((asking,), timeout=5)
    with pytest.raises(errors.ConnectionLostError):
        asking.result()
    await broker.start()
    await asker.close()
    await other.close()


@pytest.mark.covers("EMS-CLI-A28")
@staged
async def test_requests_go_on_when_the_broker_has_ended_the_consumer_of_replies(stage: Stage) -> None:
    broker = await stage.broker()
    asker, other = await stage.connect(broker), await stage.connect(broker)
    asked: list[sterna.Message] = []

    async def answer(message: sterna.Message) -> None:
        asked.append(message)
        await other.reply(message, "!")

    await other.consumer("questions", listener=answer)
    assert (await asker.request("questions", "?")).body == "!"
    [former] = asked
    assert former.reply_to is not None
    ended = asyncio.Event()
    asker.on_error(lambda _: ended.set())
    async with sterna.admin.connect(f"sterna://{broker.address}") as admin:
        await admin.delete("Queue", former.reply_to.name, with_messages=True)
    await ended.wait()
    assert (await asker.request("questions", "?", timeout=5)).body == "!"
    assert asked[1].reply_to != former.reply_to
    await stage.broken(asker)
    assert len(asker._lifeline.temporaries._current) == 1, "the former one does not come again"
    await asker.close()
    await other.close()


def test_a_connection_sends_and_asks_again_when_its_own_producers_were_refused_on_a_new_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are the connection's, and nobody else could make others."""

    @staged
    async def shown(stage: Stage) -> None:
        broker = await stage.broker()
        connection, other = await stage.connect(broker), await stage.connect(broker)

        async def answer(message: sterna.Message) -> None:
            await other.reply(message, "!")

        await other.consumer("questions", listener=answer)
        await connection.send("orders", "x")
        assert (await connection.request("questions", "?")).body == "!"
        asked = Link.request
        refused: list[str] = []

        async def request(link: Link, session: int, name: str, *content: Any, **how: Any) -> Any:
            if name == "open_producer" and len(refused) < 2:
                refused.append(name)
                raise errors.LimitExceededError("there are too many")
            return await asked(link, session, name, *content, **how)

        await other.close()  # or its producer would be among the two
        monkeypatch.setattr(Link, "request", request)
        await stage.broken(connection)
        assert len(refused) == 2
        await connection.send("orders", "x")
        other = await stage.connect(broker)
        await other.consumer("questions", listener=answer)
        assert (await connection.request("questions", "?", timeout=5)).body == "!"
        await connection.close()
        await other.close()

    shown()


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
