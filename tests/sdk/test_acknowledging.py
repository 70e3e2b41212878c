"""Acknowledge modes, recover and release: what comes again, and what does not (EMS-CLI-A05)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import sterna
from sterna import AcknowledgeMode, errors

from tests.sdk.conftest import Connect, drain
from tests.sdk.test_receiving import send

EXPLICIT = (AcknowledgeMode.EXPLICIT_CLIENT, AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK, AcknowledgeMode.INDIVIDUAL)


async def left(connect: Connect, name: str, count: int = 0) -> list[tuple[str, bool]]:
    """What another connection still finds, and whether it is flagged; so many are waited for patiently."""
    connection = await connect()
    found = await drain(await connection.consumer(name, prefetch=50), count)
    return [(one.body, one.redelivered) for one in found]


async def take(consumer: sterna.Consumer, count: int) -> list[sterna.Message]:
    found = []
    for _ in range(count):
        message = await consumer.receive(5)
        assert message is not None
        found.append(message)
    return found


@pytest.mark.covers("EMS-CLI-A05", "EMS-CLI-A04")
@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK], ids=lambda mode: mode.name)
async def test_the_session_acknowledges_what_was_received(connect: Connect, name: str, mode: AcknowledgeMode) -> None:
    connection = await connect()
    await send(connection, name, 5)
    async with await connection.session(mode) as session:
        await take(await session.consumer(name, prefetch=5), 3)
    assert await left(connect, name, 2) == [("3", False), ("4", False)]


@pytest.mark.covers("EMS-CLI-A05")
async def test_auto_is_acknowledged_on_return_from_receive(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 2)
    session = await connection.session()
    await take(await session.consumer(name, prefetch=1), 1)
    await session.flush()
    await connection._lifeline._link.abort()  # type: ignore[union-attr]  # vanishes without a word
    assert ("0", True) not in await left(connect, name)


@pytest.mark.covers("EMS-CLI-A05")
async def test_client_acknowledges_all_that_was_handed_out(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 6)
    await send(connection, f"{name}.2", 1)
    async with await connection.session(AcknowledgeMode.CLIENT) as session:
        consumer = await session.consumer(name, prefetch=6)
        messages = await take(consumer, 3)
        await take(await session.consumer(f"{name}.2"), 1)
        assert await messages[1].acknowledge() is True  # covers 0 to 2 and the other queue, not what was prefetched
        await take(consumer, 1)
    assert await left(connect, name, 3) == [("3", True), ("4", False), ("5", False)]
    assert await left(connect, f"{name}.2") == []


@pytest.mark.covers("EMS-CLI-A05")
async def test_client_acknowledges_one_message_alone(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 5)
    await send(connection, f"{name}.2", 2)
    async with await connection.session(AcknowledgeMode.CLIENT) as session:
        consumer = await session.consumer(name, prefetch=5)
        other = await session.consumer(f"{name}.2", prefetch=0)
        messages = await take(consumer, 4)
        elsewhere = await take(other, 1)
        assert await messages[2].acknowledge(alone=True) is True
        assert await messages[2].acknowledge(alone=True) is True  # as in the explicit modes
        with pytest.raises(errors.NotAllowedError, match="before"):
            messages[2].release()
        await session.recover()
        assert await messages[0].acknowledge(alone=True) is False  # void since then
        again = await take(consumer, 3)
        assert [(one.body, one.delivery_count) for one in again] == [("0", 2), ("1", 2), ("3", 2)]
        elsewhere = await take(other, 1)
        assert await elsewhere[0].acknowledge(alone=True) is True
        assert await left(connect, f"{name}.2", 1) == [("1", False)]
        assert await again[1].acknowledge() is True  # whatever is acknowledged by itself, this covers the rest
        await take(consumer, 1)
    assert await left(connect, name, 1) == [("4", True)]


@pytest.mark.covers("EMS-CLI-A05")
async def test_a_message_of_a_closed_consumer_is_acknowledged_alone(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 3)
    async with await connection.session(AcknowledgeMode.CLIENT) as session:
        consumer = await session.consumer(name, prefetch=3)
        messages = await take(consumer, 2)
        await consumer.close()
        assert await messages[1].acknowledge(alone=True) is True
    assert await left(connect, name, 2) == [("0", True), ("2", False)]


@pytest.mark.covers("EMS-CLI-A07", "EMS-CLI-A08", "EMS-CLI-A05")
@pytest.mark.parametrize("mode", EXPLICIT, ids=lambda mode: mode.name)
async def test_explicit_acknowledges_one_message(connect: Connect, name: str, mode: AcknowledgeMode) -> None:
    connection = await connect()
    await send(connection, name, 4)
    async with await connection.session(mode) as session:
        messages = await take(await session.consumer(name, prefetch=4), 4)
        messages[3].acknowledge()
        messages[1].acknowledge()
    assert await left(connect, name, 2) == [("0", True), ("2", True)]


@pytest.mark.parametrize("mode", EXPLICIT, ids=lambda mode: mode.name)
async def test_an_acknowledgement_that_is_awaited_does_not_wait_for_others(
    connect: Connect, name: str, mode: AcknowledgeMode
) -> None:
    connection = await connect()
    await send(connection, name, 2)
    session = await connection.session(mode)
    for message in await take(await session.consumer(name, prefetch=2), 2):
        async with asyncio.timeout(5):
            assert await message.acknowledge() is True
    assert await left(connect, name) == []


@pytest.mark.covers("EMS-CLI-A06", "EMS-CLI-A05")
async def test_none_is_at_most_once(connect: Connect, name: str) -> None:
    connection = await connect(client_id=name)
    await send(connection, name, 3)
    async with await connection.session(AcknowledgeMode.NONE) as session:
        await take(await session.consumer(name, prefetch=3), 1)
        with pytest.raises(errors.NotAllowedError):
            await session.consumer(sterna.Topic(name), durable="d")
    assert await left(connect, name) == []


@pytest.mark.covers("EMS-CLI-A05", "EMS-MSG-A20")
async def test_recover_delivers_again_in_order_and_flagged(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 5)
    async with await connection.session(AcknowledgeMode.CLIENT) as session:
        consumer = await session.consumer(name, prefetch=5)
        first = await take(consumer, 3)
        await session.recover()
        again = await take(consumer, 5)
        assert [one.body for one in again] == ["0", "1", "2", "3", "4"]
        assert [(one.redelivered, one.delivery_count) for one in again] == [(True, 2)] * 3 + [(False, 1)] * 2
        assert again[0].properties["JMSXDeliveryCount"] == 2
        assert await first[0].acknowledge() is False  # void since the recover
        await again[4].acknowledge()
    assert await left(connect, name) == []


async def test_recovering_again_and_again_never_stalls(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 40)
    async with await connection.session(AcknowledgeMode.CLIENT) as session:
        consumer = await session.consumer(name, prefetch=4)
        for _ in range(10):
            await take(consumer, 2)
            await session.recover()
        found = await take(consumer, 40)
        assert [one.body for one in found] == [str(number) for number in range(40)]


@pytest.mark.covers("EMS-MSG-A20", "EMS-DEST-A23")
async def test_a_released_message_comes_again_counted(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
        consumer = await session.consumer(name)
        message: sterna.Message | None = None
        for count in range(1, 5):
            (message,) = await take(consumer, 1)
            assert (message.delivery_count, message.redelivered) == (count, count > 1)
            message.release()
        assert message is not None
        with pytest.raises(errors.NotAllowedError):
            message.release()


async def test_a_scope_acknowledges_or_gives_back(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 2)
    async with await connection.session(AcknowledgeMode.INDIVIDUAL) as session:
        consumer = await session.consumer(name, prefetch=1)
        (first,) = await take(consumer, 1)
        async with first:
            pass
        (second,) = await take(consumer, 1)
        with pytest.raises(RuntimeError):
            async with second:
                raise RuntimeError("failed")
    assert await left(connect, name, 1) == [("1", True)]


async def test_what_the_session_acknowledged_cannot_be_given_back(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    (message,) = await take(await connection.consumer(name), 1)
    with pytest.raises(errors.NotAllowedError):
        message.release()


@pytest.mark.covers("EMS-CLI-A05")
async def test_acknowledging_after_the_session_closed_is_refused(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 1)
    session = await connection.session(AcknowledgeMode.CLIENT)
    (message,) = await take(await session.consumer(name), 1)
    await session.close()
    with pytest.raises(errors.ClosedError):
        message.acknowledge()
    assert message.body == "0"  # still readable


@pytest.mark.covers("EMS-DEST-A23")
async def test_a_vanished_client_counts_all_it_was_sent(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 4)
    vanishing = await connect()
    consumer = await vanishing.consumer(name, prefetch=4, acknowledge_mode=AcknowledgeMode.CLIENT)
    await take(consumer, 1)
    vanishing._lifeline._supervisor.cancel()  # type: ignore[union-attr]  # it shall not come back
    await vanishing._lifeline._link.abort()  # type: ignore[union-attr]
    found = await take(await connection.consumer(name, prefetch=4), 4)
    assert [(one.body, one.redelivered, one.delivery_count) for one in found] == [
        (str(number), True, 2) for number in range(4)
    ]


async def test_messages_of_a_closed_consumer_stay_with_the_session(connect: Connect, name: str) -> None:
    connection = await connect()
    await send(connection, name, 3)
    async with await connection.session(AcknowledgeMode.CLIENT) as session:
        consumer = await session.consumer(name, prefetch=3)
        messages = await take(consumer, 2)
        await consumer.close()
        assert await left(connect, name, 1) == [("2", False)]
        await messages[0].acknowledge()
    assert await left(connect, name) == []


@pytest.mark.covers("EMS-CLI-A09")
@pytest.mark.parametrize(
    ("mode", "again"),
    [
        (AcknowledgeMode.AUTO, []),
        (AcknowledgeMode.CLIENT, []),
        (AcknowledgeMode.DUPS_OK, []),
        (AcknowledgeMode.NONE, []),
        # Of two the second alone is acknowledged.
        *((mode, [("a", True)]) for mode in EXPLICIT),
        # Nobody commits.
        (AcknowledgeMode.TRANSACTED, [("a", True), ("b", True)]),
    ],
    ids=lambda value: value.name if isinstance(value, AcknowledgeMode) else "",
)
async def test_the_short_call_of_a_connection_takes_every_mode(
    connect: Connect, name: str, mode: AcknowledgeMode, again: list[tuple[str, bool]]
) -> None:
    connection = await connect()
    for body in ("a", "b"):
        await connection.send(name, body)
    async with await connection.consumer(name, acknowledge_mode=mode) as consumer:
        _, second = await take(consumer, 2)
        if mode in (AcknowledgeMode.CLIENT, *EXPLICIT):
            await second.acknowledge()
    await connection.send(name, "end")
    assert await left(connect, name, len(again) + 1) == [*again, ("end", False)]


@pytest.mark.covers("EMS-DEST-A32")
@pytest.mark.parametrize("destination", ["queue", "subscription"])
async def test_a_message_may_be_given_back_for_later(connect: Connect, name: str, destination: str) -> None:
    connection = await connect(client_id=name[-80:])
    session = await connection.session(AcknowledgeMode.INDIVIDUAL)
    place: sterna.Destination = sterna.Queue(name) if destination == "queue" else sterna.Topic(name)
    durable = "" if destination == "queue" else "later"
    consumer = await session.consumer(place, durable=durable, prefetch=1)
    for body in ("a", "b"):
        await connection.send(place, body)
    first = await consumer.receive(5)
    assert first is not None
    begun = time.monotonic()
    first.release(delay_ms=400)
    second = await consumer.receive(5)
    assert second is not None
    await second.acknowledge()
    again = await consumer.receive(5)
    assert again is not None
    assert time.monotonic() - begun >= 0.4
    assert (first.body, second.body, again.body, again.redelivered) == ("a", "b", "a", True)
    await again.acknowledge()


@pytest.mark.parametrize("delay_ms", [-1, 8 * 3_600_000 + 1, 2.5, 5e3, None])
async def test_no_message_is_given_back_for_what_is_no_delay(connect: Connect, name: str, delay_ms: Any) -> None:
    connection = await connect()
    await connection.send(name, "a")
    consumer = await connection.consumer(name, acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    message = await consumer.receive(5)
    assert message is not None
    with pytest.raises(errors.InvalidArgumentError, match="delay_ms"):
        message.release(delay_ms=delay_ms)
    assert await message.acknowledge() is True
