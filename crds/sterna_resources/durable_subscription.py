"""DurableSubscription: a subscription that keeps messages while nobody is there, made by an administrator."""

from typing import ClassVar, Literal, Self

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from sterna_resources.fields import Label, Selector, SourcePattern
from sterna_resources.rules import SAME_NAME, Rule, unchanged
from sterna_resources.status import DestinationStatus
from sterna_resources.topology import TopologyResource, TopologySpec


def _immutable(field: str) -> Rule:
    return Rule(
        f"self.{field} == oldSelf.{field}",
        f"{field} cannot be changed: it would be another subscription, and what this one keeps would be lost",
        f".{field}",
    )


class DurableSubscriptionSpec(TopologySpec):
    """What is kept, and for whom."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.clientId) || self.shared", "clientId is missing: only a shared subscription may do without"),
        Rule(
            "!(self.noLocal && self.shared)",
            "noLocal is not for shared subscriptions: their consumers are several clients",
            ".noLocal",
        ),
        *(_immutable(field) for field in ("topic", "selector", "noLocal", "shared")),
        Rule(unchanged("clientId"), "clientId cannot be changed: it is part of the subscription's name", ".clientId"),
    )

    topic: SourcePattern
    """The topic, or a pattern for several."""

    name: Label | None = None
    """The subscription's name as clients give it; `metadata.name` when absent."""

    client_id: Label | None = None
    """The client it belongs to. Only a shared one may do without."""

    selector: Selector = ""
    """Only messages that match are kept. Empty: all."""

    no_local: bool = False
    """Nothing that was published under the same client id. Not for shared ones."""

    shared: bool = False
    """Several consumers may take from it at once, each message going to one of them."""

    @model_validator(mode="after")
    def _fields_fit(self) -> Self:
        if self.client_id is None and not self.shared:
            fault = "clientId is missing: only a shared subscription may do without"
            raise PydanticCustomError("client_id", "{fault}", {"fault": fault})
        if self.no_local and self.shared:
            fault = "noLocal is not for shared subscriptions: their consumers are several clients"
            raise PydanticCustomError("no_local", "{fault}", {"fault": fault})
        return self


class DurableSubscription(TopologyResource):
    """A static durable subscription: clients use it, and cannot unsubscribe it."""

    PLURAL: ClassVar[str] = "durables"
    STATUS = DestinationStatus
    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            SAME_NAME,
            "a subscription cannot be renamed: make another, or delete this one first",
            ".spec.name",
        ),
    )

    kind: Literal["DurableSubscription"] = "DurableSubscription"
    """`DurableSubscription`."""

    spec: DurableSubscriptionSpec
    """What is kept, and for whom."""

    @property
    def subscription_name(self) -> str:
        """The name that clients give."""
        return self.spec.name or self.metadata.name

    @property
    def claim(self) -> str:
        """`<client id>/<name>`: names are the client's own. A shared one may have nothing before the slash."""
        return f"{self.spec.client_id or ''}/{self.subscription_name}"
