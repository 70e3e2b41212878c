"""What an administrator sees of destinations and subscriptions, and does with them.

Rows EMS-DEST-B09 to B11, B15, A05, EMS-MON-B03 to B09.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    Destination,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, receive, send_all, session_of, until_end
from tests.waiting import eventually


async def _kept(provider: Provider, name: str, *, client_id: str = "") -> list[Any]:
    """The bodies of what a durable subscription holds."""
    return [message.body for message in await provider.browse_durable(name, client_id=client_id)]


@pytest.mark.covers("EMS-DEST-B15", "UM-CLI-B23", "UM-STORE-A10")
async def test_a_purge_of_a_topic_drops_what_each_subscriber_of_it_has_waiting(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    taking = await session_of(provider, Mode.CLIENT)
    plain = await taking.consumer(topic, prefetch=1)
    await provider.define_durable(topic, f"{word}-d", client_id=word)
    await provider.define_durable(topic, f"{word}-s", shared=True)
    await send_all(session, topic, *"abc")
    assert (await plain.receive()).body == "a"  # in hand: it does not come again
    assert await provider.purge(topic) == 9
    await taking.recover()
    await session.send(topic, "end")
    assert await until_end(plain) == []
    assert await _kept(provider, f"{word}-d", client_id=word) == ["end"]
    assert await _kept(provider, f"{word}-s") == ["end"]


@pytest.mark.covers("EMS-DEST-B15")
async def test_a_subscription_to_a_pattern_is_purged_under_its_pattern(
    provider: Provider, session: Session, word: str
) -> None:
    first, second, pattern = (Topic(f"any.{word}.{name}") for name in ("a", "b", "*"))
    await provider.define_durable(first, f"{word}-1", client_id=word)
    await provider.define_durable(pattern, f"{word}-p", client_id=word)
    for place in (first, second):
        await session.send(place, place.name)
    assert await provider.purge(first) == 1
    assert await _kept(provider, f"{word}-1", client_id=word) == []
    assert await _kept(provider, f"{word}-p", client_id=word) == [first.name, second.name]
    assert await provider.purge(pattern) == 2
    assert await _kept(provider, f"{word}-p", client_id=word) == []
    assert await provider.purge(second) == 0  # nobody subscribes to that alone
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await provider.purge(Topic(f"any.{word}.never"))


@pytest.mark.covers("EMS-DEST-B09", "EMS-DEST-B10", "EMS-DEST-B11", "EMS-DEST-A41")
async def test_a_property_is_added_or_taken_away_by_defining_again_and_the_others_stay(
    provider: Provider, kind: type[Destination], word: str
) -> None:
    place = kind(f"{word}.defined")

    async def found() -> tuple[Any, Any]:
        effective = await provider.effective(place)
        return effective["maxmsgs"], effective["expiration"]

    await provider.define(place, maxmsgs=7)
    assert await found() == (7, None)
    await provider.define(place, maxmsgs=7, expiration=60_000)
    assert await found() == (7, 60_000)
    await provider.define(place, expiration=60_000)
    assert await found() == (0, 60_000)


@pytest.mark.covers("EMS-MON-B06")
async def test_of_a_queue_what_it_holds_who_receives_and_what_is_delivered_are_seen(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, *"abcd")
    await session.send(queue, "e", delivery_mode=NON_PERSISTENT)
    taking = await session_of(provider, Mode.CLIENT)
    consumer, idle = await taking.consumer(queue, prefetch=2), await taking.consumer(queue, prefetch=0)
    await receive(consumer, 1)

    async def is_settled() -> bool:
        return (await provider.held(queue)).delivered == 3

    # One in hand and two that were sent ahead; all of them count as pending, too.
    await eventually(is_settled, what="two that are sent ahead")
    found = await provider.held(queue)
    assert (found.messages, found.consumers, found.origin) == (5, 2, "dynamic")
    assert found.bytes > 0
    assert (found.received, found.sent) == (5, 3)
    await idle.close()
    await taking.close()
    assert (await provider.held(queue)).consumers == 0


@pytest.mark.covers("EMS-MON-B08")
async def test_of_a_topic_copies_are_counted_for_each_subscriber(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    consumer = await session.consumer(topic)
    for name in "de":
        await provider.define_durable(topic, f"{word}-{name}", client_id=word)
    await send_all(session, topic, "x", "y")
    assert await bodies(consumer, 2) == ["x", "y"]

    async def is_settled() -> bool:
        # What the plain one has received and acknowledged is pending no more.
        return (await provider.held(topic)).messages == 4

    await eventually(is_settled, what="two messages for each of two durables")
    found = await provider.held(topic)
    assert (found.subscriptions, found.delivered) == (3, 0)
    assert (found.received, found.sent) == (2, 2)


@pytest.mark.covers("EMS-MON-B03", "UM-CLI-A42", "UM-CLI-B16")
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_of_a_durable_what_is_pending_and_of_that_what_is_delivered_are_seen(
    provider: Provider, session: Session, topic: Topic, word: str, shared: bool
) -> None:
    owner = "" if shared else word
    await provider.define_durable(topic, word, client_id=owner, shared=shared)
    await send_all(session, topic, *"abc")
    offline = await provider.held_by_durable(word, client_id=owner)
    assert (offline.messages, offline.delivered, offline.consumers, offline.origin) == (3, 0, 0, "static")
    taking = await session_of(provider, Mode.TRANSACTED, client_id=owner)
    options: dict[str, Any] = {"durable": word, **({"shared": word} if shared else {})}
    await receive(await taking.consumer(topic, prefetch=1, **options), 2)

    async def are_three() -> bool:
        return (await provider.held_by_durable(word, client_id=owner)).delivered == 3

    await eventually(are_three, what="two in hand and one sent ahead")
    online = await provider.held_by_durable(word, client_id=owner)
    assert (online.messages, online.consumers) == (3, 1)
    await taking.commit()

    async def is_one() -> bool:
        return (await provider.held_by_durable(word, client_id=owner)).messages == 1

    await eventually(is_one, what="the end of what was committed")


@pytest.mark.covers("UM-CLI-A40", "UM-CLI-B21")
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_durable_of_any_kind_is_looked_at_without_taking(
    provider: Provider, session: Session, topic: Topic, word: str, shared: bool
) -> None:
    owner = "" if shared else word
    await provider.define_durable(topic, word, client_id=owner, shared=shared)
    assert await _kept(provider, word, client_id=owner) == []
    await send_all(session, topic, *"abc")
    for _ in range(2):
        assert await _kept(provider, word, client_id=owner) == ["a", "b", "c"]
    taking = await session_of(provider, Mode.CLIENT, client_id=owner)
    options: dict[str, Any] = {"durable": word, **({"shared": word} if shared else {})}
    message = await (await taking.consumer(topic, prefetch=0, **options)).receive()
    # What is delivered and not acknowledged is seen still, and what is acknowledged is not.
    assert await _kept(provider, word, client_id=owner) == ["a", "b", "c"]
    await message.acknowledge()
    assert await _kept(provider, word, client_id=owner) == ["b", "c"]


async def test_a_purge_of_a_durable_leaves_the_subscription_and_its_consumers(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    taking = await session_of(provider, Mode.CLIENT)
    consumers = [await taking.consumer(topic, durable=word, shared=word, prefetch=1) for _ in range(2)]
    other = await session.consumer(topic)
    await send_all(session, topic, *"abcd")
    for consumer in consumers:
        await consumer.receive()
    assert await provider.purge_durable(word) == 4
    await taking.recover()
    assert await _kept(provider, word) == []
    assert await bodies(other, 4) == ["a", "b", "c", "d"]
    await consumers[1].close()
    await session.send(topic, "end")
    assert await until_end(consumers[0]) == []


@pytest.mark.covers("EMS-MON-B09")
async def test_topics_are_listed_by_pattern_with_their_origin_and_each_subscribers_copies(
    provider: Provider, session: Session, word: str
) -> None:
    static, dynamic, nested, other = (Topic(f"any.{word}.{name}") for name in ("a", "b", "b.c", "x"))
    await provider.define(static)
    await session.consumer(dynamic)
    await session.producer(nested)
    await provider.define_durable(static, f"{word}-1", client_id=word)
    await provider.define_durable(static, f"{word}-2", client_id=word)
    await send_all(session, static, "1", "2")
    assert sorted(await provider.names(Topic, f"any.{word}.*")) == [static.name, dynamic.name]
    assert sorted(await provider.names(Topic, f"any.{word}.>")) == [static.name, dynamic.name, nested.name]
    assert other.name not in await provider.names(Topic)
    found = {place.name: await provider.held(place) for place in (static, dynamic, nested)}
    assert [one.origin for one in found.values()] == ["static", "dynamic", "dynamic"]
    assert [one.subscriptions for one in found.values()] == [2, 1, 0]
    assert [one.messages for one in found.values()] == [4, 0, 0]
    assert found[static.name].bytes > 0 == found[nested.name].bytes
