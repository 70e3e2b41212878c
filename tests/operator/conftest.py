"""The operator's world: one API server for all, one etcd for the session, a namespace for each test."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc.aio  # noqa: F401 - loaded before any loop runs, since the tests bound how long a callback may take
import pytest

from tests.etcds import RunningEtcd
from tests.operator.operators import RunningOperator
from tests.operator.worlds import World
from tests.support.api_server import ApiServer, programs
from tests.support.kinds import install_kinds

MakeOperator = Callable[..., RunningOperator]


@pytest.fixture(scope="session")
def kinds(api_server: ApiServer) -> ApiServer:
    """The API server, with our kinds."""
    install_kinds(api_server)
    return api_server


@pytest.fixture
def own_api_server(tier_api: None, tmp_path: Path) -> Iterator[ApiServer]:
    """One of the test's own, which knows nothing of us: for what would see or concern others' objects."""
    folder = tmp_path / "own-api-server"
    folder.mkdir()
    with ApiServer(folder, programs()) as server:
        yield server


@pytest.fixture(scope="session")
def store(tier_etcd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEtcd]:
    """The brokers' etcd; tests use clusters of their own in it."""
    with RunningEtcd(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
async def world(kinds: ApiServer, store: RunningEtcd) -> AsyncIterator[World]:
    """A namespace of the test's own."""
    made = World(kinds, store.urls)
    yield made
    await made.close()


@pytest.fixture
def operator(world: World, tmp_path: Path) -> Iterator[MakeOperator]:
    """Makes operators for the test's namespace, started; they end with the test."""
    with ExitStack() as stack:

        def make(name: str = "operator", *, is_started: bool = True, **flags: Any) -> RunningOperator:
            kubeconfig = flags.pop("kubeconfig", world.server.kubeconfig)
            chosen = {"namespaces": [world.namespace], "lease_namespace": world.namespace, **flags}
            made = RunningOperator(tmp_path / name, Path(kubeconfig), **chosen)
            stack.callback(made.stop)
            return made.start() if is_started else made

        yield make
