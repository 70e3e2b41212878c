"""A broker's engine in this process, and clients that speak its frames: for tests of the compiled module alone."""

import json
import select
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sterna._proto.sterna.v1 import message_pb2 as message_pb
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna_core import Engine

WAIT_SECONDS = 20.0

ALLOWED = {"prefetch": 5, "maxMessages": 0, "maxBytes": 0}


class Driver:
    """Owns an engine and a clock of its own, and answers tickets: everybody may connect, any destination be made."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = {"broker": "test", "segment_bytes": 1 << 20, **settings}
        self.wall_ms = 1_700_000_000_000
        self.monotonic_ms = 1_000
        self.last_stream = 0
        self.clients: dict[int, Client] = {}
        self.tickets: list[dict[str, Any]] = []
        self.allowed: dict[str, Any] = ALLOWED
        self.refuse: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda ticket: None
        self.engine = Engine.open(str(folder), json.dumps(self.settings), self.wall_ms, self.monotonic_ms)

    def advance(self, ms: int) -> None:
        """Lets time pass."""
        self.wall_ms += ms
        self.monotonic_ms += ms
        self.engine.tick(self.wall_ms, self.monotonic_ms)

    def poll(self) -> None:
        """Takes what is ready, and answers tickets, until nothing is left."""
        while True:
            ready, tickets, _, _ = self.engine.poll()
            for text in tickets:
                ticket = json.loads(text)
                self.tickets.append(ticket)
                error = self.refuse(ticket)
                asks = ticket["kind"] in ("destination", "properties")
                allowed: dict[str, Any] = self.allowed if asks else {"user": ""}
                answer = {"error": error} if error else {"ok": allowed}
                self.engine.answer(ticket["ticket"], json.dumps(answer))
            for stream in ready:
                client = self.clients.get(stream)
                while client is not None and (output := self.engine.take_output(stream, 1 << 20)) is not None:
                    client.take(output)
            if not ready and not tickets:
                return

    def wait(self, until: Callable[[], bool]) -> None:
        """Polls until something holds; the engine's threads wake it."""
        self.poll()
        while not until():
            assert self.wait_for_more(), "the engine has nothing more to say"

    def wait_for_more(self) -> bool:
        """Waits until one of the engine's threads has done something, and polls; whether one has."""
        readable, _, _ = select.select([self.engine.fileno()], [], [], WAIT_SECONDS)
        self.poll()
        return bool(readable)

    def client(self, *, hello: pb.Hello | None = None, **fields: Any) -> "Client":
        """A client whose greeting, of these fields beside those of `hello`, has been answered."""
        greeting = pb.Hello(protocol_version=1, **fields)
        greeting.MergeFrom(hello or pb.Hello())
        self.last_stream += 1
        client = Client(self, self.last_stream)
        self.clients[client.stream] = client
        self.engine.open_stream(client.stream, "test")
        client.send(pb.ClientFrame(hello=greeting))
        self.wait(lambda: any(frame.WhichOneof("frame") in ("welcome", "error") for frame in client.frames))
        return client

    def restart(self, *, clean: bool = True) -> None:
        """Stops the engine and opens its store again. Clients are gone."""
        if clean:
            self.engine.stop()
        del self.engine
        self.reopen()

    def reopen(self) -> None:
        """Opens the store of an engine that is no more. Clients are gone."""
        self.clients.clear()
        self.engine = Engine.open(str(self.folder), json.dumps(self.settings), self.wall_ms, self.monotonic_ms)


