"""Runs tests again and again with load beside them, to find what fails once: a flaky test is a defect. `make repeat`.

`make repeat TIMES=10 TIERS="pure or loop or broker or etcd"` runs those tiers ten times, each time with another seed,
while as many processes as there are cores keep the processor and the disk busy. It goes on where it stopped: what has
been run of this very tree stands in build/repeat. The end names every test that failed, with the runs in which it did.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time  # noqa: TID251 - measures real time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.fingerprints import ROOT
from tools.seeds import chosen

RESULTS = ROOT / "build" / "repeat"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_END = re.compile(r"^(?:=+ )?(\d.* in [\d.]+s.*?)(?: =+)?$", re.MULTILINE)

# Half of the time at work, and a durable write in each round.
_LOAD = """
import os, tempfile, time
with tempfile.TemporaryFile() as file:
    while os.getppid() == {parent}:
        began = time.monotonic()
        while time.monotonic() - began < 0.05:
            sum(range(1000))
        os.pwrite(file.fileno(), b"x" * 65536, 0)
        os.fdatasync(file.fileno())
        time.sleep(0.05)
"""


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that work half of the time, as long as this one lives."""
    program = _LOAD.format(parent=os.getpid())
    running = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(processes)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def tree() -> str:
    """What is run, by content: the tree as it stands, with what is changed in it and what git does not know yet."""
    with tempfile.TemporaryDirectory() as folder:
        index = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}
        subprocess.run(["git", "add", "--all"], cwd=ROOT, env=index, check=True)
        command = ["git", "write-tree"]
        done = subprocess.run(command, cwd=ROOT, env=index, capture_output=True, text=True, check=True)
    return done.stdout.strip()[:12]


def failures(output: str) -> list[str]:
    """The tests that a run of pytest names as failed, each once."""
    return sorted(set(_FAILED.findall(output)))


def closing_line(output: str) -> str:
    """How many passed, in pytest's words."""
    found = _END.findall(output)
    return found[-1] if found else "no closing line"


def run_once(tiers: str, number: int, workers: int, log: Path) -> dict[str, object]:
    """One run. Its output is kept when it fails."""
    seed = (chosen() + number) % 2**32
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), f"--hypothesis-seed={seed}", "-m", tiers]
    began = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "SEED": str(seed)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        log.write_text(done.stdout)
    failed = failures(done.stdout) or ([f"exit {done.returncode}"] if done.returncode else [])
    return {
        "seed": seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "end": closing_line(done.stdout),
        "failed": failed,
    }


def main() -> int:
    """All runs that are not done yet; 1 when any of them, of now or before, failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--tiers", default="pure or loop or broker or etcd")
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--load", type=int, default=os.cpu_count() or 1, help="processes beside the tests")
    given = parser.parse_args()
    how = f"{given.tiers.replace(' ', '-')}-{given.workers}-workers-{given.load}-load-seed-{chosen()}"
    folder = RESULTS / tree() / how
    folder.mkdir(parents=True, exist_ok=True)
    runs: dict[int, dict[str, object]] = {}
    with load(given.load):
        for number in range(1, given.times + 1):
            result = folder / f"{number}.json"
            if not result.exists():
                print(f"repeat: {number} of {given.times} ...", flush=True)
                found = run_once(given.tiers, number, given.workers, folder / f"{number}.log")
                result.write_text(json.dumps(found))
            runs[number] = json.loads(result.read_text())
            print(f"repeat: {number} of {given.times}: {runs[number]}", flush=True)
    failed: dict[str, list[int]] = {}
    for number, one in runs.items():
        for test in one["failed"] if isinstance(one["failed"], list) else []:
            failed.setdefault(test, []).append(number)
    for test, numbers in sorted(failed.items()):
        print(f"repeat: {test} failed in {numbers}")
    print(f"repeat: {len(runs)} runs of '{given.tiers}', {len(failed)} tests failed once or more")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
