"""The loads themselves: sending with many under way, sending one by one, consuming.

Each takes an open connection, so that connecting is not measured, and returns a `Load`: how many, how long, latencies.
With a schedule, latencies count from the moment at which a message was due (see `schedules`); without one they count
from the call, and say nothing about what a sender with a rate of its own would see.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time  # noqa: TID251 - the command line is not simulated
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna._measuring.latencies import Latencies
from sterna._measuring.schedules import Schedule
from sterna.errors import SternaError
from sterna.modes import DeliveryMode

if TYPE_CHECKING:
    from sterna.connections import Connection
    from sterna.consumers import Consumer
    from sterna.destinations import Destination
    from sterna.sessions import Session

# Properties as real messages have them; every load sends the same three.
PROPERTIES: dict[str, Any] = {"colour": "vermilion", "size": 42, "urgent": True}
# The first bytes of a body: the moment at which the message was due, by the monotonic clock of this machine.
_STAMP = struct.Struct("<q")
MIN_BODY_BYTES = _STAMP.size

Progress = Callable[[int], None]


@dataclass(slots=True)
class Load:
    """What a load did.

    Args:
        messages: how many were confirmed or consumed.
        seconds: from the first send or message to the last confirmation or message.
        latencies: of confirmations, or from sending to receiving.
        delays: how late messages were sent compared with their schedule.
        failures: how many the broker refused; they are not among `messages`.
        failure: the first of these errors.
    """

    messages: int = 0
    seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)
    delays: Latencies = field(default_factory=Latencies)
    failures: int = 0
    failure: SternaError | None = None

    def note_failure(self, error: SternaError, count: int = 1) -> None:
        """Counts messages that the broker refused."""
        self.failures += count
        self.failure = self.failure or error

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds if self.seconds else 0.0


class Until:
    """When a load ends: after so many messages, or so many seconds, whichever is first; 0: no such bound."""

    def __init__(self, count: int = 0, seconds: float = 0.0) -> None:
        self.count = count
        self._end_ns = time.monotonic_ns() + int(seconds * 1e9) if seconds else 0

    def reached(self, number: int) -> bool:
        """Whether message `number` (from 0) is one too many."""
        return bool((self.count and number >= self.count) or (self._end_ns and time.monotonic_ns() >= self._end_ns))


async def send_pipelined(
    connection: Connection,
    destination: Destination,
    until: Until,
    *,
    size: int = 1_024,
    window: int = 4_000,
    rate: float = 0.0,
    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
    timed: bool = False,
    progress: Progress | None = None,
    properties: Mapping[str, Any] = PROPERTIES,
) -> Load:
    """Send with up to `window` unconfirmed messages under way.

    Args:
        connection: an open one.
        destination: where to.
        until: when to stop.
        size: bytes of a body.
        window: how many may be unconfirmed.
        rate: messages a second by the clock; 0: as fast as they go.
        delivery_mode: of all of them.
        timed: measure each confirmation and stamp each body; costs the sender time, so throughput runs do without.
        progress: is told now and then how many were sent.
        properties: of all of them.

    Raises:
        FlushError: the broker refused some; only where nothing is timed, otherwise the load counts them.
    """
    load = Load()
    fixed = bytearray(os.urandom(size))
    body: Any = bytes(fixed)
    number = 0
    async with await connection.producer(destination, window=window, delivery_mode=delivery_mode) as producer:
        begin = time.monotonic_ns()
        # Nothing is due before it can be sent.
        schedule = Schedule(rate) if rate else None
        while not until.reached(number):
            if schedule is not None and (wait_s := schedule.wait_s(number, time.monotonic_ns())) > 0:
                await asyncio.sleep(wait_s)
            if timed or schedule is not None:
                due_ns = schedule.due_ns(number) if schedule is not None else time.monotonic_ns()
                load.delays.record(time.monotonic_ns() - due_ns)
                body = _STAMP.pack(due_ns) + fixed[_STAMP.size :]
                await producer.send_soon(body, properties=properties, on_completion=_timer(load, due_ns))
            else:
                await producer.send_soon(body, properties=properties)
            number += 1
            if progress is not None and number % 1_024 == 0:
                progress(number)
        await producer.flush()
        load.seconds = (time.monotonic_ns() - begin) / 1e9
    load.messages = number - load.failures
    return load


def _timer(load: Load, due_ns: int) -> Callable[[Any], None]:
    def completed(outcome: Any) -> None:
        if isinstance(outcome, SternaError):
            load.note_failure(outcome)
        else:
            load.latencies.record(time.monotonic_ns() - due_ns)

    return completed


async def send_awaiting(
    connections: list[Connection],
    destination: Destination,
    count: int,
    *,
    tasks: int = 1,
    size: int = 1_024,
    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
) -> Load:
    """Send `count` messages by `tasks` tasks on each connection, each awaiting the confirmation of each send."""
    load = Load()
    body = os.urandom(size)
    numbers = iter(range(count))

    async def work(producer: Any) -> None:
        for _ in numbers:
            begin = time.monotonic_ns()
            await producer.send(body, properties=PROPERTIES)
            load.latencies.record(time.monotonic_ns() - begin)

    producers = [await connection.producer(destination, delivery_mode=delivery_mode) for connection in connections]
    begin = time.monotonic_ns()
    await asyncio.gather(*(work(producer) for producer in producers for _ in range(tasks)))
    load.seconds = (time.monotonic_ns() - begin) / 1e9
    load.messages = count
    for producer in producers:
        await producer.close()
    return load


async def consume(
    session: Session,
    consumer: Consumer,
    until: Until,
    *,
    timed: bool = False,
    progress: Progress | None = None,
    idle_s: float = 30.0,
) -> Load:
    """Take messages and let the session acknowledge them; ends with the last acknowledgement on disk.

    Args:
        session: one that acknowledges by itself (AUTO or DUPS_OK).
        consumer: an open one of that session.
        until: when to stop; besides, when nothing came for `idle_s` seconds.
        timed: measure from the moment in each body's stamp to now.
        progress: is told now and then how many were taken.
        idle_s: how long to wait for a message.
    """
    load = Load()
    begin_ns = time.monotonic_ns()
    first_ns = idle_ns = 0
    number = 0
    while not until.reached(number):
        # What was sent ahead costs no switch to the event loop.
        message = consumer.receive_nowait()
        if message is None:
            idle_ns = time.monotonic_ns()
            message = await consumer.receive(timeout=idle_s)
            if message is None:
                break
            idle_ns = 0
        if number == 0:
            first_ns = time.monotonic_ns()
        if timed:
            _record(load.latencies, message.body, begin_ns)
        number += 1
        if progress is not None and number % 1_024 == 0:
            progress(number)
    await session.flush()
    # A wait in which nothing came any more is no part of the load.
    end_ns = idle_ns or time.monotonic_ns()
    load.messages = number
    load.seconds = (end_ns - first_ns) / 1e9 if number else 0.0
    return load


def _record(latencies: Latencies, body: Any, begin_ns: int) -> None:
    """The time since a message was due; one that is not of this run counts for nothing."""
    now_ns = time.monotonic_ns()
    if isinstance(body, bytes) and len(body) >= MIN_BODY_BYTES:
        due_ns = _STAMP.unpack_from(body)[0]
        if begin_ns <= due_ns <= now_ns:
            latencies.record(now_ns - due_ns)
