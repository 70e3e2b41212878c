"""Waiting for a condition, which is the only waiting that tests do. A fixed pause is either too short or too long."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_POLL_S = 0.005


@overload
async def eventually(check: Callable[[], Awaitable[T]], *, timeout_s: float = ..., what: str = ...) -> T: ...
@overload
async def eventually(check: Callable[[], T], *, timeout_s: float = ..., what: str = ...) -> T: ...
async def eventually(check: Callable[[], Any], *, timeout_s: float = 10.0, what: str = "condition") -> Any:
    """The first true value of `check`, which is asked again and again; AssertionError when time is up."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = check()
        value = await answer if isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout_s} s; last value: {value!r}")
        await asyncio.sleep(_POLL_S)


def eventually_blocking(
    check: Callable[[], T], *, timeout_s: float = 10.0, what: str = "condition", pause_s: float = _POLL_S
) -> T:
    """The same for code without an event loop, such as the SDK's blocking face or another process.

    `pause_s` between two checks, more where asking is dear.
    """
    deadline = time.monotonic() + timeout_s
    while not (value := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout_s} s; last value: {value!r}")
        time.sleep(pause_s)
    return value
