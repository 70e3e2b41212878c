"""The promise that an acknowledgement was dealt with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from sterna import errors


class Settled:
    """The promise that an acknowledgement was dealt with; shared by all that leave in one frame.

    Awaited, it is True when the broker took it, False when the delivery had become void before. Lazy acknowledgements
    leave when somebody waits for them: `hurry` sees to that.
    """

    __slots__ = ("_error", "_hurry", "_result", "_waiters", "is_doubtful")

    def __init__(self, result: bool | None = None, *, hurry: Callable[[], None] | None = None) -> None:
        self._hurry = hurry
        self._result = result
        self._error: errors.SternaError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        #: The broker has ended a consumer meanwhile that it is about: that it has no more to say of it is no proof.
        self.is_doubtful = False

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._result is not None or self._error is not None

    def settle(self, result: bool, error: errors.SternaError | None = None) -> None:
        """Makes the outcome known."""
        if error is None:
            self._result = result and not self.is_doubtful
        else:
            self._error = error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def __await__(self) -> Generator[object, None, bool]:
        if not self.done:
            if self._hurry is not None:
                self._hurry()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error
        return bool(self._result)
