"""The life of a connection below its public face: one stream at a time, restored when it breaks.

Sessions, lanes and consumers live here, not in the stream. What to dial, when to rest and when to give up, the machine
in `_machines/connecting` says; here that is done. On a new link everything re-creates itself: temporary destinations,
sessions, then producers (which send again what is unconfirmed), then consumers. Calls made meanwhile wait in
`retrying`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from sterna import errors
from sterna._encode import encode_target
from sterna._failures import Untold, joined
from sterna._flow import Flow
from sterna._ledger import Book
from sterna._link import Link, LinkLostError
from sterna._machines.connecting import Connecting, Dial, GiveUp, Phase, Rest, Restore, Serve, Step
from sterna._pauses import pause_s
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._roles import Bystander, Ending, FeedRole, HomesRole, LaneRole, PartRole
from sterna._surroundings import monotonic_s, wall_ms
from sterna._temporaries import Temporaries
from sterna.destinations import Destination
from sterna.events import Closed, Hook, Interrupted, Restored, logger
from sterna.options import Options

T = TypeVar("T")
#: What surrounds a message in its frame takes less than this. Bodies beyond half a frame go ahead in chunks: one that
#: took a whole frame would hold up all others, and a producer's whole credit in bytes may be one frame.
_FRAME_SLACK: Final = 2048
_INFLIGHT_BYTES: Final = 32 * 1024 * 1024


class Lifeline:
    """See the module."""

    def __init__(self, addresses: tuple[str, ...], options: Options) -> None:
        self.options = options
        self._machine = Connecting(
            addresses,
            secure=options.tls is not None,
            rounds=options.connect_attempts,
            patience_s=options.reconnect.give_up_after_s,
        )
        self.broker = self.cluster = ""
        self.client_id = options.client_id
        self.epoch = 0
        #: Messages whose producers the broker did not know any more, since the last event that told of them.
        self.in_doubt = 0
        self.on_interrupted: Hook[Interrupted] = Hook("on_interrupted")
        self.on_restored: Hook[Restored] = Hook("on_restored")
        self.on_closed: Hook[Closed] = Hook("on_closed")
        self.on_error: Hook[BaseException] = Hook("on_error")
        self.flow = Flow(_INFLIGHT_BYTES)
        self.inline_bytes = (1 << 19) - _FRAME_SLACK
        self.message_bytes = 64 << 20
        #: What failed of producers that are over, and is not told yet.
        self.untold = Untold()
        self.temporaries = Temporaries(self)
        #: The parts of sessions that are on this broker.
        self.parts: list[PartRole] = []
        #: Where destinations of other brokers are; None: this lifeline follows nobody.
        self.homes: HomesRole[Lifeline] | None = None
        self.bystanders: list[Bystander] = []
        self._link: Link | None = None
        self._up, self._over = asyncio.Event(), asyncio.Event()
        self._feeds: dict[int, FeedRole] = {}
        self._lanes: dict[int, LaneRole] = {}
        self._producer_ids = self._consumer_ids = 0
        self._supervisor: asyncio.Task[None] | None = None
        #: Whether it was closed while it was opened.
        self._is_left = False
        self._leaving: asyncio.Task[None] | None = None
        self._clock_offset_ms = wall_ms() - int(monotonic_s() * 1000)

    # --- Beginning and end

    @property
    def addresses(self) -> tuple[str, ...]:
        """Those of the URL."""
        return self._machine.addresses

    @property
    def closed(self) -> errors.SternaError | None:
        """Why it is over; None while it is not."""
        return self._machine.closed

    @property
    def is_begun(self) -> bool:
        """Whether it was ever open."""
        return self._supervisor is not None

    async def open(self) -> None:
        """Dials for the first time; see `sterna.connect`."""
        step = self._machine.open()
        self._is_left = False
        book = self.options.book
        try:
            if book is not None:
                book.attach(self)
            found = await self._search(step)
        except BaseException:
            self._machine.abandon()
            if book is not None:
                book.detach(self)
            raise
        if isinstance(found, GiveUp):
            if book is not None:
                book.detach(self)
            raise found.error
        self._up.set()
        self._supervisor = asyncio.create_task(self._supervise(), name="sterna-connection")
        self._supervisor.add_done_callback(self._orphaned)

    async def _search(self, step: Step) -> Serve | GiveUp:
        """Does what the machine says, until there is a stream with everything on it, or no use in going on."""
        while True:
            if self._is_left:
                error = errors.ClosedError("the connection was closed while it was opened")
                self.drop(error)
                return GiveUp(error)
            match step:
                case Dial(address):
                    step = await self._dial(address)
                case Restore():
                    step = await self._restored()
                case Rest(rounds):
                    opens = self._machine.phase is Phase.WAITING
                    await asyncio.sleep(self.options.pause_s() if opens else self.options.reconnect.pause_s(rounds - 1))
                    if not opens and self.homes is not None and self.cluster:
                        await self.homes.seek(self)
                    step = self._machine.rested()
                case _:
                    return step

    async def _dial(self, address: str) -> Step:
        book = self.options.book
        if book is not None and book.over is not None:
            # It failed while there was no link that could end with it.
            return self._machine.refused(book.over, monotonic_s())
        link = Link(address, self._on_frame, self.options.tls, self.options.book)
        try:
            await link.open(await self.options.hello(), self.options.connect_timeout_s)
        except errors.SternaError as error:
            return self._machine.refused(error, monotonic_s())
        self._use(link)
        return self._machine.welcomed()

    async def _restored(self) -> Step:
        link = self._link
        if link is None:
            return GiveUp(errors.ClosedError("the connection is not open"))
        try:
            await self._restore(link)
        except errors.SternaError as error:
            await link.abort()
            for part in self.parts:
                part.interrupted()
            return self._machine.refused(error, monotonic_s())
        return self._machine.restored()

    def named(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Addresses that a broker named.

        Raises:
            UnreachableError: with TLS where this connection has none, or without where it has.
        """
        return self._machine.named(addresses)

    def also_at(self, addresses: tuple[str, ...]) -> None:
        """Its broker is said to be at these: if it is searched for, there first."""
        self._machine.learned(addresses)

    def _use(self, link: Link) -> None:
        welcome = link.welcome
        self._link = link
        self.broker, self.client_id, self.epoch = welcome.broker, welcome.client_id, welcome.epoch
        self.cluster = welcome.cluster
        limits = welcome.limits
        self.inline_bytes = link.frame_bytes // 2 - _FRAME_SLACK
        self.message_bytes = limits.message_bytes or self.message_bytes
        # Where flow control holds messages back, their bodies that went ahead are kept as uploads meanwhile.
        halves = (limit // 2 for limit in (limits.inflight_bytes, limits.upload_bytes) if limit)
        self.flow.limit = min(_INFLIGHT_BYTES, *halves)
        if welcome.time_ms:
            self.told_time(welcome.time_ms)

    def told_time(self, time_ms: int) -> None:
        """The broker's clock says so now. Whichever of both clocks is set afterwards, this one goes on from there."""
        self._clock_offset_ms = time_ms - int(monotonic_s() * 1000)

    def broker_time_ms(self) -> int:
        """This client's estimate of the broker's clock; milliseconds since 1970."""
        return int(monotonic_s() * 1000) + self._clock_offset_ms

    @property
    def address(self) -> str:
        """Where the broker in use is, or was before the interruption."""
        return self._link.address if self._link is not None else ""

    @property
    def connected(self) -> bool:
        """Whether there is a stream right now."""
        return self._up.is_set() and self._link is not None and self._link.lost is None

    async def ready(self, scope: Ending | None = None) -> Link:
        """Waits until there is a restored stream; while `scope` is not over.

        Raises:
            ClosedError: the connection was closed.
            ConnectionLostError: reconnecting was given up.
        """
        while True:
            if (over := self.closed or (scope.closed if scope is not None else None)) is not None:
                raise over
            link = self._link
            if self._supervisor is None or link is None:
                raise errors.ClosedError("the connection is not open", remedy="await it, or use async with")
            if self._up.is_set():
                if link.lost is None and not link.has_left:
                    return link
                # Nothing is begun behind a Goodbye, which ends it soon; a lost one the supervisor is about to notice.
                await (asyncio.shield(link.ended) if link.lost is None else asyncio.sleep(0))
            else:
                await self._up.wait()

    async def retrying(self, make: Callable[[Link], Awaitable[T]], scope: Ending | None = None) -> T:
        """`make` on the link in use, and again on the next one when it breaks meanwhile; while `scope` is not over.

        What the broker can do later, and not now, is asked for again as long as a connection that broke would be tried:
        it was not done, and whoever waits has a time limit of his own.
        """
        tries, since_s, limit_s = 0, monotonic_s(), self.options.reconnect.give_up_after_s
        while True:
            link = await self.ready(scope)
            try:
                return await make(link)
            except (LinkLostError, errors.ClosedError) as error:
                if self.closed is not None:
                    raise self.closed from None
                if not (isinstance(error, LinkLostError) or link.has_left):
                    raise  # behind a Goodbye the session is over for that link alone
            except errors.UnavailableError as error:
                since_s = since_s if tries else monotonic_s()
                if not errors.is_for_now(error) or (limit_s is not None and monotonic_s() - since_s >= limit_s):
                    raise
                tries += 1
                await asyncio.sleep(pause_s(tries))

    async def close(self, *, failed: bool = False, timeout_s: float = 30.0) -> None:
        """Ends the connection: waits for confirmations and acknowledgements, at most so long, and says goodbye.

        When it is cancelled the connection is over at once, without a goodbye.

        Raises:
            FlushError: messages of `send_soon` failed.
        """
        if self.closed is not None or self._supervisor is None:
            self._is_left = True  # whoever opens it at this moment is to know
            if self._link is not None:
                await self._link.abort()
            if (failure := self.untold.take()) is not None and not failed:
                raise failure
            return
        try:
            await self._close(failed=failed, timeout_s=timeout_s)
        except asyncio.CancelledError:
            self.drop(errors.ClosedError("the connection was closed", subject=self.address))
            raise

    def drop(self, reason: errors.SternaError) -> None:
        """Is over, and waits for nothing."""
        for task in (self._supervisor, self._leaving):
            if task is not None:
                task.remove_done_callback(self._orphaned)
                task.cancel()
        if self._link is not None:
            self._link.fail(reason)
            self._link.drop()
        if self.closed is None:
            self._end(reason, None)

    async def _close(self, *, failed: bool, timeout_s: float) -> None:
        if self._supervisor is None:
            return
        failure: errors.SternaError | None = None
        try:
            async with asyncio.timeout(timeout_s):
                for part in list(self.parts):
                    try:
                        await part.close(failed=failed)
                    except errors.SternaError as error:
                        failure = joined((failure, error))
        except TimeoutError:
            cause = f"the broker did not answer within {timeout_s:g} s"
            failure = failure or errors.ConnectionLostError(f"closing: {cause}", subject=self.address)
        if self._machine.close():
            await self._say_goodbye(self._supervisor)
        else:
            await self._over.wait()  # another call is about it, or reconnecting was given up meanwhile
        if self.options.book is not None:
            await self.options.book.ended()
        failure = joined((failure, self.untold.take()))
        if failure is not None and not failed:
            raise failure

    async def _say_goodbye(self, supervisor: asyncio.Task[None]) -> None:
        supervisor.remove_done_callback(self._orphaned)
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
        if self._leaving is not None:
            self._leaving.cancel()
            await asyncio.gather(self._leaving, return_exceptions=True)
        reason = errors.ClosedError("the connection was closed", subject=self.address)
        if self._link is not None:
            await self._take_leave(self._link, 2.0, reason)
        self._end(reason, None)

    def _end(self, reason: errors.SternaError, told: errors.SternaError | None) -> None:
        if self._over.is_set():
            return
        self._over.set()
        self._machine.ended(reason)
        for part in list(self.parts):
            part.fail(reason)
        for bystander in self.bystanders:
            bystander.fail(reason)
        self._up.set()  # whoever waits for a link finds out
        if self.options.book is not None:
            self.options.book.detach(self)
        self.on_closed.emit(Closed(told))

    def ledger_failed(self, error: errors.SternaError, *, is_over: bool) -> None:
        """The ledger cannot be written any more; the connection is over with it, where it needs one."""
        if not is_over:
            self.report(error)
        elif self._link is not None:
            self._link.fail(error)

    # --- Interruption and restoration

    def _orphaned(self, supervisor: asyncio.Task[None]) -> None:
        """The supervisor has ended although nobody closed the connection, as when `asyncio.run` cancels all there is.

        Nobody would notice a break or restore anything any more, so whoever waits is told that it is over.
        """
        if self.closed is not None:
            return
        reason = errors.ClosedError("the connection's tasks were cancelled", subject=self.address)
        if not supervisor.cancelled() and (error := supervisor.exception()) is not None:
            reason = errors.ClosedError(f"the connection's task failed: {error!r}", subject=self.address)
        if self._link is not None:
            self._link.fail(reason)
        self._end(reason, reason)

    async def _supervise(self) -> None:
        while True:
            link = self._link
            if link is None:
                return
            await asyncio.shield(link.ended)
            began = monotonic_s()
            reason = link.lost or errors.ConnectionLostError("the stream ended")
            self._up.clear()
            for part in self.parts:
                part.interrupted()
            for bystander in self.bystanders:
                bystander.interrupted(reason)
            if self._leaving is not None:
                self._leaving.cancel()  # it is left: the next one may be about to stop, too
            await link.abort()
            logger.warning("connection to %s interrupted: %s", link.address, reason)
            self.on_interrupted.emit(Interrupted(link.address, reason))
            found = await self._search(self._machine.lost(reason, began))
            if isinstance(found, GiveUp):
                self._end(found.error, found.error)
                return
            self._up.set()
            duration_s = monotonic_s() - began
            logger.info("connection restored at %s after %.3f s", self.address, duration_s)
            in_doubt, self.in_doubt = self.in_doubt, 0
            self.on_restored.emit(Restored(self.address, self.epoch, found.rounds, duration_s, in_doubt))

    async def _restore(self, link: Link) -> None:
        """Re-creates everything on a new link: sessions first, then what is in them."""
        await self.temporaries.restore(link)
        await asyncio.gather(*(part.open(link) for part in list(self.parts)))
        # Those that are still here: a session may have gone to another broker meanwhile, with all that is in it.
        await asyncio.gather(*[one.reopen(link) for part in self.parts for one in list(part.producers)])
        await asyncio.gather(*[one.reopen(link) for part in self.parts for one in list(part.feeds)])
        link.check()

    # --- Frames

    def _on_frame(self, frame: Any) -> None:
        kind = frame.WhichOneof("frame")
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, frame)

    def _on_deliver(self, frame: Any) -> None:
        feed = self._feeds.get(frame.deliver.consumer)
        if feed is not None:
            feed.on_deliver(frame.deliver)

    def _on_confirm(self, frame: Any) -> None:
        if self.options.book is not None:
            self._write_down(self.options.book, frame.confirm.confirmed)
        for confirmed in frame.confirm.confirmed:
            lane = self._lanes.get(confirmed.producer)
            if lane is not None:
                lane.on_confirmed(confirmed)

    def _write_down(self, book: Book, confirmed: Iterable[Any]) -> None:
        """Each lane has the ledger written before it tells anybody."""
        for one in confirmed:
            lane = self._lanes.get(one.producer)
            if lane is not None:
                book.confirmed(lane.origin, one)

    def _on_producer_credit(self, frame: Any) -> None:
        lane = self._lanes.get(frame.producer_credit.producer)
        if lane is not None:
            lane.on_credit(frame.producer_credit)

    def _on_rejected(self, frame: Any) -> None:
        lane = self._lanes.get(frame.rejected.producer)
        if lane is not None:
            lane.on_rejected(frame.rejected)

    def _on_drained(self, frame: Any) -> None:
        feed = self._feeds.get(frame.drained.consumer)
        if feed is not None:
            feed.on_drained(frame.drained)

    def _on_consumer_closed(self, frame: Any) -> None:
        feed = self._feeds.get(frame.consumer_closed.consumer)
        if feed is not None:
            feed.on_closed(errors.from_proto(frame.consumer_closed.reason))

    def _on_producer_closed(self, frame: Any) -> None:
        lane = self._lanes.get(frame.producer_closed.producer)
        if lane is not None:
            lane.on_closed(errors.from_proto(frame.producer_closed.reason))

    def _on_session_closed(self, frame: Any) -> None:
        for part in list(self.parts):
            if part.number == frame.session:
                part.fail(errors.from_proto(frame.session_closed.reason))

    def _on_transaction_ended(self, frame: Any) -> None:
        for part in self.parts:
            if part.number == frame.session:
                part.on_transaction_ended(frame.transaction_ended)

    def _on_session_error(self, frame: Any) -> None:
        # The answer to a frame that asked for none; what follows from it comes in frames of its own.
        error = errors.from_proto(frame.error)
        if isinstance(error, errors.ClosedError) and error.subject.startswith("producer "):
            return  # a piece of a large body was under way when its producer was ended: of that its lane was told
        self.report(error)

    def _on_go_away(self, frame: Any) -> None:
        link = self._link
        going = frame.go_away
        if link is None or link.lost is not None or going.HasField("destination"):
            return  # that destination's producers and consumers are told on their own
        link.going_away = going
        self._machine.going_away(going.addresses)
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._leave(link, going.grace_ms / 1000), name="sterna-leaving")

    async def _leave(self, link: Link, grace_s: float) -> None:
        """The broker is about to stop: gives confirmations half of the grace, then leaves by itself."""
        with contextlib.suppress(TimeoutError, errors.SternaError):
            async with asyncio.timeout(grace_s / 2):
                for part in list(self.parts):
                    part.gather(link)
                for lane in list(self._lanes.values()):
                    await lane.settled()
        if link.lost is None:
            reason = errors.ShuttingDownError(f"the broker at {link.address} is stopping", retryable=True)
            await self._take_leave(link, grace_s / 4, reason)

    async def _take_leave(self, link: Link, timeout_s: float, reason: errors.SternaError) -> None:
        """Says goodbye, for all sessions that there are: where the connection is being closed some may be new."""
        seen = self._seen(link)
        # Behind the Goodbye nothing counts: what were handed out now would come again without its flag.
        self._up.clear()
        for part in self.parts:
            part.interrupted()
        await link.finish(timeout_s, reason, seen)

    def _seen(self, link: Link) -> list[pb.SeenSet]:
        """What the application has in hand over all sessions, for the Goodbye; acknowledgements leave before it."""
        for part in self.parts:
            part.gather(link)
        return [one for part in self.parts for one in part.state.seen()]

    # --- For sessions, lanes and consumers

    def next_producer_id(self) -> int:
        """A number for a lane."""
        self._producer_ids += 1
        return self._producer_ids

    def next_consumer_id(self) -> int:
        """A number for a consumer."""
        self._consumer_ids += 1
        return self._consumer_ids

    @property
    def lanes(self) -> list[LaneRole]:
        """Those that frames go to."""
        return list(self._lanes.values())

    def route_lane(self, lane: LaneRole) -> None:
        """Frames for it go to it from now on."""
        self._lanes[lane.id] = lane

    def unroute_lane(self, lane: LaneRole) -> None:
        """No more frames go to it."""
        self._lanes.pop(lane.id, None)

    def route_feed(self, feed: FeedRole) -> None:
        """Frames for it go to it from now on."""
        self._feeds[feed.id] = feed

    def unroute_feed(self, feed: FeedRole) -> None:
        """No more frames go to it."""
        self._feeds.pop(feed.id, None)

    def forget(self, part: PartRole) -> None:
        """A session has nothing here any more."""
        if part in self.parts:
            self.parts.remove(part)
        if not self._up.is_set():
            self._up.set()  # whoever waits for a link, in that session, finds out
            self._up.clear()

    def renamed(self, before: Destination, after: Destination) -> None:
        """A temporary destination has another name: what was sent to it and is unconfirmed follows."""
        for lane in self._lanes.values():
            lane.machine.renamed(encode_target(before), encode_target(after))

    def abandon_temporary(self, destination: Destination) -> None:
        """Deletes one without waiting for the broker's word: whoever was about to use it was cancelled."""
        self.temporaries.abandon(destination, self._link)

    def report(self, error: BaseException) -> None:
        """What no call could raise."""
        if self.on_error:
            self.on_error.emit(error)
        else:
            logger.error("%s: %s", type(error).__name__, error, exc_info=error)

    def guarded(self, callback: Callable[[Any], Any], outcome: Any) -> None:
        """Calls a completion listener; what it raises is reported."""
        try:
            callback(outcome)
        except Exception as error:  # noqa: BLE001 - whatever the application's listener raises is reported
            self.report(error)


_HANDLERS: dict[str | None, Callable[[Lifeline, Any], None]] = {
    "deliver": Lifeline._on_deliver,
    "confirm": Lifeline._on_confirm,
    "producer_credit": Lifeline._on_producer_credit,
    "rejected": Lifeline._on_rejected,
    "drained": Lifeline._on_drained,
    "consumer_closed": Lifeline._on_consumer_closed,
    "producer_closed": Lifeline._on_producer_closed,
    "session_closed": Lifeline._on_session_closed,
    "transaction_ended": Lifeline._on_transaction_ended,
    "error": Lifeline._on_session_error,
    "go_away": Lifeline._on_go_away,
}
