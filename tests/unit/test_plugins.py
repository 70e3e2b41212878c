"""The test plumbing itself: a check that cannot fail is worse than none."""

from pathlib import Path

import pytest

from tools import catalogue, coverage_report
from tools.fingerprints import ROOT

pytest_plugins = ["pytester"]

CONFTEST = 'pytest_plugins = ["tests.plugins.covers", "tests.plugins.slow_callbacks", "tests.plugins.loose_ends"]'


@pytest.fixture
def inner(tier_broker: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test folder of its own, with our plugins, run in another process."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest(CONFTEST)
    return pytester


@pytest.fixture
def collecting(pytester: pytest.Pytester) -> pytest.Pytester:
    """One with the plugin for rows alone, which changes nothing of the process: run in this one."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest('pytest_plugins = ["tests.plugins.covers"]')
    return pytester


def test_the_catalogue_has_all_its_rows() -> None:
    counts = dict.fromkeys(catalogue.PRODUCTS, 0)
    for row in catalogue.rows().values():
        counts[row.product] += 1
    assert counts == {"EMS": 931, "SS": 31, "UM": 425, "FMQ": 210, "EFTL": 43}


def test_a_malformed_catalogue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ems.tsv").write_text("EMS-DEST-A14\tone\nEMS-DEST-A14\tagain\n")
    with pytest.raises(ValueError, match=r"ems\.tsv:2"):
        catalogue.rows(tmp_path)


def test_a_known_row_is_written_with_its_tests(collecting: pytest.Pytester) -> None:
    collecting.makepyfile('import pytest\n@pytest.mark.covers("EMS-DEST-A14")\ndef test_it(): pass')
    result = collecting.runpytest_inprocess("--covers-out", "out.json")
    assert result.ret == 0
    assert "test_it" in (collecting.path / "out.json").read_text()


def test_an_unknown_row_fails_collection(collecting: pytest.Pytester) -> None:
    collecting.makepyfile('import pytest\n@pytest.mark.covers("EMS-DEST-A999")\ndef test_it(): pass')
    result = collecting.runpytest_inprocess()
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*EMS-DEST-A999*"])


def test_a_skipped_test_shows_nothing(collecting: pytest.Pytester) -> None:
    collecting.makepyfile('import pytest\n@pytest.mark.skip\n@pytest.mark.covers("EMS-DEST-A14")\ndef test_it(): pass')
    collecting.runpytest_inprocess("--covers-out", "out.json")
    assert (collecting.path / "out.json").read_text() == "{}"


def test_a_blocked_event_loop_fails_the_test(inner: pytest.Pytester) -> None:
    inner.makepyfile("import select\nasync def test_it(): select.select([], [], [], 0.3)")
    result = inner.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*event loop held up*"])


def test_a_bound_of_its_own_lets_a_callback_take_longer(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        "import pytest, select\n@pytest.mark.slow_callbacks(5000)\nasync def test_it(): select.select([], [], [], 0.3)"
    )
    inner.runpytest_subprocess().assert_outcomes(passed=1)


def test_what_the_product_does_on_threads_holds_no_loop_up(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        "import select\nfrom tests.support.beside_the_loop import beside_the_loop\n"
        "async def test_it():\n    with beside_the_loop(): select.select([], [], [], 0.3)"
    )
    inner.runpytest_subprocess().assert_outcomes(passed=1)


RUST = """
// covers: EMS-CLI-A10, EMS-CLI-A11
#[test]
fn comparison_of_numbers() {}

    // covers: EMS-CLI-A10
    #[test]
    #[cfg(unix)]
    fn in_a_module() {}
"""


def test_rust_tests_name_rows_in_a_comment(tmp_path: Path) -> None:
    (tmp_path / "evaluation.rs").write_text(RUST)
    shown, problems = coverage_report.rust_rows([tmp_path / "evaluation.rs"], tmp_path)
    assert problems == []
    assert {id: [test.rpartition("::")[2] for test in tests] for id, tests in shown.items()} == {
        "EMS-CLI-A10": ["comparison_of_numbers", "in_a_module"],
        "EMS-CLI-A11": ["comparison_of_numbers"],
    }


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        pytest.param("// covers: EMS-CLI-A999\n#[test]\nfn a() {}\n", "not in the catalogue", id="unknown-row"),
        pytest.param("// covers: EMS-CLI-A10\nfn a() {}\n", "not above a #[test]", id="no-test"),
        pytest.param("// covers:\n#[test]\nfn a() {}\n", "no row", id="no-row"),
        pytest.param("// covers: EMS-CLI-A10\n#[test]\n#[ignore]\nfn a() {}\n", "ignored", id="ignored"),
    ],
)
def test_a_wrong_rust_mark_is_a_problem(tmp_path: Path, source: str, problem: str) -> None:
    (tmp_path / "a.rs").write_text(source)
    _, problems = coverage_report.rust_rows([tmp_path / "a.rs"], tmp_path)
    assert len(problems) == 1
    assert problem in problems[0]


def test_the_marks_in_the_engine_are_right() -> None:
    assert coverage_report.rust_rows()[1] == []


def test_a_task_left_running_fails_the_test(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        "import asyncio\nkept = []\n"
        "async def test_it():\n    kept.append(asyncio.create_task(asyncio.Event().wait()))\n"
    )
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*task left running*"])


def test_an_error_that_nobody_catches_fails_the_test(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        "import asyncio\nasync def test_it():\n"
        "    asyncio.get_running_loop().call_soon(lambda: 1 / 0)\n    await asyncio.sleep(0)\n"
    )
    result = inner.runpytest_subprocess()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*error that nobody caught*ZeroDivisionError*"])


def test_a_test_that_cleans_up_passes(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        "import asyncio, contextlib\nasync def test_it():\n    task = asyncio.create_task(asyncio.Event().wait())\n"
        "    await asyncio.sleep(0)\n    task.cancel()\n    await asyncio.wait([task])\n"
    )
    inner.runpytest_subprocess().assert_outcomes(passed=1)


TLS = '''
import asyncio, gc, socket, ssl, threading
from tests.access.authorities import Authority

async def connect(tmp_path):
    """To a server that never says that the connection is over."""
    certificate, key = Authority().issue(tmp_path, "server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    kept = []
    def serve():
        kept.append(context.wrap_socket(listener.accept()[0], server_side=True))
        listener.close()
    thread = threading.Thread(target=serve)
    thread.start()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(*listener.getsockname(), ssl=client)
    thread.join()
    return kept[0], writer
'''


@pytest.mark.parametrize("closes", [True, False])
def test_only_a_tls_connection_that_nobody_closes_is_warned_of(inner: pytest.Pytester, closes: bool) -> None:
    inner.makepyfile(
        f"{TLS}\n"
        "async def test_it(tmp_path):\n"
        "    server, writer = await connect(tmp_path)\n"
        f"    if {closes}: writer.close()\n"
        "    servers.append(server)\n"
        "servers = []\n"
        "def test_after():\n"
        "    gc.collect()\n"
        "    servers.pop().close()\n"
    )
    result = inner.runpytest_subprocess("-W", "error")
    result.assert_outcomes(**({"passed": 2} if closes else {"passed": 1, "failed": 1}))
