"""Waiting for a condition, which is the only waiting that tests do. A fixed pause is either too short or too long."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar, overload

T = TypeVar("T")

_POLL_S = 0.005


@overload
async def eventually(
    check: Callable[[], Awaitable[T]], *, timeout_s: float = ..., what: str = ..., pause_max_s: float = ...
) -> T: ...
@overload
async def eventually(
    check: Callable[[], T], *, timeout_s: float = ..., what: str = ..., pause_max_s: float = ...
) -> T: ...
async def eventually(
    check: Callable[[], Any], *, timeout_s: float = 10.0, what: str = "condition", pause_max_s: float = _POLL_S
) -> Any:
    """The first true value of `check`, which is asked again and again; AssertionError when time is up.

    The pauses between two checks grow up to `pause_max_s`, which is more where asking is dear.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _POLL_S
    while True:
        answer = check()
        value = await answer if isawaitable(answer) else answer
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {timeout_s} s; last value: {value!r}")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, pause_max_s)


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


async def within(bound_s: float, attempt: Callable[[int], Awaitable[float]], *, tries: int = 5) -> None:
    """Asserts a promise that something takes no longer than `bound_s`, by the best of a few tries.

    A machine that does other things besides makes any one try slow; a defect makes all of them slow. `attempt` is given
    its number, waits with patience, and says how many seconds what was promised took.
    """
    took: list[float] = []
    while not took or (min(took) > bound_s and len(took) < tries):
        took.append(await attempt(len(took)))
    assert min(took) <= bound_s, f"each try took longer than {bound_s} s: {took}"
