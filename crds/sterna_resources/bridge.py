"""Bridge: the broker copies what arrives at one place to others."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import DestinationName, Model, Selector, SourcePattern
from sterna_resources.resource import Resource

TARGETS_MAX = 256


def _check_one(queue: str | None, topic: str | None) -> None:
    if (queue is None) == (topic is None):
        raise PydanticCustomError("one_of", "needs either `queue` or `topic`, one of them")


class BridgeSource(Model):
    """Where copies come from."""

    queue: SourcePattern | None = None
    """A queue's name, or a pattern: then every matching queue (EMS-DEST-A48)."""

    topic: SourcePattern | None = None
    """A topic's name, or a pattern: then every matching topic."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        _check_one(self.queue, self.topic)
        return self

    @property
    def destination(self) -> tuple[str, str]:
        """Kind ("queue" or "topic") and name."""
        return ("queue", self.queue) if self.queue is not None else ("topic", self.topic or "")


class BridgeTarget(Model):
    """Where copies go."""

    queue: DestinationName | None = None
    """The name of one queue."""

    topic: DestinationName | None = None
    """The name of one topic."""

    selector: Selector = ""
    """Only messages that match cross (EMS-DEST-A52). Empty: all."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        _check_one(self.queue, self.topic)
        return self

    @property
    def destination(self) -> tuple[str, str]:
        """Kind ("queue" or "topic") and name."""
        return ("queue", self.queue) if self.queue is not None else ("topic", self.topic or "")


class BridgeSpec(Model):
    """From where to where."""

    source: BridgeSource
    """Where copies come from. Copies that came over a bridge do not cross another one (EMS-DEST-A49)."""

    targets: list[BridgeTarget] = Field(min_length=1, max_length=TARGETS_MAX)
    """Where copies go, each with a selector of its own. Queues and topics mix freely."""

    @model_validator(mode="after")
    def _targets_are_distinct(self) -> Self:
        seen: set[tuple[str, str]] = set()
        for target in self.targets:
            kind, name = target.destination
            if target.destination == self.source.destination:
                fault = f"the {kind} {name} is the source: a bridge cannot lead back to it"
                raise PydanticCustomError("bridge_loop", "{fault}", {"fault": fault})
            if target.destination in seen:
                fault = f"the {kind} {name} is named twice: join the selectors with OR"
                raise PydanticCustomError("bridge_target_twice", "{fault}", {"fault": fault})
            seen.add(target.destination)
        return self


class Bridge(Resource):
    """A server-side copy from a source to its targets."""

    PLURAL: ClassVar[str] = "bridges"

    kind: Literal["Bridge"] = "Bridge"
    """`Bridge`."""

    spec: BridgeSpec
    """From where to where."""
