"""What a connection writes into its ledger, and when; the application's face of it is `ledger`.

A *book* belongs to a connection of the application, with the hidden ones that it has to other brokers. Records gather
in it and are handed to the operating system together:

- before a batch of frames leaves (`_link`), with all that stands in it: what is sent and acknowledged is written down
  before the broker can see it;
- when confirmations have come (`_lane`), before anybody is told of them;
- when much has gathered, or half a second after the first.

So a process that is killed has lost nothing of what it had sent, and perhaps the last half second of what it had
received, not acknowledged, and of answers to acknowledgements. A ledger that cannot be written ends its connection, or
is given up and reported where it is not `required`.

A message is known by its broker, its producer's incarnation and its number: written when its frame is put together,
once; what is sent again after a break is a record of its own without sizes. Its body is found in the encoded message,
unless the producer has left the plain one that it was made from beside it (`Run.bodies`), which is the fast way.
"""

from __future__ import annotations

import asyncio
import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from operator import itemgetter
from typing import Any, Final, Protocol

from sterna import _encode, errors
from sterna import _ledger_format as form
from sterna._ledger_body import body_of
from sterna._ledger_file import Files
from sterna._machines.publishing import Run
from sterna._machines.ranges import ranges_of
from sterna._proto.sterna.v1 import message_pb2
from sterna._surroundings import wall_ms
from sterna.destinations import Destination

#: Bodies whose checksum can be made from themselves: nobody changes them meanwhile. A text counts as its UTF-8.
_PLAIN: Final[frozenset[type]] = frozenset((bytes, str))
#: The last byte of each message whose body is deflated, and of some others.
_MAYBE_DEFLATED: Final = ord("b")
_LAST: Final = itemgetter(-1)
#: What gathers before it is written without being asked, and how long it may wait.
_RECEIVED_MAX: Final = 1024
_WRITE_S: Final = 0.5
#: A file with so many names of its own is followed by the next one.
_NUMBERED_MAX: Final = 20_000
_U32_MAX: Final = (1 << 32) - 1
_I64_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 19

#: What became of a transaction, or of an acknowledgement.
ASKED, TAKEN, UNDONE, LOST, REFUSED = range(5)

Digest = Callable[[bytes | str], bytes]
#: Checksum and size of bodies that went ahead on a link, by producer and number.
Uploads = dict[tuple[int, int], tuple[bytes, int]]


def digest() -> Digest:
    """The function that makes checksums.

    Raises:
        LedgerError: its package is not installed.
    """
    try:
        found: Digest = import_module("xxhash").xxh3_128_digest
    except ImportError as error:
        cause = f"a ledger needs the package xxhash, which cannot be loaded: {error}"
        raise errors.LedgerError(cause, subject="ledger", remedy="pip install 'sterna[ledger]'") from error
    return found


class Place:
    """A stream to a broker, as records name it."""

    __slots__ = ("address", "broker", "client_id", "cluster", "epoch", "start_id", "store")

    def __init__(self, welcome: Any, address: str) -> None:
        self.broker, self.cluster, self.store = welcome.broker, welcome.cluster, welcome.store_id
        self.epoch, self.start_id = welcome.epoch, welcome.start_id
        self.address, self.client_id = address, welcome.client_id


class Origin:
    """A producer under one incarnation, as a lane has it on one link."""

    __slots__ = ("destination", "flags", "incarnation", "name", "place", "prefix", "recorded", "session")

    def __init__(
        self,
        place: Place,
        session: int,
        destination: Destination | None,
        opened: tuple[int, str],
        flags: int,
        name: str,
    ) -> None:
        self.place, self.session, self.destination = place, session, destination
        self.incarnation, self.prefix = opened
        self.flags, self.name = flags, name
        #: Up to here its numbers were written down.
        self.recorded = 0

    def goes_on(self, before: Origin | None) -> None:
        """It is perhaps the one of before, on a new link."""
        if before is not None and before.incarnation == self.incarnation and before.place.store == self.place.store:
            self.recorded = before.recorded


class Taker:
    """A consumer, as a feed has it on one link."""

    __slots__ = ("destination", "epoch", "mode", "place", "session", "source", "subscription")

    def __init__(
        self,
        place: Place,
        session: int,
        destination: Destination,
        source: tuple[int, int],
        mode: int,
        subscription: str,
    ) -> None:
        self.place, self.session, self.destination = place, session, destination
        self.source, self.epoch = source
        self.mode, self.subscription = mode, subscription


class Keeper(Protocol):
    """What a book asks of the connections that write into it."""

    def ledger_failed(self, error: errors.SternaError, *, is_over: bool) -> None:
        """Nothing more is written; `is_over`: nor sent."""


