"""What the client takes from its surroundings besides the network: a clock, and numbers that nobody can foresee.

Nothing else in it reads a clock or draws a number (the linter holds that), so that a simulation can put others in the
place of `here`.
"""

import secrets
import time


class Surroundings:
    """The real ones."""

    def monotonic_s(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()

    def random_bits(self, count: int) -> int:
        """So many random bits, as a number."""
        return secrets.randbits(count)


here = Surroundings()
"""Those in use."""


def monotonic_s() -> float:
    """Seconds that only ever grow."""
    return here.monotonic_s()


def random_bits(count: int) -> int:
    """So many random bits, as a number."""
    return here.random_bits(count)


def random_hex(count: int) -> str:
    """So many random bytes, in hexadecimal digits."""
    return f"{here.random_bits(count * 8):0{count * 2}x}"
