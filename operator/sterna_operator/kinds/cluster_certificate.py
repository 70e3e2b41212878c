"""Whether the certificates that brokers mount can be used, and until when: from the Secrets, before a broker tries.

A broker that runs goes on with the certificate that it has read; one that starts with a broken one ends at once. So a
change that would restart brokers waits while a Secret does not parse. Expired certificates are another matter: brokers
take them, and clients do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from sterna_operator import conditions
from sterna_operator.builders import brokers as broker_builder
from sterna_operator.builders.blueprint import Blueprint
from sterna_operator.conditions import Condition
from sterna_operator.words import counted

CERTIFICATE_VALID = "CertificateValid"

_DAY_MS = 86_400_000
SOON_DAYS = 14
"""A certificate that has less time than this is spoken of."""


@dataclass(frozen=True)
class Judged:
    """What is known of the certificates of a cluster."""

    broken: str = ""
    """Why a broker could not start with what is mounted; empty: it could."""

    has_expired: bool = False
    not_after_ms: int | None = None
    """The end of the brokers' own certificate; None: there is none that can be read."""

    now_ms: int = 0

    @property
    def is_soon(self) -> bool:
        """Whether it ends soon, or has."""
        return self.not_after_ms is not None and self.not_after_ms - self.now_ms < SOON_DAYS * _DAY_MS

    @property
    def fault(self) -> str:
        """What somebody has to see to; empty: nothing."""
        if self.broken:
            return (
                f"{self.broken}. Brokers that run go on with what they have read; none is restarted until it is right"
            )
        return (
            f"the certificate that brokers show has ended, at {self._end}: clients refuse it"
            if self.has_expired
            else ""
        )

    @property
    def note(self) -> str:
        """What is worth saying although nothing is wrong yet."""
        return f"the certificate ends at {self._end}" if self.is_soon and not self.fault else ""

    def condition(self) -> Condition:
        """CertificateValid."""
        if self.broken:
            return Condition(CERTIFICATE_VALID, "False", "Broken", self.broken)
        if self.has_expired:
            return Condition(CERTIFICATE_VALID, "False", "Expired", f"since {self._end}")
        reason = "ExpiresSoon" if self.is_soon else "Valid"
        if self.not_after_ms is None:
            return Condition(CERTIFICATE_VALID, "True", reason)
        left = counted(days_left(self.not_after_ms, self.now_ms), "day")
        return Condition(CERTIFICATE_VALID, "True", reason, f"until {self._end}: {left} left")

    @property
    def _end(self) -> str:
        return conditions.timestamp(self.not_after_ms or 0)


def days_left(not_after_ms: int, now_ms: int) -> int:
    """Whole days until a certificate ends; less than 0: it has ended."""
    return (not_after_ms - now_ms) // _DAY_MS


def judge(blueprint: Blueprint, secrets: Mapping[str, Mapping[str, bytes] | None], now_ms: int) -> Judged | None:
    """None: the cluster has no TLS. A Secret that is not there is not this module's."""
    if blueprint.spec.tls is None and blueprint.etcd_ca is None:
        return None
    own = secrets.get(blueprint.tls_secret or "") or {}
    end = _end(own.get("tls.crt", b""))
    broken = [
        fault
        for secret, files in broker_builder.mounted_files(blueprint)
        if (data := secrets.get(secret)) is not None and (fault := _fault(secret, files, data))
    ]
    return Judged("; ".join(broken), end is not None and end < now_ms, end, now_ms)


def _fault(secret: str, files: Mapping[str, str], data: Mapping[str, bytes]) -> str:
    """What is wrong with what is mounted from a Secret; empty: nothing. `files`: keys by the names of files."""
    label = f"Secret {secret}"
    lacks = [key for key in files.values() if not data.get(key)]
    if lacks:
        return f"{label} has no {lacks[0]}"
    found: dict[str, x509.Certificate] = {}
    for name, key in files.items():
        if name.endswith(".crt"):
            try:
                found[name] = x509.load_pem_x509_certificates(data[key])[0]
            except ValueError as error:
                return f"{label}: {key} is no certificate that can be read ({_first_line(error)})"
    if "tls.key" not in files:
        return ""
    try:
        private = load_pem_private_key(data[files["tls.key"]], None)
    except (ValueError, TypeError) as error:
        return f"{label}: {files['tls.key']} is no key that can be read ({_first_line(error)})"
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*form) != found["tls.crt"].public_key().public_bytes(*form):
        return f"{label}: {files['tls.key']} is not the key of {files['tls.crt']}"
    return ""


def _end(pem: bytes) -> int | None:
    try:
        return int(x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc.timestamp() * 1000)
    except ValueError:
        return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
