"""An event loop that has no time of its own: it jumps to the next timer, and who goes next follows from the seed.

Within a process callbacks run in the order in which they were scheduled, as asyncio promises; which process goes next
is drawn. There are no sockets and no threads: what is given to an executor is one later step.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any

from tests.support.beside_the_loop import beside_the_loop
from tests.world import awaits
from tests.world.processes import CURRENT, Process

_STEP_S = 1e-6
"""What a step takes, so that no two are at the same time."""

_EXECUTOR_S = 0.003
"""What work in a thread takes at most, mostly."""


class StuckError(Exception):
    """Nobody has anything to do any more, or what was waited for does not come in the time that it may take."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module."""

    is_simulated = True

    def __init__(self, random: Random, begin_s: float = 1_000.0) -> None:
        super().__init__()
        self.random = random
        self.steps = 0
        self.trace: list[str] | None = None
        self.awaits = awaits.Counts()
        self._now_s = begin_s
        self._queues: dict[Process, deque[asyncio.Handle]] = {}
        self._processes: dict[Process, None] = {}
        self._readers: dict[int, asyncio.Handle] = {}
        self._timers: list[tuple[float, asyncio.TimerHandle]] = []
        self.set_task_factory(_task)
        self.set_exception_handler(_note)

    def time(self) -> float:
        return self._now_s

    # --- What asyncio calls

    def _call_soon(
        self, callback: Callable[..., Any], args: Any, context: contextvars.Context | None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._append(handle)
        return handle

    def _add_callback_signalsafe(self, handle: asyncio.Handle) -> None:
        self._append(handle)

    def _append(self, handle: asyncio.Handle) -> None:
        process = _owner(handle)
        if not process.is_dead:
            queue = self._queues.get(process)
            if queue is None:
                queue = self._queues[process] = deque()
            queue.append(handle)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        # With the time beside it: comparing two of them is a good part of what a step costs.
        heapq.heappush(self._timers, (when, timer))
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def _run_once(self) -> None:
        handle = self._next()
        if handle is None:
            raise StuckError("nothing is left to happen")
        self._now_s += _STEP_S
        self.steps += 1
        if self.trace is not None:
            self.trace.append(f"{self._now_s:.6f} {_owner(handle)} {_what(handle)}")
        handle._run()

    def _next(self) -> asyncio.Handle | None:
        queues, timers = self._queues, self._timers
        while True:
            while timers and (timers[0][0] <= self._now_s or timers[0][1].cancelled()):
                timer = heapq.heappop(timers)[1]
                timer._scheduled = False  # type: ignore[attr-defined]
                if not timer.cancelled():
                    self._append(timer)
            if not queues:
                if not timers:
                    return None
                self._now_s = max(self._now_s, timers[0][0])
                continue
            if len(queues) > 1:
                # Dictionaries keep the order of insertion, which follows from the seed.
                process = list(queues)[self.random.randrange(len(queues))]
            else:
                (process,) = queues
            queue = queues[process]
            handle = queue.popleft()
            if not queue:
                del queues[process]
            if not handle.cancelled() and not process.is_dead:
                return handle

    def close(self) -> None:
        self._timers.clear()
        super().close()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers go when their time comes."""

    def _write_to_self(self) -> None:
        """There is no other thread that would have to be woken."""

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """A generator that nobody needs any more is closed by whose step it is; of the dead nothing is."""
        process = CURRENT.get(None)
        if self.is_running() and process is not None and not process.is_dead:
            self.call_soon(self.create_task, agen.aclose())

    def _process_events(self, event_list: Any) -> None:
        """There is nothing outside."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()

        def run() -> None:
            try:
                with beside_the_loop():
                    result = func(*args)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits for it
                self.call_soon(_fail, future, error)
            else:
                self.call_soon(_succeed, future, result)

        self.call_later(self.random.random() * _EXECUTOR_S, run)
        return future

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """What stands for a file is a number; `wake_reader` says that it can be read."""
        self._readers[fd] = asyncio.Handle(callback, args, self, None)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def wake_reader(self, fd: int) -> None:
        """Somebody has made it readable."""
        if (handle := self._readers.get(fd)) is not None:
            self._append(handle)

    async def create_connection(self, *_: Any, **__: Any) -> Any:
        raise OSError("there are no sockets in the simulation")

    async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
        raise OSError("there are no names in the simulation")

    # --- For the world

    def at(self, process: Process, delay_s: float, call: Callable[..., None], *arguments: Any) -> asyncio.TimerHandle:
        """Has a process do something later."""
        return self.call_later(delay_s, call, *arguments, context=process.context)

    def kill(self, process: Process) -> None:
        """SIGKILL."""
        if not process.is_dead:
            awaits.note(self.awaits.killed, process.tasks)
        process.kill()

    def moved(self) -> None:
        """The home of some destination has changed, under all that wait now."""
        for process in list(self._processes):
            if process.is_dead:
                del self._processes[process]
            else:
                awaits.note(self.awaits.moved, process.tasks)

    def spawn(self, process: Process, work: Coroutine[Any, Any, Any], name: str = "") -> asyncio.Task[Any]:
        """A task of a process, whoever asks for it."""
        self._processes[process] = None
        task = _task(self, work, process.context.copy())
        task.set_name(name or task.get_name())
        return task


class _Task(asyncio.Task[Any]):
    """Counts where it is cancelled."""

    def cancel(self, msg: Any = None) -> bool:
        loop = self.get_loop()
        if isinstance(loop, SimulatedLoop) and not loop.is_closed():
            awaits.note(loop.awaits.cut, (self,))
        return super().cancel(msg)


def _task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], context: Any = None
) -> asyncio.Task[Any]:
    context = context or contextvars.copy_context()
    task: asyncio.Task[Any] = _Task(work, loop=loop, context=context)
    context[CURRENT].tasks[task] = None
    task.add_done_callback(_done, context=context)
    return task


def _done(task: asyncio.Task[Any]) -> None:
    CURRENT.get().tasks.pop(task, None)


def _owner(handle: asyncio.Handle) -> Process:
    process: Process = handle._context[CURRENT]  # type: ignore[attr-defined]
    return process


def _what(handle: asyncio.Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        work = owner.get_coro()  # of a generator that is closed by nobody in particular it has no name
        return f"task {getattr(work, '__qualname__', type(work).__name__)}"
    return getattr(callback, "__qualname__", type(callback).__name__)


def _note(_loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
    process = CURRENT.get(None)
    if process is not None and not process.is_dead:
        process.faults.append(f"{told.get('message')}: {told.get('exception')!r}")


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
