"""Properties: their types, what each reads as, and which names are the provider's (EMS-MSG-A06, A25, D02)."""

from __future__ import annotations

from typing import Any

import pytest
from sterna import Array, Byte, Char, Double, Float, Int, Long, MapBody, Object, Short, StreamBody

from tests.conformance.provider import MESSAGE_EXTENSION, Provider, Queue, Refusal, Session, refused

TYPES = ("bool", "byte", "short", "int", "long", "float", "double", "string", "char", "bytes")

# Written value, and what each type reads it as; a type that is not named does not read it.
MATRIX: list[tuple[str, Any, dict[str, Any]]] = [
    ("bool", True, {"bool": True, "string": "true"}),
    ("bool", False, {"bool": False, "string": "false"}),
    ("byte", Byte(-128), {"byte": -128, "short": -128, "int": -128, "long": -128, "string": "-128"}),
    ("short", Short(32767), {"short": 32767, "int": 32767, "long": 32767, "string": "32767"}),
    ("short", Short(1), {"short": 1, "int": 1, "long": 1, "string": "1"}),
    ("char", Char("x"), {"char": "x", "string": "x"}),
    ("char", Char("7"), {"char": "7", "string": "7"}),
    ("int", Int(-(2**31)), {"int": -(2**31), "long": -(2**31), "string": "-2147483648"}),
    ("long", Long(2**63 - 1), {"long": 2**63 - 1, "string": "9223372036854775807"}),
    ("long", Long(1), {"long": 1, "string": "1"}),
    ("float", Float(1.5), {"float": 1.5, "double": 1.5, "string": "1.5"}),
    ("double", Double(-2.25), {"double": -2.25, "string": "-2.25"}),
    ("string", "x", {"bool": False, "string": "x"}),
    ("string", "TRUE", {"bool": True, "string": "TRUE"}),
    ("string", "yes", {"bool": False, "string": "yes"}),
    (
        "string",
        "12",
        {
            "bool": False,
            "byte": 12,
            "short": 12,
            "int": 12,
            "long": 12,
            "float": 12.0,
            "double": 12.0,
            "string": "12",
        },
    ),
    (
        "string",
        "-300",
        {
            "bool": False,
            "short": -300,
            "int": -300,
            "long": -300,
            "float": -300.0,
            "double": -300.0,
            "string": "-300",
        },
    ),
    ("string", "1e2", {"bool": False, "float": 100.0, "double": 100.0, "string": "1e2"}),
    ("string", " 12", {"bool": False, "string": " 12"}),
    ("string", "", {"bool": False, "string": ""}),
]
BYTES_ROW: tuple[str, Any, dict[str, Any]] = ("bytes", b"12", {"bytes": b"12"})


def _check(provider: Provider, read: Any, expected: dict[str, Any], what: str, types: Any = TYPES) -> None:
    for kind in types:
        if kind in expected:
            found = read(kind)
            assert (type(found), found) == (type(expected[kind]), expected[kind]), f"{what} as {kind}"
        else:
            with refused(provider, Refusal.CONVERSION):
                read(kind)


@pytest.mark.covers("EMS-MSG-A25", "EMS-MSG-D02")
async def test_a_property_reads_as_the_types_of_the_table_and_as_no_other(
    provider: Provider, session: Session, queue: Queue
) -> None:
    consumer = await session.consumer(queue)
    written = {f"p{number}": value for number, (_, value, _) in enumerate(MATRIX)}
    await session.send(queue, properties=written)
    properties = (await consumer.receive()).properties
    for number, (kind, value, expected) in enumerate(MATRIX):
        name = f"p{number}"
        what = f"{kind} {value!r}"
        # Properties have no reader for bytes: they cannot hold any.
        _check(
            provider, lambda reader, name=name: getattr(properties, f"get_{reader}")(name), expected, what, TYPES[:-1]
        )


@pytest.mark.covers("EMS-MSG-A25", "EMS-MSG-A12")
async def test_an_entry_of_a_map_reads_as_the_types_of_the_table_and_as_no_other(
    provider: Provider, session: Session, queue: Queue
) -> None:
    rows = [*MATRIX, BYTES_ROW]
    consumer = await session.consumer(queue)
    await session.send(queue, {f"p{number}": value for number, (_, value, _) in enumerate(rows)})
    body = (await consumer.receive()).body
    assert isinstance(body, MapBody)
    for number, (kind, value, expected) in enumerate(rows):
        name = f"p{number}"
        _check(provider, lambda reader, name=name: getattr(body, f"get_{reader}")(name), expected, f"{kind} {value!r}")


@pytest.mark.covers("EMS-MSG-A25", "EMS-MSG-A12")
async def test_an_item_of_a_stream_reads_as_the_types_of_the_table_and_stays_when_it_does_not(
    provider: Provider, session: Session, queue: Queue
) -> None:
    consumer = await session.consumer(queue)
    for kind, value, expected in (*MATRIX, BYTES_ROW):
        await session.send(queue, [value])
        body = (await consumer.receive()).body
        assert isinstance(body, StreamBody)

        def read(reader: str, body: Any = body) -> Any:
            try:
                return getattr(body, f"read_{reader}")()
            finally:
                body.reset()

        _check(provider, read, expected, f"{kind} {value!r}")


