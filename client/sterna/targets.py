"""Where to connect, as whom and how: put together from what is given, the environment and contexts.

Each value is looked for in this order: what is given in the call or on the command line; the options of the URL; the
environment; the context. A context is a bundle: its credentials go to no URL but its own. `connect(url)` with a URL
looks neither at the environment nor at contexts, so that credentials meant for one broker never go to another.

    STERNA_URL, STERNA_USER, STERNA_PASSWORD, STERNA_PASSWORD_FILE, STERNA_CA, STERNA_CERT, STERNA_KEY,
    STERNA_SERVER_NAME, STERNA_CONTEXT
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from sterna import contexts, errors
from sterna._channels import is_loopback
from sterna._secrets import Secret, SecretFile
from sterna.events import logger
from sterna.tls import Pem, Tls
from sterna.urls import Url, parse_url

DEFAULT_URL = "sterna://localhost:7222"
_ENVIRONMENT = ("user", "password", "password_file", "ca", "cert", "key", "server_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One source of values; empty: not given here."""

    user: str = ""
    password: Secret = field(default="", repr=False)
    password_file: str = ""
    token: Secret = field(default="", repr=False)
    """Only looked at: whoever gives one has it, and no other source does."""
    ca: Pem = ""
    cert: Pem = ""
    key: Pem = field(default="", repr=False)
    server_name: str = ""

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Given:
        """From names and texts; other names are left out."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if values.get(one.name)})


@dataclass(frozen=True, slots=True)
class Target:
    """What holds."""

    url: Url
    user: str
    password: Secret = field(repr=False)
    tls: Tls | None

    @property
    def addresses(self) -> tuple[str, ...]:
        """All addresses, in the order in which they are tried."""
        return self.url.addresses


def resolve(url: str | None = None, given: Given | None = None, *, context: str = "", tls: Tls | None = None) -> Target:
    """As `connect` has it: with a URL that alone; without, the environment and the context.

    Raises:
        InvalidArgumentError: a value is wrong, or two do not go together.
    """
    if url is not None:
        return _combine(url, [given or Given()], tls)
    return resolve_all("", given, context=context, tls=tls)


def resolve_all(url: str = "", given: Given | None = None, *, context: str = "", tls: Tls | None = None) -> Target:
    """As the command line has it: what is missing beside the URL comes from the environment, too.

    Raises:
        InvalidArgumentError: a value is wrong, or two do not go together.
    """
    layers = [given or Given()]
    environment = Given.of({name: os.environ.get(f"STERNA_{name.upper()}", "") for name in _ENVIRONMENT})
    if url and context:
        cause = "a URL and a context were given, and a context is for its own URL alone"
        raise errors.InvalidArgumentError(cause, subject="context", remedy="leave one of them out")
    if context:
        chosen = contexts.load().context(context)
        return _combine(chosen.url, [*layers, Given.of(chosen.values), environment], tls)
    if url or os.environ.get("STERNA_URL"):
        return _combine(url or os.environ["STERNA_URL"], [*layers, environment], tls)
    current = contexts.load().current_context(os.environ.get("STERNA_CONTEXT", ""))
    if current is not None:
        return _combine(current.url, [*layers, environment, Given.of(current.values)], tls)
    return _combine(DEFAULT_URL, [*layers, environment], tls)


def _combine(url: str, layers: list[Given], tls: Tls | None) -> Target:
    parsed = parse_url(url)
    # What is given comes before the URL's options, and those before all else.
    layers = [layers[0], Given.of(parsed.options), *layers[1:]]
    user = next((one.user for one in layers if one.user), "")
    password = next((secret for one in layers if (secret := _password(one))), "")
    if tls is None:
        tls = _tls(layers, secure=parsed.secure)
    elif not parsed.secure:
        cause = "tls was given for a URL without TLS"
        raise errors.InvalidArgumentError(cause, subject="tls", remedy="write sternas:// in place of sterna://")
    if (password or layers[0].token) and not parsed.secure and not all(is_loopback(one) for one in parsed.addresses):
        what = "token" if layers[0].token else "password"
        logger.warning("the %s for %s travels without TLS: whoever is on the way can read it", what, parsed)
    return Target(parsed, user, password, tls)


def _password(given: Given) -> Secret:
    if given.password and given.password_file:
        cause = "a password and a file with a password were given"
        raise errors.InvalidArgumentError(cause, subject="password", remedy="leave one of them out")
    return SecretFile(given.password_file) if given.password_file else given.password


def _tls(layers: list[Given], *, secure: bool) -> Tls | None:
    if not secure:
        given = next((name for name in ("ca", "cert", "key", "server_name") if getattr(layers[0], name)), "")
        if given:
            cause = f"{given} was given for a URL without TLS"
            raise errors.InvalidArgumentError(cause, subject=given, remedy="write sternas:// in place of sterna://")
        return None
    ca = next((one.ca for one in layers if one.ca), None)
    # A certificate and its key come from one place, or they would not fit.
    pair = next(((one.cert, one.key) for one in layers if one.cert or one.key), ("", ""))
    name = next((one.server_name for one in layers if one.server_name), "")
    return Tls(ca=ca, certificate=pair[0] or None, key=pair[1] or None, server_name=name)
