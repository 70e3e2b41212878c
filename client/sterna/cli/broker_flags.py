"""The flags of `sterna broker`."""

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


class LogFormat(enum.StrEnum):
    """How logs are written to stderr; auto: for people on a terminal, else JSON."""

    AUTO = "auto"
    CONSOLE = "console"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """The least important level that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Data = Annotated[Path, typer.Option("--data", "-d", metavar="FOLDER", help="Where everything is kept.")]
Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FOLDER", help="The manifests; without, clients may create anything."),
]
Settings = Annotated[
    Path | None, typer.Option("--settings", metavar="FILE", help="A Broker manifest, for a member of a cluster.")
]
Name = Annotated[str | None, typer.Option("--name", metavar="NAME", help="As in message ids.")]
Listen = Annotated[str | None, typer.Option("--listen", metavar="HOST:PORT", help="For clients; else 127.0.0.1:7222.")]
Monitor = Annotated[str | None, typer.Option("--monitor", metavar="HOST:PORT", help="For probes; else 127.0.0.1:7280.")]
Drain = Annotated[
    float | None, typer.Option("--drain", metavar="SECONDS", min=0, help="How long a stop waits for clients.")
]
ForceStart = Annotated[
    bool, typer.Option("--force-start", help="Start although records are damaged: each is dropped and reported.")
]
ReadyFile = Annotated[
    Path | None, typer.Option("--ready-file", metavar="FILE", help="Holds the addresses once the broker serves.")
]

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

EtcdUrls = Annotated[
    str,
    typer.Option(
        "--etcd",
        metavar="URLS",
        help="The cluster's etcd, commas between; the configuration then comes from there.",
    ),
]
ClusterName = Annotated[str, typer.Option("--cluster", metavar="NAME", help="The cluster's name.")]
Advertise = Annotated[
    str,
    typer.Option(
        "--advertise",
        metavar="URLS",
        help="Where clients reach this broker, commas between; or @FILE, read again when it changes.",
    ),
]
EtcdCa = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What etcd's certificate is checked with."),
]
EtcdCert = Annotated[Path | None, typer.Option(metavar="FILE", help="The broker's certificate for etcd.")]
EtcdKey = Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")]
EtcdUser = Annotated[str | None, typer.Option(metavar="NAME", help="A user of etcd.")]
EtcdPasswordFile = Annotated[Path | None, typer.Option(metavar="FILE", help="That user's password.")]
AcceptStore = Annotated[
    bool,
    typer.Option("--accept-store", help="Take etcd as it is, although it is not the one known."),
]
Owner = Annotated[
    str,
    typer.Option(
        "--owner",
        metavar="UID",
        help="Use etcd only where an operator has claimed it for this MessagingCluster; or @FILE, read again.",
    ),
]
ClusterUsers = Annotated[
    bool,
    typer.Option("--cluster-users", help="Users come from the cluster; nobody else gets in."),
]

LogFormatFlag = Annotated[LogFormat, typer.Option("--log-format", metavar="FORM", help="auto, console or json.")]
LogLevelFlag = Annotated[LogLevel, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]
