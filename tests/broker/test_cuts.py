"""Cuts for snapshots over the Admin service: handed out again until confirmed, to one exporter at a time."""

import asyncio
import hashlib
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
import sterna.admin
from prometheus_client.parser import text_string_to_metric_families
from sterna.cuts import Cut, CutManifest, CutPiece, HeldCut
from sterna.errors import ConflictError, ConnectionLostError, InUseError, InvalidArgumentError, ShuttingDownError
from sterna_broker import kept_for_snapshots
from sterna_broker.server.cuts import Cuts

from tests.broker.calls import CallError, call
from tests.broker.wire import queue, text
from tests.running import ANYTHING, manifest
from tests.waiting import eventually

MANIFEST = hashlib.sha256(b"manifest").digest()
# The smallest of everything.
SMALL = "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}, snapshots: {keptBytes: 1048576}"

Admin = sterna.admin.Admin


@pytest.fixture
async def admin_of() -> AsyncIterator[Callable[[Any], Any]]:
    """Connects to a node's admin service."""
    opened: list[Admin] = []

    async def connect(running: Any) -> Admin:
        opened.append(await sterna.admin.connect(f"sterna://{running.messaging}").__aenter__())
        return opened[-1]

    yield connect
    for admin in opened:
        await admin.__aexit__(None, None, None)


async def fill(wire: Any, running: Any, count: int, first: int = 1, client: Any = None) -> Any:
    """Publishes so many messages to the queue orders."""
    if client is None:
        client = await wire(running)
        await client.producer(await client.session(), queue("orders"))
    for start in range(first, first + count, 500):
        bodies = [text(str(number)) for number in range(start, min(start + 500, first + count))]
        await client.publish(1, bodies, first=start)
        await client.confirmed(start + len(bodies) - 1)
    return client


@pytest.fixture
def large_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Before a cut's own pieces come fifty large ones without rows; the list has the sizes of those that were read."""
    read: list[int] = []
    original = Cuts._next

    async def after_large_ones(self: Cuts, *arguments: Any) -> Any:
        if len(read) == 50:
            return await original(self, *arguments)
        large = random.randbytes(2**20 + 2**19)
        read.append(len(large))
        return "state", "deliverables", 0, large

    monkeypatch.setattr(Cuts, "_next", after_large_ones)
    return read


async def whole(admin: Admin) -> Cut:
    """The cut that waits, or a new one."""
    while (cut := await admin.begin_cut(wait=1)) is None:
        pass
    return cut


async def waiting(running: Any, wire: Any, admin_of: Any) -> tuple[Admin, Cut]:
    """A cut of ten messages that waits, and who asked for it."""
    await fill(wire, running, 10)
    admin = await admin_of(running)
    return admin, await whole(admin)


async def told(held: HeldCut) -> Counter[str]:
    """How many rows each table has; all is read."""
    rows: Counter[str] = Counter()
    async for part in held.parts():
        if isinstance(part, CutPiece):
            rows[f"{part.folder}/{part.table}"] += part.rows
        else:
            rows["state/configuration"] += len(part)
    return rows


async def manifests_of(held: HeldCut) -> list[CutManifest]:
    """What was configured; all is read."""
    found: list[CutManifest] = []
    async for part in held.parts():
        found += [] if isinstance(part, CutPiece) else part
    return found


async def test_a_cut_is_the_same_until_it_is_confirmed(node: Any, wire: Any, admin_of: Any) -> None:
    running = await node()
    await fill(wire, running, 120)
    admin = await admin_of(running)
    first = await whole(admin)
    assert (first.number, first.previous_manifest, first.events, first.gaps) == (1, b"", (), ())
    assert first.previous_position == first.position
    assert (first.cluster, first.broker) == ("", "sterna")
    async with admin.hold_cut(first) as held:
        rows = await told(held)
        assert (rows["state/deliverables"], rows["state/messages"]) == (120, 120)
        assert held.cut == first
    assert await whole(admin) == first
    async with admin.hold_cut(first) as held:
        assert await told(held) == rows
        await held.confirm(MANIFEST)
        # Whoever does not know whether it was heard may say it again.
        await held.confirm(MANIFEST)
    await fill(wire, running, 30)
    second = await whole(admin)
    assert (second.number, second.previous_manifest) == (2, MANIFEST)
    assert (second.previous_position, second.events) == (first.position, ((first.position, second.position),))
    async with admin.hold_cut(second) as held:
        rows = await told(held)
    assert (rows["state/deliverables"], rows["events/stored"]) == (150, 30)


