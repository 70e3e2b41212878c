"""Whose a message is that an iteration handed out and the session acknowledges by itself.

It is in the hands of the task that asked for it (in the blocking face: of the thread), until that comes back for the
next one: then it is done with. Another task that asks, or closes the consumer, says nothing about it. One that has
ended well is done with what it had; one that failed or was cancelled is not, and its message is delivered again.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Final

Holder = object

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


class InHand:
    """What one consumer has handed out so, by holder. True while anybody has something."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Holder | None, int] = {}

    def __bool__(self) -> bool:
        return bool(self._held)

    def take(self, who: Holder | None, sequence: int) -> None:
        """`who` has it now."""
        self._held[who] = sequence

    def finished(self, who: Holder | None) -> list[int]:
        """What `who`, coming back, is done with, and what others were done with when they ended; forgotten here."""
        done = [one for one in self._held if one is who or _ended_well(one)]
        return [self._held.pop(one) for one in done]

    def sequences(self) -> list[int]:
        """Everything in anybody's hands."""
        return list(self._held.values())

    def forget(self, sequence: int) -> bool:
        """Whether this message was in somebody's hands; it is not any more."""
        for who, held in self._held.items():
            if held == sequence:
                del self._held[who]
                return True
        return False

    def clear(self) -> list[int]:
        """Forgets all; what there was."""
        held = list(self._held.values())
        self._held.clear()
        return held


def _ended_well(who: Holder | None) -> bool:
    if isinstance(who, asyncio.Task):
        return who.done() and not who.cancelled() and who.exception() is None
    return False  # how a thread has ended nobody can tell
