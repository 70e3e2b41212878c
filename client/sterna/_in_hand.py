"""In whose hands a message is: those of the task that asked for it, in the blocking face those of the thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from typing import Final

from sterna._machines.consuming import Holder

#: Set by the blocking face: the thread on whose behalf a task runs.
HOLDER: Final[contextvars.ContextVar[Holder | None]] = contextvars.ContextVar("sterna-holder", default=None)


def holder() -> Holder | None:
    """Who asks: a thread of the blocking face, or the task."""
    if (named := HOLDER.get()) is not None:
        return named
    try:
        return asyncio.current_task()
    except RuntimeError:
        return threading.current_thread()  # the blocking face asks from outside of the loop


async def standing_for(who: Holder | None, closes: Callable[[], Awaitable[None]]) -> None:
    """Closes something on behalf of `who`, though a time limit around it may run that in a task of its own."""
    told = HOLDER.set(who)
    try:
        await closes()
    finally:
        HOLDER.reset(told)


def has_ended_well(who: Holder | None) -> bool:
    """Whether whoever has a message has done what it had to do with it."""
    if isinstance(who, asyncio.Task):
        return who.done() and not who.cancelled() and who.exception() is None
    return False  # how a thread has ended nobody can tell


def has_ended(who: Holder | None) -> bool:
    """Whether whoever has a message is there no more, and will not be done with it."""
    if isinstance(who, asyncio.Task):
        return who.done()
    return isinstance(who, threading.Thread) and not who.is_alive()
