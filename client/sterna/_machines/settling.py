"""What a session's mode makes of its messages: who acknowledges them, when, and how many at once; and transactions.

A machine without a link. It is told what the application and the broker do, and answers with frames and with what the
application is to be told; `is_due` says that it has acknowledgements to write, which `gather` returns. Its consumers
(`consuming`) are known to it from their opening to their end: what becomes of the session becomes of them, too.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Protocol

from sterna import errors
from sterna._machines.ranges import Ranges, ack_set, ranges_of, seen_set
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.modes import AcknowledgeMode

#: Lazy acknowledgements leave when so many have gathered, or when their consumer runs dry.
LAZY_COUNT: Final = 256
#: So many sources without a consumer are kept in the books.
SOURCES_SPARE: Final = 16


# --- Acknowledge modes


class By(enum.Enum):
    """Who says that a message is done with."""

    SESSION = enum.auto()
    APPLICATION = enum.auto()
    COMMIT = enum.auto()
    NOBODY = enum.auto()


class Covers(enum.Enum):
    """What one acknowledgement covers."""

    MESSAGE = enum.auto()
    ALL_HANDED_OUT = enum.auto()
    TRANSACTION = enum.auto()
    NOTHING = enum.auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """A mode. `lazy`: acknowledgements wait for others, until nothing is left to do."""

    by: By
    covers: Covers
    lazy: bool = False


RULES: Final = {
    AcknowledgeMode.AUTO: Rule(By.SESSION, Covers.MESSAGE),
    AcknowledgeMode.DUPS_OK: Rule(By.SESSION, Covers.MESSAGE, lazy=True),
    AcknowledgeMode.CLIENT: Rule(By.APPLICATION, Covers.ALL_HANDED_OUT),
    AcknowledgeMode.EXPLICIT_CLIENT: Rule(By.APPLICATION, Covers.MESSAGE),
    AcknowledgeMode.EXPLICIT_CLIENT_DUPS_OK: Rule(By.APPLICATION, Covers.MESSAGE, lazy=True),
    AcknowledgeMode.INDIVIDUAL: Rule(By.APPLICATION, Covers.MESSAGE),
    AcknowledgeMode.TRANSACTED: Rule(By.COMMIT, Covers.TRANSACTION),
    AcknowledgeMode.NONE: Rule(By.NOBODY, Covers.NOTHING),
}


class Acknowledged(enum.Enum):
    """What an acknowledgement of the application's came to."""

    #: The message had become void: it comes again.
    VOID = enum.auto()
    #: There was nothing to do: it was acknowledged before, or the session sees to it.
    DONE = enum.auto()
    #: It leaves with the next frame, whose answer tells.
    NEXT = enum.auto()


# --- Transactions


class Transaction(enum.Enum):
    """The transaction of this moment."""

    #: Nothing was sent or received since the last one.
    NONE = enum.auto()
    OPEN = enum.auto()
    #: A message of it was refused, or what it had received has gone back: it can only be rolled back.
    REFUSED = enum.auto()
    #: The broker has rolled it back by itself: nothing more is done in it, and the rest of it is to be given back.
    UNDONE = enum.auto()
    #: The connection broke: the broker has undone it, and there is nothing left to roll back.
    LOST = enum.auto()


class Event(enum.Enum):
    """What happens to it."""

    SEND = enum.auto()
    RECEIVE = enum.auto()
    REFUSAL = enum.auto()
    #: The broker says that it has rolled it back.
    END = enum.auto()
    BREAK = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()


class Effect(enum.Enum):
    """What follows."""

    NOTHING = enum.auto()
    #: A new one, with the next number.
    BEGIN = enum.auto()
    #: The application is told why it can go no further.
    RAISE = enum.auto()
    #: Whatever was handed out in it is acknowledged in it; then it is committed.
    COMMIT = enum.auto()
    #: The broker undoes it, and delivers again what was handed out.
    UNDO = enum.auto()
    UNDO_AND_RAISE = enum.auto()


