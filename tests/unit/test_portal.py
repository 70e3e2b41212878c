"""The way into the loop of the blocking interface, closed by one thread while another uses it."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from sterna import errors
from sterna.blocking._batches import Batch
from sterna.blocking._portal import Portal


@pytest.fixture
def portal() -> Iterator[Portal]:
    """One that is stopped with its test."""
    made = Portal()
    yield made
    made.stop()


def test_who_waits_when_another_thread_stops_it_is_told_that_it_is_closed(portal: Portal) -> None:
    runs = threading.Event()

    async def wait() -> None:
        runs.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(portal.run, wait())
        assert runs.wait(10)
        portal.stop()
        with pytest.raises(errors.ClosedError):
            waiting.result(10)


def test_what_is_asked_while_another_thread_stops_it_is_refused(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After it was found open, and before the loop is given anything.
    monkeypatch.setattr(portal, "settle", portal.stop)

    async def never() -> None:
        raise AssertionError("nobody runs it any more")

    with pytest.raises(errors.ClosedError):
        portal.run(never())


class _NoError(BaseException):
    """What is no Exception."""


@pytest.mark.parametrize("raised", [StopIteration, GeneratorExit, _NoError])
def test_a_listener_that_raises_what_no_future_takes_ends_all_the_same(
    portal: Portal, raised: type[BaseException]
) -> None:
    def fail() -> None:
        raise raised

    with ThreadPoolExecutor(1) as threads:
        failing = threads.submit(portal.run, portal.outside(fail))
        try:
            with pytest.raises(RuntimeError, match="the listener raised"):
                failing.result(10)
        finally:
            portal.stop()


def _batch() -> Batch:
    """One that nobody takes."""
    twin: Any = None
    return Batch(twin, lambda _: None)


def test_a_producer_may_be_made_while_another_thread_waits_for_all(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, added = threading.Event(), threading.Event()

    class Slow(WeakKeyDictionary[Batch, None]):
        """Gives the other thread a moment, where it takes it."""

        def __iter__(self) -> Iterator[Batch]:
            for one in super().__iter__():
                reached.set()
                added.wait(0.2)
                yield one

    monkeypatch.setattr(portal, "_batches", Slow())
    batches = [_batch(), _batch()]
    portal.batch(batches[0])

    def adds() -> None:
        assert reached.wait(10)
        portal.batch(batches[1])
        added.set()

    with ThreadPoolExecutor(1) as threads:
        adding = threads.submit(adds)
        portal.settle_all()
        adding.result(10)


def test_what_several_threads_give_up_is_told_once() -> None:
    batch = _batch()
    told: list[Any] = []

    def completion(outcome: Any) -> None:
        told.append(outcome)
        if len(told) == 1:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(batch.give_up).result(10)

    for number in range(3):
        batch._items.append((None, {"on_completion": completion}, number, 1, True))
        batch._left += 1
    batch.give_up()
    assert [type(one) for one in told] == [errors.ClosedError] * 3
    assert batch.pending == 0
