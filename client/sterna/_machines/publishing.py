"""What a producer has to write: growing Publish frames, and bodies that go ahead of their message."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sterna._encode import varint

_FRAME_OVERHEAD: Final = 64


class Grower(Protocol):
    """Who adds to a run, as long as it is the one that it names."""

    run: Run | None
    #: What a ledger knows it as; None: there is no ledger.
    origin: Any


class Run:
    """A Publish frame that is still growing: messages numbered on from its first, of one producer on one link."""

    __slots__ = (
        "bodies",
        "destination",
        "first",
        "grower",
        "messages",
        "origin",
        "producer",
        "session",
        "transaction",
        "waiting_bytes",
    )

    def __init__(
        self, grower: Grower, producer: int, session: int, first: int, destination: bytes, transaction: int
    ) -> None:
        self.grower = grower
        # As it is now: its producer may have another incarnation by the time that this is written.
        self.origin = grower.origin
        # For a ledger, the bodies that its messages were made from, as far as they are known.
        self.bodies: list[Any] = []
        self.producer = producer
        self.session = session
        self.first = first
        self.destination = destination
        self.transaction = transaction
        self.messages: list[bytes] = []
        #: What of it counts in the link's `Outbox`.
        self.waiting_bytes = 0

    @property
    def end(self) -> int:
        """The number that the next message would have."""
        return self.first + len(self.messages)

    def take(self, parts: list[bytes | memoryview], room: int) -> tuple[int, bool]:
        """Moves as many messages as fit into `room` to `parts`, as one frame; at least one when `parts` is empty.

        Returns the frame's size and whether the run is used up.
        """
        messages = self.messages
        body: list[bytes] = []
        size = count = 0
        room -= _FRAME_OVERHEAD + len(self.destination)
        for message in messages:
            entry = b"\x1a" + varint(len(message))
            size += len(entry) + len(message)
            if size > room and (count or parts):
                size -= len(entry) + len(message)
                break
            body.append(entry)
            body.append(message)
            count += 1
        if not count:
            return 0, False
        publish = b"\x08" + varint(self.producer) + b"\x10" + varint(self.first)
        tail = self.destination
        if self.transaction:
            tail += b"\x28" + varint(self.transaction)
        size += len(publish) + len(tail)
        frame = b"\x08" + varint(self.session) + b"\x1a" + varint(size)
        size += len(frame)
        parts += (b"\x0a", varint(size), frame, publish, *body, tail)
        self.first += count
        done = count == len(messages)
        self.messages = [] if done else messages[count:]
        return size + 6, done

    def left(self, size: int, *, done: bool) -> int:
        """What does not count in the `Outbox` any more, once so many bytes of it have been taken."""
        gone = self.waiting_bytes if done else min(size, self.waiting_bytes)
        self.waiting_bytes -= gone
        return gone


@dataclass(frozen=True, slots=True)
class Ahead:
    """A large body, to be written in chunks before the message that names it by its number.

    The broker has what stands before `offset`.
    """

    upload: int
    data: bytes
    offset: int = 0


class Chunks:
    """Such a body on its way: each chunk is cut when there is room for it, so that no second copy of all of them waits.

    With `resumes` the broker is told the size of the whole, and keeps what it has for a while when the link breaks.
    """

    __slots__ = ("_at", "_data", "_head", "_most", "_tail")

    def __init__(self, ahead: Ahead, producer: int, session: int, most: int, *, resumes: bool) -> None:
        self._data = memoryview(ahead.data)
        self._at = ahead.offset
        self._most = most
        # What of a frame and of its Upload is the same in all: the session; the producer and the upload's number.
        upload = b"\x08" + varint(producer) + b"\x11" + struct.pack("<Q", ahead.upload)
        self._head = b"\x08" + varint(session) + b"\xfa\x01", upload
        self._tail = b"\x28" + varint(len(ahead.data)) if resumes else b""

    def take(self, parts: list[bytes | memoryview], room: int) -> tuple[int, bool]:
        """Moves the next chunk to `parts`, as one frame, if it fits into `room`; in any case when `parts` is empty.

        Returns the frame's size and whether that was the last.
        """
        data = self._data[self._at : self._at + self._most]
        if not data:
            return 0, True
        frame, upload = self._head
        upload += b"\x18" + varint(self._at) + b"\x22" + varint(len(data))
        size = len(upload) + len(data) + len(self._tail)
        frame += varint(size)
        size += len(frame)
        if parts and size + _FRAME_OVERHEAD > room:
            return 0, False
        parts += (b"\x0a", varint(size), frame, upload, data, self._tail)
        self._at += len(data)
        return size + 6, self._at == len(self._data)


class InFlight:
    """The bytes that all producers of a connection have in flight, and how many may be.

    Room is given in turns. While somebody has the turn all others wait, or what is small would always come before what
    is large. Whoever has it may go beyond the limit by one message, as long as all of it is less than twice the limit:
    so much does the broker take (`inflight_bytes`). What is larger still goes alone.

    What is away, nobody confirms: it does not count for whoever is not, up to the limit once more, or one destination
    that is away would hold up all others. Who is away has the limit alone.
    """

    __slots__ = ("away", "bytes", "limit", "turn")

    def __init__(self, limit: int) -> None:
        self.bytes = 0
        #: How many of them are of destinations that are away: nobody knows when they will be off.
        self.away = 0
        self.limit = limit
        #: Whose turn it is; None: nobody waits.
        self.turn: object | None = None

    def has_room(self, size: int, who: object, *, is_away: bool = False) -> bool:
        """Whether `who` may have `size` more bytes in flight; one message alone always may be."""
        here = self.bytes if is_away else self.bytes - min(self.away, self.limit)
        if self.turn is None:
            return self.bytes == 0 or here + size <= self.limit
        if self.turn is not who:
            return False
        return self.bytes == 0 or (here < self.limit and self.bytes + size <= 2 * self.limit)


class Outbox:
    """An estimate of what a link's runs hold that was not written yet, of producers that no confirm holds back.

    It goes down with what is written of theirs, whatever there is of others: these may always have something.
    """

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0
