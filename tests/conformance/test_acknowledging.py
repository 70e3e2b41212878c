"""Acknowledge modes: what is acknowledged when, and what comes again.

Rows EMS-CLI-A04 to A08 and E01, EMS-MSG-A20, EMS-DEST-A23.

Whether a message is acknowledged is seen by an administrator (the queue holds it no more), and by who comes next.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.provider import (
    PRESERVE_UNDELIVERED,
    RETURNING,
    UNDELIVERED,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, holds, receive, send_all, session_of, waiting
from tests.waiting import eventually


@pytest.mark.covers("EMS-CLI-A05", "EMS-CLI-A04", "FMQ-CLI-03", "UM-CLI-A24")
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.DUPS_OK, Mode.NONE])
async def test_the_session_acknowledges_by_itself(
    provider: Provider, session: Session, queue: Queue, mode: Mode
) -> None:
    await send_all(session, queue, *"abc")
    taking = await session_of(provider, mode)
    assert await bodies(await taking.consumer(queue), 3) == ["a", "b", "c"]
    if mode is Mode.DUPS_OK:  # lazily: at the latest when it is closed
        await taking.close()
    await holds(provider, queue, 0)


# The mode; which of the messages a, b, c the application acknowledges, having been handed all; which are left.
ACKNOWLEDGEMENTS = [
    (Mode.CLIENT, "a", ""),
    (Mode.CLIENT, "c", ""),
    (Mode.CLIENT, "", "abc"),
    (Mode.EXPLICIT, "b", "ac"),
    (Mode.EXPLICIT, "c", "ab"),
    (Mode.EXPLICIT, "ca", "b"),
    (Mode.EXPLICIT, "", "abc"),
    (Mode.EXPLICIT_DUPS_OK, "b", "ac"),
    (Mode.EXPLICIT_DUPS_OK, "cab", ""),
    (Mode.TRANSACTED, "", "abc"),
]


@pytest.mark.covers(
    "EMS-CLI-A05", "EMS-CLI-A07", "EMS-CLI-A08", "EMS-MSG-A20", "EMS-CLI-A04", "FMQ-CLI-03", "UM-CLI-A24"
)
@pytest.mark.parametrize(("mode", "acknowledged", "left"), ACKNOWLEDGEMENTS)
async def test_what_the_application_acknowledges_is_done_with_and_the_rest_comes_again(
    provider: Provider, session: Session, queue: Queue, mode: Mode, acknowledged: str, left: str
) -> None:
    await send_all(session, queue, *"abc")
    taking = await session_of(provider, mode)
    messages = {message.body: message for message in await receive(await taking.consumer(queue), 3)}
    for name in acknowledged:
        await messages[name].acknowledge()
    await taking.close()
    await holds(provider, queue, len(left))
    again = await receive(await session.consumer(queue), len(left))
    assert "".join(message.body for message in again) == left
    # They had been handed to an application, which the flag and the count say.
    assert all((message.redelivered, message.delivery_count) == (True, 2) for message in again)


# In CLIENT mode: which of the messages a, b, c are acknowledged alone, one after the other; then which in the mode's
# way, or the session recovers, or the client vanishes; which are left.
SCOPES = [
    ("b", "", "ac"),
    ("c", "", "ab"),
    ("ca", "", "b"),
    ("abc", "", ""),
    ("bb", "", "ac"),
    ("b", "a", ""),
    ("b", "b", ""),
    ("b", "recovers", "ac"),
    ("c", "vanishes", "ab"),
]


@pytest.mark.covers("EMS-CLI-A05", "EMS-MSG-A20")
@pytest.mark.parametrize(("alone", "then", "left"), SCOPES)
async def test_one_message_alone_is_acknowledged_and_what_comes_later_covers_the_rest(
    provider: Provider, session: Session, queue: Queue, alone: str, then: str, left: str
) -> None:
    await send_all(session, queue, *"abc")
    connection = await provider.connect()
    taking = await connection.session(Mode.CLIENT)
    consumer = await taking.consumer(queue, prefetch=10)
    messages = {message.body: message for message in await receive(consumer, 3)}
    for name in alone:
        assert await messages[name].acknowledge(alone=True)
    await holds(provider, queue, 3 - len(set(alone)))
    if then in messages:
        await messages[then].acknowledge()
    elif then == "recovers":
        await taking.recover()
        again = await receive(consumer, len(left))
        assert "".join(message.body for message in again) == left
    await (connection.vanish if then == "vanishes" else connection.close)()
    await holds(provider, queue, len(left))
    again = await receive(await session.consumer(queue), len(left))
    assert "".join(message.body for message in again) == left
    count = 3 if then == "recovers" else 2
    assert all((message.redelivered, message.delivery_count) == (True, count) for message in again)


# The mode, and which of a, b, c are left when b is acknowledged alone.
@pytest.mark.covers("EMS-CLI-A05", "EMS-CLI-A07", "EMS-CLI-A08")
@pytest.mark.parametrize(
    ("mode", "left"), [(Mode.AUTO, ""), (Mode.EXPLICIT, "ac"), (Mode.EXPLICIT_DUPS_OK, "ac"), (Mode.TRANSACTED, "abc")]
)
async def test_in_other_modes_a_message_acknowledged_alone_is_as_any_acknowledged(
    provider: Provider, session: Session, queue: Queue, mode: Mode, left: str
) -> None:
    await send_all(session, queue, *"abc")
    taking = await session_of(provider, mode)
    messages = await receive(await taking.consumer(queue), 3)
    await messages[1].acknowledge(alone=True)
    await taking.close()
    await holds(provider, queue, len(left))
    assert "".join(await waiting(provider, queue)) == left


@pytest.mark.covers("EMS-CLI-A05")
async def test_an_acknowledgement_covers_what_the_session_was_handed_and_not_what_was_fetched(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, *"abcd")
    taking = await session_of(provider, Mode.CLIENT)
    messages = await receive(await taking.consumer(queue, prefetch=10), 2)
    await messages[1].acknowledge()
    await taking.close()
    again = await receive(await session.consumer(queue), 2)
    assert [(one.body, one.redelivered, one.delivery_count) for one in again] == [("c", False, 1), ("d", False, 1)]


@pytest.mark.covers("EMS-CLI-A05")
async def test_an_acknowledgement_covers_all_consumers_of_its_session_and_no_other_session(
    provider: Provider, session: Session, word: str
) -> None:
    first, second, third = (Queue(f"any.{word}.{name}") for name in "abc")
    for queue in (first, second, third):
        await session.send(queue, "x")
    connection = await provider.connect()
    one, other = await connection.session(Mode.CLIENT), await connection.session(Mode.CLIENT)
    await (await one.consumer(first)).receive()
    await (await other.consumer(third)).receive()
    message = await (await one.consumer(second)).receive()
    await message.acknowledge()
    await connection.close()
    await holds(provider, first, 0)
    await holds(provider, second, 0)
    await holds(provider, third, 1)


@pytest.mark.covers("EMS-CLI-A07")
async def test_a_message_acknowledged_twice_is_no_harm(provider: Provider, session: Session, queue: Queue) -> None:
    await send_all(session, queue, "a", "b")
    taking = await session_of(provider, Mode.EXPLICIT)
    first, _ = await receive(await taking.consumer(queue), 2)
    await first.acknowledge()
    await first.acknowledge()
    await taking.close()
    assert await waiting(provider, queue) == ["b"]


@pytest.mark.covers("EMS-CLI-A05", "EMS-CLI-E01")
@pytest.mark.parametrize("mode", [Mode.CLIENT, Mode.EXPLICIT])
async def test_who_acknowledges_after_the_session_was_closed_is_told(
    provider: Provider, session: Session, queue: Queue, mode: Mode
) -> None:
    await session.send(queue, "x")
    taking = await session_of(provider, mode)
    message = await (await taking.consumer(queue)).receive()
    await taking.close()
    for alone in (False, True):
        with refused(provider, Refusal.CLOSED):
            await message.acknowledge(alone=alone)
    assert await waiting(provider, queue) == ["x"]


@pytest.mark.covers("EMS-CLI-A05", "EMS-MSG-A20")
@pytest.mark.parametrize("mode", [Mode.CLIENT, Mode.EXPLICIT])
async def test_recover_delivers_what_is_unacknowledged_again_in_its_order(
    provider: Provider, session: Session, queue: Queue, mode: Mode
) -> None:
    await send_all(session, queue, *"abcd")
    taking = await session_of(provider, mode)
    consumer = await taking.consumer(queue, prefetch=10)
    assert await bodies(consumer, 2) == ["a", "b"]
    await taking.recover()
    again = await receive(consumer, 4)
    seen = [(one.body, one.redelivered, one.delivery_count) for one in again]
    # What had only been fetched was not delivered: neither flag nor count.
    assert seen == [("a", True, 2), ("b", True, 2), ("c", False, 1), ("d", False, 1)]


@pytest.mark.covers("EMS-CLI-A06")
async def test_without_acknowledgements_a_message_is_forgotten_once_it_is_sent(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, *"ab")
    connection = await provider.connect()
    consumer = await (await connection.session(Mode.NONE)).consumer(queue, prefetch=10)
    assert (await consumer.receive()).body == "a"
    await holds(provider, queue, 0)  # b was not seen by anybody, and is at most once
    await connection.vanish()
    assert (await provider.held(queue)).messages == 0


@pytest.mark.covers("EMS-CLI-A06")
async def test_without_acknowledgements_there_is_no_durable_subscription(
    provider: Provider, topic: Topic, word: str
) -> None:
    taking = await session_of(provider, Mode.NONE, client_id=word)
    named: list[dict[str, Any]] = [{"durable": word}, {"durable": word, "shared": word}]
    for options in named:
        with refused(provider, Refusal.NOT_ALLOWED):
            await taking.consumer(topic, **options)
    # A plain subscription is one.
    consumer = await taking.consumer(topic)
    await taking.send(topic, "x")
    assert (await consumer.receive()).body == "x"


# How the consumer goes, which of four messages (two handed out, two only fetched) are flagged then.
ENDINGS = [("closes", [True, True, False, False]), ("vanishes", [True, True, True, True])]


@pytest.mark.covers("EMS-DEST-A23", "EMS-MSG-A20", "EMS-DEST-A28")
@pytest.mark.parametrize(("how", "flags"), ENDINGS)
async def test_what_was_fetched_and_not_seen_counts_when_its_client_vanishes_and_only_then(
    provider: Provider, session: Session, queue: Queue, how: str, flags: list[bool]
) -> None:
    await send_all(session, queue, *"abcd")
    connection = await provider.connect()
    consumer = await (await connection.session(Mode.CLIENT)).consumer(queue, prefetch=10)
    await receive(consumer, 2)

    async def all_are_fetched() -> bool:
        return (await provider.held(queue)).delivered == 4

    await eventually(all_are_fetched)
    await (connection.close if how == "closes" else connection.vanish)()
    again = await receive(await session.consumer(queue), 4)
    assert [one.body for one in again] == ["a", "b", "c", "d"]
    assert [one.redelivered for one in again] == flags
    assert [one.delivery_count for one in again] == [2 if flag else 1 for flag in flags]


@pytest.mark.covers("EMS-DEST-A23", "EMS-MSG-A20")
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.DUPS_OK, Mode.TRANSACTED, Mode.EXPLICIT])
async def test_all_that_a_vanished_client_had_fetched_counts_toward_the_limit_whatever_its_mode(
    provider: Provider, session: Session, queue: Queue, mode: Mode, word: str
) -> None:
    await provider.define(queue, maxRedelivery=2)
    for body in "abc":
        await session.send(queue, body, properties={"word": word, PRESERVE_UNDELIVERED: body != "c"})

    async def all_are_fetched() -> bool:
        return (await provider.held(queue)).delivered == 3

    for _ in range(2):
        connection = await provider.connect()
        await (await connection.session(mode)).consumer(queue, prefetch=10)
        await eventually(all_are_fetched)
        await connection.vanish()
    # Nobody was ever handed one of them.
    await holds(provider, queue, 0)
    kept: list[Any] = list(await provider.browse(UNDELIVERED, f"word = '{word}'"))
    assert [one.body for one in kept] == ["a", "b"]


@pytest.mark.covers("EMS-DEST-A23")
@pytest.mark.parametrize("limit", [2, 3, 5])
async def test_a_message_is_delivered_as_often_as_max_redelivery_says_and_then_destroyed(
    provider: Provider, session: Session, queue: Queue, limit: int
) -> None:
    await provider.define(queue, maxRedelivery=limit)
    await session.send(queue, "x")
    taking = await session_of(provider, Mode.CLIENT)
    consumer = await taking.consumer(queue)
    for count in range(1, limit + 1):
        assert (await consumer.receive()).delivery_count == count
        await taking.recover()
    await holds(provider, queue, 0)


@pytest.mark.covers("EMS-DEST-A23")
async def test_without_max_redelivery_a_message_comes_as_often_as_it_takes(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, maxRedelivery=0)
    await session.send(queue, "x")
    taking = await session_of(provider, Mode.CLIENT)
    consumer = await taking.consumer(queue)
    for count in range(1, 30):
        assert (await consumer.receive()).delivery_count == count
        await taking.recover()
    assert (await consumer.receive()).body == "x"


@pytest.mark.covers("EMS-DEST-A31", "EMS-DEST-A23")
async def test_messages_that_were_only_fetched_do_not_follow_one_that_reached_its_limit(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    # The catalogue's example: prefetch 5 and maxRedelivery 4.
    await provider.define(queue, prefetch=5, maxRedelivery=4)
    for name in "abcde":
        await session.send(queue, name, properties={"word": word, PRESERVE_UNDELIVERED: True})
    taking = await session_of(provider, Mode.CLIENT)
    consumer = await taking.consumer(queue)
    for _ in range(4):
        assert (await consumer.receive()).body == "a"
        await taking.recover()
    rest = await receive(consumer, 4)
    assert [(one.body, one.delivery_count) for one in rest] == [(name, 1) for name in "bcde"]
    kept: list[Any] = list(await provider.browse(UNDELIVERED, f"word = '{word}'"))
    assert [one.body for one in kept] == ["a"]


@pytest.mark.covers("EMS-DEST-A23")
async def test_each_way_back_counts_toward_the_limit(provider: Provider, session: Session, queue: Queue) -> None:
    await provider.define(queue, maxRedelivery=4)
    await session.send(queue, "x")
    counts: list[int] = []
    for mode, how in (("t", "rollback"), ("c", "recover"), ("c", "close"), ("c", "vanish")):
        connection = await provider.connect()
        taking = await connection.session(Mode.TRANSACTED if mode == "t" else Mode.CLIENT)
        counts.append((await (await taking.consumer(queue)).receive()).delivery_count)
        if how == "rollback":
            await taking.rollback()
        elif how == "recover":
            await taking.recover()
        await (connection.vanish if how == "vanish" else connection.close)()
    assert counts == [1, 2, 3, 4]
    await holds(provider, queue, 0)


@pytest.mark.covers("EMS-CLI-A05", "EMS-DEST-A02")
async def test_a_subscriber_has_what_it_did_not_acknowledge_delivered_again(
    provider: Provider, session: Session, topic: Topic
) -> None:
    taking = await session_of(provider, Mode.CLIENT)
    consumer = await taking.consumer(topic)
    await send_all(session, topic, "a", "b")
    assert await bodies(consumer, 2) == ["a", "b"]
    await taking.recover()
    again = await receive(consumer, 2)
    assert [(one.body, one.redelivered) for one in again] == [("a", True), ("b", True)]
    await again[1].acknowledge()
    await session.send(topic, "c")
    assert (await consumer.receive()).body == "c"


@pytest.mark.covers("EMS-DEST-A32", "EMS-DEST-A33", "EMS-TX-A05")
@pytest.mark.parametrize("limit", [{"maxmsgs": 1}, {"maxbytes": 1_500}], ids=str)
async def test_what_waits_for_its_redelivery_leaves_its_queues_counts_and_limits_and_goes_with_a_purge(
    provider: Provider, session: Session, queue: Queue, limit: dict[str, int]
) -> None:
    await provider.define(queue, redeliveryDelay=15_000, **limit)
    await session.send(queue, "a" * 1_000)
    with refused(provider, Refusal.FULL):
        await session.send(queue, "b" * 1_000)
    taking = await session_of(provider, Mode.TRANSACTED)
    await (await taking.consumer(queue, prefetch=0)).receive()
    await taking.rollback()
    await holds(provider, queue, 0)
    assert (await provider.held(queue)).bytes == 0
    assert [one.body[0] for one in await provider.browse(RETURNING) if str(one.destination) == str(queue)] == ["a"]
    # There is room, and the limit counts what is there alone.
    await session.send(queue, "b" * 1_000)
    assert [body[0] for body in await waiting(provider, queue)] == ["b"]
    with refused(provider, Refusal.FULL):
        await session.send(queue, "c" * 1_000)
    await provider.purge(queue)
    assert [one for one in await provider.browse(RETURNING) if str(one.destination) == str(queue)] == []
    assert await waiting(provider, queue) == []
