"""A small history of a broker, played through: cut by cut the rows that it would tell of, state and events.

Two queues, a topic with a durable subscription, a producer; messages arrive, are acknowledged in runs, expire, are
moved and sent in transactions. State and events agree with one another, so that audits find nothing wrong with it.
"""

import json
import random
from collections.abc import AsyncGenerator
from typing import Any

import pyarrow as pa
from sterna_audit import schema
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Cut, Gap

PLACE = Place("bank", "broker-0")
STORE = "5f" * 16
ORDERS, DEAD, NEWS, PAPER = 1, 2, 3, 4
ALICE, BOB, CLIENT, TORN = 11, 12, 13, 14
_BEGAN_MS = 1_790_000_000_000
_SOURCES = (ORDERS, DEAD, PAPER)

Row = tuple[Any, ...]
Rows = dict[tuple[str, str], list[Row]]


class Story:
    """One broker's history; each `cut` tells what happened since the one before."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.position = 100
        self.number = 0
        self.cut_position = 0
        self.time_ms = _BEGAN_MS
        self.previous: str | None = None
        self.sent = 0
        self.transactions = 0
        self.next = dict.fromkeys(_SOURCES, 1)
        self.due: dict[tuple[int, int], dict[str, Any]] = {}
        self.messages: dict[int, Row] = {}
        self.copies: dict[int, Row] = {}
        self.names: list[Row] = []
        self.counted: dict[tuple[int, str], int] = {}
        self.events: Rows = {}
        self._begin()

    def _begin(self) -> None:
        self._tell("epochs", self._step(), 1, 7_777)
        for key, what, name in ((1, "destination", "orders"), (2, "destination", "dead"), (3, "destination", "news")):
            self.names.append((key, what, name, None, None, None))
            self._tell("catalogue", self._step(), 1, key, 2 if key == NEWS else 1, 1, 1, key, 0)
        self.names.append((CLIENT, "client id", "client-9", None, None, None))
        self.names.append((TORN, "reason", "written and never synced", None, None, None))
        self.names.append((4, "subscription", "paper", "client-7", "news.>", "colour = 'red'"))
        self._tell("catalogue", self._step(), 3, PAPER, 0, 2, 1, 4, ALICE)
        self.names.append((ALICE, "actor", "alice", None, None, None))
        self.names.append((BOB, "actor", "Bob Müller, a name that is longer than thirty-two bytes", None, None, None))

    def _tell(self, table: str, *row: Any) -> None:
        self.events.setdefault(("events", table), []).append(row)

    def _step(self) -> int:
        self.position += self.random.randrange(40, 400)
        self.time_ms += self.random.randrange(0, 20)
        return self.position

    def send(self, transaction: int | None = None) -> None:
        """A message arrives, at a queue or at the topic."""
        self.sent += 1
        destination = self.random.choice((ORDERS, ORDERS, NEWS))
        source = PAPER if destination == NEWS else destination
        at, size = self._step(), self.random.randrange(100, 5_000)
        high, low = (self.random.randrange(-(1 << 63), 1 << 63) for _ in "hl")
        life = 60_000 if self.sent % 7 == 0 else 0
        self._tell("stored", at, 9, self.sent, destination, self.time_ms, size, 4, 0, high, low)
        if life:
            self._tell("lives", at, life, 0)
        if transaction is not None:
            self._tell("transacted", at, transaction)
        if self.sent % 5 == 0:
            self.copies[at] = (at, 0, destination, 9, self.sent, self.time_ms + 1_000)
            self._tell("copies", *self.copies[at])
        self.messages[at] = (at, 1, 9, self.sent, destination, self.time_ms, life, 0, 4, 0, size, high, low, None)
        self._tell("arrivals", at, 0, source, self.next[source])
        self._arrive(source, {"position": at, "bytes": size, "move": None, "reason": None, "origin": None})
        self._count(source, "arrived")

    def _arrive(self, source: int, one: dict[str, Any]) -> None:
        self.due[source, self.next[source]] = one
        self.next[source] += 1

    def _count(self, source: int, counter: str, count: int = 1) -> None:
        self.counted[source, counter] = self.counted.get((source, counter), 0) + count

    def transact(self) -> None:
        """Two messages in a transaction that commits."""
        self.transactions += 1
        for _ in range(2):
            self.send(self.transactions)
        self._tell("decisions", self._step(), self.transactions, 2, self.time_ms, 0)

    def end(self) -> None:
        """The first deliverables of a source end."""
        source = self.random.choice((ORDERS, PAPER))
        first = next((sequence for at, sequence in self.due if at == source), None)
        if first is None:
            return
        last = first
        while (source, last + 1) in self.due and self.random.random() < 0.7:
            last += 1
        reason, counter = self.random.choice(((1, "ACKNOWLEDGED"), (1, "ACKNOWLEDGED"), (2, "EXPIRED")))
        self._tell("ends", self._step(), source, first, last, self.time_ms, reason, BOB if reason == 1 else 0, 0)
        for sequence in range(first, last + 1):
            del self.due[source, sequence]
        self._count(source, counter, last + 1 - first)
        self._tell("watermarks", self._step(), source, last + 1)

    def move(self) -> None:
        """A deliverable of the orders goes to the dead letters."""
        sequence = next((sequence for at, sequence in self.due if at == ORDERS), None)
        if sequence is None:
            return
        one, at = self.due.pop((ORDERS, sequence)), self._step()
        self._tell("moves", at, one["position"], 0, ORDERS, sequence, DEAD, self.next[DEAD])
        self._tell("ends", at, ORDERS, sequence, sequence, self.time_ms, 6, 0, 0)
        self._arrive(DEAD, {**one, "move": at, "reason": 5, "origin": ORDERS})
        self._count(ORDERS, "MOVED")
        self._count(DEAD, "arrived")

    def live(self, steps: int) -> None:
        """After a start and with a client, so many things happen."""
        self._tell("opened", self._step(), 9, ALICE, CLIENT, self.time_ms)
        self._tell("configured", self._step(), 3, self.time_ms)
        self._tell("losses", self._step(), 2, self.position - 20, 20, None, TORN, self.time_ms)
        for _ in range(steps):
            self.random.choice((self.send, self.send, self.send, self.transact, self.end, self.move))()

    def state(self) -> Rows:
        """What there is now."""
        waiting = [
            (source, at, one["position"], 0, 4, 0, 0, one["bytes"], one["move"], one["reason"], one["origin"], None)
            for (source, at), one in self.due.items()
        ]
        taken = [(77, source, sequence, sequence) for source, sequence in list(self.due)[-1:]]
        needed = {one["position"] for one in self.due.values()}
        topics = "static", json.dumps({"name": "news.>"})
        return {
            ("state", "deliverables"): waiting,
            ("state", "messages"): [row for at, row in self.messages.items() if at in needed],
            ("state", "copies"): [row for at, row in self.copies.items() if at in needed],
            ("state", "destinations"): [(1, 1, 1, 1, "orders"), (2, 1, 1, 1, "dead"), (3, 2, 1, 1, "news")],
            ("state", "subscriptions"): [
                (PAPER, "client-7", "paper", "news.>", "colour = 'red'", False, False, True),
            ],
            ("state", "sources"): [
                (
                    source,
                    self.next[source],
                    min([at for name, at in self.due if name == source], default=self.next[source]),
                )
                for source in _SOURCES
            ],
            ("state", "producers"): [(9, ORDERS, self.sent, "alice", "pay-1"), (9, NEWS, self.sent, "alice", None)],
            ("state", "transactions"): [(77, 1, self.time_ms, "1:ab:cd", 0, len(taken))],
            ("state", "taken"): taken,
            ("state", "starts"): [(1, 7_777)],
            ("state", "counters"): [(source, name, value) for (source, name), value in sorted(self.counted.items())],
            ("state", "configuration"): [("Queue", "orders", 3, "{}"), ("Topic", "news", 1, topics[1])],
        }

    def cut(self) -> "Told":
        """A cut here."""
        self.number += 1
        events, self.events = self.events, {}
        lost, self.position = self.position, self._step()
        whole = self.number != 2
        gaps = () if whole else (Gap(lost, self.position, "the log was not kept long enough"),)
        cut = Cut(
            place=PLACE,
            store=STORE,
            number=self.number,
            epoch=1,
            position=self.position,
            previous_position=self.cut_position,
            time_ms=self.time_ms,
            events=((self.cut_position, self.position if whole else lost),),
            gaps=gaps,
            previous=self.previous,
        )
        self.cut_position = self.position
        return Told(self, cut, {**self.state(), **events, ("events", "names"): self.names})


class Told:
    """A cut as a source for an export, in batches of `batch_rows` rows."""

    def __init__(self, story: Story, cut: Cut, rows: Rows, batch_rows: int = 50) -> None:
        self.story = story
        self.facts = cut
        self.rows = rows
        self.batch_rows = batch_rows

    async def cut(self) -> Cut:
        return self.facts

    async def batches(self) -> AsyncGenerator[tuple[str, str, pa.RecordBatch], None]:
        for folder, table, batch in batched(self.rows, self.batch_rows):
            yield folder, table, batch

    async def exported(self, sha256: str) -> None:
        self.story.previous = sha256


def batched(rows: Rows, batch_rows: int) -> list[tuple[str, str, pa.RecordBatch]]:
    """Rows as batches, of all tables in turn."""
    found = []
    for start in range(0, max((len(one) for one in rows.values()), default=0), batch_rows):
        for (folder, name), all_rows in rows.items():
            if part := all_rows[start : start + batch_rows]:
                table = schema.table(folder, name)
                columns = [list(column) for column in zip(*part, strict=True)]
                arrays = [pa.array(column, field.type) for column, field in zip(columns, table.schema, strict=True)]
                found.append((folder, name, pa.RecordBatch.from_arrays(arrays, schema=table.schema)))
    return found
