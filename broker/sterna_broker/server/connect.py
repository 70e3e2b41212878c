"""Messaging.Connect: one gRPC call is one of the engine's streams.

Bytes go through untouched: the engine reads and writes the frames. For each call one task reads and one writes. The
writer asks the engine for output only when its previous write has finished, so what gathers meanwhile leaves as one
batch: batches grow with load, and a lone message leaves at once.

A client that does not read holds up its own writer alone. What waits for it is bounded (its credit, and one batch on
the way), and after `slow_consumer_ms` it is cut off; since nothing can be pushed through a full pipe, the reason
travels with the status of the call.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import grpc
import structlog

from sterna_broker.pump import Pump
from sterna_broker.refusals import ERROR_METADATA, RefusedError, shutting_down
from sterna_broker.surroundings import monotonic_ms

_log = structlog.get_logger(part="stream")

# How long a stream that the engine has ended may take to hand over its last output.
_LAST_WORDS_MS = 1_000

# Later than this after it was due, a look at who does not read finds that the process itself stood still.
_LATE_MS = 500


class Call:
    """One call of Connect, as the engine's port."""

    def __init__(self, pump: Pump, context: Any, frame_bytes: int, cut: Counter[str]) -> None:
        self.cut_off: RefusedError | None = None
        self.writing_since_ms: int | None = None
        self.peer: str = context.peer()
        self.auth_context: Mapping[str, Iterable[bytes]] = context.auth_context()
        self._pump = pump
        self._context = context
        self._frame_bytes = frame_bytes
        self._cut = cut
        self._awake = asyncio.Event()
        self._half_closed = False
        self._deciding: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self.stream = pump.open(self, self.peer)

    def wake(self) -> None:
        """See Port."""
        self._awake.set()

    @property
    def is_ending(self) -> bool:
        """Whether the stream only has its last output to give, or less."""
        engine, stream = self._pump.engine, self.stream
        # What is left of one that the engine has ended is an error, which the status of the call can tell as well; to
        # a client that has said goodbye its answers are owed.
        return engine.ended_for(stream) is not None or engine.is_closing(stream)

    def decide(self) -> None:
        """It is being found out whether this client may connect: nothing more is read from it until `decided`.

        Who is not known yet must not fill the broker's memory.
        """
        self._deciding = asyncio.Event()

    def decided(self) -> None:
        """It has been found out; the engine knows."""
        if self._deciding is not None:
            self._deciding.set()
            self._deciding = None

    def end(self, reason: RefusedError) -> None:
        """Ends the call at once, whatever it is doing: for what the engine has ended its stream for, or for this."""
        if self.cut_off is not None:
            return
        # Closed before the tasks have ended: meanwhile the engine might find a reason of its own, and count that, too.
        told = self._pump.cut(self.stream)
        if told is None:
            self._cut[reason.code] += 1
        self.cut_off = told or reason
        if self._task is not None:
            self._task.cancel()

    async def serve(self) -> None:
        """Runs until the client or the engine is done, or the call is cut off.

        Raises:
            RefusedError: the call was cut off.
        """
        reader = asyncio.create_task(self._read(), name=f"read-{self.stream}")
        self._task = asyncio.create_task(self._write(), name=f"write-{self.stream}")
        try:
            await asyncio.wait((reader, self._task), return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not self._task.done():
                # The client has said all. What the engine has to say to it at this moment still goes out.
                self._pump.touch()
                asyncio.get_running_loop().call_soon(self._finish)
                await asyncio.wait((self._task,))
        finally:
            for task in (reader, self._task):
                task.cancel()
            # Before anything is awaited: gRPC cancels this handler at any moment, also when it is already ending.
            self._pump.close(self.stream)
            await asyncio.gather(reader, self._task, return_exceptions=True)
        if self.cut_off is not None:
            raise self.cut_off
        for task in (reader, self._task):
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def _finish(self) -> None:
        self._half_closed = True
        self._awake.set()

    async def _read(self) -> None:
        context, pump, stream = self._context, self._pump, self.stream
        while True:
            batch = await context.read()
            if batch is grpc.aio.EOF:
                # Once around the loop, in which the engine asks about what was read last.
                await asyncio.sleep(0)
            if (deciding := self._deciding) is not None:
                await deciding.wait()
            if batch is grpc.aio.EOF:
                return
            pump.handle(stream, batch)

    async def _write(self) -> None:
        context, engine, stream, awake = self._context, self._pump.engine, self.stream, self._awake
        while True:
            awake.clear()
            output = engine.take_output(stream, self._frame_bytes)
            if output is None:
                if self._half_closed or engine.is_closing(stream):
                    return
                await awake.wait()
                continue
            self.writing_since_ms = monotonic_ms()
            await context.write(output)
            self.writing_since_ms = None


class Connect:
    """The handler of Connect, with all its calls."""

    def __init__(self, pump: Pump, *, frame_bytes: int, connections: int, slow_consumer_ms: int) -> None:
        self._pump = pump
        self._frame_bytes = frame_bytes
        self._connections = connections
        self._slow_consumer_ms = slow_consumer_ms
        self.cut: Counter[str] = Counter()
        """Calls that were ended, or not begun, from here, by code; the engine counts those that it ends."""
        self._calls: dict[Call, None] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._draining = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def handle(self, _requests: Any, context: Any) -> None:
        """One call, to its end."""
        try:
            await self._serve(context)
        except RefusedError as refused:
            metadata = ((ERROR_METADATA, refused.error.SerializeToString()),)
            await context.abort(refused.status, refused.message, metadata)

    def start(self) -> None:
        """Begins to watch for clients that do not read."""
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep-slow-clients")

    async def drain(self, timeout_s: float) -> bool:
        """Takes no new calls and waits for those there are; whether all have gone in time."""
        self._draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Ends all calls."""
        self._draining = True
        for call in list(self._calls):
            call.end(shutting_down())
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)

    @property
    def calls(self) -> int:
        """How many calls there are."""
        return len(self._calls)

    def _refusal(self) -> RefusedError | None:
        """Why another call is not begun; None: it is."""
        if self._draining:
            return shutting_down()
        if len(self._calls) >= self._connections:
            return RefusedError(
                "LIMIT_EXCEEDED",
                "connections",
                f"The broker has its {self._connections} connections already.",
                "Close some, or raise spec.limits.connections in the Broker manifest.",
                retryable=True,
            )
        return None

    async def _serve(self, context: Any) -> None:
        if (refusal := self._refusal()) is not None:
            self.cut[refusal.code] += 1
            raise refusal
        call = Call(self._pump, context, self._frame_bytes, self.cut)
        self._calls[call] = None
        self._empty.clear()
        try:
            await call.serve()
        finally:
            self._calls.pop(call, None)
            if not self._calls:
                self._empty.set()

    async def _sweep(self) -> None:
        """Cuts off whoever has not read for too long; looks often enough to be at most a quarter late."""
        period_ms = min(self._slow_consumer_ms / 4, 1_000)
        before_ms = monotonic_ms()
        while True:
            await asyncio.sleep(period_ms / 1000)
            now_ms = monotonic_ms()
            stood_still = now_ms - before_ms > period_ms + _LATE_MS
            before_ms = now_ms
            if stood_still:
                # What clients read meanwhile has not been noticed yet.
                continue
            for call in list(self._calls):
                since_ms = call.writing_since_ms
                if since_ms is None:
                    continue
                bound_ms = min(_LAST_WORDS_MS, self._slow_consumer_ms) if call.is_ending else self._slow_consumer_ms
                if now_ms - since_ms >= bound_ms:
                    _log.warning("slow_client_cut_off", stream=call.stream, waited_ms=now_ms - since_ms)
                    call.end(_slow(self._slow_consumer_ms))


def _slow(bound_ms: int) -> RefusedError:
    return RefusedError(
        "SLOW_CONSUMER",
        "stream",
        f"The client left what it had asked for unread for {bound_ms} ms.",
        "Ask for less ahead (credit), or read in a task of its own.",
        retryable=True,
    )
