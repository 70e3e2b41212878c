"""The engine on the event loop: who feeds it, when it is polled, whom its output wakes.

The engine never calls anybody. Whoever hands it something calls `touch`, which polls it once in this turn of the
loop, however many did. A poll sends to the disk what is to be written, so after a large batch it lets a turn or two of
the loop go by first, as long as each brings another: a client that fills batches has more on the way, and what comes
together shares a group commit. A small batch never waits.

The engine's own threads (the log's writer, the reader of what was paged out) make its eventfd readable, which polls
it, too; and so does the next deadline it named. A poll says which streams have output: their ports are woken, and take
it when their previous write has finished. It also hands out tickets: questions that only the configuration can answer.

All calls of the engine happen on the loop's thread, through this object or after `tick`.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog
from sterna_core import Engine, EngineError

from sterna_broker.contract import messaging
from sterna_broker.refusals import RefusedError, shutting_down
from sterna_broker.surroundings import monotonic_ms, wall_ms

_log = structlog.get_logger(part="engine")

Ticket = dict[str, Any]
Answer = dict[str, Any]

# From this size on a batch is one of many.
_LARGE_BATCH_BYTES = 8 * 1024
# How many turns of the loop a poll lets pass while large batches come in.
_TURNS_MAX = 2
# How soon after a poll it is looked whether damage was found: reads and scrubbing end with a poll.
_DAMAGE_S = 1.0


class Port(Protocol):
    """The far end of one of the engine's streams: a gRPC call, or a part of the broker itself."""

    def wake(self) -> None:
        """There may be output to take. Must not call the engine: a poll is being dealt out."""


