"""A lane: one producer as the broker knows it, with its numbers and what is not confirmed yet.

A `Producer` of the application has up to two: one for messages that are confirmed and one for RELIABLE ones, which
never are (EMS-MSG-A19) and would leave holes in the numbers that a reconnect sends again.

A message is numbered and kept here before anything is written. While the connection is interrupted that is all that
happens to it; on every new link the lane opens itself under its incarnation and sends everything unconfirmed again,
under the same numbers, so that the broker keeps one of each. A lane of a transacted session keeps nothing: what its
transaction had sent is gone with the link, and the commit says so.

Bounds: a window in messages per lane, and one in bytes for the whole connection (`Flow`), which stays below what the
broker allows in flight; the broker's producer credit counts as well. Whoever finds no room waits in turn.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from sterna import errors
from sterna._encode import encode_destination, field
from sterna._held import Held
from sterna._link import Link, LinkLostError, Run
from sterna._proto.sterna.v1 import message_pb2
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna._surroundings import random_bits
from sterna.destinations import Destination
from sterna.messages import Sent
from sterna.modes import Durability

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline
    from sterna.producers import Producer
    from sterna.sessions import Session

#: What a lane that nobody confirms may have queued before its senders wait.
_UNCONFIRMED_OUTBOX_BYTES: Final = 4 * 1024 * 1024
_UPLOAD_CHUNK_BYTES: Final = 192 * 1024
_UNLIMITED: Final = 1 << 62
_FAILURES_KEPT: Final = 1000
#: Bytes are looked at this often.
_BUDGET_MAX: Final = 32


#: What is told of a message: a future, or a listener of the application's.
Settle = Callable[[Sent | errors.SternaError], None] | asyncio.Future[Sent]


class Entry:
    """An unconfirmed message of which more is known than its bytes."""

    __slots__ = ("delay_ms", "destination", "message", "settle", "upload")

    def __init__(
        self,
        message: bytes,
        settle: Settle | None,
        delay_ms: int,
        destination: bytes,
        upload: tuple[int, bytes] | None,
    ) -> None:
        self.message = message
        self.settle = settle
        self.delay_ms = delay_ms
        self.destination = destination
        self.upload = upload

    def __len__(self) -> int:
        return len(self.message) + (len(self.upload[1]) if self.upload else 0)


class Flow:
    """The bytes that a connection has in flight, all lanes together, and who waits for room."""

    __slots__ = ("bytes", "limit", "waiting")

    def __init__(self, limit: int) -> None:
        self.bytes = 0
        self.limit = limit
        self.waiting: dict[Lane, None] = {}

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may be in flight; one message always may."""
        return self.bytes == 0 or self.bytes + size <= self.limit

    def release(self, count: int) -> None:
        """Takes `count` bytes off, and wakes the lanes that waited for that."""
        self.bytes -= count
        if self.waiting and self.bytes < self.limit:
            waiting, self.waiting = self.waiting, {}
            for lane in waiting:
                lane.look_for_room()
                if lane.is_waited_for:
                    self.waiting[lane] = None  # what there is does not do for its first: it is looked at again


