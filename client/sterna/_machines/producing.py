"""A producer as a machine: numbers, gaps, window, credit, what is kept, and what is sent again under which number.

A message is numbered and kept before anything is written. While there is no link that is all that happens to it; on
every new link the broker is told where the producer stands, and everything unconfirmed is sent again under its own
number, so that the broker keeps one of each. What is settled already leaves gaps, which are said beforehand. Where the
broker gives a new incarnation, numbers begin at 1 again, and only what has certainly arrived nowhere keeps its place.

`_lane` is the face: it awaits, has the timers, and tells whoever sent what became of it. Frames gather in `frames`, in
the order in which they are to be written; outcomes are returned, those of a batch together. A producer of a transacted
session and one of RELIABLE messages keep nothing (`keeps`): what they had sent is gone with the link.
"""

from __future__ import annotations

import enum
import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sterna import errors
from sterna._machines.publishing import Ahead, InFlight, Outbox, Run

UNLIMITED: Final = 1 << 62
#: Window and numbers are looked at this often.
_BUDGET_MAX: Final = 32
#: What a producer that nobody confirms may have queued before its senders wait.
_UNCONFIRMED_OUTBOX_BYTES: Final = 4 * 1024 * 1024


class State(enum.Enum):
    """Where a producer stands with its broker."""

    NEW = "the broker has given it no incarnation: its numbers are its own business"
    CATCHING_UP = "open, and what was left unconfirmed is sent again, as far as the credit goes; new messages wait"
    SERVING = "open, and each message is written when it is given"
    PAUSED = "open, and the broker refuses for now: nothing is sent until the pause is over"
    ADRIFT = "without a link, under an incarnation that the broker knows"
    CLOSED = "over"


class Event(enum.Enum):
    """What happens to it."""

    OPENED = "the broker has opened it on a link"
    CAUGHT_UP = "nothing is left to be sent again"
    PUT_OFF = "the broker refuses messages for now"
    DUE = "the pause is over"
    LOST = "the link is gone"
    FORGOTTEN = "the broker does not know the incarnation"
    MOVED = "the destination lives at another broker"
    CLOSED = "it is over, by whoever's will"


#: Where each event leads. An event without a line in a state does not happen there.
TRANSITIONS: Final[Mapping[State, Mapping[Event, State]]] = {
    State.NEW: {
        Event.OPENED: State.CATCHING_UP,
        Event.PUT_OFF: State.NEW,
        Event.LOST: State.NEW,
        Event.FORGOTTEN: State.NEW,
        Event.MOVED: State.NEW,
        Event.CLOSED: State.CLOSED,
    },
    State.CATCHING_UP: {
        Event.CAUGHT_UP: State.SERVING,
        Event.PUT_OFF: State.PAUSED,
        Event.LOST: State.ADRIFT,
        Event.MOVED: State.NEW,
        Event.CLOSED: State.CLOSED,
    },
    State.SERVING: {
        Event.PUT_OFF: State.PAUSED,
        Event.LOST: State.ADRIFT,
        Event.MOVED: State.NEW,
        Event.CLOSED: State.CLOSED,
    },
    State.PAUSED: {
        Event.PUT_OFF: State.PAUSED,
        Event.DUE: State.CATCHING_UP,
        Event.LOST: State.ADRIFT,
        Event.MOVED: State.NEW,
        Event.CLOSED: State.CLOSED,
    },
    State.ADRIFT: {
        Event.OPENED: State.CATCHING_UP,
        Event.PUT_OFF: State.ADRIFT,
        Event.LOST: State.ADRIFT,
        Event.FORGOTTEN: State.NEW,
        Event.MOVED: State.NEW,
        Event.CLOSED: State.CLOSED,
    },
    State.CLOSED: dict.fromkeys(Event, State.CLOSED),
}
#: The states in which nobody knows when what is unconfirmed will be: its destination is not there, or no link.
_AWAY: Final = frozenset({State.NEW, State.PAUSED, State.ADRIFT})
#: The states in which it is open on a link.
OPEN: Final = frozenset({State.CATCHING_UP, State.SERVING, State.PAUSED})


