"""Stages of a long run: what each took beside what it may take (tools/budgets.toml), and which tests were slow.

tools/ci.py runs by these. Standard library alone: nothing is installed when the first stage begins.
"""

import contextlib
import os
import resource
import signal
import subprocess
import time  # noqa: TID251 - measures real time
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import pace
from tools.fingerprints import ROOT

# A stage that takes half as much again fails, on a machine that is as fast as it was when the budgets were measured.
OVERRUN = 1.5
SLOWEST = 20
END_TIMEOUT_S = 10.0
TIMES = ROOT / "build" / "times"


def budgets(kind: str, file: Path = ROOT / "tools" / "budgets.toml") -> dict[str, float]:
    """Minutes by stage, for a machine that is `warm` or `cold`."""
    return {name: float(minutes) for name, minutes in tomllib.loads(file.read_text())[kind].items()}


@dataclass(frozen=True)
class Outcome:
    """What became of a stage.

    `slowness`: how many times as long as on the machine of the budgets things took, before it or after it, whichever
    is more (tools/pace.py). `cpu_minutes`: what its processes had of the processors.
    """

    name: str
    minutes: float
    status: int
    budget: float
    slowness: float = 1.0
    cpu_minutes: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether it took far longer than it may, on a machine that is as slow as this one was."""
        return self.minutes > self.budget * OVERRUN * self.slowness

    @property
    def failed(self) -> bool:
        """Whether the run fails with it."""
        return self.status != 0 or self.is_over

    def __str__(self) -> str:
        verdict = "FAILED" if self.status else "TOO LONG" if self.is_over else "ok"
        used = f"{self.cpu_minutes:.1f} of cpu"
        if self.slowness >= 1.1:
            used += f", a machine {self.slowness:.1f} times as slow"
        return f"{self.name:<8} {self.minutes:6.1f} min of {self.budget:g} ({used}): {verdict}"


def run(name: str, command: Sequence[str], budget: float) -> Outcome:
    """Runs a stage, its output where ours goes. Tests write their times below build/times."""
    print(f"\n==== {name} ({time.strftime('%H:%M:%S')}, {budget:g} min)", flush=True)
    times = TIMES / f"{name}.tsv"
    times.parent.mkdir(parents=True, exist_ok=True)
    times.unlink(missing_ok=True)
    environment = {**os.environ, "STERNA_TIMES": str(times)}
    before = pace.slowness()
    began, began_cpu_s = time.monotonic(), _cpu_s()
    # A group of its own: whoever ends the run ends all that the stage has started.
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
    ) as process:
        try:
            status = process.wait()
        except BaseException:
            end_group(process)
            raise
    minutes, cpu_minutes = (time.monotonic() - began) / 60, (_cpu_s() - began_cpu_s) / 60
    outcome = Outcome(name, minutes, status, budget, max(before, pace.slowness()), cpu_minutes)
    print(f"==== {outcome}", flush=True)
    if outcome.is_over:
        print(*slowest(times), sep="\n", flush=True)
    return outcome


def _cpu_s() -> float:
    """What processes that were started here, and have ended, had of the processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ends a process that leads a group, with all of that group: asked first, and after a while no more."""
    for number, patience_s in ((signal.SIGTERM, END_TIMEOUT_S), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            return


def slowest(times: Path) -> list[str]:
    """The tests that took longest, a line each."""
    if not times.is_file():
        return []
    rows = [line.split("\t", 1) for line in times.read_text().splitlines()]
    longest = sorted(((float(seconds), name) for seconds, name in rows), reverse=True)[:SLOWEST]
    return [f"{seconds:8.1f} s {name}" for seconds, name in longest]


def summary(outcomes: Iterable[Outcome]) -> str:
    """All stages, a line each, and their sum."""
    ended = list(outcomes)
    whole = sum(one.minutes for one in ended)
    return "\n".join(["==== stages", *map(str, ended), f"{'all':<8} {whole:6.1f} min"])
