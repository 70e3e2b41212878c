"""What a change must pass, as on a fresh clone. Behind `.ci/run`.

Set-up, lint, tests, and the tests with real pods, one after the other, each with its budget (tools/budgets.toml). The
programs of Kubernetes, where they are not built, are built meanwhile at the lowest priority, those of the API server
first. Nothing may be left out here: what the machine lacks is a failure. The cluster is ended, whatever happens.
"""

import os
import shutil
import subprocess
import sys

from tools import stages
from tools.fingerprints import ROOT

_CLUSTER = str(ROOT / "tools" / "cluster" / "cluster")


def is_warm() -> bool:
    """Whether the programs of Kubernetes, which are most of what is made once, are there."""
    return subprocess.run([_CLUSTER, "lacks", "all"], stdout=subprocess.DEVNULL, check=False).returncode == 0


def build_beside() -> "subprocess.Popen[bytes] | None":
    """Builds the programs of Kubernetes besides; who needs one waits for it. None: Go is not here, the tests say so."""
    if shutil.which("go") is None:
        return None
    log = ROOT / "build" / "cluster-programs.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        return subprocess.Popen(
            ["nice", "-n", "19", _CLUSTER, "build", "all"], stdin=subprocess.DEVNULL, stdout=file, stderr=file
        )


def end_cluster() -> None:
    """Only the cluster that `make test-cluster` starts: with KUBECONFIG set it starts none, nor without root."""
    if not os.environ.get("KUBECONFIG") and os.geteuid() == 0:
        subprocess.run([_CLUSTER, "down"], check=False)


def main() -> int:
    """All stages; after a failed set-up none. 1 when any failed or took far too long."""
    kind = "warm" if is_warm() else "cold"
    budgets = stages.budgets(kind)
    print(f"ci: the machine is {kind}; budgets in minutes: {budgets}", flush=True)
    building = None if kind == "warm" else build_beside()
    outcomes = []
    try:
        for name, target in (("setup", "setup"), ("lint", "lint"), ("test", "test"), ("pods", "test-cluster")):
            outcomes.append(stages.run(name, ["make", target], budgets[name]))
            if name == "setup" and outcomes[0].status:
                break
    finally:
        if building is not None:
            building.terminate()
            building.wait()
        end_cluster()
    print(stages.summary(outcomes), flush=True)
    return 1 if any(one.failed for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
