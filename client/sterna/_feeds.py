"""What stands between a consumer and its link: opening, following its destination to another broker, waiting, closing.

The rules are in `_machines.consuming`; here are the tasks, the requests and those who wait. The application's
face of it is `consumers`.
"""

from __future__ import annotations

import asyncio
from asyncio import timeout as time_limit
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from sterna import errors
from sterna._acknowledging import Settled
from sterna._encode import varint
from sterna._in_hand import has_ended, has_ended_well, holder
from sterna._ledger import Place, Taker
from sterna._link import LeftError, Link, LinkLostError
from sterna._listening import Listener, Listening
from sterna._machines.consuming import ConsumerState, Holder
from sterna._machines.window import Window
from sterna._proto.sterna.v1 import message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._surroundings import monotonic_s
from sterna.destinations import Destination
from sterna.messages import Message

if TYPE_CHECKING:
    from sterna._parts import Part
    from sterna._roles import Session

_BROWSE_WINDOW = 256
_RETRIES = 40
_LOOK_S = 0.1


def _now_ms() -> int:
    """A clock that nobody sets."""
    return int(monotonic_s() * 1000)


class Face(Protocol):
    """The application's consumer."""

    session: Session
    closed: errors.SternaError | None
    replaced: bool


class Options(Protocol):
    """As `sterna.consumers.ConsumerOptions`."""

    @property
    def selector(self) -> str: ...
    @property
    def no_local(self) -> bool: ...
    @property
    def browse(self) -> bool: ...
    @property
    def prefetch(self) -> int | None: ...
    @property
    def prefetch_bytes(self) -> int: ...
    @property
    def subscription(self) -> pb.Subscription | None: ...


