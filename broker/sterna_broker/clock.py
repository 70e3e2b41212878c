"""The two clocks that the engine is told, in milliseconds. The engine itself reads none."""

import time


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Milliseconds that only ever grow; the engine's deadlines are in these."""
    return time.monotonic_ns() // 1_000_000
