"""Certificates made for tests: an authority, and certificates of it for whoever is named."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """A CA. `issue` writes a certificate and its key into a folder and says where they are."""

    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} CA")])
        now = datetime.datetime.now(datetime.UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now + 365 * _DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        """The CA's own certificate."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, path: Path) -> Path:
        """Writes the CA's own certificate."""
        path.write_bytes(self.pem)
        return path

    def issue(
        self,
        folder: Path,
        name: str = "localhost",
        *,
        alternatives: tuple[str, ...] = ("localhost", "127.0.0.1"),
        days: int = 30,
        password: bytes | None = None,
    ) -> tuple[Path, Path]:
        """A certificate with this common name, and its key, as files of the folder; `days` may be negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY + min(days, 0) * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(one) for one in alternatives]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / "tls.crt", folder / "tls.key"
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        _replace(paths[0], certificate.public_bytes(serialization.Encoding.PEM))
        _replace(
            paths[1],
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption),
        )
        return paths


def _replace(path: Path, content: bytes) -> None:
    """Writes a file as a whole, whoever reads it meanwhile."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content)
    temporary.replace(path)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(text: str) -> x509.GeneralName:
    if "://" in text:
        return x509.UniformResourceIdentifier(text)
    if "@" in text:
        return x509.RFC822Name(text)
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
