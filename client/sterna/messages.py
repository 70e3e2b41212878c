"""Messages as a receiver holds them, and what a sender learns of the ones it sent.

A received `Message` is a view: nothing of it is decoded until it is looked at, so acknowledging one that nobody reads
costs no decoding. It stays readable after its session is closed; only settling it needs the session.
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from sterna import errors
from sterna._decode import SENDER, SENDER_ALIASES, body_of, parse_message, properties_of
from sterna.bodies import Object, Properties, StreamBody
from sterna.destinations import Destination, destination_from
from sterna.modes import DeliveryMode, Durability

if TYPE_CHECKING:
    from sterna._acknowledging import Settled

_UNREAD: Any = object()
DEFAULT_PRIORITY = 4
RELEASE_DELAY_MAX_MS = 8 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Sent:
    """What the sender of a message knows of it (EMS-MSG-A02, A03, A26).

    Times are the broker's clock, in milliseconds since 1970. In a transaction, and for RELIABLE messages, nothing is
    confirmed one by one: `durability` is None then, and the times are this client's estimate of that clock at the call
    of send.
    """

    message_id: str
    #: When it arrived at the broker.
    timestamp_ms: int
    #: The earliest delivery: `timestamp_ms` and the delivery delay.
    delivery_time_ms: int
    #: How safe it is.
    durability: Durability | None
    #: When it expires, if its destination does not say otherwise (`expirationMs`); 0: never.
    expiration_ms: int = 0


def sent_at(message_id: str, timestamp_ms: int, times: tuple[int, int], durability: Durability | None) -> Sent:
    """What a sender learns of a message that came then, with its delivery delay and its time to live."""
    delay_ms, life_ms = times
    expiration_ms = timestamp_ms + life_ms if life_ms else 0
    return Sent(message_id, timestamp_ms, timestamp_ms + delay_ms, durability, expiration_ms)


class Origin(Protocol):
    """Where a message was received, and is settled."""

    destination: Destination

    @property
    def session(self) -> Any:
        """The session that it belongs to."""

    def acknowledge(self, sequence: int, generation: int, *, alone: bool) -> Settled:
        """See Message.acknowledge."""

    def release(self, sequence: int, generation: int, message_id: str, delay_ms: int) -> None:
        """See Message.release."""


class Message:
    """A received message: header fields, `properties` and `body` (EMS-MSG-A01)."""

    __slots__ = ("_body", "_consumer", "_delivery", "_generation", "_parsed", "_properties")

    def __init__(self, consumer: Origin, delivery: Any, generation: int) -> None:
        self._consumer = consumer
        self._delivery = delivery
        self._generation = generation
        self._parsed: Any = None
        self._properties: Properties | None = None
        self._body: Any = _UNREAD

    # --- What the broker says about it

    @property
    def message_id(self) -> str:
        """`ID:<broker>.<producer>:<number>` (EMS-MSG-A26)."""
        return str(self._delivery.message_id)

    @property
    def timestamp_ms(self) -> int:
        """When it arrived at the broker; milliseconds since 1970."""
        return int(self._delivery.timestamp_ms)

    @property
    def delivery_time_ms(self) -> int:
        """The earliest delivery (EMS-MSG-A03); milliseconds since 1970."""
        return int(self._delivery.delivery_time_ms or self._delivery.timestamp_ms)

    @property
    def expiration_ms(self) -> int:
        """When it expires; 0: never, or the destination's business. Milliseconds since 1970."""
        return int(self._delivery.expiration_ms)

    @property
    def redelivered(self) -> bool:
        """Whether it may have been delivered before without being acknowledged (EMS-MSG-A20)."""
        return bool(self._delivery.redelivered)

    @property
    def delivery_count(self) -> int:
        """How often it was handed to a consumer, this time included; counted since the broker started."""
        return int(self._delivery.delivery_count or 1)

    @property
    def sequence(self) -> int:
        """The number that the queue or subscription gave it."""
        return int(self._delivery.sequence)

    @property
    def destination(self) -> Destination:
        """Where it was sent."""
        named = self._delivery.destination
        if named.name:
            return destination_from(named.kind, named.name)
        return self._consumer.destination

    @property
    def sender(self) -> str:
        """The sender's user name, where the destination asks for it; empty otherwise."""
        return str(self._delivery.sender)

    @property
    def reason(self) -> str:
        """Why it is here and not where it was sent (`$sys.undelivered`); empty otherwise."""
        return str(self._delivery.reason)

    # --- What the sender wrote

    def _message(self) -> Any:
        if self._parsed is None:
            self._parsed = parse_message(self._delivery.message)
        return self._parsed

    @property
    def delivery_mode(self) -> DeliveryMode:
        """How hard the broker held on to it."""
        return DeliveryMode(self._message().delivery_mode)

    @property
    def priority(self) -> int:
        """0 to 9; 4 when the sender said nothing (EMS-MSG-A15)."""
        message = self._message()
        return int(message.priority) if message.HasField("priority") else DEFAULT_PRIORITY

    @property
    def correlation_id(self) -> str | None:
        """What links a reply to its request; None when there is none, which an empty one is not."""
        message = self._message()
        return str(message.correlation_id) if message.HasField("correlation_id") else None

    @property
    def reply_to(self) -> Destination | None:
        """Where a reply is wanted."""
        message = self._message()
        return destination_from(message.reply_to.kind, message.reply_to.name) if message.HasField("reply_to") else None

    @property
    def type(self) -> str:
        """The sender's free tag; empty when there is none."""
        return str(self._message().type)

    @property
    def encoding(self) -> str:
        """The character set that the sender names, as a label; strings are always UTF-8 on the way (EMS-MSG-A21)."""
        return str(self._message().encoding or "UTF-8")

    @property
    def properties(self) -> Properties:
        """The properties, with typed readers; `JMSXDeliveryCount` and the sender's name among them."""
        if self._properties is None:
            properties = properties_of(self._message())
            properties["JMSXDeliveryCount"] = self.delivery_count
            # The broker's word alone: what a sender wrote there itself is not shown.
            for name in (SENDER, *SENDER_ALIASES):
                properties.pop(name, None)
            if self.sender:
                properties[SENDER] = self.sender
            self._properties = properties
        return self._properties

    @property
    def body(self) -> Any:
        """None, str, bytes, a MapBody, a StreamBody, an Object or a Foreign (EMS-MSG-A12); inflated if compressed."""
        if self._body is _UNREAD:
            self._body = body_of(self._message(), self._delivery.uploaded)
        return self._body

    @property
    def text(self) -> str:
        """The body of a text message.

        Raises:
            ConversionError: when it is none.
        """
        from sterna.bodies import expect

        return str(expect(self.body, str))

    # --- Settling it

    def acknowledge(self, *, alone: bool = False) -> Settled:
        """Says that it is done with; in CLIENT mode, that all its session was handed so far is, or `alone` it.

        In other modes each message is acknowledged alone, or by the session, whatever is said here.

        The acknowledgement leaves at once, together with others; nothing needs to be awaited. Awaiting the result
        waits for the broker, and tells whether it took effect: False when the delivery was void by then, since the
        connection broke, or the session recovered, in between. The message then comes again, flagged as redelivered.

        Raises:
            ClosedError: after the session was closed.
        """
        return self._consumer.acknowledge(self._delivery.sequence, self._generation, alone=alone)

    def release(self, *, delay_ms: int = 0) -> None:
        """Gives it back: it is delivered again, to anybody, and counts as delivered (EMS-DEST-A23).

        Not before `delay_ms` milliseconds are over, at most 8 hours, nor before its queue's `redeliveryDelayMs`
        (EMS-DEST-A32); others go ahead meanwhile.

        Raises:
            InvalidArgumentError: that is no such delay.
            NotAllowedError: it was acknowledged or given back before.
        """
        asked: object = delay_ms
        if not isinstance(asked, int) or not 0 <= asked <= RELEASE_DELAY_MAX_MS:
            cause = f"{delay_ms!r} is no number of milliseconds up to 8 h"
            raise errors.InvalidArgumentError(cause, subject="delay_ms")
        self._consumer.release(self.sequence, self._generation, self.message_id, delay_ms)

    async def __aenter__(self) -> Message:
        return self

    async def __aexit__(
        self, kind: builtins.type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.acknowledge()
        else:
            self.release()

    # --- For people

    def __repr__(self) -> str:
        return f"<Message {self.message_id} from {self.destination}>"

    def __str__(self) -> str:
        """Type, header, properties and body, in the form of EMS-MSG-A27."""
        kinds: dict[Any, tuple[str, str]] = {
            type(None): ("Message", ""),
            str: ("TextMessage", "Text"),
            bytes: ("BytesMessage", "Bytes"),
            StreamBody: ("StreamMessage", "Items"),
            Object: ("ObjectMessage", "Object"),
        }
        body = self.body
        name, label = kinds.get(
            body.__class__, ("MapMessage", "Fields") if isinstance(body, dict) else ("Message", "Body")
        )
        header = ", ".join(f"{key}={_printable(value)}" for key, value in self._header().items())
        properties = ", ".join(f"{key}={_printable(value)}" for key, value in self.properties.items())
        lines = [f"{name}={{", f"  Header={{{header}}}", f"  Properties={{{properties}}}"]
        if label:
            lines.append(f"  {label}={_printable(body)}")
        return "\n".join([*lines, "}"])

    def _header(self) -> dict[str, Any]:
        return {
            "JMSMessageID": self.message_id,
            "JMSDestination": self.destination,
            "JMSReplyTo": self.reply_to,
            "JMSDeliveryMode": self.delivery_mode.name,
            "JMSRedelivered": self.redelivered,
            "JMSCorrelationID": self.correlation_id,
            "JMSType": self.type or None,
            "JMSTimestamp": self.timestamp_ms,
            "JMSDeliveryTime": self.delivery_time_ms,
            "JMSExpiration": self.expiration_ms,
            "JMSPriority": self.priority,
        }


def made_of(message: Message) -> tuple[Origin, Any, int]:
    """What a message was made of: where it was received, the delivery, and among which it counts."""
    return message._consumer, message._delivery, message._generation


_SHOWN_BYTES = 256


def _printable(value: Any) -> str:
    """A value for people: unprintable characters escaped, long bytes cut (EMS-MSG-A23)."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case bytes():
            shown = value[:_SHOWN_BYTES].hex(" ")
            return f"{shown} ... ({len(value)} bytes)" if len(value) > _SHOWN_BYTES else f"{shown} ({len(value)} bytes)"
        case str():
            return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in value)
        case Object():
            return f"{value.content_type}, {len(value.data)} bytes"
        case dict():
            return "{" + ", ".join(f"{key}={_printable(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(_printable(one) for one in value) + "]"
        case _:
            return str(value)
