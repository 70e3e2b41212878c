"""The bytes that a connection has in flight, and who waits for room; used by lanes, and bounded by their lifeline."""

from __future__ import annotations

from typing import Protocol

from sterna._machines.producing import Producing
from sterna._machines.publishing import InFlight


class Waiting(Protocol):
    """A lane whose senders wait for room."""

    machine: Producing

    def look_for_room(self) -> None:
        """There may be some."""

    @property
    def waits_for_flow(self) -> bool:
        """Whether a sender of its waits, and for nothing but room here."""

    @property
    def is_short(self) -> bool:
        """Whether it has not been given room that it waits for."""


class Flow(InFlight):
    """The bytes that a connection has in flight, all lanes together, and the lanes that wait for room, in line.

    What could only go without the bytes that are away does not keep others waiting: it stands aside until these are
    another number.
    """

    __slots__ = ("_aside", "waiting")

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.waiting: dict[Waiting, None] = {}
        self._aside: dict[Waiting, int] = {}

    def enter(self, lane: Waiting) -> None:
        """Has `lane` wait for its turn. When that comes, perhaps at once, it looks for room again."""
        if lane not in self.waiting and lane not in self._aside:
            self.waiting[lane] = None
            self._set_turn()
            self.wake()

    def leave(self, lane: Waiting) -> None:
        """Its turn is over, or it waits for nothing here any more. Whoever calls this calls `wake`."""
        self._aside.pop(lane, None)
        self.waiting.pop(lane, None)
        self._set_turn()

    def wake(self) -> None:
        """Something may have been taken off, or somebody may not wait any more: the first in line looks again."""
        if self._aside:
            for lane in [lane for lane, before in self._aside.items() if before != self.away]:
                del self._aside[lane]
                self.waiting[lane] = None
            self._set_turn()
        while self.waiting:
            first = next(iter(self.waiting))
            if not first.waits_for_flow:
                self.leave(first)
                continue
            first.look_for_room()
            if not first.is_short or self.bytes != self.away:
                return
            self.leave(first)
            self._aside[first] = self.away

    def _set_turn(self) -> None:
        first = next(iter(self.waiting), None)
        self.turn = None if first is None else first.machine
