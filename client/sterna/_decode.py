"""Wire messages to Python values.

Called when an application first looks at a property or a body, never before: a message that is only acknowledged is
never decoded. What arrives here passed the broker, which checks frames but not what is in a message, so every surprise
is an InvalidMessageError and inflating is bounded.
"""

from __future__ import annotations

import zlib
from typing import Any, Final

from google.protobuf.message import DecodeError

from sterna import values
from sterna._proto.sterna.v1 import message_pb2
from sterna.bodies import Foreign, MapBody, Object, Properties, StreamBody
from sterna.errors import InvalidMessageError

#: A body that inflates beyond this is refused.
INFLATED_BYTES_MAX: Final = 256 * 1024 * 1024
#: Where the broker, and nobody else, tells who sent a message (EMS-MSG-A11); and the vendor's name of that.
SENDER: Final = "JMS_STERNA_SENDER"
SENDER_ALIASES: Final = ("JMS_TIBCO_SENDER",)


def _integer(value: int) -> int:
    """A long: plain where a plain int is written as a long again."""
    low, high = values.INT_RANGE
    return values.Long(value) if low <= value <= high else value


def value_of(value: Any) -> Any:
    """A `Value` as Python has it (see values: writing it again gives the same type)."""
    kind = value.WhichOneof("kind")
    match kind:
        case "string_value" | "int_value" | "bool_value" | "double_value" | "bytes_value":
            return getattr(value, kind)
        case "long_value":
            return _integer(value.long_value)
        case "byte_value":
            return values.Byte(value.byte_value)
        case "short_value":
            return values.Short(value.short_value)
        case "float_value":
            return values.Float(value.float_value)
        case "char_value":
            if value.char_value > 0xFFFF:
                raise InvalidMessageError(f"{value.char_value} is no UTF-16 code unit", subject="char_value")
            return values.Char(chr(value.char_value))
        case "map_value":
            return map_of(value.map_value)
        case "stream_value":
            return stream_of(value.stream_value)
        case "array_value":
            return _array_of(value.array_value)
        case _:
            return None


_ARRAY_OF: Final[dict[str, type[Any]]] = {
    "bool_value": bool,
    "byte_value": values.Byte,
    "short_value": values.Short,
    "int_value": values.Int,
    "long_value": values.Long,
    "float_value": values.Float,
    "double_value": values.Double,
    "string_value": str,
    "char_value": values.Char,
}


def _array_of(array: Any) -> values.Array:
    kinds = {item.WhichOneof("kind") for item in array.items}
    if len(kinds) > 1 or not kinds <= _ARRAY_OF.keys():
        raise InvalidMessageError("an array holds values of one scalar type", subject="array")
    of = _ARRAY_OF[kinds.pop()] if kinds else str
    return values.Array(of, (value_of(item) for item in array.items))


def map_of(body: Any) -> MapBody:
    """A `MapBody` as a dict with typed readers."""
    return MapBody((entry.name, value_of(entry.value)) for entry in body.entries)


def stream_of(body: Any) -> StreamBody:
    """A `StreamBody` as a list with typed readers."""
    return StreamBody(value_of(item) for item in body.items)


def properties_of(message: Any) -> Properties:
    """The properties of a `Message`; the last of a repeated name counts."""
    return Properties((one.name, value_of(one.value)) for one in message.properties)


def parse_message(data: bytes) -> Any:
    """The protobuf message in `data`.

    Raises:
        InvalidMessageError: when the bytes are none.
    """
    try:
        return message_pb2.Message.FromString(data)
    except DecodeError as error:
        raise InvalidMessageError(f"cannot read the message: {error}", subject="message") from error


def inflate(data: bytes, compression: str) -> bytes:
    """The uncompressed form of a compressed body.

    Raises:
        InvalidMessageError: for an unknown compression, damaged data, or more than INFLATED_BYTES_MAX.
    """
    if compression != "zlib":
        raise InvalidMessageError(f"compression {compression!r} is unknown here", subject="compression")
    inflater = zlib.decompressobj()
    try:
        out = inflater.decompress(data, INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise InvalidMessageError(f"cannot inflate the body: {error}", subject="body") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise InvalidMessageError("the compressed body is cut off or inflates too far", subject="body")
    return out


def body_of(message: Any, uploaded: bytes) -> Any:
    """The body of a parsed `Message`; `uploaded` holds the bytes that went ahead in chunks, if any."""
    kind = message.WhichOneof("body")
    if kind == "bytes" and not message.compression:
        return message.bytes
    if message.compression:
        inner = parse_message(inflate(message.bytes if kind == "bytes" else uploaded, message.compression))
        if inner.compression:
            raise InvalidMessageError("a compressed body holds a compressed body", subject="compression")
        return body_of(inner, b"")
    match kind:
        case "text":
            return message.text
        case "map":
            return map_of(message.map)
        case "stream":
            return stream_of(message.stream)
        case "object":
            return Object(message.object.data, message.object.content_type)
        case "uploaded":
            return _uploaded_body(message.uploaded, uploaded)
        case "foreign":
            return Foreign(message.foreign.protocol, message.foreign.data)
        case _:
            return None


def _uploaded_body(reference: Any, data: bytes) -> Any:
    as_ = reference.DESCRIPTOR.fields_by_name["as"].enum_type.values_by_number[getattr(reference, "as")].name
    match as_:
        case "TEXT":
            try:
                return data.decode()
            except UnicodeDecodeError as error:
                raise InvalidMessageError(f"the uploaded text is no UTF-8: {error}", subject="body") from error
        case "OBJECT":
            return Object(data, reference.content_type)
        case _:
            return data