@pytest.mark.covers("EMS-MSG-A25", "EMS-MSG-D02")
async def test_a_property_holds_no_bytes_and_nothing_nested(provider: Provider, session: Session, queue: Queue) -> None:
    for value in (b"bytes", bytearray(b"x"), [1], {"a": 1}, object()):
        with refused(provider, Refusal.INVALID_MESSAGE, Refusal.CONVERSION):
            await session.send(queue, properties={"p": value})
    assert await provider.browse(queue) == []


@pytest.mark.covers("EMS-MSG-A25")
@pytest.mark.parametrize(
    ("width", "beyond"),
    [(Byte, 128), (Byte, -129), (Short, 32768), (Int, 2**31), (Long, 2**63), (Char, "ab"), (Char, "")],
)
async def test_a_value_that_does_not_fit_its_type_is_refused_where_it_is_made(
    provider: Provider, width: Any, beyond: Any
) -> None:
    with refused(provider, Refusal.INVALID_MESSAGE):
        width(beyond)


@pytest.mark.covers("EMS-MSG-D02")
async def test_property_names_are_case_sensitive_and_any_word_will_do(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    written = {"a": 1, "A": 2, "with space": 3, "ümlaut": "ß", "x" * 300: True}
    await session.send(queue, properties=written)
    found = dict((await consumer.receive()).properties)
    assert found.pop("JMSXDeliveryCount") == 1
    assert found == written


@pytest.mark.covers("EMS-MSG-A20", "EMS-MSG-A07")
async def test_the_delivery_count_is_the_providers_whatever_the_sender_writes(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    await session.send(queue, properties={"JMSXDeliveryCount": 99})
    message = await consumer.receive()
    assert message.properties.get_int("JMSXDeliveryCount") == message.delivery_count == 1


@pytest.mark.covers("EMS-MSG-A12", "EMS-MSG-D01")
async def test_each_kind_of_body_arrives_as_it_was_written(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    for body in (
        None,
        "",
        "text ünï \U0001f426",
        b"",
        bytes(range(256)),
        {},
        {"b": True, "i": 1, "l": 2**40, "d": 1.5, "s": "x", "n": None, "y": b"\x00"},
        [],
        [True, Byte(1), Short(2), 3, 2**40, 1.5, "x", b"\x00", None, Char("c")],
        Object(b"\x80\x04pickle", "application/python-pickle"),
    ):
        await session.send(queue, body)
        found = (await consumer.receive()).body
        assert found == body
        assert type(found) in {type(body), MapBody, StreamBody}


@pytest.mark.covers("EMS-MSG-A12")
async def test_a_stream_is_read_strictly_in_order_and_ends(provider: Provider, session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    await session.send(queue, [1, "two", 3.0])
    body = (await consumer.receive()).body
    assert (body.read_int(), body.read_string(), body.read_double()) == (1, "two", 3.0)
    with refused(provider, Refusal.CONVERSION):
        body.read()
    body.reset()
    assert body.read() == 1


@pytest.mark.covers("EMS-MSG-A13")
async def test_maps_and_streams_nest_and_hold_arrays_and_are_tagged_then(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    nested = [
        {"map": {"map": {"deep": 1}}},
        {"stream": [1, ["a"]]},
        [{"in": "stream"}],
        {"numbers": Array(Short, [1, 2])},
        [Array(str, ["a", "b"])],
    ]
    for body in nested:
        await session.send(queue, body)
        message = await consumer.receive()
        assert message.body == body
        assert message.properties[MESSAGE_EXTENSION] is True
    for plain in ({"a": 1}, ["a"], "text", None):
        await session.send(queue, plain)
        assert MESSAGE_EXTENSION not in (await consumer.receive()).properties


@pytest.mark.covers("EMS-MSG-A24")
async def test_a_compressed_body_is_kept_small_and_read_as_it_was(
    provider: Provider, session: Session, queue: Queue
) -> None:
    consumer = await session.consumer(queue)
    for body in ("x" * 100_000, b"y" * 100_000, {"a": "z" * 100_000}, ["q" * 100_000]):
        await session.send(queue, body, compress=True, properties={"plain": "p" * 10})
        message = await consumer.receive()
        assert message.body == body
        assert message.properties["plain"] == "p" * 10


@pytest.mark.covers("EMS-MSG-A21", "EMS-MSG-D05")
async def test_strings_are_utf8_and_the_message_says_so(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    text = "äöü ß 漢字 \U0001f426"
    await session.send(queue, {text: text}, properties={text: text})
    message = await consumer.receive()
    assert message.encoding == "UTF-8"
    assert message.body == {text: text}
    assert message.properties[text] == text


@pytest.mark.covers("EMS-MSG-A21")
async def test_a_sender_labels_a_message_with_another_character_set(session: Session, queue: Queue) -> None:
    consumer = await session.consumer(queue)
    await session.send(queue, "äöü 漢字", encoding="ISO8859-1")
    message = await consumer.receive()
    assert (message.encoding, message.body) == ("ISO8859-1", "äöü 漢字")
