"""The same cases on grpc.aio and on what stands for it in the world: what our code relies on is the same on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from tests.world.channels import Channel
from tests.world.servers import Server
from tests.world.stage import Stage, staged

Handler = Callable[[Any], Awaitable[None]]
Case = Callable[["Wire"], Awaitable[None]]


class Wire:
    """A server with one method, a stream in both directions, and channels to it."""

    def __init__(self) -> None:
        self.handler: Handler = _echo
        self.ended: list[str] = []
        self.handled = asyncio.Event()

    async def handle(self, _requests: Any, context: Any) -> None:
        """Notes how the handler ended."""
        try:
            await self.handler(context)
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        else:
            self.ended.append("")
        finally:
            self.handled.set()

    def handlers(self) -> tuple[Any, ...]:
        """For a server."""
        method: Any = grpc.stream_stream_rpc_method_handler(self.handle)
        return (grpc.method_handlers_generic_handler("test.Test", {"Talk": method}),)

    def channel(self) -> Any:
        """A new channel."""
        raise NotImplementedError

    def call(self) -> Any:
        """A new call on a new channel."""
        return self.channel().stream_stream("/test.Test/Talk")()


async def _echo(context: Any) -> None:
    while (message := await context.read()) is not grpc.aio.EOF:
        await context.write(b"re " + message)


async def _a_call_talks_and_ends(wire: Wire) -> None:
    call = wire.call()
    await call.write(b"one")
    assert await call.read() == b"re one"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    assert dict(await call.trailing_metadata()) == {}
    assert await call.read() is grpc.aio.EOF
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(b"two")
    assert wire.ended == [""]


async def _an_abort_comes_behind_what_was_written(wire: Wire) -> None:
    async def handler(context: Any) -> None:
        await context.write(b"first")
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no", (("why-bin", b"x"),))

    wire.handler = handler
    call = wire.call()
    assert await call.read() == b"first"
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await call.read()
    assert told.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert dict(told.value.trailing_metadata() or ()) == {"why-bin": b"x"}
    assert await call.details() == "no"
    assert dict(await call.trailing_metadata()) == {"why-bin": b"x"}


async def _a_cancelled_read_cancels_the_call(wire: Wire) -> None:
    call = wire.call()
    await call.write(b"one")
    assert await call.read() == b"re one"
    reading = asyncio.ensure_future(call.read())
    await asyncio.sleep(0.05)
    reading.cancel()
    await asyncio.wait((reading,))
    assert reading.cancelled()
    assert call.done()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await wire.handled.wait()
    assert wire.ended in (["CancelledError"], [""])


async def _a_cancelled_call_cancels_its_handler(wire: Wire) -> None:
    async def handler(context: Any) -> None:
        await context.write(b"begun")
        await asyncio.Event().wait()

    wire.handler = handler
    call = wire.call()
    assert await call.read() == b"begun"
    assert call.cancel()
    assert not call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call.read()
    await wire.handled.wait()
    assert wire.ended == ["CancelledError"]


async def _a_writer_waits_for_a_reader(wire: Wire) -> None:
    async def handler(context: Any) -> None:
        await context.read()
        await asyncio.Event().wait()

    wire.handler = handler
    call = wire.call()
    written = 0

    async def write() -> None:
        nonlocal written
        while True:
            await call.write(b"x" * 65536)
            written += 1

    writing = asyncio.ensure_future(write())
    before = -1
    while written != before:
        before = written
        await asyncio.sleep(0.3)
    assert 1 <= written < 200
    writing.cancel()
    await asyncio.wait((writing,))
    assert call.done(), "a cancelled write cancels the call"


async def _a_handler_that_raises_ends_the_call_as_unknown(wire: Wire) -> None:
    async def handler(context: Any) -> None:
        await context.read()
        raise ValueError("a defect")

    wire.handler = handler
    call = wire.call()
    await call.write(b"one")
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await call.read()
    assert told.value.code() is grpc.StatusCode.UNKNOWN


async def _closing_the_channel_ends_its_calls(wire: Wire) -> None:
    channel = wire.channel()
    call = channel.stream_stream("/test.Test/Talk")()
    await call.write(b"one")
    assert await call.read() == b"re one"
    await channel.close()
    assert await call.code() is grpc.StatusCode.CANCELLED
    await wire.handled.wait()
    with pytest.raises(grpc.aio.UsageError):
        channel.stream_stream("/test.Test/Talk")()


async def _a_method_that_is_not_there_is_unimplemented(wire: Wire) -> None:
    call = wire.channel().stream_stream("/test.Test/Other")()
    with pytest.raises(grpc.aio.AioRpcError) as told:
        await call.read()
    assert told.value.code() is grpc.StatusCode.UNIMPLEMENTED


CASES: list[Case] = [
    _a_call_talks_and_ends,
    _an_abort_comes_behind_what_was_written,
    _a_cancelled_read_cancels_the_call,
    _a_cancelled_call_cancels_its_handler,
    _a_writer_waits_for_a_reader,
    _a_handler_that_raises_ends_the_call_as_unknown,
    _closing_the_channel_ends_its_calls,
    _a_method_that_is_not_there_is_unimplemented,
]


def _named(case: Case) -> str:
    return case.__name__.strip("_")


class _OfGrpc(Wire):
    def __init__(self) -> None:
        super().__init__()
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers(self.handlers())
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.channels: list[Any] = []

    def channel(self) -> Any:
        self.channels.append(grpc.aio.insecure_channel(f"127.0.0.1:{self.port}"))
        return self.channels[-1]


@pytest.fixture
async def of_grpc(tier_loop: None) -> AsyncIterator[_OfGrpc]:
    wire = _OfGrpc()
    await wire.server.start()
    yield wire
    for channel in wire.channels:
        await channel.close()
    await wire.server.stop(0)


@pytest.mark.parametrize("case", CASES, ids=_named)
async def test_on_grpc(of_grpc: _OfGrpc, case: Case) -> None:
    async with asyncio.timeout(20):
        await case(of_grpc)


class _OfWorld(Wire):
    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    def channel(self) -> Any:
        return Channel(self.stage.network, "wire:1")


@pytest.mark.parametrize("case", CASES, ids=_named)
def test_in_the_world(case: Case) -> None:
    @staged
    async def plays(stage: Stage) -> None:
        wire = _OfWorld(stage)
        serving = asyncio.Event()

        async def serve() -> None:
            server = Server(stage.network)
            server.add_generic_rpc_handlers(wire.handlers())
            server.start("wire:1")
            serving.set()

        process, _ = stage.process("server", serve())
        await serving.wait()
        await case(wire)
        # What a handler raises is noted where it happens; here it is meant.
        process.faults.clear()

    plays()
