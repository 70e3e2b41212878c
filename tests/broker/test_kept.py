"""What was written by earlier versions: a store is opened as it is, an SDK connects.

tests/baselines keeps them. `store-1` is the log of a broker that was killed, in segments of 1 MiB: 400 messages in a
queue, 150 of them acknowledged, a bridge from a topic, a durable subscription, a delay, a committed transaction and one
that was rolled back; `store-1.json` says what its queues held: text, message id and priority of each. `sdk-1` is the
package `sterna` of the same commit, from before stores had start ids and producers tokens.
"""

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import sterna
from sterna import Topic

from tests.running import ANYTHING, RunningBroker, manifest

KEPT = Path(__file__).parent.parent / "baselines"
SMALL = manifest("Broker", "sterna", "log: {segmentBytes: 1048576}, limits: {messageBytes: 262144}")
OBJECTS = (
    *ANYTHING,
    SMALL,
    manifest("Queue", "audit"),
    manifest("Topic", "news"),
    manifest("Bridge", "copies", "source: {topic: news}, targets: [{queue: audit}]"),
)


def unpacked(name: str, folder: Path) -> Path:
    """One of what is kept, in a folder."""
    with tarfile.open(KEPT / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


async def queues(broker: RunningBroker, names: list[str]) -> dict[str, list[list[Any]]]:
    """Text, id and priority of all that queues hold, in the order in which it would be delivered."""
    found = {}
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        for name in names:
            async with connection.browser(name) as browser:
                found[name] = [[_text(one), one.message_id, one.priority] async for one in browser]
    return found


def _text(message: sterna.Message) -> str:
    return message.text.strip() if isinstance(message.body, str) else ""


@pytest.mark.covers("EMS-STORE-A02")
async def test_a_kept_store_is_opened_with_all_that_it_held_and_stays_readable(broker_process: Any) -> None:
    broker = broker_process(manifests=OBJECTS)
    await asyncio.to_thread(unpacked, "store-1", broker.data)
    expected = json.loads((KEPT / "store-1.json").read_text())
    # Again: what the first start has written is read by the second one.
    for _ in range(2):
        await asyncio.to_thread(broker.start)
        assert await queues(broker, list(expected)) == expected
        assert await asyncio.to_thread(broker.terminate) == 0
    await asyncio.to_thread(broker.start)
    async with sterna.connect(f"sterna://{broker.address}", client_id="keeper") as connection:
        reader = await connection.consumer(Topic("news"), durable="reader", selector="n > 3")
        news = [await reader.receive(timeout=10) for _ in range(4)]
        assert [one.text for one in news if one is not None] == [f"news {number}" for number in range(4, 8)]
        sent = await connection.send("orders", "new")
        # `ID:<broker>.<incarnation>.<start id>:<number>`; those from before have no start id.
        assert sent.message_id.count(".") == 2
        assert expected["orders"][0][1].count(".") == 1


_PROGRAM = """
import asyncio, sys
import sterna
from sterna import Reconnect

async def main(url):
    async with sterna.connect(url, reconnect=Reconnect(initial_ms=10, maximum_ms=100)) as connection:
        producer = await connection.producer("orders")
        await producer.send("first")
        print("sent", flush=True)
        sys.stdin.readline()
        try:
            await producer.send("after the restart")
        except sterna.errors.UnknownProducerError:
            # It has no token to show, so that what it numbers while there is no link is in doubt.
            await producer.send("after the restart")
        consumer = await connection.consumer("orders")
        for _ in range(2):
            message = await consumer.receive(timeout=20)
            print(message.text, flush=True)
            await message.acknowledge()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_kept_sdk_connects_sends_and_goes_on_after_a_restart(broker_process: Any, tmp_path: Path) -> None:
    package = await asyncio.to_thread(unpacked, "sdk-1", tmp_path / "sdk")
    broker = broker_process()
    await asyncio.to_thread(broker.start)
    program = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", _PROGRAM, f"sterna://{broker.address}"],
        env={**os.environ, "PYTHONPATH": str(package)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert await asyncio.to_thread(program.stdout.readline) == "sent\n"
        await asyncio.to_thread(broker.kill)
        await asyncio.to_thread(broker.start)
        printed, _ = await asyncio.to_thread(program.communicate, "go on\n", 60)
    finally:
        program.kill()
        program.wait()
    assert printed.splitlines() == ["first", "after the restart"]
    assert program.returncode == 0
