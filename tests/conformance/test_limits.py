"""Limits and what happens at them: maxmsgs, maxbytes, overflowPolicy (EMS-DEST-A19 to A22, A24).

A queue has one limit. A topic has one for each of its subscribers.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    PERSISTENT,
    PRESERVE_UNDELIVERED,
    RELIABLE,
    UNDELIVERED,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, holds, send_all, session_of, until_end, waiting
from tests.waiting import eventually

BODY = 1000
#: Two messages of BODY characters fit, with what a message has besides its body; a third does not.
TWO_OF_THEM = 2 * BODY + 500

LIMITS: list[dict[str, Any]] = [{"maxmsgs": 2}, {"maxbytes": TWO_OF_THEM}, {"maxmsgs": 2, "maxbytes": 1_000_000}]
LIMIT_NAMES = ["maxmsgs", "maxbytes", "both"]


def text(name: str) -> str:
    """A body of BODY characters."""
    return name * BODY


def letters(found: list[Any]) -> str:
    """The names of such bodies."""
    return "".join(body[0] for body in found)


# The policy; whether the third message is refused; what the queue holds then.
QUEUE_POLICIES = [
    (None, True, "ab"),
    ("default", True, "ab"),
    ("rejectIncoming", True, "ab"),
    ("discardOld", False, "bc"),
]


@pytest.mark.covers(
    "EMS-DEST-A19", "EMS-DEST-A21", "EMS-DEST-A22", "EMS-DEST-A24", "UM-DEST-B08", "UM-DEST-B07", "UM-CLI-B32"
)
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT])
@pytest.mark.parametrize("limit", LIMITS, ids=LIMIT_NAMES)
@pytest.mark.parametrize(("policy", "is_refused", "held"), QUEUE_POLICIES)
async def test_what_a_full_queue_does(
    provider: Provider,
    session: Session,
    queue: Queue,
    policy: str | None,
    is_refused: bool,
    held: str,
    limit: dict[str, Any],
    mode: str,
) -> None:
    await provider.define(queue, **limit, **({} if policy is None else {"overflowPolicy": policy}))
    await send_all(session, queue, text("a"), text("b"), delivery_mode=mode)
    if is_refused:
        with refused(provider, Refusal.FULL):
            await session.send(queue, text("c"), delivery_mode=mode)
    else:
        await session.send(queue, text("c"), delivery_mode=mode)
    assert letters(await waiting(provider, queue)) == held
    # Whoever takes one makes room for one.
    consumer = await session.consumer(queue)
    assert letters(await bodies(consumer, 2)) == held
    await holds(provider, queue, 0)
    await session.send(queue, text("d"), delivery_mode=mode)
    assert letters(await bodies(consumer, 1)) == "d"


@pytest.mark.covers("EMS-DEST-A24", "EMS-MSG-A19")
@pytest.mark.parametrize("policy", ["default", "rejectIncoming"])
async def test_a_reliable_message_to_a_full_queue_is_dropped_without_a_word(
    provider: Provider, session: Session, queue: Queue, policy: str
) -> None:
    await provider.define(queue, maxmsgs=1, overflowPolicy=policy)
    producer = await session.producer(queue)
    await producer.send("a")
    await producer.send("dropped", delivery_mode=RELIABLE)
    with refused(provider, Refusal.FULL):
        await producer.send("refused")
    assert await waiting(provider, queue) == ["a"]


@pytest.mark.covers("EMS-DEST-A21", "EMS-DEST-A22")
async def test_what_is_delivered_and_not_acknowledged_counts_toward_the_limit(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, maxmsgs=2)
    await send_all(session, queue, "a", "b")
    holding = await session_of(provider, Mode.CLIENT)
    messages = [await (consumer := await holding.consumer(queue)).receive(), await consumer.receive()]
    with refused(provider, Refusal.FULL):
        await session.send(queue, "c")
    await messages[1].acknowledge()
    await session.send(queue, "c")


@pytest.mark.covers("EMS-DEST-A24")
async def test_discard_old_leaves_what_somebody_has_in_hand(provider: Provider, session: Session, queue: Queue) -> None:
    await provider.define(queue, maxmsgs=2, overflowPolicy="discardOld")
    await send_all(session, queue, "held", "old")
    holding = await session_of(provider, Mode.CLIENT)
    message = await (await holding.consumer(queue, prefetch=0)).receive()
    assert message.body == "held"
    await session.send(queue, "new")
    await message.acknowledge()
    assert await waiting(provider, queue) == ["new"]


@pytest.mark.covers("EMS-DEST-A24")
async def test_the_oldest_is_by_age_not_by_priority(provider: Provider, session: Session, queue: Queue) -> None:
    await provider.define(queue, maxmsgs=2, overflowPolicy="discardOld")
    await session.send(queue, "old and urgent", priority=9)
    await session.send(queue, "young", priority=0)
    await session.send(queue, "new", priority=4)
    assert sorted(await waiting(provider, queue)) == ["new", "young"]


@pytest.mark.covers("EMS-DEST-A19", "EMS-DEST-A21")
@pytest.mark.parametrize("limit", [{"maxmsgs": 0}, {"maxbytes": 0}, {}], ids=str)
async def test_zero_and_nothing_are_no_limit(
    provider: Provider, session: Session, queue: Queue, limit: dict[str, Any]
) -> None:
    await provider.define(queue, **limit)
    await send_all(session, queue, *[text("x")] * 20)
    assert (await provider.held(queue)).messages == 20


@pytest.mark.covers("EMS-DEST-A19")
async def test_a_message_larger_than_the_whole_limit_is_refused_by_an_empty_queue(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, maxbytes=BODY // 2)
    with refused(provider, Refusal.FULL):
        await session.send(queue, text("x"))


@pytest.mark.covers("EMS-DEST-A22", "EMS-DEST-A41")
async def test_a_limit_that_is_raised_or_lowered_holds_for_what_comes(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, maxmsgs=1)
    await session.send(queue, "a")
    with refused(provider, Refusal.FULL):
        await session.send(queue, "b")
    await provider.define(queue, maxmsgs=2)
    await session.send(queue, "b")
    await provider.define(queue, maxmsgs=1)
    assert await waiting(provider, queue) == ["a", "b"]
    with refused(provider, Refusal.FULL):
        await session.send(queue, "c")


# The policy, whether the third message is refused, what the slow subscriber and what the fast one get.
TOPIC_POLICIES = [
    (None, False, "ab", "abc"),
    ("default", False, "ab", "abc"),
    ("discardOld", False, "bc", "abc"),
    ("rejectIncoming", True, "ab", "ab"),
]


@pytest.mark.covers("EMS-DEST-A20", "EMS-DEST-A21", "EMS-DEST-A22", "EMS-DEST-A24")
@pytest.mark.parametrize("limit", LIMITS, ids=LIMIT_NAMES)
@pytest.mark.parametrize(("policy", "is_refused", "slow", "fast"), TOPIC_POLICIES)
async def test_what_a_topic_does_when_one_subscriber_is_full(
    provider: Provider,
    session: Session,
    topic: Topic,
    word: str,
    policy: str | None,
    is_refused: bool,
    slow: str,
    fast: str,
    limit: dict[str, Any],
) -> None:
    await provider.define(topic, **limit, **({} if policy is None else {"overflowPolicy": policy}))
    # One that is away, and one that takes each message at once.
    await provider.define_durable(topic, word, client_id=word)
    quick = await session.consumer(topic)
    got: list[Any] = []
    for name in "ab":
        await session.send(topic, text(name))
        got.append((await quick.receive()).body)
    if is_refused:
        with refused(provider, Refusal.FULL):
            await session.send(topic, text("c"))
    else:
        await session.send(topic, text("c"))
        got.append((await quick.receive()).body)
    assert letters(got) == fast
    returning = await (await session_of(provider, client_id=word)).consumer(topic, durable=word)
    assert letters(await bodies(returning, 2)) == slow
    # There is room again, for all.

    async def nothing_is_kept() -> bool:
        return (await provider.held_by_durable(word, client_id=word)).messages == 0

    await eventually(nothing_is_kept)
    await session.send(topic, "end")
    assert await until_end(returning) == []
    assert await until_end(quick) == []


@pytest.mark.covers("EMS-DEST-A20", "EMS-DEST-A24")
@pytest.mark.parametrize("limit", LIMITS, ids=LIMIT_NAMES)
async def test_subscribers_of_a_topic_are_full_each_by_itself(
    provider: Provider, session: Session, topic: Topic, word: str, limit: dict[str, Any]
) -> None:
    await provider.define(topic, **limit)
    await provider.define_durable(topic, "first", client_id=word)
    await session.send(topic, text("a"))
    await provider.define_durable(topic, "second", client_id=word)
    # One that is there, and one of two, count what they have in hand, too.
    taking = await session_of(provider, Mode.CLIENT)
    plain, group = await taking.consumer(topic, prefetch=1), await taking.consumer(topic, shared=word, prefetch=1)
    await send_all(session, topic, text("b"), text("c"))
    await provider.define_durable(topic, "third", client_id=word)
    await send_all(session, topic, text("d"), text("e"), text("f"))
    connection = await provider.connect(client_id=word)
    for name, expected in (("first", "ab"), ("second", "bc"), ("third", "de")):
        consumer = await (await connection.session()).consumer(topic, durable=name)
        assert letters(await bodies(consumer, 2)) == expected
        await consumer.close()
    for consumer in (plain, group):
        message = [await consumer.receive() for _ in range(2)][-1]
        assert message.body == text("c")
        await message.acknowledge()
    await session.send(topic, "end")
    assert await until_end(plain) == await until_end(group) == []


@pytest.mark.covers("EMS-DEST-A24")
async def test_under_reject_a_full_subscriber_refuses_only_what_it_wants(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    await provider.define(topic, maxmsgs=1, overflowPolicy="rejectIncoming")
    await provider.define_durable(topic, word, client_id=word, selector="wanted = TRUE")
    await session.send(topic, "a", properties={"wanted": True})
    await session.send(topic, "b", properties={"wanted": False})
    with refused(provider, Refusal.FULL):
        await session.send(topic, "c", properties={"wanted": True})
    assert (await provider.held_by_durable(word, client_id=word)).messages == 1


@pytest.mark.covers("EMS-DEST-A24", "EMS-DEST-A64")
@pytest.mark.parametrize("policy", [None, "default", "rejectIncoming"])
async def test_what_is_delayed_at_a_full_topic_is_refused_at_the_send(
    provider: Provider, session: Session, topic: Topic, word: str, policy: str | None
) -> None:
    await provider.define(topic, maxmsgs=1, **({} if policy is None else {"overflowPolicy": policy}))
    await provider.define_durable(topic, "first", client_id=word)
    await session.send(topic, "1", delivery_delay_ms=60_000)
    await provider.define_durable(topic, "second", client_id=word)
    with refused(provider, Refusal.FULL):
        await session.send(topic, "2", delivery_delay_ms=60_000)
    # Nor does one get it who has room: only what is not delayed passes over those that have none.
    delayed = Queue(f"$sys.delayed.t.{topic.name}")
    assert [message.body for message in await provider.browse(delayed)] == ["1"]
    await session.send(topic, "now")
    assert await provider.purge(delayed) == 1
    for name in ("first", "second"):
        assert [message.body for message in await provider.browse_durable(name, client_id=word)] == ["now"]


@pytest.mark.covers("EMS-DEST-A24", "EMS-DEST-A64")
async def test_a_commit_passes_over_a_full_subscriber_as_well_and_fails_with_what_is_delayed(
    provider: Provider, topic: Topic, word: str
) -> None:
    await provider.define(topic, maxmsgs=1)
    for name in ("first", "second"):
        await provider.define_durable(topic, f"{word}-{name}", client_id=word)
    sending = await session_of(provider, Mode.TRANSACTED)
    await send_all(sending, topic, "a", "b")
    await sending.commit()
    assert await provider.purge_durable(f"{word}-first", client_id=word) == 1
    await sending.send(topic, "c")
    await sending.commit()
    with refused(provider, Refusal.FULL, Refusal.ROLLED_BACK):
        await send_all(sending, topic, "d", "e", delivery_delay_ms=60_000)
        await sending.commit()
    assert await provider.browse(Queue(f"$sys.delayed.t.{topic.name}")) == []
    for name, expected in (("first", ["c"]), ("second", ["a"])):
        kept = await provider.browse_durable(f"{word}-{name}", client_id=word)
        assert [message.body for message in kept] == expected


@pytest.mark.covers("EMS-DEST-A24")
async def test_discard_old_passes_over_a_subscriber_who_has_all_of_it_in_hand(
    provider: Provider, session: Session, topic: Topic
) -> None:
    await provider.define(topic, maxmsgs=2, overflowPolicy="discardOld")
    holding, quick = await session_of(provider, Mode.CLIENT), await session.consumer(topic)
    consumer = await holding.consumer(topic, prefetch=1)
    held: list[Any] = []
    for body in "abc":
        await session.send(topic, body)
        assert (await quick.receive()).body == body
        if body != "c":
            held.append(await consumer.receive())
    await held[1].acknowledge()
    await session.send(topic, "end")
    assert await until_end(consumer) == []


@pytest.mark.covers("EMS-DEST-A63", "EMS-DEST-A21")
@pytest.mark.parametrize("limit", LIMITS, ids=LIMIT_NAMES)
@pytest.mark.parametrize("delays", [(3_600_000, 0), (0, 3_600_000)], ids=["delayed first", "delayed last"])
async def test_what_is_delayed_has_as_much_room_again(
    provider: Provider, session: Session, queue: Queue, delays: tuple[int, int], limit: dict[str, Any]
) -> None:
    await provider.define(queue, **limit)
    for delay_ms in delays:
        await send_all(session, queue, text("a"), text("b"), delivery_delay_ms=delay_ms)
        with refused(provider, Refusal.FULL):
            await session.send(queue, text("c"), delivery_delay_ms=delay_ms)
    assert letters(await waiting(provider, queue)) == "ab"
    assert letters(await waiting(provider, Queue(f"$sys.delayed.q.{queue.name}"))) == "ab"


@pytest.mark.covers("EMS-DEST-A24")
async def test_what_falls_due_in_a_full_queue_has_the_oldest_discarded(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await provider.define(queue, maxmsgs=2, overflowPolicy="discardOld")
    await session.send(queue, "late", delivery_delay_ms=300)
    await send_all(session, queue, "a", "b")

    async def it_is_due() -> bool:
        return "late" in [message.body for message in await provider.browse(queue)]

    await eventually(it_is_due)
    assert sorted(message.body for message in await provider.browse(queue)) == ["b", "late"]


# The policy; what a full subscriber has when messages fall due for it, and which of them are kept as undelivered.
DUE_AT_SUBSCRIBER: list[tuple[str | None, list[str], list[str]]] = [
    (None, ["a", "b"], []),
    ("default", ["a", "b"], []),
    ("discardOld", ["b", "late"], []),
    ("rejectIncoming", ["a", "b"], ["late"]),
]


@pytest.mark.covers("EMS-DEST-A24", "EMS-DEST-A64", "EMS-MSG-A08")
@pytest.mark.parametrize("pattern", ["due", ">"])
@pytest.mark.parametrize(("policy", "held", "kept"), DUE_AT_SUBSCRIBER)
async def test_what_falls_due_for_a_full_subscriber_of_a_topic_meets_what_comes_there_meets(
    provider: Provider,
    session: Session,
    word: str,
    policy: str | None,
    held: list[str],
    kept: list[str],
    pattern: str,
) -> None:
    topic = Topic(f"any.{word}.due")
    await provider.define(topic, maxmsgs=2, **({} if policy is None else {"overflowPolicy": policy}))
    await provider.define_durable(Topic(f"any.{word}.{pattern}"), word, client_id=word)
    asked = {"word": word, PRESERVE_UNDELIVERED: True}
    await session.send(topic, "late", delivery_delay_ms=1_000, properties=asked)
    await send_all(session, topic, "a", "b")

    async def it_is_due() -> bool:
        return not await provider.browse(Queue(f"$sys.delayed.t.{topic.name}"))

    await eventually(it_is_due)
    assert sorted(message.body for message in await provider.browse_durable(word, client_id=word)) == held

    async def it_is_kept() -> bool:
        found = await provider.browse(UNDELIVERED, selector=f"word = '{word}'")
        return [(message.body, str(message.destination)) for message in found] == [(body, str(topic)) for body in kept]

    await eventually(it_is_kept)


@pytest.mark.covers("EMS-DEST-A24")
async def test_what_a_commit_brings_to_a_full_subscriber_has_the_oldest_discarded(
    provider: Provider, topic: Topic, word: str
) -> None:
    await provider.define(topic, maxmsgs=2, overflowPolicy="discardOld")
    await provider.define_durable(topic, word, client_id=word)
    sending = await session_of(provider, Mode.TRANSACTED)
    await send_all(sending, topic, "a", "b")
    await sending.commit()
    await send_all(sending, topic, "c")
    await sending.commit()
    assert [message.body for message in await provider.browse_durable(word, client_id=word)] == ["b", "c"]


@pytest.mark.covers("EMS-DEST-A63")
async def test_a_purge_of_what_is_delayed_leaves_what_is_due_and_what_is_of_others(
    provider: Provider, session: Session, queue: Queue, word: str
) -> None:
    topic, other = Topic(f"any.{word}.own"), Topic(f"any.{word}.other")
    for name, pattern in (("own", "own"), ("all", ">")):
        await provider.define_durable(Topic(f"any.{word}.{pattern}"), name, client_id=word)
    for place in (topic, other, queue):
        await session.send(place, "now")
        await session.send(place, "late", delivery_delay_ms=3_600_000)
    delayed = [Queue(f"$sys.delayed.t.{place.name}") for place in (topic, other)]
    with refused(provider, Refusal.NO_SUCH_DESTINATION):
        await provider.purge(Topic(f"$sys.delayed.t.{word}.unknown"))
    # Of the topic it waits in both subscriptions, and is one message for whoever looks.
    assert await provider.purge(Topic(delayed[0].name)) == 2
    assert [[found.body for found in await provider.browse(name)] for name in delayed] == [[], ["late"]]
    assert [found.body for found in await provider.browse_durable("all", client_id=word)] == ["now", "now"]
    assert await provider.purge(delayed[1]) == 1
    assert await provider.purge(Queue(f"$sys.delayed.q.{queue.name}")) == 1
    assert await waiting(provider, queue) == ["now"]


# What a property may be, by kind: EMS-DEST-A11, A23, A24, A26.
PROPERTIES: list[tuple[type[Queue] | type[Topic], dict[str, Any], bool]] = [
    *((kind, {name: value}, True) for kind in (Queue, Topic) for name, value in [
        ("expiration", 0), ("expiration", 86_400_000), ("maxbytes", 1), ("maxmsgs", 1), ("prefetch", 1),
        ("prefetch", 0), ("prefetch", 64), ("store", "$sys.failsafe"), ("store", "$sys.nonfailsafe"),
        ("overflowPolicy", "default"), ("overflowPolicy", "discardOld"), ("overflowPolicy", "rejectIncoming"),
    ]),
    *((kind, {name: value}, False) for kind in (Queue, Topic) for name, value in [
        ("expiration", -1), ("maxbytes", -1), ("maxmsgs", -1), ("prefetch", -1), ("overflowPolicy", "drop"),
        ("overflowPolicy", "DISCARDOLD"), ("store", ""), ("unknown", 1), ("maxmsgs", "many"), ("maxmsgs", 1.5),
    ]),
    (Queue, {"exclusive": True}, True),
    (Topic, {"exclusive": True}, False),
    (Queue, {"prefetch": "none"}, True),
    (Topic, {"prefetch": "none"}, False),
    *((Queue, {"maxRedelivery": value}, True) for value in (0, 2, 255)),
    *((Queue, {"maxRedelivery": value}, False) for value in (1, 256, -1)),
    (Topic, {"maxRedelivery": 3}, False),
]  # fmt: skip


@pytest.mark.covers("EMS-DEST-A10", "EMS-DEST-A11", "EMS-DEST-A23", "EMS-DEST-A26")
async def test_each_property_has_its_bounds_and_its_kinds(provider: Provider, word: str) -> None:
    for number, (kind, properties, is_allowed) in enumerate(PROPERTIES):
        place = kind(f"{word}.p{number}")
        if is_allowed:
            await provider.define(place, **properties)
        else:
            with refused(provider, Refusal.INVALID_VALUE):
                await provider.define(place, **properties)
            assert place.name not in await provider.names(kind)
