"""What a ledger's records say, with all names filled in; made by the `Reader`, given out by `ledger.read`.

A message is known by `broker`, `store`, `incarnation` and its number, or `first` to `last` where there are several.
Times are milliseconds since 1970 by the client's clock, but for `arrived_ms`, which is the broker's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from sterna import _ledger_format as form

_KINDS: Final = {form.QUEUE_NAME: "queue", form.TOPIC_NAME: "topic"}
OUTCOMES: Final = ("asked", "taken", "undone", "lost", "refused")


@dataclass(frozen=True, slots=True)
class Link:
    """A stream to a broker: `epoch` and `start_id` (0: not told) are of the broker's start, `store` its store's."""

    kind: ClassVar[str] = "link"
    time_ms: int
    broker: str
    cluster: str
    store: str
    address: str
    client_id: str
    epoch: int
    start_id: int


@dataclass(frozen=True, slots=True)
class Producer:
    """A producer of one incarnation, in a `session` by the ledger's own number.

    `destination` is empty where each message names its own.
    """

    kind: ClassVar[str] = "producer"
    link: Link
    session: int
    destination: str
    destination_kind: str
    incarnation: int
    prefix: str
    name: str
    is_confirmed: bool
    is_transacted: bool


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer: it takes from `source`, a queue or subscription as the broker numbers them."""

    kind: ClassVar[str] = "consumer"
    link: Link
    session: int
    destination: str
    destination_kind: str
    subscription: str
    source: int
    epoch: int
    mode: int


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A message that was about to leave: `size` in bytes is that of the encoded message and of what went ahead of it.

    `transaction` is the session's number of it, 0: none. `checksum` is XXH3-128 of the body.
    """

    kind: ClassVar[str] = "sent"
    producer: Producer
    destination: str
    destination_kind: str
    number: int
    transaction: int
    time_ms: int
    size: int
    checksum: bytes

    @property
    def message_id(self) -> str:
        """The id that the broker gives it."""
        return f"{self.producer.prefix}{self.number}"


@dataclass(frozen=True, slots=True)
class Again:
    """Messages that were about to leave once more, under the same numbers, on another link or after a refusal."""

    kind: ClassVar[str] = "again"
    producer: Producer
    time_ms: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Messages that the broker has confirmed; `durability` is as in `sterna.Durability`.

    The numbers of a range that were refused, or never sent, are not confirmed by it.
    """

    kind: ClassVar[str] = "confirmed"
    producer: Producer
    first: int
    last: int
    durability: int
    arrived_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Messages that the broker refused and did not keep; not `is_final`: they are sent again, here or elsewhere."""

    kind: ClassVar[str] = "refused"
    producer: Producer
    first: int
    last: int
    code: int
    is_final: bool


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Messages of which nobody can tell whether they were kept; `code` is of what was told to whoever sent them."""

    kind: ClassVar[str] = "in_doubt"
    producer: Producer
    first: int
    last: int
    code: int


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Messages that were refused for now, and not sent again since nobody waited for them any more."""

    kind: ClassVar[str] = "given_up"
    producer: Producer
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What became of a session's transaction: asked (its commit is about to leave), taken, undone, lost (in doubt)."""

    kind: ClassVar[str] = "transaction"
    link: Link
    session: int
    transaction: int
    time_ms: int
    outcome: str
    durability: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was handed to the application: the `sequence` of its source, its id, and how it was flagged."""

    kind: ClassVar[str] = "received"
    consumer: Consumer
    time_ms: int
    sequence: int
    message_id: str
    is_redelivered: bool
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Acknowledging:
    """An acknowledgement that was about to leave: `number` is the ledger's own.

    Of an acknowledgement in a `transaction` (not 0) that transaction's outcome is the answer.
    """

    kind: ClassVar[str] = "acknowledging"
    link: Link
    session: int
    transaction: int
    time_ms: int
    number: int
    source: int
    epoch: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What became of all of an acknowledgement of this number: taken, lost (no answer came), refused (for `code`)."""

    kind: ClassVar[str] = "acknowledged"
    number: int
    outcome: str
    code: int


Record: TypeAlias = (
    Link
    | Producer
    | Consumer
    | SentRecord
    | Again
    | Confirmed
    | Refused
    | InDoubt
    | GivenUp
    | TransactionRecord
    | Received
    | Acknowledging
    | Acknowledged
)

_RANGES: Final[dict[int, type[Any]]] = {
    form.CONFIRMED: Confirmed,
    form.REFUSED: Refused,
    form.IN_DOUBT: InDoubt,
    form.GIVEN_UP: GivenUp,
}


