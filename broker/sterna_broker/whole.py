"""What happens whole or not at all, although whoever asked for it may go away in the middle.

A call is cancelled when its client loses patience or its connection, at whatever it is waiting for. What has begun in a
thread goes on all the same, so that a change would be kept on disk and given to nobody, or the other way round.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

T = TypeVar("T")
_log = structlog.get_logger(part="broker")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives. A cancellation is put off until it has ended; so is the release of locks around this."""
    task = asyncio.create_task(work, name="to-its-end")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled() and (failure := task.exception()) is not None:
        # Nobody is left who could be told.
        _log.warning("failed_after_its_caller_had_gone", error=str(failure) or repr(failure))
    raise cancelled
