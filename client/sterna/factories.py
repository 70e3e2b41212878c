"""Connection factories: how to connect, as a broker keeps it under a name; made by `sterna.lookup`.

    factory = await sterna.lookup("orders", "sterna://127.0.0.1:7222")
    async with factory.connect(user="billing", password=secret) as connection:
        ...

A factory has the settings of `connect` and no credentials: these are the program's own. What a program gives comes
before what the factory says, but for the URL, which is the reason why there are factories (EMS-CLI-B01).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sterna import errors
from sterna._surroundings import uniform
from sterna.options import Reconnect
from sterna.tls import Tls, is_file
from sterna.urls import parse_url

if TYPE_CHECKING:
    from sterna.connections import Connection

__all__ = ["ConnectionFactory"]

_MS = 1000
#: What a factory may say of a connection, as `connect` calls it.
_SETTINGS = (
    "client_id",
    "connect_attempts",
    "connect_delay_ms",
    "connect_timeout_s",
    "reconnect",
    "heartbeat_ms",
    "tls",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFactory:
    """What a broker keeps. None, or empty: it says nothing of it, and what `connect` has by itself holds.

    `tls` names files of this machine; they are read when a connection dials.
    """

    name: str
    url: str
    load_balancing: Literal["none", "random"] = "none"
    client_id: str = ""
    connect_attempts: int | None = None
    connect_delay_ms: int | None = None
    connect_timeout_s: float | None = None
    reconnect: Reconnect | None = None
    heartbeat_ms: int | None = None
    tls: Tls | None = None

    def connect(self, **options: Any) -> Connection:
        """A connection as the factory says; `await` it, or use `async with`. Its options are those of `sterna.connect`.

        Raises:
            InvalidArgumentError: another URL is given, or something that does not go together.
        """
        from sterna.connections import connect

        return connect(self._drawn_url(), **self._settings(options))

    def _settings(self, given: dict[str, Any]) -> dict[str, Any]:
        """The options for `sterna.connect` beside the URL: what is given before what the factory says.

        Raises:
            InvalidArgumentError: a URL is given.
        """
        if "url" in given:
            cause = f"the connection factory {self.name!r} says where to connect"
            raise errors.InvalidArgumentError(cause, subject="url", remedy="change the factory, or use sterna.connect")
        said = {name: value for name in _SETTINGS if (value := getattr(self, name)) not in (None, "")}
        return {**said, **given}

    def _drawn_url(self) -> str:
        """The URL for one connection: with random load balancing, the parts between plus signs in an order by lot.

        It is put together of the parts as they stand: with the ports that they leave out it might be too long for one.
        """
        if self.load_balancing != "random":
            return self.url
        parse_url(self.url)
        place, question, options = self.url.partition("?")
        scheme, separator, addresses = place.rpartition("://")
        groups = sorted(addresses.removesuffix("/").split("+"), key=lambda _: uniform(0.0, 1.0))
        return f"{scheme}{separator}{'+'.join(groups)}{question}{options}"


def factory_of(answer: Any) -> ConnectionFactory:
    """The value of a `ConnectionFactory` of the contract.

    Raises:
        ProtocolError: it says what no factory may. Nothing of it is repeated: it may be somebody's secret.
    """
    if "?" in answer.url or "@" in answer.url:
        # Options of a URL name files whose content is sent as a password: that is the program's to say alone.
        raise errors.ProtocolError("the broker's connection factory has more in its URL than addresses", subject="url")

    def said(field: str) -> int | None:
        return getattr(answer, field) if answer.HasField(field) else None

    timeout_ms = said("connect_timeout_ms")
    return ConnectionFactory(
        name=answer.name,
        url=answer.url,
        load_balancing="random" if answer.load_balancing == 1 else "none",
        client_id=answer.client_id,
        connect_attempts=said("connect_attempts"),
        connect_delay_ms=said("connect_delay_ms"),
        connect_timeout_s=None if timeout_ms is None else timeout_ms / _MS,
        reconnect=_reconnect(said),
        heartbeat_ms=said("heartbeat_ms"),
        tls=_tls(answer.tls) if answer.HasField("tls") else None,
    )


def _reconnect(said: Any) -> Reconnect | None:
    """None: the factory says nothing of it. What it leaves out is as in `Reconnect` itself."""
    first, longest, give_up = (said(f"reconnect_{name}_ms") for name in ("delay", "delay_max", "give_up"))
    if (first, longest, give_up) == (None, None, None):
        return None
    own = Reconnect()
    return Reconnect(
        initial_ms=own.initial_ms if first is None else first,
        maximum_ms=own.maximum_ms if longest is None else longest,
        give_up_after_s=own.give_up_after_s if give_up is None else give_up / _MS or None,
    )


def _tls(answer: Any) -> Tls:
    if not all(is_file(name) for name in (answer.ca_file, answer.certificate_file, answer.key_file)):
        cause = "the broker's connection factory holds what should stand in the files that it names"
        raise errors.ProtocolError(cause, subject="tls")
    return Tls(
        ca=answer.ca_file or None,
        certificate=answer.certificate_file or None,
        key=answer.key_file or None,
        server_name=answer.server_name,
    )
