"""Messages as rows, and rows as messages.

What `receive` and `browse` print as JSON lines, `send --jsonl` reads: a row's `body` is text, an object (a map), a list
(a stream) or null, and `bodyType` says so where JSON cannot (bytes and objects travel as base64). `propertyTypes` and
`bodyTypes` name the types of values that JSON has none of its own for, `expirationMs` when its life is over.
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
from sterna.cli.typed_json import escaped, from_json, to_json
from sterna.destinations import Destination, Queue, Topic
from sterna.errors import InvalidMessageError
from sterna.messages import Message
from sterna.modes import DeliveryMode

COLUMNS = (
    Column("DESTINATION", "destination", width=24),
    Column("MESSAGE", "messageId", width=28, rank=1),
    Column("AGAIN", lambda row: f"x{row['deliveryCount']}" if row["redelivered"] else "", width=5),
    Column("PROPERTIES", lambda row: " ".join(f"{key}={value}" for key, value in row["properties"].items()), width=30),
    Column("BODY", "body"),
)

# Header fields of a JSON line, and what `Producer.send` calls them.
_HEADERS = {
    "correlationId": "correlation_id",
    "type": "type",
    "encoding": "encoding",
    "priority": "priority",
    "timeToLiveMs": "time_to_live_ms",
    "deliveryDelayMs": "delivery_delay_ms",
}
_INPUT_FIELDS = (
    *("destination", "body", "bodyType", "bodyTypes", "contentType", "protocol", "properties", "propertyTypes"),
    *("replyTo", "deliveryMode", "expirationMs", *_HEADERS),
)
# What `receive` prints and `send` cannot set: skipped, so that what was received can be sent again.
_RECEIVED_FIELDS = (
    *("messageId", "timestampMs", "deliveryTimeMs", "redelivered", "deliveryCount", "sequence"),
    *("reason", "sender"),
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to be sent: its body, its properties, and header fields by `Producer.send`'s names.

    `expiration_ms`: when its life is over by the broker's clock, in milliseconds since 1970; 0: as the headers say.
    """

    body: Any = None
    properties: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, Any] = field(default_factory=dict)
    expiration_ms: int = 0

    def headers_at(self, now_ms: int) -> dict[str, Any]:
        """The headers with the life that remains; of one whose life is over, the shortest there is."""
        if not self.expiration_ms:
            return self.headers
        return {**self.headers, "time_to_live_ms": max(self.expiration_ms - now_ms, 1)}


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
    properties = dict(message.properties)
    # The broker's own words: no properties that a sender may set.
    for name in ("JMSXDeliveryCount", "JMS_STERNA_SENDER"):
        properties.pop(name, None)
    shown, types = to_json(properties)
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
        "correlationId": message.correlation_id,
        "replyTo": spelled(message.reply_to) if message.reply_to else None,
        "type": message.type or None,
        "encoding": message.encoding if message.encoding != "UTF-8" else None,
        "reason": message.reason or None,
        "sender": message.sender or None,
    }
    found |= {name: value for name, value in optional.items() if value is not None}
    found["properties"] = shown
    if types:
        # Properties have no places below them: their names will do.
        found["propertyTypes"] = {name: types[path] for name in shown if (path := _pointer(name)) in types}
    return {**found, **_body_out(message.body)}


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
            return json.dumps(to_json(other)[0], ensure_ascii=False).encode()


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
    where = f"line {number}"
    properties = _object(found, "properties", where)
    types = {_pointer(name): kind for name, kind in _object(found, "propertyTypes", where).items()}
    body = body_in(found.get("body"), found.get("bodyType"), where)
    try:
        properties = from_json(properties, types)
        body = from_json(body, _object(found, "bodyTypes", where))
    except (ValueError, InvalidMessageError) as error:
        raise usage(f"{where}: a value is not of the type that is named for it", str(error)) from error
    if isinstance(body, Object) and found.get("protocol"):
        body = Foreign(str(found["protocol"]), body.data)
    elif isinstance(body, Object) and found.get("contentType"):
        body = Object(body.data, str(found["contentType"]))
    return Outgoing(body, properties, _headers_in(found, number), _expiration_in(found, where))


def _pointer(name: str) -> str:
    return "/" + escaped(name)


def _object(found: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    value = found.get(name) or {}
    if not isinstance(value, dict):
        raise usage(f"{where}: {name} is no object", f'write "{name}": {{"colour": "red"}}')
    return value


def _expiration_in(found: Mapping[str, Any], where: str) -> int:
    value = found.get("expirationMs") or 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise usage(f"{where}: expirationMs is no time", "write milliseconds since 1970, or timeToLiveMs instead")
    # What is said of the life itself goes before what was once made of it.
    return 0 if found.get("timeToLiveMs") is not None else value


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


def _body_out(body: Any) -> dict[str, Any]:
    match body:
        case None:
            return {"bodyType": "none", "body": None}
        case str():
            return {"bodyType": "text", "body": body}
        case bytes():
            return {"bodyType": "bytes", "body": base64.b64encode(body).decode()}
        case Object(data=data, content_type=content_type):
            named = {"contentType": content_type} if content_type != Object(b"").content_type else {}
            return {"bodyType": "object", **named, "body": base64.b64encode(data).decode()}
        case Foreign(protocol=protocol, data=data):
            return {"bodyType": "object", "protocol": protocol, "body": base64.b64encode(data).decode()}
        case MapBody() | dict() | StreamBody() | list():
            shown, types = to_json(body)
            kind = "map" if isinstance(body, dict) else "stream"
            return {"bodyType": kind, **({"bodyTypes": types} if types else {}), "body": shown}
        case _:
            return {"bodyType": "text", "body": str(body)}
