"""An operator in a process of its own, for tests that kill it, freeze it, run two of it, or count what it writes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.operator.launching import launch
from tests.support.forking import Forked, preload
from tests.waiting import eventually_blocking

preload([launch.__module__])

_ROOT = Path(__file__).parent.parent.parent
_ROOMS = ("operator", "etcd", "crds", "client", ".")
START_TIMEOUT_S = 40.0


class RunningOperator:
    """One operator process. `start` again after `kill` is a new process with the same settings.

    Of the `flags` that are no settings, `silence_s` is how long an object that is new waits before its status says so,
    and `untold` the name of an object of whose changes no watch tells.

    It is forked from a process that has everything loaded, which is quicker, and shares its memory. `is_forked` False:
    it is executed.
    """

    def __init__(self, folder: Path, kubeconfig: Path, *, is_forked: bool = True, **flags: Any) -> None:
        self.folder = folder
        self.is_forked = is_forked
        self.flags = {
            "kubeconfig": str(kubeconfig),
            "listen": "127.0.0.1:0",
            "lease_duration_s": 4.0,
            "only_etcd": True,
        } | flags
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.ready: dict[str, Any] = {}
        self._starts = 0
        folder.mkdir(parents=True, exist_ok=True)

    def launch(self, fatal: tuple[str, int] | None = None, *, freezes: bool = False) -> None:
        """Starts the process without waiting until it watches.

        `fatal`: the write, and how often it has to be made, after which it kills itself, or freezes.
        """
        self._starts += 1
        flags = {
            **self.flags,
            "ready_file": str(self.folder / f"ready.{self._starts}"),
            "counts": str(self.folder / f"writes.{self._starts}"),
            "fatal": fatal,
            "freezes": freezes,
        }
        if self.is_forked:
            log_file = self._file("log")
            self.process = Forked(launch, (flags,), folder=self.folder, stdout=log_file, stderr=log_file)
            return
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(_ROOT / room) for room in _ROOMS)}
        with self._file("log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.operator.launching", json.dumps(flags)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def start(self) -> "RunningOperator":
        """Starts the process and waits until it watches."""
        self.launch()
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
    def is_frozen(self) -> bool:
        """Whether the process has been stopped by SIGSTOP."""
        assert self.process is not None, "the operator was not started"
        stat = Path(f"/proc/{self.process.pid}/stat")
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "T"

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
