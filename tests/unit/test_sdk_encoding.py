"""What the SDK encodes by hand is what protobuf reads, and comes back as it was written."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sterna import Array, Byte, Char, Float, Foreign, Long, Object, Queue, Short, Topic, values
from sterna._decode import body_of, inflate, parse_message, properties_of
from sterna._encode import (
    encode_header,
    encode_links,
    encode_message,
    encode_uploaded,
    uploadable,
    varint,
)
from sterna._proto.sterna.v1 import message_pb2
from sterna.errors import InvalidMessageError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
NAMES = st.text("abcdefgh_XYZ", min_size=1, max_size=200)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXT,
    st.integers(-128, 127).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(allow_nan=False, width=32).map(Float),
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]).map(Char),
)
VALUES = st.recursive(
    st.one_of(
        SCALARS, st.binary(max_size=30), st.lists(st.integers(-(2**15), 2**15 - 1)).map(lambda v: Array(Short, v))
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
BODIES = st.one_of(
    st.none(),
    TEXT,
    st.binary(max_size=5000),
    st.lists(VALUES, max_size=6),
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.builds(Object, st.binary(max_size=50), TEXT),
    st.builds(Foreign, TEXT, st.binary(max_size=50)),
)


def same(left: Any, right: Any) -> bool:
    """Equal, and of the same written type all the way down."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list | Array) and isinstance(right, list | Array):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    if isinstance(left, bytes | Object | Foreign):
        return type(left) is type(right) and bool(left == right)
    return values.type_of(left) == values.type_of(right) and bool(values.plain(left) == values.plain(right))


@given(varint_of=st.integers(0, 2**64 - 1))
def test_varints_are_protobufs(varint_of: int) -> None:
    message = message_pb2.Message(time_to_live_ms=varint_of)
    assert message.SerializeToString() == (b"\x18" + varint(varint_of) if varint_of else b"")


@pytest.mark.covers("EMS-MSG-A01", "EMS-MSG-A12", "EMS-MSG-A13")
@given(properties=st.dictionaries(NAMES, SCALARS, max_size=8), body=BODIES)
def test_messages_come_back_as_they_were_written(properties: dict[str, Any], body: Any) -> None:
    for _ in range(2):  # the second time names and short strings come from the tables
        message = parse_message(encode_message(b"", b"", properties, body))
        found = properties_of(message)
        tag = found.pop("JMS_STERNA_MSG_EXT", None)
        assert same(dict(found), properties)
        held = list(body.values()) if isinstance(body, dict) else body if isinstance(body, list) else []
        assert (tag is True) == any(isinstance(one, dict | list | Array) for one in held)
        assert same(body_of(message, b""), body)


@given(body=BODIES)
def test_a_compressed_body_inflates_to_what_it_was(body: Any) -> None:
    message = parse_message(encode_message(b"", b"", {"JMS_STERNA_COMPRESS": True}, body))
    assert message.compression == "zlib"
    assert same(body_of(message, b""), body)


def test_only_a_boolean_true_compresses() -> None:
    for value in ("true", 1, False):
        assert not parse_message(encode_message(b"", b"", {"JMS_STERNA_COMPRESS": value}, "x")).compression
    assert parse_message(encode_message(b"", b"", {"JMS_TIBCO_COMPRESS": True}, "x")).compression


def test_a_body_that_inflates_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna._decode.INFLATED_BYTES_MAX", 1000)
    with pytest.raises(InvalidMessageError):
        inflate(zlib.compress(bytes(5000)), "zlib")
    with pytest.raises(InvalidMessageError):
        inflate(zlib.compress(b"x")[:-3], "zlib")
    with pytest.raises(InvalidMessageError):
        inflate(b"x", "lz77")


@pytest.mark.covers("EMS-MSG-A02", "EMS-MSG-A15", "EMS-MSG-A16")
def test_header_fields_are_protobufs() -> None:
    header = encode_header(1, 9, 1000, 2**40) + encode_links("c", Topic("t"), "kind")
    expected = message_pb2.Message(
        delivery_mode="NON_PERSISTENT",
        priority=9,
        time_to_live_ms=1000,
        delivery_delay_ms=2**40,
        correlation_id="c",
        reply_to=message_pb2.Destination(kind="TOPIC", name="t"),
        type="kind",
    )
    assert message_pb2.Message.FromString(header) == expected
    assert encode_header(0, None, 0, 0) == b""
    assert message_pb2.Message.FromString(encode_header(0, 0, 0, 0)).HasField("priority")
    assert message_pb2.Message.FromString(encode_links("", Queue("q"), "")).reply_to.kind == message_pb2.QUEUE


@pytest.mark.parametrize("wrong", [(3, None, 0, 0), (0, 10, 0, 0), (0, -1, 0, 0), (0, 4, -1, 0), (0, 4, 0, 2**63)])
def test_header_fields_out_of_bounds_are_refused(wrong: tuple[int, int | None, int, int]) -> None:
    with pytest.raises(InvalidMessageError):
        encode_header(*wrong)


@pytest.mark.parametrize(
    ("properties", "body"),
    [
        ({"x": b"bytes"}, None),
        ({"x": [1]}, None),
        ({"x": Array(int, [1])}, None),
        ({"": 1}, None),
        ({"x": 2**63}, None),
        ({"x": object()}, None),
        (None, object()),
        (None, {"x": object()}),
        (None, {1: "x"}),
        (None, "\ud800"),
        ({"x": "\ud800"}, None),
    ],
)
def test_what_no_message_can_hold_is_refused(properties: Any, body: Any) -> None:
    with pytest.raises(InvalidMessageError):
        encode_message(b"", b"", properties, body)


def test_nesting_is_bounded_below_what_protobuf_reads() -> None:
    body: Any = 1
    for _ in range(24):
        body = {"x": body}
    assert same(body_of(parse_message(encode_message(b"", b"", None, body)), b""), body)
    with pytest.raises(InvalidMessageError):
        encode_message(b"", b"", None, {"x": body})


@pytest.mark.parametrize("body", [b"abc" * 1000, "äöü" * 1000, Object(b"abc", "application/json")])
@pytest.mark.parametrize("properties", [None, {"JMS_STERNA_COMPRESS": True}])
def test_an_uploaded_body_comes_back_as_it_was(body: Any, properties: dict[str, Any] | None) -> None:
    found = uploadable(body, properties)
    assert found is not None
    data, as_, content_type, beside = found
    message = parse_message(encode_uploaded(b"", b"", properties, 7, as_, content_type, beside))
    assert message.uploaded.upload_id == 7
    assert same(body_of(message, data), body)


def test_maps_and_streams_cannot_be_uploaded() -> None:
    assert uploadable({"x": 1}, None) is None
    assert uploadable([1], None) is None
