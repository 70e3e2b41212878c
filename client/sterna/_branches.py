"""A session's parts on the brokers of a cluster.

The application has one session, whose part on its own broker is the *root*; what it opens on another belongs to a
*branch* there, made when the first thing needs it. A transacted session has no branches: a transaction cannot reach
over brokers, so the session goes as a whole to where its first destination lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from sterna import errors
from sterna._homes import HOPS_MAX, pause_s

if TYPE_CHECKING:
    from sterna._feeds import Feed
    from sterna._lifeline import Lifeline
    from sterna._parts import Part
    from sterna.sessions import Session

Made = TypeVar("Made")


class Branches:
    """The branches of one root."""

    def __init__(self, root: Part) -> None:
        self.root = root
        self.followers: dict[Feed, None] = {}
        """The consumers that are on their way to another broker, and belong to no part meanwhile."""

        #: Whether there ever was one besides the root.
        self.has_any = False
        self._by_lifeline: dict[Lifeline, Part] = {}
        self._making = asyncio.Lock()

    @property
    def parts(self) -> list[Part]:
        """The session on all its brokers, the root first."""
        return [self.root, *(branch for branch in self._by_lifeline.values() if branch.closed is None)]

    def followers_of(self, part: Part) -> list[Feed]:
        """Those that end with this part: the root's."""
        return list(self.followers) if part is self.root else []

    async def leave(self, part: Part) -> None:
        """Ends the followers: the session is being closed, and none of them is to open anything any more."""
        for feed in self.followers_of(part):
            await feed.stop_listening()
            feed.fail(errors.ClosedError("the session was closed", subject="session"))

    async def at(self, lifeline: Lifeline) -> Session:
        """The session as another broker knows it."""
        return (await self.part_at(lifeline)).session

    async def part_at(self, lifeline: Lifeline) -> Part:
        """The session's part on another broker."""
        root = self.root
        if lifeline is root.lifeline:
            return root
        async with self._making:
            branch = self._by_lifeline.get(lifeline)
            if branch is None or branch.closed is not None:
                root.check_open()
                branch = root.another(lifeline)
                await lifeline.retrying(branch.open)
                try:
                    root.check_open()
                except errors.SternaError:
                    branch.abandon()  # it was closed meanwhile, without this one
                    raise
                lifeline.sessions.append(branch.session)
                self._by_lifeline[lifeline] = branch
                self.has_any = True
            return branch

    async def following(self, part: Part, make: Callable[[Part], Awaitable[Made]]) -> Made:
        """Makes something in the session, wherever it lives; a name that is moving at this moment is followed a while.

        Raises:
            SternaError: as `make` and `homed` do.
        """
        hop = 0
        while True:
            try:
                return await make(part)
            except errors.MovedError as moved:
                hop += 1
                if hop == HOPS_MAX:
                    raise
                # The first step is taken at once.
                await asyncio.sleep(pause_s(hop - 1))
                part = await self.homed(part, moved)

    async def homed(self, part: Part, moved: errors.MovedError) -> Part:
        """The part at the broker where something lives: a branch, or the same, gone there.

        Raises:
            SpansHomesError: a transacted session has something on another broker already.
            SternaError: the broker cannot be reached.
        """
        homes = part.lifeline.homes
        if homes is None:
            raise moved
        lifeline = (await homes.at(moved))._lifeline
        if part.state.transacted:
            await part.move(lifeline, moved)
            return part
        return await self.part_at(lifeline)


def part_of(session: Session) -> Part:
    """What is behind an application's session."""
    return session._part


async def homed(session: Session, moved: errors.MovedError) -> Session:
    """As `Branches.homed`, for sessions."""
    part = part_of(session)
    return (await part.homed(moved)).session


def abandon(session: Session) -> None:
    """Ends a session without waiting for the broker's word: whoever was making it was cancelled."""
    part_of(session).abandon()
