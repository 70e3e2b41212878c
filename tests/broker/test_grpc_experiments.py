"""What the choice of grpc's experiments is for: fewer threads between a message's arrival and the event loop.

Whether an installed grpcio heeds it, nobody but the kernel says. A new one fails here until sterna/_grpc_experiments.py
names it among those that were tried; if it then fails still, it has no such experiments any more.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sterna._grpc_experiments import VARIABLE, WITHOUT_EVENT_ENGINE

from tools.fingerprints import ROOT

pytestmark = pytest.mark.usefixtures("tier_broker")

PROGRAMS = Path(sys.executable).parent
SIDES = ("broker", "client")

# Runs an installed program, or a module of ours; says on stderr what is chosen when somebody imports grpc.
WATCHED = f"""
import os, runpy, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc._cython":
            print("grpc is imported with", os.environ.get("{VARIABLE}"), file=sys.stderr, flush=True)

sys.meta_path.insert(0, Watch())
sys.argv = sys.argv[1:]
run = runpy.run_path if os.path.isabs(sys.argv[0]) else runpy.run_module
run(sys.argv[0], run_name="__main__")
"""
# Each ends by itself, soon after it has imported grpc: there is nobody, or nothing.
STARTS = {
    "command": (str(PROGRAMS / "sterna"), "get", "queues", "--server", "sterna://127.0.0.1:1"),
    "broker": (str(PROGRAMS / "sterna"), "broker", "--data", "data", "--config", "nowhere"),
    "operator": (str(PROGRAMS / "sterna-operator"), "plan", "--file", "nowhere.yaml", "--kubeconfig", "nowhere"),
    "bench": ("bench.clients", "no such role"),
}

# As an application does it: import, connect, and nothing of grpc's before.
APPLICATION = """
import asyncio, os, sys
before = dict(os.environ)
import sterna, sterna.blocking

async def main():
    try:
        await sterna.connect("sterna://127.0.0.1:1")
    except sterna.SternaError:
        pass

asyncio.run(main())
try:
    sterna.blocking.connect("sterna://127.0.0.1:1")
except sterna.SternaError:
    pass
assert "grpc" in sys.modules
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
"""


def environment(experiments: str | None) -> dict[str, str]:
    """The tests' own, but for the experiments: None is what a user has who never heard of them."""
    others = {name: value for name, value in os.environ.items() if name != VARIABLE}
    return others if experiments is None else {**others, VARIABLE: experiments}


@contextmanager
def installed_broker(folder: Path, experiments: str | None) -> Iterator[tuple[str, int]]:
    """`sterna broker` as it was installed, in a process that is forked from nothing of the tests: URL and number."""
    command = [str(PROGRAMS / "sterna"), "broker", "--data", str(folder)]
    command += ["--listen", "127.0.0.1:0", "--monitor", "127.0.0.1:0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(experiments)
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            served = re.search(r" serves (sterna://\S+) ", line)
            assert served is not None, line
            yield served[1], process.pid
        finally:
            process.kill()


def wakeups(folder: Path, experiments: str | None) -> dict[str, dict[str, float]]:
    """Wake-ups a message, with a broker and a client that both run with these experiments."""
    with installed_broker(folder, experiments) as (url, pid):
        command = [sys.executable, "-m", "tests.broker.wakeups", url, str(pid)]
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60, env=environment(experiments)
        )
    assert ran.returncode == 0, ran.stderr
    # A grpc that does not know an experiment says so, on the terminal of whoever runs a command.
    assert "experiment" not in ran.stderr
    found: dict[str, dict[str, float]] = json.loads(ran.stdout)
    return found


def test_no_thread_of_the_event_engine_takes_part_in_a_message(tmp_path: Path) -> None:
    found: dict[str, Any] = {
        name: wakeups(tmp_path / name, experiments) for name, experiments in (("ours", None), ("its own", ""))
    }
    for side in SIDES:
        ours, its_own = found["ours"][side], found["its own"][side]
        # Seen with grpcio 1.85.1: none, and three.
        assert ours["event_engine"] < 0.5, found
        # Else the choice is for nothing, or the threads have another name and what is above proves nothing.
        assert its_own["event_engine"] > 1.5, found
        # They were spared, and others did not take their place: some 7 instead of 11 of the broker's, 4 instead of 7.
        assert ours["all"] < its_own["all"] - 1.5, found


@pytest.mark.parametrize("chosen", [None, "", "-event_engine_listener"])
@pytest.mark.parametrize("start", STARTS)
def test_a_program_of_ours_chooses_before_grpc_is_imported_unless_the_user_has(
    start: str, chosen: str | None, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WATCHED, *STARTS[start]]
    variables = {**environment(chosen), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60, env=variables)
    said = [line for line in ran.stderr.splitlines() if line.startswith("grpc is imported with")]
    assert said == [f"grpc is imported with {WITHOUT_EVENT_ENGINE if chosen is None else chosen}"], ran.stderr


def test_the_library_leaves_an_application_s_process_alone(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", APPLICATION], cwd=tmp_path, check=True, timeout=60, env=environment(None))
