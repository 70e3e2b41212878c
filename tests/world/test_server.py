"""What the broker's server promises to everybody else when one client vanishes, sends too much or sends nonsense."""

from __future__ import annotations

import asyncio

from tests.world.brokers import Broker
from tests.world.stage import Stage, staged

# How many turns of the loop after the end of its connection a handler is cancelled: every one of its awaits is met.
_TURNS = 24


async def _stays(stage: Stage, broker: Broker, client_id: str) -> None:
    await stage.connect(broker, client_id=client_id)
    await asyncio.sleep(3600)


@staged
async def test_a_client_that_vanishes_is_gone_whenever_its_handler_is_cancelled(stage: Stage) -> None:
    broker = await stage.broker()
    for turns in range(_TURNS):
        process, _ = stage.process("client", _stays(stage, broker, f"client-{turns}"))
        await stage.until(broker.connections)
        link = stage.network.links[-1]
        handler = next(call.handler for call in link.calls if call.method.endswith("/Connect"))
        assert handler is not None
        process.kill()
        link._end(server=True)  # at this very moment, so that the turns can be counted
        for _ in range(turns):
            await asyncio.sleep(0)
        handler.cancel()
        await asyncio.sleep(0.1)
        assert broker.connections() == [], f"cancelled after {turns} turns"
