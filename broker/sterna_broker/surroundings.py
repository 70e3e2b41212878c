"""What the broker takes from its surroundings besides network and disk: clocks, and numbers that nobody can foresee.

Nothing else in it reads a clock or draws a number (the linter holds that; the engine is told the time), so that a
simulation can put others in the place of `here`.
"""

import secrets
import time


class Surroundings:
    """The real ones."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds that only ever grow; the event loop's clock, and what the engine's deadlines are in."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """The same in seconds, as fine as it can be had."""
        return time.monotonic()

    def random_bytes(self, count: int) -> bytes:
        """So many random bytes."""
        return secrets.token_bytes(count)


here = Surroundings()
"""Those in use."""


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return here.wall_ms()


def monotonic_ms() -> int:
    """Milliseconds that only ever grow; the event loop's clock, and what the engine's deadlines are in."""
    return here.monotonic_ms()


def monotonic_s() -> float:
    """The same in seconds, as fine as it can be had."""
    return here.monotonic_s()


def random_bytes(count: int) -> bytes:
    """So many random bytes."""
    return here.random_bytes(count)


def random_hex(count: int) -> str:
    """So many random bytes, in hexadecimal digits."""
    return here.random_bytes(count).hex()
