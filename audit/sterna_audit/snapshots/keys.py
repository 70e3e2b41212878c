"""Who made a snapshot: Ed25519 signatures, with keys in PEM files.

`openssl genpkey -algorithm ed25519 -out key.pem` makes a private key, `openssl pkey -in key.pem -pubout` its public.
A key's id is the sha256 of the public key's 32 bytes, in hexadecimal digits.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

_FILE_BYTES_MAX = 65_536


class KeyFileError(ValueError):
    """A key file cannot be used; the text names the file, and never what is in it."""


class Signer:
    """Signs with one private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public_key = key.public_key()
        self.key_id = key_id(self.public_key)

    def sign(self, data: bytes) -> str:
        """The signature, in base64."""
        return base64.b64encode(self._key.sign(data)).decode()


class Verifier:
    """Checks signatures against the public keys that somebody trusts."""

    def __init__(self, keys: Iterable[Ed25519PublicKey]) -> None:
        self._keys: Mapping[str, Ed25519PublicKey] = {key_id(key): key for key in keys}

    def knows(self, key: str) -> bool:
        """Whether the key of this id is trusted."""
        return key in self._keys

    def is_signed(self, data: bytes, key: str, signature: str) -> bool:
        """Whether a trusted key of this id made the signature."""
        try:
            self._keys[key].verify(base64.b64decode(signature, validate=True), data)
        except (KeyError, InvalidSignature, binascii.Error, ValueError):
            return False
        return True


def key_id(key: Ed25519PublicKey) -> str:
    """What a manifest calls a key."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def read_signer(path: Path) -> Signer:
    """The private key of a PEM file without a password.

    Raises:
        KeyFileError: there is none.
    """
    data = _data(path)
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyFileError(f"{path} is no private key in PEM without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyFileError(f"{path} is no Ed25519 key: openssl genpkey -algorithm ed25519")
    return Signer(key)


def read_verifier(paths: Iterable[Path]) -> Verifier:
    """Whoever signed with one of the public keys of PEM files.

    Raises:
        KeyFileError: one is none.
    """
    return Verifier(read_public_keys(paths))


def read_public_keys(paths: Iterable[Path]) -> list[Ed25519PublicKey]:
    """The public keys of PEM files.

    Raises:
        KeyFileError: one is none.
    """
    keys = []
    for path in paths:
        data = _data(path)
        try:
            key = load_pem_public_key(data)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeyFileError(f"{path} is no public key in PEM") from error
        if not isinstance(key, Ed25519PublicKey):
            raise KeyFileError(f"{path} is no Ed25519 key")
        keys.append(key)
    return keys


def trusted(signer: Signer | None, paths: Iterable[Path]) -> Verifier | None:
    """Whoever signs, and whoever signed with one of the public keys of PEM files; None: there is neither.

    Raises:
        KeyFileError: a file has no such key.
    """
    keys = [*read_public_keys(paths), *([signer.public_key] if signer is not None else [])]
    return Verifier(keys) if keys else None


def _data(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}") from error
