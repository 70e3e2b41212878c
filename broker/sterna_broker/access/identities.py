"""Who a client says it is: by the certificate of its connection, and by the header of a single call.

gRPC hands over what the handshake found as lists of bytes by name; a client certificate is in it only when it was
verified against the client CA.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from sterna_broker.refusals import RefusedError

CertificateUser = Literal["off", "cn", "dns", "email", "uri"]
"""Which name of a client's certificate is the user; off: none, it only lets the client talk."""

AuthContext = Mapping[str, Iterable[bytes]]

_PROPERTIES: dict[CertificateUser, tuple[str, str]] = {
    "cn": ("x509_common_name", "common name (CN)"),
    "dns": ("peer_dns", "DNS name"),
    "email": ("peer_email", "mail address"),
    "uri": ("peer_uri", "URI"),
}
_HEADER = "authorization"
_HEADER_CHARACTERS_MAX = 12_000


@dataclass(frozen=True)
class Claim:
    """What a client gives to be let in; all empty: nothing."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


def host_of(peer: str) -> str:
    """The host of a peer as gRPC writes it (`ipv4:10.0.0.7:40312`): what failures are counted by."""
    return peer.rpartition(":")[0] or peer


def certificate_user(context: AuthContext, how: CertificateUser) -> str:
    """The user by the client's certificate; empty when names of certificates do not count.

    Raises:
        RefusedError: the certificate has no such name, or several.
    """
    if how == "off":
        return ""
    name, what = _PROPERTIES[how]
    found = [one.decode("utf-8", "replace") for one in context.get(name, ())]
    if len(found) != 1 or not found[0]:
        count = "none" if not any(found) else str(len(found))
        raise RefusedError(
            "UNAUTHENTICATED",
            "certificate",
            f"The user is the {what} of the client certificate, and this one has {count}.",
            f"Use a certificate with one {what}.",
        )
    return found[0]


def claim_of_call(metadata: Iterable[tuple[str, str | bytes]]) -> Claim:
    """What a single call gives, in its metadata: `authorization: Basic base64(user:password)`, or `Bearer token`.

    Raises:
        RefusedError: the header cannot be read.
    """
    values = [value for key, value in metadata if key == _HEADER]
    if not values:
        return Claim()
    if len(values) > 1 or not isinstance(values[0], str):
        raise _unreadable()
    return claim_of_header(values[0])


def claim_of_header(value: str) -> Claim:
    """The same for the header's value, which is that of HTTP.

    Raises:
        RefusedError: it cannot be read.
    """
    scheme, _, rest = value.strip().partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return Claim(token=rest.strip())
    if scheme.lower() != "basic" or len(rest) > _HEADER_CHARACTERS_MAX:
        raise _unreadable()
    try:
        user, colon, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _unreadable() from error
    if not colon:
        raise _unreadable()
    return Claim(user, password)


def _unreadable() -> RefusedError:
    return RefusedError(
        "UNAUTHENTICATED",
        _HEADER,
        "The authorization header cannot be read.",
        "Write 'authorization: Basic …' once, with user:password in base64.",
    )
