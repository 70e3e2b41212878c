"""What of a transaction the send settles, and not the commit: where a message goes, its place, and its room.

Each is a deliberate difference from what a user of EMS may expect (tests/conformance/differences.toml has the rows).
They follow from the message's record, which names who gets it and its place with each, and is written at the send.
"""

from __future__ import annotations

import pytest
import sterna
from sterna import DeliveryMode, Topic, errors

from tests.running import ANYTHING, RunningBroker, manifest
from tests.sdk.conftest import Connect, drain

LIMITED = [
    manifest("Queue", "refusing", "maxMessages: 1"),
    manifest("Queue", "discarding", "maxMessages: 1, overflowPolicy: discardOld"),
    manifest("Topic", "passing", "maxMessages: 1"),
    *ANYTHING,
]


async def waiting(connection: sterna.Connection, queue: str) -> list[object]:
    """What is in a queue, in its order."""
    return [message.body async for message in connection.browser(queue)]


@pytest.mark.covers("EMS-TX-D01", "EMS-MSG-A15")
async def test_a_message_stands_where_it_was_sent_not_where_it_was_committed(connect: Connect, name: str) -> None:
    connection = await connect()
    async with await connection.session(transacted=True) as session:
        await (await session.producer(name)).send("sent first")
        await connection.send(name, "committed first")
        assert await waiting(connection, name) == ["committed first"]
        await session.commit()
    assert await waiting(connection, name) == ["sent first", "committed first"]


@pytest.mark.covers("EMS-CLI-A01", "EMS-TX-D01")
async def test_subscriptions_get_what_was_sent_after_they_were_made_whenever_it_is_committed(
    connect: Connect, name: str
) -> None:
    connection = await connect(client_id=name)
    topic = Topic(name)
    before = await connection.consumer(topic, durable="before")
    async with await connection.session(transacted=True) as session:
        producer = await session.producer(topic)
        await producer.send("before the second subscription")
        between = await connection.consumer(topic, durable="between")
        await producer.send("after it")
        await session.commit()
    assert [one.body for one in await drain(before, 2)] == ["before the second subscription", "after it"]
    assert [one.body for one in await drain(between, 1)] == ["after it"]


@pytest.mark.covers("EMS-TX-A06")
@pytest.mark.parametrize("own_broker", [LIMITED], indirect=True)
@pytest.mark.parametrize("is_committed", [False, True])
async def test_what_is_sent_takes_room_until_its_transaction_is_rolled_back(
    own_broker: RunningBroker, connect: Connect, is_committed: bool
) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    async with await connection.session(transacted=True) as session:
        await (await session.producer("refusing")).send("sent")
        with pytest.raises(errors.DestinationFullError):
            await connection.send("refusing", "too much")
        if is_committed:
            await session.commit()
            # No more than the limit, which EMS lets transactions exceed.
            assert await waiting(connection, "refusing") == ["sent"]
        else:
            await session.rollback()
            await connection.send("refusing", "fits again")
            assert await waiting(connection, "refusing") == ["fits again"]


@pytest.mark.covers("EMS-TX-A06", "EMS-DEST-A24")
@pytest.mark.parametrize("own_broker", [LIMITED], indirect=True)
async def test_nothing_is_discarded_for_what_is_not_committed(own_broker: RunningBroker, connect: Connect) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    await connection.send("discarding", "old")
    async with await connection.session(transacted=True) as session:
        producer = await session.producer("discarding")
        await producer.send("never")
        await session.rollback()
        assert await waiting(connection, "discarding") == ["old"]
        await producer.send("new")
        assert await waiting(connection, "discarding") == ["old"]
        await session.commit()
    assert await waiting(connection, "discarding") == ["new"]


@pytest.mark.covers("EMS-TX-A06", "EMS-DEST-A24")
@pytest.mark.parametrize("own_broker", [LIMITED], indirect=True)
async def test_a_subscriber_is_passed_over_for_what_is_not_committed(
    own_broker: RunningBroker, connect: Connect
) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    hearing = await connection.consumer(Topic("passing"))
    async with await connection.session(transacted=True) as session:
        await (await session.producer(Topic("passing"))).send("never")
        await connection.send(Topic("passing"), "passed over")
        await session.rollback()
    await connection.send(Topic("passing"), "heard")
    assert [one.body for one in await drain(hearing, 1)] == ["heard"]


@pytest.mark.covers("EMS-MSG-A19", "EMS-TX-A02", "EMS-TX-E02")
@pytest.mark.parametrize("own_broker", [LIMITED], indirect=True)
async def test_a_reliable_message_that_finds_no_room_is_refused_by_the_commit_alone(
    own_broker: RunningBroker, connect: Connect
) -> None:
    connection = await connect(f"sterna://{own_broker.address}")
    await connection.send("refusing", "takes the place")
    async with await connection.session(transacted=True) as session:
        producer = await session.producer()
        await producer.send("with it", destination="any.other")
        await producer.send("finds none", destination="refusing", delivery_mode=DeliveryMode.RELIABLE)
        await producer.send("behind it", destination="any.other")
        with pytest.raises(errors.TransactionRolledBackError, match="refusing"):
            await session.commit()
    assert await waiting(connection, "any.other") == []
    assert await waiting(connection, "refusing") == ["takes the place"]
