"""Snapshots of real brokers: they hold what the broker says otherwise, and nobody who ends breaks the chain."""

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sterna
from sterna.errors import SternaError
from sterna.modes import AcknowledgeMode
from sterna_audit.exporting import ExportError, export
from sterna_audit.snapshots import chains
from sterna_audit.snapshots.chains import Chain
from sterna_audit.snapshots.layout import Place
from sterna_audit.snapshots.stores import Directory

from tests.audit.ending import EndedError, Ending
from tests.audit.kept import PLAIN, VERIFIER
from tests.audit.living import Living
from tests.broker.conftest import broker_process
from tests.running import ANYTHING, RunningBroker, manifest
from tests.support.exports import exported, holding, table
from tests.support.seeds import seed
from tests.waiting import eventually

__all__ = ["broker_process"]

PLACE = Place("standalone", "sterna")
SMALL = manifest("Broker", "sterna", "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}")


@pytest.fixture
def broker(broker_process: Callable[..., RunningBroker]) -> RunningBroker:
    """One that is not started yet, with the smallest segments."""
    return broker_process([SMALL, *ANYTHING])


@pytest.fixture
def store(tmp_path: Path) -> Directory:
    """Where its snapshots go."""
    return Directory(tmp_path / "snapshots")


@pytest.fixture
async def url(broker: RunningBroker) -> str:
    """Where it is, once it serves."""
    return await started(broker)


async def started(broker: RunningBroker) -> str:
    await asyncio.to_thread(broker.start)
    return f"sterna://{broker.address}"


def chain(store: Directory) -> Chain:
    return chains.verify(store, PLACE, VERIFIER)


class Traffic:
    """Random sends and receives over queues and a durable subscription."""

    def __init__(self) -> None:
        self.random = random.Random(seed())
        self.sent = 0

    async def run(self, url: str, steps: int) -> None:
        """So many things happen; none is left in between."""
        async with sterna.connect(url, client_id="audited") as connection:
            session = await connection.session(AcknowledgeMode.INDIVIDUAL)
            durable = await session.consumer(sterna.Topic("news.>"), durable="paper")
            for _ in range(steps):
                await self.random.choice((self._send, self._send, self._take, self._commit, self._roll_back))(
                    connection
                )
            await durable.close()

    def _queue(self) -> str:
        return f"orders.{self.random.randrange(3)}"

    async def _send(self, connection: Any) -> None:
        for _ in range(self.random.randrange(1, 40)):
            self.sent += 1
            target = sterna.Topic("news.world") if self.sent % 4 == 0 else sterna.Queue(self._queue())
            await connection.send(target, f"message {self.sent}" * self.random.randrange(1, 9))

    async def _take(self, connection: Any) -> None:
        session = await connection.session(AcknowledgeMode.INDIVIDUAL)
        consumer = await session.consumer(self._queue())
        for _ in range(self.random.randrange(1, 30)):
            message = await consumer.receive(timeout=0.05)
            if message is None:
                break
            message.acknowledge()
        await session.close()

    async def _commit(self, connection: Any) -> None:
        await self._transact(connection, commits=True)

    async def _roll_back(self, connection: Any) -> None:
        await self._transact(connection, commits=False)

    async def _transact(self, connection: Any, *, commits: bool) -> None:
        session = await connection.session(transacted=True)
        producer = await session.producer(self._queue())
        for _ in range(3):
            await producer.send("in a transaction")
        await (session.commit() if commits else session.rollback())
        await session.close()


async def due(url: str) -> dict[str, list[int]]:
    """What the broker says that it holds: sequences by source's name."""
    found: dict[str, list[int]] = {}
    async with sterna.admin.connect(url) as admin:
        queues = [one for one in await admin.resources("Queue") if one.statistics.messages]
        for queue in queues:
            looked = [message.sequence async for message in admin.browse_queue(queue.name, limit=100_000)]
            assert len(looked) == queue.statistics.messages
            found[queue.name] = looked
        found["paper"] = [
            message.sequence async for message in admin.browse_durable("paper", client_id="audited", limit=100_000)
        ]
        assert (await admin.statistics()).messages == sum(map(len, found.values()))
    return {name: sequences for name, sequences in found.items() if sequences}


