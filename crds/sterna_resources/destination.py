"""What queues and topics have in common.

A property that is not written is inherited from the wildcard entries that match the name (EMS-DEST-A47); the field's
text says how several of them are combined. What is written stands.
"""

from typing import Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from sterna_resources import names
from sterna_resources.fields import Count, DestinationPattern, DurationMs, Model, Size
from sterna_resources.metadata import Metadata
from sterna_resources.resource import Resource

OverflowPolicy = Literal["default", "discardOld", "rejectIncoming"]

# Temporary destinations have no other properties (EMS-DEST-A39, A40).
TEMPORARY_PROPERTIES = frozenset({"max_messages", "max_bytes", "overflow_policy"})


class DestinationSpec(Model):
    """The properties that queues and topics share."""

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

    overflow_policy: OverflowPolicy | None = None
    """What happens at maxBytes or maxMessages. `default`: a queue refuses the message, a topic skips the subscriber
    that is full. `discardOld`: the oldest waiting messages make room. `rejectIncoming`: the message is refused.
    Absent or `default`: inherited, rejectIncoming before discardOld before default (EMS-DEST-A24, A25)."""

    store: str | None = Field(default=None, min_length=1, max_length=64)
    """The store that keeps the messages: `$sys.failsafe` (confirmed when on disk), `$sys.nonfailsafe` (confirmed when
    accepted) or one that the Broker manifest names. Absent and not inherited: `$sys.failsafe`. Entries that overlap
    must not name different stores (EMS-DEST-A37, A43)."""

    def given(self) -> dict[str, Any]:
        """The properties that were written, by their names in manifests."""
        return {key: value for key, value in self.written().items() if key != "name" and value is not None}


class DestinationResource(Resource):
    """A Queue or a Topic."""

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
        if self.subject == names.TEMPORARY_SETTINGS:
            others = sorted(self.spec.model_fields_set - TEMPORARY_PROPERTIES - {"name"})
            if others:
                written = ", ".join(type(self.spec).model_fields[field].alias or field for field in others)
                fault = (
                    f"'{names.TEMPORARY_SETTINGS}' takes maxMessages, maxBytes and overflowPolicy alone, not {written}"
                )
                raise PydanticCustomError("temporary_settings", "{fault}", {"fault": fault})
        return self
