"""MessagingCluster: brokers in Kubernetes, with all that stands around them."""

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from sterna_resources.broker import SERVING_SEGMENTS, BrokerSettings
from sterna_resources.cluster_access import (
    BROKERS_MAX,
    LISTENERS_MAX,
    Authentication,
    Listener,
    Tls,
    refuse,
)
from sterna_resources.cluster_etcd import Etcd
from sterna_resources.cluster_pods import (
    DisruptionBudget,
    Monitoring,
    NetworkPolicy,
    PodTemplate,
    Storage,
    TopologySpread,
)
from sterna_resources.cluster_status import ClusterStatus
from sterna_resources.fields import DnsLabel, Model, ObjectName, amount, is_standing, section
from sterna_resources.resource import Resource
from sterna_resources.rules import Rule
from sterna_resources.topology import DeletionPolicy, Paused

# Names of pods and Services are made of the cluster's, with up to 23 characters behind it.
CLUSTER_NAME_CHARACTERS_MAX = 40
# How much longer than its clients' leave-taking a stopping pod needs.
STOP_RESERVE_MS = 5_000

_NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
_NAME_FAULT = (
    f"metadata.name: at most {CLUSTER_NAME_CHARACTERS_MAX} lower-case letters, digits and -, beginning with a letter: "
    "Services are named after it"
)
_INSECURE_FAULT = "without {} anybody on the network may read or do everything: insecure: true says that this is meant"
_GRACE_FAULT = "pod.terminationGracePeriodSeconds has to be at least 5 seconds more than settings.drainMs"
_VOLUME_FAULT = (
    f"storage.size has to be more than {SERVING_SEGMENTS} times settings.log.segmentBytes, which is 64Mi unless it "
    "says otherwise: on less a broker's disk is full from the beginning, and it never serves"
)
_ADDRESSES_FAULT = "a listener has fewer addresses or nodePorts than there are brokers"
_HOST_FAULT = "with several brokers, host of a load balancer needs {ordinal}: each broker has an address of its own"


