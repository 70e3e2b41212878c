"""What the broker refuses for now, and a lane sends again: a destination that is being emptied takes nothing.

That is back-pressure, and no failure: nothing of it is kept there, so it is sent again, under the same numbers and in
its order, after a pause that grows. Meanwhile the lane sends nothing, and its senders wait as for a full window. It is
given up as late as reconnecting would be. Used by `_lane` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sterna import errors
from sterna._homes import pause_s
from sterna._surroundings import monotonic_s


class Held:
    """The numbers that were refused for now. `again` is called when it is time to send them again."""

    __slots__ = ("_again", "_numbers", "_since_s", "_timer", "_tries")

    def __init__(self, again: Callable[[list[int]], None]) -> None:
        self._again = again
        self._numbers: dict[int, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tries = 0
        self._since_s = 0.0

    @property
    def waits(self) -> bool:
        """Whether nothing is to be sent now."""
        return self._timer is not None

    def may_hold(self, error: errors.SternaError, give_up_after_s: float | None) -> bool:
        """Whether this refusal holds for now only, and it is not too late to try again."""
        if not isinstance(error, errors.UnavailableError) or not error.retryable:
            return False
        return not self._tries or give_up_after_s is None or monotonic_s() - self._since_s < give_up_after_s

    def hold(self, first: int, last: int) -> None:
        """These were refused."""
        for sequence in range(first, last + 1):
            self._numbers[sequence] = None
        if self._timer is None:
            if not self._tries:
                self._since_s = monotonic_s()
            self._tries += 1
            self._timer = asyncio.get_running_loop().call_later(pause_s(self._tries), self._due)

    def taken(self) -> None:
        """Something was taken: it is over."""
        self._tries = 0

    def clear(self) -> None:
        """Nothing is to be sent again from here: all that is unconfirmed is, elsewhere, or nothing ever."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._numbers.clear()

    def _due(self) -> None:
        self._timer = None
        numbers = sorted(self._numbers)
        self._numbers.clear()
        self._again(numbers)
