"""A client of the engine inside the broker: the unary calls and browsing speak the same frames as everybody else.

So there is one path through the engine and one set of rules. Frames are built and read with the generated types:
nothing here is hot.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from sterna_broker.contract import messaging
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError, shutting_down

_log = structlog.get_logger(part="internal")

_TAKE_BYTES = 1024 * 1024
_PROTOCOL_VERSION = 1


class InternalStream:
    """One stream of the engine with one connection on it.

    `on_frame` is given what is no reply, `on_end` why the stream has ended, whoever ended it.
    """

    def __init__(
        self,
        pump: Pump,
        purpose: str,
        on_frame: Callable[[Any], None],
        on_end: Callable[[RefusedError], None] = lambda _: None,
    ) -> None:
        self.welcome: Any = None
        self._pump = pump
        self._on_frame = on_frame
        self._on_end = on_end
        self._requests = itertools.count(1)
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._greeted: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ended: RefusedError | None = None
        self._scheduled = False
        self._purpose = purpose
        self.stream = pump.open(self, f"internal:{purpose}", internal=True)

    @property
    def is_open(self) -> bool:
        """Whether it can still be used. What outlives the engine, a timer say, has nothing to tell it any more."""
        return self._ended is None and self._pump.is_running

    def wake(self) -> None:
        """See Port: output is taken after the poll, not within it."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._take)

    async def greet(self, client_id: str = "", user: str = "") -> None:
        """Says hello, on behalf of a user who was admitted, and waits for the welcome.

        Raises:
            RefusedError: the engine refuses.
        """
        hello = messaging.Hello(protocol_version=_PROTOCOL_VERSION, client_id=client_id, product=self._purpose)
        if user:
            hello.credentials.password.user = user
        self.send(messaging.ClientFrame(hello=hello))
        self.welcome = await self._greeted

    def send(self, *frames: messaging.ClientFrame) -> None:
        """Hands frames to the engine.

        Raises:
            RefusedError: the stream has ended, or they are more than it takes at once; nothing was handed over.
        """
        if self._ended is not None:
            raise self._ended
        if not self._pump.is_running:
            raise shutting_down()
        batch = messaging.ClientBatch(frames=frames).SerializeToString()
        if self.welcome is not None and len(batch) > self.welcome.limits.frame_bytes:
            # The engine would end the stream, and with it what others have on the way there.
            raise _too_large(len(batch), self.welcome.limits.frame_bytes)
        self._pump.handle(self.stream, batch)

    async def request(self, frame: messaging.ClientFrame) -> Any:
        """Sends a frame and waits for its reply.

        Raises:
            RefusedError: the reply is an error, or the stream ended.
        """
        frame.request = next(self._requests)
        future = asyncio.get_running_loop().create_future()
        self._replies[frame.request] = future
        try:
            self.send(frame)
            reply = await future
        finally:
            self._replies.pop(frame.request, None)
        if reply.WhichOneof("result") == "error":
            raise RefusedError.from_error(reply.error)
        return reply

    async def open_session(self, mode: str) -> int:
        """Opens a session with an acknowledge mode; its number."""
        opened = messaging.OpenSession(acknowledge_mode=mode)
        reply = await self.request(messaging.ClientFrame(open_session=opened))
        return int(reply.session_opened.session)

    def close(self) -> None:
        """Ends the connection cleanly."""
        if self._ended is None:
            if self._pump.is_running:
                self.send(messaging.ClientFrame(goodbye=messaging.Goodbye()))
            self._end(RefusedError("CLOSED", "stream", "The stream was closed.", "Open another one."))

    def _take(self) -> None:
        self._scheduled = False
        while self.is_open:
            output = self._pump.engine.take_output(self.stream, _TAKE_BYTES)
            if output is None:
                if self._pump.engine.is_closing(self.stream):
                    self._end(RefusedError("UNAVAILABLE", "stream", "The engine ended the stream.", "Try again."))
                return
            for frame in messaging.ServerBatch.FromString(output).frames:
                self._dispatch(frame)

    def _dispatch(self, frame: Any) -> None:
        match frame.WhichOneof("frame"):
            case "reply":
                future = self._replies.get(frame.reply.request)
                if future is not None and not future.done():
                    future.set_result(frame.reply)
            case "welcome":
                if not self._greeted.done():
                    self._greeted.set_result(frame.welcome)
            case "error":
                # An error that answers no request closes the connection, or belongs to a frame that asked for no reply.
                # Whoever greets gets it, though `on_frame` may close the stream for it.
                self._refuse_greeting(RefusedError.from_error(frame.error))
                self._on_frame(frame)
                if frame.session == 0:
                    self._end(RefusedError.from_error(frame.error))
            case "heartbeat":
                self.send(messaging.ClientFrame(heartbeat=messaging.Heartbeat()))
            case _:
                self._on_frame(frame)

    def _refuse_greeting(self, reason: RefusedError) -> None:
        if not self._greeted.done():
            self._greeted.set_exception(reason)
            self._greeted.exception()  # retrieved: whoever greets gets it, and if nobody does it is no defect

    def _end(self, reason: RefusedError) -> None:
        self._ended = reason
        self._refuse_greeting(reason)
        for future in self._replies.values():
            if not future.done():
                future.set_exception(reason)
        self._pump.close(self.stream)
        self._on_end(reason)


def _too_large(size: int, limit: int) -> RefusedError:
    message = f"The request takes {size} bytes; the limit frame_bytes is {limit}."
    return RefusedError(
        "LIMIT_EXCEEDED", "frame_bytes", message, "Send it over a connection, which takes large bodies."
    )


class Pieces:
    """Puts the bodies together that are too large for one frame: they come in pieces, one delivery each."""

    def __init__(self) -> None:
        self._begun: dict[int, messaging.Delivery] = {}

    def whole(self, deliveries: Iterable[messaging.Delivery]) -> list[messaging.Delivery]:
        """Those that are whole now, in order."""
        found = []
        for piece in deliveries:
            delivery = self._begun.pop(piece.sequence, None)
            if delivery is None:
                delivery = piece
            else:
                delivery.uploaded += piece.uploaded
            if len(delivery.uploaded) < delivery.uploaded_bytes:
                self._begun[piece.sequence] = delivery
            else:
                found.append(delivery)
        return found


def size_of(delivery: messaging.Delivery) -> int:
    """What a whole delivery takes of a consumer's credit in bytes."""
    return len(delivery.message) + len(delivery.uploaded)
