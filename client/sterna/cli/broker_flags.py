"""The flags of `sterna broker` that decide who is let in."""

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


TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate with its chain, PEM.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key, PEM.")]
ClientCa = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Clients must show a certificate of it."),
]
CertificateUserFlag = Annotated[
    CertificateUser | None,
    typer.Option(
        "--certificate-user",
        metavar="NAME",
        help="The name of a client's certificate that is the user: cn, dns, email, uri; or off.",
    ),
]
Users = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Names with hashes of 'sterna hash-password'."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Listen beyond this machine without TLS or users."),
]
Reflection = Annotated[bool, typer.Option(help="The gRPC reflection service, for grpcurl.")]
OpenMetrics = Annotated[bool, typer.Option("--open-metrics", help="/metrics for whoever asks.")]
