"""User: somebody who may connect, with a password that stands in a Secret and nowhere else."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import Model, ObjectName
from sterna_resources.passwords import USER_CHARACTERS_MAX, user_fault
from sterna_resources.rules import SAME_NAME, Rule
from sterna_resources.status import UserStatus
from sterna_resources.topology import TopologyResource, TopologySpec

OVERLAP_SECONDS_MAX = 30 * 24 * 3600


def _check_user_name(name: str) -> str:
    if fault := user_fault(name):
        raise PydanticCustomError("invalid_name", "{fault}", {"fault": fault})
    return name


UserName = Annotated[
    str,
    Field(min_length=1, max_length=USER_CHARACTERS_MAX, json_schema_extra={"pattern": r"^( |[^:\p{C}\p{Z}])+$"}),
    AfterValidator(_check_user_name),
]
SecretKeyName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]


class PasswordSecret(Model):
    """Where the password stands."""

    name: ObjectName
    """The Secret's name, in the namespace of the User."""

    key: SecretKeyName = "password"
    """The key in the Secret under which the password stands."""


class UserSpec(TopologySpec):
    """Who it is, and how passwords change."""

    name: UserName | None = Field(default=None, json_schema_extra={"x-sterna-default": "metadata.name"})
    """The name with which clients say who they are; `metadata.name` when absent."""

    password_secret: PasswordSecret
    """The Secret that holds the password. Brokers get a hash of it within seconds of a change, never the password."""

    overlap_seconds: int = Field(default=300, ge=0, le=OVERLAP_SECONDS_MAX)
    """How long the old password is still taken after a change, so that clients can be given the new one one by one."""

    revoke_immediately: bool = False
    """The old password ends at once, whatever `overlapSeconds` says: for a password that others may know."""

    deletion_policy: Literal["delete", "retain"] = "delete"
    """What becomes of the user in the brokers when it is deleted in Kubernetes. `delete`: nobody can connect with it
    any more. `retain`: it stays, and nobody manages it."""


class User(TopologyResource):
    """Somebody who may connect to a cluster."""

    PLURAL: ClassVar[str] = "users"
    STATUS = UserStatus
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            SAME_NAME,
            "a user cannot be renamed: make another",
            ".spec.name",
        ),
    )

    kind: Literal["User"] = "User"
    """`User`."""

    spec: UserSpec
    """Who it is, and how passwords change."""

    @property
    def subject(self) -> str:
        """The name with which clients say who they are."""
        return self.spec.name or self.metadata.name

    @model_validator(mode="after")
    def _name_fits(self) -> Self:
        if fault := user_fault(self.subject):
            raise PydanticCustomError("invalid_name", "{fault}", {"fault": f"as the user's name: {fault}"})
        return self
