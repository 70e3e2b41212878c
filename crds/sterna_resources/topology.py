"""What the kinds that live in a cluster have in common: which cluster, and how the operator treats the object.

These fields are the operator's. A broker that reads the manifest from a folder takes them and does nothing with them,
so that one document serves a laptop and Kubernetes.
"""

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from sterna_resources.fields import ATOMIC, DnsLabel, Model, ObjectName, Time
from sterna_resources.resource import Resource
from sterna_resources.rules import Rule, unchanged

DeletionPolicy = Literal["retain", "delete", "onlyIfEmpty"]
Adoption = Literal["fail", "adopt", "observe"]

# The fields that say nothing to a broker.
OPERATOR_FIELDS = frozenset({"cluster_ref", "deletion_policy", "adoption", "paused"})


class ClusterRef(Model):
    """Which MessagingCluster an object belongs to."""

    # Kubernetes needs the reference, so the rule cannot be passed by taking the whole of it away. `namespace` is a word
    # of the rules' language, and written so as the name of a field.
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.name == oldSelf.name && {unchanged('__namespace__')}",
            "an object cannot move to another cluster: delete it and make it there",
        ),
    )

    name: ObjectName
    """The cluster's name."""

    namespace: DnsLabel | None = None
    """The cluster's namespace; the object's own when absent. Another one has to be allowed by the cluster
    (`spec.allowedNamespaces`)."""


class Paused(Model):
    """The operator leaves the object alone, whatever changes, and says so in its status."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)

    until: Time | None = None
    """When the pause ends by itself, such as `2030-01-31T18:00:00Z`. Absent: when `paused` is taken away."""


class TopologySpec(Model):
    """The fields of every kind that belongs to a cluster."""

    cluster_ref: ClusterRef | None = Field(default=None, json_schema_extra={"x-sterna-required": True})
    """The cluster that the object belongs to. Needed in Kubernetes, and not changeable there."""

    deletion_policy: DeletionPolicy = "retain"
    """What becomes of the object in the brokers when it is deleted in Kubernetes. `retain`: it stays, with its
    messages, and nobody manages it. `delete`: it goes, with its messages. `onlyIfEmpty`: it goes as soon as it
    holds no message; until then it shows as being deleted and says how many there are. A topic's messages are those
    that durable subscriptions to exactly it hold, which stay themselves."""

    adoption: Adoption = "fail"
    """What happens when the cluster has an object of this name already that Kubernetes did not make. `fail`: nothing,
    and the status says so. `adopt`: it becomes this one. `observe`: it is shown in the status and never changed."""

    paused: Paused | None = None
    """Present: the operator leaves the object alone. `{}` until it is taken away, or with an end."""


class TopologyResource(Resource):
    """A kind that belongs to a cluster."""

    spec: TopologySpec
    """What is wanted."""

    @property
    def cluster(self) -> tuple[str, str]:
        """Namespace and name of the cluster; the namespace is the object's own when none is given.

        Raises:
            ValueError: the manifest names no cluster, which in Kubernetes cannot be.
        """
        reference = self.spec.cluster_ref
        if reference is None:
            raise ValueError(f"{self.label} names no cluster")
        return reference.namespace or self.metadata.namespace or "default", reference.name

    def broker_document(self) -> dict[str, Any]:
        """The manifest as brokers need it: without the fields that are the operator's, and without defaults."""
        spec = self.spec.model_dump(
            by_alias=True, exclude_defaults=True, exclude_none=True, exclude=set(OPERATOR_FIELDS), mode="json"
        )
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": {"name": self.metadata.name},
            "spec": spec,
        }
