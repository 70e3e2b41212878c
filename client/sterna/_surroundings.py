"""What the SDK takes from its surroundings besides the network: two clocks, and numbers that nobody can foresee.

Nothing else in it reads a clock or draws a number (the linter holds that), so that a simulation can put others in the
place of `here` and have everything follow from one seed. The event loop's own clock is the loop's.
"""

from __future__ import annotations

import random
import secrets
import time


class Surroundings:
    """The real ones."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()

    def uniform(self, low: float, high: float) -> float:
        """A number between two others."""
        return random.uniform(low, high)

    def random_bits(self, count: int) -> int:
        """So many random bits, as a number."""
        return secrets.randbits(count)


#: Those in use.
here = Surroundings()


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return here.wall_ms()


def monotonic_s() -> float:
    """Seconds that only ever grow."""
    return here.monotonic_s()


def uniform(low: float, high: float) -> float:
    """A number between two others."""
    return here.uniform(low, high)


def random_bits(count: int) -> int:
    """So many random bits, as a number."""
    return here.random_bits(count)
