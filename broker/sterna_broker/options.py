"""What the command line says to a broker, and what holds in the end.

Flags come before the Broker manifest, and that before the defaults.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sterna_etcd import EtcdSettings, Layout
from sterna_resources.broker import Broker, BrokerLimits, BrokerSpec
from sterna_resources.problems import ManifestError, Place, Problem
from sterna_resources.reading import read_files

from sterna_broker import addresses
from sterna_broker.access.identities import CertificateUser
from sterna_broker.addresses import Address
from sterna_broker.cluster import advertising
from sterna_broker.cluster.options import ClusterOptions
from sterna_broker.configuration.restarts import Restarts
from sterna_broker.surroundings import random_hex

DEFAULT_MESSAGING = "127.0.0.1:7222"
DEFAULT_MONITOR = "127.0.0.1:7280"
DEFAULT_NAME = "sterna"

# What the engine is told of the limits; the others are the broker's own.
# What snapshots that nobody takes may have of the volume: one part of so many.
_SNAPSHOT_SHARE = 10
_OWN_LIMITS = {"connections", "leases"}


@dataclass(frozen=True)
class BrokerOptions:
    """The flags of `sterna broker`; None: not given."""

    data: Path
    """The folder that the broker keeps everything in. Made with mode 0700 if it is missing."""

    config: Path | None = None
    """The folder of manifests. None: any queue and topic may be created, all settings are defaults."""

    cluster: ClusterOptions | None = None
    """The cluster that it is a member of; its configuration then comes from etcd, in place of a folder."""

    settings: Path | None = None
    """A file with a Broker manifest, for a broker whose other manifests come from its cluster."""

    name: str | None = None
    """The broker's name, as in message ids."""

    listen: str | None = None
    """host:port for gRPC; port 0 takes a free one."""

    monitor: str | None = None
    """host:port for probes and metrics; port 0 takes a free one."""

    drain_ms: int | None = None
    """How long a stopping broker waits for its clients."""

    force_start: bool = False
    """Start although stored records are damaged: each is dropped and reported (EMS-STORE-A14)."""

    ready_file: Path | None = None
    """A file that appears, with the addresses as JSON, once the broker serves."""

    tls_cert: Path | None = None
    """The certificate with its chain, in PEM. With it every port speaks TLS; read again when it changes."""

    tls_key: Path | None = None
    """Its private key, in PEM, not encrypted."""

    client_ca: Path | None = None
    """The CA of clients' certificates, in PEM. With it every client of gRPC has to show one."""

    certificate_user: CertificateUser | None = None
    """Which name of a client's certificate is the user. None: the common name where there are no other users, else
    off."""

    users: Path | None = None
    """The users file; read again when it changes."""

    users_from_cluster: bool = False
    """Whether somebody hands users to `Node.users`: then nobody gets in before, unless `insecure`, with which
    everybody does as long as there is no user."""

    insecure: bool = False
    """Listen beyond this machine without TLS or users."""

    reflection: bool = True
    """Whether the gRPC reflection service is on."""

    open_metrics: bool = False
    """Whether /metrics asks nobody who they are."""

    log_format: Literal["auto", "console", "json"] = "auto"
    """How logs are written to stderr; auto: console on a terminal, otherwise json."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important level that is written."""


@dataclass(frozen=True)
class Settings:
    """What holds."""

    name: str
    messaging: Address
    monitor: Address
    drain_ms: int
    slow_consumer_ms: int
    metrics_destinations: int
    limits: BrokerLimits
    engine: dict[str, Any] = field(default_factory=dict)

    def engine_json(self) -> str:
        """For `Engine.open`."""
        return json.dumps(self.engine)


def restarts(options: BrokerOptions, manifest: Broker | None) -> Restarts:
    """What a start with these flags and this manifest has read, to be compared with later manifests."""
    flags = {
        "name": ("--name", options.name),
        "listeners.messaging": ("--listen", options.listen),
        "listeners.monitor": ("--monitor", options.monitor),
        "drainMs": ("--drain-ms", options.drain_ms),
    }
    # What `settle` takes for a flag that is not given: an empty one of these three is none.
    given = {field: flag for field, flag in flags.items() if flag[1] not in (None, "")}
    defaults = {
        "name": DEFAULT_NAME,
        "listeners.messaging": DEFAULT_MESSAGING,
        "listeners.monitor": DEFAULT_MONITOR,
    }
    return Restarts(manifest, given, defaults)


