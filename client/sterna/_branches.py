"""A session's parts on the brokers of a cluster.

The application has one session, the *root*; what it opens on another broker than its own belongs to a *branch* there,
made when the first thing needs it. A transacted session has no branches: a transaction cannot reach over brokers, so
the session goes as a whole to where its first destination lives.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from sterna import errors
from sterna._homes import HOPS_MAX, pause_s
from sterna._link import LinkLostError
from sterna._proto.sterna.v1 import messaging_pb2 as pb

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline
    from sterna.consumers import Consumer
    from sterna.producers import Producer
    from sterna.sessions import Session

Made = TypeVar("Made")


class Branches:
    """The branches of one root session."""

    def __init__(self, root: Session) -> None:
        self.root = root
        self.followers: dict[Consumer, None] = {}
        """The consumers that are on their way to another broker, and belong to no part meanwhile."""

        self._by_lifeline: dict[Lifeline, Session] = {}
        self._making = asyncio.Lock()

    @property
    def parts(self) -> list[Session]:
        """The session on all its brokers, the root first."""
        return [self.root, *(branch for branch in self._by_lifeline.values() if branch.closed is None)]

    def followers_of(self, session: Session) -> list[Consumer]:
        """Those that end with this session: the root's."""
        return list(self.followers) if session is self.root else []

    async def leave(self, session: Session) -> None:
        """Ends the followers: the session is being closed, and none of them is to open anything any more."""
        for consumer in self.followers_of(session):
            await consumer._stop_listening()
            consumer._fail(errors.ClosedError("the session was closed", subject="session"))

    async def at(self, lifeline: Lifeline) -> Session:
        """The session's part on another broker."""
        root = self.root
        if lifeline is root._lifeline:
            return root
        async with self._making:
            branch = self._by_lifeline.get(lifeline)
            if branch is None or branch.closed is not None:
                if root.closed is not None:
                    raise root.closed
                branch = type(root)(lifeline, root.mode, stopped=root._stopped)
                branch._branches = self
                await lifeline.retrying(branch._open)
                lifeline.sessions.append(branch)
                self._by_lifeline[lifeline] = branch
            return branch


async def homed(session: Session, moved: errors.MovedError) -> Session:
    """The session at the broker where something lives: a branch of it, or itself, gone there.

    Raises:
        SpansHomesError: a transacted session has something on another broker already.
        SternaError: the broker cannot be reached.
    """
    homes = session._lifeline.homes
    if homes is None:
        raise moved
    lifeline = (await homes.at(moved))._lifeline
    if session._transacted:
        await _go_to(session, lifeline, moved)
        return session
    return await session._branches.at(lifeline)


async def following(session: Session, make: Callable[[Session], Awaitable[Made]]) -> Made:
    """Makes something in the session, wherever it lives; a name that is moving at this moment is followed for a while.

    Raises:
        SternaError: as `make` and `homed` do.
    """
    hop = 0
    while True:
        try:
            return await make(session)
        except errors.MovedError as moved:
            hop += 1
            if hop == HOPS_MAX:
                raise
            # The first step is taken at once.
            await asyncio.sleep(pause_s(hop - 1))
            session = await homed(session, moved)


async def _go_to(session: Session, lifeline: Lifeline, moved: errors.MovedError) -> None:
    """Takes a transacted session to another broker, as long as it has nothing where it is."""
    anonymous = [one for one in session._producers if one.destination is None]
    if session._in_transaction or session._consumers or len(anonymous) < len(session._producers):
        cause = f"a transaction cannot reach over brokers: {moved.cause}"
        raise errors.SpansHomesError(cause, subject=moved.subject)
    link, former = session._link, session._lifeline
    former.forget(session)
    if link is not None and link.lost is None:
        with contextlib.suppress(LinkLostError):
            await link.request(session._number, "close_session", pb.CloseSession())
    session._lifeline, session._link = lifeline, None
    await lifeline.retrying(session._open)
    lifeline.sessions.append(session)
    for producer in anonymous:
        producer._move(session)
        await lifeline.retrying(producer._open_first, session)
        session._producers[producer] = None


def keep(session: Session, made: Consumer | Producer) -> None:
    """Raises ClosedError, and lets go of what was made, when the session was closed while that was being opened."""
    if session.closed is not None:
        made._fail(session.closed)
        raise session.closed


def abandon(session: Session) -> None:
    """Ends a session without waiting for the broker's word: whoever was making it was cancelled."""
    link = session._link
    session._fail(errors.ClosedError("the session was given up", subject="session"))
    if link is not None:
        link.tell(session._number, "close_session", pb.CloseSession())
