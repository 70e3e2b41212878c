"""What queues and topics have in common.

A property that is not written is inherited from the wildcard entries that match the name (EMS-DEST-A47); the field's
text says how several of them are combined. What is written stands.
"""

from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources import names
from sterna_resources.fields import Aliases, BrokerName, Count, DestinationPattern, DurationMs, Size, check_aliases
from sterna_resources.metadata import Metadata
from sterna_resources.rules import OTHER_NAMES, SAME_NAME, Rule
from sterna_resources.topology import OPERATOR_FIELDS, TopologyResource, TopologySpec

OverflowPolicy = Literal["default", "discardOld", "rejectIncoming"]

# Temporary destinations have no other properties (EMS-DEST-A39, A40).
TEMPORARY_PROPERTIES = frozenset({"max_messages", "max_bytes", "overflow_policy"})
_OTHER_PROPERTIES = (
    "expirationMs",
    "senderName",
    "senderNameEnforced",
    "secure",
    "store",
    "broker",
    "aliases",
    "prefetch",
    "flowControlBytes",
)


def temporary_settings_rule(*more: str) -> Rule:
    """That `TMP.>` has no properties but its own; `more` names a kind's properties besides the shared ones."""
    absent = " || ".join(f"has(self.{field})" for field in (*_OTHER_PROPERTIES, *more))
    return Rule(
        f"!has(self.name) || self.name != '{names.TEMPORARY_SETTINGS}' || !({absent})",
        f"{names.TEMPORARY_SETTINGS} takes maxMessages, maxBytes and overflowPolicy alone",
    )


