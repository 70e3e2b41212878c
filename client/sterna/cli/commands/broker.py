"""`sterna broker`: run a broker in the foreground.

The broker is a package of its own; this command only reads its options and hands over. The SDK and the other commands
work without it.
"""

import enum
from pathlib import Path
from typing import Annotated

import typer

from sterna.cli import broker_flags as flags
from sterna.cli import options
from sterna.cli.exits import CommandError

EXAMPLES = options.examples(
    "sterna broker --config manifests/ --data /var/lib/sterna",
    "sterna broker --config manifests/ --data data/ --listen 127.0.0.1:0 --monitor 127.0.0.1:0",
    "sterna broker --data data/ --listen 0.0.0.0:7222 --tls-cert tls.crt --tls-key tls.key --users users.yaml",
)


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


def broker(
    data: Annotated[Path, typer.Option("--data", "-d", metavar="FOLDER", help="Where everything is kept.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FOLDER", help="The manifests; without, clients may create anything."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="As in message ids.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", metavar="HOST:PORT", help="For clients; else 127.0.0.1:7222.")
    ] = None,
    monitor: Annotated[
        str | None, typer.Option("--monitor", metavar="HOST:PORT", help="For probes; else 127.0.0.1:7280.")
    ] = None,
    drain: Annotated[
        float | None, typer.Option("--drain", metavar="SECONDS", min=0, help="How long a stop waits for clients.")
    ] = None,
    force_start: Annotated[
        bool, typer.Option("--force-start", help="Start although records are damaged: each is dropped and reported.")
    ] = False,
    ready_file: Annotated[
        Path | None, typer.Option("--ready-file", metavar="FILE", help="Holds the addresses once the broker serves.")
    ] = None,
    tls_cert: flags.TlsCert = None,
    tls_key: flags.TlsKey = None,
    client_ca: flags.ClientCa = None,
    certificate_user: flags.CertificateUserFlag = None,
    users: flags.Users = None,
    insecure: flags.Insecure = False,
    reflection: flags.Reflection = True,
    open_metrics: flags.OpenMetrics = False,
    log_format: Annotated[LogFormat, typer.Option("--log-format", metavar="FORM", help="auto, console or json.")] = (
        LogFormat.AUTO
    ),
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = LogLevel.INFO,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Port 0 takes a free one; the only line on stdout says which.

    What is given here comes before the Broker manifest. Certificates and users are read again when their files
    change; without TLS and users the broker listens on this machine alone, unless --insecure. A wrong configuration
    ends with 2, a locked or damaged store with 1.
    """
    try:
        from sterna_broker.main import run
        from sterna_broker.options import BrokerOptions
    except ModuleNotFoundError as error:
        if error.name in ("sterna", "sterna.cli"):
            raise
        raise CommandError(f"the broker needs {error.name}", remedy="pip install 'sterna[broker]'") from error
    chosen = BrokerOptions(
        data=data,
        config=config,
        name=name,
        listen=listen,
        monitor=monitor,
        drain_ms=None if drain is None else round(drain * 1_000),
        force_start=force_start,
        ready_file=ready_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        client_ca=client_ca,
        certificate_user=None if certificate_user is None else certificate_user.value,
        users=users,
        insecure=insecure,
        reflection=reflection,
        open_metrics=open_metrics,
        log_format=log_format.value,
        log_level=log_level.value,
    )
    raise typer.Exit(run(chosen))
