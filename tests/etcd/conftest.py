"""etcds to talk to: one of one member for a module's tests, and whatever a test wants to break."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import grpc.aio  # noqa: F401 - loaded before any loop runs, since the tests bound how long a callback may take
import pytest
from sterna_etcd import Etcd, EtcdSettings

from tests.etcds import RunningEtcd

Connect = Callable[..., Etcd]


@pytest.fixture(scope="module")
def shared(tier_etcd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEtcd]:
    """One member, for tests that leave it alone. Tests use keys of their own."""
    with RunningEtcd(tmp_path_factory.mktemp("etcd")) as running:
        yield running


@pytest.fixture
def etcd(tier_etcd: None, tmp_path: Path) -> Iterator[Callable[..., RunningEtcd]]:
    """Makes etcds, started; they end with the test."""
    with ExitStack() as stack:

        def make(members: int = 1, name: str = "etcd", **options: Any) -> RunningEtcd:
            running = RunningEtcd(tmp_path / name, members, **options)
            stack.callback(running.stop)
            return running.start()

        yield make


@pytest.fixture
def three(etcd: Callable[..., RunningEtcd]) -> RunningEtcd:
    """Three members, for one test to break."""
    return etcd(3)


@pytest.fixture
async def client() -> AsyncIterator[Connect]:
    """Makes clients of an etcd; they are closed with the test."""
    async with AsyncExitStack() as stack:
        made: list[Etcd] = []

        def make(to: RunningEtcd | str, **settings: Any) -> Etcd:
            urls = to if isinstance(to, str) else to.urls
            made.append(Etcd(EtcdSettings.of_urls(urls, **settings)))
            stack.push_async_callback(made[-1].close)
            return made[-1]

        yield make


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Keys that no other test uses."""
    return f"/test/{request.node.name}/"
