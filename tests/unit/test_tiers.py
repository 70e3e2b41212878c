"""A test's tier is what it asks for, and a test that starts more than that fails."""

import pytest

from tests.plugins import tiers
from tests.plugins.tiers import STARTED, needed, tier_of

pytest_plugins = ["pytester"]

CONFTEST = """
import pytest
pytest_plugins = ["tests.plugins.tiers"]
@pytest.fixture(scope="session")
def server(tier_etcd): pass
@pytest.fixture
def client(server): pass
"""
STARTS = "import subprocess, sys\n"
PROGRAM = "subprocess.run([sys.executable, '-c', ''], check=True)"


@pytest.fixture
def inner(pytester: pytest.Pytester) -> pytest.Pytester:
    """A test folder of its own with the plugin, run in this process: it may not start another."""
    pytester.makeconftest(CONFTEST)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    return pytester


@pytest.mark.parametrize(
    ("fixtures", "tier"),
    [
        ([], "pure"),
        (["tmp_path", "node", "tier_loop"], "loop"),
        (["tier_etcd", "tier_broker"], "etcd"),
        (["tier_broker", "tier_api", "tier_etcd"], "api"),
        (["tier_other"], "pure"),
    ],
)
def test_the_highest_tier_among_the_fixtures_counts(fixtures: list[str], tier: str) -> None:
    assert tier_of(fixtures) == tier


@pytest.mark.parametrize(
    ("event", "arguments", "tier"),
    [
        ("subprocess.Popen", ("python", ["python", "-m", "x"]), "broker"),
        ("subprocess.Popen", (None, "echo"), "broker"),
        ("subprocess.Popen", ("nsenter", ["nsenter", "--net=x", "/opt/etcd", "--name=m0"]), "etcd"),
        ("subprocess.Popen", ("tar", ["tar", "--directory=/data/etcd"]), "broker"),
        ("subprocess.Popen", ("mkdir", ["mkdir", "/data/etcd"]), "broker"),
        ("subprocess.Popen", ("/bin/sh", ["/bin/sh", "-c", "/opt/etcd --name=m0"]), "etcd"),
        ("subprocess.Popen", (None, [b"/opt/etcd"]), "etcd"),
        ("os.system", (b"/opt/etcd --version",), "etcd"),
        (STARTED, ("kubectl get pods",), "api"),
        ("subprocess.Popen", ("kubectl", ["/bin/kubectl", "get", "etcd"]), "api"),
        ("os.posix_spawn", ("/opt/kube-apiserver", []), "api"),
        (STARTED, ("tests.running._run",), "broker"),
        ("os.fork", (), "broker"),
        ("subprocess.Popen", (None, ["/opt/pyspark/bin/spark-submit", "--name", "x"]), "spark"),
        ("subprocess.Popen", (None, ["/opt/java/bin/java", "-version"]), "spark"),
    ],
)
def test_what_is_started_needs_a_tier(event: str, arguments: tuple[object, ...], tier: str) -> None:
    assert needed(event, arguments) == tier


def test_a_test_gets_the_mark_of_what_its_fixtures_ask_for(inner: pytest.Pytester) -> None:
    inner.makepyfile("def test_alone(): pass\ndef test_with(client): pass")
    inner.runpytest_inprocess("-m", "etcd").assert_outcomes(passed=1, deselected=1)
    result = inner.runpytest_inprocess("-m", "pure")
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["tiers: pure 1 in *"])


def test_a_test_that_starts_a_process_without_its_fixture_fails(inner: pytest.Pytester) -> None:
    inner.makepyfile(f"{STARTS}def test_it():\n    {PROGRAM}")
    result = inner.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*has to ask for the fixture tier_broker*"])


def test_who_hides_the_refusal_fails_all_the_same(inner: pytest.Pytester) -> None:
    inner.makepyfile(f"{STARTS}def test_it():\n    try: {PROGRAM}\n    except Exception: pass")
    inner.runpytest_inprocess().assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "start",
    [
        pytest.param("multiprocessing.get_context('spawn').Process(target=print).start()", id="multiprocessing"),
        pytest.param("uvloop.run(asyncio.create_subprocess_exec(sys.executable, '-V'))", id="uvloop"),
        pytest.param("os.system('true')", id="system"),
        pytest.param("os.posix_spawn('/bin/true', ['true'], {})", id="posix_spawn"),
    ],
)
def test_every_way_of_starting_one_is_refused(inner: pytest.Pytester, start: str) -> None:
    inner.makepyfile(f"import asyncio, multiprocessing, os, sys, uvloop\ndef test_it():\n    {start}")
    result = inner.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*has to ask for the fixture tier_broker*"])


@pytest.mark.parametrize("ending", ["pytest.skip('no git')", "pytest.xfail('no git')"])
def test_a_refusal_is_no_reason_to_skip(inner: pytest.Pytester, ending: str) -> None:
    inner.makepyfile(f"{STARTS}import pytest\ndef test_it():\n    try: {PROGRAM}\n    except Exception: {ending}")
    inner.runpytest_inprocess().assert_outcomes(failed=1)


def test_a_module_starts_nothing_when_it_is_imported(inner: pytest.Pytester) -> None:
    inner.makepyfile(f"{STARTS}{PROGRAM}\ndef test_it(): pass")
    inner.runpytest_inprocess().assert_outcomes(errors=1)


def test_what_a_shared_fixture_starts_at_its_end_is_not_the_last_tests_fault(inner: pytest.Pytester) -> None:
    fixture = f"@pytest.fixture(scope='module')\ndef shared(tier_broker):\n    yield\n    {PROGRAM}\n"
    inner.makepyfile(f"{STARTS}import pytest\n{fixture}def test_a(shared): pass\ndef test_b(): pass")
    inner.runpytest_inprocess().assert_outcomes(passed=2)


def test_fixtures_are_held_to_the_same(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    # This process may have run tests of higher tiers.
    monkeypatch.setattr(tiers._guards[0], "highest", "pure")
    inner.makepyfile(
        f"{STARTS}import pytest\n@pytest.fixture\ndef late():\n    yield\n    {PROGRAM}\ndef test_it(late): pass"
    )
    inner.runpytest_inprocess().assert_outcomes(passed=1, errors=1)


@pytest.mark.usefixtures("tier_broker")
def test_who_asks_may(inner: pytest.Pytester) -> None:
    # The process's one guard knows the outer test's tier; the inner run has its own answer for each of its tests.
    inner.makepyfile(
        f"{STARTS}import pytest\n@pytest.mark.usefixtures('tier_broker')\ndef test_it():\n    {PROGRAM}\n"
        "@pytest.mark.usefixtures('tier_broker')\ndef test_etcd():\n    subprocess.run(['/nowhere/etcd'], check=True)"
    )
    result = inner.runpytest_inprocess()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*has to ask for the fixture tier_etcd*"])
