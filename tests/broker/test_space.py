"""The log's room on the disk: filled ahead, and given back by itself while the broker works."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
import sterna

from tests.running import ANYTHING, manifest
from tests.waiting import eventually

SEGMENT_BYTES = 2**20
SMALL = manifest("Broker", "small", f"log: {{segmentBytes: {SEGMENT_BYTES}}}, limits: {{messageBytes: 262144}}")


def _taken(log: Path) -> tuple[int, int]:
    """How many bytes segments have, and how many the disk has given them."""
    found = []
    for file in log.glob("*.segment"):
        with contextlib.suppress(FileNotFoundError):  # it went since the folder was read
            found.append(file.stat())
    return sum(one.st_size for one in found), sum(one.st_blocks * 512 for one in found)


def _given(folder: Path) -> int:
    """How many bytes the disk has given all files of a folder."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


async def _is_prepared(broker: Any) -> bool:
    """Upkeep has set aside all that it does: spare and three files to come."""
    log = broker.data / "log"
    return (log / "spare").exists() and len(list(log.glob("*.segment"))) >= 4


async def test_an_empty_broker_takes_less_than_30_mb_until_it_needs_more(broker_process: Any) -> None:
    """What comes first is as large as it may be, and a burst behind it waits for nothing but the disk."""
    large = manifest("Broker", "large", f"limits: {{messageBytes: {2**25}}}")
    broker = await asyncio.to_thread(broker_process([*ANYTHING, large]).start)
    for _ in range(2):
        await eventually(lambda: _is_prepared(broker))
        assert 20_000_000 < _given(broker.data) < 30_000_000
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
    await eventually(lambda: _is_prepared(broker))
    body = bytes(2**25 - 4096)
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        await connection.send("first", body)
        await asyncio.gather(*(connection.send("burst", number.to_bytes(2, "big") * 4096) for number in range(2000)))
        await eventually(lambda: _is_grown(broker))
        consumer = await connection.consumer("first")
        message = await consumer.receive(20)
        assert message is not None
        assert message.body == body
        consumer = await connection.consumer("burst", prefetch=100)
        for number in range(2000):
            message = await consumer.receive(20)
            assert message is not None
            assert message.body[:2] == number.to_bytes(2, "big")


async def _is_grown(broker: Any) -> bool:
    return _given(broker.data) > 300_000_000


async def test_a_burst_to_an_empty_broker_is_not_refused_while_it_grows(broker_process: Any) -> None:
    broker = await asyncio.to_thread(broker_process(ANYTHING).start)
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        await asyncio.gather(*(connection.send("burst", number.to_bytes(2, "big") * 4096) for number in range(4000)))
        await eventually(lambda: _is_grown(broker))
    await asyncio.to_thread(broker.kill)
    await asyncio.to_thread(broker.start)
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        consumer = await connection.consumer("burst", prefetch=100)
        for number in range(4000):
            message = await consumer.receive(20)
            assert message is not None
            assert message.body[:2] == number.to_bytes(2, "big")


@pytest.mark.covers("EMS-STORE-B07", "EMS-STORE-B08")
async def test_room_is_taken_ahead_and_comes_back_by_itself_around_what_is_kept(broker_process: Any) -> None:
    broker = await asyncio.to_thread(broker_process([*ANYTHING, SMALL]).start)
    log = broker.data / "log"
    length, given = _taken(log)
    # Nothing was sent yet, and a whole segment is there with all its blocks.
    assert length >= SEGMENT_BYTES
    assert given >= length
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        for number in range(120):
            # In each segment something stays, so that none can simply go.
            await connection.send("kept" if number % 10 == 0 else "taken", number.to_bytes(2, "big") * 50_000)
        full = _taken(log)[0]
        assert full > 10 * SEGMENT_BYTES
        consumer = await connection.consumer("taken")
        for _ in range(108):
            assert await consumer.receive(10) is not None

        async def is_small() -> bool:
            # Clients go on meanwhile, and no command was given.
            await connection.send("other", "x", delivery_mode=sterna.DeliveryMode.NON_PERSISTENT)
            return _taken(log)[0] <= full * 3 // 4

        await eventually(is_small, timeout_s=20, what="a fourth of the room to be given back")
        consumer = await connection.consumer("kept", prefetch=20)
        kept = []
        for _ in range(12):
            message = await consumer.receive(10)
            assert message is not None
            kept.append(int.from_bytes(message.body[:2], "big"))
    assert kept == list(range(0, 120, 10))
