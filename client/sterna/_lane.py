"""A lane: one producer as the broker knows it, awaited. The face of the machine in `_machines/producing`.

A `Producer` of the application has up to two: one for messages that are confirmed and one for RELIABLE ones, which
never are (EMS-MSG-A19) and would leave holes in the numbers that a reconnect sends again.

The machine numbers, keeps and decides; here are the futures of those who wait for room, for a confirmation or for all
of it, the pause after a refusal for now, and the way of its frames to the link. A message is given to the machine by
the producer itself: a call more would be a good part of what it costs.

Bounds: a window in messages per lane, and one in bytes for the whole connection (`Flow`), which stays below what the
broker allows in flight; the broker's producer credit counts as well. Whoever finds no room waits in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from sterna import errors
from sterna._failures import Failures
from sterna._held import Held
from sterna._ledger import Origin, Place
from sterna._ledger_format import IS_CONFIRMED, IS_TRANSACTED
from sterna._link import Link, LinkLostError
from sterna._machines.producing import Opened, Outcomes, Producing
from sterna._machines.publishing import Ahead, Chunks, Run
from sterna._proto.sterna.v1 import message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._surroundings import random_bits
from sterna.destinations import Destination
from sterna.messages import Sent, sent_at
from sterna.modes import Durability

if TYPE_CHECKING:
    from sterna._parts import Part

_UPLOAD_CHUNK_BYTES: Final = 192 * 1024
#: Room in a frame for what surrounds a chunk.
_CHUNK_SLACK_BYTES: Final = 1024


#: What is told of a message: a future, or a listener of the application's.
Settle = Callable[[Sent | errors.SternaError], None] | asyncio.Future[Sent]


class Named(Protocol):
    """What an application calls its producer, and where it begins; `ProducerOptions` say what each means."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def first_number(self) -> int:
        """The number of its first message; 0: the one behind what the broker has."""

    @property
    def unknown_is_new(self) -> bool:
        """Whether a name that was perhaps forgotten is taken for a new one."""


class Owner(Protocol):
    """Whose lane it is: the one who follows when the destination moves."""

    is_following: bool

    def moved(self, error: errors.MovedError) -> bool:
        """The destination lives elsewhere: goes there. Whether it can."""

    def waits(self) -> bool:
        """The destination is to be had nowhere for now: opens the lanes when it is. Whether it does."""

    def told(self) -> None:
        """A lane is not open any more where it was: nothing more comes of it from there."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A sender that waits for room for `size` bytes, until it is told."""

    told: asyncio.Future[None]
    size: int


