"""Where a cluster keeps what its brokers share."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from sterna_resources.cluster_access import CaSecret, refuse
from sterna_resources.cluster_pods import Storage
from sterna_resources.fields import Model, ObjectName, section
from sterna_resources.rules import Rule, exactly_one, unchanged

ENDPOINTS_MAX = 9

_Endpoint = Annotated[str, Field(max_length=300, pattern=r"^https?://(\[[0-9a-fA-F:.]+\]|[-._a-zA-Z0-9]+):[0-9]{1,5}$")]


class ManagedEtcd(Model):
    """An etcd of one member that the operator runs, for trying things out."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The image. Absent: the operator's choice when it made the cluster, kept in `status.etcdImage`; a newer operator
    does not change it, and one that was named stays when it is named no more. Another is taken by naming it."""

    storage: Storage = section(Storage)
    """The member's volume."""

    tls: bool | None = None
    """Whether it speaks TLS, and to those alone who show a certificate that the operator has given them; the operator
    makes all certificates and renews them. Absent: yes, unless the etcd runs without since before this could be said.
    When it is changed, etcd and then the brokers are restarted, one by one."""


class EtcdTls(Model):
    """How brokers and the operator speak to etcd with TLS."""

    ca: CaSecret
    """Whom to trust."""

    certificate_secret: ObjectName | None = None
    """A Secret of type `kubernetes.io/tls` with the certificate to show, where etcd asks for one."""


class Etcd(Model):
    """The etcd that brokers share: one that is there (`endpoints`), or a small one for trying (`managed`)."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(exactly_one("managed", "endpoints"), "needs either managed or endpoints, one of them"),
        Rule(
            "has(self.endpoints) || !(has(self.tls) || has(self.credentialsSecret))",
            "tls and credentialsSecret are for endpoints: a managed etcd has its own",
        ),
        Rule(
            "!has(self.endpoints) || !(has(self.tls) || has(self.credentialsSecret)) "
            "|| self.endpoints.all(e, e.startsWith('https://'))",
            "tls and credentialsSecret need endpoints that begin with https://",
            ".endpoints",
        ),
        Rule(
            "has(self.managed) == has(oldSelf.managed)",
            "a cluster cannot move between a managed etcd and another one: make another cluster",
        ),
        Rule(unchanged("clusterName"), "clusterName cannot be changed: everything is kept under it", ".clusterName"),
    )

    managed: ManagedEtcd | None = None
    """The operator runs an etcd of one member. Not for production, and the status says so: who loses its volume loses
    which broker has which destination, though no message."""

    endpoints: list[_Endpoint] | None = Field(default=None, min_length=1, max_length=ENDPOINTS_MAX)
    """The addresses of etcd's members, such as `https://etcd-0.etcd:2379`."""

    tls: EtcdTls | None = None
    """How to speak to endpoints with `https://`."""

    credentials_secret: ObjectName | None = None
    """A Secret with `username` and `password` for etcd's own authentication."""

    cluster_name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[-._a-zA-Z0-9]+$")] | None = None
    """The name under which the cluster keeps its state in etcd; `<namespace>.<name>` when absent. Not changeable."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if (self.managed is None) == (self.endpoints is None):
            refuse("one_of", "needs either managed or endpoints, one of them")
        secured = self.tls is not None or self.credentials_secret is not None
        if self.endpoints is None and secured:
            refuse("etcd", "tls and credentialsSecret are for endpoints: a managed etcd has its own")
        if secured and not all(endpoint.startswith("https://") for endpoint in self.endpoints or ()):
            refuse("etcd", "tls and credentialsSecret need endpoints that begin with https://")
        return self