class Book:
    """See the module. `client_id` is what was asked for, and in the name of each file."""

    def __init__(self, files: Files, *, syncs: bool, is_required: bool, digest: Digest) -> None:
        self._files = files
        self.syncs = syncs
        self._is_required = is_required
        self.digest = digest
        #: Why nothing is written any more.
        self.failure: errors.LedgerError | None = None
        self._keepers: dict[Keeper, None] = {}
        self._pending: list[bytes] = []
        self._received: dict[Taker, list[bytes]] = {}
        self._received_count = 0
        self._timer: asyncio.TimerHandle | None = None
        # A thread of its own: those that the application shares may all be waiting for what is about to be sent.
        self._disk: ThreadPoolExecutor | None = None
        self._syncing: asyncio.Future[None] | None = None
        self._acknowledgements = self._sessions = 0
        # What the file in use has named already.
        self._numbers: dict[Any, int] = {}

    # --- Beginning and end

    def attach(self, keeper: Keeper) -> None:
        """A connection is about to write into it.

        Raises:
            LedgerError: no file can be made.
        """
        if self.failure is not None:
            raise self.failure
        if not self._files.is_open:
            try:
                self._files.open()
            except OSError as error:
                self._files.leave()
                raise self._error(error) from error
            self._numbers.clear()
        self._keepers[keeper] = None

    def detach(self, keeper: Keeper) -> None:
        """A connection is over; with the last one the file ends."""
        if keeper not in self._keepers:
            return
        if len(self._keepers) > 1:
            del self._keepers[keeper]
            return
        self.flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.failure is None:
            try:
                self._files.close([form.record(form.END, wall_ms())], syncs=self.syncs)
                if self.syncs:
                    self._sync()
            except OSError as error:
                self._fail(error)
        if self._disk is not None:
            self._disk.shutdown(wait=False)
            self._disk = None
        del self._keepers[keeper]

    async def ended(self) -> None:
        """Waits until the disk has what was written, where it must. To be awaited behind `detach`."""
        if self._syncing is not None:
            await asyncio.wait((self._syncing,))

    def session(self) -> int:
        """A number for a session."""
        self._sessions += 1
        return self._sessions

    # --- Names

    def _numbered(self, what: Any) -> tuple[int, bool]:
        number = self._numbers.get(what)
        if number is not None:
            return number, False
        number = self._numbers[what] = len(self._numbers) + 1
        return number, True

    def _name(self, what: int, value: str) -> int:
        number, is_new = self._numbered((what, value))
        if is_new:
            self._pending.append(form.record(form.NAME, number, what, tail=form.text(value)))
        return number

    def _destination(self, destination: Destination | None) -> int:
        return 0 if destination is None else self._name(destination.kind, destination.name)

    def _target(self, target: bytes) -> int:
        """The destination that stands in a Publish frame."""
        number = self._numbers.get(target)
        if number is None:
            at = 2 if target[1] < 128 else 3  # a tag, and a length of one byte or two
            named = message_pb2.Destination.FromString(target[at:])
            number = self._numbers[target] = self._name(named.kind, named.name)
        return number

    def _link(self, place: Place) -> int:
        number, is_new = self._numbered(place)
        if is_new:
            said = (place.broker, place.cluster, place.store, place.address, place.client_id)
            fields = number, wall_ms(), place.epoch, place.start_id
            self._pending.append(form.record(form.LINK, *fields, tail=b"".join(map(form.text, said))))
        return number

    def _producer(self, origin: Origin) -> int:
        number = self._numbers.get(origin)
        if number is None:
            link, destination = self._link(origin.place), self._destination(origin.destination)
            number, _ = self._numbered(origin)
            fields = number, link, origin.session, destination, origin.incarnation, origin.flags
            tail = form.text(origin.prefix) + form.text(origin.name)
            self._pending.append(form.record(form.PRODUCER, *fields, tail=tail))
        return number

    def _consumer(self, taker: Taker) -> int:
        number = self._numbers.get(taker)
        if number is None:
            link, destination = self._link(taker.place), self._destination(taker.destination)
            number, _ = self._numbered(taker)
            fields = number, link, taker.session, destination, taker.source, taker.epoch, taker.mode
            self._pending.append(form.record(form.CONSUMER, *fields, tail=form.text(taker.subscription)))
        return number

    # --- What is sent, and its answers

    def sent(self, run: Run, first: int, messages: list[bytes], uploads: Uploads) -> None:
        """These messages of a run, numbered from `first`, stand in the batch that is being put together.

        `uploads` are the link's.
        """
        origin: Origin | None = run.origin
        if origin is None or self.failure is not None:
            return
        bodies, run.bodies = run.bodies, run.bodies[len(messages) :]
        producer = self._producer(origin)
        known = origin.recorded - first + 1
        if known > 0:
            last = min(origin.recorded, first + len(messages) - 1)
            self._add(form.record(form.AGAIN, producer, wall_ms(), first, last))
            messages, bodies, first = messages[known:], bodies[known:], last + 1
        target = self._target(run.destination) if run.destination else self._destination(origin.destination)
        for at in range(0, len(messages), form.ROWS_MAX):
            some = messages[at : at + form.ROWS_MAX]
            columns = self._columns(run.producer, some, bodies[at : at + len(some)], uploads)
            fields = producer, target, run.transaction, wall_ms(), first + at, len(some)
            self._add(form.record(form.SENT, *fields, tail=columns))
            origin.recorded = first + at + len(some) - 1

    def _columns(self, producer: int, messages: list[bytes], bodies: list[Any], uploads: Uploads) -> bytes:
        """Sizes and checksums of these messages, as they are written."""
        sizes = array("I", map(len, messages))
        are_known = len(bodies) == len(messages) and _PLAIN.issuperset(map(type, bodies))
        if are_known and not (_encode.deflated.is_used and _MAYBE_DEFLATED in map(_LAST, messages)):
            column = b"".join(map(self.digest, bodies))
        else:
            bodies += [None] * (len(messages) - len(bodies))
            column = b"".join(self._looked_for(producer, messages, bodies, sizes, uploads))
        return form.sizes(sizes) + column

    def _looked_for(
        self, producer: int, messages: list[bytes], bodies: list[Any], sizes: array[int], uploads: Uploads
    ) -> Iterator[bytes]:
        """Checksums, one by one; the sizes of what was uploaded are added to those of the messages."""
        for index, (message, body) in enumerate(zip(messages, bodies, strict=True)):
            if type(body) in _PLAIN and _LAST(message) != _MAYBE_DEFLATED:
                yield self.digest(body)
                continue
            found = body_of(message)
            if isinstance(found, bytes):
                yield self.digest(found)
            else:
                checksum, size = uploads.pop((producer, found))
                sizes[index] = min(sizes[index] + size, _U32_MAX)
                yield checksum

    def confirmed(self, origin: Origin | None, confirmed: Any) -> None:
        """The broker has confirmed a range."""
        if origin is not None:
            last = confirmed.last or confirmed.first
            fields = confirmed.first, last, confirmed.durability & 0xFF, confirmed.arrived_ms & _I64_MAX
            self._add(form.record(form.CONFIRMED, self._producer(origin), *fields))

    def refused(self, origin: Origin | None, first: int, last: int, code: int, *, is_final: bool) -> None:
        """The broker has refused a range, for good or to be sent again; nothing of it is kept there."""
        if origin is not None:
            self._add(form.record(form.REFUSED, self._producer(origin), first, last, code, is_final))

    def in_doubt(self, origin: Origin | None, numbers: Iterable[int], code: int) -> None:
        """Nobody can tell what became of those of these that had left."""
        if origin is not None and (left := [one for one in numbers if one <= origin.recorded]):
            for first, last in ranges_of(left):
                self._add(form.record(form.IN_DOUBT, self._producer(origin), first, last, code))

    def sent_elsewhere(self, origin: Origin | None, numbers: Iterable[int], code: int) -> None:
        """Of these, those that had left are not kept there, and are sent elsewhere, under another identity."""
        if origin is not None and (left := [one for one in numbers if one <= origin.recorded]):
            for first, last in ranges_of(left):
                self.refused(origin, first, last, code, is_final=False)

    def given_up(self, origin: Origin | None, numbers: Iterable[int]) -> None:
        """These were refused for now, and their senders do not wait any more."""
        if origin is not None and (left := list(numbers)):
            for first, last in ranges_of(left):
                self._add(form.record(form.GIVEN_UP, self._producer(origin), first, last))

    def transaction(self, place: Place | None, session: int, number: int, became: int, durability: int = 0) -> None:
        """What became of a session's transaction."""
        if place is not None:
            fields = self._link(place), session, number, wall_ms(), became, durability & 0xFF
            self._add(form.record(form.TRANSACTION, *fields))

    # --- What is received, and acknowledged

    def received(self, taker: Taker | None, delivery: Any) -> None:
        """A message is handed to the application."""
        if taker is None or self.failure is not None:
            return
        prefix, _, number = delivery.message_id.rpartition(":")
        if not (number.isdecimal() and len(number) <= _DIGITS_MAX):
            prefix, number = delivery.message_id, "0"
        named = self._name(form.PREFIX, prefix + ":")
        fields = delivery.sequence, named, int(number), delivery.redelivered, delivery.delivery_count or 1
        row = form.RECEIVED_ROW.pack(*fields)
        rows = self._received.get(taker)
        if rows is None:
            rows = self._received[taker] = []
            self._arm()
        rows.append(row)
        self._received_count += 1
        if self._received_count >= _RECEIVED_MAX:
            self.flush()

    def _put_received(self) -> None:
        received, self._received = self._received, {}
        self._received_count = 0
        for taker, rows in received.items():
            consumer = self._consumer(taker)
            self._pending.append(form.record(form.RECEIVED, consumer, wall_ms(), len(rows), tail=b"".join(rows)))

    def acknowledging(self, place: Place | None, session: int, ack: Any) -> int:
        """This acknowledgement is about to leave; its number here, for `acknowledged`."""
        self._acknowledgements += 1
        if place is None or self.failure is not None:
            return self._acknowledgements
        self._put_received()  # what is acknowledged was received before
        rows = [
            form.ACKNOWLEDGED_ROW.pack(one.source, one.epoch, each.first, each.last or each.first)
            for one in ack.sets
            for each in one.ranges
        ]
        link, now_ms = self._link(place), wall_ms()
        for at in range(0, len(rows), form.ROWS_MAX):
            some = rows[at : at + form.ROWS_MAX]
            fields = self._acknowledgements, link, session, ack.transaction, now_ms, len(some)
            self._add(form.record(form.ACKNOWLEDGING, *fields, tail=b"".join(some)))
        return self._acknowledgements

    def acknowledged(self, number: int, became: int, code: int = 0) -> None:
        """The broker has answered an acknowledgement, or never will."""
        self._add(form.record(form.ACKNOWLEDGED, number, became, code))

    # --- Writing

    def _add(self, record: bytes) -> None:
        self._pending.append(record)
        if self._timer is None:
            self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._keepers:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_S, self._due)

    def _due(self) -> None:
        self._timer = None
        self.flush()

    def flush(self) -> bool:
        """Hands all that has gathered to the operating system. False: the ledger has failed, and nothing may leave."""
        if self.failure is None and self._keepers and (self._pending or self._received):
            if self._received:
                self._put_received()
            records, self._pending = self._pending, []
            try:
                self._files.write(records)
                if self._files.is_full or len(self._numbers) > _NUMBERED_MAX:
                    self._rotate()
            except OSError as error:
                self._fail(error)
        if self.failure is not None or not self._keepers:
            self._pending.clear()
            self._received.clear()
            return self.over is None
        return True

    def _rotate(self) -> None:
        """The next file names everything anew."""
        self._files.close([form.record(form.END, wall_ms())], syncs=self.syncs)
        self._files.open()
        self._numbers.clear()

    async def synced(self) -> bool:
        """Has the disk keep what was written. False: the ledger has failed, and nothing may leave."""
        if self.failure is None and self._files.is_open:
            try:
                syncing = self._sync()
            except OSError as error:
                self._fail(error)
            else:
                # It goes on when whoever waits is cancelled: an error is said once, and concerns all.
                await asyncio.wait((syncing,))
        return self.over is None

    def _sync(self) -> asyncio.Future[None]:
        if self._disk is None:
            self._disk = ThreadPoolExecutor(1, thread_name_prefix="sterna-ledger")
        loop = asyncio.get_running_loop()
        self._syncing = loop.run_in_executor(self._disk, self._files.syncing())
        self._syncing.add_done_callback(self._has_synced)
        return self._syncing

    def _has_synced(self, syncing: asyncio.Future[None]) -> None:
        if not syncing.cancelled() and isinstance(error := syncing.exception(), OSError):
            self._fail(error)

    @property
    def over(self) -> errors.LedgerError | None:
        """Why nothing may be sent any more; None: it may."""
        return self.failure if self._is_required else None

    def _error(self, error: OSError) -> errors.LedgerError:
        said = f"the ledger cannot be written: {os.strerror(error.errno) if error.errno else error}"
        doubt = "; what was sent and not confirmed is in doubt" if self._is_required and self._keepers else ""
        remedy = "make room for it, or give another folder"
        return errors.LedgerError(said + doubt, subject=str(error.filename or self._files.path), remedy=remedy)

    def _fail(self, error: OSError) -> None:
        if self.failure is not None:
            return
        self.failure = self._error(error)
        self.failure.__cause__ = error
        self._files.leave()
        for keeper in list(self._keepers):
            keeper.ledger_failed(self.failure, is_over=self._is_required)
