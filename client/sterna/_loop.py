"""The event loop of programs that are ours to run: the command line, and the thread behind the blocking SDK.

uvloop, where it is installed (`pip install sterna[fast]`; the broker always has it): the loop's own work is a large
part of what a message costs, and uvloop halves it. Applications run whatever loop they like.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of the faster kind, if there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on the faster loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
