"""Messages to wire bytes, by hand.

The producer's hot path encodes one message per call. Building a protobuf object for it and serialising that takes
about twice as long as writing the few bytes directly, so this module knows the field numbers of message.proto; a
property test compares what it writes with what protobuf reads. What a producer always sends the same (mode, priority,
time to live, delay) is encoded once and passed in as `header`; names of properties are encoded once per process.

Left out: what only brokers and other protocols write (foreign bodies are passed through, uploads are named by the
producer that made them).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any, Final

from sterna import values
from sterna.bodies import Foreign, Object
from sterna.destinations import Destination
from sterna.errors import InvalidMessageError

#: Marks maps and streams that go beyond JMS (EMS-MSG-A07); as all such properties, the vendor's name means the same.
MSG_EXT: Final = "JMS_STERNA_MSG_EXT"
_MSG_EXT_NAMES: Final = (MSG_EXT, "JMS_TIBCO_MSG_EXT")

_NESTING_MAX: Final = 24  # each level of a map is three of protobuf, whose readers stop at 100
_NAMES_MAX: Final = 4096
_TEXT_HEADER_MAX: Final = 4096


def _varint(value: int) -> bytes:
    if 4096 <= value < 1 << 21:  # what most values beyond the table are
        if value < 1 << 14:
            return bytes((value & 127 | 128, value >> 7))
        return bytes((value & 127 | 128, value >> 7 & 127 | 128, value >> 14))
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_TABLE_SIZE: Final = 4096
_VARINTS: Final = [_varint(one) for one in range(_TABLE_SIZE)]


def varint(value: int) -> bytes:
    """`value` (not negative) in protobuf's variable length, as a length is, too; small ones from a table."""
    return _VARINTS[value] if value < _TABLE_SIZE else _varint(value)


def field(tag: bytes, content: bytes) -> bytes:
    """A length-delimited field."""
    return tag + varint(len(content)) + content


def _int_value(value: int) -> bytes:
    return b"\x20" + varint(value << 1 ^ value >> 31)


_pack_double = struct.Struct("<d").pack
_pack_float = struct.Struct("<f").pack

# Short strings (codes, names of states) are kept encoded with the property that they are the value of.
_STRINGS_MAX: Final = 4096
_STRING_CHARACTERS_MAX: Final = 24


