"""What one runs after each edit: everything that needs no other process. Behind `make check`.

Two lanes at once, for two cores: the checks of `make lint`, then the engine's own tests; and the Python tests of the
tiers `pure` and `loop`, in parallel. What fails is shown whole, at the end of its lane.
"""

import os
import subprocess
import sys
import threading
import time  # noqa: TID251 - measures real time
from dataclasses import dataclass, field

from tools.fingerprints import ROOT
from tools.seeds import chosen

TIERS = "pure or loop"
# Left out, in one line, so that nobody takes a green check for a green test run.
LEFT_OUT = "left out: doc tests, tests with processes, etcd, an API server (make test) or pods (make test-cluster)"
CARGO = ["cargo", "test", "--locked", "--quiet", "--manifest-path", "core/Cargo.toml", "--lib"]


@dataclass
class Lane:
    """Commands one after the other, with what became of them."""

    commands: list[tuple[str, list[str]]]
    failed: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Runs all of them, whatever fails."""
        for name, command in self.commands:
            # Failed until it is known to have passed, whatever happens to this thread.
            self.failed.append(name)
            began = time.monotonic()
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    check=False,
                )
            except OSError as error:
                print(f"check: {name} FAILED: {error}", flush=True)
                continue
            lines = done.stdout.rstrip().splitlines() or ["no output"]
            if done.returncode != 0:
                print(f"check: {name} FAILED", *lines, sep="\n", flush=True)
            else:
                print(f"check: {name} ok ({time.monotonic() - began:.0f} s): {lines[-1].strip('= ')}", flush=True)
                self.failed.remove(name)


def main() -> int:
    """Both lanes; 1 when anything failed."""
    began = time.monotonic()
    seed = os.environ["SEED"] = str(chosen())
    python = sys.executable
    lanes = [
        Lane([("lint", [python, "-m", "tools.lint"]), ("engine", CARGO)]),
        Lane([("python", [python, "-m", "pytest", "-q", "-n", "2", f"--hypothesis-seed={seed}", "-m", TIERS])]),
    ]
    threads = [threading.Thread(target=lane.run) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [name for lane in lanes for name in lane.failed]
    verdict = f"FAILED: {', '.join(failed)}" if failed else "ok"
    print(f"check: {verdict} in {time.monotonic() - began:.0f} s; SEED={seed}; {LEFT_OUT}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
