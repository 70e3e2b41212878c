"""Messages from end to end: anatomy, bodies, headers, compression, large bodies, the printable form."""

from __future__ import annotations

from typing import Any

import pytest
import sterna
from sterna import Array, Byte, Char, Double, Float, Foreign, Long, MapBody, Object, Queue, Short, StreamBody, Topic

from tests.sdk.conftest import Connect

BODIES = {
    "none": None,
    "text": "naïve ☃",
    "bytes": bytes(range(256)),
    "map": {"bool": True, "int": 1, "long": Long(2), "double": 1.5, "string": "x", "bytes": b"\x00", "null": None},
    "stream": [Byte(1), Short(2), 3, Long(4), Float(0.5), Double(0.25), Char("c"), "s", b"b", False, None],
    "object": Object(b'{"a": 1}', "application/json"),
    "foreign": Foreign("amqp-1.0", b"\x00\x01"),
    "nested": {"map": {"deep": {"deeper": [1, "two", {"three": 3}]}}, "array": Array(Short, [1, 2, 3])},
}


async def there_and_back(connect: Connect, name: str, body: Any, **options: Any) -> sterna.Message:
    connection = await connect()
    await connection.send(name, body, **options)
    async with await connection.consumer(name, prefetch=1) as consumer:
        message = await consumer.receive(10)
    assert message is not None
    return message


@pytest.mark.covers("EMS-MSG-A12", "EMS-MSG-A01")
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("compress", [False, True], ids=["plain", "compressed"])
async def test_a_body_arrives_as_it_was_sent(connect: Connect, name: str, kind: str, compress: bool) -> None:
    body = BODIES[kind]
    message = await there_and_back(connect, name, body, compress=compress)
    assert message.body == body
    if isinstance(body, dict):
        assert isinstance(message.body, MapBody)
        assert [type(one) for one in message.body.values()] != []
    if isinstance(body, list):
        assert isinstance(message.body, StreamBody)
        assert [message.body.read_string() for _ in range(8)] == ["1", "2", "3", "4", "0.5", "0.25", "c", "s"]
    assert message._message().compression == ("zlib" if compress else "")


@pytest.mark.covers("EMS-MSG-A13")
async def test_nested_maps_and_arrays_are_marked(connect: Connect, name: str) -> None:
    message = await there_and_back(connect, name, BODIES["nested"])
    assert message.properties.get_bool("JMS_STERNA_MSG_EXT") is True
    assert message.body["map"]["deep"]["deeper"][2].get_string("three") == "3"
    assert message.body["array"].of is Short
    plain = await there_and_back(connect, name, BODIES["map"])
    assert "JMS_STERNA_MSG_EXT" not in plain.properties


@pytest.mark.covers("EMS-MSG-A24")
async def test_compression_makes_it_smaller_and_nobody_sees_it(connect: Connect, name: str) -> None:
    body = "all work and no play " * 5000
    message = await there_and_back(connect, name, body, compress=True)
    assert message.body == body
    assert len(message._delivery.message) < len(body) // 10
    by_property = await there_and_back(connect, name, body, properties={"JMS_TIBCO_COMPRESS": True})
    assert by_property.body == body
    assert len(by_property._delivery.message) < len(body) // 10


@pytest.mark.covers("EMS-MSG-A02", "EMS-MSG-A01")
async def test_header_fields_arrive(connect: Connect, name: str) -> None:
    message = await there_and_back(
        connect,
        name,
        "x",
        correlation_id="c-1",
        reply_to=Topic("answers"),
        type="kind",
        priority=8,
        time_to_live_ms=50_000,
        properties={"a": 1},
    )
    assert message.destination == Queue(name)
    assert (message.correlation_id, message.reply_to, message.type) == ("c-1", Topic("answers"), "kind")
    assert message.priority == 8
    assert message.expiration_ms == message.timestamp_ms + 50_000
    assert (message.redelivered, message.delivery_count) == (False, 1)
    assert message.properties == {"a": 1, "JMSXDeliveryCount": 1}
    bare = await there_and_back(connect, name, None)
    assert (bare.correlation_id, bare.reply_to, bare.type, bare.priority, bare.expiration_ms) == (None, None, "", 4, 0)


