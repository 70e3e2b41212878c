"""A session's machine with a consumer of it, an application and a broker that keeps the contract, each in a few lines.

A story goes on by events, one letter each. Whatever the machines write is judged as it reaches the broker, and whatever
they hand out as it reaches the application; `settle` ends it: then nothing may be left.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from sterna import errors
from sterna._machines.consuming import ConsumerState, Link
from sterna._machines.settling import Acknowledged, By, Covers, Effect, SessionState, Transaction
from sterna._machines.window import Window
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna.modes import AcknowledgeMode

SOURCE = 7
#: By sequence number: the bytes of the message, and of its uploaded body, which comes in two pieces.
SIZES = {1: (3, 0), 2: (4, 40), 3: (30, 0), 4: (3, 0)}


class Loop:
    """Who iterates over a consumer: in the SDK a task, or a thread."""


class WrongError(AssertionError):
    """The machines have done what they must not."""


def check(holds: bool, what: str) -> None:
    if not holds:
        raise WrongError(what)


@dataclass
class Taken:
    """A message as the application has it."""

    consumer: ConsumerState
    sequence: int
    generation: int
    period: int


@dataclass
class Broker:
    """One queue, and the one consumer on it."""

    waiting: list[int] = field(default_factory=lambda: list(SIZES))
    flagged: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    flight: dict[int, None] = field(default_factory=dict)
    wire: deque[Any] = field(default_factory=deque)
    is_open: bool = False
    limits: tuple[int, int] = (0, 0)
    sent: int = 0
    sent_bytes: int = 0
    #: The transaction that it knows to be open, what was handed out in it, and the last one that it has ended itself.
    transaction: int = 0
    told: set[int] = field(default_factory=set)
    ended: int = 0
    #: Of which the first piece is sent.
    begun: int = 0

    def give_back(self, sequences: list[int], flagged: Any) -> None:
        for sequence in sequences:
            if sequence in self.flight:
                del self.flight[sequence]
                self.waiting.append(sequence)
                if sequence in flagged:
                    self.flagged.add(sequence)
        self.waiting.sort()

    def credited(self, messages: int, size: int) -> None:
        check(messages >= self.limits[0] and size >= self.limits[1], "credit was taken back")
        self.limits = messages, size

    def turn(self) -> None:
        """Sends what the credit allows; of a large body one piece a turn."""
        while self.is_open:
            if self.begun:
                size = SIZES[self.begun][1]
                self.wire.append(pb.Delivery(sequence=self.begun, uploaded=b"y" * (size - size // 2)))
                self.begun = 0
                continue
            messages, limit_bytes = self.limits
            if not self.waiting or self.sent >= messages or (limit_bytes and self.sent_bytes >= limit_bytes):
                return
            sequence = self.waiting.pop(0)
            size, uploaded = SIZES[sequence]
            self.flight[sequence] = None
            self.sent += 1
            self.sent_bytes += size + uploaded
            delivery = pb.Delivery(sequence=sequence, message=b"x" * size, redelivered=sequence in self.flagged)
            delivery.uploaded_bytes, delivery.uploaded = uploaded, b"y" * (uploaded // 2)
            self.wire.append(delivery)
            if uploaded:
                self.begun = sequence
                return

    def taken_back(self) -> None:
        """Nothing more of what is in flight is sent."""
        self.begun = 0


def numbers(sets: Any) -> list[int]:
    """The sequence numbers of AckSets or SeenSets."""
    return [n for one in sets for r in one.ranges for n in range(r.first, (r.last or r.first) + 1)]


class Story:
    """See the module. `events` says which letters there are in a mode."""

    def __init__(self, mode: AcknowledgeMode, prefetch: int = 2, prefetch_bytes: int = 0) -> None:
        self.mode, self.prefetch, self.prefetch_bytes = mode, prefetch, prefetch_bytes
        self.session = SessionState(mode)
        self.broker = Broker()
        self.outbox: list[Any] = []
        self.loops = [Loop(), Loop()]
        self.hands: dict[Loop, Taken] = {}
        self.taken: list[Taken] = []
        self.seen: set[int] = set()
        self.finished: set[int] = set()
        #: Since the last commit or rollback.
        self.worked: set[int] = set()
        self.period = 0
        self.is_awaited = False
        self.transaction_is_lost = False
        self.consumer = self._consumer()
        self.session.opened(1, limits_time=True)
        self._open()

    @staticmethod
    def events(mode: AcknowledgeMode) -> str:
        """What can happen in a session of this mode."""
        session = SessionState(mode)
        letters = "bdtxg"
        if session.acknowledges_itself:
            letters += "ijec"
        if session.rule.by is By.APPLICATION:
            letters += "alc"
        if session.covers_all:
            letters += "o"
        if session.transacted:
            letters += "w"
        letters += "mufs" if session.transacted else "rz"
        return letters

    def _consumer(self) -> ConsumerState:
        window = Window(self.prefetch, self.prefetch_bytes)
        ended: dict[Any, bool] = {}
        self.ended = ended
        return ConsumerState(
            self.session, window, browses=False, now_ms=lambda: 0, has_ended_well=lambda who: ended.get(who, False)
        )

    def _open(self) -> None:
        self.broker.limits, self.broker.sent, self.broker.sent_bytes = (0, 0), 0, 0
        limits = self.consumer.begin()
        self.broker.credited(*limits)
        self.broker.is_open = True
        # The answer waits for the disk: deliveries come before it.
        self.broker.turn()
        self.broker.wire.append("opened")

    # --- The link

    def tell(self, event: str) -> None:
        """Lets one thing happen."""
        getattr(self, f"_on_{event}")()

    def _write(self) -> None:
        """Writes what there is, as the next batch would."""
        session, consumer = self.session, self.consumer
        if session.is_due:
            session.is_asked, session.is_due = True, False
        if consumer.is_due or (self.is_awaited and not self.prefetch):
            consumer.is_asked, consumer.is_due = True, False
        if session.is_asked:
            self._acknowledge()
        if consumer.is_asked:
            released, credit = consumer.gather(is_awaited=self.is_awaited)
            if released is not None:
                self._acknowledge()
                self.outbox.append(released)
            if credit is not None:
                self.outbox.append(credit)

    def _acknowledge(self) -> None:
        if (handed_out := self.session.gather_handed_out()) is not None:
            self.outbox.append(handed_out)
        acknowledge = self.session.gather()
        if acknowledge is not None:
            self.outbox.append(acknowledge)

    def _on_b(self) -> None:
        """The broker reads all that was written, and sends."""
        self._write()
        broker = self.broker
        outbox, self.outbox = self.outbox, []
        for frame in outbox:
            if isinstance(frame, tuple):
                broker.credited(*frame)
            elif isinstance(frame, pb.HandedOut):
                self._told(frame)
            elif isinstance(frame, pb.Transact):
                broker.transaction = 0
                broker.told.clear()
            elif isinstance(frame, pb.Ack) and frame.transaction and frame.transaction == broker.ended:
                broker.give_back([one for one in numbers(frame.sets) if one not in broker.told], numbers(frame.sets))
            elif isinstance(frame, pb.Ack):
                self._judge(frame)
                for sequence in numbers(frame.sets):
                    if sequence in broker.flight:
                        del broker.flight[sequence]
                        broker.acknowledged.add(sequence)
            elif isinstance(frame, pb.Release):
                broker.give_back(numbers(frame.sets), numbers(frame.sets) if frame.seen else ())
                broker.told.difference_update(numbers(frame.sets))
            elif isinstance(frame, pb.Recover):
                broker.taken_back()
                broker.give_back(list(broker.flight), numbers(frame.seen))
                broker.wire.append("recovered")
            elif isinstance(frame, pb.CloseConsumer):
                broker.is_open = False
                broker.taken_back()
                seen = numbers(frame.seen)
                broker.give_back([one for one in broker.flight if one not in seen], ())
        broker.turn()

    def _told(self, handed_out: pb.HandedOut) -> None:
        broker, sequences = self.broker, numbers(handed_out.sets)
        check(set(sequences) <= self.worked, "the broker is told of what was not handed out in the transaction")
        if handed_out.transaction == broker.ended:
            broker.give_back([one for one in sequences if one not in broker.told], sequences)
        else:
            broker.transaction = handed_out.transaction
        broker.told.update(sequences)

    def _on_w(self) -> None:
        """The broker ends the transaction that it knows of."""
        broker = self.broker
        if broker.transaction:
            broker.give_back(sorted(broker.told), broker.told)
            broker.wire.append(("ended", broker.transaction))
            broker.transaction, broker.ended = 0, broker.transaction

    def _judge(self, acknowledge: pb.Ack) -> None:
        for sequence in numbers(acknowledge.sets):
            check(sequence in self.seen, f"{sequence} is acknowledged, and was not handed out")
            if acknowledge.transaction:
                check(sequence in self.worked, f"{sequence} is acknowledged in a transaction that it was not of")
            else:
                check(sequence in self.finished, f"{sequence} is acknowledged, and not done with")

    def _on_d(self) -> None:
        """One frame of the broker's is read, or what belongs together."""
        while self.broker.wire:
            frame = self.broker.wire.popleft()
            if frame == "opened":
                self.consumer.opened(SOURCE, 1)
            elif frame == "recovered":
                self.session.recovered()
            elif isinstance(frame, tuple):
                if self.session.ended(frame[1], errors.TransactionRolledBackError("open for too long")):
                    self.transaction_is_lost = True
            else:
                self.consumer.delivered([frame])
            if frame == "opened" or not self.broker.wire or isinstance(self.broker.wire[0], str | tuple):
                return

    def _on_x(self) -> None:
        """The link breaks, and there is another."""
        self._ends(list(self.broker.flight))

    def _on_g(self) -> None:
        """A Goodbye: only what it calls seen is flagged."""
        self._acknowledge()
        self._on_b()
        self._ends(numbers(self.session.seen()))

    def _ends(self, flagged: list[int]) -> None:
        broker = self.broker
        if self.session.stage not in (Transaction.NONE, Transaction.LOST):
            self.transaction_is_lost = True
        self.outbox.clear()
        broker.transaction = 0
        broker.told.clear()
        broker.wire.clear()
        broker.taken_back()
        broker.give_back(list(broker.flight), flagged)
        self.session.interrupted()
        self._void()
        self.session.opened(1, limits_time=True)
        if self.consumer.link is not Link.CLOSED:
            self._open()

    def _void(self) -> None:
        self.period += 1
        self.hands.clear()

    # --- The application

    def _handed(self, delivery: Any) -> Taken:
        sequence = delivery.sequence
        check(not self.transaction_is_lost, f"{sequence} is handed out in a transaction that is lost")
        check(len(delivery.uploaded) == SIZES[sequence][1], f"{sequence} has not its whole body")
        check(sequence not in self.seen or delivery.redelivered, f"{sequence} comes again without its flag")
        self.seen.add(sequence)
        self.worked.add(sequence)
        self.finished.discard(sequence)
        return Taken(self.consumer, sequence, self.consumer.generation, self.period)

    def _on_t(self) -> None:
        """`receive`, which does not wait long."""
        self._take(Loop(), done=True)

    def _take(self, who: Loop, *, done: bool) -> None:
        consumer = self.consumer
        former = self.hands.pop(who, None)
        if former is not None and former.consumer is not consumer:
            former.consumer.finish(who)
            former_session = former.consumer.session
            check(former_session is self.session or not former_session.gather(), "a closed session acknowledges")
        elif former is not None and self.session.acknowledges_itself:
            self.finished.add(former.sequence)
        consumer.finish(who)
        try:
            is_ready = consumer.ready()
        except errors.TransactionRolledBackError:
            check(self.transaction_is_lost, "a transaction is called lost that is not")
            return
        if not is_ready:
            self.is_awaited = True
            self.session.hurry()
            return
        self.is_awaited = False
        one = self._handed(consumer.hand_out(done, who))
        self.taken.append(one)
        if done and self.session.acknowledges_itself:
            self.finished.add(one.sequence)
        elif not done:
            self.hands[who] = one

    def _on_i(self) -> None:
        """A loop's next step."""
        self._take(self.loops[0], done=False)

    def _on_j(self) -> None:
        """That of another task."""
        self._take(self.loops[1], done=False)

    def _on_e(self) -> None:
        """The task of the first loop ends well; whoever iterates then is another."""
        if (one := self.hands.pop(self.loops[0], None)) is not None:
            self.finished.add(one.sequence)
            self.ended[self.loops[0]] = True
            self.loops[0] = Loop()

    def _on_a(self) -> None:
        """The application acknowledges what it was handed last, and waits for the broker's word."""
        if self.taken:
            self._acknowledged(self.taken[-1])

    def _on_o(self) -> None:
        """That message and no other."""
        if self.taken:
            self._acknowledged(self.taken[-1], alone=True)

    def _acknowledged(self, one: Taken, *, alone: bool = False) -> None:
        if one.consumer.session is not self.session:
            return  # that one is closed, which raises before anybody asks it
        if self.session.rule.covers is Covers.ALL_HANDED_OUT and not alone:
            done = {other.sequence for other in self.taken if other.period == self.period}
        else:
            done = {one.sequence}
        is_void = one.period != self.period
        if not is_void:
            self.finished |= done
        outcome = self.session.acknowledge(one.consumer, one.sequence, one.generation, alone=alone)
        check((outcome is Acknowledged.VOID) == is_void, f"{one.sequence} is void: {is_void}, and it is {outcome}")
        if outcome is Acknowledged.NEXT:
            self.session.hurry()
            check(self.session.is_due or self.session.is_asked, "an acknowledgement is waited for, and does not leave")

    def _on_l(self) -> None:
        """It gives it back."""
        if not self.taken or self.taken[-1].consumer.session is not self.session:
            return
        one = self.taken[-1]
        try:
            released = self.session.release(one.consumer, one.sequence, one.generation)
        except errors.NotAllowedError:
            return
        check((released is None) == (one.period != self.period), f"{one.sequence} is given back, and void or not")
        if released is not None:
            self._acknowledge()
            self.outbox.append(released)

    def _on_r(self) -> None:
        """Recover."""
        self._recover(self.session.seen())

    def _recover(self, seen: list[pb.SeenSet]) -> None:
        self._acknowledge()
        self.session.recover()
        if self.session.transacted:
            self.outbox.append(pb.Transact(transaction=self.session.transaction))
        self.outbox.append(pb.Recover(seen=seen))
        self._void()

    def _on_c(self) -> None:
        """The consumer is closed, by another task than those that iterate, and another one opened."""
        consumer, session = self.consumer, self.session
        released = consumer.leave("c", failed=False)
        consumer.closed()
        self._acknowledge()
        if released is not None:
            self.outbox.append(released)
        self.outbox.append(pb.CloseConsumer(seen=session.seen(SOURCE)))
        self._on_b()
        # Nobody is there for its deliveries any more.
        self.broker.wire = deque(
            frame for frame in self.broker.wire if frame == "recovered" or isinstance(frame, tuple)
        )
        self.consumer = self._consumer()
        self._open()

    def _on_z(self) -> None:
        """The session is closed, by another task than those that iterate, and another one opened."""
        self.consumer.finish(Loop())
        seen = numbers(self.session.seen())
        self._acknowledge()
        self._on_b()
        self.session.closed()
        check(self.session.gather() is None, "it writes, and is closed")
        broker = self.broker
        broker.wire.clear()
        broker.taken_back()
        broker.give_back(list(broker.flight), seen)
        self.period += 1
        self.session = SessionState(self.mode)
        self.session.opened(1)
        self.consumer = self._consumer()
        self._open()

    # --- Transactions

    def _on_s(self) -> None:
        """Something is sent in the transaction."""
        try:
            self.session.transaction_for_send()
        except errors.SternaError:
            check(self.session.failure is not None, "a send fails without a reason")

    def _on_f(self) -> None:
        """A message of it is refused."""
        self.session.refused(errors.DestinationFullError("full"))

    def _on_m(self) -> None:
        """Commit."""
        was = self.session.stage
        seen = self.session.seen()
        effect, acknowledge, failure = self.session.commit()
        if effect is Effect.COMMIT:
            check(was is Transaction.OPEN and not self.transaction_is_lost, f"it commits what is {was}")
            if acknowledge is not None:
                self.finished |= set(numbers(acknowledge.sets))
                self.outbox.append(acknowledge)
                check(set(numbers(acknowledge.sets)) == self.worked, "it commits other than what was handed out in it")
            self.outbox.append(pb.Transact(transaction=self.session.transaction))
        else:
            check(acknowledge is None, "it acknowledges, and does not commit")
            check((failure is None) == (was is Transaction.NONE), f"a commit of what is {was} says {failure}")
        if effect is Effect.UNDO_AND_RAISE:
            self._recover(seen)
        self._on_b()
        self.worked.clear()
        self.transaction_is_lost = False

    def _on_u(self) -> None:
        """Rollback."""
        seen = self.session.seen()
        if self.session.rollback() is Effect.UNDO:
            self._recover(seen)
        check(not self.session.handed, "what is undone is still to be acknowledged")
        self.worked.clear()
        self.transaction_is_lost = False

    # --- The end

    def settle(self) -> None:
        """Everything is received and done with: nothing is left, and nothing hangs."""
        for _ in range(60):
            if len(self.broker.acknowledged) == len(SIZES):
                return
            self._on_b()
            self._on_d()
            self._on_t()
            self._on_e()
            if self.session.rule.by is By.APPLICATION:
                for one in [one for one in self.taken if one.period == self.period]:
                    self._acknowledged(one)
            if self.session.transacted:
                self._on_m()
            for who in self.loops:
                if who in self.hands and self.session.acknowledges_itself:
                    self._take(who, done=False)
        left = SIZES.keys() - self.broker.acknowledged
        raise WrongError(f"{left} were not consumed")


def told(mode: AcknowledgeMode, events: str, prefetch: int = 2, prefetch_bytes: int = 0) -> str:
    """What goes wrong in a story; empty: nothing."""
    story = Story(mode, prefetch, prefetch_bytes)
    try:
        for event in events:
            story.tell(event)
        story.settle()
    except WrongError as wrong:
        return f"{mode.name} {events} ({prefetch}, {prefetch_bytes}): {wrong}"
    return ""