#: What it becomes, and what follows. Behind COMMIT there is a commit under way (below), and no transaction.
TRANSACTIONS: Final = {
    (Transaction.NONE, Event.SEND): (Transaction.OPEN, Effect.BEGIN),
    (Transaction.NONE, Event.RECEIVE): (Transaction.OPEN, Effect.BEGIN),
    (Transaction.NONE, Event.REFUSAL): (Transaction.NONE, Effect.NOTHING),
    (Transaction.NONE, Event.END): (Transaction.NONE, Effect.NOTHING),
    (Transaction.NONE, Event.BREAK): (Transaction.NONE, Effect.NOTHING),
    (Transaction.NONE, Event.COMMIT): (Transaction.NONE, Effect.NOTHING),
    (Transaction.NONE, Event.ROLLBACK): (Transaction.NONE, Effect.NOTHING),
    #
    (Transaction.OPEN, Event.SEND): (Transaction.OPEN, Effect.NOTHING),
    (Transaction.OPEN, Event.RECEIVE): (Transaction.OPEN, Effect.NOTHING),
    (Transaction.OPEN, Event.REFUSAL): (Transaction.REFUSED, Effect.NOTHING),
    (Transaction.OPEN, Event.END): (Transaction.UNDONE, Effect.NOTHING),
    (Transaction.OPEN, Event.BREAK): (Transaction.LOST, Effect.NOTHING),
    (Transaction.OPEN, Event.COMMIT): (Transaction.NONE, Effect.COMMIT),
    (Transaction.OPEN, Event.ROLLBACK): (Transaction.NONE, Effect.UNDO),
    #
    (Transaction.REFUSED, Event.SEND): (Transaction.REFUSED, Effect.RAISE),
    (Transaction.REFUSED, Event.RECEIVE): (Transaction.REFUSED, Effect.NOTHING),
    (Transaction.REFUSED, Event.REFUSAL): (Transaction.REFUSED, Effect.NOTHING),
    (Transaction.REFUSED, Event.END): (Transaction.UNDONE, Effect.NOTHING),
    (Transaction.REFUSED, Event.BREAK): (Transaction.LOST, Effect.NOTHING),
    (Transaction.REFUSED, Event.COMMIT): (Transaction.NONE, Effect.UNDO_AND_RAISE),
    (Transaction.REFUSED, Event.ROLLBACK): (Transaction.NONE, Effect.UNDO),
    #
    (Transaction.UNDONE, Event.SEND): (Transaction.UNDONE, Effect.RAISE),
    (Transaction.UNDONE, Event.RECEIVE): (Transaction.UNDONE, Effect.RAISE),
    (Transaction.UNDONE, Event.REFUSAL): (Transaction.UNDONE, Effect.NOTHING),
    (Transaction.UNDONE, Event.END): (Transaction.UNDONE, Effect.NOTHING),
    (Transaction.UNDONE, Event.BREAK): (Transaction.LOST, Effect.NOTHING),
    (Transaction.UNDONE, Event.COMMIT): (Transaction.NONE, Effect.UNDO_AND_RAISE),
    (Transaction.UNDONE, Event.ROLLBACK): (Transaction.NONE, Effect.UNDO),
    #
    (Transaction.LOST, Event.SEND): (Transaction.LOST, Effect.RAISE),
    (Transaction.LOST, Event.RECEIVE): (Transaction.LOST, Effect.RAISE),
    (Transaction.LOST, Event.REFUSAL): (Transaction.LOST, Effect.NOTHING),
    (Transaction.LOST, Event.END): (Transaction.LOST, Effect.NOTHING),
    (Transaction.LOST, Event.BREAK): (Transaction.LOST, Effect.NOTHING),
    (Transaction.LOST, Event.COMMIT): (Transaction.NONE, Effect.RAISE),
    (Transaction.LOST, Event.ROLLBACK): (Transaction.NONE, Effect.NOTHING),
}


class Answer(enum.Enum):
    """What came of a commit under way."""

    TAKEN = enum.auto()
    UNDONE = enum.auto()
    REFUSED = enum.auto()
    BREAK = enum.auto()


class Committed(enum.Enum):
    """How a commit ended."""

    COMMITTED = enum.auto()
    ROLLED_BACK = enum.auto()
    IN_DOUBT = enum.auto()


COMMITS: Final = {
    Answer.TAKEN: Committed.COMMITTED,
    Answer.UNDONE: Committed.ROLLED_BACK,
    Answer.REFUSED: Committed.ROLLED_BACK,
    Answer.BREAK: Committed.IN_DOUBT,
}


def failure_of_commit(answer: Answer, error: errors.SternaError | None = None) -> errors.SternaError | None:
    """What the application is told of a commit; None: it has taken effect."""
    ended = COMMITS[answer]
    if ended is Committed.IN_DOUBT:
        return errors.TransactionInDoubtError("the connection broke while the commit was under way")
    if ended is Committed.ROLLED_BACK:
        if isinstance(error, errors.TransactionRolledBackError):
            return error
        cause = f"the commit failed: {error.cause}" if error is not None else "the broker rolled the transaction back"
        return errors.TransactionRolledBackError(cause)
    return None


# --- The session


