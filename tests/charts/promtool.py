"""Prometheus' own tool, by which rules are judged and evaluated."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.leaving_out import leave_out

_ROOT = Path(__file__).parent.parent.parent


@cache
def _program() -> str | tuple[str]:
    found = subprocess.run([_ROOT / "tools" / "promtool.sh"], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else (found.stderr.strip(),)


def promtool(*arguments: str, folder: Path) -> str:
    """Runs it in a folder; what it said. Leaves the test out where it cannot be had.

    Raises:
        AssertionError: it found a fault.
    """
    program = _program()
    if isinstance(program, tuple):
        leave_out("rules of Prometheus", program[0])
    outcome = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def write(file: Path, content: Any) -> None:
    """Writes what is YAML as well."""
    file.write_text(json.dumps(content), encoding="utf-8")
