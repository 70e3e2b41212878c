"""The fixture of a real Kubernetes API server, shared by all folders whose tests need one and all workers of a run."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.support import leaving_out
from tests.support.api_server import ApiServer, programs
from tests.support.shared_server import Keeper, ask

_KEEPER = pytest.StashKey[Keeper]()
_ADDRESS = "api_server_keeper"


@pytest.fixture(scope="session")
def api_server(
    tier_api: None, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """A kube-apiserver with an etcd. Tests of several workers use it at once: each in namespaces of its own."""
    binaries = programs()
    address = getattr(request.config, "workerinput", {}).get(_ADDRESS)
    shared = ask(address) if address else None
    with ApiServer(tmp_path_factory.mktemp("api-server"), binaries, shared) as server:
        yield server


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hook of xdist, in the process that hands out the tests: tells a new worker where to ask."""
    stash = node.config.stash
    if _KEEPER not in stash:
        stash[_KEEPER] = Keeper()
    node.workerinput[_ADDRESS] = stash[_KEEPER].address


def pytest_unconfigure(config: pytest.Config) -> None:
    keeper = config.stash.get(_KEEPER, None)
    if keeper is not None:
        keeper.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """All tests that are left out for one reason make one line of the summary, which folds those of one place."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and leaving_out.MARK in report.longrepr[2]:
        report.longrepr = (str(leaving_out.__file__), 0, report.longrepr[2])
    return report
