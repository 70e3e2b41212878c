"""A history of so many messages, drawn as the clean histories of tests are, and written as two cuts of one broker.

Nothing of it happened: it is made for measuring audits where no broker was long enough. State and events agree with one
another, so that audits find nothing. Columns are made by whole arrays and go through the exporter's own writer.

- 200 queues, and 50 topics of which the n-th has n durable subscriptions; a fifth of what is due is due to these;
- two producers for each destination; a tenth of all messages are sent in transactions of five, all committed;
- at the first cut a twentieth of all waits, at the second the last twentieth;
- the rest is acknowledged in runs of 16 on average; one in a hundred expires, one in two hundred is a dead letter.
"""

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sterna_audit import schema
from sterna_audit.exporting import export
from sterna_audit.privacy import Privacy
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Cut
from sterna_audit.snapshots.stores import Store
from sterna_audit.snapshots.writing import WriterOptions

Ints = NDArray[np.int64]
Columns = dict[str, Any]

PLACE = Place("bench", "broker-0")
_STORE = "be" * 16
_QUEUES, _TOPICS = 200, 50
_FIRST_TOPIC = 1_001
_DEAD = 2_001
_FIRST_DURABLE = 10_001
_EPOCH = 1
_INCARNATION = _EPOCH << 32
_ACKNOWLEDGED, _EXPIRED, _MAX_REDELIVERY, _MOVED = 1, 2, 5, 6
_BEGAN_MS = 1_790_000_000_000
#: Of the log for each message, with what ends it: records of some hundred bytes.
_STRIDE = 1_000
_BEGINNING = 10
_END, _MOVE, _DECISION = 600, 700, 800
_SIZE, _PRIORITY = 300, 4
_TRANSACTED, _IN_ONE = 10, 5
_CHUNK = 500_000
_WAITING_SHARE = 20


@dataclass
class _Part:
    """What stretches of the log say: columns of tables by folder and name."""

    tables: list[tuple[str, str, Columns]] = field(default_factory=list)

    def add(self, folder: str, name: str, /, **columns: Any) -> None:
        self.tables.append((folder, name, columns))

    def batches(self) -> Iterator[tuple[str, str, pa.RecordBatch]]:
        for folder, name, columns in self.tables:
            table = schema.table(folder, name)
            count = max(len(one) for one in columns.values() if isinstance(one, (list, np.ndarray)))
            arrays = [_array(columns.get(column.name), column.type, count) for column in table.schema]
            if count:
                yield folder, name, pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def _array(values: Any, kind: pa.DataType, count: int) -> "pa.Array[Any]":
    if values is None or isinstance(values, (int, str, bool)):
        values = [values] * count
    array: pa.Array[Any] = pa.array(values, kind) if isinstance(values, list) else pa.array(values).cast(kind)
    return array


@dataclass
class _Stretch:
    """Messages that came one after the other, and what became due by them: rows, in the order in which they came."""

    first: int
    destination: Ints
    source: Ints
    message: Ints
    sequence: Ints
    checksums: tuple[Ints, Ints]
    producer: Ints
    number: Ints
    lives: NDArray[np.bool_]

    def position(self, messages: Ints) -> Ints:
        """Of these messages' records."""
        return (self.first + messages + 1) * _STRIDE


