"""Fails a test in which the event loop was held up: one callback that took longer than the bound, 200 ms by default.

Nothing may block the broker's loop or the SDK's, since every connection waits behind it. What counts is the time that
the callback itself took, running or blocked (on a disk, a lock). Time in which its thread was ready but the machine
gave the core to others is taken off, or a busy machine would fail tests; the kernel keeps that figure (schedstat),
where it does not nothing is taken off. The same holds for time in which a hypervisor gave the machine's cores to other
machines: the thread counts as running then, and only the machine's own figure (steal in /proc/stat) tells. Nor does the
time count in which Python collects garbage: that grows with all that a thousand tests before have left in this process,
and may come in any callback; nor that of work which the product does on threads, and a simulation on its loop.

A simulated loop (its class has `is_simulated`) has five times as much: its steps also hold what starts a broker, nobody
waits behind them in real time, and a machine that stops for a moment does not always say so.

`@pytest.mark.slow_callbacks(ms)` sets another bound for one test.
"""

import asyncio
import gc
import os
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.beside_the_loop import Beside

BOUND_MS = 200.0
_SIMULATED_TIMES = 5

# How long a reading of the waiting time stays good enough as the starting point of a callback. A longer callback then
# gets at most this much too much taken off.
_READING_AGE_S = 0.02


_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _opened(file: str) -> int:
    try:
        return os.open(file, os.O_RDONLY)
    except OSError:
        return -1


class Waiting(threading.local):
    """What this thread waited for a core and what was stolen from the machine, in seconds, read as seldom as may be."""

    def __init__(self, stat: str = "/proc/stat") -> None:
        self.read_at = 0.0
        self.value = 0.0
        self._own = _opened(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._machine = _opened(stat)

    def read(self) -> float:
        """The present sum."""
        self.value = 0.0
        if self._own >= 0:
            self.value += int(os.pread(self._own, 100, 0).split()[1]) / 1e9
        if self._machine >= 0:
            # cpu user nice system idle iowait irq softirq steal …: all cores together.
            self.value += int(os.pread(self._machine, 300, 0).split()[8]) / _TICKS_PER_S
        self.read_at = time.monotonic()
        return self.value

    def __del__(self) -> None:
        for file in (self._own, self._machine):
            if file >= 0:
                os.close(file)


# Whether the test that runs has the usual bound, in which nothing may be waited for.
_is_bounded = False


def refuse_to_block(what: str) -> None:
    """For helpers that wait blockingly, for longer than the usual bound when the machine is busy.

    Raises:
        AssertionError: they would hold up an event loop, in a test that has set no bound of its own.
    """
    if _is_bounded:
        assert asyncio._get_running_loop() is None, f"it would hold the event loop up: wait in a thread for {what}"


class _Collecting:
    """The time spent on collecting garbage, in seconds: on any thread, since whoever collects holds the interpreter."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._began: float | None = None

    def so_far(self) -> float:
        """The sum up to now, with the part of a collection that goes on: another thread's may have begun before."""
        began = self._began
        return self.total_s if began is None else self.total_s + time.monotonic() - began

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        """As `gc.callbacks` calls it."""
        if phase == "start":
            self._began = time.monotonic()
        elif self._began is not None:
            self.total_s += time.monotonic() - self._began
            self._began = None


class SlowCallbacks:
    """Times every callback of every event loop while installed, and keeps those over the bound."""

    def __init__(self, waiting: Waiting | None = None) -> None:
        self.bound_ms = BOUND_MS
        self.found: list[str] = []
        self._waiting = waiting or Waiting()
        self._collecting = _Collecting()
        self._original = asyncio.Handle._run

    def install(self) -> None:
        """Puts the timing around the one place through which every loop runs its callbacks."""
        original, waiting, collecting = self._original, self._waiting, self._collecting
        gc.callbacks.append(collecting)

        def timed(handle: asyncio.Handle) -> None:
            began = time.monotonic()
            others_s = collecting.so_far() + Beside.total_s
            before = waiting.value if began - waiting.read_at < _READING_AGE_S else waiting.read()
            original(handle)
            took_ms = (time.monotonic() - began) * 1000
            bound_ms = self.bound_ms
            if took_ms > bound_ms:
                if getattr(handle._loop, "is_simulated", False):  # type: ignore[attr-defined]
                    bound_ms *= _SIMULATED_TIMES
                took_ms -= (waiting.read() - before + collecting.so_far() + Beside.total_s - others_s) * 1000
                if took_ms > bound_ms:
                    self.found.append(f"{took_ms:.0f} ms in {handle!r}")

        asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Undoes `install`."""
        asyncio.Handle._run = self._original  # type: ignore[method-assign]
        gc.callbacks.remove(self._collecting)


_KEY = pytest.StashKey[SlowCallbacks]()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow_callbacks(ms): another bound than 200 ms for one event-loop callback")
    config.stash[_KEY] = SlowCallbacks()
    config.stash[_KEY].install()


def pytest_unconfigure(config: pytest.Config) -> None:
    global _is_bounded
    _is_bounded = False
    config.stash[_KEY].remove()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    global _is_bounded
    watcher = item.config.stash[_KEY]
    watcher.found.clear()
    mark = item.get_closest_marker("slow_callbacks")
    watcher.bound_ms = float(mark.args[0]) if mark else BOUND_MS
    _is_bounded = mark is None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    result = yield
    watcher = item.config.stash[_KEY]
    if watcher.found:
        pytest.fail(f"event loop held up beyond {watcher.bound_ms:.0f} ms: " + "; ".join(watcher.found), pytrace=False)
    return result
