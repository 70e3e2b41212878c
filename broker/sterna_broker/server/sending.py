"""Messaging.Send: one message for people with grpcurl, confirmed before the call returns.

All calls of a user share one internal stream with one anonymous producer. It is opened at the first call, and again if
it ended.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from sterna_broker.contract import message as messages
from sterna_broker.contract import messaging
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.server.internal_stream import InternalStream

_PRODUCER = 1
_TIME_MS_MAX = 2**64 - 1
_SENDERS_MAX = 16
"""Streams that are kept for users who have no call under way."""


class Sender:
    """One anonymous producer on one internal stream, for one user."""

    def __init__(self, pump: Pump, user: str = "") -> None:
        self.calls = 0
        """How many use it now."""
        self._user = user
        self._stream = InternalStream(pump, "Send", self._on_frame, self._on_end)
        self._session = 0
        self._id_prefix = ""
        self._next_sequence = 1
        self._sequence_limit = 0
        self._bytes_limit = 0
        self._bytes_sent = 0
        self._credit_changed = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[messaging.Confirmed]] = {}

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return self._stream.is_open

    async def open(self) -> None:
        """Greets the engine and opens the producer.

        Raises:
            RefusedError: the engine refuses.
        """
        await self._stream.greet(user=self._user)
        self._session = await self._stream.open_session("AUTO")
        opening = messaging.OpenProducer(producer=_PRODUCER)
        reply = await self._stream.request(messaging.ClientFrame(session=self._session, open_producer=opening))
        self._id_prefix = reply.producer_opened.message_id_prefix
        self._take_credit(reply.producer_opened.credit)

    async def send(self, destination: messages.Destination, encoded: bytes) -> tuple[str, messaging.Confirmed]:
        """Publishes one message; its id and its confirmation.

        Raises:
            RefusedError: the engine refuses the message.
        """
        await self._await_credit()
        sequence = self._publish(destination, encoded)
        future: asyncio.Future[messaging.Confirmed] = asyncio.get_running_loop().create_future()
        self._waiting[sequence] = future
        try:
            confirmed = await future
        finally:
            self._waiting.pop(sequence, None)
        return f"{self._id_prefix}{sequence}", confirmed

    async def send_unconfirmed(self, destination: messages.Destination, encoded: bytes) -> str:
        """Publishes one reliable message, which is never confirmed nor refused; its id.

        Raises:
            RefusedError: it is too large, or the stream has ended.
        """
        await self._await_credit()
        return f"{self._id_prefix}{self._publish(destination, encoded)}"

    def _publish(self, destination: messages.Destination, encoded: bytes) -> int:
        """Hands a message over under the next number, which is used up only if it was."""
        sequence = self._next_sequence
        publish = messaging.Publish(
            producer=_PRODUCER, first_sequence=sequence, messages=[encoded], destination=destination
        )
        self._stream.send(messaging.ClientFrame(session=self._session, publish=publish))
        self._next_sequence += 1
        self._bytes_sent += len(encoded)
        return sequence

    def close(self) -> None:
        """Ends the stream."""
        self._stream.close()

    async def _await_credit(self) -> None:
        while self._stream.is_open and not self._has_credit():
            self._credit_changed.clear()
            await self._credit_changed.wait()

    def _has_credit(self) -> bool:
        # A message may go while those before it have fewer bytes than the limit, however large it is itself.
        if self._sequence_limit and self._next_sequence > self._sequence_limit:
            return False
        return not self._bytes_limit or self._bytes_sent < self._bytes_limit

    def _take_credit(self, credit: messaging.ProducerCredit) -> None:
        self._sequence_limit = credit.sequence_limit
        self._bytes_limit = credit.bytes_limit
        self._credit_changed.set()

    def _on_frame(self, frame: Any) -> None:
        match frame.WhichOneof("frame"):
            case "confirm":
                for confirmed in frame.confirm.confirmed:
                    self._resolve(confirmed.first, confirmed.last, confirmed)
            case "rejected":
                rejected = frame.rejected
                self._fail(rejected.first, rejected.last, RefusedError.from_error(rejected.error))
            case "producer_credit":
                self._take_credit(frame.producer_credit)
            case "error" | "producer_closed" | "session_closed" as kind:
                error = frame.error if kind == "error" else getattr(frame, kind).reason
                self._fail(1, self._next_sequence, RefusedError.from_error(error))
                self._stream.close()

    def _on_end(self, reason: RefusedError) -> None:
        """Nobody is left waiting: neither for a confirmation, of what may be stored, nor for credit."""
        message = f"Whether the message was stored is not known: {reason.message}"
        remedy = "Send it again if it may come twice."
        unknown = RefusedError("UNAVAILABLE", "stream", message, remedy, retryable=True)
        self._fail(1, self._next_sequence, unknown)
        self._credit_changed.set()

    def _resolve(self, first: int, last: int, confirmed: messaging.Confirmed) -> None:
        for sequence in range(first, max(first, last) + 1):
            future = self._waiting.get(sequence)
            if future is not None and not future.done():
                future.set_result(confirmed)

    def _fail(self, first: int, last: int, error: RefusedError) -> None:
        for sequence, future in list(self._waiting.items()):
            if first <= sequence <= max(first, last) and not future.done():
                future.set_exception(error)


class Sending:
    """The handler of Send."""

    def __init__(self, pump: Pump) -> None:
        self._pump = pump
        self._senders: dict[str, Sender] = {}
        """By user, the one that was used last at the end."""
        self._opening = asyncio.Lock()

    async def send(self, request: messaging.SendRequest, user: str = "") -> messaging.SendResponse:
        """One call of a user who was admitted; empty: anonymous.

        Raises:
            RefusedError: the message is refused.
        """
        if not request.HasField("destination") or not request.destination.name:
            raise RefusedError(
                "INVALID_ARGUMENT", "destination", "No destination is named.", "Name a queue or a topic."
            )
        message = request.message
        encoded = message.SerializeToString()
        async with self._sender_of(user) as sender:
            if message.delivery_mode == messages.RELIABLE:
                return messaging.SendResponse(message_id=await sender.send_unconfirmed(request.destination, encoded))
            message_id, confirmed = await sender.send(request.destination, encoded)
        return messaging.SendResponse(
            message_id=message_id,
            timestamp_ms=confirmed.arrived_ms,
            # A delay may be as good as for ever; the message is stored, and an error now would say that it is not.
            delivery_time_ms=min(confirmed.arrived_ms + message.delivery_delay_ms, _TIME_MS_MAX),
            durability=confirmed.durability,
        )

    def stop(self) -> None:
        """Ends the streams."""
        for sender in self._senders.values():
            sender.close()

    @asynccontextmanager
    async def _sender_of(self, user: str) -> AsyncGenerator[Sender]:
        async with self._opening:
            sender = self._senders.pop(user, None)
            if sender is None or not sender.is_open:
                sender = Sender(self._pump, user)
                try:
                    await sender.open()
                except BaseException:
                    sender.close()
                    raise
            self._senders[user] = sender
            sender.calls += 1
            self._close_idle()
        try:
            yield sender
        finally:
            sender.calls -= 1
            # After many at once perhaps nobody calls any more.
            self._close_idle()

    def _close_idle(self) -> None:
        """Where clients may claim any name there is no end of users: those who were not here for longest go."""
        idle = [user for user, sender in self._senders.items() if sender.calls == 0]
        for user in idle[: max(0, len(self._senders) - _SENDERS_MAX)]:
            self._senders.pop(user).close()
