"""What stands for grpc.aio's server and its contexts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc

from tests.world.calls import EOF, Call
from tests.world.network import Link, Network
from tests.world.processes import current


class Context:
    """The server's view of a call, as a handler has it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._aborted = False
        self.encode: Callable[[Any], bytes] = bytes

    def peer(self) -> str:
        """Who calls."""
        return self._call.link.peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """No TLS here."""
        return {}

    def invocation_metadata(self) -> tuple[tuple[str, Any], ...]:
        """What came with the call."""
        return self._call.metadata

    async def read(self) -> Any:
        """The next message, or EOF."""
        self._check()
        message = await self._call.to_server.take()
        if message is not EOF:
            self._call.link.send(False, self._call.client_out.freed, len(message))
        return message

    async def write(self, answer: Any) -> None:
        """Returns when there is room for more."""
        self._check()
        message = self.encode(answer)
        call = self._call
        if call.server_gone:
            raise grpc.aio.InternalError("Failed 'execute_batch': the call is over")
        call.server_out.unread += len(message)
        call.link.send(False, call.to_client.put, message)
        await call.server_out.room()
        if call.server_gone:
            raise grpc.aio.InternalError("Failed 'execute_batch': the call is over")

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        """Ends the call with a status."""
        self._check()
        self._aborted = True
        self._call.finish((code, details, tuple(trailing_metadata)))
        raise grpc.aio.AbortError("Locally aborted.")

    def _check(self) -> None:
        if self._aborted:
            raise grpc.aio.AbortError("Locally aborted.")
        if self._call.status_sent:
            raise grpc.aio.UsageError("RPC already finished.")


class Server:
    """What stands for grpc.aio.Server; belongs to the process that made it."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.process = current()
        self._handlers: list[Any] = []
        self._address = ""
        self._calls: dict[asyncio.Task[None], None] = {}
        self.links: dict[Link, None] = {}

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """As grpc's."""
        self._handlers += handlers

    def start(self, address: str) -> None:
        """Listens."""
        self._address = address
        self.network.listen(address, self)

    async def stop(self, grace_s: float | None) -> None:
        """Takes no more calls, waits so long for those there are, and ends what is left."""
        self.network.forget(self._address, self)
        if self._calls and grace_s:
            await asyncio.wait(list(self._calls), timeout=grace_s)
        for task in list(self._calls):
            task.cancel()
        if self._calls:
            await asyncio.wait(list(self._calls))
        for link in list(self.links):
            link.close_by_server()

    def begin(self, call: Call) -> None:
        """A call has come in."""
        self.links[call.link] = None
        details = _Details(call.method, call.metadata)
        handler = next((found for one in self._handlers if (found := one.service(details)) is not None), None)
        if handler is None:
            call.finish((grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ()))
            return
        task = call.handler = self.network.loop.spawn(self.process, _handle(handler, call), f"rpc {call.method}")
        self._calls[task] = None
        task.add_done_callback(lambda done: self._calls.pop(done, None))


class _Details:
    def __init__(self, method: str, metadata: Any) -> None:
        self.method = method
        self.invocation_metadata = metadata


async def _handle(handler: Any, call: Call) -> None:
    context = Context(call)
    try:
        await _run(handler, call, context)
    except grpc.aio.AbortError:
        return  # the status is out
    except asyncio.CancelledError:
        call.finish((grpc.StatusCode.CANCELLED, "RPC cancelled", ()))
        raise
    except Exception as error:  # noqa: BLE001 - as grpc does
        if not call.server_gone:
            current().faults.append(f"a handler of {call.method} raised {error!r}")
        call.finish((grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}", ()))
    else:
        call.finish((grpc.StatusCode.OK, "", ()))


async def _run(handler: Any, call: Call, context: Context) -> None:
    context.encode, decode = handler.response_serializer or bytes, handler.request_deserializer or bytes
    if handler.request_streaming:
        requests = _requests(context, decode)
        await _consume(handler.stream_stream(requests, context), context)
        return
    request = await context.read()
    if request is EOF:
        return
    if handler.response_streaming:
        await _consume(handler.unary_stream(decode(request), context), context)
        return
    await context.write(await handler.unary_unary(decode(request), context))


async def _requests(context: Context, decode: Callable[[bytes], Any]) -> AsyncIterator[Any]:
    while (message := await context.read()) is not EOF:
        yield decode(message)


async def _consume(answers: Any, context: Context) -> None:
    if hasattr(answers, "__aiter__"):
        async for answer in answers:
            await context.write(answer)
    else:
        await answers