class Entry:
    """An unconfirmed message of which more is known than its bytes. `settle` is the face's: who is to be told."""

    __slots__ = ("destination", "message", "settle", "size", "times", "upload")

    def __init__(
        self,
        message: bytes,
        settle: Any,
        times: tuple[int, int],
        destination: bytes,
        upload: tuple[int, bytes] | None,
    ) -> None:
        self.message = message
        self.settle = settle
        #: Its delivery delay and its time to live, in milliseconds.
        self.times = times
        self.destination = destination
        self.upload = upload
        #: In bytes, with the body that goes ahead; asked for twice a message, so it is not worked out each time.
        self.size = len(message) if upload is None else len(message) + len(upload[1])

    def __len__(self) -> int:
        return self.size


@dataclass(frozen=True, slots=True)
class Reopening:
    """What a broker that knows the incarnation is told: `left_out` will not come, of what follows on."""

    incarnation: int
    token: bytes
    first_unconfirmed: int
    left_out: tuple[tuple[int, int], ...]
    #: The bodies that go ahead, by their numbers: perhaps the broker has kept the beginning of one.
    uploads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Opened:
    """What the broker has answered; limits of 0 are none. `last_sequence` is the highest number that it has."""

    incarnation: int
    token: bytes
    id_prefix: str
    last_sequence: int
    sequence_limit: int
    bytes_limit: int
    #: What the broker has of bodies that go ahead: number, so many bytes from the beginning, and their CRC-32.
    uploads: tuple[tuple[int, int, int], ...] = ()


#: Messages of which something is known now, with their numbers.
Outcomes = list[tuple[int, "bytes | Entry"]]


