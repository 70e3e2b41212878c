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