class Pump:
    """See the module."""

    def __init__(
        self, engine: Engine, answer: Callable[[Ticket], Answer | Awaitable[Any]], failed: Callable[[str], None]
    ) -> None:
        self.engine = engine
        self.ports: dict[int, Port] = {}
        self._answer = answer
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._scheduled = False
        # Since the last look: whether a large batch came in; how many turns the poll has been put off.
        self._filling = False
        self._turns = 0
        self._running = False
        self._has_failed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        # Who waits for the log, with how far.
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._answering: dict[asyncio.Future[Any], None] = {}
        self.on_damage: Callable[[], None] = lambda: None
        self._damaged = 0
        self._looking: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begins to poll."""
        self._running = True
        self._loop.add_reader(self.engine.fileno(), self._poll)
        self.touch()

    def stop(self) -> None:
        """Polls no more; the engine may be stopped afterwards."""
        self._running = False
        for task in list(self._answering):
            task.cancel()
        self._loop.remove_reader(self.engine.fileno())
        for timer in (self._timer, self._looking):
            if timer is not None:
                timer.cancel()
        for _, waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(shutting_down())
        self._waiting.clear()

    @property
    def is_running(self) -> bool:
        """Whether the engine is there: not before it is polled, nor when that has ended."""
        return self._running

    def tick(self) -> Engine:
        """The engine, told the time: for a call that depends on it."""
        self.engine.tick(wall_ms(), monotonic_ms())
        return self.engine

    def open(self, port: Port, peer: str, *, internal: bool = False) -> int:
        """A new stream, whose output wakes `port`; its number."""
        stream = next(self._ids)
        self.tick().open_stream(stream, peer, internal)
        self.ports[stream] = port
        return stream

    def handle(self, stream: int, batch: bytes) -> None:
        """Hands a batch of frames to the engine."""
        self.engine.tick(wall_ms(), monotonic_ms())
        self.engine.handle(stream, batch)
        if len(batch) >= _LARGE_BATCH_BYTES:
            self._filling = True
        self.touch()

    def close(self, stream: int) -> None:
        """The far end is gone. Harmless when it was closed before."""
        if self.ports.pop(stream, None) is not None and self._running:
            self.tick().close_stream(stream)
            self.touch()

    def cut(self, stream: int) -> RefusedError | None:
        """As `close`; what the engine had ended the stream for before, and has counted it under."""
        if stream not in self.ports or not self._running:
            return None
        try:
            error = self.engine.ended_for(stream)
            self.close(stream)
        except EngineError:
            return None  # the next poll finds out
        return None if error is None else RefusedError.from_error(messaging.Error.FromString(error))

    async def durable(self) -> None:
        """Returns once everything that the engine has done so far is on disk: before an administrator is told so.

        Raises:
            RefusedError: it will never be: the store has failed, or the broker stops.
        """
        end, durable, failed = self.engine.log_progress()
        if failed is not None:
            raise _store_failed(failed)
        if durable < end:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((end, waiter))
            self.touch()
            await waiter

    def _tell_durable(self) -> None:
        _, durable, failed = self.engine.log_progress()
        waiting, self._waiting = self._waiting, []
        for end, waiter in waiting:
            if waiter.done():
                continue
            if failed is not None:
                waiter.set_exception(_store_failed(failed))
            elif durable >= end:
                waiter.set_result(None)
            else:
                self._waiting.append((end, waiter))

    def touch(self) -> None:
        """Has the engine polled in this turn of the loop, or soon."""
        if not self._scheduled and self._running:
            self._scheduled = True
            self._loop.call_soon(self._poll_or_wait)

    def _poll_or_wait(self) -> None:
        if self._filling and self._turns < _TURNS_MAX and self._scheduled:
            self._filling = False
            self._turns += 1
            self._loop.call_soon(self._poll_or_wait)
        elif self._scheduled:
            self._poll()

    def _poll(self) -> None:
        self._scheduled = self._filling = False
        self._turns = 0
        if not self._running:
            return
        try:
            self.engine.tick(wall_ms(), monotonic_ms())
            ready, tickets, deadline_ms, failed = self.engine.poll()
        except EngineError as error:
            # The engine has met a defect of its own: nothing it says can be relied on any more.
            self.stop()
            self._failed(str(error))
            return
        if self._waiting:
            self._tell_durable()
        for stream in ready:
            port = self.ports.get(stream)
            if port is not None:
                port.wake()
        if tickets:
            for ticket in tickets:
                self._answer_ticket(json.loads(ticket))
            self.touch()
        self._set_timer(deadline_ms)
        if self._looking is None:
            self._looking = self._loop.call_later(_DAMAGE_S, self._look_for_damage)
        if failed is not None and not self._has_failed:
            # Whoever is connected has just been told. It cannot heal: only a start finds out what the disk holds.
            self._has_failed = True
            self._failed(failed)

    def _look_for_damage(self) -> None:
        """Tells of damage once it is found, and not only when somebody asks for it."""
        self._looking = None
        if (damaged := self.engine.damaged_places()) > self._damaged:
            self._damaged = damaged
            self.on_damage()

    def _answer_ticket(self, ticket: Ticket) -> None:
        try:
            answer = self._answer(ticket)
        except Exception as error:  # noqa: BLE001, a defect must not park a session for ever
            answer = _failed(ticket, error)
        if isinstance(answer, dict):
            self.engine.answer(ticket["ticket"], json.dumps(answer))
            return
        self._wait_for(ticket, answer)

    def _wait_for(self, ticket: Ticket, answer: Awaitable[Any]) -> None:
        # It takes a while: the session waits for it, nobody else does.
        task = asyncio.ensure_future(answer)
        self._answering[task] = None
        task.add_done_callback(lambda done: self._answer_late(ticket, done))

    def _answer_late(self, ticket: Ticket, done: "asyncio.Future[Any]") -> None:
        self._answering.pop(done, None)
        if done.cancelled() or not self._running:
            return
        try:
            answer = done.result()
            # Nothing can come between this and the engine.
            answer = answer() if callable(answer) else answer
        except Exception as error:  # noqa: BLE001, a defect must not park a session for ever
            answer = _failed(ticket, error)
        if not isinstance(answer, dict):
            self._wait_for(ticket, answer)
            return
        self.tick().answer(ticket["ticket"], json.dumps(answer))
        self.touch()

    def _set_timer(self, deadline_ms: int | None) -> None:
        if deadline_ms == self._timer_ms and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = deadline_ms
        if deadline_ms is not None:
            # The loop's clock is the monotonic clock, in seconds.
            self._timer = self._loop.call_at(deadline_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._poll()


def _failed(ticket: Ticket, error: Exception) -> Answer:
    """The answer in place of one that could not be given. The ticket is not logged: it may hold a password."""
    _log.error("ticket_failed", kind=ticket.get("kind"), exc_info=error)
    return {"error": _internal(error)}


def _store_failed(why: str) -> RefusedError:
    message = f"The broker cannot write and makes nothing durable any more: {why}."
    return RefusedError("STORE_FAILED", "store", message, "Look at the disk, then start the broker again.")


def _internal(error: Exception) -> dict[str, Any]:
    return {
        "code": "INTERNAL",
        "subject": type(error).__name__,
        "message": "The broker failed to answer.",
        "remedy": "Report this, with the broker's log.",
        "retryable": False,
    }
