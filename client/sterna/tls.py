"""TLS of a connection: which authority to trust, and which certificate to show.

Files are read at each dial, so a renewed certificate is used from the next one on, without anything being told.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna import errors

Pem = str | Path | bytes
"""A file's name, or the PEM itself: as bytes, or as a text, as the environment has it."""
_BEGIN = "-----BEGIN"
_CERTIFICATE = re.compile(
    rb"-----BEGIN (?P<kind>(?:X509 |TRUSTED )?CERTIFICATE)-----.*?-----END (?P=kind)-----", re.DOTALL
)


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
            TlsError: one cannot be read, or gRPC could not use what it holds; `subject` names it.
        """
        ca, certificate, key = (_read(name, getattr(self, name)) for name in ("ca", "certificate", "key"))
        # gRPC would only write lines of its own to stderr, at each attempt, and say that nobody answered.
        for name, pem in (("ca", ca), ("certificate", certificate)):
            if pem is not None and not _begins_with_certificate(pem):
                raise self._useless(
                    name, "holds no certificate that can be read", "name a file with certificates in PEM"
                )
        if certificate is not None and key is not None:
            self._check_pair(certificate, key)
        return LoadedTls(ca, certificate, key, self.server_name)

    def _check_pair(self, certificate: bytes, key: bytes) -> None:
        """Whether the key can be read, and belongs to the certificate."""
        if not hasattr(os, "memfd_create"):
            # Python takes both from files alone, and a key is not written to a disk for a better message.
            return
        with _in_memory(certificate) as chain, _in_memory(key) as private:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # How strong they have to be is not judged here.
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
            try:
                context.load_cert_chain(chain, private, password=_nobody_types)
            except (ssl.SSLError, ValueError) as error:
                # Two names for one fault: it depends on whether their kinds are the same.
                if getattr(error, "reason", None) in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
                    remedy = "give the key that the certificate was made for"
                    raise self._useless("key", "does not belong to the certificate", remedy) from error
                remedy = "name a file with the key in PEM, not encrypted"
                raise self._useless("key", "holds no private key that can be read", remedy) from error

    def _useless(self, name: str, fault: str, remedy: str) -> errors.TlsError:
        pem = getattr(self, name)
        return errors.TlsError(
            f"{name} {pem} {fault}" if is_file(pem) else f"{name} {fault}", subject=f"tls.{name}", remedy=remedy
        )


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


def _begins_with_certificate(pem: bytes) -> bool:
    """Whether the first certificate in it can be read: of those after it gRPC takes what it can."""
    first = _CERTIFICATE.search(pem)
    if first is None:
        return False
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=first[0].decode())
    except (ssl.SSLError, ValueError):
        return False
    return True


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """The name of a file with this content, which no disk ever has."""
    number = os.memfd_create("sterna-tls")
    with os.fdopen(number, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{number}"


def _nobody_types() -> str:
    raise ValueError("the key is encrypted")


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
