"""Messaging.Receive and Messaging.Acknowledge: messages on a lease, for people with grpcurl.

Each Receive that hands out messages is an internal stream with one session that stays open until everything is
acknowledged or the lease ends; what is not acknowledged then is given back as seen, so that it is delivered again,
flagged. A receipt names lease, source and sequence; the lease is a random number, so that a receipt cannot be made
up.
"""

import asyncio
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from sterna_broker.contract import message as messages
from sterna_broker.contract import messaging
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError, shutting_down
from sterna_broker.server.internal_stream import InternalStream, Pieces
from sterna_broker.surroundings import random_hex

_log = structlog.get_logger(part="internal")

MESSAGES_MAX = 1_000
WAIT_MS_MAX = 60_000
LEASE_MS_DEFAULT = 30_000
LEASE_MS_MAX = 600_000

_CONSUMER = 1
# How much is asked for ahead of the last message. An answer is one gRPC message, of which a caller takes 4 MiB by
# default; each message stands in it twice, encoded and decoded, and the last may be as large as a frame.
_BYTES_MAX = 768 * 1024
# Of a sequence number in a receipt: 64 bits.
_DIGITS_MAX = 20


class Lease:
    """One Receive: its stream, its session, and what of it is not acknowledged yet."""

    def __init__(self, pump: Pump) -> None:
        self.id = random_hex(8)
        self.deliveries: list[messaging.Delivery] = []
        self.source = 0
        self._pieces = Pieces()
        self.open_sequences: set[int] = set()
        self._pump = pump
        self._stream = InternalStream(pump, "Receive", self._on_frame)
        self._session = 0
        self._epoch = 0
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._failure: RefusedError | None = None
        self._acknowledging = 0
        self._is_over = False

    async def receive(self, request: messaging.ReceiveRequest) -> None:
        """Collects up to `max_messages` in `deliveries`, waiting for the first.

        Raises:
            RefusedError: the engine refuses.
        """
        limit = request.max_messages or 1
        await self._stream.greet(request.client_id)
        self._session = await self._stream.open_session("NONE" if request.no_acknowledge else "INDIVIDUAL")
        opening = messaging.OpenConsumer(
            consumer=_CONSUMER,
            destination=request.destination,
            selector=request.selector,
            credit=messaging.Credit(message_limit=limit, bytes_limit=_BYTES_MAX),
        )
        if request.HasField("subscription"):
            opening.subscription.CopyFrom(request.subscription)
        reply = await self._stream.request(messaging.ClientFrame(session=self._session, open_consumer=opening))
        self.source, self._epoch = reply.consumer_opened.source, reply.consumer_opened.epoch
        await self._wait(self._arrived, request.wait_ms / 1000)
        drain = messaging.Credit(consumer=_CONSUMER, message_limit=limit, bytes_limit=_BYTES_MAX, drain=True)
        self._stream.send(messaging.ClientFrame(session=self._session, credit=drain))
        # Draining needs no producer: the engine answers as soon as it has looked.
        await self._wait(self._drained, None)
        if request.no_acknowledge or not self.deliveries:
            self.close()
            return
        self.open_sequences = {delivery.sequence for delivery in self.deliveries}
        seen = messaging.SeenSet(source=self.source, ranges=[_range(sequence) for sequence in self.open_sequences])
        closing = messaging.CloseConsumer(consumer=_CONSUMER, seen=[seen])
        await self._stream.request(messaging.ClientFrame(session=self._session, close_consumer=closing))

    async def acknowledge(self, sequences: set[int]) -> set[int]:
        """Acknowledges, durably; those that were no longer leased."""
        known = sequences & self.open_sequences
        self.open_sequences -= known
        if known:
            ranges = [_range(sequence) for sequence in sorted(known)]
            ack = messaging.Ack(sets=[messaging.AckSet(source=self.source, ranges=ranges, epoch=self._epoch)])
            self._acknowledging += 1
            try:
                await self._stream.request(messaging.ClientFrame(session=self._session, acknowledge=ack))
            finally:
                self._acknowledging -= 1
                self._end()
        return sequences - known

    def close(self) -> None:
        """Gives back what is not acknowledged, as seen, and ends the stream once all acknowledgements are answered."""
        if not self._stream.is_open:
            return
        if self.open_sequences:
            ranges = [_range(sequence) for sequence in sorted(self.open_sequences)]
            sets = [messaging.AckSet(source=self.source, ranges=ranges, epoch=self._epoch)]
            release = messaging.Release(sets=sets, seen=True)
            self._stream.send(messaging.ClientFrame(session=self._session, release=release))
            self.open_sequences = set()
        self._is_over = True
        self._end()

    def _end(self) -> None:
        """Ends the stream if the lease is over; who is still being answered would be told that nothing was done."""
        if self._is_over and self._acknowledging == 0:
            self._stream.close()

    async def _wait(self, event: asyncio.Event, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return
        if self._failure is not None:
            raise self._failure

    def _on_frame(self, frame: Any) -> None:
        match frame.WhichOneof("frame"):
            case "deliver":
                self.deliveries += self._pieces.whole(frame.deliver.deliveries)
                self._arrived.set()
            case "drained":
                self._drained.set()
            case "error" if frame.error.code == messaging.MESSAGE_DAMAGED:
                # It was put aside with its reason, and took no credit: the others are none the worse for it.
                _log.warning("damaged_message_not_received", subject=frame.error.subject)
            case "error" | "consumer_closed" | "session_closed" as kind:
                error = frame.error if kind == "error" else getattr(frame, kind).reason
                self._failure = RefusedError.from_error(error)
                self._arrived.set()
                self._drained.set()


class Receiving:
    """The handlers of Receive and Acknowledge, with all leases."""

    def __init__(self, pump: Pump, leases_max: int) -> None:
        self._pump = pump
        self._leases_max = leases_max
        self._leases: dict[str, Lease] = {}
        self._receiving = 0
        self._stopped = False

    async def receive(self, request: messaging.ReceiveRequest) -> messaging.ReceiveResponse:
        """One call of Receive.

        Raises:
            RefusedError: an argument is out of bounds, or the engine refuses.
        """
        _check(request)
        if self._has_stopped():
            raise shutting_down()
        if len(self._leases) + self._receiving >= self._leases_max:
            raise RefusedError(
                "LIMIT_EXCEEDED",
                "leases",
                f"{self._leases_max} Receive calls are not acknowledged yet.",
                "Acknowledge them, or raise spec.limits.leases in the Broker manifest.",
                retryable=True,
            )
        lease = Lease(self._pump)
        self._receiving += 1
        kept = False
        try:
            await lease.receive(request)
            if self._has_stopped() and lease.open_sequences:
                # Nobody would give it back when its lease ends: it is given back now, while the engine is there.
                raise shutting_down()
            response = _response(lease)
            kept = bool(lease.open_sequences)
        finally:
            self._receiving -= 1
            if not kept:
                lease.close()
        if kept:
            self._leases[lease.id] = lease
            lease_s = (request.lease_ms or LEASE_MS_DEFAULT) / 1000
            asyncio.get_running_loop().call_later(lease_s, self._expire, lease.id)
        return response

    async def acknowledge(self, request: messaging.AcknowledgeRequest) -> messaging.AcknowledgeResponse:
        """One call of Acknowledge.

        Raises:
            RefusedError: a receipt is none, or the engine refuses.
        """
        by_lease: dict[str, set[int]] = {}
        for receipt in request.receipts:
            lease_id, sequence = _parse(receipt)
            by_lease.setdefault(lease_id, set()).add(sequence)
        expired = []
        for lease_id, sequences in by_lease.items():
            lease = self._leases.get(lease_id)
            try:
                lost = sequences if lease is None else await lease.acknowledge(sequences)
            finally:
                # Also when the caller has gone meanwhile: the engine has it, and the lease counts.
                if lease is not None and not lease.open_sequences:
                    self._expire(lease_id)
            expired += [f"{lease_id}-{sequence}" for sequence in sorted(lost)]
        return messaging.AcknowledgeResponse(expired=expired)

    def stop(self) -> None:
        """Gives back everything. What a Receive under way collects is given back, too, and refused."""
        self._stopped = True
        for lease_id in list(self._leases):
            self._expire(lease_id)

    def _has_stopped(self) -> bool:
        return self._stopped  # it may have, in any await

    def _expire(self, lease_id: str) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is not None:
            lease.close()


def _check(request: messaging.ReceiveRequest) -> None:
    bounds = {"max_messages": MESSAGES_MAX, "wait_ms": WAIT_MS_MAX, "lease_ms": LEASE_MS_MAX}
    for field, bound in bounds.items():
        if getattr(request, field) > bound:
            message = f"{field} is {getattr(request, field)}, at most {bound} is allowed."
            raise RefusedError("INVALID_ARGUMENT", field, message, "Ask for less.")
    if not request.destination.name:
        raise RefusedError("INVALID_ARGUMENT", "destination", "No destination is named.", "Name a queue or a topic.")
    if request.destination.kind == messages.TOPIC and not (request.subscription.name and request.subscription.durable):
        raise RefusedError(
            "INVALID_ARGUMENT",
            "subscription",
            "A topic keeps nothing between two calls.",
            "Name a durable subscription to receive from.",
        )


def _response(lease: Lease) -> messaging.ReceiveResponse:
    received = []
    for delivery in lease.deliveries:
        receipt = f"{lease.id}-{delivery.sequence}"
        received.append(messaging.Received(receipt=receipt, delivery=delivery, message=_decoded(delivery)))
    return messaging.ReceiveResponse(messages=received)


def _decoded(delivery: messaging.Delivery) -> messages.Message | None:
    """The message; none where it cannot be read, which concerns no other: it can be acknowledged like any."""
    try:
        return messages.Message.FromString(delivery.message)
    except DecodeError:
        return None


def _parse(receipt: str) -> tuple[str, int]:
    lease_id, _, sequence = receipt.partition("-")
    if not (lease_id and sequence.isascii() and sequence.isdigit() and len(sequence) <= _DIGITS_MAX):
        message = f"'{receipt[:64]}' is no receipt."
        raise RefusedError("INVALID_ARGUMENT", "receipts", message, "Give receipts back as Receive handed them out.")
    return lease_id, int(sequence)


def _range(sequence: int) -> messaging.SequenceRange:
    return messaging.SequenceRange(first=sequence, last=sequence)
