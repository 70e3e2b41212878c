"""Consumers and browsers: messages handed to the application, as an iterator, by a call, or to a listener.

What the broker may send ahead is the *prefetch* window; that, and whose a message in hand is, `_machines.consuming`
says. What stands between a consumer and its link is its `_feeds.Feed`.
"""

from __future__ import annotations

import asyncio
from asyncio import timeout as time_limit
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sterna import errors
from sterna._feeds import Feed
from sterna._in_hand import holder
from sterna._listening import Listener
from sterna._machines.consuming import Holder
from sterna._parts import Part, part_of
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._roles import Session
from sterna.destinations import Destination
from sterna.messages import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """How to consume.

    `selector`: only messages for which it is true (EMS-CLI-A10). `durable`: the name of a durable subscription
    (EMS-CLI-A01). `shared`: the name of a shared subscription (EMS-CLI-A02), or True to share the durable one.
    `no_local`: nothing that this connection published. `prefetch`: how many messages may be sent ahead; None: as the
    destination is configured (5 for queues, 64 for topics by default), 0: none. `prefetch_bytes`: the same in bytes,
    0: unbounded. `browse`: look, do not take.
    """

    selector: str = ""
    durable: str = ""
    shared: str | bool = False
    no_local: bool = False
    prefetch: int | None = None
    prefetch_bytes: int = 0
    browse: bool = False

    def __post_init__(self) -> None:
        if self.shared is True and not self.durable:
            cause = "shared=True shares a durable subscription, and none is named"
            raise errors.InvalidArgumentError(cause, subject="shared", remedy="name it: shared='name'")
        if isinstance(self.shared, str) and self.shared and self.durable and self.shared != self.durable:
            cause = "a shared durable subscription has one name"
            raise errors.InvalidArgumentError(cause, subject="shared", remedy="give durable='name', shared=True")
        if self.prefetch is not None and not 0 <= self.prefetch < 2**31:
            raise errors.InvalidArgumentError(f"{self.prefetch} is no window", subject="prefetch")

    @property
    def subscription(self) -> pb.Subscription | None:
        """The Subscription of the contract, when there is one."""
        if not self.durable and not self.shared:
            return None
        name = self.durable or str(self.shared)
        return pb.Subscription(name=name, durable=bool(self.durable), shared=bool(self.shared))


