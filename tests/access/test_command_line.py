"""The command line against a broker with TLS and users: what it says, and nothing of gRPC's own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sterna.cli.exits import Exit

from tests.access.authorities import Authority


@pytest.fixture
def ran(
    broker_process: Any, pki: dict[str, Path], users_file: Callable[..., Path], tmp_path: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Runs `sterna get queues` against it, with more arguments; `is_plain`: by an address without TLS."""
    flags = {name: str(path) for name, path in pki.items()} | {"users": str(users_file(alice="s3cret-right"))}
    broker = broker_process(**flags).start()
    for name in ("right", "wrong"):
        (tmp_path / name).write_text(f"s3cret-{name}")

    def run(*arguments: str, is_plain: bool = False) -> "subprocess.CompletedProcess[str]":
        port = broker.address.rpartition(":")[2]
        server = f"{'sterna' if is_plain else 'sternas'}://localhost:{port}"
        command = [sys.executable, "-m", "sterna", "get", "queues", "--server", server, "--timeout", "5", *arguments]
        # As a user has it: how grpc runs is chosen for tests, too.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path, env=environment
        )

    return run


def test_what_is_wrong_is_said_once_and_by_nobody_else(
    ran: Callable[..., "subprocess.CompletedProcess[str]"], authority: Authority, tmp_path: Path
) -> None:
    trusted = ("--ca", str(authority.write(tmp_path / "ca.pem")))
    alice = ("--user", "alice", "--password-file")
    right = ran(*alice, "right", *trusted)
    assert (right.returncode, right.stderr) == (Exit.OK, "")
    for arguments, is_plain, code, said in (
        (
            (*alice, "wrong", *trusted),
            False,
            Exit.DENIED,
            "error UNAUTHENTICATED: credentials: The user or the password",
        ),
        (trusted, False, Exit.DENIED, "error UNAUTHENTICATED: credentials: This broker lets in only whom it knows"),
        ((*alice, "right"), False, Exit.UNREACHABLE, "error UNREACHABLE: localhost"),
        ((*alice, "right", *trusted, "--server-name", "else"), False, Exit.UNREACHABLE, "error UNREACHABLE: localhost"),
        ((*alice, "right"), True, Exit.UNREACHABLE, "error UNREACHABLE: localhost"),
    ):
        result = ran(*arguments, is_plain=is_plain)
        assert (result.returncode, result.stdout) == (code, "")
        first, second = result.stderr.strip().splitlines()
        assert first.startswith(said), result.stderr
        assert second.startswith("  remedy: ")
        assert "s3cret" not in result.stderr
