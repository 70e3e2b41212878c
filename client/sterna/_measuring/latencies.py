"""A histogram of latencies, exact to one percent, cheap enough to record every message.

Used by `sterna bench` and the benchmarks. Values fall into buckets whose width grows with the value (seven binary
digits of each are kept), so that a run of any length takes little memory and the far percentiles stay right. It does
not correct anything by itself: whoever records measures from the *intended* send time where there is a schedule
(`schedules`), which is what keeps a stalled sender from hiding the stall.
"""

from collections.abc import Iterable
from typing import Final

# Kept digits: a bucket is at most 1/128 of its value wide.
_DIGITS: Final = 7
_PERCENTILES: Final = {"p50": 50.0, "p99": 99.0, "p999": 99.9, "p9999": 99.99}


class Latencies:
    """Latencies in nanoseconds, by logarithmic buckets."""

    __slots__ = ("_buckets", "count", "max_ns", "total_ns")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0

    def record(self, latency_ns: int, times: int = 1) -> None:
        """Count a latency, or `times` of the same; less than 0 (a clock's jitter) counts as 0."""
        value = max(latency_ns, 0)
        shift = max(value.bit_length() - _DIGITS, 0)
        key = (value >> shift) << shift
        self._buckets[key] = self._buckets.get(key, 0) + times
        self.count += times
        self.total_ns += value * times
        self.max_ns = max(self.max_ns, value)

    def merge(self, other: "Latencies") -> None:
        """Add what another one counted."""
        for key, times in other._buckets.items():
            self._buckets[key] = self._buckets.get(key, 0) + times
        self.count += other.count
        self.total_ns += other.total_ns
        self.max_ns = max(self.max_ns, other.max_ns)

    def percentile(self, percent: float) -> float:
        """The latency in microseconds that `percent` of all were at most; 0 when nothing was recorded."""
        wanted = self.count * percent / 100.0
        seen = 0
        for key in sorted(self._buckets):
            seen += self._buckets[key]
            if seen >= wanted:
                shift = max(key.bit_length() - _DIGITS, 0)
                # The middle of the bucket, but never more than was ever seen.
                return min(key + (1 << shift) / 2 - 0.5, float(self.max_ns)) / 1_000
        return self.max_ns / 1_000

    def summary(self) -> dict[str, float]:
        """Percentiles, mean and maximum in microseconds, by their usual names."""
        if not self.count:
            return {}
        named = {name: round(self.percentile(percent), 1) for name, percent in _PERCENTILES.items()}
        return {**named, "max": round(self.max_ns / 1_000, 1), "mean": round(self.total_ns / self.count / 1_000, 1)}

    def dump(self) -> list[tuple[int, int]]:
        """Buckets and their counts, to carry between processes."""
        return [*sorted(self._buckets.items()), (-1, self.max_ns)]

    @classmethod
    def load(cls, buckets: Iterable[tuple[int, int]]) -> "Latencies":
        """What `dump` of another process gave."""
        latencies = cls()
        for key, times in buckets:
            if key >= 0:
                latencies.record(key, times)
            else:
                latencies.max_ns = max(latencies.max_ns, times)
        return latencies