class Reader:
    """Makes records of what stands in a file, whose names it gathers."""

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head
        self._names: dict[int, str] = {0: ""}
        self._kinds: dict[int, str] = {0: ""}
        self._links: dict[int, Link] = {}
        self._producers: dict[int, Producer] = {}
        self._consumers: dict[int, Consumer] = {}

    def records(self, raw: form.Raw) -> Iterator[Record]:
        """What a record of the file says: nothing, or as many as it has rows.

        Raises:
            FormatError: it names what the file does not have, or has not what it says.
        """
        try:
            yield from self._records(raw)
        except (KeyError, IndexError) as error:
            raise form.FormatError(raw.offset, f"a record names what is not there: {error}") from None

    def _records(self, raw: form.Raw) -> Iterator[Record]:
        fields = raw.fields
        match raw.kind:
            case form.NAME:
                self._names[fields[0]] = form.texts(raw, 1)[0]
                self._kinds[fields[0]] = _KINDS.get(fields[1], "")
            case form.LINK:
                number, time_ms, epoch, start_id = fields
                broker, cluster, store, address, client_id = form.texts(raw, 5)
                link = Link(time_ms, broker, cluster, store, address, client_id, epoch, start_id)
                self._links[number] = link
                yield link
            case form.PRODUCER:
                yield self._producer(raw)
            case form.CONSUMER:
                yield self._consumer(raw)
            case form.SENT:
                yield from self._sent(raw)
            case form.AGAIN:
                producer, time_ms, first, last = fields
                yield Again(self._producers[producer], time_ms, first, last)
            case form.REFUSED:
                producer, first, last, code, is_final = fields
                yield Refused(self._producers[producer], first, last, code, bool(is_final))
            case form.CONFIRMED | form.IN_DOUBT | form.GIVEN_UP:
                yield _RANGES[raw.kind](self._producers[fields[0]], *fields[1:])
            case form.TRANSACTION:
                link_number, session, transaction, time_ms, became, durability = fields
                link = self._links[link_number]
                yield TransactionRecord(link, session, transaction, time_ms, OUTCOMES[became], durability)
            case form.RECEIVED:
                yield from self._received(raw)
            case form.ACKNOWLEDGING:
                number, link_number, session, transaction, time_ms, count = fields
                link = self._links[link_number]
                for row in form.rows(raw, form.ACKNOWLEDGED_ROW, count):
                    yield Acknowledging(link, session, transaction, time_ms, number, *row)
            case form.ACKNOWLEDGED:
                number, became, code = fields
                yield Acknowledged(number, OUTCOMES[became], code)

    def _producer(self, raw: form.Raw) -> Producer:
        number, link, session, destination, incarnation, flags = raw.fields
        prefix, name = form.texts(raw, 2)
        made = self._producers[number] = Producer(
            self._links[link],
            session,
            self._names[destination],
            self._kinds[destination],
            incarnation,
            prefix,
            name,
            is_confirmed=bool(flags & form.IS_CONFIRMED),
            is_transacted=bool(flags & form.IS_TRANSACTED),
        )
        return made

    def _consumer(self, raw: form.Raw) -> Consumer:
        number, link, session, destination, source, epoch, mode = raw.fields
        (subscription,) = form.texts(raw, 1)
        made = self._consumers[number] = Consumer(
            self._links[link],
            session,
            self._names[destination],
            self._kinds[destination],
            subscription,
            source,
            epoch,
            mode,
        )
        return made

    def _sent(self, raw: form.Raw) -> Iterator[SentRecord]:
        number, target, transaction, time_ms, first, count = raw.fields
        producer, name, kind = self._producers[number], self._names[target], self._kinds[target]
        sizes, sums = form.columns(raw, count)
        for at, (size, checksum) in enumerate(zip(sizes, sums, strict=True)):
            yield SentRecord(producer, name, kind, first + at, transaction, time_ms, size, checksum)

    def _received(self, raw: form.Raw) -> Iterator[Received]:
        number, time_ms, count = raw.fields
        consumer = self._consumers[number]
        for sequence, prefix, numbered, is_redelivered, delivery_count in form.rows(raw, form.RECEIVED_ROW, count):
            id_ = f"{self._names[prefix]}{numbered}" if numbered else self._names[prefix].removesuffix(":")
            yield Received(consumer, time_ms, sequence, id_, bool(is_redelivered), delivery_count)
