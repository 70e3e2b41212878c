"""Work that the product does on threads of its own, and a simulation between the callbacks of its loop.

It holds nobody's loop up there, so that `tests/plugins/slow_callbacks.py` takes its time off.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Beside:
    """How long such work took in this process, in seconds."""

    total_s = 0.0


@contextmanager
def beside_the_loop() -> Iterator[None]:
    """The product does what is done within on another thread."""
    began = time.monotonic()
    try:
        yield
    finally:
        Beside.total_s += time.monotonic() - began
