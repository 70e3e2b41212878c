"""Where `sterna bench` sends to, and how it leaves that place.

By itself a bench makes a queue of its own and deletes it. In a destination that somebody names there may be the
messages of others: what a bench sends bears the property `sterna_bench`, by which it selects what it takes. What it
has sent it takes away again, and it says what is left.
"""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import sterna
from sterna._measuring.loads import PROPERTIES, Until, consume
from sterna.cli.exits import CommandError, complain, describe
from sterna.cli.messages import sdk_destination, spelled
from sterna.cli.servers import Server
from sterna.destinations import Destination, Queue
from sterna.errors import SternaError

#: The property that tells a bench's messages from all others; its value is the run.
MARK = "sterna_bench"
_OWN_PREFIX = "sterna-bench-"
#: A queue that has given nothing for so long has nothing more of ours.
_IDLE_S = 1.0
_MANIFEST = """\
apiVersion: sterna.dev/v1alpha1
kind: Queue
metadata: {{name: {name}}}
"""


def _new_run() -> str:
    return os.urandom(6).hex()


@dataclass
class Place:
    """A destination and a run in it.

    Args:
        destination: where to.
        is_own: whether it was made for this run.
        takes_any: a subscriber takes what any bench has sent, not only this run.
        run: what marks the messages of this run.
        sent: how many were confirmed so far.
        received: how many came back so far.
        is_whole: whether these two are all there was; not when the bench was interrupted while it sent.
    """

    destination: Destination
    is_own: bool
    takes_any: bool = False
    run: str = field(default_factory=_new_run)
    sent: int = 0
    received: int = 0
    is_whole: bool = True

    @classmethod
    def of(cls, name: str, *, takes_any: bool) -> "Place":
        """The named destination, or a queue of the run's own."""
        if name:
            return cls(sdk_destination(name), is_own=False, takes_any=takes_any)
        run = _new_run()
        return cls(Queue(_OWN_PREFIX + run), is_own=True, run=run)

    @property
    def properties(self) -> dict[str, Any]:
        """What each message bears; nobody else's messages are in a queue of its own."""
        return dict(PROPERTIES) if self.is_own else {**PROPERTIES, MARK: self.run}

    @property
    def selector(self) -> str:
        """What a subscriber takes."""
        if self.is_own:
            return ""
        return f"{MARK} IS NOT NULL" if self.takes_any else self.mine

    @property
    def mine(self) -> str:
        """Selects the messages of this run."""
        return f"{MARK} = '{self.run}'"


@contextlib.asynccontextmanager
async def cleaned_up(
    place: Place, server: Server, connection: "sterna.Connection", *, keep: bool
) -> AsyncIterator[None]:
    """Makes the place if it is the run's own, and leaves it as it was.

    An interruption cleans up as well; where that fails, or is interrupted again, it is said what is left.
    """
    if place.is_own:
        await _make(place, server)
    try:
        yield
    except BaseException:
        place.is_whole = False
        raise
    finally:
        try:
            if place.is_own:
                await _delete(place, server)
            elif isinstance(place.destination, Queue):
                await _empty(place, connection, keep=keep)
            elif place.sent:
                complain(f"durable subscriptions of {spelled(place.destination)} keep what was published to them")
        except BaseException as error:
            complain(_left_behind(place, error))
            raise


async def _make(place: Place, server: Server) -> None:
    name = place.destination.name
    try:
        async with server.admin(timeout=30.0) as client:
            (applied,) = await client.apply(_MANIFEST.format(name=name), source="sterna bench")
        if applied.error is not None:
            raise applied.error
    except SternaError as error:
        message = f"cannot make a queue for the bench: {error.cause}"
        raise CommandError(message, remedy="name a destination that may be used: sterna bench both NAME") from error


async def _delete(place: Place, server: Server) -> None:
    async with server.admin(timeout=30.0) as client:
        await client.delete("Queue", place.destination.name, with_messages=True)


async def _empty(place: Place, connection: "sterna.Connection", *, keep: bool) -> None:
    """Takes the run's own messages out of a queue that others use, and says what became of the rest."""
    queue = spelled(place.destination)
    if keep:
        kept = place.sent if place.is_whole else await _count(place, connection)
        complain(f"{kept:,} messages are left in {queue} (--keep): 'sterna bench sub {queue}' takes them")
        return
    async with await connection.session() as session:
        consumer = await session.consumer(place.destination, selector=place.mine, prefetch=4_096)
        removed = (await consume(session, consumer, Until(), idle_s=_IDLE_S)).messages
    if place.is_whole and place.received + removed == place.sent:
        return
    if left := await _count(place, connection):
        complain(f"{left:,} messages of this bench are left in {queue}: 'sterna bench sub {queue}' takes them")
    if place.is_whole and (gone := place.sent - place.received - removed - left) > 0:
        complain(f"{gone:,} messages of this bench were taken from {queue} by others, or expired")


async def _count(place: Place, connection: "sterna.Connection") -> int:
    """How many messages of this run are there."""
    count = 0
    async with connection.browser(place.destination, selector=place.mine) as browser:
        async for _ in browser:
            count += 1
    return count


def _left_behind(place: Place, error: BaseException) -> str:
    what = spelled(place.destination)
    if place.is_own:
        remedy = f"sterna delete queue {place.destination.name} --with-messages --yes"
        return describe("left", f"the bench's own {what}, with what it holds", remedy, error)
    return describe("left", f"messages of this bench in {what}", f"sterna bench sub {what}", error)
