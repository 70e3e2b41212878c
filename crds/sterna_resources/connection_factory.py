"""ConnectionFactory: how a program connects, kept by brokers under a name that programs look up."""

import re
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources import names
from sterna_resources.fields import ATOMIC, Aliases, LookupName, Model, check_aliases
from sterna_resources.rules import OTHER_NAMES, SAME_NAME, Rule, of_field
from sterna_resources.topology import TopologyResource, TopologySpec

URL_CHARACTERS_MAX = 1_000
ATTEMPTS_MAX = 1_000_000
PATIENCE_MS_MAX = 24 * 3600 * 1000
_FILE_CHARACTERS_MAX = 1_024
# How a certificate or a key in PEM begins; clients take a text that begins so for the thing itself.
_PEM_BEGINS = "-----BEGIN"
# How many there may be in a broker or a cluster: whoever looks one up costs the same, but all are read at each change.
FACTORIES_MAX = 1_000

_PORT = "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9][0-9]|6[0-4][0-9][0-9][0-9]|[1-5][0-9][0-9][0-9][0-9]|[1-9][0-9]{0,3})"
_ADDRESS = rf"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:{_PORT})?"
_URL_PATTERN = f"sternas?://{_ADDRESS}([,+]{_ADDRESS})*"
_URL = re.compile(_URL_PATTERN)


def _check_url(text: str) -> str:
    if "@" in text or "?" in text:
        # Said before anything is quoted: it may be a password.
        raise PydanticCustomError(
            "url", "holds neither user nor password nor options: settings have fields of their own"
        )
    if not _URL.fullmatch(text):
        raise PydanticCustomError("url", "must be one such as sterna://a:7222,b:7222 or sternas://a+b")
    return text


Url = Annotated[
    str,
    Field(min_length=1, max_length=URL_CHARACTERS_MAX, json_schema_extra={"pattern": f"^{_URL_PATTERN}$"}),
    AfterValidator(_check_url),
]


def _check_client_id(text: str) -> str:
    if fault := names.client_id_fault(text):
        raise PydanticCustomError("client_id", "{fault}", {"fault": fault})
    return text


ClientId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=names.SUBSCRIPTION_CHARACTERS_MAX,
        json_schema_extra={"pattern": r"^[^\p{Cc}]+$"},
    ),
    AfterValidator(_check_client_id),
]


def _check_file_name(text: str) -> str:
    if _PEM_BEGINS in text:
        # Not repeated: whoever takes a key for its file's name would find it in a log.
        raise PydanticCustomError("file_name", "names a file of the client's machine, and holds nothing of it")
    return text


FileName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=_FILE_CHARACTERS_MAX,
        json_schema_extra=of_field(
            Rule(f"!self.contains('{_PEM_BEGINS}')", "names a file of the client's machine, and holds nothing of it")
        ),
    ),
    AfterValidator(_check_file_name),
]
Patience = Annotated[int, Field(ge=0, le=PATIENCE_MS_MAX)]
Attempts = Annotated[int, Field(ge=1, le=ATTEMPTS_MAX)]


class FactoryTls(Model):
    """Which files of the client's machine it uses for TLS. What they hold never stands here (EMS-CLI-B35)."""

    model_config = ConfigDict(json_schema_extra=ATOMIC)
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.certificateFile) == has(self.keyFile)", "certificateFile and keyFile go together"),
    )

    ca_file: FileName | None = None
    """The authority to trust, in PEM. Absent: the authorities that the client trusts by itself."""

    certificate_file: FileName | None = None
    """The certificate that the client shows, in PEM."""

    key_file: FileName | None = None
    """The certificate's key, in PEM."""

    server_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """The name that the brokers' certificates have to have, where it differs from the address."""

    @model_validator(mode="after")
    def _certificate_with_key(self) -> Self:
        if (self.certificate_file is None) != (self.key_file is None):
            raise PydanticCustomError("tls_pair", "certificateFile and keyFile go together")
        return self


