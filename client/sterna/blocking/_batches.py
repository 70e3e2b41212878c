"""Messages on their way to the loop's thread, many at a time.

A hop into the loop's thread and back costs more than all else that a message costs, so `send_soon` does not wait for
one: it checks the message, leaves it here and goes on, while the loop's thread takes what there is. What a thread does
next on its connection comes behind what it has left here, as if it had hopped; and it waits where there is too much.

What cannot be checked here (the window and limits of a connection, transactions, large bodies) hops as before.
"""

from __future__ import annotations

import copy
import math
import threading
import time  # noqa: TID251 - threads are outside of simulations
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from sterna import errors, producers
from sterna._encode import encode_header, encode_links, encode_message
from sterna.bodies import Body
from sterna.destinations import destination_of
from sterna.events import logger
from sterna.modes import DeliveryMode

#: So many messages, and bytes of them, may be left for the loop's thread.
_MESSAGES_MAX: Final = 2_048
_BYTES_MAX: Final = 4 << 20
#: A larger body is worth a hop.
_BODY_BYTES_MAX: Final = 64 << 10
_FAILURES_KEPT: Final = 100
_LOOK_S: Final = 1.0
_OPTIONS: Final = frozenset(
    {
        "properties",
        "destination",
        "delivery_mode",
        "priority",
        "time_to_live_ms",
        "delivery_delay_ms",
        "correlation_id",
        "encoding",
        "reply_to",
        "type",
        "compress",
        "on_completion",
    }
)

_Item = tuple[Any, dict[str, Any], int, int, bool]


