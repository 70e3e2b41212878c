"""When each message of an open-loop load is due.

A load with a rate sends by the clock, not by the answers: message number n is due at start + n / rate, whether or not
those before it are done. Latency counted from that moment contains the wait that a stalled system causes for everybody
behind the stall; counted from the actual send it would be left out ("coordinated omission").
"""

import time  # noqa: TID251 - the command line is not simulated
from dataclasses import dataclass, field


@dataclass(slots=True)
class Schedule:
    """Message numbers to due times, at `rate` a second; times are those of `time.monotonic_ns`."""

    rate: float
    start_ns: int = field(default_factory=time.monotonic_ns)

    def due_ns(self, number: int) -> int:
        """When message `number` (from 0) is due."""
        return self.start_ns + int(number * 1e9 / self.rate)

    def due_count(self, now_ns: int) -> int:
        """How many messages are due up to now."""
        elapsed_ns = now_ns - self.start_ns
        return int(elapsed_ns * self.rate / 1e9) + 1 if elapsed_ns >= 0 else 0

    def wait_s(self, number: int, now_ns: int) -> float:
        """How long until message `number` is due, in seconds; 0 when it already is."""
        return max(self.due_ns(number) - now_ns, 0) / 1e9
