"""Queue: each message goes to one consumer."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from sterna_resources.destination import DestinationResource, DestinationSpec, temporary_settings_rule
from sterna_resources.fields import DeadLetterQueue
from sterna_resources.rules import Rule, of_field
from sterna_resources.status import DestinationStatus

PREFETCH_MAX = 100_000
REDELIVERY_DELAY_MS_MIN = 15_000
REDELIVERY_DELAY_MS_MAX = 8 * 3_600_000


def _check_prefetch(value: Any) -> Any:
    if value == "none" or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PREFETCH_MAX):
        return value
    raise PydanticCustomError("prefetch", "must be `none` or a whole number from 0 to {limit}", {"limit": PREFETCH_MAX})


def _check_max_redelivery(value: Any) -> Any:
    if value == 1 and not isinstance(value, bool):
        raise PydanticCustomError("max_redelivery", "1 is not allowed: 0 (no limit), or 2 to 255")
    return value


def _check_redelivery_delay(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < REDELIVERY_DELAY_MS_MIN:
        limits = {"least": REDELIVERY_DELAY_MS_MIN, "most": REDELIVERY_DELAY_MS_MAX}
        raise PydanticCustomError("redelivery_delay", "must be 0 or from {least} to {most}", limits)
    return value


# `none` or a number: the one union, in the form that Kubernetes' structural schemas have for it.
QueuePrefetch = Annotated[
    int | Literal["none"],
    BeforeValidator(_check_prefetch),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": 6,
            **of_field(
                Rule(
                    f"type(self) == int ? self >= 0 && self <= {PREFETCH_MAX} : self == 'none'",
                    f"must be none or a whole number from 0 to {PREFETCH_MAX}",
                )
            ),
        }
    ),
]
# 1 would mean that nothing is ever delivered again, which is not what a limit of deliveries is for (EMS-DEST-A23).
MaxRedelivery = Annotated[
    int,
    Field(ge=0, le=255, json_schema_extra=of_field(Rule("self != 1", "1 is not allowed: 0 (no limit), or 2 to 255"))),
    BeforeValidator(_check_max_redelivery),
]


# Shorter is no relief for what fails, longer is what expiration and dead letters are for (EMS-DEST-A32).
RedeliveryDelay = Annotated[
    int,
    Field(
        ge=0,
        le=REDELIVERY_DELAY_MS_MAX,
        json_schema_extra=of_field(
            Rule(
                f"self == 0 || self >= {REDELIVERY_DELAY_MS_MIN}",
                f"must be 0 or from {REDELIVERY_DELAY_MS_MIN} to {REDELIVERY_DELAY_MS_MAX}",
            )
        ),
    ),
    BeforeValidator(_check_redelivery_delay),
]


class QueueSpec(DestinationSpec):
    """The properties of a queue."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        temporary_settings_rule("maxRedelivery", "redeliveryDelayMs", "deadLetterQueue", "exclusive"),
    )

    prefetch: QueuePrefetch | None = None
    """How many messages a consumer is sent ahead of its receive calls, 1 to 100,000; `none`: each only when it is
    asked for. Absent or 0: inherited, the largest number before `none`; if nobody says, 5 (EMS-DEST-A26, A30)."""

    max_redelivery: MaxRedelivery | None = None
    """How often a message may be delivered, 2 to 255, before it goes to the deadLetterQueue; without one it goes to
    `$sys.undelivered` if its sender asked for that, and is destroyed otherwise. 0: no limit. Inherited: the smallest
    limit (EMS-DEST-A23)."""

    redelivery_delay_ms: RedeliveryDelay | None = None
    """How long a message that was delivered and came back, unacknowledged, waits until it is delivered again: 15,000 to
    28,800,000 milliseconds (15 s to 8 h), more or less; others go ahead meanwhile. It waits in its queue, counts
    towards no limit there, and is seen by browsing `$sys.redelivery.delay`. 0: it comes again at once. Inherited: the
    shortest delay (EMS-DEST-A32, A33)."""

    dead_letter_queue: DeadLetterQueue | None = None
    """The queue that gets what expires here, or is delivered as often as maxRedelivery allows, with the reason and
    where it was sent: `$sys.undelivered`, or a queue of yours. Its limits do not hold for what comes this way. While
    there is no such queue on the same broker, and if it is this one itself, `$sys.undelivered` gets it. Absent and not
    inherited: as each sender asked by the property JMS_STERNA_PRESERVE_UNDELIVERED. Inherited: the first by name."""

    exclusive: bool | None = None
    """Everything goes to one consumer, the first; others stand by. Once inherited it cannot be taken back
    (EMS-DEST-A12)."""


class Queue(DestinationResource):
    """A queue, or a wildcard entry for queues."""

    PLURAL: ClassVar[str] = "queues"
    STATUS = DestinationStatus

    kind: Literal["Queue"] = "Queue"
    """`Queue`."""

    spec: QueueSpec = Field(default_factory=QueueSpec)
    """The queue's properties."""
