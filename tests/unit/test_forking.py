"""Forked processes stand as executed ones would: their status, signals, environment and end."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.forking import Forked, preload
from tests.waiting import eventually_blocking

pytestmark = pytest.mark.usefixtures("tier_broker")

TIMEOUT_S = 20.0

Fork = Callable[..., Forked]


@pytest.fixture
def fork(tmp_path: Path) -> Fork:
    def make(target: Callable[..., Any], *arguments: Any, stderr: str = "stderr") -> Forked:
        return Forked(target, arguments, folder=tmp_path, stdout=tmp_path / "stdout", stderr=tmp_path / stderr)

    return make


def say(*words: str) -> None:
    print(*words)
    print("aside", file=sys.stderr)


def end_with(status: object) -> object:
    return status


def fail() -> None:
    raise ValueError("that was it")


def describe() -> None:
    print(os.environ["OF_THE_MOMENT"], Path.cwd(), sys.argv, random.random(), sep="\n")
    print(os.getpgrp(), os.getsid(0), sys.stdin.read() == "", len(list(Path("/proc/self/fd").iterdir())), sep="\n")


def wait_for_a_signal() -> None:
    print(os.getpid(), flush=True)
    signal.pause()


def parents_and_child(folder: str) -> None:
    """A process of tests with a child, which tells both numbers and waits."""
    Forked(wait_for_a_signal, (), folder=Path(folder), stdout=Path(folder, "child"), stderr=Path(folder, "error"))
    wait_for_a_signal()


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_what_it_says_goes_to_its_files(fork: Fork, tmp_path: Path) -> None:
    assert fork(say, "one", "two").wait(TIMEOUT_S) == 0
    assert (tmp_path / "stdout").read_text() == "one two\n"
    assert (tmp_path / "stderr").read_text() == "aside\n"
    assert fork(say, "again", stderr="stdout").wait(TIMEOUT_S) == 0
    assert sorted((tmp_path / "stdout").read_text().splitlines()) == ["again", "aside"]


@pytest.mark.parametrize(("result", "status"), [(None, 0), (0, 0), (3, 3), ("a reason", 1)])
def test_it_ends_as_a_program_that_exits_with_the_result(fork: Fork, result: object, status: int) -> None:
    ended = fork(end_with, result)
    assert ended.wait(TIMEOUT_S) == status
    assert (ended.poll(), ended.returncode) == (status, status)
    assert not Path(f"/proc/{ended.pid}").exists()


def test_an_error_is_told_on_stderr(fork: Fork, tmp_path: Path) -> None:
    assert fork(fail).wait(TIMEOUT_S) == 1
    assert "ValueError: that was it" in (tmp_path / "stderr").read_text()


def test_it_stands_as_if_it_had_been_executed_just_now(
    fork: Fork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = set()
    for moment in ("first", "second"):
        monkeypatch.setenv("OF_THE_MOMENT", moment)
        assert fork(describe).wait(TIMEOUT_S) == 0
        environment, folder, arguments, number, *others = (tmp_path / "stdout").read_text().splitlines()
        assert (environment, folder) == (moment, str(tmp_path))
        assert arguments == f"['{describe.__module__}.describe']"
        # Standard input, output and error, and the folder that is read.
        assert others == [str(os.getpgrp()), str(os.getsid(0)), "True", "4"]
        drawn.add(number)
    assert len(drawn) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_signals_end_it_as_they_end_any_program(fork: Fork, tmp_path: Path, number: signal.Signals) -> None:
    running = fork(wait_for_a_signal)
    eventually_blocking((tmp_path / "stdout").read_text, timeout_s=TIMEOUT_S)
    assert running.poll() is None
    running.send_signal(number)
    assert running.wait(TIMEOUT_S) == -number
    running.send_signal(number)


def test_one_that_runs_still_can_be_waited_for_and_ended_meanwhile(fork: Fork, tmp_path: Path) -> None:
    running = fork(wait_for_a_signal)
    eventually_blocking((tmp_path / "stdout").read_text, timeout_s=TIMEOUT_S)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(0.0)
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(running.wait(TIMEOUT_S)))
    waiting.start()
    running.kill()
    waiting.join()
    assert found == [-signal.SIGKILL]


def test_what_was_preloaded_later_is_there_as_well(fork: Fork, tmp_path: Path) -> None:
    assert fork(end_with, 0).wait(TIMEOUT_S) == 0
    preload(["this"])
    assert fork(imported, "this").wait(TIMEOUT_S) == 0
    assert fork(imported, "antigravity").wait(TIMEOUT_S) == 1


def imported(name: str) -> int:
    return 0 if name in sys.modules else 1


def test_none_outlives_a_process_of_tests_that_was_killed(fork: Fork, tmp_path: Path) -> None:
    owner = fork(parents_and_child, str(tmp_path))
    child = eventually_blocking(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text(), timeout_s=9)
    assert is_running(int(child))
    owner.kill()
    eventually_blocking(lambda: not is_running(int(child)), timeout_s=TIMEOUT_S)