class AllowedNamespaces(Model):
    """From which namespaces Queues, Topics and the like may refer to the cluster. Its own may always."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("(self.policy == 'named') == (has(self.names) && size(self.names) > 0)", "names go with policy named"),
    )

    policy: Literal["same", "named", "all"] = "same"
    """`same`: the cluster's own alone. `named`: those in `names`, too. `all`: every namespace."""

    names: list[DnsLabel] = Field(default_factory=list, max_length=256)
    """The namespaces, for `named`."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if (self.policy == "named") != bool(self.names):
            refuse("allowed_namespaces", "names go with policy named")
        return self

    def allow(self, namespace: str, own: str) -> bool:
        """Whether objects of a namespace may refer to the cluster, whose own namespace is `own`."""
        return namespace == own or self.policy == "all" or (self.policy == "named" and namespace in self.names)


class MessagingClusterSpec(Model):
    """What the cluster is to be."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.insecure || has(self.tls)", _INSECURE_FAULT.format("tls"), ".insecure"),
        Rule("self.insecure || self.authentication.enabled", _INSECURE_FAULT.format("authentication"), ".insecure"),
        Rule(
            f"self.pod.terminationGracePeriodSeconds * 1000 >= self.settings.drainMs + {STOP_RESERVE_MS}",
            _GRACE_FAULT,
            ".pod",
        ),
        Rule(
            # As numbers: of a quantity that is made from one nobody knows how long it is, and the rule would cost too
            # much.
            "quantity(string(self.storage.size)).asApproximateFloat() "
            f"> double(self.settings.log.segmentBytes * {SERVING_SEGMENTS})",
            _VOLUME_FAULT,
            ".storage",
        ),
        Rule(
            "!has(self.listeners) || self.listeners.all(l, (!has(l.addresses) || size(l.addresses) >= self.brokers) "
            "&& (!has(l.nodePorts) || size(l.nodePorts) >= self.brokers))",
            _ADDRESSES_FAULT,
            ".listeners",
        ),
        Rule(
            "!has(self.listeners) || self.brokers == 1 || self.listeners.all(l, l.type != 'loadBalancer' "
            "|| !has(l.host) || l.host.contains('{ordinal}'))",
            _HOST_FAULT,
            ".listeners",
        ),
    )

    brokers: int = Field(default=1, ge=1, le=BROKERS_MAX)
    """How many brokers there are. With fewer, those with the highest numbers are emptied first and go when they are."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The brokers' image. Absent: the operator's choice when it made the cluster, kept in `status.image`; a newer
    operator does not change it, and one that was named stays when it is named no more: what it has written an older one
    may not read. Another is taken by naming it."""

    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When the image is fetched."""

    storage: Storage = section(Storage)
    """The volume of each broker, which holds its messages: more than four times `settings.log.segmentBytes`."""

    etcd: Etcd
    """Where brokers keep what they share."""

    tls: Tls | None = None
    """Certificates. Needed unless `insecure` says otherwise."""

    authentication: Authentication = section(Authentication)
    """Who may connect."""

    insecure: bool = False
    """True: the cluster may do without TLS or without authentication. For trying, and for networks that are safe."""

    listeners: list[Listener] = Field(
        default_factory=list,
        max_length=LISTENERS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Ways to the brokers from outside of Kubernetes. Inside there is always one."""

    connection_secret: ObjectName | None = None
    """The Secret that the operator makes for applications, with address and certificate authority; `<name>-connection`
    when absent."""

    allowed_namespaces: AllowedNamespaces = section(AllowedNamespaces)
    """From which namespaces objects may refer to the cluster."""

    settings: BrokerSettings = section(BrokerSettings)
    """The settings of every broker. A change restarts them one by one."""

    pod: PodTemplate = section(PodTemplate)
    """The pods' own fields."""

    topology_spread: TopologySpread = section(TopologySpread)
    """How brokers are spread over nodes and zones."""

    disruption_budget: DisruptionBudget = section(DisruptionBudget)
    """How many brokers may be away at once."""

    network_policy: NetworkPolicy = section(NetworkPolicy)
    """Who reaches the brokers' ports."""

    monitoring: Monitoring = section(Monitoring)
    """How metrics are found."""

    deletion_policy: DeletionPolicy = "retain"
    """What becomes of the volumes when the cluster is deleted. `retain`: they stay, with all messages, and a cluster of
    the same name takes them up again. `delete`: they go. `onlyIfEmpty`: the cluster goes as soon as it holds no
    message; until then it serves on and says how many there are. Its volumes stay, for what may come at the last
    moment."""

    paused: Paused | None = None
    """Present: the operator leaves the cluster and its pods alone."""

    @model_validator(mode="after")
    def _fields_fit(self, info: ValidationInfo) -> Self:
        if not self.insecure and (self.tls is None or not self.authentication.enabled):
            refuse("insecure", _INSECURE_FAULT.format("tls" if self.tls is None else "authentication"))
        if self.pod.termination_grace_period_seconds * 1000 < self.settings.drain_ms + STOP_RESERVE_MS:
            refuse("grace", _GRACE_FAULT)
        # A volume whose size nobody enforces, such as a folder of the node's, may have room all the same.
        if not is_standing(info) and amount(self.storage.size) <= self.settings.log.segment_bytes * SERVING_SEGMENTS:
            refuse("volume", _VOLUME_FAULT)
        for listener in self.listeners:
            counts = [len(given) for given in (listener.addresses, listener.node_ports) if given is not None]
            if any(count < self.brokers for count in counts):
                refuse("listener", _ADDRESSES_FAULT)
            same = listener.type == "loadBalancer" and "{ordinal}" not in (listener.host or "{ordinal}")
            if self.brokers > 1 and same:
                refuse("listener", _HOST_FAULT)
        if len({listener.name for listener in self.listeners}) < len(self.listeners):
            refuse("listener", "two listeners have one name")
        return self


class MessagingCluster(Resource):
    """Brokers that serve as one: any of them leads a client to the broker that has what it asks for."""

    PLURAL: ClassVar[str] = "messagingclusters"
    STATUS = ClusterStatus
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"size(self.metadata.name) <= {CLUSTER_NAME_CHARACTERS_MAX} && self.metadata.name.matches('{_NAME}')",
            _NAME_FAULT,
        ),
    )

    kind: Literal["MessagingCluster"] = "MessagingCluster"
    """`MessagingCluster`."""

    spec: MessagingClusterSpec
    """What the cluster is to be."""

    @property
    def etcd_name(self) -> str:
        """The name under which the cluster keeps its state in etcd."""
        return self.spec.etcd.cluster_name or f"{self.metadata.namespace or 'default'}.{self.metadata.name}"

    @model_validator(mode="after")
    def _name_fits(self) -> Self:
        name = self.metadata.name
        if len(name) > CLUSTER_NAME_CHARACTERS_MAX or not re.fullmatch(_NAME, name):
            refuse("invalid_name", _NAME_FAULT)
        return self
