"""What the pods of a cluster are like: their volumes, resources and places, and what stands around them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import Model, ObjectName, Quantity, amount
from sterna_resources.rules import Rule, unchanged

_Value = Annotated[str, Field(max_length=4_096)]
_Label = Annotated[str, Field(max_length=63)]
# A part of Kubernetes' own API, which the API server checks when it sees the finished object.
_Foreign = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]


class Storage(Model):
    """The volume of each pod."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0",
            "a volume cannot shrink",
            ".size",
        ),
        Rule(unchanged("storageClassName"), "a volume cannot move to another storage class", ".storageClassName"),
    )

    size: Quantity = "10Gi"
    """How much it holds. It can grow, where the storage class allows that, and never shrink."""

    storage_class_name: ObjectName | None = None
    """The storage class; the default class when absent. Not changeable."""


_WITHIN_FAULT = "requests are more than limits allow; a request that is not written has its default"
WITHIN_LIMITS = Rule(
    # As numbers, for the reason that a volume's size is one in messaging_cluster.py. Each object has both: only the
    # schema's own default of the whole section, to which the server puts the rule as well, has neither.
    "!has(self.limits) || !has(self.requests) || self.limits.all(name, !(name in self.requests) "
    "|| quantity(string(self.requests[name])).asApproximateFloat() "
    "<= quantity(string(self.limits[name])).asApproximateFloat())",
    _WITHIN_FAULT,
    ".requests",
)


def check_within_limits(requests: Mapping[str, str | int], limits: Mapping[str, str | int]) -> None:
    """Refuses requests that Kubernetes would refuse in each pod, where only the events of its owner tell of it.

    Raises:
        PydanticCustomError: more is requested of something than its limit.
    """
    if any(name in requests and amount(requests[name]) > amount(limit) for name, limit in limits.items()):
        raise PydanticCustomError("requests", _WITHIN_FAULT)


class Resources(Model):
    """What each pod may use, as Kubernetes writes it."""

    RULES: ClassVar[tuple[Rule, ...]] = (WITHIN_LIMITS,)

    requests: dict[str, Quantity] = Field(default={"cpu": "250m", "memory": "1Gi"}, max_length=16)
    """What is kept free for it."""

    limits: dict[str, Quantity] = Field(default_factory=dict, max_length=16)
    """What it may use at most. Without `memory` it is log.cacheBytes and log.volatileBytes and 1.5 GiB (2Gi, unless
    these are changed), or what is requested, if that is more. Give at least the two and 256 MiB."""

    @model_validator(mode="after")
    def _requests_fit(self) -> Self:
        check_within_limits(self.requests, self.limits)
        return self


class Toleration(Model):
    """A taint of nodes that the pods put up with."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.operator == 'Equal' || !has(self.value)", "value is for operator Equal", ".value"),
        Rule("has(self.key) || self.operator == 'Exists'", "without key, operator has to be Exists", ".key"),
    )

    key: Annotated[str, Field(min_length=1, max_length=317)] | None = None
    """The taint's key; absent: every taint."""

    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether `value` has to be the taint's."""

    value: _Label | None = None
    """The taint's value."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; absent: every effect."""

    toleration_seconds: int | None = Field(default=None, ge=0, le=2**31 - 1)
    """How long a pod stays on a node that got the taint `NoExecute`."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.operator == "Exists" and self.value is not None:
            raise PydanticCustomError("toleration", "value is for operator Equal")
        if self.key is None and self.operator != "Exists":
            raise PydanticCustomError("toleration", "without key, operator has to be Exists")
        return self


class SecretRef(Model):
    """A Secret in the namespace of the cluster."""

    name: ObjectName
    """Its name."""


class PodTemplate(Model):
    """The pods' own fields. What the operator needs (command, volumes, probes, security) is not to be changed."""

    labels: dict[str, _Label] = Field(default_factory=dict, max_length=64)
    """More labels for the pods."""

    annotations: dict[str, _Value] = Field(default_factory=dict, max_length=64)
    """More annotations for the pods."""

    resources: Resources = Field(default_factory=Resources, json_schema_extra={"x-sterna-section": True})
    """What each pod may use."""

    node_selector: dict[str, _Label] = Field(default_factory=dict, max_length=64)
    """The labels that a node must have."""

    tolerations: list[Toleration] = Field(default_factory=list, max_length=32)
    """The taints that the pods put up with."""

    affinity: _Foreign | None = None
    """Rules of attraction and repulsion, as in a pod (`nodeAffinity`, `podAffinity`, `podAntiAffinity`)."""

    priority_class_name: ObjectName | None = None
    """How important the pods are."""

    image_pull_secrets: list[SecretRef] = Field(default_factory=list, max_length=16)
    """The Secrets with which images are fetched."""

    termination_grace_period_seconds: int = Field(default=60, ge=10, le=3_600)
    """How long a pod has for stopping. More than `settings.drainMs`."""


class TopologySpread(Model):
    """How brokers are spread over nodes and zones."""

    keys: list[Annotated[str, Field(min_length=1, max_length=317)]] = Field(
        default=["kubernetes.io/hostname", "topology.kubernetes.io/zone"], max_length=8
    )
    """The labels of nodes over whose values brokers are spread. Empty: not at all."""

    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"] = "ScheduleAnyway"
    """What happens when they cannot be spread evenly: a broker starts anyway, or waits."""

    max_skew: int = Field(default=1, ge=1, le=64)
    """By how many brokers two values may differ."""


class DisruptionBudget(Model):
    """What voluntary disruptions, such as draining a node, may do."""

    enabled: bool = True
    """Whether there is a PodDisruptionBudget."""

    max_unavailable: int = Field(default=1, ge=1, le=64)
    """How many brokers may be away at once."""


class NetworkPolicy(Model):
    """Who reaches the brokers' ports."""

    enabled: bool = True
    """Whether there is a NetworkPolicy. Without fields: the messaging port for everybody, the monitor port for
    everybody, and nothing else."""

    clients: list[_Foreign] = Field(default_factory=list, max_length=32)
    """Who may reach the messaging port, as `from` of a NetworkPolicy. Empty: everybody."""

    monitors: list[_Foreign] = Field(default_factory=list, max_length=32)
    """Who may reach the monitor port. Empty: everybody."""


class Monitoring(Model):
    """How Prometheus finds the brokers' metrics."""

    pod_monitor: bool = True
    """Whether there is a PodMonitor, where Kubernetes knows that kind."""

    interval_seconds: int = Field(default=30, ge=5, le=3_600)
    """How often metrics are fetched."""

    labels: dict[str, _Label] = Field(default_factory=dict, max_length=64)
    """Labels of the PodMonitor, by which a Prometheus selects it."""
