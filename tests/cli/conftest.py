"""Running the command as a person does, in this process."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# What commands import only when they need it: here before any loop runs, since the tests bound how long a callback may
# take, and a command imports in a thread beside the test's loop.
import rich.progress as _rich_progress  # noqa: F401
import rich.table as _rich_table  # noqa: F401
import ruamel.yaml as _ruamel_yaml  # noqa: F401
import sterna.connections as _connections  # noqa: F401
import sterna_broker.main as _broker_main  # noqa: F401
from sterna.cli.application import run

from bench.broker import Broker

MANIFESTS = """\
apiVersion: sterna.dev/v1alpha1
kind: Broker
metadata: {name: sterna}
spec: {flowControl: true}
---
apiVersion: sterna.dev/v1alpha1
kind: Queue
metadata: {name: orders}
---
apiVersion: sterna.dev/v1alpha1
kind: Queue
metadata: {name: scratch}
spec: {name: "t.>"}
---
apiVersion: sterna.dev/v1alpha1
kind: Queue
metadata: {name: small}
spec: {name: t.small, maxMessages: 10}
---
apiVersion: sterna.dev/v1alpha1
kind: Queue
metadata: {name: held}
spec: {name: "t.held.>", flowControlBytes: 1000}
---
apiVersion: sterna.dev/v1alpha1
kind: Topic
metadata: {name: news}
spec: {name: "news.>"}
"""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@pytest.fixture
def sterna(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """Runs the command with these arguments; colours, widths and contexts do not depend on where tests run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("STERNA_URL", raising=False)

    def invoke(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(list(arguments))
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return invoke


@pytest.fixture
def run_sterna(sterna: Callable[..., Ran]) -> Callable[..., Coroutine[Any, Any, Ran]]:
    """The same beside a server that lives in the test's event loop: the command runs in a thread."""

    async def invoke(*arguments: str) -> Ran:
        return await asyncio.to_thread(sterna, *arguments)

    return invoke


@pytest.fixture(scope="module")
def broker(tier_broker: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all of them; each test has queues of its own below `t.`."""
    running = Broker(tmp_path_factory.mktemp("broker"), MANIFESTS)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def cli(sterna: Callable[..., Ran], broker: Broker) -> Callable[..., Ran]:
    """The command with the broker's address, so that tests read as what people type."""

    def invoke(*arguments: str) -> Ran:
        return sterna(*arguments, "-s", broker.url)

    return invoke


def rows(ran: Ran) -> list[dict[str, Any]]:
    """What `-o jsonl` printed."""
    return [json.loads(line) for line in ran.out.splitlines()]
