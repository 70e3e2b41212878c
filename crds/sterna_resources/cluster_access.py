"""How clients reach a cluster and prove who they are: certificates, authentication, listeners for outside."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import ATOMIC, DnsLabel, Model, ObjectName
from sterna_resources.rules import Rule, exactly_one
from sterna_resources.user import SecretKeyName

LISTENERS_MAX = 8
BROKERS_MAX = 64
MESSAGING_PORT = 7222

_Port = Annotated[int, Field(ge=1, le=65_535)]
_DnsName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._*a-zA-Z0-9]+$")]
_Host = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9{}]+$")]
_HostAndPort = Annotated[
    str, Field(min_length=3, max_length=300, pattern=r"^(\[[0-9a-fA-F:.]+\]|[-._a-zA-Z0-9]+):[0-9]{1,5}$")
]
# Names as certificates have them, or addresses.
_HostName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._*a-zA-Z0-9:]+$")]
_Annotation = Annotated[str, Field(max_length=4_096)]

_ONE_CERTIFICATE = "needs either secretName, certManager or generated, one of them"


def refuse(kind: str, fault: str) -> None:
    """Raises what pydantic takes for a refusal.

    Raises:
        PydanticCustomError: always.
    """
    raise PydanticCustomError(kind, "{fault}", {"fault": fault})


class CaSecret(Model):
    """A certificate authority's certificate in a Secret."""

    name: ObjectName
    """The Secret's name, in the namespace of the cluster."""

    key: SecretKeyName = "ca.crt"
    """The key in the Secret."""


class IssuerRef(Model):
    """An issuer of cert-manager."""

    name: ObjectName
    """The issuer's name."""

    kind: Annotated[str, Field(min_length=1, max_length=63)] = "Issuer"
    """`Issuer`, `ClusterIssuer`, or a kind of another group."""

    group: Annotated[str, Field(min_length=1, max_length=253)] = "cert-manager.io"
    """The API group of the kind."""


class CertManager(Model):
    """A certificate that cert-manager makes and renews. It names all addresses that brokers advertise."""

    issuer_ref: IssuerRef
    """Who issues it."""

    dns_names: list[_DnsName] = Field(default_factory=list, max_length=64)
    """More names for the certificate, besides those that the operator knows."""


class Generated(Model):
    """A certificate that the operator makes and renews, with an authority of the cluster's own."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)

    dns_names: list[_HostName] = Field(default_factory=list, max_length=64)
    """More names and addresses for the certificate, besides those that the operator knows."""


class Tls(Model):
    """The brokers' certificate, and what is asked of clients'. Renewed certificates are taken without a restart."""

    RULES: ClassVar[tuple[Rule, ...]] = (Rule(exactly_one("secretName", "certManager", "generated"), _ONE_CERTIFICATE),)

    secret_name: ObjectName | None = None
    """A Secret of type `kubernetes.io/tls` in the namespace of the cluster, with `tls.crt` and `tls.key`."""

    cert_manager: CertManager | None = None
    """The certificate comes from cert-manager, which has to be installed."""

    generated: Generated | None = None
    """The operator makes the certificate, in the Secret `<name>-tls`, for a year at a time. Its authority, for ten
    years, is in the Secret `<name>-ca`, which no pod mounts; one that is there already is taken."""

    ca: CaSecret | None = None
    """The authority that clients are told to trust; `ca.crt` of the certificate's own Secret when absent."""

    client_ca: CaSecret | None = None
    """Present: every client has to show a certificate of this authority."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(one is not None for one in (self.secret_name, self.cert_manager, self.generated)) != 1:
            refuse("one_of", _ONE_CERTIFICATE)
        return self


class Authentication(Model):
    """Who may connect."""

    enabled: bool = True
    """Clients have to name a User of this cluster and its password. Without it, whoever reaches a broker may do
    everything; `insecure` has to say that this is meant."""


class Listener(Model):
    """One way to the brokers from outside of Kubernetes, with an address for each broker."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("self.type != 'addresses' || has(self.addresses)", "addresses are missing: one for each broker"),
        Rule("!(has(self.host) && has(self.addresses))", "host and addresses say the same: give one of them", ".host"),
        Rule("self.type == 'nodePort' || !has(self.nodePorts)", "nodePorts are for type nodePort", ".nodePorts"),
        Rule(
            "self.type == 'loadBalancer' || !(has(self.loadBalancerClass) || has(self.loadBalancerSourceRanges))",
            "loadBalancerClass and loadBalancerSourceRanges are for type loadBalancer",
        ),
        Rule(
            "!has(self.nodePorts) || self.nodePorts.all(p, self.nodePorts.exists_one(other, other == p))",
            "a port is named twice",
            ".nodePorts",
        ),
    )

    name: Annotated[DnsLabel, Field(max_length=15)]
    """The listener's name; it becomes part of the names of Services."""

    type: Literal["nodePort", "loadBalancer", "addresses"]
    """`nodePort`: a port of every node leads to each broker. `loadBalancer`: one for each broker. `addresses`: whatever
    leads to the brokers' Services is there already, and `addresses` says what they are reached by."""

    port: _Port = MESSAGING_PORT
    """The port of the Service, which a load balancer shows to clients."""

    host: _Host | None = None
    """What clients call the brokers, `{ordinal}` standing for a broker's number: `b{ordinal}.mq.example.com`. Absent:
    the address that Kubernetes says (of the node, of the load balancer)."""

    addresses: list[_HostAndPort] | None = Field(default=None, min_length=1, max_length=BROKERS_MAX)
    """What clients call each broker, `host:port`, the first for broker 0. At least as many as there are brokers."""

    node_ports: list[Annotated[int, Field(ge=1, le=65_535)]] | None = Field(
        default=None, min_length=1, max_length=BROKERS_MAX
    )
    """The port of each broker, the first for broker 0; chosen by Kubernetes when absent."""

    annotations: dict[str, _Annotation] = Field(default_factory=dict, max_length=64)
    """Annotations of the listener's Services; cloud providers read their settings there."""

    load_balancer_class: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Which implementation of load balancers is to be used."""

    load_balancer_source_ranges: list[Annotated[str, Field(max_length=64)]] | None = Field(
        default=None, min_length=1, max_length=64
    )
    """From which networks clients may come, such as `10.0.0.0/8`."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.type == "addresses" and self.addresses is None:
            refuse("listener", "addresses are missing: one for each broker")
        if self.host is not None and self.addresses is not None:
            refuse("listener", "host and addresses say the same: give one of them")
        if self.type != "nodePort" and self.node_ports is not None:
            refuse("listener", "nodePorts are for type nodePort")
        if self.type != "loadBalancer" and (self.load_balancer_class or self.load_balancer_source_ranges):
            refuse("listener", "loadBalancerClass and loadBalancerSourceRanges are for type loadBalancer")
        if self.node_ports is not None and len(set(self.node_ports)) < len(self.node_ports):
            refuse("listener", "a port is named twice")
        return self

    def host_of(self, ordinal: int) -> str | None:
        """What clients call one broker, as far as `host` says so."""
        return self.host.replace("{ordinal}", str(ordinal)) if self.host is not None else None
