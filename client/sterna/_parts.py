"""A session on one broker. In a cluster an application's session has such a part on each that has something of it.

The rules are in `_machines.settling`; here are the requests, the promises of an answer and those who wait for them. The
application's face of it is `sessions`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from sterna import _ledger, errors
from sterna._acknowledging import Settled
from sterna._branches import Branches, Stay
from sterna._failures import joined
from sterna._ledger import Place
from sterna._link import LeftError, Link, LinkLostError
from sterna._machines.consuming import ConsumerState
from sterna._machines.settling import (
    Acknowledged,
    Answer,
    Effect,
    SessionState,
    Transaction,
    failure_of_commit,
)
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._roles import FeedRole, SendingRole, Session
from sterna.modes import AcknowledgeMode, Durability

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline


class Part:
    """See the module. `session` is its face, `number` the broker's number for it on the link in use."""

    def __init__(self, session: Session, lifeline: Lifeline, mode: AcknowledgeMode, *, is_stopped: bool) -> None:
        self.session = session
        self.lifeline = lifeline
        self.state = SessionState(mode)
        self.number = 0
        #: How often it has gone to another broker.
        self.moves = 0
        #: The ledger, where there is one; its own number for this, on whatever link; and where it was open last.
        self.book = lifeline.options.book
        self.ledger_number = self.book.session() if self.book is not None else 0
        self.place: Place | None = None
        self.link: Link | None = None
        self.closed: errors.SternaError | None = None
        self.is_stopped = is_stopped
        # Ordered, here and elsewhere: whatever is done for each of them is done in the same order in each run.
        self.feeds: dict[FeedRole, None] = {}
        self.producers: dict[SendingRole, None] = {}
        #: What this session has on other brokers. All its parts share one.
        self.branches: Branches[Part] = Branches(self)
        #: The promise of what leaves with the next frame, and those of frames without an answer.
        self._next: Settled | None = None
        self._outstanding: dict[Settled, set[int]] = {}  # with the sources that each is about

    # --- Opening, on each link anew

    def open(self, link: Link) -> Coroutine[Any, Any, None]:
        """Opens the session on `link`; its producers and consumers come after it."""
        # Where it is now: when a task of its own gets to that, it may be elsewhere.
        return self._open(link, Stay(self))

    async def _open(self, link: Link, stay: Stay) -> None:
        if stay.is_over:
            return
        number = await self._ask_to_open(link)
        link.check()  # or nobody would open it anew: it may not be among the connection's yet
        if stay.closed is not None:
            # It was closed, or went to another broker, while the connection was being restored.
            link.end_session(number)
            return
        self._opened(link, number)

    async def _ask_to_open(self, link: Link) -> int:
        """Has the broker open the session; its number there, of which nobody knows yet."""
        mode, asked = int(self.state.mode), self.is_stopped
        opening = pb.OpenSession(acknowledge_mode=mode, stopped=asked)  # type: ignore[arg-type]

        def undo(reply: Any) -> None:
            link.end_session(reply.session_opened.session)

        number: int = (await link.request(0, "open_session", opening, undo=undo)).session_opened.session
        self.is_stopped = self.branches.root.is_stopped  # by now
        if self.is_stopped is not asked:
            link.tell(number, "start", pb.Start(stop=self.is_stopped))
        return number

    def _opened(self, link: Link, number: int) -> None:
        self.number = number
        self.link, self.place = link, link.place
        self.state.opened(link.welcome.epoch, limits_time=link.welcome.limits.transaction_ms > 0)

    def interrupted(self) -> None:
        """The link is gone, and with it every delivery that was not acknowledged."""
        self.link = None
        self._note_undone()
        self.state.interrupted()
        self._settle_next()
        for feed in self.feeds:
            feed.interrupted()
            if self.state.transacted:
                feed.wake_all()  # whoever waits learns that the transaction is lost
        for producer in self.producers:
            producer.interrupted()

    def _settle_next(self) -> None:
        if self._next is not None:
            self._next.settle(False)
            self._next = None

    def _note_undone(self) -> None:
        """The ledger hears that the transaction under way, if there is one, has no effect."""
        if self.state.stage not in (Transaction.NONE, Transaction.LOST):
            self._note_transaction(_ledger.UNDONE, self.state.transaction)

    def _note_transaction(self, became: int, transaction: int, durability: int = 0) -> None:
        if self.book is not None:
            self.book.transaction(self.place, self.ledger_number, transaction, became, durability)

    def is_at(self, link: Link, number: int) -> bool:
        """Whether it is on this link, and the broker's session of this number; it may have gone and come back."""
        return self.link is link and self.number == number

    def check_at(self, link: Link, number: int, subject: object) -> None:
        """Raises where it has gone elsewhere, or the link is over."""
        if not self.is_at(link, number):
            raise link.left(str(subject or ""))

    def check_open(self) -> None:
        """Raises why the session is over, when it is."""
        if self.closed is not None:
            raise self.closed

    def _usable(self) -> Link | None:
        self.check_open()
        return self.link

    # --- Making things

    async def add_producer(self, sending: SendingRole) -> None:
        """Opens a producer in this part.

        Raises:
            ClosedError: the session was closed meanwhile.
        """

        def move() -> None:
            sending.move(self)
            self.producers.pop(sending, None)  # not before it is open

        await self._open_here(sending.open_first, move)
        if self.closed is not None:
            sending.fail(self.closed)
            raise self.closed
        self.producers[sending] = None

    async def add(self, feed: FeedRole) -> None:
        """Opens a consumer in this part.

        Raises:
            ClosedError: the session was closed meanwhile.
        """
        await self._open_here(feed.open, functools.partial(feed.move, self))
        if self.closed is not None:
            feed.fail(self.closed)
            raise self.closed
        if feed.closed is None:  # a browser may have been closed meanwhile
            self.feeds[feed] = None

    async def _open_here(self, opens: Callable[[Link], Awaitable[None]], move: Callable[[], None]) -> None:
        """Has something opened where this is: a transacted session may go elsewhere meanwhile, and it goes along.

        Nobody is kept from going by what is only being opened: of two that are, both may be told to go there.
        """
        while not await self._is_done_here(opens):
            move()

    async def _is_done_here(self, make: Callable[[Link], Awaitable[None]]) -> bool:
        """Does something where this is; whether it is there still. What was said of where it was is of no interest."""
        stay = Stay(self)
        try:
            await self.lifeline.retrying(make, stay)
        except errors.SternaError as error:
            if self.closed is not None and isinstance(error, LeftError):
                raise self.closed from None
            if self.closed is not None or not stay.is_over:
                raise
        return not stay.is_over

    async def unsubscribe(self, name: str) -> None:
        """See Session.unsubscribe."""
        await self.branches.unsubscribe(name)

    async def start(self, *, stop: bool) -> None:
        """Lets deliveries go on, or stops them: everywhere at once, since a broker may be away."""
        parts = self.parts
        for part in parts:
            part.is_stopped = stop
        asking = [part.request("start", pb.Start(stop=stop)) for part in parts]
        for error in await asyncio.gather(*asking, return_exceptions=True):
            if error is not None:
                raise error

    async def request(self, name: str, content: Any) -> None:
        """Asks for what is the same on any link. Why a refusal is no answer to the first try is its cause."""
        is_answered, lost = False, None

        async def ask(link: Link) -> None:
            nonlocal is_answered, lost
            try:
                await link.request(self.number, name, content)
            except LinkLostError as error:
                lost = error
                raise
            except errors.SternaError as error:
                raise error from lost
            is_answered = True

        # Where it has gone the number is another's there, and here the session that has this one.
        while not (await self._is_done_here(ask) or is_answered):
            pass

    async def homed(self, moved: errors.MovedError) -> Part:
        """The session's part at the broker where something lives."""
        return await self.branches.homed(self, moved)

    def another(self, lifeline: Lifeline) -> Part:
        """A branch of it, for another broker."""
        face: Callable[..., Session] = type(self.session)
        made = part_of(face(lifeline, self.state.mode, stopped=self.is_stopped))
        made.branches = self.branches
        return made

    @property
    def parts(self) -> list[Part]:
        """This session on its brokers, itself first; a branch has no others."""
        return self.branches.parts if self.branches.root is self else [self]

    # --- Acknowledging

    def ask(self) -> None:
        """Has what there is to acknowledge written with the next batch."""
        state = self.state
        state.is_due = False
        if self.link is not None and not state.is_asked:
            state.is_asked = True
            self.link.gather(self.gather)

    def hurry(self) -> None:
        """Somebody waits: lazy acknowledgements may leave now."""
        self.state.hurry()
        if self.state.is_due:
            self.ask()

    def gather(self, link: Link) -> None:
        """Posts what is to be acknowledged, and what the broker is to know of the transaction."""
        if (handed_out := self.state.gather_handed_out()) is not None:
            link.post(pb.ClientFrame(session=self.number, handed_out=handed_out).SerializeToString())
        acknowledge = self.state.gather()
        if acknowledge is None:
            return
        settled, self._next = self._next or Settled(), None
        self._outstanding[settled] = {one.source for one in acknowledge.sets}
        book, place = self.book, link.place
        noted = book.acknowledging(place, self.ledger_number, acknowledge) if book is not None else 0

        def settle(_: Any, error: errors.SternaError | None) -> None:
            del self._outstanding[settled]
            if book is not None:
                is_lost = isinstance(error, LinkLostError)
                is_lost = is_lost or (error is None and settled.is_doubtful)
                became = _ledger.LOST if is_lost else _ledger.TAKEN if error is None else _ledger.REFUSED
                book.acknowledged(noted, became, 0 if error is None else error.code)
            if error is None or isinstance(error, LinkLostError):
                settled.settle(error is None)
            else:
                settled.settle(False, error)
                self.lifeline.report(error)

        link.begin(self.number, "acknowledge", acknowledge, settle)

    def acknowledge(self, consumer: ConsumerState, sequence: int, generation: int, *, alone: bool) -> Settled:
        """See Message.acknowledge."""
        if self.closed is not None:
            raise self.closed
        state = self.state
        outcome = state.acknowledge(consumer, sequence, generation, alone=alone)
        if state.covers_all and not alone and self.branches.has_any and outcome is not Acknowledged.VOID:
            for part in self.branches.parts:
                if part is not self:
                    part.acknowledge_all()
        if state.is_due:
            self.ask()
        if outcome is Acknowledged.NEXT:
            if self._next is None:
                self._next = Settled(hurry=self.hurry)
            return self._next
        return Settled(outcome is Acknowledged.DONE)

    def withdrawn(self, source: int) -> None:
        """The broker has ended a consumer: what it had may have gone back before an acknowledgement of it came there.

        That is answered like any other that has nothing left to do.
        """
        for settled, sources in self._outstanding.items():
            if source in sources:
                settled.is_doubtful = True
        if self._next is not None:
            self._next.is_doubtful = True
        self.state.withdrawn(source)

    def acknowledge_all(self) -> None:
        """Acknowledges what was handed out, in CLIENT mode, because another part of the session does."""
        self.state.acknowledge_all()
        if self.state.is_due:
            self.ask()

    def release(
        self, consumer: ConsumerState, sequence: int, generation: int, message_id: str, delay_ms: int = 0
    ) -> None:
        """See Message.release."""
        link = self._usable()
        try:
            released = self.state.release(consumer, sequence, generation, delay_ms)
        except errors.NotAllowedError as error:
            raise errors.NotAllowedError(error.cause, subject=message_id, remedy=error.remedy) from None
        if released is not None and link is not None:
            self.post(link, pb.ClientFrame(session=self.number, release=released))

    def post(self, link: Link, frame: Any) -> None:
        """A frame behind the acknowledgements gathered so far."""
        self.gather(link)
        link.post(frame.SerializeToString())

    async def flush(self) -> None:
        """See Session.flush. All is waited for, whatever fails, before that is taken: it may be cut short."""
        refused: list[errors.SternaError] = []
        for part in self.parts:
            await part._settled(refused)
        failed = [producer.failures.take() for part in self.parts for producer in part.producers]
        if (failure := joined([*failed, *refused])) is not None:
            raise failure

    async def _settled(self, refused: list[errors.SternaError]) -> None:
        """Waits for all that this part has sent and acknowledged; of the latter what is refused is added."""
        for producer in list(self.producers):
            await producer.settled()
        if self.link is not None:
            self.gather(self.link)
        for settled in list(self._outstanding):
            try:
                await settled
            except errors.SternaError as error:
                refused.append(error)

    # --- Recovering

    def redeliver(self, recover: pb.Recover, before: pb.ClientFrame | None = None) -> Settled:
        """Asks for redelivery of everything unsettled. Deliveries that come before the reply to `recover` are void.

        A rollback goes `before`: its own reply waits for the disk, and its redeliveries might overtake it.
        """
        link = self._usable()
        if link is None:
            return Settled(True)
        self.gather(link)
        self.state.recover()
        settled = Settled()

        def settle(_: Any, error: errors.SternaError | None) -> None:
            # Here and not after the await: deliveries that follow the reply are good again.
            if self.link is link:
                self.state.recovered()
                for feed in self.feeds:
                    if feed.state.is_due:
                        feed.ask()
            settled.settle(True, None if isinstance(error, LinkLostError) else error)

        if before is not None:
            link.post(before.SerializeToString())
        link.begin(self.number, "recover", recover, settle)
        return settled

    async def recover(self) -> None:
        """See Session.recover."""
        for begun in [part.redeliver(pb.Recover(seen=part.state.seen())) for part in self.branches.parts]:
            await begun

    # --- Transactions

    async def commit(self) -> Durability | None:
        """See Session.commit."""
        if self.state.stage is Transaction.NONE:
            return None
        link = self._usable()
        seen = self.state.seen() if self.state.stage in (Transaction.REFUSED, Transaction.UNDONE) else []
        effect, acknowledge, failure = self.state.commit()
        if effect is Effect.UNDO_AND_RAISE:
            await self._undo(seen)
        if failure is not None:
            raise failure
        if link is None:  # pragma: no cover - an interruption has said so
            raise errors.TransactionRolledBackError("the connection is interrupted", retryable=True)
        transaction = self.state.transaction
        if acknowledge is not None:
            if self.book is not None:
                self.book.acknowledging(link.place, self.ledger_number, acknowledge)
            self.post(link, pb.ClientFrame(session=self.number, acknowledge=acknowledge))
        self._note_transaction(_ledger.ASKED, transaction)
        verb = pb.Transact(transaction=transaction, verb=pb.Transact.COMMIT)
        answer, durability = Answer.TAKEN, 0
        cause: errors.SternaError | None = None
        try:
            reply = await link.request(self.number, "transact", verb)
            durability = reply.transacted.durability
            if reply.transacted.rolled_back:
                answer = Answer.UNDONE
        except LinkLostError as error:
            answer, cause = Answer.BREAK, error
        except errors.SternaError as error:
            answer, cause = Answer.REFUSED, error
        became = _ledger.LOST if answer is Answer.BREAK else _ledger.TAKEN if answer is Answer.TAKEN else _ledger.UNDONE
        self._note_transaction(became, transaction, durability)
        if self.book is not None:
            self.book.flush()  # before anybody is told
        failure = failure_of_commit(answer, cause)
        if failure is None:
            return Durability(durability)
        if failure is cause:
            raise failure
        raise failure from cause

    def on_transaction_ended(self, ended: Any) -> None:
        """The broker has rolled a transaction back: whoever waits for a message in it learns that."""
        if self.state.ended(ended.transaction, errors.from_proto(ended.reason)):
            for feed in self.feeds:
                feed.wake_all()

    async def rollback(self) -> None:
        """See Session.rollback."""
        seen = self.state.seen()
        if self.state.rollback() is Effect.UNDO:
            await self._undo(seen)

    async def _undo(self, seen: list[pb.SeenSet]) -> None:
        self._note_transaction(_ledger.UNDONE, self.state.transaction)
        verb = pb.Transact(transaction=self.state.transaction, verb=pb.Transact.ROLLBACK, seen=seen)
        await self.redeliver(pb.Recover(), before=pb.ClientFrame(session=self.number, transact=verb))

    # --- Closing

    def fail(self, error: errors.SternaError) -> None:
        """The session is over: whoever waits in it learns why."""
        if self.closed is not None:
            return
        self.closed = self.session.closed = error
        self.lifeline.forget(self)
        if self.branches.root is self:
            self.branches.over()
        self._note_undone()
        self.state.closed()
        self._settle_next()
        for feed in [*self.feeds, *self.branches.followers_of(self)]:
            feed.fail(error)
        for producer in list(self.producers):
            producer.fail(error)

    async def close(self, *, failed: bool) -> None:
        """See Session.close. Cut short, it does not wait for senders, listeners and other brokers any longer."""
        if self.closed is not None:
            return
        try:
            failure = await self._wind_up(failed=failed)
        except asyncio.CancelledError:
            self.break_off_all()
            raise
        if self.closed is None:  # or another call was faster
            await self._close()
        if failure is not None and not failed:
            raise failure

    async def _close(self) -> None:
        link = self.link
        seen = self.state.seen()
        if link is not None:
            self.gather(link)
        outstanding = list(self._outstanding)
        self.fail(errors.ClosedError("the session was closed", subject="session"))
        if link is not None:
            with contextlib.suppress(LinkLostError, errors.ClosedError):
                await link.request(self.number, "close_session", pb.CloseSession(seen=seen))
            for one in outstanding:
                with contextlib.suppress(errors.SternaError):
                    await one  # a refusal was reported when it came

    async def _wind_up(self, *, failed: bool) -> errors.SternaError | None:
        await self.branches.leave(self)
        failures: list[errors.SternaError | None] = [await self._flush_producers()]
        for feed in list(self.feeds):
            await feed.stop_listening()
            if not failed:
                feed.finish()
        while branches := self.parts[1:]:
            try:
                await branches[0].close(failed=failed)
            except errors.SternaError as error:
                failures.append(error)
        return joined(failures)

    def break_off_all(self) -> None:
        """Ends it on all brokers at once."""
        for part in reversed(self.parts):
            part.break_off()

    def break_off(self) -> None:
        """Ends it at once, as seen as it is: what listeners and others have in hand comes again, flagged."""
        if self.closed is not None:
            return
        link, seen = self.link, self.state.seen()
        if link is not None:
            self.gather(link)
        self.fail(errors.ClosedError("the session was closed", subject="session"))
        if link is not None:
            link.tell(self.number, "close_session", pb.CloseSession(seen=seen))

    async def _flush_producers(self) -> errors.SternaError | None:
        producers = list(self.producers) if not self.state.transacted else []
        for producer in producers:
            await producer.settled()
        return joined([producer.failures.take() for producer in producers])

    def abandon(self) -> None:
        """Ends it without waiting for the broker's word: whoever was making it was cancelled."""
        link = self.link
        self.fail(errors.ClosedError("the session was given up", subject="session"))
        if link is not None:
            link.end_session(self.number)

    async def move(self, lifeline: Lifeline, moved: errors.MovedError) -> None:
        """Takes a transacted session to another broker, as long as it has nothing where it is.

        It stays where it is until it is open there: whoever waits for that may be cancelled, or nobody may be there.

        Raises:
            SpansHomesError: it has.
        """
        self._check_free(moved)

        async def change(link: Link) -> None:
            number = await self._ask_to_open(link)
            link.check()
            try:
                self.check_open()
                self._check_free(moved)
            except errors.SternaError:
                link.end_session(number)
                raise
            if self.link is not None:
                self.link.end_session(self.number)
            former, self.lifeline, self.moves = self.lifeline, lifeline, self.moves + 1
            self.state.interrupted()  # nobody waits for the answer to a rollback any more, and what comes is good
            self._opened(link, number)
            lifeline.parts.append(self)
            # At once: whoever waits for this may be cancelled, or one of them closed, before all are open there.
            for producer in list(self.producers):
                producer.move(self)
            former.forget(self)

        await lifeline.retrying(change, self)
        for producer in list(self.producers):
            if producer.destination is None:
                await lifeline.retrying(producer.open_first, self)

    def _check_free(self, moved: errors.MovedError) -> None:
        anonymous = [one for one in self.producers if one.destination is None]
        is_used = self.state.stage is not Transaction.NONE or self.feeds
        if is_used or len(anonymous) < len(self.producers):
            cause = f"a transaction cannot reach over brokers: {moved.cause}"
            raise errors.SpansHomesError(cause, subject=moved.subject)


def part_of(session: Session) -> Part:
    """What is behind an application's session."""
    part: Part = session._part
    return part


def abandon(session: Session) -> None:
    """Ends a session on all brokers without waiting for their word: whoever was making it was cancelled."""
    for part in reversed(part_of(session).parts):
        part.abandon()
