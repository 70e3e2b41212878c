"""A transaction that is open for longer than its broker allows: what becomes of it, and what its client is told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sterna
from sterna import errors

from tests.running import ANYTHING, manifest
from tests.world.brokers import Broker
from tests.world.stage import Stage, staged

_LIMIT_S = 60.0
#: The limit, and how much longer a transaction may be open: the broker looks now and then.
_OVER_S = 62.0
_TOLD = r"limits\.transactionMs"


async def _begun(stage: Stage, count: int = 3, **options: Any) -> tuple[Broker, sterna.Connection, sterna.Session]:
    """A broker with the limit and so many messages in the queue `in`, and a transacted session."""
    limits = manifest("Broker", "m", f"limits: {{transactionMs: {int(_LIMIT_S * 1000)}}}")
    broker = await stage.broker(config=stage.manifests(*ANYTHING, limits), **options)
    connection = await stage.connect(broker)
    for number in range(count):
        await connection.send("in", str(number))
    return broker, connection, await connection.session(transacted=True)


async def _found(connection: sterna.Connection, queue: str) -> list[tuple[Any, bool, int]]:
    """What is there for somebody else: body, flag and count."""
    found = []
    async with await connection.consumer(queue, prefetch=10) as consumer:
        while (message := await consumer.receive(2)) is not None:
            found.append((message.body, message.redelivered, message.delivery_count))
    return found


@pytest.mark.covers("EMS-TX-A02", "EMS-TX-A05", "EMS-MSG-A20")
@staged
async def test_what_a_hanging_application_has_received_goes_to_others_and_its_commit_says_why(stage: Stage) -> None:
    _, connection, session = await _begun(stage)
    consumer, producer = await session.consumer("in", prefetch=1), await session.producer("out")
    assert await consumer.receive(5) is not None
    await producer.send("from it")
    await asyncio.sleep(_LIMIT_S - 1)
    other = await stage.connect(stage.brokers[0])
    browsed = [message.body async for message in other.browser("in")]
    assert browsed == ["0", "1", "2"]
    await asyncio.sleep(_OVER_S - _LIMIT_S + 1)
    async with await other.consumer("in", prefetch=0) as others:
        first = await others.receive(5)
        assert first is not None
        assert (first.body, first.redelivered, first.delivery_count) == ("0", True, 2)
    with pytest.raises(errors.TransactionRolledBackError, match=_TOLD) as told:
        await session.commit()
    assert "60000 ms" in str(told.value)
    assert "commit or roll back sooner" in str(told.value)
    # The session goes on, with a new transaction.
    async with session.transaction():
        message = await consumer.receive(5)
        assert message is not None
        # It had been fetched, and nobody had seen it.
        assert (message.body, message.redelivered) == ("1", False)
        await producer.send("from the next")
    await session.close()
    assert await _found(connection, "out") == [("from the next", False, 1)]
    assert await _found(connection, "in") == [("2", False, 1)]


@pytest.mark.parametrize("way", ["receive", "waiting", "send", "commit", "rollback", "close"])
def test_whatever_comes_next_in_the_session_is_told(way: str) -> None:
    @staged
    async def play(stage: Stage) -> None:
        _, connection, session = await _begun(stage, 2)
        consumer, producer = await session.consumer("in", prefetch=2), await session.producer("out")
        assert await consumer.receive(5) is not None
        await producer.send("from it")
        if way == "waiting":
            assert await consumer.receive(5) is not None
            began_s = stage.loop.time()
            with pytest.raises(errors.TransactionRolledBackError, match=_TOLD):
                await consumer.receive(10 * _LIMIT_S)
            assert stage.loop.time() - began_s < _OVER_S
        else:
            await asyncio.sleep(_OVER_S)
        if way in ("receive", "send"):
            for _ in range(2):
                with pytest.raises(errors.TransactionRolledBackError, match=_TOLD):
                    await (consumer.receive(5) if way == "receive" else producer.send("never"))
        if way == "commit":
            with pytest.raises(errors.TransactionRolledBackError, match=_TOLD):
                await session.commit()
        elif way != "close":
            await session.rollback()
        if way != "close":
            async with session.transaction():
                await producer.send("from the next")
        await session.close()
        assert await _found(connection, "out") == ([] if way == "close" else [("from the next", False, 1)])
        seen = 2 if way == "waiting" else 1
        expected = [("0", True, 2), ("1", seen == 2, seen)]
        assert await _found(connection, "in") == expected

    play()


@pytest.mark.covers("EMS-TX-A02")
@pytest.mark.parametrize("received", [True, False])
def test_a_commit_at_the_last_moment_is_done_wholly_or_refused(received: bool) -> None:
    @staged
    async def play(stage: Stage) -> None:
        broker, connection, session = await _begun(stage, 0)
        consumer, producer = await session.consumer("in"), await session.producer("out")
        outcomes = set()
        # The broker looks once a second at most.
        for step in (*range(-20, 120, 5), 1_100):
            await connection.send("in", str(step))
            if received:
                assert await consumer.receive(5) is not None
            await producer.send(f"from {step}")
            await asyncio.sleep(_LIMIT_S + step / 1000 - (0.1 if step < 0 else 0.0))
            try:
                await session.commit()
                is_committed = True
            except errors.TransactionRolledBackError:
                is_committed = False
            outcomes.add(is_committed)
            found = [body for body, *_ in await _found(connection, "out")]
            assert found == ([f"from {step}"] if is_committed else []), step
            if not received or not is_committed:
                message = await consumer.receive(5)
                assert message is not None
                assert (message.body, message.redelivered) == (str(step), received)
                await session.commit()
            rows = [one for one in broker.connections() if not one["peer"].startswith("internal:")]
            assert sum(one["unacknowledged_messages"] for one in rows) == 0, step
        assert outcomes == {True, False}

    play()


@staged
async def test_transactions_that_end_in_time_go_on_for_ever(stage: Stage) -> None:
    _, connection, session = await _begun(stage, 20)
    consumer, producer = await session.consumer("in", prefetch=10), await session.producer("out")
    for number in range(20):
        async with session.transaction():
            message = await consumer.receive(5)
            assert message is not None
            assert (message.body, message.redelivered) == (str(number), False)
            await producer.send("x")
            await asyncio.sleep(_LIMIT_S / 2)
        # What is only fetched is in no transaction.
        await asyncio.sleep(2 * _LIMIT_S if number == 10 else 0)
    await session.close()
    assert len(await _found(connection, "out")) == 20


@pytest.mark.covers("EMS-TX-A02")
@staged
async def test_a_restart_in_between_changes_nothing_of_it(stage: Stage) -> None:
    broker, connection, session = await _begun(stage, 1)
    consumer, producer = await session.consumer("in"), await session.producer("out")
    for stops_after_s in (_LIMIT_S / 2, _OVER_S):
        message = await consumer.receive(30)
        assert message is not None
        await producer.send("never")
        await asyncio.sleep(stops_after_s)
        broker.kill(power=True)
        await broker.start()
        with pytest.raises(errors.TransactionRolledBackError):
            await session.commit()
    # The limit is as it was, also for who was connected before.
    assert await consumer.receive(30) is not None
    await producer.send("never")
    await asyncio.sleep(_OVER_S)
    with pytest.raises(errors.TransactionRolledBackError, match=_TOLD):
        await session.commit()
    await session.close()
    [(body, is_flagged, _)] = await _found(connection, "in")
    assert (body, is_flagged) == ("0", True)
    assert await _found(connection, "out") == []


@staged
async def test_what_is_given_back_or_released_in_it_comes_once_more_and_not_twice(stage: Stage) -> None:
    _, connection, session = await _begun(stage, 2)
    consumer = await session.consumer("in", prefetch=0)
    first, second = await consumer.receive(5), await consumer.receive(5)
    assert first is not None
    assert second is not None
    first.release()
    await asyncio.sleep(_OVER_S)
    with pytest.raises(errors.TransactionRolledBackError, match=_TOLD):
        await session.commit()
    await session.close()
    assert await _found(connection, "in") == [("0", True, 2), ("1", True, 2)]


@staged
async def test_a_listener_is_told_and_gets_its_message_again(stage: Stage) -> None:
    _, connection, session = await _begun(stage, 1)
    told: list[Any] = []
    taken: list[tuple[Any, int]] = []
    connection.on_error(told.append)

    async def listener(message: sterna.Message) -> None:
        taken.append((message.body, message.delivery_count))
        if len(taken) == 1:
            await asyncio.sleep(_OVER_S)
        await session.commit()

    await session.consumer("in", listener=listener)
    await stage.until(lambda: len(taken) == 2, timeout_s=2 * _LIMIT_S)
    await asyncio.sleep(1)
    await session.close()
    assert taken == [("0", 1), ("0", 2)]
    assert any("limits.transactionMs" in str(one) for one in told)
    assert await _found(connection, "in") == []


@staged
async def test_without_a_limit_it_is_open_as_long_as_its_session(stage: Stage) -> None:
    connection = await stage.connect(await stage.broker())
    await connection.send("in", "0")
    session = await connection.session(transacted=True)
    assert await (await session.consumer("in")).receive(5) is not None
    await asyncio.sleep(100 * _LIMIT_S)
    await session.commit()
    await session.close()
    assert await _found(connection, "in") == []