class ConnectionFactorySpec(TopologySpec):
    """Where to connect, and how hard to try. What is absent is as the client has it by itself."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.tls) || self.url.startsWith('sternas://')",
            "tls is for a url that begins with sternas://",
            ".tls",
        ),
    )

    name: LookupName | None = Field(default=None, json_schema_extra={"x-sterna-default": "metadata.name"})
    """The name under which it is looked up; `metadata.name` when absent."""

    aliases: Aliases = Field(default_factory=list)
    """More names under which it is looked up. Each leads to one thing alone (EMS-CLI-B15)."""

    url: Url
    """Where to connect: `sterna://host:port`, or `sternas://` for TLS; without a port 7222. Addresses with commas
    between them are one broker or pair, those with plus signs have nothing to do with each other. All are tried in
    turn (EMS-CLI-B03). A program cannot set another one."""

    load_balancing: Literal["none", "random"] = "none"
    """In which order the parts between plus signs are tried. `none`: as they stand. `random`: each connection draws
    its own, so that clients spread. How much a broker has to do is not compared (EMS-CLI-B04). Not for durable
    subscriptions: what waits on one broker is not found on another (EMS-CLI-B08)."""

    client_id: ClientId | None = None
    """The client id of each connection that is made by it, to which durable subscriptions belong (EMS-CLI-B05)."""

    connect_attempts: Attempts | None = None
    """How often all addresses are gone through before a first connection is given up; the SDK's default: 2
    (EMS-CLI-B06)."""

    connect_delay_ms: Patience | None = None
    """The pause between two such rounds, shortened at random by up to half; the SDK's default: 500."""

    connect_timeout_ms: Annotated[int, Field(ge=1, le=PATIENCE_MS_MAX)] | None = None
    """How long one address may take to answer; the SDK's default: 5,000."""

    reconnect_delay_ms: Annotated[int, Field(ge=1, le=PATIENCE_MS_MAX)] | None = None
    """The first pause between two rounds over all addresses after a connection broke; each later one is twice as long;
    the SDK's default: 50 (EMS-CLI-B07)."""

    reconnect_delay_max_ms: Annotated[int, Field(ge=1, le=PATIENCE_MS_MAX)] | None = None
    """The longest of these pauses; the SDK's default: 3,000."""

    reconnect_give_up_ms: Patience | None = None
    """How long it is tried before the connection is closed; 0: for ever; the SDK's default: 120,000."""

    heartbeat_ms: Patience | None = None
    """How often client and broker let each other know that they are there; absent or 0: as the broker has it."""

    tls: FactoryTls | None = None
    """For `sternas://`: which files the client uses."""

    deletion_policy: Literal["delete", "retain"] = "delete"
    """What becomes of the factory in the brokers when it is deleted in Kubernetes. `delete`: it is not found any more;
    connections made by it go on. `retain`: it stays, and nobody manages it."""

    @model_validator(mode="after")
    def _tls_needs_its_scheme(self) -> Self:
        if self.tls is not None and not self.url.startswith("sternas://"):
            raise PydanticCustomError("tls_scheme", "tls is for a url that begins with sternas://")
        return self


class ConnectionFactory(TopologyResource):
    """How a program connects: looked up by name, so that URLs stand in no program."""

    PLURAL: ClassVar[str] = "connectionfactories"
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            SAME_NAME,
            "a connection factory cannot be renamed: give it an alias, or make another",
            ".spec.name",
        ),
        OTHER_NAMES,
    )

    kind: Literal["ConnectionFactory"] = "ConnectionFactory"
    """`ConnectionFactory`."""

    spec: ConnectionFactorySpec
    """Where to connect, and how hard to try."""

    @property
    def subject(self) -> str:
        """The name under which it is looked up."""
        return self.spec.name or self.metadata.name

    @model_validator(mode="after")
    def _aliases_are_others(self) -> Self:
        check_aliases(self.subject, self.spec.aliases)
        return self
