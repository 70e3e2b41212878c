"""The stages of CI have budgets, and what takes far longer fails and names the slow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually_blocking
from tools import check, ci, pace, repeat, seeds, stages
from tools.fingerprints import ROOT
from tools.stages import Outcome


def test_both_kinds_of_machines_have_a_budget_for_each_stage() -> None:
    warm, cold = stages.budgets("warm"), stages.budgets("cold")
    assert list(warm) == list(cold)
    assert warm.keys() == {*ci.STAGES, "beside"}
    assert sum(warm.values()) <= 30
    assert sum(cold.values()) <= 45
    assert all(warm[name] <= cold[name] for name in warm)


@pytest.mark.parametrize(
    ("minutes", "status", "failed", "word"),
    [(9.0, 0, False, "ok"), (14.9, 0, False, "ok"), (15.1, 0, True, "TOO LONG"), (1.0, 2, True, "FAILED")],
)
def test_half_as_much_again_fails(minutes: float, status: int, failed: bool, word: str) -> None:
    outcome = Outcome("test", minutes, status, budget=10.0)
    assert outcome.failed is failed
    assert word in str(outcome)
    assert word in stages.summary([outcome])


def test_a_machine_that_is_slow_has_longer_and_it_is_said() -> None:
    slow = Outcome("test", 29.0, 0, budget=10.0, slowness=2.0, cpu_minutes=40.0)
    assert not slow.failed
    assert str(slow) == "test       29.0 min of 10 (40.0 of cpu, a machine 2.0 times as slow): ok"
    assert Outcome("test", 31.0, 0, budget=10.0, slowness=2.0).failed
    assert Outcome("test", 1.0, 2, budget=10.0, slowness=2.0).failed


@pytest.mark.parametrize(("reading_s", "slowness"), [(0.1, 1.0), (1.0, 1.0), (2.5, 2.5), (60.0, 4.0)])
def test_how_slow_a_machine_is_has_bounds(monkeypatch: pytest.MonkeyPatch, reading_s: float, slowness: float) -> None:
    readings = iter([reading_s * 100, 0.0, reading_s])
    monkeypatch.setattr(pace, "REFERENCE_S", 1.0)
    monkeypatch.setattr(pace, "reading_s", lambda: next(readings))
    assert pace.slowness() == slowness


@pytest.mark.usefixtures("tier_broker")
def test_what_is_timed_takes_a_while() -> None:
    assert 0.0 < pace.reading_s() < 60.0


def test_the_slowest_tests_are_named_longest_first(tmp_path: Path) -> None:
    times = tmp_path / "test.tsv"
    times.write_text("".join(f"{number}.5\ttests/x.py::test_{number}[a\tb]\n" for number in range(30)))
    named = stages.slowest(times)
    assert len(named) == 20
    assert named[0].split(maxsplit=2) == ["29.5", "s", "tests/x.py::test_29[a\tb]"]
    assert stages.slowest(tmp_path / "none") == []


@pytest.mark.usefixtures("tier_broker")
def test_a_stage_that_takes_too_long_says_which_tests_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stages, "TIMES", tmp_path)
    monkeypatch.setattr(pace, "slowness", lambda: 1.0)
    program = "import os; open(os.environ['STERNA_TIMES'], 'w').write('7.0\\ttests/x.py::test_slow\\n')"
    outcome = stages.run("test", [sys.executable, "-c", program], budget=0.0)
    assert outcome.failed
    assert "7.0 s tests/x.py::test_slow" in capfd.readouterr().out
    assert not stages.run("test", [sys.executable, "-c", program], budget=5.0).failed
    assert "test_slow" not in capfd.readouterr().out


@pytest.mark.usefixtures("tier_broker")
def test_a_run_that_is_ended_ends_what_its_stage_has_started(tmp_path: Path) -> None:
    # The stage's command starts another one, which says its number and would stay.
    starts = f"sleep 300 & echo $! > {tmp_path / 'number'}; wait"
    ran = (
        "import signal, sys\nfrom tools import stages\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        # Whoever waits for it has it: in between a signal would find nothing to end.
        "stages.pace.slowness = lambda: 1.0\n"
        "wait = stages.subprocess.Popen.wait\n"
        f"told = lambda *given: (open({str(tmp_path / 'waits')!r}, 'w').close(), wait(*given))[1]\n"
        "stages.subprocess.Popen.wait = told\n"
        f"stages.run('test', ['sh', '-c', {starts!r}], 1.0)"
    )
    with subprocess.Popen([sys.executable, "-c", ran], cwd=ROOT) as process:
        file = tmp_path / "number"
        eventually_blocking(lambda: (tmp_path / "waits").exists() and file.exists() and file.read_text().strip())
        process.terminate()
        assert process.wait(60) == 143
    stat = Path(f"/proc/{file.read_text().strip()}/stat")
    # Who ends it is not who waits for it.
    eventually_blocking(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.usefixtures("tier_broker")
def test_runs_of_another_tree_do_not_count() -> None:
    before = repeat.tree()
    assert repeat.tree() == before
    # Of no kind that other checks of the tree would read meanwhile.
    file = ROOT / f"not-yet-known-{os.getpid()}.unknown"
    file.write_text("new")
    try:
        assert repeat.tree() != before
    finally:
        file.unlink()


@pytest.mark.usefixtures("tier_broker")
def test_the_seed_follows_from_the_commit_unless_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEED", raising=False)
    assert seeds.chosen() == seeds.chosen() < 2**32
    monkeypatch.setenv("SEED", "17")
    assert seeds.chosen() == 17


def test_what_failed_once_is_read_from_the_output() -> None:
    output = (
        "...F\nFAILED tests/a.py::test_b[x] - AssertionError: no\nERROR tests/c.py::test_d\n"
        "FAILED tests/a.py::test_b[x]\nFAILED tests/e.py::test_f[a b] - assert 1\n"
        "1 failed, 9 passed in 1.23s (0:00:01)\n"
    )
    assert repeat.failures(output) == ["tests/a.py::test_b[x]", "tests/c.py::test_d", "tests/e.py::test_f[a b]"]
    assert repeat.closing_line(output).startswith("1 failed, 9 passed")


class Pretended:
    """In place of the stages and what runs beside them: what was begun and waited for, in order."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, failing: str = "", warm: bool = True, slowness: float = 1.0
    ) -> None:
        self.done: list[str] = []
        self._failing = failing
        monkeypatch.setattr(stages, "run", self._run)
        monkeypatch.setattr(ci, "beside", self._beside)
        monkeypatch.setattr(ci, "is_warm", lambda: warm)
        monkeypatch.setattr(pace, "slowness", lambda: slowness)
        monkeypatch.setenv("STERNA_SLOW", "")
        monkeypatch.setattr(ci, "has_own_cluster", lambda: True)
        monkeypatch.setattr(ci, "end_cluster", lambda: self.done.append("cluster down"))
        monkeypatch.setattr("signal.signal", lambda *_: None)
        monkeypatch.setattr("shutil.which", lambda name: name)

    def _run(self, name: str, command: list[str], budget: float) -> Outcome:
        self.done.append(" ".join(command))
        return Outcome(name, 1.0, 2 if name == self._failing else 0, budget)

    def _beside(self, name: str, *_: str) -> "Pretended":
        self.done.append(f"{name} beside")
        return self

    def wait(self) -> None:
        self.done.append("waited")

    def poll(self) -> int:
        """As that of a process that has ended."""
        return 0


