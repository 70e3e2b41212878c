"""What the operator says of an object: the `status` of every kind, in the form that Kubernetes' tools understand.

`observedGeneration` begins at -1, which no generation is; so an object that no operator has looked at yet shows as
being worked on, to everything that follows kstatus, and Ready is Unknown, for everything that knows conditions alone.
The server fills both in itself (`PENDING`). Three conditions stand in every status that an operator has written: Ready
(brokers report having applied this very generation), Reconciling (there is something to do) and Stalled (nothing will
happen until somebody changes something). What a newer operator wrote is read with the fields that are known here.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from sterna_resources.fields import Count, Model, Time

UNOBSERVED = -1
CONDITIONS_MAX = 16
STEPS_MAX = 100

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"


class StatusModel(Model):
    """A part of a status."""

    model_config = ConfigDict(extra="ignore")

    def values(self) -> dict[str, Any]:
        """The part as it is written, what is absent left out."""
        return self.model_dump(by_alias=True, exclude_none=True, mode="json")


class Condition(StatusModel):
    """One thing that is so, or is not."""

    type: str = Field(min_length=1, max_length=63, json_schema_extra={"pattern": "^[A-Za-z]([A-Za-z0-9]*)$"})
    """What it is about: `Ready`, `Reconciling`, `Stalled`, or more of the kind's own."""

    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""

    reason: str = Field(min_length=1, max_length=128, json_schema_extra={"pattern": "^[A-Za-z]([A-Za-z0-9_]*)$"})
    """Why, in one word of a closed set."""

    message: str = Field(default="", max_length=32_768)
    """Why, for people."""

    observed_generation: int = Field(default=UNOBSERVED, ge=UNOBSERVED)
    """The generation of the object that this was found for."""

    last_transition_time: Time
    """When `status` last became another one."""


# What stands in the status of an object that no operator has looked at yet. The time is the one that Gateway API has
# for the same: the server fills it in, and cannot know when that is.
PENDING = Condition(
    type=READY,
    status="Unknown",
    reason="Pending",
    message="no operator has looked at it yet",
    last_transition_time="1970-01-01T00:00:00Z",
)


class PlanStatus(StatusModel):
    """What the operator would do, asked for by the annotation `sterna.dev/plan: "true"`."""

    generation: int = Field(ge=0)
    """The generation of the object that it was made for."""

    steps: list[str] = Field(
        default_factory=list, max_length=STEPS_MAX, json_schema_extra={"items": {"type": "string", "maxLength": 4_096}}
    )
    """The steps, in order; empty: nothing is to be done."""

    omitted: Count = 0
    """How many more steps there are than could be written."""


class Status(StatusModel):
    """What every kind says of itself."""

    observed_generation: int = Field(default=UNOBSERVED, ge=UNOBSERVED)
    """The generation of the object that the rest speaks of; -1: the operator has not looked yet."""

    conditions: list[Condition] = Field(
        default_factory=list,
        max_length=CONDITIONS_MAX,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    """Ready, Reconciling, Stalled."""

    claim: str | None = Field(default=None, max_length=512)
    """The name that the object has in its cluster."""

    plan: PlanStatus | None = None
    """What would be done, if it was asked for."""


class PlacedStatus(Status):
    """Of a kind that has a home broker."""

    home: str | None = Field(default=None, max_length=64)
    """The broker on which it lives."""


class DestinationStatus(PlacedStatus):
    """Of a kind that keeps messages."""

    messages: Count | None = None
    """How many messages it held when its deletion was last held up by them."""


class UserStatus(Status):
    """Of a user."""

    credentials: Count | None = None
    """How many passwords are valid at present: two while an old one is still taken."""

    overlap_until: Time | None = None
    """When the old password ends."""

    password_version: str | None = Field(default=None, max_length=256)
    """Which version of the Secret brokers were given a hash of."""
