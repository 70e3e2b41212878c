"""Which broker a command speaks to, and as whom: options that every such command has, put together in one place.

A command takes a `Server` named `server`; `with_server` gives it the options in its place. So each has one spelling,
one help text and one default, and no command ever holds a password.
"""

import functools
import getpass
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

import sterna
from sterna import admin
from sterna.cli.exits import usage
from sterna.targets import DEFAULT_URL, Given, Target, resolve_all
from sterna.urls import parse_url

_PANEL = "Connection"


def _option(*names: str, metavar: str, help: str) -> Any:  # noqa: A002 - typer's own word
    return typer.Option(*names, metavar=metavar, help=help, rich_help_panel=_PANEL, show_default=False)


_OPTIONS: dict[str, Any] = {
    "url": _option(
        *("--server", "-s"),
        metavar="URL",
        help="The broker, as sterna://host:port or sternas://host:port; else STERNA_URL, a context, or this machine.",
    ),
    "context": _option("--context", metavar="NAME", help="A broker of 'sterna context list'; else STERNA_CONTEXT."),
    "user": _option("--user", metavar="NAME", help="Who connects; else STERNA_USER."),
    "password_file": _option(
        "--password-file",
        metavar="FILE",
        help="The password's file; else STERNA_PASSWORD_FILE or STERNA_PASSWORD, or it is asked for.",
    ),
    "ca": _option("--ca", metavar="FILE", help="The authority to trust, in PEM; else STERNA_CA."),
    "cert": _option("--cert", metavar="FILE", help="The certificate to show, in PEM; else STERNA_CERT."),
    "key": _option("--key", metavar="FILE", help="Its key, in PEM; else STERNA_KEY."),
    "server_name": _option("--server-name", metavar="NAME", help="The name in the broker's certificate."),
}


@dataclass(frozen=True)
class Server:
    """What was found out about the broker."""

    target: Target

    def connect(self, **options: Any) -> "sterna.Connection":
        """As `sterna.connect`, there."""
        from sterna.connections import connect_to

        return connect_to(self.target, **options)

    def admin(self, *, timeout: float) -> admin.Admin:
        """As `sterna.admin.connect`, there."""
        return admin.Admin(self.target, timeout=timeout)

    def naming(self, *, timeout: float) -> "sterna.Naming":
        """As `sterna.Naming`, there."""
        from sterna.naming import Naming

        return Naming.at(self.target, timeout=timeout)


# The default of the parameter that `with_server` takes away; nobody is ever given it.
THIS_MACHINE = Server(Target(parse_url(DEFAULT_URL), "", "", None))


def with_server(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options above in place of its `server`."""

    @functools.wraps(command)
    def wrapped(**arguments: Any) -> None:
        given = {name: arguments.pop(f"server_{name}") for name in _OPTIONS}
        command(server=_server(given), **arguments)

    signature = inspect.signature(command)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.name != "server":
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        for name, option in _OPTIONS.items():
            annotation = Annotated[str, option]
            parameters.append(
                inspect.Parameter(f"server_{name}", inspect.Parameter.KEYWORD_ONLY, default="", annotation=annotation)
            )
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {one.name: one.annotation for one in parameters}
    # Typer would look at the command's own signature.
    del wrapped.__dict__["__wrapped__"]
    return wrapped


def _server(values: dict[str, str]) -> Server:
    url, context = values.pop("url"), values.pop("context")
    target = resolve_all(url, Given.of(values), context=context)
    if values["user"] and not target.password and not (target.tls and target.tls.certificate):
        target = Target(target.url, target.user, _ask(target.user), target.tls)
    return Server(target)


def _ask(user: str) -> str:
    if not sys.stdin.isatty() or os.environ.get("STERNA_PASSWORD") is not None:
        raise usage(f"there is no password for {user}", "give --password-file, STERNA_PASSWORD_FILE or STERNA_PASSWORD")
    return getpass.getpass(f"Password of {user}: ")
