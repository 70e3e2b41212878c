"""One consumer: what the broker may send ahead, what has come, whose a message in hand is, and what becomes of it.

A machine without a link. It is told what the broker and the application do; `is_due` says that it has something to
write, which `gather` returns. Where it stands with the link is said by `TRANSITIONS`. While it is OPENING, deliveries
may come before the answer that tells their source; they wait for it. While its session recovers (`settling`), whatever
comes is void, and is dropped.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from sterna._machines.ranges import Ranges
from sterna._machines.settling import SessionState
from sterna._machines.window import Window, size_of
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.modes import AcknowledgeMode

#: Who has a message in hand: a task, or a thread of the blocking face.
Holder = object


class InHand:
    """What an iteration handed out and the session acknowledges by itself, by holder. True while anybody has something.

    It is in the hands of whoever asked for it, until that comes back for the next one: then it is done with. Another
    who asks, or closes the consumer, says nothing about it. One that has ended well (`has_ended_well` says) is done
    with what it had; one that failed or was cancelled is not, and its message is delivered again.
    """

    __slots__ = ("_has_ended", "_has_ended_well", "_held", "_void", "was_cut")

    def __init__(
        self, has_ended_well: Callable[[Holder | None], bool], has_ended: Callable[[Holder | None], bool]
    ) -> None:
        self._has_ended_well = has_ended_well
        self._has_ended = has_ended
        self._held: dict[Holder | None, int] = {}
        # Who is still at work on what comes again, and has not come back since.
        self._void: set[Holder | None] = set()
        #: Whether it was all over while somebody had something.
        self.was_cut = False

    def __bool__(self) -> bool:
        return bool(self._held or self._void)

    def take(self, who: Holder | None, sequence: int) -> None:
        """`who` has it now."""
        self._held[who] = sequence

    def finished(self, who: Holder | None) -> list[int]:
        """What `who`, coming back, is done with, and what others were done with when they ended; forgotten here."""
        self._void.discard(who)
        done = [one for one in self._held if one is who or self._has_ended_well(one)]
        return [self._held.pop(one) for one in done]

    def holders(self) -> list[Holder | None]:
        """Who has something in hand, be it void."""
        return [*self._held, *self._void]

    def void(self) -> None:
        """All of it comes again, whatever becomes of it here."""
        self._void = {one for one in (*self._void, *self._held) if not self._has_ended(one)}
        self._held.clear()

    def sequences(self) -> list[int]:
        """Everything in anybody's hands."""
        return list(self._held.values())

    def forget(self, sequence: int) -> bool:
        """Whether this message was in somebody's hands; it is not any more."""
        for who, held in self._held.items():
            if held == sequence:
                del self._held[who]
                return True
        return False

    def clear(self) -> list[int]:
        """Forgets all; what there was."""
        held = list(self._held.values())
        self.was_cut = self.was_cut or bool(self)
        self._held.clear()
        self._void.clear()
        return held


class Link(enum.Enum):
    """Where a consumer stands with the link."""

    AWAY = enum.auto()
    OPENING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class Event(enum.Enum):
    """What changes that."""

    BEGIN = enum.auto()
    OPENED = enum.auto()
    INTERRUPTED = enum.auto()
    REFUSED = enum.auto()
    ENDED = enum.auto()


#: All steps: an answer may come too late, a link break twice, and whoever opens it anew may be overtaken by its end.
TRANSITIONS: Final[Mapping[Link, Mapping[Event, Link]]] = {
    Link.AWAY: {
        Event.BEGIN: Link.OPENING,
        Event.OPENED: Link.AWAY,
        Event.INTERRUPTED: Link.AWAY,
        Event.REFUSED: Link.AWAY,
        Event.ENDED: Link.CLOSED,
    },
    Link.OPENING: {
        Event.BEGIN: Link.OPENING,
        Event.OPENED: Link.OPEN,
        Event.INTERRUPTED: Link.AWAY,
        Event.REFUSED: Link.AWAY,
        Event.ENDED: Link.CLOSED,
    },
    Link.OPEN: {
        Event.BEGIN: Link.OPENING,
        Event.OPENED: Link.OPEN,
        Event.INTERRUPTED: Link.AWAY,
        Event.REFUSED: Link.AWAY,
        Event.ENDED: Link.CLOSED,
    },
    Link.CLOSED: dict.fromkeys(Event, Link.CLOSED),
}


