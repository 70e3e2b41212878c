"""What the audits take from their surroundings besides files: clocks, and waiting.

Nothing else in this room reads a clock (the linter holds that), so that a test can put its own in the place of `here`.
"""

import time


class Surroundings:
    """The real ones."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        """Holds the calling thread up."""
        time.sleep(seconds)


here = Surroundings()
"""Those in use."""


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return here.wall_ms()


def monotonic_s() -> float:
    """Seconds that only ever grow."""
    return here.monotonic_s()


def wait(seconds: float) -> None:
    """Holds the calling thread up."""
    here.wait(seconds)
