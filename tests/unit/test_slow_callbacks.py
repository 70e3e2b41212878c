"""What counts as holding up the event loop in a test."""

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

from tests.plugins.slow_callbacks import SlowCallbacks

pytestmark = pytest.mark.slow_callbacks(10_000)


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


async def test_the_garbage_of_other_tests_is_not_a_callbacks_fault(watcher: SlowCallbacks) -> None:
    Slow()
    asyncio.get_running_loop().call_soon(gc.collect)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert watcher.found == []
