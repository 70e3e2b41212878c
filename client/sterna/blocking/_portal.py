"""The way from ordinary threads into one event loop that runs in a thread of its own.

Every blocking call is its asynchronous twin, run there. Callbacks of the application leave the loop's thread, so that
they may call back into the blocking interface without locking it up: each listener has a thread while it has a message,
hooks and completions have one together, which calls them in order. What `send_soon` sends is handed over in batches.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sterna import errors
from sterna._failures import joined
from sterna._in_hand import HOLDER
from sterna._loop import new_event_loop
from sterna.blocking._batches import Batch
from sterna.events import logger

T = TypeVar("T")
#: Each listener takes one while it works; there are as many as work at once.
_LISTENER_THREADS = 4096


class Portal:
    """One loop thread, and threads for callbacks. Usable from any thread but the loop's own."""

    def __init__(self) -> None:
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sterna-loop", daemon=True)
        self._listeners = concurrent.futures.ThreadPoolExecutor(_LISTENER_THREADS, thread_name_prefix="sterna-listener")
        self._callbacks = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sterna-callback")
        self._batches: WeakKeyDictionary[Batch, None] = WeakKeyDictionary()
        # One thread may make a producer while another one goes through them.
        self._counting = threading.Lock()
        # What this thread has left in batches, by the last ticket of each.
        self._here = threading.local()
        self._stopped = False
        # What is given to the loop is given before it is told to stop: nobody waits for what it does not see any more.
        self._giving = threading.RLock()
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # As when a listener has closed its own connection: its task waits for it.
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def is_stopped(self) -> bool:
        """Whether the loop has ended, or is about to."""
        return self._stopped

    def check(self) -> None:
        """Whether calls are possible, from this thread.

        Raises:
            ClosedError: the connection was closed.
            NotAllowedError: it is the loop's own thread.
        """
        if self._stopped:
            raise errors.ClosedError("the connection was closed", subject="connection")
        if threading.current_thread() is self._thread:
            cause = "the blocking interface was called from its own event loop, which would wait for itself"
            raise errors.NotAllowedError(cause, remedy="use the asynchronous interface there")

    # --- Batches

    def batch(self, batch: Batch) -> None:
        """One more batch of messages for the loop."""
        with self._counting:
            self._batches[batch] = None

    def _all(self) -> list[Batch]:
        with self._counting:
            return list(self._batches)

    def take(self, batch: Batch) -> None:
        """Has the loop's thread take what there is of a batch."""
        try:
            self._loop.call_soon_threadsafe(self._begin, batch)
        except RuntimeError:
            batch.give_up()

    def _begin(self, batch: Batch) -> None:
        if self._stopped:
            # Nobody would see this task to its end.
            batch.give_up()
            return
        task = self._loop.create_task(batch.drain(), name="sterna-batch")
        task.add_done_callback(lambda done: batch.give_up() if done.cancelled() or done.exception() else None)

    def left(self, batch: Batch, ticket: int) -> None:
        """What this thread does next comes behind this message."""
        tickets: dict[Batch, int] | None = getattr(self._here, "tickets", None)
        if tickets is None:
            tickets = self._here.tickets = {}
        tickets[batch] = ticket

    def settle(self) -> None:
        """Waits until the loop's thread has taken what this thread has left for it."""
        tickets: dict[Batch, int] | None = getattr(self._here, "tickets", None)
        if tickets and threading.current_thread() is not self._thread:
            for batch, ticket in tickets.items():
                batch.wait(ticket)
            tickets.clear()

    def settle_all(self, timeout_s: float | None = None) -> None:
        """Waits until the loop's thread has taken what anybody has left for it; for each batch at most so long."""
        if threading.current_thread() is self._thread:
            return
        for batch in self._all():
            batch.wait(timeout_s=timeout_s)
        if tickets := getattr(self._here, "tickets", None):
            tickets.clear()

    def raise_failures(self, before: errors.SternaError | None = None) -> None:
        """What could not be handed over, and what failed before.

        Raises:
            FlushError: with all of it.
            SternaError: what else failed before.
        """
        if (failure := joined([before, *(batch.take_failures() for batch in self._all())])) is not None:
            raise failure

    # --- Calls

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs in the loop; an interrupted wait (Ctrl-C) cancels it."""
        try:
            self.check()
            self.settle()
        except BaseException:
            coroutine.close()
            raise
        # What an iteration hands out is in this thread's hands, not in those of the task that fetches it; a thread that
        # runs a listener stands for that.
        told = HOLDER.set(HOLDER.get() or threading.current_thread())
        try:
            with self._giving:
                self.check()
                future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except errors.SternaError:
            coroutine.close()
            raise
        finally:
            HOLDER.reset(told)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # Another thread has closed what this one waits for.
            self.check()
            raise
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a plain function, called in the loop's thread."""

        async def calling() -> T:
            return function(*arguments)

        return self.run(calling())

    async def outside(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """For the task of a listener: the result of the application's callback, run in a thread of its own."""
        listening = asyncio.current_task()

        def stand_for() -> Any:
            HOLDER.set(listening)
            try:
                result = callback(*arguments)
                # Before the message counts as done with.
                self.settle()
                return result
            except BaseException as error:
                if isinstance(error, Exception) and not isinstance(error, StopIteration):
                    raise
                # A future does not take a StopIteration, and its task would wait for ever; what is no Exception would
                # end that task, or the loop, on which everybody else waits.
                raise RuntimeError(f"the listener raised {error!r}") from error

        run = contextvars.Context().run
        return await asyncio.get_running_loop().run_in_executor(self._listeners, run, stand_for)

    def submit(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """For the loop: has an application's callback run, and waits for nothing. What it raises is logged."""
        self._callbacks.submit(_logged, callback, *arguments)

    def stop(self) -> None:
        """Ends the loop and its thread; callbacks under way are let finish."""
        with self._giving:
            if self._stopped:
                return
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for batch in self._all():
            batch.give_up()
        self._listeners.shutdown(wait=False)
        self._callbacks.shutdown(wait=False)


def _logged(callback: Callable[..., Any], *arguments: Any) -> None:
    try:
        callback(*arguments)
    except Exception:  # noqa: BLE001 - whatever the application's callback raises is logged
        logger.exception("a callback of the application failed")
