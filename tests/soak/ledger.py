"""What clients were told, and whether a store keeps it.

Every message has a key. Clients note what they asked for before they ask, and what they were told when they are told;
what they were never told is in doubt, and either outcome is right. What stands in the queues afterwards is judged by
that.
"""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """One store's life, over all its starts."""

    sent: set[str] = field(default_factory=set)
    confirmed: set[str] = field(default_factory=set)
    """Of them: whoever sent them was told that they are on disk."""

    refused: set[str] = field(default_factory=set)
    """Of the others: nothing of them is kept."""

    acknowledging: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)
    """Of them: the broker has said that it knows."""

    moves: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)
    """Transactions that took keys from one queue and sent them to another; whether the commit was answered."""

    moved: set[str] = field(default_factory=set)
    """Keys whose move was answered, in earlier cycles too."""

    last_confirmed: int = 0
    last_sent: int = 0
    """Values of the queue that keeps the last one alone."""

    def judge(self, stored: dict[str, list[str]]) -> list[str]:
        """What is wrong with what queues hold, by name: `plain`, `in`, `out`, `last`; `copies` and `durable`."""
        return [
            *self._once("plain", stored["plain"], "p"),
            *self._moved(stored["in"], stored["out"]),
            *self._once("copies", stored["copies"], "t"),
            *self._once("durable", stored["durable"], "t"),
            *self._last(stored["last"]),
        ]

    def settle(self) -> None:
        """What was judged is over. A transaction in doubt is decided; what it did not take may be taken by others."""
        self.moved |= {key for keys, is_told in self.moves if is_told for key in keys}
        self.moves.clear()

    def _once(self, queue: str, stored: list[str], kind: str) -> list[str]:
        """Confirmed and not taken: there, once. Acknowledged or refused: not there. Never sent: not there."""
        counts = Counter(stored)
        sent = {key for key in self.sent if key.startswith(kind)}
        taken = self.acknowledging if queue == "plain" else set()
        gone = (self.acknowledged if queue == "plain" else set()) | self.refused
        lost = sorted((self.confirmed & sent) - taken - counts.keys())
        return [
            *_told(f"{queue}: confirmed and lost", lost),
            *_told(f"{queue}: there twice", sorted(key for key, count in counts.items() if count > 1)),
            *_told(f"{queue}: there although it was acknowledged or refused", sorted(counts.keys() & gone)),
            *_told(f"{queue}: there and never sent", sorted(counts.keys() - sent)),
        ]

    def _moved(self, source: list[str], target: list[str]) -> list[str]:
        sent = {key for key in self.sent if key.startswith("m")}
        counts, targets = Counter(source) + Counter(target), set(target)
        certain = self.moved | {key for keys, is_told in self.moves if is_told for key in keys}
        torn = [keys for keys, _ in self.moves if 0 < len(targets.intersection(keys)) < len(keys)]
        return [
            *_told("in/out: confirmed and lost", sorted((self.confirmed & sent) - counts.keys())),
            *_told("in/out: there twice", sorted(key for key, count in counts.items() if count > 1)),
            *_told("in/out: committed and not moved", sorted(certain - targets)),
            *_told("in/out: there and never sent", sorted(counts.keys() - sent)),
            *_told("in/out: half of a transaction", [" ".join(keys) for keys in torn]),
        ]

    def _last(self, stored: list[str]) -> list[str]:
        if len(stored) > 1:
            return [f"last: holds {len(stored)}, at most 1"]
        if not stored:
            return [f"last: empty, {self.last_confirmed} was confirmed"] if self.last_confirmed else []
        value = int(stored[0])
        if not self.last_confirmed <= value <= self.last_sent:
            return [f"last: holds {value}, {self.last_confirmed} was confirmed and {self.last_sent} sent"]
        return []


def _told(what: str, keys: list[str]) -> list[str]:
    return [f"{what}: {len(keys)}, the first {keys[0]}"] if keys else []
