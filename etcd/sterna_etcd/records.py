"""The values that stand in etcd: JSON, read strictly.

Types and bounds are checked; what a later version may have added is not looked at, so that brokers and operator can be
upgraded one after the other. A value that cannot be read concerns its key alone: `RecordError` names it.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

VALUE_BYTES_MAX = 1_400_000
"""etcd takes requests up to 1.5 MiB; so much is left for a value."""

Milliseconds = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
DeletionPolicy = Literal["retain", "delete", "onlyIfEmpty"]
ObjectState = Literal["applied", "refused", "deleted", "blocked", "elsewhere"]


class RecordError(ValueError):
    """A value in etcd that cannot be read; the text names the key and what is wrong."""


class Record(BaseModel):
    """What all values have in common."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @classmethod
    def decode(cls, key: str, value: bytes) -> Self:
        """From a value of etcd.

        Raises:
            RecordError: it is none of this kind.
        """
        try:
            return cls.model_validate_json(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"])) or "the whole"
            raise RecordError(f"{key}: {where}: {first['msg']}") from error

    def encode(self) -> bytes:
        """For etcd; equal records are equal bytes.

        Raises:
            RecordError: it is larger than etcd takes.
        """
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        value = text.encode()
        if len(value) > VALUE_BYTES_MAX:
            raise RecordError(f"a {type(self).__name__} of {len(value)} bytes is larger than etcd takes")
        return value


class IdentityRecord(Record):
    """`identity`: which store this is."""

    id: Annotated[str, Field(min_length=1, max_length=64)]
    created_ms: Milliseconds


class WitnessRecord(Record):
    """`witnesses/<kind>/<member>`: what a member has left there lately, the newest last; see identity."""

    tokens: Annotated[list[str], Field(max_length=64)]


class Owner(Record):
    """Who an object belongs to: an object in Kubernetes (by the operator), or whoever may administrate."""

    by: Literal["operator", "admin"]
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.namespace}/{self.name}" if self.by == "operator" else "an administrator"


class Deleting(Record):
    """That an object is to go, and what with the messages it has. `uid` names the request."""

    policy: DeletionPolicy
    uid: str = ""


class ConfigRecord(Record):
    """`config/<Kind>/<claim>`: one configured object."""

    manifest: dict[str, Any]
    owner: Owner
    generation: Count = 0
    deleting: Deleting | None = None

    @property
    def asked_by(self) -> str:
        """The uid of the request that stands here, which an answer to it names: the deletion's, or its owner's."""
        return (self.deleting.uid if self.deleting else "") or self.owner.uid


class HomeRecord(Record):
    """`homes/<kind>/<name>`: the broker that has the destination."""

    broker: Annotated[str, Field(min_length=1, max_length=253)]
    static: bool = False


class BrokerRecord(Record):
    """`brokers/<name>`: a broker that lives."""

    addresses: list[str]
    version: str
    incarnation: str
    started_ms: Milliseconds
    destinations: Count = 0


class Draining(Record):
    """What a broker that is being emptied still has."""

    destinations: Count
    messages: Count
    waits_for: str = ""
    """What keeps a destination here that holds no message, in words; empty: nothing that would have to be told."""

    is_closed: bool = False
    """All that lives here was closed to producers before its messages were counted."""


class BrokerStatus(Record):
    """`status/brokers/<name>`: what a broker says of itself."""

    applied_revision: Count
    state: str
    draining: Draining | None = None
    warnings: list[str] = Field(default_factory=list)
    reasons: list[str] = Field(default_factory=list)
    """Why it is not ready, as /readyz says it; empty: it is, or an older version does not say."""

    messages: Count = 0
    """All messages that it holds, whoever they are for: a cluster that is to go only when it is empty asks for it."""

    incarnation: str = ""
    """Which start of the broker says this, as in its BrokerRecord: what a former one has closed is open again."""

    certificate: str = ""
    """SHA-256, in hexadecimal, of the certificate file that it shows its clients; empty: none, or it does not say."""


class ObjectStatus(Record):
    """`status/objects/<Kind>/<claim>/<broker>`: what a broker says of an object."""

    uid: str = ""
    generation: Count
    state: ObjectState
    reason: str = ""
    message: str = ""
    messages: Count = 0
    home: str = ""


class ClaimRecord(Record):
    """`operator/claim`: the MessagingCluster that has this place in etcd, and the operator that looks after it.

    `kubernetes` tells apart clusters of the same name in two Kubernetes: the uid of the cluster's namespace, or empty
    where it could not be read.
    """

    operator: str
    namespace: str
    name: str
    uid: str
    kubernetes: str = ""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"MessagingCluster {self.namespace}/{self.name} (uid {self.uid}, operator {self.operator})"

    def is_of(self, other: "ClaimRecord") -> bool:
        """Whether both speak of one cluster: of the very same, or of one that was made anew under its name."""
        if self.uid == other.uid:
            return True
        is_here = self.kubernetes == other.kubernetes or not (self.kubernetes and other.kubernetes)
        return is_here and (self.namespace, self.name) == (other.namespace, other.name)


class LeftRecord(Record):
    """`operator/left/<Kind>/<claim>`: an object in Kubernetes went, and what it was of stayed in the brokers.

    One of the same namespace and name takes it back by itself.
    """

    owner: Owner


class DrainRecord(Record):
    """`drain/<broker>`: the broker is to be emptied; `force`: without regard to messages."""

    force: bool = False

    closes_only: bool = False
    """The whole cluster is to go: nothing moves, and everything is closed to producers until this is taken back."""


class Credential(Record):
    """One password that a user may have, as an argon2 hash, for as long as it is valid."""

    argon2: Annotated[str, Field(min_length=1, max_length=1_024, pattern=r"^\$argon2id\$")] = Field(repr=False)
    not_after_ms: Milliseconds | None = None


class UserRecord(Record):
    """`users/<name>`."""

    credentials: list[Credential] = Field(default_factory=list, max_length=8)
    owner: Owner
