"""StoreSnapshot: one snapshot of the stores of a cluster's brokers, taken once."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sterna_resources.audit_parts import (
    NAME_RULE,
    AuditConnection,
    AuditPod,
    AuditStorage,
    SnapshotPolicy,
    check_name,
)
from sterna_resources.audit_status import StoreSnapshotStatus
from sterna_resources.cluster_access import BROKERS_MAX, refuse
from sterna_resources.fields import Model, section
from sterna_resources.resource import Resource
from sterna_resources.rules import Rule, unchanged
from sterna_resources.topology import ClusterRef, Paused

# All of the spec but the pause, which can end.
_FIXED = (
    "clusterRef",
    "brokers",
    "snapshots",
    "storage",
    "connect",
    "activeDeadlineSeconds",
    "image",
    "imagePullPolicy",
    "pod",
)


class StoreSnapshotSpec(Model):
    """Of which brokers, and where it is kept. Nothing of it can be changed but `paused`."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            " && ".join(f"({unchanged(field)})" for field in _FIXED),
            "a StoreSnapshot is taken once, and cannot be changed: make another",
        ),
    )

    cluster_ref: ClusterRef
    """The cluster whose brokers' stores are taken."""

    brokers: list[Annotated[str, Field(min_length=1, max_length=64, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]] = (
        Field(default_factory=list, max_length=BROKERS_MAX, json_schema_extra={"x-kubernetes-list-type": "set"})
    )
    """Of these brokers alone, by their pods' names. Empty: of all that the cluster has when it is taken."""

    snapshots: SnapshotPolicy
    """How it is taken."""

    storage: AuditStorage
    """Where it is kept. It stays there when the object is deleted."""

    connect: AuditConnection = section(AuditConnection)
    """How brokers are reached."""

    active_deadline_seconds: int = Field(default=3_600, ge=60, le=7 * 24 * 3600)
    """How long it may take. Then it is ended, and has failed."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The image of the audits. Absent: the operator's choice."""

    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When the image is fetched."""

    pod: AuditPod = section(AuditPod)
    """The pod's own fields."""

    paused: Paused | None = None
    """Present: it is not begun. `{}` until it is taken away, or with an end. One that has begun goes on."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if len(set(self.brokers)) < len(self.brokers):
            refuse("brokers", "a broker is named twice")
        return self


class StoreSnapshot(Resource):
    """One consistent snapshot of the stores of a cluster's brokers, in a volume or a bucket."""

    PLURAL: ClassVar[str] = "storesnapshots"
    STATUS = StoreSnapshotStatus
    RULES: ClassVar[tuple[Rule, ...]] = (NAME_RULE,)

    kind: Literal["StoreSnapshot"] = "StoreSnapshot"
    """`StoreSnapshot`."""

    spec: StoreSnapshotSpec
    """Of which brokers, and where it is kept."""

    @model_validator(mode="after")
    def _name_fits(self) -> Self:
        check_name(self.metadata.name)
        return self
