"""Fails a test that leaves something behind on its event loop: a task still running, or an error that nobody saw.

A task that outlives its test is one that nobody awaits, which in the broker or the SDK means that closing does not
close. Tasks are looked at when the loop is about to be closed, after every fixture had its turn. An error that reaches
the loop's exception handler was raised where nobody caught it; a log line would be its only trace.
"""

import asyncio
import asyncio.runners
import contextlib
from asyncio.sslproto import SSLProtocol
from collections.abc import Generator
from typing import Any

import pytest

from tests.waiting import eventually

# What grpcio's own threads report when two loops poll its one queue; it reads again and nothing is lost.
_HARMLESS = "PollerCompletionQueue._handle_events"

# grpcio's own task for each call. It ends when the core has told the status, a moment after the call was over for all
# others, and now and then not at all: where several loops came and went, another may have taken the event off grpcio's
# one queue. It is given a moment and then not counted: who leaves a call open leaves a task of its own that reads it.
_STATUS_OF_A_CALL = "_AioCall._handle_status_once_received"
_STATUS_TIMEOUT_S = 1.0

# A connection that its owner has closed may wait for the other side's word (TLS), and one whose making was cancelled
# may even be made in vain (Python 3.11); nobody can be asked to wait for them. A loop that is closed meanwhile would
# leave them to a warning in some later test: they are waited for, and cut off. What nobody has closed is left to warn.
_CLOSING_TIMEOUT_S = 0.5


class LooseEnds:
    """What was left behind since `found` was last cleared."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._cancel: Any = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]
        self._handle: Any = asyncio.BaseEventLoop.call_exception_handler

    def install(self) -> None:
        """Looks on where asyncio cancels what is left, and where it reports what nobody caught."""
        cancel, handle = self._cancel, self._handle

        def watched_cancel(loop: asyncio.AbstractEventLoop) -> None:
            # By the task's own text: Cython's coroutines do not show their names.
            statuses = [task for task in asyncio.all_tasks(loop) if _STATUS_OF_A_CALL in repr(task)]
            if statuses:
                loop.run_until_complete(asyncio.wait(statuses, timeout=_STATUS_TIMEOUT_S))
            self.found += (f"task left running: {task!r}" for task in asyncio.all_tasks(loop) if task not in statuses)
            cancel(loop)
            loop.run_until_complete(_until_closed(loop))

        def watched_handle(loop: asyncio.BaseEventLoop, context: dict[str, Any]) -> None:
            text = f"{context.get('message')}: {context.get('exception')!r} {context.get('handle', '')!r}"
            if _HARMLESS not in text:
                self.found.append(f"error that nobody caught: {text}")
            handle(loop, context)

        asyncio.runners._cancel_all_tasks = watched_cancel  # type: ignore[attr-defined]
        asyncio.BaseEventLoop.call_exception_handler = watched_handle  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        """Undoes `install`."""
        asyncio.runners._cancel_all_tasks = self._cancel  # type: ignore[attr-defined]
        asyncio.BaseEventLoop.call_exception_handler = self._handle  # type: ignore[method-assign]


def _closed_by_their_owners(loop: asyncio.AbstractEventLoop) -> list[asyncio.WriteTransport]:
    """The connections that are still open although nobody has them any more."""
    found: list[asyncio.WriteTransport] = []
    selector = getattr(loop, "_selector", None)
    if selector is None:
        # uvloop, on which commands and the blocking SDK run, shows nobody its connections, and closes them by itself.
        return found
    for key in selector.get_map().values():
        for handle in key.data:
            transport = getattr(getattr(handle, "_callback", None), "__self__", None)
            if isinstance(transport, asyncio.WriteTransport):
                protocol = transport.get_protocol()
                owned: Any = protocol._app_transport if isinstance(protocol, SSLProtocol) else transport
                if owned is not None and owned.is_closing():
                    found.append(transport)
    return found


async def _until_closed(loop: asyncio.AbstractEventLoop) -> None:
    with contextlib.suppress(AssertionError):
        await eventually(lambda: not _closed_by_their_owners(loop), timeout_s=_CLOSING_TIMEOUT_S)
    for transport in _closed_by_their_owners(loop):
        transport.abort()
    # What was aborted, or closed just now, is let go in the loop's next rounds.
    await asyncio.sleep(0)
    await asyncio.sleep(0)


_KEY = pytest.StashKey[LooseEnds]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEY] = LooseEnds()
    config.stash[_KEY].install()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_KEY].remove()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """After every fixture of the test is gone, its loop too."""
    result = yield
    found = item.config.stash[_KEY].found
    if found:
        text = "\n".join(found)
        found.clear()
        pytest.fail(text, pytrace=False)
    return result