class History:
    """See the module. `deliverables` is how many become due, or up to 150 more; `hot` the share that one queue has."""

    def __init__(self, deliverables: int, *, seed: int = 1, hot: float = 0.0) -> None:
        self._random = np.random.default_rng(seed)
        self._hot = hot
        self._next = np.ones(_FIRST_DURABLE + _TOPICS * (_TOPICS + 1) // 2 + 1, np.int64)
        self._sent = np.zeros(2 * self._next.size, np.int64)
        self._counted: dict[str, Ints] = {}
        self._ended = np.ones(self._next.size, np.int64)
        self._dead: list[Columns] = []
        self._waiting: list[_Stretch] = []
        self._transactions = 0
        self.deliverables = 0
        self.stored = 0
        self.rows = 0
        # What is first in the log is not about messages.
        self._messages = _BEGINNING
        waiting = deliverables // _WAITING_SHARE
        self._sizes = (waiting, deliverables - 2 * waiting, waiting)
        # There are no more messages than deliverables.
        ends = (0, waiting, deliverables)
        self._cuts = [0, *((_BEGINNING + end + number) * _STRIDE for number, end in enumerate(ends[1:], 1))]

    async def write(self, store: Store) -> None:
        """Writes both cuts."""
        previous = None
        for number, parts in ((1, self._first_night()), (2, self._second_night())):
            source = _Source(self._cut(number, previous), parts)
            exported = await export(source, store, WriterOptions(Privacy("none"), None))
            previous = exported.manifest.sha256
            self.rows += sum(entry.rows for entry in exported.manifest.files.values())

    def _cut(self, number: int, previous: str | None) -> Cut:
        before, position = self._cuts[number - 1 : number + 1]
        return Cut(
            place=PLACE,
            store=_STORE,
            number=number,
            epoch=_EPOCH,
            position=position,
            previous_position=before,
            time_ms=_BEGAN_MS + number * 86_400_000,
            events=((before, position),),
            gaps=(),
            previous=previous,
        )

    def _first_night(self) -> Iterator[_Part]:
        """So much comes, and waits."""
        yield self._begun()
        for stretch in self._stretches(self._sizes[0]):
            self._waiting.append(stretch)
            yield self._told(stretch)
        yield from self._state()

    def _second_night(self) -> Iterator[_Part]:
        """What waited ends, the most comes and ends, and so much comes and waits."""
        yield from map(self._over, self._waiting)
        self._waiting = []
        self._messages = self._cuts[1] // _STRIDE
        for stretch in self._stretches(self._sizes[1]):
            yield self._told(stretch)
            yield self._over(stretch)
        for stretch in self._stretches(self._sizes[2]):
            self._waiting.append(stretch)
            yield self._told(stretch)
        yield from self._state()

    def _stretches(self, deliverables: int) -> Iterator[_Stretch]:
        while deliverables > 0:
            found = self._stretch(min(deliverables, _CHUNK))
            deliverables -= found.source.size
            yield found

    def _stretch(self, deliverables: int) -> _Stretch:
        """So many that become due, or less, or those of one message more."""
        random = self._random
        # A topic is as often as it has few subscriptions, so that each brings as many deliverables as another.
        weights = np.concatenate(
            [np.full(_QUEUES, 0.8 / _QUEUES), 0.2 / _TOPICS / np.arange(1, _TOPICS + 1, dtype=np.float64)]
        )
        fan_out = np.concatenate([np.ones(_QUEUES, np.int64), np.arange(1, _TOPICS + 1)])
        if self._hot:
            weights = weights * (1 - self._hot)
            weights[0] += self._hot
        count = max(1, round(deliverables / float((weights * fan_out).sum() / weights.sum())))
        chosen = random.choice(weights.size, count, p=weights / weights.sum())
        # One message can bring fifty, so that by chance so many may bring far too much; too little is made up for by
        # another stretch.
        chosen = chosen[: np.searchsorted(np.cumsum(fan_out[chosen]), deliverables) + 1]
        count = chosen.size
        is_topic = chosen >= _QUEUES
        destination = np.where(is_topic, _FIRST_TOPIC + chosen - _QUEUES, chosen + 1).astype(np.int64)
        copies = fan_out[chosen]
        message = np.repeat(np.arange(count), copies)
        within = np.arange(message.size) - np.repeat(np.cumsum(copies) - copies, copies)
        topic = chosen[message] - _QUEUES
        durable = _FIRST_DURABLE + topic * (topic + 1) // 2 + within
        source = np.where(is_topic[message], durable, chosen[message] + 1)
        producer = destination * 2 + random.integers(0, 2, count)
        halves = random.integers(-(1 << 63), 1 << 63, (2, count), dtype=np.int64)
        found = _Stretch(
            self._messages,
            destination,
            source,
            message,
            self._numbered(self._next, source),
            (halves[0], halves[1]),
            _INCARNATION + producer,
            self._numbered(self._sent, producer) + 1,
            random.random(count) < 0.05,
        )
        self._messages += count
        self.stored += count
        self.deliverables += source.size
        return found

    def _numbered(self, following: Ints, key: Ints) -> Ints:
        """A number for each row, rising within its key from what follows there."""
        if not key.size:
            return key
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        lengths = np.diff(np.append(begins, ordered.size))
        rank = np.arange(ordered.size) - np.repeat(begins, lengths)
        numbers = np.empty(key.size, np.int64)
        numbers[order] = following[ordered] + rank
        following[ordered[begins]] += lengths
        return numbers

    def _count(self, counter: str, source: Ints, count: Ints | int = 1) -> None:
        counted = self._counted.setdefault(counter, np.zeros(self._next.size, np.int64))
        np.add.at(counted, source, count)

    def _begun(self) -> _Part:
        """Destinations and subscriptions."""
        part = _Part()
        queues = [*range(1, _QUEUES + 1), _DEAD]
        topics = list(range(_FIRST_TOPIC, _FIRST_TOPIC + _TOPICS))
        ids = queues + topics
        durables = [one for one, _, _ in self._durables()]
        everything = ids + durables
        names = [self.name(one) for one in ids] + [f"durable-{one}" for one in durables]
        patterns = [None] * len(ids) + [self.name(topic) for _, topic, _ in self._durables()]
        count = len(everything)
        part.add("events", "epochs", position=np.array([1]), epoch=_EPOCH, start=7_777)
        part.add(
            *("events", "catalogue"),
            position=np.arange(2, 2 + count),
            what=np.array([1] * len(ids) + [3] * len(durables)),
            id=np.array(everything),
            kind=np.array([1] * len(queues) + [2] * len(topics) + [0] * len(durables)),
            origin=1,
            generation=1,
            name=np.array(everything),
            actor=0,
        )
        part.add(
            *("events", "names"),
            key=np.array(everything),
            what=["destination"] * len(ids) + ["subscription"] * len(durables),
            text=names,
            client_id=None,
            pattern=patterns,
            selector=[None] * len(ids) + [""] * len(durables),
        )
        return part

    @staticmethod
    def name(destination: int) -> str:
        """Of a queue or topic."""
        return f"topic.{destination}" if _FIRST_TOPIC <= destination < _DEAD else f"queue.{destination}"

    def _durables(self) -> list[tuple[int, int, int]]:
        """Each with its topic, and which of that topic's it is."""
        return [
            (_FIRST_DURABLE + topic * (topic + 1) // 2 + within, _FIRST_TOPIC + topic, within)
            for topic in range(_TOPICS)
            for within in range(topic + 1)
        ]

    def _told(self, stretch: _Stretch) -> _Part:
        """What came."""
        part = _Part()
        count = stretch.destination.size
        messages = np.arange(count)
        positions = stretch.position(messages)
        part.add(
            *("events", "stored"),
            position=positions,
            producer=stretch.producer,
            sequence=stretch.number,
            destination=stretch.destination,
            time_ms=_BEGAN_MS + (stretch.first + messages) // 20,
            bytes=_SIZE,
            priority=_PRIORITY,
            flags=0,
            checksum_high=stretch.checksums[0],
            checksum_low=stretch.checksums[1],
        )
        part.add("events", "lives", position=positions[stretch.lives], time_to_live_ms=60_000, delay_ms=0)
        part.add(
            "events",
            "arrivals",
            position=stretch.position(stretch.message),
            copy=0,
            source=stretch.source,
            sequence=stretch.sequence,
        )
        self._count("arrived", stretch.source)
        block = _TRANSACTED * _IN_ONE
        sent = messages[(messages % block < _IN_ONE) & (messages < count // block * block)]
        transaction = self._transactions + 1 + sent // block
        decided = np.unique(transaction)
        self._transactions += decided.size
        part.add("events", "transacted", position=positions[sent], transaction=transaction)
        part.add(
            "events",
            "decisions",
            position=positions[sent[_IN_ONE - 1 :: _IN_ONE]] + _DECISION,
            transaction=decided,
            decision=2,
            time_ms=_BEGAN_MS + (stretch.first + sent[_IN_ONE - 1 :: _IN_ONE]) // 20,
            xid=0,
        )
        return part

    def _over(self, stretch: _Stretch) -> _Part:
        """What ended of it: all."""
        part, random = _Part(), self._random
        order = np.lexsort((stretch.sequence, stretch.source))
        source, sequence = stretch.source[order], stretch.sequence[order]
        message = stretch.message[order]
        chance = random.random(source.size)
        reason = np.full(source.size, _ACKNOWLEDGED)
        reason[stretch.lives[message] & (chance < 0.2)] = _EXPIRED
        reason[(source < _FIRST_TOPIC) & (chance > 0.995)] = _MOVED
        begins = np.concatenate([[True], source[1:] != source[:-1]])
        begins |= reason != _ACKNOWLEDGED
        begins[1:] |= reason[:-1] != _ACKNOWLEDGED
        begins |= random.random(source.size) < 1 / 16
        first = np.flatnonzero(begins)
        last = np.append(first[1:], source.size) - 1
        latest = np.maximum.reduceat(message, first)
        moved = reason[first] == _MOVED
        at = stretch.position(latest) + np.where(moved, _MOVE, _END)
        part.add(
            *("events", "ends"),
            position=at,
            source=source[first],
            first=sequence[first],
            last=sequence[last],
            time_ms=_BEGAN_MS + (stretch.first + latest) // 20,
            reason=reason[first],
            actor=0,
            transaction=0,
        )
        np.maximum.at(self._ended, source[first], sequence[last] + 1)
        for value, name in ((_ACKNOWLEDGED, "ACKNOWLEDGED"), (_EXPIRED, "EXPIRED"), (_MOVED, "MOVED")):
            chosen = first[reason[first] == value]
            self._count(name, source[chosen], (last - first + 1)[reason[first] == value])
        self._move(part, stretch, first[moved], source, sequence, message)
        return part

    def _move(self, part: _Part, stretch: _Stretch, rows: Ints, source: Ints, sequence: Ints, message: Ints) -> None:
        """Dead letters, in the order in which they moved."""
        rows = rows[np.argsort(message[rows], kind="stable")]
        at, messages = stretch.position(message[rows]) + _MOVE, message[rows]
        dead = np.full(rows.size, _DEAD)
        to = self._numbered(self._next, dead)
        part.add(
            *("events", "moves"),
            position=at,
            message=stretch.position(messages),
            copy=0,
            from_source=source[rows],
            from_sequence=sequence[rows],
            to_source=dead,
            to_sequence=to,
        )
        self._count("arrived", dead)
        self._dead.append(
            {
                "source": dead,
                "sequence": to,
                "position": stretch.position(messages),
                "move": at,
                "origin": source[rows],
                **self._facts(stretch, messages),
            }
        )

    def _facts(self, stretch: _Stretch, messages: Ints) -> Columns:
        """What records say of messages."""
        return {
            "producer": stretch.producer[messages],
            "number": stretch.number[messages],
            "destination": stretch.destination[messages],
            "arrived_ms": _BEGAN_MS + (stretch.first + messages) // 20,
            "time_to_live_ms": np.where(stretch.lives[messages], 60_000, 0),
            "checksum_high": stretch.checksums[0][messages],
            "checksum_low": stretch.checksums[1][messages],
        }

    def _state(self) -> Iterator[_Part]:
        """What there is at a cut."""
        for stretch in self._waiting:
            part = _Part()
            positions = stretch.position(stretch.message)
            self._deliverables(part, source=stretch.source, sequence=stretch.sequence, position=positions)
            messages = np.arange(stretch.destination.size)
            self._records(part, stretch.position(messages), self._facts(stretch, messages))
            yield part
        for dead in self._dead:
            part = _Part()
            facts = {name: dead[name] for name in ("source", "sequence", "position", "move", "origin")}
            self._deliverables(part, reason=_MAX_REDELIVERY, **facts)
            self._records(part, dead["position"], dead)
            yield part
        yield self._tables()

    @staticmethod
    def _deliverables(part: _Part, **columns: Any) -> None:
        facts = {"copy": 0, "priority": _PRIORITY, "state": 0, "attempts": 0, "bytes": _SIZE}
        part.add("state", "deliverables", **facts, **columns)

    @staticmethod
    def _records(part: _Part, positions: Ints, facts: Columns) -> None:
        columns = {name: value for name, value in facts.items() if name in ("producer", "destination", "arrived_ms")}
        part.add(
            *("state", "messages"),
            position=positions,
            epoch=_EPOCH,
            sequence=facts["number"],
            time_to_live_ms=facts["time_to_live_ms"],
            delay_ms=0,
            priority=_PRIORITY,
            flags=0,
            bytes=_SIZE,
            checksum_high=facts["checksum_high"],
            checksum_low=facts["checksum_low"],
            **columns,
        )

    def _tables(self) -> _Part:
        """What is known of queues, subscriptions, producers, and what was counted."""
        part = _Part()
        queues, topics = [*range(1, _QUEUES + 1), _DEAD], list(range(_FIRST_TOPIC, _FIRST_TOPIC + _TOPICS))
        durables = self._durables()
        part.add(
            *("state", "destinations"),
            id=np.array(queues + topics),
            kind=np.array([1] * len(queues) + [2] * len(topics)),
            origin=1,
            generation=1,
            name=[self.name(one) for one in queues + topics],
        )
        part.add(
            *("state", "subscriptions"),
            id=np.array([one for one, _, _ in durables]),
            client_id="",
            name=[f"durable-{one}" for one, _, _ in durables],
            pattern=[self.name(topic) for _, topic, _ in durables],
            selector="",
            shared=False,
            no_local=False,
            is_static=True,
        )
        sources = np.array(queues + [one for one, _, _ in durables])
        part.add(
            *("state", "sources"),
            source=sources,
            next_sequence=self._next[sources],
            watermark=self._ended[sources],
        )
        producers = np.flatnonzero(self._sent)
        part.add(
            *("state", "producers"),
            producer=_INCARNATION + producers,
            destination=producers // 2,
            sequence=self._sent[producers],
        )
        part.add("state", "starts", epoch=np.array([_EPOCH]), start=7_777)
        for counter, counted in self._counted.items():
            found = np.flatnonzero(counted)
            part.add("state", "counters", source=found, counter=counter, value=counted[found])
        kinds = ["Queue"] * len(queues) + ["Topic"] * len(topics)
        part.add(
            *("state", "configuration"),
            kind=kinds,
            name=[self.name(one) for one in queues + topics],
            revision=1,
            spec="{}",
        )
        return part


class _Source:
    """A cut as a source for an export."""

    def __init__(self, cut: Cut, parts: Iterator[_Part]) -> None:
        self._cut = cut
        self._parts = parts

    async def cut(self) -> Cut:
        """Its facts."""
        return self._cut

    async def batches(self) -> AsyncGenerator[tuple[str, str, pa.RecordBatch], None]:
        """Its rows."""
        for part in self._parts:
            for batch in part.batches():
                yield batch

    async def exported(self, sha256: str) -> None:
        """Nobody waits for it."""
