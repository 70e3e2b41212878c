"""A consumer's listener: messages handed to a function of the application (EMS-CLI-A27).

One at a time, or as many at once as its `concurrency` says: each of so many tasks takes a message, and the next one
when the listener is done with that.

When it raises, the message is given back, counts as delivered and comes again; the connection's `on_error` hears of it.
Where its transaction comes to nothing, time after time, pauses grow between: what the broker cannot do for now, a queue
that is being emptied say, would have it do the same a thousand times a second.
When nothing more will be handed to it although the application has not closed anything, it is told that, too.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from sterna import errors
from sterna._in_hand import HOLDER, holder
from sterna._machines.consuming import Holder
from sterna._pauses import pause_s
from sterna.destinations import Destination
from sterna.events import logger
from sterna.messages import Message
from sterna.modes import AcknowledgeMode

if TYPE_CHECKING:
    from sterna._parts import Part

#: A function or coroutine function of one message.
Listener = Callable[[Message], Any]


#: Who waits until listeners are done with what they have, and for whose tasks.
_WAITS: Final[dict[Holder | None, list[asyncio.Task[None]]]] = {}


def _waits_for(one: Holder | None, other: Holder | None) -> bool:
    """Whether `one` goes on when `other` does."""
    return any(each is other or _waits_for(each, other) for each in _WAITS.get(one, ()))


class Listened(Protocol):
    """The consumer, as its listener knows it."""

    part: Part
    is_left: bool
    closed: errors.SternaError | None
    destination: Destination


class Listening:
    """The tasks that feed one listener."""

    def __init__(
        self,
        feed: Listened,
        take: Callable[[], Coroutine[Any, Any, Message]],
        listener: Listener,
        concurrency: int = 1,
    ) -> None:
        #: Those of which the listener has a message at this moment.
        self.busy: set[asyncio.Task[None]] = set()
        self._feed = feed
        self._take = take
        self._has_ended = False
        self._tasks = [
            asyncio.create_task(self._run(listener), name="sterna-listener") for _ in range(max(concurrency, 1))
        ]

    @property
    def is_busy(self) -> bool:
        """Whether the listener has a message at this moment."""
        return bool(self.busy)

    @property
    def is_current(self) -> bool:
        """Whether it is the listener that asks, in the blocking face from a thread of its own."""
        return holder() in self._tasks

    def stop(self) -> None:
        """The listener gets nothing more."""
        for task in self._tasks:
            if task not in self.busy:
                task.cancel()

    async def end(self) -> None:
        """Lets the listener finish with what it has; it gets nothing more."""
        self.stop()
        # Two listeners may each close what the other one belongs to.
        who = holder()
        tasks = [one for one in self._tasks if not _waits_for(one, who)]
        if not tasks:
            return
        _WAITS[who] = tasks
        try:
            # Not gathered: whoever is cancelled here leaves the listener its message.
            await asyncio.wait(tasks)
        finally:
            _WAITS.pop(who, None)

    async def _run(self, listener: Listener) -> None:
        HOLDER.set(None)  # this task has what the listener is given, whoever made it
        task = asyncio.current_task()
        assert task is not None
        in_vain = 0
        while True:
            if in_vain:
                await asyncio.sleep(pause_s(in_vain))
            try:
                message = await self._take()
                self.busy.add(task)
            except errors.TransactionRolledBackError as error:
                # What the listener has done in it so far comes to nothing; it is told so, and gets everything again.
                self._feed.part.lifeline.report(error)
                if not await self._rolled_back():
                    return
                in_vain += 1
                continue
            except (StopAsyncIteration, errors.SternaError):
                self._ended()
                return
            try:
                outcome = listener(message)
                if inspect.isawaitable(outcome):
                    await outcome
                in_vain = 0
            except asyncio.CancelledError as error:
                if task.cancelling():
                    raise
                self._failed(message, error)  # the listener's own: it awaited what was cancelled
            except Exception as error:  # noqa: BLE001 - whatever the application's listener raises is reported
                self._failed(message, error)
                in_vain = in_vain + 1 if isinstance(error, errors.TransactionRolledBackError) else 0
            finally:
                self.busy.discard(task)

    async def _rolled_back(self) -> bool:
        try:
            await self._feed.part.session.rollback()
        except errors.SternaError:
            self._ended()
            return False
        return True

    def _ended(self) -> None:
        """Nothing is handed to the listener any more. Where the application did not ask for that, it is told."""
        feed = self._feed
        if feed.is_left or feed.closed is None or self._has_ended:
            return
        self._has_ended = True
        where = feed.destination
        cause = f"the listener of {where} has ended, and will not go on by itself: {feed.closed.cause}"
        error = errors.ClosedError(cause, subject=str(where), remedy="open a consumer again")
        error.__cause__ = feed.closed
        logger.error("%s", error)
        if feed.part.lifeline.on_error:
            feed.part.lifeline.on_error.emit(error)

    def _failed(self, message: Message, error: BaseException) -> None:
        part = self._feed.part
        part.lifeline.report(error)
        if part.state.transacted or part.state.mode is AcknowledgeMode.NONE or part.closed is not None:
            return
        try:
            message.release()
        except errors.NotAllowedError:
            return  # the listener had settled it before it failed
