"""Running the command as a person does, in this process."""

import asyncio
from collections.abc import Callable, Coroutine
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