class Lane:
    """See the module."""

    def __init__(
        self,
        owner: Owner,
        part: Part,
        destination: Destination | None,
        window: int,
        *,
        confirmed: bool,
        named: Named | None = None,
        failures: Failures | None = None,
    ) -> None:
        self.owner = owner
        self.part = part
        self.destination = destination
        self.confirmed = confirmed
        self.lifeline = lifeline = part.lifeline
        self._transacted = part.state.transacted
        self.machine = Producing(
            lifeline.next_producer_id(),
            lifeline.flow,
            window,
            keeps=confirmed and not self._transacted,
            resumes=confirmed,
        )
        self._named = named
        self._book = lifeline.options.book
        self._was_opened = False
        #: Where whoever opens it has not seen the answer yet, and why the broker has ended it by then.
        self._opening_on: Link | None = None
        self._ended: errors.SternaError | None = None
        #: The highest number that the broker had when it first opened a producer by its name.
        self.last_number = 0
        #: The lowest number of which nobody can tell whether it is stored; 0: of each it is known.
        self._in_doubt_from = 0
        #: What failed of messages that nobody waits for.
        self.failures = failures if failures is not None else Failures()
        self._flow = lifeline.flow
        self._link: Link | None = None
        # The pause after the broker refused something for now.
        self._held = Held(self._due)
        self._waiters: deque[Waiter] = deque()
        # The link of which something has to be written first.
        self._awaited: Link | None = None
        # Random, since a message that goes to another broker's lane keeps the number of its upload.
        self._upload_ids = random_bits(48)

    @property
    def id(self) -> int:
        """Its number on the connection."""
        return self.machine.id

    @property
    def origin(self) -> Any:
        """What the ledger knows it as, where there is one."""
        return self.machine.origin

    @property
    def closed(self) -> errors.SternaError | None:
        """Why it is over; None while it is not."""
        return self.machine.closed

    # --- Opening, on each link anew

    @property
    def is_open(self) -> bool:
        """Whether it is open on a link, as far as is known, or is being opened."""
        return (self._link is not None or self._opening_on is not None) and self.closed is None

    def is_missing_on(self, link: Link) -> bool:
        """Whether it is not open on this very link, and not over."""
        return self._link is not link and self.closed is None

    async def open(self, link: Link, *, again: bool) -> None:
        """Opens the producer on `link` and sends what is unconfirmed.

        Raises:
            LinkLostError: try again on the next link.
            SternaError: the broker refuses this producer, or has ended it since it was opened.
        """
        self._opening_on, self._ended = link, None
        try:
            await self._ask_to_open(link, again=again)
        finally:
            if self._opening_on is link:  # or it has gone elsewhere with its session, and is opened there
                self._opening_on = None
            self.owner.told()
        self._check_ended()

    def _check_ended(self) -> None:
        if self._ended is not None:
            if isinstance(self._ended, errors.MovedError) or errors.is_for_now(self._ended):
                self.moved()  # or it would be taken for open, where nobody knows it any more
            raise self._ended

    async def _ask_to_open(self, link: Link, *, again: bool) -> None:
        part, machine, number = self.part, self.machine, self.part.number
        part.check_at(link, number, self.destination)
        opening = pb.OpenProducer(producer=machine.id)
        if self.destination is not None:
            opening.destination.CopyFrom(
                message_pb2.Destination(kind=self.destination.kind, name=self.destination.name)  # type: ignore[arg-type]
            )
        known, named = machine.opening(), self._named
        if known is not None:
            opening.incarnation = known.incarnation
            opening.first_unconfirmed = known.first_unconfirmed
            opening.token = known.token
            opening.left_out.extend(pb.SequenceRange(first=first, last=last) for first, last in known.left_out)
            opening.uploads.extend(known.uploads)
        if named is not None:
            opening.name, opening.unknown_is_new = named.name, named.unknown_is_new
            if known is None:
                # Elsewhere, or where the name was forgotten, its numbers go on.
                opening.first_unconfirmed = machine.first_left if self._was_opened else named.first_number
                if self._was_opened:
                    opening.settled_below = min(machine.first_left, self._in_doubt_from or machine.first_left)
                    opening.left_out.extend(pb.SequenceRange(first=one, last=last) for one, last in machine.left_out)

        def close() -> None:
            link.tell(number, "close_producer", pb.CloseProducer(producer=opening.producer))

        def undo(_: Any) -> None:
            if not again:
                close()

        def at_once(reply: Any) -> None:
            # What stands behind the answer may end the producer again, as when its destination moves.
            if self._ended is not None:
                return  # the answer is of what is over
            if not part.is_at(link, number):
                return  # with the session it is over at this broker
            if machine.closed is None:
                self._opened(link, number, reply.producer_opened, opening, anew=known is None)
            else:
                close()  # it was over before the broker had answered

        try:
            await link.request(number, "open_producer", opening, at_once=at_once, undo=undo)
        except errors.UnknownProducerError as error:
            part.check_at(link, number, self.destination)  # or it would be said of another broker's
            if known is None:
                raise
            self.lifeline.in_doubt += self._fail_doubtful(machine.forgotten(), error)
            await self._ask_to_open(link, again=False)
        part.check_at(link, number, self.destination)

    def _opened(self, link: Link, session: int, answer: Any, opening: pb.OpenProducer, *, anew: bool) -> None:
        """The broker has opened it: what is unconfirmed is sent."""
        first = 1
        if self._named is not None:
            first = opening.first_unconfirmed or answer.last_sequence + 1
            if not self._was_opened:
                self.last_number = answer.last_sequence
        keeps = self._named is not None and self._was_opened
        self._was_opened = True
        credit = answer.credit  # none at all is no limit
        # A broker from before ids had a prefix gives none.
        prefix = answer.message_id_prefix or f"ID:{self.lifeline.broker}.{answer.incarnation:X}:"
        limits = credit.sequence_limit, credit.bytes_limit
        has = tuple((one.upload_id, one.bytes, one.crc32) for one in answer.uploads)
        opened = Opened(answer.incarnation, answer.token, prefix, answer.last_sequence, *limits, has)
        self._link = link
        if self._book is not None and link.place is not None:
            self._witnessed(link.place, answer.incarnation, prefix)
        self.machine.opened(opened, session, link.outbox, anew=anew, first=first, keeps=keeps)
        self._sent_again()

    def _witnessed(self, place: Place, incarnation: int, prefix: str) -> None:
        """What it is to the ledger from now on; before the machine sends anything."""
        flags = self.confirmed * IS_CONFIRMED | self._transacted * IS_TRANSACTED
        name = self._named.name if self._named is not None else ""
        made = Origin(place, self.part.ledger_number, self.destination, (incarnation, prefix), flags, name)
        made.goes_on(self.machine.origin)
        self.machine.origin = made

    def _sent_again(self) -> None:
        """The machine may have sent something again; when that is all, new messages have room."""
        self.write()
        if self.machine.serving:
            self.look_for_room()
        self._flow.wake()

    def interrupted(self) -> None:
        """The link is gone; numbering goes on without one."""
        self._link = None
        self._held.clear()
        self.machine.lost()
        self.owner.told()
        if self._transacted:
            self.look_for_room()
        self._flow.wake()

    # --- Moving to another broker

    def follows(self, error: errors.SternaError) -> bool:
        """Whether `error` says that the destination lives elsewhere now, and the lane goes there.

        What was under way when the broker closed the producer for that reason is refused as sent to none.
        """
        if isinstance(error, errors.ClosedError):
            return self.owner.is_following
        if not isinstance(error, errors.MovedError) or not self.owner.moved(error):
            return False
        self.moved()
        return True

    def moved(self) -> None:
        """The destination is elsewhere: what is unconfirmed goes there, but for what may be here as well."""
        self._link = None
        self._held.clear()
        cause = "the destination moved to another broker, and it may have arrived before the connection broke"
        self._fail_doubtful(self.machine.moved(), errors.UnknownProducerError(cause, subject=str(self.destination)))
        if self._book is not None:
            self._book.sent_elsewhere(self.origin, self.machine.unconfirmed, errors.ErrorCode.MOVED)
        self.owner.told()

    def move(self, part: Part) -> None:
        """Belongs to another link from now on; what is unconfirmed is sent there, once it is opened."""
        flow, lifeline = self._flow, part.lifeline
        flow.leave(self)
        self.machine.transfer(lifeline.next_producer_id(), lifeline.flow)
        self.part, self.lifeline, self._flow = part, lifeline, lifeline.flow
        flow.wake()
        self.look_for_room()

    # --- Sending

    def message_id(self, sequence: int) -> str:
        """The id the broker gives the message of this number (EMS-MSG-A26)."""
        return f"{self.machine.id_prefix}{sequence}"

    def has_room(self, size: int) -> bool:
        """Whether a message of `size` bytes may be numbered now; sets the budget for those after it."""
        if self._waiters or not self.machine.has_room(size):
            return False
        self.machine.grant()
        return True

    async def room(self, size: int) -> None:
        """Waits, in turn, until a message of `size` bytes may be numbered."""
        loop, machine = asyncio.get_running_loop(), self.machine
        waiter = Waiter(loop.create_future(), size)
        self._waiters.append(waiter)
        machine.budget = 0  # who comes later waits behind it
        try:
            self.look_for_room()
            await waiter.told
            while not machine.has_room(size):
                # Something has come between, as a link that broke. It is still the first.
                waiter.told = loop.create_future()
                self.look_for_room()
                await waiter.told
            machine.grant()
        finally:
            is_first = not self._waiters or self._waiters[0] is waiter
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            if is_first:
                # Behind the number that this message gets now. Of one that gives up behind the first nothing follows,
                # or those who do would cost that its turn.
                loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        """The next sender of this lane waits, and the next lane of the connection has its turn."""
        self._flow.leave(self)
        self.look_for_room()
        self._flow.wake()

    def _wait_for_outbox(self) -> None:
        """Has whoever waits for room look again once something was written; credit comes by itself."""
        link = self._link
        if link is None or link is self._awaited or link.lost is not None or not self.machine.outbox_is_full:
            return
        self._awaited = link
        link.drained().add_done_callback(lambda _: self._written(link))

    def _written(self, link: Link) -> None:
        if self._awaited is link:
            self._awaited = None
        self.look_for_room()

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiters)

    @property
    def waits_for_flow(self) -> bool:
        """Whether somebody waits for room, and for nothing but the connection's."""
        return bool(self._waiters) and self.machine.closed is None and self._waits_its_turn

    @property
    def _waits_its_turn(self) -> bool:
        # Whoever is away looks again when it is not: with the turn it would keep all others waiting.
        return self.machine.has_credit and not self.machine.is_away

    @property
    def is_short(self) -> bool:
        """Whether the first who waits was not told that there is room."""
        return bool(self._waiters) and not self._waiters[0].told.done()

    def look_for_room(self) -> None:
        """Lets the first who waits look again, if there is room; else it waits for what it lacks."""
        if not self.is_short:
            return  # whoever was told, or is cancelled, passes it on
        first, machine = self._waiters[0], self.machine
        if machine.has_room(first.size):
            first.told.set_result(None)
        elif not machine.keeps:
            self._wait_for_outbox()
        elif self._waits_its_turn:
            self._flow.enter(self)

    def transaction(self) -> int:
        """The transaction that the next message belongs to; asked before it is numbered, so that it leaves no gap.

        Raises:
            SternaError: the lane is closed, by whom it says, or the transaction is lost.
        """
        if self.machine.closed is not None:
            raise self.machine.closed
        if not self.machine.serving:
            self.part.state.check_receive()  # what is given now would be written nowhere, and its commit taken
            raise errors.TransactionRolledBackError("the connection is interrupted", retryable=True)
        return self.part.state.transaction_for_send()

    def write(self) -> None:
        """Takes the machine's frames to the link."""
        frames, link = self.machine.frames, self._link
        if link is not None:
            for frame in frames:
                if type(frame) is Run:
                    link.open_run(frame)
                else:
                    self._write_ahead(link, frame)  # type: ignore[arg-type]
        frames.clear()

    def _write_ahead(self, link: Link, ahead: Ahead) -> None:
        """Sends a large body ahead, in chunks; after a break from where the broker has it."""
        machine, data = self.machine, ahead.data
        most = min(_UPLOAD_CHUNK_BYTES, link.frame_bytes - _CHUNK_SLACK_BYTES)
        link.open_body(Chunks(ahead, machine.id, machine.session, most, resumes=machine.keeps))
        if self._book is not None:
            link.uploads[machine.id, ahead.upload] = self._book.digest(data), len(data)

    def next_upload_id(self) -> int:
        """A number for an upload, unique in this lane."""
        self._upload_ids += 1
        return self._upload_ids

    # --- What the broker says

    def on_closed(self, error: errors.SternaError) -> None:
        """ProducerClosed, with its reason."""
        if self._opening_on is not None:
            self._ended = error  # whoever opens it learns that, and goes on from there
        elif errors.is_for_now(error) and self.owner.waits():
            self.moved()  # what it has no answer to is not kept there
        elif not self.follows(error):
            self.fail(error)

    def on_credit(self, credit: Any) -> None:
        """ProducerCredit."""
        self.machine.credit(credit.sequence_limit, credit.bytes_limit)
        self._sent_again()

    def on_confirmed(self, confirmed: Any) -> None:
        """A range is as safe as it says; its messages may be forgotten here."""
        self._held.taken()
        machine = self.machine
        told = machine.confirmed(confirmed.first, confirmed.last or confirmed.first)
        if self._book is not None and (told or machine.marks):
            self._book.flush()
        if told:
            arrived_ms, durability = confirmed.arrived_ms, Durability(confirmed.durability)
            for sequence, entry in told:
                settle = entry.settle
                sent = sent_at(self.message_id(sequence), arrived_ms, entry.times, durability)
                if not isinstance(settle, asyncio.Future):
                    self.lifeline.guarded(settle, sent)
                elif not settle.done():
                    settle.set_result(sent)
        # Asked here: for a message alone, three calls for nothing would be a good part of what it costs.
        if self._flow.waiting:
            self._flow.wake()
        if self._waiters:
            self.look_for_room()
        if machine.marks:
            self._check_flushed()

    def on_rejected(self, rejected: Any) -> None:
        """A range was refused: each of its messages fails, or is sent again."""
        machine, error = self.machine, errors.from_proto(rejected.error)
        first, last = rejected.first, rejected.last or rejected.first
        origin = self.origin
        if self.follows(error):
            if self._book is not None:
                self._book.refused(origin, first, last, error.code, is_final=False)
            return  # nothing of it is kept there; it is sent again where the destination lives
        patience_s = self.lifeline.options.reconnect.give_up_after_s
        holds = machine.keeps and machine.closed is None and self._held.may_hold(error, patience_s)
        if self._book is not None:
            self._book.refused(origin, first, last, error.code, is_final=not holds)
        if holds:
            if machine.put_off(first, last):
                self._held.hold()
            self._flow.wake()  # those in line do not wait for it
            return
        if self._transacted:
            self.part.state.refused(error)
        self._fail_each(machine.refused(first, last), error)
        self.look_for_room()

    def _due(self) -> None:
        """Sends what was refused for now, but what its sender does not wait for any more."""
        given_up = [
            sequence
            for sequence, entry in self.machine.waiting()
            if not isinstance(entry, bytes) and isinstance(entry.settle, asyncio.Future) and entry.settle.cancelled()
        ]
        if self._book is not None:
            self._book.given_up(self.origin, given_up)
        self.machine.due(given_up)
        self._flow.wake()
        self._sent_again()
        self._check_flushed()

    def _fail_doubtful(self, outcomes: Outcomes, error: errors.SternaError) -> int:
        """As `_fail_each`, where nobody can tell whether they are stored: whoever sends one again decides so."""
        if outcomes:
            lowest = min(sequence for sequence, _ in outcomes)
            self._in_doubt_from = min(lowest, self._in_doubt_from or lowest)
            self._note_doubt(outcomes, error)
        return self._fail_each(outcomes, error)

    def _note_doubt(self, outcomes: Outcomes, error: errors.SternaError) -> None:
        if self._book is not None:
            self._book.in_doubt(self.origin, [sequence for sequence, _ in outcomes], error.code)

    def _fail_each(self, outcomes: Outcomes, error: errors.SternaError) -> int:
        """Tells whoever sent these messages, or the next flush. How many there are."""
        for sequence, entry in outcomes:
            if isinstance(entry, bytes) or entry.settle is None:
                self.failures.add(self.message_id(sequence), error)
            elif not isinstance(entry.settle, asyncio.Future):
                self.lifeline.guarded(entry.settle, error)
            elif not entry.settle.done():
                entry.settle.set_exception(error)
        self._flow.wake()
        self._check_flushed()
        return len(outcomes)

    # --- Flushing and closing

    async def settled(self) -> None:
        """Waits until everything numbered so far is confirmed or failed."""
        flusher = asyncio.get_running_loop().create_future()
        if self.machine.mark(flusher):
            await flusher

    def _check_flushed(self) -> None:
        for flusher in self.machine.passed():
            if not flusher.done():
                flusher.set_result(None)

    def fail(self, error: errors.SternaError) -> None:
        """The lane is over: what is unconfirmed fails with `error`, and so does every later send."""
        if self.machine.closed is None and self._transacted:
            # What it had sent in the transaction under way may not have been taken.
            self.part.state.refused(error)
        self._over(error)

    def _over(self, error: errors.SternaError) -> None:
        self._held.clear()
        left = self.machine.close(error)
        self._note_doubt(left, error)
        self._fail_each(left, error)
        self.owner.told()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.told.done():
                waiter.told.set_result(None)
        self._flow.wake()

    def leave(self) -> asyncio.Future[None]:
        """Ends the lane, and tells the broker; done when that has answered. Everything must have been flushed.

        Not a coroutine: whoever waits for the answer may be cancelled, and the lane is over all the same.
        """
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(_: Any, error: errors.SternaError | None) -> None:
            if told.done():
                return
            if error is None or isinstance(error, LinkLostError | errors.ClosedError):
                told.set_result(None)  # with the link the producer is gone as well
            else:
                told.set_exception(error)

        link, is_open = self._link, self.closed is None
        if is_open:
            # The broker hears of that behind all it has sent: the commit says what has become of a transaction.
            self._over(errors.ClosedError("the producer was closed", subject=str(self.destination or "producer")))
        self.lifeline.unroute_lane(self)
        if is_open and link is not None and link.lost is None:
            link.begin(self.part.number, "close_producer", pb.CloseProducer(producer=self.id), settle)
        else:
            told.set_result(None)
        return told