class Lane:
    """See the module. `run` is the growing Publish frame, when there is one; `next` the next number."""

    def __init__(
        self, lifeline: Lifeline, session: Session, destination: Destination | None, window: int, confirmed: bool
    ) -> None:
        self.lifeline = lifeline
        self.session = session
        self.destination = destination
        self.window = window
        self.confirmed = confirmed
        self.id = lifeline.next_producer_id()
        self.incarnation = 0
        #: The highest number that the broker had when it opened a producer by its name.
        self.last_number = 0
        self._token = b""
        self._id_prefix = ""
        self.next = 1
        self.run: Run | None = None
        self.unconfirmed: dict[int, bytes | Entry] = {}
        self.failures: list[tuple[str, errors.SternaError]] = []
        self.failures_count = 0
        self.closed: errors.SternaError | None = None
        self._flow = lifeline.flow
        #: What of the broker's credit in bytes is left.
        self.bytes_left = _UNLIMITED
        self._sequence_limit = _UNLIMITED
        self._bytes_sent = 0
        self._link: Link | None = None
        # The highest number that was handed to a link under this incarnation: what lies above has arrived nowhere.
        self._handed = 0
        # What was unconfirmed when the link came up and has not been sent again yet, for want of credit.
        self._again: deque[tuple[int, bytes | Entry]] = deque()
        # What the broker refused for now.
        self._held = Held(self._again_after_pause)
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        #: So many messages may be numbered before anybody looks for room again.
        self.budget = 0
        self._flushers: list[tuple[int, asyncio.Future[None]]] = []
        # Random, since a message that goes to another broker's lane keeps the number of its upload.
        self._upload_ids = random_bits(48)
        #: Whose lane it is: the one who follows when the destination moves.
        self.owner: Producer | None = None

    # --- Opening, on each link anew

    async def open(self, link: Link, *, again: bool) -> None:
        """Opens the producer on `link` and sends what is unconfirmed.

        Raises:
            LinkLostError: try again on the next link.
            SternaError: the broker refuses this producer.
        """
        opening = pb.OpenProducer(producer=self.id)
        if self.destination is not None:
            opening.destination.CopyFrom(
                message_pb2.Destination(kind=self.destination.kind, name=self.destination.name)  # type: ignore[arg-type]
            )
        known = self.confirmed and self.incarnation and again
        if known:
            opening.incarnation = self.incarnation
            opening.first_unconfirmed = next(iter(self.unconfirmed), self.next)
            opening.token = self._token
            opening.left_out.extend(pb.SequenceRange(first=first, last=last) for first, last in self._settled_since())
        options = self.owner.options if self.owner is not None and self.confirmed else None
        if options is not None and options.name:
            opening.name, opening.unknown_is_new = options.name, options.unknown_is_new
            if not again:
                opening.first_unconfirmed = options.first_number
        number = self.session._number

        def undo(_: Any) -> None:
            if not again:
                link.tell(number, "close_producer", pb.CloseProducer(producer=opening.producer))

        def at_once(reply: Any) -> None:
            # What stands behind the answer may end the producer again, as when its destination moves.
            self._opened(link, reply.producer_opened, opening, anew=not known)

        try:
            await link.request(number, "open_producer", opening, at_once=at_once, undo=undo)
        except errors.UnknownProducerError as error:
            if not known:
                raise
            self.lifeline.in_doubt += self._forgotten(error, self._handed)
            await self.open(link, again=False)

    def _opened(self, link: Link, opened: Any, opening: pb.OpenProducer, *, anew: bool) -> None:
        """The broker has opened it: what is unconfirmed is sent."""
        if anew:
            # A new incarnation counts from 1, a named one from where its program is. What was numbered before the
            # first link came up keeps its order.
            self._renumber(opened.last_sequence, opening.first_unconfirmed if opening.name else 1)
        self.incarnation, self._token = opened.incarnation, opened.token
        # A broker from before ids had a prefix gives none.
        self._id_prefix = opened.message_id_prefix or f"ID:{self.lifeline.broker}.{self.incarnation:X}:"
        self._bytes_sent = 0
        credit = opened.credit if opened.HasField("credit") else None
        self._sequence_limit = (credit.sequence_limit if credit is not None else 0) or _UNLIMITED
        self.bytes_left = (credit.bytes_limit if credit is not None else 0) or _UNLIMITED
        self.run = None
        self.budget = 0
        self._link = link
        self._again = deque(self.unconfirmed.items())
        self._send_again()

    def _settled_since(self) -> Iterator[tuple[int, int]]:
        """Numbers behind the first unconfirmed one that are settled, as ranges: they will not be sent again."""
        expected = next(iter(self.unconfirmed), self.next)
        for sequence in (*self.unconfirmed, self.next):
            if sequence > expected:
                yield expected, sequence - 1
            expected = sequence + 1

    def _send_again(self) -> None:
        """Sends what a break left unconfirmed, as far as the credit goes; new messages wait behind it."""
        again = self._again
        if self._held.waits:
            return
        while again and self.bytes_left > 0:
            sequence, entry = again.popleft()
            self._spend(entry)
            self._queue(sequence, entry, 0)
        if not again:
            if self.run is not None and self.run.end != self.next:
                # The last numbers before the break were settled: what comes next does not follow on.
                self.run = None
            self.look_for_room()

    def _again_after_pause(self, numbers: list[int]) -> None:
        """Sends what was refused for now, but what its sender does not wait for any more."""
        found: list[tuple[int, bytes | Entry]] = []
        for sequence in numbers:
            entry = self.unconfirmed.get(sequence)
            if entry is None:
                continue
            if type(entry) is Entry and isinstance(entry.settle, asyncio.Future) and entry.settle.cancelled():
                # Nothing of it is kept there, and its number is used up: so it never was.
                del self.unconfirmed[sequence]
                self._flow.release(len(entry))
                continue
            found.append((sequence, entry))
        self._again = deque([*found, *self._again])
        if self._link is not None:
            self._send_again()
        self._check_flushed()

    def _spend(self, entry: bytes | Entry) -> None:
        size = len(entry.message) if isinstance(entry, Entry) else len(entry)
        self._bytes_sent += size
        self.bytes_left -= size

    def _forgotten(self, error: errors.SternaError, last: int = _UNLIMITED) -> int:
        """Nobody can tell what became of the unconfirmed messages up to `last`: each fails on its own. How many."""
        entries = {sequence: entry for sequence, entry in self.unconfirmed.items() if sequence <= last}
        self.unconfirmed = {sequence: entry for sequence, entry in self.unconfirmed.items() if sequence > last}
        self._again.clear()
        for sequence, entry in entries.items():
            self._fail_one(sequence, entry, error)
        self._check_flushed()
        return len(entries)

    def _renumber(self, last: int, first: int) -> None:
        self.last_number, first = last, first or last + 1
        before = list(self.unconfirmed)
        self.unconfirmed = dict(enumerate(self.unconfirmed.values(), first))
        self.next = first + len(before)
        self._handed = first - 1
        # So many of what is left had been numbered when the flush began.
        self._flushers = [(first - 1 + bisect_right(before, mark), flusher) for mark, flusher in self._flushers]

    def interrupted(self) -> None:
        """The link is gone; numbering goes on without one."""
        if self._link is not None:
            first_left = self._again[0][0] if self._again else self.next
            self._handed = max(self._handed, first_left - 1)
        self._link = None
        self.run = None
        self.budget = 0
        self.bytes_left = self._sequence_limit = _UNLIMITED
        self._again.clear()
        self._held.clear()
        if self.session._transacted:
            self.look_for_room()

    # --- Moving to another broker

    def moved(self, error: errors.SternaError) -> bool:
        """Whether `error` says that the destination lives elsewhere now, and the lane goes there.

        What was under way when the broker closed the producer for that reason is refused as sent to none.
        """
        if self.owner is None:
            return False
        if isinstance(error, errors.ClosedError):
            return self.owner._following
        return isinstance(error, errors.MovedError) and self.owner._moved(error)

    def move(self, lifeline: Lifeline, session: Session) -> None:
        """Belongs to another link from now on; what is unconfirmed is sent there, once it is opened."""
        size = sum(len(entry) for entry in self.unconfirmed.values())
        self._flow.release(size)
        self.lifeline, self.session, self._flow = lifeline, session, lifeline.flow
        self._flow.bytes += size
        self.id = lifeline.next_producer_id()
        self.incarnation = 0
        self.interrupted()

    def forget_unconfirmed(self) -> None:
        """Fails what was sent over a link that broke: at another broker nobody knows whether it had arrived."""
        cause = "the destination moved to another broker while the connection was broken"
        self._forgotten(errors.UnknownProducerError(cause, subject=str(self.destination)), self._handed)

    # --- Sending

    def message_id(self, sequence: int) -> str:
        """The id the broker gives the message of this number (EMS-MSG-A26)."""
        return f"{self._id_prefix}{sequence}"

    def has_room(self, size: int) -> bool:
        """Whether a message of `size` bytes may be numbered now; sets the budget for those after it."""
        if self._waiters or not self._room(size):
            return False
        if self.confirmed and not self.session._transacted and self.closed is None:
            self.budget = min(self.window - len(self.unconfirmed), self._sequence_limit - self.next + 1, _BUDGET_MAX)
        return True

    def _room(self, size: int) -> bool:
        if self.closed is not None:
            return True  # the sender shall find out
        if self.session._transacted or not self.confirmed:
            link = self._link
            if link is None:
                # A transaction in doubt is the sender's to hear of; a RELIABLE message is not worth waiting for.
                return True
            within = self.bytes_left > 0 and self.next <= self._sequence_limit
            return within and link.unsent_bytes < _UNCONFIRMED_OUTBOX_BYTES
        return (
            len(self.unconfirmed) < self.window
            # While those before it have fewer bytes than the credit, one may be sent, whatever its size.
            and self.bytes_left > 0
            and self.next <= self._sequence_limit
            and not self._again
            and not self._held.waits
            and self._flow.has_room(size)
        )

    async def room(self, size: int) -> None:
        """Waits, in turn, until a message of `size` bytes may be numbered."""
        while not self._room(size) or self._waiters:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((waiter, size))
            if self.session._transacted or not self.confirmed:
                link = self._link
                if link is not None:
                    link.drained().add_done_callback(lambda _: self.look_for_room())
            elif not self._flow.has_room(size):
                self._flow.waiting[self] = None
            try:
                await waiter
            except asyncio.CancelledError:
                if (waiter, size) in self._waiters:
                    self._waiters.remove((waiter, size))
                self.look_for_room()
                raise
            if self._room(size):
                # This one's turn. Whoever waits behind it is looked at again when this message was numbered.
                asyncio.get_running_loop().call_soon(self.look_for_room)
                return

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._waiters)

    def look_for_room(self) -> None:
        """Lets the first who waits look again."""
        while self._waiters and self._room(self._waiters[0][1]):
            waiter, _ = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def send(
        self,
        message: bytes,
        settle: Settle | None,
        delay_ms: int,
        destination: Destination | None,
        upload: tuple[int, bytes] | None,
    ) -> int:
        """Numbers a message, keeps it until it is confirmed and queues it when there is a link. Returns its number.

        Raises:
            SternaError: when the lane was closed, by whom it says.
        """
        if self.closed is not None:
            raise self.closed
        target = field(b"\x22", encode_destination(destination)) if destination is not None else b""
        # Before the message is numbered: a number that is used up and never sent would be a gap.
        transaction = self.session._transaction_for_send() if self.session._transacted else 0
        sequence = self.next
        self.next = sequence + 1
        self.budget -= 1
        entry: bytes | Entry = message
        if settle is not None or target or upload is not None:
            entry = Entry(message, settle, delay_ms, target, upload)
        if self.confirmed and not transaction:
            self.unconfirmed[sequence] = entry
            self._flow.bytes += len(entry)
        elif self._link is not None:
            self._link.count_unsent(len(entry))
        if self._link is not None:
            self._spend(message)
            run = self.run
            if run is not None and not target and upload is None:
                run.messages.append(message)
            else:
                self._queue(sequence, entry, transaction)
        return sequence

    def _queue(self, sequence: int, entry: bytes | Entry, transaction: int) -> None:
        link = self._link
        if link is None:
            return
        message, target = entry, b""
        if isinstance(entry, Entry):
            message, target = entry.message, entry.destination
            if entry.upload is not None:
                self._queue_upload(link, *entry.upload)
        run = self.run
        # A frame's messages are numbered on from its first: what is sent again may have gaps.
        if run is None or run.end != sequence or run.destination != target or run.transaction != transaction:
            run = self.run = Run(self, sequence, target, transaction)
            link.open_run(run)
        run.messages.append(message)  # type: ignore[arg-type]

    def _queue_upload(self, link: Link, upload_id: int, data: bytes) -> None:
        """Sends a large body ahead, in chunks. After a break it begins again: an unfinished one is worth little."""
        for offset in range(0, len(data), _UPLOAD_CHUNK_BYTES):
            chunk = data[offset : offset + _UPLOAD_CHUNK_BYTES]
            upload = pb.Upload(producer=self.id, upload_id=upload_id, offset=offset, data=chunk)
            link.post(pb.ClientFrame(session=self.session._number, upload=upload).SerializeToString())

    def next_upload_id(self) -> int:
        """A number for an upload, unique in this lane."""
        self._upload_ids += 1
        return self._upload_ids

    # --- What the broker says

    def on_credit(self, credit: Any) -> None:
        """ProducerCredit: absolute, so a lower value changes nothing."""
        self._sequence_limit = max(self._sequence_limit, credit.sequence_limit)
        self.bytes_left = max(self.bytes_left, credit.bytes_limit - self._bytes_sent)
        self._send_again()

    def on_confirmed(self, confirmed: Any) -> None:
        """A range is as safe as it says; its messages may be forgotten here."""
        unconfirmed = self.unconfirmed
        self._held.taken()
        last = confirmed.last or confirmed.first
        freed = 0
        settled: list[tuple[int, int, Settle]] = []
        for sequence in range(confirmed.first, last + 1):
            entry = unconfirmed.pop(sequence, None)
            if entry is None:
                continue  # confirmed before, or of a transaction
            freed += len(entry)
            if type(entry) is Entry and entry.settle is not None:
                settled.append((sequence, entry.delay_ms, entry.settle))
        if settled:
            arrived_ms, durability = confirmed.arrived_ms, Durability(confirmed.durability)
            for sequence, delay_ms, settle in settled:
                sent = Sent(self.message_id(sequence), arrived_ms, arrived_ms + delay_ms, durability)
                if not isinstance(settle, asyncio.Future):
                    self.lifeline.guarded(settle, sent)
                elif not settle.done():
                    settle.set_result(sent)
        self._flow.release(freed)
        self.look_for_room()
        self._check_flushed()

    def on_rejected(self, rejected: Any) -> None:
        """A range was refused: each of its messages fails, or is sent again."""
        error = errors.from_proto(rejected.error)
        if self.moved(error):
            return  # nothing of it is kept there; it is sent again where the destination lives
        if (
            self.confirmed
            and not self.session._transacted
            and self.closed is None
            and self._held.may_hold(error, self.lifeline.options.reconnect.give_up_after_s)
        ):
            self.budget = 0
            self.run = None
            self._held.hold(rejected.first, rejected.last or rejected.first)
            return
        if self.session._transacted:
            self.session._transaction_failed(error)
        for sequence in range(rejected.first, (rejected.last or rejected.first) + 1):
            entry = self.unconfirmed.pop(sequence, None)
            if entry is not None:
                self._fail_one(sequence, entry, error)
        self.look_for_room()
        self._check_flushed()

    def _fail_one(self, sequence: int, entry: bytes | Entry, error: errors.SternaError) -> None:
        self._flow.release(len(entry))
        if isinstance(entry, Entry) and entry.settle is not None:
            if not isinstance(entry.settle, asyncio.Future):
                self.lifeline.guarded(entry.settle, error)
            elif not entry.settle.done():
                entry.settle.set_exception(error)
            return
        self.failures_count += 1
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append((self.message_id(sequence), error))

    # --- Flushing and closing

    async def flush(self) -> None:
        """Waits until everything numbered so far is confirmed or failed.

        Raises:
            FlushError: with what failed of `send_soon` since the last flush.
        """
        await self.settled()
        if self.failures:
            failures, count = self.failures, self.failures_count
            self.failures, self.failures_count = [], 0
            raise errors.FlushError.of(failures, count)

    async def settled(self) -> None:
        """Waits until everything numbered so far is confirmed or failed."""
        mark = self.next - 1
        if self.unconfirmed and next(iter(self.unconfirmed)) <= mark:
            flusher = asyncio.get_running_loop().create_future()
            self._flushers.append((mark, flusher))
            await flusher

    def _check_flushed(self) -> None:
        if not self._flushers:
            return
        oldest = next(iter(self.unconfirmed), _UNLIMITED)
        waiting = []
        for mark, flusher in self._flushers:
            if oldest > mark:
                if not flusher.done():
                    flusher.set_result(None)
            else:
                waiting.append((mark, flusher))
        self._flushers = waiting

    def fail(self, error: errors.SternaError) -> None:
        """The lane is over: what is unconfirmed fails with `error`, and so does every later send."""
        if self.closed is None:
            self.closed = error
            if self.session._transacted:
                # What it had sent in the transaction under way may not have been taken.
                self.session._transaction_failed(error)
        self._held.clear()
        self._forgotten(error)
        self.budget = 0
        waiters, self._waiters = self._waiters, deque()
        for waiter, _ in waiters:
            if not waiter.done():
                waiter.set_result(None)

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
            self.fail(errors.ClosedError("the producer was closed", subject=str(self.destination or "producer")))
        self.lifeline.unroute(self)
        if is_open and link is not None and link.lost is None:
            link.begin(self.session._number, "close_producer", pb.CloseProducer(producer=self.id), settle)
        else:
            told.set_result(None)
        return told
