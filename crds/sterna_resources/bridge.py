"""Bridge: the broker copies what arrives at one place to others."""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import DestinationName, Model, Selector, SourcePattern
from sterna_resources.rules import Rule, exactly_one
from sterna_resources.status import PlacedStatus
from sterna_resources.topology import TopologyResource, TopologySpec

# As many as Kubernetes can compare with each other, the longest names among them, within what a rule may cost.
TARGETS_MAX = 128
_ONE_OF = Rule(exactly_one("queue", "topic"), "needs either queue or topic, one of them")


def _each_once(field: str) -> Rule:
    """That no two targets name the same queue, or topic.

    Every pair would take the server seconds. So the names are listed once (a list of one list stands in for a variable,
    which the language does not have), and looking a name up in the list is the server's own.
    """
    return Rule(
        f"[self.targets.filter(t, has(t.{field})).map(t, t.{field})]"
        ".all(named, named.all(name, named.indexOf(name) == named.lastIndexOf(name)))",
        f"a {field} is named twice: join the selectors with OR",
        ".targets",
    )


def _no_loop(field: str) -> Rule:
    return Rule(
        f"!has(self.source.{field}) || !self.targets.exists(t, has(t.{field}) && t.{field} == self.source.{field})",
        f"the {field} is the source: a bridge cannot lead back to it",
        ".targets",
    )


def _check_one(queue: str | None, topic: str | None) -> None:
    if (queue is None) == (topic is None):
        raise PydanticCustomError("one_of", "needs either `queue` or `topic`, one of them")


class BridgeSource(Model):
    """Where copies come from."""

    RULES: ClassVar[tuple[Rule, ...]] = (_ONE_OF,)

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

    RULES: ClassVar[tuple[Rule, ...]] = (_ONE_OF,)

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


class BridgeSpec(TopologySpec):
    """From where to where."""

    RULES: ClassVar[tuple[Rule, ...]] = tuple(
        rule(field) for field in ("queue", "topic") for rule in (_each_once, _no_loop)
    )

    source: BridgeSource
    """Where copies come from. Copies that came over a bridge do not cross another one (EMS-DEST-A49)."""

    targets: list[BridgeTarget] = Field(min_length=1, max_length=TARGETS_MAX)
    """Where copies go, each with a selector of its own. Queues and topics mix freely."""

    deletion_policy: Literal["delete", "retain"] = "delete"
    """What becomes of the bridge in the brokers when it is deleted in Kubernetes. `delete`: it goes; no message is lost
    with it. `retain`: it stays, and nobody manages it."""

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


class Bridge(TopologyResource):
    """A server-side copy from a source to its targets."""

    PLURAL: ClassVar[str] = "bridges"
    STATUS = PlacedStatus

    kind: Literal["Bridge"] = "Bridge"
    """`Bridge`."""

    spec: BridgeSpec
    """From where to where."""
