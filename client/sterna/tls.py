"""TLS of a connection: which authority to trust, and which certificate to show.

Files are read at each dial, so a renewed certificate is used from the next one on, without anything being told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna import errors

Pem = str | Path | bytes
"""A file's name, or the PEM itself: as bytes, or as a text, as the environment has it."""
_BEGIN = "-----BEGIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What `connect` needs to know for `sternas://`. Keys never show in its representation.

    `ca` is whom to trust (None: the authorities that gRPC comes with); `certificate` with its chain and `key` are
    shown to a broker that asks clients for one; `server_name` is the name that the broker's certificate has to have,
    where it differs from the address. Each may be a file's name, or the PEM itself.
    """

    ca: Pem | None = field(default=None, repr=False)
    certificate: Pem | None = field(default=None, repr=False)
    key: Pem | None = field(default=None, repr=False)
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            given, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            cause = f"a {given} was given without its {missing}"
            raise errors.InvalidArgumentError(cause, subject="tls", remedy="give both, or neither")

    def load(self) -> LoadedTls:
        """Reads the files; not for the event loop.

        Raises:
            TlsError: one cannot be read; `subject` names it.
        """
        ca, certificate, key = (_read(name, getattr(self, name)) for name in ("ca", "certificate", "key"))
        return LoadedTls(ca, certificate, key, self.server_name)


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """The same with what the files hold."""

    ca: bytes | None = field(repr=False)
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)
    server_name: str

    def credentials(self) -> Any:
        """As gRPC wants it."""
        import grpc

        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)


def is_file(pem: Pem | None) -> bool:
    """Whether it is the name of a file."""
    return isinstance(pem, Path) or (isinstance(pem, str) and not pem.lstrip().startswith(_BEGIN))


def _read(name: str, pem: Pem | None) -> bytes | None:
    if pem is None or isinstance(pem, bytes):
        return pem
    if isinstance(pem, str) and not is_file(pem):
        return pem.encode()
    try:
        content = Path(pem).read_bytes()
    except OSError as error:
        cause = f"cannot read {name} {pem}: {error.strerror or error}"
        raise errors.TlsError(cause, subject=f"tls.{name}", remedy="name a readable file in PEM") from error
    if _BEGIN.encode() not in content:
        raise errors.TlsError(f"{name} {pem} holds no PEM", subject=f"tls.{name}", remedy="name a file in PEM")
    return content
