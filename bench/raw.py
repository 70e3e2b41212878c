"""A client that speaks frames, not the SDK: what the broker can take when the client costs next to nothing.

Messages are encoded once; each Publish frame is put together from bytes, and what the window has room for leaves as one
batch of frames, as the contract allows and the SDK does. Line B7 measures with it, and B8 and B9 use it to fill queues
fast.
"""

import os
import time  # noqa: TID251 - measures real time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from sterna._proto.sterna.v1 import message_pb2, messaging_pb2

CONNECT_METHOD = "/sterna.v1.Messaging/Connect"
FRAME_MESSAGES = 64
# How many frames go into one batch at most: about half a megabyte of messages of 1 KB.
BATCH_FRAMES = 8
_PUBLISH_FIELD = 3
_MESSAGES_FIELD = 3
# A broker that names no limit sets none.
_UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of a run: confirmed messages, and from the first frame to the last confirmation."""

    messages: int
    seconds: float


def message_bytes(body_bytes: int = 1_024) -> bytes:
    """A persistent message with a body of that size and three properties, encoded."""
    message = message_pb2.Message(bytes=os.urandom(body_bytes))
    message.properties.add(name="colour").value.string_value = "vermilion"
    message.properties.add(name="size").value.int_value = 42
    message.properties.add(name="urgent").value.bool_value = True
    return message.SerializeToString()


class RawProducer:
    """One stream with one bound producer, publishing frames of 64 equal messages.

    Args:
        call: the open Connect call, after Welcome and OpenProducer.
        session: the session that the frames name.
        producer: the producer's number.
    """

    def __init__(self, call: Any, session: int, producer: int, credit: messaging_pb2.ProducerCredit) -> None:
        self._call = call
        self._session = session
        self._producer = producer
        self._sequence_limit = credit.sequence_limit or _UNLIMITED
        self._confirmed = 0

    @classmethod
    async def open(cls, channel: grpc.aio.Channel, queue: str) -> "RawProducer":
        """Greet, and open a producer for a queue."""
        call: Any = channel.stream_stream(CONNECT_METHOD, request_serializer=None, response_deserializer=None)()
        await call.write(_batch(hello=messaging_pb2.Hello(protocol_version=1, product="sterna bench, raw frames")))
        await _frame(call, "welcome")
        await call.write(_batch(request=1, open_session=messaging_pb2.OpenSession()))
        session = (await _frame(call, "reply")).reply.session_opened.session
        destination = message_pb2.Destination(kind=message_pb2.QUEUE, name=queue)
        opening = messaging_pb2.OpenProducer(producer=1, destination=destination)
        await call.write(_batch(session=session, request=2, open_producer=opening))
        reply = (await _frame(call, "reply")).reply
        if reply.WhichOneof("result") != "producer_opened":
            raise RuntimeError(f"no producer for {queue}: {reply}")
        return cls(call, session, 1, reply.producer_opened.credit)

    async def publish(
        self,
        message: bytes,
        count: int,
        window: int,
        batch_frames: int = BATCH_FRAMES,
        another: Callable[[], bytes] | None = None,
    ) -> Sent:
        """Publish `count` messages, at most `window` of them unconfirmed and `batch_frames` frames in a batch.

        All are `message`, unless `another` makes each.
        """
        one = _tag(_MESSAGES_FIELD) + _varint(len(message)) + message
        run = one * FRAME_MESSAGES
        end = self._confirmed + count
        sent = self._confirmed
        begin = time.monotonic()
        while self._confirmed < end:
            while sent < end:
                latest = min(end, self._confirmed + window, self._sequence_limit)
                batch: list[bytes] = []
                while sent < latest and len(batch) < 2 * batch_frames:
                    fits = min(FRAME_MESSAGES, end - sent)
                    if sent + fits > latest:
                        break
                    messages = run if fits == FRAME_MESSAGES else one * fits
                    if another is not None:
                        each = [another() for _ in range(fits)]
                        messages = b"".join(_tag(_MESSAGES_FIELD) + _varint(len(this)) + this for this in each)
                    batch += (self._head(sent + 1, len(messages)), messages)
                    sent += fits
                if not batch:
                    break
                await self._call.write(b"".join(batch))
            self._take(await self._call.read())
        return Sent(count, time.monotonic() - begin)

    async def close(self) -> None:
        """End the stream cleanly."""
        await self._call.write(_batch(goodbye=messaging_pb2.Goodbye()))
        await self._call.done_writing()

    def _head(self, first_sequence: int, messages_bytes: int) -> bytes:
        """What stands before the messages of a Publish frame."""
        publish = b"\x08" + _varint(self._producer) + b"\x10" + _varint(first_sequence)
        length = len(publish) + messages_bytes
        frame = b"\x08" + _varint(self._session) + _tag(_PUBLISH_FIELD) + _varint(length) + publish
        return b"\x0a" + _varint(len(frame) + messages_bytes) + frame

    def _take(self, data: Any) -> None:
        if data is grpc.aio.EOF:
            raise RuntimeError("the broker ended the stream")
        for frame in messaging_pb2.ServerBatch.FromString(data).frames:
            match frame.WhichOneof("frame"):
                case "confirm":
                    self._confirmed = max(self._confirmed, *(found.last for found in frame.confirm.confirmed))
                case "producer_credit":
                    self._sequence_limit = max(self._sequence_limit, frame.producer_credit.sequence_limit)
                case "heartbeat":
                    pass
                case _:
                    raise RuntimeError(f"unexpected: {frame}")


async def _frame(call: Any, kind: str) -> messaging_pb2.ServerFrame:
    """The next frame of this kind; any other is an error of the benchmark."""
    while True:
        data = await call.read()
        if data is grpc.aio.EOF:
            raise RuntimeError(f"the broker ended the stream before '{kind}': {await call.details()}")
        for frame in messaging_pb2.ServerBatch.FromString(data).frames:
            if frame.WhichOneof("frame") == kind:
                return frame
            if frame.WhichOneof("frame") not in ("heartbeat", "producer_credit"):
                raise RuntimeError(f"expected {kind}, got {frame}")


def _batch(**fields: Any) -> bytes:
    return messaging_pb2.ClientBatch(frames=[messaging_pb2.ClientFrame(**fields)]).SerializeToString()


def _tag(field: int) -> bytes:
    """The key of a length-delimited field."""
    return bytes([field << 3 | 2])


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
