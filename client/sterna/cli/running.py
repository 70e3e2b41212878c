"""Running what a command does until it is done, or until a signal ends it.

SIGTERM ends a command as Ctrl-C does: what is under way is cancelled, says how far it came and leaves no mess behind.
Without this the process would be gone at once, and whoever ended it could not know what has been confirmed. As with
Ctrl-C, a second signal ends the waiting for the broker's answers as well.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from sterna._loop import new_event_loop

T = TypeVar("T")


class Terminated(SystemExit):
    """SIGTERM ended the command; the exit code is that of a shell's child that a signal has ended."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


#: What a signal makes of a command that is under way.
INTERRUPTIONS = (KeyboardInterrupt, Terminated)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on the faster loop, and SIGTERM cancels it, too.

    Raises:
        KeyboardInterrupt: Ctrl-C ended it.
        Terminated: SIGTERM did. Further ones are ignored then: what is left is to say how far it came.
    """
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if threading.current_thread() is not threading.main_thread():
            return runner.run(main)
        loop = runner.get_loop()
        former = signal.getsignal(signal.SIGTERM)
        ending = _Ending()
        loop.add_signal_handler(signal.SIGTERM, ending.cancel)
        try:
            result = runner.run(ending.watched(main))
        except asyncio.CancelledError:
            if not ending.is_asked:
                raise
            former = signal.SIG_IGN
            raise Terminated from None
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, former)
        return result


class _Ending:
    """What SIGTERM cancels."""

    def __init__(self) -> None:
        self.is_asked = False
        self._task: asyncio.Task[Any] | None = None

    async def watched(self, main: Coroutine[Any, Any, T]) -> T:
        self._task = asyncio.current_task()
        return await main

    def cancel(self) -> None:
        self.is_asked = True
        if self._task is not None:
            self._task.cancel()
