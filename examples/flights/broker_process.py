"""The demo's broker: a process of its own, killed without warning and started again on the same port and data."""

import asyncio
import socket
import subprocess
import sys
import time  # noqa: TID251 - measures real time
from dataclasses import dataclass, field
from pathlib import Path

MANIFESTS = Path(__file__).parent
_STOP_S = 30.0


@dataclass
class BrokerProcess:
    """`sterna broker` with the manifests of this folder.

    Args:
        data: the folder of its log; its own output goes beside it.
    """

    data: Path
    port: int = field(default_factory=lambda: _free_port())
    monitor_port: int = field(default_factory=lambda: _free_port())
    greeting: str = ""
    _process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"sterna://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Of the running process; 0 when there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def log(self) -> Path:
        """What the broker said on stderr."""
        return self.data.with_name("broker.log")

    async def start(self) -> float:
        """Start it; returns after how many seconds it served."""
        begin = time.monotonic()
        self._process = self._spawn()
        assert self._process.stdout is not None
        # One line says where it serves and what it found in its log; the end of the stream says that it gave up.
        self.greeting = (await asyncio.to_thread(self._process.stdout.readline)).strip()
        if not self.greeting:
            await asyncio.to_thread(self._process.wait)
            raise RuntimeError(f"the broker did not start:\n{self._last_words()}")
        return time.monotonic() - begin

    def _spawn(self) -> subprocess.Popen[str]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "sterna", "broker", "--config", str(MANIFESTS), "--data", str(self.data)),
                    *("--listen", f"127.0.0.1:{self.port}", "--monitor", f"127.0.0.1:{self.monitor_port}"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Ctrl-C in a terminal is for the demo; what becomes of the broker is the demo's to decide.
                start_new_session=True,
            )

    async def kill(self) -> None:
        """End it as a crash would: SIGKILL, nothing said, nothing saved."""
        if self._process is not None:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
            self._forget()

    async def stop(self) -> int:
        """End it cleanly; its exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            code = await asyncio.to_thread(self._process.wait, _STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = await asyncio.to_thread(self._process.wait)
        self._forget()
        return code

    def leave(self) -> int:
        """Let it run on after this program; its process id."""
        pid = self.pid
        self._forget()
        return pid

    def _forget(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
