"""Sequence numbers as ranges. They mostly come in order, so a range that grows at its end is the fast case."""

from __future__ import annotations

from collections.abc import Iterable

from sterna._proto.sterna.v1 import messaging_pb2 as pb


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
