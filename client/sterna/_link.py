"""One stream to one broker: the gRPC call, its writer, its reader and the requests that wait for a reply.

A link lives as long as its call; the connection makes a new one after each break and everything above re-creates
itself on it. Writing follows one rule: one write is in flight, and what gathers meanwhile makes the next batch. So a
lone message leaves at once, load makes batches grow, and there is no timer.

The outbox holds, in the order of the session's frames, encoded frames and *runs*: Publish frames still growing while
their producer keeps sending. A frame that must stay in order closes the runs before it. Acknowledgements and credit
gather in their sessions and consumers and are written with the next batch as they then stand.

Left out: what any frame means to a session, producer or consumer; the connection routes them.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from sterna import errors
from sterna._channels import closing, open_channel, told_by, unreachable
from sterna._encode import varint
from sterna._ledger import Book, Place, Uploads
from sterna._machines.publishing import Chunks, Outbox, Run
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.events import logger
from sterna.tls import Tls

_METHOD: Final = "/sterna.v1.Messaging/Connect"
#: Batches are cut here although the broker takes more: several in a pipeline keep both sides at work.
BATCH_BYTES: Final = 256 * 1024
_HEARTBEAT: Final = pb.ClientFrame(heartbeat=pb.Heartbeat()).SerializeToString()

#: Posts what its owner has to say in the next batch, as it stands when that is put together.
Gather = Callable[["Link"], None]
#: What a request's reply, or the error in its place, is given to.
Settle = Callable[[Any, "errors.SternaError | None"], None]


class LinkLostError(errors.ConnectionLostError):
    """The link broke before the reply came; the connection tries again where that is safe."""


class LeftError(errors.SternaError):
    """The session went to another broker while something of it was being opened here: it is opened there."""


def _batch(data: Any) -> Any:
    """What a call has read as a ServerBatch; None at its end, of which gRPC tells by what is no bytes."""
    return pb.ServerBatch.FromString(data) if isinstance(data, bytes) else None


class Link:
    """A live stream. `welcome` is what the broker said about itself; `lost` becomes the reason of the end."""

    def __init__(
        self, address: str, on_frame: Callable[[Any], None], tls: Tls | None = None, book: Book | None = None
    ) -> None:
        self.address = address
        self._book = book
        #: What the ledger knows it as, where there is one; and there, of bodies that went ahead, checksum and size.
        self.place: Place | None = None
        self.uploads: Uploads = {}
        self._tls = tls
        self.welcome: Any = None
        self.lost: errors.SternaError | None = None
        self.going_away: Any = None
        self.ended = asyncio.get_running_loop().create_future()
        self.batch_bytes = BATCH_BYTES
        self.frame_bytes = 1 << 20
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        self._channel: Any = None
        self._call: Any = None
        self._items: deque[bytes | Run | Chunks] = deque()
        self._runs: list[Run] = []
        self._gathering: list[Gather] = []
        self._requests: dict[int, Settle] = {}
        self._next_request = 0
        self._idle: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._finishing = False
        #: What its runs hold that was not written yet, of lanes that no confirm holds back.
        self.outbox = Outbox()
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = self._wrote = self._loop.time()

    # --- Beginning and end

    async def open(self, hello: Any, timeout_s: float) -> None:
        """Dials, greets and waits for the welcome.

        Raises:
            UnreachableError: when nobody answers in time; TlsError where TLS is the reason.
            SternaError: what the broker answered in place of a welcome.
        """
        if "grpc" not in sys.modules:
            # It takes a while to load, which nobody else on this loop shall wait for.
            await asyncio.to_thread(importlib.import_module, "grpc.aio")
        import grpc
        from google.protobuf.message import DecodeError

        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        self._channel = await open_channel(self.address, self._tls, options)
        try:
            async with asyncio.timeout(timeout_s):
                self._call = self._channel.stream_stream(_METHOD)()
                batch = pb.ClientBatch(frames=[pb.ClientFrame(hello=hello)])
                await self._call.write(batch.SerializeToString())
                first = _batch(await self._call.read())
        except TimeoutError as error:
            await self.abort()
            cause = f"{self.address} did not answer within {timeout_s:g} s"
            raise errors.UnreachableError(cause, subject=self.address, retryable=True) from error
        except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
            reason, told = await self._status(), await self._told()
            await self.abort()
            if told is not None:
                raise told from error
            cause = f"cannot reach {self.address}: {reason.cause}"
            raise await unreachable(self.address, self._tls, cause) from error
        except DecodeError as error:
            await self.abort()
            cause = f"{self.address} answers with what is no ServerBatch: {error}"
            raise errors.ProtocolError(cause, subject=self.address) from error
        except asyncio.CancelledError:
            await self.abort()
            raise
        await self._welcomed(first)

    async def _welcomed(self, first: Any) -> None:
        frames = list(first.frames) if first is not None else []
        kind = frames[0].WhichOneof("frame") if frames else None
        if kind == "error":
            await self.abort()
            raise errors.from_proto(frames[0].error)
        if kind == "go_away":
            await self.abort()
            raise errors.from_proto(frames[0].go_away.reason)
        if kind != "welcome":
            reason = await self._status() if first is None else errors.ProtocolError(f"greeted with {kind}")
            await self.abort()
            if isinstance(reason, errors.ConnectionLostError):
                raise await unreachable(self.address, self._tls, f"cannot reach {self.address}: {reason.cause}")
            raise reason
        self.welcome = frames[0].welcome
        if self._book is not None:
            self.place = Place(self.welcome, self.address)
        limits = self.welcome.limits
        if limits.frame_bytes:
            self.frame_bytes = limits.frame_bytes
            self.batch_bytes = min(BATCH_BYTES, limits.frame_bytes)
        self._heard = self._wrote = self._loop.time()
        self._tasks = [
            asyncio.create_task(self._write_loop(), name="sterna-writer"),
            asyncio.create_task(self._read_loop(frames[1:]), name="sterna-reader"),
            asyncio.create_task(self._beat(), name="sterna-heartbeat"),
        ]

    async def abort(self) -> None:
        """Drops the call and the channel, without a word to the broker."""
        channel = self._cut()
        if channel is not None:
            await asyncio.shield(closing(channel))

    def drop(self) -> None:
        """The same, for whoever cannot wait for it."""
        channel = self._cut()
        if channel is not None:
            closing(channel)

    def _cut(self) -> Any:
        # A cancelled task keeps its exception, that the frames it went through, and those the call: not kept here.
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        if self._call is not None:
            self._call.cancel()
        # The call holds the channel, and that its connection, for as long as somebody holds the call.
        channel, self._channel, self._call = self._channel, None, None
        return channel

    async def finish(self, timeout_s: float, reason: errors.SternaError, seen: Iterable[Any] = ()) -> None:
        """Writes what is in the outbox and a Goodbye, then waits for the broker to end the call, at most so long.

        `reason` is what the link was ended for, unless it breaks by itself first. `seen`: what the application has in
        hand, as SeenSets; it comes again, flagged.
        """
        if self.lost is None:
            self.post(pb.ClientFrame(goodbye=pb.Goodbye(seen=seen)).SerializeToString())
            self._finishing = True
            self._wake()
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(self.ended)
            except TimeoutError:
                pass  # a broker that does not end the call is left all the same: it has had the Goodbye
        self.fail(reason)
        await self.abort()

    @property
    def has_left(self) -> bool:
        """Whether the Goodbye is said."""
        return self._finishing

    def fail(self, reason: errors.SternaError) -> None:
        """Ends the link for whoever uses it, for this reason; the first one counts."""
        if self.lost is not None:
            return
        self.lost = reason
        requests, self._requests = self._requests, {}
        for settle in requests.values():
            settle(None, LinkLostError(f"the connection broke: {reason.cause}", subject=self.address, retryable=True))
        self._items.clear()
        self._release_drained()
        if not self.ended.done():
            self.ended.set_result(None)

    def check(self) -> None:
        """Raises LinkLostError when the link is gone."""
        if self.lost is not None:
            raise LinkLostError(f"the connection broke: {self.lost.cause}", retryable=True)

    def left(self, subject: str) -> errors.SternaError:
        """Why a session that something was to be opened in is not on this link."""
        if self.lost is None and not self.has_left:
            return LeftError("the session has gone to another broker", subject=subject)
        return LinkLostError("the connection broke", subject=subject, retryable=True)

    async def _status(self) -> errors.SternaError:
        """Why the call ended."""
        call = self._call
        code, details = await call.code(), await call.details()
        return await self._told() or errors.from_status(code.name, details or "", address=self.address)

    async def _told(self) -> errors.SternaError | None:
        """What the broker itself said about the end of the call; None: nothing."""
        if self.going_away is not None and self.going_away.reason.code:
            return errors.from_proto(self.going_away.reason)
        return told_by(await self._call.trailing_metadata())

    # --- Writing

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def seal(self) -> None:
        """Closes the growing runs: what is posted next comes after them."""
        for run in self._runs:
            grower = run.grower
            if grower.run is run:
                grower.run = None
        self._runs.clear()

    def post(self, frame: bytes) -> None:
        """Queues an encoded ClientFrame behind everything queued so far."""
        if self.lost is not None:
            return
        self.seal()
        self._items.append(frame)
        self._wake()

    def open_run(self, run: Run) -> None:
        """Queues a run that may still grow."""
        if self.lost is None:
            self._items.append(run)
            self._runs.append(run)
            self._wake()

    def open_body(self, body: Chunks) -> None:
        """Queues a body whose chunks are cut when they are written, behind everything queued so far."""
        if self.lost is None:
            self.seal()
            self._items.append(body)
            self._wake()

    def gather(self, source: Gather) -> None:
        """Has `source` post its frames when the next batch is put together; it asks once per batch."""
        self._gathering.append(source)
        self._wake()

    def drained(self) -> asyncio.Future[None]:
        """Done when something was taken from the outbox that counts there, when it is empty, or the link gone."""
        if self._drained is None:
            self._drained = self._loop.create_future()
            if self.lost is not None:
                self._drained.set_result(None)
            self._wake()
        return self._drained

    def _release_drained(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        self._drained = None

    def _take(self) -> bytes:
        gathering, self._gathering = self._gathering, []
        for source in gathering:
            source(self)
        self.seal()
        items = self._items
        parts: list[bytes | memoryview] = []
        size = 0
        while items and size < self.batch_bytes:
            item = items[0]
            if isinstance(item, Run):
                first, messages = item.first, item.messages
                taken, done = item.take(parts, self.batch_bytes - size)
                size += taken
                if item.waiting_bytes:
                    self.outbox.bytes -= item.left(taken, done=done)
                    self._release_drained()
                if self._book is not None and taken:
                    self._book.sent(item, first, messages if done else messages[: item.first - first], self.uploads)
                if not done:
                    break
            elif isinstance(item, Chunks):
                taken, done = item.take(parts, self.batch_bytes - size)
                size += taken
                if not done:
                    if taken:
                        continue
                    break
            else:
                if parts and size + len(item) > self.batch_bytes:
                    break
                parts += (b"\x0a", varint(len(item)), item)
                size += len(item) + 6
            items.popleft()
        if not items:
            self.outbox.bytes = 0
        return b"".join(parts)

    async def _write_loop(self) -> None:
        while self.lost is None:
            batch = self._take()
            if not batch:
                self._release_drained()
                if self._finishing:
                    await self._end()
                    return
                self._idle = self._loop.create_future()
                await self._idle
                self._idle = None
                continue
            if self._book is not None and not await self._witnessed(self._book):
                return
            try:
                await self._call.write(batch)
            except BaseException as error:
                if self._tells_end(error):
                    return
                raise
            self._wrote = self._loop.time()

    async def _witnessed(self, book: Book) -> bool:
        """Has what stands in the batch written down before it leaves. Whether it may leave."""
        if book.flush() and (not book.syncs or await book.synced()):
            return self.lost is None
        if book.over is not None:
            self.fail(book.over)
        return False

    async def _end(self) -> None:
        try:
            await self._call.done_writing()
        except BaseException as error:
            if not self._tells_end(error):
                raise

    def _tells_end(self, error: BaseException) -> bool:
        """Whether what a write failed with says that the call has ended, which is the reader's to report."""
        import grpc

        if not isinstance(error, asyncio.CancelledError):
            return isinstance(error, grpc.RpcError | asyncio.InvalidStateError | grpc.aio.UsageError)
        # gRPC keeps the future that was cancelled under its operation, that this exception, its frames the call,
        # and the call its connection: for ever, and out of the garbage collector's sight.
        error.__traceback__ = None
        task = asyncio.current_task()
        return task is None or not task.cancelling()

    # --- Reading

    async def _read_loop(self, first: list[Any]) -> None:
        import grpc
        from google.protobuf.message import DecodeError

        reason: errors.SternaError
        try:
            for frame in first:
                self._handle(frame)
            while (batch := _batch(await self._call.read())) is not None:
                self._heard = self._loop.time()
                for frame in batch.frames:
                    self._handle(frame)
            reason = await self._status()
        except DecodeError as error:
            reason = errors.ProtocolError(f"the broker sent what is no ServerBatch: {error}", subject=self.address)
        except grpc.RpcError:
            reason = await self._status()
        except asyncio.CancelledError as cancelled:
            cancelled.__traceback__ = None  # see `_tells_end`
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # Nobody reads replies any more; whoever waits for one must not wait until a timeout.
                self.fail(errors.ConnectionLostError("the reader was cancelled", subject=self.address))
                raise
            # It was the call that was cancelled, by the heartbeat or by the channel.
            reason = errors.ConnectionLostError("the call was cancelled", subject=self.address, retryable=True)
        except Exception as error:  # noqa: BLE001 - a defect here must end the link, or everybody would wait for ever
            logger.exception("the reader of %s failed", self.address)
            reason = errors.ConnectionLostError(f"the reader failed: {error!r}", subject=self.address, retryable=True)
        self.fail(reason)

    def _handle(self, frame: Any) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "reply":
            reply = frame.reply
            settle = self._requests.pop(reply.request, None)
            if settle is not None:
                failed = reply.WhichOneof("result") == "error"
                settle(reply, errors.from_proto(reply.error) if failed else None)
        elif kind == "error" and not frame.session:
            self.fail(errors.from_proto(frame.error))
        elif kind is not None:
            self._on_frame(frame)

    # --- Requests

    def begin(self, session: int, name: str, content: Any, settle: Settle) -> None:
        """Sends a frame with a request number; `settle` is called with its reply, or with what came in its place."""
        if self.lost is not None:
            cause = f"the connection broke: {self.lost.cause}"
            settle(None, LinkLostError(cause, subject=self.address, retryable=True))
            return
        self._next_request = self._next_request % 0xFFFFFFFF + 1
        self._requests[self._next_request] = settle
        frame = pb.ClientFrame(session=session, request=self._next_request, **{name: content})
        self.post(frame.SerializeToString())

    async def request(
        self,
        session: int,
        name: str,
        content: Any,
        *,
        at_once: Callable[[Any], None] | None = None,
        undo: Callable[[Any], None] | None = None,
    ) -> Any:
        """As `begin`, and returns the Reply.

        `at_once` is called with it before any frame behind it is looked at; the caller itself only runs after those.
        `undo` is called with it when whoever asked was cancelled: nobody will have what the broker made.

        Raises:
            LinkLostError: when the link broke before the reply.
            SternaError: what the broker answered.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def settle(reply: Any, error: errors.SternaError | None) -> None:
            if future.done():
                if error is None and undo is not None:
                    undo(reply)
                return
            if error is not None:
                future.set_exception(error)
                return
            if at_once is not None:
                at_once(reply)
            future.set_result(reply)

        self.begin(session, name, content, settle)
        try:
            return await future
        except asyncio.CancelledError:
            if undo is not None and future.done() and not future.cancelled() and future.exception() is None:
                undo(future.result())  # it was there, and the cancellation came before it was taken
            raise

    def tell(self, session: int, name: str, content: Any) -> None:
        """Sends a frame whose reply nobody waits for."""
        self.begin(session, name, content, lambda _reply, _error: None)

    def end_session(self, session: int) -> None:
        """Has the broker close a session with all that is in it, and waits for no word."""
        self.tell(session, "close_session", pb.CloseSession())

    # --- Heartbeats

    async def _beat(self) -> None:
        """Says something when nothing else was for a third of the interval; gives up after one of silence."""
        interval_s = (self.welcome.heartbeat_ms or 30_000) / 1000
        while self.lost is None:
            await asyncio.sleep(interval_s / 6)
            now = self._loop.time()
            if now - self._heard > interval_s:
                cause = f"nothing was heard from {self.address} for {interval_s:g} s"
                self.fail(errors.IdleError(cause, subject=self.address, retryable=True))
                self._call.cancel()
            elif now - self._wrote > interval_s / 3:
                self.post(_HEARTBEAT)