class _Name:
    """A name of properties and entries with all that can be encoded before the value is known."""

    __slots__ = ("double", "false", "ints", "key", "strings", "true")
    strings_count = 0

    def __init__(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidMessageError(f"{name!r} is no name for a property or an entry", subject="name")
        #: The `name` field, and the tag of `value` after it.
        self.key = field(b"\x0a", name.encode()) + b"\x12"
        self.strings: dict[str, bytes] = {}
        self.double = self.before(9) + b"\x39"
        self.true = self.property(b"\x08\x01")
        self.false = self.property(b"\x08\x00")
        #: What stands before an int, by the length of its varint.
        self.ints = tuple(self.before(1 + size) + b"\x20" for size in range(11))

    def before(self, size: int) -> bytes:
        """Everything of the property before a value of `size` bytes."""
        key = self.key + varint(size)
        return b"\x42" + varint(len(key) + size) + key

    def property(self, value: bytes) -> bytes:
        """The whole property."""
        return self.before(len(value)) + value

    def string(self, value: str) -> bytes:
        """The whole property with a string, which is kept if it is short."""
        content = self.property(field(b"\x42", value.encode()))
        if len(value) <= _STRING_CHARACTERS_MAX and _Name.strings_count < _STRINGS_MAX:
            _Name.strings_count += 1
            self.strings[value] = content
        return content


_names: dict[str, _Name] = {}


def _name(name: Any) -> _Name:
    entry = _Name(name)
    if len(_names) < _NAMES_MAX:
        _names[name] = entry
    return entry


def encode_value(value: Any, depth: int = 0) -> bytes:
    """A `Value`, without its length. Maps and lists nest; `depth` counts how far."""
    kind = values.type_of(value)
    if kind is None:
        if isinstance(value, Mapping):
            return field(b"\x62", encode_map(value, depth + 1))
        if isinstance(value, list | tuple):
            return field(b"\x6a", encode_stream(value, depth + 1))
        raise InvalidMessageError(
            f"a {type(value).__name__} is no value of a message",
            subject="value",
            remedy="use bool, int, float, str, bytes, None, dict, list or the wrappers of sterna.values",
        )
    match kind:
        case values.STRING:
            return field(b"\x42", value.encode())
        case values.INT:
            return _int_value(value)
        case values.LONG:
            return b"\x28" + varint(value << 1 ^ value >> 63)
        case values.BOOL:
            return b"\x08\x01" if value else b"\x08\x00"
        case values.DOUBLE:
            return b"\x39" + _pack_double(value)
        case values.FLOAT:
            return b"\x35" + _pack_float(value)
        case values.BYTE:
            return b"\x10" + varint(value << 1 ^ value >> 31)
        case values.SHORT:
            return b"\x18" + varint(value << 1 ^ value >> 31)
        case values.CHAR:
            return b"\x48" + varint(ord(value))
        case values.BYTES:
            return field(b"\x52", bytes(value))
        case values.ARRAY:
            return field(b"\x72", b"".join(field(b"\x0a", encode_value(one)) for one in value))
        case _:
            return b"\x58\x00"


def encode_map(entries: Mapping[str, Any], depth: int = 1) -> bytes:
    """A `MapBody`."""
    _check_depth(depth)
    parts: list[bytes] = []
    for name, value in entries.items():
        content = encode_value(value, depth)
        key = (_names.get(name) or _name(name)).key + varint(len(content))
        parts += (b"\x0a", varint(len(key) + len(content)), key, content)
    return b"".join(parts)


def encode_stream(items: list[Any] | tuple[Any, ...], depth: int = 1) -> bytes:
    """A `StreamBody`."""
    _check_depth(depth)
    return b"".join(field(b"\x0a", encode_value(item, depth)) for item in items)


def _check_depth(depth: int) -> None:
    if depth > _NESTING_MAX:
        raise InvalidMessageError(f"maps and lists nest deeper than {_NESTING_MAX}", subject="body")


def encode_destination(destination: Destination) -> bytes:
    """A `Destination`, without its length."""
    return bytes((0x08, destination.kind)) + field(b"\x12", destination.name.encode())


def encode_target(destination: Destination) -> bytes:
    """The destination of a Publish frame, of a producer that has none."""
    return field(b"\x22", encode_destination(destination))


def encode_header(delivery_mode: int, priority: int | None, time_to_live_ms: int, delivery_delay_ms: int) -> bytes:
    """The header fields that a producer has defaults for.

    Raises:
        InvalidMessageError: for a priority outside 0 to 9, an unknown mode, a negative time.
    """
    parts = []
    if delivery_mode:
        if delivery_mode not in (1, 2):
            raise InvalidMessageError(f"{delivery_mode!r} is no delivery mode", subject="delivery_mode")
        parts.append(b"\x08" + varint(delivery_mode))
    if priority is not None:
        if not 0 <= priority <= 9:
            raise InvalidMessageError(f"priority {priority} is not between 0 and 9", subject="priority")
        parts.append(b"\x10" + varint(priority))
    for tag, value, name in (
        (b"\x18", time_to_live_ms, "time_to_live_ms"),
        (b"\x20", delivery_delay_ms, "delivery_delay_ms"),
    ):
        if value:
            if not 0 < value < 2**63:
                raise InvalidMessageError(f"{value} is no number of milliseconds", subject=name)
            parts.append(tag + varint(int(value)))
    return b"".join(parts)


def encode_links(correlation_id: str | None, reply_to: Destination | None, type_: str, encoding: str = "") -> bytes:
    """The header fields that the application sets for its receivers (EMS-MSG-A02)."""
    parts = []
    try:
        if correlation_id is not None:
            text = correlation_id.encode()
            if len(text) > _TEXT_HEADER_MAX:
                raise InvalidMessageError(f"longer than {_TEXT_HEADER_MAX} bytes of UTF-8", subject="correlation_id")
            parts.append(field(b"\x2a", text))
        if reply_to is not None:
            parts.append(field(b"\x32", encode_destination(reply_to)))
        if type_:
            parts.append(field(b"\x3a", type_.encode()))
        if encoding:
            parts.append(field(b"\x82\x01", encoding.encode()))
    except UnicodeEncodeError as error:
        raise not_unicode(error) from error
    return b"".join(parts)


def encode_properties(properties: Mapping[str, Any], parts: list[bytes]) -> None:
    """Appends each property to `parts`."""
    for name, value in properties.items():
        entry = _names.get(name) or _name(name)
        kind = type(value)
        if kind is str:
            parts.append(entry.strings.get(value) or entry.string(value))
        elif kind is int and -0x80000000 <= value <= 0x7FFFFFFF:
            bits = value << 1 ^ value >> 31
            encoded = _VARINTS[bits] if bits < _TABLE_SIZE else varint(bits)
            parts += (entry.ints[len(encoded)], encoded)
        elif kind is float:
            parts += (entry.double, _pack_double(value))
        elif kind is bool:
            parts.append(entry.true if value else entry.false)
        else:
            if values.type_of(value) in (None, values.BYTES, values.ARRAY):
                raise InvalidMessageError(
                    f"a property holds one scalar value, not {type(value).__name__}",
                    subject=str(name),
                    remedy="put bytes, lists and maps into the body",
                )
            parts.append(entry.property(encode_value(value)))


def encode_body(body: Any) -> bytes:
    """The body's field, tag and length included; nothing for None."""
    match body:
        case None:
            return b""
        case str():
            return field(b"\x4a", body.encode())
        case bytes() | bytearray() | memoryview():
            return field(b"\x52", bytes(body))
        case Mapping():
            return field(b"\x5a", encode_map(body))
        case list():
            return field(b"\x62", encode_stream(body))
        case Object():
            content_type = field(b"\x12", body.content_type.encode()) if body.content_type else b""
            return field(b"\x6a", field(b"\x0a", bytes(body.data)) + content_type)
        case Foreign():
            return field(b"\x7a", field(b"\x0a", body.protocol.encode()) + field(b"\x12", bytes(body.data)))
        case _:
            raise InvalidMessageError(
                f"a {type(body).__name__} is no body",
                subject="body",
                remedy="send None, str, bytes, dict, list or sterna.Object",
            )


def extended(body: Any) -> bool:
    """Whether a map or stream uses what JMS does not have: nested maps, streams and arrays (EMS-MSG-A13)."""
    held = body.values() if isinstance(body, Mapping) else body if isinstance(body, list) else ()
    return any(isinstance(one, Mapping | list | tuple | values.Array) for one in held)


def wants_compression(properties: Mapping[str, Any] | None) -> bool:
    """Whether a property asks for a compressed body: a boolean true, nothing else (EMS-MSG-A24)."""
    return properties is not None and (
        properties.get("JMS_STERNA_COMPRESS") is True or properties.get("JMS_TIBCO_COMPRESS") is True
    )


class _Deflated:
    """Whether any body was deflated in this process: who looks for them need not where there never was one."""

    is_used = False


deflated: Final = _Deflated()
_COMPRESSION_FIELD: Final = b"\x8a\x01\x04zlib"


def compress_body(body: Any) -> bytes:
    """The body's field in its compressed form: `bytes` holds the deflated encoding of a Message with the body alone."""
    deflated.is_used = True
    return field(b"\x52", zlib.compress(encode_body(body), 6)) + _COMPRESSION_FIELD


def encode_message(header: bytes, links: bytes, properties: Mapping[str, Any] | None, body: Any) -> bytes:
    """A `Message`.

    Raises:
        InvalidMessageError: for a value, name or body that no message can hold.
    """
    parts = [header, links]
    try:
        if properties:
            encode_properties(properties, parts)
            if wants_compression(properties):
                _tag_extended(body, properties, parts)
                parts.append(compress_body(body))
                return b"".join(parts)
        if type(body) is bytes:
            size = len(body)
            parts += (b"\x52", _VARINTS[size] if size < _TABLE_SIZE else varint(size), body)
        else:
            _tag_extended(body, properties, parts)
            parts.append(encode_body(body))
    except UnicodeEncodeError as error:
        raise not_unicode(error) from error
    return b"".join(parts)


def not_unicode(error: UnicodeEncodeError) -> InvalidMessageError:
    """What a string with lone surrogates is refused with."""
    return InvalidMessageError(f"a string is not valid Unicode: {error.reason}", subject="message")


def _tag_extended(body: Any, properties: Mapping[str, Any] | None, parts: list[bytes]) -> None:
    if extended(body) and not any(name in (properties or ()) for name in _MSG_EXT_NAMES):
        encode_properties({MSG_EXT: True}, parts)


#: How a large body is assembled again: UploadedBody.As.
_AS_BYTES, _AS_TEXT, _AS_OBJECT = 0, 1, 2


def uploadable(body: Any, properties: Mapping[str, Any] | None) -> tuple[bytes, int, str, bytes] | None:
    """What of a body can go ahead in chunks: (data, UploadedBody.As, content type, fields beside it), or None."""
    if wants_compression(properties):
        return zlib.compress(encode_body(body), 6), _AS_BYTES, "", _COMPRESSION_FIELD
    match body:
        case bytes() | bytearray() | memoryview():
            return bytes(body), _AS_BYTES, "", b""
        case str():
            return body.encode(), _AS_TEXT, "", b""
        case Object():
            return bytes(body.data), _AS_OBJECT, body.content_type, b""
        case _:
            return None


def encode_uploaded(
    header: bytes,
    links: bytes,
    properties: Mapping[str, Any] | None,
    upload_id: int,
    as_: int,
    content_type: str,
    beside: bytes,
) -> bytes:
    """A `Message` whose body went ahead under `upload_id`."""
    parts = [header, links]
    if properties:
        encode_properties(properties, parts)
    uploaded = b"\x09" + struct.pack("<Q", upload_id) + b"\x10" + varint(as_)
    if content_type:
        uploaded += field(b"\x1a", content_type.encode())
    parts.append(field(b"\x72", uploaded))
    parts.append(beside)
    return b"".join(parts)
