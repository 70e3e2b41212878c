"""What a session has to acknowledge: ranges of sequence numbers by source, and the promise of an answer.

Sequence numbers mostly come in order, so a range that grows at its end is the fast case. A source is the broker's
number for the queue or subscription that a consumer takes from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable

from sterna import errors
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.modes import AcknowledgeMode

AT_ONCE = frozenset({AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK})
LAZY = frozenset({AcknowledgeMode.DUPS_OK, AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK})
#: Lazy acknowledgements leave when so many have gathered, or when their consumer runs dry.
LAZY_COUNT = 256
#: So many sources without a consumer are kept in the books.
SOURCES_SPARE = 16


class Ranges:
    """Sequence numbers of one source, gathered as ranges. `last` is the end of the one that grows, 0 when none does."""

    __slots__ = ("_done", "_first", "epoch", "last", "source")

    def __init__(self, source: int, epoch: int) -> None:
        self.source = source
        self.epoch = epoch
        self._first = self.last = 0
        self._done: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return self.last != 0

    def add(self, sequence: int) -> None:
        """Adds one number."""
        if sequence == self.last + 1 and self.last:
            self.last = sequence
            return
        if self.last:
            self._done.append((self._first, self.last))
        self._first = self.last = sequence

    def take(self) -> list[tuple[int, int]]:
        """The ranges gathered, which are forgotten here."""
        ranges = self._done
        if self.last:
            ranges.append((self._first, self.last))
        self._done = []
        self._first = self.last = 0
        return ranges


def ranges_of(sequences: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers in any order as ranges."""
    ranges: list[tuple[int, int]] = []
    for sequence in sorted(sequences):
        if ranges and ranges[-1][1] == sequence - 1:
            ranges[-1] = (ranges[-1][0], sequence)
        else:
            ranges.append((sequence, sequence))
    return ranges


def _proto_ranges(ranges: Iterable[tuple[int, int]]) -> list[pb.SequenceRange]:
    return [pb.SequenceRange(first=first, last=last if last != first else 0) for first, last in ranges]


def ack_set(source: int, ranges: Iterable[tuple[int, int]], epoch: int) -> pb.AckSet:
    """An AckSet."""
    return pb.AckSet(source=source, ranges=_proto_ranges(ranges), epoch=epoch)


def seen_set(source: int, sequences: Iterable[int]) -> pb.SeenSet:
    """A SeenSet."""
    return pb.SeenSet(source=source, ranges=_proto_ranges(ranges_of(sequences)))


class Settled:
    """The promise that an acknowledgement was dealt with; shared by all that leave in one frame.

    Awaited, it is True when the broker took it, False when the delivery had become void before. Lazy acknowledgements
    leave when somebody waits for them: `hurry` sees to that.
    """

    __slots__ = ("_error", "_hurry", "_result", "_waiters")

    def __init__(self, result: bool | None = None, *, hurry: Callable[[], None] | None = None) -> None:
        self._hurry = hurry
        self._result = result
        self._error: errors.SternaError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._result is not None or self._error is not None

    def settle(self, result: bool, error: errors.SternaError | None = None) -> None:
        """Makes the outcome known."""
        if error is None:
            self._result = result
        else:
            self._error = error
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def __await__(self) -> Generator[object, None, bool]:
        if not self.done:
            if self._hurry is not None:
                self._hurry()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error
        return bool(self._result)