def missing_protection(options: BrokerOptions) -> list[str]:
    """What keeps the broker from listening beyond this machine; nothing: it may."""
    if options.insecure:
        return []
    missing = []
    if options.tls_cert is None:
        missing.append("TLS (--tls-cert and --tls-key)")
    if options.users is None and options.client_ca is None and not options.users_from_cluster:
        missing.append("users (--users, or --client-ca for client certificates)")
    return missing


def cluster_options(
    *,
    etcd: str,
    cluster: str,
    name: str | None,
    config: Path | None = None,
    settings: Path | None = None,
    advertise: str = "",
    accept_store: bool = False,
    owner: str = "",
    **access: Any,
) -> ClusterOptions | None:
    """What the flags of a cluster say together; None: the broker is to be one by itself.

    `access`: the fields ca, cert, key, user and password_file of EtcdSettings.

    Raises:
        ValueError: something is missing, or makes no sense.
    """
    if not etcd:
        if cluster or advertise or owner:
            raise ValueError("--cluster, --advertise and --owner need --etcd")
        if settings is not None:
            raise ValueError("--settings needs --etcd; put a Broker manifest into --config")
        return None
    if config is not None:
        raise ValueError("--config and --etcd exclude each other")
    if not cluster or not name:
        raise ValueError("--etcd needs --cluster NAME, and --name NAME for this broker")
    Layout(cluster)
    file, owner_file = _file_of(advertise), _file_of(owner)
    urls = advertising.parse(advertise) if file is None else ()
    store = EtcdSettings.of_urls(etcd, **access)
    # Of a file it is known once that was read; without either nobody asks.
    uid = "" if owner_file is not None else owner or None
    return ClusterOptions(store, cluster, name, urls, file, accept_store, uid, owner_file)


def _file_of(flag: str) -> Path | None:
    """The file that `@FILE` names; None: the flag says what it means itself."""
    return Path(flag[1:]) if flag.startswith("@") else None


def read_settings(file: Path) -> Broker:
    """The Broker manifest that a file holds. Touches the disk.

    Raises:
        ManifestError: with all that is wrong; it holds something else, or more, among it.
    """
    manifests = read_files([file])
    if len(manifests) != 1 or not isinstance(manifests[0].resource, Broker):
        raise ManifestError([Problem(Place(str(file), 1), "", "has to hold one Broker manifest, and nothing else")])
    return manifests[0].resource


def settle(options: BrokerOptions, manifest: Broker | None, version: str, volume_bytes: int) -> Settings:
    """Puts flags, manifest and defaults together. `volume_bytes`: of the data folder's volume.

    Raises:
        AddressError: an address cannot be used.
    """
    spec = manifest.spec if manifest else BrokerSpec()
    name = options.name or (manifest.broker_name if manifest else DEFAULT_NAME)
    if options.cluster is not None:
        name = options.cluster.name
    limits = spec.limits
    engine = {
        "broker": name,
        "product": f"sterna {version}",
        # Used when the store is new; an existing one keeps its own.
        "store_id": random_hex(16),
        "force_start": options.force_start,
        "segment_bytes": spec.log.segment_bytes,
        "cache_bytes": spec.log.cache_bytes,
        "volatile_bytes": spec.log.volatile_bytes,
        "slow_consumer_ms": spec.slow_consumer_ms,
        "flow_control": spec.flow_control,
        "dynamic_idle_ms": spec.dynamic_idle_ms,
        "snapshot_bytes_max": spec.snapshots.kept_bytes or volume_bytes // _SNAPSHOT_SHARE,
        "snapshot_age_max_ms": spec.snapshots.kept_age_ms,
        "cluster": options.cluster.cluster if options.cluster else "",
        "limits": {key: value for key, value in limits.model_dump().items() if key not in _OWN_LIMITS},
    }
    messaging = options.listen or spec.listeners.messaging or DEFAULT_MESSAGING
    monitor = options.monitor or spec.listeners.monitor or DEFAULT_MONITOR
    missing = missing_protection(options)
    return Settings(
        name=name,
        messaging=addresses.parse(messaging, "listen", missing).single(),
        monitor=addresses.parse(monitor, "monitor", missing),
        drain_ms=spec.drain_ms if options.drain_ms is None else options.drain_ms,
        slow_consumer_ms=spec.slow_consumer_ms,
        metrics_destinations=spec.metrics_destinations,
        limits=limits,
        engine=engine,
    )
