"""What the operator says of a MessagingCluster."""

from typing import Literal

from pydantic import Field

from sterna_resources.fields import Count, Time
from sterna_resources.status import Status, StatusModel

_BROKERS_MAX = 128


class BrokerStatus(StatusModel):
    """One broker, as its pod, its registration and its own report show it."""

    name: str = Field(min_length=1, max_length=64)
    """The broker's name, which is its pod's."""

    ready: bool = False
    """Whether it serves."""

    image: str | None = Field(default=None, max_length=512)
    """The image that its pod runs."""

    version: str | None = Field(default=None, max_length=64)
    """The version that it says it is."""

    addresses: list[str] = Field(
        default_factory=list, max_length=16, json_schema_extra={"items": {"type": "string", "maxLength": 300}}
    )
    """Where clients reach it."""

    applied_revision: Count | None = None
    """The revision of the shared configuration that it has applied."""

    destinations: Count | None = None
    """How many queues and topics live on it."""

    messages: Count | None = None
    """How many messages it holds, as it last said."""

    draining: bool = False
    """Whether it is being emptied, to go."""

    message: str | None = Field(default=None, max_length=1_024)
    """Why it does not serve, in its own words (`/readyz`, or the last ones before it ended), or those of whoever keeps
    it from that: scheduler, kubelet, or the API server, which lets no pod be made."""


class Maintenance(StatusModel):
    """Brokers are about to be restarted or taken away, or are, so that no run of an AuditJob is begun."""

    reason: Literal["Rolling", "Scaling"]
    """What is done: brokers are restarted one by one, or taken away."""

    left: Count = 0
    """How many brokers are still to be restarted or taken away."""

    since: Time
    """When the last of them was done, or it began. After a while without any AuditJobs go on all the same."""

    leaving: list[str] = Field(
        default_factory=list, max_length=_BROKERS_MAX, json_schema_extra={"items": {"type": "string", "maxLength": 64}}
    )
    """The brokers that are empty and go as soon as AuditJobs have taken a last snapshot of them."""


class ClusterStatus(Status):
    """What the operator says of a cluster."""

    replicas: Count = 0
    """How many broker pods there are."""

    ready_brokers: Count = 0
    """How many brokers serve."""

    selector: str | None = Field(default=None, max_length=512)
    """The labels of the broker pods, for `kubectl scale` and autoscalers."""

    image: str | None = Field(default=None, max_length=512)
    """The image that brokers run, or are being changed to."""

    managed_by: str | None = Field(default=None, max_length=512)
    """The operator that the cluster belongs to, by namespace and name of its Lease. Others leave it alone."""

    operator_version: str | None = Field(default=None, max_length=64)
    """The operator that last looked."""

    etcd: Literal["managed", "external"] | None = None
    """`managed`: one member, for trying. `external`: the endpoints in the spec."""

    etcd_image: str | None = Field(default=None, max_length=512)
    """The image of the etcd that the operator runs for trying."""

    etcd_id: str | None = Field(default=None, max_length=64)
    """Which store that etcd is, by the mark that brokers and operator put into it. Another one under the same address
    is not taken for it."""

    etcd_revision: int | None = Field(default=None, ge=0)
    """A revision that etcd has been seen at, noted now and then. One that is at an earlier revision is an old copy, for
    an operator that starts anew, too."""

    url: str | None = Field(default=None, max_length=512)
    """The address for clients inside of Kubernetes."""

    external_urls: list[str] = Field(
        default_factory=list, max_length=8, json_schema_extra={"items": {"type": "string", "maxLength": 8_192}}
    )
    """The addresses for clients outside, one for each listener."""

    connection_secret: str | None = Field(default=None, max_length=253)
    """The Secret for applications."""

    certificate_not_after: Time | None = None
    """When the certificate ends that brokers show."""

    maintenance: Maintenance | None = None
    """What AuditJobs of the cluster wait for, if there are any."""

    brokers: list[BrokerStatus] = Field(
        default_factory=list,
        max_length=_BROKERS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    """Each broker."""
