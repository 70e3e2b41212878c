"""What workers of a parallel run share, and in which order the tests come."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.plugins.order import APART, scope_of
from tests.support import shared_server
from tests.support.api_server import ApiServer, programs
from tests.support.shared_server import Keeper, ask
from tools.fingerprints import ROOT

pytest_plugins = ["pytester"]


@pytest.mark.usefixtures("tier_api")
def test_all_who_ask_share_one_server_which_ends_with_its_owner(tmp_path: Path) -> None:
    binaries = programs()
    keeper = Keeper()
    try:
        with ThreadPoolExecutor(2) as two:
            first, second = two.map(ask, [keeper.address] * 2)
        assert first == second
        with ApiServer(tmp_path, binaries, first) as server:
            assert server.request("GET", "/readyz").ok
            assert server.kubectl("get", "namespaces").returncode == 0
        # The worker has left, and the server is still there.
        with ApiServer(tmp_path, binaries, second) as server:
            assert server.request("GET", "/readyz").ok
    finally:
        keeper.close()
    with ApiServer(tmp_path, binaries, first) as server, pytest.raises(OSError, match="refused"):
        server.request("GET", "/readyz")


def test_a_server_that_does_not_start_fails_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Path:
        raise FileNotFoundError("no programs")

    monkeypatch.setattr(shared_server, "programs", nothing)
    keeper = Keeper()
    try:
        for _ in range(2):
            with pytest.raises(AssertionError, match="no programs"):
                ask(keeper.address)
    finally:
        keeper.close()


def test_an_owner_whose_folder_was_removed_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_server, "_STOP_TIMEOUT_S", 0.1)
    keeper = Keeper()
    shutil.rmtree(Path(keeper.address).parent)
    keeper.close()


def test_files_stay_together_but_for_those_whose_tests_take_long() -> None:
    assert scope_of("tests/sdk/test_sending.py::test_a[1::2]") == "tests/sdk/test_sending.py"
    assert scope_of(f"{APART[0]}::test_a") == f"{APART[0]}::test_a"
    assert all((ROOT / file).is_file() for file in APART)
    assert scope_of("tests/audit/test_spark.py::test_a") == scope_of("tests/audit/test_plans.py::test_b")


@pytest.mark.usefixtures("tier_broker")
def test_a_worker_takes_what_has_the_longest_limit_and_the_highest_tier_first(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest('pytest_plugins = ["tests.plugins.tiers", "tests.plugins.order"]')
    test = "import pytest\n{}def test_it(): pass"
    pytester.makepyfile(
        test_a=test.format(""),
        test_b=test.format("@pytest.mark.usefixtures('tier_etcd')\n"),
        test_c=test.format("@pytest.mark.timeout(900)\n"),
    )
    result = pytester.runpytest_subprocess("-n", "1", "-v")
    result.assert_outcomes(passed=3)
    passed = [line for line in result.outlines if "PASSED" in line]
    assert [name for line in passed for name in "abc" if f"test_{name}.py" in line] == ["c", "b", "a"]
