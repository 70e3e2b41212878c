"""`sterna broker`: run a broker in the foreground.

The broker is a package of its own; this command only reads its options and hands over. The SDK and the other commands
work without it.
"""

from typing import Any

import typer

from sterna.cli import broker_flags as flags
from sterna.cli import options
from sterna.cli.exits import CommandError, Exit

EXAMPLES = options.examples(
    "sterna broker --data data/ --etcd http://etcd-0:2379,http://etcd-1:2379 --cluster prod --name broker-0",
    "sterna broker --config manifests/ --data /var/lib/sterna",
    "sterna broker --config manifests/ --data data/ --listen 127.0.0.1:0 --monitor 127.0.0.1:0",
    "sterna broker --data data/ --listen 0.0.0.0:7222 --tls-cert tls.crt --tls-key tls.key --users users.yaml",
)


def broker(
    data: flags.Data,
    config: flags.Config = None,
    settings: flags.Settings = None,
    name: flags.Name = None,
    listen: flags.Listen = None,
    monitor: flags.Monitor = None,
    drain: flags.Drain = None,
    force_start: flags.ForceStart = False,
    ready_file: flags.ReadyFile = None,
    tls_cert: flags.TlsCert = None,
    tls_key: flags.TlsKey = None,
    client_ca: flags.ClientCa = None,
    certificate_user: flags.CertificateUserFlag = None,
    users: flags.Users = None,
    insecure: flags.Insecure = False,
    reflection: flags.Reflection = True,
    open_metrics: flags.OpenMetrics = False,
    etcd: flags.EtcdUrls = "",
    cluster: flags.ClusterName = "",
    advertise: flags.Advertise = "",
    etcd_ca: flags.EtcdCa = None,
    etcd_cert: flags.EtcdCert = None,
    etcd_key: flags.EtcdKey = None,
    etcd_user: flags.EtcdUser = None,
    etcd_password_file: flags.EtcdPasswordFile = None,
    accept_store: flags.AcceptStore = False,
    owner: flags.Owner = "",
    cluster_users: flags.ClusterUsers = False,
    log_format: flags.LogFormatFlag = flags.LogFormat.AUTO,
    log_level: flags.LogLevelFlag = flags.LogLevel.INFO,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C. Port 0 takes a free one; the only line on stdout says which.

    What is given here comes before the Broker manifest. Certificates and users are read again when their files
    change; without TLS and users the broker listens on this machine alone, unless --insecure. A wrong configuration
    ends with 2, a locked or damaged store with 1.
    """
    BrokerOptions, cluster_options, run = _broker_package()  # noqa: N806, one of them is a class
    access = {"ca": etcd_ca, "cert": etcd_cert, "key": etcd_key, "user": etcd_user, "password_file": etcd_password_file}
    more: dict[str, Any] = {"advertise": advertise, "accept_store": accept_store, "owner": owner, **access}
    try:
        member = cluster_options(
            etcd=etcd,
            config=config,
            settings=settings,
            cluster=cluster,
            name=name,
            **more,
        )
    except ValueError as error:
        raise CommandError(str(error), exit_code=Exit.USAGE) from error
    chosen = BrokerOptions(
        data=data,
        cluster=member,
        config=config,
        settings=settings,
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
        users_from_cluster=cluster_users,
        insecure=insecure,
        reflection=reflection,
        open_metrics=open_metrics,
        log_format=log_format.value,
        log_level=log_level.value,
    )
    raise typer.Exit(run(chosen))


def _broker_package() -> tuple[Any, Any, Any]:
    """The options, what makes a cluster's of flags, and what runs a broker."""
    try:
        from sterna_broker.main import run
        from sterna_broker.options import BrokerOptions, cluster_options
    except ModuleNotFoundError as error:
        if error.name in ("sterna", "sterna.cli"):
            raise
        raise CommandError(f"the broker needs {error.name}", remedy="pip install 'sterna[broker]'") from error
    return BrokerOptions, cluster_options, run
