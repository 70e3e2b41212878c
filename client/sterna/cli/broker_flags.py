"""The flags of `sterna broker` that decide who is let in, each with its twin in the environment."""

import enum
from pathlib import Path
from typing import Annotated

import typer


class CertificateUser(enum.StrEnum):
    """Which name of a client's certificate is the user."""

    OFF = "off"
    CN = "cn"
    DNS = "dns"
    EMAIL = "email"
    URI = "uri"


_PREFIX = "STERNA_BROKER_"

TlsCert = Annotated[
    Path | None, typer.Option(envvar=f"{_PREFIX}TLS_CERT", metavar="FILE", help="The certificate with its chain, PEM.")
]
TlsKey = Annotated[Path | None, typer.Option(envvar=f"{_PREFIX}TLS_KEY", metavar="FILE", help="Its private key, PEM.")]
ClientCa = Annotated[
    Path | None,
    typer.Option(envvar=f"{_PREFIX}CLIENT_CA", metavar="FILE", help="Clients must show a certificate of it."),
]
CertificateUserFlag = Annotated[
    CertificateUser | None,
    typer.Option(
        "--certificate-user",
        envvar=f"{_PREFIX}CERTIFICATE_USER",
        metavar="NAME",
        help="The name of a client's certificate that is the user: cn, dns, email, uri; or off.",
    ),
]
Users = Annotated[
    Path | None,
    typer.Option(envvar=f"{_PREFIX}USERS", metavar="FILE", help="Names with hashes of 'sterna hash-password'."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", envvar=f"{_PREFIX}INSECURE", help="Listen beyond this machine without TLS or users."),
]
Reflection = Annotated[
    bool, typer.Option(envvar=f"{_PREFIX}REFLECTION", help="The gRPC reflection service, for grpcurl.")
]
OpenMetrics = Annotated[
    bool, typer.Option("--open-metrics", envvar=f"{_PREFIX}OPEN_METRICS", help="/metrics for whoever asks.")
]
