"""Producers: sending one message and waiting for its confirmation, or many with a window.

`send` returns when the broker has confirmed the message (EMS-CLI-A21); `send_soon` when it is numbered and queued, and
waits only when the window is full (EMS-CLI-A22). Both go through the same lane and coalesce into the same frames. What
`send_soon` queued and the broker refused is raised by the next `flush`, or given to the completion listener of its
call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

from sterna import errors
from sterna._encode import (
    encode_header,
    encode_links,
    encode_message,
    encode_target,
    encode_uploaded,
    not_unicode,
    uploadable,
    wants_compression,
)
from sterna._failures import Failures
from sterna._homes import TEMPORARY_PREFIX
from sterna._lane import Lane
from sterna._parts import Part, part_of
from sterna._roles import Session
from sterna._sending import Sending
from sterna.bodies import Body
from sterna.destinations import Destination, DestinationLike, destination_of
from sterna.messages import Sent, sent_at
from sterna.modes import DeliveryMode

if TYPE_CHECKING:
    from sterna._lifeline import Lifeline

#: Called with the outcome of a `send_soon` (EMS-CLI-A22).
Completion: TypeAlias = Callable[["Sent | errors.SternaError"], None]

#: So many messages are sent without a pause before the event loop gets a turn to write them.
_BURST = 128
#: So many destinations an anonymous producer keeps open in a cluster; more only where all have messages under way.
_BOUND_MAX = 256
#: Room in a frame for what surrounds a message.
_FRAME_SLACK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The defaults of a producer; each can be overridden by a send (EMS-CLI-A29).

    `time_to_live_ms`: 0 is for ever. `priority`: 0 to 9, None is the contract's 4. `window`: how many messages may be
    unconfirmed before senders wait.

    `name`: the producer's name of the application's own, at most 255 characters. It belongs to the user and the
    destination, and the broker keeps its numbers, so that a program that is started again goes on after
    `Producer.last_number`, or sends again from `first_number` on (0: does not), and each message is stored once
    (EMS-MSG-E01). Where the broker had to forget names, one that it does not know is refused (`UnknownProducerError`),
    unless `unknown_is_new`.
    """

    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT
    priority: int | None = None
    time_to_live_ms: int = 0
    delivery_delay_ms: int = 0
    window: int = 4000
    name: str = ""
    first_number: int = 0
    unknown_is_new: bool = False

    def __post_init__(self) -> None:
        if self.window < 1:
            raise errors.InvalidArgumentError(f"{self.window} is no window", subject="window")
        if self.first_number < 0 or (self.first_number and not self.name):
            raise errors.InvalidArgumentError("numbers begin with 1, of producers with a name", subject="first_number")
        encode_header(self.delivery_mode, self.priority, self.time_to_live_ms, self.delivery_delay_ms)


