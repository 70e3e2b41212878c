"""What the world's model of etcd does, a real one does."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sterna_etcd import Etcd

from tests.etcd.conftest import Connect
from tests.etcds import RunningEtcd
from tests.world.etcd_cases import CASES, Case


class Real:
    """A place that is a real etcd."""

    prefix = "/test/"

    def __init__(self, running: RunningEtcd, connect: Connect, copy: Path) -> None:
        self._running = running
        self._connect = connect
        self._copy = copy

    def client(self, **settings: Any) -> Etcd:
        return self._connect(self._running, **settings)

    async def kill(self) -> None:
        await asyncio.to_thread(self._running.first.kill)

    async def start(self) -> None:
        await asyncio.to_thread(self._running.restart, self._running.first)

    async def wipe(self) -> None:
        await asyncio.to_thread(self._running.first.wipe)

    async def copy(self) -> None:
        await asyncio.to_thread(self._running.first.copy_to, self._copy)

    async def restore(self) -> None:
        await asyncio.to_thread(self._running.first.restore_from, self._copy)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_real_etcd_is_as_the_model(
    case: Case, etcd: Callable[..., RunningEtcd], client: Connect, tmp_path: Path
) -> None:
    await case(Real(await asyncio.to_thread(etcd), client, tmp_path / "copy"))
