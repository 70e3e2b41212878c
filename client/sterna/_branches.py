"""A session's parts on the brokers of a cluster.

The application has one session, whose part on its own broker is the *root*; what it opens on another belongs to a
*branch* there, made when the first thing needs it. A transacted session has no branches: a transaction cannot reach
over brokers, so the session goes as a whole to where its first destination lives.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from sterna import errors
from sterna._link import LeftError, LinkLostError
from sterna._pauses import HOPS_MAX, pause_s
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._roles import PartRole
from sterna._surroundings import monotonic_s
from sterna.options import Reconnect

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline

Made = TypeVar("Made")


class Rooted(PartRole, Protocol):
    """A part, as its branches know it."""

    @property
    def lifeline(self) -> Lifeline:
        """What it lives on."""

    @property
    def moves(self) -> int:
        """How often it has gone to another broker."""

    def check_open(self) -> None:
        """Raises why it is over, when it is."""

    def abandon(self) -> None:
        """Ends it without waiting for the broker's word."""

    async def request(self, name: str, content: Any) -> None:
        """Asks for what is the same on any link."""

    def another(self: P, lifeline: Lifeline) -> P:
        """A branch of it, for another broker."""

    async def move(self, lifeline: Lifeline, moved: errors.MovedError) -> None:
        """Takes a transacted session to another broker."""


P = TypeVar("P", bound=Rooted)


class Stay:
    """A part, until it goes to another broker: what is asked of it where it is need not wait there any longer."""

    def __init__(self, part: Rooted) -> None:
        self._part, self._moves = part, part.moves

    @property
    def is_over(self) -> bool:
        """Whether it has gone."""
        return self._part.moves != self._moves

    @property
    def closed(self) -> errors.SternaError | None:
        """Why whoever waits has nothing to wait for."""
        return self._part.closed or (LeftError("the session has gone to another broker") if self.is_over else None)


class Follower(Protocol):
    """A consumer that is on its way."""

    async def stop_listening(self) -> None:
        """Lets its listener finish with the message it has."""

    def fail(self, error: errors.SternaError) -> None:
        """It is over."""


class Hops:
    """How often and how long something is followed: as long as a connection that broke would be tried.

    `rest` waits for so many seconds, or as long as there is any use in it.
    """

    def __init__(self, reconnect: Reconnect, rest: Callable[[float], Awaitable[None]]) -> None:
        self._reconnect = reconnect
        self._rest = rest
        self._count = self._rounds = 0
        self._moving_since_s = self._away_since_s = 0.0

    async def pause(self, moved: errors.MovedError) -> None:
        """Before it is gone where this leads; the first step is taken at once.

        Two brokers may send to one another for as long as one of them cannot hear from etcd that a name has moved.

        Raises:
            MovedError: it moves on and on.
        """
        self._count += 1
        if self._count == 1:
            self._moving_since_s = monotonic_s()
        more = self._count - HOPS_MAX
        if more >= 0 and self._is_over(self._moving_since_s):
            raise moved
        # Brokers that send to one another are there: asked no more often where an application reconnects at once.
        longer_s = self._reconnect.pause_s(more) if more >= 0 else 0.0
        await self._rest(max(pause_s(self._count - 1), longer_s))

    async def pause_unreachable(self, error: errors.SternaError) -> None:
        """Before it is asked again where to go, since nobody was there, or nobody who takes another connection.

        Raises:
            SternaError: `error`, when that has lasted as long as a broken connection would be tried.
        """
        if not self._rounds:
            self._away_since_s = monotonic_s()
        if self._is_over(self._away_since_s):
            raise error
        await self._rest(self._reconnect.pause_s(self._rounds))
        self._count, self._rounds = 0, self._rounds + 1

    def _is_over(self, since_s: float) -> bool:
        limit_s = self._reconnect.give_up_after_s
        return limit_s is not None and monotonic_s() - since_s > limit_s


