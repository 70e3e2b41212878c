"""The files by which etcd and we know each other, read and looked at before gRPC gets them.

What gRPC cannot use it names in lines of its own on stderr, at each attempt to connect, and all that its caller learns
is that nobody could be connected to.
"""

from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from sterna_etcd.errors import AccessError
from sterna_etcd.settings import EtcdSettings


class Credentials(NamedTuple):
    """PEM, in the order in which gRPC takes it."""

    ca: bytes | None
    key: bytes | None
    cert: bytes | None


def load(settings: EtcdSettings) -> Credentials:
    """Reads and checks the files. Touches the disk, and computes: not for the event loop.

    Raises:
        AccessError: one cannot be read, or not be used; the text names it and holds nothing of a key.
    """
    ca, key, cert = (_content(file) for file in (settings.ca, settings.key, settings.cert))
    if settings.ca is not None and ca is not None:
        # Of those after the first gRPC takes what it can: bundles hold all sorts of them.
        _first_certificate(settings.ca, ca)
    if settings.cert is not None and settings.key is not None and cert is not None and key is not None:
        _check_key(settings.key, key, settings.cert, _first_certificate(settings.cert, cert))
    return Credentials(ca, key, cert)


def check(settings: EtcdSettings) -> None:
    """Whether all files that the settings name can be used, the password's among them; otherwise as `load`."""
    load(settings)
    if settings.password_file is not None:
        _content(settings.password_file)


def _content(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes()
    except OSError as error:
        raise unreadable(error) from error


def unreadable(error: OSError) -> AccessError:
    """What to say of a file that cannot be read."""
    return AccessError(f"etcd: {error.filename} cannot be read: {error.strerror}")


def _first_certificate(file: Path, content: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise AccessError(f"etcd: {file} holds no certificate in PEM that can be read") from error


def _check_key(file: Path, content: bytes, cert_file: Path, cert: x509.Certificate) -> None:
    try:
        private = load_pem_private_key(content, password=None)
    except TypeError as error:
        raise AccessError(f"etcd: {file} is encrypted, and nobody is here to type its password") from error
    except ValueError as error:
        # The library's words are left out: they may quote what the file holds.
        raise AccessError(f"etcd: {file} holds no private key in PEM") from error
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != cert.public_key().public_bytes(*form):
        raise AccessError(f"etcd: {file} is not the key of the first certificate in {cert_file}")