def test_ci_runs_all_stages_whichever_fails_and_ends_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = Pretended(monkeypatch, failing="lint")
    assert ci.main() == 1
    stages_run = ["make setup", "images beside", "make lint", "make test", "waited", "make test-cluster"]
    assert pretended.done == [*stages_run, "cluster down"]


def test_on_a_new_machine_ci_builds_the_programs_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = Pretended(monkeypatch, warm=False)
    assert ci.main() == 0
    assert pretended.done[:2] == ["programs beside", "make setup"]


@pytest.mark.parametrize(("slowness", "said"), [(1.9, ""), (2.0, "1")])
def test_on_a_slow_machine_ci_has_tests_take_less(monkeypatch: pytest.MonkeyPatch, slowness: float, said: str) -> None:
    Pretended(monkeypatch, slowness=slowness)
    assert ci.main() == 0
    assert os.environ["STERNA_SLOW"] == said


def test_without_an_environment_ci_tries_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = Pretended(monkeypatch, failing="setup")
    assert ci.main() == 1
    assert pretended.done == ["make setup", "cluster down"]


@pytest.mark.usefixtures("tier_broker")
def test_a_lane_that_cannot_go_on_has_failed_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    no_text = "import sys; sys.stdout.buffer.write(b'gr\\xfc\\xdfe'); sys.exit({})"
    commands = {
        "red": [sys.executable, "-c", no_text.format(1)],
        "none": ["/nowhere/at/all"],
        "silent": [sys.executable, "-c", ""],
        "green": [sys.executable, "-c", no_text.format(0)],
    }
    lane = check.Lane(list(commands.items()))
    lane.run()
    assert lane.failed == ["red", "none"]
    assert "none FAILED: [Errno 2]" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["-1", str(2**64), "x"])
def test_a_seed_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SEED", text)
    with pytest.raises(SystemExit, match="not a number from 0"):
        seeds.chosen()
