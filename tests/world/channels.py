"""What stands for grpc.aio's channels and the calls that clients make on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
from grpc.aio import AioRpcError, Metadata

from tests.world.calls import EOF, Call, Status
from tests.world.network import Link, Network
from tests.world.processes import current


class Channel:
    """What stands for grpc.aio.Channel; belongs to the process that made it."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address
        self._process = current()
        self._link: Link | None = None
        #: With those that another took the place of, whose end only the server has noticed.
        self._links: dict[Link, None] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._closed = False
        self._state = grpc.ChannelConnectivity.IDLE
        self._changed = asyncio.Event()
        self._calls: dict[_ClientCall, None] = {}

    def stream_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Callable[..., _ClientCall]:
        """As grpc's."""

        def call(requests: Any = None, *, timeout: float | None = None, metadata: Any = ()) -> _ClientCall:
            made = self._call(method, request_serializer, response_deserializer, timeout, metadata)
            if requests is not None:
                made.send_all(list(requests))
            return made

        return call

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Callable[..., _UnaryCall]:
        """As grpc's."""

        def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> _UnaryCall:
            made = self._call(method, request_serializer, response_deserializer, timeout, metadata)
            made.send_all([request])
            return _UnaryCall(made)

        return call

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: Any
    ) -> Callable[..., _ClientCall]:
        """As grpc's."""

        def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> _ClientCall:
            made = self._call(method, request_serializer, response_deserializer, timeout, metadata)
            made.send_all([request])
            return made

        return call

    def _call(self, method: str, encode: Any, decode: Any, timeout: float | None, metadata: Any) -> _ClientCall:
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        made = _ClientCall(self, method, encode or bytes, decode or bytes, timeout, metadata or ())
        self._calls[made] = None
        return made

    def finished(self, call: _ClientCall) -> None:
        """A call is over."""
        self._calls.pop(call, None)

    async def link(self) -> Link:
        """A connection, made if there is none.

        Raises:
            AioRpcError: UNAVAILABLE.
        """
        while True:
            if self._link is not None and self._link.is_up:
                return self._link
            if self._connecting is None or self._connecting.done():
                self._connecting = self._network.loop.spawn(self._process, self._connect(), "connect")
            await asyncio.wait((self._connecting,))
            if self._link is None or not self._link.is_up:
                raise rpc_error(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")

    async def _connect(self) -> None:
        self._enter(grpc.ChannelConnectivity.CONNECTING)
        network = self._network
        await asyncio.sleep(network.latency_s() * 2)
        server = network.server_at(self._address)
        waited_s = 0.0
        while server is not None and network.are_apart(self._process, server.process):
            await asyncio.sleep(1.0)
            waited_s += 1.0
            if waited_s > 20:
                server = None
                break
            server = network.server_at(self._address)
        if server is None:
            self._enter(grpc.ChannelConnectivity.TRANSIENT_FAILURE)
            return
        made = self._link = network.link(self._process, server)
        self._links[made] = None
        made.on_client_end.append(lambda: self._lost(made))
        self._enter(grpc.ChannelConnectivity.READY)

    def _lost(self, link: Link) -> None:
        self._links.pop(link, None)
        if self._link is link:
            self._link = None
            self._enter(grpc.ChannelConnectivity.IDLE)

    def _enter(self, state: grpc.ChannelConnectivity) -> None:
        self._state = state
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """As grpc's."""
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        idle = self._state in (grpc.ChannelConnectivity.IDLE, grpc.ChannelConnectivity.TRANSIENT_FAILURE)
        if try_to_connect and idle and (self._connecting is None or self._connecting.done()):
            self._connecting = self._network.loop.spawn(self._process, self._connect(), "connect")
        return self._state

    async def wait_for_state_change(self, last: grpc.ChannelConnectivity) -> None:
        """As grpc's."""
        while self._state is last:
            await self._changed.wait()

    async def close(self, grace: float | None = None) -> None:
        """Ends every call, and the connection."""
        if self._closed:
            return
        self._closed = True
        if grace and self._calls:
            await asyncio.wait([call.over for call in self._calls], timeout=grace)
        for call in list(self._calls):
            call.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        for link in list(self._links):
            link.close_by_client()


class _ClientCall:
    """A call as the client has it; also an iteration over what comes."""

    def __init__(
        self, channel: Channel, method: str, encode: Any, decode: Any, timeout: float | None, metadata: Any
    ) -> None:
        loop = asyncio.get_running_loop()
        self._channel = channel
        self._encode, self._decode = encode, decode
        self._method, self._metadata = method, metadata
        self._call: Call | None = None
        self._status: Status | None = None
        self._cancelled = False
        self._half_closed = False
        self.over: asyncio.Future[None] = loop.create_future()
        self._opening = asyncio.ensure_future(self._open())
        self._sending: asyncio.Task[None] | None = None
        self._timer = None if timeout is None else loop.call_later(timeout, self._expired)

    async def _open(self) -> None:
        try:
            link = await self._channel.link()
        except AioRpcError as error:
            self._end((error.code(), error.details() or "", ()))
            return
        if self._status is None:
            call = self._call = Call(link, self._method, self._metadata)
            watching = asyncio.ensure_future(call.done_event.wait())
            watching.add_done_callback(lambda _: self._end(call.status))

    def _end(self, status: Status | None) -> None:
        if self._status is None:
            self._status = status
            self._channel.finished(self)
            if self._timer is not None:
                self._timer.cancel()
            if not self.over.done():
                self.over.set_result(None)

    def _expired(self) -> None:
        status: Status = (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())
        self._leave(status)

    def _leave(self, status: Status) -> None:
        call = self._call
        if call is not None and call.status is None:
            call.client_end(status, drop=True)
            call.link.send(True, call.server_lost)
        self._end(status)

    def cancelled(self) -> bool:
        """Whether it was cancelled here."""
        return self._cancelled

    def done(self) -> bool:
        """Whether it is over."""
        return self._status is not None or (self._call is not None and self._call.status is not None)

    def cancel(self) -> bool:
        """Ends it."""
        if self.done():
            return False
        self._cancelled = True
        self._leave((grpc.StatusCode.CANCELLED, "Locally cancelled by application!", ()))
        self._opening.cancel()
        if self._sending is not None:
            self._sending.cancel()
        return True

    async def code(self) -> grpc.StatusCode:
        """How it ended."""
        return (await self._final())[0]

    async def details(self) -> str:
        """What was said about it."""
        return (await self._final())[1]

    async def trailing_metadata(self) -> Metadata:
        """What went with the status."""
        return Metadata(*(await self._final())[2])

    async def _final(self) -> Status:
        if self._call is not None and self._call.status is not None:
            return self._call.status
        if self._status is None:
            await asyncio.shield(self.over)
        assert self._status is not None
        return self._status

    async def _raise_for_status(self) -> None:
        if self._cancelled:
            raise asyncio.CancelledError
        code, details, trailing = await self._final()
        if code is not grpc.StatusCode.OK:
            raise rpc_error(code, details, trailing)

    def send_all(self, requests: list[Any]) -> None:
        """What a call was given at once."""

        async def send() -> None:
            for request in requests:
                await self.write(request)
            await self.done_writing()

        self._sending = asyncio.ensure_future(send())
        # What goes wrong there shows in the call's status.
        self._sending.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def write(self, request: Any) -> None:
        """Returns when there is room for more."""
        if self.done():
            raise asyncio.InvalidStateError("RPC already finished.")
        if self._half_closed:
            raise asyncio.InvalidStateError("RPC is half closed after calling 'done_writing'.")
        data = self._encode(request)
        try:
            await asyncio.shield(self._opening)
            call = self._call
            if call is None or call.status is not None:
                await self._raise_for_status()
                return
            call.client_out.unread += len(data)
            call.link.send(True, call.to_server.put, data)
            await call.client_out.room()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if call.has_failed:
            await self._raise_for_status()

    async def done_writing(self) -> None:
        """Says that no more will come."""
        if self.done() or self._half_closed:
            return
        self._half_closed = True
        try:
            await asyncio.shield(self._opening)
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._call is not None:
            self._call.link.send(True, self._call.to_server.close)

    async def read(self) -> Any:
        """The next answer, or EOF."""
        if self.done():
            await self._raise_for_status()
            return EOF
        message = await self._next()
        if message is EOF:
            await self._raise_for_status()
        return message

    async def _next(self) -> Any:
        try:
            await asyncio.shield(self._opening)
            call = self._call
            if call is None:
                return EOF
            message = await call.to_client.take()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if message is EOF:
            return EOF
        call.was_read()
        call.link.send(True, call.server_out.freed, len(message))
        return self._decode(message)

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self._next()) is not EOF:
            yield message
        await self._raise_for_status()


class _UnaryCall:
    """A call of one answer: awaited, it gives it."""

    def __init__(self, call: _ClientCall) -> None:
        self._call = call

    def __await__(self) -> Any:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        call = self._call
        answer = await call._next()
        if answer is EOF:
            await call._raise_for_status()
        # The status comes behind the answer, and counts.
        code, details, trailing = await call._final()
        if code is not grpc.StatusCode.OK:
            raise rpc_error(code, details, trailing)
        return answer

    def cancel(self) -> bool:
        """Ends it."""
        return self._call.cancel()


def rpc_error(code: grpc.StatusCode, details: str, trailing: Iterable[tuple[str, Any]] = ()) -> AioRpcError:
    """As grpc raises it."""
    return AioRpcError(code, Metadata(), Metadata(*trailing), details=details)
