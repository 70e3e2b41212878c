"""Slows down guessing: so many wrong passwords from one host for one user, then a few a minute.

By host and user together: many clients may share a host's address (a gateway, a node of the cluster), and one of them
that has an old password must not lock out the others; and nobody can lock a user out from elsewhere. What guessing
costs the broker is bounded elsewhere (`verification`).
"""

from collections import OrderedDict
from collections.abc import Callable

BURST = 10
REFILL_MS = 6_000
ENTRIES_MAX = 10_000

Key = tuple[str, str]


class FailureThrottle:
    """Counts failures in buckets that empty with time. `monotonic_ms` is its clock."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        # What remains of failures, in milliseconds that have to pass, and when that was reckoned; oldest first.
        self._debts: OrderedDict[Key, tuple[int, int]] = OrderedDict()

    def wait_ms(self, host: str, user: str) -> int:
        """How long until another attempt may be made; 0: now."""
        return max(0, self._debt((host, user)) - (BURST - 1) * REFILL_MS)

    def failed(self, host: str, user: str) -> None:
        """Counts a failure."""
        key = (host, user)
        debt = min(self._debt(key) + REFILL_MS, BURST * REFILL_MS)
        self._debts[key] = (debt, self._monotonic_ms())
        self._debts.move_to_end(key)
        if len(self._debts) > ENTRIES_MAX:
            self._debts.popitem(last=False)

    def _debt(self, key: Key) -> int:
        debt, reckoned_ms = self._debts.get(key, (0, 0))
        return max(0, debt - (self._monotonic_ms() - reckoned_ms))
