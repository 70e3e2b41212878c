"""`$sys.undelivered`: what is kept there, for which reasons, and how it is found again (EMS-MSG-A08 to A10)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    PERSISTENT,
    PRESERVE_UNDELIVERED,
    UNDELIVERED,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import holds, session_of
from tests.waiting import eventually


async def found(provider: Provider, word: str, count: int) -> list[Any]:
    """The messages with this word in `$sys.undelivered`, as soon as there are so many."""

    async def look() -> list[Any]:
        messages = list(await provider.browse(UNDELIVERED, f"word = '{word}'"))
        return messages if len(messages) >= count else []

    messages: list[Any] = await eventually(look, what=f"{count} undelivered messages")
    assert len(messages) == count
    return messages


# The property, and whether the message is kept: only a boolean true does.
FLAGS: list[tuple[dict[str, Any], bool]] = [
    ({PRESERVE_UNDELIVERED: True}, True),
    ({PRESERVE_UNDELIVERED: False}, False),
    ({PRESERVE_UNDELIVERED: "true"}, False),
    ({PRESERVE_UNDELIVERED: 1}, False),
    ({}, False),
]


@pytest.mark.covers("EMS-MSG-A08", "EMS-MSG-A04", "EMS-MSG-A09", "EMS-MSG-D02", "FMQ-MSG-08")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT])
async def test_what_expires_is_kept_when_its_sender_asked_for_that(
    provider: Provider, session: Session, queue: Queue, word: str, mode: str
) -> None:
    for number, (flag, _) in enumerate(FLAGS):
        properties = {"word": word, "number": number, **flag}
        await session.send(queue, "x", properties=properties, time_to_live_ms=1, delivery_mode=mode)
    await holds(provider, queue, 0)
    expected = [number for number, (_, kept) in enumerate(FLAGS) if kept]
    assert [one.properties["number"] for one in await found(provider, word, len(expected))] == expected


@pytest.mark.covers("EMS-MSG-A08", "EMS-DEST-A14", "EMS-MSG-A04")
async def test_what_outlives_the_destinations_expiration_is_kept_too(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    await provider.define(queue, expiration=1)
    await session.send(queue, "asked", properties={"word": word, PRESERVE_UNDELIVERED: True})
    await session.send(queue, "did not", properties={"word": word})
    [kept] = await found(provider, word, 1)
    assert (kept.body, str(kept.destination)) == ("asked", str(queue))


@pytest.mark.covers("EMS-MSG-A08", "EMS-DEST-A23")
async def test_what_was_delivered_too_often_is_kept_when_its_sender_asked_for_that(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    await provider.define(queue, maxRedelivery=2)
    for number, (flag, _) in enumerate(FLAGS):
        await session.send(queue, "x", properties={"word": word, "number": number, **flag})
    taking = await session_of(provider, Mode.TRANSACTED)
    consumer = await taking.consumer(queue)
    for _ in range(2):
        for _ in FLAGS:
            await consumer.receive()
        await taking.rollback()
    await holds(provider, queue, 0)
    expected = [number for number, (_, kept) in enumerate(FLAGS) if kept]
    kept = await found(provider, word, len(expected))
    assert [one.properties["number"] for one in kept] == expected


@pytest.mark.covers("EMS-MSG-A08", "EMS-DEST-A64")
async def test_what_falls_due_at_a_full_queue_is_kept_when_its_sender_asked_for_that(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    await provider.define(queue, maxmsgs=1, overflowPolicy="rejectIncoming")
    await session.send(queue, "fills it")
    # What is delayed has room of its own, so the queue may be full by the time that it falls due.
    await session.send(queue, "asked", properties={"word": word, PRESERVE_UNDELIVERED: True}, delivery_delay_ms=1)
    [kept] = await found(provider, word, 1)
    assert (kept.body, str(kept.destination)) == ("asked", str(queue))
    assert [one.body for one in await provider.browse(queue)] == ["fills it"]


@pytest.mark.covers("EMS-MSG-A08", "EMS-DEST-A24")
async def test_what_discard_old_drops_is_lost_whoever_asked(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    await provider.define(queue, maxmsgs=1, overflowPolicy="discardOld")
    await session.send(queue, "old", properties={"word": word, PRESERVE_UNDELIVERED: True})
    await session.send(queue, "new", properties={"word": word, PRESERVE_UNDELIVERED: True})
    assert [one.body for one in await provider.browse(queue)] == ["new"]
    # What is kept comes in the order in which it went: so had the old one been kept, it would stand before this one.
    expiring = Queue(f"any.{word}.expiring")
    await session.send(expiring, "expired", properties={"word": word, PRESERVE_UNDELIVERED: True}, time_to_live_ms=1)
    [kept] = await found(provider, word, 1)
    assert kept.body == "expired"


@pytest.mark.covers("EMS-MSG-A08")
async def test_what_is_purged_is_lost_whoever_asked(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    await session.send(queue, "purged", properties={"word": word, PRESERVE_UNDELIVERED: True})
    assert await provider.purge(queue) == 1
    await session.send(queue, "expired", properties={"word": word, PRESERVE_UNDELIVERED: True}, time_to_live_ms=1)
    [kept] = await found(provider, word, 1)
    assert kept.body == "expired"


@pytest.mark.covers("EMS-MSG-A09", "EMS-DEST-A65")
async def test_the_undelivered_queue_is_always_there_and_cannot_be_deleted(provider: Provider) -> None:
    assert UNDELIVERED.name in await provider.names(Queue, "$sys.>")
    assert (await provider.held(UNDELIVERED)).origin == "system"
    with refused(provider, Refusal.NOT_ALLOWED, Refusal.INVALID_NAME, Refusal.CONFLICT):
        await provider.delete(UNDELIVERED)
    assert UNDELIVERED.name in await provider.names(Queue, "$sys.>")


@pytest.mark.covers("EMS-MSG-A09")
async def test_nobody_sends_to_the_undelivered_queue(provider: Provider, session: Session) -> None:
    with refused(provider, Refusal.NOT_ALLOWED, Refusal.INVALID_NAME):
        await session.send(UNDELIVERED, "x")


@pytest.mark.covers("EMS-MSG-A09", "FMQ-MSG-08")
async def test_it_is_emptied_by_a_consumer_or_by_a_purge(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    for number in range(2):
        properties = {"word": word, "number": number, PRESERVE_UNDELIVERED: True}
        await session.send(queue, f"m{number}", properties=properties, time_to_live_ms=1)
    await found(provider, word, 2)
    consumer = await session.consumer(UNDELIVERED, selector=f"word = '{word}' AND number = 0")
    assert (await consumer.receive()).body == "m0"
    await consumer.close()
    await found(provider, word, 1)
    assert await provider.purge(UNDELIVERED) >= 1
    assert await provider.browse(UNDELIVERED, f"word = '{word}'") == []


# Selectors over the original destination, with the test's word in place of {w}, and what matches.
ORIGINS = [
    ("JMSDestination = 'Queue[any.{w}.q]'", "q"),
    ("JMSDestination = 'Topic[any.{w}.t]'", "t"),
    ("JMSDestination = 'queue[any.{w}.q]'", ""),
    ("JMSDestination = 'any.{w}.q'", ""),
    ("JMSDestination <> 'Queue[any.{w}.q]'", "t"),
    ("JMSDestination LIKE 'Queue[%'", "q"),
    ("JMSDestination LIKE 'Topic[any.%.t]'", "t"),
    ("JMSDestination LIKE '%[any.{w}.%]'", "qt"),
    ("JMSDestination NOT LIKE '%.q]'", "t"),
    ("JMSDestination IN ('Queue[any.{w}.q]', 'Topic[other]')", "q"),
    ("JMSDestination NOT IN ('Queue[any.{w}.q]')", "t"),
    ("JMSDestination IS NULL", ""),
    ("JMSDestination IS NOT NULL", "qt"),
    ("JMSDestination = 'Queue[any.{w}.q]' OR JMSDestination LIKE 'Topic%'", "qt"),
    ("JMSDestination LIKE '%q]' AND JMSDestination LIKE 'Queue%'", "q"),
]


@pytest.mark.covers("EMS-MSG-A10")
async def test_selectors_there_may_ask_where_a_message_was_sent(
    provider: Provider, session: Session, word: str
) -> None:
    queue, topic = Queue(f"any.{word}.q"), Topic(f"any.{word}.t")
    await provider.define_durable(topic, word, client_id=word)
    for name, place in (("q", queue), ("t", topic)):
        await session.send(place, name, properties={"word": word, PRESERVE_UNDELIVERED: True}, time_to_live_ms=1)
    await found(provider, word, 2)
    for selector, expected in ORIGINS:
        text = f"word = '{word}' AND ({selector.replace('{w}', word)})"
        matching = "".join(sorted(one.body for one in await provider.browse(UNDELIVERED, text)))
        assert matching == expected, selector
    # A consumer takes by the same.
    consumer = await session.consumer(UNDELIVERED, selector=f"JMSDestination = '{topic}' AND word = '{word}'")
    assert (await consumer.receive()).body == "t"


@pytest.mark.covers("EMS-MSG-A10", "EMS-CLI-A11")
async def test_elsewhere_no_selector_may_ask_for_the_destination(
    provider: Provider, session: Session, queue: Queue, topic: Topic
) -> None:
    for place in (queue, topic):
        with refused(provider, Refusal.INVALID_SELECTOR):
            await session.consumer(place, selector=f"JMSDestination = '{place}'")
