"""What stands between a producer and its links: its lanes, opened on each link anew, and its way to another broker.

The application's face of it is `producers`. A lane each for messages that are confirmed and for RELIABLE ones is opened
when it is first needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sterna import errors
from sterna._failures import Failures
from sterna._lane import Lane, Named
from sterna._link import LeftError, Link, LinkLostError
from sterna._pauses import HOPS_MAX
from sterna.destinations import Destination

if TYPE_CHECKING:
    from sterna._parts import Part


#: How long the broker that is left may take to end a second producer, once it has ended the first.
_TOLD_S: Final = 10.0


class Sending:
    """See the module. `part` is the part of the session that it belongs to now; `on_move` is told of each other one."""

    def __init__(
        self,
        part: Part,
        destination: Destination | None,
        window: int,
        *,
        confirmed: bool,
        on_move: Callable[[Part], None],
        named: Named | None = None,
    ) -> None:
        self.part = part
        self.destination = destination
        self.is_following = False
        self._window = window
        self._on_move = on_move
        self._named = named
        #: What failed of messages that nobody waits for; perhaps shared with others of the same producer.
        self.failures = Failures()
        # A producer of RELIABLE messages has no confirmed one until it sends another.
        self._lanes: dict[bool, Lane] = {}
        self._opening = asyncio.Lock()
        self._follower: asyncio.Task[None] | None = None
        #: Set when a lane is not open any more where it was.
        self._told = asyncio.Event()
        #: That of messages with the producer's own mode.
        self.lane = self._lanes[confirmed] = self._new_lane(confirmed)

    def share(self, failures: Failures) -> None:
        """Adds its failures to these from now on; before it is opened."""
        self.failures = failures
        for lane in self._lanes.values():
            lane.failures = failures

    def _new_lane(self, confirmed: bool) -> Lane:
        # What nobody confirms has no numbers that anybody keeps.
        named = self._named if confirmed else None
        own, window, failures = self.destination, self._window, self.failures
        return Lane(self, self.part, own, window, confirmed=confirmed, named=named, failures=failures)

    @property
    def unconfirmed(self) -> int:
        """How many messages are waiting for their confirmation."""
        return sum(len(lane.machine.unconfirmed) for lane in self._lanes.values())

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything of it."""
        return not (self.unconfirmed or self.is_following or any(one.is_waited_for for one in self._lanes.values()))

    # --- Opening, on each link anew

    async def open_first(self, link: Link) -> None:
        """Opens the lanes where they have not been before; not those that are over, or that a try has opened."""
        # Looked at again after each: one that was open may be ended while another one is opened.
        while (lane := next((one for one in self._lanes.values() if one.is_missing_on(link)), None)) is not None:
            await self._open(lane, link, again=False)

    async def _open(self, lane: Lane, link: Link, *, again: bool) -> None:
        lifeline = lane.part.lifeline
        lane.destination = None if self.destination is None else lifeline.temporaries.current(self.destination)
        lifeline.route_lane(lane)
        try:
            await lane.open(link, again=again)
        except BaseException:
            if not again:
                lifeline.unroute_lane(lane)
            raise
        if lane.closed is not None:
            lifeline.unroute_lane(lane)  # it was closed meanwhile, and nothing more comes for it

    async def reopen(self, link: Link) -> None:
        """Opens the lanes on a new link; a lane that the broker refuses now fails with that, for good."""
        if self.is_following:
            return  # it opens itself, where it has come to
        part, number = self.part, self.part.number
        for lane in list(self._lanes.values()):
            if not part.is_at(link, number):
                return  # the session has gone elsewhere, and this with it
            if lane.closed is not None:
                continue  # to open it would make its destination anew, where that was deleted
            try:
                await self._open(lane, link, again=True)
            except LinkLostError:
                raise
            except LeftError:
                return
            except errors.SternaError as error:
                if self._has_left(part) or not part.is_at(link, number):
                    return  # the other lane was told first, or it is said of where the session was
                if isinstance(error, errors.MovedError) and self.moved(error):
                    return
                if errors.is_for_now(error) and self.waits():
                    return
                lane.fail(error)
                self.part.lifeline.report(error)

    def interrupted(self) -> None:
        """The link is gone."""
        for lane in self._lanes.values():
            lane.interrupted()

    async def lane_for(self, *, confirmed: bool) -> Lane:
        """The lane for messages of this kind, opened if it is the first."""
        lane = self._lanes.get(confirmed)
        if lane is None:
            async with self._opening:
                lane = self._lanes.get(confirmed) or await self._another_lane(confirmed)
        return lane

    async def _another_lane(self, confirmed: bool) -> Lane:
        """Opens one where the others are; they may be on their way to another broker, or set out meanwhile."""
        for hop in range(HOPS_MAX):
            if self._follower is not None and self.is_following:
                await asyncio.wait((self._follower,))
            self._check_open()
            part, made = self.part, self._new_lane(confirmed)
            try:
                await part.lifeline.retrying(functools.partial(self._open, made, again=False), part)
            except errors.MovedError as error:
                # Said of where the others may have left already.
                if hop + 1 == HOPS_MAX or not (self._has_left(part) or self.moved(error)):
                    raise
                continue
            except LeftError:
                continue
            if self.lane.closed is None and not self._has_left(part) and made.lifeline is part.lifeline:
                self._lanes[confirmed] = made
                return made
            # Looked at, since nobody waits for it.
            made.leave().add_done_callback(lambda done: done.cancelled() or done.exception())
            self._check_open()
        raise errors.UnavailableError("the destination moves on and on", subject=str(self.destination), retryable=True)

    def _has_left(self, part: Part) -> bool:
        """Whether it belongs to another part by now, or is on its way."""
        return self.is_following or self.part is not part

    def _check_open(self) -> None:
        if self.lane.closed is not None:
            raise self.lane.closed

    # --- Following a destination to its broker

    def moved(self, error: errors.MovedError) -> bool:
        """The destination lives elsewhere: goes there, with what is unconfirmed. Whether it can.

        A lane that is open is told of it on its own; what it has sent is confirmed before that, or not kept.
        """
        part = self.part
        homes = part.lifeline.homes
        if self.destination is None or homes is None or part.state.transacted:
            return False
        if not self.is_following:
            self.is_following = True
            self._follower = homes.spawn(self._follow(error), self._given_up)
        return True

    def waits(self) -> bool:
        """It cannot be open for now: it is opened when it can be, and nobody else waits for that. Whether it is."""
        part = self.part
        homes = part.lifeline.homes
        if homes is None or part.state.transacted:
            return False
        if not self.is_following:
            self.is_following = True
            self._follower = homes.spawn(self._open_later(part), self._given_up)
        return True

    async def _open_later(self, part: Part) -> None:
        try:
            await part.lifeline.retrying(self.open_first, part)
        except errors.MovedError as moved:
            await self._follow(moved)
        except errors.SternaError as error:
            self._is_over(error)
        finally:
            self.is_following = False

    def _is_over(self, error: errors.SternaError) -> None:
        """It cannot go on; whoever has closed it on the way is not told of that."""
        is_known = self.lane.closed is not None
        self.fail(error)
        if not is_known:
            self.part.lifeline.report(error)

    def told(self) -> None:
        """A lane is not open any more where it was: nothing more comes of it from there."""
        self._told.set()

    async def _all_told(self) -> None:
        """Until all lanes are: what was confirmed where they were must not be sent again where they go."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOLD_S):
                while any(lane.is_open for lane in self._lanes.values()):
                    self._told.clear()
                    await self._told.wait()
        for lane in self._lanes.values():
            if lane.is_open:
                lane.interrupted()  # nobody can tell what of it has arrived
            lane.moved()

    async def _follow(self, moved: errors.MovedError) -> None:
        try:
            await self.part.branches.following(self.part, self._arrive, moved)
        except errors.SternaError as error:
            self._is_over(error)
        finally:
            self.is_following = False

    async def _arrive(self, part: Part) -> None:
        await self._all_told()
        if all(lane.closed is not None for lane in self._lanes.values()):
            return  # it was closed on the way
        self.move(part)
        await part.lifeline.retrying(self.open_first, part)

    def _given_up(self) -> None:
        """It was on its way to another broker when the connection was closed."""
        self.is_following = False
        self.fail(errors.ClosedError("the connection was closed", subject=str(self.destination)))

    def move(self, part: Part) -> None:
        """Belongs to another part of the session from now on, or to one that has moved."""
        self.part.producers.pop(self, None)
        for lane in self._lanes.values():
            lane.lifeline.unroute_lane(lane)
            if part.state.transacted:
                lane.moved()  # its broker ends it with the session, and says nothing
        self.part = part
        # At once: who closes the session, or flushes it, waits for what is on its way, too.
        part.producers[self] = None
        for lane in self._lanes.values():
            lane.move(part)
        self._on_move(part)

    # --- Flushing and closing

    async def settled(self) -> None:
        """Waits until everything sent so far is confirmed or failed."""
        for lane in list(self._lanes.values()):
            if lane.confirmed:
                await lane.settled()

    def fail(self, error: errors.SternaError) -> None:
        """It is over: what is unconfirmed fails with `error`."""
        self.part.producers.pop(self, None)
        for lane in self._lanes.values():
            lane.fail(error)
            lane.lifeline.unroute_lane(lane)
        self.part.lifeline.untold.add(self.failures)

    def leave(self) -> list[asyncio.Future[None]]:
        """Ends the lanes at once; each answer of the broker is a future."""
        self.part.producers.pop(self, None)
        told = [lane.leave() for lane in self._lanes.values()]
        self.part.lifeline.untold.add(self.failures)
        return told
