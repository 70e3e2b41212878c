"""Queues and topics, as values: a kind and a name. The broker alone judges names."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from sterna.errors import InvalidNameError

QUEUE_KIND = 1
TOPIC_KIND = 2


class Destination:
    """A queue or a topic. Equal when kind and name are; usable as a key."""

    __slots__ = ("_name",)
    kind: ClassVar[int] = 0
    label: ClassVar[str] = "Destination"

    def __init__(self, name: str) -> None:
        if not name or not isinstance(name, str):
            raise InvalidNameError("a destination needs a name", subject="name", remedy="give a non-empty string")
        self._name = name

    @property
    def name(self) -> str:
        """Its name: elements separated by dots."""
        return self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Destination) and (self.kind, self.name) == (other.kind, other.name)

    def __hash__(self) -> int:
        return hash((self.kind, self.name))

    def __repr__(self) -> str:
        return f"{self.label}({self.name!r})"

    def __str__(self) -> str:
        return f"{self.label}[{self.name}]"


class Queue(Destination):
    """A queue: each message goes to one consumer (EMS-DEST-A01)."""

    __slots__ = ()
    kind = QUEUE_KIND
    label = "Queue"


class Topic(Destination):
    """A topic: each message goes to every subscription (EMS-DEST-A02). Consumers may name a pattern."""

    __slots__ = ()
    kind = TOPIC_KIND
    label = "Topic"


#: Where an argument names a destination, a bare string is a queue.
DestinationLike: TypeAlias = Destination | str


def destination_of(value: DestinationLike) -> Destination:
    """`value` itself, or the queue that a bare string names."""
    if isinstance(value, Destination):
        return value
    return Queue(value)


def destination_from(kind: int, name: str) -> Destination:
    """The destination of a kind of the contract.

    Raises:
        InvalidNameError: for a kind that is neither queue nor topic.
    """
    if kind == QUEUE_KIND:
        return Queue(name)
    if kind == TOPIC_KIND:
        return Topic(name)
    raise InvalidNameError(f"destination {name!r} is of an unknown kind ({kind})", subject="kind")
