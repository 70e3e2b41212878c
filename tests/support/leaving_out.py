"""Leaving tests out where the machine lacks what they need: said in one line, and forbidden in CI."""

import os
from typing import NoReturn

import pytest

MARK = "left out: "


def leave_out(what: str, reason: str) -> NoReturn:
    """Skips the tests that asked, saying what is left out and why; with `CI=true` they fail instead."""
    message = f"{MARK}{what}: {reason}"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{message}; nothing may be left out in CI", pytrace=False)
    pytest.skip(message)