async def test_the_manifests_in_force_are_told_without_users(node: Any, admin_of: Any) -> None:
    orders = manifest("Queue", "orders", "maxMessages: 9")
    running = await node([orders, manifest("Topic", "news", 'name: "news.>"')])
    admin = await admin_of(running)
    async with admin.hold_cut(await whole(admin)) as held:
        found = await manifests_of(held)
    assert [(one.kind, one.name, one.revision, one.spec) for one in found] == [
        ("Queue", "orders", 0, '{"maxMessages":9}'),
        ("Topic", "news", 0, '{"name":"news.>"}'),
    ]


async def test_what_is_configured_while_a_cut_waits_belongs_to_the_next_one(node: Any, admin_of: Any) -> None:
    admin = await admin_of(await node([manifest("Queue", "orders", "maxMessages: 9")]))
    first = await whole(admin)
    await admin.apply(manifest("Queue", "later"))
    assert await whole(admin) == first
    async with admin.hold_cut(first) as held:
        assert [one.name for one in await manifests_of(held)] == ["orders"]
        await held.confirm(MANIFEST)
    async with admin.hold_cut(await whole(admin)) as held:
        assert sorted(one.name for one in await manifests_of(held)) == ["later", "orders"]


async def test_one_exporter_at_a_time_holds_a_cut_and_lets_it_go_at_once(node: Any, wire: Any, admin_of: Any) -> None:
    running = await node()
    await fill(wire, running, 10)
    one, other = await admin_of(running), await admin_of(running)
    cut = await whole(one)
    async with one.hold_cut(cut) as held:
        with pytest.raises(InUseError, match=r"Another exporter has been reading cut 1 for 0 s") as caught:
            await other.hold_cut(cut).__aenter__()
        assert caught.value.retryable
        # In the middle of its pieces.
        async for _ in held.parts():
            break

    taken = other.hold_cut(cut)

    async def takes() -> bool:
        try:
            await taken.__aenter__()
        except InUseError:
            return False
        return True

    await eventually(takes)
    assert (await told(taken))["state/deliverables"] == 10
    # Who had it before cannot confirm it any more.
    with pytest.raises(ConflictError, match="is not held by the call that is named"):
        await held.confirm(MANIFEST)
    await taken.confirm(MANIFEST)
    await taken.__aexit__(None, None, None)


async def test_what_is_wrong_with_a_confirmation_is_said_and_confirms_nothing(
    node: Any, wire: Any, admin_of: Any, channel_to: Any
) -> None:
    running = await node()
    admin, cut = await waiting(running, wire, admin_of)
    async with admin.hold_cut(cut) as held:
        with pytest.raises(InvalidArgumentError, match="manifest has 5 bytes, a SHA-256 has 32"):
            await held.confirm(b"short")
        with pytest.raises(CallError, match=r"INVALID_ARGUMENT \(number\): The cut that is held is 1, not 2"):
            fields: dict[str, Any] = {"hold": held._hold, "number": 2, "manifest": MANIFEST}
            await call(channel_to(running), "Admin/ConfirmCut", **fields)
        with pytest.raises(CallError, match=r"CONFLICT \(hold\)") as caught:
            await call(channel_to(running), "Admin/ConfirmCut", hold=held._hold + 2, number=1, manifest=MANIFEST)
        assert caught.value.error.retryable
    with pytest.raises(CallError, match="wait_ms is 60001, at most 60000"):
        await call(channel_to(running), "Admin/BeginCut", wait_ms=60_001)
    assert await whole(admin) == cut
    for wrong in ({"number": 2}, {"position": cut.position + 1}, {"store_id": "ab" * 16}):
        fields = {"number": 1, "position": cut.position, "store_id": cut.store_id, **wrong}
        with pytest.raises(ConflictError, match="does not wait to be exported any more"):
            await admin.hold_cut(Cut(**{**{name: getattr(cut, name) for name in cut.__slots__}, **fields})).__aenter__()


async def test_a_broker_that_stops_says_so_to_who_reads_and_has_the_cut_afterwards(
    node: Any, wire: Any, admin_of: Any, tmp_path: Path
) -> None:
    running = await node()
    admin, cut = await waiting(running, wire, admin_of)
    async with admin.hold_cut(cut) as held:
        await told(held)
        stopping = asyncio.create_task(running.stop())
        with pytest.raises(ShuttingDownError, match="The broker is stopping"):
            await held._next()
        await stopping
    again = await node()
    assert await whole(await admin_of(again)) == cut


async def test_a_slow_reader_does_not_make_the_broker_read_ahead(
    node: Any, wire: Any, admin_of: Any, large_pieces: list[int]
) -> None:
    running = await node()
    await fill(wire, running, 10)
    admin, other = await admin_of(running), await admin_of(running)
    cut = await whole(admin)
    async with admin.hold_cut(cut) as held:
        # Whatever gRPC takes of it has been taken when the broker has answered so many others.
        for _ in range(50):
            await other.statistics()
        ahead = len(large_pieces)
        rows = await told(held)
    assert (rows["state/deliverables"], rows["state/messages"]) == (10, 10)
    assert ahead <= 5
    assert len(large_pieces) == 50


