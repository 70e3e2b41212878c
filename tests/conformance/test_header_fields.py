"""Header fields: who sets them, what they hold, what wins over what (EMS-MSG-A01 to A05, A15 to A20, A26, A27)."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import pytest

from tests.conformance.provider import (
    NON_PERSISTENT,
    PERSISTENT,
    RELIABLE,
    Destination,
    Mode,
    Provider,
    Queue,
    Refusal,
    Session,
    Topic,
    refused,
)
from tests.conformance.steps import bodies, holds, send_all, session_of
from tests.waiting import eventually


@pytest.mark.covers("EMS-MSG-A01", "EMS-MSG-A02", "EMS-CLI-D21", "FMQ-MSG-02")
async def test_the_defaults_of_a_header_are_those_of_jms(session: Session, kind: type[Destination], word: str) -> None:
    place = kind(f"any.{word}")
    consumer = await session.consumer(place)
    sent = await session.send(place, "body")
    message = await consumer.receive()
    assert str(message.destination) == str(place)
    assert message.delivery_mode.name == PERSISTENT
    assert (message.expiration_ms, message.priority) == (0, 4)
    assert message.delivery_time_ms == message.timestamp_ms == sent.timestamp_ms
    assert message.message_id == sent.message_id
    assert (message.correlation_id, message.reply_to, message.type) == (None, None, "")
    assert not message.redelivered
    assert message.body == "body"
    assert dict(message.properties) == {"JMSXDeliveryCount": 1}


@pytest.mark.covers("EMS-MSG-A02")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT, RELIABLE])
async def test_what_the_sender_says_of_a_message_arrives(session: Session, queue: Queue, mode: str) -> None:
    consumer = await session.consumer(queue)
    for reply_to in (Queue("any.reply"), Topic("any.reply")):
        await session.send(
            queue, correlation_id="Ünïcode-7", reply_to=reply_to, type="order", delivery_mode=mode, priority=7
        )
        message = await consumer.receive()
        assert (message.correlation_id, message.type, message.priority) == ("Ünïcode-7", "order", 7)
        assert str(message.reply_to) == str(reply_to)
        assert message.delivery_mode.name == mode


@pytest.mark.covers("EMS-MSG-A02", "EMS-MSG-A04", "FMQ-MSG-04")
async def test_the_expiration_is_the_timestamp_and_the_time_to_live(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    for time_to_live_ms in (60_000, 3_600_000_000):
        sent = await session.send(queue, time_to_live_ms=time_to_live_ms)
        assert (await consumer.receive()).expiration_ms == sent.timestamp_ms + time_to_live_ms
        assert sent.expiration_ms == sent.timestamp_ms + time_to_live_ms


@pytest.mark.covers("EMS-MSG-A02", "EMS-CLI-A29")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT, RELIABLE])
async def test_the_sender_learns_when_its_message_expires(session: Session, queue: Queue, mode: str) -> None:
    producer = await session.producer(queue, delivery_mode=mode, time_to_live_ms=60_000)
    sent = await producer.send("x")
    assert sent.expiration_ms == sent.timestamp_ms + 60_000
    sent = await producer.send("x", time_to_live_ms=90_000)
    assert sent.expiration_ms == sent.timestamp_ms + 90_000
    assert (await producer.send("x", time_to_live_ms=0)).expiration_ms == 0


@pytest.mark.covers("EMS-MSG-A03", "EMS-DEST-A62")
async def test_the_delivery_time_is_the_send_and_the_delay_for_both_sides(
    session: Session, kind: type[Destination], word: str
) -> None:
    place = kind(f"any.{word}")
    consumer = await session.consumer(place)
    sent = await session.send(place, "late", delivery_delay_ms=25)
    assert sent.delivery_time_ms == sent.timestamp_ms + 25
    message = await consumer.receive()
    # Times are whole milliseconds on both sides: part of one may lie between them.
    assert math.ceil(time.time() * 1000) >= message.delivery_time_ms
    assert (message.delivery_time_ms, message.timestamp_ms) == (sent.delivery_time_ms, sent.timestamp_ms)


@pytest.mark.covers("EMS-DEST-A62")
async def test_what_is_not_delayed_passes_what_is(session: Session, kind: type[Destination], word: str) -> None:
    place = kind(f"any.{word}")
    consumer = await session.consumer(place)
    await session.send(place, "tomorrow", delivery_delay_ms=86_400_000)
    await session.send(place, "now")
    assert (await consumer.receive()).body == "now"


@pytest.mark.covers("EMS-MSG-D06", "EMS-MSG-A02")
async def test_the_timestamp_is_the_servers(session: Session, queue: Queue) -> None:
    before_ms = int(time.time() * 1000) - 1
    sent = await session.send(queue, "x")
    assert before_ms <= sent.timestamp_ms <= time.time() * 1000 + 1
    assert (await (await session.consumer(queue)).receive()).timestamp_ms == sent.timestamp_ms


@pytest.mark.covers("EMS-MSG-A26")
async def test_message_ids_begin_with_id_and_of_one_producer_differ_in_the_last_part(
    session: Session, queue: Queue, topic: Topic
) -> None:
    producer = await session.producer(queue)
    ids = [(await producer.send(str(number))).message_id for number in range(3)]
    assert len(set(ids)) == 3
    for message_id in ids:
        assert re.fullmatch(r"ID:[^:]+(:[^:]+)*:\d+", message_id)
    assert len({message_id.rpartition(":")[0] for message_id in ids}) == 1
    numbers = [int(message_id.rpartition(":")[2]) for message_id in ids]
    assert numbers == sorted(numbers)
    other = await session.producer(topic)
    assert (await other.send("x")).message_id not in ids


# Who says it: the producer (its defaults), the send, and what holds then.
CHOICES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({}, {}, {"priority": 4, "mode": PERSISTENT}),
    ({"priority": 8}, {}, {"priority": 8}),
    ({"priority": 8}, {"priority": 2}, {"priority": 2}),
    ({"priority": 8}, {"priority": 0}, {"priority": 0}),
    ({"priority": 0}, {}, {"priority": 0}),
    ({}, {"priority": 9}, {"priority": 9}),
    ({"delivery_mode": NON_PERSISTENT}, {}, {"mode": NON_PERSISTENT}),
    ({"delivery_mode": NON_PERSISTENT}, {"delivery_mode": PERSISTENT}, {"mode": PERSISTENT}),
    ({"delivery_mode": RELIABLE}, {"delivery_mode": NON_PERSISTENT}, {"mode": NON_PERSISTENT}),
    ({}, {"delivery_mode": RELIABLE}, {"mode": RELIABLE}),
    ({"time_to_live_ms": 60_000}, {}, {"lives": 60_000}),
    ({"time_to_live_ms": 60_000}, {"time_to_live_ms": 90_000}, {"lives": 90_000}),
    ({"time_to_live_ms": 60_000}, {"time_to_live_ms": 0}, {"lives": None}),
    ({}, {"time_to_live_ms": 60_000}, {"lives": 60_000}),
    ({"delivery_delay_ms": 5}, {}, {"waits": 5}),
    ({"delivery_delay_ms": 5}, {"delivery_delay_ms": 0}, {"waits": 0}),
    ({"delivery_delay_ms": 5}, {"delivery_delay_ms": 9}, {"waits": 9}),
]


@pytest.mark.covers(
    "EMS-CLI-A29", "EMS-CLI-D14", "EMS-MSG-D03", "EMS-MSG-D04", "EMS-MSG-A15", "EMS-MSG-A16", "EMS-CLI-D12"
)
@pytest.mark.parametrize("anonymous", [False, True], ids=["bound", "anonymous"])
async def test_a_producers_defaults_hold_unless_the_send_says_otherwise(
    session: Session, queue: Queue, anonymous: bool
) -> None:
    consumer = await session.consumer(queue)
    for defaults, how, expected in CHOICES:
        producer = await session.producer(None if anonymous else queue, **defaults)
        await producer.send("x", **how, **({"destination": queue} if anonymous else {}))
        message = await consumer.receive()
        found = {
            "priority": message.priority,
            "mode": message.delivery_mode.name,
            "lives": message.expiration_ms - message.timestamp_ms if message.expiration_ms else None,
            "waits": message.delivery_time_ms - message.timestamp_ms,
        }
        assert {key: found[key] for key in expected} == expected, (defaults, how)
        await producer.close()


@pytest.mark.covers("EMS-MSG-A15", "UM-MSG-B08")
async def test_of_a_backlog_the_higher_priority_comes_first_and_equals_in_their_order(
    session: Session, kind: type[Destination], word: str, provider: Provider
) -> None:
    place = kind(f"any.{word}")
    if isinstance(place, Topic):  # a topic's backlog is that of a subscription
        await provider.define_durable(place, word, client_id=word)
    for number in range(20):
        await session.send(place, [number % 10, number], priority=number % 10)
    taking = await session_of(provider, client_id=word)
    consumer = await taking.consumer(place, durable=word if isinstance(place, Topic) else "")
    found = [tuple(body) for body in await bodies(consumer, 20)]
    assert found == sorted(((n % 10, n) for n in range(20)), key=lambda pair: (-pair[0], pair[1]))


@pytest.mark.covers("EMS-MSG-A15")
@pytest.mark.parametrize("priority", [-1, 10, 100])
async def test_there_is_no_priority_beyond_0_to_9(
    provider: Provider, session: Session, queue: Queue, priority: int
) -> None:
    with refused(provider, Refusal.INVALID_VALUE, Refusal.INVALID_MESSAGE):
        await session.send(queue, "x", priority=priority)


@pytest.mark.covers("EMS-MSG-A04", "EMS-DEST-D04")
@pytest.mark.parametrize("mode", [PERSISTENT, NON_PERSISTENT])
async def test_what_has_expired_is_destroyed(provider: Provider, session: Session, queue: Queue, mode: str) -> None:
    await session.send(queue, "gone", time_to_live_ms=1, delivery_mode=mode)
    await session.send(queue, "stays", delivery_mode=mode)
    await holds(provider, queue, 1)
    assert await bodies(await session.consumer(queue), 1) == ["stays"]


# The destination's expiration, the sender's time to live, and how long the message lives: None is for ever.
EXPIRATIONS: list[tuple[int | None, int, int | None]] = [
    (None, 0, None),
    (None, 90_000, 90_000),
    (0, 1, None),
    (60_000, 0, 60_000),
    (60_000, 1, 60_000),
    (1, 0, 1),
    (1, 90_000, 1),
]


@pytest.mark.covers("EMS-DEST-A14", "EMS-MSG-A04", "EMS-MSG-D10", "EMS-DEST-A47", "UM-DEST-B06")
@pytest.mark.parametrize("inherited", [False, True], ids=["own", "inherited"])
@pytest.mark.parametrize(("expiration", "time_to_live_ms", "lives"), EXPIRATIONS)
async def test_a_destinations_expiration_wins_and_the_header_says_never(
    provider: Provider,
    session: Session,
    word: str,
    expiration: int | None,
    time_to_live_ms: int,
    lives: int | None,
    inherited: bool,
) -> None:
    queue = Queue(f"any.{word}.q")
    properties = {} if expiration is None else {"expiration": expiration}
    await provider.define(Queue(f"any.{word}.*") if inherited else queue, **properties)
    await session.send(queue, "x", time_to_live_ms=time_to_live_ms)
    if lives == 1:
        await holds(provider, queue, 0)
        return
    message = await (await session.consumer(queue)).receive()
    expected = message.timestamp_ms + time_to_live_ms if expiration is None and time_to_live_ms else 0
    assert message.expiration_ms == expected


@pytest.mark.covers("EMS-MSG-A04", "EMS-DEST-A14")
@pytest.mark.parametrize(("expiration", "time_to_live_ms"), [(3_600_000, 200), (200, 0), (200, 3_600_000)])
async def test_a_consumer_ends_no_message_by_itself_whose_destination_has_an_expiration(
    provider: Provider, session: Session, queue: Queue, expiration: int, time_to_live_ms: int
) -> None:
    await provider.define(queue, expiration=expiration)
    consumer = await session.consumer(queue, prefetch=5)
    sent = await session.send(queue, "with the consumer", time_to_live_ms=time_to_live_ms)

    async def it_is() -> bool:
        return (await provider.held(queue)).delivered == 1

    await eventually(it_is)
    over_ms = sent.timestamp_ms + 250
    await eventually(lambda: time.time() * 1000 > over_ms)
    message = await consumer.receive()
    assert (message.body, message.expiration_ms) == ("with the consumer", 0)


@pytest.mark.covers("EMS-DEST-A14", "UM-DEST-B06", "UM-MSG-A07")
async def test_a_topics_expiration_ends_what_a_subscription_keeps(
    provider: Provider, session: Session, topic: Topic, word: str
) -> None:
    await provider.define(topic, expiration=1)
    await provider.define_durable(topic, word, client_id=word)
    await session.send(topic, "gone")

    async def none_is_kept() -> bool:
        return (await provider.held_by_durable(word, client_id=word)).messages == 0

    await eventually(none_is_kept)


@pytest.mark.covers("EMS-MSG-A05", "EMS-CLI-A28")
async def test_a_correlation_id_of_four_kilobytes_arrives(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    await session.send(queue, correlation_id="c" * 4096)
    assert (await consumer.receive()).correlation_id == "c" * 4096


@pytest.mark.covers("EMS-MSG-A02", "EMS-CLI-A18")
async def test_no_correlation_id_and_an_empty_one_are_two_things(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await session.send(queue, "none")
    await session.send(queue, "empty", correlation_id="")
    for selector, body, correlation_id in (
        ("JMSCorrelationID IS NULL", "none", None),
        ("JMSCorrelationID IS NOT NULL", "empty", ""),
        ("JMSCorrelationID = ''", "empty", ""),
    ):
        [message] = await provider.browse(queue, selector)
        assert (message.body, message.correlation_id) == (body, correlation_id)


@pytest.mark.covers("EMS-MSG-A27")
@pytest.mark.parametrize(
    ("body", "title", "shown"),
    [
        (None, "Message", ""),
        ("hello", "TextMessage", "Text=hello"),
        ({"a": 1}, "MapMessage", "a"),
        ([1, "b"], "StreamMessage", "b"),
        (b"\x00\x01", "BytesMessage", "Bytes="),
    ],
)
async def test_a_message_is_printed_by_type_header_properties_and_body(
    session: Session, kind: type[Destination], word: str, body: Any, title: str, shown: str
) -> None:
    place = kind(f"any.{word}")
    consumer = await session.consumer(place)
    await session.send(place, body, properties={"colour": "red"}, correlation_id="c1", type="t1")
    message = await consumer.receive()
    printed = str(message)
    assert printed.startswith(title)
    header = printed[printed.index("Header={") : printed.index("Properties={")]
    fields = re.findall(r"(JMS\w+)=", header)
    assert fields == [
        "JMSMessageID",
        "JMSDestination",
        "JMSReplyTo",
        "JMSDeliveryMode",
        "JMSRedelivered",
        "JMSCorrelationID",
        "JMSType",
        "JMSTimestamp",
        "JMSDeliveryTime",
        "JMSExpiration",
        "JMSPriority",
    ]
    assert f"JMSDestination={place}" in header
    rest = printed[printed.index("Properties={") :]
    assert "colour=" in rest
    assert "JMSXDeliveryCount=1" in rest
    assert shown in rest


@pytest.mark.covers("EMS-MSG-A23")
async def test_unprintable_characters_are_taken_everywhere(session: Session, queue: Queue) -> None:
    odd = "tab\t nul\x00 bell\x07 \u200b\U0001f426"
    consumer = await session.consumer(queue)
    await session.send(queue, odd, correlation_id=odd, type=odd, properties={"p": odd})
    message = await consumer.receive()
    assert (message.body, message.correlation_id, message.type, message.properties["p"]) == (odd, odd, odd, odd)
    assert "\x00" not in str(message)


@pytest.mark.covers("EMS-MSG-A20", "UM-MSG-B11")
async def test_the_first_delivery_is_not_flagged_and_each_further_one_is_counted(
    provider: Provider, session: Session, queue: Queue
) -> None:
    await send_all(session, queue, "x")
    for count in (1, 2, 3):
        taking = await session_of(provider, Mode.TRANSACTED)
        message = await (await taking.consumer(queue)).receive()
        assert (message.redelivered, message.delivery_count) == (count > 1, count)
        assert message.properties["JMSXDeliveryCount"] == count
        await taking.rollback()
        await taking.close()
