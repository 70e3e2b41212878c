"""Histories of a real engine, from a seed: what its clients do, restarts and time, cut and exported again and again.

Sends to queues and topics, acknowledgements in any order, transactions of one and two phases, durables with patterns
and selectors, bridges, moves to dead letters, expiry, limits, purges, deletions, clean restarts and crashes, and enough
bytes that segments are compacted. Snapshots go into a store by `exporting.export`, as from a broker.
"""

import asyncio
import hashlib
import json
import random
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from sterna._proto.sterna.v1 import message_pb2 as message_pb
from sterna._proto.sterna.v1 import messaging_pb2 as pb
from sterna_audit import schema
from sterna_audit.exporting import export
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.manifests import Cut, Gap
from sterna_audit.snapshots.stores import Store
from sterna_audit.snapshots.writing import WriterOptions
from sterna_core import EngineError

from tests.audit.bookkeeping import Book
from tests.audit.ending import EndedError, Ending
from tests.core.driver import Client, Driver, queue, text, topic

QUEUES = ("orders", "bills", "fragile", "short", "small")
TOPICS = ("news.sport", "news.art", "prices.gold")
PATTERNS = ("news.>", "news.*", "prices.gold", ">", "news.art")
CONFIGURATION = json.dumps(
    {
        "queues": [
            {"name": "small", "maxMessages": 20, "overflowPolicy": "discardOld", "prefetch": 5},
            {"name": "fragile", "maxRedelivery": 2, "deadLetterQueue": "dead", "prefetch": 5},
            {"name": "short", "expirationMs": 30_000, "prefetch": 5},
            {"name": "dead", "prefetch": 5},
            {"name": "mirror", "prefetch": 5},
        ],
        "bridges": [
            {
                "name": "sport",
                "source": {"kind": "topic", "name": "news.sport"},
                "targets": [{"kind": "queue", "name": "mirror"}, {"kind": "topic", "name": "prices.gold"}],
            },
        ],
        "topics": [{"name": "prices.gold"}, {"name": "news.sport"}],
    }
)


def manifests(configuration: str = CONFIGURATION) -> list[dict[str, Any]]:
    """The manifests that an engine's configuration is made from, as rows of `state/configuration`."""

    def said(end: dict[str, str]) -> dict[str, str]:
        return {end["kind"]: end["name"]}

    found: dict[str, Any] = json.loads(configuration)
    objects: list[tuple[str, str, dict[str, Any]]] = []
    for kind, title in (("Queue", "queues"), ("Topic", "topics")):
        objects += [
            (kind, one["name"], {name: value for name, value in one.items() if name != "name"}) for one in found[title]
        ]
    for one in found["bridges"]:
        spec = {"source": said(one["source"]), "targets": [said(target) for target in one["targets"]]}
        objects.append(("Bridge", one["name"], spec))
    return [{"kind": kind, "name": name, "revision": 1, "spec": json.dumps(spec)} for kind, name, spec in objects]


