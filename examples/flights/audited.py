"""What the demo adds with AUDIT=1: cuts of the broker, ledgers of its clients, and the audits over both.

All of it is done as anybody would: by `sterna snapshot create`, by `ledger=` of the connections, and by
`sterna-audit run`. The audits know nothing of the demo's own books.
"""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

_MASTER = "local[2]"
_ERROR_LINES = 15


class AuditFailedError(Exception):
    """A command failed; the text says which, and its last words."""


class Audited:
    """The snapshots, ledgers and the report of one run, in a folder that replaces an earlier one's.

    Args:
        folder: where all of it goes.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = folder
        self.ledgers = folder / "ledgers"
        self.report = folder / "report"
        self._private, self._public = folder / "exporter.pem", folder / "exporter.pub.pem"
        folder.mkdir(parents=True)
        key = Ed25519PrivateKey.generate()
        self._private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self._private.chmod(0o600)
        self._public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))

    async def cut(self, url: str) -> None:
        """Takes a snapshot of the broker, beside whatever it does.

        Raises:
            AuditFailedError: it could not be taken.
        """
        code, said = await _run(
            *("-m", "sterna", "snapshot", "create", "--server", url, "--to", str(self.folder / "snapshots")),
            *("--sign-with", str(self._private), "--principals", "none"),
        )
        if code:
            raise AuditFailedError(f"sterna snapshot create ended with {code}:\n{said}")

    async def verdict(self) -> tuple[bool, str]:
        """Runs all audits; whether nothing is violated, and what they say.

        Raises:
            AuditFailedError: they could not be run.
        """
        code, said = await _run(
            *("-m", "sterna_audit.main", "run", "--snapshots", str(self.folder / "snapshots")),
            *("--ledgers", str(self.ledgers), "--key", str(self._public)),
            *("--out", str(self.report), "--master", _MASTER),
        )
        if code not in (0, 8):
            raise AuditFailedError(f"sterna-audit run ended with {code}:\n{said}")
        return code == 0, said


async def _run(*arguments: str) -> tuple[int, str]:
    """A command's exit status, and what it said: where it failed, its last words."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        out, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        raise
    code = process.returncode or 0
    said = out if code in (0, 8) else out + errors
    lines = said.decode(errors="replace").splitlines()
    return code, "\n".join(lines if code in (0, 8) else lines[-_ERROR_LINES:])
