"""What every measure needs: a place for data, how thorough to be, fresh brokers and client processes."""

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.broker import MANIFESTS, Broker

_CLIENT_S = 180.0


@dataclass(frozen=True, slots=True)
class Rig:
    """How a run is done.

    Args:
        folder: where brokers keep their data; it should be on the disk that is meant.
        quick: fewer repeats of smaller loads: a look, not a figure to quote.
    """

    folder: Path
    quick: bool = False

    @property
    def repeats(self) -> int:
        """How often a cheap line is measured; its median counts."""
        return 1 if self.quick else 3

    def scaled(self, count: int) -> int:
        """A count for this thoroughness: a quick run does a tenth."""
        return count // 10 if self.quick else count

    @contextlib.contextmanager
    def broker(self, manifests: str = MANIFESTS) -> Iterator[Broker]:
        """A fresh broker, its data gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            broker = Broker(Path(folder), manifests)
            broker.start()
            try:
                yield broker
            finally:
                broker.stop()


class Client:
    """A client process: it connects, says that it is ready, and runs its load when told to go."""

    def __init__(self, role: str, **settings: Any) -> None:
        self._role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.clients", role, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            self._process.wait(_CLIENT_S)
            raise RuntimeError(f"the client '{role}' failed before it was ready")

    def go(self) -> None:
        """Let the load begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Wait for the load's end; what it measured."""
        output, _ = self._process.communicate(timeout=_CLIENT_S)
        if self._process.returncode:
            raise RuntimeError(f"the client '{self._role}' failed with {self._process.returncode}")
        found: dict[str, Any] = json.loads(output)
        return found


def run_client(broker: Broker, role: str, **settings: Any) -> dict[str, Any]:
    """One client process by itself; its result, with the processor time that the broker spent on each message."""
    client = Client(role, url=broker.url, **settings)
    before_s = broker.cpu_s()
    client.go()
    result = client.result()
    messages = result["messages"] + settings.get("warm_up", 0)
    result["broker_cpu_us"] = round((broker.cpu_s() - before_s) / messages * 1e6, 2)
    return result


def run_pair(broker: Broker, receiver: dict[str, Any], sender: dict[str, Any]) -> dict[str, Any]:
    """A receiving and a `send_soon` process at once; both results, and the broker's processor time a message."""
    receiving = Client("receive", url=broker.url, **receiver)
    sending = Client("send_soon", url=broker.url, **sender)
    before_s = broker.cpu_s()
    receiving.go()
    sending.go()
    sent, received = sending.result(), receiving.result()
    broker_cpu_us = round((broker.cpu_s() - before_s) / received["messages"] * 1e6, 2)
    return {"sent": sent, "received": received, "broker_cpu_us": broker_cpu_us}


def costs(runs: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Processor time a message, on both sides, of each run: where the time goes, however busy the machine was."""
    return {name: [run[name] for run in runs] for name in ("cpu_us", "broker_cpu_us")}


def median(values: Sequence[float]) -> float:
    """The middle of the runs."""
    return statistics.median(values)