class Living:
    """An engine, those who use it, and the cuts that are taken of it."""

    def __init__(self, folder: Path, seed: int, broker: str = "") -> None:
        self.random = random.Random(seed)
        self.place = Place("bank", broker or f"broker-{seed}")
        self.driver = Driver(folder, broker=self.place.broker, store_id=identity(self.place.broker))
        self.driver.engine.configure(CONFIGURATION)
        #: What the snapshots' configuration says; an engine alone has none.
        self.manifests: list[dict[str, Any]] = []
        #: Which share of what is sent is in no record.
        self.volatile = 0.1
        self.named = 0
        self.book: Book | None = None
        self.prepared: list[pb.Xid] = []
        self.open: list[tuple[Client, int]] = []
        self.keys: list[tuple[str, int]] = []
        self._begin()

    def write_down(self) -> Book:
        """From now on clients keep a ledger: this one."""
        self.driver.engine.begin_cut()
        self.driver.wait(lambda: self.progress()["progress"] == "ready")
        self.book = Book(self.place.broker, self.progress()["store"])
        # Those that are there already are in no ledger.
        self._restart_sender()
        return self.book

    def progress(self) -> dict[str, Any]:
        """How far the next cut is."""
        found: dict[str, Any] = json.loads(self.driver.engine.cut_progress())
        return found

    def _begin(self) -> None:
        """Senders of a start: producers' numbers begin anew."""
        self.open.clear()
        self.sender = self.driver.client()
        self.session = self.sender.session()
        self.producers: dict[str, int] = {}
        self.numbers: dict[str, int] = {}

    def _producer(self, name: str) -> int:
        if name not in self.producers:
            number = self.producers[name] = len(self.producers) + 1
            self.numbers[name] = 0
            reply = self.sender.producer(self.session, _destination(name), number)
            if self.book is not None:
                self.book.opened(name, is_topic=name in TOPICS, told=reply.producer_opened)
        return self.producers[name]

    def send(self, name: str = "", count: int = 0, size: int = 0) -> None:
        """Messages to a queue or topic, and waits for their answers: a full queue may refuse."""
        name = name or self.random.choice(QUEUES + TOPICS)
        producer, first = self._producer(name), self.numbers[name] + 1
        messages = [self._message(size) for _ in range(count or self.random.randrange(1, 12))]
        self.numbers[name] += len(messages)
        if self.book is not None:
            self.book.sent(name, first, messages)
        self.sender.publish(self.session, first, messages, producer)
        sent = set(range(first, first + len(messages)))
        self.driver.wait(lambda: sent <= self.sender.confirmed(producer) | self._refused(producer))
        answers = [one for confirm in self.sender.of("confirm") for one in confirm.confirmed]
        for one in answers:
            if self.book is not None and one.producer == producer and one.last >= first:
                self.book.confirmed(name, one)

    def _refused(self, producer: int) -> set[int]:
        found = [one for one in self.sender.of("rejected") if one.producer == producer]
        return {number for one in found for number in range(one.first, max(one.first, one.last) + 1)}

    def _message(self, size: int = 0) -> message_pb.Message:
        rest: dict[str, Any] = {"priority": self.random.choice((4, 4, 4, 0, 9))}
        if self.random.random() < 0.1:
            rest["time_to_live_ms"] = self.random.randrange(1, 60_000)
        if self.random.random() < 0.05:
            rest["delivery_delay_ms"] = self.random.randrange(1, 60_000)
        if self.random.random() < self.volatile:
            rest["delivery_mode"] = message_pb.NON_PERSISTENT
        if self.random.random() < 0.3:
            rest["type"] = "red"
        return text("x" * (size or self.random.randrange(1, 300)), **rest)

    def fill(self) -> None:
        """So much that segments end, and what is done with can be compacted."""
        name = self.random.choice(("orders", "news.art"))
        for _ in range(3):
            self.send(name, 100, 3_000)
        if self.random.random() < 0.7:
            self.take("orders", share=1.0)
        self._pass(1_500)

    def take(self, name: str = "", share: float | None = None) -> None:
        """A consumer takes what there is, acknowledges some of it in any order, and is gone."""
        name = name or self.random.choice((*QUEUES, "mirror", "dead"))
        client = self.driver.client()
        session = client.session()
        opened = client.consumer(session, queue(name)).consumer_opened
        self._acknowledge(client, session, opened.source, self.random.random() if share is None else share)
        client.close()

    def _acknowledge(self, client: Client, session: int, source: int, share: float, transaction: int = 0) -> None:
        self.driver.poll()
        held = sorted({delivery.sequence for delivery in client.deliveries()})
        if self.book is not None and not transaction:
            self.book.received("", source, client.deliveries())
        chosen = [one for one in held if self.random.random() < share]
        for start in range(0, len(chosen), 40):
            part = chosen[start : start + 40]
            ranges = [pb.SequenceRange(first=one) for one in part]
            sets = [pb.AckSet(source=source, ranges=ranges)]
            client.request(session, acknowledge=pb.Ack(sets=sets, transaction=transaction))
            if self.book is not None and not transaction:
                self.book.acknowledged(source, part)

    def subscribe(self) -> None:
        """A durable begins, or is taken from; it may be replaced by one with another pattern or selector."""
        name, client_id = self.random.choice("abcde"), self.random.choice(("one", "two"))
        with suppress(StopIteration):
            client = self.driver.client(client_id=client_id)
            session = client.session()
            reply = client.consumer(
                session,
                topic(self.random.choice(PATTERNS)),
                subscription=pb.Subscription(name=name, durable=True),
                selector=self.random.choice(("", "", "", "JMSType = 'red'")),
                no_local=self.random.random() < 0.1,
            )
            self.keys = sorted({*self.keys, (client_id, ord(name))})
            self._acknowledge(client, session, reply.consumer_opened.source, self.random.random())
            client.close()

    def unsubscribe(self) -> None:
        """A durable ends, with what it holds."""
        if self.keys:
            client_id, name = self.keys.pop(self.random.randrange(len(self.keys)))
            client = self.driver.client(client_id=client_id)
            client.request(client.session(), unsubscribe=pb.Unsubscribe(name=chr(name)))
            client.close()

    def transact(self) -> None:
        """Sends and acknowledgements in a transaction, which is decided now, later, or never."""
        client = self.driver.client()
        session = client.session(pb.TRANSACTED)
        count = self.random.randrange(1, 6)
        target = self.random.choice((*QUEUES[:3], *TOPICS))
        client.producer(session, _destination(target))
        client.publish(session, 1, [self._message() for _ in range(count)], transaction=1)
        opened = client.consumer(session, queue(self.random.choice(QUEUES)), number=7).consumer_opened
        self.driver.poll()
        sequences = sorted({one.sequence for one in client.deliveries(7)})
        if sequences:
            client.acknowledge(session, opened.source, sequences[0], transaction=1)
        end = self.random.choice(("commit", "commit", "rollback", "leave", "prepare", "close"))
        if end in ("commit", "rollback"):
            self._decide(client, session, end == "commit")
        elif end == "prepare":
            self.prepare(client, session)
        elif end == "close":
            client.close()
        else:
            self.open.append((client, session))

    def prepare(self, client: Client, session: int) -> None:
        """The transaction of a client's session is prepared, and the client goes."""
        self.named += 1
        xid = pb.Xid(format=1, **{"global": str(self.named).encode()}, branch=b"b")
        request = pb.Transact(transaction=1, verb=pb.Transact.PREPARE, xid=xid)
        if client.request(session, transact=request).HasField("transacted"):
            self.prepared.append(xid)
        client.close()

    def _decide(self, client: Client, session: int, commits: bool) -> None:
        verb = pb.Transact.COMMIT if commits else pb.Transact.ROLLBACK
        client.request(session, transact=pb.Transact(transaction=1, verb=verb))
        client.close()

    def decide(self) -> None:
        """Something that is open or prepared is decided."""
        if self.open:
            client, session = self.open.pop(self.random.randrange(len(self.open)))
            self._decide(client, session, self.random.random() < 0.6)
        if self.prepared:
            xid = self.prepared.pop(self.random.randrange(len(self.prepared)))
            self.decide_prepared(xid, commits=self.random.choice((True, False)))

    def decide_prepared(self, xid: pb.Xid, *, commits: bool) -> None:
        """Somebody decides what was prepared."""
        client = self.driver.client()
        verb = pb.Transact.COMMIT_PREPARED if commits else pb.Transact.ROLLBACK_PREPARED
        client.request(client.session(pb.TRANSACTED), transact=pb.Transact(verb=verb, xid=xid))
        client.close()

    def purge(self) -> None:
        """An administrator empties a queue."""
        with suppress(EngineError):
            self.driver.engine.purge("queue", self.random.choice(QUEUES))

    def delete(self) -> None:
        """A dynamic queue goes with all it holds; the next send makes it anew."""
        name = self.random.choice(QUEUES[:2])
        with suppress(EngineError):
            self.driver.engine.delete("queue", name, True)
            self.driver.poll()
            self.producers.pop(name, None)
            self._restart_sender()

    def _restart_sender(self) -> None:
        self.sender.close()
        self.sender = self.driver.client()
        self.session = self.sender.session()
        self.producers, self.numbers = {}, {}

    def wait(self) -> None:
        """Time passes: messages expire, delayed ones come."""
        self._pass(self.random.choice((100, 5_000, 40_000)))

    def _pass(self, ms: int) -> None:
        """Time passes; whoever is silent for too long is taken for gone."""
        self.driver.advance(ms)
        self.driver.poll()
        self._restart_sender()
        if ms > 10_000:
            self.open.clear()
        for client, _ in self.open:
            client.send(pb.ClientFrame(heartbeat=pb.Heartbeat()))

    def restart(self, *, clean: bool | None = None) -> None:
        """The broker stops, or its process is killed."""
        self.driver.restart(clean=self.random.random() < 0.5 if clean is None else clean)
        self.driver.engine.configure(CONFIGURATION)
        self._begin()

    def live(self, steps: int) -> None:
        """So many things happen."""
        often = (self.send, self.send, self.send, self.take, self.take, self.transact, self.subscribe, self.decide)
        seldom = (self.wait, self.purge, self.delete, self.unsubscribe, self.restart, self.fill)
        for _ in range(steps):
            self.random.choice(often if self.random.random() < 0.85 else seldom)()

    def leave(self) -> None:
        """Of all that is seldom there at a cut something is there: dead letters, and transactions of both kinds."""
        self.put("fragile", commits=True)
        for _ in range(5):
            self.take("fragile", share=0.0)
        self.put("bills", commits=True)
        self.put("bills", commits=False)

    def put(self, name: str, *, commits: bool) -> None:
        """Three persistent messages, in a transaction that is committed or left open."""
        client = self.driver.client()
        session = client.session(pb.TRANSACTED)
        client.producer(session, queue(name))
        client.publish(session, 1, [text("left") for _ in range(3)], transaction=1)
        self.driver.poll()
        if commits:
            self._decide(client, session, commits=True)
        else:
            self.open.append((client, session))

    def cut(self, store: Store, options: WriterOptions) -> str:
        """Takes a cut and exports it; the path of its folder."""
        source = EngineSource(self)
        path = asyncio.run(export(source, store, options)).path
        source.confirm()
        return path

    def cut_with_ends(self, store: Store, options: WriterOptions) -> str:
        """The same by exporters that end at any change, and brokers that end meanwhile, until one is through."""
        while True:
            source = EngineSource(self)
            left = self.random.choice((20, 60, 100, 1_000))
            try:
                path = asyncio.run(export(source, Ending(store, self.random.randrange(1, left)), options)).path
            except EndedError:
                path = ""
            if self.random.random() < 0.3:
                # Whatever the exporter has kept, the broker has not heard of it.
                self.restart()
            elif path:
                source.confirm()
                return path

    def stop(self) -> None:
        """The engine ends."""
        self.driver.engine.stop()