class Branches(Generic[P]):
    """The branches of one root."""

    def __init__(self, root: P) -> None:
        self.root = root
        self.followers: dict[Follower, None] = {}
        """The consumers that are on their way to another broker, and belong to no part meanwhile."""

        #: Whether there ever was one besides the root.
        self.has_any = False
        self._by_lifeline: dict[Lifeline, P] = {}
        # One for each broker: one that is away must not hold up what is opened at another. A transacted session has
        # one place, and goes to one after the other.
        self._making: dict[Lifeline, asyncio.Lock] = {}
        self._moving = asyncio.Lock()
        self._is_over = asyncio.Event()

    def over(self) -> None:
        """The root is over: whoever rests before he follows something shall find out at once, or waits for a broker."""
        self._is_over.set()
        homes = self.root.lifeline.homes
        for lifeline in homes.lifelines if homes is not None else ():
            lifeline.forget(self.root)

    async def _rest(self, pause_s: float) -> None:
        if self._is_over.is_set():
            # What is on another broker may outlive the root's connection.
            await asyncio.sleep(pause_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._is_over.wait()

    @property
    def parts(self) -> list[P]:
        """The session on all its brokers, the root first."""
        return [self.root, *(branch for branch in self._by_lifeline.values() if branch.closed is None)]

    def followers_of(self, part: P) -> list[Follower]:
        """Those that end with this part: the root's."""
        return list(self.followers) if part is self.root else []

    async def leave(self, part: P) -> None:
        """Ends the followers: the session is being closed, and none of them is to open anything any more."""
        for feed in self.followers_of(part):
            await feed.stop_listening()
            feed.fail(errors.ClosedError("the session was closed", subject="session"))

    async def part_at(self, lifeline: Lifeline) -> P:
        """The session's part on another broker."""
        root = self.root
        if lifeline is root.lifeline:
            return root
        async with self._making.setdefault(lifeline, asyncio.Lock()):
            branch = self._by_lifeline.get(lifeline)
            if branch is None or branch.closed is not None:
                root.check_open()
                branch = root.another(lifeline)
                await lifeline.retrying(branch.open, root)
                try:
                    root.check_open()
                except errors.SternaError:
                    branch.abandon()  # it was closed meanwhile, without this one
                    raise
                lifeline.parts.append(branch)
                self._by_lifeline[lifeline] = branch
                self.has_any = True
            return branch

    async def unsubscribe(self, name: str) -> None:
        """See Session.unsubscribe."""
        # A durable lives with its topic, and its name does not say where: whoever has it, among those in use, knows it.
        # Those that are away are waited for where none of the others has it.
        homes = self.root.lifeline.homes
        places = homes.lifelines if homes is not None else [self.root.lifeline]
        missing: errors.NoSuchSubscriptionError | None = None
        was_cut = False
        for place in sorted(places, key=lambda one: not one.connected):
            part = await self.part_at(place)
            try:
                await part.request("unsubscribe", pb.Unsubscribe(name=name))
            except errors.NoSuchSubscriptionError as error:
                missing = error
                # The first try had no answer: it may be that which has ended it.
                was_cut = was_cut or isinstance(error.__cause__, LinkLostError)
            else:
                return
        if missing is not None and not was_cut:
            raise missing

    async def following(
        self, part: P, make: Callable[[P], Awaitable[Made]], moved: errors.MovedError | None = None
    ) -> Made:
        """Makes something in the session, wherever it lives; a name that is moving at this moment is followed a while.

        `moved`: what was said already of where that is. Where nobody answers there, the session's own broker is asked
        again: by then the name may live elsewhere, or its broker have another address.

        Raises:
            SternaError: as `make` and `homed` do.
        """
        hops = Hops(self.root.lifeline.options.reconnect, self._rest)
        while True:
            if moved is None:
                try:
                    return await make(part)
                except errors.MovedError as error:
                    moved = error
            await hops.pause(moved)
            try:
                part = await self.homed(part, moved)
            except errors.SternaError as error:
                if not errors.lets_nobody_in(error):
                    raise
                await hops.pause_unreachable(error)
                # A transacted session has one part alone, which has stayed where it was told so.
                part = self.root
            moved = None

    async def homed(self, part: P, moved: errors.MovedError) -> P:
        """The part at the broker where something lives: a branch, or the same, gone there.

        Raises:
            SpansHomesError: a transacted session has something on another broker already.
            SternaError: the broker cannot be reached.
        """
        homes = part.lifeline.homes
        if homes is None:
            raise moved
        lifeline = await homes.at(moved)
        if part.state.transacted:
            async with self._moving:
                if part.lifeline is not lifeline:  # another call may have taken it there
                    await part.move(lifeline, moved)
            return part
        return await self.part_at(lifeline)
