"""The brokers of a cluster, as one application's connection sees them.

A destination lives on one broker; opening it elsewhere is answered with MOVED and where to go. What the application
made then goes there by itself: there is one hidden connection to each broker that has something of it, and a *branch*
of each session that reaches over several. When a destination gets another home while it is used (its broker is being
emptied), its producers and consumers are told the same way, and follow.

Order and acknowledgement hold within each destination, as before. A transaction cannot reach over brokers: a
transacted session goes to the home of its first destination as a whole, and refuses others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

from sterna import errors
from sterna._failures import joined
from sterna._seeking import seek

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline

TEMPORARY_PREFIX: Final = "$TMP$."
#: How long those who search for a broker may ask where it is, before they dial again.
_ASKING_S: Final = 5.0


class Home(Protocol):
    """The connection to one broker, as the others of its application know it."""

    @property
    def lifeline(self) -> Lifeline:
        """What it lives on."""

    @property
    def connection(self) -> Any:
        """The face of it."""

    async def another(self, addresses: tuple[str, ...], client_id: str | None) -> Home:
        """A connection to another broker of the cluster, as the same client unless told otherwise."""

    def adopt(self, other: Home) -> None:
        """What happens to a connection that the application does not know of, it hears from this one."""

    async def close(self, *, failed: bool = False, timeout_s: float = 30.0) -> None:
        """Ends this connection alone."""


class Homes:
    """The root connection and those to other brokers; all of them share one of these."""

    def __init__(self, root: Home) -> None:
        self.root = root
        self._others: dict[tuple[str, ...], Home] = {}
        # One for each broker: one that does not answer must not hold up who looks for another.
        self._dialing: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()
        self._tasks: dict[asyncio.Task[None], None] = {}
        # From then on nobody would close what is dialled.
        self._is_closing = False

    @property
    def _open(self) -> list[Home]:
        """All that are open, the root first."""
        unique = dict.fromkeys([self.root, *self._others.values()])
        return [one for one in unique if one.lifeline.closed is None]

    @property
    def lifelines(self) -> list[Lifeline]:
        """Those of all that are open, the root's first."""
        return [one.lifeline for one in self._open]

    def of(self, lifeline: Lifeline) -> Home:
        """The connection with this lifeline."""
        return next((one for one in self._open if one.lifeline is lifeline), self.root)

    def named(self, broker: str) -> Lifeline | None:
        """That of the connection to the broker of this name, if there is one."""
        return next((one for one in self.lifelines if one.broker == broker), None)

    async def at(self, moved: errors.MovedError) -> Lifeline:
        """That of the connection to where something lives.

        Raises:
            UnreachableError: nobody answers there. Its broker may be starting anew, perhaps at another address: whoever
                was told of this one asks again, for as long as a broken connection would be tried.
            SternaError: it cannot be had.
        """
        addresses = self.root.lifeline.named(moved.addresses)
        if not addresses:
            raise moved
        lock = self._dialing.setdefault(addresses, asyncio.Lock())
        async with lock:
            return (await self._known_or_dialled(addresses)).lifeline

    async def seek(self, lost: Lifeline) -> None:
        """Asks by the others where that is now which lives on a connection that has broken, and cannot be restored.

        Its broker may have started anew at another address, which is tried next; or what it had may live on another one
        by now, and goes there.
        """
        others = [one for one in self.lifelines if one is not lost]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ASKING_S):
                for one in others:
                    with contextlib.suppress(errors.SternaError):
                        if one.connected and await seek(lost, by=one, others=others):
                            return

    async def _known_or_dialled(self, addresses: tuple[str, ...]) -> Home:
        for one in self._open:
            if one.lifeline.address in addresses:
                return one
        known = self._others.get(addresses)
        if known is not None and known.lifeline.closed is None:
            return known
        opened = self._others[addresses] = await self._dial(addresses)
        return opened

    async def _dial(self, addresses: tuple[str, ...]) -> Home:
        self._check()
        try:
            opened = await self.root.another(addresses, client_id=None)
        except errors.ClientIdInUseError:
            # Perhaps it is ourselves, connected to that broker under another of its addresses.
            probe = await self.root.another(addresses, client_id="")
            broker = probe.lifeline.broker
            await probe.close()
            same = self._to(broker)
            if same is None:
                raise
            same.lifeline.also_at(addresses)
            return same
        same = self._to(opened.lifeline.broker)
        if same is not None or self._is_closing:
            if same is not None:
                same.lifeline.also_at(addresses)
            await opened.close()
            self._check()
        if same is not None:
            return same
        self.root.adopt(opened)
        return opened

    def _to(self, broker: str) -> Home | None:
        return next((one for one in self._open if one.lifeline.broker == broker), None)

    def _check(self) -> None:
        if self._is_closing:
            raise errors.ClosedError("the connection was closed", subject="connection")

    def spawn(self, work: Coroutine[Any, Any, None], given_up: Callable[[], None]) -> asyncio.Task[None]:
        """Runs something that nobody waits for, until the connection is closed.

        `given_up` is called when it was cancelled, also before it had begun: nobody else would tell who waits.
        """

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.pop(task, None)
            if task.cancelled():
                given_up()

        task = asyncio.create_task(work, name="sterna-following")
        self._tasks[task] = None
        task.add_done_callback(done)
        return task

    async def close(self, *, failed: bool, timeout_s: float) -> errors.SternaError | None:
        """Ends the connections to other brokers, also those that are being dialled; the first failure of any.

        When it is cancelled all are over at once, the root too.
        """
        self._is_closing = True

        async def end(other: Home) -> errors.SternaError | None:
            try:
                await other.close(failed=failed, timeout_s=timeout_s)
            except errors.SternaError as error:
                return error
            return None

        try:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            # All at the same time, which they have together: several brokers may be away.
            failures = await asyncio.gather(*[end(other) for other in self._hidden])
        except asyncio.CancelledError:
            for one in [*self._hidden, self.root]:
                one.lifeline.drop(errors.ClosedError("the connection was closed", subject=one.lifeline.address))
            raise
        return joined(failures)

    @property
    def _hidden(self) -> list[Home]:
        return [one for one in dict.fromkeys(self._others.values()) if one is not self.root]
