"""Clocks, randomness and channels of the world, in the place of the real ones of each room."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sterna._channels
import sterna._surroundings
import sterna_broker.surroundings
import sterna_etcd.endpoints
import sterna_etcd.surroundings

from tests.world import folders
from tests.world.channels import Channel
from tests.world.loop import SimulatedLoop
from tests.world.network import Network
from tests.world.processes import current

_EPOCH_MS = 1_800_000_000_000


class Simulated:
    """What the rooms ask for: time is the loop's, numbers are of the process whose step it is."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def wall_ms(self) -> int:
        return _EPOCH_MS + int(self._loop.time() * 1000) + current().clock_ms

    def monotonic_s(self) -> float:
        return self._loop.time()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def uniform(self, low: float, high: float) -> float:
        return current().random.uniform(low, high)

    def random_bits(self, count: int) -> int:
        return current().random.getrandbits(count)

    def random_bytes(self, count: int) -> bytes:
        return current().random.randbytes(count)


@contextmanager
def installed(loop: SimulatedLoop, network: Network) -> Iterator[None]:
    """All rooms ask the world, as long as this lasts."""
    here: Any = Simulated(loop)

    def channel(address: str, _credentials: Any, _options: Any) -> Any:
        return Channel(network, address)

    replaced: list[tuple[Any, str, Any]] = [
        (os, "fsync", folders.fsync),
        (sterna._surroundings, "here", here),
        (sterna_etcd.surroundings, "here", here),
        (sterna_broker.surroundings, "here", here),
        (sterna._channels, "make_channel", channel),
        # There is no TLS here, and what it is made of takes longer than most runs' whole network.
        (sterna._channels, "_context", lambda *_: None),
        (sterna_etcd.endpoints, "make_channel", channel),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    try:
        for module, name, value in replaced:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
