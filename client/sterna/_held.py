"""What the broker refuses for now, and a lane sends again: a destination that is being emptied takes nothing.

That is back-pressure, and no failure: nothing of it is kept there, so it is sent again, under the same numbers and in
its order, after a pause that grows: this one. Meanwhile the lane sends nothing, and its senders wait as for a full
window; what is to be sent again, its machine knows. It is given up as late as reconnecting would be. Used by `_lane`
alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sterna import errors
from sterna._pauses import pause_s
from sterna._surroundings import monotonic_s


class Held:
    """The pauses between one refusal for now and the next. `again` is called when one is over."""

    __slots__ = ("_again", "_since_s", "_timer", "_tries")

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again
        self._timer: asyncio.TimerHandle | None = None
        self._tries = 0
        self._since_s = 0.0

    def may_hold(self, error: errors.SternaError, give_up_after_s: float | None) -> bool:
        """Whether this refusal holds for now only, and it is not too late to try again."""
        if not errors.is_for_now(error):
            return False
        return not self._tries or give_up_after_s is None or monotonic_s() - self._since_s < give_up_after_s

    def hold(self) -> None:
        """Something was refused: a pause begins, where there is none."""
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

    def _due(self) -> None:
        self._timer = None
        self._again()
