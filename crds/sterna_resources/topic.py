"""Topic: each message goes to every subscription that matches."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sterna_resources.destination import DestinationResource, DestinationSpec, temporary_settings_rule
from sterna_resources.queue import PREFETCH_MAX
from sterna_resources.rules import Rule
from sterna_resources.status import DestinationStatus


def _check_prefetch(value: Any) -> Any:
    if value == "none":
        raise PydanticCustomError("prefetch", "`none` is for queues alone: topics push to their subscribers")
    return value


class TopicSpec(DestinationSpec):
    """The properties of a topic."""

    RULES: ClassVar[tuple[Rule, ...]] = (temporary_settings_rule(),)

    prefetch: Annotated[int, Field(ge=0, le=PREFETCH_MAX), BeforeValidator(_check_prefetch)] | None = None
    """How many messages a subscriber is sent ahead of its receive calls, 1 to 100,000. Absent or 0: inherited, the
    largest number; if nobody says, 64 (EMS-DEST-A26, A30)."""


class Topic(DestinationResource):
    """A topic, or a wildcard entry for topics."""

    PLURAL: ClassVar[str] = "topics"
    STATUS = DestinationStatus

    kind: Literal["Topic"] = "Topic"
    """`Topic`."""

    spec: TopicSpec = Field(default_factory=TopicSpec)
    """The topic's properties."""