class Client:
    """One stream, with every frame that came on it."""

    def __init__(self, driver: Driver, stream: int) -> None:
        self.driver = driver
        self.stream = stream
        self.frames: list[pb.ServerFrame] = []
        self.requests = 0

    def take(self, output: bytes) -> None:
        """Notes a batch that came from the engine."""
        self.frames.extend(pb.ServerBatch.FromString(output).frames)

    def send(self, *frames: pb.ClientFrame) -> None:
        """Sends frames as one batch."""
        self.raw(pb.ClientBatch(frames=frames).SerializeToString())

    def raw(self, batch: bytes) -> None:
        """Sends bytes as they are."""
        self.driver.engine.tick(self.driver.wall_ms, self.driver.monotonic_ms)
        self.driver.engine.handle(self.stream, batch)
        self.driver.poll()

    def request(self, session: int = 0, **frame: Any) -> pb.Reply:
        """Sends a request and waits for its reply."""
        self.requests += 1
        number = self.requests
        self.send(pb.ClientFrame(session=session, request=number, **frame))
        self.driver.wait(lambda: any(reply.request == number for reply in self.replies()))
        return next(reply for reply in self.replies() if reply.request == number)

    def replies(self) -> Iterator[pb.Reply]:
        """All replies that came."""
        return (frame.reply for frame in self.frames if frame.HasField("reply"))

    def of(self, kind: str) -> list[Any]:
        """All frames of a kind, unwrapped."""
        return [getattr(frame, kind) for frame in self.frames if frame.WhichOneof("frame") == kind]

    def deliveries(self, consumer: int = 1) -> list[pb.Delivery]:
        """All deliveries that came to a consumer."""
        return [
            delivery
            for deliver in self.of("deliver")
            if deliver.consumer == consumer
            for delivery in deliver.deliveries
        ]

    def session(self, mode: pb.AcknowledgeMode = pb.AUTO) -> int:
        """Opens a session; its number."""
        return self.request(open_session=pb.OpenSession(acknowledge_mode=mode)).session_opened.session

    def producer(
        self, session: int, destination: message_pb.Destination | None, number: int = 1, **rest: Any
    ) -> pb.Reply:
        """Opens a producer."""
        return self.request(session, open_producer=pb.OpenProducer(producer=number, destination=destination, **rest))

    def consumer(
        self, session: int, destination: message_pb.Destination, number: int = 1, credit: int = 1000, **rest: Any
    ) -> pb.Reply:
        """Opens a consumer with credit."""
        opening = pb.OpenConsumer(
            consumer=number, destination=destination, credit=pb.Credit(message_limit=credit), **rest
        )
        return self.request(session, open_consumer=opening)

    def publish(
        self, session: int, first: int, messages: list[message_pb.Message], producer: int = 1, **rest: Any
    ) -> None:
        """Publishes messages in one frame."""
        encoded = [message.SerializeToString() for message in messages]
        publish = pb.Publish(producer=producer, first_sequence=first, messages=encoded, **rest)
        self.send(pb.ClientFrame(session=session, publish=publish))

    def confirmed(self, producer: int = 1) -> set[int]:
        """The numbers that were confirmed."""
        return {
            number
            for confirm in self.of("confirm")
            for range_ in confirm.confirmed
            if range_.producer == producer
            for number in range(range_.first, range_.last + 1)
        }

    def acknowledge(self, session: int, source: int, first: int, last: int = 0, transaction: int = 0) -> None:
        """Acknowledges a range and waits until that is durable."""
        sets = [pb.AckSet(source=source, ranges=[pb.SequenceRange(first=first, last=last)])]
        self.request(session, acknowledge=pb.Ack(sets=sets, transaction=transaction))

    def close(self) -> None:
        """The call is gone, without a goodbye."""
        self.driver.engine.close_stream(self.stream)
        self.driver.clients.pop(self.stream, None)
        self.driver.poll()


def queue(name: str) -> message_pb.Destination:
    """A queue's name."""
    return message_pb.Destination(kind=message_pb.QUEUE, name=name)


def topic(name: str) -> message_pb.Destination:
    """A topic's name, or a pattern."""
    return message_pb.Destination(kind=message_pb.TOPIC, name=name)


def text(value: str, **header: Any) -> message_pb.Message:
    """A message with a text."""
    return message_pb.Message(text=value, **header)


def texts(deliveries: list[pb.Delivery]) -> list[str]:
    """The texts of delivered messages."""
    return [message_pb.Message.FromString(delivery.message).text for delivery in deliveries]
