"""What AuditJob and StoreSnapshot have in common: where snapshots are kept, how they are taken, what pods may use."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from sterna_resources.cluster_access import CaSecret, refuse
from sterna_resources.cluster_pods import WITHIN_LIMITS, SecretRef, Toleration, check_within_limits
from sterna_resources.fields import Model, ObjectName, Quantity, section
from sterna_resources.passwords import USER_CHARACTERS_MAX
from sterna_resources.rules import Rule, exactly_one
from sterna_resources.user import PasswordSecret, SecretKeyName

# CronJob and Jobs are called by the object's name, Jobs with up to 11 characters behind it, and results with 7 more.
AUDIT_NAME_CHARACTERS_MAX = 40
KEYS_MAX = 16

_NAME = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME_FAULT = (
    f"metadata.name: at most {AUDIT_NAME_CHARACTERS_MAX} lower-case letters, digits and -: "
    "the names of jobs are made of it"
)
NAME_RULE = Rule(
    f"size(self.metadata.name) <= {AUDIT_NAME_CHARACTERS_MAX} && self.metadata.name.matches('{_NAME}')", _NAME_FAULT
)

_Label = Annotated[str, Field(max_length=63)]
_Foreign = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]

_ONE_PLACE = "needs either volumeClaim or bucket, one of them"
_SIGNED = "needs signKeySecret, or unsigned: true if nobody is to vouch for snapshots, one of them"
_HASHED = "principalsKeySecret is for principals: hashed, and hashed needs it"


def check_name(name: str) -> None:
    """Refuses an object's name that is too long, or has characters that no job may be called by.

    Raises:
        PydanticCustomError: it is refused.
    """
    if len(name) > AUDIT_NAME_CHARACTERS_MAX or not all(c.isascii() and (c.isalnum() or c == "-") for c in name):
        refuse("invalid_name", _NAME_FAULT)
    if name != name.lower() or name.startswith("-") or name.endswith("-"):
        refuse("invalid_name", _NAME_FAULT)


class KeySecret(Model):
    """A key in a Secret."""

    name: ObjectName
    """The Secret's name, in the object's namespace."""

    key: SecretKeyName
    """The key in the Secret under which it stands."""


class Bucket(Model):
    """A bucket of an object store that speaks S3."""

    uri: Annotated[str, Field(max_length=512, pattern=r"^s3://[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](/[-_.a-zA-Z0-9]+)*$")]
    """`s3://BUCKET/PREFIX`. Snapshots and results are kept below it, in `snapshots/` and `results/`."""

    credentials_secret: ObjectName | None = None
    """A Secret with `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, and `AWS_SESSION_TOKEN` if there is one. Absent:
    what the pod's node has."""

    endpoint: Annotated[str, Field(max_length=512, pattern=r"^https?://[-.:a-zA-Z0-9\[\]]+$")] | None = None
    """Where the object store is, if it is not Amazon's: `https://HOST:PORT`."""

    region: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[-a-z0-9]+$")] | None = None
    """The bucket's region."""


class AuditStorage(Model):
    """Where snapshots and results are kept: a volume, or a bucket."""

    RULES: ClassVar[tuple[Rule, ...]] = (Rule(exactly_one("volumeClaim", "bucket"), _ONE_PLACE),)

    volume_claim: ObjectName | None = None
    """A PersistentVolumeClaim in the object's namespace, which has to be there: the folders `snapshots` and `results`
    are made on it. Nothing deletes it."""

    bucket: Bucket | None = None
    """A bucket of an object store."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.volume_claim is None) == (self.bucket is None):
            refuse("one_of", _ONE_PLACE)
        return self


class SnapshotPolicy(Model):
    """How snapshots are taken."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.signKeySecret) != self.unsigned", _SIGNED),
        Rule("has(self.principalsKeySecret) == (self.principals == 'hashed')", _HASHED, ".principalsKeySecret"),
    )

    principals: Literal["hashed", "plain", "none"] = "hashed"
    """Principals and client ids in snapshots. `hashed`: as keyed hashes, by which the same ones can be told to be the
    same. `none`: they are left out. `plain`: as they are; snapshots then hold personal data."""

    principals_key_secret: KeySecret | None = None
    """The key of those hashes, 16 bytes or more."""

    sign_key_secret: KeySecret | None = None
    """The private key (Ed25519, PEM) with which manifests are signed."""

    unsigned: bool = False
    """True: manifests are not signed, and whoever can write there can change snapshots unnoticed. For trying."""

    rate: Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[0-9]{1,12}(\.[0-9]{1,3})?[kMG]?$")] | None = (
        None
    )
    """How many bytes a second are written at most: `500k`, `20M`, `1G`. Absent: as many as can be."""

    wait_seconds: int = Field(default=600, ge=0, le=86_400)
    """How long is waited for a broker's cut to be whole, and for another exporter to end."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if (self.sign_key_secret is not None) == self.unsigned:
            refuse("signature", _SIGNED)
        if (self.principals_key_secret is not None) != (self.principals == "hashed"):
            refuse("principals", _HASHED)
        return self


class AuditConnection(Model):
    """How brokers are reached, and as whom. Their addresses and whether they speak TLS are the cluster's."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.user) == has(self.passwordSecret)", "user and passwordSecret go together"),
    )

    user: Annotated[str, Field(min_length=1, max_length=USER_CHARACTERS_MAX)] | None = None
    """Who asks for cuts: a User of the cluster. Needed where the cluster asks for one."""

    password_secret: PasswordSecret | None = None
    """The Secret with that user's password."""

    ca: CaSecret | None = None
    """The authority by which brokers are checked. Absent: the one in the cluster's connection Secret; needed if the
    cluster speaks TLS and lives in another namespace."""

    certificate_secret: ObjectName | None = None
    """A Secret with `tls.crt` and `tls.key`, which brokers are shown. Needed if the cluster asks clients for one."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if (self.user is None) != (self.password_secret is None):
            refuse("user", "user and passwordSecret go together")
        return self


class AuditResources(Model):
    """What a pod may use, as Kubernetes writes it."""

    RULES: ClassVar[tuple[Rule, ...]] = (WITHIN_LIMITS,)

    requests: dict[str, Quantity] = Field(default={"cpu": "500m", "memory": "3Gi"}, max_length=16)
    """What is kept free for it."""

    limits: dict[str, Quantity] = Field(default={"memory": "4Gi"}, max_length=16)
    """What it may use at most. More than `spark.memory` and a gigabyte, where Spark runs in it."""

    @model_validator(mode="after")
    def _requests_fit(self) -> Self:
        check_within_limits(self.requests, self.limits)
        return self


class AuditPod(Model):
    """The pods' own fields. Command, volumes and security are not to be changed."""

    resources: AuditResources = section(AuditResources)
    """What each pod may use."""

    scratch: Quantity = "10Gi"
    """How much Spark may put aside on the node's disk."""

    node_selector: dict[str, _Label] = Field(default_factory=dict, max_length=64)
    """The labels that a node must have."""

    tolerations: list[Toleration] = Field(default_factory=list, max_length=32)
    """The taints that the pods put up with."""

    affinity: _Foreign | None = None
    """Rules of attraction and repulsion, as in a pod."""

    priority_class_name: ObjectName | None = None
    """How important the pods are."""

    image_pull_secrets: list[SecretRef] = Field(default_factory=list, max_length=16)
    """The Secrets with which the image is fetched."""
