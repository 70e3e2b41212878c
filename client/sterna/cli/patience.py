"""How long `sterna send` waits for the broker's answers, where it was told how long.

Each answer is waited for on its own: from when its message went, or from the answer before. So a queue whose flow
control lets messages in slowly is waited for as long as it lets any in, however many are under way at once.
"""

import asyncio
import time  # noqa: TID251 - the command line is not simulated
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sterna.errors import SendTimeoutError

T = TypeVar("T")

UNCONFIRMED = "not confirmed within {}; what was sent may arrive all the same"
UNTAKEN = "the broker has not taken all within {}; what flow control holds back of reliable messages is lost"
_REMEDY = (
    "where flow control holds senders back (`sterna get queue NAME -o json`: flowControlledSessions), consumers, a "
    "purge or a larger flowControlBytes make room; with a longer --timeout it waits longer"
)


async def in_time(
    limit_s: float | None,
    since_s: Callable[[], float | None],
    subject: str,
    work: Awaitable[T],
    failure: Callable[[], str] = lambda: UNCONFIRMED,
) -> T:
    """What `work` gives, while nothing is waited for longer than `limit_s`; without a limit, whenever it does.

    `since_s` tells since when something is waited for, on the monotonic clock; None while there is nothing. `failure`
    is what to say when it took longer, with {} for how long.

    Raises:
        SendTimeoutError: it took longer. What is under way may arrive all the same.
    """
    if limit_s is None:
        return await work
    doing, watching = asyncio.ensure_future(work), asyncio.ensure_future(_overdue(limit_s, since_s))
    try:
        await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise SendTimeoutError(
            failure().format(f"{limit_s:g} s"),
            subject=subject,
            remedy=_REMEDY,
            retryable=True,
        )
    finally:
        doing.cancel()
        watching.cancel()


async def _overdue(limit_s: float, since_s: Callable[[], float | None]) -> None:
    """Returns once something has been waited for so long."""
    while True:
        since = since_s()
        # What begins meanwhile has at least as long.
        left_s = limit_s if since is None else since + limit_s - time.monotonic()
        if left_s <= 0:
            return
        await asyncio.sleep(left_s)