class Batch:
    """What is on its way of one producer. `start` has the loop's thread call `drain`."""

    def __init__(self, twin: producers.Producer, start: Callable[[Batch], None]) -> None:
        self.twin = twin
        self._start = start
        self._items: deque[_Item] = deque()
        self._changed = threading.Condition()
        # Whether the loop's thread has been told, and whether it is at work.
        self._is_told = self._is_draining = False
        self._left = self._handed = 0
        self._bytes_left = self._bytes_handed = 0
        # Whoever waits is woken when so many have been handed over.
        self._wake_at = math.inf
        self._numbers = {True: 0, False: 0}
        self._failures: list[tuple[str, errors.SternaError]] = []
        self._failed = 0

    # --- In the application's threads

    @property
    def pending(self) -> int:
        """How many messages the loop's thread has not taken yet."""
        return self._left - self._handed

    def leave(self, body: Body, options: dict[str, Any]) -> tuple[int, int] | None:
        """Leaves a message for the loop's thread: its number in the producer, and the ticket to wait for.

        None: it has to hop. Waits while too much has been left.
        """
        size = self._checked(body, options)
        if size is None:
            return None
        if type(body) not in (str, bytes, type(None)):
            # The application may go on to change it.
            try:
                body = copy.deepcopy(body)
            except Exception:  # noqa: BLE001 - a body of the application's own making
                return None
        if (properties := options.get("properties")) is not None:
            options["properties"] = dict(properties)
        mode = options.get("delivery_mode")
        confirmed = (self.twin.options.delivery_mode if mode is None else mode) != DeliveryMode.RELIABLE
        if self.pending >= _MESSAGES_MAX or self._bytes_left - self._bytes_handed >= _BYTES_MAX:
            self._wait(self._left - _MESSAGES_MAX // 2 if self.pending >= _MESSAGES_MAX else self._left, None)
        with self._changed:
            self._numbers[confirmed] += 1
            number = self._numbers[confirmed]
            self._items.append((body, options, number, size, confirmed))
            self._left += 1
            self._bytes_left += size
            ticket = self._left
            tells, self._is_told = not self._is_told, True
        if tells:
            self._start(self)
        return number, ticket

    def _checked(self, body: Body, options: dict[str, Any]) -> int | None:
        """About how many bytes a message has; None: what is wrong with it, or special, is found out by a hop."""
        twin, target = self.twin, options.get("destination")
        if self._failed or not options.keys() <= _OPTIONS or not producers.may_batch(twin, targeted=target is not None):
            return None
        try:
            if target is not None:
                destination_of(target)
            _check_header(options)
            if type(body) is bytes or body is None or (type(body) is str and body.isascii()):
                size = len(body or b"")
                if properties := options.get("properties"):
                    size += len(encode_message(b"", b"", properties, None))
            else:
                size = len(encode_message(b"", b"", options.get("properties"), body))
        except Exception:  # noqa: BLE001 - whatever it is, the hop raises it as it should be
            return None
        return size if size <= _BODY_BYTES_MAX else None

    def hopped(self, number: int, options: Mapping[str, Any]) -> None:
        """A message went the other way, and had this number."""
        mode = options.get("delivery_mode")
        confirmed = (self.twin.options.delivery_mode if mode is None else mode) != DeliveryMode.RELIABLE
        with self._changed:
            self._numbers[confirmed] = number

    def wait(self, ticket: int | None = None, timeout_s: float | None = None) -> None:
        """Waits until the message of this ticket, or all there is, has been handed over; at most so long."""
        wanted = self._left if ticket is None else ticket
        if self._handed < wanted:
            self._wait(wanted, timeout_s)

    def _wait(self, wanted: int, timeout_s: float | None) -> None:
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while self._handed < wanted:
                self._wake_at = min(self._wake_at, wanted)
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return
                if not self._is_draining:
                    # An interruption (Ctrl-C) may have come just before the loop's thread was to be told.
                    self._start(self)
                self._changed.wait(_LOOK_S if left_s is None else min(left_s, _LOOK_S))

    def take_failures(self) -> errors.FlushError | None:
        """What could not be handed over since the last time."""
        with self._changed:
            failures, count = self._failures, self._failed
            self._failures, self._failed = [], 0
        return errors.FlushError.of(failures, count) if failures else None

    def raise_failures(self) -> None:
        """What could not be handed over since the last time.

        Raises:
            FlushError: with the errors.
        """
        if (failure := self.take_failures()) is not None:
            raise failure

    # --- In the loop's thread

    async def drain(self) -> None:
        """Hands over what there is, in order."""
        if self._is_draining:
            return
        self._is_draining = True
        while True:
            while self._items:
                body, options, number, size, confirmed = self._items[0]
                try:
                    actual = await self.twin.send_soon(body, **options)
                except Exception as error:  # noqa: BLE001 - told to whoever sent it
                    self._fail(options, error)
                else:
                    if actual != number:
                        # Something before it has failed, or numbers began anew on another broker.
                        with self._changed:
                            self._numbers[confirmed] += actual - number
                self._taken(size)
            with self._changed:
                if not self._items:
                    self._is_told = self._is_draining = False
                    return

    def _taken(self, size: int) -> None:
        self._items.popleft()
        self._count(size)

    def _count(self, size: int) -> None:
        self._bytes_handed += size
        self._handed += 1
        if self._handed >= self._wake_at:
            with self._changed:
                self._wake_at = math.inf
                self._changed.notify_all()

    def give_up(self) -> None:
        """Nothing is taken any more: the connection is closed. Several threads may find that at once."""
        while True:
            try:
                _, options, _, size, _ = self._items.popleft()
            except IndexError:
                break
            self._fail(options, errors.ClosedError("the connection was closed", subject="connection"))
            with self._changed:
                self._count(size)
        with self._changed:
            self._is_told = self._is_draining = False

    def _fail(self, options: Mapping[str, Any], error: Exception) -> None:
        told = error if isinstance(error, errors.SternaError) else errors.InternalError(repr(error))
        if (completion := options.get("on_completion")) is not None:
            try:
                completion(told)
            except RuntimeError:
                logger.exception("a completion could not be called any more")
            return
        with self._changed:
            self._failed += 1
            if len(self._failures) < _FAILURES_KEPT:
                self._failures.append(("a message that was not sent", told))


def _check_header(options: Mapping[str, Any]) -> None:
    """Encodes what is not as the producer has it.

    Raises:
        Exception: it cannot be encoded.
    """
    given = [options.get(name) for name in ("delivery_mode", "priority", "time_to_live_ms", "delivery_delay_ms")]
    if any(one is not None for one in given):
        mode, priority, time_to_live_ms, delivery_delay_ms = given
        encode_header(mode or 0, priority, time_to_live_ms or 0, delivery_delay_ms or 0)
    correlation_id, reply_to = options.get("correlation_id"), options.get("reply_to")
    type_, encoding = options.get("type", ""), options.get("encoding", "")
    if correlation_id is not None or reply_to is not None or type_ or encoding:
        encode_links(correlation_id, reply_to, type_, encoding)
