"""Logs for people show where something failed, and no values."""

import subprocess
import sys

import pytest

from tools.fingerprints import ROOT

_FAILS = """
import structlog
from sterna_broker import logs
logs.configure("console", "info")
def check(password):
    raise ValueError("no")
try:
    check("s3" + "cret")
except ValueError:
    structlog.get_logger().exception("failed")
"""


@pytest.mark.usefixtures("tier_broker")
def test_a_traceback_on_a_terminal_has_no_local_variables() -> None:
    search = ":".join(str(ROOT / room) for room in ("client", "crds", "broker"))
    command = [sys.executable, "-W", "error", "-c", _FAILS]
    said = subprocess.run(command, env={"PYTHONPATH": search}, capture_output=True, text=True, check=True).stderr
    assert "ValueError" in said
    assert "s3cret" not in said
