"""An operator in a process of its own, for tests that kill it, freeze it, run two of it, or count what it writes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import eventually_blocking

_ROOT = Path(__file__).parent.parent.parent
_ROOMS = ("operator", "etcd", "crds", "client", ".")
START_TIMEOUT_S = 40.0

# What the process runs. It counts its writes, wherever they go, and kills itself right after the n-th if it is told to:
# whatever follows in the same plan is then left undone, as by a power cut at the worst moment.
_LAUNCH = """
import asyncio, json, logging, os, pathlib, signal, sys
from sterna_operator import main, running
from sterna_operator.plans import Plan
from sterna_operator.settings import OperatorSettings
from sterna_operator.view import Decision, open_etcd
flags = json.loads(sys.argv[1])
die_after, counts = flags.pop("die_after"), flags.pop("counts")
for name in ("kubeconfig", "ready_file"):
    flags[name] = pathlib.Path(flags[name])
flags["namespaces"] = tuple(flags.get("namespaces", ()))
written = [0]
def on_write(*what):
    if what[-1].endswith("/leases") or "/leases/" in what[-1]:
        return  # the Lease is written all the time; its own tests look at it
    written[0] += 1
    with open(counts, "a") as file:
        file.write(" ".join(what) + "\\n")
    if written[0] == die_after:
        os.kill(os.getpid(), signal.SIGKILL)
made = running.assemble
def assemble(settings, configuration):
    parts = made(settings, configuration)
    parts.kube.on_write = on_write
    parts.clusters.on_write = on_write
    return parts
running.assemble = assemble
class OnlyEtcd:
    name, children = "MessagingCluster", ()
    async def decide(self, view, object):
        await open_etcd(view, object)
        return Decision(Plan())
    async def decide_gone(self, view, key):
        return []
if flags.pop("only_etcd"):
    # Of a cluster nothing but its etcd: tests of everything else need no StatefulSets that nobody starts.
    known = running.kinds
    running.kinds = lambda: {**known(), "MessagingCluster": OnlyEtcd()}
settings = OperatorSettings(**flags)
main._set_up_logs("json", to_stderr=False)
status = asyncio.run(running.run(settings))
sys.stdout.flush()
os._exit(status)
"""


class RunningOperator:
    """One operator process. `start` again after `kill` is a new process with the same settings."""

    def __init__(self, folder: Path, kubeconfig: Path, **flags: Any) -> None:
        self.folder = folder
        self.flags = {
            "kubeconfig": str(kubeconfig),
            "listen": "127.0.0.1:0",
            "lease_duration_s": 4.0,
            "only_etcd": True,
        } | flags
        self.process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        self._starts = 0
        folder.mkdir(parents=True, exist_ok=True)

    def launch(self, die_after: int = 0) -> None:
        """Starts the process without waiting until it watches; `die_after`: it kills itself after so many writes."""
        self._starts += 1
        flags = {
            **self.flags,
            "ready_file": str(self.folder / f"ready.{self._starts}"),
            "counts": str(self.folder / f"writes.{self._starts}"),
            "die_after": die_after,
        }
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(_ROOT / room) for room in _ROOMS)}
        with self._file("log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, json.dumps(flags)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def start(self, die_after: int = 0) -> "RunningOperator":
        """Starts the process and waits until it watches."""
        self.launch(die_after)
        eventually_blocking(self.is_ready, timeout_s=START_TIMEOUT_S, what="the operator's ready file")
        return self

    @property
    def address(self) -> str:
        """host:port of metrics and liveness."""
        return str(self.ready["address"])

    @property
    def log(self) -> str:
        """What the latest process has said."""
        return self._file("log").read_text(errors="replace")

    @property
    def writes(self) -> list[str]:
        """What the latest process has written, the Lease left out."""
        file = self._file("writes")
        return file.read_text().splitlines() if file.exists() else []

    @property
    def has_ended(self) -> bool:
        """Whether the process is over."""
        return self.process is not None and self.process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        assert self.process is not None, "the operator was not started"
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 20.0) -> int:
        """The exit status, once the process has ended."""
        assert self.process is not None, "the operator was not started"
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """As if the power of the process had been cut."""
        self.signal(signal.SIGKILL)
        self.wait()

    def terminate(self) -> int:
        """Asks it to end, and the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def stop(self) -> None:
        """Ends whatever is left."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def is_ready(self) -> bool:
        """Whether the latest process watches; AssertionError when it has ended instead."""
        if self.has_ended:
            assert self.process is not None
            raise AssertionError(f"the operator ended with {self.process.returncode}:\n{self.log[-4000:]}")
        file = self.folder / f"ready.{self._starts}"
        if not file.exists() or not file.read_text():
            return False
        self.ready = json.loads(file.read_text())
        return True

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.{self._starts}"
