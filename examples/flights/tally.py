"""Counting keys: what was sent to each place, what came out of it, and what that proves.

Nothing is inferred from totals. Every flight has a key; for each place (a subscription or a queue) the tally knows
which keys must arrive, which did, how often, and whether a second time was announced by the redelivered flag.
"""

from dataclasses import dataclass, field


@dataclass
class Tally:
    """The books of one place that flights are taken from.

    Args:
        name: as the table shows it.
        expected: for each flight, by index, whether it must come here (1) or not (0).
    """

    name: str
    expected: bytearray
    accepted: bytearray = field(init=False)
    undelivered: bytearray = field(init=False)
    left: set[int] = field(default_factory=set)
    deliveries: int = 0
    redelivered: int = 0
    unflagged_duplicates: int = 0
    strangers: int = 0
    _seen: bytearray = field(init=False)
    _accepted_count: int = 0
    _undelivered_count: int = 0

    def __post_init__(self) -> None:
        self.accepted = bytearray(len(self.expected))
        self.undelivered = bytearray(len(self.expected))
        self._seen = bytearray(len(self.expected))

    @property
    def expected_count(self) -> int:
        """How many flights must come here."""
        return self.expected.count(1)

    @property
    def accepted_count(self) -> int:
        """How many different flights came here and were accepted."""
        return self._accepted_count

    @property
    def undelivered_count(self) -> int:
        """How many different flights the broker gave up and put aside."""
        return self._undelivered_count

    def delivered(self, index: int, *, flagged: bool, accept: bool = True) -> None:
        """A flight was handed out. One that was handed out before must say so by its redelivered flag."""
        self.deliveries += 1
        if not self.expected[index]:
            self.strangers += 1
        if flagged:
            self.redelivered += 1
        elif self._seen[index]:
            self.unflagged_duplicates += 1
        self._seen[index] = 1
        if accept and not self.accepted[index]:
            self.accepted[index] = 1
            self._accepted_count += 1

    def put_aside(self, index: int, *, flagged: bool) -> None:
        """A flight was found among the undelivered."""
        if not self.undelivered[index]:
            self.undelivered[index] = 1
            self._undelivered_count += 1
        elif not flagged:
            self.unflagged_duplicates += 1

    def is_complete(self) -> bool:
        """Every flight that must come here came, or was put aside."""
        return self._accepted_count + self._undelivered_count >= self.expected_count

    def lost(self, confirmed: bytearray) -> list[int]:
        """The flights whose sending was confirmed, that must come here, and that are nowhere."""
        return [
            index
            for index, due in enumerate(self.expected)
            if due
            and confirmed[index]
            and not self.accepted[index]
            and not self.undelivered[index]
            and index not in self.left
        ]
