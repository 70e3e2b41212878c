"""The bytes that a connection has in flight, and who waits for room; used by lanes, and bounded by their lifeline."""

from __future__ import annotations

from typing import Protocol

from sterna._machines.publishing import InFlight


class Waiting(Protocol):
    """Who waits for room."""

    def look_for_room(self) -> None:
        """There may be some."""

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody still waits there."""


class Flow(InFlight):
    """The bytes that a connection has in flight, all lanes together, and who waits for room."""

    __slots__ = ("waiting",)

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.waiting: dict[Waiting, None] = {}

    def wake(self) -> None:
        """Something may have been taken off: wakes those who waited for that."""
        if self.waiting and self.bytes < self.limit:
            waiting, self.waiting = self.waiting, {}
            for one in waiting:
                one.look_for_room()
                if one.is_waited_for:
                    self.waiting[one] = None  # what there is does not do for its first: it is looked at again
