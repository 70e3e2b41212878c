"""What becomes of questions and answers when one of both sides has gone."""

from __future__ import annotations

import asyncio

import pytest
import sterna
from sterna import DeliveryMode, errors

from tests.world.brokers import Broker
from tests.world.stage import Stage, staged


async def _asks(stage: Stage, broker: Broker) -> None:
    connection = await stage.connect(broker)
    await connection.request("questions", "?", timeout=3600)


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
        await connection.request("questions", "?", timeout=2)
    await asyncio.sleep(1)
    await connection.send("questions", "last")
    consumer = await connection.consumer("questions")
    message = await consumer.receive(5)
    assert message is not None
    assert message.body == "last"
    waiting = asyncio.create_task(connection.request("other", "?", timeout=30))
    asked = await (await connection.consumer("other")).receive(5)
    assert asked is not None
    assert asked.delivery_mode is DeliveryMode.NON_PERSISTENT
    assert 0 < asked.expiration_ms - asked.timestamp_ms <= 30_000
    await connection.reply(asked, "!")
    assert (await waiting).body == "!"
    await connection.close()
