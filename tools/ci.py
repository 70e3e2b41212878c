"""What a change must pass, as on a fresh clone. Behind `.ci/run`.

Set-up, lint, tests, and the tests with real pods, one after the other, each with its budget (tools/budgets.toml). The
programs of Kubernetes, where they are not built, and what the images need besides our code, are made meanwhile at the
lowest priority. Nothing may be left out here: what the machine lacks is a failure. The cluster is ended, whatever
happens.
"""

import os
import shutil
import signal
import subprocess
import sys
import time  # noqa: TID251 - measures real time

from tools import pace, stages
from tools.fingerprints import ROOT
from tools.stages import Outcome

STAGES = {"setup": "setup", "lint": "lint", "test": "test", "pods": "test-cluster"}
"""The targets of make, by stage, in their order."""

SLOW = 2.0
"""On a machine so many times as slow as usual tests that take a share of something take half of it."""

_CLUSTER = str(ROOT / "tools" / "cluster" / "cluster")


def is_warm() -> bool:
    """Whether the programs of Kubernetes, which are most of what is made once, are there."""
    return subprocess.run([_CLUSTER, "lacks", "all"], stdout=subprocess.DEVNULL, check=False).returncode == 0


def beside(name: str, *command: str) -> "subprocess.Popen[bytes]":
    """Runs something beside the stages, at the lowest priority; what it says goes to a file."""
    log = ROOT / "build" / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        return subprocess.Popen(
            ["nice", "-n", "19", *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )


def has_own_cluster() -> bool:
    """Whether `make test-cluster` starts a cluster: with KUBECONFIG set it starts none, nor without root."""
    return not os.environ.get("KUBECONFIG") and os.geteuid() == 0


def end_cluster() -> None:
    """The one that was started here."""
    if has_own_cluster():
        subprocess.run([_CLUSTER, "down"], check=False)


def awaited(besides: "list[subprocess.Popen[bytes]]", budget: float) -> Outcome:
    """Waits for what runs beside the stages, since pods want the same folders. What fails there fails in them again."""
    began = time.monotonic()
    for one in besides:
        one.wait()
    return Outcome("beside", (time.monotonic() - began) / 60, 0, budget)


def main() -> int:
    """All stages; after a failed set-up none. 1 when any failed or took far too long."""
    # What must happen at the end happens in `finally`, which a signal would pass over.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    kind = "warm" if is_warm() else "cold"
    budgets = stages.budgets(kind)
    slowness = pace.slowness()
    if slowness >= SLOW:
        # A run has its bound by the clock: what is drawn is drawn more sparingly (tests/support/seeds.py).
        os.environ["STERNA_SLOW"] = "1"
    print(
        f"ci: the machine is {kind}, {slowness:.1f} times as slow as usual; budgets in minutes: {budgets}", flush=True
    )
    besides = []
    # Without Go the tests say what is missing.
    if kind == "cold" and shutil.which("go") is not None:
        besides.append(beside("programs", _CLUSTER, "build", "all"))
    outcomes = []
    try:
        for name, target in STAGES.items():
            if name == "pods":
                outcomes.append(awaited(besides, budgets["beside"]))
            outcomes.append(stages.run(name, ["make", target], budgets[name]))
            if name == "setup":
                if outcomes[0].status:
                    break
                if has_own_cluster():
                    besides.append(beside("images", str(ROOT / "tools" / "images.sh"), "prepare"))
    finally:
        for one in besides:
            if one.poll() is None:
                stages.end_group(one)
        end_cluster()
    print(stages.summary(outcomes), flush=True)
    return 1 if any(one.failed for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
