"""On how small a disk a broker serves: what manifests of clusters are refused by (`SERVING_SEGMENTS`)."""

import asyncio
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sterna
import sterna.admin
from sterna import errors
from sterna.cuts import Cut
from sterna_resources.broker import SERVING_SEGMENTS

from tests.running import ANYTHING, RunningBroker, manifest
from tests.support.leaving_out import leave_out
from tests.waiting import eventually, eventually_blocking

_SEGMENT_BYTES = 2**20
_BROKER = f"log: {{segmentBytes: {_SEGMENT_BYTES}}}, limits: {{messageBytes: {_SEGMENT_BYTES // 2}}}"


@pytest.fixture
def disk(tier_broker: None, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own, with so many bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={request.param}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        leave_out("brokers on small disks", f"no file system can be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _readiness(monitor: str) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"{monitor}/readyz", timeout=5) as response:
            return dict(json.loads(response.read()))
    except urllib.error.HTTPError as error:
        return dict(json.loads(error.read()))


@pytest.mark.parametrize(
    ("disk", "serves"),
    [
        pytest.param(_SEGMENT_BYTES * SERVING_SEGMENTS, False, id="so many segments"),
        pytest.param(_SEGMENT_BYTES * SERVING_SEGMENTS + 2**18, True, id="and a little"),
    ],
    indirect=["disk"],
)
def test_a_broker_serves_on_more_than_so_many_segments(disk: Path, tmp_path: Path, serves: bool) -> None:
    broker = RunningBroker(tmp_path / "broker", [manifest("Broker", "small", _BROKER)], data=str(disk / "data"))
    try:
        broker.start()
        eventually_blocking(lambda: _is_settled(_readiness(broker.monitor), serves))
        answer = _readiness(broker.monitor)
    finally:
        broker.kill()
    assert answer["ready"] is serves
    assert any("disk is full" in str(reason) for reason in answer["reasons"]) is not serves


_YOUNG_SEGMENT_BYTES = 2**23
_YOUNG = f"log: {{segmentBytes: {_YOUNG_SEGMENT_BYTES}}}, limits: {{messageBytes: {_YOUNG_SEGMENT_BYTES // 2}}}"


@pytest.mark.parametrize(
    ("disk", "serves"),
    [
        pytest.param(_YOUNG_SEGMENT_BYTES * SERVING_SEGMENTS, False, id="so many segments"),
        pytest.param(_YOUNG_SEGMENT_BYTES * SERVING_SEGMENTS + 2**19, True, id="and a little"),
    ],
    indirect=["disk"],
)
async def test_what_a_store_that_is_small_yet_has_no_room_for_is_told_from_the_start(
    disk: Path, tmp_path: Path, serves: bool
) -> None:
    """What it takes all the same can be consumed; what it has no room for is refused, or taken where it serves."""
    broker = RunningBroker(tmp_path / "broker", [manifest("Broker", "y", _YOUNG), *ANYTHING], data=str(disk / "data"))
    try:
        await asyncio.to_thread(broker.start)
        before = await asyncio.to_thread(_readiness, broker.monitor)
        async with sterna.connect(f"sterna://{broker.address}") as connection:
            largest = connection.send("orders", bytes(_YOUNG_SEGMENT_BYTES // 2 - 4096))
            if serves:
                await largest
            else:
                with pytest.raises(errors.StoreFullError):
                    await largest
            sent = await _send_until_full(connection)
            full = await asyncio.to_thread(_readiness, broker.monitor)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            taken = await _take_all(connection)
    finally:
        await asyncio.to_thread(broker.kill)
    assert before["ready"] is serves
    assert any("the disk is full after a few messages" in one for one in before["reasons"]) is not serves
    assert any("set aside for a full one" in one for one in before["warnings"])
    assert not full["ready"]
    assert full["reasons"] == ["the disk is full: messages can be consumed, not sent"]
    assert sent > 15
    assert taken == sent + serves


async def _send_until_full(connection: sterna.Connection) -> int:
    sent = 0
    with pytest.raises(errors.StoreFullError):
        while True:
            await connection.send("orders", bytes(100_000))
            sent += 1
    return sent


async def _take_all(connection: sterna.Connection) -> int:
    taken = 0
    consumer = await connection.consumer("orders")
    while await consumer.receive(3) is not None:
        taken += 1
    return taken


def _is_settled(answer: dict[str, Any], serves: bool) -> bool:
    """Upkeep has looked for room, and warns where there is not enough for all that it would like."""
    return answer["ready"] is serves and bool(answer["warnings"])


@pytest.mark.parametrize("disk", [_SEGMENT_BYTES * 24], indirect=True)
async def test_a_cut_gives_way_when_the_disk_is_full_and_messages_go_on(disk: Path, tmp_path: Path) -> None:
    """Nothing is confirmed of it; what was consumed makes room for the next, which says what is missing."""
    broker = RunningBroker(
        tmp_path / "broker",
        [manifest("Broker", "small", _BROKER + f", snapshots: {{keptBytes: {_SEGMENT_BYTES * 20}}}"), *ANYTHING],
        data=str(disk / "data"),
    )
    await asyncio.to_thread(broker.start)
    url = f"sterna://{broker.address}"
    try:
        async with sterna.connect(url) as connection, sterna.admin.connect(url) as admin:
            first = await admin.begin_cut()
            assert first is not None
            async with admin.hold_cut(first) as held:
                await held.confirm(bytes(32))
            await connection.send("orders", b"before the cut")
            cut = await admin.begin_cut()
            assert cut is not None
            async with admin.hold_cut(cut) as held:
                with pytest.raises(errors.StoreFullError):
                    while True:
                        await connection.send("orders", bytes(100_000))
                # As long as the cut waits it is given out, on a full disk, too.
                await eventually(lambda: _is_refused(admin), timeout_s=30)
                with pytest.raises(errors.ConflictError, match="The cut was given up: the disk was full") as caught:
                    await held.confirm(bytes(32))
                assert caught.value.retryable
            assert await admin.purge_queue("orders") > 100
            again = await eventually(lambda: _begun(admin), timeout_s=30)
            await connection.send("orders", b"after it")
    finally:
        await asyncio.to_thread(broker.kill)
    assert again is not None
    assert (again.number, again.previous_manifest) == (2, bytes(32))
    assert again.position > cut.position
    assert again.gaps[0] == (first.position, again.gaps[0][1], "the disk was full")


async def _is_refused(admin: sterna.admin.Admin) -> bool:
    return await _begun(admin) is None


async def _begun(admin: sterna.admin.Admin) -> Cut | None:
    try:
        return await admin.begin_cut()
    except errors.StoreFullError:
        return None