class Feed:
    """See the module. `part` is the part of the session that it belongs to now."""

    def __init__(self, consumer: Face, part: Part, destination: Destination, options: Options) -> None:
        self.consumer = consumer
        self.part = part
        self.destination = destination
        self.options = options
        self.id = part.lifeline.next_consumer_id()
        self.state = ConsumerState(
            part.state,
            Window(_BROWSE_WINDOW if options.browse else options.prefetch or 0, options.prefetch_bytes),
            browses=options.browse,
            now_ms=_now_ms,
            has_ended_well=has_ended_well,
            has_ended=has_ended,
        )
        self.closed: errors.SternaError | None = None
        #: Whether the application has closed it, or what it belongs to.
        self.is_left = False
        self.link: Link | None = None
        #: The ledger, where there is one, and what it is to that: a browser is nothing.
        self.book = part.book
        self.taker: Taker | None = None
        self.listening: Listening | None = None
        self.waiters: deque[asyncio.Future[None]] = deque()
        #: What takes it to another broker, once it was told to go.
        self._follower: asyncio.Task[None] | None = None
        #: Those who drain it: what is done when they are to look again, and who they are.
        self._drainers: dict[asyncio.Future[None], Holder | None] = {}
        #: The listener that finishes with what it has, and what is done when the broker knows that it takes no more.
        self._ending: Listening | None = None
        #: The same where it is being closed.
        self._stopping: Listening | None = None
        self._withdrawal: asyncio.Future[None] | None = None
        #: Whether whoever opens it has not seen the answer yet, and why the broker has ended it by then.
        self._is_opening = False
        self._ended: errors.SternaError | None = None

    @property
    def browses(self) -> bool:
        """Whether it only looks."""
        return self.options.browse

    @property
    def is_new(self) -> bool:
        """Whether it was never open: a browser is opened when somebody looks."""
        is_known = self in self.part.feeds or self in self.part.branches.followers
        return self.link is None and self.closed is None and not is_known

    # --- Opening, on each link anew

    async def open(self, link: Link) -> None:
        """Opens the consumer on `link`, with its window as first credit."""
        options, part, state = self.options, self.part, self.state
        lifeline, number = part.lifeline, part.number
        part.check_at(link, number, self.destination)
        name = lifeline.temporaries.current(self.destination).name
        opening = pb.OpenConsumer(
            consumer=self.id,
            destination=message_pb2.Destination(kind=self.destination.kind, name=name),  # type: ignore[arg-type]
            selector=options.selector,
            no_local=options.no_local,
            browse=options.browse,
        )
        subscription = options.subscription
        if subscription is not None:
            opening.subscription.CopyFrom(subscription)
        messages, size = state.begin()
        if messages:
            opening.credit.message_limit, opening.credit.bytes_limit = messages, size
        self._is_opening, self._ended = True, None
        lifeline.route_feed(self)

        def at_once(reply: Any) -> None:
            # Deliveries may stand right behind the reply: they must find their source and epoch, or they would be
            # acknowledged under those of the broken link.
            if link.has_left or self._ended is not None:
                return  # behind a Goodbye nothing is handed out; the next link opens it anew
            if not part.is_at(link, number):
                return  # with the session it is over at this broker
            if self.closed is not None:
                if part.closed is None:
                    undo(reply)  # it was closed while it was being opened anew
                return
            opened = reply.consumer_opened
            self.consumer.replaced = opened.replaced
            recommended = opened.prefetch if options.prefetch is None and not options.browse else None
            state.opened(opened.source, opened.epoch, recommended)
            if link.place is not None and not options.browse:
                self._witnessed(link.place, opened)
            self.link = link
            self.wake_all()

        def undo(_: Any) -> None:
            link.tell(number, "close_consumer", pb.CloseConsumer(consumer=opening.consumer))

        try:
            await link.request(number, "open_consumer", opening, at_once=at_once, undo=undo)
            part.check_at(link, number, self.destination)
            self._check_ended()
        except BaseException:
            lifeline.unroute_feed(self)
            state.interrupted()  # what came behind the answer was of what is over
            state.refused()
            self.link = None
            raise
        finally:
            self._is_opening = False
        if self.closed is not None:
            lifeline.unroute_feed(self)  # it was closed meanwhile, and nothing more comes for it
        elif state.is_due or self.waiters:
            self.ask()

    def _witnessed(self, place: Place, opened: Any) -> None:
        """What it is to the ledger from now on."""
        subscription = self.options.subscription
        name = subscription.name if subscription is not None else ""
        source = opened.source, opened.epoch
        self.taker = Taker(place, self.part.ledger_number, self.destination, source, int(self.part.state.mode), name)

    def _check_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    async def reopen(self, link: Link) -> None:
        """Opens the consumer on a new link; while its subscription is still held by the old one, tries again.

        Raises:
            LinkLostError: this link broke as well.
        """
        if self.options.browse and self.closed is None:
            self.fail(errors.ConnectionLostError("the connection broke while the browser was open", retryable=True))
            return
        delay_s = 0.05
        for left in reversed(range(_RETRIES)):
            if self.closed is not None or self.part.link is not link:
                return  # it is being drained or closed, and what it had in hand is void with the link; or it has left
            try:
                await self.open(link)
            except LinkLostError:
                raise
            except errors.SternaError as error:
                if isinstance(error, LeftError) or self.moved(error):
                    return
                if not left or not (error.retryable or isinstance(error, errors.InUseError)):
                    self.fail(error)
                    self.part.lifeline.report(error)
                    return
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 1.5, 2.0)
            else:
                return

    def interrupted(self) -> None:
        """The link is gone; the machine hears of it from its session's."""
        self.link = None

    # --- Following a destination to its broker

    def moved(self, error: errors.SternaError) -> bool:
        """Whether the destination lives elsewhere now, or nowhere for a while, and the consumer follows it."""
        part = self.part
        homes = part.lifeline.homes
        follows = isinstance(error, errors.MovedError) or errors.is_for_now(error)
        if homes is None or not follows or part.state.transacted or self.browses:
            return False  # a browser would begin anew there
        self.state.interrupted()
        self.link = None
        part.lifeline.unroute_feed(self)
        part.feeds.pop(self, None)
        part.branches.followers[self] = None
        self._follower = homes.spawn(self._follow(error), self._given_up)
        return True

    async def _follow(self, moved: errors.SternaError) -> None:
        try:
            await self.arrive(moved if isinstance(moved, errors.MovedError) else None)
        except errors.SternaError as error:
            self.fail(error)
            self.part.lifeline.report(error)
        finally:
            self.part.branches.followers.pop(self, None)

    def _given_up(self) -> None:
        """It was on its way to another broker when the connection was closed, or itself."""
        self.part.branches.followers.pop(self, None)
        if self.closed is None:
            self.fail(errors.ClosedError("the connection was closed", subject=str(self.destination)))

    async def arrive(self, moved: errors.MovedError | None) -> None:
        """Opens itself where its destination lives, of which this was said."""
        await self.part.branches.following(self.part, self._open_in, moved)

    async def _open_in(self, part: Part) -> None:
        if self.closed is not None:
            return
        self.move(part)
        await part.add(self)

    def move(self, part: Part) -> None:
        """Belongs to another part of the session from now on, or to one that has moved."""
        self.part, self.consumer.session = part, part.session
        self.id = part.lifeline.next_consumer_id()
        self.state.moved(part.state)

    # --- From the broker

    def on_deliver(self, deliver: Any) -> None:
        """A batch of deliveries."""
        if self.closed is not None:
            return  # they go back, unseen
        if deliver.time_ms:
            self.part.lifeline.told_time(deliver.time_ms)
        count = self.state.delivered(deliver.deliveries, deliver.time_ms)
        waiters = self.waiters
        while waiters and count:
            count -= 1
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def on_drained(self, drained: Any) -> None:
        """There is nothing more: a browser has seen everything."""
        self.state.drained(drained.message_limit)
        self.wake_all()

    def on_closed(self, error: errors.SternaError) -> None:
        """The broker has ended it."""
        self.part.withdrawn(self.state.source)
        if self._is_opening:
            # Whoever opens it learns that, and goes on from there: the answer, when it comes, is of what is over. And
            # when it has come, whoever waits for it only runs now, and would count what is over among the session's.
            self._ended = error
            return
        if self.moved(error):
            return
        if self.part.state.handed.get(self.state.source):
            # What it took in the transaction under way has gone back.
            self.part.state.refused(error)
        self.state.withdrawn()
        self.link = None  # there is nothing left to close there, and a transacted session may go elsewhere now
        self.fail(error)

    # --- Credit

    def ask(self) -> None:
        """Has what there is to say written with the next batch."""
        state = self.state
        state.is_due = False
        if self.link is not None and not state.is_asked:
            state.is_asked = True
            self.link.gather(self._gather)

    def _gather(self, link: Link) -> None:
        """Posts the credit as it now stands, and what goes back."""
        if self.link is not link or self.closed is not None:
            self.state.is_asked = False
            return
        released, wanted = self.state.gather(is_awaited=bool(self.waiters))
        if released is not None:
            self.part.post(link, pb.ClientFrame(session=self.part.number, release=released))
        if wanted is None:
            return
        messages, size = wanted
        content = b"\x08" + varint(self.id) + b"\x10" + varint(messages)
        if size:
            content += b"\x18" + varint(size)
        frame = b"\x08" + varint(self.part.number) + b"\x2a" + varint(len(content)) + content
        link.post(frame)

    # --- Listening and waiting

    def listen(
        self, listener: Listener, take: Callable[[], Coroutine[Any, Any, Message]], concurrency: int = 1
    ) -> None:
        """Hands what `take` returns to a listener from now on."""
        if self.listening is not None:
            raise errors.NotAllowedError("the consumer has a listener already")
        self.listening = Listening(self, take, listener, concurrency)

    def runs_dry(self) -> None:
        """There was nothing to hand out: what was held back may leave now."""
        self.part.hurry()
        if self.state.is_due:
            self.ask()

    async def wait(self) -> None:
        """Until there is a message, or the end.

        Raises:
            SternaError: the end has come.
        """
        self.part.hurry()
        if self.closed is not None:
            self._moves_on()
            raise self.closed
        if self.part.closed is not None:
            raise self.part.closed
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        if self.state.is_due or not self.state.window.messages:
            self.ask()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self.waiters:
                self.waiters.remove(waiter)
            else:
                self._wake_one()  # woken and cancelled at once: the message is somebody else's
            raise

    def _wake_one(self) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def wake_all(self) -> None:
        """Whoever waits looks again."""
        waiters, self.waiters = self.waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- What the application says of a message

    def finish(self, who: Holder | None = None) -> None:
        """Whoever asks is done with what it was handed last, in a session that acknowledges by itself."""
        if self.state.in_hand:
            self.state.finish(who or holder())
            self._moves_on()
            if self.state.session.is_due:
                self.part.ask()

    @property
    def session(self) -> Any:
        """The session that its messages belong to."""
        return self.consumer.session

    def acknowledge(self, sequence: int, generation: int, *, alone: bool) -> Settled:
        """See Message.acknowledge."""
        settled = self.part.acknowledge(self.state, sequence, generation, alone=alone)
        self._moves_on()
        return settled

    def release(self, sequence: int, generation: int, message_id: str, delay_ms: int) -> None:
        """See Message.release."""
        self.part.release(self.state, sequence, generation, message_id, delay_ms)
        self._moves_on()

    # --- Closing

    async def stop_listening(self) -> None:
        """Lets the listener finish with the message it has, then hands out no more."""
        self.is_left = True
        if self.listening is not None:
            self._stopping, self.listening = self.listening, None
            if self._stopping.is_busy and not self._stopping.is_current:
                self._take_no_more()
        # Or somebody else is closing it, who waits for the listener, too.
        if self._stopping is not None and not self._stopping.is_current:
            await self._stopping.end()

    def _take_no_more(self) -> None:
        """Whoever asks for a message gets none any more; an iterator ends at its next step."""
        self.state.buffer.clear()
        if self.closed is None:
            error = errors.ClosedError("the consumer was closed", subject=str(self.destination))
            self.closed = self.consumer.closed = error
        self.wake_all()

    async def drain(self, who: Holder | None, timeout: float | None) -> bool:
        """Takes no more; waits until all but `who` are done with what they have in hand: whether they were in time."""
        self.is_left = True
        if self.listening is not None:
            self._ending, self.listening = self.listening, None
            self._ending.stop()
        self._take_no_more()
        self.finish(who)
        self._withdraw()
        self._moves_on()  # whoever drains it as well does not wait for this one
        looks_again: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drainers[looks_again] = who
        try:
            async with time_limit(timeout):
                while at_work := self._at_work():
                    if looks_again.done():
                        looks_again = self._renewed(looks_again)
                    tasks = [one for one in at_work if isinstance(one, asyncio.Task)]
                    # When a thread has ended nobody tells.
                    look_s = None if len(tasks) == len(at_work) else _LOOK_S
                    await asyncio.wait([looks_again, *tasks], timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            return not self.state.in_hand.was_cut and not self._at_work()
        finally:
            del self._drainers[looks_again]
        return not self.state.in_hand.was_cut

    def _renewed(self, seen: asyncio.Future[None]) -> asyncio.Future[None]:
        renewed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drainers[renewed] = self._drainers.pop(seen)
        return renewed

    def _at_work(self) -> set[Holder | None]:
        """Who has a message in hand and may still be done with it, but for those who drain the consumer themselves."""
        found = set(self.state.in_hand.holders())
        if self._ending is not None:
            found |= self._ending.busy
        return {one for one in found.difference(self._drainers.values()) if not has_ended(one)}

    def _moves_on(self) -> None:
        """Whoever drains the consumer looks again."""
        for drainer in self._drainers:
            if not drainer.done():
                drainer.set_result(None)

    def _withdraw(self) -> None:
        """The broker sends no more, and has again what was only sent ahead; what is in hand stays the session's."""
        link, part = self.link, self.part
        if self._withdrawal is not None or link is None or link.lost is not None or part.closed is not None:
            return
        self._withdrawal = told = asyncio.get_running_loop().create_future()

        def settle(_reply: Any, _error: errors.SternaError | None) -> None:
            if not told.done():
                told.set_result(None)

        part.gather(link)
        closing = pb.CloseConsumer(consumer=self.id, seen=part.state.seen(self.state.source))
        link.begin(part.number, "close_consumer", closing, settle)

    def fail(self, error: errors.SternaError) -> None:
        """The consumer is over: whoever waits on it gets `error`, or the first one."""
        if self.closed is None:
            self.closed = self.consumer.closed = error
        if self._follower is not None and self._follower is not asyncio.current_task():
            self._follower.cancel()
        self.part.lifeline.unroute_feed(self)
        self.part.feeds.pop(self, None)
        self.state.closed()
        self.wake_all()
        self._moves_on()

    async def close(self, *, failed: bool) -> None:
        """See Consumer.close.

        Cut short, it does not wait for its listener any longer: what that has in hand is given back as seen.
        """
        try:
            await self.stop_listening()
        except asyncio.CancelledError:
            self.break_off(failed=failed)
            raise
        if (left := self._leave(failed=failed)) is None:
            if self._withdrawal is not None:
                await asyncio.wait([self._withdrawal])
            return
        link, closing = left
        try:
            await link.request(self.part.number, "close_consumer", closing)
        except (LinkLostError, errors.ClosedError):
            pass  # with the link or the session the consumer is gone as well

    def break_off(self, *, failed: bool) -> None:
        """Ends it at once, and waits for nobody."""
        if (left := self._leave(failed=failed)) is not None:
            link, closing = left
            link.tell(self.part.number, "close_consumer", closing)

    def _leave(self, *, failed: bool) -> tuple[Link, pb.CloseConsumer] | None:
        """It is over here; where and how the broker is told so, if it has to be."""
        released = self.state.leave(holder(), failed=failed)
        link, self.link = self.link, None
        part = self.part
        if self.closed is None:
            self.fail(errors.ClosedError("the consumer was closed", subject=str(self.destination)))
        else:
            self.fail(self.closed)
        if link is None or link.lost is not None or part.closed is not None:
            return None
        part.gather(link)
        closing = pb.CloseConsumer(consumer=self.id, seen=part.state.seen(self.state.source))
        if released is not None:
            part.post(link, pb.ClientFrame(session=part.number, release=released))
        return None if self._withdrawal is not None else (link, closing)