class Consumer:
    """Takes messages from a queue or a subscription; made by `session.consumer()`. Iterate over it, or `receive`.

    `async for` acknowledges (in AUTO mode) a message when the loop comes back for the next one, or when the consumer
    is closed without an exception: a message in whose processing the loop died is delivered again.
    """

    def __init__(self, session: Session, destination: Destination, options: ConsumerOptions) -> None:
        self.session = session
        self.destination = destination
        self.options = options
        #: Whether the durable subscription existed otherwise, was dropped and is new.
        self.replaced = False
        self.closed: errors.SternaError | None = None
        #: Whether the session was made for this consumer alone and closes with it.
        self._owns_session = False
        #: A browser is opened when somebody looks, by one of those who do.
        self._opening = asyncio.Lock()
        self._feed = feed = Feed(self, part_of(session), destination, options)
        self._state = feed.state

    @property
    def prefetch(self) -> int:
        """How many messages may be ahead: what was asked for, or what the broker recommends."""
        return self._state.window.messages

    # --- Handing out

    def _hand_out(self, done: bool, who: Holder | None = None) -> Message:
        """The next message. With `done` the session, if it acknowledges by itself, does so at once."""
        state = self._state
        delivery = state.hand_out(done, who)
        if self._feed.book is not None:
            self._feed.book.received(self._feed.taker, delivery)
        # Without a prefetch each message is asked for: this one was for whoever took it, and others wait.
        if state.is_due or (self._feed.waiters and not state.window.messages):
            self._feed.ask()
        if state.session.is_due:
            self._feed.part.ask()
        return Message(self._feed, delivery, state.generation)

    def _check_explicit(self) -> None:
        listening = self._feed.listening
        if listening is not None and not listening.is_current:
            raise errors.NotAllowedError("the consumer has a listener", remedy="use either a listener or receive()")

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds (None: waits for ever) (EMS-CLI-A26).

        In AUTO mode it is acknowledged on return.

        Raises:
            ClosedError: the consumer, its session or the connection was closed.
            TransactionRolledBackError: the connection broke during the transaction, or it was open for too long; roll
                it back, or commit it to hear so again, and begin anew.
        """
        self._check_explicit()
        state = self._state
        if state.in_hand:
            self._feed.finish()
        if not state.ready():
            try:
                async with time_limit(timeout):
                    while not state.ready():
                        if state.is_drained:
                            return None
                        await self._feed.wait()
            except TimeoutError:
                if not state.ready():
                    return None
        return self._hand_out(True)

    def receive_nowait(self) -> Message | None:
        """A message that was sent ahead already, or None.

        Raises:
            NotAllowedError: without a prefetch there never is one (EMS-DEST-A28).
        """
        self._check_explicit()
        if self.closed is not None:
            raise self.closed
        if not self.prefetch:
            raise errors.NotAllowedError(
                "receive_nowait needs a prefetch", subject=str(self.destination), remedy="give prefetch=1 or more"
            )
        self._feed.finish()
        if not self._state.ready():
            self._feed.runs_dry()
            return None
        return self._hand_out(True)

    def __aiter__(self) -> Consumer:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        # Whose the message will be is seen here: a time limit around the call may run the rest in a task of its own.
        return self._next(holder())

    async def _next(self, who: Holder | None) -> Message:
        state = self._state
        if state.in_hand:
            state.finish(who)
        while not state.ready():
            if self.options.browse:
                await self._browse_on()
                continue
            self._check_explicit()
            try:
                await self._feed.wait()
            except errors.ClosedError:
                raise StopAsyncIteration from None
        return self._hand_out(False, who)

    async def _browse_on(self) -> None:
        feed, state = self._feed, self._state
        async with self._opening:
            if feed.is_new and not state.is_drained:
                await feed.arrive(None)
        if state.buffer:
            return
        if state.is_drained or self.closed is not None:
            await self.close()
            if state.is_drained or self.closed is None or isinstance(self.closed, errors.ClosedError):
                raise StopAsyncIteration
            raise self.closed  # it has not seen all
        await feed.wait()

    # --- Listening

    def _start_listening(self, listener: Listener, concurrency: int) -> None:
        self._feed.listen(listener, self.__anext__, concurrency)

    # --- Closing

    def drain(self, timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        """Takes no more, lets everybody finish with what they have, and ends the consumer.

        A listener gets nothing after what it has in hand; a loop over the consumer ends when it comes back for the next
        message, and `receive` raises ClosedError. What was only prefetched goes back uncounted, to be delivered to
        others at once. In a session in which the application acknowledges, what it was handed stays with that, to be
        acknowledged afterwards.

        Returns:
            Whether all had finished within `timeout` seconds (None: it is waited for ever). If not, what is still in
            hand then is given back, as by `close`, and delivered again, flagged; so it is when the call is cancelled,
            or somebody closes the consumer meanwhile (False). Who drains it is done with what he has in hand himself.
        """
        # Who that is is seen here: a time limit around the call may run the rest in a task of its own.
        return self._drain(holder(), timeout)

    async def _drain(self, who: Holder | None, timeout: float | None) -> bool:
        feed = self._feed
        closes_session = self._owns_session and feed.part.state.acknowledges_itself
        try:
            finished = await feed.drain(who, timeout)
        except asyncio.CancelledError:
            if closes_session:
                feed.part.branches.root.break_off_all()
            else:
                feed.break_off(failed=False)
            raise
        if closes_session:
            await self.close()
        else:
            await feed.close(failed=False)
        return finished

    def close(self, *, failed: bool = False) -> Coroutine[Any, Any, None]:
        """Ends the consumer, and the session if that was made for it alone.

        What it was handed stays with the session; what was only prefetched goes back uncounted. In AUTO mode what the
        caller's own iteration handed out last counts as done, unless `failed`; what another task has in hand at this
        moment is given back, and is delivered again, flagged.
        """
        return self._close(holder(), failed=failed)

    async def _close(self, who: Holder | None, *, failed: bool) -> None:
        feed = self._feed
        feed.is_left = True
        if not failed:
            feed.finish(who)
        if feed.listening is None and self.closed is not None and feed.link is None and not self._outlived():
            return
        if self._owns_session:
            await feed.part.branches.root.close(failed=failed)
            return
        await feed.close(failed=failed)

    def _outlived(self) -> bool:
        """Whether a session that closes with it is there still: it was drained, and what it was handed waited for."""
        return self._owns_session and self._feed.part.closed is None

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(failed=kind is not None)


async def opened(part: Part, destination: Destination, options: ConsumerOptions) -> Consumer:
    """A consumer that is open in this part of its session."""
    consumer = Consumer(part.session, destination, options)
    await part.add(consumer._feed)
    return consumer


def listen(consumer: Consumer, listener: Listener, concurrency: int = 1) -> None:
    """Hands the consumer's messages to a listener from now on, so many at once."""
    consumer._start_listening(listener, concurrency)


def own_session(consumer: Consumer) -> None:
    """The session was made for this consumer alone, and closes with it."""
    consumer._owns_session = True