class Held(Protocol):
    """What a consumer's iterations have in hand."""

    def __bool__(self) -> bool:
        """Whether there is anything."""

    def sequences(self) -> list[int]:
        """All of it."""

    def forget(self, sequence: int) -> bool:
        """Whether this message was there; it is not any more."""


class Consuming(Protocol):
    """What a session asks and tells its consumers (`consuming`)."""

    source: int
    generation: int
    void_count: int

    @property
    def in_hand(self) -> Held:
        """What its iterations have in hand."""

    def interrupted(self) -> None:
        """The link is gone."""

    def closed(self) -> None:
        """It is over."""

    def recovering(self) -> None:
        """What was handed out and what comes is void."""

    def recovered(self) -> None:
        """An answer has come; what comes is good again, if it was the last one."""

    @property
    def is_closed(self) -> bool:
        """Whether it is over."""

    def done_with(self, sequence: int) -> None:
        """A message is to be acknowledged."""

    def settled(self, sequence: int) -> None:
        """The application says itself that it is done with a message."""


class SessionState:
    """One session, on one broker."""

    __slots__ = (
        "_lazy_count",
        "_ranges",
        "_untold",
        "acknowledges_itself",
        "consumers",
        "covers_all",
        "epoch",
        "failure",
        "handed",
        "is_asked",
        "is_due",
        "is_lazy",
        "is_open",
        "keeps_track",
        "mode",
        "recovering",
        "rule",
        "stage",
        "tells_handed_out",
        "transacted",
        "transaction",
        "void_count",
    )

    def __init__(self, mode: AcknowledgeMode) -> None:
        self.mode = mode
        self.rule = rule = RULES[mode]
        self.transacted = rule.covers is Covers.TRANSACTION
        self.acknowledges_itself = rule.by is By.SESSION
        self.keeps_track = rule.by in (By.APPLICATION, By.COMMIT)
        self.covers_all = rule.covers is Covers.ALL_HANDED_OUT
        self.is_lazy = rule.lazy
        #: Whether there is a link, and it is not closed. `epoch` is the broker's.
        self.is_open = False
        self.epoch = 0
        self.consumers: dict[Consuming, None] = {}
        #: What the application was handed and has to settle, by source.
        self.handed: dict[int, set[int]] = {}
        #: How often everything handed out became void at once; what was handed out before the last time is void.
        self.void_count = 0
        #: Recovers and rollbacks without their answer: what comes before the last one's is void.
        self.recovering = 0
        #: Whether there is something to write, and whether the link was asked to have it gathered already.
        self.is_due = self.is_asked = False
        self._ranges: dict[int, Ranges] = {}
        self._lazy_count = 0
        self.stage = Transaction.NONE
        #: The number of the transaction, or of the last one, and why it can only be rolled back.
        self.transaction = 0
        self.failure: errors.SternaError | None = None
        #: Whether the broker is told what is handed out in a transaction, and what it is still to be told, by source.
        self.tells_handed_out = False
        self._untold: dict[int, list[int]] = {}

    # --- The link

    def opened(self, epoch: int, *, limits_time: bool = False) -> None:
        """There is a link, and the session is open on it; the broker ends transactions after a while, or does not."""
        self.is_open, self.epoch = True, epoch
        self.tells_handed_out = self.transacted and limits_time

    def interrupted(self) -> None:
        """The link is gone, and with it every delivery that was not acknowledged."""
        self.is_open = False
        self._break()
        self.recovering = 0
        self._forget()
        for consumer in self.consumers:
            consumer.interrupted()

    def closed(self) -> None:
        """The session is over: whatever the application does with its messages from now on says nothing."""
        self.is_open = False
        self._forget()
        for consumer in list(self.consumers):
            consumer.closed()

    def _forget(self) -> None:
        self.void_count += 1
        self.handed.clear()
        self._untold.clear()
        for ranges in self._ranges.values():
            ranges.take()
        self._lazy_count = 0
        # What the old link was to gather is void; the next one is to be asked anew.
        self.is_due = self.is_asked = False

    # --- Handing out and acknowledging

    def hand(self, source: int, sequence: int) -> None:
        """The application was handed a message that it has to settle."""
        kept = self.handed.get(source)
        if kept is None:
            kept = self.handed[source] = set()
        kept.add(sequence)
        if self.transacted and self.stage is not Transaction.OPEN:
            self._happens(Event.RECEIVE)
        if self.tells_handed_out:
            self._untold.setdefault(source, []).append(sequence)
            self.is_due = not self.is_asked

    def ranges_of(self, source: int, epoch: int) -> Ranges:
        """Where what is to be acknowledged of a source gathers."""
        ranges = self._ranges.get(source)
        if ranges is None:
            ranges = self._ranges[source] = Ranges(source, epoch)
        ranges.epoch = epoch
        return ranges

    @property
    def sources(self) -> int:
        """How many sources are in the books."""
        return len(self._ranges)

    def finished(self, source: int, sequence: int) -> None:
        """A message is done with."""
        self.ranges_of(source, self.epoch).add(sequence)
        if not self.is_asked:
            self.note()

    def note(self) -> None:
        """Something was added to the ranges, and the link was not asked yet."""
        if self.is_lazy:
            self._lazy_count += 1
            if self._lazy_count < LAZY_COUNT:
                return
        self.is_due = True

    def hurry(self) -> None:
        """Somebody waits, for a message or for an acknowledgement: the lazy ones may leave now."""
        if self.is_lazy and self._lazy_count and not self.is_asked:
            self.is_due = True

    def gather(self) -> pb.Ack | None:
        """What is to be acknowledged, with the next batch."""
        self.is_due = self.is_asked = False
        self._lazy_count = 0
        sets = [ack_set(one.source, one.take(), one.epoch) for one in self._ranges.values() if one]
        if len(self._ranges) > 2 * len(self.consumers) + SOURCES_SPARE:
            # Most are of consumers that were closed: going through them each time would cost more and more.
            used = {consumer.source for consumer in self.consumers}
            self._ranges = {source: one for source, one in self._ranges.items() if source in used}
        return pb.Ack(sets=sets) if sets and self.is_open else None

    def gather_handed_out(self) -> pb.HandedOut | None:
        """What the broker is to be told of the transaction, with the next batch: it has been open since."""
        if not self._untold:
            return None
        untold, self._untold = self._untold, {}
        sets = [seen_set(source, set(kept)) for source, kept in untold.items()]
        return pb.HandedOut(transaction=self.transaction, sets=sets)

    def is_void(self, consumer: Consuming, generation: int) -> bool:
        """Whether a message of this consumer, handed out in this generation of it, comes again by itself."""
        return not self.is_open or generation != consumer.generation or consumer.void_count != self.void_count

    def acknowledge(self, consumer: Consuming, sequence: int, generation: int, *, alone: bool = False) -> Acknowledged:
        """The application acknowledges a message; `alone`: no other, also where the mode has it cover all."""
        if self.is_void(consumer, generation):
            return Acknowledged.VOID
        if self.covers_all and not alone:
            return self.acknowledge_all()
        if self.acknowledges_itself:
            consumer.settled(sequence)
            return Acknowledged.DONE
        if self.rule.by is not By.APPLICATION:
            return Acknowledged.DONE  # never, or with the commit
        if not self._taken_back(consumer.source, sequence):
            return Acknowledged.DONE
        if consumer.is_closed:
            self.finished(consumer.source, sequence)  # its own ranges may be out of the books
        else:
            consumer.done_with(sequence)
        return Acknowledged.NEXT

    def acknowledge_all(self) -> Acknowledged:
        """Everything that was handed out so far is done with."""
        if not self.is_open or not self.handed:
            return Acknowledged.DONE
        handed, self.handed = self.handed, {}
        for source, kept in handed.items():
            add = self.ranges_of(source, self.epoch).add
            for sequence in sorted(kept):
                add(sequence)
                if not self.is_asked:
                    self.note()
        return Acknowledged.NEXT

    def release(self, consumer: Consuming, sequence: int, generation: int, delay_ms: int = 0) -> pb.Release | None:
        """The application gives a message back, to wait so long; None: it comes again by itself.

        Raises:
            NotAllowedError: it was settled before.
        """
        if self.is_void(consumer, generation):
            return None
        if self.keeps_track:
            if not self._taken_back(consumer.source, sequence):
                raise errors.NotAllowedError("the message was acknowledged or given back before")
        elif not consumer.in_hand.forget(sequence):
            cause = f"a session in {self.mode.name} mode acknowledged the message already"
            raise errors.NotAllowedError(cause, remedy="use a session with an explicit mode, or async for")
        return self.given_back(consumer.source, [sequence], seen=True, delay_ms=delay_ms)

    def given_back(self, source: int, sequences: list[int], *, seen: bool, delay_ms: int = 0) -> pb.Release:
        """Releases messages: whether the application has `seen` them decides if that counts as a delivery."""
        return pb.Release(sets=[ack_set(source, ranges_of(sequences), self.epoch)], seen=seen, delay_ms=delay_ms)

    def _taken_back(self, source: int, sequence: int) -> bool:
        """Whether the application had it still; it is settled with this."""
        kept = self.handed.get(source)
        if kept is None or sequence not in kept:
            return False
        kept.discard(sequence)
        if not kept:
            del self.handed[source]
        return True

    def withdrawn(self, source: int) -> None:
        """The broker has ended all consumers of a source, and taken back what they had.

        It may come again to a consumer opened anew, where nobody may acknowledge it before it was handed out. What was
        handed out in a transaction stays in the books until that is rolled back, as it has to be.
        """
        if not self.transacted:
            self.handed.pop(source, None)

    # --- Recovering

    def seen(self, only: int | None = None) -> list[pb.SeenSet]:
        """What the application was handed and has not settled, of one source or all."""
        sets = {source: set(kept) for source, kept in self.handed.items()}
        for consumer in self.consumers:
            if consumer.in_hand:
                sets.setdefault(consumer.source, set()).update(consumer.in_hand.sequences())
        return [seen_set(source, kept) for source, kept in sets.items() if kept and only in (None, source)]

    def recover(self) -> None:
        """Redelivery of everything unsettled is asked for: what comes before the answer is void."""
        self.recovering += 1
        self.void_count += 1
        self.handed.clear()
        self._untold.clear()
        for consumer in self.consumers:
            consumer.recovering()

    def recovered(self) -> None:
        """One answer has come; with the last one, what comes is good again, and needs credit again."""
        if self.recovering:
            self.recovering -= 1
            for consumer in self.consumers:
                consumer.recovered()

    # --- Transactions

    def _happens(self, event: Event) -> Effect:
        self.stage, effect = TRANSACTIONS[self.stage, event]
        if effect is Effect.BEGIN:
            self.transaction += 1
        return effect

    def _break(self) -> None:
        self._happens(Event.BREAK)
        if self.stage is Transaction.LOST:
            cause = "the connection broke during the transaction"
            lost = errors.TransactionRolledBackError(cause, retryable=True)
            self.failure = lost if self.failure is None else _undone_by(self.failure)

    def transaction_for_send(self) -> int:
        """The number of the transaction, for a message in it.

        Raises:
            SternaError: it can only be rolled back any more.
        """
        if self.stage is not Transaction.OPEN and self._happens(Event.SEND) is Effect.RAISE and self.failure:
            raise self.failure
        return self.transaction

    def check_receive(self) -> None:
        """Raises TransactionRolledBackError when the transaction that a message would be received in is over.

        Lost, it would be of another link than those before it, and no commit could take both.
        """
        if self.stage in (Transaction.LOST, Transaction.UNDONE) and self.failure is not None:
            raise self.failure

    def refused(self, error: errors.SternaError) -> None:
        """A message of the transaction was refused, or one that it had received has gone back."""
        before = self.stage
        self._happens(Event.REFUSAL)
        if before is Transaction.OPEN:
            self.failure = error

    def ended(self, transaction: int, error: errors.SternaError) -> bool:
        """The broker has rolled a transaction back, and what it was told of has gone back. Whether it is open here."""
        if transaction != self.transaction or self.stage not in (Transaction.OPEN, Transaction.REFUSED):
            return False
        self.failure = error if self.failure is None else _undone_by(self.failure)
        self._happens(Event.END)
        untold, self._untold = self._untold, {}
        left = {source: kept.intersection(untold.get(source, ())) for source, kept in self.handed.items()}
        self.handed = {source: kept for source, kept in left.items() if kept}
        return True

    def commit(self) -> tuple[Effect, pb.Ack | None, errors.SternaError | None]:
        """What is to be done, what is acknowledged in the transaction, and what the application is to be told."""
        if not self.is_open:
            self._break()
        effect = self._happens(Event.COMMIT)
        failure, self.failure = self.failure, None
        self._untold.clear()
        if effect is Effect.COMMIT:
            handed, self.handed = self.handed, {}
            sets = [ack_set(source, ranges_of(kept), self.epoch) for source, kept in handed.items() if kept]
            return effect, pb.Ack(sets=sets, transaction=self.transaction) if sets else None, None
        if effect is Effect.UNDO_AND_RAISE and failure is not None:
            failure = _undone_by(failure)
        return effect, None, failure

    def rollback(self) -> Effect:
        """What is to be done."""
        effect = self._happens(Event.ROLLBACK)
        self.failure = None
        self._untold.clear()
        return effect


def _undone_by(reason: errors.SternaError) -> errors.SternaError:
    if isinstance(reason, errors.TransactionRolledBackError):
        return reason
    undone = errors.TransactionRolledBackError(f"a message was refused: {reason}")
    undone.__cause__ = reason
    return undone
