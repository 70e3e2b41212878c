"""One RPC on a connection, with both its ends: messages, windows, and how it ends (`test_grpc.py` compares)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import grpc

from tests.world.network import Link

EOF: Final = grpc.aio.EOF

#: What may be on the way in one direction of a call before its writer waits.
_WINDOW_BYTES: Final = 128 * 1024

#: How soon a handler is cancelled after the end of what it reads: mostly within a few turns of the loop.
_CANCEL_S: Final = (0.00001, 0.0001, 0.002)

Status = tuple[grpc.StatusCode, str, tuple[tuple[str, Any], ...]]


class _Inbox:
    """One end's received messages, and who waits for them."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.is_closed = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, message: bytes) -> None:
        self.messages.append(message)
        self.wake()

    def close(self, *, drop: bool = False) -> None:
        self.is_closed = True
        if drop:
            self.messages.clear()
        self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> Any:
        """The next message, or EOF."""
        while not self.messages:
            if self.is_closed:
                return EOF
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.messages.popleft()


class _Outbox:
    """How much of what one end wrote was not read at the other yet."""

    def __init__(self) -> None:
        self.unread = 0
        self.is_closed = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    def freed(self, size: int) -> None:
        self.unread -= size
        self._wake()

    def close(self) -> None:
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def room(self) -> None:
        """Returns when what was written fits the window, or the call is over."""
        while self.unread > _WINDOW_BYTES and not self.is_closed:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter


class Call:
    """One RPC, with both its ends."""

    def __init__(self, link: Link, method: str, metadata: Iterable[tuple[str, Any]]) -> None:
        self.link = link
        self.method = method
        self.metadata = tuple(metadata)
        self.to_client, self.to_server = _Inbox(), _Inbox()
        self.client_out, self.server_out = _Outbox(), _Outbox()
        self.status: Status | None = None
        self.locally_cancelled = False
        self.done_event = asyncio.Event()
        self.handler: asyncio.Task[None] | None = None
        self.status_sent = False
        self.server_gone = False
        link.calls[self] = None
        link.send(True, self._begin)

    @property
    def has_failed(self) -> bool:
        """Whether the client knows that it ended badly."""
        return self.status is not None and self.status[0] is not grpc.StatusCode.OK

    # --- The client's end

    def client_lost(self) -> None:
        """Its connection is gone."""
        self.client_end((grpc.StatusCode.UNAVAILABLE, "Connection reset", ()), drop=True)

    def client_end(self, status: Status, *, drop: bool) -> None:
        """The call is over for the client; `drop`: what it has not read is lost."""
        if self.status is None:
            self.status = status
            self.to_client.close(drop=drop)
            self.client_out.close()
            self.done_event.set()
            self._forget()

    def _status_came(self, status: Status) -> None:
        """In order behind the messages: told once those were read."""
        self._pending = status
        self.to_client.close()
        if not self.to_client.messages:
            self.client_end(status, drop=False)

    _pending: Status | None = None

    def was_read(self) -> None:
        """The client has taken a message."""
        if self._pending is not None and not self.to_client.messages:
            self.client_end(self._pending, drop=False)

    def cancel(self) -> bool:
        """By the client."""
        if self.status is not None:
            return False
        self.locally_cancelled = True
        self.client_end((grpc.StatusCode.CANCELLED, "Locally cancelled by application!", ()), drop=True)
        self.link.send(True, self.server_lost)
        return True

    # --- The server's end

    def _begin(self) -> None:
        self.link.server.begin(self)

    def server_lost(self) -> None:
        """The client has gone, or says that it wants no more."""
        if self.server_gone:
            return
        self.server_gone = True
        self.to_server.close(drop=True)
        self.server_out.close()
        if self.handler is not None and not self.handler.done():
            # That there will be no more to read is seen before the call is cancelled.
            loop = self.link.network.loop
            loop.call_later(loop.random.random() * loop.random.choice(_CANCEL_S), self._cancel_handler)
        self._forget()

    def _cancel_handler(self) -> None:
        if self.handler is not None and not self.handler.done():
            self.handler.cancel()

    def finish(self, status: Status) -> None:
        """The handler is done."""
        if not self.status_sent:
            self.status_sent = True
            self.link.send(False, self._status_came, status)
            self.server_out.close()
            self._forget()

    def _forget(self) -> None:
        if self.status is not None and (self.status_sent or self.server_gone):
            self.link.calls.pop(self, None)