@pytest.mark.covers("EMS-MSG-A25")
async def test_properties_keep_their_types(connect: Connect, name: str) -> None:
    properties = {
        "b": True,
        "y": Byte(1),
        "s": Short(2),
        "i": 3,
        "l": Long(4),
        "big": 2**40,
        "f": Float(1.5),
        "d": 2.5,
        "c": Char("x"),
        "t": "12",
        "n": None,
    }
    found = (await there_and_back(connect, name, None, properties=properties)).properties
    found.pop("JMSXDeliveryCount")
    assert found == properties
    assert [type(one) for one in found.values()] == [type(one) for one in properties.values()]
    assert found.get_long("y") == 1
    assert found.get_int("t") == 12
    with pytest.raises(sterna.errors.ConversionError):
        found.get_int("l")
    # What was read is written again as the same types.
    again = (await there_and_back(connect, name, None, properties=found)).properties
    again.pop("JMSXDeliveryCount")
    assert [type(one) for one in again.values()] == [type(one) for one in properties.values()]


@pytest.mark.covers("EMS-MSG-A27")
async def test_the_printable_form_shows_everything(connect: Connect, name: str) -> None:
    message = await there_and_back(
        connect, name, "hello\x07", correlation_id="c", reply_to=Queue("r"), properties={"p": True}
    )
    assert str(message) == (
        "TextMessage={\n"
        f"  Header={{JMSMessageID={message.message_id}, JMSDestination=Queue[{name}], JMSReplyTo=Queue[r], "
        "JMSDeliveryMode=PERSISTENT, JMSRedelivered=false, JMSCorrelationID=c, JMSType=null, "
        f"JMSTimestamp={message.timestamp_ms}, JMSDeliveryTime={message.timestamp_ms}, JMSExpiration=0, "
        "JMSPriority=4}\n"
        "  Properties={p=true, JMSXDeliveryCount=1}\n"
        "  Text=hello\\x07\n"
        "}"
    )
    for kind, start in (
        ("none", "Message={"),
        ("bytes", "BytesMessage={"),
        ("map", "MapMessage={"),
        ("stream", "StreamMessage={"),
        ("object", "ObjectMessage={"),
    ):
        assert str(await there_and_back(connect, name, BODIES[kind])).startswith(start)


@pytest.mark.parametrize("size", [400_000, 520_000, 1_100_000, 5_000_000])
async def test_a_large_body_arrives(connect: Connect, name: str, size: int) -> None:
    pattern = bytes(range(251))
    body = (pattern * (size // 251 + 1))[:size]
    message = await there_and_back(connect, name, body, properties={"size": size})
    assert message.properties["size"] == size
    assert message.body == body


@pytest.mark.parametrize("body", ["ü" * 700_000, Object(bytes(900_000), "application/x-zeros")], ids=["text", "object"])
async def test_large_bodies_of_other_types_arrive(connect: Connect, name: str, body: Any) -> None:
    assert (await there_and_back(connect, name, body)).body == body


async def test_large_and_small_messages_keep_their_order(connect: Connect, name: str) -> None:
    connection = await connect()
    bodies = [bytes([number]) * (900_000 if number % 3 == 0 else 10) for number in range(12)]
    async with await connection.producer(name) as producer:
        for body in bodies:
            await producer.send_soon(body)
    consumer = await connection.consumer(name, prefetch=3)
    assert [(await anext(consumer)).body for _ in bodies] == bodies


async def test_what_is_too_large_is_refused_here(connect: Connect, name: str) -> None:
    connection = await connect()
    with pytest.raises(sterna.errors.LimitExceededError) as caught:
        await connection.send(name, bytes(65 << 20))
    assert caught.value.subject == "message_bytes"
    with pytest.raises(sterna.errors.LimitExceededError) as caught:
        await connection.send(name, ["x" * 100] * 12_000)
    assert caught.value.subject == "frame_bytes"
    await connection.send(name, ["x" * 100] * 12_000, compress=True)
    with pytest.raises(sterna.errors.LimitExceededError) as caught:
        await connection.send(name, "é" * (9 << 20))  # fewer characters than the limit, but more bytes
    assert caught.value.subject == "message_bytes"
    with pytest.raises(sterna.errors.InvalidMessageError, match="Unicode"):
        await connection.send(name, "\ud800" * (2 << 20))
