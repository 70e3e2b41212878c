"""What clients were told, and whether a store keeps it.

Every message has a key. Clients note what they asked for before they ask, and what they were told when they are told;
what they were never told is in doubt, and either outcome is right. What stands in the queues afterwards is judged by
that, and by what the broker reported as lost.
"""

from collections import Counter
from dataclasses import dataclass, field

# So many keys one lost record can take with it: that of a transaction.
TRANSACTION_MAX = 8
# The queues that are judged alike: by the letter that begins their keys, and whether they are on disk.
_QUEUES = {"plain": "p", "again": "r", "copies": "t", "durable": "t", "fleeting": "v"}
_TAKEN_FROM = ("plain", "fleeting")


@dataclass
class Verdict:
    """What is wrong with what a store holds, of three kinds."""

    lost: dict[str, list[str]] = field(default_factory=dict)
    """Confirmed and missing, by queue: reported losses explain as many."""

    undone: dict[str, list[str]] = field(default_factory=dict)
    """An end that is not there: a reported loss explains it, of a record of an acknowledgement or of a commit."""

    never: dict[str, list[str]] = field(default_factory=dict)
    """What nothing explains."""

    gone: list[str] = field(default_factory=list)
    """Subscriptions that are not there any more."""

    def told(self, reported: int | None) -> list[str]:
        """The faults that are left when so many records were reported as lost; None: unknown how many."""
        faults = _told(self.never)
        missing = _told({f"{queue}: confirmed and lost": keys for queue, keys in self.lost.items()})
        if reported == 0:
            return [*faults, *missing, *_told(self.undone), *_told({"gone": self.gone})]
        lost = {key for keys in self.lost.values() for key in keys}
        moved = sum(key.startswith("m") for key in lost)
        records = len(lost) - moved + -(-moved // TRANSACTION_MAX)
        if reported is not None and records > reported:
            faults += [f"{reported} records were reported as lost: {fault}" for fault in missing]
        return faults


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

    seen: set[str] = field(default_factory=set)
    """What a consumer was handed; it comes again with its flag alone."""

    unflagged: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    """Keys that came again without their flag, and after the broker had said that it knows of their end."""

    def receive(self, key: str, *, flagged: bool) -> None:
        """A consumer was handed it."""
        if key in self.seen and not flagged:
            self.unflagged.append(key)
        if key in self.acknowledged or key in self.moved:
            self.late.append(key)
        self.seen.add(key)

    def settle(self) -> None:
        """What was judged is over. A transaction in doubt is decided; what it did not take may be taken by others."""
        self.moved |= {key for keys, is_told in self.moves if is_told for key in keys}
        self.moves.clear()

    def judge(self, stored: dict[str, list[str]], reported: int | None = 0) -> list[str]:
        """What is wrong with what queues hold, by name, when so many records were reported as lost.

        Names are `plain`, `fleeting`, `in`, `out`, `again`, `last`; `copies` and `durable` of the topic; `undelivered`.
        """
        return self.verdict(stored).told(reported)

    def verdict(self, stored: dict[str, list[str]]) -> Verdict:
        """All that is wrong with it."""
        verdict = Verdict(gone=stored.get("gone", []))
        verdict.never["comes again without its flag"] = self.unflagged
        verdict.undone["comes after it was acknowledged or moved"] = self.late
        for queue, letter in _QUEUES.items():
            self._once(verdict, queue, stored, letter)
        self._moved(verdict, stored)
        self._last(verdict, stored)
        return verdict

    def _once(self, verdict: Verdict, queue: str, stored: dict[str, list[str]], letter: str) -> None:
        """Confirmed and not taken: there, once. Acknowledged or refused: not there. Never sent: not there."""
        counts = Counter(stored[queue])
        sent = {key for key in self.sent if key.startswith(letter)}
        taken = self.acknowledging if queue in _TAKEN_FROM else set()
        gone = self.acknowledged if queue in _TAKEN_FROM else set()
        # What was put aside is there, though elsewhere.
        lost = (self.confirmed & sent) - taken - counts.keys() - set(stored["undelivered"])
        if not (verdict.gone and queue == "durable"):
            # With the record of a subscription all that it held.
            verdict.lost[queue] = sorted(lost)
        verdict.never[f"{queue}: there twice"] = sorted(key for key, count in counts.items() if count > 1)
        verdict.undone[f"{queue}: there although it was acknowledged"] = sorted(counts.keys() & gone)
        verdict.never[f"{queue}: there although it was refused"] = sorted(counts.keys() & self.refused)
        verdict.never[f"{queue}: there and never sent"] = sorted(counts.keys() - sent)

    def _moved(self, verdict: Verdict, stored: dict[str, list[str]]) -> None:
        source, target, aside = stored["in"], stored["out"], set(stored["undelivered"])
        sent = {key for key in self.sent if key.startswith("m")}
        counts, targets = Counter(source) + Counter(target), set(target) | aside
        certain = self.moved | {key for keys, is_told in self.moves if is_told for key in keys}
        torn = [keys for keys, _ in self.moves if 0 < len(set(target).intersection(keys)) < len(set(keys) - aside)]
        verdict.lost["in/out"] = sorted((self.confirmed & sent) - counts.keys() - aside)
        for queue in ("in", "out"):
            twice = sorted(key for key, count in Counter(stored[queue]).items() if count > 1)
            verdict.never[f"{queue}: there twice"] = twice
        verdict.undone["in/out: there twice"] = sorted(set(source) & set(target))
        verdict.undone["in/out: committed and not moved"] = sorted(certain - targets)
        verdict.undone["in/out: half of a transaction"] = [" ".join(keys) for keys in torn]
        verdict.never["in/out: there although it was refused"] = sorted(counts.keys() & self.refused)
        verdict.never["in/out: there and never sent"] = sorted(counts.keys() - sent)

    def _last(self, verdict: Verdict, stored: dict[str, list[str]]) -> None:
        values = [int(value) for value in stored["last"]]
        if len(values) > 1:
            verdict.undone["last: holds more than one"] = [str(value) for value in values]
        values += [int(key) for key in stored["undelivered"] if key.isdigit()]
        if not values and self.last_confirmed:
            verdict.undone["last: empty although one was confirmed"] = [str(self.last_confirmed)]
        if values and max(values) < self.last_confirmed:
            verdict.undone["last: older than what was confirmed"] = [str(max(values))]
        if values and max(values) > self.last_sent:
            verdict.never["last: never sent"] = [str(max(values))]


def _told(faults: dict[str, list[str]]) -> list[str]:
    return [f"{what}: {len(keys)}, the first {keys[0]}" for what, keys in faults.items() if keys]
