"""A producer's machine beside a model of the broker, for the tests that walk and enumerate what may happen to both.

The model keeps what the contract says and no more: each number of an incarnation once, numbers that follow on but for
those that were said to be left out, nothing beyond the credit. What was told of each message is compared with it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from sterna import errors
from sterna._machines.producing import OPEN, Entry, Opened, Outcomes, Producing, State
from sterna._machines.publishing import InFlight, Outbox, Run

#: What a message of the story takes; all are of one size.
SIZE: Final = 4


class Broker:
    """What one broker has of one producer."""

    def __init__(self, name: str) -> None:
        self.name = name
        #: By incarnation: what is stored under which number, and which numbers are settled without being stored.
        self.known: dict[int, dict[int, bytes]] = {}
        self.refused: dict[int, set[int]] = {}


class Story:
    """One producer's machine, the link it has or not, and the brokers it came by."""

    def __init__(self, credit: int = 0) -> None:
        self.machine = Producing(1, InFlight(1 << 20), window=1 << 16, keeps=True)
        self.broker = Broker("one")
        self.brokers = [self.broker]
        self.credit, self.granted, self.published = credit, 0, 0
        self.incarnations = 0
        self.runs: list[Run] = []
        #: What was written and has not arrived, and what has arrived and was not confirmed.
        self.wire: deque[tuple[int, bytes]] = deque()
        self.taken: list[int] = []
        self.expected = 1
        self.left_out: set[int] = set()
        self.given: list[bytes] = []
        #: The one word that was said of each message.
        self.told: dict[bytes, str] = {}
        self.highest = 0
        #: What is stored where no number leads to it any more.
        self.elsewhere: Counter[bytes] = Counter()
        #: Numbers that come again on this link, out of their turn.
        self.put_off_numbers: set[int] = set()

    # --- What the application does

    def give(self, count: int = 3) -> bool:
        """Some messages, as far as there is room."""
        if self.machine.closed is not None:
            return False
        for number in range(count):
            if not self.machine.has_room(SIZE):
                return number > 0
            payload = b"%04d" % len(self.given)
            self.given.append(payload)
            self.machine.give(payload, settle=payload)
        self._carry()
        return True

    def close(self) -> bool:
        """The application ends it."""
        if self.machine.closed is not None:
            return False
        self._tell(self.machine.close(errors.ClosedError("over")), "closed")
        self._drop()
        return True

    # --- What happens to links

    def open(self) -> bool:
        """On a link to the broker where it is now."""
        machine = self.machine
        if machine.state in OPEN or machine.closed is not None:
            return False
        known = machine.opening()
        if known is not None and known.incarnation not in self.broker.known:
            self._tell(machine.forgotten(), "in doubt")
            known = None
        if known is None:
            self.incarnations += 1
            incarnation, self.expected, self.left_out = self.incarnations, 1, set()
            self.broker.known[incarnation], self.broker.refused[incarnation] = {}, set()
            self.highest = 0
        else:
            incarnation, self.expected = known.incarnation, known.first_unconfirmed
            self.left_out = {one for first, last in known.left_out for one in range(first, last + 1)}
        self.granted, self.published = self.credit * SIZE, 0
        last = max(self.broker.known[incarnation], default=0)
        opened = Opened(incarnation, b"token", "ID:", last, 0, self.granted)
        machine.opened(opened, 7, Outbox(), anew=known is None)
        self._carry()
        return True

    def lose(self) -> bool:
        """The link breaks; what is on the wire goes with it, and every word of the broker that was not said."""
        if self.machine.state not in OPEN:
            return False
        self._drop()
        self.machine.lost()
        return True

    def forget(self) -> bool:
        """The broker comes back without its knowledge of producers."""
        if not self.broker.known:
            return False
        self.lose()
        for kept in self.broker.known.values():
            self.elsewhere.update(kept.values())
        self.broker.known.clear()
        return True

    def move(self) -> bool:
        """The broker gives the destination away, and says so: over the link, or when it is opened there again."""
        machine = self.machine
        if machine.closed is not None or not machine.incarnation:
            return False
        if machine.state in OPEN:
            # All that it has kept is confirmed before; what comes later is refused as sent to none.
            self._confirm(self.taken)
        self._drop()
        self._tell(machine.moved(), "in doubt")
        self.broker = Broker(f"broker {len(self.brokers)}")
        self.brokers.append(self.broker)
        machine.transfer(machine.id + 1, InFlight(1 << 20))
        return True

    # --- What the broker does

    def take(self, count: int = 1 << 30) -> bool:
        """Some of what is on the wire arrives, and is kept; its confirmation is still to come."""
        if not self.wire:
            return False
        for _ in range(min(count, len(self.wire))):
            self._arrive(store=True)
        return True

    def confirm(self, count: int = 1 << 30) -> bool:
        """What has arrived is confirmed."""
        if not self.taken:
            return False
        self._confirm(self.taken[:count])
        del self.taken[:count]
        return True

    def refuse(self) -> bool:
        """The first that is on the wire is refused for good; what a broker has it does not refuse."""
        if not self.wire or self.wire[0][0] in self.broker.known[self.machine.incarnation]:
            return False
        number = self._arrive(store=False)
        self.broker.refused[self.machine.incarnation].add(number)
        self._tell(self.machine.refused(number, number), "refused")
        return True

    def put_off(self) -> bool:
        """The first that is on the wire is refused for now; what a broker has it does not refuse."""
        if not self.wire or self.wire[0][0] in self.broker.known[self.machine.incarnation]:
            return False
        number = self._arrive(store=False)
        assert self.machine.put_off(number, number)
        self.put_off_numbers.add(number)
        return True

    def due(self) -> bool:
        """The pause after a refusal for now is over."""
        if self.machine.state is not State.PAUSED:
            return False
        self.machine.due()
        self._carry()
        return True

    def give_up(self) -> bool:
        """As `due`, and the sender of the first that was refused for now has given up."""
        waiting = self.machine.waiting()
        if self.machine.state is not State.PAUSED or not waiting:
            return False
        sequence, entry = waiting[0]
        self._tell([(sequence, entry)], "given up")
        self.machine.due([sequence])
        self._carry()
        return True

    def raise_credit(self, count: int = 2) -> bool:
        """So many messages more may come."""
        if self.machine.state not in OPEN or not self.credit:
            return False
        self.granted += count * SIZE
        self.machine.credit(0, self.granted)
        self._carry()
        return True

    # --- The same, inside

    def _carry(self) -> None:
        """What is in frames goes onto the wire."""
        for frame in self.machine.frames:
            assert isinstance(frame, Run)
            self.runs.append(frame)
        self.machine.frames.clear()
        for run in self.runs:
            self.wire.extend(enumerate(run.messages, run.first))
            run.first += len(run.messages)
            run.messages = []

    def _drop(self) -> None:
        self.wire.clear()
        self.taken.clear()
        self.runs.clear()
        self.put_off_numbers.clear()

    def _arrive(self, *, store: bool) -> int:
        number, payload = self.wire.popleft()
        incarnation = self.machine.incarnation
        if number in self.put_off_numbers:
            self.put_off_numbers.discard(number)
        else:
            while self.expected in self.left_out:
                self.expected += 1
            assert number == self.expected, f"number {number} came, {self.expected} was to come"
            self.expected += 1
        assert not self.granted or self.published < self.granted, "beyond the credit"
        self.published += SIZE
        kept = self.broker.known[incarnation]
        assert kept.get(number, payload) == payload, f"number {number} is of another message"
        if store:
            kept[number] = payload
            self.taken.append(number)
        return number

    def _confirm(self, numbers: list[int]) -> None:
        for number in numbers:
            # As the face does: those of which somebody wants to hear.
            told = self.machine.confirmed(number, number)
            self._tell([(sequence, entry) for sequence, entry in told], "confirmed")

    def _tell(self, outcomes: Outcomes, word: str) -> None:
        for _, entry in outcomes:
            assert isinstance(entry, Entry)
            assert entry.settle not in self.told, f"{entry.settle!r} was told {self.told[entry.settle]} before"
            self.told[entry.settle] = word

    # --- What must hold

    def check(self) -> None:
        """After each event."""
        machine = self.machine
        assert machine.serving == (machine.state is State.SERVING)
        size = sum(len(entry) for entry in machine.unconfirmed.values())
        assert (machine.flow.bytes, machine.flow.away) == (size, size if machine.is_away else 0)
        assert list(machine.unconfirmed) == sorted(machine.unconfirmed)
        assert all(one < machine.next for one in machine.unconfirmed)
        kept = {entry.settle for entry in machine.unconfirmed.values() if isinstance(entry, Entry)}
        assert kept | self.told.keys() == set(self.given), "a message is neither kept nor told of"
        assert not kept & self.told.keys()
        if machine.incarnation == self.incarnations:
            assert machine.next > self.highest, "numbers only grow under one incarnation"
            self.highest = machine.next - 1
        self.check_stored()

    def check_stored(self) -> None:
        """Nothing confirmed is lost, nothing is stored twice, nothing that was refused is there."""
        stored: Counter[bytes] = Counter(self.elsewhere)
        for broker in self.brokers:
            for kept in broker.known.values():
                stored.update(kept.values())
        twice = [one for one, count in stored.items() if count > 1]
        assert not twice, f"stored twice: {twice}"
        for payload, word in self.told.items():
            if word == "confirmed":
                assert stored[payload] == 1, f"{payload!r} was confirmed, and is stored nowhere"
            if word in ("refused", "given up"):
                assert stored[payload] == 0, f"{payload!r} was {word}, and is stored"

    def end(self) -> None:
        """Whatever has happened: with a link and a patient broker all comes to an end."""
        if self.machine.closed is None:
            self.open()
            for _ in range(4 * len(self.given) + 8):
                self.due()
                self.raise_credit(8)
                self.take()
                self.confirm()
                if not self.machine.unconfirmed:
                    break
            self.check()
            assert self.machine.state is State.SERVING
            assert not self.wire
        assert not self.machine.unconfirmed
        assert self.told.keys() == set(self.given)


#: What may happen, by a letter.
EVENTS: Final[dict[str, Callable[[Story], bool]]] = {
    "g": Story.give,
    "o": Story.open,
    "l": Story.lose,
    "f": Story.forget,
    "m": Story.move,
    "t": lambda story: story.take(2),
    "c": Story.confirm,
    "r": Story.refuse,
    "p": Story.put_off,
    "d": Story.due,
    "u": Story.give_up,
    "k": Story.raise_credit,
    "x": Story.close,
}
