"""Sessions: the scope of acknowledgements and transactions (EMS-CLI-A05).

A session's mode says who acknowledges what its consumers receive. What the application was handed and has not
acknowledged is kept by source; that is what CLIENT acknowledges, what recover, rollback and close report as seen, and
what becomes void when the connection breaks. Acknowledgements are gathered as ranges and written with the next batch.

A transacted session has one transaction at a time; it begins with the first send or receive after the last one ended.
The rules stand in `_machines.settling`; what is behind a session on one broker is its `_parts.Part`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from sterna import errors
from sterna._in_hand import holder, standing_for
from sterna._listening import Listener
from sterna._parts import Part
from sterna.consumers import Consumer, ConsumerOptions, listen
from sterna.consumers import opened as open_consumer
from sterna.destinations import DestinationLike, destination_of
from sterna.modes import AcknowledgeMode, Durability
from sterna.producers import Producer, ProducerOptions
from sterna.producers import opened as open_producer

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline

#: Each is a task, in the blocking face a thread: it has no more of them for listeners.
CONCURRENCY_MAX: Final = 4_096


class Session:
    """An ordered conversation inside a connection; made by `connection.session()`. Close it, or use `async with`."""

    def __init__(self, lifeline: Lifeline, mode: AcknowledgeMode, *, stopped: bool = False) -> None:
        self.mode = mode
        self.closed: errors.SternaError | None = None
        self._part = part = Part(self, lifeline, mode, is_stopped=stopped)
        self._transacted = part.state.transacted

    # --- Making things

    async def producer(self, destination: DestinationLike | None = None, **options: Any) -> Producer:
        """A producer for `destination`, or an anonymous one; options are those of `ProducerOptions` (EMS-CLI-A29).

        Raises:
            NoSuchDestinationError: no such destination, and none may be created under this name.
        """
        target = None if destination is None else destination_of(destination)
        return await open_producer(self._part, target, ProducerOptions(**options))

    async def consumer(
        self, destination: DestinationLike, *, listener: Listener | None = None, concurrency: int = 1, **options: Any
    ) -> Consumer:
        """A consumer of `destination`; options are those of `ConsumerOptions`.

        With a `listener` (a function or coroutine function of one message) messages are handed to it one by one, and
        acknowledged by the session's mode when it returns (EMS-CLI-A27); without, ask the consumer (EMS-CLI-A26).
        `concurrency` is how many messages it may have at once, at most 4096, then not in their order.

        Raises:
            NoSuchDestinationError: no such destination, and none may be created under this name.
            InUseError: another consumer has this durable subscription.
            InvalidSelectorError: with the offset of the character.
            InvalidArgumentError: several messages at once in a session in which settling one settles the others.
        """
        self._check_concurrency(listener, concurrency)
        target, chosen = destination_of(destination), ConsumerOptions(**options)

        async def make(part: Part) -> Consumer:
            return await open_consumer(part, target, chosen)

        consumer = await self._part.branches.following(self._part, make)
        if listener is not None:
            listen(consumer, listener, concurrency)
        return consumer

    def _check_concurrency(self, listener: Listener | None, concurrency: object) -> None:
        cause = ""
        if not isinstance(concurrency, int) or not 1 <= concurrency <= CONCURRENCY_MAX:
            cause = f"{concurrency!r} is no number of messages from 1 to {CONCURRENCY_MAX}"
        elif concurrency > 1 and listener is None:
            cause = "it is a listener that has several messages at once"
        elif concurrency > 1 and self.mode in (AcknowledgeMode.TRANSACTED, AcknowledgeMode.CLIENT):
            cause = "who settles a message in this session settles all that others have in hand"
        if cause:
            remedy = "open as many consumers, each in a session of its own, or use another mode"
            raise errors.InvalidArgumentError(cause, subject="concurrency", remedy=remedy)

    def browser(self, queue: DestinationLike, *, selector: str = "", durable: str = "") -> Consumer:
        """Looks at a queue's messages, or with `durable` at a durable subscription's, without taking them.

        Iterate over it: each message once, in order, those that were there; then it ends.
        """
        options = ConsumerOptions(selector=selector, durable=durable, browse=True)
        return Consumer(self, destination_of(queue), options)

    async def unsubscribe(self, name: str) -> None:
        """Ends a durable subscription of this connection's client id, with what it holds (EMS-CLI-A01).

        Raises:
            NoSuchSubscriptionError: there is none of this name.
            InUseError: it has a consumer.
        """
        await self._part.unsubscribe(name)

    # --- Starting and stopping deliveries

    async def stop(self) -> None:
        """Suspends deliveries to this session's consumers until `start`."""
        await self._part.start(stop=True)

    async def start(self) -> None:
        """Lets deliveries go on."""
        await self._part.start(stop=False)

    # --- Acknowledging

    async def flush(self) -> None:
        """Waits until the broker has dealt with every acknowledgement made so far, and confirmed what was sent.

        Raises:
            FlushError: messages of `send_soon` failed.
            SternaError: acknowledgements were refused.
        """
        await self._part.flush()

    async def recover(self) -> None:
        """Has everything that is unacknowledged delivered again, in order, flagged as redelivered.

        Messages received before are void: acknowledging them does nothing.

        Raises:
            NotAllowedError: in a transacted session; use `rollback`.
        """
        if self._transacted:
            raise errors.NotAllowedError("a transacted session does not recover", remedy="call rollback()")
        await self._part.recover()

    # --- Transactions

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Commits what is sent and received inside, or rolls it back when an exception leaves the block.

        Raises:
            TransactionRolledBackError: at the end, when it could not be committed.
            NotAllowedError: when the session is not transacted.
        """
        self._check_transacted()
        try:
            yield self
        except BaseException:
            await self.rollback()
            raise
        await self.commit()

    def _check_transacted(self) -> None:
        """Raises NotAllowedError when the session is not transacted."""
        if self.closed is not None:
            raise self.closed
        if not self._transacted:
            cause = f"the session is in {self.mode.name} mode"
            raise errors.NotAllowedError(cause, remedy="make it with connection.session(transacted=True)")

    async def commit(self) -> Durability | None:
        """Makes the sends and receives since the last commit take effect together; None when there were none.

        Raises:
            TransactionRolledBackError: nothing took effect; its cause says why.
            TransactionInDoubtError: the connection broke during the commit itself.
        """
        self._check_transacted()
        return await self._part.commit()

    async def rollback(self) -> None:
        """Undoes the sends and receives since the last commit; what was received comes again, flagged."""
        self._check_transacted()
        await self._part.rollback()

    # --- Closing

    def close(self, *, failed: bool = False) -> Coroutine[Any, Any, None]:
        """Ends the session: an open transaction is rolled back, what is unacknowledged is delivered again to others.

        In AUTO mode what the caller's own iteration handed out last counts as done, unless `failed`; what another task
        has in hand comes again, flagged. What was only prefetched goes back uncounted (EMS-DEST-A23).
        """
        return standing_for(holder(), partial(self._part.close, failed=failed))

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(failed=kind is not None)


async def opened(lifeline: Lifeline, mode: AcknowledgeMode, *, stopped: bool) -> Session:
    """A session that is open on this connection."""
    session = Session(lifeline, mode, stopped=stopped)
    await lifeline.retrying(session._part.open)
    lifeline.parts.append(session._part)
    return session


def check_transacted(session: Session) -> None:
    """Raises NotAllowedError when the session is not transacted."""
    session._check_transacted()
