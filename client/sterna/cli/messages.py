"""Messages as rows, and rows as messages.

What `receive` and `browse` print as JSON lines, `send --jsonl` reads: a row's `body` is text, an object (a map), a list
(a stream) or null, and `bodyType` says so where JSON cannot (bytes and objects travel as base64).
"""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna.bodies import Foreign, MapBody, Object, StreamBody
from sterna.cli.destinations import destination
from sterna.cli.exits import usage
from sterna.cli.output import Column
from sterna.destinations import Destination, Queue, Topic
from sterna.errors import InvalidMessageError
from sterna.messages import Message
from sterna.modes import DeliveryMode
from sterna.values import Array

COLUMNS = (
    Column("DESTINATION", "destination", width=24),
    Column("MESSAGE", "messageId", width=28),
    Column("AGAIN", lambda row: f"x{row['deliveryCount']}" if row["redelivered"] else "", width=5),
    Column("PROPERTIES", lambda row: " ".join(f"{key}={value}" for key, value in row["properties"].items()), width=30),
    Column("BODY", "body"),
)

# Header fields of a JSON line, and what `Producer.send` calls them.
_HEADERS = {
    "correlationId": "correlation_id",
    "type": "type",
    "priority": "priority",
    "timeToLiveMs": "time_to_live_ms",
    "deliveryDelayMs": "delivery_delay_ms",
}
_INPUT_FIELDS = ("destination", "body", "bodyType", "properties", "replyTo", "deliveryMode", *_HEADERS)
# What `receive` prints and `send` cannot set: skipped, so that what was received can be sent again.
_RECEIVED_FIELDS = (
    *("messageId", "timestampMs", "deliveryTimeMs", "expirationMs", "redelivered", "deliveryCount", "sequence"),
    "reason",
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent: its body, its properties, and header fields by `Producer.send`'s names."""

    body: Any = None
    properties: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, Any] = field(default_factory=dict)


def sdk_destination(text: str) -> Destination:
    """The SDK's value for a destination as the command line writes it."""
    named = destination(text)
    return Queue(named.name) if named.kind == "queue" else Topic(named.name)


def spelled(place: Destination) -> str:
    """A destination as the command line writes it."""
    return f"{'topic' if isinstance(place, Topic) else 'queue'}:{place.name}"


def row(message: Message) -> dict[str, Any]:
    """A received message as a row; one that cannot be read is told with what is known of it, and why."""
    try:
        return _row(message)
    except InvalidMessageError as error:
        return {
            "destination": spelled(message.destination),
            "messageId": message.message_id,
            "sequence": message.sequence,
            "timestampMs": message.timestamp_ms,
            **({"reason": message.reason} if message.reason else {}),
            "bodyType": "unreadable",
            "body": str(error),
        }


def _row(message: Message) -> dict[str, Any]:
    kind, body = _body_out(message.body)
    properties = dict(message.properties)
    properties.pop("JMSXDeliveryCount", None)
    found: dict[str, Any] = {
        "destination": spelled(message.destination),
        "messageId": message.message_id,
        "sequence": message.sequence,
        "timestampMs": message.timestamp_ms,
        "deliveryMode": message.delivery_mode.name,
        "priority": message.priority,
        "redelivered": message.redelivered,
        "deliveryCount": message.delivery_count,
    }
    optional = {
        "deliveryTimeMs": message.delivery_time_ms if message.delivery_time_ms != message.timestamp_ms else None,
        "expirationMs": message.expiration_ms or None,
        "correlationId": message.correlation_id or None,
        "replyTo": spelled(message.reply_to) if message.reply_to else None,
        "type": message.type or None,
        "reason": message.reason or None,
    }
    found |= {name: value for name, value in optional.items() if value is not None}
    return {**found, "properties": _json_value(properties), "bodyType": kind, "body": body}


def raw_body(message: Message) -> bytes:
    """The body by itself, as bytes for a pipe; maps and streams as JSON."""
    match message.body:
        case None:
            return b""
        case bytes() as data:
            return data
        case Object(data=data) | Foreign(data=data):
            return data
        case str() as text:
            return text.encode()
        case other:
            return json.dumps(_json_value(other), ensure_ascii=False).encode()


def outgoing(line: str, number: int) -> Outgoing:
    """The message that a JSON line describes.

    Raises:
        CommandError: the line is no such message; names its number.
    """
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise usage(f"line {number} is not JSON", f"{error.msg} at column {error.colno}") from error
    if not isinstance(found, dict):
        raise usage(f"line {number} is no object", 'write {"body": "text", "properties": {"colour": "red"}}')
    unknown = [name for name in found if name not in (*_INPUT_FIELDS, *_RECEIVED_FIELDS)]
    if unknown:
        raise usage(f"line {number} has the unknown field '{unknown[0]}'", f"known are {', '.join(_INPUT_FIELDS)}")
    properties = found.get("properties") or {}
    if not isinstance(properties, dict):
        raise usage(f"line {number}: properties is no object", 'write "properties": {"colour": "red"}')
    body = body_in(found.get("body"), found.get("bodyType"), f"line {number}")
    return Outgoing(body, properties, _headers_in(found, number))


def body_in(value: Any, kind: str | None, where: str) -> Any:
    """The body that a JSON value, or text of the command line, stands for."""
    try:
        match kind:
            case None if value is None or isinstance(value, str | dict | list):
                return value
            case None:
                return json.dumps(value)
            case "none":
                return None
            case "text":
                return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            case "bytes":
                return base64.b64decode(value, validate=True)
            case "object":
                return Object(base64.b64decode(value, validate=True))
            case "map" | "stream":
                made = json.loads(value) if isinstance(value, str) else value
                if not isinstance(made, dict if kind == "map" else list):
                    raise ValueError(f"a {kind} is written as a JSON {'object' if kind == 'map' else 'list'}")
                return made
    except (binascii.Error, ValueError, TypeError) as error:
        raise usage(f"{where}: the body is no {kind}", str(error)) from error
    raise usage(f"{where}: unknown body type '{kind}'", "one of: none, text, bytes, object, map, stream")


def _headers_in(found: Mapping[str, Any], number: int) -> dict[str, Any]:
    headers = {sdk: found[name] for name, sdk in _HEADERS.items() if found.get(name) is not None}
    if found.get("replyTo"):
        headers["reply_to"] = sdk_destination(found["replyTo"])
    if found.get("deliveryMode"):
        headers["delivery_mode"] = delivery_mode(str(found["deliveryMode"]), f"line {number}")
    return headers


def delivery_mode(text: str, where: str = "--delivery-mode") -> DeliveryMode:
    """A delivery mode as people write it: `persistent`, `non-persistent`, `reliable`."""
    name = text.upper().replace("-", "_")
    if name not in DeliveryMode.__members__:
        raise usage(f"{where}: '{text}' is no delivery mode", "one of: persistent, non-persistent, reliable")
    return DeliveryMode[name]


def _body_out(body: Any) -> tuple[str, Any]:
    match body:
        case None:
            return "none", None
        case str():
            return "text", body
        case bytes():
            return "bytes", base64.b64encode(body).decode()
        case Object() | Foreign():
            return "object", base64.b64encode(body.data).decode()
        case MapBody() | dict():
            return "map", _json_value(body)
        case StreamBody() | list():
            return "stream", _json_value(body)
        case _:
            return "text", str(body)


def _json_value(value: Any) -> Any:
    """A value of a property, map or stream as JSON has it; bytes as base64."""
    match value:
        case bool() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {str(name): _json_value(item) for name, item in value.items()}
        case list() | Array():
            return [_json_value(item) for item in value]
        case _:
            return str(value)
