"""Transactions: sends and acknowledgements together, or not at all (EMS-TX-A03 to A05)."""

from __future__ import annotations

import time

import pytest
from sterna import AcknowledgeMode, Durability, Topic, errors

from tests.running import ANYTHING, RunningBroker, manifest
from tests.sdk.conftest import Connect, drain
from tests.sdk.test_receiving import send


@pytest.mark.covers("EMS-TX-A03", "EMS-CLI-A05")
async def test_nothing_is_seen_before_the_commit(connect: Connect, name: str) -> None:
    connection = await connect()
    watching = await connection.consumer(f"{name}.out")
    await send(connection, name, 3)
    session = await connection.session(transacted=True)
    consumer = await session.consumer(name, prefetch=3)
    producer = await session.producer(f"{name}.out")
    sent = []
    for _ in range(2):
        message = await consumer.receive(5)
        assert message is not None
        sent.append(await producer.send(f"from {message.body}"))
    assert [one.durability for one in sent] == [None, None]
    assert await watching.receive(0.2) is None
    assert await session.commit() == Durability.DURABLE
    found = await drain(watching, 2)
    assert [one.body for one in found] == ["from 0", "from 1"]
    assert [one.message_id for one in found] == [one.message_id for one in sent]
    await session.close()
    assert [(one.body, one.redelivered) for one in await drain(await connection.consumer(name), 1)] == [("2", False)]


@pytest.mark.covers("EMS-TX-A05", "EMS-MSG-A20")
async def test_a_rollback_undoes_sends_and_receives(connect: Connect, name: str) -> None:
    connection = await connect()
    watching = await connection.consumer(f"{name}.out")
    await send(connection, name, 4)
    async with await connection.session(transacted=True) as session:
        consumer = await session.consumer(name, prefetch=4)
        producer = await session.producer(f"{name}.out")
        for _ in range(3):
            with pytest.raises(RuntimeError):
                async with session.transaction():
                    message = await consumer.receive(5)
                    assert message is not None
                    assert message.body == "0"
                    await producer.send("never")
                    raise RuntimeError("no")
        async with session.transaction():
            found = [await consumer.receive(5) for _ in range(4)]
        assert [(one.body, one.redelivered) for one in found if one] == [
            ("0", True),
            ("1", False),
            ("2", False),
            ("3", False),
        ]
    assert await drain(watching) == []
    assert await drain(await connection.consumer(name)) == []


async def test_many_rollbacks_never_stall(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 20)
    async with await connection.session(transacted=True) as session:
        consumer = await session.consumer(name, prefetch=3)
        for _ in range(15):
            assert await consumer.receive(5) is not None
            await session.rollback()
        found = []
        for _ in range(20):
            async with session.transaction():
                message = await consumer.receive(5)
                assert message is not None
                found.append(message.body)
    assert found == [str(number) for number in range(20)]


async def test_closing_a_session_rolls_back(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    async with await connection.session(transacted=True) as session:
        assert await (await session.consumer(name)).receive(5) is not None
        await (await session.producer(f"{name}.out")).send("never")
    found = await drain(await connection.consumer(name), 1)
    assert [(one.body, one.redelivered) for one in found] == [("0", True)]
    assert await drain(await connection.consumer(f"{name}.out")) == []


@pytest.mark.covers("EMS-TX-A02", "EMS-TX-A05")
@pytest.mark.parametrize(
    "own_broker", [(*ANYTHING, manifest("Broker", "b", "limits: {transactionMs: 300}"))], indirect=True
)
async def test_what_is_open_for_too_long_is_rolled_back(own_broker: RunningBroker, connect: Connect) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    other = await connection.consumer("in", prefetch=0)
    async with await connection.session(transacted=True) as session:
        consumer, producer = await session.consumer("in", prefetch=0), await session.producer("out")
        for _ in range(2):
            await connection.send("in", "x")
            assert await consumer.receive(5) is not None
            await producer.send("never")
            # It comes again, and to others, though nothing was said here.
            message = await other.receive(10)
            assert message is not None
            assert (message.body, message.redelivered, message.delivery_count) == ("x", True, 2)
            with pytest.raises(errors.TransactionRolledBackError, match=r"300 ms \(limits\.transactionMs\)"):
                await session.commit()
        await producer.send("at last")
        await session.commit()
    assert [one.body for one in await drain(await connection.consumer("out"), 1)] == ["at last"]


@pytest.mark.covers("EMS-TX-A04", "EMS-MSG-A03")
async def test_a_delay_counts_from_the_send(connect: Connect, name: str) -> None:
    connection = await connect()
    watching = await connection.consumer(name)
    async with await connection.session(transacted=True) as session:
        producer = await session.producer(name)
        began_ms = time.time_ns() // 1_000_000
        sent = await producer.send("x", delivery_delay_ms=400)
        assert sent.delivery_time_ms == sent.timestamp_ms + 400
        assert await watching.receive(0.3) is None
        await session.commit()
    message = await watching.receive(5)
    assert message is not None
    assert message.delivery_time_ms - began_ms < 650  # from the commit it would be 700 and more


async def test_an_empty_transaction_costs_nothing(connect: Connect) -> None:
    connection = await connect()
    async with await connection.session(transacted=True) as session:
        assert await session.commit() is None
        await session.rollback()


async def test_only_transacted_sessions_have_transactions(connect: Connect) -> None:
    connection = await connect()
    async with await connection.session(AcknowledgeMode.CLIENT) as session:
        with pytest.raises(errors.NotAllowedError):
            await session.commit()
        with pytest.raises(errors.NotAllowedError):
            async with session.transaction():
                pass
    async with await connection.session(transacted=True) as session:
        with pytest.raises(errors.NotAllowedError):
            await session.recover()


FULL = [manifest("Queue", "small", "maxMessages: 1, overflowPolicy: rejectIncoming"), manifest("Queue", "free")]


@pytest.mark.covers("EMS-TX-A02")
@pytest.mark.parametrize("own_broker", [FULL], indirect=True)
async def test_a_refused_message_fails_the_whole_transaction(own_broker: RunningBroker, connect: Connect) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    await connection.send("small", "takes the place")
    async with await connection.session(transacted=True) as session:
        producer = await session.producer()
        with pytest.raises(errors.TransactionRolledBackError):
            async with session.transaction():
                await producer.send("free", destination="free")
                await producer.send("refused", destination="small")
        async with session.transaction():  # the session goes on
            await producer.send("next", destination="free")
    assert [one.body for one in await drain(await connection.consumer("free"), 1)] == ["next"]


async def test_topics_take_part(connect: Connect, name: str) -> None:
    connection = await connect()
    consumer = await connection.consumer(Topic(name))
    async with await connection.session(transacted=True) as session:
        producer = await session.producer(Topic(name))
        async with session.transaction():
            for number in range(500):
                await producer.send_soon(str(number))
    assert len(await drain(consumer, 500)) == 500
