"""The command `sterna-audit job`: from its arguments to its exit status, and to the file that has its result."""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from sterna_audit import surroundings
from sterna_audit.auditing import Tell
from sterna_audit.job import config as configs
from sterna_audit.job import plan as plans
from sterna_audit.job.config import ConfigError
from sterna_audit.job.result import Result, compact
from sterna_audit.job.running import Running
from sterna_audit.snapshots.stores import StoreError

OK, FAILED, USAGE, VIOLATED = 0, 1, 2, 8
#: Where Kubernetes reads a pod's last words.
TERMINATION_LOG = Path("/dev/termination-log")


def run(config: Path, name: str, file: Path | None, tell: Tell) -> int:
    """Does what a file asks for, under a name; the exit status.

    Args:
        config: the file.
        name: of the run.
        file: where to its result goes, as JSON; None: to `TERMINATION_LOG`, where there is one.
        tell: hears how far it is.
    """
    # Without this the first process of a container is not ended by SIGTERM.
    signal.signal(signal.SIGTERM, _end)
    began_ms = surroundings.wall_ms()
    if file is None:
        file = TERMINATION_LOG if os.access(TERMINATION_LOG, os.W_OK) else None
    elif (why := _why_not_written(file)) is not None:
        tell(f"--result-file: {file}: {why}")
        return USAGE
    try:
        running = Running(plans.made(configs.read(config), configs.check_run(name)), tell)
        result = running.ended()
        if result is None:
            result = json.loads(running.run().encoded())
        else:
            tell(f"{name} was done before: this is what came of it")
        status = {"violated": VIOLATED, "failed": FAILED}.get(result["verdict"], OK)
    except ConfigError as error:
        status, result = USAGE, _failed(name, str(error), began_ms)
    except StoreError as error:
        status, result = FAILED, _failed(name, f"results cannot be kept: {error}", began_ms)
    if file is not None:
        # In its place: Kubernetes mounts the file alone.
        file.write_bytes(compact(result))
    sys.stdout.write(f"{_said(result)}\n")
    return status


def _why_not_written(file: Path) -> str | None:
    try:
        file.open("ab").close()
    except OSError as error:
        return error.strerror
    return None


def _failed(name: str, error: str, began_ms: int) -> dict[str, Any]:
    """The result of a run of which nothing could be kept."""
    failed = Result(run=name[:100], verdict="failed", started_ms=began_ms, ended_ms=surroundings.wall_ms(), error=error)
    found: dict[str, Any] = json.loads(failed.encoded())
    return found


def _said(result: dict[str, Any]) -> str:
    """The result for people, in some lines."""
    lines = []
    for one in result.get("worst", ()):
        about = (f"{one['verdict']}: {one['audit']}: {one['what']}:", one["broker"], one["object"], one["message"])
        lines.append(" ".join(filter(None, about)))
    if result.get("report"):
        lines.append(f"report: {result['report']}")
    lines.append(f"verdict: {result['verdict']}")
    if result.get("error"):
        lines[-1] += f": {result['error']}"
    return "\n".join(lines)


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
