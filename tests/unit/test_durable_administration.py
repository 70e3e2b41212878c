"""What an administrator is told is on disk."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sterna_broker.contract import admin
from sterna_broker.pump import Pump
from sterna_broker.refusals import RefusedError
from sterna_broker.server.admin import Administration
from sterna_broker.surroundings import monotonic_ms, wall_ms
from sterna_core import Engine


def progress(engine: Engine) -> tuple[int, int]:
    end, durable, failed = engine.log_progress()
    assert failed is None
    return end, durable


@pytest.fixture
async def pump(tmp_path: Path) -> AsyncIterator[Pump]:
    settings = json.dumps({"broker": "test", "segment_bytes": 1 << 20})
    engine = await asyncio.to_thread(Engine.open, str(tmp_path), settings, wall_ms(), monotonic_ms())
    made = Pump(engine, lambda ticket: {"ok": {"user": ""}}, lambda why: pytest.fail(why))
    made.start()
    yield made
    made.stop()
    await asyncio.to_thread(engine.stop)


async def test_waiting_ends_when_the_log_is_on_disk(pump: Pump) -> None:
    pump.engine.configure('{"queues": [{"name": "q"}]}')
    end, durable = progress(pump.engine)
    assert durable < end
    await pump.durable()
    assert progress(pump.engine)[1] >= end
    # With nothing to wait for it returns at once.
    await pump.durable()


async def test_a_purge_is_answered_when_its_record_is_durable(pump: Pump) -> None:
    pump.engine.configure('{"queues": [{"name": "q"}]}')
    await pump.durable()
    objects = SimpleNamespace(named=lambda kind, name: None)
    live = cast("Any", SimpleNamespace(objects=objects))
    administration = Administration(pump, live, cast("Any", SimpleNamespace()))
    # Nothing is in it, so something else stands for the record: what counts is that the answer waits for the log.
    pump.engine.configure('{"queues": [{"name": "q"}, {"name": "another"}]}')
    before, durable = progress(pump.engine)
    assert durable < before
    await administration.purge(admin.PurgeRequest(queue="q"))
    assert progress(pump.engine)[1] >= before


async def test_who_waits_when_the_broker_stops_is_told(pump: Pump) -> None:
    pump.engine.configure('{"queues": [{"name": "q"}]}')
    waiting = asyncio.ensure_future(pump.durable())
    await asyncio.sleep(0)
    pump.stop()
    with pytest.raises(RefusedError) as raised:
        await waiting
    assert raised.value.code == "SHUTTING_DOWN"
