"""What the builders build from: the cluster's manifest, what has been settled for it, and the names of everything.

Names are made of the cluster's alone, so that doing it again finds what there is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna_resources.messaging_cluster import MessagingCluster, MessagingClusterSpec

MESSAGING_PORT = 7222
MONITOR_PORT = 7280
ETCD_PORT = 2379

CLUSTER_LABEL = "sterna.dev/cluster"
SETTINGS_ANNOTATION = "sterna.dev/settings"
"""On pods: a hash of what the pod was made for. Another hash than the wanted one: the pod is to be restarted."""

FORM_ANNOTATION = "sterna.dev/settings-form"
"""On pods: by which defaults that hash was made. Absent: by those of before the first that changed (`brokers.FORM`)."""

SECRETS_ANNOTATION = "sterna.dev/secrets"
"""On pods: a hash of the Secrets they mount. Written when they change: it makes the kubelet look at once."""

MANAGER = "sterna-operator"


@dataclass(frozen=True)
class OperatorPods:
    """By what a NetworkPolicy tells the operator's own pods from all others."""

    namespace: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Blueprint:
    """All that is needed to build the children of one cluster."""

    cluster: MessagingCluster
    namespace: str
    uid: str
    image: str
    etcd_image: str
    operator_pods: OperatorPods
    replicas: int
    """How many broker pods there are to be now: more than the spec says while brokers are being emptied."""

    settings_hash: str = ""
    former_hashes: Mapping[str, str] = field(default_factory=dict)
    """By the forms of before: what pods of each have for the same settings."""

    addresses: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """What clients outside call each broker, by its number: `host:port`, as far as it is known."""

    claim_size: Any = None
    """The size in the StatefulSet's claim template, which never changes; None: there is no StatefulSet yet."""

    ca: str | None = None
    """The certificate authority for clients, PEM."""

    etcd_user: str | None = None
    """The user of etcd, from the Secret that the manifest names."""

    outside_urls: tuple[str, ...] = ()
    is_etcd_secured: bool = False
    """Whether a managed etcd speaks TLS, and to those alone who have a certificate of it."""

    etcd_trust: str = ""
    """A digest of whom a managed etcd trusts; it reads that when it starts."""

    @property
    def spec(self) -> MessagingClusterSpec:
        """What is wanted."""
        return self.cluster.spec

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.cluster.metadata.name

    # Names

    @property
    def brokers(self) -> str:
        """The StatefulSet, and what else is one for all brokers."""
        return f"{self.name}-broker"

    @property
    def headless(self) -> str:
        """The Service that names the pods."""
        return f"{self.name}-brokers"

    @property
    def settings(self) -> str:
        """The ConfigMap."""
        return f"{self.name}-settings"

    @property
    def etcd(self) -> str:
        """The StatefulSet and Service of a managed etcd."""
        return f"{self.name}-etcd"

    @property
    def etcd_server_secret(self) -> str:
        """The Secret that a managed etcd mounts."""
        return f"{self.etcd}-server"

    @property
    def etcd_client_secret(self) -> str:
        """The Secret with which brokers and operator come to a managed etcd."""
        return f"{self.etcd}-client"

    @property
    def etcd_ca(self) -> tuple[str, str] | None:
        """By which Secret and key etcd is checked; None: it has no TLS, or one of the system's authorities."""
        tls = self.spec.etcd.tls
        if tls is not None:
            return tls.ca.name, tls.ca.key
        return (self.etcd_client_secret, "ca.crt") if self.is_etcd_secured else None

    @property
    def etcd_certificate(self) -> str | None:
        """The Secret with the certificate that etcd is shown; None: none."""
        tls = self.spec.etcd.tls
        if tls is not None:
            return tls.certificate_secret
        return self.etcd_client_secret if self.is_etcd_secured else None

    @property
    def tls_secret(self) -> str | None:
        """The Secret with the brokers' certificate; None: there is no TLS."""
        tls = self.spec.tls
        return None if tls is None else tls.secret_name or f"{self.name}-tls"

    @property
    def connection_secret(self) -> str:
        """The Secret for applications."""
        return self.spec.connection_secret or f"{self.name}-connection"

    def broker(self, ordinal: int) -> str:
        """A broker's name: that of its pod, and of the Service that leads to it alone."""
        return f"{self.brokers}-{ordinal}"

    def listener(self, listener: str, ordinal: int) -> str:
        """The Service of a listener that leads to one broker."""
        return f"{self.name}-at-{listener}-{ordinal}"

    # Addresses

    @property
    def scheme(self) -> str:
        """Of the cluster's URLs."""
        return "sterna" if self.spec.tls is None else "sternas"

    def host(self, service: str) -> str:
        """A Service's name as every namespace resolves it."""
        return f"{service}.{self.namespace}.svc"

    @property
    def url(self) -> str:
        """For clients inside of Kubernetes."""
        return f"{self.scheme}://{self.host(self.name)}:{MESSAGING_PORT}"

    @property
    def etcd_urls(self) -> tuple[str, ...]:
        """Where etcd is."""
        if self.spec.etcd.endpoints is not None:
            return tuple(self.spec.etcd.endpoints)
        scheme = "https" if self.is_etcd_secured else "http"
        return (f"{scheme}://{self.host(self.etcd)}:{ETCD_PORT}",)

    def advertised(self, ordinal: int) -> tuple[str, ...]:
        """What a broker says it is reached by: the inside first, where a name leads nowhere else."""
        inside = f"{self.host(self.broker(ordinal))}:{MESSAGING_PORT}"
        return tuple(f"{self.scheme}://{address}" for address in (inside, *self.addresses.get(ordinal, ())))

    # Metadata

    def labels(self, component: str) -> dict[str, str]:
        """Of every child; `component` is "broker" or "etcd"."""
        return {**self.selector(component), CLUSTER_LABEL: self.name, "app.kubernetes.io/managed-by": MANAGER}

    def selector(self, component: str) -> dict[str, str]:
        """By which pods are found. A StatefulSet keeps it for ever."""
        return {
            "app.kubernetes.io/name": "sterna",
            "app.kubernetes.io/instance": self.name,
            "app.kubernetes.io/component": component,
        }

    @property
    def owner(self) -> dict[str, Any]:
        """So that what was made for the cluster goes with it."""
        return {
            "apiVersion": self.cluster.api_version,
            "kind": self.cluster.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def object(self, api_version: str, kind: str, name: str, component: str = "broker", **body: Any) -> dict[str, Any]:
        """A child with its metadata; `annotations` of it are a keyword of their own, empty values are left out."""
        annotations = body.pop("annotations", None)
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": self.namespace,
            "labels": self.labels(component),
            "ownerReferences": [self.owner],
        }
        if annotations:
            metadata["annotations"] = dict(annotations)
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}