def told(store: Directory, snapshot: Any) -> dict[str, list[int]]:
    """What the snapshot says of the same."""
    names = {
        row["id"]: row["name"]
        for title in ("state/destinations", "state/subscriptions")
        for row in table(store, snapshot, title).to_pylist()
    }
    found: dict[str, list[int]] = {}
    for row in table(store, snapshot, "state/deliverables").sort_by("sequence").to_pylist():
        found.setdefault(names[row["source"]], []).append(row["sequence"])
    return found


async def test_a_chain_over_traffic_transactions_and_ends_of_the_broker_verifies(
    broker: RunningBroker, url: str, store: Directory
) -> None:
    """Each cut holds what the broker says; what came and went between two cuts adds up."""
    traffic = Traffic()
    balance: int | None = None
    for number, end in enumerate((None, broker.terminate, broker.kill, None), 1):
        if end is not None:
            await asyncio.to_thread(end)
            url = await started(broker)
        await traffic.run(url, 12)
        held = await due(url)
        snapshot = await exported(url, store)
        assert snapshot.manifest.cut.number == number
        assert told(store, snapshot) == held
        waiting = table(store, snapshot, "state/deliverables")
        positions = set(table(store, snapshot, "state/messages")["position"].to_pylist())
        assert set(waiting["position"].to_pylist()) == positions
        if balance is not None:
            assert snapshot.manifest.cut.gaps == ()
            ends = table(store, snapshot, "events/ends").to_pylist()
            ended = sum(row["last"] - row["first"] + 1 for row in ends)
            # What a transaction did not commit began and ended, or did not begin at all.
            began = arrivals(store, snapshot)
            assert balance + began - ended == waiting.num_rows
        balance = waiting.num_rows
    found = await asyncio.to_thread(chain, store)
    assert found.findings == []
    assert len(found.snapshots) == 4


def arrivals(store: Directory, snapshot: Any) -> int:
    """How many deliverables began for good: those of transactions that were rolled back did not."""
    decided = table(store, snapshot, "events/decisions").to_pylist()
    rolled_back = {row["transaction"] for row in decided if row["decision"] == 3}
    transacted = table(store, snapshot, "events/transacted").to_pylist()
    never = {row["position"] for row in transacted if row["transaction"] in rolled_back}
    rows = table(store, snapshot, "events/arrivals")["position"].to_pylist()
    return sum(position not in never for position in rows)


class Stopping:
    """A source that calls `stop` after so many batches, or before it tells that the cut was kept."""

    def __init__(self, source: Any, stop: Callable[[], Any], batches: int | None) -> None:
        self.source = source
        self.stop = stop
        self.left = batches
        self.cut = source.cut

    async def batches(self) -> AsyncGenerator[tuple[str, str, pa.RecordBatch], None]:
        async for batch in self.source.batches():
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    await self.stop()
            yield batch

    async def exported(self, sha256: str) -> None:
        if self.left is None:
            await self.stop()
        await self.source.exported(sha256)


@pytest.mark.parametrize("batches", [0, 3, None], ids=["at once", "in the middle", "before it hears"])
async def test_a_broker_that_is_killed_while_a_cut_is_read_gives_the_same_again(
    broker: RunningBroker, url: str, store: Directory, batches: int | None
) -> None:
    await Traffic().run(url, 8)
    first = await exported(url, store)
    await Traffic().run(url, 8)

    async def kill() -> None:
        await asyncio.to_thread(broker.kill)

    async with holding(url) as source:
        cut = await source.cut()
        if batches is None:
            with pytest.raises(SternaError):
                await export(Stopping(source, kill, batches), store, PLAIN, verifier=VERIFIER)
        else:
            # It ends in the middle, or what gRPC had of it already was all of it; then it cannot be confirmed.
            with pytest.raises(SternaError):
                await export(Stopping(source, kill, batches), store, PLAIN, verifier=VERIFIER)
    url = await started(broker)
    again = await exported(url, store)
    assert again.manifest.cut == cut
    assert again.manifest.cut.previous == first.manifest.sha256
    await exported(url, store)
    assert (await asyncio.to_thread(chain, store)).findings == []


async def test_an_exporter_that_ends_at_any_change_is_repeated_with_the_same_cut(
    broker: RunningBroker, url: str, store: Directory
) -> None:
    await Traffic().run(url, 6)
    await exported(url, store)
    await Traffic().run(url, 6)
    async with holding(url) as source:
        cut = await source.cut()
    changes, again = 0, None
    while again is None:
        changes += 9
        try:
            async with holding(url) as source:
                again = await export(source, Ending(store, changes), PLAIN, verifier=VERIFIER)
        except EndedError:
            found = chains.verify(store, PLACE, VERIFIER, files=False)
            assert found.findings == []
            assert [one.is_half_written for one in found.snapshots] in ([False], [False, True])
    assert again.manifest.cut == cut
    assert changes > 23 * 2
    assert (await asyncio.to_thread(chain, store)).findings == []