async def test_a_cut_that_takes_more_than_it_may_is_given_up_and_messages_go_on(
    node: Any, wire: Any, admin_of: Any
) -> None:
    running = await node([manifest("Broker", "sterna", SMALL), *ANYTHING])
    client = await fill(wire, running, 80_000)
    admin = await admin_of(running)
    with pytest.raises(ConflictError, match="The cut was given up: it takes more space than it may") as caught:
        await whole(admin)
    assert caught.value.retryable
    await fill(wire, running, 10, first=80_001, client=client)


async def test_events_that_are_given_up_while_a_cut_is_read_leave_nothing_confirmed(
    node: Any, wire: Any, admin_of: Any, large_pieces: list[int]
) -> None:
    """The cut says what is missing when it is read again."""
    running = await node([manifest("Broker", "sterna", SMALL.replace("1048576}", "2097152}")), *ANYTHING])
    admin = await admin_of(running)
    async with admin.hold_cut(await whole(admin)) as held:
        await held.confirm(MANIFEST)
    taker = await wire(running)
    source = (await taker.consumer(await taker.session(), queue("orders"), credit=10**6)).source
    client = await fill(wire, running, 2_000)
    await taker.acknowledge(1, source, 1, 2_000)
    cut = await whole(admin)
    assert cut.number == 2
    assert cut.gaps == ()
    async with admin.hold_cut(cut) as held:
        sent = 2_000
        while running._parts.kept.facts()["gaps"] == []:
            await fill(wire, running, 2_000, first=sent + 1, client=client)
            sent += 2_000
            await taker.acknowledge(1, source, sent - 1_999, sent)
            assert sent < 500_000
        with pytest.raises(ConflictError, match="Some of the events before the cut were given up") as caught:
            await told(held)
        assert caught.value.retryable
        assert len(large_pieces) == 50
        with pytest.raises(ConflictError, match="is not held by the call that is named"):
            await held.confirm(MANIFEST)
    again = await whole(admin)
    assert (again.number, again.position) == (2, cut.position)
    assert [reason for _, _, reason in again.gaps] == ["they took too much space"]


async def test_whoever_loses_the_connection_holds_nothing(node: Any, admin_of: Any) -> None:
    running = await node()
    admin = await admin_of(running)
    cut = await whole(admin)
    lost = await admin_of(running)
    held = await lost.hold_cut(cut).__aenter__()
    await lost.__aexit__(None, None, None)

    async def is_free() -> bool:
        try:
            async with admin.hold_cut(cut):
                return True
        except InUseError:
            return False

    await eventually(is_free)
    with pytest.raises(ConnectionLostError, match="was ended here"):
        await told(held)


async def test_at_half_of_what_may_wait_the_broker_is_ready_and_says_that_a_snapshot_is_due(
    node: Any, wire: Any, admin_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[tuple[str, dict[str, Any]]] = []
    log = SimpleNamespace(warning=lambda event, **line: logged.append((event, line)))
    monkeypatch.setattr(kept_for_snapshots, "_log", log)
    running = await node([manifest("Broker", "sterna", SMALL), *ANYTHING])
    kept = running._parts.kept
    await fill(wire, running, 30_000)
    kept.tell()
    assert (running.readiness().warnings, logged) == ([], [])
    admin = await admin_of(running)
    cut = await whole(admin)
    kept.tell()
    kept.tell()
    [(event, line)] = logged
    assert (event, line["bytes_max"]) == ("snapshot_due", 2**20)
    assert 2**19 <= line["kept_bytes"] < 2**20
    readiness = running.readiness()
    assert readiness.ready
    [warning] = readiness.warnings
    assert re.fullmatch(
        r"a snapshot is due: 0 of 1 MiB wait for it, the oldest for 0 of 168 hours; "
        r"beyond that the oldest is given up",
        warning,
    )
    metrics = await metrics_of(running)
    assert metrics["sterna_snapshot_half_full"] == 1
    assert metrics["sterna_snapshot_kept_bytes"] == line["kept_bytes"]
    assert 0 <= metrics["sterna_snapshot_kept_seconds"] < 60
    assert (metrics["sterna_snapshot_exported_cut"], metrics["sterna_snapshot_gaps"]) == (0, 0)
    async with admin.hold_cut(cut) as held:
        await held.confirm(MANIFEST)
    await eventually(lambda: not running.readiness().warnings)
    metrics = await metrics_of(running)
    assert (metrics["sterna_snapshot_half_full"], metrics["sterna_snapshot_exported_cut"]) == (0, 1)


async def metrics_of(running: Any) -> dict[str, float]:
    """The broker's metrics without labels."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{running.monitor}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    return {one.name: one.value for family in families for one in family.samples if not one.labels}
