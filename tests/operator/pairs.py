"""Certificates with their keys for tests of the operator: made once in a process, so that each telling has the same."""

import tempfile
from functools import cache
from pathlib import Path

from tests.access.authorities import Authority


@cache
def pair(name: str = "one", days: int = 365) -> dict[str, bytes]:
    """The data of a Secret of type kubernetes.io/tls: another name, another certificate."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = Authority(name).issue(Path(folder), name, days=days)
        return {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes()}
