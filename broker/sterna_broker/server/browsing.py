"""Admin.Browse: looks at messages over an internal stream with a browsing consumer."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from google.protobuf.message import DecodeError

from sterna_broker.contract import admin, messaging
from sterna_broker.contract import message as messages
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.server.internal_stream import InternalStream, Pieces, size_of

MESSAGES_DEFAULT = 100
MESSAGES_MAX = 100_000

#: The reason of a message whose bytes cannot be had.
DAMAGED = "DAMAGED"

_CONSUMER = 1
# How many are asked for at a time: bounds what waits for a caller that reads slowly.
_WINDOW = 64
_BYTES_WINDOW = 2 * 1024 * 1024

_DURABLES_MAX = 1_000_000

_End = None


class _Browser:
    """The frames of one browse, as a queue that ends with None or an error."""

    def __init__(self, pump: Pump) -> None:
        self.stream = InternalStream(pump, "Browse", self._on_frame)
        self._pump = pump
        self.frames: asyncio.Queue[list[messaging.Delivery] | RefusedError | None] = asyncio.Queue()
        self.session = 0
        self._pieces = Pieces()
        self._bytes = 0
        self._taken = 0

    async def open(self, request: admin.BrowseRequest) -> None:
        opening = messaging.OpenConsumer(consumer=_CONSUMER, selector=request.selector, browse=True)
        client_id = ""
        if request.WhichOneof("what") == "queue":
            opening.destination.CopyFrom(messages.Destination(kind=messages.QUEUE, name=request.queue))
        elif request.WhichOneof("what") == "durable":
            client_id = request.durable.client_id
            opening.destination.CopyFrom(self._topic_of(request.durable))
            opening.subscription.CopyFrom(messaging.Subscription(name=request.durable.name, durable=True))
        else:
            raise RefusedError("INVALID_ARGUMENT", "what", "Nothing is named.", "Name a queue or a durable.")
        opening.credit.CopyFrom(messaging.Credit(message_limit=_WINDOW, bytes_limit=_BYTES_WINDOW))
        await self.stream.greet(client_id)
        self.session = await self.stream.open_session("INDIVIDUAL")
        await self.stream.request(messaging.ClientFrame(session=self.session, open_consumer=opening))

    def _topic_of(self, durable: admin.DurableName) -> messages.Destination:
        """A durable subscription is opened with its topic, which whoever browses it need not know."""
        for row in json.loads(self._pump.tick().list("durable", "", "", _DURABLES_MAX)):
            if (row["client_id"], row["name"]) == (durable.client_id, durable.name):
                return messages.Destination(kind=messages.TOPIC, name=row["topic"])
        message = f"There is no durable subscription '{durable.name}' of '{durable.client_id}'."
        raise RefusedError("NO_SUCH_SUBSCRIPTION", durable.name, message, "List the durables.")

    def took(self, deliveries: list[messaging.Delivery]) -> None:
        """Asks for as much again as the caller has taken."""
        # What is damaged took no credit.
        deliveries = [delivery for delivery in deliveries if delivery.message or delivery.reason != DAMAGED]
        self._taken += len(deliveries)
        self._bytes += sum(size_of(delivery) for delivery in deliveries)
        credit = messaging.Credit(
            consumer=_CONSUMER, message_limit=self._taken + _WINDOW, bytes_limit=self._bytes + _BYTES_WINDOW
        )
        if self.stream.is_open:
            self.stream.send(messaging.ClientFrame(session=self.session, credit=credit))

    def _on_frame(self, frame: Any) -> None:
        match frame.WhichOneof("frame"):
            case "deliver":
                if whole := self._pieces.whole(frame.deliver.deliveries):
                    self.frames.put_nowait(whole)
            case "drained":
                self.frames.put_nowait(_End)
            case "error" if frame.error.code == messaging.MESSAGE_DAMAGED:
                # Its bytes cannot be had; that it is there, and where, can be told all the same.
                sequence = int(frame.error.subject.rpartition(" ")[2])
                self.frames.put_nowait([messaging.Delivery(sequence=sequence, reason=DAMAGED)])
            case "error" | "consumer_closed" | "session_closed" as kind:
                error = frame.error if kind == "error" else getattr(frame, kind).reason
                self.frames.put_nowait(RefusedError.from_error(error))


async def browse(pump: Pump, request: admin.BrowseRequest) -> AsyncGenerator[admin.BrowseResponse, None]:
    """The messages of a queue or durable subscription, in order.

    Raises:
        RefusedError: an argument is out of bounds, or the engine refuses.
    """
    limit = request.max_messages or MESSAGES_DEFAULT
    if limit > MESSAGES_MAX:
        message = f"max_messages is {limit}, at most {MESSAGES_MAX} is allowed."
        raise RefusedError("INVALID_ARGUMENT", "max_messages", message, "Ask for less; go on by after_sequence.")
    browser = _Browser(pump)
    try:
        await browser.open(request)
        while limit > 0:
            deliveries = await browser.frames.get()
            if deliveries is _End:
                return
            if isinstance(deliveries, RefusedError):
                raise deliveries
            browser.took(deliveries)
            wanted = [delivery for delivery in deliveries if delivery.sequence > request.after_sequence][:limit]
            limit -= len(wanted)
            if wanted:
                for delivery in wanted:
                    _shorten(delivery, request.body_bytes)
                yield admin.BrowseResponse(deliveries=wanted)
    finally:
        browser.stream.close()


def _shorten(delivery: messaging.Delivery, body_bytes: int) -> None:
    """Keeps the first so many bytes of a body.

    That goes for text, bytes and objects; a structured body stays whole or goes.
    """
    if body_bytes == 0 or len(delivery.message) <= body_bytes:
        return
    try:
        message = messages.Message.FromString(delivery.message)
    except DecodeError:
        return  # it is shown as it is
    match message.WhichOneof("body"):
        case "text":
            message.text = message.text.encode()[:body_bytes].decode(errors="ignore")
        case "bytes":
            message.bytes = message.bytes[:body_bytes]
        case "object":
            message.object.data = message.object.data[:body_bytes]
        case "foreign":
            message.foreign.data = message.foreign.data[:body_bytes]
        case "map" if message.map.ByteSize() > body_bytes:
            message.ClearField("map")
        case "stream" if message.stream.ByteSize() > body_bytes:
            message.ClearField("stream")
    delivery.message = message.SerializeToString()
    delivery.uploaded = delivery.uploaded[:body_bytes]
