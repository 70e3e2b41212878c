"""A client that speaks raw frames, so that tests can say exactly what goes over the wire."""

import asyncio
import itertools
from typing import Any

import grpc
from sterna._proto.sterna.v1 import message_pb2 as messages
from sterna._proto.sterna.v1 import messaging_pb2 as messaging

CONNECT = "/sterna.v1.Messaging/Connect"
TIMEOUT_S = 30.0
#: So many messages of `Wire.fill` are more than what lies between two sockets.
BIG = 60


def queue(name: str) -> messages.Destination:
    return messages.Destination(kind=messages.QUEUE, name=name)


def topic(name: str) -> messages.Destination:
    return messages.Destination(kind=messages.TOPIC, name=name)


def text(body: str, **fields: Any) -> bytes:
    return messages.Message(text=body, **fields).SerializeToString()


def body_of(delivery: messaging.Delivery) -> str:
    return messages.Message.FromString(delivery.message).text


class FrameError(Exception):
    """An error frame, or a reply that is one."""

    def __init__(self, error: messaging.Error) -> None:
        super().__init__(f"{messaging.ErrorCode.Name(error.code)} ({error.subject}): {error.message} {error.remedy}")
        self.error = error
        self.code = messaging.ErrorCode.Name(error.code)


class Wire:
    """One stream. Frames that come in are kept by kind until a test asks for them."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.call: Any = channel.stream_stream(CONNECT)()
        self.frames: dict[str, asyncio.Queue[messaging.ServerFrame]] = {}
        self.welcome: messaging.Welcome | None = None
        self._requests = itertools.count(1)
        self._replies: dict[int, messaging.Reply] = {}
        self._arrived = asyncio.Event()
        self._ended: BaseException | None = None
        self._reader: asyncio.Task[None] | None = None

    async def hello(self, client_id: str = "", **fields: Any) -> messaging.Welcome:
        self.read()
        hello = messaging.Hello(protocol_version=1, client_id=client_id, **fields)
        await self.send(messaging.ClientFrame(hello=hello))
        self.welcome = (await self.next("welcome")).welcome
        return self.welcome

    def read(self) -> None:
        self._reader = asyncio.create_task(self._read())

    async def send(self, *frames: messaging.ClientFrame) -> None:
        await self.call.write(messaging.ClientBatch(frames=frames).SerializeToString())

    async def request(self, frame: messaging.ClientFrame) -> messaging.Reply:
        frame.request = number = next(self._requests)
        await self.send(frame)
        await self._until(lambda: number in self._replies)
        reply = self._replies.pop(number)
        if reply.WhichOneof("result") == "error":
            raise FrameError(reply.error)
        return reply

    async def session(self, mode: str = "CLIENT") -> int:
        opening = messaging.OpenSession(acknowledge_mode=mode)
        return (await self.request(messaging.ClientFrame(open_session=opening))).session_opened.session

    async def producer(self, session: int, destination: messages.Destination | None, number: int = 1) -> Any:
        opening = messaging.OpenProducer(producer=number, destination=destination)
        return (await self.request(messaging.ClientFrame(session=session, open_producer=opening))).producer_opened

    async def consumer(
        self, session: int, destination: messages.Destination, number: int = 1, credit: int = 1000, **fields: Any
    ) -> Any:
        opening = messaging.OpenConsumer(
            consumer=number, destination=destination, credit=messaging.Credit(message_limit=credit), **fields
        )
        return (await self.request(messaging.ClientFrame(session=session, open_consumer=opening))).consumer_opened

    async def publish(
        self, session: int, bodies: list[bytes], first: int = 1, producer: int = 1, **fields: Any
    ) -> None:
        publish = messaging.Publish(producer=producer, first_sequence=first, messages=bodies, **fields)
        await self.send(messaging.ClientFrame(session=session, publish=publish))

    async def fill(self, session: int) -> None:
        """Has the queue "big" hold more than what lies between two sockets."""
        await self.producer(session, queue("big"))
        for number in range(1, BIG + 1):
            await self.publish(session, [text("x" * 500_000)], first=number)
            await self.confirmed(number)

    async def confirmed(self, last: int, producer: int = 1) -> messaging.Confirmed:
        """Waits until everything up to `last` is confirmed."""
        while True:
            for confirmed in (await self.next("confirm")).confirm.confirmed:
                if confirmed.producer == producer and confirmed.last >= last:
                    return confirmed

    async def deliveries(self, count: int) -> list[messaging.Delivery]:
        found: list[messaging.Delivery] = []
        while len(found) < count:
            found += (await self.next("deliver")).deliver.deliveries
        return found

    async def acknowledge(self, session: int, source: int, first: int, last: int) -> None:
        sets = [messaging.AckSet(source=source, ranges=[messaging.SequenceRange(first=first, last=last)])]
        await self.request(messaging.ClientFrame(session=session, acknowledge=messaging.Ack(sets=sets)))

    async def goodbye(self) -> None:
        await self.send(messaging.ClientFrame(goodbye=messaging.Goodbye()))
        await self.call.done_writing()

    async def next(self, kind: str, timeout_s: float = TIMEOUT_S) -> messaging.ServerFrame:
        """The next frame of a kind; FrameError when an error frame came that nobody asked for."""
        await self._until(lambda: not self._queue(kind).empty(), timeout_s, kind)
        return self._queue(kind).get_nowait()

    async def status(self) -> grpc.StatusCode:
        code: grpc.StatusCode = await asyncio.wait_for(self.call.code(), TIMEOUT_S)
        return code

    def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        self.call.cancel()

    def _queue(self, kind: str) -> asyncio.Queue[messaging.ServerFrame]:
        return self.frames.setdefault(kind, asyncio.Queue())

    async def _until(self, check: Any, timeout_s: float = TIMEOUT_S, what: str = "a reply") -> None:
        async with asyncio.timeout(timeout_s):
            while not check():
                if what != "error" and not self._queue("error").empty():
                    raise FrameError(self._queue("error").get_nowait().error)
                if self._ended is not None:
                    raise AssertionError(f"the stream ended while waiting for {what}") from self._ended
                self._arrived.clear()
                await self._arrived.wait()

    async def _read(self) -> None:
        try:
            while True:
                data = await self.call.read()
                if data is grpc.aio.EOF:
                    self._ended = EOFError("end of stream")
                    return
                for frame in messaging.ServerBatch.FromString(data).frames:
                    kind = frame.WhichOneof("frame")
                    if kind == "reply":
                        self._replies[frame.reply.request] = frame.reply
                    else:
                        self._queue(kind).put_nowait(frame)
                self._arrived.set()
        except grpc.aio.AioRpcError as error:
            self._ended = error
        finally:
            self._arrived.set()


async def lazy_stream(channel: grpc.aio.Channel, **hello: Any) -> Any:
    """A stream that asks for all that the queue "big" has, and neither reads it nor says anything any more."""
    lazy: Any = channel.stream_stream(CONNECT)()
    credit = messaging.Credit(message_limit=1000)
    for frame in (
        messaging.ClientFrame(hello=messaging.Hello(protocol_version=1, **hello)),
        messaging.ClientFrame(open_session=messaging.OpenSession(acknowledge_mode=messaging.CLIENT), session=1),
        messaging.ClientFrame(
            session=1, open_consumer=messaging.OpenConsumer(consumer=1, destination=queue("big"), credit=credit)
        ),
    ):
        await lazy.write(messaging.ClientBatch(frames=[frame]).SerializeToString())
    return lazy
