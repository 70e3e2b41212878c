"""What counts as holding up the event loop in a test."""

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins import slow_callbacks
from tests.plugins.slow_callbacks import SlowCallbacks, Waiting, refuse_to_block

pytestmark = pytest.mark.slow_callbacks(10_000)


@pytest.fixture(autouse=True)
def nobody_else_collects() -> Iterator[None]:
    """What another thread collects while a callback blocks is taken off, and a late test's process has much to collect.

    That hides a callback that blocks for 100 ms, and nothing else in here may.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def watcher() -> Iterator[SlowCallbacks]:
    made = SlowCallbacks()
    made.bound_ms = 50
    made.install()
    yield made
    made.remove()


def hold_up() -> None:
    """Blocks the thread for twice the bound."""
    threading.Event().wait(0.1)


class Slow:
    """Something in a cycle, which takes its time to be collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        hold_up()


async def test_a_callback_that_blocks_is_found(watcher: SlowCallbacks) -> None:
    asyncio.get_running_loop().call_soon(hold_up)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(watcher.found) == 1


@pytest.mark.parametrize(("held_up_s", "found"), [(0.1, 0), (0.4, 1)])
async def test_in_a_simulated_loop_a_callback_has_five_times_as_much(
    watcher: SlowCallbacks, monkeypatch: pytest.MonkeyPatch, held_up_s: float, found: int
) -> None:
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(type(loop), "is_simulated", True, raising=False)
    loop.call_soon(threading.Event().wait, held_up_s)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(watcher.found) == found


async def test_the_garbage_of_other_tests_is_not_a_callbacks_fault(watcher: SlowCallbacks) -> None:
    Slow()
    asyncio.get_running_loop().call_soon(gc.collect)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert watcher.found == []


async def test_a_collection_that_began_before_the_callback_counts_from_its_beginning_on(watcher: SlowCallbacks) -> None:
    collecting = gc.callbacks[-1]
    collecting("start", {})
    await asyncio.to_thread(hold_up)

    def hold_up_while_it_ends() -> None:
        collecting("stop", {})
        hold_up()

    asyncio.get_running_loop().call_soon(hold_up_while_it_ends)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(watcher.found) == 1


@pytest.mark.parametrize("stolen_ticks", [0, 1_000])
async def test_what_a_hypervisor_took_is_not_a_callbacks_fault(tmp_path: Path, stolen_ticks: int) -> None:
    stat = tmp_path / "stat"

    def steal(ticks: int) -> None:
        stat.write_text(f"cpu  11 12 13 14 15 16 17 {ticks} 19 20\ncpu0 11 12 13 14 15 16 17 {ticks} 19 20\n")

    def hold_up_while_stolen() -> None:
        hold_up()
        steal(5_000 + stolen_ticks)

    steal(5_000)
    watcher = SlowCallbacks(Waiting(str(stat)))
    watcher.bound_ms = 50
    watcher.install()
    try:
        asyncio.get_running_loop().call_soon(hold_up_while_stolen)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    finally:
        watcher.remove()
    assert len(watcher.found) == (0 if stolen_ticks else 1)


@pytest.mark.parametrize("is_bounded", [True, False])
async def test_who_waits_blockingly_on_the_loop_of_a_bounded_test_is_refused(
    monkeypatch: pytest.MonkeyPatch, is_bounded: bool
) -> None:
    monkeypatch.setattr(slow_callbacks, "_is_bounded", is_bounded)
    with pytest.raises(AssertionError, match="hold the event loop up") if is_bounded else contextlib.nullcontext():
        refuse_to_block("a broker to start")
    await asyncio.to_thread(refuse_to_block, "a broker to start")


def test_the_usual_bound_is_one() -> None:
    assert not slow_callbacks._is_bounded, "this file has set itself another"
