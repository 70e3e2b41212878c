"""What the operator is told when it starts. Everything else stands in the objects."""

import os
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path

from sterna_operator.endpoints import normal

_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


_LABEL = re.compile(r"[^=,\s]+=[^=,\s]*")


class SettingsError(ValueError):
    """The settings do not make sense; the text says which."""


def own_namespace() -> str:
    """The namespace of the pod that this process runs in; "default" outside of Kubernetes."""
    if name := os.environ.get("POD_NAMESPACE"):
        return name
    try:
        return _ACCOUNT_NAMESPACE.read_text("utf-8").strip() or "default"
    except OSError:
        return "default"


def _identity() -> str:
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{os.urandom(4).hex()}"


@dataclass(frozen=True)
class OperatorSettings:
    """Flags of `sterna-operator run`, each with an environment variable `STERNA_OPERATOR_…` of the same name."""

    namespaces: tuple[str, ...] = ()
    """The namespaces that are looked after; empty: all of them, which needs cluster roles."""

    kubeconfig: Path | None = None
    """How the API server is reached; None: as a pod, by its service account."""

    lease_namespace: str = field(default_factory=own_namespace)
    """Where the Lease stands by which one of several operators leads."""

    lease_name: str = "sterna-operator"
    """The Lease's name. Operators that look after different namespaces need different ones."""

    lease_duration_s: float = 10.0
    """How long a leader that is not heard of stays the leader."""

    pod_namespace: str = field(default_factory=own_namespace)
    """Where the operator's own pods are, so that network policies can let them through."""

    pod_labels: str = "app.kubernetes.io/name=sterna-operator"
    """Labels by which its own pods are told from all others there: `name=value`, a comma between."""

    identity: str = field(default_factory=_identity)
    """How this process calls itself in the Lease and in events."""

    listen: str = "0.0.0.0:8080"
    """Where /healthz, /readyz and /metrics are served, `host:port`; port 0 takes a free one."""

    workers: int = 8
    """How many objects are worked on at once."""

    resync_s: float = 60.0
    """How often every object is looked at without cause, in seconds, at most: what no watch has told of is found then.
    With more objects than 60 times `resync_rate` it is done more rarely, down to once in 10 minutes."""

    resync_rate: float = 50.0
    """How many objects a second these looks come to on average, at most, as long as they come once in 10 minutes. One
    costs some 0.7 ms of a core; AuditJobs and StoreSnapshots cost ten times as much, and count for ten."""

    clusters_s: float = 60.0
    """How often every cluster is looked at without cause, in seconds: what is made for it may have been changed by
    somebody in a way that no watch tells of."""

    background_rate: float = 500.0
    """How many objects a second are looked at for drift and resync, at most."""

    watch_inactivity_s: float = 70.0
    """How long nothing may come on a watch, not even a bookmark (one a minute), before it is opened anew."""

    watch_dead_after_s: float = 150.0
    """How long nothing may come on a watch, while the API server answers, before /healthz fails."""

    broker_image: str = ""
    """The image for brokers of new clusters that name none."""

    etcd_image: str = ""
    """The image for the etcd that the operator runs for trying."""

    audit_image: str = ""
    """The image for audits whose manifests name none."""

    allowed_etcd_endpoints: tuple[str, ...] = ()
    """The etcds that clusters may name, such as `https://etcd-0.etcd:2379` or `https://*.etcd.svc:2379`; empty: any.
    A cluster that names another is refused, and nothing is sent there."""

    ready_file: Path | None = None
    """Written with the address that was taken, once the operator watches; for tests and scripts."""

    log_format: str = "json"
    """`json` or `text`."""

    def __post_init__(self) -> None:
        """Checks what can be checked without touching anything."""
        if self.workers < 1:
            raise SettingsError("workers: at least 1")
        if self.resync_rate <= 0:
            raise SettingsError("resync_rate: more than 0")
        if self.lease_duration_s < 3:
            raise SettingsError("lease_duration_s: at least 3 seconds, or a busy API server ends every leadership")
        if not self.pod_labels or not all(map(_LABEL.fullmatch, self.pod_labels.split(","))):
            raise SettingsError("pod_labels: name=value, a comma between, at least one")
        for url in self.allowed_etcd_endpoints:
            try:
                normal(url)
            except ValueError as error:
                raise SettingsError(f"allowed_etcd_endpoints: {error}") from error
        if self.log_format not in ("json", "text"):
            raise SettingsError("log_format: json or text")

    @property
    def claim(self) -> str:
        """How the operator calls itself where it claims clusters: the same for all its pods, and another for others."""
        return f"{self.lease_namespace}/{self.lease_name}"

    def labels(self) -> dict[str, str]:
        """`pod_labels`, by name."""
        pairs = (one.partition("=") for one in self.pod_labels.split(","))
        return {name: value for name, _, value in pairs}
