"""The fixture of a real Kubernetes API server, shared by the folders whose tests need one."""

from collections.abc import Generator, Iterator

import pytest

from tests.support import leaving_out
from tests.support.api_server import ApiServer, programs


@pytest.fixture(scope="session")
def api_server(tier_api: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A kube-apiserver and an etcd of the session's own. Tests use namespaces of their own in it."""
    binaries = programs()
    with ApiServer(tmp_path_factory.mktemp("api-server"), binaries) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """All tests that are left out for one reason make one line of the summary, which folds those of one place."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and leaving_out.MARK in report.longrepr[2]:
        report.longrepr = (str(leaving_out.__file__), 0, report.longrepr[2])
    return report
