"""Snapshots of a broker that asks who comes: over TLS, by a user with a password."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.access.authorities import Authority


@pytest.mark.usefixtures("tier_broker")
async def test_a_snapshot_is_taken_over_tls_by_who_is_admitted(
    node: Callable[..., Any],
    pki: dict[str, Path],
    users_file: Callable[..., Path],
    authority: Authority,
    tmp_path: Path,
) -> None:
    running = await node(users=await asyncio.to_thread(users_file, auditor="right"), **pki)
    files = {name: tmp_path / name for name in ("ca.pem", "right", "wrong")}
    files["ca.pem"].write_bytes(authority.pem)
    for secret in ("right", "wrong"):
        files[secret].write_text(secret)
    url = f"sternas://localhost:{running.messaging.port}"
    command = [sys.executable, "-m", "sterna", "snapshot", "create", "--to", str(tmp_path / "kept"), "--unsigned"]
    command += ["--principals", "none", "-o", "json", "-s", url, "--user", "auditor", "--ca", str(files["ca.pem"])]

    async def run(*more: str) -> tuple[int | None, bytes, bytes]:
        process = await asyncio.create_subprocess_exec(*command, *more, stdin=-3, stdout=-1, stderr=-1)
        out, err = await process.communicate()
        return process.returncode, out, err

    code, _, err = await run("--password-file", str(files["wrong"]))
    assert (code, b"UNAUTHENTICATED" in err, (tmp_path / "kept").exists()) == (5, True, False)
    code, out, err = await run("--password-file", str(files["right"]))
    assert (code, err) == (0, b"")
    assert json.loads(out)["cut"] == 1