class ConsumerState:
    """See the module. `now_ms` is a clock that nobody sets, `has_ended` and `has_ended_well` tell of a holder."""

    __slots__ = (
        "_deadlines",
        "_early",
        "_expired",
        "_now_ms",
        "_partial",
        "_pieces",
        "_pieces_bytes",
        "_ranges",
        "browses",
        "buffer",
        "epoch",
        "generation",
        "in_hand",
        "is_asked",
        "is_drained",
        "is_due",
        "link",
        "session",
        "source",
        "void_count",
        "window",
    )

    def __init__(
        self,
        session: SessionState,
        window: Window,
        *,
        browses: bool,
        now_ms: Callable[[], int],
        has_ended_well: Callable[[Holder | None], bool],
        has_ended: Callable[[Holder | None], bool] | None = None,
    ) -> None:
        self.session = session
        self.window = window
        self.browses = browses
        self.link = Link.AWAY
        self.source = self.epoch = 0
        #: A message of another generation than this one is void; `void_count` is the session's of then.
        self.generation = self.void_count = 0
        #: What can be handed out, in order.
        self.buffer: deque[Any] = deque()
        self.in_hand = InHand(has_ended_well, has_ended or has_ended_well)
        #: Whether the broker has said that there is nothing more: a browser has seen everything.
        self.is_drained = False
        #: Whether there is something to write, and whether the link was asked to have it gathered already.
        self.is_due = self.is_asked = False
        self._ranges = Ranges(0, 0)
        self._now_ms = now_ms
        self._early: list[Any] = []
        self._expired: list[int] = []
        #: When what was sent ahead ends, by `now_ms`, by sequence number; of messages with a time to live alone.
        self._deadlines: dict[int, int] = {}
        self._partial: Any = None
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0

    # --- The link

    def _to(self, event: Event) -> None:
        self.link = TRANSITIONS[self.link][event]

    def begin(self) -> tuple[int, int]:
        """It is about to be opened on a link: the credit to open with, messages and bytes."""
        self._to(Event.BEGIN)
        if self.link is Link.OPENING:
            self.session.consumers[self] = None
        self.void_count = self.session.void_count
        # What came on another link, before the answer that never did, comes again.
        self._forget_coming()
        self.is_drained = False
        return self.window.begin(len(self.buffer), sum(size_of(one) for one in self.buffer))

    def opened(self, source: int, epoch: int, prefetch: int | None = None) -> None:
        """The broker has opened it; `prefetch` is the window that it recommends, where none was asked for."""
        is_awaited = self.link is Link.OPENING
        self._to(Event.OPENED)
        if not is_awaited:
            return
        self.source, self.epoch = source, epoch
        self._ranges = self.session.ranges_of(source, epoch)
        self.buffer.extend(self._early)  # they came before the answer, which waits for the disk
        self._early.clear()
        if prefetch is not None:
            self.window.messages = prefetch
            self.is_due = True

    def interrupted(self) -> None:
        """The link is gone: what was prefetched comes again, what was handed out is void.

        In mode NONE the broker has forgotten what it sent: nothing of that comes again, so it stays.
        """
        self._to(Event.INTERRUPTED)
        if self.session.mode is not AcknowledgeMode.NONE or self.browses:
            self._clear()
        self._void()
        self._forget_coming()

    def refused(self) -> None:
        """It could not be opened, or whoever asked for it does not wait any more."""
        self._to(Event.REFUSED)
        self.session.consumers.pop(self, None)

    def withdrawn(self) -> None:
        """The broker has ended it: what was handed out is void, as it has gone back or is no more."""
        self.generation += 1

    def closed(self) -> None:
        """It is over: nothing is handed out any more, and nothing said."""
        self._to(Event.ENDED)
        self.session.consumers.pop(self, None)
        self._clear()
        self.in_hand.clear()
        self._forget_coming()

    def moved(self, session: SessionState) -> None:
        """It has come to another broker, where it belongs to another part of its session."""
        self.session.consumers.pop(self, None)
        self.session = session

    def _clear(self) -> None:
        if self.browses and self.buffer:
            self.is_drained = False  # it has not seen what it does not hand out
        self.buffer.clear()
        self._deadlines.clear()

    def _forget_coming(self) -> None:
        self._early.clear()
        self._expired.clear()
        self._partial, self._pieces, self._pieces_bytes = None, [], 0
        self.is_due = self.is_asked = False

    def _void(self) -> None:
        self.generation += 1
        self.void_count = self.session.void_count
        self.in_hand.void()

    @property
    def is_closed(self) -> bool:
        """Whether it is over."""
        return self.link is Link.CLOSED

    # --- What comes

    def delivered(self, deliveries: Any, sent_ms: int = 0) -> int:
        """A batch has come: how many more can be handed out.

        `sent_ms` is the broker's clock when it sent them; told where one has a time to live.
        """
        if self.link is Link.CLOSED:
            return 0  # they go back, unseen
        if sent_ms and not self.browses:
            self._note_deadlines(deliveries, sent_ms)
        if self._partial is not None or (deliveries and deliveries[-1].uploaded_bytes):
            deliveries = self._assembled(deliveries)
        count = len(deliveries)
        self.window.received(count)
        if self.session.recovering and not self.browses:
            self.window.took(count, sum(size_of(one) for one in deliveries))
            return 0
        if self.link is not Link.OPEN:
            self._early.extend(deliveries)  # the answer that tells the source is still to come
            return 0
        self.buffer.extend(deliveries)
        return count

    def _note_deadlines(self, deliveries: Any, sent_ms: int) -> None:
        """Notes which of these end when.

        The broker counts lifetimes by a clock that nobody sets, and had not taken them for expired when it sent them.
        So what counts is the time from then on, at most the whole lifetime; what had outlived it already by the
        broker's clock, which was set since it came, has an end that is not known here.
        """
        now_ms = self._now_ms()
        for one in deliveries:
            if one.expiration_ms > sent_ms:
                self._deadlines[one.sequence] = now_ms + one.expiration_ms - max(sent_ms, one.timestamp_ms)

    def _assembled(self, deliveries: Any) -> Any:
        """The complete ones: a large uploaded body comes in pieces, the last of one frame and the first of others."""
        if self._partial is not None and deliveries:
            piece = deliveries[0]
            self._pieces.append(piece.uploaded)
            self._pieces_bytes += len(piece.uploaded)
            deliveries = list(deliveries)[1:]
            if self._pieces_bytes >= self._partial.uploaded_bytes:
                self._partial.uploaded = b"".join(self._pieces)
                deliveries.insert(0, self._partial)
                self._partial, self._pieces, self._pieces_bytes = None, [], 0
        if deliveries:
            last = deliveries[-1]
            if last.uploaded_bytes > len(last.uploaded):
                self._partial, self._pieces, self._pieces_bytes = last, [last.uploaded], len(last.uploaded)
                deliveries = list(deliveries)[:-1]
        return deliveries

    def drained(self, message_limit: int) -> None:
        """The broker has said that there is nothing more, and from where it counts the credit now."""
        if self.link in (Link.AWAY, Link.CLOSED):
            return  # said behind a Goodbye, of what is void by then: what a browser was not shown it has not seen
        self.is_drained = True
        self.window.raised_to(message_limit)

    def recovering(self) -> None:
        """Recover or rollback is under way: what was prefetched, and comes before the answer, is void.

        What a browser was sent does not come again: it goes on.
        """
        self._void()
        if self.browses:
            return
        for some in (self.buffer, self._early):
            self.window.took(len(some), sum(size_of(one) for one in some))
            some.clear()
        self._deadlines.clear()

    def recovered(self) -> None:
        """What comes behind the last answer is good again, and needs credit again."""
        if self._partial is not None and not self.browses:
            # The broker had sent a part of it, and counts it; the rest does not come.
            self.window.received(1)
            self.window.took(1, size_of(self._partial))
            self._partial, self._pieces, self._pieces_bytes = None, [], 0
        if not self.session.recovering:
            self.is_due = not self.is_asked

    # --- Handing out

    def ready(self) -> bool:
        """Whether a message can be handed out.

        What expired while it waited here goes back to the broker, whose it is to destroy or to keep as undelivered
        (EMS-MSG-A04, A08).

        Raises:
            TransactionRolledBackError: it would be received in a transaction that is lost.
        """
        if self.session.failure is not None:
            self.session.check_receive()
        buffer, deadlines = self.buffer, self._deadlines
        while buffer:
            if not deadlines:
                return True
            deadline_ms = deadlines.get(buffer[0].sequence)
            if deadline_ms is None or deadline_ms > self._now_ms():
                return True
            expired = buffer.popleft()
            del deadlines[expired.sequence]
            self.window.took(1, size_of(expired))
            if self.session.mode is not AcknowledgeMode.NONE:
                self._expired.append(expired.sequence)
            self.is_due = not self.is_asked
        return False

    def hand_out(self, done: bool, who: Holder | None = None) -> Any:
        """The next delivery. With `done` a session that acknowledges by itself does so at once."""
        delivery = self.buffer.popleft()
        if self._deadlines:
            self._deadlines.pop(delivery.sequence, None)
        window = self.window
        if window.took(1, size_of(delivery) if window.bytes else 0) and not self.is_asked:
            self.is_due = True
        session = self.session
        if self.browses:
            pass  # nothing is taken, so nothing is acknowledged
        elif session.acknowledges_itself:
            if done:
                self.done_with(delivery.sequence)
            else:
                self.in_hand.take(who, delivery.sequence)
        elif session.keeps_track:
            session.hand(self.source, delivery.sequence)
        return delivery

    def done_with(self, sequence: int) -> None:
        """A message is to be acknowledged."""
        ranges, session = self._ranges, self.session
        if sequence == ranges.last + 1 and ranges.last:
            ranges.last = sequence
        else:
            ranges.add(sequence)
        if not session.is_asked:
            session.note()

    def finish(self, who: Holder | None) -> None:
        """`who` comes back: what it was handed last is done with, in a session that acknowledges by itself."""
        for sequence in self.in_hand.finished(who):
            self.done_with(sequence)

    def settled(self, sequence: int) -> None:
        """The application says itself that it is done with a message."""
        if self.in_hand.forget(sequence):
            self.done_with(sequence)

    def gather(self, *, is_awaited: bool) -> tuple[pb.Release | None, tuple[int, int] | None]:
        """What to write with the next batch: what goes back, and the credit as it now stands, messages and bytes.

        `is_awaited`: somebody waits for a message.
        """
        self.is_due = self.is_asked = False
        if self.link is not Link.OPEN:
            return None, None
        expired, self._expired = self._expired, []
        released = self.session.given_back(self.source, expired, seen=False) if expired else None
        return released, self.window.wanted(one=is_awaited and not self.buffer)

    def leave(self, who: Holder | None, *, failed: bool) -> pb.Release | None:
        """It is being closed by `who`, whose last message counts as done, unless `failed`. What goes back, as seen."""
        if not failed:
            self.finish(who)
        # What others are still working on, or have failed with, is not done with.
        given_back = self.in_hand.clear()
        return self.session.given_back(self.source, given_back, seen=True) if given_back else None
