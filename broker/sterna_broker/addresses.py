"""Where to listen: `host:port`, loopback only until there are TLS and users."""

import ipaddress
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


def parse(text: str, what: str) -> Address:
    """An address from a flag or manifest; `what` names it in errors.

    Raises:
        AddressError: it is malformed, or not this machine alone.
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > _PORT_MAX:
        raise AddressError(f"{what}: '{text}' is no address: write host:port, such as 127.0.0.1:7222")
    host = host or "127.0.0.1"
    if not _is_loopback(host):
        raise AddressError(
            f"{what}: '{text}' can be reached from other machines, and this version has neither TLS nor users yet: "
            "listen on 127.0.0.1, ::1 or localhost"
        )
    # One name, two addresses: which of them would a client find?
    return Address("127.0.0.1" if host == "localhost" else host, int(port))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
