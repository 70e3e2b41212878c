"""What falls due while a broker is stopped, or was killed, meets the limits of its queue when it is there again."""

import asyncio
import time
from typing import Any

import pytest
import sterna

from tests.broker.calls import browse, call
from tests.broker.wire import body_of
from tests.running import RunningBroker, manifest
from tests.waiting import eventually

# So that it is due by the limits of a broker that is down, and not by those of one that still runs.
DELAY_MS = 2_000
PRESERVED = {"JMS_STERNA_PRESERVE_UNDELIVERED": True}


@pytest.mark.covers("EMS-DEST-A64", "EMS-MSG-A08", "EMS-DEST-A24")
@pytest.mark.parametrize("down", [RunningBroker.terminate, RunningBroker.kill], ids=["stopped", "killed"])
async def test_what_falls_due_while_the_broker_is_down_finds_no_room_in_a_full_queue(
    down: Any, broker_process: Any, channel_to: Any
) -> None:
    manifests = [
        manifest("Queue", "full", "maxMessages: 1, overflowPolicy: rejectIncoming"),
        manifest("Queue", "made", "name: 'd.>', maxMessages: 1, overflowPolicy: rejectIncoming"),
        manifest("Queue", "roomy", "maxMessages: 2, overflowPolicy: rejectIncoming"),
    ]
    names = ("full", "d.made", "roomy")
    broker = await asyncio.to_thread(broker_process(manifests).start)
    async with sterna.connect(f"sterna://{broker.address}") as connection:
        for name in names:
            await connection.send(name, f"late in {name}", delivery_delay_ms=DELAY_MS, properties=PRESERVED)
            await connection.send(name, "waits")
    due_at_s = time.time() + DELAY_MS / 1000
    await asyncio.to_thread(down, broker)
    await eventually(lambda: time.time() > due_at_s, what="the time at which they are due")
    for _ in range(2):
        # The second start finds what the first has decided.
        await asyncio.to_thread(broker.start)
        channel = channel_to(broker)

        async def bodies(name: str, channel: Any = channel) -> list[str]:
            return [body_of(one) for one in await browse(channel, queue=name)]

        async def what_was_refused_is_kept(bodies: Any = bodies) -> bool:
            return sorted(await bodies("$sys.undelivered")) == ["late in d.made", "late in full"]

        await eventually(what_was_refused_is_kept)
        assert [await bodies(name) for name in names] == [["waits"], ["waits"], ["late in roomy", "waits"]]
        found = (await call(channel, "Admin/Get", kind="Queue", name="roomy")).statistics
        assert found.messages == 2
        await asyncio.to_thread(down, broker)
