"""Connection URLs: `sterna://host:port[,host:port][+host:port...][?client_id=..&heartbeat_ms=..]`; sternas for TLS.

A comma joins the two members of a pair (one of them is active at a time); a plus joins unrelated brokers (either will
do). The SDK tries all of them in order and goes round; the difference matters to whoever balances load, so it is kept.

Options may hold credentials: so no error repeats them, and the text of a parsed URL leaves them out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from sterna.errors import InvalidArgumentError, UnreachableError

DEFAULT_PORT = 7222
_LENGTH_MAX = 1000
_ACCESS_OPTIONS = ("user", "password", "password_file", "ca", "cert", "key", "server_name")
_OPTIONS = ("client_id", "heartbeat_ms", *_ACCESS_OPTIONS)
_SCHEMES = {"sterna": False, "sternas": True}


@dataclass(frozen=True)
class Url:
    """A parsed connection URL; `groups` holds the alternatives, each the addresses of one broker or pair."""

    groups: tuple[tuple[str, ...], ...]
    options: dict[str, str] = field(default_factory=dict, repr=False)
    secure: bool = False
    """Whether it is TLS."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in the order in which they are tried."""
        return tuple(address for group in self.groups for address in group)

    def __str__(self) -> str:
        return ("sternas://" if self.secure else "sterna://") + "+".join(",".join(group) for group in self.groups)


def _refused(url: str, cause: str, remedy: str) -> InvalidArgumentError:
    return InvalidArgumentError(cause, subject=f"url {url.partition('?')[0]!r}", remedy=remedy)


def parse_address(text: str, url: str) -> str:
    """One `host[:port]` (IPv6 in brackets) with the default port filled in."""
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host += bracket
        if not bracket or (rest and not rest.startswith(":")):
            raise _refused(url, f"{text!r} is no address", "write IPv6 addresses as [::1]:7222")
        port = rest[1:]
    elif ":" in text:
        host, _, port = text.rpartition(":")
        if ":" in host:
            raise _refused(url, f"{text!r} is no address", "write IPv6 addresses as [::1]:7222")
    if not host:
        raise _refused(url, "an address has no host", "write sterna://host:7222")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise _refused(url, f"{port!r} is no port", "write a number from 1 to 65535")
    return f"{host}:{port or DEFAULT_PORT}"


def parse_url(url: str) -> Url:
    """Reads a connection URL.

    Raises:
        InvalidArgumentError: naming what is wrong in it. Credentials in the URL are refused, so that none is logged.
    """
    if len(url) > _LENGTH_MAX:
        raise InvalidArgumentError(f"longer than {_LENGTH_MAX} characters", subject="url")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "sterna", url
    place, _, query = rest.partition("?")
    place = place.removesuffix("/")
    if "@" in place:
        # Said before anything is quoted: what stands before the @ may be a password.
        raise InvalidArgumentError(
            "a connection URL holds no user or password before its host",
            subject="url",
            remedy="pass user= and password= to connect(), or write ?user=NAME&password_file=FILE behind it",
        )
    if scheme not in _SCHEMES:
        raise _refused(url, f"{scheme!r} is no scheme of Sterna's", "write sterna://host:7222")
    groups = tuple(tuple(parse_address(one, url) for one in group.split(",")) for group in place.split("+"))
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
    except ValueError as error:
        raise _refused(url, "cannot read the options", "write ?name=value&name=value") from error
    for name, value in options.items():
        if name not in _OPTIONS:
            raise _refused(url, f"unknown option {name[:40]!r}", f"known are {', '.join(_OPTIONS)}")
        if name.endswith("_ms") and not (value.isascii() and value.isdigit() and int(value) < 2**32):
            raise _refused(url, f"{name}={value!r} is no number of milliseconds", "write a whole number")
    return Url(groups, options, _SCHEMES[scheme])


def named_address(text: str, *, secure: bool) -> str:
    """An address that a broker named, such as `sternas://host:port` or `host:port`, for a connection like this one.

    Raises:
        UnreachableError: it is one without TLS and the connection has TLS, or the other way round: credentials never
            travel less protected than the application said.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return parse_address(text, text)
    if _SCHEMES.get(scheme) is not secure:
        has = "has" if secure else "has no"
        cause = f"the broker names {text}, and this connection {has} TLS"
        raise UnreachableError(cause, subject=text, remedy="use the same for all brokers of a cluster")
    return parse_address(rest, text)