def identity(broker: str) -> str:
    """A store's identity: another one for each broker."""
    return hashlib.md5(broker.encode(), usedforsecurity=False).hexdigest()


def _destination(name: str) -> message_pb.Destination:
    return queue(name) if name in QUEUES else topic(name)


class EngineSource:
    """A cut of an engine in this process, as an exporter takes it: read at once."""

    def __init__(self, living: Living) -> None:
        self._living = living
        driver = living.driver
        driver.engine.begin_cut()
        driver.wait(lambda: living.progress()["progress"] != "making")
        self._facts = living.progress()
        assert self._facts["progress"] == "ready", self._facts
        self._batches: list[tuple[str, str, pa.RecordBatch]] = []
        reader = driver.engine.open_cut(self._facts["number"])
        configured = schema.table("state", "configuration")
        if living.manifests:
            batch = pa.RecordBatch.from_pylist(living.manifests, schema=configured.schema)
            self._batches.append((configured.folder, configured.name, batch))
        while (piece := reader.next()) is not None:
            folder, table, rows, stream = piece
            with pa.ipc.open_stream(stream) as batches:
                found = list(batches)
            assert sum(batch.num_rows for batch in found) == rows
            self._batches += [(folder, table, batch) for batch in found]
        self._sha256 = ""

    async def cut(self) -> Cut:
        """Which it is."""
        found = self._facts
        gaps = [Gap(gap["from"], gap["to"], gap["reason"]) for gap in found["gaps"]]
        before = found["previous_position"]
        if found["number"] == 1:
            # Nobody asked for events before.
            before, gaps = 0, [Gap(0, found["position"], "nothing was kept for audits before the first cut")]
        return Cut(
            place=self._living.place,
            store=found["store"],
            number=found["number"],
            epoch=found["epoch"],
            position=found["position"],
            previous_position=before,
            time_ms=found["time_ms"],
            events=tuple((start, end) for start, end in found["events"]),
            gaps=tuple(gaps),
            previous=found["previous"],
        )

    async def batches(self) -> AsyncGenerator[tuple[str, str, pa.RecordBatch], None]:
        """Its rows."""
        for one in self._batches:
            yield one

    async def exported(self, sha256: str) -> None:
        """It is kept."""
        self._sha256 = sha256

    def confirm(self) -> None:
        """Tells the engine that it is kept, and waits until that is durable."""
        driver = self._living.driver
        record = driver.engine.confirm_cut(self._facts["number"], bytes.fromhex(self._sha256))
        driver.wait(lambda: driver.engine.log_progress()[1] > record)
        driver.wait(lambda: self._living.progress()["progress"] == "none")