class DestinationSpec(TopologySpec):
    """The properties that queues and topics share."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.broker) || !has(self.name) || !(self.name.contains('*') || self.name.contains('>'))",
            "broker is for one destination: a wildcard entry has no place",
            ".broker",
        ),
        Rule(
            "!has(self.aliases) || size(self.aliases) == 0 || !has(self.name) || "
            "!(self.name.contains('*') || self.name.contains('>'))",
            "aliases are of one destination: a wildcard entry is not looked up",
            ".aliases",
        ),
    )

    name: DestinationPattern | None = Field(default=None, json_schema_extra={"x-sterna-default": "metadata.name"})
    """The destination's name; `metadata.name` when absent. A pattern (`orders.*`, `orders.>`) makes a wildcard entry:
    it allows clients to create destinations that it matches, and hands its properties on to them (EMS-DEST-A46, A47).
    `TMP.>` holds the settings of temporary destinations and takes maxMessages, maxBytes and overflowPolicy alone."""

    expiration_ms: DurationMs | None = None
    """How long a message may wait here, in milliseconds, whatever its sender asked for; 0: for ever. Absent and not
    inherited: as the sender asked. Inherited: the shortest (EMS-DEST-A14)."""

    max_bytes: Size | None = None
    """The most bytes that may wait: in a queue, or for each subscriber of a topic. 0: no limit. Inherited: the smallest
    limit (EMS-DEST-A19, A20)."""

    max_messages: Count | None = None
    """The most messages that may wait: in a queue, or for each subscriber of a topic. 0: no limit. Inherited: the
    smallest limit (EMS-DEST-A21)."""

    flow_control_bytes: Size | None = None
    """From about so many waiting bytes on, in the queue or with one subscriber of the topic, senders wait until there
    are fewer; nothing is refused. 0: never. It holds where the Broker manifest has `flowControl: true`, consumers or
    not. A bridge's source that has it waits for targets that have it, too. Inherited: the smallest limit (EMS-DEST-A16,
    A57, A60)."""

    overflow_policy: OverflowPolicy | None = None
    """What happens at maxBytes or maxMessages. `default`: a queue refuses the message, a topic skips the subscriber
    that is full. `discardOld`: the oldest waiting messages make room. `rejectIncoming`: the message is refused.
    Absent or `default`: inherited, rejectIncoming before discardOld before default (EMS-DEST-A24, A25)."""

    sender_name: bool | None = None
    """Messages carry the name of the user who sent them, as JMS_STERNA_SENDER; a sender that sets the boolean property
    JMS_STERNA_DISABLE_SENDER is not named. Where clients need not show who they are, it is the name that the client
    claims. Once inherited it cannot be taken back (EMS-MSG-A11, EMS-DEST-A35)."""

    sender_name_enforced: bool | None = None
    """As senderName, and no sender can decline: tell those who send here. Once inherited it cannot be taken back
    (EMS-DEST-A36)."""

    secure: bool | None = None
    """Whether permissions decide who may send, receive and browse here. A cluster has no permissions yet, which is as
    with EMS' `authorization = disabled`: it is kept, inherited and shown, and so far protects nothing; the broker's log
    says so. It has nothing to do with TLS. Once inherited it cannot be taken back (EMS-DEST-A34, A47)."""

    store: str | None = Field(default=None, min_length=1, max_length=64)
    """The store that keeps the messages: `$sys.failsafe` (confirmed when on disk), `$sys.nonfailsafe` (confirmed when
    accepted), or one that a Store or the Broker manifest names. Absent and not inherited: `$sys.failsafe`. Entries that
    overlap must not name different stores (EMS-DEST-A37, A43)."""

    broker: BrokerName | None = None
    """The broker of the cluster that is to be its home. Absent: the one that has the fewest. It counts when the home is
    chosen: a destination that has one stays there. A single broker does nothing with it."""

    aliases: Aliases = Field(default_factory=list)
    """More names under which programs look it up. Each leads to one thing alone (EMS-CLI-B15)."""

    def given(self) -> dict[str, Any]:
        """The properties that were written and that the destination has, by their names in manifests."""
        dumped = self.model_dump(
            by_alias=True, exclude_unset=True, mode="json", exclude={"name", "broker", "aliases", *OPERATOR_FIELDS}
        )
        return {key: value for key, value in dumped.items() if value is not None}


class DestinationResource(TopologyResource):
    """A Queue or a Topic."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"has(self.spec.name) || ({names.length_rule('self.metadata.name')})",
            "metadata.name is too long for a destination's name: give another in spec.name",
        ),
        Rule(
            SAME_NAME,
            "a destination cannot be renamed: make another, or delete this one first",
            ".spec.name",
        ),
        OTHER_NAMES,
    )

    metadata: Metadata
    """The object's name and its notes."""

    spec: DestinationSpec
    """The destination's properties."""

    @property
    def subject(self) -> str:
        """The destination's own name, or pattern."""
        return self.spec.name or self.metadata.name

    @property
    def is_pattern(self) -> bool:
        """Whether this is a wildcard entry and no destination."""
        return names.is_pattern(self.subject)

    @model_validator(mode="after")
    def _name_and_properties_fit(self) -> Self:
        if self.spec.name is None and (fault := names.name_fault(self.metadata.name)):
            raise PydanticCustomError("invalid_name", "{fault}", {"fault": f"as the destination's name: {fault}"})
        if self.spec.broker is not None and self.is_pattern and self.subject != names.TEMPORARY_SETTINGS:
            fault = "broker is for one destination: a wildcard entry has no place"
            raise PydanticCustomError("broker_of_pattern", "{fault}", {"fault": fault})
        if self.spec.aliases and self.is_pattern and self.subject != names.TEMPORARY_SETTINGS:
            fault = "aliases are of one destination: a wildcard entry is not looked up"
            raise PydanticCustomError("aliases_of_pattern", "{fault}", {"fault": fault})
        check_aliases(self.subject, self.spec.aliases)
        if self.subject == names.TEMPORARY_SETTINGS and (others := self._not_for_temporaries()):
            fault = f"'{names.TEMPORARY_SETTINGS}' takes maxMessages, maxBytes and overflowPolicy alone, not {others}"
            raise PydanticCustomError("temporary_settings", "{fault}", {"fault": fault})
        return self

    def _not_for_temporaries(self) -> str:
        allowed = TEMPORARY_PROPERTIES | OPERATOR_FIELDS | {"name"}
        fields = type(self.spec).model_fields
        others = sorted(
            field for field in self.spec.model_fields_set - allowed if getattr(self.spec, field) is not None
        )
        return ", ".join(fields[field].alias or field for field in others)
