"""What a unary Receive has leased when the broker stops is given back while the engine is there, and never after it."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sterna_broker.contract import message, messaging
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.server.receiving import Receiving
from sterna_broker.server.sending import Sender
from sterna_broker.surroundings import monotonic_ms, wall_ms
from sterna_core import Engine

from tests.waiting import eventually

_QUEUE = message.Destination(kind=message.QUEUE, name="q")
_REQUEST = messaging.ReceiveRequest(destination=_QUEUE, wait_ms=60_000, lease_ms=1)


@pytest.fixture
async def pump(tmp_path: Path) -> AsyncIterator[Pump]:
    settings = json.dumps({"broker": "test", "segment_bytes": 1 << 20})
    engine = await asyncio.to_thread(Engine.open, str(tmp_path), settings, wall_ms(), monotonic_ms())
    engine.configure('{"queues": [{"name": "q"}]}')
    made = Pump(engine, lambda ticket: {"ok": {"user": ""}}, lambda why: pytest.fail(why))
    made.start()
    yield made
    if made.is_running:
        made.stop()
        await asyncio.to_thread(engine.stop)


async def sent(pump: Pump) -> None:
    sender = Sender(pump)
    await sender.open()
    await sender.send(_QUEUE, message.Message(text="x").SerializeToString())


async def test_what_comes_to_a_receive_after_the_stop_is_given_back_and_refused(pump: Pump) -> None:
    receiving = Receiving(pump, leases_max=10)
    call = asyncio.create_task(receiving.receive(_REQUEST))
    await eventually(lambda: json.loads(pump.engine.statistics())["consumers"] == 1, what="a consumer")
    receiving.stop()
    await sent(pump)
    with pytest.raises(RefusedError, match="stopping"):
        await asyncio.wait_for(call, 10)
    with pytest.raises(RefusedError, match="stopping"):
        await receiving.receive(_REQUEST)
    again = await Receiving(pump, leases_max=10).receive(_REQUEST)
    assert [(one.message.text, one.delivery.delivery_count) for one in again.messages] == [("x", 2)]


async def test_a_lease_that_ends_after_the_engine_disturbs_nobody(pump: Pump) -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    receiving = Receiving(pump, leases_max=10)
    await sent(pump)
    assert len((await receiving.receive(_REQUEST)).messages) == 1
    pump.stop()
    await asyncio.to_thread(pump.engine.stop)
    await eventually(lambda: not receiving._leases, what="the end of the lease")
    assert told == []
