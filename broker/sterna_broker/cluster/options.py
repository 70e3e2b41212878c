"""What a broker is told of its cluster."""

from dataclasses import dataclass
from pathlib import Path

from sterna_etcd import EtcdSettings


@dataclass(frozen=True)
class ClusterOptions:
    """The flags `--etcd…`, `--cluster`, `--owner` and `--advertise` of `sterna broker`."""

    etcd: EtcdSettings
    """Where the shared store is."""

    cluster: str
    """The cluster's name: everything of it stands below /sterna/<cluster>/."""

    name: str
    """This broker's name, unique in the cluster."""

    advertise: tuple[str, ...] = ()
    """The URLs under which clients reach this broker. None: the address that it listens on."""

    advertise_file: Path | None = None
    """A file with those URLs, read again when it changes; see advertising."""

    accept_store: bool = False
    """Take etcd as it is now, although it is not the one that was known: after it was restored on purpose."""

    owner: str | None = None
    """The uid of the MessagingCluster that this broker belongs to: the operator claims the cluster's place in etcd for
    it, and every transaction compares that. None: nobody asks."""

    owner_file: Path | None = None
    """A file with that uid, read again when it changes."""

    start_wait_ms: int = 3_000
    """How long a broker that has a kept configuration waits for etcd before it starts from that."""