class Producer:
    """Sends messages; made by `session.producer()`. Close it, or use `async with`."""

    def __init__(self, session: Session, destination: Destination | None, options: ProducerOptions) -> None:
        if options.name and destination is None:
            raise errors.InvalidArgumentError("a producer with a name is bound to a destination", subject="name")
        self.session = session
        self.destination = destination
        self.options = options
        part = part_of(session)
        self._lifeline = part.lifeline
        self._transacted = part.state.transacted
        self._headers: dict[tuple[int, int | None, int, int], bytes] = {}
        #: Delivery delay and time to live of what takes the defaults.
        self._times = options.delivery_delay_ms, options.time_to_live_ms
        self._header = self._header_of(
            options.delivery_mode, options.priority, options.time_to_live_ms, options.delivery_delay_ms
        )
        confirmed = options.delivery_mode != DeliveryMode.RELIABLE
        named = options if options.name else None
        self._sending = Sending(
            part, destination, options.window, confirmed=confirmed, on_move=self._on_move, named=named
        )
        self._lane = self._sending.lane
        # One for each destination: finding one broker must not hold up what goes to others.
        self._binding: WeakValueDictionary[Destination, asyncio.Lock] = WeakValueDictionary()
        self._burst = 0
        self._is_closed = False
        #: So many are about to send something with it.
        self._users = 0
        self._has_ledger = self._lifeline.options.book is not None
        # In a cluster an anonymous producer has a bound one for each destination: only opening tells where it lives.
        # What fails of theirs fails of this one, whatever has become of them.
        self._bound: dict[Destination, Producer] = {}

    def _on_move(self, part: Part) -> None:
        self.session, self._lifeline = part.session, part.lifeline

    @property
    def last_number(self) -> int:
        """The highest number that the broker had stored of a named producer when it was opened; 0: none.

        The next message has the number behind it, or `first_number`; `send_soon` tells each.
        """
        return self._lane.last_number

    async def _bound_to(self, destination: Destination) -> Producer:
        """The producer that an anonymous one uses for a destination, in a cluster.

        Raises:
            ClosedError: the anonymous one was closed; what it has for other destinations says nothing of that.
        """
        lock = self._binding.setdefault(destination, asyncio.Lock())
        async with lock:
            self._check_open()
            bound = self._bound.get(destination)
            if bound is not None and bound._lane.closed is not None:
                # The broker has ended it, of which nobody but this one hears.
                del self._bound[destination]
                _let_go(bound)
                bound = None
            if bound is None:
                part, homes = self._sending.part, self._lifeline.homes
                # What is opened keeps the name that the application knows: it may have another one on each link.
                name = self._lifeline.temporaries.current(destination).name
                if name.startswith(TEMPORARY_PREFIX) and homes is not None:
                    # A place for replies is on the broker of whoever asked; its name says which.
                    broker = name.removeprefix(TEMPORARY_PREFIX).rpartition(".")[0].rpartition(".")[0]
                    other = homes.named(broker)
                    part = await part.branches.part_at(other) if other is not None else part
                bound = await opened(part, destination, self.options, self._sending.failures)
                if self._is_closed:
                    _let_go(bound)
                    self._check_open()
                if len(self._bound) >= _BOUND_MAX:
                    self._let_one_go()
                self._bound[destination] = bound
            return bound

    def _let_one_go(self) -> None:
        """Ends the bound producer that was made first, of those that nobody waits for; there may be none."""
        for destination, bound in self._bound.items():
            if not bound._users and bound._sending.is_idle:
                del self._bound[destination]
                _let_go(bound)
                return

    def _check_open(self) -> None:
        if self._is_closed:
            raise errors.ClosedError("the producer was closed", subject="producer")

    # --- Sending

    def _header_of(
        self, delivery_mode: int, priority: int | None, time_to_live_ms: int, delivery_delay_ms: int
    ) -> bytes:
        key = (delivery_mode, priority, time_to_live_ms, delivery_delay_ms)
        header = self._headers.get(key)
        if header is None:
            header = encode_header(delivery_mode, priority, time_to_live_ms, delivery_delay_ms)
            if len(self._headers) < 64:
                self._headers[key] = header
        return header

    async def _overridden(
        self,
        delivery_mode: DeliveryMode | None,
        priority: int | None,
        time_to_live_ms: int | None,
        delivery_delay_ms: int | None,
    ) -> tuple[Lane, bytes, tuple[int, int]]:
        """Lane, header, delay and life of a message that does not take all of the producer's defaults."""
        options = self.options
        mode = options.delivery_mode if delivery_mode is None else delivery_mode
        delay_ms, life_ms = self._times_of(delivery_delay_ms, time_to_live_ms)
        header = self._header_of(mode, options.priority if priority is None else priority, life_ms, delay_ms)
        return await self._sending.lane_for(confirmed=mode != DeliveryMode.RELIABLE), header, (delay_ms, life_ms)

    def _times_of(self, delivery_delay_ms: int | None, time_to_live_ms: int | None) -> tuple[int, int]:
        """Delay and life of a message, with the producer's defaults where a send says nothing."""
        delay_ms, life_ms = self._times
        return (
            delay_ms if delivery_delay_ms is None else delivery_delay_ms,
            life_ms if time_to_live_ms is None else time_to_live_ms,
        )

    def _target(self, destination: DestinationLike | None) -> bytes:
        """The destination as it is written into the frame: an anonymous producer's."""
        if self.destination is None:
            if destination is None:
                raise errors.InvalidArgumentError(
                    "an anonymous producer needs a destination for each message", subject="destination"
                )
            return encode_target(self._lifeline.temporaries.current(destination_of(destination)))
        if destination is not None and destination_of(destination) != self.destination:
            raise errors.NotAllowedError(
                f"this producer sends to {self.destination} only",
                subject="destination",
                remedy="use an anonymous producer: session.producer()",
            )
        return b""

    async def send(self, body: Body = None, *, timeout: float | None = None, **options: Any) -> Sent:
        """Sends a message and waits until the broker has confirmed it; options are those of `send_soon`.

        In a transaction, and for RELIABLE messages, there is nothing to wait for (EMS-MSG-A19, EMS-TX-A03). `timeout`
        in seconds is for all of it: finding the destination's broker, a full window, the confirmation.

        Raises:
            SendTimeoutError: it was not confirmed in time.
            SternaError: the broker refused it, or the connection was given up before it was confirmed.
        """
        if timeout is not None:
            return await within(timeout, self.send(body, **options), str(self.destination or "send"))
        if self.destination is None and self._lifeline.cluster and options.get("destination") is not None:
            async with self._using(destination_of(options.pop("destination"))) as bound:
                return await bound.send(body, **options)
        mode = options.get("delivery_mode")
        if self._transacted or (self.options.delivery_mode if mode is None else mode) == DeliveryMode.RELIABLE:
            return await self._send_unconfirmed(body, options)
        future: asyncio.Future[Sent] = asyncio.get_running_loop().create_future()
        # The lane knows what to do with a future: a callback around it would be a good part of what a send costs.
        try:
            await self.send_soon(body, on_completion=future, **options)  # type: ignore[arg-type]
        except BaseException:
            # Cut short when the message was in its lane, it may have its answer already: nobody looks at that then.
            if not future.cancel() and not future.cancelled():
                future.exception()
            raise
        return await future

    async def _send_unconfirmed(self, body: Body, options: dict[str, Any]) -> Sent:
        sequence = await self.send_soon(body, **options)
        mode = options.get("delivery_mode")
        confirmed = (self.options.delivery_mode if mode is None else mode) != DeliveryMode.RELIABLE
        times = self._times_of(options.get("delivery_delay_ms"), options.get("time_to_live_ms"))
        now_ms = self._lifeline.broker_time_ms()
        lane = await self._sending.lane_for(confirmed=confirmed)
        return sent_at(lane.message_id(sequence), now_ms, times, None)

    async def send_soon(
        self,
        body: Body = None,
        *,
        properties: Mapping[str, Any] | None = None,
        destination: DestinationLike | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live_ms: int | None = None,
        delivery_delay_ms: int | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | None = None,
        type: str = "",  # noqa: A002 - the header field's name
        encoding: str = "",
        compress: bool = False,
        on_completion: Completion | None = None,
    ) -> int:
        """Queues a message; waits only while the window is full. Returns its number in this producer.

        `destination` is for anonymous producers. `delivery_mode`, `priority`, `time_to_live_ms` and
        `delivery_delay_ms` override the producer's defaults. `compress` has the body deflated (EMS-MSG-A24), `encoding`
        is a label, a character set's name (A21). `on_completion` is called with the `Sent`, or the error; without it
        errors wait for `flush`. In a transacted session it is not called: what is sent there has no answer of its own,
        and `commit` tells for all of it.

        Raises:
            InvalidMessageError: the message cannot be encoded.
            ClosedError: the producer is closed.
            TransactionRolledBackError: the transaction it would be part of is lost already.
        """
        if self.destination is None and self._lifeline.cluster and destination is not None:
            async with self._using(destination_of(destination)) as bound:
                return await bound.send_soon(
                    body,
                    properties=properties,
                    delivery_mode=delivery_mode,
                    priority=priority,
                    time_to_live_ms=time_to_live_ms,
                    delivery_delay_ms=delivery_delay_ms,
                    correlation_id=correlation_id,
                    reply_to=reply_to,
                    type=type,
                    encoding=encoding,
                    compress=compress,
                    on_completion=on_completion,
                )
        lane, header, times = self._lane, self._header, self._times
        if not (delivery_mode is None and priority is None and time_to_live_ms is None and delivery_delay_ms is None):
            lane, header, times = await self._overridden(delivery_mode, priority, time_to_live_ms, delivery_delay_ms)
        links = b""
        if correlation_id is not None or reply_to is not None or type or encoding:
            links = await self._links(correlation_id, reply_to, type, encoding)
        if compress:
            properties = {**(properties or {}), "JMS_STERNA_COMPRESS": True}
        is_bound = self.destination is not None and destination is None
        target = b"" if is_bound else self._target(destination)
        upload = None
        inline_bytes = self._lifeline.inline_bytes
        if isinstance(body, bytes | str) and len(body) > inline_bytes and not wants_compression(properties):
            # Not encoded whole, only to be thrown away: copies of a very large body hold up the event loop.
            message, upload = self._large(lane, header, links, properties, body, len(body))
        else:
            message = encode_message(header, links, properties, body)
            if len(message) > inline_bytes:
                message, upload = self._large(lane, header, links, properties, body, len(message))
        if self._transacted:
            await self._lifeline.ready()
        size = len(message) + (0 if upload is None else len(upload[1]))
        machine, flow = lane.machine, lane.machine.flow
        is_tight = machine.budget <= 0 or machine.bytes_left <= 0 or flow.turn is not None
        if (is_tight or flow.bytes + size > flow.limit) and not lane.has_room(size):
            await self._room(lane, size)
            target = b"" if is_bound else self._target(destination)  # it may have another name by now
        transaction = lane.transaction() if self._transacted else 0
        sequence = machine.give(message, on_completion, times, target, upload, transaction)
        if self._has_ledger and machine.serving and machine.run is not None:
            machine.run.bodies.append(body if upload is None else None)
        if machine.frames:
            lane.write()
        self._burst = (self._burst + 1) % _BURST
        if not self._burst:
            await asyncio.sleep(0)
        return sequence

    def _room(self, lane: Lane, size: int) -> Awaitable[None]:
        # Most wait here, where the window is what bounds them: no coroutine more than need be.
        return self._room_in_transaction(lane, size) if self._transacted else lane.room(size)

    async def _room_in_transaction(self, lane: Lane, size: int) -> None:
        """Waits until a message of `size` bytes may be numbered, or what it would be part of is known to be lost."""
        await lane.room(size)
        # Of a transacted session who waits is told of a break, too. Nobody keeps a message for the next link there: it
        # would be in no transaction, and the commit of one that begins with it would be taken without it.
        while not lane.machine.serving and lane.closed is None:
            lane.part.state.check_receive()
            await self._lifeline.ready()
            if lane.has_room(size):
                return
            await lane.room(size)

    async def _links(
        self, correlation_id: str | None, reply_to: Destination | None, type_: str, encoding: str
    ) -> bytes:
        """The header fields for receivers; replies go to where a temporary destination is known by now."""
        if reply_to is not None:
            reply_to = await self._lifeline.temporaries.settled(reply_to)
        return encode_links(correlation_id, reply_to, type_, encoding)

    @asynccontextmanager
    async def _using(self, destination: Destination) -> AsyncIterator[Producer]:
        """The producer that an anonymous one has for a destination, in a cluster; it is not let go meanwhile.

        A temporary one of this connection goes by its first name: by another it would not be known after a break.
        """
        bound = await self._bound_to(destination)
        bound._users += 1
        try:
            yield bound
        finally:
            bound._users -= 1

    def _large(
        self, lane: Lane, header: bytes, links: bytes, properties: Mapping[str, Any] | None, body: Body, size: int
    ) -> tuple[bytes, tuple[int, bytes]]:
        """A message that fits no frame: its body goes ahead in chunks."""
        self._check_size(size)
        try:
            found = uploadable(body, properties)
            if found is None:
                raise errors.LimitExceededError(
                    f"a map or stream body of {size} bytes fits no frame",
                    subject="frame_bytes",
                    remedy="send it compressed (compress=True), or as bytes",
                )
            data, as_, content_type, beside = found
            self._check_size(len(data))  # a text is longer in UTF-8 than in characters
            upload_id = lane.next_upload_id()
            return encode_uploaded(header, links, properties, upload_id, as_, content_type, beside), (upload_id, data)
        except UnicodeEncodeError as error:
            raise not_unicode(error) from error

    def _check_size(self, size: int) -> None:
        limit = self._lifeline.message_bytes
        if size > limit:
            raise errors.LimitExceededError(
                f"the message has {size} bytes, and the broker takes {limit}", subject="message_bytes"
            )

    async def flush(self) -> None:
        """Waits until everything sent so far is confirmed.

        Raises:
            FlushError: what failed since the last flush.
        """
        for bound in list(self._bound.values()):
            await bound._sending.settled()
        await self._sending.settled()
        if (failure := self._sending.failures.take()) is not None:
            raise failure

    @property
    def unconfirmed(self) -> int:
        """How many messages are waiting for their confirmation."""
        return self._sending.unconfirmed + sum(bound.unconfirmed for bound in self._bound.values())

    # --- Closing

    async def close(self) -> None:
        """Flushes, then ends the producer.

        The broker answers that when it has taken all of it, RELIABLE messages that flow control held back, too. Those
        are lost when the connection is closed before.

        Raises:
            FlushError: what failed since the last flush; the producer is closed all the same.
        """
        failure: errors.SternaError | None = None
        try:
            if not self._transacted:
                await self.flush()
        except asyncio.CancelledError:
            _look_at(self._leave())
            raise
        except errors.SternaError as error:
            failure = error
        # All are over before any answer is waited for, which may be cut off.
        await asyncio.gather(*self._leave())
        if failure is not None:
            raise failure

    def _leave(self) -> list[asyncio.Future[None]]:
        """Ends it, with all that it has bound; each answer of a broker is a future."""
        self._is_closed = True
        bound = [told for one in self._bound.values() for told in one._sending.leave()]
        self._bound.clear()
        return [*bound, *self._sending.leave()]

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def opened(
    part: Part, destination: Destination | None, options: ProducerOptions, failures: Failures | None = None
) -> Producer:
    """A producer in this part of its session, or where its destination lives; `failures`: those that it adds to."""

    async def make(part: Part) -> Producer:
        producer = Producer(part.session, destination, options)
        if failures is not None:
            producer._sending.share(failures)
        await part.add_producer(producer._sending)
        return producer

    return await part.branches.following(part, make)