async def test_an_exporter_that_ends_before_the_broker_hears_of_it_writes_nothing_twice(
    broker: RunningBroker, url: str, store: Directory
) -> None:
    await Traffic().run(url, 6)

    async def end() -> None:
        raise EndedError

    with pytest.raises(EndedError):
        await exported(url, store, lambda source: Stopping(source, end, None))
    before = await asyncio.to_thread(store.files, "")
    again = await exported(url, store)
    assert not again.is_new
    assert await asyncio.to_thread(store.files, "") == before
    assert (await exported(url, store)).manifest.cut.previous == again.manifest.sha256
    assert (await asyncio.to_thread(chain, store)).findings == []


async def test_a_store_that_was_made_anew_is_told_from_the_one_before(
    broker_process: Callable[..., RunningBroker], store: Directory
) -> None:
    await exported(await started(broker_process(name="one")), store)
    with pytest.raises(ExportError, match="is another cut of that number: store, "):
        await exported(await started(broker_process(name="another")), store)


async def test_a_command_that_is_killed_leaves_the_cut_to_the_next(
    broker: RunningBroker, url: str, store: Directory, private_key: Path
) -> None:
    """The real command, with SIGKILL in the middle of its files, then with SIGTERM, then to its end."""
    async with sterna.connect(url) as connection:
        producer = await connection.producer("orders")
        for number in range(12_000):
            await producer.send_soon(str(number))
        await producer.flush()
    command = [
        sys.executable,
        "-m",
        "sterna",
        "snapshot",
        "create",
        "--to",
        store.uri,
        "--sign-with",
        str(private_key),
        "--principals",
        "plain",
    ]
    command += ["-s", url, "-o", "json"]
    cuts = []
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM)):
        before = _begun(store)
        process = await asyncio.create_subprocess_exec(*command, "--rate", "100k", stdout=-1, stderr=-1)
        await eventually(lambda before=before: _begun(store) - before, timeout_s=60)  # type: ignore[misc]
        process.send_signal(number)
        _, err = await process.communicate()
        assert process.returncode == code, err
        async with holding(url) as source:
            cuts.append(await source.cut())
    assert cuts[0] == cuts[1]
    process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    printed = json.loads(out)
    assert (printed["cut"], printed["state"], printed["position"]) == (1, "new", cuts[0].position)
    assert (await asyncio.to_thread(chain, store)).findings == []


def _begun(store: Directory) -> set[tuple[Path, int]]:
    """The files of deliverables that are there, with when they were last written: a number may be used again.

    An exporter may take away what a former one left, meanwhile.
    """
    found = set()
    for folder, _, names in os.walk(store.uri):
        for path in (Path(folder, name) for name in names if name.startswith("deliverables")):
            with suppress(FileNotFoundError):
                found.add((path, path.stat().st_mtime_ns))
    return found


def test_keys_of_names_tell_nobody_without_the_store_whose_they_are(tmp_path: Path) -> None:
    """What is hashed or left out of the texts is not to be found out by trying names on their keys."""

    def names(folder: Path) -> dict[tuple[str, ...], int]:
        living, store = Living(folder / "engine", 7, "one"), Directory(folder / "snapshots")
        living.cut(store, PLAIN)
        living.live(40)
        path = living.cut(store, PLAIN)
        living.stop()
        rows = pq.read_table(folder / "snapshots" / path / "events" / "names-000.parquet").to_pylist()
        return {tuple(str(value) for name, value in row.items() if name != "key"): row["key"] for row in rows}

    one, other = names(tmp_path / "a"), names(tmp_path / "b")
    assert one.keys() == other.keys() != set()
    assert set(one.values()).isdisjoint(other.values())


def test_the_brokers_own_queue_has_a_name(tmp_path: Path) -> None:
    living, store = Living(tmp_path / "engine", 7, "one"), Directory(tmp_path / "snapshots")
    path = living.cut(store, PLAIN)
    living.stop()
    rows = pq.read_table(tmp_path / "snapshots" / path / "state" / "destinations-000.parquet").to_pylist()
    assert {"id": 1, "kind": 1, "origin": 4, "generation": 1, "name": "$sys.undelivered"} in rows
