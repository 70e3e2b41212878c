"""What failed of messages that nobody waits for, kept until somebody asks: the next flush, or the connection's close.

Whoever sent them may have let go of their producer by then, or it is over, or was one that the SDK made for itself. So
a producer's failures outlive it: those of one that is over are its connection's to tell of.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sterna import errors

_KEPT: Final = 1000
#: So many producers that are over are told of by themselves; those before them together.
_OVER: Final = 100


class Failures:
    """Of the messages of `send_soon` those that failed since this was last taken: how many, and the first of them."""

    __slots__ = ("_count", "_kept")

    def __init__(self) -> None:
        self._kept: list[tuple[str, errors.SternaError]] = []
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, message_id: str, error: errors.SternaError) -> None:
        """One more has failed."""
        self._count += 1
        if len(self._kept) < _KEPT:
            self._kept.append((message_id, error))

    def take(self) -> errors.FlushError | None:
        """All of them, which are told of with this."""
        kept, count, self._kept, self._count = self._kept, self._count, [], 0
        return errors.FlushError.of(kept, count) if kept else None

    def take_over(self, other: Failures) -> None:
        """These are told of here from now on."""
        self._count += other._count
        self._kept += other._kept[: _KEPT - len(self._kept)]
        other._kept, other._count = [], 0


class Untold:
    """The failures of producers that are over; a connection and those that it has to other brokers share one."""

    def __init__(self) -> None:
        self._before = Failures()
        self._over: dict[Failures, None] = {}

    def add(self, failures: Failures) -> None:
        """A producer is over: what its own flush does not tell of is told of here."""
        if failures:
            self._over[failures] = None
            if len(self._over) > _OVER:
                oldest = next(iter(self._over))
                del self._over[oldest]
                self._before.take_over(oldest)

    def take(self) -> errors.FlushError | None:
        """All of them, which are told of with this."""
        for failures in self._over:
            self._before.take_over(failures)
        self._over.clear()
        return self._before.take()


def joined(failures: Iterable[errors.SternaError | None]) -> errors.SternaError | None:
    """One error for several, of which each may be None: the first, with what failed of all that are FlushErrors."""
    first: errors.SternaError | None = None
    for one in failures:
        if isinstance(first, errors.FlushError) and isinstance(one, errors.FlushError):
            first = errors.FlushError.of((*first.failures, *one.failures)[:_KEPT], first.count + one.count)
        else:
            first = first or one
    return first