def _let_go(producer: Producer) -> None:
    """Ends it, and waits for nothing."""
    _look_at(producer._sending.leave())


def _look_at(answers: list[asyncio.Future[None]]) -> None:
    """Has each looked at when it is there, since nobody waits for it."""
    for told in answers:
        told.add_done_callback(lambda done: done.cancelled() or done.exception())


def is_over(producer: Producer) -> bool:
    """Whether nothing can be sent with it any more."""
    return producer._is_closed or producer._lane.closed is not None


async def home_of(producer: Producer, destination: Destination) -> Lifeline:
    """The lifeline to the broker that a destination lives on, as an anonymous producer finds it."""
    return (await producer._bound_to(destination))._lifeline


async def within(timeout_s: float, sending: Awaitable[Sent], subject: str) -> Sent:
    """What `sending` gives, if it does in time.

    Raises:
        SendTimeoutError: it does not.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await sending
    except TimeoutError as error:
        raise errors.SendTimeoutError(
            f"not confirmed within {timeout_s:g} s", subject=subject, retryable=True
        ) from error


def may_batch(producer: Producer, *, targeted: bool) -> bool:
    """Whether messages may be given to it later than they are sent; `targeted`: they name their destinations.

    In a cluster each destination has numbers of its own, a transaction counts what it has at its commit, and of a named
    producer the numbers mean something to the application.
    """
    if producer._transacted or producer.options.name or producer._lane.closed is not None:
        return False
    if targeted is (producer.destination is not None):
        return False
    return not (targeted and producer._lifeline.cluster)
