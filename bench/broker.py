"""A broker in a process of its own, with a folder of manifests and a folder of data, as users run it."""

import os
import signal
import socket
import subprocess
import sys
import time  # noqa: TID251 - measures real time
from dataclasses import dataclass, field
from pathlib import Path

# What every run configures: any destination below `bench.` may be created.
MANIFESTS = """\
apiVersion: sterna.dev/v1alpha1
kind: Queue
metadata: {name: bench-queues}
spec: {name: "bench.>"}
---
apiVersion: sterna.dev/v1alpha1
kind: Topic
metadata: {name: bench-topics}
spec: {name: "bench.>"}
"""

_START_S = 120.0
_STOP_S = 30.0


@dataclass
class Broker:
    """A broker process on a port that stays the same over restarts."""

    folder: Path
    manifests: str = MANIFESTS
    port: int = field(default_factory=lambda: free_port())
    monitor_port: int = field(default_factory=lambda: free_port())
    process: subprocess.Popen[str] | None = None
    # How long the last start took, from the process's birth to its saying that it serves, in seconds.
    start_s: float = 0.0

    @property
    def url(self) -> str:
        """Where it serves, for the SDK."""
        return f"sterna://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Where its log is."""
        return self.folder / "data"

    @property
    def pid(self) -> int:
        """Of the running process."""
        if self.process is None:
            raise RuntimeError("the broker is not running")
        return self.process.pid

    def start(self) -> None:
        """Start it and wait until it serves."""
        config = self.folder / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "bench.yaml").write_text(self.manifests)
        begin = time.monotonic()
        log = (self.folder / "broker.log").open("a")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "sterna", "broker", "--config", str(config), "--data", str(self.data)),
                *("--listen", f"127.0.0.1:{self.port}", "--monitor", f"127.0.0.1:{self.monitor_port}"),
            ],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        self._wait_until_it_serves(begin + _START_S)
        self.start_s = time.monotonic() - begin

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it: SIGTERM for a clean stop, SIGKILL for a crash."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None

    def resident_bytes(self) -> int:
        """The process's memory as the kernel counts it."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        """Processor time that the process has used, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def drop_page_cache(self) -> str:
        """Put the log's files out of the page cache, the broker being down; says how."""
        os.sync()
        for path in self.data.rglob("*"):
            if path.is_file():
                handle = os.open(path, os.O_RDONLY)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(handle)
        try:
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
        except OSError:
            return "posix_fadvise(DONTNEED) on each file"
        return "/proc/sys/vm/drop_caches"

    def _wait_until_it_serves(self, deadline: float) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        # The broker prints one line with its addresses once it serves.
        line = self.process.stdout.readline()
        if not line or time.monotonic() > deadline:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"the broker did not start; its log says:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        return "\n".join((self.folder / "broker.log").read_text().splitlines()[-20:])


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
