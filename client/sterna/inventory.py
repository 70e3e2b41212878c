"""What administrators see: resources with what they hold, connections, the broker's statistics.

Plain values made from the answers of the admin service by `admin`, so that no protobuf class appears in the SDK's
interface. Field names are those of `admin.proto`, which says what each means; times are milliseconds since 1970, sizes
bytes, and counters that end in `_total` count since the broker started.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from dataclasses import dataclass
from typing import Any, TypeVar

from sterna.errors import MovedError, SternaError, from_proto

Values = TypeVar("Values")
Member = TypeVar("Member", bound=enum.StrEnum)


class Origin(enum.StrEnum):
    """Where a destination comes from (EMS-DEST-A03)."""

    UNSPECIFIED = "unspecified"
    STATIC = "static"
    DYNAMIC = "dynamic"
    TEMPORARY = "temporary"
    SYSTEM = "system"


class Change(enum.StrEnum):
    """What `apply` did with a manifest."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    CONFIGURED = "configured"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class DestinationStatistics:
    """What a destination or durable subscription holds and did.

    Of a store: `messages` and `bytes`, of its destinations at the broker that was asked. Of a topic `durable_messages`:
    what durable subscriptions to exactly it hold, which would go with it.
    """

    messages: int = 0
    bytes: int = 0
    delivered_messages: int = 0
    delayed_messages: int = 0
    producers: int = 0
    consumers: int = 0
    subscriptions: int = 0
    published_total: int = 0
    published_bytes_total: int = 0
    delivered_total: int = 0
    acknowledged_total: int = 0
    redelivered_total: int = 0
    expired_total: int = 0
    discarded_total: int = 0
    undelivered_total: int = 0
    oldest_ms: int = 0
    redelivery_delayed_messages: int = 0
    flow_controlled_sessions: int = 0
    durable_messages: int = 0


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource: its manifest, where it comes from, what holds for it (`effective`) and what it holds.

    `home`: the broker of a cluster on which it lives, where that is not the one that was asked; empty otherwise. Lists
    come from one broker, and have it.
    """

    kind: str
    name: str
    manifest: dict[str, Any]
    origin: Origin
    owner: str
    generation: int
    effective: dict[str, Any]
    known_statistics: DestinationStatistics | None
    """As `statistics`; None: it lives on another broker, and the one that was asked holds nothing of it."""
    home: str = ""

    @property
    def statistics(self) -> DestinationStatistics:
        """What it holds and did.

        Raises:
            MovedError: the broker that was asked has nothing of it, for it lives on another one, `home`.
        """
        if self.known_statistics is None:
            message = f"the {self.kind} '{self.name}' lives on the broker '{self.home}', which knows what it holds"
            raise MovedError(message, subject=self.name, remedy="ask for it by its name: that goes there")
        return self.known_statistics

    @classmethod
    def read(cls, answer: Any) -> Resource:
        """The value of a `Resource` of the contract."""
        return cls(
            kind=answer.kind,
            name=answer.name,
            manifest=_object(answer.manifest),
            origin=_member(Origin, answer.DESCRIPTOR.fields_by_name["origin"], answer.origin),
            owner=answer.owner,
            generation=answer.generation,
            effective=_object(answer.effective),
            known_statistics=(
                None
                if answer.home and not answer.HasField("statistics")
                else values(DestinationStatistics, answer.statistics)
            ),
            home=answer.home,
        )


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of one manifest. `changes` names the fields that changed; `error` says why it was refused.

    `warnings` says what of it does not hold yet, such as a Broker's settings that its next start reads.
    """

    kind: str
    name: str
    change: Change
    changes: tuple[str, ...]
    error: SternaError | None
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, answer: Any) -> Applied:
        """The value of an `Applied` of the contract."""
        return cls(
            kind=answer.kind,
            name=answer.name,
            change=_member(Change, answer.DESCRIPTOR.fields_by_name["change"], answer.change),
            changes=tuple(answer.changes),
            error=from_proto(answer.error) if answer.HasField("error") else None,
            warnings=tuple(answer.warnings),
        )


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """A client's connection as the broker sees it."""

    id: int
    client_id: str
    user: str
    product: str
    host: str
    peer: str
    connected_ms: int
    streams: int
    sessions: int
    producers: int
    consumers: int
    unacknowledged_messages: int
    published_total: int
    delivered_total: int
    uncommitted_messages: int
    """Sent in transactions that it has not ended."""
    uncommitted_bytes: int


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """The broker's log."""

    start_position: int
    end_position: int
    durable_position: int
    segments: int
    disk_bytes: int
    free_bytes: int
    commits_total: int
    commit_records_total: int
    rolling_hash: str


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A store: its mode ("sync" or "async"), what it holds and may hold (0: no quota)."""

    name: str
    mode: str
    messages: int
    bytes: int
    quota_bytes: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What the broker's last start found."""

    segments: int
    records: int
    messages: int
    torn_bytes: int
    dropped_records: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class BrokerStatistics:
    """What the broker as a whole is and does. `state` is "serving", or why it does not."""

    broker: str
    version: str
    started_ms: int
    epoch: int
    store_id: str
    state: str
    log: LogStatistics
    stores: tuple[StoreStatistics, ...]
    connections: int
    sessions: int
    producers: int
    consumers: int
    queues: int
    topics: int
    subscriptions: int
    messages: int
    bytes: int
    published_total: int
    delivered_total: int
    acknowledged_total: int
    resident_bytes: int
    recovery: Recovery
    uploaded_bytes_total: int = 0
    """Bytes of large bodies that came ahead of their messages."""
    uploads_resumed_total: int = 0
    """Such bodies that went on where a broken link had left them."""
    uploads_kept_bytes: int = 0
    """What is kept of bodies whose link broke."""

    @classmethod
    def read(cls, answer: Any) -> BrokerStatistics:
        """The value of a `Statistics` of the contract."""
        return values(
            cls,
            answer,
            log=values(LogStatistics, answer.log),
            stores=tuple(values(StoreStatistics, store) for store in answer.stores),
            recovery=values(Recovery, answer.recovery),
        )


def values(kind: type[Values], answer: Any, **read: Any) -> Values:
    """A dataclass from a message with the same field names, but for those that were `read` already."""
    names = (field.name for field in dataclasses.fields(kind))  # type: ignore[arg-type]
    return kind(**{name: read[name] if name in read else getattr(answer, name) for name in names})


def _member(kind: type[Member], field: Any, number: int) -> Member:
    """A member by the contract's name for a number; a newer broker's unknown one is the first."""
    known = field.enum_type.values_by_number.get(number)
    first = next(iter(kind))
    return first if known is None else kind.__members__.get(known.name, first)


def _object(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text) if text else {}
    return found
