"""A broker in a process of its own, for tests that kill it, starve it, or look at it from outside.

Other folders' fixtures use it as well: everything a test needs to know of a running broker is here.
"""

import json
import resource
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.plugins import slow_callbacks
from tests.support.api_server import free_port
from tests.support.forking import Forked, preload
from tests.support.system_calls import be_supervised
from tests.waiting import eventually_blocking

# What a broker imports before it looks at its options. The fork server has it, so that a broker of a test starts in a
# tenth of a second; that `sterna broker` starts as a program is shown by the tests of the command.
preload(["sterna_broker.main", "sterna_broker.options"])

START_TIMEOUT_S = 30.0


def manifest(kind: str, name: str, spec: str = "") -> str:
    """One document, its spec as the inside of a YAML mapping."""
    return f"apiVersion: sterna.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


# What most tests need: any queue and topic may be created.
ANYTHING = (manifest("Queue", "any-queue", "name: '>'"), manifest("Topic", "any-topic", "name: '>'"))


class RunningBroker:
    """One broker process on free ports, with folders below `folder`. `start` again after `kill` finds the same data.

    It comes back at the same port, as a pod behind its service does.

    Flags are those of the command. Besides: `supervised`, the arguments of `be_supervised`, and `descriptors`, the soft
    and the hard limit of open files.
    """

    def __init__(self, folder: Path, manifests: Iterable[str] | None = ANYTHING, **flags: Any) -> None:
        self.folder = folder
        self.config = folder / "config"
        self.data = folder / "data"
        self.flags = flags
        self.process: Forked | None = None
        self.ready: dict[str, Any] = {}
        self._starts = 0
        # Not one that the system might give to somebody's connection while the broker is down.
        self._port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        if manifests is not None:
            self.config.mkdir(exist_ok=True)
            (self.config / "all.yaml").write_text("---\n".join(manifests))

    @property
    def address(self) -> str:
        """host:port of gRPC."""
        return str(self.ready["messaging"])

    @property
    def monitor(self) -> str:
        """The monitor's base address."""
        return f"http://{self.ready['monitor']}"

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self.process is not None, "the broker was not started"
        return self.process.pid

    def launch(self) -> None:
        """Starts the process without waiting until it serves."""
        self._starts += 1
        ready_file = self.folder / f"ready.{self._starts}"
        flags: dict[str, Any] = {
            "data": str(self.data),
            "config": str(self.config) if self.config.exists() else None,
            "listen": f"127.0.0.1:{self._port}",
            "monitor": "127.0.0.1:0",
            "log_format": "json",
            "ready_file": str(ready_file),
            **self.flags,
        }
        self.process = Forked(
            _run, (flags,), folder=self.folder, stdout=self._file("stdout"), stderr=self._file("stderr")
        )

    def start(self) -> "RunningBroker":
        """Starts the process and waits until it serves: not on an event loop that a test has bounded."""
        slow_callbacks.refuse_to_block("a broker to start")
        self.launch()
        eventually_blocking(self._is_ready, timeout_s=START_TIMEOUT_S, what="the broker's ready file")
        return self

    @property
    def has_started(self) -> bool:
        """Whether it serves; AssertionError if it has ended instead."""
        return self._is_ready()

    def kill(self) -> None:
        """SIGKILL: as if the power of the process had been cut."""
        self._end(signal.SIGKILL)

    def terminate(self, timeout_s: float = 20.0) -> int:
        """SIGTERM, and the exit status."""
        return self._end(signal.SIGTERM, timeout_s)

    def wait(self, timeout_s: float = 20.0) -> int:
        """The exit status, once the process has ended by itself."""
        assert self.process is not None, "the broker was not started"
        return self.process.wait(timeout_s)

    @property
    def stdout(self) -> str:
        """What the latest process has written to stdout."""
        return self._file("stdout").read_text()

    @property
    def stderr(self) -> str:
        """What the latest process has written to stderr."""
        return self._file("stderr").read_text()

    def stop(self) -> None:
        """Ends whatever is left."""
        if self.process is not None and self.process.poll() is None:
            self.kill()

    def __enter__(self) -> "RunningBroker":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self, number: signal.Signals, timeout_s: float = 20.0) -> int:
        assert self.process is not None, "the broker was not started"
        self.process.send_signal(number)
        return self.process.wait(timeout_s)

    def _is_ready(self) -> bool:
        assert self.process is not None, "the broker was not started"
        if self.process.poll() is not None:
            raise AssertionError(f"the broker ended with {self.process.returncode}:\n{self.stdout}{self.stderr}")
        file = self.folder / f"ready.{self._starts}"
        if not file.exists():
            return False
        self.ready = json.loads(file.read_text())
        return True

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.{self._starts}"


def _run(flags: dict[str, Any]) -> int:
    """The broker's program, in its process."""
    from sterna_broker.main import run
    from sterna_broker.options import BrokerOptions, cluster_options

    options = dict(flags)
    if (supervised := options.pop("supervised", None)) is not None:
        be_supervised(*supervised)
    if (descriptors := options.pop("descriptors", None)) is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)
    if options.get("cluster"):
        options["cluster"] = cluster_options(name=options.get("name"), **options["cluster"])
    for name in ("data", "config", "ready_file", "tls_cert", "tls_key", "client_ca", "users"):
        if options.get(name):
            options[name] = Path(options[name])
    return run(BrokerOptions(**options))
