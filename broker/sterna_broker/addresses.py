"""Where to listen: `host:port`; beyond this machine only with TLS and users, or when told to go without."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

_PORT_MAX = 65_535


class AddressError(ValueError):
    """An address that cannot be used; the text says why."""


@dataclass(frozen=True)
class Address:
    """A host and a port; port 0 asks for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def single(self) -> "Address":
        """One address where the name means two: which of them would a client find?"""
        return Address("127.0.0.1", self.port) if self.host == "localhost" else self


def parse(text: str, what: str, missing: Sequence[str]) -> Address:
    """An address from a flag or manifest; `what` names it in errors.

    `missing` is what is not there and has to be where other machines can connect.

    Raises:
        AddressError: it is malformed, or can be reached from elsewhere while something is missing.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise AddressError(f"{what}: '{text}' is no address: write host:port, such as 127.0.0.1:7222")
    host = host or "127.0.0.1"
    if missing and not is_loopback(host):
        raise AddressError(
            f"{what}: '{text}' can be reached from other machines, and the broker has no {' and no '.join(missing)}: "
            "give it what is missing, listen on 127.0.0.1, ::1 or localhost, or accept with --insecure that anybody "
            "who reaches it can read and send"
        )
    return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