class Producing:
    """See the module. `run` is the growing Publish frame, when there is one; `next` the next number."""

    __slots__ = (
        "_again",
        "_bytes_sent",
        "_had",
        "_handed",
        "_put_off",
        "_resumed",
        "_sequence_limit",
        "_token",
        "budget",
        "bytes_left",
        "closed",
        "flow",
        "frames",
        "id",
        "id_prefix",
        "incarnation",
        "is_away",
        "keeps",
        "marks",
        "next",
        "origin",
        "outbox",
        "resumes",
        "run",
        "serving",
        "session",
        "state",
        "unconfirmed",
        "window",
    )

    def __init__(self, id_: int, flow: InFlight, window: int, *, keeps: bool, resumes: bool = True) -> None:
        self.state = State.NEW
        #: Whether the state is SERVING.
        self.serving = False
        #: Its number on the connection, and that of its session.
        self.id, self.session = id_, 0
        self.window = window
        self.keeps = keeps
        #: Whether what it has in flight counts as away.
        self.is_away = keeps
        #: Whether it goes on under its incarnation, where the broker knows it.
        self.resumes = resumes
        self.flow = flow
        self.outbox = Outbox()
        #: What is to be written, in order; whoever takes it away clears it.
        self.frames: list[Run | Ahead] = []
        self.run: Run | None = None
        #: What a ledger knows it as, where there is one.
        self.origin: Any = None
        self.next = 1
        self.unconfirmed: dict[int, bytes | Entry] = {}
        #: So many messages may be numbered before anybody looks for room again.
        self.budget = 0
        #: What of the broker's credit in bytes is left.
        self.bytes_left = UNLIMITED
        self.closed: errors.SternaError | None = None
        self.incarnation = 0
        self.id_prefix = ""
        self._token = b""
        self._sequence_limit = UNLIMITED
        self._bytes_sent = 0
        # The highest number that was handed to a link under this incarnation: what lies above has arrived nowhere.
        self._handed = 0
        # Up to here the broker had numbers when it was opened, by an earlier link.
        self._had = 0
        # The numbers that are to be sent again, for want of credit not yet.
        self._again: deque[int] = deque()
        # Those that the broker refused for now.
        self._put_off: dict[int, None] = {}
        # Of bodies that go ahead, by their numbers, how much the broker has.
        self._resumed: dict[int, int] = {}
        #: Who waits until everything up to a number is settled.
        self.marks: list[tuple[int, Any]] = []

    def _to(self, event: Event) -> None:
        if self.serving:
            self._handed = self.next - 1
        self.state = TRANSITIONS[self.state][event]
        self.serving = self.state is State.SERVING
        is_away = self.keeps and self.state in _AWAY
        if is_away is not self.is_away:
            self.is_away = is_away
            size = self._bytes_unconfirmed()
            self.flow.away += size if is_away else -size

    # --- Messages

    def give(
        self,
        message: bytes,
        settle: Any = None,
        times: tuple[int, int] = (0, 0),
        target: bytes = b"",
        upload: tuple[int, bytes] | None = None,
        transaction: int = 0,
    ) -> int:
        """Numbers a message, keeps it until it is confirmed, and puts it into a frame when it may be sent now.

        Raises:
            SternaError: what it was closed with.
        """
        if self.closed is not None:
            raise self.closed
        sequence = self.next
        self.next = sequence + 1
        self.budget -= 1
        entry: bytes | Entry = message
        size = all_of_it = len(message)
        if settle is not None or target or upload is not None:
            entry = Entry(message, settle, times, target, upload)
            all_of_it = entry.size
        if self.keeps:
            self.unconfirmed[sequence] = entry
            self.flow.bytes += all_of_it
        if self.serving:
            self._bytes_sent += size
            self.bytes_left -= size
            run = self.run
            if run is not None and not target and upload is None:
                run.messages.append(message)
            else:
                self._write(sequence, entry, transaction)
            if not self.keeps and self.run is not None:
                # Not of what is written nowhere: the link that it left would have it count for those who are there.
                self.outbox.bytes += all_of_it
                self.run.waiting_bytes += all_of_it
        elif self.keeps:
            if self.is_away:
                self.flow.away += all_of_it
            if self.state in OPEN:
                self._again.append(sequence)  # behind what waits already
        return sequence

    def _write(self, sequence: int, entry: bytes | Entry, transaction: int = 0) -> None:
        message, target = entry, b""
        if isinstance(entry, Entry):
            message, target = entry.message, entry.destination
            if entry.upload is not None:
                self.run = None
                self.frames.append(Ahead(*entry.upload, self._resumed.pop(entry.upload[0], 0)))
        run = self.run
        # A frame's messages are numbered on from its first: what is sent again may have gaps.
        if run is None or run.end != sequence or run.destination != target or run.transaction != transaction:
            run = self.run = Run(self, self.id, self.session, sequence, target, transaction)
            self.frames.append(run)
        run.messages.append(message)  # type: ignore[arg-type]

    def has_room(self, size: int) -> bool:
        """Whether a message of `size` bytes may be given now."""
        if self.closed is not None:
            return True  # the sender shall find out
        if not self.keeps:
            # A transaction in doubt is the sender's to hear of; a RELIABLE message is not worth waiting for.
            return self.state not in OPEN or (
                self.bytes_left > 0 and self.next <= self._sequence_limit and not self.outbox_is_full
            )
        return self.has_credit and self.flow.has_room(size, self, is_away=self.is_away)

    @property
    def has_credit(self) -> bool:
        """Whether a message may be given, as far as this producer and its destination go."""
        return (
            len(self.unconfirmed) < self.window
            # While those before it have fewer bytes than the credit, one may be sent, whatever its size.
            and self.bytes_left > 0
            and self.next <= self._sequence_limit
            and self.state is not State.CATCHING_UP
            and self.state is not State.PAUSED
        )

    @property
    def outbox_is_full(self) -> bool:
        """Whether its senders wait until something has been written, which is so of those that nobody confirms."""
        return not self.keeps and self.outbox.bytes >= _UNCONFIRMED_OUTBOX_BYTES

    def grant(self) -> None:
        """There is room for one: several may be given before window and numbers are looked at again.

        What the connection has in flight is looked at for each, or many producers would have many times as much.
        """
        if self.keeps and self.closed is None:
            self.budget = min(self.window - len(self.unconfirmed), self._sequence_limit - self.next + 1, _BUDGET_MAX)

    # --- Opening, on each link anew

    def opening(self) -> Reopening | None:
        """What the broker is to be told on a new link; None: it is a new producer there."""
        if self.state in OPEN:
            self.lost()  # nobody told it, since nobody knew of it yet
        if not self.resumes or not self.incarnation:
            return None
        first = self.first_left
        return Reopening(self.incarnation, self._token, first, self.left_out, tuple(self._bodies()))

    def _bodies(self) -> dict[int, bytes]:
        """What goes ahead of unconfirmed messages, by its numbers."""
        entries = (one for one in self.unconfirmed.values() if isinstance(one, Entry))
        return dict(entry.upload for entry in entries if entry.upload is not None)

    def _begun(self, told: Iterable[tuple[int, int, int]]) -> dict[int, int]:
        """How much the broker has of bodies; only what is certainly the beginning of what is here counts."""
        bodies = self._bodies() if told else {}
        return {
            upload: size
            for upload, size, sum_ in told
            if size <= len(bodies.get(upload, b"")) and zlib.crc32(memoryview(bodies[upload])[:size]) == sum_
        }

    @property
    def left_out(self) -> tuple[tuple[int, int], ...]:
        """Behind the number that comes first of what is to be sent those that will not come, as ranges."""
        return tuple(self._settled_since(self.first_left))

    def _settled_since(self, expected: int) -> Iterator[tuple[int, int]]:
        """Numbers behind the first unconfirmed one that are settled, as ranges: they will not be sent again."""
        for sequence in (*self.unconfirmed, self.next):
            if sequence > expected:
                yield expected, sequence - 1
            expected = sequence + 1

    @property
    def first_left(self) -> int:
        """The number that comes first of what is to be sent."""
        return next(iter(self.unconfirmed), self.next)

    def opened(
        self, opened: Opened, session: int, outbox: Outbox, *, anew: bool, first: int = 1, keeps: bool = False
    ) -> None:
        """The broker has opened it, as a new producer or as what `opening` said: what is unconfirmed is sent.

        A new one counts from `first`. With `keeps` each message has the number that it was given before: its sender may
        go by it.
        """
        if self.state is State.CLOSED:
            return
        if anew and keeps:
            self._handed = first - 1
        elif anew:
            # What was numbered before the first link came up goes under the numbers of the new incarnation.
            self._renumber(first)
        self.incarnation, self._token, self.id_prefix = opened.incarnation, opened.token, opened.id_prefix
        self.session, self.outbox = session, outbox
        self._bytes_sent = 0
        self._sequence_limit = opened.sequence_limit or UNLIMITED
        self.bytes_left = opened.bytes_limit or UNLIMITED
        self._had = min(self._handed, opened.last_sequence)
        self._resumed = {} if anew else self._begun(opened.uploads)
        self._again = deque(self.unconfirmed)
        self._to(Event.OPENED)
        self._catch_up()

    def _renumber(self, first: int) -> None:
        before = list(self.unconfirmed)
        self.unconfirmed = dict(enumerate(self.unconfirmed.values(), first))
        self.next = first + len(before)
        self._handed = first - 1
        # So many of what is left had been numbered when the mark was set.
        self.marks = [(first - 1 + bisect_right(before, mark), who) for mark, who in self.marks]

    def _catch_up(self) -> None:
        """Sends what is to be sent again, as far as the credit goes."""
        again = self._again
        while again and self.bytes_left > 0 and again[0] <= self._sequence_limit:
            sequence = again.popleft()
            entry = self.unconfirmed.get(sequence)
            if entry is None:
                continue  # settled meanwhile
            size = len(entry.message) if isinstance(entry, Entry) else len(entry)
            self._bytes_sent += size
            self.bytes_left -= size
            self._handed = max(self._handed, sequence)
            self._write(sequence, entry)
        if not again:
            if self.run is not None and (self.run.end != self.next or self.origin is not None):
                # The last numbers were settled: what comes next does not follow on. Nor does it for a ledger, since
                # the bodies of what was sent again are not known.
                self.run = None
            self._to(Event.CAUGHT_UP)

    # --- What the broker says

    def credit(self, sequence_limit: int, bytes_limit: int) -> None:
        """Absolute, so a lower value changes nothing."""
        self._sequence_limit = max(self._sequence_limit, sequence_limit)
        self.bytes_left = max(self.bytes_left, bytes_limit - self._bytes_sent)
        if self.state is State.CATCHING_UP:
            self._catch_up()

    def confirmed(self, first: int, last: int) -> list[tuple[int, Entry]]:
        """These are as safe as they will be, and forgotten here; those of which somebody wants to hear."""
        unconfirmed = self.unconfirmed
        freed = 0
        told: list[tuple[int, Entry]] = []
        for sequence in range(first, last + 1):
            entry = unconfirmed.pop(sequence, None)
            if type(entry) is Entry:
                freed += entry.size
                if entry.settle is not None:
                    told.append((sequence, entry))
            elif entry is not None:  # else confirmed before, or of a transaction
                freed += len(entry)
        self.flow.bytes -= freed  # a call would be a good part of what it costs
        if self.is_away:
            self.flow.away -= freed
        return told

    def _taken_off(self, size: int) -> None:
        self.flow.bytes -= size
        if self.is_away:
            self.flow.away -= size

    def _bytes_unconfirmed(self) -> int:
        return sum(len(entry) for entry in self.unconfirmed.values())

    def refused(self, first: int, last: int) -> Outcomes:
        """These were refused for good; nothing of them is kept there. Returns those that waited."""
        return [(sequence, self._drop(sequence)) for sequence in range(first, last + 1) if sequence in self.unconfirmed]

    def _drop(self, sequence: int) -> bytes | Entry:
        entry = self.unconfirmed.pop(sequence)
        self._taken_off(len(entry))
        return entry

    def put_off(self, first: int, last: int) -> bool:
        """These are refused for now: nothing is sent until `due`. Whether there is something to pause for."""
        self._to(Event.PUT_OFF)
        if self.state is not State.PAUSED:
            return False  # all that is unconfirmed is sent again with the next link
        self.budget = 0
        self.run = None
        for sequence in range(first, last + 1):
            self._put_off[sequence] = None
        return True

    def waiting(self) -> Outcomes:
        """What was refused for now and is to be sent again, in order."""
        return [(one, self.unconfirmed[one]) for one in sorted(self._put_off) if one in self.unconfirmed]

    def due(self, given_up: Iterable[int] = ()) -> None:
        """The pause is over: what was refused for now is sent again, but for what its senders have given up."""
        if self.state is not State.PAUSED:
            return
        for sequence in given_up:
            # Nothing of it is kept there, and its number is used up: so it never was.
            self._drop(sequence)
        self._again = deque([*(sequence for sequence, _ in self.waiting()), *self._again])
        self._put_off.clear()
        self._to(Event.DUE)
        self._catch_up()

    # --- The ends of links

    def renamed(self, before: bytes, after: bytes) -> None:
        """What is unconfirmed of a destination goes to another one on the next link."""
        for entry in self.unconfirmed.values():
            if isinstance(entry, Entry) and entry.destination == before:
                entry.destination = after

    def lost(self) -> None:
        """The link is gone; numbering goes on without one."""
        self._unlink(Event.LOST)

    def _unlink(self, event: Event) -> None:
        self._to(event)
        self.run = None
        self.frames.clear()
        self.budget = 0
        self.bytes_left = self._sequence_limit = UNLIMITED
        self._again.clear()
        self._put_off.clear()
        self._resumed.clear()

    def forgotten(self) -> Outcomes:
        """The broker does not know it any more. Returns what it may have had: of that nobody can tell what became."""
        doubtful = self._doubtful(self._handed)
        self._unlink(Event.FORGOTTEN)
        self.incarnation = self._handed = 0
        return doubtful

    def moved(self) -> Outcomes:
        """The destination lives at another broker, where everything unconfirmed is sent anew.

        When the broker says so over the link, all that came by that is confirmed before, or not kept. What it had by an
        earlier one, and what was sent over one that broke, is in doubt, and returned: elsewhere it might be kept twice.
        """
        doubtful = self._doubtful(self._had if self.state in OPEN else self._handed)
        self._unlink(Event.MOVED)
        self.incarnation = self._handed = 0
        return doubtful

    def _doubtful(self, last: int) -> Outcomes:
        return [(one, self._drop(one)) for one in [one for one in self.unconfirmed if one <= last]]

    def transfer(self, id_: int, flow: InFlight) -> None:
        """It belongs to another connection from now on, with what is unconfirmed."""
        size = self._bytes_unconfirmed()
        self._taken_off(size)
        self.id, self.flow = id_, flow
        flow.bytes += size
        if self.is_away:
            flow.away += size

    def close(self, error: errors.SternaError) -> Outcomes:
        """It is over, for this reason; the first one counts. Returns what was unconfirmed."""
        if self.closed is None:
            self.closed = error
        self._unlink(Event.CLOSED)
        return [(sequence, self._drop(sequence)) for sequence in list(self.unconfirmed)]

    # --- Waiting for all of it

    def mark(self, who: Any) -> bool:
        """Whether something numbered so far is unsettled; `who` is then among the `passed` when all of it is."""
        if not self.unconfirmed:
            return False
        self.marks.append((self.next - 1, who))
        return True

    def passed(self) -> list[Any]:
        """Those whose marks are passed; forgotten here."""
        if not self.marks:
            return []
        oldest = next(iter(self.unconfirmed), UNLIMITED)
        passed = [who for mark, who in self.marks if oldest > mark]
        if passed:
            self.marks = [(mark, who) for mark, who in self.marks if oldest <= mark]
        return passed
