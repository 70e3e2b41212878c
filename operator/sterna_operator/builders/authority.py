"""Certificates that the operator makes itself: an authority for each purpose, and what it issues.

The authority's key is in a Secret of its own, which no pod mounts. What is issued lives a year, and is made anew when
two thirds of that have passed, or when it is to name other hosts; whoever shows it takes it up without a restart. An
authority is made anew when its Secret is gone or about to end. What the former one has issued is shown on until it has
to be made anew for another reason, and the former one's certificate stands beside the new one's: who trusts the former
alone goes on, and has until then to learn of the new one.
"""

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE, KEY, AUTHORITY = "tls.crt", "tls.key", "ca.crt"
DAYS = 365
AUTHORITY_DAYS = 3650
# What was issued by something else for longer is made anew: charts of before made certificates for ten years.
_DAYS_MAX = 400
# An authority has to outlive what it issues.
_AUTHORITY_REST = datetime.timedelta(days=DAYS + 30)
_SKEW = datetime.timedelta(hours=1)
_FORMER_MAX = 1
_USAGES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}

Data = Mapping[str, bytes]


@dataclass(frozen=True)
class Order:
    """A certificate that is wanted."""

    secret: str
    name: str
    """Its common name."""

    usage: str
    """`server` or `client`."""

    hosts: tuple[str, ...] = ()
    """The names and addresses that it is for."""


@dataclass(frozen=True)
class _Pair:
    certificate: x509.Certificate
    key: PrivateKeyTypes

    @property
    def data(self) -> dict[str, bytes]:
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return {CERTIFICATE: self.certificate.public_bytes(Encoding.PEM), KEY: key}


def issued(
    authority: str, orders: Sequence[Order], standing: Mapping[str, Data | None], now_ms: int
) -> dict[str, dict[str, bytes]]:
    """What has to be written: Secrets by their names, with all that they are to have. Nothing, once all is right.

    `authority`: the name of its Secret. `orders`: at least one. `standing`: the Secrets as they are.
    """
    now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)
    made: dict[str, dict[str, bytes]] = {}
    ca = _pair(standing.get(authority))
    if ca is None or not _is_authority(ca.certificate, now):
        ca = _made(f"{authority} {now:%Y-%m-%d}", now, AUTHORITY_DAYS, None)
        made[authority] = ca.data
    trusted = {}
    for order in orders:
        before = (standing.get(order.secret) or {}).get(AUTHORITY, b"")
        trusted[order.secret] = [ca.certificate, *_former(ca, before, now)]
    # What is shown has to be trusted by every other: one may have lost what it knew of the former authority.
    issuers = [one for one in trusted[orders[0].secret] if all(one in known for known in trusted.values())]
    for order in orders:
        data = standing.get(order.secret) or {}
        text = b"".join(one.public_bytes(Encoding.PEM) for one in trusted[order.secret])
        if not _is_right(_pair(data), issuers, order, now):
            made[order.secret] = {**_made(order.name, now, DAYS, ca, order).data, AUTHORITY: text}
        elif data.get(AUTHORITY) != text:
            made[order.secret] = {CERTIFICATE: data[CERTIFICATE], KEY: data[KEY], AUTHORITY: text}
    return made


def _pair(data: Data | None) -> _Pair | None:
    """A certificate with its key; None: there is none such that could be used."""
    try:
        certificate = x509.load_pem_x509_certificate((data or {})[CERTIFICATE])
        key = load_pem_private_key((data or {})[KEY], None)
    except (KeyError, ValueError, TypeError):
        return None
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    is_pair = key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)
    return _Pair(certificate, key) if is_pair else None


def _is_authority(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    """Whether it can issue. One that begins later was made by a clock that was ahead: nobody would believe it yet."""
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc - _AUTHORITY_REST:
        return False
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _former(ca: _Pair, before: bytes, now: datetime.datetime) -> list[x509.Certificate]:
    """Who was the authority before, and has not ended."""
    try:
        known = x509.load_pem_x509_certificates(before)
    except ValueError:
        known = []
    former = [one for one in known if one != ca.certificate and _is_in_force(one, now)]
    return former[:_FORMER_MAX]


def _is_in_force(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _is_right(pair: _Pair | None, issuers: Sequence[x509.Certificate], order: Order, now: datetime.datetime) -> bool:
    if pair is None:
        return False
    certificate = pair.certificate
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if end - begin > datetime.timedelta(days=_DAYS_MAX) or now > begin + (end - begin) * 2 / 3 or now < begin:
        return False
    if not any(_is_issued_by(certificate, one) for one in issuers):
        return False
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return not order.hosts
    except ValueError:
        return False
    return {str(one.value) for one in names} == set(order.hosts)


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _made(name: str, now: datetime.datetime, days: int, ca: _Pair | None, order: Order | None = None) -> _Pair:
    """A certificate with a key of its own; `ca` None: it is an authority itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    signer = ca.key if ca is not None else key
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.certificate.subject if ca is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now - _SKEW + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=0 if ca is None else None), critical=True)
        .add_extension(_key_usage(is_authority=ca is None), critical=True)
        .add_extension(own_id, critical=False)
        .add_extension(_issuer_id(ca, own_id), critical=False)
    )
    if order is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([_USAGES[order.usage]]), critical=False)
    if order is not None and order.hosts:
        names = [_general_name(host) for host in order.hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _Pair(builder.sign(signer, hashes.SHA256()), key)  # type: ignore[arg-type]


def _issuer_id(ca: _Pair | None, own: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    """As the authority's certificate says it: who made that may have computed it in another way."""
    if ca is None:
        return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
    try:
        its = ca.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        its = x509.SubjectKeyIdentifier.from_public_key(ca.certificate.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(its)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        key_encipherment=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
