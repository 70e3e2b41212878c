"""Request and reply over one temporary queue per connection (EMS-CLI-A28).

A reply finds its request by the correlation id. The place for replies dies with the stream, so an interruption fails
the requests under way; whether to ask again is the application's to decide.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol

from sterna import errors
from sterna._parts import abandon
from sterna._surroundings import random_bits
from sterna.bodies import Body
from sterna.destinations import Destination, Queue
from sterna.messages import Message
from sterna.producers import is_over

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline
    from sterna.consumers import Consumer
    from sterna.producers import Producer
    from sterna.sessions import Session

#: By this property of a request the broker refuses it where nobody could answer it now.
NEEDS_RESPONDER: Final = "JMS_STERNA_NEEDS_RESPONDER"

_REPLY_WINDOW = 256


class Asker(Protocol):
    """The connection, as far as requests need it."""

    async def session(self) -> Session:
        """A session of their own."""

    async def temporary_queue(self) -> Queue:
        """The place for replies."""


class Requestor:
    """The requests of one connection that wait for replies."""

    def __init__(self, connection: Asker, lifeline: Lifeline) -> None:
        self._connection = connection
        self._lifeline = lifeline
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._prefix = f"{random_bits(48):012x}"
        self._count = 0
        self._opening = asyncio.Lock()
        self._session: Session | None = None
        self._queue: Queue | None = None
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None

    async def _open(self) -> None:
        async with self._opening:
            if self._is_open:
                return
            self._leave()
            session = await self._connection.session()
            queue: Queue | None = None
            try:
                queue = await self._connection.temporary_queue()
                self._producer = await session.producer()
                self._consumer = await session.consumer(queue, prefetch=_REPLY_WINDOW, listener=self._on_reply)
            except BaseException:
                abandon(session)
                if queue is not None:
                    self._lifeline.abandon_temporary(queue)
                raise
            self._queue, self._session = queue, session

    @property
    def _is_open(self) -> bool:
        """Whether requests leave and replies come: a break or the broker may have ended any of it alone."""
        if self._producer is None or is_over(self._producer):
            return False
        return all(one is not None and one.closed is None for one in (self._session, self._consumer))

    def _leave(self) -> None:
        """Gives up what there is still, where a part of it has ended."""
        session, queue, self._session, self._queue = self._session, self._queue, None, None
        if session is not None:
            self.fail(errors.ConnectionLostError("the place for replies is gone", subject="request", retryable=True))
            if session.closed is None:
                abandon(session)
        if queue is not None:
            self._lifeline.abandon_temporary(queue)

    def _on_reply(self, message: Message) -> None:
        waiting = self._waiting.pop(message.correlation_id or "", None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def request(self, destination: Destination, body: Body, options: dict[str, Any]) -> Message:
        """See Connection.request, which bounds the time."""
        await self._open()
        if self._producer is None:
            raise errors.ClosedError("the connection was closed", subject="request")
        self._count += 1
        correlation_id = options.pop("correlation_id", "") or f"{self._prefix}-{self._count}"
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        confirmed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        try:
            await self._producer.send_soon(
                body,
                destination=destination,
                correlation_id=correlation_id,
                reply_to=self._queue,
                on_completion=confirmed,  # type: ignore[arg-type]
                **options,
            )
            # When the connection breaks the reply is lost at once; a confirmation comes on the next one, perhaps never.
            await asyncio.wait((confirmed, future), return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                await confirmed
            return await future
        finally:
            if self._waiting.get(correlation_id) is future:  # the application may use an id again
                del self._waiting[correlation_id]
            for one in (confirmed, future):
                if not one.cancel() and not one.cancelled():
                    one.exception()  # looked at, also where the other has failed first

    def interrupted(self, reason: errors.SternaError) -> None:
        """The place for replies is gone."""
        cause = f"the connection broke before the reply came: {reason.cause}"
        self.fail(errors.ConnectionLostError(cause, subject="request", retryable=True))

    def fail(self, error: errors.SternaError) -> None:
        """Every request under way fails with `error`."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
