"""The broker's certificate, its key and the CA of its clients, read from files and checked before they are used.

Files change while the broker runs (a certificate is renewed, a Secret is mounted anew), and for a moment they may not
fit together. So a load is all or nothing: what it returns was read twice with the same outcome, belongs together, and
every fault names flag and file. Whoever loads keeps what it had when a load fails.
"""

import datetime
import hashlib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from sterna_broker.access.errors import AccessError

_FILE_BYTES_MAX = 1024 * 1024
_READS_MAX = 3


@dataclass(frozen=True)
class CertificateFiles:
    """Where they are."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""
        return (self.certificate, self.key, *([self.client_ca] if self.client_ca else []))


@dataclass(frozen=True)
class Certificates:
    """What was read: PEM, and what people want to know of it."""

    chain: bytes
    key: bytes = field(repr=False)
    client_ca: bytes | None
    subject: str
    not_after: datetime.datetime
    context: ssl.SSLContext = field(repr=False, compare=False)
    """For HTTP. A client certificate is looked at when there is one (probes have none)."""

    @property
    def not_after_ms(self) -> int:
        """When the certificate ends, in milliseconds since 1970."""
        return int(self.not_after.timestamp() * 1000)

    @property
    def digest(self) -> str:
        """SHA-256 of the certificate file, in hexadecimal: whoever wrote it sees by it that it is in use."""
        return hashlib.sha256(self.chain).hexdigest()


def load(files: CertificateFiles) -> Certificates:
    """Reads and checks the files. Reads disk and does cryptography: not for the event loop.

    Raises:
        AccessError: naming flag and file.
    """
    for _ in range(_READS_MAX):
        before = _read_all(files)
        try:
            loaded = _check(files, *before)
        except AccessError:
            # Somebody may be in the middle of writing them.
            if _read_all(files) != before:
                continue
            raise
        if _read_all(files) == before:
            return loaded
    raise AccessError(f"--tls-cert {files.certificate}: the files keep changing while they are read")


def _read_all(files: CertificateFiles) -> tuple[bytes, bytes, bytes | None]:
    client_ca = _read("--client-ca", files.client_ca) if files.client_ca else None
    return _read("--tls-cert", files.certificate), _read("--tls-key", files.key), client_ca


def _read(flag: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise AccessError(f"{flag} {path}: {error.strerror or error}") from error
    if len(content) > _FILE_BYTES_MAX:
        raise AccessError(f"{flag} {path}: is larger than {_FILE_BYTES_MAX} bytes")
    if not content.strip():
        raise AccessError(f"{flag} {path}: is empty")
    return content


def _check(files: CertificateFiles, chain: bytes, key: bytes, client_ca: bytes | None) -> Certificates:
    leaf = _parse("--tls-cert", files.certificate, chain)[0]
    _check_key(files, leaf, key)
    if client_ca is not None and files.client_ca is not None:
        _parse("--client-ca", files.client_ca, client_ca)
    return Certificates(
        chain=chain,
        key=key,
        client_ca=client_ca,
        subject=leaf.subject.rfc4514_string() or "(no subject)",
        not_after=leaf.not_valid_after_utc,
        context=_http_context(files),
    )


def _parse(flag: str, path: Path, content: bytes) -> Sequence[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise AccessError(f"{flag} {path}: holds no certificates in PEM: {error}") from error


def _check_key(files: CertificateFiles, leaf: x509.Certificate, key: bytes) -> None:
    try:
        private = load_pem_private_key(key, password=None)
    except TypeError as error:
        fault = (
            "is encrypted, and nobody is here to type its password: keep it unencrypted, for the broker alone to read"
        )
        raise AccessError(f"--tls-key {files.key}: {fault}") from error
    except ValueError as error:
        # The library's words are left out: they may quote what the file holds.
        raise AccessError(f"--tls-key {files.key}: holds no private key in PEM") from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != leaf.public_key().public_bytes(*form):
        fault = f"is not the key of the first certificate in {files.certificate}"
        raise AccessError(f"--tls-key {files.key}: {fault}")


def _http_context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A session that is taken up again would go on with the certificates of before.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
    except (ssl.SSLError, OSError) as error:
        why = getattr(error, "reason", None) or error
        raise AccessError(f"--tls-cert {files.certificate}: cannot be used: {why}") from error
    return context
