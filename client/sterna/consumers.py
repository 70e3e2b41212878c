"""Consumers and browsers: messages handed to the application, as an iterator, by a call, or to a listener.

What the broker may send ahead is the *prefetch* window (`_window`); whose a message in hand is, `_in_hand` says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sterna import errors
from sterna._acknowledging import Ranges
from sterna._branches import homed
from sterna._encode import length, varint
from sterna._homes import HOPS_MAX, pause_s
from sterna._in_hand import Holder, InHand, holder
from sterna._link import Link, LinkLostError
from sterna._listening import Listener, Listening
from sterna._proto.sterna.v1 import message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._window import Window, size_of
from sterna.destinations import Destination
from sterna.messages import Message
from sterna.modes import AcknowledgeMode

if TYPE_CHECKING:
    from sterna.sessions import Session

_BROWSE_WINDOW = 256
_RETRIES = 40


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
        self._id = session._lifeline.next_consumer_id()
        self._source = 0
        self._epoch = 0
        self._generation = 0
        self._window = Window(options.prefetch or 0, options.prefetch_bytes)
        #: Whether the durable subscription existed otherwise, was dropped and is new.
        self.replaced = False
        #: Whether the session was made for this consumer alone and closes with it.
        self._owns_session = False
        #: What `async for` handed out and the session acknowledges by itself.
        self._in_hand = InHand()
        self.closed: errors.SternaError | None = None
        #: What takes it to another broker, once it was told to go.
        self._follower: asyncio.Task[None] | None = None
        #: Whether the application has closed it, or what it belongs to.
        self._is_left = False
        self._buffer: deque[Any] = deque()
        self._early: list[Any] = []
        self._partial: Any = None
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._dropping = False
        self._drained = False
        self._gathering = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._link: Link | None = None
        self._ranges = Ranges(0, 0)
        self._listening: Listening | None = None

    @property
    def prefetch(self) -> int:
        """How many messages may be ahead: what was asked for, or what the broker recommends."""
        return self._window.messages

    # --- Opening, on each link anew

    async def _open(self, link: Link) -> None:
        """Opens the consumer on `link`, with its window as first credit."""
        options = self.options
        name = self.session._lifeline.current(self.destination).name
        opening = pb.OpenConsumer(
            consumer=self._id,
            destination=message_pb2.Destination(kind=self.destination.kind, name=name),  # type: ignore[arg-type]
            selector=options.selector,
            no_local=options.no_local,
            browse=options.browse,
        )
        subscription = options.subscription
        if subscription is not None:
            opening.subscription.CopyFrom(subscription)
        if options.browse:
            self._window.messages = _BROWSE_WINDOW
        messages, size = self._window.begin(len(self._buffer), sum(size_of(one) for one in self._buffer))
        self._drained = False
        if messages:
            opening.credit.message_limit, opening.credit.bytes_limit = messages, size
        self.session._lifeline.route(self)

        def at_once(reply: Any) -> None:
            # Deliveries may stand right behind the reply: they must find their source and epoch, or they would be
            # acknowledged under those of the broken link.
            if link.has_left:
                return  # behind a Goodbye nothing is handed out; the next link opens it anew
            opened = reply.consumer_opened
            self._source, self._epoch, self.replaced = opened.source, opened.epoch, opened.replaced
            self._ranges = self.session._ranges_of(self._source, self._epoch)
            self._link = link
            self._buffer.extend(self._early)  # they came before the reply, which waits for the disk
            self._early.clear()
            self._wake_all()

        number = self.session._number

        def undo(_: Any) -> None:
            link.tell(number, "close_consumer", pb.CloseConsumer(consumer=opening.consumer))

        try:
            reply = await link.request(number, "open_consumer", opening, at_once=at_once, undo=undo)
        except BaseException:
            self.session._lifeline.unroute(self)
            self._link = None
            raise
        opened = reply.consumer_opened
        if options.prefetch is None and not options.browse:
            self._window.messages = opened.prefetch
            self._schedule()
        elif self._waiters:
            self._schedule()

    # --- Following a destination to its broker

    def _moved(self, error: errors.SternaError) -> bool:
        """Whether `error` says that the destination lives elsewhere now, and the consumer goes there."""
        homes = self.session._lifeline.homes
        if homes is None or not isinstance(error, errors.MovedError) or self.session._transacted:
            return False
        self._interrupted()
        self.session._lifeline.unroute(self)
        self.session._consumers.pop(self, None)
        self.session._branches.followers[self] = None
        self._follower = homes.spawn(self._follow(error), self._given_up)
        return True

    async def _follow(self, moved: errors.MovedError) -> None:
        try:
            for hop in range(HOPS_MAX):
                await asyncio.sleep(pause_s(hop))
                if self.closed is not None:
                    return
                try:
                    await self._go_to(await homed(self.session, moved))
                except errors.MovedError as again:
                    moved = again
                    continue
                return
            raise moved
        except errors.SternaError as error:
            self._fail(error)
            self.session._lifeline.report(error)
        finally:
            self.session._branches.followers.pop(self, None)

    def _given_up(self) -> None:
        """It was on its way to another broker when the connection was closed, or itself."""
        self.session._branches.followers.pop(self, None)
        if self.closed is None:
            self._fail(errors.ClosedError("the connection was closed", subject=str(self.destination)))

    async def _go_to(self, session: Session) -> None:
        """Opens itself in a session on another broker."""
        self.session, self._id = session, session._lifeline.next_consumer_id()
        await session._lifeline.retrying(self._open, session)
        session._consumers[self] = None

    def _interrupted(self) -> None:
        """The link is gone: what was prefetched comes again, what was handed out is void.

        In mode NONE the broker has forgotten what it sent: nothing of that comes again, so it stays.
        """
        self._link = None
        self._generation += 1
        if self.session.mode != AcknowledgeMode.NONE or self.options.browse:
            self._buffer.clear()
        self._early.clear()
        self._forget_partial()
        self._in_hand.clear()
        self._dropping = False
        self._gathering = False

    # --- From the broker

    def _on_deliver(self, deliver: Any) -> None:
        """A batch of deliveries."""
        if self.closed is not None:
            return  # they go back, unseen
        if deliver.time_ms:
            self.session._lifeline.told_time(deliver.time_ms)
        deliveries = self._assembled(deliver.deliveries)
        count = len(deliveries)
        self._window.received(count)
        if self._dropping:
            self._window.took(count, sum(size_of(one) for one in deliveries))
            return
        if self._link is None:
            self._early.extend(deliveries)  # the reply that tells the source is still to come
            return
        self._buffer.extend(deliveries)
        while self._waiters and count:
            count -= 1
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _assembled(self, deliveries: Any) -> Any:
        """The complete ones: a large uploaded body comes in pieces, the last of one frame and the first of others."""
        if self._partial is not None and deliveries:
            piece = deliveries[0]
            self._pieces.append(piece.uploaded)
            self._pieces_bytes += len(piece.uploaded)
            deliveries = list(deliveries)[1:]
            if self._pieces_bytes >= self._partial.uploaded_bytes:
                self._partial.uploaded = b"".join(self._pieces)
                deliveries.insert(0, self._partial)
                self._forget_partial()
        if deliveries:
            last = deliveries[-1]
            if last.uploaded_bytes > len(last.uploaded):
                self._partial, self._pieces, self._pieces_bytes = last, [last.uploaded], len(last.uploaded)
                deliveries = list(deliveries)[:-1]
        return deliveries

    def _forget_partial(self) -> None:
        self._partial, self._pieces, self._pieces_bytes = None, [], 0

    def _on_drained(self, drained: Any) -> None:
        """There is nothing more: a browser has seen everything."""
        self._drained = True
        self._window.raised_to(drained.message_limit)
        self._wake_all()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _wake_all(self) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _begin_dropping(self) -> None:
        """Recover or rollback is under way: what was prefetched, and comes before the reply, is void."""
        if self._partial is not None:
            self._window.took(1, size_of(self._partial))
            self._forget_partial()
        self._window.took(len(self._buffer), sum(size_of(one) for one in self._buffer))
        self._buffer.clear()
        self._generation += 1
        self._in_hand.clear()
        self._dropping = True

    def _end_dropping(self) -> None:
        """What comes now is good again, and needs credit again."""
        self._dropping = False
        self._schedule()

    # --- Credit

    def _gather(self, link: Link) -> None:
        """Posts the credit as it now stands."""
        self._gathering = False
        if self._link is not link or self.closed is not None:
            return
        wanted = self._window.wanted(one=bool(self._waiters) and not self._buffer)
        if wanted is None:
            return
        messages, size = wanted
        content = b"\x08" + varint(self._id) + b"\x10" + varint(messages)
        if size:
            content += b"\x18" + varint(size)
        frame = b"\x08" + varint(self.session._number) + b"\x2a" + length(len(content)) + content
        link.post(frame)

    def _schedule(self) -> None:
        if self._link is not None and not self._gathering:
            self._gathering = True
            self._link.gather(self._gather)

    # --- Handing out

    def _ready(self) -> bool:
        """Whether a message can be handed out.

        What expired while it waited here goes back to the broker, whose it is to destroy or to keep as undelivered
        (EMS-MSG-A04, A08).
        """
        if self.session._transaction_error is not None:
            self.session._check_transaction()
        buffer = self._buffer
        while buffer:
            expiration_ms = buffer[0].expiration_ms
            if not expiration_ms or self.options.browse or expiration_ms > self.session._lifeline.broker_time_ms():
                return True
            self._expired(buffer.popleft())
        return False

    def _expired(self, delivery: Any) -> None:
        self._window.took(1, size_of(delivery))
        if self.prefetch:
            self._schedule()
        link = self._link
        if link is not None and self.session.mode != AcknowledgeMode.NONE:
            self.session._give_back(link, self._source, delivery.sequence, seen=False)

    def _hand_out(self, *, done: bool, who: Holder | None = None) -> Message:
        """The next message. With `done` the session, if it acknowledges by itself, does so at once."""
        delivery = self._buffer.popleft()
        window = self._window
        if window.took(1, size_of(delivery) if window.bytes else 0) and not self._gathering:
            self._schedule()
        session = self.session
        if self.options.browse:
            pass  # nothing is taken, so nothing is acknowledged
        elif session._acknowledges_itself:
            if done:
                self._done_with(delivery.sequence)
            else:
                self._in_hand.take(who, delivery.sequence)
        elif session._keeps_track:
            session._hand(self._source, delivery.sequence)
        return Message(self, delivery, self._generation)

    def _finish(self, who: Holder | None = None) -> None:
        """Acknowledges what `who` (whoever asks) was handed last, in a session that does so itself."""
        if self._in_hand:
            for sequence in self._in_hand.finished(who or holder()):
                self._done_with(sequence)

    def _done_with(self, sequence: int) -> None:
        """Has the session acknowledge a message."""
        ranges, session = self._ranges, self.session
        if sequence == ranges.last + 1 and ranges.last:
            ranges.last = sequence
        else:
            ranges.add(sequence)
        if not session._gathering:
            session._acknowledge_soon()

    def _acknowledge_in_hand(self, sequence: int) -> None:
        """The application says itself that it is done with a message."""
        if self._in_hand.forget(sequence):
            self._done_with(sequence)

    async def _wait(self) -> None:
        if self.closed is not None:
            raise self.closed
        if self.session.closed is not None:
            raise self.session.closed
        self.session._dry()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if not self.prefetch:
            self._schedule()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            else:
                self._wake_one()  # woken and cancelled at once: the message is somebody else's
            raise

    def _check_explicit(self) -> None:
        if self._listening is not None and not self._listening.is_current:
            raise errors.NotAllowedError("the consumer has a listener", remedy="use either a listener or receive()")

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds (None: waits for ever) (EMS-CLI-A26).

        In AUTO mode it is acknowledged on return.

        Raises:
            ClosedError: the consumer, its session or the connection was closed.
            TransactionRolledBackError: the connection broke during the transaction; roll it back, or commit it to hear
                so again, and begin anew.
        """
        self._check_explicit()
        self._finish()
        if not self._ready():
            try:
                async with asyncio.timeout(timeout):
                    while not self._ready():
                        if self._drained:
                            return None
                        await self._wait()
            except TimeoutError:
                if not self._ready():
                    return None
        return self._hand_out(done=True)

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
        self._finish()
        if not self._ready():
            self.session._dry()
            return None
        return self._hand_out(done=True)

    def __aiter__(self) -> Consumer:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Message]:
        # Whose the message will be is seen here: a time limit around the call may run the rest in a task of its own.
        return self._next(holder())

    async def _next(self, who: Holder | None) -> Message:
        self._finish(who)
        while not self._ready():
            if self.options.browse:
                await self._browse_on()
                continue
            self._check_explicit()
            try:
                await self._wait()
            except errors.ClosedError:
                raise StopAsyncIteration from None
        return self._hand_out(done=False, who=who)

    async def _browse_on(self) -> None:
        if self._link is None and self.closed is None and not self._drained:
            try:
                await self.session._add(self)
            except errors.MovedError as moved:
                await self._go_to(await homed(self.session, moved))
        if self._buffer:
            return
        if self._drained or self.closed is not None:
            await self.close()
            raise StopAsyncIteration
        await self._wait()

    # --- Listening

    def _start_listening(self, listener: Listener) -> None:
        if self._listening is not None:
            raise errors.NotAllowedError("the consumer has a listener already")
        self._listening = Listening(self, listener)

    async def _stop_listening(self) -> None:
        """Lets the listener finish with the message it has, then hands out no more."""
        self._is_left = True
        listening, self._listening = self._listening, None
        if listening is None or listening.is_current:
            return
        if listening.is_busy:
            # The iterator ends at its next step.
            self._buffer.clear()
            self.closed = self.closed or errors.ClosedError("the consumer was closed", subject=str(self.destination))
        await listening.end()

    # --- Closing

    def _fail(self, error: errors.SternaError) -> None:
        """The consumer is over: whoever waits on it gets `error`."""
        self.closed = error
        if self._follower is not None and self._follower is not asyncio.current_task():
            self._follower.cancel()
        self._buffer.clear()
        self.session._lifeline.unroute(self)
        self.session._consumers.pop(self, None)
        self._wake_all()

    async def _reopen(self, link: Link) -> None:
        """Opens the consumer on a new link; while its subscription is still held by the old one, tries again.

        Raises:
            LinkLostError: this link broke as well.
        """
        delay_s = 0.05
        for _ in range(_RETRIES):
            try:
                await self._open(link)
            except LinkLostError:
                raise
            except errors.SternaError as error:
                if self._moved(error):
                    return
                if not (error.retryable or isinstance(error, errors.InUseError)):
                    self._fail(error)
                    self.session._lifeline.report(error)
                    return
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 1.5, 2.0)
            else:
                return
        self._fail(errors.InUseError(f"{self.destination} could not be consumed again", subject=str(self.destination)))

    async def close(self, *, failed: bool = False) -> None:
        """Ends the consumer, and the session if that was made for it alone.

        What it was handed stays with the session; what was only prefetched goes back uncounted. In AUTO mode what the
        caller's own iteration handed out last counts as done, unless `failed`; what another task has in hand at this
        moment is given back, and is delivered again, flagged.
        """
        self._is_left = True
        if self._listening is None and self.closed is not None and self._link is None:
            return
        if self._owns_session:
            await self.session._branches.root.close(failed=failed)
            return
        await self._stop_listening()
        if not failed:
            self._finish()
        # What others are still working on, or have failed with, is not done with.
        given_back = self._in_hand.clear()
        link, self._link = self._link, None
        session = self.session
        if self.closed is None:
            self._fail(errors.ClosedError("the consumer was closed", subject=str(self.destination)))
        else:
            self._fail(self.closed)
        if link is None or link.lost is not None or session.closed is not None:
            return
        session._gather(link)
        seen = session._seen(self._source)
        closing = pb.CloseConsumer(consumer=self._id, seen=seen)
        for sequence in given_back:
            session._give_back(link, self._source, sequence)
        try:
            await link.request(session._number, "close_consumer", closing)
        except (LinkLostError, errors.ClosedError):
            pass  # with the link or the session the consumer is gone as well

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(failed=kind is not None)
