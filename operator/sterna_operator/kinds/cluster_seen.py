"""What a MessagingCluster asks for, and what there is of it: all that a plan is made from."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna_resources.messaging_cluster import MessagingCluster

from sterna_operator.builders.blueprint import OperatorPods
from sterna_operator.kinds.cluster_interlock import AuditSeen
from sterna_operator.kinds.cluster_rolling import Pod
from sterna_operator.kinds.cluster_scaling import Members


@dataclass(frozen=True)
class Desired:
    """What the object in Kubernetes asks for."""

    cluster: MessagingCluster
    namespace: str
    uid: str
    generation: int
    is_deleting: bool = False
    has_finalizer: bool = False
    is_dismantled: bool = False
    """Kubernetes removes what it owns while the cluster itself still stands: a deletion in the foreground."""

    status: Mapping[str, Any] = field(default_factory=dict)
    passed_over: tuple[str, ...] = ()
    """Fields that only newer definitions know."""

    @property
    def label(self) -> str:
        """How people are told of it."""
        return f"MessagingCluster {self.namespace}/{self.cluster.metadata.name}"


@dataclass(frozen=True)
class Defaults:
    """What the operator chooses where the manifest is silent."""

    broker_image: str
    etcd_image: str
    version: str
    operator_pods: OperatorPods


@dataclass(frozen=True)
class Observed:
    """What there is. Objects are as the API server has them."""

    defaults: Defaults
    children: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """By kind and name: whatever carries the cluster's label, and whatever has a name that a child is to have."""

    pods: tuple[Pod, ...] = ()
    etcd_pod: Pod | None = None
    """The pod of a managed etcd; None: there is none now."""

    refused_pods: Mapping[str, str] = field(default_factory=dict)
    """Pods that are not there because Kubernetes does not let the StatefulSet make them, by name, with its words."""

    claims: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The volume claims of the cluster's pods, by name."""

    secrets: Mapping[str, Mapping[str, bytes] | None] = field(default_factory=dict)
    """The Secrets that the manifest names; None: there is none such."""

    put_back: Mapping[str, Collection[str]] = field(default_factory=dict)
    """By the uids of children: differences that are left alone, as `put_back` has them."""

    members: Members = field(default_factory=Members)
    audits: tuple[AuditSeen, ...] = ()
    """The cluster's AuditJobs, and its StoreSnapshots that are being taken."""

    has_pod_monitors: bool = False
    has_certificates: bool = False
    namespace_is_going: bool = False
    now_ms: int = 0

    def of_kind(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """The children of a kind, by name."""
        return {name: child for (one, name), child in self.children.items() if one == kind}
